"""`streamgauge systems`: get and run a system by itself."""

from __future__ import annotations

from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import DurabilityOption, JsonOption, NodesOption, TrustOption

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
    typer.Argument(metavar="NAME", autocompletion=complete.system_name, help="A system's name."),
]


@app.command("list")
@deferred("streamgauge.cli.systems:list_")
def list_(json: JsonOption = None) -> None:
    """List the systems, and which of them can run here."""


@app.command("install")
@deferred("streamgauge.cli.systems:install")
def install(system: SystemArgument) -> None:
    """Download a system into the cache, verified, so that a run needs no network."""


@app.command("up")
@deferred("streamgauge.cli.systems:up")
def up(
    system: SystemArgument,
    nodes: NodesOption = None,
    durability: DurabilityOption = None,
    trust_file: TrustOption = None,
) -> None:
    """Start a system that stays up until `down`; it survives this command and the shell."""


@app.command("down")
@deferred("streamgauge.cli.systems:down")
def down(name: NameArgument) -> None:
    """Stop a system that `up` started, and wipe its data; its logs stay."""


@app.command("status")
@deferred("streamgauge.cli.systems:status")
def status(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            autocompletion=complete.system_name,
            help="A system's name; all without it.",
        ),
    ] = None,
) -> None:
    """Show which systems are up, and where."""


@app.command("logs")
@deferred("streamgauge.cli.systems:logs")
def logs(
    name: NameArgument,
    lines: Annotated[
        int, typer.Option("--lines", metavar="N", min=1, max=100_000, help="Last lines of each file.")
    ] = 20,
) -> None:
    """Show where a system's logs are, and their last lines."""
