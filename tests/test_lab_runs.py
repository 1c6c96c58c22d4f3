"""Runs as a user starts them, with a stand-in for the system and the gauge: what is written, shown and
left behind when things go right and when they do not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import prepared
import psutil
import pytest
from lab_doubles import write_gauge

TESTS = Path(__file__).resolve().parent
SHORT = ("--rate", "1000", "--duration", "4s", "--warmup", "1s")
PATIENCE = 4
"""Times within which something ends are of a machine that does nothing else; tests run side by side."""


@dataclass
class Lab:
    """A `streamgauge` process and what it has said so far."""

    process: subprocess.Popen[str]
    out: Path
    events_file: Path
    seen: set[int] = field(default_factory=set)

    def events(self) -> list[dict[str, Any]]:
        if not self.events_file.exists():
            return []
        lines = self.events_file.read_text("utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def await_event(self, wanted: Callable[[dict[str, Any]], bool], within_s: float = 30.0) -> None:
        deadline = time.monotonic() + PATIENCE * within_s
        while time.monotonic() < deadline:
            self.look()
            if any(wanted(event) for event in self.events()):
                return
            assert self.process.poll() is None, f"the lab ended early: {self.process.communicate()[1]}"
            time.sleep(0.05)
        raise AssertionError(f"no such event within {within_s} s: {self.events()}")

    def await_measuring(self, intervals: int = 3) -> None:
        self.await_event(lambda event: event["event"] == "interval" and event["elapsed_s"] >= intervals)

    def look(self) -> None:
        """Remembers every process that the lab has started."""
        try:
            self.seen |= {child.pid for child in psutil.Process(self.process.pid).children(recursive=True)}
        except psutil.NoSuchProcess:
            return

    def child(self, text: str) -> int:
        """The lab's child whose command line holds the text."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if text in " ".join(child.cmdline()):
                return child.pid
        raise AssertionError(f"no child with {text}")

    def end(self, within_s: float = 60.0) -> tuple[int, str, str]:
        """Waits for the end; nothing that was started may remain."""
        self.look()
        stdout, stderr = self.process.communicate(timeout=PATIENCE * within_s)
        self.await_nothing_left()
        return self.process.returncode, stdout, stderr

    def await_nothing_left(self, within_s: float = 5.0) -> None:
        deadline = time.monotonic() + PATIENCE * within_s
        left = self.seen
        while left and time.monotonic() < deadline:
            left = {pid for pid in left if alive(pid)}
            time.sleep(0.05)
        assert not left, f"left behind: {[psutil.Process(pid).cmdline() for pid in left]}"

    @property
    def run(self) -> Path:
        return (self.out / "latest").resolve()

    def result(self, trial: int = 1) -> dict[str, Any]:
        path = self.run / "trials" / f"{trial:03d}" / "result.json"
        value: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return value

    def manifest(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.run / "manifest.json").read_text("utf-8"))
        return value


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


StartLab = Callable[..., Lab]


@pytest.fixture
def start_lab(tmp_path: Path) -> Iterator[StartLab]:
    labs: list[Lab] = []
    write_gauge(tmp_path)

    def start(*arguments: str, **environment: str) -> Lab:
        events = tmp_path / f"events-{len(labs)}.jsonl"
        command = [*arguments]
        out = tmp_path / "runs"
        if arguments[0] == "run":
            command += ["--out", str(out), "--events", str(events)]
            if "--system" not in arguments:
                command += ["--system", "double"]
        path = os.pathsep.join([str(TESTS), str(TESTS.parent / "python")])
        process = prepared.Lab(
            "lab_doubles",
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "GAUGE": str(tmp_path / "gauge"), "PYTHONPATH": path, **environment},
        )
        labs.append(Lab(process, out, events))
        return labs[-1]

    yield start
    for lab in labs:
        if lab.process.poll() is None:
            lab.process.kill()
            lab.process.wait()


