"""Where the processes of a trial spent their time, in its measured phase and in the slowest seconds of it (profile.parquet).

The slowest seconds are those that hold most of the tail, which is what is slower than the trial's p99.9, as for what coincided with it (analysis/tail.py).
What a process did more often in them is told of its functions: the share of the samples in which a function is on the stack, there and in the rest of the
phase. Chance is asked by shifting the slow seconds against the samples (analysis/shifts.py). A function and those that called it are
found together: the innermost of them that tells as much is named, and the others are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamgauge.analysis import shifts
from streamgauge.analysis.causes import CHANCE_MAX, INTERVALS_MIN, LIFT_MIN
from streamgauge.analysis.intervals import Flags, Intervals, Series, Values, Window
from streamgauge.analysis.tail import slow_msgs
from streamgauge.model.percentiles import NS_PER_MS
from streamgauge.model.result_base import Headline
from streamgauge.model.result_columns import PROFILE_COLUMNS
from streamgauge.model.result_profile import Profile, Profiled, StandsOut
from streamgauge.store.directory import PROFILE_NAME
from streamgauge.store.parquet import read_rows
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.files import clean
from streamgauge.vocabulary.format import percent, plural, significant
from streamgauge.vocabulary.phases import MEASURE

BYTES_MAX = 1 << 30
"""Of a profile, unpacked: far more than one that the lab makes."""
CHARACTERS_MAX = 64 << 20
"""Of stacks that differ."""
DEPTH_MAX = 300
SLOWEST_SHARE = 0.1
SAMPLES_MIN = 50
"""With fewer nothing can be told of a process."""
FUNCTION_SAMPLES_MIN = 5
FUNCTION_SHARE_MIN = 0.005
FUNCTIONS_MAX = 400
MORE_SHARE_MIN = 0.02
"""Of the samples in the slowest seconds, above the share in the rest: less explains nothing."""
TELLS_AS_MUCH = 0.8
SAME_SHARE = 0.5
"""Of the samples of the rarer of two functions: they are on one stack, and are one finding."""
FOUND_MAX = 5
PROCESSES_MAX = 200
STATES = ("cpu", "java", "native")
SEEN_SHARE_MIN = 0.002
"""Of the samples: narrower than two pixels of a wide window."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sampled:
    """The samples of one process in the measured phase, of one state."""

    process: str
    role: str
    state: str
    period_s: float
    stacks: Sequence[tuple[str, ...]]
    """Each once; the thread comes before the outermost function."""
    stack: Indices
    """Of each sample, into `stacks`."""
    at: Indices
    """Of each sample, into the intervals of the measured phase."""

    def weights(self, chosen: Flags) -> Indices:
        """How often each stack was seen in some of the intervals."""
        return np.bincount(self.stack[chosen[self.at]], minlength=len(self.stacks))


@dataclass(frozen=True)
class Function:
    """How often a function was seen, as a share of a process's samples: in all of them, with nothing called by it, in the slowest seconds, in the rest."""

    name: str
    share: float
    own: float
    slowest: float | None
    rest: float | None


def read(directory: Path, lined_up: Series, window: Window) -> list[Sampled]:
    """The samples of the measured phase, by process and state. Raises InputError for a table that the lab would not have written."""
    inside = lined_up.interval[lined_up.within(window)]
    place = {int(interval): at for at, interval in enumerate(inside)}
    groups: dict[tuple[str, str, str], tuple[dict[tuple[str, str], int], list[int], list[int], float]] = {}
    characters = 0
    for row in read_rows(directory / PROFILE_NAME, PROFILE_COLUMNS, BYTES_MAX):
        at = place.get(int(row["interval"]))
        if at is None:
            continue
        key = (str(row["process"]), str(row["role"]), str(row["state"]))
        if key not in groups and len(groups) >= PROCESSES_MAX:
            continue
        known, stack, when, _ = groups.setdefault(key, ({}, [], [], float(row["duration_s"])))
        told = (str(row["thread"]), str(row["stack"]))
        if told not in known:
            characters += len(told[1])
            if characters > CHARACTERS_MAX:
                raise InputError(
                    Problem("holds more stacks than any trial", clean(str(directory / PROFILE_NAME)))
                )
        stack.append(known.setdefault(told, len(known)))
        when.append(at)
    return [
        Sampled(
            *key,
            period_s,
            [(thread, *text.split(";")[:DEPTH_MAX]) for thread, text in known],
            np.array(stack, dtype=np.int64),
            np.array(when, dtype=np.int64),
        )
        for key, (known, stack, when, period_s) in sorted(groups.items(), key=lambda one: _order(one[0]))
    ]


