"""How a trial is dealt out to several workers, and how their clocks are compared: facts without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamgauge.fleet.choice import choose_fleet
from streamgauge.fleet.clocks import fit
from streamgauge.fleet.crew_rows import Lineup
from streamgauge.fleet.hosts import read_hosts
from streamgauge.fleet.split import Capacity, Role, assign_roles, deal, split
from streamgauge.model.messages import IntervalsPage
from streamgauge.vocabulary.errors import InputError

BOTH: frozenset[Role] = frozenset({"producers", "consumers"})


def workers(*weights: float, roles: frozenset[Role] = BOTH) -> list[Capacity]:
    return [Capacity(f"w{at}", weight, roles) for at, weight in enumerate(weights)]


def request(producers: int, consumers: int, subscriptions: int = 1) -> dict[str, Any]:
    return {
        "producers": [{"id": number, "topic": "t"} for number in range(producers)],
        "subscriptions": [{"name": f"s-{one}", "consumers": consumers} for one in range(subscriptions)],
        "schedule": {"arrival": "uniform", "rate_msgs_s": 1000.0, "stop_s": 5.0},
        "payload": {"size_bytes": 100},
        "batch": {"buffer_bytes": 64 << 20},
    }


@pytest.mark.parametrize(("producers", "consumers"), [(1, 1), (4, 4), (7, 5), (64, 16)])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("topology", ["same", "split"])
def test_the_parts_are_the_whole(producers: int, consumers: int, count: int, topology: Any) -> None:
    capacities = assign_roles(workers(*(float(1 + at % 3) for at in range(count))), topology)
    if topology == "split" and count == 1:
        return
    whole = request(producers, consumers, subscriptions=3)
    parts = [part.request for part in split(whole, capacities) if part.request is not None]
    ids = sorted(one["id"] for part in parts for one in part["producers"])
    assert ids == list(range(producers))
    rate = sum(part["schedule"]["rate_msgs_s"] for part in parts if part["producers"])
    assert rate == pytest.approx(1000.0)
    for name in ("s-0", "s-1", "s-2"):
        mine = [one for part in parts for one in part["subscriptions"] if one["name"] == name]
        taken = sorted(
            number
            for one in mine
            for number in range(one["consumer_from"], one["consumer_from"] + one["consumer_count"])
        )
        assert taken == list(range(consumers))
    if topology == "split":
        assert not any(part["producers"] and part["subscriptions"] for part in parts)


def test_capacity_decides_how_much() -> None:
    assert deal(10, [4.0, 1.0]) == [8, 2]
    assert deal(3, [1.0, 0.0, 1.0]) == [2, 0, 1]
    assert deal(5, [0.0]) == [0]
    counts = [len(part.request["producers"]) for part in split(request(10, 2), workers(4, 1)) if part.request]
    assert counts == [8, 2]


def test_in_a_swarm_everyone_reads_everything_for_himself() -> None:
    parts = split(request(3, 4, subscriptions=2), workers(1, 1, 1, 1), swarm=True)
    sent = [part.request for part in parts if part.request is not None]
    assert [part.name for part in parts if part.request is None] == ["w3"], (
        "who sends nothing has nothing to measure"
    )
    assert [one["producers"][0]["id"] for one in sent] == [0, 1, 2]
    assert [one["subscriptions"][1]["name"] for one in sent] == ["s-1-w0", "s-1-w1", "s-1-w2"]
    assert all(one["measure"] == "own" and one["subscriptions"][0]["consumers"] == 4 for one in sent)
    assert sum(one["schedule"]["rate_msgs_s"] for one in sent) == pytest.approx(1000.0)


def row(index: int, acked: int, received: int | None) -> dict[str, Any]:
    subscriptions = [] if received is None else [{"name": "s", "received_msgs": received, "backlog_msgs": 0}]
    return {
        "index": index,
        "start_s": float(index),
        "duration_s": 1.0,
        "acked_msgs": acked,
        "subscriptions": subscriptions,
        "latencies": [],
    }


def test_intervals_come_when_all_have_them_and_backlogs_are_of_the_whole() -> None:
    lineup = Lineup()
    lineup.join("sends")
    lineup.join("receives")
    lineup.add("sends", IntervalsPage(next=2, intervals=[row(0, 10, None), row(1, 10, None)]))
    assert lineup.take(0).intervals == []
    lineup.add("receives", IntervalsPage(next=1, intervals=[row(0, 0, 7)]))
    first = lineup.take(0)
    assert first.next == 1
    assert [one["worker"] for one in first.intervals] == ["sends", "receives"]
    assert first.intervals[1]["subscriptions"][0]["backlog_msgs"] == 3
    assert first.shown is not None
    assert first.shown[0]["acked_msgs"] == 10
    lineup.drop("receives")
    assert [one["index"] for one in lineup.take(1).intervals] == [1]


HOSTS = """\
token_file: token
hosts:
  - name: a
    address: 127.0.0.1:7400
  - name: a
    address: 10.0.0.2:7400
    roles: consumers
  - name: c
    address: nowhere
    colour: red
