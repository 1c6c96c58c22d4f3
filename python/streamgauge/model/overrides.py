"""What the command line sets over a workload file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgauge.model.document import Location
from streamgauge.model.trust import NOBODY, Trust


@dataclass(frozen=True)
class Key:
    """Which key of a workload file an option sets, and the keys that say the same in other words and stand back."""

    location: Location
    instead_of: tuple[Location, ...] = ()


KEYS: dict[str, Key] = {
    "--rate": Key(("rate",), (("producerRate",),)),
    "--duration": Key(("duration",)),
    "--warmup": Key(("warmup",)),
    "--size": Key(("messageSize",)),
    "--partitions": Key(("partitionsPerTopic",)),
    "--batch-bytes": Key(("batch", "bytes")),
    "--linger": Key(("batch", "linger")),
    "--in-flight": Key(("batch", "in_flight")),
    "--backlog": Key(("backlog", "size"), (("backlog", "traffic"), ("consumerBacklogSizeGB",))),
    "--fault": Key(("faults",)),
    "--idle": Key(("idle",)),
    "--profile": Key(("profile",)),
    "--allow-unstamped": Key(("allow_unstamped",)),
}
"""An option is a value of the file that stands elsewhere: it is read, checked and refused as that."""


@dataclass(frozen=True)
class Overrides:
    """What was given: option -> value, as it would stand in the file."""

    given: Mapping[str, Any] = field(default_factory=dict)
    trust: Trust = NOBODY
    """Files that may read others from elsewhere."""

    @classmethod
    def of(cls, trust: Trust = NOBODY, **options: Any) -> Overrides:
        """From the command line's arguments (`batch_bytes` for --batch-bytes); None, and what is off, was not given."""
        named = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
        assert named.keys() <= KEYS.keys(), "an option of a workload has a key there"
        off = {name for name, value in named.items() if value is None or value is False or value == []}
        return cls({name: value for name, value in named.items() if name not in off}, trust)
