"""The files in report/assets, as text."""

from __future__ import annotations

from importlib import resources


def asset(name: str) -> str:
    """The text of a file in report/assets."""
    return resources.files("streamgauge.report").joinpath("assets", name).read_text(encoding="utf-8")
