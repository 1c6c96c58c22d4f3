"""A packed run is the same file each time, says nothing of where it was measured, and cannot harm whoever opens it."""

from __future__ import annotations

import json
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import passed_on
import pytest
from streamgauge.analysis.verify.whole import verify
from streamgauge.cli.app import run as program
from streamgauge.cli.passed_on import told_level
from streamgauge.model.result_columns import INTERVAL_COLUMNS
from streamgauge.store import submission
from streamgauge.store.parquet import read_rows
from streamgauge.store.redaction import Redaction
from streamgauge.store.submission import LIST_NAME, pack, unpack
from streamgauge.vocabulary.errors import InputError


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = passed_on.unpacked(passed_on.FIXED_RATE, tmp_path / "one")
    pack(run, tmp_path / "1.zip")
    for path in run.path.rglob("*"):
        path.touch()
    again = shutil.copytree(run.path, tmp_path / "elsewhere" / run.run_id)
    pack(type(run)(again), tmp_path / "2.zip")
    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()


def test_what_is_left_out_is_listed_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = passed_on.unpacked(passed_on.FIXED_RATE, tmp_path / "one")
    logs = run.path / "trials/001/logs"
    logs.mkdir()
    (logs / "gauge-log.log").write_text("ready 10.1.2.3:9092\n", "utf-8")
    (logs / "gc.log").write_text("[0.1s] Pause Young 1.2ms\n", "utf-8")
    (run.path / "report.html").write_text("<p>", "utf-8")
    (run.path / "repeated/001").mkdir(parents=True)
    (run.path / "repeated/001/result.json").write_text("{}", "utf-8")
    assert program(["submit", str(run.path), "--file", str(tmp_path / "1.zip")]) == 0
    said = capsys.readouterr().out
    for told in ("report.html", "logs of systems and workers (1 files)", "trials that do not count"):
        assert told in said
    listed = unpack(tmp_path / "1.zip", tmp_path / "u1").listed
    assert {one.what.split(" ")[0] for one in listed.left_out} == {
        "report.html",
        "repeated/001/result.json",
        "logs",
    }
    names = {one.name for one in listed.files}
    assert "trials/001/logs/gc.log" in names, "the tail is explained by it"
    assert program(["submit", str(run.path), "--file", str(tmp_path / "2.zip"), "--with-logs"]) == 0
    opened = unpack(tmp_path / "2.zip", tmp_path / "u2").run
    assert (opened.path / "trials/001/logs/gauge-log.log").read_text("utf-8") == "ready host-1:9092\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ann/runs/data", "[path]/data"),
        ("-Xlog:gc:/home/ann/gc.log:time", "-Xlog:gc:[path]/gc.log:time"),
        ("~/runs/x", "[path]/x"),
        ("wrote to /tmp", "wrote to [path]/tmp"),
        ("50,000 msg/s of 100 B, 1/2", "50,000 msg/s of 100 B, 1/2"),
        ("docs/troubleshooting.md#disturbed", "docs/troubleshooting.md#disturbed"),
        ("kafka-1.example.com:9092,kafka-2.example.com:9092", "host-1:9092,host-2:9092"),
        ("PLAINTEXT://broker7:9092", "PLAINTEXT://host-1:9092"),
        ("http://10.1.2.3:8080/admin", "http://host-1:8080/admin"),
        ("https://ann:secret@proxy:3128", "https://[secret]@host-1:3128"),
        ("127.0.0.1:9092 localhost:9092 0.0.0.0 [::1]:1", "127.0.0.1:9092 localhost:9092 0.0.0.0 [::1]:1"),
        ("fe80::1 and 2001:db8::7", "host-1 and host-2"),
        ("fifo:10 14:02:59 4.3.1", "fifo:10 14:02:59 4.3.1"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.abc", "[secret]"),
        ("-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----", "[secret]"),
        ("java.util.concurrent", "java.util.concurrent"),
    ],
)
def test_texts_lose_what_they_say_of_the_place(text: str, expected: str) -> None:
    assert Redaction().text(text) == expected


