"""What the security review has shown, one by one, on runs and files that somebody else made."""

from __future__ import annotations

import json
import re
import shutil
import stat
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import sample_run
from run_fuzz import call, write_kinds
from streamgauge.fleet.trust import NotTrusted, read_token
from streamgauge.model.checked_study import parse_study
from streamgauge.model.document import parse_document
from streamgauge.model.durability import DurabilityReport
from streamgauge.store.directory import RunDirectory
from streamgauge.store.lab import Lab
from streamgauge.store.ours import claim_directory, is_claimed, remove_claimed, state_directory
from streamgauge.store.parquet import read_rows
from streamgauge.store.private import clear_logs, with_home, without_home
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.files import write_secret
from streamgauge.vocabulary.histograms import HistogramError, decode
from test_durability_study import result as durability_result
from test_study_model import TEXT, plan


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return state_directory()


@pytest.fixture
def kinds(tmp_path: Path) -> dict[str, Path]:
    return write_kinds(
        tmp_path / "runs", plan(), DurabilityReport(results=[durability_result("gauge-log-fsync")])
    )


def change(path: Path, **values: Any) -> None:
    told = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(told | values), encoding="utf-8")


def victim_in(directory: Path) -> Path:
    victim = directory / "victim"
    (victim / "data").mkdir(parents=True)
    (victim / "data" / "precious.log").write_text("do not read me\n", encoding="utf-8")
    return victim


def test_the_data_of_a_lab_that_was_killed_here_is_removed_and_its_logs_are_kept(
    kinds: dict[str, Path],
) -> None:
    trial = kinds["killed"] / "trials/002"
    change(trial / "trial.json", data_directory=str(trial / "data"))
    status, said = call(["report", str(kinds["killed"])])
    assert status == 0, said
    assert not (trial / "data").exists()
    assert (trial / "logs/node-1-server.log").read_text() == "it went on 1\n"
    assert json.loads((kinds["killed"] / "manifest.json").read_text())["status"] == "failed"


@pytest.mark.parametrize("where", ["data", ""])
def test_a_directory_that_a_run_names_is_left_alone(
    kinds: dict[str, Path], tmp_path: Path, where: str
) -> None:
    victim = victim_in(tmp_path)
    trial = kinds["killed"] / "trials/002"
    change(trial / "trial.json", data_directory=str(victim / where))
    status, said = call(["report", str(kinds["killed"])])
    assert status == 0, said
    assert (victim / "data" / "precious.log").exists()
    kept = b"".join(path.read_bytes() for path in kinds["killed"].rglob("*") if path.is_file())
    assert b"do not read me" not in kept
    warnings = json.loads((trial / "result.json").read_text())["validity"]["warnings"]
    assert any(str(victim) in warning and "left where it is" in warning for warning in warnings)


def test_data_is_left_where_the_lab_was_of_another_boot_or_still_lives(kinds: dict[str, Path]) -> None:
    run = kinds["killed"]
    lab = Lab.model_validate_json((run / "lab.json").read_text())
    for told in (
        lab.model_dump() | {"boot_id": "another"},
        lab.model_dump() | {"pid_namespace": "pid:[1]"},
        [1, 2],
    ):
        copy = run.with_name("copy")
        shutil.copytree(run, copy)
        (copy / "lab.json").write_text(json.dumps(told), encoding="utf-8")
        status, said = call(["report", str(copy)])
        assert status == 0, said
        assert (copy / "trials/002/data/node-1/server.log").exists()
        shutil.rmtree(copy)


def test_data_outside_of_a_run_is_removed_only_where_this_lab_made_it(
    kinds: dict[str, Path], tmp_path: Path
) -> None:
    trial = kinds["killed"] / "trials/002"
    made = claim_directory(tmp_path / "elsewhere" / "run-002", trial)
    (made / "data").mkdir()
    (made / "data" / "server.log").write_text("there\n", encoding="utf-8")
    assert not is_claimed(made, trial.parent / "001"), "another trial's"
    change(trial / "trial.json", data_directory=str(made / "data"))
    status, said = call(["report", str(kinds["killed"])])
    assert status == 0, said
    assert not made.exists()
    assert (trial / "logs/data-server.log").read_text() == "there\n"


def test_a_claimed_directory_that_was_replaced_is_not_removed(tmp_path: Path) -> None:
    made = claim_directory(tmp_path / "made", tmp_path)
    made.rename(tmp_path / "moved")
    made.mkdir()
    remove_claimed(made, tmp_path)
    made.rmdir()
    made.symlink_to(tmp_path / "moved")
    remove_claimed(made, tmp_path)
    with pytest.raises(InputError, match="move it away"):
        claim_directory(made, tmp_path)
    assert (tmp_path / "moved").is_dir()