def _order(key: tuple[str, str, str]) -> tuple[bool, str, int, str]:
    """The system before the generator; CPU time before what ran, and that before what was in native code."""
    process, role, state = key
    return role != "system", process, STATES.index(state) if state in STATES else len(STATES), state


def slowest(
    intervals: Intervals, lined_up: Series, window: Window, metric: Headline
) -> tuple[float | None, Flags]:
    """p99.9 of the metric in ms, and which intervals of the measured phase hold most of what is slower, the tenth of them that does."""
    inside = lined_up.within(window)
    above_ns, slow = slow_msgs(intervals, lined_up, metric, MEASURE)
    msgs = slow[inside]
    chosen = np.zeros(len(msgs), dtype=np.bool_)
    if above_ns is None or not len(msgs):
        return None, chosen
    # Of those with as many, the one with the higher p99.
    order = np.lexsort((-np.nan_to_num(lined_up.values[f"{metric}_ms_p99"][inside]), -msgs))
    chosen[order[: max(1, round(SLOWEST_SHARE * len(msgs)))]] = True
    return above_ns / NS_PER_MS, chosen & (msgs > 0)


def profiled(
    directory: Path, intervals: Intervals, lined_up: Series, window: Window, metric: Headline
) -> Profiled | None:
    """What was found of each process; None where nothing was sampled."""
    found = read(directory, lined_up, window)
    if not found:
        return None
    above_ms, slow = slowest(intervals, lined_up, window, metric)
    starts = lined_up.start_s[lined_up.within(window)]
    return Profiled(
        metric=metric,
        above_ms=above_ms,
        intervals=len(slow),
        slowest_s=[float(start) for start in starts[slow]],
        profiles=[_profile(one, slow) for one in found],
    )


def _profile(sampled: Sampled, slow: Flags) -> Profile:
    there = int(slow[sampled.at].sum())
    outstanding, why = stands_out(sampled, slow)
    return Profile(
        process=sampled.process,
        role="worker" if sampled.role == "worker" else "system",
        state=sampled.state,
        period_ms=1e3 * sampled.period_s,
        samples=len(sampled.stack),
        samples_slowest=there,
        stands_out=outstanding,
        explanation=" ".join(one.explanation for one in outstanding) or why,
    )


def stands_out(sampled: Sampled, slow: Flags) -> tuple[list[StandsOut], str]:
    """The functions that are on the stack more often in the slow intervals than in the others, beyond chance; where there are none, why, as a sentence."""
    length, there = len(slow), int(slow[sampled.at].sum())
    if length < INTERVALS_MIN:
        return (
            [],
            f"Whether anything stands out cannot be told: {plural(length, 'second')} were measured, and chance needs {INTERVALS_MIN}.",
        )
    if len(sampled.stack) < SAMPLES_MIN or not there or there == len(sampled.stack):
        return (
            [],
            f"Whether anything stands out cannot be told: there are {plural(len(sampled.stack), 'sample')}, {there} of them in the slowest seconds.",
        )
    names, members = _functions(sampled)
    counts = np.array(
        [np.bincount(sampled.at[member[sampled.stack]], minlength=length) for member in members],
        dtype=np.float64,
    )
    chances = shifts.chances(
        _scores(counts.reshape(len(names), length), np.bincount(sampled.at, minlength=length), slow)
    )
    slowest_share, rest_share = _shares(counts, sampled, slow)
    more = slowest_share - rest_share
    likely = [
        at
        for at in range(len(names))
        if chances[at] <= CHANCE_MAX
        and more[at] >= MORE_SHARE_MIN
        and slowest_share[at] >= LIFT_MIN * rest_share[at]
    ]
    weights = sampled.weights(slow)
    found = [
        StandsOut(
            function=names[at],
            share_slowest=float(slowest_share[at]),
            share_rest=float(rest_share[at]),
            chance=chances[at],
            explanation=_told(names[at], float(slowest_share[at]), float(rest_share[at]), chances[at]),
        )
        for at in _innermost(likely, more, members, weights)
    ]
    return (
        found,
        "Nothing stands out: no function is seen more often in the slowest seconds than chance would have it.",
    )


