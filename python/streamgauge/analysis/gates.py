"""Gates on cells: what became of each, and on what that rests (report/gates.py puts it into words).

Only valid trials decide. What was counted message by message (`audit.lost`) is a fact about each trial and is compared as it is; every other figure is an
estimate, and inference/judgement.py weighs it. Several gates on several cells are several chances to fail a build for nothing: those that fail are corrected
for it (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamgauge.analysis.cells import Cell, of_all
from streamgauge.analysis.match import RATE, Traits, differences_text, traits_of
from streamgauge.analysis.quiet_cells import bounds_beside, prior_spread, told
from streamgauge.inference.estimates import holm
from streamgauge.inference.judgement import Bound, Evidence, Outcome, decide, weigh
from streamgauge.model.gate import Gate
from streamgauge.vocabulary.exit_status import ExitStatus
from streamgauge.vocabulary.figures import figure, is_count
from streamgauge.vocabulary.format import significant
from streamgauge.vocabulary.units import format_rate


@dataclass(frozen=True)
class Question:
    """A gate on a cell, or on its ratio to a baseline's cell."""

    gate: Gate
    cell: Cell
    base: Cell | None = None


@dataclass(frozen=True)
class GateResult:
    """What became of a gate on one cell."""

    gate: Gate
    subject: str
    """System and workload."""
    outcome: Outcome
    why: str = ""
    """What decided, or why nothing did, where there is no evidence to weigh."""
    values: tuple[float, ...] = ()
    """Of the valid trials."""
    base: tuple[float, ...] | None = None
    """Of the baseline's; None where the gate is on the figure itself."""
    evidence: Evidence | None = None
    corrected: float | None = None
    """The evidence's `beyond_chance`, corrected for all gates that were asked at once."""
    differs: str = ""
    """In what the cell differs from its baseline."""


def subject_of(traits: Traits, *, of_a_curve: bool) -> str:
    """A cell's name, also of one that has not run."""
    at = f" at {format_rate(traits[RATE])}" if of_a_curve else ""
    return f"{traits['system']}, {traits['workload']}{at}"


def undecided(gate: Gate, subject: str, why: str) -> GateResult:
    """A gate on a cell about which nothing can be said."""
    return GateResult(gate, subject, Outcome.undecided, why)


def judge(questions: Sequence[Question]) -> list[GateResult]:
    """What became of gates that are asked at once, in their order."""
    found = [_weighed(question) for question in questions]
    weighed = [(at, one.evidence) for at, one in enumerate(found) if one.evidence is not None]
    chances = holm([evidence.beyond_chance for _, evidence in weighed])
    for (at, evidence), corrected in zip(weighed, chances, strict=True):
        found[at] = replace(found[at], outcome=decide(evidence, corrected), corrected=corrected)
    return found


def status_of(results: Sequence[GateResult], *, undecided_passes: bool) -> ExitStatus:
    """The exit status that gates call for."""
    outcomes = {one.outcome for one in results}
    if Outcome.failed in outcomes:
        return ExitStatus.GATE_FAILED
    if Outcome.undecided in outcomes and not undecided_passes:
        return ExitStatus.GATE_UNDECIDED
    return ExitStatus.DONE


def _weighed(question: Question) -> GateResult:
    """The evidence, or the outcome where none is needed or there is none."""
    gate, cell, base = question.gate, question.cell, question.base
    differs = "" if base is None else differences_text(traits_of(base), traits_of(cell))
    blank = GateResult(gate, cell.name, Outcome.undecided, differs=differs)
    for whose, side in (("", cell), (" of the baseline", base)):
        if side is not None and (why := _missing(side, gate.figure, whose)):
            return _by_bounds(blank, cell, base) or replace(blank, why=why)
    values, base_values = _values(cell, gate.figure), None if base is None else _values(base, gate.figure)
    blank = replace(blank, values=values, base=base_values)
    if base_values is not None and not _have_logarithms(values, base_values):
        return _without_ratio(blank, values, base_values)
    if base_values is None and (is_count(gate.figure) or gate.bound <= 0 or not _have_logarithms(values)):
        return _by_every_trial(blank, values)
    prior = prior_spread(gate.figure, *(side for side in (base, cell) if side is not None))
    bound = Bound(gate.sign.startswith(">"), gate.bound)
    return replace(blank, evidence=weigh(bound, values, base_values, prior))


def _by_bounds(blank: GateResult, cell: Cell, base: Cell | None) -> GateResult | None:
    """Where a disturbed machine has left no figure: what its bounds decide. None where there are none."""
    name = blank.gate.figure
    found = told(cell, name) if base is None else bounds_beside(base, cell, name)
    if found is None:
        return None
    low, high = found.at_least, found.at_most
    between = (
        f"at least {significant(low)}"
        if high is None
        else f"between {significant(low)} and {significant(high)}"
    )
    what = "it is" if base is None else "the ratio to the baseline is"
    why = f"{what} {between}, whatever the machine did"
    if blank.gate.sign.startswith("<"):
        low, high = (math.inf if high is None else high), low
    if blank.gate.fails(low):
        return replace(blank, outcome=Outcome.failed, why=why)
    if high is not None and not blank.gate.fails(high):
        return replace(blank, outcome=Outcome.passed, why=why)
    return replace(blank, why=f"{why}: the bound lies between them")


def _by_every_trial(blank: GateResult, values: Sequence[float]) -> GateResult:
    """A count, or a figure that can be 0 and then has no logarithm: no trial's may be beyond. An estimate is undecided where trials disagree."""
    beyond = sum(blank.gate.fails(value) for value in values)
    if not beyond:
        return replace(blank, outcome=Outcome.passed)
    if is_count(blank.gate.figure) or beyond == len(values):
        return replace(blank, outcome=Outcome.failed)
    return replace(blank, why="it is beyond the bound in some trials, and not in others")


def _without_ratio(blank: GateResult, values: Sequence[float], base: Sequence[float]) -> GateResult:
    """There is no ratio to 0; what is 0 on both sides has not changed."""
    if any(values) or any(base):
        why = "there is no ratio to 0: leave out --baseline for a bound on the figure itself"
        return replace(blank, why=why)
    outcome = Outcome.failed if blank.gate.fails(1.0) else Outcome.passed
    return replace(blank, outcome=outcome, why="unchanged")


def _values(cell: Cell, name: str) -> tuple[float, ...]:
    """Of the valid trials, where all of them know it."""
    return of_all(cell.valid, lambda trial: figure(trial, name))


def _missing(cell: Cell, name: str, whose: str) -> str:
    """Why a cell has no value that may decide; empty where it has one."""
    if not cell.valid:
        return f"no trial{whose} is valid"
    if _values(cell, name):
        return ""
    untold = cell.first.untold.items()
    why = next((f": {why}" for part, why in untold if name == part or name.startswith(f"{part}.")), "")
    known = any(figure(trial, name) is not None for trial in cell.valid)
    return f"not known in {'all of ' if known else ''}the trials{whose}{why}"


def _have_logarithms(*sides: Sequence[float]) -> bool:
    return all(0 < value < math.inf for side in sides for value in side)
