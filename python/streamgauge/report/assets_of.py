"""The files in report/assets, as text."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

CHART_SCRIPTS = ("folds.js", "figures.js", "reading.js", "plots.js", "report.js")
"""What draws a page's charts from its data island, in the order in which they build on each other."""


def asset(name: str) -> str:
    """The text of a file in report/assets."""
    return resources.files("streamgauge.report").joinpath("assets", name).read_text(encoding="utf-8")


def page_script() -> str:
    """Of every page but a run's: folds and the theme."""
    return asset("folds.js") + asset("study.js")


def policy(*scripts: str, forms: str = "'none'") -> str:
    """A content security policy for a page that loads nothing and runs these scripts, word for word, and no other: one that came
    into the page with the text of a run has another hash. `forms`: where its forms may lead."""
    hashes = "".join(f" 'sha256-{_hash(script)}'" for script in scripts) or " 'none'"
    return f"default-src 'none'; base-uri 'none'; form-action {forms}; style-src 'unsafe-inline'; img-src data:; script-src{hashes}"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
