"""Where the pages say more about what was found in trials: for the last line of a table, and beside each finding of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamgauge.model.result import TrialResult
from streamgauge.report import words
from streamgauge.vocabulary import troubleshooting


def reason(trial: TrialResult, said: str) -> str:
    """The anchor of a reason for which a trial is invalid."""
    return troubleshooting.of_reason(said, trial.durability.mismatches)


def conclusion(trial: TrialResult) -> str | None:
    """The anchor of what a trial on a disturbed machine is worth; None for any other trial."""
    if not trial.validity.not_as_it_came:
        return None
    return troubleshooting.of_conclusion(trial.validity.conclusion)


def audit(trial: TrialResult) -> str | None:
    """The anchor of an audit that has something to say."""
    found = trial.audit
    if not found.enabled:
        return troubleshooting.of_remark(words.audit(found).sentence)
    if not found.balanced:
        return troubleshooting.of_reason(words.audit(found).sentence)
    return None if found.clean else troubleshooting.NOT_CLEAN


def see(trials: Sequence[TrialResult]) -> str:
    """All that is said of some trials, each place once, what invalidates first; empty where nothing is to be read."""
    return troubleshooting.see(
        [
            *(anchor for trial in trials for anchor in _gravest(trial)),
            *(troubleshooting.of_remark(warning) for trial in trials for warning in trial.validity.warnings),
        ]
    )


def _gravest(trial: TrialResult) -> Iterator[str | None]:
    yield from (reason(trial, said) for said in trial.validity.reasons)
    yield conclusion(trial)
    yield audit(trial)