def _told(name: str, slowest_share: float, rest_share: float, chance: float) -> str:
    times = f"{slowest_share / rest_share:.1f} times as often" if rest_share else "and never else"
    return (
        f"{name} is on the stack in {percent(slowest_share, 1)} of the samples in the slowest seconds and in {percent(rest_share, 1)} of the others "
        f"({times}; p = {chance:.3f})."
    )


def _functions(sampled: Sampled) -> tuple[list[str], list[Flags]]:
    """The functions that are seen often enough for anything to be told of them, and on which stacks each is: the most frequent ones, and of those that are as
    frequent the outermost first."""
    weights = np.bincount(sampled.stack, minlength=len(sampled.stacks))
    samples: dict[str, int] = {}
    on: dict[str, list[int]] = {}
    depths: dict[str, int] = {}
    for at, stack in enumerate(sampled.stacks):
        for depth, name in enumerate(dict.fromkeys(stack[1:])):
            depths[name] = max(depth, depths.get(name, 0))
            samples[name] = samples.get(name, 0) + int(weights[at])
            on.setdefault(name, []).append(at)
    least = max(FUNCTION_SAMPLES_MIN, FUNCTION_SHARE_MIN * len(sampled.stack))
    names = sorted(
        (name for name, seen in samples.items() if seen >= least),
        key=lambda name: (-samples[name], depths[name], name),
    )
    members = []
    for name in names[:FUNCTIONS_MAX]:
        member = np.zeros(len(sampled.stacks), dtype=np.bool_)
        member[on[name]] = True
        members.append(member)
    return names[:FUNCTIONS_MAX], members


def _shares(counts: Values, sampled: Sampled, slow: Flags) -> tuple[Values, Values]:
    there = int(slow[sampled.at].sum())
    within = counts[:, slow].sum(axis=1)
    return within / there, (counts.sum(axis=1) - within) / (len(sampled.stack) - there)


def _scores(counts: Values, whole: Indices, slow: Flags) -> Values:
    """Row f, column s: how far the share of function f in the slow intervals is from its usual one when they are shifted by s (the likelihood ratio)."""
    flags = np.conj(np.fft.rfft(slow.astype(np.float64)))
    length = len(slow)

    def within(series: Values) -> Values:
        return np.asarray(np.fft.irfft(np.fft.rfft(series, axis=-1) * flags, n=length, axis=-1))

    there = np.maximum(within(whole.astype(np.float64)), 0.0)
    usual = counts.sum(axis=1, keepdims=True) / float(whole.sum())
    # Where nothing was seen at all nothing is far.
    shares = np.clip(within(counts) / np.maximum(there, 0.5), 0.0, 1.0)
    return there * shifts.divergence(shares, usual)


def _innermost(
    likely: Sequence[int], more: Values, members: Sequence[Flags], weights: Indices
) -> Iterator[int]:
    """Of the functions that are found together, because one calls the other, the rarest that tells as much."""
    seen = {at: int(weights[members[at]].sum()) for at in likely}
    left = sorted(likely, key=lambda at: -more[at])
    told = 0
    while left and told < FOUND_MAX:
        first = left[0]
        together = [
            at
            for at in left
            if int(weights[members[at] & members[first]].sum())
            >= SAME_SHARE * max(1, min(seen[at], seen[first]))
        ]
        tell = (at for at in together if more[at] >= TELLS_AS_MUCH * more[first])
        yield min(tell, key=lambda at: (seen[at], -at))
        told += 1
        left = [at for at in left if at not in together]


