"""A study whose load comes from several workers: what is kept of it, what is refused, and one that is killed and gone on with."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from lab_support import lab
from streamgauge.cli.study_load import LoadOptions, fleet_of, refuse_impossible
from streamgauge.fleet.choice import FleetChoice
from streamgauge.model.checked_study import parse_study
from streamgauge.model.scaling import Machine
from streamgauge.model.study_plan import PlannedLoad, StudyPlan
from streamgauge.model.study_planning import Wishes, plan_study
from streamgauge.model.system_request import SystemRequest
from streamgauge.runner.study_systems import choice_of
from streamgauge.store.directory import RunDirectory
from streamgauge.store.plan_file import check_ours, read_plan, write_plan
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.gauge_binary import find_gauge
from test_fleet_real import two  # noqa: F401
from test_study_model import TEXT

pytestmark = pytest.mark.usefixtures("one_probe")
MACHINE = Machine(8, 64 << 30, 500.0)


def planned(
    options: LoadOptions, text: str = TEXT, connect: dict[str, tuple[str, ...]] | None = None
) -> tuple[StudyPlan, FleetChoice]:
    load, fleet = options.planned()
    wishes = Wishes(scale="quick", seed=7, load=load, connect=connect)
    return plan_study(parse_study(text, "small.yaml", systems()), wishes, MACHINE), fleet


def hosts_file(directory: Path, address: str = "127.0.0.1:7400") -> Path:
    path = directory / "hosts.yaml"
    path.write_text(
        f"hosts:\n  - {{name: a, address: '{address}'}}\n  - {{name: b, address: '127.0.0.1:7401'}}\n"
    )
    return path


def test_the_plan_remembers_the_fleet_wherever_it_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    plan, fleet = planned(
        LoadOptions(fleet="hosts.yaml", workers=2, topology="split", on_worker_loss="go-on")
    )
    directory = RunDirectory.create(tmp_path / "runs", "small")
    write_plan(directory, plan)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = read_plan(directory.path)
    check_ours(found, directory.path)
    assert found.load == plan.load
    again = fleet_of(found)
    assert again.hosts is not None
    assert fleet.hosts is not None
    assert [host.port for host in again.hosts.hosts] == [host.port for host in fleet.hosts.hosts]
    assert (again.topology, again.on_loss) == ("split", "go-on")
    (tmp_path / "hosts.yaml").unlink()
    with pytest.raises(InputError, match=r"hosts\.yaml"):
        fleet_of(found)


def test_a_plan_of_before_there_were_fleets_is_still_ours(tmp_path: Path) -> None:
    plan, _ = planned(LoadOptions())
    directory = RunDirectory.create(tmp_path / "runs", "small")
    write_plan(directory, plan)
    path = directory.path / "study.json"
    written = json.loads(path.read_text("utf-8"))
    assert written.pop("load") is None
    path.write_text(json.dumps(written), "utf-8")
    check_ours(read_plan(directory.path), directory.path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (LoadOptions(topology="split"), "--topology split needs --workers 2"),
        (LoadOptions(workers=2, topology="splitt"), "--topology splitt"),
        (LoadOptions(insecure=True), "--insecure: says who is served"),
        (LoadOptions(at="10.255.255.1", insecure=True), "no address of this machine"),
        (LoadOptions(at="127.0.0.2"), "would serve whoever reaches that address"),
        (LoadOptions(fleet="omb:http://10.0.0.5:8080"), "--at ADDRESS"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_starts(
    options: LoadOptions, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        refuse_impossible(*planned(options), {})


def test_each_cell_is_looked_at(tmp_path: Path) -> None:
    backlog = TEXT.replace("rate: 200k", "rate: 20k, backlog: {size: 10MB}")
    assert backlog != TEXT
    with pytest.raises(InputError, match=r"a backlog is read by the subscriptions of the workload") as error:
        refuse_impossible(*planned(LoadOptions(workers=2, topology="swarm"), backlog), {})
    assert len(error.value.problems) > 1
    elsewhere = hosts_file(tmp_path)
    elsewhere.write_text(
        f"token_file: {elsewhere}\nhosts: [{{name: a, address: '10.0.0.9:7400', fingerprint: 'sha256:{'ab' * 32}'}}]\n"
    )
    options = LoadOptions(fleet=str(elsewhere))
    with pytest.raises(InputError, match="workers on other machines cannot reach it"):
        refuse_impossible(*planned(options), {})
    refuse_impossible(*planned(options, connect={"gauge-log": ("10.0.0.1:9092",)}), {})
    refuse_impossible(*planned(LoadOptions(fleet=str(elsewhere), at="127.0.0.2", insecure=True)), {})


def test_a_system_is_started_at_the_address_of_the_plan() -> None:
    plan, _ = planned(LoadOptions(at="127.0.0.2", insecure=True))
    request = choice_of(plan.cells[0], load=plan.load).request
    assert request.placement is not None
    assert (request.placement.host(1), request.guarded) == ("127.0.0.2", False)
    assert (
        choice_of(plan.cells[0], SystemRequest(connect=("10.0.0.1:9092",)), load=plan.load).request.placement
        is None
    )


def test_who_makes_the_load_is_said() -> None:
    assert PlannedLoad(workers=3, topology="split").told == "3 workers on this machine, topology split"
    assert PlannedLoad(fleet="hosts.yaml", workers=2).told == "workers of hosts.yaml, the first 2"
    assert PlannedLoad(at="127.0.0.2").told == "1 worker on this machine"


STUDY = """
study: tiny
title: A tiny study
source: {publisher: streamgauge, published: "2026"}
systems: {log: {system: gauge-log, title: Reference log, level: L4, nodes: 1}}
workload: {messageSize: 100, partitionsPerTopic: 4, producersPerTopic: 2, consumerPerSubscription: 2}
cells:
  - {cell: steady, system: log, workload: {rate: 2000}}
  - {cell: caught-up, system: log, workload: {rate: 2000, backlog: {traffic: 1s, after: 1s}}}
