"""What the shell offers for the tab key. Nothing that takes long to load is used: an answer must be there before anybody notices."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from streamgauge.model.library import library_names
from streamgauge.systems.names import system_names

PACKAGE = Path(__file__).resolve().parent.parent
Completer = Callable[[typer.Context, str], list[str]]


def words(*known: str) -> Completer:
    """One of some words."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:  # noqa: ARG001
        return _starting(known, incomplete)

    return complete


def listed(known: Iterable[str]) -> Completer:
    """Words with commas between them: what is before the last comma stays."""
    offered = tuple(known)

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:  # noqa: ARG001
        return _behind_comma(offered, incomplete)

    return complete


def system_name(ctx: typer.Context, incomplete: str) -> list[str]:  # noqa: ARG001
    """A system's name."""
    return _starting(system_names(), incomplete)


def system(ctx: typer.Context, incomplete: str) -> list[str]:  # noqa: ARG001
    """A system's name, and NAME@VERSION of those that are installed."""
    return _starting(_systems(), incomplete)


def systems(ctx: typer.Context, incomplete: str) -> list[str]:  # noqa: ARG001
    """As `system`, with commas between them."""
    return _behind_comma(_systems(), incomplete)


def workload(ctx: typer.Context, incomplete: str) -> list[str]:  # noqa: ARG001
    """The workloads that ship."""
    return _starting(library_names(), incomplete)


def study(ctx: typer.Context, incomplete: str) -> list[str]:
    """The studies that ship; with --resume runs, too."""
    found = [path.stem for path in sorted((PACKAGE / "studies").rglob("*.yaml"))]
    if ctx.params.get("resume"):
        found += _runs(ctx)
    return _starting(found, incomplete)


def run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Runs below --out, the newest first, and `latest`."""
    return _starting(_runs(ctx), incomplete)


def _runs(ctx: typer.Context) -> list[str]:
    out = Path(ctx.params.get("out") or "runs")
    try:
        found = [
            one.name for one in out.iterdir() if not one.is_symlink() and (one / "manifest.json").is_file()
        ]
    except OSError:
        return []
    return [*(["latest"] if found else []), *sorted(found, reverse=True)]


def _systems() -> list[str]:
    # As systems/support/cache.py has it, which takes long to load.
    root = os.environ.get("STREAMGAUGE_CACHE", "") or Path.home() / ".cache" / "streamgauge"
    installed = Path(root).expanduser() / "installed"
    versions = [f"{path.parent.name}@{path.name}" for path in sorted(installed.glob("*/*")) if path.is_dir()]
    known = system_names()
    return [*known, *(one for one in versions if one.partition("@")[0] in known)]


def _starting(known: Iterable[str], incomplete: str) -> list[str]:
    return [one for one in known if one.startswith(incomplete)]


def _behind_comma(known: Iterable[str], incomplete: str) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{one}" for one in _starting(known, last) if one not in taken]
