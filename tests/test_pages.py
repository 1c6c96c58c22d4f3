"""The pages of comparisons and histories: the same words as in the terminal, what differs first, one file without requests."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from sample_run import KAFKA, LOG, Shape, workload, write_run
from streamgauge.cli.app import run as program
from streamgauge.vocabulary.levels import LEVELS, MEANINGS

NATS = replace(LOG, system="nats", title="NATS JetStream", version="2.12", publish_ms=0.5)


def renamed(directory: Path, *, days: int = 0, **host: Any) -> None:
    """A sample run becomes another one, of another machine and time."""
    manifest = json.loads((directory / "manifest.json").read_text("utf-8"))
    manifest["run_id"] = directory.name
    manifest["host"] |= host
    manifest["started_unix_ms"] += days * 86_400_000
    (directory / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    for path in directory.glob("trials/*/result.json"):
        result = json.loads(path.read_text("utf-8"))
        result |= {"run_id": directory.name, "started_unix_ms": result["started_unix_ms"] + days * 86_400_000}
        path.write_text(json.dumps(result), encoding="utf-8")


def made(out: Path, name: str, shapes: Sequence[Shape], repeats: int = 1, **host: Any) -> None:
    write_run(out / name, shapes, workload(rate=300, seconds=4), repeats=repeats)
    renamed(out / name, **host)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("runs")
    made(found, "a", (KAFKA, LOG), repeats=3)
    made(found, "b", (NATS,), repeats=3, cores=8, cpu_model="Another <CPU>")
    made(found, "c", (replace(KAFKA, version="4.4.0", publish_ms=4.0),), repeats=3)
    return found


def text_of(page: str) -> str:
    body = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def compared(out: Path, capsys: pytest.CaptureFixture[str], *sides: str) -> tuple[str, str]:
    """The page, and what the terminal said."""
    assert program(["compare", *sides, "--out", str(out), "--html", str(out / "page.html")]) == 0
    return (out / "page.html").read_text("utf-8"), capsys.readouterr().out


def test_three_sides_are_compared_with_the_first_in_the_terminals_words(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, said = compared(out, capsys, "a:kafka", "b", "c")
    text = text_of(page)
    verdicts = [line for line in said.splitlines() if line.endswith("valid trials).")]
    assert len(verdicts) == 2
    for verdict in verdicts:
        assert verdict in text
    assert text.index(verdicts[0]) < text.index("By how much") < text.index("Settings beside each other")
    assert text.count("The same in figures") == 2, "a table behind each plot"
    assert page.count('role="img"') == 2


def test_machines_that_differ_come_before_every_figure(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, said = compared(out, capsys, "a:kafka", "b")
    told = "Measured on machines that differ, so that a difference may be the machine's: CPU: Synthetic CPU @ 2.60GHz and Another <CPU>; cores: 2 and 8."
    assert said.startswith(told)
    text = text_of(page)
    assert text.index(told) < text.index("valid trials")
    assert "Another <CPU>" not in page, "a run is data, and no markup"
    alike, said = compared(out, capsys, "a:kafka", "c")
    assert "machines that differ" not in text_of(alike) + said


def test_settings_that_differ_come_first_and_levels_say_what_they_mean(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = text_of(compared(out, capsys, "a:kafka", "c")[0])
    differ, alike = text.index("What differs"), text.index("that are alike")
    assert differ < text.index("version 4.3.1 4.4.0") < alike
    assert "L4: acknowledged when in one node's memory" in text


def test_a_run_of_several_systems_has_its_first_as_the_base(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, _ = compared(out, capsys, "a")
    assert "Reference log 0.1.0 against Apache Kafka 4.3.1" in text_of(page)
    assert program(["compare", "b", "--out", str(out)]) == 2
    assert "two runs or more" in capsys.readouterr().err


def test_what_has_nothing_beside_it_is_named(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(compared(out, capsys, "a", "c:kafka")[0])
    assert "only a has gauge-log, 1-topic-16-partitions-100b" in text


def test_pages_ask_for_nothing_and_run_their_own_scripts_alone(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, _ = compared(out, capsys, "a:kafka", "b", "c")
    assert "default-src 'none'" in page
    assert re.findall(r"""(?:src|href)=["'](?!#|data:,)[^"']+""", page) == []
    assert page.count("<script>") == 1


def test_a_level_means_six_words() -> None:
    assert set(MEANINGS) == set(LEVELS)
    assert {len(words.split()) for words in MEANINGS.values()} == {6}


def test_a_history_shows_where_it_changed_and_what_tells_histories_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in range(12):
        shape = KAFKA if day < 6 else replace(KAFKA, version="4.4.0", publish_ms=3.0)
        name = f"run-{day:02d}"
        write_run(tmp_path / name, (shape,), workload(rate=200, seconds=3))
        renamed(tmp_path / name, days=day)
    write_run(tmp_path / "other", (KAFKA,), workload(rate=200, seconds=3, linger_ms=9.0))
    renamed(tmp_path / "other")
    page = tmp_path / "history.html"
    asked = ["history", "1-topic-16-partitions-100b", "--figure", "publish_ms.p50", "--out", str(tmp_path)]
    assert program([*asked, "--html", str(page)]) == 0
    said = capsys.readouterr().out
    text = text_of(page.read_text("utf-8"))
    summary = next(line for line in said.splitlines() if line.startswith("The level last changed"))
    assert "run-06" in summary
    assert summary in text
    assert "200 msg/s, 100 B, 3 s, linger ms 1.0" in text
    assert "200 msg/s, 100 B, 3 s, linger ms 9.0" in text
    assert page.read_text("utf-8").count('class="change"') == 1
    assert "4.4.0" in text, "versions stand at the foot"
    assert text.count("The runs in a table") == 2
