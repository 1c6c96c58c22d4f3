"""`streamgauge serve`: runs in a browser."""

from __future__ import annotations

import contextlib
from pathlib import Path

import typer

from streamgauge.fleet.hosts import is_loopback
from streamgauge.fleet.trust import NotTrusted, read_token
from streamgauge.serve.gate import Gate
from streamgauge.serve.pages import Pages
from streamgauge.serve.server import PagesServer
from streamgauge.serve.shelf import Shelf
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.format import plural


def serve(directory: Path, listen: str, token_file: Path | None) -> None:
    """The work of commands/serve.py."""
    host, port = _address(listen)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory; expected one that holds runs, such as runs")
    token = _token(token_file)
    local = is_loopback(host)
    if token is None and not local:
        raise InputError(
            f"--listen {listen} is reached from other machines, and whoever reaches it reads every run in {directory}: "
            "expected --token-file FILE as well (a secret in one line, chmod 600), or a loopback address such as 127.0.0.1:8642"
        )
    shelf = Shelf(directory)
    try:
        server = PagesServer(
            ("127.0.0.1" if host == "localhost" else host, port), Pages(shelf), Gate(local, token)
        )
    except OSError as error:
        raise InputError(f"--listen {listen}: cannot be had: {error.strerror or error}") from None
    with server:
        typer.echo(f"{plural(len(shelf.entries()), 'run')} of {directory} at {server.url} (Ctrl-C ends it)")
        if token is not None:
            typer.echo("a reader gives any name, and the token as the password")
        if not local:
            typer.echo(
                "note: what is read here travels unencrypted: use it within a network that you trust, or through ssh -L",
                err=True,
            )
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"--listen {text}: expected ADDRESS:PORT, such as 127.0.0.1:8642 or [::1]:8642")
    return host, int(port)


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return read_token(file)
    except NotTrusted as error:
        raise InputError(f"--token-file {error}") from None
