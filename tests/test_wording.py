"""Texts say what is so: counts with their nouns, figures with the bounds that they have, parts within their whole."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from sample_run import KAFKA, LOG, sample_trial, workload, write_run
from sources import files, nodes
from streamgauge.analysis.bottleneck import window_limit
from streamgauge.analysis.cells import Cell, cells
from streamgauge.analysis.compare import compare
from streamgauge.analysis.limits import shares
from streamgauge.cli.bench import BENCH_WARM_UP, BENCH_WORKLOAD
from streamgauge.cli.compare import print_comparison
from streamgauge.cli.runs import list_
from streamgauge.cli.study_trials import _say_plan
from streamgauge.model.checked_study import read_study
from streamgauge.model.named_workload import find_workload
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import read_workload
from streamgauge.model.result import TrialResult
from streamgauge.model.result_base import Latency
from streamgauge.model.result_machine import Cpu, Limits
from streamgauge.model.result_special import WarmUpResult
from streamgauge.model.scaling import Machine
from streamgauge.model.study_planning import Wishes, plan_study
from streamgauge.report import charts, evidence, html, words
from streamgauge.report.glossary import TERMS
from streamgauge.report.run import read_run
from streamgauge.runner import resources
from streamgauge.store.directory import RunDirectory
from streamgauge.systems.registry import systems
from streamgauge.systems.support.network import is_here
from streamgauge.vocabulary.errors import InputError, nearest
from streamgauge.vocabulary.format import every, plural, significant
from streamgauge.vocabulary.units import parse_rate

ASKED = workload(rate=2000, seconds=12)
PACKAGE = Path(html.__file__).parents[1]
TEMPLATES = PACKAGE / "report/templates"


@pytest.mark.parametrize(
    ("number", "noun", "told"),
    [
        (0, "trial", "0 trials"),
        (1, "partition", "1 partition"),
        (12_000, "message", "12,000 messages"),
        (1, "copy", "1 copy"),
        (2, "copy", "2 copies"),
    ],
)
def test_a_noun_goes_with_its_number(number: int, noun: str, told: str) -> None:
    assert plural(number, noun) == told


def test_two_of_two_are_both() -> None:
    assert [every(number, "trial") for number in (1, 2, 3)] == ["the trial", "both trials", "all 3 trials"]


COUNTED = re.compile(
    r"(?<!,)\}\s(trials|nodes|partitions|intervals|cells|claims|statements|pairs|runs|hosts|copies)\b(?! already)|\(s\)|'s'|\"s\""
)
"""A count in an f-string or a template, and its noun; with thousands separated it is a count of messages or samples in bulk."""
NEVER_ONE = {
    ("answer.py", "f'{count} of {total} trials: {reason}"),
    ("answer.py", "f'{joined([str(count) for count in ratio.counts])} trials"),
    ("answer.py", "f'{ratio.rounds} trials each"),
    ("durability.py", "f'waits for all {count} copies"),
    ("history.py", "f'No change of level shows in"),
    ("match.py", "f'{what} has {len(several)} cells"),
    ("steadiness.py", "f'No drift, cycle or jump shows in"),
    ("steadiness.py", "f'The {kind.title} swings with"),
    ("words.py", "f'{valid} of {len(cell.trials)} trials"),
    ("words.py", "f'{total - invalid} of {total} trials"),
}
"""Of these there are always more, or the sentence is another one."""


def test_no_text_counts_one_trials() -> None:
    """A count and its noun go through `plural`."""
    found = [
        f"{file.name}: {text}"
        for file in sorted([*files(), *TEMPLATES.glob("*.html")])
        for text in _texts(file)
        if COUNTED.search(text) and not re.search(r"[A-Z]{3}\} ", text)
        if not any(file.name == name and text.startswith(begin) for name, begin in NEVER_ONE)
    ]
    assert found == []


def _texts(file: Path) -> list[str]:
    """The f-strings of a file, with their expressions as they are written; the lines of a template."""
    if file.suffix == ".html":
        return file.read_text("utf-8").splitlines()
    return [ast.unparse(node) for node in nodes(file) if isinstance(node, ast.JoinedStr)]


def test_no_part_of_a_text_stands_alone() -> None:
    """A string on a line of its own, after an expression that was complete, is in no text."""
    for file in files():
        for node in nodes(file):
            if isinstance(node, ast.Expr):
                assert not isinstance(node.value, ast.JoinedStr), f"{file}:{node.lineno}"


def _card(directory: Path, repeats: int) -> str:
    results = write_run(directory, (KAFKA,), ASKED, repeats=repeats)
    for number, result in enumerate(results, start=1):
        result.publish_ms.p99 = 20.0 + number
        (directory / f"trials/{number:03d}/result.json").write_text(result.model_dump_json())
    page = html.render(read_run(directory))
    found = re.search(r'<span class="spread">(.*?)</span>', page)
    assert found is not None
    return found.group(1)


def test_a_cards_spread_is_whole_and_says_what_it_is(tmp_path: Path) -> None:
    assert _card(tmp_path / "two", 2) == "smallest and largest over 2 trials: 21.0 to 22.0"
    assert _card(tmp_path / "four", 4) == "95 % interval over 4 trials: 20.5 to 24.6"
    assert "95 % interval" in TERMS["median"].definition


def _cpu(**seconds: float) -> Cpu:
    return Cpu(cores=2, duration_s=10.0, workers_share=seconds["workers_s"] / 20, steal_s=None, **seconds)


def test_the_whole_is_never_less_than_its_parts() -> None:
    """The kernel's ticks missed what slept between them: 0.13 of 2 cores, of which 0.25 were known."""
    cpu = _cpu(workers_s=1.8, system_s=0.7, others_s=0.1)
    (share, *_) = shares(
        Limits(),
        cpu,
        payload_mb_s=0.0,
        system_disk_write_mb_s=None,
        system_disk_read_mb_s=None,
        host_cpu_s=1.3,
        attached=False,
    )
    assert share.value == pytest.approx(2.6 / 20)
    assert share.explanation.startswith("0.26 of 2 cores were busy")


