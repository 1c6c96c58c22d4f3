"""Profiles: what recordings and `perf` say is read as it is, what stands out does so beyond chance, and pages and packed runs tell it and no more."""

from __future__ import annotations

import lzma
import random
import zipfile
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sample_profile import APPEND, FETCH, FLUSH, add_profile, row, rows
from sample_run import KAFKA, workload, write_run
from streamgauge.analysis import profiles
from streamgauge.analysis.match import asked_traits, differences_text
from streamgauge.analysis.profiles import Sampled
from streamgauge.cli.app import run
from streamgauge.report import html
from streamgauge.report.run import read_run
from streamgauge.runner import profiles as made
from streamgauge.runner.profiles import jfr, perf
from streamgauge.runner.profiles.stacks import (
    MADE_AT_RUN_TIME,
    folded,
    java_name,
    native_name,
    thread_group,
    without_scaffold,
)
from streamgauge.store.directory import PROFILE_NAME
from streamgauge.store.tables import write_profile
from streamgauge.systems.base import SystemProcess
from streamgauge.vocabulary.errors import InputError

DATA = Path(__file__).with_name("data") / "profiles"
SECONDS = 40
IRREGULAR = {3, 11, 18, 33}


# Recordings of JVMs


def recording(name: str, into: Path) -> Path:
    file = into / name
    file.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
    return file


@pytest.mark.parametrize("name", ["jdk-17.jfr", "jdk-25.jfr"])
def test_a_recording_of_a_jvm_says_where_its_threads_were(name: str, tmp_path: Path) -> None:
    """Of a program with two threads that compute and one that waits for a connection."""
    samples = list(jfr.read_samples(recording(name, tmp_path)))
    seen = Counter((one.thread, one.state) for one in samples)
    assert seen["main", "java"] > 30
    assert seen["worker-3", "java"] > 30
    assert seen["waits-1", "native"] > 50
    computing = [one.stack.split(";") for one in samples if one.thread == "worker-3" and one.state == "java"]
    assert all(stack[0] == "java.lang.Thread.run" for stack in computing)
    assert all("Sampled$$Lambda.run" in stack and "Sampled.lambda$main$0" in stack for stack in computing)
    assert max(Counter(stack[-1] for stack in computing).items(), key=lambda one: one[1])[0] in (
        "Sampled.spin",
        "java.lang.Math.floorMod",
    )
    waiting = {one.stack.split(";")[-1] for one in samples if one.thread == "waits-1"}
    assert waiting == {"sun.nio.ch.Net.poll"}
    times = sorted(one.at_s for one in samples)
    assert 1.5 < times[-1] - times[0] < 4.0
    assert 1_700_000_000 < times[0] < 2_000_000_000, "seconds since the epoch"


def test_a_recording_says_nothing_of_the_machine(tmp_path: Path) -> None:
    content = recording("jdk-17.jfr", tmp_path).read_bytes()
    for word in (b"java.class.path", b"HOME=", b"PATH=", b"sun.java.command", b"/usr/lib/jvm"):
        assert word not in content


def test_damage_is_said_and_nothing_else_happens(tmp_path: Path) -> None:
    content = recording("jdk-17.jfr", tmp_path).read_bytes()
    damaged = tmp_path / "damaged.jfr"
    source = random.Random(5)
    refused = 0
    for number in range(150):
        changed = bytearray(content)
        for _ in range(source.choice((1, 3, 30))):
            # The first bytes and those of the constants decide most.
            place = source.randrange(100) if number % 3 == 0 else source.randrange(len(changed))
            changed[place] = source.randrange(256)
        cut = source.randrange(len(changed)) if number % 5 == 0 else len(changed)
        damaged.write_bytes(bytes(changed[:cut]))
        try:
            list(jfr.read_samples(damaged))
        except jfr.DamagedRecording:
            refused += 1
    assert refused > 30


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("kafka/log/UnifiedLog", "kafka.log.UnifiedLog.m"),
        (
            "kafka.server.ReplicaManager$$Lambda$1561+0x00007f2750602868/1587093430",
            "kafka.server.ReplicaManager$$Lambda.m",
        ),
        ("Sampled$$Lambda$14/622488023", "Sampled$$Lambda.m"),
        ("a/B$$Lambda/0x00007f2750602868", "a.B$$Lambda.m"),
        ("java.lang.invoke.LambdaForm$DMH+0x00007f27505e3000/207902568", "java.lang.invoke.LambdaForm$DMH.m"),
        ("jdk/internal/reflect/GeneratedMethodAccessor12", "jdk.internal.reflect.GeneratedMethodAccessor.m"),
        ("scala/Some$1", "scala.Some$1.m"),
    ],
)
def test_names_are_the_same_in_the_next_process(owner: str, name: str) -> None:
    assert java_name(owner, "m") == name


