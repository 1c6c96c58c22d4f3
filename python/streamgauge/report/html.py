"""The HTML report of a run: one file, no request to anywhere, readable without JavaScript.

Python writes all text and tables; the charts are drawn by assets/report.js with uPlot from a JSON island. The
assets are plain files, put into the page as they are. A content security policy in the page forbids every
request, so that a report can be passed on safely.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from html import escape
from pathlib import Path

from streamgauge.analysis.cells import Cell
from streamgauge.model.result import TrialResult
from streamgauge.report import charts, encryption, evidence, tables, words
from streamgauge.report.assets_of import asset
from streamgauge.report.files import write_page
from streamgauge.report.format import instant, joined, plural, seconds, significant, size, trimmed
from streamgauge.report.run import Run, read_run

REPORT_NAME = "report.html"
HERO_CELLS_MAX = 6
"""More systems than this are compared in the table, not on cards."""


def write(run_dir: Path, name: str = REPORT_NAME) -> Path:
    """Writes the report (`report.html`, unless another name is given) into a run directory and returns its path.

    Raises ReportError when the directory is no run or a file in it is damaged.
    """
    return write_page(run_dir / name, render(read_run(run_dir)))


def render(run: Run) -> str:
    """The page as text."""
    data = charts.data(run)
    labels = [subject["label"] for subject in data["subjects"]]
    template = string.Template(asset("page.html"))
    return template.substitute(
        title=escape(title(run)),
        uplot_css=asset("uPlot.min.css"),
        css=asset("report.css"),
        masthead=masthead(run),
        hero=hero(run, labels),
        summary=tables.summary(run, labels) + encryption.section(run.cells),
        charts=charts_section(),
        limits=evidence.limits(run, labels),
        trials=evidence.trials(run),
        settings=evidence.settings(run),
        method=evidence.method(),
        footer=footer(run),
        data=charts.island(data),
        uplot_licence=asset("uPlot.LICENSE").replace("*/", ""),
        uplot_js=asset("uPlot.iife.min.js"),
        js="".join(asset(name) for name in ("figures.js", "plots.js", "report.js")),
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
    workloads = len({cell.first.workload.name for cell in run.cells})
    return f"{joined(shown)} under {plural(workloads, 'workload')}" if workloads else joined(shown)


def masthead(run: Run) -> str:
    """First line, what was measured on what, and the verdict."""
    verdict = words.verdict(run.results)
    if run.foreign and not run.results:
        verdict = words.Verdict(
            "foreign", "Foreign results: nobody audited them or checked their generator.", "warn"
        )
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in _facts(run))
    status = ""
    if run.manifest and run.manifest.status != "complete":
        status = (
            f'<p class="notice warn">This run is <strong>{escape(run.manifest.status)}</strong>: '
            "the report shows what was measured until then.</p>"
        )
    return (
        f"<h1>{_heading(run)}</h1>"
        f'<ul class="facts">{facts}</ul>'
        f'<p class="verdict {verdict.tone}">{icon(verdict.tone)}<span><strong>'
        f"{escape(verdict.word.capitalize())}.</strong> "
        f"{escape(verdict.sentence)}</span></p>{status}"
    )


def _heading(run: Run) -> str:
    """The title with names that do not break in the middle."""
    text = escape(title(run))
    for name in {words.system_name(cell.first) for cell in run.cells}:
        text = text.replace(escape(name), escape(name.replace(" ", "\u00a0")))
    return text.replace(" msg/s", "\u00a0msg/s")


def icon(tone: str) -> str:
    """A sign beside a verdict, so that it does not depend on colour."""
    sign = {"good": "&#10003;", "warn": "!", "bad": "&#10005;"}.get(tone, "i")
    return f'<span class="sign {tone}" aria-hidden="true">{sign}</span>'


def _facts(run: Run) -> list[str]:
    facts: list[str] = []
    shapes = {words.shape(cell.first.workload) for cell in run.cells}
    if len(shapes) == 1:
        facts.append(shapes.pop())
    if run.results:
        first = run.results[0].workload
        facts.append(f"{seconds(first.duration_s)} measured after {seconds(first.warmup_s)} of warm-up")
        repeats = {len(cell.trials) for cell in run.cells}
        if repeats != {1}:
            facts.append(f"{plural(len(run.results), 'trial')}, figures are medians")
    if run.manifest:
        host = run.manifest.host
        machine = [str(host.get("hostname", ""))] if host.get("hostname") else []
        if host.get("cpu_model"):
            machine.append(str(host["cpu_model"]))
        if host.get("cores"):
            machine.append(plural(int(host["cores"]), "core"))
        if host.get("memory_bytes"):
            machine.append(f"{trimmed(host['memory_bytes'] / (1 << 30))} GiB")
        facts.append(", ".join(machine))
        facts.append(instant(run.manifest.started_unix_ms))
    return [fact for fact in facts if fact]


def hero(run: Run, labels: Sequence[str]) -> str:
    """The few figures that a reader takes away, one card per system."""
    found = run.cells
    if not 1 <= len(found) <= HERO_CELLS_MAX or len({cell.first.workload.name for cell in found}) > 1:
        return ""
    worst = max((cell.median(lambda trial: trial.headline_ms.p99) or 0.0 for cell in found), default=0.0)
    cards = "".join(
        _card(cell, index, label, worst)
        for index, (cell, label) in enumerate(zip(found, labels, strict=False))
    )
    mixed = words.mixed_levels([cell.first for cell in found])
    doubt = words.doubtful_clocks([trial for cell in found for trial in cell.trials])
    missing = words.untold([trial for cell in found for trial in cell.trials])
    notices = (doubt, mixed, missing)
    notice = "".join(f'<p class="notice warn">{escape(text)}</p>' for text in notices if text)
    return f'{notice}<div class="cards">{cards}</div>'


def _card(cell: Cell, index: int, label: str, worst: float) -> str:
    trial = cell.first
    validity, audit = words.cell_validity(cell), words.cell_audit(cell)
    publish = cell.middle(lambda result: result.headline_ms.p99)
    name = trial.headline
    share = 0.0 if publish is None or not worst else 100 * publish.median / worst
    spread = ""
    if publish is not None and publish.trials > 1:
        low, high = significant(publish.low), significant(publish.high)
        told = f"{low} in all {publish.trials} trials" if low == high else f"{low} to {high} over "
        f"{publish.trials} trials"
        spread = f'<span class="spread">{told}</span>'
    figures = [
        (f"{name} p50", significant(cell.median(lambda result: result.headline_ms.p50)), "ms"),
        (f"{name} p99.9", significant(cell.median(lambda result: result.headline_ms.p99_9)), "ms"),
        ("end-to-end p99", significant(cell.median(lambda result: result.end_to_end_ms.p99)), "ms"),
        ("throughput", significant(cell.median(lambda result: result.publish_rate_mb_s)), "MB/s"),
        ("memory", _memory(cell), ""),
        ("system CPU", significant(cell.median(lambda result: result.cpu.system_us_per_msg)), "\u00b5s/msg"),
    ]
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small> {escape(unit)}</small></dd></div>"
        for name, value, unit in figures
    )
    tones = (validity.tone, audit.tone)
    tone = "bad" if "bad" in tones else "warn" if "warn" in tones else "good"
    word = validity.word if audit.tone == "good" else f"{validity.word}; audit {audit.word}"
    return (
        f'<article class="card{"" if cell.valid_count else " invalid"}" '
        f'style="--c:var(--series-{index % 8})"><h2><i class="swatch"></i>'
        f"{escape(label)}</h2>"
        f'<p class="version">{escape(words.system_name(trial))}, {escape(words.layout(trial))}</p>'
        f'<p class="big"><b>{escape(significant(None if publish is None else publish.median))}</b> <span>ms '
        f"{name} p99 <small>lower is better</small></span></p>"
        f'<div class="bar" aria-hidden="true"><i style="width:{share:.1f}%"></i></div>{spread}'
        f"<dl>{rows}</dl>"
        f'<p class="state {tone}">{icon(tone)} {escape(word)}</p></article>'
    )


def _memory(cell: Cell) -> str:
    def rss(trial: TrialResult) -> float | None:
        return float(sum(process.rss_bytes_max for process in trial.processes)) if trial.processes else None

    return size(cell.median(rss))


def charts_section() -> str:
    """Places for the charts; the script fills them."""
    return asset("charts.html")


def footer(run: Run) -> str:
    """Where this comes from."""
    if run.manifest is None:
        return "<p>Made by streamgauge.</p>"
    manifest = run.manifest
    return (
        f"<p>Run <code>{escape(manifest.run_id)}</code>, streamgauge {escape(manifest.streamgauge_version)}, "
        f"{escape(instant(manifest.started_unix_ms))} to {escape(instant(manifest.ended_unix_ms))}, "
        f"seed {manifest.seed}.</p>"
        f'<p><code class="command">{escape(" ".join(manifest.command))}</code></p>'
        "<p>The directory of this file holds every interval with its histograms (Parquet), results "
        "(JSON) and logs: "
        "all figures can be recomputed from them.</p>"
    )
