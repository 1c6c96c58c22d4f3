"""For how long CPUs were not to be had: by the windows of the probes, and in pieces that no probe saw.

Probes look once in a millisecond or two, and see what makes them late. Of pieces that are shorter than that they miss many: a host that takes 1 ms in
every 10 shows few windows, and its tenth of the time only in the account of each CPU (steal). What lies outside of windows is in the figures of quiet time.
How much that is tell the account, and the windows themselves: short pieces that were met by chance are the sign of others that were not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from streamgauge.analysis.intervals import Row
from streamgauge.model.messages import CpuWindow, Disturbance, ProbesStatus

LOADS_OWN_CAUSE = "softirq"
"""Interrupts that carry messages: the load itself makes them."""
PROBE_LATE_MS = 0.5
"""By so much a probe must be late for a window (LATE_NS_MIN of the generator)."""
FIRST_S = 0.25e-3
"""Windows that are late by up to so much more tell the density of windows where they begin."""
DEVIATIONS = 2.0
"""By so many standard deviations of a count more must have been missed than nothing."""
PERIOD_MS_BEFORE = 1.0
"""Of probes that do not tell it."""
PASSED = 4
"""So many CPUs a message passes at most: of who sends, of the broker's network and of its storage, of who receives."""
TICK_S = 0.01
"""Of the kernel's account: what is less may be rounding."""


@dataclass(frozen=True)
class Unseen:
    """CPUs that were away in pieces too short for windows. Shares are of the time outside of windows, means over workers."""

    share: float = 0.0
    """So much of it at least one of the CPUs that a message passes was away."""
    of_one_cpu: float = 0.0
    """Of the CPU of which it was most: the share for what runs on one CPU at a time, as a lane."""
    longest_ms: float = PERIOD_MS_BEFORE + PROBE_LATE_MS
    """So long a piece can be: one that is longer is always seen."""


ALL_SEEN = Unseen()


def away_s(seen: Sequence[tuple[Row, Disturbance]]) -> float:
    """For how long at least one CPU was not to be had, summed over workers, as far as that was not the load's own doing; at least as long as the host took
    the one that it took most, of which it may take pieces that are too small for windows."""
    return sum(worker_away_s(told) for told in _by_worker(seen).values())


def worker_away_s(told: Sequence[Disturbance]) -> float:
    """The same of one worker."""
    return max(_union_s(told), max(_stolen_s(told), default=0.0))


def unseen(seen: Sequence[tuple[Row, Disturbance]], seconds: float, probes: ProbesStatus | None) -> Unseen:
    """`seconds`: of the measured phase, summed over workers."""
    cpus = [] if probes is None else probes.cpus
    period_ms = (None if probes is None else probes.period_ms) or PERIOD_MS_BEFORE
    workers = list(_by_worker(seen).values())
    if not workers or seconds <= 0:
        return Unseen(longest_ms=period_ms + PROBE_LATE_MS)
    found = [_of_worker(told, seconds / len(workers), cpus, period_ms / 1e3) for told in workers]
    return Unseen(
        share=sum(min(sum(shares[:PASSED]), 1.0) for shares in found) / len(found),
        of_one_cpu=sum(shares[0] for shares in found) / len(found),
        longest_ms=period_ms + PROBE_LATE_MS,
    )


