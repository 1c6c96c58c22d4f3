"""Gates in words, and for programs that read what became of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from streamgauge.analysis.gates import GateResult
from streamgauge.inference.judgement import ONE_SIDED, Evidence, Outcome
from streamgauge.vocabulary.figures import title_of, unit_of
from streamgauge.vocabulary.format import plural, significant


def sentence(result: GateResult) -> str:
    """One line: the outcome, what was asked, and why."""
    differs = f" [differs from its baseline in {result.differs}]" if result.differs else ""
    return f"gate {result.outcome.value}: fail if {result.gate}: {result.subject}: {explanation(result)}{differs}"


def explanation(result: GateResult) -> str:
    """The figure, and why the gate passed, failed or did neither."""
    title = title_of(result.gate.figure)
    if result.evidence is not None:
        return f"{title} {_weighed(result, result.evidence)}{_advice(result, result.evidence)}"
    if not result.values:
        return f"{title}: {result.why}"
    told = f"{title} is {_range(result.values, result.gate.figure)} in {plural(len(result.values), 'valid trial')}"
    if result.base is not None:
        told += f", in the baseline {_range(result.base, result.gate.figure)}"
    return f"{told}: {result.why}" if result.why else told


def with_unit(value: float, name: str, digits: int = 3) -> str:
    """A figure as people read it: 4.15 ms."""
    unit = unit_of(name)
    return significant(value, digits) + (f" {unit}" if unit else "")


def as_json(result: GateResult) -> dict[str, Any]:
    """All that is known of a gate, with numbers as they are."""
    evidence = result.evidence
    return {
        "gate": str(result.gate),
        "figure": result.gate.figure,
        "unit": unit_of(result.gate.figure) or None,
        "bound": result.gate.bound,
        "of": "figure" if result.base is None else "ratio",
        "subject": result.subject,
        "outcome": result.outcome.value.lower(),
        "explanation": explanation(result),
        "differs_from_baseline_in": result.differs or None,
        "values": list(result.values),
        "baseline_values": None if result.base is None else list(result.base),
        "value": None if evidence is None else evidence.number.value,
        "interval_95": None if evidence is None else list(evidence.interval),
        "chance": None if evidence is None else evidence.beyond_chance,
        "chance_corrected": result.corrected,
        "repeats_to_decide": evidence.repeats
        if evidence is not None and result.outcome is Outcome.undecided
        else None,
    }


def markdown(results: Sequence[GateResult]) -> str:
    """A table of gates, as GitHub and GitLab show it."""
    rows = [
        [f"**{one.outcome.value}**", f"`{one.gate}`", cell_text(one.subject), cell_text(explanation(one))]
        for one in results
    ]
    return markdown_table(("gate", "fail if", "of", "why"), rows)


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells must be safe already (`cell_text`)."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell_text(text: str) -> str:
    """Text that cannot leave its cell, nor become markup."""
    return re.sub(r"([\\`*_|<>\[\]&])", r"\\\1", " ".join(text.split()))


def junit(results: Sequence[GateResult]) -> str:
    """A test case for each gate on each cell: FAILED is a failure, UNDECIDED an error."""
    kinds = {Outcome.failed: "failure", Outcome.undecided: "error"}
    cases = [(one.subject, str(one.gate), kinds.get(one.outcome), explanation(one)) for one in results]
    return junit_suite("gates", cases)


def junit_suite(name: str, cases: Sequence[tuple[str, str, str | None, str]]) -> str:
    """JUnit's XML of cases, each with its class, its name, what became of it (failure, error or None) and why."""
    suite = ElementTree.Element("testsuite", name=f"streamgauge {name}", tests=str(len(cases)))
    for kind in ("failure", "error"):
        suite.set(f"{kind}s", str(sum(case[2] == kind for case in cases)))
    for of, title, outcome, why in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(of), name=_xml(title), time="0")
        place = ElementTree.SubElement(case, outcome or "system-out")
        place.text = _xml(why)
        if outcome is not None:
            place.set("message", _xml(why))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    """Without characters that XML cannot hold."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


def _weighed(result: GateResult, evidence: Evidence) -> str:
    """The numbers, and what they rest on."""
    name = result.gate.figure
    counts = [len(side) for side in (result.base, result.values) if side is not None]
    trials = plural(counts[-1], "trial")
    if len(counts) == 2:
        trials = f"{trials} each" if counts[0] == counts[1] else f"{counts[0]} and {trials}"
    source = "from experience" if max(counts) == 1 else "of the trials and from experience"
    basis = f"{trials}, a spread of {significant(100 * evidence.number.spread, 2)} % {source}"
    low, high = evidence.interval
    interval = f"95 %: {significant(low)} to {significant(high)}; {basis}"
    if result.base is None:
        return f"is {with_unit(evidence.number.value, name)} ({interval})"
    before, after = _range(result.base, name), _range(result.values, name)
    return (
        f"was {before} and is {after}, {significant(evidence.number.value)} times the baseline ({interval})"
    )


def _advice(result: GateResult, evidence: Evidence) -> str:
    """What would decide a gate that is undecided."""
    if result.outcome is not Outcome.undecided:
        return ""
    if evidence.beyond_chance < ONE_SIDED:
        return ". Of so many gates one may be so far beyond its bound by chance: more --repeat"
    if evidence.repeats is None:
        return ". This near to the bound, runs of the same differ by more: --repeat alone does not decide it, a bound further away does"
    sides = " on both sides" if result.base is not None else ""
    return f". More --repeat: {evidence.repeats}{sides} would decide it, should the figures stay as they are"


def _range(values: Sequence[float], name: str) -> str:
    low, high = min(values), max(values)
    return with_unit(low, name) if low == high else f"{significant(low)} to {with_unit(high, name)}"
