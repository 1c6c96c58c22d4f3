"""Power cuts: what they leave, where they come, and what they took (docs/durability.md)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from streamgauge.model.result_base import Model
from streamgauge.vocabulary.choices import DEEDS, SURVIVORS, Deed, Survivors
from streamgauge.vocabulary.format import count, trimmed

KEEP = 0.5
"""Probability of each block, where blocks survive by themselves."""
PAGE_BYTES, SECTOR_BYTES = 4096, 512
STRICT_NAMES: Survivors = "posix-names"
TOLD: dict[Survivors, str] = {
    "none": "nothing that was not synced",
    "prefix": "the un-synced writes up to a random one, over all files",
    "random": "each un-synced block of 4 KiB with a probability of a half",
    "torn-512": "of each file a random first part of what was not synced, in sectors of 512 bytes",
    "torn-4096": "of each file a random first part of what was not synced, in blocks of 4 KiB",
    "versions": "each un-synced block of 4 KiB with a probability of a half, as it was after any of the writes to it",
    "names-without-data": "all names and sizes that were set, and no un-synced data",
    "data-without-names": "all data, and no name that was not committed",
    "posix-names": "nothing that was not synced, and a name only when its directory was synced: what POSIX promises",
}
"""What survives, as the rest of a sentence."""
_PLACE = re.compile(r"([a-z]+)#([1-9][0-9]*)/(.+)")


class Place(Model):
    """An operation on a file at which a disk stands still until its power is cut."""

    deed: Deed
    count: int = Field(ge=1)
    """The how many-th from the time on from which it is counted."""
    glob: str
    """Of the path below the part's data directory."""


class LostFile(Model):
    """A file that lost something in a power cut, and what had been done to it. Times are ms before the cut."""

    part: str
    path: str
    lost: Literal["data", "name"]
    """Un-synced bytes of it, or its name and so all of it."""
    dropped_bytes: int
    survived_bytes: int
    created_ms: float | None = None
    written_ms: float | None = None
    synced_ms: float | None = None
    """When a sync of it ended well; None: never."""
    sync_failed_ms: float | None = None
    renamed_ms: float | None = None
    removed_ms: float | None = None

    @property
    def told(self) -> str:
        """The file, what is gone, and the operations that say why, as the rest of a sentence."""
        return f"{self.name}, which lost {self.gone}"

    @property
    def name(self) -> str:
        """Where it was."""
        return f"{self.path} on {self.part}"

    @property
    def gone(self) -> str:
        """What is gone, and what had been done."""
        what = f"{count(self.dropped_bytes)} un-synced bytes" if self.lost == "data" else "its name"
        deeds = [
            f"{name} {trimmed(at_ms)} ms before the cut"
            for name, at_ms in (
                ("made", self.created_ms),
                ("renamed", self.renamed_ms),
                ("written", self.written_ms),
                ("a sync failed", self.sync_failed_ms),
                ("removed", self.removed_ms),
            )
            if at_ms is not None
        ]
        synced = (
            "never synced"
            if self.synced_ms is None
            else f"last synced {trimmed(self.synced_ms)} ms before it"
        )
        return f"{what} ({', '.join([*deeds, synced])})"


class LostMessage(Model):
    """Where a lost message had been when the power was cut."""

    producer: int
    sequence: int
    offset: int
    """In the file."""
    file: LostFile

    @property
    def told(self) -> str:
        """As of the file, with the message's place."""
        return f"message {self.sequence:,} of producer {self.producer} was at byte {self.offset:,} of {self.file.told}"


class PowerCut(Model):
    """What a power cut left and took, on all disks that it hit."""

    survivors: Survivors
    seed: int
    """With the kind, it says which of the un-synced survived."""
    dropped_bytes: int = 0
    survived_bytes: int = 0
    names_reverted: int = 0
    files: list[LostFile] = Field(default_factory=list)


def read_survivors(text: str) -> Survivors:
    """Raises ValueError that says what there is."""
    found = next((known for known in SURVIVORS if known == text), None)
    if found is None:
        raise ValueError(f"'{text}' are no survivors of a power cut; expected one of {', '.join(SURVIVORS)}")
    return found


def read_place(text: str) -> Place:
    """`rename#2/*.log`. Raises ValueError."""
    found = _PLACE.fullmatch(text)
    deed = next((known for known in DEEDS if found is not None and known == found[1]), None)
    if found is None or deed is None:
        raise ValueError(
            f"'{text}' is no place of a cut: expected DEED#N/GLOB, such as rename#2/*.log (DEED: one of {', '.join(DEEDS)})"
        )
    return Place(deed=deed, count=int(found[2]), glob=found[3])


def describe_place(place: Place) -> str:
    """As it is written."""
    return f"{place.deed}#{place.count}/{place.glob}"


def mixed(seed: int) -> Iterator[Survivors]:
    """The kinds of one cut after the other: nothing survives first, then the others in a random, seeded order, and again."""
    chance = random.Random(f"survivors {seed}")
    while True:
        others = [kind for kind in SURVIVORS if kind != "none"]
        chance.shuffle(others)
        yield "none"
        yield from others


def arguments(survivors: Survivors, seed: int) -> dict[str, Any]:
    """What `gauge powercut` is told with `cut` (docs/powercut.md)."""
    by_chance = "all" if random.Random(f"names {seed}").random() < KEEP else "none"
    told: dict[Survivors, dict[str, Any]] = {
        "none": {"survive": "none"},
        "prefix": {"survive": "prefix", "names": by_chance},
        "random": {"survive": "random", "keep": KEEP, "block_bytes": PAGE_BYTES, "names": by_chance},
        "torn-512": {"survive": "torn", "block_bytes": SECTOR_BYTES, "names": by_chance},
        "torn-4096": {"survive": "torn", "block_bytes": PAGE_BYTES, "names": by_chance},
        "versions": {"survive": "versions", "keep": KEEP, "block_bytes": PAGE_BYTES, "names": by_chance},
        "names-without-data": {"survive": "none", "names": "all"},
        "data-without-names": {"survive": "all"},
        "posix-names": {"survive": "none"},
    }
    return {**told[survivors], "seed": seed}
