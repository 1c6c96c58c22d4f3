"""What quiet time is worth beside real disturbance: every experiment by which it is judged, each with its bound. Needs the right to real-time priority (root),
and a machine without other work; all of it takes about 40 minutes.

    PYTHONPATH=tests .venv/bin/python benches/disturbed.py [EXPERIMENT...] [--systems gauge-log,kafka] [--rate 20000] [--seconds 10] [--count 5]

pairs     the same load with and without a thief that takes CPUs at real-time priority, in turn, on one start of a broker: figures of quiet time over the
          undisturbed median
runs      the reference log beside twice as many thieves, no two alike: the largest figure over the smallest
stalls    a server that stands still for 5 ms every 2 s, with and without a thief: that stays in the tail
stop      a SIGSTOP of 300 ms, beside a thief: so does that
seeker    a thief that strikes only while the server stands still: noticed, and bounds in place of figures
fault     a generator of which one thread sleeps 5 ms now and then, with and without a thief: invalid
overload  a rate far beyond the generator, with and without a thief: invalid
hunger    four busy loops at normal priority: no disturbance
rights    without the right to real-time priority: no figures, and what to grant
quota     under a CPU quota (a control group of its own): likewise

Without EXPERIMENT all of them. The exit status is 1 where a bound does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from causes import connection_of
from lab_runs import LAB, measures
from metrics import started
from thief import thief

Habit = tuple[float, float, float]
"""Every so many seconds (half to one and a half of it), for between so many seconds."""
THIEVES: tuple[Habit, ...] = (
    (0.1, 0.002, 0.03),
    (0.04, 0.002, 0.03),
    (1.0, 0.01, 0.03),
    (0.1, 0.02, 0.03),
    (0.3, 0.002, 0.1),
)
DISTURBERS = Path(__file__).with_name("disturbers.py")
BEYOND = "4000000"
"""Messages per second that no generator on two cores sends."""
WARM = "60s"
"""A broker whose JVM compiles is another one."""
STAYS = "at 0.75 of what they imply or more"
QUOTA_GROUPS = (("cpu.max", "150000 100000"), ("cpu.cfs_quota_us", "150000"))
Trial = dict[str, Any]
Act = Callable[[psutil.Process], contextlib.AbstractContextManager[None]]
"""What is done to the lab's children while it measures, until it ends."""


