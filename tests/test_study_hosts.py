"""A published study at full scale on hosts of their own: three with brokers, which commands of the user change from one variant to the next, and
two that send."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hosts
import pytest
from lab_support import lab
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.registry import systems
from streamgauge.systems.support import processes
from streamgauge.systems.support.network import Namespaces, missing

pytestmark = [pytest.mark.jvm, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

BROKERS = 3
STUDY = Path(__file__).parent.parent / "python/streamgauge/studies/streamnative-2020.yaml"
SHORTER = {
    "  warmup: 1m\n  duration: 3m\n": "  warmup: 3s\n  duration: 5s\n",
    "search: {first: 20k}": "search: {first: 2k, probe: 2s, within: 40s, width: 30}",
    # What it is about here is not the load.
    "buffer: 4GiB": "buffer: 64MiB",
}
CELLS = ("max-kafka-l1-1-1p", "max-kafka-l2-1-1p", "max-pulsar-l1-1-1p", "max-pulsar-l2-1-1p")
LEVELS = {"kafka-l1": "L1", "kafka-l2": "L2", "pulsar-l1": "L1", "pulsar-l2": "L2"}
HOOK = """
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
(here / "asked.new").write_text(json.dumps({key: value for key, value in os.environ.items() if key.startswith("STREAMGAUGE_")}))
(here / "asked.new").rename(here / "asked")
while not (here / "answer").exists():
    time.sleep(0.05)