"""


def test_a_hosts_file_is_refused_with_lines(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text(HOSTS)
    with pytest.raises(InputError) as unknown:
        read_hosts(file)
    assert f"{file}:10: unknown key 'colour'" in str(unknown.value)
    file.write_text(HOSTS.replace("    colour: red\n", ""))
    with pytest.raises(InputError) as found:
        read_hosts(file)
    text = str(found.value)
    assert f"{file}:5: two hosts are called 'a'" in text
    assert f"{file}:6: '10.0.0.2:7400' is another machine: expected token_file and fingerprint" in text
    assert f"{file}:9: address: expected HOST:PORT, found 'nowhere'" in text
    assert "token_file: no such file" in text


def test_options_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="--topology spilt: expected same or split or swarm; did you mean 'split'"
    ):
        choose_fleet(None, 2, "spilt", "end")
    with pytest.raises(InputError, match="needs --workers 2"):
        choose_fleet(None, None, "split", "end")
    file = tmp_path / "hosts.yaml"
    file.write_text("hosts:\n  - {name: a, address: '127.0.0.1:1', roles: producers}\n")
    with pytest.raises(InputError, match="no host has the role consumers"):
        choose_fleet(str(file), None, "same", "end")
    file.write_text(file.read_text() + "  - {name: b, address: '127.0.0.1:2'}\n")
    with pytest.raises(InputError, match="swarm needs hosts with the role both"):
        choose_fleet(str(file), None, "swarm", "end")
    file.write_text("hosts:\n  - {name: a, address: '127.0.0.1:1'}\n")
    with pytest.raises(InputError, match="lists 1 host"):
        choose_fleet(str(file), 2, "same", "end")


@pytest.mark.parametrize("drift_ppm", [-100.0, 0.0, 100.0])
@pytest.mark.parametrize("asymmetry_ns", [0, 40_000])
def test_offset_and_drift_are_recovered_within_the_bound(drift_ppm: float, asymmetry_ns: int) -> None:
    random = np.random.default_rng(7)
    count, offset_ns = 1200, 50_000_000
    sent = np.sort(random.uniform(0, 60e9, count))
    # Ways have a shortest time and a long tail, like queues.
    there = 30_000 + asymmetry_ns + random.exponential(60_000, count)
    back = 30_000 + random.exponential(200_000, count)

    def ahead(time: Any) -> Any:
        return offset_ns + drift_ppm * 1e-6 * time

    arrived = sent + there
    answered = arrived + 5_000
    t2, t3 = arrived + ahead(arrived), answered + ahead(answered)
    samples = np.stack([sent, t2, t3, answered + back], axis=1).astype(np.int64)
    line = fit(samples)
    assert line is not None
    for time in (0.0, 30e9, 60e9):
        assert abs(line.at(time) - ahead(time)) <= line.bound_ns
    assert line.bound_ns < 200_000
    assert line.drift * 1e6 == pytest.approx(drift_ppm, abs=3)
    assert fit(samples[:5]) is None
