"""One colour per system, in every report and for ever: who has learnt that Kafka is orange finds it orange in the next report, too.

Colours are the page's (`--series-0` ...; assets/report.css). What a report has several of one system (versions, levels, rates) are shades of its colour, and
lines have dashes besides, because shades alone are told apart by nobody.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamgauge.analysis.cells import Cell

SLOTS = (
    ("reference log", 0),
    ("gauge-log", 0),
    ("kafka", 1),
    ("nats", 2),
    ("pulsar", 3),
    ("rabbit", 4),
)
"""What a system is called, in part -> its series. A name that is in use keeps its series."""
OTHERS = (5, 6, 7)
"""Systems of other packages share these, by their names alone."""
SHADES_PERCENT = (100, 60, 30)
"""How much of the colour is in the shades of one system; the rest is the page's ink."""


@dataclass(frozen=True)
class Colour:
    """A series, and which of several of its system it is."""

    slot: int
    variant: int = 0

    @property
    def css(self) -> str:
        """As a style sheet has it."""
        percent = SHADES_PERCENT[self.variant % len(SHADES_PERCENT)]
        series = f"var(--series-{self.slot})"
        return series if percent == 100 else f"color-mix(in srgb, {series} {percent}%, var(--ink))"


PRINTED = "var(--soft)"
"""What somebody else measured and printed has no system's colour."""


def slot_of(name: str) -> int:
    """The series of a system by what it is called: its title, its name, or both."""
    known = name.lower()
    found = next((slot for part, slot in SLOTS if part in known), None)
    return OTHERS[zlib.crc32(known.encode()) % len(OTHERS)] if found is None else found


def of(names: Iterable[str]) -> list[Colour]:
    """A colour for each of several that stand in one report; those of one system are shades."""
    counts: dict[int, int] = {}
    found = []
    for name in names:
        slot = slot_of(name)
        counts[slot] = counts.get(slot, -1) + 1
        found.append(Colour(slot, counts[slot]))
    return found


def of_machines(places: Iterable[tuple[int, int]]) -> list[Colour]:
    """A colour for each of several disks, of which the number of its machine and its own among that machine's are given."""
    return [Colour(machine % (OTHERS[-1] + 1), disk) for machine, disk in places]


def of_cells(cells: Sequence[Cell], *, curves_alike: bool = True) -> list[Colour]:
    """The same for cells. Points of a curve have that of their system, unless `curves_alike` is false."""
    keys = [
        (cell.first.system, cell.first.workload.name) if cell.of_a_curve and curves_alike else cell.key
        for cell in cells
    ]
    titles = {key: cell.first.system_title for key, cell in zip(keys, cells, strict=True)}
    known = dict(zip(titles, of(titles.values()), strict=True))
    return [known[key] for key in keys]
