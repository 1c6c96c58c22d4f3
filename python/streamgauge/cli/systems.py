"""`streamgauge systems`: get and run a system by itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamgauge.cli import complete, names
from streamgauge.cli.outputs import JsonOption, Outputs
from streamgauge.cli.run import DurabilityOption, NodesOption, TrustOption
from streamgauge.systems.base import System
from streamgauge.vocabulary.format import plural

if TYPE_CHECKING:
    from streamgauge.model.system_file import SystemChoice
    from streamgauge.systems.standalone import Standalone

app = typer.Typer(
    help="Get and run a system by itself.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

SystemArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME[@VERSION]", autocompletion=complete.system, help="A system's name, or a system file."
    ),
]
NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", autocompletion=complete.words(*names.SYSTEMS), help="A system's name."),
]


@app.command("list")
def list_(json: JsonOption = None) -> None:
    """List the systems, and which of them can run here."""
    from streamgauge.systems.registry import systems

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


@app.command("install")
def install(system: SystemArgument) -> None:
    """Download a system into the cache, verified, so that a run needs no network."""
    choice = _choice(system)
    choice.system.install(choice.request.version, _say)
    typer.echo(f"{choice.name} is in {choice.system.installed(choice.version)}")


@app.command("up")
def up(
    system: SystemArgument,
    nodes: NodesOption = None,
    durability: DurabilityOption = None,
    trust_file: TrustOption = None,
) -> None:
    """Start a system that stays up until `down`; it survives this command and the shell."""
    from streamgauge.systems import standalone

    choice = _choice(system, nodes, durability, trust_file or ())
    _show(standalone.up(choice.system.name, choice.request, _say))


@app.command("down")
def down(name: NameArgument) -> None:
    """Stop a system that `up` started, and wipe its data; its logs stay."""
    from streamgauge.systems import standalone

    ended = standalone.down(name, _say)
    typer.echo(f"{name} is down" if ended else f"{name} was not up")


@app.command("status")
def status(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            autocompletion=complete.words(*names.SYSTEMS),
            help="A system's name; all without it.",
        ),
    ] = None,
) -> None:
    """Show which systems are up, and where."""
    from streamgauge.systems import standalone

    names = [_choice(name).system.name] if name else None
    for known in standalone.statuses():
        if names is None or known.name in names:
            _show(known)


@app.command("logs")
def logs(
    name: NameArgument,
    lines: Annotated[
        int, typer.Option("--lines", metavar="N", min=1, max=100_000, help="Last lines of each file.")
    ] = 20,
) -> None:
    """Show where a system's logs are, and their last lines."""
    from streamgauge.store.files import tail
    from streamgauge.systems import standalone
    from streamgauge.vocabulary.files import is_text_log

    for path in standalone.logs(name):
        if is_text_log(path):
            typer.echo(f"==> {path} <==")
            for line in tail(path, lines):
                typer.echo(line)


def _choice(
    text: str, nodes: int | None = None, durability: str | None = None, trusted: Sequence[str] | None = None
) -> SystemChoice[System]:
    """`trusted`: the files that the user trusts; None where nothing is started, so that the file cannot do anything."""
    from streamgauge.model.system_file import SystemOverrides, choose_systems
    from streamgauge.model.trust import Trust
    from streamgauge.systems.registry import systems
    from streamgauge.vocabulary.errors import InputError

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


def _say(text: str) -> None:
    print(text, file=sys.stderr)