@pytest.mark.usefixtures("kinds")
def test_the_key_is_its_users_alone(state: Path) -> None:
    key = state / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_a_plan_that_was_changed_is_read_and_never_carried_out(
    kinds: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    status, said = call(["study", str(kinds["study"]), "--resume", "--plan", "--out", str(out)])
    assert (status, re.search(r"2 of \d+ trials done", said) is not None) == (0, True), said
    change(kinds["study"] / "study.json", connect={"gauge-log": ["192.0.2.1:9"]})
    status, said = call(["study", str(kinds["study"]), "--resume", "--out", str(out)])
    assert status == 2
    assert "was not written by this user's lab" in said
    assert call(["report", str(kinds["study"])])[0] == 0


@pytest.mark.parametrize(
    "name", ["report.html", "trials/001/result.json", "export", "trials/001", "foreign/a.json"]
)
def test_links_in_a_run_are_refused(kinds: dict[str, Path], tmp_path: Path, name: str) -> None:
    victim = tmp_path / "bashrc"
    victim.write_text("precious", encoding="utf-8")
    link = kinds["complete"] / name
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim)
    for arguments in (["report"], ["show"], ["export", "--to", "csv"], ["compare"]):
        status, said = call([arguments[0], str(kinds["complete"]), *arguments[1:]])
        assert status == 2
        assert "is a symbolic link" in said
    assert victim.read_text() == "precious"


