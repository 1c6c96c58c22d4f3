"""Runs of every kind, changed as somebody could who wants to do harm, and a watch over what opening them touches."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sample_run
from sample_profile import add_profile
from streamgauge.model.durability import DurabilityReport
from streamgauge.model.study_plan import StudyPlan
from streamgauge.store.directory import RunDirectory
from streamgauge.store.lab import Lab, claim
from streamgauge.store.ours import state_directory
from streamgauge.store.plan_file import write_plan

GC_LINE = '[2026-09-21T14:13:21.000+0000] Safepoint "G1CollectForAllocation", Time since last: 1 ns, Total: 5000000 ns\n'
KINDS = ("complete", "killed", "study", "durability", "imported")
COMMANDS_PER_RUN = 5
DEAD_PID = (1 << 22) - 1
"""Above what pid_max allows."""


def write_kinds(base: Path, plan: StudyPlan, durability: DurabilityReport) -> dict[str, Path]:
    """A small run of each kind; the directory of each."""
    asked = sample_run.workload(seconds=4, warmup_s=1.0)
    made = {kind: base / f"20260921-141320-{kind}" for kind in KINDS}
    sample_run.write_run(made["complete"], asked=asked)
    shutil.copytree(made["complete"], made["killed"])
    _kill(made["killed"])
    shutil.copytree(made["complete"], made["study"])
    write_plan(RunDirectory(made["study"]), plan)
    for number, trial in enumerate(plan.trials[:2], start=1):
        _change(made["study"] / f"trials/{number:03d}/result.json", ["workload", "name"], trial.cell)
    shutil.copytree(made["complete"], made["durability"])
    shutil.rmtree(made["durability"] / "trials")
    RunDirectory(made["durability"]).write_durability(durability)
    add_profile(made["complete"], sample_run.KAFKA, asked, 2)
    (made["imported"] / "foreign").mkdir(parents=True)
    (made["imported"] / "foreign" / "omb.json").write_text(json.dumps(omb_result()), encoding="utf-8")
    return made


def omb_result() -> dict[str, Any]:
    """As OMB writes it."""
    figures: dict[str, Any] = {
        "workload": "w",
        "driver": "Kafka",
        "messageSize": 100,
        "topics": 1,
        "partitions": 2,
    }
    figures |= {"publishRate": [100.0, 101.5], "consumeRate": [99.0, 102.0], "backlog": [0, 3]}
    for name in ("publishLatency", "endToEndLatency"):
        for suffix in ("Avg", "50pct", "99pct", "Max"):
            figures[name + suffix] = [1.5, 2.5]
            figures[f"aggregated{name[0].upper()}{name[1:]}{suffix}"] = 2.0
    figures["aggregatedPublishLatencyQuantiles"] = {"50.0": 1.0, "99.0": 2.0, "100.0": 3.0}
    return figures


def _kill(run: Path) -> None:
    """As a lab leaves a run that was killed in its second trial."""
    sample = sample_run.sample_trial(
        run / "trials/002", sample_run.KAFKA, sample_run.workload(seconds=4, warmup_s=1.0), 2
    )
    data = run / "trials/002/data"
    (data / "node-1").mkdir(parents=True)
    (data / "node-1" / "server.log").write_text("it went on 1\n", encoding="utf-8")
    context = sample.context.model_copy(
        update={"status": "running", "data_directory": str(data), "tls": "off"}
    )
    trial = RunDirectory(run).trial(2)
    trial.write_context(context)
    (trial.path / "result.json").unlink()
    intervals = [
        {
            "worker": "worker-1", "index": index, "start_s": index, "duration_s": 1.0, "sent_msgs": 100, "acked_msgs": 100,
            "errors": {"timeout": 1}, "subscriptions": [{"name": "s", "received_msgs": 99, "backlog_msgs": 1}],
            "latencies": [{"phase": "measure", "metric": "publish", "count": 3, "histogram": _histogram()}],
        }
        for index in range(4)
    ]  # fmt: skip
    resources = [{"interval": 1, "start_s": 1.0, "duration_s": 1.0, "scope": "host", "cpu_s": 0.5}]
    events = [{"unix_ms": sample_run.STARTED_UNIX_MS, "event": "phase", "name": "measure"}]
    (trial.path / "acks.csv").write_text("at_s,acked_msgs\n0.5,10\n1.0,20\n1.5,25\n", encoding="utf-8")
    log = trial.logs / "node-1" / "gc.log"
    log.parent.mkdir(parents=True)
    log.write_text(GC_LINE * 3, encoding="utf-8")
    for name, lines in (("intervals", intervals), ("resources", resources), ("events", events)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (trial.path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    _change(run / "manifest.json", ["status"], "running")
    mark_killed(run)


def mark_killed(run: Path) -> None:
    """As a lab leaves a run whose process was killed."""
    claim(RunDirectory(run))
    found = Lab.model_validate_json((run / "lab.json").read_text("utf-8"))
    dead = found.model_copy(update={"pid": DEAD_PID})
    (run / "lab.json").write_text(dead.model_dump_json(), encoding="utf-8")


def _histogram() -> str:
    import base64

    import numpy as np

    return base64.b64encode(sample_run.encode(np.array([1_000_000, 2_000_000, 3_000_000]))).decode()


def _change(path: Path, where: Sequence[str | int], value: Any) -> None:
    told = json.loads(path.read_text("utf-8"))
    put(told, where, value)
    path.write_text(json.dumps(told), encoding="utf-8")


def put(told: Any, where: Sequence[str | int], value: Any) -> None:
    """Sets (or with GONE removes) what is at a place of a JSON value."""
    for step in where[:-1]:
        told = told[step]
    if value is GONE:
        del told[where[-1]]
    else:
        told[where[-1]] = value


GONE = object()


@dataclass(frozen=True)
class Change:
    """One thing that was done to a run."""

    file: str
    what: str


class Fuzz:
    """Changes runs, always in the same way for the same seed."""

    def __init__(self, seed: int, victim: Path) -> None:
        self._random = random.Random(seed)
        self._victim = victim
        self._values: list[Any] = [
            "../../x", "/etc/passwd", str(victim), str(victim / "file"), "../../victim", "~/victim", "", ".", "x" * 200_000,
            "<script>alert(1)</script>", "[bold]x[/nonsense]", "\x1b]0;x\x07", "\u202egnp", "\ud800", "nan", "-1", "é\0", "%s{0}",
            "javascript:alert(1)", -1, 0, 1, 7, -(10**9), 10**9, 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 64, 10**400, 0.5, 1e-300,
            1e300, -1e300, 1e18, float("nan"), float("inf"), None, True, False, [], {}, [1], {"a": 1}, [[]], {"": None}, [None],
            ["x"], ["../../x"], {"x": "/etc/passwd"}, GONE,
        ]  # fmt: skip

    def change(self, run: Path) -> Change:
        """Changes one thing in a run."""
        files = sorted(path for path in run.rglob("*") if path.is_file())
        path = self._random.choice(
            [file for file in files if file.suffix in (".json", ".jsonl", ".csv", ".log")]
        )
        if self._random.random() < 0.12:
            return self._damage(run, self._random.choice(files))
        if path.suffix in (".csv", ".log"):
            what = self._random.choice(
                ["-1", "nan", "1e400", "9" * 5000, "x", "0001", "9999", "\0", "", "1e18"]
            )
            text = path.read_text("utf-8")
            number = self._random.choice(list(re.finditer(r"[0-9.]+", text)))
            text = text[: number.start()] + what + text[number.end() :]
        elif path.suffix == ".jsonl":
            lines = path.read_text("utf-8").splitlines()
            at = self._random.randrange(len(lines))
            told = json.loads(lines[at])
            what = self._mutate(told)
            lines[at] = json.dumps(told)
            text = "\n".join(lines) + "\n"
        else:
            told = json.loads(path.read_text("utf-8"))
            what = self._mutate(told)
            text = json.dumps(told)
        path.write_text(text, encoding="utf-8")
        return Change(str(path.relative_to(run)), what)

    def _mutate(self, told: Any) -> str:
        places = list(_places(told))
        # A long list of numbers would take all the attention: choose by what a place is called first.
        names = sorted({_name(place) for place in places})
        name = self._random.choice(names)
        place = self._random.choice([one for one in places if _name(one) == name])
        if self._random.random() < 0.05:
            put(told, [*place[:-1], "surprise"] if isinstance(place[-1], str) else place, "x")
            return f"{place}: another key"
        value = self._random.choice(self._values)
        put(told, place, value)
        return f"{place} = {'(gone)' if value is GONE else repr(value)[:60]}"

    def _damage(self, run: Path, path: Path) -> Change:
        ways = (self._cut, self._noise, self._flip, self._link, self._link_directory, self._deep, self._pipe)
        way = self._random.choice(ways)
        way(path)
        return Change(str(path.relative_to(run)), way.__name__)

    def _cut(self, path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: self._random.randrange(len(content) + 1)])

    def _noise(self, path: Path) -> None:
        path.write_bytes(self._random.randbytes(self._random.choice([0, 1, 100, 10_000])))

    def _flip(self, path: Path) -> None:
        content = bytearray(path.read_bytes())
        for _ in range(self._random.choice([1, 5, 50])):
            if content:
                content[self._random.randrange(len(content))] = self._random.randrange(256)
        path.write_bytes(bytes(content))

    def _link(self, path: Path) -> None:
        for name in (path.name, "report.html", "result.json", ".report.html.tmp"):
            link = path.with_name(name)
            link.unlink(missing_ok=True)
            link.symlink_to(self._victim / "file")

    def _link_directory(self, path: Path) -> None:
        shutil.rmtree(path.parent) if path.parent.name in (
            "001",
            "002",
            "foreign",
            "node-1",
        ) else path.unlink()
        gone = path if not path.exists() and path.parent.exists() else path.parent
        gone.symlink_to(self._victim)

    def _deep(self, path: Path) -> None:
        path.write_text(
            self._random.choice(["[" * 100_000, '{"a":' * 5000 + "1" + "}" * 5000]), encoding="utf-8"
        )

    def _pipe(self, path: Path) -> None:
        path.unlink()
        os.mkfifo(path)


def _places(told: Any, where: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    for key, value in inner:
        yield (*where, key)
        yield from _places(value, (*where, key))


def _name(place: Sequence[str | int]) -> str:
    return ".".join("*" if isinstance(step, int) else step for step in place)


def some_commands(seed: int, run: Path, out: Path) -> list[list[str]]:
    """A few of `commands`, in their order."""
    listed = list(enumerate(commands(run, out)))
    return [one for _, one in sorted(random.Random(seed).sample(listed, COMMANDS_PER_RUN))]


def commands(run: Path, out: Path) -> list[list[str]]:
    """Everything that opens a run."""
    at = ["--out", str(out)]
    return [
        ["list", *at],
        ["report", str(run)],
        ["show", str(run)],
        ["compare", str(run), *at],
        ["query", "select * from trials", *at],
        ["query", "select count(*), sum(acked_msgs) from intervals, runs", *at],
        ["query", "select count(*), sum(cpu_s) from resources", *at],
        ["history", "1-topic-16-partitions-100b", *at],
        ["verify", str(run), *at],
        ["submit", str(run), "--file", str(out / "packed.zip"), *at],
        ["publish", str(run), "--to", str(out / "site"), *at],
        ["export", str(run), "--to", "csv"],
        ["export", str(run), "--to", "parquet"],
        ["export", str(run), "--to", "omb"],
        ["study", str(run), "--resume", "--plan", *at],
        ["import", str(run / "foreign" / "omb.json"), "--into", str(run)],
        ["report", str(run)],
    ]


@dataclass
class Watch:
    """What this process does with files, sockets and other processes, as Python's audit events tell."""

    allowed: tuple[str, ...] = ()
    violations: list[str] = field(default_factory=list)
    active: bool = False

    def install(self) -> None:
        """For good: a hook cannot be taken back."""
        sys.addaudithook(self._see)

    @contextlib.contextmanager
    def over(self, inside: Path) -> Iterator[list[str]]:
        """What is done outside of a directory meanwhile; reading Python's own files and /proc is not told."""
        self.allowed = (f"{inside}{os.sep}", f"{state_directory()}{os.sep}", str(inside))
        self.violations = []
        # What Python keeps of its sources is its own.
        writes_bytecode, sys.dont_write_bytecode = not sys.dont_write_bytecode, True
        self.active = True
        try:
            yield self.violations
        finally:
            self.active = False
            sys.dont_write_bytecode = not writes_bytecode

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event in (
            "socket.connect",
            "subprocess.Popen",
            "os.system",
            "os.posix_spawn",
            "os.exec",
            "os.kill",
        ):
            self.violations.append(f"{event} {arguments}"[:300])
        elif event == "open":
            path, mode, flags = arguments
            if not isinstance(path, int):
                writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
                self._look(event, path, writes=bool(writes) or (mode or "r")[0] in "wax+")
        elif event in WRITING:
            for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]:
                self._look(event, arguments[1] if event == "os.symlink" else path, writes=True)
        elif event in ("os.listdir", "os.scandir"):
            self._look(event, arguments[0], writes=False)

    def _look(self, event: str, path: Any, *, writes: bool) -> None:
        if isinstance(path, int) or path is None:
            return
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        if name.startswith(self.allowed[:2]) or name == self.allowed[2]:
            return
        if not writes and name.startswith(READABLE):
            return
        if name in ("/dev/null", "/dev/tty", "/dev/urandom"):
            return
        self.violations.append(f"{event} {name}")


WRITING = (
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.symlink", "os.link", "os.chmod", "os.chown", "os.truncate", "os.utime",
    "shutil.rmtree",
)  # fmt: skip
READABLE = tuple(
    {
        sys.prefix,
        sys.base_prefix,
        str(Path(__file__).resolve().parent.parent),
        "/proc/",
        "/sys/",
        "/usr/",
        "/etc/localtime",
    }
    | {path for path in sys.path if path}
)


def call(arguments: Sequence[str]) -> tuple[int, str]:
    """The program in this process: its exit status, and what it printed. A fault of the program is raised."""
    from streamgauge.cli.app import run

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = run(arguments)
    return status, printed.getvalue()