def test_a_run_is_complete_valid_and_leaves_nothing_but_its_directory(start_lab: StartLab) -> None:
    lab = start_lab("run", *SHORT, "--seed", "7")
    lab.await_measuring()
    status, stdout, stderr = lab.end()
    assert status == 0, stderr
    assert "valid" in stdout
    assert str(lab.run.name) in stdout
    result, manifest = lab.result(), lab.manifest()
    assert result["status"] == "complete"
    assert result["validity"] == {**result["validity"], "valid": True, "reasons": []}
    assert result["audit"]["sent"] == result["audit"]["acked"] == result["audit"]["received"] == 5000
    assert result["publish_ms"]["count"] == 4000
    assert result["publish_rate_msgs_s"] == pytest.approx(1000)
    assert result["durability"]["declared"] == "L4"
    assert [phase["name"] for phase in result["phases"]] == [
        *("provision", "settle", "create topics", "start consumers", "warm-up", "measure"),
        *("drain", "audit", "collect", "wipe"),
    ]
    measure = result["phases"][5]
    assert (measure["from_s"], measure["until_s"]) == (1.0, 5.0)
    assert result["phases"][0]["from_s"] < 0
    assert manifest["status"] == "complete"
    assert manifest["seed"] == 7
    assert [probe["when"] for probe in manifest["probes"]] == ["before", "after"]
    assert result["limits"]["disk_write_mb_s"] == 1500
    trial = lab.run / "trials" / "001"
    assert sorted(path.name for path in trial.iterdir()) == [
        *("events.jsonl", "intervals.parquet", "logs", "resources.parquet", "result.json", "trial.json"),
    ]
    assert sorted(path.name for path in (trial / "logs").iterdir()) == ["double.log", "worker.log"]
    assert {process["name"] for process in result["processes"]} == {"double"}
    kinds = [event["event"] for event in lab.events()]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_ended"
    assert kinds.count("interval") == 5


def test_the_search_finds_what_the_broker_takes_and_measures_there(
    start_lab: StartLab, tmp_path: Path
) -> None:
    text = "rate: sustainable\nsearch: {probe: 2s, width: 40}\nduration: 4s\nwarmup: 1s\n"
    (tmp_path / "found.yaml").write_text(text, encoding="utf-8")
    topics = tmp_path / "topics"
    lab = start_lab("run", "found.yaml", DOUBLE_LIMIT_MSGS_S="25000", DOUBLE_TOPICS=str(topics))
    status, stdout, stderr = lab.end(120)
    assert status == 0, stderr
    result = lab.result()
    search = result["search"]
    assert search["bound"] == "system"
    assert search["low_msgs_s"] <= 25_000 <= search["high_msgs_s"]
    assert search["soak"]["passed"]
    assert search["soak"]["rate_msgs_s"] == search["low_msgs_s"] == result["target_rate_msgs_s"]
    assert result["workload"]["rate_msgs_s"] is None, "repeats are one cell whatever rate each of them finds"
    assert result["publish_ms"]["count"] == 4 * search["low_msgs_s"], (
        "no message of a probe is in the figures"
    )
    assert "Probes of the search" in stdout
    assert "not sustained" in stdout
    assert "Probes of the search" in (lab.run / "report.html").read_text("utf-8")
    made = [json.loads(line) for line in topics.read_text("utf-8").splitlines()]
    probes = [names for action, *names in made if action == "create-topics"][:-1]
    assert 1 <= len(probes) < len(search["probes"]), "what a probe leaves empty the next one goes on with"
    assert len({names[0] for names in probes}) == len(probes)
    assert [names for action, *names in made if action == "delete-topics"] == probes
    assert "search" in [phase["name"] for phase in result["phases"]]


def test_several_rates_are_trials_of_one_run_and_a_curve(start_lab: StartLab) -> None:
    load = ("--rate", "3k,1k,2k", "--duration", "2s", "--warmup", "0s", "--seed", "3")
    lab = start_lab("run", *load, "--fail-if", "publish_ms.p99 > 1000")
    status, stdout, stderr = lab.end(120)
    assert status == 0, stderr
    rates = [lab.result(number)["workload"]["rate_msgs_s"] for number in (1, 2, 3)]
    assert sorted(rates) == [1000, 2000, 3000]
    assert rates != sorted(rates), "what changes with time does not look like the rate"
    assert [one["rate_msgs_s"] for one in lab.manifest()["workloads"]] == rates
    assert "curve: 3 trials, 6s of load" in stderr
    assert stdout.count("gate passed") == 3
    assert "at 2k msg/s" in stdout
    assert "p99 of publish latency" in stdout.splitlines()[0]
    page = (lab.run / "report.html").read_text("utf-8")
    assert "Latency over throughput" in page
    assert page.count('class="point"') >= 3


