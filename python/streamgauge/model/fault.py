"""Faults as they are written: `kill:1@10s`, `restart@20s`, `fsync-delay=20ms:2@5s` (docs/durability.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from streamgauge.model.power_cut import describe_place, read_place, read_survivors
from streamgauge.model.result_asked import FaultAsked
from streamgauge.vocabulary.choices import FAULTS, FaultAction
from streamgauge.vocabulary.units import format_duration, parse_duration

EXPECTED = "expected ACTION[=AMOUNT][:TARGET]@TIME, such as kill:1@10s or restart@20s"
BREAKING: frozenset[FaultAction] = frozenset(
    {"kill", "stop", "power-cut", "fsync-delay", "fsync-error", "disk-full", "cut-network"}
)
"""Faults that need a part to break."""
ON_STORAGE: frozenset[FaultAction] = frozenset(
    {"power-cut", "fsync-delay", "fsync-error", "disk-full", "disk-free"}
)
"""Faults of the disk, which need a file system of our own below the system's data."""
ON_NETWORK: frozenset[FaultAction] = frozenset({"cut-network", "heal"})
"""Faults of the network, for which each node needs one of its own."""
LEADER, FOLLOWERS = "leader", "followers"
"""Targets that depend on who leads the first partition of the first topic when the fault is due."""
ENDS: dict[FaultAction, tuple[FaultAction, ...]] = {
    "restart": ("kill", "power-cut", "fsync-error"),
    "cont": ("stop",),
    "disk-free": ("disk-full",),
    "heal": ("cut-network",),
}
"""What ends a fault -> the faults that it ends."""


def breaks(fault: FaultAsked) -> bool:
    """Whether something is broken from it on; a delay of nothing only ends one."""
    return fault.action not in ENDS and (fault.action != "fsync-delay" or bool(fault.amount_s))


def ends(later: FaultAsked, earlier: FaultAsked) -> bool:
    """Whether a fault that was asked for later ends one on the same part: another delay takes the place of the one before."""
    return earlier.action in ENDS.get(later.action, ()) or earlier.action == later.action == "fsync-delay"


_PATTERN = re.compile(r"([a-z-]+)(?:=([^:@]+))?(?::([A-Za-z0-9-]+))?@([^@]+)")


def read_faults(value: Any) -> tuple[FaultAsked, ...]:
    """Faults of a text (separated by commas) or of a list of such texts, in the order of their times. Raises
    ValueError.
    """
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{value!r} is no list of faults: {EXPECTED}")
    faults = [_read_one(part.strip()) for text in texts for part in text.split(",") if part.strip()]
    faults.sort(key=lambda fault: fault.at_s)
    _check_order(faults)
    return tuple(faults)


def _read_one(text: str) -> FaultAsked:
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is no fault: {EXPECTED}")
    name, amount, target, at = found.groups()
    action = next((known for known in FAULTS if known == name), None)
    if action is None:
        raise ValueError(f"'{text}': there is no fault '{name}'; expected one of {', '.join(FAULTS)}")
    if action == "fsync-delay" and amount is None:
        raise ValueError(f"'{text}': fsync-delay needs a time, such as fsync-delay=20ms:1@10s")
    if amount is not None and action not in ("fsync-delay", "power-cut"):
        raise ValueError(f"'{text}': {action} takes no amount (=)")
    at, _, place = at.partition("/")
    if place and action != "power-cut":
        raise ValueError(f"'{text}': only a power-cut comes at an operation (/)")
    if action not in BREAKING and target in (LEADER, FOLLOWERS):
        raise ValueError(
            f"'{text}': who leads may have changed by then; leave the target out: {action} ends it wherever it was made"
        )
    if action in BREAKING and target is None:
        raise ValueError(f"'{text}': of what? Expected a node, a part or all, such as {action}:1@{at}")
    return FaultAsked(
        action=action,
        target=target,
        at_s=parse_duration(at),
        amount_s=parse_duration(amount) if amount is not None and action == "fsync-delay" else None,
        survivors=read_survivors(amount) if amount is not None and action == "power-cut" else None,
        place=read_place(place) if place else None,
    )


def _check_order(faults: Iterable[FaultAsked]) -> None:
    """What ends a fault must come after one that it can end."""
    broken: set[FaultAction] = set()
    for fault in faults:
        ended = ENDS.get(fault.action)
        if ended is not None and not broken.intersection(ended):
            raise ValueError(
                f"{describe(fault)}: there is no {' or '.join(ended)} before it that it could end"
            )
        broken.add(fault.action)


def describe(fault: FaultAsked) -> str:
    """As it is written."""
    amount = "" if fault.amount_s is None else f"={format_duration(fault.amount_s)}"
    if fault.survivors is not None:
        amount = f"={fault.survivors}"
    place = "" if fault.place is None else f"/{describe_place(fault.place)}"
    target = "" if fault.target is None else f":{fault.target}"
    return f"{fault.action}{amount}{target}@{format_duration(fault.at_s)}{place}"
