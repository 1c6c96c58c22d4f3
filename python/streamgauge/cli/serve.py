"""`streamgauge serve`: runs in a browser."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path

import typer

from streamgauge.serve.pages import Pages
from streamgauge.serve.shelf import Shelf
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.format import plural
from streamgauge.web.access import parse_access
from streamgauge.web.server import Answer, Asked, PageServer

ADDRESS = "expected ADDRESS:PORT, such as 127.0.0.1:8642 or [::1]:8642"


def serve(directory: Path, listen: str, token_file: Path | None) -> None:
    """The work of commands/serve.py."""
    access = parse_access("--listen", listen, token_file, expected=ADDRESS)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory; expected one that holds runs, such as runs")
    shelf = Shelf(directory)
    pages = Pages(shelf)

    def answer(asked: Asked) -> Answer:
        try:
            return pages.answer(asked)
        except Exception:
            traceback.print_exc()
            return pages.refused(500, "this page cannot be made: a fault of streamgauge")

    server = PageServer("--listen", access, answer)
    try:
        typer.echo(f"{plural(len(shelf.entries()), 'run')} of {directory} at {server.url} (Ctrl-C ends it)")
        if access.token is not None:
            typer.echo("a reader gives any name, and the token as the password")
        if not access.is_local:
            typer.echo(
                "note: what is read here travels unencrypted: use it within a network that you trust, or through ssh -L",
                err=True,
            )
        server.start()
        with contextlib.suppress(KeyboardInterrupt):
            server.wait()
    finally:
        server.stop()
