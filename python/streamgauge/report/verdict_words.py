"""What a study found, in words that a newcomer understands: no names of cells, and for what is undecided why and what it would take."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from streamgauge.analysis.study_outcome import StudyOutcome
from streamgauge.analysis.study_rounds import cells_in_doubt, lacks_rounds, round_s, rounds_wanted
from streamgauge.inference.checks import Tested, Verdict, bounds
from streamgauge.inference.claims import Judged
from streamgauge.vocabulary.format import joined, plural, significant, trimmed
from streamgauge.vocabulary.units import format_duration

TONES = {Verdict.holds: "good", Verdict.refuted: "bad"}
"""What is neither is neutral: it is no success, and no failure either."""
TITLES = {
    Verdict.holds: "Shown here",
    Verdict.refuted: "Refuted here",
    Verdict.equivalent: "No difference that matters here",
    Verdict.undecided: "Undecided",
    Verdict.not_shown: "Not shown",
}
BOUND = "the interval contains the bound"
NAMED_MAX = 3
"""Of claims that are not part of a scale, or open; of more the reasons stand with the claims, below what was found."""
SOONEST = 4
"""So many of those that more time decides are named, where there are at least two more: a reader wants what was found on one screen."""


def tone_of(verdict: Verdict) -> str:
    """Of a verdict, in a report."""
    return TONES.get(verdict, "plain")


def counted(outcome: StudyOutcome) -> str:
    """How many claims there are, and how many of each verdict; those that the scale cannot tell of are counted apart."""
    if outcome.claims and not outcome.asked:
        return "No claim is judged: those of the study need cells that were not asked for"
    verdicts = [judged.verdict for judged in outcome.asked if not outcome.outside(judged)]
    outside = len(outcome.asked) - len(verdicts)
    unasked = len(outcome.claims) - len(outcome.asked)
    decided = sum(verdict.decided for verdict in verdicts)
    each = ", ".join(
        f"{verdicts.count(verdict)} {TITLES[verdict].lower().removesuffix(' here')}"
        for verdict in Verdict
        if verdict in verdicts
    )
    told = f"{decided} of {plural(len(verdicts), 'claim')} decided here: {each or 'none'}"
    if outside:
        told += f"; {outside} more {'is' if outside == 1 else 'are'} not part of scale {outcome.plan.scale}"
    return f"{told} ({unasked} more need cells that were not asked for)" if unasked else told


def found(outcome: StudyOutcome) -> list[tuple[str, list[str]]]:
    """Verdict in words -> claims with it, in words; those that are open with the reason, once for all that have the same."""
    open_ = [one for one in outcome.asked if one.verdict is Verdict.undecided and not outcome.outside(one)]
    answers: dict[Verdict, dict[str, list[str]]] = {}
    outside: dict[str, list[str]] = {}
    for judged in outcome.asked:
        reasons = outcome.outside(judged)
        if reasons:
            outside.setdefault(joined(reasons), []).append(judged.claim.claim)
            continue
        reason = "" if judged.verdict.decided else why(outcome, judged)
        # What was decided stands alone.
        key = reason or judged.claim.claim
        answers.setdefault(judged.verdict, {}).setdefault(key, []).append(judged.claim.claim)
    told = [
        (
            TITLES[verdict],
            _briefly(outcome, open_)
            if verdict is Verdict.undecided and len(open_) > NAMED_MAX and outcome.plan.rounds
            else [
                "; ".join(claims) if verdict.decided else f"{'; '.join(claims)} ({reason})"
                for reason, claims in answers[verdict].items()
            ],
        )
        for verdict in Verdict
        if verdict in answers
    ]
    if outside:
        told.append((f"Not part of scale {outcome.plan.scale}", _outside(outside)))
    return told


def _briefly(outcome: StudyOutcome, open_: Sequence[Judged]) -> list[str]:
    """Undecided claims in two sentences: those that more time decides, the soonest first, and the others. Why each is open stands with it."""
    prices = [(_minutes(outcome, one), _short(one)) for one in open_]
    wanted = sorted(one for one in prices if one[0] < math.inf)
    never = [name for minutes, name in prices if math.isinf(minutes)]
    told = []
    if wanted:
        each = [f"{name} ({_time(minutes)})" for minutes, name in wanted]
        if len(each) > SOONEST + 1:
            span = dict.fromkeys(_time(minutes) for minutes, _ in (wanted[SOONEST], wanted[-1]))
            each[SOONEST:] = [f"{len(each) - SOONEST} more ({' to '.join(span)})"]
        told.append(f"more time would tell, with --resume --budget TIME: {'; '.join(each)}")
    if never:
        told.append(
            f"too near to what is asked, or too noisy or disturbed here, for any number of rounds that one would wait for: {'; '.join(never)}"
        )
    return told


def _outside(outside: Mapping[str, Sequence[str]]) -> list[str]:
    """Reasons why a scale cannot tell of claims, with these: by name where there are few."""
    are_few = sum(map(len, outside.values())) <= NAMED_MAX
    return [
        f"{'; '.join(claims)} ({reason})" if are_few else f"{plural(len(claims), 'claim')}: {reason}"
        for reason, claims in outside.items()
    ]


def _short(judged: Judged) -> str:
    """A claim without the bound that is asked for here."""
    return re.sub(r" \(here[^)]*\)", "", judged.claim.claim)


def asked(test: Tested) -> str:
    """Where the number had to lie."""
    low, high = bounds(test.test)
    if test.test.between is not None:
        return f"asked: {trimmed(low)} to {trimmed(high)}"
    return f"asked: above {trimmed(low)}" if test.test.above is not None else f"asked: below {trimmed(high)}"


def decided_when(outcome: StudyOutcome, judged: Judged) -> list[str]:
    """That a claim was decided at an earlier look than the last, in a sentence: the intervals that stand beside it are those of all rounds."""
    if judged.at_round is None or judged.at_round >= outcome.plan.rounds:
        return []
    return [
        f"decided after round {judged.at_round} of {outcome.plan.rounds}; the intervals are of all rounds"
    ]


def why(outcome: StudyOutcome, judged: Judged) -> str:
    """Why a claim is not decided, and what it would cost."""
    if judged.verdict is Verdict.not_shown:
        return judged.why
    reasons = judged.why.replace(BOUND, "what was measured allows both")
    return f"{reasons}; {price(outcome, judged)}"


def price(outcome: StudyOutcome, judged: Judged) -> str:
    """What would decide an undecided claim: rounds and time, if what was found is true."""
    rounds = rounds_wanted(judged)
    if math.isinf(rounds):
        return "no number of rounds that one would wait for decides it, if what was found is true"
    more = int(rounds)
    would = "would give it an interval" if lacks_rounds(judged) else "would decide it"
    text = f"about {plural(more, 'more round')}"
    if not outcome.plan.rounds:
        return f"{text} {would}"
    time = _time(_minutes(outcome, judged))
    return f"{text}, {time}, {would}: --resume --budget {time}"


def _time(minutes: float) -> str:
    return format_duration(60.0 * minutes)


def _minutes(outcome: StudyOutcome, judged: Judged) -> float:
    """That would decide an undecided claim, or give it an interval; infinite where no number of rounds does."""
    rounds = rounds_wanted(judged)
    if math.isinf(rounds):
        return rounds
    return max(round(rounds * round_s(outcome, cells_in_doubt(judged)) / 60.0), 1)


def void_rounds(outcome: StudyOutcome) -> list[str]:
    """Which rounds enter no claim, and what changed in them, a sentence each."""
    return [
        f"Round {round_} is void, the machine changed while it ran: "
        + joined(
            [
                f"{one.title} went from {significant(one.before)} to {significant(one.after)} (a factor of {trimmed(one.factor_max)} is allowed)"
                for one in moved
            ]
        )
        + "."
        for round_, moved in outcome.drifted.items()
    ]