def test_a_sweep_keeps_one_start_and_ctrl_c_keeps_its_curve(start_lab: StartLab, tmp_path: Path) -> None:
    topics = tmp_path / "topics"
    load = ("--rate", "sweep", "--duration", "36s", "--warmup", "0s", "--seed", "3")
    lab = start_lab("run", *load, DOUBLE_LIMIT_MSGS_S="25000", DOUBLE_TOPICS=str(topics))
    lab.await_event(lambda event: event["event"] == "trial_started" and event["trial"] == 5, 60)
    lab.await_event(lambda event: event["event"] == "interval" and event["elapsed_s"] >= 3, 30)
    time.sleep(2.0)
    lab.process.send_signal(signal.SIGINT)
    status, stdout, stderr = lab.end(60)
    assert status == 130, stderr
    assert "sweep: at most about 1m20s for 1 start of a system" in stderr
    assert "left for all sweeps" in stderr
    closed, *points = [lab.result(number) for number in (1, 2, 3, 4)]
    assert closed["workload"]["rate_msgs_s"] is None
    assert closed["publish_rate_msgs_s"] == pytest.approx(25_000)
    assert {one["workload"]["duration_s"] for one in points} == {3.0}
    assert all(1500 <= one["workload"]["rate_msgs_s"] <= 32_000 for one in points)
    ports = {one["configuration"]["port"] for one in (context(lab, number) for number in (1, 2, 3, 4))}
    assert len(ports) == 1, "points share a start"
    made = [json.loads(line) for line in topics.read_text("utf-8").splitlines()]
    fresh = [names[0] for action, *names in made if action == "create-topics"]
    assert len(set(fresh)) == len(fresh) >= 4, "and nothing else"
    assert "asked" in stdout
    assert "closed loop" in (lab.run / "report.html").read_text("utf-8")
    assert not (lab.run / "systems").exists()


def context(lab: Lab, number: int) -> dict[str, Any]:
    path = lab.run / "trials" / f"{number:03d}" / "trial.json"
    value: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return value


@pytest.mark.parametrize("reader", ["same", "extra"])
def test_a_backlog_is_built_and_read_while_producing_goes_on(
    start_lab: StartLab, tmp_path: Path, reader: str
) -> None:
    text = f"rate: 1k\nmessageSize: 1000\nbacklog: {{size: 6MB, reader: {reader}, after: 2s}}\n"
    (tmp_path / "behind.yaml").write_text(text + "duration: 3s\nwarmup: 1s\n", encoding="utf-8")
    lab = start_lab("run", "behind.yaml")
    status, stdout, stderr = lab.end(90)
    assert status == 0, stderr
    result = lab.result()
    found = result["catch_up"]
    names = ["measure", "build backlog", "catch-up", "after"]
    assert [phase["name"] for phase in found["phases"]] == names
    assert found["built"]
    assert found["caught_up"]
    assert found["built_bytes"] >= 6_000_000
    [drain] = found["drains"]
    assert drain["subscription"] == ("catch-up" if reader == "extra" else "s-0")
    assert drain["mean_mb_s"] > 2
    for phase in found["phases"]:
        seconds = phase["until_s"] - phase["from_s"]
        assert phase["publish_ms"]["count"] == pytest.approx(1000 * seconds)
        assert phase["achieved_share"] == pytest.approx(1.0)
    on_axis = {phase["name"]: phase for phase in result["phases"]}
    for phase in found["phases"]:
        assert on_axis[phase["name"]]["from_s"] == pytest.approx(phase["from_s"], abs=0.01)
    assert [one["role"] for one in result["subscriptions"]] == (
        ["catching up", "tailing"] if reader == "extra" else ["tailing"]
    )
    assert result["end_to_end_ms"]["count"] == 3000, "the headline is of the subscription that tails"
    assert "Before, during and after the backlog" in stdout
    page = (lab.run / "report.html").read_text("utf-8")
    assert "Reading the backlog" in page
    assert "build backlog" in page


