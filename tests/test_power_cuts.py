"""Power cuts without a process: what they leave, where they come, what they show against a system; and that chance can be repeated."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamgauge.analysis.durability import against, finding, summaries
from streamgauge.analysis.refusals import Silence, refused
from streamgauge.model.durability import Cut
from streamgauge.model.fault import describe, read_faults
from streamgauge.model.power_cut import (
    LostFile,
    LostMessage,
    PowerCut,
    arguments,
    describe_place,
    mixed,
    read_place,
    read_survivors,
)
from streamgauge.model.system_request import SystemRequest
from streamgauge.runner.durability import cuts
from streamgauge.runner.durability.cuts import CutsAsked, planned
from streamgauge.runner.durability.run import with_small_segments
from streamgauge.runner.faults import DRAWN, FaultLeg
from streamgauge.systems.support.powercut import Disks, clean, lost_file
from streamgauge.vocabulary.choices import SURVIVORS, Survivors
from streamgauge.vocabulary.errors import SystemFailure


def test_the_mix_has_every_kind_once_and_begins_with_nothing() -> None:
    first = list(islice(mixed(7), len(SURVIVORS)))
    assert first[0] == "none"
    assert Counter(first) == Counter(SURVIVORS)
    assert first == list(islice(mixed(7), len(SURVIVORS)))
    assert any(list(islice(mixed(seed), len(SURVIVORS))) != first for seed in range(5))


@pytest.mark.parametrize("survivors", SURVIVORS)
def test_a_kind_and_a_seed_say_what_the_disk_is_told(survivors: Survivors) -> None:
    assert arguments(survivors, 3) == arguments(survivors, 3)
    assert arguments(survivors, 3)["seed"] == 3
    assert read_survivors(survivors) == survivors


def test_torn_blocks_are_of_the_size_that_was_chosen() -> None:
    assert [arguments(kind, 1)["block_bytes"] for kind in ("torn-512", "torn-4096")] == [512, 4096]
    names = {arguments("random", seed)["names"] for seed in range(20)}
    assert names == {"all", "none"}


def test_directories_for_sockets_go_with_what_killed_labs_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("streamgauge.systems.support.powercut.MOUNTS", Path("/dev/null"))
    ended = subprocess.Popen(["true"])
    ended.wait()
    Disks(Path("gauge"), tmp_path / "base")
    (mine,) = tmp_path.iterdir()
    pattern = mine.name.replace(f"-{os.getpid()}-", "-{}-")
    for pid, kept in ((ended.pid, ""), (ended.pid, "file"), ("", "")):
        (tmp_path / pattern.format(pid) / kept).mkdir(parents=True)
        pattern += "x"
    clean(Path("gauge"))
    assert mine.exists()
    assert len(list(tmp_path.iterdir())) == 3, "what is not empty, or nobody's, stays"


def test_a_place_is_an_operation_on_files() -> None:
    place = read_place("rename#2/*/00.log")
    assert (place.deed, place.count, place.glob) == ("rename", 2, "*/00.log")
    assert describe_place(place) == "rename#2/*/00.log"
    for wrong in ("rename/*.log", "rename#0/*.log", "rename#1/", "read#1/*", "rename#1"):
        with pytest.raises(ValueError, match="is no place of a cut"):
            read_place(wrong)
    with pytest.raises(ValueError, match="expected one of none, prefix"):
        read_survivors("most")


def test_a_fault_says_what_survives_and_where_it_comes() -> None:
    (fault,) = read_faults("power-cut=torn-4096:1@10s/sync#3/*.log")
    assert (fault.survivors, fault.amount_s, fault.at_s) == ("torn-4096", None, 10.0)
    assert fault.place == read_place("sync#3/*.log")
    assert describe(fault) == "power-cut=torn-4096:1@10s/sync#3/*.log"
    (failing, _) = read_faults("fsync-error:1@2s,restart@4s")
    assert failing.action == "fsync-error"
    for wrong, told in (
        ("kill:1@10s/sync#3/*.log", "only a power-cut comes at an operation"),
        ("power-cut=most:1@10s", "are no survivors"),
        ("power-cut:1@10s/read#3/*.log", "is no place of a cut"),
        ("fsync-error=3s:1@10s", "takes no amount"),
    ):
        with pytest.raises(ValueError, match=told):
            read_faults(wrong)


def test_a_cut_of_a_plan_is_the_same_alone() -> None:
    whole = planned(5, ["one", "all"], CutsAsked(12, quick=True), syncs=True)
    assert [one.number for one in whole] == list(range(1, len(whole) + 1))
    assert [one.kind for one in whole[-1:]] == ["failed sync"]
    kinds = Counter(one.survivors for one in whole if one.kind == "power cut" and one.scope == "all")
    assert set(kinds) == set(SURVIVORS)
    for one in whole:
        assert planned(5, ["one", "all"], CutsAsked(12, quick=True, only=one.number), syncs=True) == [one]
    assert len({one.seed for one in whole}) == len(whole)
    chosen = planned(5, ["all"], CutsAsked(4, quick=True, survivors="versions"), syncs=False)
    assert [one.survivors for one in chosen if one.kind == "power cut"] == ["versions"] * 4


def test_what_the_user_set_of_segments_stays() -> None:
    request = SystemRequest(options={"broker": {"log.segment.bytes": "9", "x": "y"}, "heap": "1g"})
    small = {"broker": {"log.segment.bytes": "1", "log.roll.ms": "2"}, "segment_mib": 16}
    assert with_small_segments(request, small).options == {
        "broker": {"log.segment.bytes": "9", "log.roll.ms": "2", "x": "y"},
        "heap": "1g",
        "segment_mib": 16,
    }


@pytest.mark.parametrize(
    ("ending", "lines", "told"),
    [
        (
            "exited with status 1",
            ["INFO starting", "ERROR bad checksum in 3.log"],
            "ERROR bad checksum in 3.log",
        ),
        ("exited with status 2", [], "it said nothing"),
        (None, ["WARN Exception while replaying journals, shutting down"], "replaying journals"),
        (None, ["INFO waiting for a leader"], None),
        ("exited with status 1", ["FATAL bind: address already in use"], None),
        ("exited with status 1", ["ERROR could not recover: Cannot allocate memory"], None),
        ("was killed by SIGKILL", ["INFO recovering segment 3"], None),
        (
            None,
            ["[WRN] Filestore [_meta_] Recovering stream state from index errored: prior state file"],
            None,
        ),
        (None, ['[WRN] Healthcheck failed: "JetStream is still recovering meta layer"'], None),
        (None, ["WARN index 7 is corrupt, it could not be used and is rebuilt from its segment"], None),
    ],
)
def test_only_its_own_words_or_end_count_against_a_system(
    ending: str | None, lines: Sequence[str], told: str | None
) -> None:
    found = refused([Silence("node-1", ending, lines)])
    assert bool(found) == (told is not None)
    assert told is None or told in found[0]


def test_lines_that_say_the_same_are_quoted_once() -> None:
    lines = [f"12:00:{second} ERROR stream 'a' could not be recovered" for second in range(9)]
    assert refused([Silence("node-1", None, lines)]) == [f"node-1: {lines[0]}"]


@pytest.mark.parametrize(
    ("passes_at", "told"), [(3, []), (None, ["node-1: ERROR stream 'a' could not be recovered"])]
)
def test_a_check_that_passes_late_is_no_complaint(
    passes_at: int | None, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_text(
        "ERROR old: data is corrupt\nERROR stream 'a' could not be recovered\n", "utf-8"
    )
    asked = count(1)

    def waits_for() -> str | None:
        return None if next(asked) == passes_at else "its check to pass"

    part: Any = SimpleNamespace(
        name="node-1", waits_for=waits_for, process=SimpleNamespace(log=tmp_path / "log")
    )
    bench: Any = SimpleNamespace(check=lambda: None)
    monkeypatch.setattr(cuts, "CLEARS_S", 0.5)
    assert cuts._complaints(bench, [part], {"node-1": 27}) == told


def cut(number: int, survivors: Survivors = "none", **others: Any) -> Cut:
    known = {
        "number": number,
        "kind": "power cut",
        "scope": "all",
        "parts": ["node-1"],
        "at_s": 2.0,
        "acked": 3000,
        "acked_before": 990,
        "written_bytes": 300_000,
        "balanced": True,
        "power": PowerCut(survivors=survivors, seed=number, dropped_bytes=4096),
    }
    return Cut.model_validate({**known, **others})


def test_a_system_that_does_not_come_back_is_told_from_a_slow_machine() -> None:
    silent = cut(1, failure="broker to answer")
    assert "its log does not say why" in (silent.inconclusive or "")
    loud = cut(2, failure="broker to answer", balanced=False, refused=["node-1: ERROR corrupt"])
    (summary,) = summaries([silent, loud])
    assert (summary.conclusive, summary.refused, summary.with_loss) == (1, 1, 0)
    assert summary.loss_probability_max is None
    assert finding("L3", 1, None, [], [summary]).measured == "L4"
    (told,) = against("L3", [silent, loud])
    assert "survivors: none, seed 2" in told
    assert "node-1: ERROR corrupt" in told


def test_a_system_that_comes_back_without_what_it_held_is_told_from_one_that_is_slow() -> None:
    slow = cut(1, censored=300)
    assert slow.inconclusive == "not read: 300 messages"
    emptied = cut(2, censored=300, refused=["quorum_status t.0: log index 0"])
    replayed = cut(3, censored=300, refused=["quorum_status u.0: log index 0"], replay_of=2)
    (summary,) = summaries([slow, emptied])
    assert (summary.conclusive, summary.refused) == (1, 1)
    assert finding("L3", 1, None, [], [summary]).measured == "L4"
    (told,) = against("L3", [slow, emptied, replayed])
    assert told.startswith(
        "It comes back without what it held after cut 2 (power cut of all, survivors: none, seed 2)"
    )
    assert told.endswith("log index 0. Replayed with its seed it comes back without what it held.")


def test_names_as_posix_promises_them_are_no_level() -> None:
    cuts = [cut(1), cut(2, "posix-names", lost=40)]
    (summary,) = summaries(cuts)
    assert (summary.cuts, summary.conclusive, summary.with_loss) == (2, 1, 0)
    assert (summary.strict_names, summary.strict_names_with_loss) == (1, 1)
    assert any("relies on names" in told for told in against("L3", cuts))
    assert against("L4", cuts) == []


def test_an_acknowledgement_after_a_failed_sync_is_found() -> None:
    lost = cut(1, kind="failed sync", lost=3, syncs_failed=1)
    assert finding("L3", 1, None, [], summaries([cut(2), lost])).measured == "L4"
    assert "acknowledges what a failed sync has lost" in against("L3", [lost])[0]
    unhurt = cut(3, kind="failed sync", syncs_failed=0)
    assert "no sync failed" in (unhurt.inconclusive or "")


def test_a_loss_names_file_and_operations() -> None:
    told = {"path": "a/0.log", "lost": "data", "dropped_bytes": 4096, "survived_bytes": 0}
    file = lost_file("node-1", {**told, "written_ns": 97_000_000, "synced_ns": None}, 100_000_000)
    assert (file.written_ms, file.synced_ms) == (3.0, None)
    message = LostMessage(producer=0, sequence=7, offset=512, file=file)
    (found,) = against("L3", [cut(1, lost=1, lost_messages=[message])])
    assert (
        "Message 7 of producer 0 was at byte 512 of a/0.log on node-1, which lost 4,096 un-synced bytes (written 3 ms before the cut, "
        "never synced)." in found
    )
    (replayed,) = against("L3", [cut(1, lost=1), cut(1, replay_of=1)])
    assert "Replayed with its seed it lost 0 messages." in replayed
    (silent,) = against("L3", [cut(1, lost=1), cut(1, replay_of=1, failure="waited 180 s", balanced=False)])
    assert (
        "Replayed with its seed it told nothing: it did not come back, and its log does not say why: waited 180 s."
        in silent
    )
    (summary,) = summaries([cut(1, lost=1), cut(1, replay_of=1)])
    assert summary.cuts == 1
    nameless = LostFile(
        part="node-1", path="b", lost="name", dropped_bytes=0, survived_bytes=0, renamed_ms=2.0
    )
    assert nameless.gone == "its name (renamed 2 ms before the cut, never synced)"


class Standing(Disks):
    """Disks that stand still when they are asked for the third time, or never."""

    def __init__(self, *, comes: bool) -> None:
        self.told: list[tuple[Any, ...]] = []
        self._comes, self._asked = comes, 0

    def hold_at(self, names: Sequence[str], place: Any) -> None:
        self.told.append(("hold", *names, describe_place(place)))

    def is_held(self, names: Sequence[str]) -> bool:  # noqa: ARG002
        self._asked += 1
        return self._comes and self._asked > 2

    def release(self) -> None:
        self.told.append(("release",))

    def cut_power(self, parts: Sequence[Any], survivors: Survivors = "none", seed: int = 0) -> PowerCut:
        self.told.append(("cut", *(part.name for part in parts)))
        return PowerCut(survivors=survivors, seed=seed)


def leg_of(text: str, disks: Disks, seed: int = 1) -> FaultLeg:
    part = SimpleNamespace(name="node-1", data=("d",), process=SimpleNamespace(down_on_purpose=False))
    running = SimpleNamespace(parts=lambda: [part], knows_leaders=False, name="toy", nodes=1)
    return FaultLeg(running, read_faults(text), disks, seed=seed)  # type: ignore[arg-type]


def test_a_cut_of_a_run_waits_for_its_place_and_tells_its_kind_and_seed() -> None:
    disks = Standing(comes=True)
    leg = leg_of("power-cut:node-1@0s/rename#2/*.log", disks)
    leg._run(0.0, 0.0)
    assert disks.told == [("hold", "node-1", "rename#2/*.log"), ("cut", "node-1")]
    (made,) = leg.made
    assert made.cut is not None
    assert made.cut.survivors in DRAWN
    again = leg_of("power-cut:node-1@0s/rename#2/*.log", Standing(comes=True))
    again._run(0.0, 0.0)
    assert again.made[0].cut == made.cut
    assert f"survivors: {made.cut.survivors}, seed {made.cut.seed}" in leg.news()[0]


def test_a_place_that_does_not_come_is_a_failure_of_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.runner.faults.PLACE_WITHIN_S", 0.02)
    disks = Standing(comes=False)
    leg = leg_of("power-cut:node-1@0s/rename#2/*.log", disks)
    with pytest.raises(SystemFailure, match=r"rename#2/\*.log was not reached"):
        leg._make(leg._asked[0], 0.0)
    assert disks.told[-1] == ("release",)
