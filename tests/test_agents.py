"""Agents on the machines of a cluster: what is asked of them, what becomes of it, and a real one beside a real log."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hosts
import numpy as np
import pytest
from streamgauge.analysis.hosts import figures, series, shares
from streamgauge.analysis.intervals import Series
from streamgauge.analysis.tail import host_events
from streamgauge.fleet.agents import Agent, reach, read_agents
from streamgauge.model.messages import HostSample
from streamgauge.model.result_columns import RESOURCE_COLUMNS
from streamgauge.model.result_hosts import ClusterHost
from streamgauge.model.system_file import SystemOverrides, choose_systems
from streamgauge.report.explain import host_words
from streamgauge.runner.agents import AgentSampler, rows_of
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import FleetFailure, InputError
from streamgauge.vocabulary.gauge_binary import ready_address


def told(at_s: float, *, busy_s: float, spent_s: float, written: int, flush_s: float) -> HostSample:
    """A machine of four cores with one disk and one broker, so many seconds after its start."""
    return HostSample.model_validate(
        {
            "monotonic_ns": int(at_s * 1e9),
            "cores": 4,
            "disturbance": {"disturbed_s": 0.1},
            "host": {
                "cpu": {"busy_s": busy_s, "idle_s": 4 * at_s - busy_s, "steal_s": 0.0},
                "memory": {"total_bytes": 8, "available_bytes": 4, "page_cache_bytes": 2, "dirty_bytes": 1},
                "pressure": {"cpu_s": at_s / 10, "io_s": None},
                "disks": [
                    {
                        "name": "vda",
                        "reads": 0,
                        "read_bytes": 0,
                        "read_s": 0.0,
                        "writes": int(10 * at_s),
                        "write_bytes": written,
                        "write_s": at_s / 100,
                        "flushes": int(10 * at_s),
                        "flush_s": flush_s,
                        "busy_s": at_s / 4,
                        "queue_s": at_s / 2,
                    }
                ],
                "interfaces": [
                    {"name": "lo", "received_bytes": 1 << 40, "sent_bytes": 1 << 40},
                    {"name": "eth0", "received_bytes": int(2e6 * at_s), "sent_bytes": int(1e6 * at_s)},
                ],
                "tcp_retransmits": int(3 * at_s),
                "processes": [
                    {
                        "name": "java",
                        "pid": 7,
                        "cpu_s": spent_s,
                        "run_delay_s": at_s / 20,
                        "rss_bytes": 100,
                        "read_bytes": None,
                        "write_bytes": written,
                        "syncs": {
                            "calls": int(20 * at_s),
                            "wait_s": flush_s,
                            "wait_s2": 0.0004 * at_s + (flush_s - 0.02 * at_s) ** 2,
                        },
                        "threads": [],
                    }
                ],
            },
        }
    )


def rows(seconds: int = 4) -> list[dict[str, Any]]:
    samples = [
        told(
            at,
            busy_s=2.0 * at,
            spent_s=1.0 * at,
            written=int(5e6 * at),
            flush_s=0.02 * at + (0.5 if at > 2 else 0),
        )
        for at in range(seconds + 1)
    ]
    found = []
    for at in range(seconds):
        found += rows_of("broker-1", at, 1.0, samples[at], samples[at + 1])
    return [{**dict.fromkeys(RESOURCE_COLUMNS), **row} for row in found]


def test_totals_become_what_a_machine_used_in_an_interval() -> None:
    by_scope = {row["scope"]: row for row in rows_of("b", 2, 1.0, *_two())}
    assert by_scope["host"]["cpu_s"] == pytest.approx(2.0), "scaled from 1.25 s to the interval"
    assert by_scope["system"]["cpu_s"] == pytest.approx(1.0)
    assert by_scope["others"]["cpu_s"] == pytest.approx(1.0)
    assert by_scope["system"]["process"] == "b java (7)"
    assert by_scope["system"]["disk_read_bytes"] is None, "the kernel did not tell"
    assert (by_scope["system"]["syncs"], by_scope["system"]["sync_s"]) == (25, pytest.approx(0.08))
    assert by_scope["host"]["pressure_io_s"] is None
    assert {row["interval"] for row in by_scope.values()} == {2}
    assert rows_of("b", 2, 1.0, *reversed(_two())) == [], "a machine that was started again"


def _two() -> tuple[HostSample, HostSample]:
    return (
        told(4.0, busy_s=8.0, spent_s=4.0, written=0, flush_s=0.0),
        told(5.25, busy_s=10.5, spent_s=5.25, written=100, flush_s=0.1),
    )


def test_figures_of_a_machine_have_its_name() -> None:
    found = figures([ClusterHost(name="broker-1", cores=4), ClusterHost(name="silent", cores=2)], rows())
    [host] = found
    assert (host.name, host.cores, host.seconds) == ("broker-1", 4, 4.0)
    assert host.cpu_share == pytest.approx(0.5)
    assert host.system_cpu_share == pytest.approx(0.25)
    assert host.network_mb_s == pytest.approx(3.0), "without loopback"
    assert host.disturbed_share == pytest.approx(0.1)
    [disk] = host.disks
    assert (disk.busy_share, disk.queue, disk.write_mb_s) == pytest.approx((0.25, 0.5, 5.0))
    assert shares(found)[0].explanation == "2.00 of 4 cores were busy on broker-1 (the system 1.00)"
    assert "Host broker-1: 50 % of 4 cores busy (the system 25 %)" in host_words(host)


def test_what_happened_on_a_machine_is_an_event_with_its_name() -> None:
    axis = np.arange(4)
    lined_up = Series(axis, axis.astype(float), np.ones(4), {})
    [(name, of_host)] = series(rows(), lined_up).items()
    events = {one.name: one for one in host_events(name, of_host, 4)}
    slow = events["broker-1: slow flushes of the disk (fsync)"]
    assert list(np.flatnonzero(slow.strength)) == [2]
    syncs = events["broker-1: slow syncs of the system (fsync)"]
    assert list(np.flatnonzero(syncs.strength)) == [2]
    assert events["broker-1: a CPU was not to be had (disturbance)"].strength.min() == pytest.approx(0.1)
    assert events["broker-1: steal"].strength.max() == 0


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["10.0.0.5:7401"], "is another machine: expected a file of hosts"),
        (["here"], "expected HOST:PORT"),
        (["127.0.0.1:1", "127.0.0.1:1"], "two are called"),
        (["none.yaml"], "none.yaml"),
    ],
)
def test_agents_elsewhere_need_a_file_that_says_how_they_are_known(texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_agents(texts)


def test_a_system_file_names_its_agents_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("system: nats\nconnect: 127.0.0.1:4222\nagents: agents.yaml\n")
    [choice] = choose_systems(str(path), SystemOverrides(), systems())
    assert choice.request.agents == (str(tmp_path / "agents.yaml"),)
    with pytest.raises(InputError, match="already runs"):
        choose_systems("nats", SystemOverrides(agents=("127.0.0.1:1",)), systems())


@pytest.fixture
def agent(real_gauge: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a real agent."""
    log = tmp_path / "agent.log"
    with log.open("wb") as sink:
        child = subprocess.Popen([real_gauge, "agent", "--process", "no-such-process"], stdout=sink)
    try:
        while (address := ready_address(log)) is None:
            assert child.poll() is None
            time.sleep(0.01)
        yield address
    finally:
        child.kill()
        child.wait()


