"""The HTML report of a run: one file, no request to anywhere, readable without JavaScript.

Python prepares all text and figures, templates/run.html is the page; the charts are drawn by assets/report.js with uPlot from a JSON
island. The assets are plain files, put into the page as they are. A content security policy in the page forbids every
request, so that a report can be passed on safely.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamgauge.analysis.cells import Cell
from streamgauge.model.result import TrialResult
from streamgauge.report import (
    charts,
    colours,
    curve,
    encryption,
    evidence,
    profiles,
    quiet_words,
    tables,
    words,
)
from streamgauge.report.answer import answer
from streamgauge.report.assets_of import CHART_SCRIPTS, asset, policy
from streamgauge.report.glossary import TERMS
from streamgauge.report.pages import inline
from streamgauge.report.pages import render as render_page
from streamgauge.report.run import Run, read_run
from streamgauge.store.files import write_atomically
from streamgauge.vocabulary.format import every, instant, joined, plural, seconds, significant, size, trimmed

REPORT_NAME = "report.html"
HERO_CELLS_MAX = 6
"""More systems than this are compared in the table, not on cards."""


def write(run_dir: Path, name: str = REPORT_NAME) -> Path:
    """Writes the report (`report.html`, unless another name is given) into a run directory and returns its path.

    Raises InputError when the directory is no run or a file in it is damaged.
    """
    write_atomically(run_dir / name, render(read_run(run_dir)))
    return run_dir / name


def render(run: Run) -> str:
    """The page as text."""
    data = charts.data(run)
    labels = [subject["label"] for subject in data["subjects"]]
    licence = asset("uPlot.LICENSE").replace("*/", "")
    plots = f"/* uPlot:\n{licence}\n*/\n{asset('uPlot.iife.min.js')}"
    script = "".join(asset(name) for name in CHART_SCRIPTS)
    profiled = profiles.figures(run, labels)
    flames = asset("flames.js") if profiled else ""
    return render_page(
        "run.html",
        title=title(run),
        policy=inline(policy(plots, script, *([flames] if flames else []))),
        masthead=masthead(run),
        hero=hero(run, labels),
        curve=curve.figures(run.curves),
        summary=tables.summary(run, labels),
        encryption=list(encryption.grids(run.cells)),
        profiles=profiled,
        flames=inline(charts.island(profiles.island(profiled))),
        limits=evidence.limits(run, labels),
        trials=evidence.trials(run),
        settings=evidence.settings(run),
        terms=TERMS,
        manifest=run.manifest,
        data=inline(charts.island(data)),
        scripts=[inline(one) for one in (plots, script, flames) if one],
    )


def title(run: Run) -> str:
    """What was measured, for the window's title and the page's first line."""
    names = list(dict.fromkeys(words.system_name(cell.first) for cell in run.cells))
    names += [name for name in dict.fromkeys(foreign.driver for foreign in run.foreign) if name not in names]
    if not names:
        return "No trial was completed"
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    loads = list(dict.fromkeys(words.load(cell.first.workload) for cell in run.cells))
    if len(loads) == 1:
        return f"{joined(shown)} at {loads[0]}"
    if run.curves and len({cell.first.workload.name for cell in run.cells}) == 1:
        return f"{joined(shown)}: {curve.span(run.curves)}"
    workloads = len({cell.first.workload.name for cell in run.cells})
    return f"{joined(shown)} under {plural(workloads, 'workload')}" if workloads else joined(shown)


def masthead(run: Run) -> dict[str, Any]:
    """First line, what was measured on what, and the verdict."""
    verdict = words.verdict(run.results)
    if run.foreign and not run.results:
        verdict = words.Verdict(
            "foreign", "Foreign results: nobody audited them or checked their generator.", "warn"
        )
    status = run.manifest.status if run.manifest else "complete"
    return {
        "heading": _heading(run),
        "facts": _facts(run),
        "answer": answer(run.results) if len({cell.first.workload.name for cell in run.cells}) == 1 else "",
        "verdict": verdict,
        "unfinished": None if status == "complete" else status,
    }


def _heading(run: Run) -> str:
    """The title with names that do not break in the middle."""
    text = title(run)
    # A name may be the beginning of another.
    for name in sorted({words.system_name(cell.first) for cell in run.cells}, key=len, reverse=True):
        text = text.replace(name, name.replace(" ", "\u00a0"))
    return text.replace(" msg/s", "\u00a0msg/s")


def _facts(run: Run) -> list[str]:
    facts: list[str] = []
    shapes = {words.shape(cell.first.workload) for cell in run.cells}
    if len(shapes) == 1:
        facts.append(shapes.pop())
    if run.results:
        first = run.results[0].workload
        facts.append(f"{seconds(first.duration_s)} measured after {words.warm_up(run.results)} of warm-up")
        repeats = {len(cell.trials) for cell in run.cells}
        if repeats != {1}:
            facts.append(f"{plural(len(run.results), 'trial')}, figures are medians")
    facts += words.meanings(run.results)
    if run.manifest:
        host = run.manifest.host
        machine = []
        if host.get("cpu_model"):
            machine.append(str(host["cpu_model"]))
        if host.get("cores"):
            machine.append(plural(int(host["cores"]), "core"))
        if host.get("memory_bytes"):
            machine.append(f"{trimmed(host['memory_bytes'] / (1 << 30))} GiB")
        facts.append(", ".join(machine))
        facts.append(instant(run.manifest.started_unix_ms))
    return [fact for fact in facts if fact]


def hero(run: Run, labels: Sequence[str]) -> dict[str, Any] | None:
    """The few figures that a reader takes away, one card per system; None where they are too many, or of several workloads."""
    found = run.cells
    if not 1 <= len(found) <= HERO_CELLS_MAX or len({cell.first.workload.name for cell in found}) > 1:
        return None
    if run.curves:
        # The curve says it.
        return None
    worst = max((cell.median(lambda trial: trial.headline_ms.p99) or 0.0 for cell in found), default=0.0)
    every_trial = [trial for cell in found for trial in cell.trials]
    notices = (
        words.doubtful_clocks(every_trial),
        words.mixed_levels([cell.first for cell in found]),
        words.untold(every_trial),
    )
    return {
        "notices": [text for text in notices if text],
        "cards": [
            _card(cell, colour.css, label, worst)
            for cell, colour, label in zip(found, colours.of_cells(found), labels, strict=False)
        ],
    }


def _card(cell: Cell, colour: str, label: str, worst: float) -> dict[str, Any]:
    trial = cell.first
    validity, audit = words.cell_validity(cell), words.cell_audit(cell)
    publish = cell.middle(lambda result: result.headline_ms.p99)
    name = trial.headline
    spread = ""
    if publish is not None and publish.trials > 1:
        low, high = (significant(bound) for bound in publish.bounds)
        spread = f"{publish.kind} over {plural(publish.trials, 'trial')}: {low} to {high}"
        if low == high:
            spread = f"the same in {every(publish.trials, 'trial')}"
    return {
        "valid": not all(trial.validity.is_invalid for trial in cell.trials),
        "colour": colour,
        "label": label,
        "about": f"{words.system_name(trial)}, {words.layout(trial)}",
        "headline": name,
        "p99": quiet_words.latency_text(cell, f"{name}_ms", "p99"),
        "width_percent": 0.0 if publish is None or not worst else 100 * publish.median / worst,
        "spread": spread,
        "figures": [
            (f"{name} p50", quiet_words.latency_text(cell, f"{name}_ms", "p50"), "ms"),
            (f"{name} p99.9", quiet_words.latency_text(cell, f"{name}_ms", "p99_9"), "ms"),
            ("end-to-end p99", quiet_words.latency_text(cell, "end_to_end_ms", "p99"), "ms"),
            (
                "throughput",
                significant(cell.median(lambda result: result.standing_rate("publish_rate_mb_s"))),
                "MB/s",
            ),
            ("memory", _memory(cell), ""),
            ("system CPU", significant(cell.median(lambda one: one.cpu.system_us_per_msg)), "\u00b5s/msg"),
        ],
        "tone": words.worst_tone(validity, audit),
        "word": validity.word if audit.tone == "good" else f"{validity.word}; audit {audit.word}",
    }


def _memory(cell: Cell) -> str:
    def rss(trial: TrialResult) -> float | None:
        return float(sum(process.rss_bytes_max for process in trial.processes)) if trial.processes else None

    return size(cell.median(rss))