# perf


def test_what_perf_prints_is_read_from_the_outermost_function_on() -> None:
    samples = list(perf.read_script((DATA / "perf-script.txt").read_text("utf-8").splitlines(keepends=True)))
    assert len(samples) == 12
    assert {one.state for one in samples} == {"cpu"}
    stacks = [one.stack.split(";") for one in samples]
    lanes = [stack for one, stack in zip(samples, stacks, strict=True) if one.thread == "both-0"]
    assert lanes
    # Thread scaffolding is gone, and with it whether the copy of the stack reached so far.
    assert {stack[0] for stack in lanes} == {"gauge_worker::lane::run"}
    assert any(name.endswith(" [kernel]") for stack in stacks for name in stack)
    assert not any(name.startswith("std::sys") or "@GLIBC" in name for stack in stacks for name in stack)
    assert [one.at_s for one in samples] == sorted(one.at_s for one in samples)


def test_native_names() -> None:
    assert (
        native_name("gauge_log::commit::write_all::h0123456789abcdef", "/opt/gauge")
        == "gauge_log::commit::write_all"
    )
    assert native_name("clock_nanosleep@@GLIBC_2.17", "/usr/lib/libc.so.6") == "clock_nanosleep"
    assert native_name("do_syscall_64", "[kernel.kallsyms]") == "do_syscall_64 [kernel]"
    assert native_name("[unknown]", "/usr/lib/libcrypto.so.3") == "[libcrypto.so.3]"
    assert native_name("[unknown]", "[unknown]") == "[unknown]"
    assert native_name("[unknown]", "/tmp/perf-4711.map") == MADE_AT_RUN_TIME
    assert native_name("[unknown]", "//anon") == MADE_AT_RUN_TIME
    made_twice = ["[unknown]", MADE_AT_RUN_TIME, MADE_AT_RUN_TIME, "write", "write"]
    assert without_scaffold(made_twice) == [MADE_AT_RUN_TIME, "write", "write"]
    assert without_scaffold(["clone3", "start_thread", "[unknown]"]) == ["[unknown]"]
    assert folded(["a;b"] * 400).count(";") == 255
    assert (
        thread_group("kafka-network-thread-1-ListenerName(PLAINTEXT)-12")
        == "kafka-network-thread-N-ListenerName(PLAINTEXT)-N"
    )


def test_without_perf_the_remark_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    notes: list[str] = []
    found = made.Profiles(tmp_path / "logs", tmp_path, 30.0, notes.append)
    found.start([SystemProcess("gauge-log", 1)], {})
    found.stop()
    assert list(found.rows(0.0, 0.0)) == []
    assert notes[0] == "the generator was not profiled: its workers run on other machines"
    assert notes[1].startswith("gauge-log could not be profiled: perf is not installed")
    assert "apt-get install linux-perf" in notes[1]


def test_a_jvm_that_is_gone_is_a_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made.attach, "is_jvm", lambda _: True)
    notes: list[str] = []
    found = made.Profiles(tmp_path / "logs", tmp_path, 30.0, notes.append)
    found.start([SystemProcess("node-1", 4_194_305)], {"worker-0": 4_194_306})
    found.stop()
    assert any(
        "the Java code of node-1 could not be profiled: it cannot be reached" in note for note in notes
    )


def test_a_long_trial_is_sampled_less_often() -> None:
    assert made.period_ms(30) == 19
    assert made.period_ms(3600) == 241
    assert all(made.period_ms(load_s) % 2 == 1 for load_s in range(10, 5000, 7))
    assert all(1e3 * load_s / made.period_ms(load_s) <= made.MOMENTS_MAX for load_s in range(10, 5000, 7))


# What stands out