def test_a_real_agent_tells_of_this_machine_and_who_listens(agent: str) -> None:
    [found] = reach(read_agents([agent]), [int(agent.rpartition(":")[2])])
    kept: list[dict[str, Any]] = []
    start_s = time.monotonic() + 0.05
    sampler = AgentSampler(start_s, 0.2, [found], kept.extend)
    sampler.start()
    until_s = time.monotonic() + 20.0
    while not any(row["scope"] == "system" for row in kept):
        assert time.monotonic() < until_s
        time.sleep(0.02)
    sampler.stop()
    host = next(row for row in kept if row["scope"] == "host")
    assert host["host"] == agent
    assert host["cpu_s"] > 0
    system = next(row for row in kept if row["scope"] == "system")
    assert system["process"].startswith(f"{agent} gauge (")
    assert abs(found.ahead_ns) < 1e9, "one machine has one clock"


def test_an_agent_behind_tls_is_known_by_its_fingerprint(real_gauge: Path, tmp_path: Path) -> None:
    with hosts.started(real_gauge, tmp_path, [hosts.Seat("broker-1")], "agent") as file:
        [found] = reach(read_agents([str(file)]), [])
        assert (found.name, found.cores > 0) == ("broker-1", True)
        assert found.sample().cores == found.cores
        found.client.close()
        told = file.read_text("utf-8")
        pinned = told.split("sha256:")[1][:64]
        of_another = told.replace(pinned, "0" * 64)
        file.write_text(of_another, "utf-8")
        with pytest.raises(FleetFailure, match=r"agent broker-1: .*fingerprint"):
            reach(read_agents([str(file)]), [])
        (tmp_path / "other").write_text("0" * 64, "utf-8")
        (tmp_path / "other").chmod(0o600)
        file.write_text(told.replace(str(tmp_path / "identity/token"), str(tmp_path / "other")), "utf-8")
        with pytest.raises(FleetFailure, match=r"agent broker-1: .*token"):
            reach(read_agents([str(file)]), [])


def test_an_agent_that_is_gone_is_a_gap_and_one_that_never_was_ends_the_trial(agent: str) -> None:
    [found] = reach(read_agents([agent]), [])
    gone = Agent(found.name, found.cores, found.client, found.ahead_ns, ())
    found.client.close()
    sampler = AgentSampler(time.monotonic(), 0.05, [gone], lambda _: None)
    sampler.start()
    time.sleep(0.2)
    [told_of_it] = sampler.gaps()
    sampler.stop()
    assert "was not heard at" in told_of_it
    with pytest.raises(FleetFailure, match=r"agent 127\.0\.0\.1:1: "):
        reach(read_agents(["127.0.0.1:1"]), [])
