"""Do two systems that are up together, and loaded in short turns, decide sooner than trials one after the other?

    .venv/bin/python benches/duets.py simulated [--count 4000]
    .venv/bin/python benches/duets.py measured [--seconds 600]

`simulated`: the logarithm of a trial's figure is the sum of the system's own, of its start (disks, memory, compilers: one draw for as long as it is up), of
the sky (what the machine is like: an autoregressive series, one step a turn, the same for all who run under it) and of the turn alone. A trial has `TURNS`
turns of one system and costs its start besides; a duet has as many of both in turn, and costs both starts and a warm-up at each turn. Verdicts are by
Student's t at 95 %. Of each way: how often a difference of nothing is called one, and how often one of 20 % is, when both have had the same time.

`measured`: the reference log against itself with an added delay of a fifth of its p50, as pairs of trials of 18 s and as duets of six turns of 3 s each, in
turn. Of the logarithm of the ratio: its spread over pairs and over duets, and how alike the two sides of a turn are.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import math
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt
from gauge_client import MEASURE_AFTER_S, Gauge, gauge
from scipy import stats
from streamgauge.analysis.quiet import curve
from streamgauge.fleet.client import WorkerClient
from streamgauge.vocabulary.gauge_binary import find_gauge
from streamgauge.vocabulary.histograms import decode, merge

Values = npt.NDArray[np.float64]

TURNS = 10
TURN_S, WARM_S = 3.0, 1.0
SESSIONS = 5
EFFECT = math.log(1.2)
RATE = 10_000
PERCENTS = {"p50": 50.0, "p99": 99.0}


@dataclass(frozen=True)
class World:
    """Standard deviations, in logarithms."""

    name: str
    start: float
    sky: float
    memory: float
    """Of the sky, from turn to turn."""
    turn: float
    start_s: float
    """What a trial costs beside its load."""


WORLDS = (
    World("p50, reference log in quiet time", 0.01, 0.02, 0.8, 0.01, 12),
    World("p99, reference log in quiet time", 0.05, 0.05, 0.8, 0.15, 12),
    World("p99, reference log as it came", 0.05, 1.0, 0.8, 0.5, 12),
    World("p99, reference log as it came, a sky of minutes", 0.05, 1.0, 0.98, 0.5, 12),
    World("p50, reference log beside builds, as measured", 0.02, 0.24, 0.8, 0.12, 12),
    World("p99, reference log beside builds, as measured", 0.05, 1.0, 0.8, 0.8, 12),
    World("p99, a JVM in quiet time", 0.25, 0.05, 0.8, 0.2, 35),
    World("p99, a JVM as it came", 0.25, 1.0, 0.8, 0.5, 35),
)


def skies(random: np.random.Generator, count: int, turns: int, world: World) -> Values:
    """One row for each experiment."""
    shocks = random.standard_normal((count, turns)) * world.sky
    sky = np.empty_like(shocks)
    sky[:, 0] = shocks[:, 0]
    for at in range(1, turns):
        sky[:, at] = world.memory * sky[:, at - 1] + math.sqrt(1 - world.memory**2) * shocks[:, at]
    return sky


def trials(random: np.random.Generator, count: int, pairs: int, world: World) -> Values:
    """Differences of pairs of trials, one after the other: (experiments, pairs). Between two trials there are a start's turns of sky."""
    gap = round(world.start_s / TURN_S)
    sky = skies(random, count, pairs * 2 * (TURNS + gap), world).reshape(count, pairs, 2, TURNS + gap)
    own = random.standard_normal(sky[..., gap:].shape) * world.turn
    start = random.standard_normal((count, pairs, 2)) * world.start
    figures = (sky[..., gap:] + own).mean(axis=-1) + start
    return np.asarray(figures[..., 1] - figures[..., 0], dtype=np.float64)


def duets(random: np.random.Generator, count: int, sessions: int, world: World) -> Values:
    """Differences of turns that follow each other: (experiments, sessions, turns)."""
    sky = skies(random, count, sessions * TURNS * 2, world).reshape(count, sessions, TURNS, 2)
    figures = sky + random.standard_normal(sky.shape) * world.turn
    start = random.standard_normal((count, sessions, 1)) * world.start * math.sqrt(2)
    return np.asarray(figures[..., 1] - figures[..., 0] + start, dtype=np.float64)


def shown(differences: Values, effect: float) -> float:
    """How many of the experiments call the difference one. One value for each that counts."""
    values = differences + effect
    n = values.shape[1]
    error = values.std(axis=1, ddof=1) / math.sqrt(n)
    return float((np.abs(values.mean(axis=1)) > stats.t.ppf(0.975, n - 1) * error).mean())


def told(differences: Values) -> str:
    """Both shares."""
    return f"{shown(differences, 0.0):.1%} | {shown(differences, EFFECT):.0%}"


def one_start(random: np.random.Generator, count: int, sessions: int, world: World) -> Values:
    """Differences of so many times `TURNS` turns of one start of each."""
    sky = skies(random, count, sessions * TURNS * 2, world).reshape(count, sessions * TURNS, 2)
    figures = sky + random.standard_normal(sky.shape) * world.turn
    start = random.standard_normal((count, 1)) * world.start * math.sqrt(2)
    return np.asarray(figures[..., 1] - figures[..., 0] + start, dtype=np.float64)


