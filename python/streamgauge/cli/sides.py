"""What is compared: the cells of a run, or some of them, as they are named on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamgauge.analysis.cells import Cell, cells
from streamgauge.analysis.match import ASKED, Matching, Traits, ambiguity, traits_of
from streamgauge.store.directory import RunDirectory
from streamgauge.store.lab import is_running
from streamgauge.vocabulary.errors import InputError, nearest

PICK = "pick one by RUN:SYSTEM or by RUN:SYSTEM,TRAIT=VALUE, such as RUN:kafka,nodes=3"


@dataclass(frozen=True)
class Side:
    """Cells of one run, read once: what becomes of its directory, or of a link to it, changes nothing."""

    asked: str
    """As it was named."""
    run_id: str
    status: str
    cells: tuple[Cell, ...]

    @property
    def traits(self) -> list[Traits]:
        """Of each cell."""
        return [traits_of(cell) for cell in self.cells]

    @property
    def names(self) -> str:
        """What it measured, for sentences."""
        return ", ".join(
            dict.fromkeys(f"{cell.first.workload.name} on {cell.first.system}" for cell in self.cells)
        )

    def only(self, system: str) -> Side:
        """The cells of one system."""
        kept = tuple(cell for cell in self.cells if cell.first.system == system)
        return Side(self.asked, self.run_id, self.status, kept)


def read_side(text: str, out: Path) -> Side:
    """`RUN`, `RUN:SYSTEM` or `RUN:SYSTEM,TRAIT=VALUE[,...]`. Raises InputError when there is no such run or it has no such cell, complete."""
    run, selected = _open(text, out)
    if run.ours and is_running(run):
        raise InputError(f"{text}: this run is still going on; compare with one that has ended")
    found = tuple(cells([one for one in run.results() if one.status == "complete"]))
    if not found:
        raise InputError(f"{text}: {run.run_id} holds no complete trial")
    status = run.read_manifest().status if run.ours else "imported"
    return _selected(Side(text, run.run_id, status, found), selected)


def ambiguous(matching: Matching, base: list[Traits], other: list[Traits]) -> str | None:
    """Why a matching cannot be made, and what to do; None where it can."""
    told = ambiguity(matching, base, other)
    return f"it is ambiguous what is compared with what: {told}; {PICK}" if told else None


def _open(text: str, out: Path) -> tuple[RunDirectory, str]:
    """The run, and what of it. A path may hold colons itself."""
    name, separator, selected = text.rpartition(":")
    try:
        run, selected = RunDirectory.open(text, out), ""
    except InputError:
        if not separator:
            raise
        run = RunDirectory.open(name, out)
    # A link, such as `latest`, may point elsewhere by the time that the run is named.
    return RunDirectory(run.path.resolve()), selected


def _selected(side: Side, text: str) -> Side:
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, value = part.partition("=")
        trait, wanted = (name, value) if separator else ("system", name)
        known = {one.removeprefix(ASKED): one for one in side.traits[0]}
        if trait not in known:
            hint = nearest(trait, known) or f"; expected one of {', '.join(known)}"
            raise InputError(f"{side.asked}: no trait '{trait}'{hint}")
        shown = [str(traits[known[trait]]) for traits in side.traits]
        kept = tuple(cell for cell, one in zip(side.cells, shown, strict=True) if one == wanted)
        if not kept:
            hint = nearest(wanted, set(shown)) or f"; expected one of {', '.join(sorted(set(shown)))}"
            raise InputError(f"{side.run_id} did not measure {trait} '{wanted}'{hint}")
        side = Side(side.asked, side.run_id, side.status, kept)
    return side