def test_hosts_are_told_apart_and_stay_when_asked_for() -> None:
    redaction = Redaction(links=["https://www.example.org/a/study"])
    assert redaction.text("link: https://www.example.org/a/study") == "link: https://www.example.org/a/study"
    redaction = Redaction()
    assert redaction.text("a1:9092 b2:9092") == "host-1:9092 host-2:9092"
    assert redaction.text("b2:9093") == "host-2:9093"
    assert Redaction(with_hosts=True).text("b2:9093 in /srv/x") == "b2:9093 in [path]/x"
    assert (
        Redaction(machines=["rack7"]).text("2 of 8 cores were busy on rack7 (rack77)")
        == "2 of 8 cores were busy on host-1 (rack77)"
    )
    told = {"sasl.password": "hunter2", "delegation.token.max": "7", "ssl.key.password": None, "n": 1}
    assert redaction.value(told) == {**told, "sasl.password": "[secret]"}


def test_no_name_of_this_place_is_in_a_packed_run() -> None:
    for file in (passed_on.ARRIVALS, passed_on.FIXED_RATE):
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                content = archive.read(entry)
                assert entry.date_time == (1980, 1, 1, 0, 0, 0)
                for told in (b"/work/", b"/home/", b"/root", b"/tmp/", str(Path.home()).encode()):
                    assert told not in content, (entry.filename, told)


