"""What is checked of a result, and what it is graded by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["holds", "broken", "unknown", "inapplicable"]
"""unknown: what it takes is not there; inapplicable: there is nothing that the rule could be about."""
Grade = Literal["verified", "consistent", "not verifiable", "contradicted"]

RULES = {
    "digests": "each file is the one that was packed",
    "plan": "the trials are those that were planned, all of them, each once",
    "asked": "what was measured is what the command asked for",
    "seeds": "the seed of each trial follows from that of the run",
    "copies": "no trial is another one's copy, or another run's",
    "times": "time goes forwards, and there was enough of it",
    "probes": "the machine is the same in every trial, and its probes do not contradict themselves",
    "told": "the result says what the trial's record says",
    "figures": "every figure follows from the raw histograms and counters",
    "judgement": "the verdict follows from the figures",
    "schedule": "as many messages were due as rate, arrivals and seed make, in every phase, and none was sent before its time",
    "books": "sent, acknowledged, received and lost add up, in the books and the intervals alike",
    "parts": "publish latency is the sum of its parts",
    "extremes": "the histograms end where the smallest and largest sample say",
    "level": "the durability level follows from the settings that were read back, and its flushes take their time",
    "machine": "nothing was faster than the machine was measured to be",
}
"""Name -> what holds. docs/publishing.md has a paragraph on each."""
RAW = "figures"
"""Without it nothing is verifiable."""


@dataclass(frozen=True)
class Finding:
    """A rule, applied to a run or to one of its trials."""

    rule: str
    outcome: Outcome
    sentence: str = ""
    """Why it is broken, or what is not known."""
    trial: int | None = None


def found(
    rule: str, wrong: Iterable[str], trial: int | None = None, *, unknown: str | None = None
) -> Iterator[Finding]:
    """The findings of a rule that was applied: one for each sentence of what is wrong, or that it holds as far as is known."""
    said = [Finding(rule, "broken", sentence, trial) for sentence in wrong]
    if said:
        yield from said[:SENTENCES_MAX]
        if len(said) > SENTENCES_MAX:
            yield Finding(rule, "broken", f"... and {len(said) - SENTENCES_MAX} more", trial)
    elif unknown is not None:
        yield Finding(rule, "unknown", unknown, trial)
    else:
        yield Finding(rule, "holds", "", trial)


SENTENCES_MAX = 5


@dataclass(frozen=True)
class Requirement:
    """One of the rules for publishing (docs/publishing.md)."""

    name: str
    met: bool
    sentence: str


@dataclass(frozen=True)
class Verification:
    """What was found about a run."""

    run_id: str
    made_with: str
    """Version of streamgauge."""
    trials: int
    findings: tuple[Finding, ...]
    publishing: tuple[Requirement, ...] = ()

    @property
    def grade(self) -> Grade:
        """contradicted: a rule is broken. not verifiable: the raw data are not there. verified: every rule that applies holds. consistent: those hold
        that could be applied."""
        if any(one.outcome == "broken" for one in self.findings):
            return "contradicted"
        raw = [one for one in self.findings if one.rule == RAW]
        if not raw or any(one.outcome != "holds" for one in raw):
            return "not verifiable"
        return "consistent" if any(one.outcome == "unknown" for one in self.findings) else "verified"

    def of(self, rule: str) -> Sequence[Finding]:
        """What was found by a rule."""
        return [one for one in self.findings if one.rule == rule]

    def outcome(self, rule: str) -> Outcome:
        """Of a rule over the whole run: the worst of its outcomes."""
        outcomes = {one.outcome for one in self.of(rule)}
        order: tuple[Outcome, ...] = ("broken", "unknown", "holds")
        return next((one for one in order if one in outcomes), "inapplicable")

    @property
    def publishable(self) -> bool:
        """Whether the rules for publishing are met and nothing is contradicted."""
        return self.grade in ("verified", "consistent") and all(one.met for one in self.publishing)