def test_a_cluster_on_this_machine_is_no_other_program(tmp_path: Path) -> None:
    raw = sample_trial(tmp_path, KAFKA, ASKED)
    elsewhere = raw.result(attached=True)
    here = raw.result(attached=True, cluster_here=True)
    assert "the cluster among them" in here.shares[0].explanation
    assert "the cluster" not in elsewhere.shares[0].explanation
    told = " ".join(here.validity.warnings)
    assert "what it uses of this machine counts as that of others" in told
    assert is_here("127.0.0.1:9092")
    assert is_here("localhost:9092")
    assert is_here("[::1]:9092")
    assert not is_here("192.0.2.7:9092")
    assert not is_here("no-such-host.invalid:9092")


def test_who_was_never_held_back_had_no_full_window() -> None:
    asked, service = ASKED.model_copy(update={"arrival": "poisson"}), Latency(count=1, mean=1.0)

    def told(share: float) -> str:
        limit = window_limit(asked, service, 2.0, share)
        assert limit is not None
        return limit.evidence

    assert told(0.0) == "producers were never held back: their window was never full"
    assert "less than 1 % of the time" in told(0.0004)
    assert "25 % of the time, because their window was full" in told(0.25)


@pytest.mark.parametrize("width", [60, 80, 110, 160])
def test_a_comparison_is_told_whole_at_any_width(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    from rich.console import Console

    base, other = (_at_rate(tmp_path / name, rate) for name, rate in (("a", 9880.0), ("b", 10_004.0)))
    print_comparison(compare(base, other, ["publish_rate_msgs_s"]), Console(width=width))
    text = capsys.readouterr().out
    for one in ("publish_rate_msgs_s", "9,880", "10,004", "1.013", "more repeats of each would tell"):
        assert one in text
    assert "\u2026" not in text


def test_one_format_of_figures_in_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    base, other = (_at_rate(tmp_path / name, rate) for name, rate in (("a", 9880.0), ("b", 10_004.0)))
    print_comparison(compare(base, other, ["publish_rate_msgs_s"]), Console(width=160))
    text = capsys.readouterr().out
    assert "9,880" in text
    assert "10,004" in text or "10,000" in text
    assert "e+" not in text
    assert [significant(value, 4) for value in (10_004.0, 9880.0, 1.2345e7)] == [
        "10,004",
        "9,880",
        "12,345,000",
    ]


def _at_rate(directory: Path, rate: float) -> Cell:
    result = write_run(directory, (LOG,), ASKED)[0].model_copy(update={"publish_rate_msgs_s": rate})
    return cells([result])[0]


@pytest.mark.parametrize("text", ["5x", "0.5X", "20%"])
def test_a_relative_rate_says_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected messages per second \(50000, 50k, 1.5M\)"):
        parse_rate(text)
    with pytest.raises(ValueError, match="a rate is a number of messages"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1-topic-16-partitons-100b", "did you mean '1-topic-16-partitions-100b'?"),
        ("catchup", "did you mean 'catch-up-1-topic-16-partitions-1kb'?"),
        ("1-topic-16", "did you mean '1-topic-16-partition"),
        ("simple-workloads.yaml", "no such file; did you mean 'simple-workload'?"),
        ("workloads/simple-workload.yaml", "did you mean 'simple-workload', which ships with streamgauge"),
    ],
)
def test_a_workload_that_is_none_is_told_with_the_nearest(text: str, meant: str) -> None:
    with pytest.raises(InputError, match=re.escape(meant)):
        find_workload(text)