published: {steady: {publish_ms: {p99: 3}}}
scales:
  laptop: {nodes: 1}
  quick: {nodes: 1, warmup: 0s, duration: 1s, repeats: 1, restart: trial}
pages: [{title: Table, table: [publish_ms.p99, catch_up.chase_s], cells: ["*"]}]
"""


@pytest.mark.server
def test_a_study_of_two_hosts_is_killed_and_gone_on_with(tmp_path: Path, two: Path) -> None:  # noqa: F811
    (tmp_path / "tiny.yaml").write_text(STUDY, encoding="utf-8")
    process = lab(find_gauge(), tmp_path, "study", "tiny.yaml", "--quick", "--seed", "3", "--fleet", two.name)
    deadline_s = time.monotonic() + 90
    while not list((tmp_path / "runs").glob("*/trials/001/result.json")):
        assert time.monotonic() < deadline_s
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run = (tmp_path / "runs" / "latest").resolve()
    process = lab(find_gauge(), elsewhere, "study", str(run), "--resume")
    _, stderr = process.communicate(timeout=200)
    assert process.returncode in (0, 1), stderr
    results = [json.loads(path.read_text("utf-8")) for path in sorted(run.glob("trials/*/result.json"))]
    assert len(results) == 2
    for found in results:
        assert {lane["worker"] for lane in found["lanes"]} == {"sends", "receives"}, found["failure"]
        assert found["audit"]["clean"], found["audit"]
        assert found["end_to_end_bound_ms"] is not None, "their clocks were compared"
    by_cell = {found["workload"]["name"]: found for found in results}
    assert by_cell["caught-up"]["catch_up"]["drains"]
    assert f"workers of {two}" in (run / "report.html").read_text("utf-8")