@dataclass
class Bench:
    """What was asked for, and what held."""

    systems: Sequence[str]
    rate: str
    seconds: int
    count: int
    random: random.Random
    missed: list[str] = field(default_factory=list)

    def judge(self, what: str, holds: bool, told: str) -> None:
        """A line for the reader."""
        print(f"  {'holds' if holds else 'DOES NOT HOLD'}: {what}: {told}", flush=True)
        if not holds:
            self.missed.append(what)

    def measure(
        self,
        *arguments: str,
        system: str = "gauge-log",
        beside: Habit | None = None,
        act: Act | None = None,
        within: Sequence[str] = (),
    ) -> Trial:
        """One trial's result, beside a thief or alone. `within`: words of a command that runs the lab."""
        disturbing = contextlib.nullcontext() if beside is None else thief(*beside)
        with (
            tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as out,
            disturbing,
            contextlib.ExitStack() as acts,
        ):
            load = {"--rate": self.rate, "--duration": f"{self.seconds}s", "--warmup": "3s"}
            load |= dict(zip(arguments[::2], arguments[1::2], strict=True))
            events = Path(out) / "events.jsonl"
            command = [*within, LAB, "run", "--system", system, *itertools.chain(*load.items())]
            process = subprocess.Popen(
                [*command, "--out", out, "--events", str(events)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                if act is not None and measures(process, events):
                    acts.enter_context(act(psutil.Process(process.pid)))
                process.wait(timeout=600)
            finally:
                process.kill()
            found: Trial = json.loads(next(Path(out).glob("*/trials/001/result.json")).read_text("utf-8"))
        return found


@contextlib.contextmanager
def one_start(bench: Bench, name: str) -> Iterator[str]:
    """What to measure, to meet the same start of a system each time, warm: starts differ by more than is asked here."""
    with started(name) as (running, directory):
        file = directory / "system.yaml"
        file.write_text(yaml.safe_dump({"system": name, **connection_of(running)}), "utf-8")
        bench.measure("--warmup", WARM, system=str(file))
        yield str(file)


@contextlib.contextmanager
def disturber(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """One of the programs of disturbers.py, while this is open."""
    command = [sys.executable, str(DISTURBERS), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", f"{arguments}: refused"
            yield process
        finally:
            process.kill()


def server_of(lab: psutil.Process) -> int:
    """The reference log."""
    return next(one.pid for one in lab.children(recursive=True) if one.cmdline()[1:2] == ["log"])


def sender_of(lab: psutil.Process) -> int:
    """The thread of the load worker that sends."""
    for child in lab.children(recursive=True):
        for thread in child.threads():
            if (
                Path(f"/proc/{child.pid}/task/{thread.id}/comm")
                .read_text()
                .startswith(("producer-", "both-"))
            ):
                return thread.id
    raise LookupError("the lab has no load worker")


def quiet(trial: Trial, name: str) -> tuple[float | None, float, float | None]:
    """A figure of quiet time with its interval, or its bounds."""
    figure = trial["quiet"]["publish_ms"][name]
    return figure["value"], figure["at_least"], figure["at_most"]


def told(trial: Trial, name: str, truth: float) -> str:
    """The same over the truth."""
    value, low, high = ("-" if one is None else f"{one / truth:.2f}" for one in quiet(trial, name))
    return f"{name} quiet {value} [{low}, {high}], as it came {over(trial['publish_ms'][name], truth)}"


def over(figure: float | None, truth: float) -> str:
    """A figure over the truth."""
    return "-" if figure is None else f"{figure / truth:.2f}"


def holds_truth(trial: Trial, name: str, truth: float) -> bool:
    """Whether the interval or the bounds hold it, to a rounding."""
    _, low, high = quiet(trial, name)
    return low <= truth * 1.001 and (high is None or high >= truth * 0.999)


def share(trial: Trial) -> float:
    """Of the time, disturbed."""
    return float(trial["quiet"]["disturbed_share"] or 0.0)


def undisturbed(trial: Trial, name: str) -> float | None:
    """A figure of a trial without a thief; None where the host was one, and all that is known are bounds."""
    value = quiet(trial, name)[0]
    return trial["publish_ms"][name] if value is None and trial["validity"]["word"] == "valid" else value


def pairs(bench: Bench) -> None:
    """1: with and without a thief."""
    for system in bench.systems:
        thieves = list(itertools.islice(itertools.cycle(THIEVES), bench.count))
        alone, beside = [], []
        with one_start(bench, system) as started_once:
            for habit in thieves:
                alone.append(bench.measure(system=started_once))
                beside.append(bench.measure(system=started_once, beside=habit))
        known = {
            name: [one for trial in alone if (one := undisturbed(trial, name)) is not None]
            for name in ("p50", "p99")
        }
        truths = {name: statistics.median(figures) for name, figures in known.items() if figures}
        for name in known.keys() - truths.keys():
            bench.judge(f"{system}: an undisturbed {name} to compare with", False, "the host left none")
        print(
            f"{system}, {bench.rate} msg/s, undisturbed: {', '.join(f'{name} {one:.3f} ms' for name, one in truths.items())}"
        )
        without = itertools.repeat(None, len(alone))
        for who_took, trial in zip([*without, *thieves], [*alone, *beside], strict=True):
            said = "; ".join(told(trial, name, truth) for name, truth in truths.items())
            who = "alone" if who_took is None else f"thief {who_took}"
            print(f"    {who}, {share(trial):.0%} disturbed, {trial['validity']['word']}: {said}", flush=True)
        for name, bound in (("p50", 1.15), ("p99", 1.25)):
            if name not in truths:
                continue
            ratios = [value / truths[name] for one in beside if (value := quiet(one, name)[0]) is not None]
            furthest = max((max(one, 1 / one) for one in ratios), default=float("inf"))
            bench.judge(
                f"{system}: quiet {name} within a factor of {bound} of the undisturbed median",
                len(ratios) == bench.count and furthest <= bound,
                f"{furthest:.2f} at most, {len(ratios)} figures of {bench.count}",
            )
        held = sum(holds_truth(trial, name, truth) for trial in beside for name, truth in truths.items())
        bench.judge(
            f"{system}: intervals hold it in 9 of 10",
            held >= 0.9 * len(truths) * bench.count,
            f"{held} of {len(truths) * bench.count}",
        )


def runs(bench: Bench) -> None:
    """1: changing thieves."""
    found = []
    for _ in range(2 * bench.count):
        shortest_s = 10 ** bench.random.uniform(-3, -1.7)
        habit = (10 ** bench.random.uniform(-1.4, 0), shortest_s, shortest_s * bench.random.uniform(1, 10))
        trial = bench.measure(beside=habit)
        found.append(trial)
        print(
            f"    every {habit[0]:.3f} s for {1e3 * habit[1]:.1f} to {1e3 * habit[2]:.1f} ms, {share(trial):.0%} disturbed, {trial['validity']['word']}: "
            f"p50 {quiet(trial, 'p50')[0]}, p99 {quiet(trial, 'p99')[0]} ms, as it came {trial['publish_ms']['p99']}",
            flush=True,
        )
    values = [value for trial in found if (value := quiet(trial, "p99")[0]) is not None]
    spread = max(values) / min(values) if values else float("inf")
    bench.judge(
        "largest over smallest quiet p99, beside changing thieves, at most 1.3",
        len(values) == len(found) and spread <= 1.3,
        f"{spread:.2f}, {len(values)} figures of {len(found)}",
    )


def standing_still(lengths_s: list[float], *arguments: object, what: str = "stall") -> Act:
    """A server that is stopped now and then; `lengths_s` gets for how long each time."""

    @contextlib.contextmanager
    def act(lab: psutil.Process) -> Iterator[None]:
        with disturber(what, server_of(lab), *arguments) as process:
            yield
            process.terminate()
            assert process.stdout is not None
            lengths_s.extend(float(line) for line in process.stdout.read().split())

    return act


def implied_ms(lengths_s: Sequence[float], seconds: float, percent: float) -> float:
    """What the stalls alone make of a percentile: who falls due in one waits for the rest of it. 0 where they are rarer than that."""
    late_s = seconds * (1 - percent / 100)
    low, high = 0.0, max(lengths_s, default=0.0)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if sum(max(0.0, one - middle) for one in lengths_s) > late_s else (low, middle)
        )
    return 1e3 * low


def stalls(bench: Bench) -> None:
    """2: a server's own stalls stay."""
    for habit in (None, THIEVES[0]):
        lengths_s: list[float] = []
        trial = bench.measure(
            "--duration", f"{3 * bench.seconds}s", beside=habit, act=standing_still(lengths_s, 2.0, 0.005)
        )
        implied = implied_ms(lengths_s, 2.0 * len(lengths_s), 99.9)
        bench.judge(
            f"stalls of 5 ms every 2 s stay in quiet p99.9 ({'alone' if habit is None else 'beside a thief'}), {STAYS}",
            stays(trial, "p99_9", implied),
            f"{len(lengths_s)} stalls imply {implied:.2f} ms; {told(trial, 'p99_9', implied or 1.0)} of it",
        )


def stays(trial: Trial, name: str, implied_ms: float) -> bool:
    """Whether what stalls imply is still in a figure of quiet time, or between its bounds."""
    value, _, high = quiet(trial, name)
    return value >= 0.75 * implied_ms if value is not None else high is None or high >= implied_ms


def stop(bench: Bench) -> None:
    """2: so does a SIGSTOP."""

    @contextlib.contextmanager
    def once(lab: psutil.Process) -> Iterator[None]:
        time.sleep(1.0)
        server = psutil.Process(server_of(lab))
        server.suspend()
        time.sleep(0.3)
        server.resume()
        yield

    trial = bench.measure(beside=THIEVES[0], act=once)
    implied = implied_ms([0.3], trial["quiet"]["seconds"], 99)
    bench.judge(
        f"a SIGSTOP of 300 ms stays in quiet p99, {STAYS}",
        stays(trial, "p99", implied),
        f"implied {implied:.0f} ms; {told(trial, 'p99', implied)} of it",
    )


def seeker(bench: Bench) -> None:
    """2: a thief that strikes only while the server stands still."""
    noticed, bounded = 0, 0
    for _ in range(bench.count):
        lengths_s: list[float] = []
        act = standing_still(lengths_s, 0.1, 0.0035, bench.random.uniform(0.002, 0.02), what="seek")
        trial = bench.measure(act=act)
        found = trial["quiet"]
        noticed += found["attraction"] in ("attracted", "cannot tell")
        bounded += trial["validity"]["word"] == "bounds only" and quiet(trial, "p99")[0] is None
        print(
            f"    {len(lengths_s)} strikes, {share(trial):.0%} disturbed: {found['attraction']}, {trial['validity']['word']}",
            flush=True,
        )
    bench.judge(
        "a thief that strikes only while the server stands still is noticed",
        noticed == bench.count,
        f"{noticed} of {bench.count}",
    )
    bench.judge("bounds in place of figures then", bounded == bench.count, f"{bounded} of {bench.count}")


def fault(bench: Bench) -> None:
    """3: a thread of the generator that sleeps."""

    @contextlib.contextmanager
    def sleeps(lab: psutil.Process) -> Iterator[None]:
        with disturber("sleep", sender_of(lab), 0.1, 0.005):
            yield

    for habit in (None, THIEVES[0]):
        invalid(
            bench,
            bench.measure(beside=habit, act=sleeps),
            "a thread that sleeps for 5 ms every 100 ms",
            habit,
        )


def overload(bench: Bench) -> None:
    """3: a rate beyond the generator."""
    for habit in (None, THIEVES[0]):
        trial = bench.measure("--rate", BEYOND, "--duration", "5s", "--quiet-limit", "1", beside=habit)
        invalid(bench, trial, f"a rate of {BEYOND} msg/s", habit)


def invalid(bench: Bench, trial: Trial, what: str, habit: Habit | None) -> None:
    """A judgement on a fault of the generator."""
    validity = trial["validity"]
    bench.judge(
        f"{what} is invalid ({'alone' if habit is None else 'beside a thief'})",
        validity["word"] == "invalid",
        f"{validity['word']}, {share(trial):.0%} disturbed. {' '.join(validity['reasons'])}",
    )


def hunger(bench: Bench) -> None:
    """3: hunger for CPU at normal priority."""

    @contextlib.contextmanager
    def hogs(_lab: psutil.Process) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(disturber("hog"))
            yield

    alone, hungry = bench.measure(), bench.measure(act=hogs)
    # What the host took then is its own: a machine that never idles is given less.
    more = own_share(hungry) - own_share(alone)
    figures = f"p99 as it came {alone['publish_ms']['p99']:.2f} ms alone, {hungry['publish_ms']['p99']:.2f} beside them, quiet {quiet(hungry, 'p99')[0]}"
    causes = ", ".join(
        f"{who} {took_s:.3f} s" for who, took_s in hungry["quiet"]["windows_s_by_cause"].items()
    )
    bench.judge(
        "busy loops at normal priority are no disturbance: 2 % of the time at most, without what the host took",
        more <= 0.02,
        f"{more:+.1%} of the time ({causes or 'no window'}); {figures}",
    )


def own_share(trial: Trial) -> float:
    """Of the time, windows that the host did not make."""
    found = trial["quiet"]
    took_s = sum(took_s for who, took_s in found["windows_s_by_cause"].items() if who != "host")
    return float(took_s / found["seconds"])


def rights(bench: Bench) -> None:
    """4: no right to real-time priority."""
    caps = [f"--{kind}=-all" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
    unwatched(
        bench,
        "without the right to real-time priority",
        ["setpriv", *caps, "--no-new-privs", "prlimit", "--rtprio=0"],
        "CAP_SYS_NICE",
    )


def quota(bench: Bench) -> None:
    """4: a CPU quota."""
    for top in map(Path, ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup")):
        group = top / f"streamgauge-bench-{time.monotonic_ns()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            try:
                written = [
                    name
                    for name, text in QUOTA_GROUPS
                    if (group / name).exists() and (group / name).write_text(text)
                ]
                if written:
                    join = f'echo $$ > {group}/cgroup.procs && exec "$@"'
                    unwatched(
                        bench, "under a quota of 1.5 CPUs", ["sh", "-c", join, "sh"], "quota of 1.50 CPUs"
                    )
                    return
            finally:
                group.rmdir()
    bench.judge(
        "under a CPU quota",
        holds=False,
        told="no control group could be made here (root, and a writable /sys/fs/cgroup)",
    )


def unwatched(bench: Bench, what: str, within: Sequence[str], word: str) -> None:
    """A judgement on what cannot be watched."""
    found = bench.measure(within=within)["quiet"]
    why = found["why_not"] or ""
    bench.judge(
        f"{what}: no quiet figures, and what to do",
        not found["watched"] and found["publish_ms"] is None and word in why,
        why,
    )


EXPERIMENTS = (pairs, runs, stalls, stop, seeker, fault, overload, hunger, rights, quota)


def main() -> int:
    named = {one.__name__: one for one in EXPERIMENTS}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", choices=[*named, []])
    parser.add_argument("--systems", default="gauge-log,kafka")
    parser.add_argument("--rate", default="20000")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--count", type=int, default=5, help="pairs per system; half of the runs")
    parser.add_argument("--seed", type=int, default=1, help="of the thieves of `runs` and `seeker`")
    asked = parser.parse_args()
    bench = Bench(asked.systems.split(","), asked.rate, asked.seconds, asked.count, random.Random(asked.seed))
    for name in asked.experiments or named:
        print(name, flush=True)
        named[name](bench)
    print(f"{len(bench.missed)} bounds do not hold" + "".join(f"\n  {one}" for one in bench.missed))
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