def sampled(flushes: set[int], seed: int, state: str = "java") -> Sampled:
    """The samples of the JVM of sample_profile.py, without a warm-up."""
    known: dict[tuple[str, ...], int] = {}
    stack, at = [], []
    for one in rows(SECONDS, flushes.__contains__, seed):
        if one["state"] == state:
            told = (one["thread"], *one["stack"].split(";"))
            stack.append(known.setdefault(told, len(known)))
            at.append(one["interval"])
    return Sampled("node-1", "system", state, 0.019, list(known), np.array(stack), np.array(at))


def flags(seconds: set[int]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([second in seconds for second in range(SECONDS)])


def test_what_the_slow_seconds_spend_their_time_in_is_named_by_its_innermost_function() -> None:
    named = 0
    for seed in range(20):
        found, _ = profiles.stands_out(sampled(IRREGULAR, seed), flags(IRREGULAR))
        if found:
            named += 1
            assert {one.function for one in found} <= {FLUSH[-1], FLUSH[-2]}, "not Thread.run, which all have"
            assert found[0].share_slowest > 0.3 > 0.15 > found[0].share_rest
            assert found[0].chance <= 0.04
            assert "times as often" in found[0].explanation
            assert len(found) == 1, "who called it is no second finding"
    assert named >= 19


def test_by_chance_seldom_anything_stands_out() -> None:
    """Seconds that have nothing to do with what is sampled: 4 % are expected, and 8 of 100 are two standard deviations above."""
    source = random.Random(3)
    claimed = 0
    for seed in range(100):
        slow = set(source.sample(range(SECONDS), 4))
        flushes = set(source.sample(range(SECONDS), 4)) if seed % 2 else set()
        if slow & flushes or {second - 1 for second in slow} & flushes:
            flushes = set()
        claimed += bool(profiles.stands_out(sampled(flushes, seed), flags(slow))[0])
    assert claimed <= 8


def test_too_little_to_tell_is_said() -> None:
    short = sampled(IRREGULAR, 1)
    first = replace(short, stack=short.stack[short.at < 20], at=short.at[short.at < 20])
    found, why = profiles.stands_out(first, flags(IRREGULAR)[:20])
    assert found == []
    assert "20 seconds were measured" in why
    found, why = profiles.stands_out(short, flags(set()))
    assert found == []
    assert "0 of them in the slowest seconds" in why
    found, why = profiles.stands_out(sampled(set(), 1, "native"), flags(IRREGULAR))
    assert found == []
    assert why.startswith("Nothing stands out")


def test_a_tree_holds_every_sample_once() -> None:
    one = sampled(IRREGULAR, 2)
    slow = flags(IRREGULAR)
    nodes = profiles.tree(one, slow, 1000)
    roots = [node for node in nodes if node.depth == 0]
    assert sum(node.slowest + node.rest for node in roots) == len(one.stack)
    assert sum(node.slowest for node in roots) == int(slow[one.at].sum())
    assert {node.name for node in nodes} >= {*APPEND, *FETCH, *FLUSH}
    assert all(later.depth <= node.depth + 1 for node, later in pairwise(nodes))
    assert len(profiles.tree(one, slow, 5)) <= 5
    # A compiler's stacks, each seen once, leave room for a thread that is seen often and sorted behind them.
    compiler = [
        ("compiler", f"phase {number}", *(f"call {number} {depth}" for depth in range(20)))
        for number in range(60)
    ]
    busy = replace(
        one,
        stacks=[*compiler, ("network", "poll")],
        stack=np.array([*range(60), *[60] * 40]),
        at=np.zeros(100, dtype=one.at.dtype),
    )
    found = {
        node.name: node.slowest + node.rest for node in profiles.tree(busy, slow, 100) if node.depth == 0
    }
    assert found == {"compiler": 60, "network": 40}
    told = {function.name: function for function in profiles.functions(one, slow, 40)}
    assert told["java.lang.Thread.run"].share == 1.0
    assert told["java.lang.Thread.run"].own == 0.0
    assert told[FLUSH[-1]].own == told[FLUSH[-1]].share
    assert (told[FLUSH[-1]].slowest or 0.0) > 3 * (told[FLUSH[-1]].rest or 0.0)


# A run with profiles

ASKED = workload(rate=500, seconds=36)


@pytest.fixture(scope="module")
def profiled_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("profiled") / "20260921-141320-sample"
    write_run(directory, (KAFKA,), ASKED)
    add_profile(directory, KAFKA, ASKED)
    logs = directory / "trials/001/logs/profiles"
    logs.mkdir(parents=True)
    recording("jdk-17.jfr", logs)
    return directory


def test_a_result_says_what_was_found_of_each_process(profiled_run: Path) -> None:
    (result,) = read_run(profiled_run).results
    assert result.profiled is not None
    assert result.workload.extra["profile"] is True
    assert [(one.process, one.state, one.role) for one in result.profiled.profiles] == [
        ("node-1", "java", "system"),
        ("node-1", "native", "system"),
        ("worker-0", "cpu", "worker"),
    ]
    jvm, waits, generator = result.profiled.profiles
    assert 1 <= len(result.profiled.slowest_s) <= 4
    assert [one.function for one in jvm.stands_out] == [FLUSH[-1]]
    assert waits.stands_out == generator.stands_out == []
    assert jvm.samples == 36 * 30, "of the measured phase, without the warm-up"


def test_the_page_shows_it_with_a_table_behind(profiled_run: Path) -> None:
    page = html.write(profiled_run).read_text("utf-8")
    assert 'href="#profiles"' in page
    assert "sun.nio.ch.FileDispatcherImpl.force0 is on the stack in" in page
    assert "Nothing stands out" in page
    assert "worker-0 (generator): CPU time" in page
    assert page.count("Functions as a table") == 3
    assert "kafka.server.KafkaRequestHandler.run</th>" in page


def test_a_page_without_profiles_has_nothing_of_them(tmp_path: Path) -> None:
    write_run(tmp_path / "run", (KAFKA,), workload(rate=200, seconds=3))
    page = html.write(tmp_path / "run").read_text("utf-8")
    assert "#profiles" not in page
    assert "flames" not in page


def test_names_of_a_stranger_are_text(tmp_path: Path) -> None:
    write_run(tmp_path / "run", (KAFKA,), ASKED)
    hostile = ("</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "\u202e\x1b[31mturned")
    add_profile(tmp_path / "run", KAFKA, ASKED, flushed=(*FLUSH[:4], *hostile))
    page = html.write(tmp_path / "run").read_text("utf-8")
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert "&lt;img src=x onerror=alert(2)&gt;" in page


def test_a_profile_of_more_than_any_trial_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "run", (KAFKA,), ASKED)
    add_profile(tmp_path / "run", KAFKA, ASKED)
    table = tmp_path / "run/trials/001" / PROFILE_NAME
    monkeypatch.setattr(profiles, "CHARACTERS_MAX", 100_000)
    write_profile(
        (row(6.5, "node-1", "java", "t", (f"{number}:{'x' * 1000}",)) for number in range(200)), table
    )
    with pytest.raises(InputError, match="holds more stacks than any trial"):
        html.write(tmp_path / "run")
    table.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InputError, match="is no table of a trial"):
        html.write(tmp_path / "run")


def test_a_packed_run_has_the_samples_and_not_the_recording(profiled_run: Path, tmp_path: Path) -> None:
    for logs in ([], ["--with-logs"]):
        target = tmp_path / f"packed{len(logs)}.streamgauge.zip"
        assert run(["submit", str(profiled_run), "--file", str(target), *logs]) == 0
        with zipfile.ZipFile(target) as archive:
            names = archive.namelist()
        assert "trials/001/profile.parquet" in names
        assert not any(name.endswith(".jfr") for name in names)


def test_a_comparison_names_that_one_side_was_profiled() -> None:
    plain, other = workload(), workload(extra={"profile": True})
    text = differences_text(asked_traits(plain), asked_traits(other))
    assert text == "profile: False and True"


# Asked for where it cannot be


def test_a_cluster_that_already_runs_cannot_be_profiled(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status = run(
        ["run", "--system", "kafka", "--connect", "127.0.0.1:1", "--profile", "--out", str(tmp_path)]
    )
    assert status == 2
    said = capsys.readouterr().err
    assert "a cluster that already runs (connect) cannot be profiled" in said
    assert "only the generator is the lab's" in " ".join(said.split())


def test_a_workload_file_may_ask_for_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("profile: perhaps\n")
    assert run(["run", str(tmp_path / "mine.yaml"), "--out", str(tmp_path)]) == 2
    assert "profile" in capsys.readouterr().err
