"""What the explanation of the slowest messages makes of causes that are known (docs/causes.md): real systems, started by the lab or attached to
with an agent, beside a cause that is put in at known times. Needs root (disks that can be slow, real-time priority) and a machine without other
work; a trial takes a minute or so.

    .venv/bin/python benches/causes.py [CAUSE...] [--systems kafka,nats] [--how started,attached] [--seconds 50] [--seed N]

disk      each sync of the system's disks takes 20 ms longer, for 0.9 s each time
pause     all of the system's JVMs collect their garbage, one full collection after the other, for 300 ms
thief     every CPU is taken at real-time priority for 80 ms
nothing   nothing is done; a cause that is claimed is false

Each but the last seven times, at times that the seed draws. Without CAUSE all of them, without --systems all five. The exit status is 1 where a
cause that was put in does not come first, or where one is claimed and none was put in.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from lab_runs import LAB, measures
from streamgauge.model.system_request import SystemRequest
from streamgauge.runner.profiles import attach
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.registry import systems
from streamgauge.systems.support.powercut import open_disks
from streamgauge.vocabulary.gauge_binary import find_gauge, ready_address
from streamgauge.vocabulary.levels import Level
from streamgauge.vocabulary.waiting import wait_until

TIMES = 7
GAP_S = 3.0
"""Between two: what a pause has held up is over by then."""
SLOW_MS, SLOW_S = 20, 0.9
PAUSE_S, THEFT_S = 0.3, 0.08
WARM_UP_S = 12
LEVEL: Level = "L3"
OF_TOPICS = ("kafka",)
"""Systems whose level is that of topics, so that it has to be asked for also where they run already."""
ON_JVMS = ("kafka", "pulsar")
NAMED_BY: Mapping[str, tuple[str, ...]] = {
    "disk": ("sync", "flush", "commit", "journal"),
    "pause": ("JVM",),
    # The thief is a program.
    "thief": ("a CPU was not to be had", "steal", "other programs used CPU"),
}
"""Words, one of which is in the name of whatever tells of the cause."""
Act = Callable[[], None]


@dataclass(frozen=True)
class Under:
    """What is measured: words of the command line, and the process of which its processes are descendants."""

    words: list[str]
    parent: psutil.Process | None
    """None: the lab that is started."""
    slow: Callable[[float], None] | None
    """Makes syncs so many milliseconds longer; None: the lab does."""


def times_of(seed: str, seconds: int) -> list[float]:
    """When a cause is put in, in seconds of the measured phase: by chance, and not at a period."""
    draw = random.Random(seed)
    spare_s = seconds - 4.0 - TIMES * GAP_S
    assert spare_s > 0, "longer trials, or fewer times"
    cuts = sorted(draw.uniform(0.0, spare_s) for _ in range(TIMES))
    return [2.0 + at * GAP_S + cut for at, cut in enumerate(cuts)]


def collect(parent: psutil.Process) -> None:
    """Full collections in all JVMs below a process at once."""
    pids = [child.pid for child in parent.children(recursive=True) if attach.is_jvm(child.pid)]
    assert pids, "there is no JVM"

    def of_one(pid: int) -> None:
        until_s = time.monotonic() + PAUSE_S
        while time.monotonic() < until_s:
            attach.command(pid, "GC.run")

    threads = [threading.Thread(target=of_one, args=(pid,)) for pid in pids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def steal() -> None:
    """Takes every CPU at once."""
    until_s = time.monotonic() + 0.02 + THEFT_S
    children = []
    for cpu in sorted(os.sched_getaffinity(0)):
        child = os.fork()
        if child == 0:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
            os.sched_setaffinity(0, {cpu})
            while time.monotonic() < until_s:
                pass
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


@contextlib.contextmanager
def started(name: str, cause: str, seconds: int, seed: str) -> Iterator[Under]:
    """A system that the lab starts."""
    words = ["--system", name, "--durability", LEVEL]
    if cause == "disk":
        changes = [
            change
            for at_s in times_of(seed, seconds)
            for change in (
                f"fsync-delay={SLOW_MS}ms:all@{at_s:.3f}s",
                f"fsync-delay=0ms:all@{at_s + SLOW_S:.3f}s",
            )
        ]
        words += ["--fault", ",".join(changes)]
    yield Under([*words, "--system-metrics", "every-second"], None, None)


def connection_of(running: RunningSystem) -> dict[str, Any]:
    """What a system file says of how a system is reached."""
    told = running.connection
    options = told["options"]
    found: dict[str, Any] = {"connect": told["bootstrap"]}
    if "admin" in options:
        found["admin"] = options["admin"]
    return found


@contextlib.contextmanager
def attached(name: str, cause: str, *_: object) -> Iterator[Under]:
    """A system that runs already, with an agent on its machine: this one."""
    gauge = find_gauge()
    with tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as text, contextlib.ExitStack() as ends:
        directory = Path(text)
        disks = open_disks(gauge, directory / "disks") if cause == "disk" else None
        if disks is not None:
            ends.callback(disks.stop)
        request = SystemRequest(level=LEVEL, volume=None if disks is None else disks.provide)
        running = systems()[name].start(request, directory / "data", lambda _: None)
        ends.callback(running.stop)
        log = directory / "agent.log"
        with log.open("wb") as sink:
            agent = subprocess.Popen([str(gauge), "agent"], stdout=sink)
        ends.callback(agent.wait)
        ends.callback(agent.kill)
        late = wait_until(lambda: None if ready_address(log) else "the agent to be ready", 10.0, 0.02)
        assert late is None, late
        file = directory / f"{name}.yaml"
        said = {
            "system": name,
            **connection_of(running),
            "metrics": ["every-second", *(source.url for source in running.metric_sources())],
            "agents": ready_address(log),
        }
        file.write_text(yaml.safe_dump(said), "utf-8")

        def slow(delay_ms: float) -> None:
            assert disks is not None
            disks.set_faults(disks.names, sync_delay_ms=delay_ms or None)

        yield Under(
            ["--system", str(file), *(["--durability", LEVEL] if name in OF_TOPICS else [])],
            psutil.Process(),
            slow,
        )


HOW: dict[str, Callable[..., contextlib.AbstractContextManager[Under]]] = {
    "started": started,
    "attached": attached,
}


def put_in(cause: str, under: Under, lab: psutil.Process, times_s: list[float], began_s: float) -> None:
    """The cause, at its times."""

    def slowly() -> None:
        assert under.slow is not None
        under.slow(SLOW_MS)
        time.sleep(SLOW_S)
        under.slow(0.0)

    act: Act = {"disk": slowly, "pause": lambda: collect(under.parent or lab), "thief": steal}[cause]
    for at_s in times_s:
        time.sleep(max(0.0, began_s + at_s - time.monotonic()))
        act()


def measure(name: str, how: str, cause: str, seconds: int, seed: str) -> dict[str, Any]:
    """The result of a trial beside a cause."""
    with (
        tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as out,
        HOW[how](name, cause, seconds, seed) as under,
    ):
        events, log = Path(out) / "events.jsonl", Path(out) / "log"
        load = [
            "1-topic-1-partition-1kb",
            "--rate",
            "500",
            "--warmup",
            f"{WARM_UP_S}s",
            "--duration",
            f"{seconds}s",
        ]
        command = [
            LAB,
            "run",
            *load,
            *under.words,
            "--quiet-limit",
            "1",
            "--out",
            out,
            "--events",
            str(events),
        ]
        with log.open("w") as sink:
            process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, text=True)
        try:
            the_labs = cause == "nothing" or (cause == "disk" and under.slow is None)
            if measures(process, events) and not the_labs:
                put_in(cause, under, psutil.Process(process.pid), times_of(seed, seconds), time.monotonic())
            process.wait(timeout=300)
        finally:
            process.kill()
            process.wait()
        found = list(Path(out).glob("*/trials/001/result.json"))
        assert found, log.read_text()
        result: dict[str, Any] = json.loads(found[0].read_text("utf-8"))
        return result


def judged(cause: str, result: dict[str, Any]) -> tuple[bool, str]:
    """Whether the explanation is right, and what it says."""
    if result["status"] != "complete":
        return False, f"{result['status']}: {result.get('failure') or result.get('reasons')}"
    tail = result["tail"]
    if tail is None:
        return False, "there is no tail"
    names = [one["event"] for one in tail["coincidences"]]
    where = (
        f"p{tail['percentile']:g} {tail['above_ms']:.3g} ms, {tail['msgs']} messages of {tail['intervals']} s"
    )
    said = f"{where}; {'; '.join(names) or 'nothing found'}"
    if cause == "nothing":
        return not names, said
    if not names:
        return False, f"{said} of {', '.join(tail['looked_at'])}"
    return any(word in names[0] for word in NAMED_BY[cause]), said


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("causes", nargs="*", default=["disk", "pause", "thief", "nothing"])
    parser.add_argument("--systems", default="gauge-log,kafka,pulsar,rabbitmq,nats")
    parser.add_argument("--how", default="started,attached")
    parser.add_argument("--seconds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    wrong = 0
    for name in asked.systems.split(","):
        for how in asked.how.split(","):
            for cause in asked.causes:
                if cause == "pause" and name not in ON_JVMS:
                    continue
                seed = f"{asked.seed} {name} {how} {cause}"
                is_right, said = judged(cause, measure(name, how, cause, asked.seconds, seed))
                wrong += not is_right
                print(f"{'right' if is_right else 'WRONG'}: {name}, {how}, {cause}: {said}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
