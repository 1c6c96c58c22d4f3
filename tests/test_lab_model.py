"""Workload and system files: units, defaults, OMB's files as they are, and errors that a person can act
on."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_doubles import DoubleSystem
from streamgauge.model.library import library_names, shipped_text
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import read_workload, read_workloads
from streamgauge.model.result_asked import SearchAsked
from streamgauge.model.system_file import SystemOverrides, choose_systems
from streamgauge.model.workload import Workload
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.units import format_duration, parse_duration, parse_rate, parse_size

OMB = """\
name: 1 topic / 16 partitions / 1kb

topics: 1
partitionsPerTopic: 16
keyDistributor: "NO_KEY"
messageSize: 1024
payloadFile: "payload/payload-1Kb.data"
subscriptionsPerTopic: 1
consumerPerSubscription: 1
producersPerTopic: 1
producerRate: 50000
consumerBacklogSizeGB: 0
testDurationMinutes: 15
"""


def write(directory: Path, text: str, name: str = "w.yaml") -> str:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def problems(path: str, overrides: Overrides | None = None) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_workload(path, overrides)
    return [str(problem).removeprefix(path) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("250us", 0.00025),
        ("1.5s", 1.5),
        ("2min", 120),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", [30, "30", "", None, "5 parsecs", "s", "-5s", "1e3", True, "99999h"])
def test_durations_without_a_unit_or_sense_are_errors(text: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_duration(text)


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=30 * 24 * 3600 * 1000))
def test_a_formatted_duration_reads_back(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        (100, 100),
        ("100", 100),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("1.5 MB", 1_500_000),
        ("2GiB", 1 << 31),
        ("7B", 7),
    ],
)
def test_sizes(text: Any, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["1kb", "1KB", "1k", "1m", "1.5", "-1", "x", None, True, "1XB", ".5kB"])
def test_sizes_that_could_be_read_in_two_ways_are_errors(text: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|ambiguous"):
        parse_size(text)


def test_an_ambiguous_size_says_both_readings() -> None:
    with pytest.raises(ValueError, match=r"write 4kB \(1000 bytes each\) or 4KiB \(1024 bytes each\)"):
        parse_size("4kb")


@pytest.mark.parametrize(
    ("text", "rate"),
    [(50000, 50000), ("50k", 50000), ("1.5M", 1.5e6), ("max", None), ("50_000", 50000), (0.5, 0.5)],
)
def test_rates(text: Any, rate: float | None) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["0.5x", "50%", 0, -5, "fast", "50,000", None, True, "2G", "1e300"])
def test_rates_that_say_nothing_are_errors(text: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|max"):
        parse_rate(text)


def test_every_shipped_workload_reads_and_asks_for_what_its_name_says() -> None:
    names = library_names()
    assert len(names) == len(set(names)) >= 130 + 4
    for name in names:
        workload = read_workload(name)
        assert workload.name == name
        assert all(
            "consumers of each subscription will have nothing to do" in note for note in workload.notes
        )
        if name.endswith(("100b", "1kb", "64kb")):
            size = name.rpartition("-")[2]
            assert workload.message_size_bytes == {"100b": 100, "1kb": 1024, "64kb": 65536}[size]
        if name.startswith("max-rate"):
            assert workload.rate_msgs_s is None
        topics = re.search(r"(?:^|-)(\d+)([km]?)-topics?-", name)
        assert topics is not None or name == "simple-workload"
        if topics:
            assert workload.topics == int(topics[1]) * {"": 1, "k": 1000, "m": 1_000_000}[topics[2]]
        partitions = re.search(r"-(\d+)-partitions?", name)
        assert workload.partitions_per_topic == (
            int(partitions[1]) if partitions else 10 if name == "simple-workload" else 1
        )
        clients = re.search(r"-(\d+)p-(\d+)c", name)
        if clients:
            assert (workload.producers_per_topic, workload.consumers_per_subscription) == (
                int(clients[1]),
                int(clients[2]),
            )


@pytest.mark.parametrize(
    ("name", "backlog_gib", "rate", "searched"),
    [
        ("1-topic-16-partitions-1kb", 0, 50_000, False),
        ("100-topics-1-partitions-1kb", 0, 150_000, False),
        ("1-topic-3-partition-100b-3producers", 0, None, True),
        ("max-rate-1-topic-100-partitions-1kb", 0, None, True),
        ("max-rate-1-topic-100-partitions-1p-1c-1kb", 0, None, False),
        ("1-topic-100-partitions-1kb-4p-4c-200k-backlog", 512, 200_000, False),
        ("600k-topic-1kb-4p-4c-600k", 0, 500_000, False),
    ],
)
def test_published_names_mean_what_they_meant(
    name: str, backlog_gib: int, rate: float | None, searched: bool
) -> None:
    workload = read_workload(name)
    assert (workload.backlog.size_bytes >> 30 if workload.backlog else 0) == backlog_gib
    assert workload.rate_msgs_s == rate
    assert (workload.search is not None) == searched
    assert (workload.arrival == "closed") == (rate is None and not searched)


def test_a_shipped_workload_can_be_printed_and_read_again(tmp_path: Path) -> None:
    text = shipped_text("backlog-1-topic-16-partitions-1kb")
    assert text is not None
    again = read_workload(write(tmp_path, text))
    shipped = read_workload("backlog-1-topic-16-partitions-1kb")
    assert replace(again, file=shipped.file) == shipped
    assert shipped_text("../runner/run") is None


def test_the_rate_may_be_left_to_a_search(tmp_path: Path) -> None:
    text = "rate: sustainable\nsearch: {first: 20k, width: 2, probe: 5s, publish_p99: 20ms}\n"
    workload = read_workload(write(tmp_path, text))
    assert (workload.rate_msgs_s, workload.arrival) == (None, "uniform")
    assert workload.search == SearchAsked(
        first_msgs_s=20_000, width_percent=2, probe_s=5, publish_ms_p99_max=20
    )
    soak = workload.at_rate(33_000)
    assert (soak.rate_msgs_s, soak.search) == (33_000, None)
    fixed = read_workload(str(tmp_path / "w.yaml"), Overrides.of(rate="1k"))
    assert (fixed.rate_msgs_s, fixed.search) == (1000, None), "--rate takes precedence over the search"
    assert read_workload("1-topic-1-partition-1kb", Overrides.of(rate="sustainable")).search is not None


def test_a_backlog_has_a_size_whatever_it_is_written_in(tmp_path: Path) -> None:
    omb = read_workload(
        write(tmp_path, "producerRate: 1000\nconsumerBacklogSizeGB: 2\nbacklogDrainRatio: 0.5")
    )
    assert omb.backlog is not None
    assert (omb.backlog.size_bytes, omb.backlog.reader) == (2 << 30, "same")
    assert (omb.backlog.drain_share, omb.backlog.after_s) == (0.5, omb.duration_s)
    ours = "rate: 1k\nmessageSize: 100\nbacklog: {traffic: 30s, reader: extra, after: 5s, within: 1m}"
    backlog = read_workload(write(tmp_path, ours)).backlog
    assert backlog is not None
    assert (backlog.size_bytes, backlog.reader, backlog.after_s) == (3_000_000, "extra", 5)
    smaller = read_workload(str(tmp_path / "w.yaml"), Overrides.of(backlog="1MB")).backlog
    assert smaller is not None
    assert (smaller.size_bytes, smaller.reader) == (1_000_000, "extra")
    assert read_workload(str(tmp_path / "w.yaml"), Overrides.of(backlog="0")).backlog is None
    path = write(tmp_path, "producerRate: 1000\nconsumerBacklogSizeGB: 2\nbacklogDrainRatio: 0.5")
    of_omb = read_workload(path, Overrides.of(backlog="1MB")).backlog
    assert of_omb is not None
    assert (of_omb.size_bytes, of_omb.drain_share) == (1_000_000, 0.5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rate: 1k\n", (60.0, True)),
        ("rate: sweep\n", (30.0, True)),
        ("rate: 1k\nwarmup: 5s\n", (5.0, False)),
        ("rate: 1k\nsteps: [{at: 5s, rate: 2k}]\n", (10.0, False)),
        ("rate: 1k\nramp: {to: 2k, over: 5s}\n", (10.0, False)),
        ("rate: 1k\nsurges: {rate: 2k, every: 5s, for: 1s}\n", (10.0, False)),
        ("producerRate: 1000\ntestDurationMinutes: 1\n", (60.0, False)),
    ],
)
def test_the_warm_up_ends_when_the_load_is_steady_unless_it_changes_or_a_time_is_given(
    tmp_path: Path, text: str, expected: tuple[float, bool]
) -> None:
    (workload,) = read_workloads(write(tmp_path, text))
    assert (workload.warmup_s, workload.warmup_auto) == expected


def test_a_step_may_begin_where_the_one_before_has_ended(tmp_path: Path) -> None:
    text = "rate: 1k\nsteps: [{at: 100ms, over: 200ms, rate: 2k}, {at: 300ms, rate: 1k}]\n"
    (workload,) = read_workloads(write(tmp_path, text))
    assert [step.at_s for step in workload.steps] == [0.1, 0.3], "0.1 and 0.2 are more than 0.3"


def test_an_omb_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "payload").mkdir()
    (tmp_path / "payload" / "payload-1Kb.data").write_bytes(bytes(1024))
    (tmp_path / "workloads").mkdir()
    workload = read_workload(write(tmp_path / "workloads", OMB))
    assert workload.name == "1 topic / 16 partitions / 1kb"
    assert (workload.topics, workload.partitions_per_topic, workload.message_size_bytes) == (1, 16, 1024)
    assert (workload.rate_msgs_s, workload.arrival) == (50_000, "uniform")
    assert (workload.duration_s, workload.warmup_s) == (900, 60), "OMB warms up for a minute unless told"
    assert workload.payload_file == str(tmp_path / "payload" / "payload-1Kb.data")
    assert workload.payload() == bytes(1024)


def test_omb_keys_that_mean_something_else_here_leave_a_note(tmp_path: Path) -> None:
    text = "producerRate: 0\nkeyDistributor: RANDOM_NANO\nbacklogDrainRatio: 1.0\nrandomBytesRatio: 0.5\n"
    workload = read_workload(write(tmp_path, text))
    assert (workload.rate_msgs_s, workload.arrival) == (None, "uniform")
    assert workload.search is not None, "OMB's 0 asks for the maximum"
    assert (workload.keys, workload.key_count) == ("keyed", 10_000)
    notes = " ".join(workload.notes)
    for word in (
        "RANDOM_NANO",
        "backlogDrainRatio has no effect",
        "randomBytesRatio has no effect",
    ):
        assert word in notes
    assert workload.result().extra["notes"] == list(workload.notes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: x\nproducersRate: 5", ":2: unknown key 'producersRate'; did you mean 'producerRate'?"),
        ("a: 1\nrate: 1k\nxyzzy: 1", ":3: unknown key 'xyzzy'; known keys: "),
        ("batch:\n  linger: 1ms\n  lingr: 2ms", ":3: unknown key 'lingr'; did you mean 'linger'?"),
        ("topics: 0", ":1: topics: expected 1 or more, found 0"),
        ("topics: many", ":1: topics: expected a whole number, found 'many'"),
        ("topics: 1.5", ":1: topics: expected a whole number, found 1.5"),
        ("useRandomizedPayloads: 1", ":1: useRandomizedPayloads: expected true or false, found 1"),
        ("keyDistributor: KEY", ":1: keyDistributor: expected one of "),
        ("rate: 0.5x", ":1: rate: '0.5x' is a multiple or a share"),
        ("rate: 0", ":1: rate: a rate of 0 sends nothing"),
        ("messageSize: 10", ":1: messageSize 10: a message below 32 bytes cannot carry its stamp"),
        ("rate: max\nconsumerBacklogSizeGB: 4", ":2: a backlog needs a rate"),
        (
            "topics: 1\nbacklog: {size: 1GB, traffic: 3s}",
            ":2: backlog: expected either size (bytes) or traffic",
        ),
        ("backlog: {size: 1GB}\nconsumerBacklogSizeGB: 1", ":1: 'backlog' and 'consumerBacklogSizeGB' say"),
        ("subscriptionsPerTopic: 0\nbacklog: {size: 1GB}", ":2: a backlog needs a subscription"),
        ("backlog: {size: 0}", ":1: backlog.size 0 is none"),
        ("backlog: {size: 1GB, after: 1500ms}", ":1: backlog.after 1.5s: expected whole seconds"),
        ("backlog: {size: 1GB, reader: other}", ":1: backlog.reader: expected one of"),
        ("rate: sustainable\narrival: poisson", ":2: arrival poisson needs a rate: the search"),
        ("rate: 1k\nsearch: {width: 5}", ":2: search: belongs to rate: sustainable"),
        ("rate: sustainable\nsearch: {first: max}", ":2: search.first: the first probe needs a rate"),
        ("rate: sustainable\nsearch: {probe: 1s}", ":2: search.probe 1s: expected whole seconds, 2s to 1h"),
        ("rate: 1k\nproducerRate: 5", ":1: 'rate' and 'producerRate' say the same thing"),
        ("duration: 30", ":1: duration: 30 has no unit"),
        ("duration: 1.5s", ":1: duration 1.5s: expected whole seconds"),
        ("testDurationMinutes: 0.51", ":1: duration 30.6s: expected whole seconds"),
        ("rate: max\narrival: poisson", ":2: arrival poisson needs a rate"),
        ("rate: 5\narrival: closed", ":2: arrival closed has no rate"),
        ("arrival: burst", ":1: arrival: burst and burst: N"),
        ("key_count: 5", ":1: key_count needs keys: keyed"),
        ("acks: all", ":1: unknown key 'acks': acknowledgements follow from the durability level"),
        ("payloadFile: nowhere", ":1: payloadFile: no such file; tried "),
        ("driverClass: x", ":1: unknown key 'driverClass': this is an OMB driver file"),
        ("topics: 1\ntopics: 2", ":2: is not valid YAML: found duplicate key"),
        ("topics: [1", ":1: is not valid YAML: "),
        ("- a\n- b", ":1: holds a list"),
        ("just text", ":1: holds a single value"),
        ("", ": is empty"),
        ("1: 2", ":1: key 1 is not a word"),
        ("batch: 5", ":1: batch: expected keys and values below it, found 5"),
        ("ramp:\n  to: 5k", ":1: key 'over' is missing"),
    ],
)
def test_errors_carry_the_file_the_line_and_what_was_expected(
    tmp_path: Path, text: str, expected: str
) -> None:
    found = problems(write(tmp_path, text))
    assert any(problem.startswith(expected) for problem in found), found


def test_all_problems_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    found = problems(write(tmp_path, "topics: 0\nrate: x\nfoo: 1\nbatch:\n  in_flight: 0\n"))
    assert [problem.split(":")[1] for problem in found] == ["1", "2", "3", "5"]


def test_a_file_of_bytes_and_a_huge_file_are_errors(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "h.yaml").write_text("a" * (1 << 21), encoding="utf-8")
    assert "is not text" in problems(str(tmp_path / "b.yaml"))[0]
    assert "larger than 1 MiB" in problems(str(tmp_path / "h.yaml"))[0]
    assert "is a directory" in problems(str(tmp_path) + "/")[0]


def test_options_override_the_file_and_are_blamed_by_their_name(tmp_path: Path) -> None:
    path = write(tmp_path, "messageSize: 10\nrate: 5k\n")
    workload = read_workload(path, Overrides.of(size="1KiB", rate="max", duration="7s", warmup="0s"))
    assert (workload.message_size_bytes, workload.rate_msgs_s, workload.arrival) == (1024, None, "closed")
    assert (workload.duration_s, workload.warmup_s) == (7, 0)
    overrides = Overrides.of(size="10", duration="1500ms", linger="2m", backlog="5")
    found = " ".join(_errors(path, overrides))
    for option in (
        "--size 10: ",
        "--duration 1.5s: ",
        "--linger 120000 ms: ",
        "--backlog: a backlog of 5 bytes ",
    ):
        assert option in found
    overrides = Overrides.of(in_flight=0, partitions=0, rate="0.5x", warmup="soon", fault=["kill:1", "x"])
    assert [one.partition(": ")[0] for one in _errors(path, overrides)] == [
        "--partitions 0",
        "--rate 0.5x",
        "--warmup soon",
        "--in-flight 0",
        "--fault kill:1,x",
    ]
    assert read_workload(path, Overrides.of(allow_unstamped=True)).message_size_bytes == 10
    reading = write(tmp_path, "read: [a]\n")
    assert _errors(reading, Overrides.of(rate="1k"))[0].startswith("--rate 1k: nothing is produced")


def _errors(path: str, overrides: Overrides) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_workload(path, overrides)
    return [str(problem) for problem in caught.value.problems]


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(text, encoding="utf-8", errors="replace", newline="")
    found: list[str] = []
    try:
        assert isinstance(read_workload(str(path)), Workload)
    except InputError as error:
        found = [str(problem) for problem in error.problems]
    assert all(problem.startswith(str(path)) for problem in found)


KNOWN = {"double": DoubleSystem()}


def system_problems(text: str, **overrides: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        choose_systems(text, SystemOverrides(**overrides), KNOWN)
    return [str(problem) for problem in caught.value.problems]


def test_a_system_is_chosen_by_name_version_or_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "name: tuned\nsystem: double\nversion: '3.9'\nnodes: 3\ndurability: L2\nstart_s: 1\nconnect: "
        "a:1,b:2\n",
        "tuned.yaml",
    )
    plain, versioned, tuned = choose_systems(f"double,double@2.0, {path}", SystemOverrides(), KNOWN)
    assert (plain.name, plain.version, plain.request.nodes) == ("double", "1", 1)
    assert (versioned.name, versioned.version) == ("double@2.0", "2.0")
    assert (tuned.name, tuned.version, tuned.request.nodes, tuned.request.level) == ("tuned", "3.9", 3, "L2")
    assert tuned.request.connect == ("a:1", "b:2")
    assert tuned.request.options == {"start_s": 1}
    assert tuned.request.source == path
    [overridden] = choose_systems(path, SystemOverrides(nodes=5, level="L1", connect=("c:3",)), KNOWN)
    assert (overridden.request.nodes, overridden.request.level, overridden.request.connect) == (
        5,
        "L1",
        ("c:3",),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("system: double\nhep: 1g", ":2: unknown key 'hep'"),
        ("system: double\nfalt: x", ":2: unknown key 'falt'; did you mean 'fault'?"),
        ("system: dubble", ":1: system: no system 'dubble'; did you mean 'double'?"),
        ("name: x", ":1: key 'system' is missing"),
        ("system: double\nversion: 3.10", ":2: version: expected text, found 3.1; write it in quotes"),
        ("system: double\nnodes: 0", ":2: nodes: expected a whole number of 1 or more"),
        ("system: double\ndurability: L9", ":2: durability: L9: expected one of L1, L2, L3, L4"),
        ("system: double\nconnect: here", ":2: connect: here: expected host:port"),
        ("system: double\ndurability: L1", ": durability L1 needs 3 nodes"),
        ("driverClass: x.Kafka", ":1: this is a driver file of the OpenMessaging Benchmark"),
    ],
)
def test_errors_in_system_files(tmp_path: Path, text: str, expected: str) -> None:
    path = write(tmp_path, text, "s.yaml")
    found = system_problems(path)
    assert any(problem.startswith(path + expected) for problem in found), found


def test_errors_of_all_systems_are_reported_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "system: double\nhep: 1g\n", "s.yaml")
    found = system_problems(f"kafak,{path},double@")
    assert len(found) == 3
    assert system_problems("double,double") == [
        "--system names 'double' more than once: give each system file a name of its own, or use --repeat"
    ]
    assert "names no system" in system_problems(" , ")[0]
