"""Why a figure is what it is: which limit binds, what coincided with the tail, what the series do."""

from __future__ import annotations

from streamgauge.model.result import TrialResult
from streamgauge.model.result_reasons import Pattern
from streamgauge.vocabulary.format import capital, plural, significant

SERIES = {
    "publish_rate": ("publish rate", "msg/s"),
    "publish_ms_p50": ("publish p50", "ms"),
    "publish_ms_p99": ("publish p99", "ms"),
    "publish_ms_max": ("largest publish latency", "ms"),
    "service_ms_p50": ("service p50", "ms"),
    "service_ms_p99": ("service p99", "ms"),
    "service_ms_max": ("largest service time", "ms"),
}
LIMIT_TITLES = {"fsync": "disk flushes (fsync)", "thread": "busiest thread", "client_window": "client window"}
PATTERNS_MAX = 6


def sentences(trial: TrialResult) -> list[str]:
    """What binds, then the other limits that no bar shows, the tail, and what comes and goes."""
    found: list[str] = []
    if trial.bottleneck is not None:
        found.append(trial.bottleneck.explanation)
        found += [
            f"{capital(LIMIT_TITLES[one.name])}: {100 * one.share:.0f} %; {one.evidence}."
            for one in trial.bottleneck.limits
            if one.name in LIMIT_TITLES and one.name != trial.bottleneck.binding
        ]
    if trial.tail is not None:
        found.append(
            f"Tail ({plural(trial.tail.msgs, 'message')} above {significant(trial.tail.above_ms)} ms, the {trial.tail.metric} p99.9, in "
            f"{plural(trial.tail.intervals, 'interval')}): {trial.tail.explanation}"
        )
        if trial.tail.largest is not None:
            found.append(f"{capital(trial.tail.largest.explanation)}.")
    found += [pattern_words(one) for one in trial.patterns[:PATTERNS_MAX]]
    if len(trial.patterns) > PATTERNS_MAX:
        found.append(
            f"In result.json (patterns): {plural(len(trial.patterns) - PATTERNS_MAX, 'more change')}."
        )
    return found


def pattern_words(pattern: Pattern) -> str:
    """One sentence."""
    title, unit = SERIES.get(pattern.series, (pattern.series, ""))
    if pattern.kind == "period":
        return (
            f"The {title} has something that comes back every {significant(pattern.period_s)} s, where it is "
            f"{significant(pattern.swing)} times as high as elsewhere."
        )
    return (
        f"From {significant(pattern.at_s)} s on, the {title} is {significant(pattern.after)} {unit} instead of "
        f"{significant(pattern.before)} {unit}."
    )