def test_the_link_to_the_latest_run_leads_to_a_run_beside_it(kinds: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "others"
    out.mkdir()
    (out / "latest").symlink_to(kinds["complete"])
    status, said = call(["report", "--out", str(out)])
    assert (status, "expected the name of a run beside it" in said) == (2, True)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/hostname')",
        "select * from '/etc/passwd'",
        "select * from glob('/*')",
        "copy (select 1) to 'out.csv'",
        "copy runs to 'out.parquet'",
        "install httpfs",
        "load httpfs",
        "attach 'x.db' as x",
        "export database 'x'",
        "set enable_external_access = true",
        "pragma database_list; select 1",
        "select 1; copy (select 1) to 'out.csv'",
        "create table t as select 1",
        "explain analyze copy (select 1) to 'out.csv'",
        "select getenv('HOME')",
    ],
)
@pytest.mark.usefixtures("kinds")
def test_a_query_reads_the_runs_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    status, said = call(["query", sql, "--out", str(tmp_path / "runs")])
    assert status == 2, said
    assert "error: " in said
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.usefixtures("kinds")
def test_a_query_answers_still(tmp_path: Path) -> None:
    sql = "select r.run_id, count(*), sum(i.acked_msgs) from intervals i join runs r using (run_id) group by all"
    status, said = call(["query", sql, "--to", "csv", "--out", str(tmp_path / "runs")])
    assert status == 0, said
    assert "20260921-141320-complete," in said


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (bomb(9), "holds more than"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested more than"),
        ("a:\n" + "".join(" " * depth + "b:\n" for depth in range(1, 400)), "nested more than"),
        ("a: [" + "1," * 150_000 + "1]", "holds more than"),
    ],
)
def test_documents_that_grow_are_refused_with_their_line(text: str, complaint: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(
        InputError,
        match=rf"x\.yaml:\d+: is not valid YAML: it {'is ' if 'nested' in complaint else ''}{complaint}",
    ):
        parse_document(text, "x.yaml")
    assert time.monotonic() - began_s < 20, "without bounds it took 25 s on a quiet machine, and now some ms"


def test_aliases_of_a_person_are_read() -> None:
    assert parse_document("a: &a {b: 1}\nc: *a\nd: [*a, *a]", "x.yaml").values["d"] == [{"b": 1}, {"b": 1}]


@pytest.mark.parametrize(
    "link",
    ["javascript:alert(1)", "data:text/html,x", "//x.org", "https://", "https://x.org/ y", "file:///etc"],
)
def test_links_of_studies_lead_to_the_web(link: str) -> None:
    text = TEXT.replace('published: "2026"', f'published: "2026", link: "{link}"')
    with pytest.raises(
        InputError, match=r"small\.yaml:4: source\.link: expected an address that begins with https"
    ):
        parse_study(text, "small.yaml", systems())
    parse_study(text.replace(link, "https://example.org/a?b=c"), "small.yaml", systems())


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    write_secret(file, b"t0ken\n")
    assert read_token(file) == "t0ken"
    file.chmod(0o644)
    with pytest.raises(NotTrusted, match=r"can be read by everybody \(mode 0644\): chmod 600"):
        read_token(file)


def test_a_secret_replaces_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("x", encoding="utf-8")
    (tmp_path / "cookie").symlink_to(tmp_path / "other")
    write_secret(tmp_path / "cookie", b"secret", 0o400)
    assert stat.S_IMODE((tmp_path / "cookie").lstat().st_mode) == 0o400
    assert (tmp_path / "other").read_text() == "x"


def packed(body: bytes, digits: int = 3, lowest: int = 1, highest: int = 3_600_000_000_000) -> bytes:
    plain = struct.pack(">iiiiqqd", 0x1C849313, len(body), 0, digits, lowest, highest, 1.0) + body
    content = zlib.compress(plain)
    return struct.pack(">ii", 0x1C849314, len(content)) + content


@pytest.mark.parametrize(
    "payload",
    [
        packed(b"\0" * (50 << 20)),
        packed(b"\x02" * 100_000),
        packed(sample_run.leb128_zigzag(np.array([1 << 50]))),
        packed(sample_run.leb128_zigzag(np.array([-40_000])) + b"\x02"),
        packed(b"\x02", digits=5, lowest=1 << 61, highest=(1 << 63) - 1),
        packed(b"\x02", digits=0, lowest=1, highest=2)[:-1],
        b"",
    ],
)
def test_histograms_that_are_none_are_refused(payload: bytes) -> None:
    with pytest.raises(HistogramError):
        decode(payload)


@pytest.mark.parametrize(
    "columns",
    [
        {"interval": pa.array(["x"])},
        {"interval": pa.array([-1], pa.int32())},
        {"interval": pa.array([None], pa.int32())},
        {"interval": pa.array([1], pa.int32()), "start_s": pa.array([float("nan")])},
        {"interval": pa.array([1], pa.int32()), "start_s": pa.array([0.0]), "duration_s": pa.array([-1.0])},
        {"interval": pa.array([1] * 6_000_000, pa.int32())},
        {"worker": pa.array(["x" * 100_000]), "interval": pa.array([1], pa.int32()), "start_s": pa.array([0.0]), "duration_s": pa.array([1.0])},
    ],
)  # fmt: skip
def test_tables_that_are_none_are_refused(tmp_path: Path, columns: dict[str, Any]) -> None:
    from streamgauge.model.result_columns import INTERVAL_COLUMNS

    parquet.write_table(pa.table(columns), tmp_path / "intervals.parquet")
    with pytest.raises(InputError, match="is no table of a trial"):
        read_rows(tmp_path / "intervals.parquet", INTERVAL_COLUMNS)


def test_a_run_does_not_tell_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "ann"
    monkeypatch.setenv("HOME", str(home))
    assert without_home(f"--out {home}/runs {home}na/x {home}") == f"--out ~/runs {home}na/x ~"
    assert with_home("~/runs/1") == home / "runs/1"
    run = RunDirectory(tmp_path / "run")
    sample_run.write_run(run.path, asked=sample_run.workload(seconds=4, warmup_s=1.0))
    manifest = run.read_manifest().model_copy(
        update={"command": ["streamgauge", "run", "--out", str(home / "runs")]}
    )
    run.write_manifest(manifest)
    run.trial(1).append_event({"event": "x", "file": str(home / "x")})
    log = run.trial(1).logs / "node-1" / "server.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"log.dirs={home}/runs/data\n", encoding="utf-8")
    clear_logs(run.trial(1).logs)
    assert call(["report", str(run.path)])[0] == 0
    for path in run.path.rglob("*"):
        assert path.is_dir() or str(home).encode() not in path.read_bytes(), path
    monkeypatch.setenv("HOME", "/")
    assert without_home("/etc") == "/etc"


def test_the_scripts_of_a_report_are_the_only_ones_that_run(kinds: dict[str, Path]) -> None:
    for kind in ("complete", "study", "durability"):
        call(["report", str(kinds[kind])])
        page = (kinds[kind] / "report.html").read_text()
        policy = page.partition('Content-Security-Policy" content="')[2].partition('"')[0]
        scripts = policy.partition("script-src")[2]
        assert "unsafe" not in scripts
        assert ("sha256-" in scripts) == (kind != "durability")


def test_what_can_be_recorded_can_be_read() -> None:
    assert decode(sample_run.encode(np.array([1, 3_600_000_000_000]))).count == 2