def test_a_backlog_that_does_not_fit_is_refused_before_anything_is_produced(start_lab: StartLab) -> None:
    lab = start_lab("run", *SHORT, "--backlog", "900000GB")
    status, _, stderr = lab.end(60)
    assert status == 2, stderr
    assert "does not fit" in lab.result()["failure"]
    assert "--backlog" in stderr


def test_ctrl_c_once_keeps_what_was_measured_and_audits_it(start_lab: StartLab) -> None:
    lab = start_lab("run", "--rate", "1000", "--duration", "60s", "--warmup", "1s", "--repeat", "3")
    lab.await_measuring(4)
    lab.process.send_signal(signal.SIGINT)
    status, stdout, stderr = lab.end(20)
    assert status == 130, stderr
    result = lab.result()
    assert result["status"] == "interrupted"
    assert result["audit"]["balanced"]
    assert result["audit"]["acked"] >= 3000
    assert result["publish_rate_msgs_s"] == pytest.approx(1000)
    assert 3 <= result["publish_ms"]["count"] / 1000 <= 10
    assert lab.manifest()["status"] == "interrupted"
    assert not (lab.run / "trials" / "002").exists()
    assert "report" in stdout


def test_ctrl_c_twice_stops_at_once_and_still_keeps_what_was_measured(start_lab: StartLab) -> None:
    lab = start_lab("run", "--rate", "1000", "--duration", "60s", "--warmup", "1s")
    lab.await_measuring(4)
    # A stopped worker would make a polite stop wait.
    os.kill(lab.child("gauge_double"), signal.SIGSTOP)
    lab.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    lab.process.send_signal(signal.SIGINT)
    status, _, stderr = lab.end(15)
    assert status == 130, stderr
    result = lab.result()
    assert result["status"] == "interrupted"
    assert result["publish_ms"]["count"] >= 2000