def test_a_file_that_is_not_there_is_told_with_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "orders-small.yaml").write_text("topics: 1\n")
    with pytest.raises(InputError, match=r"no such file; did you mean '.*orders-small\.yaml'\?"):
        find_workload(str(tmp_path / "orders-smal.yaml"))
    assert nearest("xyz", ["alpha", "beta"]) == ""


def test_a_run_that_is_none_is_told_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'latest'"):
        RunDirectory.open("latst", tmp_path)


def test_a_list_of_no_runs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    list_(tmp_path, json=None)
    told = capsys.readouterr()
    assert told.out == ""
    assert f"no runs in {tmp_path}" in told.err


def test_a_workload_that_ships_names_no_file(tmp_path: Path) -> None:
    for name in ("simple-workload", "catch-up-1-topic-16-partitions-1kb"):
        assert read_workload(name).file is None
    own = tmp_path / "own.yaml"
    own.write_text("topics: 1\n")
    assert read_workload(str(own)).file == str(own)
    write_run(tmp_path, (LOG,), ASKED.model_copy(update={"name": "simple-workload", "file": None}))
    assert "streamgauge workloads simple-workload prints it" in html.render(read_run(tmp_path))


def test_writing_next_to_nothing_is_explained(tmp_path: Path) -> None:
    result = write_run(tmp_path, (LOG,), ASKED)[0]
    path = tmp_path / "trials/001/result.json"

    def told(amplification: float) -> str:
        path.write_text(result.model_copy(update={"write_amplification": amplification}).model_dump_json())
        return str(evidence.limits(read_run(tmp_path), ["log"]))

    assert "in its own memory" in told(0.0)
    assert "in its own memory" not in told(1.02)
    result.workload.compression = "lz4"
    assert "in its own memory" not in told(0.01), "what is compressed is written, and small"


def test_the_verdict_of_two_trials(tmp_path: Path) -> None:
    results: list[TrialResult] = write_run(tmp_path, (LOG,), ASKED, repeats=2)
    assert words.verdict(results).sentence.startswith("Both trials are valid.")
    assert words.verdict(results[:1]).sentence.startswith("The trial is valid.")
    results[0].validity.valid = False
    assert words.verdict(results).sentence.startswith("1 of 2 trials is valid; the other says why not.")
    assert words.cell_validity(cells(results)[0]).sentence == "1 of 2 trials is valid."


def test_warm_ups_that_ended_when_steady_are_told_as_they_were(tmp_path: Path) -> None:
    results = write_run(tmp_path, (LOG,), ASKED, repeats=2)
    assert words.warm_up(results) == "5 s"
    for result, lasted_s in zip(results, (12.0, 40.0), strict=True):
        result.warm_up = WarmUpResult(limit_s=60.0, lasted_s=lasted_s, steady=True)
        (tmp_path / f"trials/{result.trial:03d}/result.json").write_text(result.model_dump_json())
    assert words.warm_up(results) == "12 s to 40 s"
    assert "measured after 12 s to 40 s of warm-up" in html.render(read_run(tmp_path))


