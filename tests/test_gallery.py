"""The gallery: every report is there for a reason, opens without a network, and tells nothing of where it was made."""

from __future__ import annotations

import re
from pathlib import Path

GALLERY = Path(__file__).resolve().parent.parent / "docs" / "gallery"
LEAST = 8
PLACES = re.compile(r"/(?:home|root|tmp|work|srv|var/lib)/[\w.-]")


def pages() -> list[Path]:
    return sorted(GALLERY.rglob("*.html"))


def test_every_report_is_told_of_and_what_is_told_of_is_there() -> None:
    told = set(re.findall(r"\]\(([\w./-]+\.html)\)", (GALLERY / "README.md").read_text("utf-8")))
    there = {str(path.relative_to(GALLERY)) for path in pages()}
    assert told | {"study/trials.html"} == there
    assert len(told) >= LEAST


def test_no_report_asks_a_network_or_tells_of_its_place() -> None:
    for path in pages():
        text = path.read_text("utf-8")
        assert "<svg" in text or "data-" in text, path
        assert not re.findall(r"""(?:src|srcset)=["']?https?:""", text), path
        assert not PLACES.findall(text), path