def members(source: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(source) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(path: Path, files: dict[str, bytes], **attributes: int) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as sink:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = attributes.get(name.replace(".", "_"), 0)
            sink.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return path


def changed(**files: bytes) -> Callable[[Path], Path]:
    return lambda path: written(path, {**members(passed_on.FIXED_RATE), **files})


def named(name: str) -> Callable[[Path], Path]:
    return changed(**{name: b"x"})


def without(name: str) -> Callable[[Path], Path]:
    return lambda path: written(
        path, {key: value for key, value in members(passed_on.FIXED_RATE).items() if key != name}
    )


def a_link(path: Path) -> Path:
    return written(
        path,
        {**members(passed_on.FIXED_RATE), "study.json": b"/etc/passwd"},
        study_json=(stat.S_IFLNK | 0o777) << 16,
    )


def cut_off(path: Path) -> Path:
    path.write_bytes(passed_on.FIXED_RATE.read_bytes()[:-400])
    return path


def with_a_lie_about_its_list(path: Path) -> Path:
    content = bytearray(passed_on.FIXED_RATE.read_bytes())
    content[-14:-10] = struct.pack("<HH", 60_000, 60_000)
    path.write_bytes(bytes(content))
    return path


def with_a_lie_about_a_size(path: Path) -> Path:
    """A file that unpacks to more than it says."""
    written(path, {**members(passed_on.FIXED_RATE), "trials/001/acks.csv": b"0" * 50_000_000})
    content = path.read_bytes()
    path.write_bytes(content.replace(struct.pack("<L", 50_000_000), struct.pack("<L", 10)))
    return path


def twice(path: Path) -> Path:
    written(path, members(passed_on.FIXED_RATE))
    with zipfile.ZipFile(path, "a") as sink, pytest.warns(UserWarning, match="Duplicate"):
        sink.writestr("manifest.json", b"{}")
    return path


def with_another_name(path: Path) -> Path:
    listed = json.loads(members(passed_on.FIXED_RATE)[LIST_NAME])
    return changed(**{LIST_NAME: json.dumps({**listed, "run_id": "../../evil"}).encode()})(path)


HOSTILE: dict[str, Callable[[Path], Path]] = {
    "a name that leads out": named("../evil.json"),
    "a name that leads out below": named("trials/001/logs/../../../../evil"),
    "an absolute name": named("/tmp/evil.json"),
    "a name of Windows": named("trials\\001\\evil.json"),
    "a file that no run has": named("trials/001/evil.sh"),
    "a directory": named("trials/001/logs/"),
    "a link": a_link,
    "no list": without(LIST_NAME),
    "no manifest": without("manifest.json"),
    "a list that is none": changed(**{LIST_NAME: b"[1, 2]"}),
    "a list that explodes": changed(**{LIST_NAME: b"[" * 100_000}),
    "a run that is called elsewhere": with_another_name,
    "cut off": cut_off,
    "a lie about its list": with_a_lie_about_its_list,
    "a lie about a size": with_a_lie_about_a_size,
    "a file twice": twice,
    "no zip": lambda path: (path.write_bytes(b"PK" * 1000), path)[1],
    "nothing": lambda path: (path.write_bytes(b""), path)[1],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    file = HOSTILE[name](tmp_path / "hostile.zip")
    with pytest.raises(InputError):
        unpack(file, place)
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(place)]
    assert outside == [file]
    assert program(["verify", str(file)]) == 2
    assert "hostile.zip" in capsys.readouterr().err


def test_what_unpacks_to_more_than_any_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = written(
        tmp_path / "bomb.zip", {**members(passed_on.FIXED_RATE), "trials/001/acks.csv": b"0" * 3_000_000}
    )
    assert bomb.stat().st_size < 60_000
    monkeypatch.setattr(submission, "MEMBER_BYTES_MAX", 1_000_000)
    with pytest.raises(InputError, match="more than any run"):
        unpack(bomb, tmp_path / "1")
    monkeypatch.undo()
    monkeypatch.setattr(submission, "UNPACKED_BYTES_MAX", 2_000_000)
    with pytest.raises(InputError, match="more than any run"):
        unpack(bomb, tmp_path / "2")


def test_imported_results_cannot_be_packed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run/foreign").mkdir(parents=True)
    assert program(["submit", str(tmp_path / "run"), "--file", str(tmp_path / "1.zip")]) == 2
    assert "nothing in them that could be checked" in capsys.readouterr().err


def test_names_of_machines_in_tables_are_replaced_and_the_figures_stay(tmp_path: Path) -> None:
    run = passed_on.unpacked(passed_on.FIXED_RATE, tmp_path / "one")
    trial = run.path / "trials/001"

    def elsewhere(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        return [{**row, "worker": "load-7.example.com:8080"} for row in rows]

    passed_on.rewrite(trial, elsewhere)
    with (trial / "events.jsonl").open("a") as sink:
        sink.write('{"unix_ms": 17955')
    pack(run, tmp_path / "1.zip")
    opened = unpack(tmp_path / "1.zip", tmp_path / "u")
    rows = read_rows(opened.run.path / "trials/001/intervals.parquet", INTERVAL_COLUMNS)
    assert {row["worker"] for row in rows} == {"host-1:8080"}
    assert verify(opened.run, told_level, opened.wrong).grade == "verified"


def test_names_of_machines_whose_disks_were_probed_are_replaced(tmp_path: Path) -> None:
    run = passed_on.unpacked(passed_on.FIXED_RATE, tmp_path / "one")
    figures = dict.fromkeys(("write_mb_s", "read_mb_s", "fsync_ms_p50", "fsync_ms_p99"), 1.0)
    figures |= dict.fromkeys(("fsync_ms_p99_9", "fsync_ms_max"), 1.0)
    probed = {
        **figures,
        "host": "rack7",
        "dir": "/mnt/rack7/data-1/probe",
        "written_bytes": 1,
        "is_direct": True,
    }
    manifest = json.loads((run.path / "manifest.json").read_text("utf-8"))
    manifest["disks"] = [{**probed, "fsyncs": 1, "started_unix_ms": 1}]
    (run.path / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    pack(run, tmp_path / "1.zip")
    opened = unpack(tmp_path / "1.zip", tmp_path / "u").run
    (disk,) = opened.read_manifest().disks
    assert disk.host == "host-1"
    assert "rack7" not in (opened.path / "manifest.json").read_text("utf-8")
    assert disk.write_mb_s == 1.0


def test_what_is_no_run_is_not_packed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in (
        ("manifest.json", b"{"),
        ("trials/001/events.jsonl", b"x\n"),
        ("trials/001/intervals.parquet", b"PAR1"),
    ):
        run = passed_on.unpacked(passed_on.FIXED_RATE, tmp_path / name.replace("/", "-"))
        (run.path / name).write_bytes(content)
        assert program(["submit", str(run.path), "--file", str(tmp_path / "1.zip")]) == 2
        assert Path(name).name in capsys.readouterr().err
        assert not (tmp_path / "1.zip").exists()
