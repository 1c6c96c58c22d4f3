"""What `--live`, `--metrics` and `--token-file` ask for, read before anything else is loaded; watching.py serves it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamgauge.vocabulary.errors import InputError
from streamgauge.web.access import Access, parse_access


@dataclass(frozen=True)
class Pages:
    """Where is served what; None: nowhere."""

    live: Access | None = None
    metrics: Access | None = None


NO_PAGES = Pages()


def parse_pages(live: str | None, metrics: str | None, token_file: str | None) -> Pages:
    """Raises InputError."""
    if token_file is not None and live is None and metrics is None:
        raise InputError("--token-file: says who may read --live and --metrics; leave it out")
    file = None if token_file is None else Path(token_file)
    return Pages(
        live=None if live is None else parse_access("--live", live, file),
        metrics=None if metrics is None else parse_access("--metrics", metrics, file),
    )