def test_ctrl_c_while_the_system_starts_stops_it(start_lab: StartLab, tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text("system: double\nstart_s: 30\n", encoding="utf-8")
    lab = start_lab("run", *SHORT, "--system", "slow.yaml")
    lab.await_event(lambda event: event.get("text") == "starting double")
    time.sleep(0.3)
    lab.process.send_signal(signal.SIGINT)
    status, _, stderr = lab.end(15)
    assert status == 130, stderr
    assert lab.result()["status"] == "interrupted"


def test_a_killed_worker_is_said_and_what_was_measured_is_kept(start_lab: StartLab) -> None:
    lab = start_lab("run", "--rate", "1000", "--duration", "30s", "--warmup", "1s")
    lab.await_measuring(5)
    os.kill(lab.child("gauge_double"), signal.SIGKILL)
    status, _, stderr = lab.end(20)
    assert status == 3, stderr
    result = lab.result()
    assert result["status"] == "failed"
    assert result["failure"] == "worker lost: the worker was killed by signal 9"
    assert not result["validity"]["valid"]
    assert any("worker lost" in reason for reason in result["validity"]["reasons"])
    assert result["publish_ms"]["count"] >= 3000
    assert "worker lost" in stderr
    assert (lab.run / "trials" / "001" / "logs" / "double.log").is_file()


def test_a_worker_that_does_not_start_is_not_blamed_on_the_system(
    start_lab: StartLab, tmp_path: Path
) -> None:
    (tmp_path / "gauge").write_text(
        "#!/bin/sh\n[ $1 = probe ] && exit 3\necho 'no room for a worker' >&2\nexit 2\n"
    )
    lab = start_lab("run", *SHORT)
    status, _, stderr = lab.end(30)
    assert status == 3, stderr
    assert lab.result()["failure"].startswith(
        "fleet failed: the worker ended with status 2: no room for a worker"
    )


def test_a_hanging_worker_is_lost(start_lab: StartLab) -> None:
    lab = start_lab("run", "--rate", "1000", "--duration", "60s", "--warmup", "1s")
    lab.await_measuring(3)
    os.kill(lab.child("gauge_double"), signal.SIGSTOP)
    status, _, stderr = lab.end(50)
    assert status == 3, stderr
    assert lab.result()["failure"].startswith("worker lost: ")


def test_a_crashed_broker_ends_the_trial_and_its_messages_are_accounted_for(start_lab: StartLab) -> None:
    lab = start_lab("run", "--rate", "1000", "--duration", "60s", "--warmup", "1s")
    lab.await_measuring(5)
    os.kill(lab.child("create_server"), signal.SIGKILL)
    status, _, stderr = lab.end(30)
    assert status == 3, stderr
    result = lab.result()
    assert result["status"] == "failed"
    assert result["failure"] == "system failed: double ended with status -9"
    audit = result["audit"]
    assert audit["balanced"]
    assert audit["sent"] == audit["acked"] + audit["censored"]
    assert audit["acked"] >= 4000
    assert result["publish_ms"]["count"] >= 3000


def test_a_cluster_that_has_lost_a_node_is_measured_to_the_end(start_lab: StartLab, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("system: double\ngoes_on: true\n", encoding="utf-8")
    lab = start_lab("run", "--rate", "1000", "--duration", "5s", "--warmup", "1s", "--system", "cluster.yaml")
    lab.await_measuring(2)
    os.kill(lab.child("create_server"), signal.SIGKILL)
    status, _, stderr = lab.end(30)
    assert status == 1, stderr
    result = lab.result()
    assert result["status"] == "complete"
    lost = "a node was lost, and the load went on: double ended with status -9"
    assert result["validity"]["reasons"].count(lost) == 1
    assert result["audit"]["sent"] == 6000


def test_a_lab_that_is_killed_leaves_no_process_and_report_completes_its_run(start_lab: StartLab) -> None:
    lab = start_lab("run", "--rate", "1000", "--duration", "60s", "--warmup", "1s")
    lab.await_measuring(5)
    lab.look()
    assert len(lab.seen) >= 2
    running = start_lab("report", str(lab.run))
    assert running.end()[0] == 2, "a run that goes on is left alone"
    lab.process.kill()
    lab.process.wait()
    lab.await_nothing_left()
    run = lab.run
    with (run / "trials" / "001" / "intervals.jsonl").open("a", encoding="utf-8") as sink:
        sink.write('{"worker":"worker-0","index":99,"start')
    status, _, stderr = start_lab("report", str(run)).end()
    assert status == 0, stderr
    result = lab.result()
    assert result["status"] == "failed"
    assert "killed" in result["failure"]
    assert not result["validity"]["valid"]
    assert result["publish_ms"]["count"] >= 3000
    assert result["publish_rate_msgs_s"] == pytest.approx(1000)
    assert lab.manifest()["status"] == "failed"
    assert not (run / "trials" / "001" / "data").exists(), "the system's data is wiped now"
    assert (run / "trials" / "001" / "logs" / "double.log").is_file()


def test_a_system_that_does_not_start_fails_the_trial_and_keeps_its_log(
    start_lab: StartLab, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("system: double\nfault: no start\n", encoding="utf-8")
    lab = start_lab("run", *SHORT, "--system", "double,bad.yaml")
    status, _, stderr = lab.end()
    assert status == 3, stderr
    assert lab.result(1)["status"] == "complete", "the other system is measured all the same"
    assert lab.result(2)["failure"] == "system failed: double did not come up: out of luck"
    assert (lab.run / "trials" / "002" / "logs" / "double.log").is_file()
    assert not (lab.run / "trials" / "002" / "data").exists()


def test_a_port_in_use_is_an_input_error(start_lab: StartLab, tmp_path: Path) -> None:
    (tmp_path / "port.yaml").write_text("system: double\nfault: bad port\n", encoding="utf-8")
    status, _, stderr = start_lab("run", *SHORT, "--system", "port.yaml").end()
    assert status == 2
    assert "port 1 is in use" in stderr


def test_repeats_are_interleaved_and_ordered_by_the_seed(start_lab: StartLab, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("system: double\n", encoding="utf-8")
    arguments = ("--rate", "1000", "--duration", "1s", "--warmup", "0s", "--repeat", "2", "--seed", "3")
    lab = start_lab("run", *arguments, "--system", "a.yaml,b.yaml")
    assert lab.end()[0] == 0
    trials = [lab.result(number) for number in range(1, 5)]
    assert sorted(trial["system"] for trial in trials[:2]) == ["a", "b"]
    assert sorted(trial["system"] for trial in trials[2:]) == ["a", "b"]
    assert [trial["repeat"] for trial in trials] == [1, 1, 2, 2]
    assert trials[0]["seed"] == trials[1]["seed"] != trials[2]["seed"]


def test_an_attached_cluster_is_left_running_and_its_topics_are_deleted(
    start_lab: StartLab, tmp_path: Path
) -> None:
    from lab_doubles import BROKER

    broker = subprocess.Popen([sys.executable, "-c", BROKER], stdout=subprocess.PIPE)
    assert broker.stdout is not None
    port = int(broker.stdout.readline().split()[1])
    journal = tmp_path / "topics"
    try:
        where = f"127.0.0.1:{port}"
        lab = start_lab("run", *SHORT, "--system", "double", "--connect", where, DOUBLE_TOPICS=str(journal))
        status, _, stderr = lab.end()
        assert status == 0, stderr
        assert broker.poll() is None
        created, deleted = [json.loads(line) for line in journal.read_text("utf-8").splitlines()]
        assert created[0] == "create-topics"
        assert deleted == ["delete-topics", *created[1:]]
        assert lab.result()["attached"]
    finally:
        broker.kill()
        broker.wait()


def test_events_on_standard_output_are_json_and_nothing_else(tmp_path: Path) -> None:
    write_gauge(tmp_path)
    load = ("--rate", "1000", "--duration", "1s", "--warmup", "0s")
    command = [
        sys.executable,
        str(TESTS / "lab_doubles.py"),
        "run",
        *load,
        "--system",
        "double",
        "--events",
        "-",
    ]
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "python")])
    environment = {**os.environ, "GAUGE": str(tmp_path / "gauge"), "PYTHONPATH": path}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=PATIENCE * 60,
    )
    assert all(json.loads(line)["event"] for line in done.stdout.splitlines())
    assert (tmp_path / "runs" / "latest").exists(), "runs/ is where runs go"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--rate", "0.5x"), "--rate 0.5x: '0.5x' is a multiple or a share"),
        (("--size", "10"), "cannot carry its stamp"),
        (("--partitions", "0"), "--partitions 0: expected 1"),
        (("nothing.yaml",), "nothing.yaml: no such file"),
        (
            ("unknown-key.yaml",),
            "unknown-key.yaml:2: unknown key 'producersRate'; did you mean 'producerRate'?",
        ),
        (("list.json",), "list.json:1: holds a list"),
        (("other.json",), "other.json:1: unknown key 'hello'"),
        (("--durability", "L1"), "durability L1 needs 3 nodes; with 1 node there are L3 and L4"),
        (("--durability", "L7"), "--durability L7: expected one of L1, L2, L3, L4"),
        (("--system", "kafak"), "no system 'kafak'"),
        (("--system", "doubel"), "did you mean 'double'?"),
        (("--system", "driver.yaml"), "driver file of the OpenMessaging Benchmark"),
        (("--system", "double", "--connect", "localhost"), "--connect localhost: expected host:port"),
        (("--system", "double,double@2", "--connect", "a:1"), "--connect names one cluster"),
        (("--nodes", "0"), "--nodes"),
    ],
)
def test_bad_input_ends_with_status_2_before_anything_is_made(
    start_lab: StartLab, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    (tmp_path / "unknown-key.yaml").write_text("name: x\nproducersRate: 5\n", encoding="utf-8")
    (tmp_path / "list.json").write_text("[1, 2]", encoding="utf-8")
    (tmp_path / "other.json").write_text('{"hello": 1}', encoding="utf-8")
    (tmp_path / "driver.yaml").write_text("name: k\ndriverClass: x.KafkaBenchmarkDriver\n", encoding="utf-8")
    lab = start_lab("run", *arguments)
    status, _, stderr = lab.end()
    assert status == 2, stderr
    assert expected in stderr
    assert "Traceback" not in stderr
    assert not (tmp_path / "runs").exists()


def test_a_system_that_cannot_run_here_says_what_to_install(start_lab: StartLab) -> None:
    status, _, stderr = start_lab("run", DOUBLE_MISSING="no JDK was found; apt-get install x").end()
    assert status == 3
    assert "Double cannot run here: no JDK was found; apt-get install x" in stderr
