"""How far the clocks of workers on different hosts are apart, and how well that is known.

Every worker asks the others all through a trial (crates/gauge-worker/src/clock_probe.rs). An exchange t1, t2, t3,
t4 bounds how far the peer is ahead of the asker: t3 - t4 <= ahead <= t2 - t1, whatever the ways took. From many:

1. *Minimum-delay filter*: of each stretch of time only the exchange with the shortest round trip is kept
   (RFC 5905, section 10).
2. *Convex hulls*: with a constant drift, `ahead` is a line in time that lies below all upper and above all lower
   bounds. Its slope is the mean of the slopes of the lower hull of the upper bounds and of the upper hull of the
   lower ones, each where it passes the middle of the samples (Zhang, Liu, Xia: Clock synchronization algorithms
   for network measurements, INFOCOM 2002). Its height is the middle between the bounds, and half of what is
   between them is the bound of the error: it contains ways of different lengths, which no exchange of packets
   can tell from an offset.
3. *Loop closure*: round a loop of workers the offsets add up to zero. What is left over is compared with the
   bounds; more than those allow means that the model (a constant drift) does not hold.

Latencies are corrected as they are recorded, with the line that was known then. The stated bound is that of the
line through what came before *and after*, plus the largest difference between the two lines.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from streamgauge.fleet.client import WorkerClient
from streamgauge.vocabulary.background import Background
from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused

PERIOD_MS = 50
LOOK_EVERY_S = 1.0
WINDOW_NS = 60_000_000_000
"""Drift is taken as constant for so long."""
SETTLED_NS = 2_000_000_000
"""Before the schedule begins, clocks are compared for so long at least."""
STRETCHES = 64
SAMPLES_MIN = 10
SPAN_NS_MIN = 1_000_000_000
"""A shorter span tells an offset, and no drift."""
MESH_MAX = 8
"""Up to so many workers all ask all; of more only receivers ask senders."""

Samples = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Line:
    """How far a peer is ahead of an asker, in nanoseconds; times are the asker's clock."""

    at_ns: int
    ahead_ns: float
    drift: float
    """Nanoseconds per nanosecond."""
    bound_ns: float

    def at(self, time_ns: float) -> float:
        """How far ahead at a time."""
        return self.ahead_ns + self.drift * (time_ns - self.at_ns)


def fit(samples: Samples) -> Line | None:
    """The line through exchanges (rows of t1, t2, t3, t4); None when there are too few to say anything."""
    if len(samples) < SAMPLES_MIN:
        return None
    best = _shortest(samples)
    middle = int(best[:, 0].mean())
    sent, upper = (best[:, 0] - middle).astype(np.float64), (best[:, 1] - best[:, 0]).astype(np.float64)
    arrived = (best[:, 3] - middle).astype(np.float64)
    lower = (best[:, 2] - best[:, 3]).astype(np.float64)
    span = float(sent.max() - sent.min())
    slopes = (0.0, 0.0)
    if span >= SPAN_NS_MIN:
        slopes = (_hull_slope(sent, upper), -_hull_slope(arrived, -lower))
    drift = (slopes[0] + slopes[1]) / 2
    highest, lowest = float((upper - drift * sent).min()), float((lower - drift * arrived).max())
    bound = abs(highest - lowest) / 2 + abs(slopes[0] - slopes[1]) / 2 * span / 2
    return Line(middle, (highest + lowest) / 2, drift, bound)


def _shortest(samples: Samples) -> Samples:
    """The exchange with the shortest round trip of each stretch."""
    trip = (samples[:, 3] - samples[:, 0]) - (samples[:, 2] - samples[:, 1])
    first, last = samples[:, 0].min(), samples[:, 0].max()
    stretch = (samples[:, 0] - first) * STRETCHES // (last - first + 1)
    order = np.lexsort((trip, stretch))
    _, kept = np.unique(stretch[order], return_index=True)
    return samples[order[kept]]


