"""Two cells beside each other, in words and for programs."""

from __future__ import annotations

from typing import Any

from streamgauge.analysis.cells import Cell
from streamgauge.analysis.compare import Compared, Comparison
from streamgauge.analysis.match import differences_text, traits_of
from streamgauge.analysis.quiet_cells import share
from streamgauge.analysis.quiet_compare import SHARES_APART
from streamgauge.report.gates import cell_text, markdown_table, with_unit
from streamgauge.vocabulary.figures import unit_of
from streamgauge.vocabulary.format import capital, percent, plural, significant

TITLES = ("figure", "base", "other", "ratio", "95 % interval", "effect", "verdict")


def side(cell: Cell) -> str:
    """What was measured, and in which run."""
    first = cell.first
    return f"{first.system} {first.system_version}{' with TLS' if first.tls == 'on' else ''} ({first.run_id})"


def heading(found: Comparison) -> str:
    """What is compared with what."""
    return f"{found.base.workload_name}: {side(found.other)} against {side(found.base)}"


def row(one: Compared) -> tuple[str, ...]:
    """A figure, as a line of a table (TITLES)."""
    found = one.difference
    value = interval = effect = "-"
    if found is not None:
        low, high = found.ratio.interval()
        value, effect = f"{found.ratio.value:.3f}", f"{found.effect:+.1f} sd"
        interval = f"{significant(low)} - {significant(high)}"
    values = [with_unit(value, one.figure, 4) for value in (one.base, one.other)]
    return (one.figure, *values, value, interval, effect, one.verdict)


def lines(one: Compared) -> tuple[str, str]:
    """The same for narrow terminals: what was measured, and the verdict below it."""
    figure, base, other, ratio, interval, _, told = row(one)
    within = "" if interval == "-" else f", 95 % interval {interval}"
    return f"{figure}: {base}, then {other}, ratio {ratio}{within}", f"    {told}"


def verdict(found: Comparison) -> str:
    """The first line: what was found."""
    counts = [len(cell.valid) for cell in (found.base, found.other)]
    basis = ", and experience of how trials differ" if max(counts) == 1 else ""
    return f"{capital(found.verdict)} (by {counts[0]} and {plural(counts[1], 'valid trial')}{basis})."


def bounds(found: Comparison) -> list[str]:
    """What may be said of figures that a side has bounds of, a sentence each."""
    return [f"{name}: {one.sentence}" for name, one in found.bounded]


def warnings(found: Comparison) -> list[str]:
    """What a reader has to know before the figures are believed, a sentence each."""
    base, other = found.base, found.other
    notes = []
    for name, cell in (("base", base), ("other", other)):
        if not cell.valid:
            bounded = any(trial.validity.bounds_only for trial in cell.trials)
            notes.append(f"{name}: {'bounds only' if bounded else 'no valid trial'}")
        if cell.lost:
            notes.append(f"{name}: {plural(cell.lost, 'acknowledged message')} lost")
    differs = differences_text(traits_of(base), traits_of(other))
    if differs:
        notes.append(f"they differ in {differs}")
    shares = share(base), share(other)
    if abs(shares[0] - shares[1]) > SHARES_APART:
        notes.append(
            f"{percent(shares[0])} of the time was disturbed on one side, {percent(shares[1])} on the other"
        )
    notes += [f"not compared: {text}" for text in found.missing]
    if base.first.headline != other.first.headline:
        notes.append(
            "end-to-end latency begins when a message was due on one side, and with its send, in whole ms, on the other"
        )
    return notes


def as_json(found: Comparison) -> dict[str, Any]:
    """Everything about two cells, with numbers as they are."""
    return {
        "workload": found.base.workload_name,
        "base": _side_json(found.base),
        "other": _side_json(found.other),
        "figures": [_figure_json(one) for one in found.figures],
        "bounded": [
            {
                "figure": name,
                "ratio_at_least": one.at_least,
                "ratio_at_most": one.at_most,
                "differs": one.differs,
                "verdict": one.sentence,
            }
            for name, one in found.bounded
        ],
        "verdict": found.verdict,
        "warnings": warnings(found),
    }


def markdown(found: Comparison) -> str:
    """A heading, a table, the verdict and the warnings."""
    rows = [[f"`{one.figure}`", *map(cell_text, row(one)[1:])] for one in found.figures]
    notes = [cell_text(note) for note in (*bounds(found), *(f"warning: {note}" for note in warnings(found)))]
    return "\n\n".join(
        [f"### {cell_text(heading(found))}", cell_text(verdict(found)), markdown_table(TITLES, rows), *notes]
    )


def _side_json(cell: Cell) -> dict[str, Any]:
    first = cell.first
    return {
        "run": first.run_id, "system": first.system, "version": first.system_version, "nodes": first.nodes,
        "durability": first.durability.declared, "tls": first.tls, "client": first.client,
        "trials": len(cell.trials), "valid_trials": cell.valid_count, "lost_msgs": cell.lost,
    }  # fmt: skip


def _figure_json(one: Compared) -> dict[str, Any]:
    found = one.difference
    return {
        "figure": one.figure, "unit": unit_of(one.figure) or None, "base": one.base, "other": one.other, "trials": list(one.trials),
        "ratio": None if found is None else found.ratio.value,
        "interval_95": None if found is None else list(found.ratio.interval()),
        "effect_sd": None if found is None else found.effect,
        "margin": None if found is None else found.margin,
        "trials_to_tell": None if found is None else found.trials,
        "differs": one.differs, "verdict": one.verdict,
    }  # fmt: skip