def simulated(count: int) -> None:
    """The table."""
    print(
        "| world | minutes | trials: nothing | 20 % | duets, a start each: nothing | 20 % | duets, turns of one start: nothing | 20 % |"
    )
    print("|---|" + "---:|" * 7)
    for world in WORLDS:
        random = np.random.default_rng(23)
        trial_s = world.start_s + TURNS * TURN_S
        duet_s = 2 * world.start_s + 2 * TURNS * (TURN_S + WARM_S)
        pairs = SESSIONS
        sessions = max(2, round(pairs * 2 * trial_s / duet_s))
        # All the time that one start does not take is for turns.
        turns = round((pairs * 2 * trial_s - 2 * world.start_s) / (2 * TURNS * (TURN_S + WARM_S)))
        separate = trials(random, count, pairs, world)
        together = duets(random, count, sessions, world)
        once = one_start(random, count, turns, world)
        cells = [
            world.name,
            f"{pairs * 2 * trial_s / 60:.1f}",
            told(separate),
            told(together.mean(axis=2)),
            told(once),
        ]
        print(f"| {' | '.join(cells)} |".replace("%", " %"), flush=True)


@contextlib.contextmanager
def log(delay_us: int) -> Iterator[str]:
    """A reference log, fresh: its address."""
    with tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as data:
        command = [str(find_gauge()), "log", "--listen", "127.0.0.1:0", "--data", data]
        server = subprocess.Popen(
            [*command, "--commit-delay-us", str(delay_us)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[-1]
        finally:
            server.kill()
            server.wait()


def load(client: WorkerClient, address: str, seconds: float) -> dict[str, float]:
    """Logarithms of p50 and p99, of quiet time as far as the curve comes down to them."""
    ours = Gauge(client, {"protocol": "kafka", "bootstrap": [address], "options": {}})
    with ours.topic(16) as topic:
        trial = ours.run(topic, 16, seconds + MEASURE_AFTER_S, rate=RATE)
    parts: dict[str, list[bytes]] = {"quiet": [], "censored": []}
    for interval in trial.intervals:
        for entry in interval["latencies"]:
            if (entry["metric"], entry["phase"]) == ("publish", "measure"):
                for name, found in parts.items():
                    if (entry[name] or {}).get("histogram"):
                        found.append(base64.b64decode(entry[name]["histogram"]))
    known = curve(merge(map(decode, parts["quiet"])), merge(map(decode, parts["censored"])))
    values = {name: known.percentile(percent) for name, percent in PERCENTS.items()}
    return {name: math.nan if value is None else math.log(value) for name, value in values.items()}


def measured(seconds: float) -> None:
    """Pairs and duets in turn, and what they say."""
    random, until_s = Random(1), time.monotonic() + seconds
    pairs: list[dict[str, dict[str, float]]] = []
    together: list[list[dict[str, dict[str, float]]]] = []
    with gauge("127.0.0.1:1") as worker:
        with log(0) as address:
            delay_us = round(math.exp(load(worker.client, address, 3)["p50"]) / 1e3 * 0.2)
        delays = {"plain": 0, "delayed": delay_us}
        while time.monotonic() < until_s:
            pair = {}
            for side in random.sample(sorted(delays), 2):
                with log(delays[side]) as address:
                    pair[side] = load(worker.client, address, 18)
            pairs.append(pair)
            with log(0) as plain, log(delay_us) as delayed:
                at = {"plain": plain, "delayed": delayed}
                together.append(
                    [
                        {side: load(worker.client, at[side], 3) for side in random.sample(sorted(at), 2)}
                        for _ in range(6)
                    ]
                )
    print(f"{RATE} msg/s, {delay_us} us added; {len(pairs)} pairs of trials, {len(together)} duets")
    for name in PERCENTS:
        of_pairs = [one["delayed"][name] - one["plain"][name] for one in pairs]
        of_duets = [
            statistics.fmean(turn["delayed"][name] - turn["plain"][name] for turn in duet)
            for duet in together
        ]
        without, added = [[turn[side][name] for duet in together for turn in duet] for side in delays]
        print(
            f"{name}: trials {told_ratios(of_pairs)}; duets {told_ratios(of_duets)}; correlation of the sides of a turn "
            f"{statistics.correlation(without, added):.2f}",
            flush=True,
        )


def told_ratios(logarithms: Sequence[float]) -> str:
    """What was seen, and how far it is spread."""
    known = [one for one in logarithms if not math.isnan(one)]
    if len(known) < 2:
        return "too few"
    return f"{math.exp(statistics.fmean(known)):.2f} times as high (spread {statistics.stdev(known):.3f} in the logarithm)"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("simulated", "measured"))
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=600)
    asked = parser.parse_args()
    if asked.what == "simulated":
        simulated(asked.count)
    else:
        measured(asked.seconds)


if __name__ == "__main__":
    main()
