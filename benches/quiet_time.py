"""How often 95 % intervals and bounds of quiet time hold the truth, on simulated machines; needs no quiet one.

    PYTHONPATH=tests .venv/bin/python benches/quiet_time.py [coverage] [attraction] [bias] [--count 300] [--seconds 60] [--rate 2000]

`coverage`: systems whose latency is known (tests/disturbed_machine.py) under thieves of different duty. Of each percentile: in how many trials there was a
figure, how many of these intervals held the truth, how wide they were (the geometric mean of upper over lower end); and of all trials, in how many the lower
and the upper bound held (of trials with a figure its interval's ends). `fastest` and `came` are the bounds that are given where spans may be attracted.
`attraction`: how often thieves of each kind are called attracted, or cannot be told. `bias`: what attraction that is not called so does to a p99.9, and
how often intervals hold what the system did where it cannot be told.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

import numpy as np
from disturbed_machine import (
    Spans,
    System,
    Values,
    attacked,
    independent,
    slow_seconds,
    stalls,
    thief,
    told,
    waves,
)
from streamgauge.analysis.quiet import QuietInterval
from streamgauge.analysis.quiet_bounds import Estimates, Told, figures
from streamgauge.analysis.quiet_check import Ages, Attraction, attraction
from streamgauge.analysis.quiet_limits import Estimate, quiet_blocks
from streamgauge.model.result_quiet import Begin

PERCENTS = (50.0, 99.0, 99.9)
SHARES = (0.05, 0.25, 0.5, 0.75)
SYSTEMS = (independent(), stalls(every_s=0.5), stalls(), slow_seconds(), waves(0.1), waves())
TRUSTED, DISTRUSTED = (
    Attraction(Begin.independent),
    Attraction(Begin.attracted, 2.0, 50.0, 90.0, 0.0, 200, 8, 0.0),
)


@dataclass
class Tally:
    """Of one percentile over all trials."""

    figures: int = 0
    held: int = 0
    at_least: int = 0
    at_most: int = 0
    fastest: int = 0
    came: int = 0
    widths: list[float] = field(default_factory=list)

    def add(self, one: Told, truth: float) -> None:
        """A figure with its interval, or its bounds."""
        low, high = one.at_least <= truth, one.at_most is None or one.at_most >= truth
        self.at_least += low
        self.at_most += high
        if one.value is not None:
            self.figures += 1
            self.held += low and high
            if one.at_most is not None and one.at_least > 0:
                self.widths.append(np.log(one.at_most / one.at_least))


def made(
    system: System, share: float, seconds: int, rate: int, random: np.random.Generator
) -> tuple[Values, Values, Spans]:
    """Due times, what the system takes by itself, and when it is disturbed."""
    due = np.arange(rate * seconds) / rate
    return due, system.draw(random, due), thief(random, seconds, share)


def coverage(systems: tuple[System, ...], count: int, seconds: int, rate: int) -> None:
    """One row for each system, duty and percentile."""
    print(f"{count} trials of {seconds} s at {rate:,} msg/s each")
    print(
        "| system | disturbed | percentile | figure | held | width | at least held | at most held | fastest held | came held |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for system in systems:
        truths = {percent: system.percentile_s(percent) * 1e3 for percent in PERCENTS}
        for share in SHARES:
            random = np.random.default_rng([round(100 * share), seconds])
            tallies = {percent: Tally() for percent in PERCENTS}
            for _ in range(count):
                intervals = told(*made(system, share, seconds, rate, random))
                found = Estimates(intervals)
                for percent, tally in tallies.items():
                    truth = truths[percent]
                    one = figures(found, TRUSTED, share, {"it": percent})["it"]
                    bounds = figures(found, DISTRUSTED, share, {"it": percent})["it"]
                    tally.add(one, truth)
                    tally.fastest += bounds.at_least <= truth
                    tally.came += bounds.at_most is None or bounds.at_most >= truth
            for percent, tally in tallies.items():
                print(_row(system.name, share, percent, tally, count), flush=True)


def _row(system: str, share: float, percent: float, tally: Tally, count: int) -> str:
    given = tally.figures
    held = f"{tally.held / given:.1%}" if given else "-"
    width = f"{np.exp(np.mean(tally.widths)):.2f}" if tally.widths else "-"
    bounds = " | ".join(
        f"{part / count:.1%}" for part in (tally.at_least, tally.at_most, tally.fastest, tally.came)
    )
    cells = f"{system} | {share:.0%} | p{percent:g} | {given / count:.0%} | {held} | {width} | {bounds}"
    return f"| {cells} |".replace("%", " %")


def thieves(count: int) -> None:
    """Shares of the time that something is older than a threshold, in quiet time and where spans begin; old moments last for 3 samples of 1,000 a second."""
    print("| thief | windows | in quiet time | where they begin | attracted | cannot tell | independent |")
    print("|---|---|---|---|---|---|---|")
    for name, quiet, begin, begins in (
        ("independent", 0.0015, 0.0015, 200),
        ("independent", 0.0015, 0.004, 200),
        ("independent", 0.002, 0.012, 200),
        ("independent", 0.002, 0.012, 1000),
        ("the host", 0.002, 0.027, 200),
        ("the host", 0.002, 0.027, 1000),
        ("the host", 0.007, 0.027, 200),
        ("seeks slowness", 0.0004, 0.02, 200),
        ("seeks slowness", 0.0004, 0.03, 200),
        ("seeks slowness", 0.0004, 0.04, 200),
        ("seeks slowness", 0.0004, 0.02, 400),
    ):
        random = np.random.default_rng(begins)
        kinds = []
        for _ in range(count):
            older = 3 * random.poisson(quiet * 1000 / 3, 20)
            one = Ages(2.0, [1000] * 20, older.tolist(), begins, int(random.binomial(begins, begin)))
            kinds.append(attraction([one]).kind)
        shares = " | ".join(
            f"{kinds.count(kind) / count:.1%}"
            for kind in (Begin.attracted, Begin.cannot_tell, Begin.independent)
        )
        print(f"| {name} | {begins} | {quiet:.2%} | {begin:.2%} | {shares} |".replace("%", " %"))


def bias(count: int, seconds: int, rate: int) -> None:
    """A thief that strikes every 100 ms, and so many times as often while everything stands still: for 5 ms, every 2 s."""
    print(
        "| times as often | p99.9 of quiet time over the truth | attracted | by few spans | cannot tell | of both, with figures, and held: p50 | p99 | p99.9 |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for times in (1, 2, 5, 10, 20, 50):
        random = np.random.default_rng(times)
        ratios, kinds, unsure = [], [], 0
        tallies = {percent: Tally() for percent in PERCENTS}
        for _ in range(count):
            due, alone, spans, attracted = attacked(random, seconds, rate, times)
            intervals = told(due, alone, spans)
            kinds.append(attracted.kind)
            found = Estimate(quiet_blocks(intervals)).curve.percentile(99.9)
            if found is not None:
                ratios.append(found / 1e9 / float(np.percentile(alone, 99.9)))
            if attracted.doubt is not None:
                unsure += 1
                _tally(tallies, intervals, alone, spans, attracted)
        cannot_tell = kinds.count(Begin.cannot_tell)
        cells = [
            f"{times}",
            f"{np.median(ratios):.2f}",
            f"{kinds.count(Begin.attracted) / count:.0%}",
            f"{(unsure - cannot_tell) / count:.0%}",
            f"{cannot_tell / count:.0%}",
        ]
        cells += [
            f"{one.figures / unsure:.0%}, {one.held / one.figures:.1%}" if one.figures else "-"
            for one in tallies.values()
        ]
        print(f"| {' | '.join(cells)} |".replace("%", " %"), flush=True)


def _tally(
    tallies: dict[float, Tally],
    intervals: list[QuietInterval],
    alone: Values,
    spans: Spans,
    attracted: Attraction,
) -> None:
    """Whether the figures of a trial in doubt hold what the system did by itself."""
    found, share = Estimates(intervals, attracted.doubt), spans.share(len(intervals))
    for percent, tally in tallies.items():
        one = figures(found, attracted, share, {"it": percent})["it"]
        tally.add(one, float(np.percentile(alone, percent)) * 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help="coverage, attraction, bias; all of them if none"
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--systems", type=int, nargs="*", help="only these, from 0 on")
    parser.add_argument("--rate", type=int, default=2000)
    chosen = parser.parse_args()
    tables = chosen.tables or ["coverage", "attraction", "bias"]
    if "coverage" in tables:
        systems = SYSTEMS if chosen.systems is None else tuple(SYSTEMS[at] for at in chosen.systems)
        coverage(systems, chosen.count, chosen.seconds, chosen.rate)
    if "attraction" in tables:
        thieves(10 * chosen.count)
    if "bias" in tables:
        bias(chosen.count, chosen.seconds, chosen.rate)


if __name__ == "__main__":
    main()
