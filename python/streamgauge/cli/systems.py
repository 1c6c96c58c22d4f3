"""`streamgauge systems`: get and run a system by itself."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="Get and run a system by itself.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command("list")
def list_() -> None:
    """List the systems, and which of them can run here."""
    from streamgauge.systems.registry import systems

    for name, system in sorted(systems().items()):
        where = system.installed()
        missing = system.missing()
        state = missing or (f"installed in {where}" if where else "not installed yet (systems install)")
        typer.echo(f"{name:<12} {system.title} {system.default_version}: {state}")