said = (here / "answer").read_text()
(here / "answer").unlink()
print(said)
sys.exit(said != "done")
"""


@dataclass
class Operator:
    """Does with the three hosts what hooks ask for, but that Pulsar's journals stay as they were at first."""

    network: Namespaces
    directory: Path
    asked: list[tuple[str, str]] = field(default_factory=list)
    set_up: dict[str, tuple[Any, dict[str, Any]]] = field(default_factory=dict)
    running: RunningSystem | None = None
    starts: int = 0

    def start(self, kind: str) -> RunningSystem:
        level, options = self.set_up[kind]
        self.starts += 1
        request = SystemRequest(nodes=BROKERS, level=level, options=options, placement=self.network)
        directory = self.directory / f"{kind}-{self.starts}"
        self.running = systems()[kind].start(request, directory, lambda _: None)
        return self.running

    def stop(self) -> None:
        if self.running is not None:
            self.running.stop()
            self.running.wipe()
            self.running = None

    def do(self, asked: dict[str, str]) -> None:
        hook, kind = asked["STREAMGAUGE_HOOK"], asked["STREAMGAUGE_KIND"]
        self.asked.append((hook, asked["STREAMGAUGE_SYSTEM"]))
        if hook == "reconfigure" and kind == "pulsar" and kind in self.set_up:
            return
        if hook == "reconfigure":
            known = {"profile", "journal"}
            options = json.loads(asked["STREAMGAUGE_OPTIONS"])
            self.set_up[kind] = (
                asked["STREAMGAUGE_LEVEL"],
                {key: value for key, value in options.items() if key in known},
            )
        elif hook == "start":
            self.start(kind)
        elif hook == "stop":
            self.stop()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Answers hooks until it is left."""
        over = threading.Event()

        def serve() -> None:
            asked = self.directory / "asked"
            while not over.wait(0.05):
                if not asked.exists():
                    continue
                said = json.loads(asked.read_text("utf-8"))
                asked.unlink()
                try:
                    self.do(said)
                    answer = "done"
                except Exception as error:  # The hook tells of it.
                    answer = repr(error)
                new = self.directory / "answer.new"
                new.write_text(answer, "utf-8")
                new.rename(self.directory / "answer")

        server = threading.Thread(target=serve)
        server.start()
        try:
            yield
        finally:
            over.set()
            server.join()
            self.stop()


def reached(operator: Operator, kind: str) -> Path:
    """A system file that says how a kind of system is reached on the hosts: found out by starting it once."""
    operator.set_up[kind] = ("L2", {})
    running = operator.start(kind)
    told, sources = running.connection, running.metric_sources()
    bookies = [
        urllib.parse.urlsplit(source.url).netloc for source in sources if source.name.startswith("bookie-")
    ]
    operator.stop()
    del operator.set_up[kind]
    lines = [f"system: {kind}", f"connect: {json.dumps(told['bootstrap'])}"]
    lines.append(f"metrics: {json.dumps([source.url for source in sources])}")
    if "admin" in told["options"]:
        lines.append(f"admin: {json.dumps(told['options']['admin'])}")
    if bookies:
        lines.append(f"bookies: {json.dumps(bookies)}")
    file = operator.directory / f"{kind}.yaml"
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


def shorter() -> str:
    """The study with its durations cut."""
    text = STUDY.read_text("utf-8")
    for written, cut in SHORTER.items():
        assert written in text
        text = text.replace(written, cut)
    return text


@pytest.mark.timeout(3600)
def test_a_study_goes_through_its_variants_on_three_hosts(
    gauge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A cluster whose brokers have new ports with each variant would be another one.
    monkeypatch.setattr(processes, "free_ports", lambda count, **_: list(range(15100, 15100 + count)))
    (tmp_path / "hook.py").write_text(HOOK, "utf-8")
    command = json.dumps([sys.executable, str(tmp_path / "hook.py")])
    (tmp_path / "hooks.yaml").write_text(
        "timeout: 5m\n" + "".join(f"{name}: {command}\n" for name in ("reconfigure", "start", "stop")),
        "utf-8",
    )
    (tmp_path / "study.yaml").write_text(shorter(), "utf-8")
    with (
        hosts.network_of(BROKERS + 2) as network,
        hosts.started(gauge, tmp_path, hosts.seats_of(network, (BROKERS + 1, BROKERS + 2))) as fleet,
    ):
        operator = Operator(network, tmp_path)
        kinds = ("kafka", "pulsar")
        files = {kind: reached(operator, kind) for kind in kinds}
        connect = [word for kind in kinds for word in ("--connect", f"{kind}={files[kind]}")]
        asked = ["--scale", "full", "--only", ",".join(CELLS), "--repeats", "1", "--seed", "3"]
        trust = [word for name in ("hooks.yaml", "study.yaml") for word in ("--trust-file", name)]
        with operator.at_work():
            process = lab(
                gauge,
                tmp_path,
                "study",
                "study.yaml",
                *asked,
                *connect,
                *("--fleet", str(fleet), "--hooks", "hooks.yaml", *trust),
                stderr=subprocess.STDOUT,
            )
            out, _ = process.communicate(timeout=3000)
    assert process.returncode in (0, 1), out
    run = (tmp_path / "runs/latest").resolve()
    found = {
        result["workload"]["name"]: result
        for path in run.glob("trials/*/result.json")
        if (result := json.loads(path.read_text("utf-8")))
    }
    assert set(CELLS) <= set(found), out
    assert all(found[cell]["status"] == "complete" for cell in CELLS), out
    # One system after the other on the same hosts, each variant with a block of its own.
    assert [hook for hook, _ in operator.asked] == ["reconfigure", "start", "stop"] * 4
    systems_asked = list(dict.fromkeys(system for _, system in operator.asked))
    assert set(systems_asked) == set(LEVELS)
    first, forgotten = [system for system in systems_asked if system.startswith("pulsar")]
    cell_of = {system: next(cell for cell in CELLS if f"-{system}-" in cell) for system in LEVELS}
    told = {system: found[cell]["durability"] for system, cell in cell_of.items()}
    # Kafka's level goes with its topics, and Pulsar's bookies tell theirs: what nobody has reconfigured is found out.
    assert {system: one["declared"] for system, one in told.items()} == {**LEVELS, forgotten: LEVELS[first]}
    assert [system for system, one in told.items() if one["mismatches"]] == [forgotten]
    assert found[cell_of[forgotten]]["validity"]["word"] == "invalid"
    assert any(f"amount to {LEVELS[first]}" in one for one in told[forgotten]["mismatches"])
    page = (run / "report.html").read_text("utf-8")
    assert f"amount to {LEVELS[first]}" in page
    for cell in CELLS:
        assert found[cell]["nodes"] == BROKERS
        # What the study's authors read from Prometheus: the cluster tells it of itself.
        assert any(one["sources"] for one in found[cell]["own_metrics"]), found[cell]["own_metrics"]