def _hull_slope(time: npt.NDArray[np.float64], value: npt.NDArray[np.float64]) -> float:
    """Slope of the lower convex hull where it passes the mean time (Andrew's monotone chain)."""
    hull: list[tuple[float, float]] = []
    for at in np.argsort(time, kind="stable"):
        point = (float(time[at]), float(value[at]))
        while len(hull) >= 2 and _turns_down(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    mean = float(time.mean())
    for (left, low), (right, high) in pairwise(hull):
        if left <= mean <= right and right > left:
            return (high - low) / (right - left)
    return 0.0


def _turns_down(one: tuple[float, float], two: tuple[float, float], three: tuple[float, float]) -> bool:
    return (two[0] - one[0]) * (three[1] - one[1]) <= (two[1] - one[1]) * (three[0] - one[0])


@dataclass(eq=False)
class Station:
    """A worker that takes part in the comparison."""

    name: str
    client: WorkerClient
    trial: str
    producers: list[int]
    """Numbers of the producers on it."""
    receives: bool
    peers: list[Station] = field(default_factory=list)
    samples: dict[str, list[tuple[int, int, int, int]]] = field(default_factory=dict)
    used: dict[str, list[tuple[int, Line]]] = field(default_factory=dict)
    """Peer -> lines with which latencies were corrected, each from a time of this worker's clock on."""
    next: int = 0
    lost: bool = False


class ClockWatch(Background):
    """Compares the clocks of the workers of a trial while it runs, and tells receivers of the senders' clocks."""

    def __init__(self, stations: Sequence[Station]) -> None:
        super().__init__("clocks", LOOK_EVERY_S + 2.0)
        self.stations = list(stations)

    def begin(self) -> None:
        """Lets the workers ask each other. Raises WorkerLost and WorkerRefused."""
        key = secrets.randbits(63)
        ports = {one.name: one.client.probe_clocks(key, [], PERIOD_MS) for one in self.stations}
        mesh = len(self.stations) <= MESH_MAX
        for station in self.stations:
            station.peers = [
                other
                for other in self.stations
                if other is not station and (mesh or (station.receives and other.producers))
            ]
            addresses = [_numeric(other.client.address, ports[other.name]) for other in station.peers]
            station.client.probe_clocks(key, addresses, PERIOD_MS)

    def settle(self, within_s: float) -> None:
        """Waits for a first comparison of every pair, and tells the receivers. Raises WorkerLost when clocks
        cannot be compared."""
        for _ in range(max(int(within_s / 0.1), 1)):
            for station in self.stations:
                self._fetch(station)
            if all(self._is_settled(one, other) for one in self.stations for other in one.peers):
                for station in self.stations:
                    self._tell(station)
                self.start()
                return
            self._stop.wait(0.1)
        silent = [
            f"{one.name} - {other.name}"
            for one in self.stations
            for other in one.peers
            if not self._is_settled(one, other)
        ]
        raise WorkerLost(
            f"the clocks of workers could not be compared ({', '.join(silent[:5])}): they exchange UDP packets "
            "on ports of their own, which a firewall must let through"
        )

    def ahead_ns(self, asker: str, peer: str, time_ns: int) -> float | None:
        """How far a peer is ahead of an asker at a time of the asker's."""
        for station in self.stations:
            for other in station.peers:
                if (station.name, other.name) == (asker, peer):
                    line = self._line(station, other)
                    return line.at(time_ns) if line is not None else None
        return None

    def drop(self, name: str) -> None:
        """A worker is lost: nobody waits for its answers any more. What it told before still counts."""
        for station in self.stations:
            if station.name == name:
                station.lost = True

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            for station in [one for one in self.stations if not one.lost]:
                # Whoever drives the trial notices a lost worker; the others' clocks are looked at further.
                with contextlib.suppress(WorkerLost, WorkerRefused):
                    self._fetch(station)
                    self._tell(station)

    @staticmethod
    def _fetch(station: Station) -> None:
        station.next, found = station.client.clock_samples(station.next)
        for peer, *times in found:
            if peer < len(station.peers):
                mine = station.samples.setdefault(station.peers[peer].name, [])
                mine.append((times[0], times[1], times[2], times[3]))

    @staticmethod
    def _is_settled(station: Station, peer: Station) -> bool:
        """Whether the samples tell a drift, too."""
        samples = station.samples.get(peer.name, [])
        return len(samples) >= SAMPLES_MIN and samples[-1][0] - samples[0][0] >= SETTLED_NS

    def _line(self, station: Station, peer: Station) -> Line | None:
        """From the last stretch of time."""
        samples = station.samples.get(peer.name, [])
        return fit(_within(samples, samples[-1][0] - WINDOW_NS, samples[-1][0])) if samples else None

    def _tell(self, station: Station) -> None:
        """Tells a receiver of the senders' clocks."""
        clocks = []
        for peer in station.peers if station.receives else []:
            line = self._line(station, peer)
            if line is None or not peer.producers:
                continue
            now_ns = station.samples[peer.name][-1][3]
            station.used.setdefault(peer.name, []).append((now_ns, line))
            ahead_ns = round(line.at(now_ns))
            clocks.append(
                {
                    "producers": peer.producers,
                    "at_ns": now_ns + ahead_ns,
                    "ahead_ns": ahead_ns,
                    "drift_ppb": round(line.drift * 1e9),
                }
            )
        if clocks:
            station.client.set_clocks(station.trial, clocks)

    # Afterwards

    def facts(self) -> dict[str, Any]:
        """What is stated with the figures: per pair offset, drift and bound, the largest bound of a pair between
        which latencies were measured, and the loops."""
        pairs, bounds = [], [0.0]
        for station in self.stations:
            for peer in station.peers:
                samples = station.samples.get(peer.name, [])
                whole = fit(np.array(samples, dtype=np.int64)) if samples else None
                if whole is None:
                    continue
                bound = whole.bound_ns
                if station.receives and peer.producers:
                    bound = self._bound_ns(station, peer)
                    bounds.append(bound)
                pairs.append(
                    {
                        "asker": station.name,
                        "peer": peer.name,
                        "exchanges": len(samples),
                        "ahead_ms": whole.ahead_ns / 1e6,
                        "drift_ppm": whole.drift * 1e6,
                        "bound_ms": bound / 1e6,
                    }
                )
        return {"bound_ms": max(bounds) / 1e6, "pairs": pairs, "loops": self._loops()}

    def _bound_ns(self, station: Station, peer: Station) -> float:
        """How wrong a corrected latency can be: the bound of the best line, and what the used one differed."""
        samples, worst = station.samples[peer.name], 0.0
        used = station.used.get(peer.name, [])
        for at, (from_ns, line) in enumerate(used):
            until_ns = used[at + 1][0] if at + 1 < len(used) else samples[-1][3]
            best = fit(_within(samples, from_ns - WINDOW_NS // 2, from_ns + WINDOW_NS // 2))
            if best is None:
                continue
            off = max(abs(best.at(time_ns) - line.at(time_ns)) for time_ns in (from_ns, until_ns))
            worst = max(worst, best.bound_ns + off)
        return worst

    def _loops(self) -> dict[str, Any]:
        """The largest sum round a loop of two or three workers, beside the sum of its bounds."""
        lines: dict[tuple[str, str], Line] = {}
        for station in self.stations:
            for peer in station.peers:
                line = self._line(station, peer)
                if line is not None:
                    lines[station.name, peer.name] = line
        found, open_loops, worst = 0, 0, 0.0
        names = [station.name for station in self.stations]
        for size in (2, 3):
            for loop in combinations(names, size):
                steps = list(zip(loop, (*loop[1:], loop[0]), strict=True))
                if not all(step in lines for step in steps):
                    continue
                time_ns = start_ns = float(lines[steps[0]].at_ns)
                for step in steps:
                    time_ns += lines[step].at(time_ns)
                left_ns = abs(time_ns - start_ns)
                found += 1
                open_loops += left_ns > sum(lines[step].bound_ns for step in steps)
                worst = max(worst, left_ns)
        return {"looked_at": found, "open": open_loops, "worst_ms": worst / 1e6}


def _within(samples: Sequence[tuple[int, int, int, int]], from_ns: int, until_ns: int) -> Samples:
    inside = [one for one in samples if from_ns <= one[0] <= until_ns]
    return np.array(inside, dtype=np.int64).reshape(-1, 4)


def _numeric(address: str, port: int) -> str:
    """The address of a worker's probe: workers look no names up."""
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        numeric = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][4][0]
    except OSError as error:
        raise WorkerLost(f"{host} has no address: {error}") from None
    return f"[{numeric}]:{port}" if ":" in str(numeric) else f"{numeric}:{port}"
