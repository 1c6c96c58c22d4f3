"""What publications state of durability, and what the experiments say to it. Pure functions of results.

A statement holds when every cell that it is about shows it, is refuted when one shows the opposite, and is not shown otherwise:
a cell was not measured, failed, or its figures do not tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamgauge.inference.checks import Verdict
from streamgauge.inference.experience import load_against
from streamgauge.inference.looks import ALPHA
from streamgauge.model.durability import CutSummary, DoseResponse, DurabilityResult, Pace, Scope
from streamgauge.model.durability_study import DurabilityStudyFile, ShowsFile, StatementFile
from streamgauge.vocabulary.format import plural, trimmed

BATCHES_SYNCED_MIN = 0.95
"""Syncs per batch from which every batch is taken to have been synced: the load and the account end at moments that
differ by some batches."""
KEPT_UP_MIN = 0.95
"""Latencies are compared where the load was carried."""
SECONDS_MIN = 3
SCOPES: dict[Scope, str] = {"one": "one node", "majority": "a majority", "all": "all nodes"}


@dataclass(frozen=True)
class MeasuredCell:
    """What was measured of one cell."""

    cell: str
    title: str
    result: DurabilityResult | None
    """None when the cell was not measured."""
    shows: bool | None
    """Whether it shows what is stated; None when it does not tell."""
    why: str


@dataclass(frozen=True)
class StatementAnswer:
    """One statement and what was measured."""

    written: StatementFile
    verdict: Verdict
    why: str
    measured: tuple[MeasuredCell, ...]


def answers(
    study: DurabilityStudyFile,
    results: Sequence[DurabilityResult],
    absent: Mapping[str, str] | None = None,
) -> list[StatementAnswer]:
    """An answer to every statement. `absent`: cells that were left out, and why."""
    found = {name: _of_cell(study, name, results) for name in study.cells}
    return [_answer(study, statement, found, absent or {}) for statement in study.statements]


def _of_cell(
    study: DurabilityStudyFile, name: str, results: Sequence[DurabilityResult]
) -> DurabilityResult | None:
    """The newest result of a cell: one of its name, or of the same system with the same settings."""
    cell = study.cells[name]
    own = [one for one in results if one.name == name]
    same = [
        one
        for one in results
        if (one.system, one.nodes, one.options) == (cell.system, cell.nodes, cell.options)
        and cell.level in (None, one.finding.declared)
    ]
    return next(reversed(own or same), None)


def _answer(
    study: DurabilityStudyFile,
    statement: StatementFile,
    found: Mapping[str, DurabilityResult | None],
    absent: Mapping[str, str],
) -> StatementAnswer:
    measured = []
    for name in statement.cells:
        shows, why = _shown(statement.shows, name, found, absent)
        measured.append(MeasuredCell(name, study.cells[name].title, found[name], shows, why))
    other = statement.shows.other
    if other is not None and found[other] is not None:
        measured.append(MeasuredCell(other, study.cells[other].title, found[other], None, "compared with"))
    told = [one for one in measured if one.cell in statement.cells]
    against = [one for one in told if one.shows is False]
    unknown = [one for one in told if one.shows is None]
    verdict = Verdict.refuted if against else Verdict.not_shown if unknown else Verdict.holds
    why = " ".join(f"{one.title}: {one.why}." for one in (against or unknown or told))
    return StatementAnswer(statement, verdict, why, tuple(measured))


def _shown(
    shows: ShowsFile, name: str, found: Mapping[str, DurabilityResult | None], absent: Mapping[str, str]
) -> tuple[bool | None, str]:
    """Whether a cell shows it, and what there is to say of it."""
    result = found[name]
    if result is None:
        return None, f"not measured{_because(absent.get(name))}"
    other = shows.other
    against = found[other] if other is not None else None
    if other is not None and against is None:
        return None, f"{other}, which it is compared with, was not measured{_because(absent.get(other))}"
    if shows.waits_for_disks is not None:
        return _waits(result, shows.waits_for_disks)
    if shows.syncs_every_batch is not None:
        return _syncs(result, shows.syncs_every_batch)
    if shows.keeps is not None:
        return _cuts(result, shows.keeps, loses=False)
    if shows.loses is not None:
        return _cuts(result, shows.loses, loses=True)
    assert against is not None, "what is left compares with another cell"
    assert other is not None, "which has a name"
    if shows.same_level_as is not None:
        return _same_level(result, against, other)
    return _pace(result.pace, against.pace, other, faster=shows.faster_than is not None)


def _because(reason: str | None) -> str:
    return "" if reason is None else f" ({reason})"


def _ended(result: DurabilityResult) -> str:
    """Why something is not there."""
    return "" if result.failure is None else f" ({result.status}: {result.failure})"


def _waits(result: DurabilityResult, expected: bool) -> tuple[bool | None, str]:
    response = result.response
    if response is None or response.disks is None:
        return None, f"whether an acknowledgement waits for disks was not found out{_ended(result)}"
    told = f"an acknowledgement {response.disks_told}{_growth(response, result.nodes)}"
    return (response.disks > 0) == expected, told


def _growth(response: DoseResponse, nodes: int) -> str:
    """What a slower sync adds to the latency: of one node at a time, and of all together."""
    alone = sorted(one.slope for one in response.slopes if len(one.nodes) == 1)
    whole = next((one.slope for one in response.slopes if len(one.nodes) == nodes), None)
    if whole is None:
        return ""
    if nodes == 1 or not alone:
        return f" ({whole:.2f} ms of publish {response.percentile} per ms that every sync takes longer)"
    return (
        f" (per ms that syncs take longer, publish {response.percentile} grows by {alone[0]:.2f} to {alone[-1]:.2f} ms when it is "
        f"one node's, by {whole:.2f} ms when it is all nodes')"
    )


def _syncs(result: DurabilityResult, expected: bool) -> tuple[bool | None, str]:
    waits, told = _waits(result, True)
    batches = max((one.batches for one in result.accounts), default=0)
    if waits is None or not batches:
        return None, told if waits is None else f"its syncs were not accounted for{_ended(result)}"
    syncs = sum(one.syncs for one in result.accounts)
    every = syncs >= BATCHES_SYNCED_MIN * batches
    figures = f"{plural(syncs, 'sync')} for {batches:,} batches of producers, and {told}"
    return (every and waits) == expected, figures


def _cuts(result: DurabilityResult, scopes: Sequence[Scope], *, loses: bool) -> tuple[bool | None, str]:
    """Whether power cuts of all these scopes lose something, or nothing."""
    cuts = {one.scope: one for one in result.summaries if one.kind == "power cut"}
    told: list[str] = []
    shown: list[bool | None] = []
    for scope in scopes:
        one = cuts.get(scope)
        if one is None or not one.conclusive:
            why = f": {one.inconclusive}" if one is not None and one.inconclusive else _ended(result)
            told.append(f"no power cut of {SCOPES[scope]} was conclusive{why}")
            shown.append(None)
            continue
        told.append(_lost(one))
        shown.append((one.with_loss > 0) == loses)
    verdict = False if False in shown else None if None in shown else True
    return verdict, "; ".join(told)


def _lost(one: CutSummary) -> str:
    cuts = f"{plural(one.conclusive, 'power cut')} of {SCOPES[one.scope]}"
    if one.with_loss:
        window = "" if one.window_ms_max is None else f" over {one.window_ms_max:,.0f} ms"
        return f"{one.with_loss} of {cuts} lost acknowledged messages, {one.lost_max:,} at most{window}"
    return f"{cuts} lost nothing"


def _same_level(result: DurabilityResult, other: DurabilityResult, name: str) -> tuple[bool | None, str]:
    here, there = result.finding.measured, other.finding.measured
    if here is None or there is None:
        return None, f"measured {here or 'no level'}, {name} {there or 'no level'}"
    return here == there, f"measured {here}, and {name} {there}"


def _pace(here: Pace | None, there: Pace | None, name: str, *, faster: bool) -> tuple[bool | None, str]:
    """Compares the publish medians of whole seconds."""
    if here is None or there is None:
        whose = "its" if here is None else f"{name}'s"
        return None, f"{whose} latencies at a steady load were not measured"
    for pace, whose in ((here, "its"), (there, f"{name}'s")):
        if len(pace.publish_ms_p50) < SECONDS_MIN:
            return None, f"{whose} latencies were measured for less than {SECONDS_MIN} whole seconds"
        if pace.acked_share < KEPT_UP_MIN:
            return None, f"{whose} load was not carried ({100 * pace.acked_share:.0f} % acknowledged)"
    told = (
        f"at {here.rate_msgs_s:,.0f} messages per second with {trimmed(here.sync_delay_ms, 2)} ms added to each sync, publish p50 "
        f"{_range(here.publish_ms_p50)} and p99 {_range(here.publish_ms_p99)} ms from second to second, {name} "
        f"{_range(there.publish_ms_p50)} and {_range(there.publish_ms_p99)} ms"
    )
    if min(*here.publish_ms_p50, *there.publish_ms_p50) <= 0:
        return None, f"a latency is 0: {told}"
    found = load_against("publish_ms.p50", here.publish_ms_p50, there.publish_ms_p50)
    below, above = found.chance_unless_below(1.0), found.chance_unless_above(1.0)
    if min(below, above) < ALPHA / 2.0:
        return (below < above) == faster, told
    low, high = found.interval()
    return (
        None,
        f"loads of the same may differ by as much ({trimmed(low)} to {trimmed(high)} times as long): {told}",
    )


def _range(values: Sequence[float]) -> str:
    return f"{trimmed(min(values))} to {trimmed(max(values))}"
