"""What is compared: the cells of a run, or some of them, as they are named by people, and which of them belong beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from streamgauge.analysis.cells import Cell, cells
from streamgauge.analysis.match import ASKED, Matching, Traits, ambiguity, match, traits_of
from streamgauge.model.result import Manifest
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
    manifest: Manifest | None
    """None of results that another tool made."""
    cells: tuple[Cell, ...]

    @property
    def status(self) -> str:
        """Of its run."""
        return "imported" if self.manifest is None else str(self.manifest.status)

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
        return replace(self, cells=kept)


def read_side(text: str, out: Path) -> Side:
    """`RUN`, `RUN:SYSTEM` or `RUN:SYSTEM,TRAIT=VALUE[,...]`. Raises InputError when there is no such run or it has no such cell, complete."""
    run, selected = _open(text, out)
    return _selected(side_of(run, text), selected)


def side_of(run: RunDirectory, asked: str) -> Side:
    """All complete cells of a run that was opened. Raises InputError when it goes on still, or has none."""
    if run.ours and is_running(run):
        raise InputError(f"{asked}: this run is still going on; compare with one that has ended")
    found = tuple(cells([one for one in run.results() if one.status == "complete"]))
    if not found:
        raise InputError(f"{asked}: {run.run_id} holds no complete trial")
    manifest = run.read_manifest() if run.ours else None
    return Side(asked, run.run_id, manifest, found)


def ambiguous(matching: Matching, base: list[Traits], other: list[Traits]) -> str | None:
    """Why a matching cannot be made, and what to do; None where it can."""
    told = ambiguity(matching, base, other)
    return f"it is ambiguous what is compared with what: {told}; {PICK}" if told else None


@dataclass(frozen=True)
class Beside:
    """Two sides, and which of their cells belong together."""

    base: Side
    other: Side
    pairs: tuple[tuple[Cell, Cell], ...]
    alone: tuple[tuple[Side, Cell], ...]
    """What either side has and the other has not."""

    @property
    def notes(self) -> list[str]:
        """What has to be known of it, a line each."""
        found = [f"only {side.run_id} has {cell.name}" for side, cell in self.alone]
        for side in (self.base, self.other):
            if side.status not in ("complete", "imported"):
                found.append(
                    f"{side.run_id}: its status is '{side.status}': not everything in it was measured"
                )
        return found


def read_sides(texts: Sequence[str], out: Path) -> list[Side]:
    """What is compared, the base first. One text names a run of several systems, which are the sides then. Raises InputError."""
    return sides_of([read_side(text, out) for text in texts])


def sides_of(found: Sequence[Side]) -> list[Side]:
    """The same for sides that were read. Raises InputError."""
    if len(found) > 1:
        return list(found)
    (run,) = found
    systems = list(dict.fromkeys(cell.first.system for cell in run.cells))
    if len(systems) < 2:
        raise InputError(
            f"{run.asked} holds {', '.join(systems)}: expected two runs or more, or a run of two systems or more"
        )
    return [run.only(system) for system in systems]


def beside(base: Side, other: Side) -> Beside:
    """Pairs of their cells. Raises InputError where there are none, or it is not clear which."""
    matching = match(base.traits, other.traits)
    why = ambiguous(matching, base.traits, other.traits)
    if why is not None:
        raise InputError(why)
    if not matching.pairs:
        raise InputError(
            f"nothing to compare: {base.asked} measured {base.names}, {other.asked} measured {other.names}; "
            "expected a workload (and, where there are several, a system) in common"
        )
    alone = tuple(
        (side, side.cells[at])
        for side, left in zip((base, other), matching.alone, strict=True)
        for at in left
    )
    return Beside(base, other, tuple((base.cells[i], other.cells[j]) for i, j in matching.pairs), alone)


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
        side = replace(side, cells=kept)
    return side