def _of_worker(
    told: Sequence[Disturbance], seconds: float, cpus: Sequence[int], period_s: float
) -> list[float]:
    """Share of each CPU, the largest first."""
    stolen_s = _stolen_s(told)
    by_cpu: dict[int, list[CpuWindow]] = defaultdict(list)
    for one in (one for each in told for one in each.windows if one.cause != LOADS_OWN_CAUSE):
        by_cpu[one.cpu].append(one)
    unlisted = sum(each.unlisted.windows for each in told)
    unlisted_s = sum(each.unlisted.length_s for each in told)

    def share(lost_s: float, windows_s: float) -> float:
        seen_s = unlisted_s + windows_s
        return min(lost_s / (seconds - seen_s), 1.0) if seen_s < seconds else 0.0

    more = 1.0 + unlisted / max(sum(map(len, by_cpu.values())), 1)
    by_windows = {
        cpu: share(more * _beside_windows_s([one.late_s for one in mine], period_s), _length_s(mine))
        for cpu, mine in by_cpu.items()
    }
    # Of workers that watch different CPUs nobody tells which account is whose: windows of all are taken off, which leaves less.
    is_told = bool(cpus) and len(cpus) == len(stolen_s)
    all_s = sum(map(_length_s, by_cpu.values()))
    by_account = {}
    for cpu, of_cpu_s in zip(cpus if is_told else range(len(stolen_s)), stolen_s, strict=True):
        windows_s = _length_s(by_cpu.get(cpu, [])) if is_told else all_s
        beyond_s = of_cpu_s - unlisted_s - windows_s
        by_account[cpu] = share(beyond_s, windows_s) if beyond_s > TICK_S else 0.0
    if is_told:
        found = [max(by_account[cpu], by_windows.get(cpu, 0.0)) for cpu in by_account]
    else:
        ranked = (sorted(one.values(), reverse=True) for one in (by_account, by_windows))
        found = [max(both) for both in zip_longest(*ranked, fillvalue=0.0)]
    return sorted([*found, 0.0], reverse=True)


def _length_s(windows: Sequence[CpuWindow]) -> float:
    return sum(one.to_s - one.from_s for one in windows)


def _beside_windows_s(late_s: Sequence[float], period_s: float) -> float:
    """How much more a CPU was away in pieces like those of its windows, of which no wake-up told; 0 where that may be chance.

    A probe wakes up once in a period P whatever happens, and tells of a piece of which at least d = 0.5 ms are left then: one of length s up to P + d is seen
    with probability (s - d) / P, a longer one always. How late the probe was, l, is as likely to be anything from d (or s - P) to s. So the density of windows
    at l, at l + P, at l + 2 P and so on, times P, is the number of pieces longer than l, seen or not. What is not seen of them, the sum of
    s (1 - (s - d) / P) over those up to P + d, is by parts the sum of P + d - 2 l over all windows, and d P times their density at d, each l less whole
    periods. Pieces shorter than d are in no window, and not in this.
    """
    least_s = PROBE_LATE_MS / 1e3
    over_s = (np.asarray(late_s, dtype=np.float64) - least_s) % period_s
    parts = period_s - least_s - 2.0 * over_s + np.where(over_s < FIRST_S, least_s * period_s / FIRST_S, 0.0)
    found = float(parts.sum())
    return found if found > DEVIATIONS * float(np.sqrt((parts * parts).sum())) else 0.0


def _by_worker(seen: Sequence[tuple[Row, Disturbance]]) -> dict[str, list[Disturbance]]:
    found: dict[str, list[Disturbance]] = defaultdict(list)
    for row, disturbance in seen:
        found[row["worker"]].append(disturbance)
    return found


def _union_s(told: Sequence[Disturbance]) -> float:
    """Of the windows of one worker. Of those that are not listed only the sum of their lengths is known, which is no less."""
    spans = sorted(
        (one.from_s, one.to_s) for each in told for one in each.windows if one.cause != LOADS_OWN_CAUSE
    )
    union_s, until_s = sum(each.unlisted.length_s for each in told), -math.inf
    for from_s, to_s in spans:
        union_s += max(0.0, to_s - max(from_s, until_s))
        until_s = max(until_s, to_s)
    return union_s


def _stolen_s(told: Sequence[Disturbance]) -> list[float]:
    """Of each CPU, by the kernel's account."""
    return [sum(of_cpu) for of_cpu in zip_longest(*(each.steal_s for each in told), fillvalue=0.0)]
