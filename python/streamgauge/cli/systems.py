"""`streamgauge systems`: get and run a system by itself."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from streamgauge.cli.run import DurabilityOption, NodesOption

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
    str, typer.Argument(metavar="NAME[@VERSION]", help="A system's name, or a system file.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A system's name.")]


@app.command("list")
def list_() -> None:
    """List the systems, and which of them can run here."""
    from streamgauge.systems.registry import systems

    for name, system in systems().items():
        where = system.installed()
        missing = system.missing()
        state = missing or (f"installed in {where}" if where else "not downloaded yet")
        typer.echo(f"{name:<12} {system.title} {system.default_version}: {state}")


@app.command("install")
def install(system: SystemArgument) -> None:
    """Download a system into the cache, verified, so that a run needs no network."""
    choice = _choice(system, None, None)
    choice.system.install(choice.request.version, _say)
    typer.echo(f"{choice.name} is in {choice.system.installed(choice.version)}")


@app.command("up")
def up(system: SystemArgument, nodes: NodesOption = None, durability: DurabilityOption = None) -> None:
    """Start a system that stays up until `down`; it survives this command and the shell."""
    from streamgauge.systems import standalone

    choice = _choice(system, nodes, durability)
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
        str | None, typer.Argument(metavar="[NAME]", help="A system's name; all without it.")
    ] = None,
) -> None:
    """Show which systems are up, and where."""
    from streamgauge.systems import standalone

    names = [_choice(name, None, None).system.name] if name else None
    for known in standalone.statuses():
        if names is None or known.name in names:
            _show(known)


@app.command("logs")
def logs(
    name: NameArgument,
    lines: Annotated[int, typer.Option("--lines", min=1, max=100_000, help="Last lines of each file.")] = 20,
) -> None:
    """Show where a system's logs are, and their last lines."""
    from streamgauge.store.files import is_text_log, tail
    from streamgauge.systems import standalone

    for path in standalone.logs(name):
        if is_text_log(path):
            typer.echo(f"==> {path} <==")
            for line in tail(path, lines):
                typer.echo(line)


def _choice(text: str, nodes: int | None, durability: str | None) -> SystemChoice:
    from streamgauge.model.errors import InputError
    from streamgauge.model.system_file import SystemOverrides, choose_systems
    from streamgauge.systems.registry import systems

    choices = choose_systems(text, SystemOverrides(nodes=nodes, level=durability), systems())
    if len(choices) != 1:
        raise InputError(f"{text}: expected one system")
    return choices[0]


def _show(known: Standalone) -> None:
    line = f"{known.name}: {known.state}"
    if known.state == "up":
        nodes = f"{known.nodes} node{'' if known.nodes == 1 else 's'}"
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
