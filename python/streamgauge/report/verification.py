"""What `verify` found, in words and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamgauge.analysis.verify.rules import RULES, Finding, Verification
from streamgauge.vocabulary.format import plural

MEANINGS = {
    "verified": "every figure follows from the raw data, and every rule that applies holds",
    "consistent": "every figure follows from the raw data, and nothing contradicts anything; some rules could not be applied",
    "not verifiable": "the raw data from which figures are computed are not there",
    "contradicted": "its parts contradict each other: it cannot be what was measured",
}
OUTCOMES = {"holds": "holds", "broken": "BROKEN", "unknown": "not known", "inapplicable": "-"}


def lines(asked: str, found: Verification) -> Iterator[str]:
    """For a terminal: the grade, the rules with what is wrong, and the rules for publishing."""
    yield f"{asked}: {found.grade}: {MEANINGS[found.grade]}."
    yield f"  {found.run_id}, {plural(found.trials, 'trial')}, made with streamgauge {found.made_with}"
    for rule, meaning in RULES.items():
        outcome = found.outcome(rule)
        yield f"  {OUTCOMES[outcome]:<9}  {rule:<9}  {meaning}"
        for one in _told(found, rule):
            yield f"             {sentence(one)}"
    unmet = [required for required in found.publishing if not required.met]
    if found.publishing and not unmet:
        yield "  It meets the rules for publishing (docs/publishing.md)."
    for required in unmet:
        yield f"  for publishing, {required.name}: {required.sentence}"


def sentence(found: Finding) -> str:
    """A finding that does not hold."""
    return found.sentence if found.trial is None else f"trial {found.trial}: {found.sentence}"


def broken(found: Verification) -> list[str]:
    """What contradicts what, a sentence each."""
    return [f"{one.rule}: {sentence(one)}" for one in found.findings if one.outcome == "broken"]


def as_json(asked: str, found: Verification) -> dict[str, Any]:
    """Everything that was found."""
    return {
        "result": asked,
        "run": found.run_id,
        "streamgauge_version": found.made_with,
        "trials": found.trials,
        "grade": found.grade,
        "rules": [
            {
                "rule": rule,
                "meaning": meaning,
                "outcome": found.outcome(rule),
                "findings": [
                    {"outcome": one.outcome, "trial": one.trial, "sentence": one.sentence}
                    for one in _told(found, rule)
                ],
            }
            for rule, meaning in RULES.items()
        ],
        "publishing": [
            {"rule": one.name, "met": one.met, "sentence": one.sentence} for one in found.publishing
        ],
        "publishable": found.publishable,
    }


def _told(found: Verification, rule: str) -> list[Finding]:
    """The findings with something to say; what is not known for many trials alike, once."""
    kept: list[Finding] = []
    for one in found.of(rule):
        if one.sentence and not (
            one.outcome == "unknown" and any(one.sentence == other.sentence for other in kept)
        ):
            kept.append(one)
    return kept
