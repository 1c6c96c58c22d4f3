"""Which cell of one run belongs beside which of another.

Cells are alike in traits: system, version, nodes, level, TLS, and everything that was asked of the generator. On purpose two runs differ in some of them -
a new version, another linger -, so a pair may differ in anything but its workload's name, and in its system only where each side has a single one. Where a
side has a workload at several rates, as points of a curve, only points of one rate belong together. Among
several that a cell could stand beside, one is chosen only if it differs in less than any other: in part of what the other differs in. Else nothing is
guessed: the match is ambiguous. No cell stands in two pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamgauge.analysis.cells import Cell
from streamgauge.model.result_asked import WorkloadResult
from streamgauge.model.workload import EXTRA

Traits = Mapping[str, Any]
"""Trait -> value. One that is not there is not known (of a cell that has not run yet) and differs from nothing."""
ASKED = "workload "
RATE = f"{ASKED}rate_msgs_s"
"""Before the keys of the workload."""


@dataclass(frozen=True)
class Matching:
    """Indices into the two sides."""

    pairs: tuple[tuple[int, int], ...]
    ambiguous: tuple[tuple[int, int], ...]
    """Pairs that could be made, of cells that could also stand in another."""
    alone: tuple[tuple[int, ...], tuple[int, ...]]
    """Cells of each side that nothing of the other side belongs to."""


def traits_of(cell: Cell) -> Traits:
    """Of a cell that has run."""
    first = cell.first
    return {
        "system": first.system,
        "version": first.system_version,
        "nodes": first.nodes,
        "durability": first.durability.declared,
        "tls": first.tls,
        "authentication": first.authentication,
        "client": first.client,
        **asked_traits(first.workload),
    }


def asked_traits(workload: WorkloadResult) -> dict[str, Any]:
    """What was asked of the generator; `workload` is its name."""
    asked = workload.asked
    # Told only where it is not as usual; by its own name all the same.
    asked |= {**EXTRA, **asked.pop("extra")}
    return {
        "workload": asked.pop("name"),
        **{f"{ASKED}{key}": value for key, value in sorted(asked.items())},
    }


def differences(base: Traits, other: Traits) -> tuple[str, ...]:
    """Traits that are known of both and not the same."""
    return tuple(name for name in base if name in other and base[name] != other[name])


def differences_text(base: Traits, other: Traits) -> str:
    """The same for people: `linger_ms: 1 and 30; nodes: 1 and 3`; empty where they are alike."""

    def shown(value: Any) -> str:
        return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    found = [name for name in differences(base, other) if name != "workload"]
    return "; ".join(
        f"{name.removeprefix(ASKED)}: {shown(base[name])} and {shown(other[name])}" for name in found
    )


def match(base: Sequence[Traits], other: Sequence[Traits]) -> Matching:
    """Pairs the cells of two sides."""
    single = all(len({one["system"] for one in side}) == 1 for side in (base, other))
    fixed = {"workload"} if single else {"workload", "system"}
    if any(map(_has_curve, (base, other))):
        fixed = fixed | {RATE}
    apart: dict[tuple[int, int], frozenset[str]] = {}
    for i, left in enumerate(base):
        for j, right in enumerate(other):
            found = frozenset(differences(left, right))
            if not found & fixed:
                apart[i, j] = found
    pairs: list[tuple[int, int]] = []
    while (pair := next((one for one in apart if _nearest(one, apart)), None)) is not None:
        pairs.append(pair)
        apart = {one: found for one, found in apart.items() if one[0] != pair[0] and one[1] != pair[1]}
    placed = [*pairs, *apart]
    alone = (
        tuple(i for i in range(len(base)) if i not in {pair[0] for pair in placed}),
        tuple(j for j in range(len(other)) if j not in {pair[1] for pair in placed}),
    )
    return Matching(tuple(sorted(pairs, key=lambda pair: pair[1])), tuple(apart), alone)


def _has_curve(side: Sequence[Traits]) -> bool:
    """Whether a workload stands in it at several rates."""
    rates: dict[tuple[str, str], set[Any]] = {}
    for one in side:
        rates.setdefault((one["system"], one["workload"]), set()).add(one.get(RATE))
    return any(len(found) > 1 for found in rates.values())


def ambiguity(matching: Matching, base: Sequence[Traits], other: Sequence[Traits]) -> str:
    """What makes a matching ambiguous, in words; empty where it is not."""
    if not matching.ambiguous:
        return ""
    i, j = matching.ambiguous[0]
    bases = [base[one] for one, right in matching.ambiguous if right == j]
    others = [other[one] for left, one in matching.ambiguous if left == i]
    several, what = (bases, "the baseline") if len(bases) > 1 else (others, "what is compared with it")
    name = f"{several[0]['workload']} on {several[0]['system']}"
    traits = [
        trait for trait in several[0] if any(differences_in(trait, several[0], one) for one in several[1:])
    ]
    told = "; ".join(
        f"{trait.removeprefix(ASKED)}: {', '.join(str(one.get(trait)) for one in several)}"
        for trait in traits
    )
    return f"{what} has {len(several)} cells of {name}, which differ in {told}"


def differences_in(trait: str, base: Traits, other: Traits) -> bool:
    """Whether a trait is known of both and not the same."""
    return trait in base and trait in other and base[trait] != other[trait]


def _nearest(pair: tuple[int, int], apart: Mapping[tuple[int, int], frozenset[str]]) -> bool:
    """Whether a pair differs in less than every other that one of its cells could stand in."""
    return all(
        apart[pair] < found
        for other, found in apart.items()
        if other != pair and (other[0] == pair[0] or other[1] == pair[1])
    )
