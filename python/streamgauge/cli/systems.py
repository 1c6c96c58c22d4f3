"""`streamgauge systems`: get and run a system by itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from streamgauge.cli.outputs import Outputs
from streamgauge.model.system_file import SystemChoice, SystemOverrides, choose_systems
from streamgauge.model.trust import Trust
from streamgauge.store.files import tail
from streamgauge.systems import standalone
from streamgauge.systems.base import System
from streamgauge.systems.registry import systems
from streamgauge.systems.standalone import Standalone
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.files import is_text_log
from streamgauge.vocabulary.format import plural


def list_(json: str | None) -> None:
    """The work of commands/systems.py."""
    outputs = Outputs(json)
    outputs.check()
    found = []
    for name, system in systems().items():
        where = system.installed()
        missing = system.missing()
        state = missing or (f"installed in {where}" if where else "not downloaded yet")
        typer.echo(f"{name:<12} {system.title} {system.default_version}: {state}", err=outputs.on_stdout)
        found.append(
            {
                "name": name,
                "title": system.title,
                "version": system.default_version,
                "installed": None if where is None else str(where),
                "missing": missing or None,
            }
        )
    outputs.write({"systems": found})


def install(system: str) -> None:
    """The work of commands/systems.py."""
    choice = _choice(system)
    choice.system.install(choice.request.version, _say)
    typer.echo(f"{choice.name} is in {choice.system.installed(choice.version)}")


def up(system: str, nodes: int | None, durability: str | None, trust_file: list[str] | None) -> None:
    """The work of commands/systems.py."""
    choice = _choice(system, nodes, durability, trust_file or ())
    _show(standalone.up(choice.system.name, choice.request, _say))


def down(name: str) -> None:
    """The work of commands/systems.py."""
    ended = standalone.down(name, _say)
    typer.echo(f"{name} is down" if ended else f"{name} was not up")


def status(name: str | None) -> None:
    """The work of commands/systems.py."""
    names = [_choice(name).system.name] if name else None
    for known in standalone.statuses():
        if names is None or known.name in names:
            _show(known)


def logs(name: str, lines: int) -> None:
    """The work of commands/systems.py."""
    for path in standalone.logs(name):
        if is_text_log(path):
            typer.echo(f"==> {path} <==")
            for line in tail(path, lines):
                typer.echo(line)


def _choice(
    text: str, nodes: int | None = None, durability: str | None = None, trusted: Sequence[str] | None = None
) -> SystemChoice[System]:
    """`trusted`: the files that the user trusts; None where nothing is started, so that the file cannot do anything."""
    trust = Trust((Path(text).resolve(),)) if trusted is None else Trust.parse(trusted)
    choices = choose_systems(text, SystemOverrides(nodes=nodes, level=durability, trust=trust), systems())
    if len(choices) != 1:
        raise InputError(f"{text}: expected one system")
    return choices[0]


def _show(known: Standalone) -> None:
    line = f"{known.name}: {known.state}"
    if known.state == "up":
        nodes = plural(known.nodes, "node")
        where = ", ".join(known.connection.get("bootstrap", []))
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(known.started_unix_s))
        line += (
            f" since {since}, version {known.version}, {nodes}, {known.level or 'level unknown'}, at {where}"
        )
        if known.connection.get("security"):
            line += f", TLS (authority: {known.directory / 'system' / 'tls' / 'keys' / 'authority.pem'})"
    elif known.message:
        line += f": {known.message}"
    typer.echo(line)
    if known.state == "up" and known.metrics:
        typer.echo(f"  its metrics (--system-metrics): {','.join(known.metrics)}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
