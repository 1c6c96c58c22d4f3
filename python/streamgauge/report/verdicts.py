"""Verdicts in words and colours: what is undecided is neutral, and never looks like a success."""

from __future__ import annotations

import math
from collections.abc import Sequence

from streamgauge.inference.power import Price
from streamgauge.inference.study import Estimate, Judged
from streamgauge.inference.verdict import Verdict
from streamgauge.vocabulary.format import joined, plural, significant, trimmed

TONES = {
    Verdict.holds: "good",
    Verdict.refuted: "bad",
    Verdict.equivalent: "same",
    Verdict.undecided: "open",
    Verdict.not_shown: "open",
}
"""Of the page (report.css)."""
STYLES = {
    Verdict.holds: "bold green",
    Verdict.refuted: "bold red",
    Verdict.equivalent: "bold cyan",
    Verdict.undecided: "bold",
    Verdict.not_shown: "bold",
}
"""Of the terminal."""
ONE_AND_MORE = {
    Verdict.holds: ("holds", "hold"),
    Verdict.refuted: ("is refuted", "are refuted"),
    Verdict.equivalent: ("is equivalent", "are equivalent"),
    Verdict.undecided: ("is undecided", "are undecided"),
    Verdict.not_shown: ("is not shown", "are not shown"),
}


def counted(judged: Sequence[Judged]) -> str:
    """How many claims there are, and how many of each verdict."""
    verdicts = [one.verdict for one in judged]
    parts = [
        f"{count} {words[count != 1]}"
        for verdict, words in ONE_AND_MORE.items()
        if (count := verdicts.count(verdict))
    ]
    return f"{plural(len(verdicts), 'claim')}: {', '.join(parts) or 'none'}"


def first_line(judged: Sequence[Judged]) -> list[str]:
    """What was shown, what refuted, what is open, in the words of the claims."""
    lines = []
    for verdict, begins in (
        (Verdict.holds, "Shown here"),
        (Verdict.refuted, "Refuted here"),
        (Verdict.equivalent, "No difference that matters, where one is claimed"),
        (Verdict.undecided, "Undecided"),
        (Verdict.not_shown, "Nothing to judge by"),
    ):
        claims = [f"“{one.claim.claim}”" for one in judged if one.verdict is verdict]
        if claims:
            lines.append(f"{begins}: {joined(claims)}.")
    return lines


def reasons(judged: Judged) -> list[str]:
    """What stands beside a verdict: why it is none, what it would cost, after which round it was found, what has to be known of it."""
    found = []
    if not judged.verdict.decided and judged.why:
        found.append(judged.why)
    if judged.price is not None:
        found.append(cost(judged.price))
    if judged.verdict is Verdict.equivalent:
        found.append(f"no difference that matters: {_margins(judged)}")
    elif judged.verdict is Verdict.refuted:
        same = [test.text for test in judged.tests if test.verdict is Verdict.equivalent]
        found += [f"no difference that matters ({_margins(judged)}): {joined(same)}"] if same else []
    if judged.rounds is not None:
        found.append(f"decided after {plural(judged.rounds, 'round')}")
    return found + judged.notes


def interval_text(measured: Estimate) -> str:
    """` [low, high]`; empty where nothing tells how the number varies."""
    if not math.isfinite(measured.high):
        return ""
    return f" [{significant(measured.low)}, {significant(measured.high)}]"


def cost(price: Price) -> str:
    """What would decide an undecided claim."""
    if price.rounds is None:
        return f"further rounds would hardly decide it: {price.why}"
    return f"about {plural(price.rounds, 'more round')} would decide it, if it is as it looks"


def _margins(judged: Judged) -> str:
    """By what factor a figure may differ without mattering."""
    known = dict.fromkeys(test.margin for test in judged.tests if test.margin is not None)
    return "within " + joined([f"x{trimmed(one)}" for one in known]) + " either way"