def test_the_bench_warms_up_until_steady_and_no_longer_than_a_minute_and_a_half() -> None:
    workload = read_workload(BENCH_WORKLOAD, Overrides.of(warmup=BENCH_WARM_UP))
    assert (workload.warmup_auto, workload.warmup_s) == (True, 90.0)


def test_the_rate_in_a_chart_ends_with_the_schedule(tmp_path: Path) -> None:
    """What follows is the rest of an interval and the drain: nothing is sent any more, and that is no rate of 0."""
    result = write_run(tmp_path, (LOG,), ASKED)[0]
    until_s = next(phase.until_s for phase in result.phases if phase.name == "measure")
    assert until_s is not None
    for phase in result.phases:
        if phase.name == "measure":
            phase.until_s = until_s - 1.5
    (tmp_path / "trials/001/result.json").write_text(result.model_dump_json())
    trial = charts.data(read_run(tmp_path))["trials"][0]
    assert trial["series"]["rate"][-2:] == [None, None]
    assert trial["series"]["cpu_gauge"][-2:] == [None, None]
    assert None not in trial["series"]["rate"][:-2]
    assert None not in trial["series"]["memory"]


def test_busy_is_what_was_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's busy times are samples at timer ticks, and miss what sleeps at each of them; its idle time is measured."""
    readings = iter([(1.0, 10.0, 100.0), (1.05, 11.75, 101.0)])
    busy: list[float] = []
    for user_s, idle_s, at_s in readings:
        times = SimpleNamespace(
            user=user_s, nice=0.0, system=0.0, irq=0.0, softirq=0.0, idle=idle_s, iowait=0.0, steal=0.0
        )
        monkeypatch.setattr("psutil.cpu_times", lambda times=times: times)
        monkeypatch.setattr("psutil.cpu_count", lambda: 2)
        monkeypatch.setattr("time.monotonic", lambda at_s=at_s: at_s)
        busy.append(resources._read_host()[0].cpu_s)
    assert busy[1] - busy[0] == pytest.approx(0.25)


def test_an_error_is_told_once(tmp_path: Path) -> None:
    result = write_run(tmp_path, (KAFKA,), ASKED)[0]
    result.errors = {"NOT_COORDINATOR": 1, "REQUEST_TIMED_OUT": 1}
    path = tmp_path / "trials/001/result.json"
    path.write_text(result.model_dump_json())
    assert html.render(read_run(tmp_path)).count("NOT_COORDINATOR") == 1, "nothing else tells it"
    result.validity.warnings.append(
        "Errors without a failed message: NOT_COORDINATOR 1, REQUEST_TIMED_OUT 12."
    )
    path.write_text(result.model_dump_json())
    assert html.render(read_run(tmp_path)).count("NOT_COORDINATOR") == 1
    assert html.render(read_run(tmp_path)).count("REQUEST_TIMED_OUT") == 2, "another number is another fact"


def test_a_plan_counts_the_cells_that_it_lists(capsys: pytest.CaptureFixture[str]) -> None:
    found = read_study("kesque-2019", systems())
    plan = plan_study(found, Wishes(scale="quick", seed=1), Machine(2, 8 << 30, 500.0))
    _say_plan(found, plan, {})
    told = capsys.readouterr().err
    listed = [line for line in told.splitlines() if re.match(r"  \S+ +\d+ x ", line)]
    starts = sum(trial.cell.startswith("warming-up") for trial in plan.trials)
    assert starts, "or the test shows nothing"
    assert f"3 rounds of {len(listed)} cells on {starts} starts of their systems" in told


def test_what_is_not_drawn_without_scripts_is_said() -> None:
    page = (TEMPLATES / "charts.html").read_text("utf-8")
    assert "Every figure is in the tables" not in page
    assert "intervals.parquet" in page


def test_levels_are_named_on_charts_of_what_waits_for_them(tmp_path: Path) -> None:
    write_run(tmp_path, (LOG,), ASKED)
    page = html.render(read_run(tmp_path))
    figures = re.findall(r'data-plot="(\w+)"( data-of-level)?', page)
    assert len(figures) == 8
    assert {name for name, marked in figures if not marked} == {"backlog", "memory", "written"}
