"""Message sizes that differ: what a workload file may say in `messageSize`, and the sizes that are sent.

A distribution becomes a list of sizes that stand for it (its quantiles, or as many of each as its share asks for), shuffled once by a fixed
seed. Messages take them in turn, so that the distribution that is sent is the one that was asked for, and not a sample of it.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from streamgauge.vocabulary.units import format_size, parse_size

SIZES = 1000
"""Sizes that stand for a distribution; fewer where their bodies would take more than BODIES_BYTES_MAX."""
BODIES_BYTES_MAX = 100_000_000
"""The worker keeps one body of each size (and refuses more than 128 MiB)."""
SHUFFLE_SEED = 1
EXPECTED = (
    "expected a size (100, 1kB, 1KiB), shares ({100: 50%, 1kB: 50%}), a range ({uniform: [100, 10kB]}) or "
    "{lognormal: {median: 1kB, p99: 20kB}}"
)


@dataclass(frozen=True)
class SizeSpread:
    """Sizes that differ from message to message."""

    text: str
    """As it was asked for, in one line."""
    sizes_bytes: tuple[int, ...]
    """Taken in turn."""

    @property
    def mean_bytes(self) -> float:
        """Of the messages that are sent."""
        return sum(self.sizes_bytes) / len(self.sizes_bytes)


def parse_message_size(value: Any) -> int | SizeSpread:
    """One size for all messages, or a distribution. Raises ValueError with what was expected."""
    if not isinstance(value, Mapping):
        return parse_size(value)
    if not value:
        raise ValueError(f"is empty: {EXPECTED}")
    if "uniform" in value or "lognormal" in value:
        if len(value) != 1:
            raise ValueError(f"mixes two distributions ({', '.join(map(str, value))}): {EXPECTED}")
        return _uniform(value["uniform"]) if "uniform" in value else _lognormal(value["lognormal"])
    return _shares(value)


def _shares(value: Mapping[Any, Any]) -> SizeSpread:
    """So much of each size, by largest remainders."""
    weights: dict[int, float] = {}
    for size, share in value.items():
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", str(share).strip())
        if found is None or isinstance(share, bool) or float(found.group(1)) <= 0:
            raise ValueError(
                f"{size}: '{share}' is no share: expected a share such as 50% (or a weight above 0)"
            )
        weights[_whole(size)] = weights.get(_whole(size), 0.0) + float(found.group(1))
    percent = [str(share).strip().endswith("%") for share in value.values()]
    total = sum(weights.values())
    if any(percent) and (not all(percent) or not math.isclose(total, 100.0, abs_tol=0.01)):
        raise ValueError(f"the shares add up to {total:g} %: expected 100 % (or weights without %)")

    def sizes(count: int) -> list[int]:
        exact = {size: count * weight / total for size, weight in weights.items()}
        counts = {size: max(1, math.floor(share)) for size, share in exact.items()}
        for size in sorted(exact, key=lambda one: math.floor(exact[one]) - exact[one]):
            if sum(counts.values()) < count:
                counts[size] += 1
        return [size for size, number in counts.items() for _ in range(number)]

    text = ", ".join(f"{100 * weight / total:g} % {format_size(size)}" for size, weight in weights.items())
    return _spread(text, sizes, max(weights))


def _uniform(value: Any) -> SizeSpread:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("uniform: expected the smallest and the largest size, such as [100, 10kB]")
    low, high = (_whole(one) for one in value)
    if low >= high:
        raise ValueError(f"uniform: [{value[0]}, {value[1]}]: expected the smaller size first")
    return _spread(
        f"{format_size(low)} to {format_size(high)}, evenly",
        lambda count: [low + math.floor((high - low + 1) * _place(at, count)) for at in range(count)],
        high,
    )


def _lognormal(value: Any) -> SizeSpread:
    expected = "expected {median: 1kB, p99: 20kB}, and max: 1MB if there is a largest size"
    if not isinstance(value, Mapping) or not {"median", "p99"} <= set(value) <= {"median", "p99", "max"}:
        raise ValueError(f"lognormal: {expected}")
    median, p99 = _whole(value["median"]), _whole(value["p99"])
    most = _whole(value["max"]) if "max" in value else None
    if median >= p99 or (most is not None and most < p99):
        raise ValueError(f"lognormal: median, p99 and max do not rise: {expected}")
    normal = NormalDist()
    deviation = math.log(p99 / median) / normal.inv_cdf(0.99)

    def size(place: float) -> int:
        exact = max(1, round(median * math.exp(deviation * normal.inv_cdf(place))))
        return exact if most is None else min(exact, most)

    text = f"lognormal, median {format_size(median)}, p99 {format_size(p99)}"
    if most is not None:
        text += f", at most {format_size(most)}"
    return _spread(
        text, lambda count: [size(_place(at, count)) for at in range(count)], size(_place(SIZES - 1, SIZES))
    )


def _place(at: int, count: int) -> float:
    """The middle of the at-th of `count` equal parts of the distribution."""
    return (at + 0.5) / count


def _whole(value: Any) -> int:
    size = parse_size(value)
    if size < 1:
        raise ValueError(f"{value}: expected a size of 1 byte or more")
    return size


def _spread(text: str, sizes: Callable[[int], list[int]], largest: int) -> SizeSpread:
    found = sizes(SIZES)
    if sum(found) > BODIES_BYTES_MAX:
        fewer = max(10, math.floor(SIZES * BODIES_BYTES_MAX / sum(found)))
        found = sizes(fewer)
    if sum(found) > BODIES_BYTES_MAX:
        raise ValueError(f"messages of up to {format_size(largest)} are too large to differ in size")
    random.Random(SHUFFLE_SEED).shuffle(found)
    return SizeSpread(text, tuple(found))