def functions(sampled: Sampled, slow: Flags, most: int) -> list[Function]:
    """The functions that are on the stack most often, and those with most time of their own, so many at most."""
    whole, there = sampled.weights(np.ones(len(slow), dtype=np.bool_)), sampled.weights(slow)
    total, slowest_total = int(whole.sum()), int(there.sum())
    inclusive: dict[str, list[int]] = {}
    for at, stack in enumerate(sampled.stacks):
        for name in dict.fromkeys(stack[1:]):
            seen = inclusive.setdefault(name, [0, 0, 0])
            seen[0] += int(whole[at])
            seen[2] += int(there[at])
        inclusive[stack[-1]][1] += int(whole[at])
    ranked = sorted(inclusive, key=lambda name: (-inclusive[name][1], -inclusive[name][0], name))[: most // 2]
    ranked += [
        name
        for name in sorted(inclusive, key=lambda name: (-inclusive[name][0], name))
        if name not in set(ranked)
    ][: most - len(ranked)]
    rest = total - slowest_total
    return [
        Function(
            name,
            share=inclusive[name][0] / max(1, total),
            own=inclusive[name][1] / max(1, total),
            slowest=inclusive[name][2] / slowest_total if slowest_total else None,
            rest=(inclusive[name][0] - inclusive[name][2]) / rest if rest else None,
        )
        for name in ranked
    ]


@dataclass(frozen=True)
class Node:
    """A function as it was called, in a tree that is told from the outermost on: those that it called follow it, one deeper."""

    name: str
    depth: int
    slowest: int
    rest: int
    """Samples with it on the stack, in the slowest seconds and in the others."""


def tree(sampled: Sampled, slow: Flags, nodes_max: int) -> list[Node]:
    """All calls, the largest first among those of one function; what is too small to be seen is left out, and as much as there is no room for."""
    there = sampled.weights(slow)
    rest = sampled.weights(~slow)
    sums: dict[tuple[int, str], int] = {}
    nodes: list[list[int]] = []
    names: list[str] = []
    below: list[list[int]] = [[]]
    for at, stack in enumerate(sampled.stacks):
        above = 0
        for name in stack:
            key = (above, name)
            if key not in sums:
                nodes.append([0, 0])
                names.append(name)
                below.append([])
                sums[key] = len(nodes)
                below[above].append(len(nodes))
            above = sums[key]
            nodes[above - 1][0] += int(there[at])
            nodes[above - 1][1] += int(rest[at])
    seen = sorted(
        (max(one[0] / max(1, there.sum()), sum(one) / max(1, len(sampled.stack))) for one in nodes),
        reverse=True,
    )
    least, above_least = SEEN_SHARE_MIN, 0.0
    if len(seen) > nodes_max:
        # Of those that are as large as the first for which there is no room none is told: some would be those of the call that is walked first, and no room
        # be left for larger ones. Where all are as large there is no better choice.
        least = max(least, seen[nodes_max])
        above_least = seen[nodes_max] if seen[0] > seen[nodes_max] else 0.0
    told: list[Node] = []
    waiting = [(number, 0) for number in sorted(below[0], key=lambda number: sum(nodes[number - 1]))]
    while waiting:
        number, depth = waiting.pop()
        slowest_samples, rest_samples = nodes[number - 1]
        share = max(
            slowest_samples / max(1, there.sum()),
            (slowest_samples + rest_samples) / max(1, len(sampled.stack)),
        )
        if share < least or share <= above_least or len(told) >= nodes_max:
            continue
        told.append(Node(names[number - 1], depth, slowest_samples, rest_samples))
        waiting += [
            (inner, depth + 1) for inner in sorted(below[number], key=lambda inner: sum(nodes[inner - 1]))
        ]
    return told


def chosen_text(found: Profiled) -> str:
    """Which seconds are the slowest, as a sentence."""
    if found.above_ms is None or not found.slowest_s:
        return "There are no slowest seconds: no message is slower than the others."
    return (
        f"The slowest seconds are the {len(found.slowest_s)} of {found.intervals} that hold most of what is slower than "
        f"{significant(found.above_ms)} ms, p99.9 of {found.metric.replace('_', '-')} latency."
    )
