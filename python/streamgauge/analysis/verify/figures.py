"""A result as it was stored beside the one that its raw data give now."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from streamgauge.analysis.trial import TOLD
from streamgauge.analysis.verify.rules import Finding, found
from streamgauge.model.result import TrialResult

CLOSE = 1e-9
"""The last digits depend on how numpy was built for the processor."""
JUDGED = frozenset({"validity", "steadiness", "patterns", "bottleneck", "tail", "quiet"})
"""What is concluded from figures: another version of the lab may conclude otherwise, and say it in other words."""
PROSE = frozenset({"explanation", "conclusion", "reasons", "warnings", "why", "sentence"})
"""Sentences for people."""
WANTING = frozenset({"format"})

Difference = tuple[str, Any, Any]
"""Where, as it was stored, as it is computed."""


def compare(stored: Mapping[str, Any], computed: TrialResult, *, same_version: bool) -> Iterator[Finding]:
    """The findings of `told`, `figures` and `judgement`. `stored`: result.json as it stands there. `same_version`: whether the version of streamgauge that made
    it is this one."""
    now = computed.model_dump(mode="json")
    trial = computed.trial
    different = list(_differences(stored, now))
    # What an earlier version did not know of, and what there is nothing of, is no difference.
    missing = [name for name in now if name not in stored and now[name] not in (None, [], {})]
    told = [one for one in different if _first(one) in TOLD | WANTING]
    judged = [one for one in different if _first(one) in JUDGED]
    figures = [one for one in different if _first(one) not in TOLD | WANTING | JUDGED]
    yield from found("told", map(_sentence, told), trial)
    yield from found("figures", map(_sentence, figures), trial)
    hard = [one for one in judged if same_version and not _is_prose(one)]
    soft = [one for one in judged if one not in hard]
    unknown = None
    if soft:
        why = "in other words" if same_version else "as another version of streamgauge made it"
        unknown = f"{_sentence(soft[0])}: {why}"
    elif missing:
        unknown = f"made before these were told: {', '.join(missing)}"
    yield from found("judgement", map(_sentence, hard), trial, unknown=unknown)


def _first(difference: Difference) -> str:
    return difference[0].partition(".")[0].partition("[")[0]


def _is_prose(difference: Difference) -> bool:
    """Whether only the words of sentences differ: as many of them are there."""
    where, stored, computed = difference
    named = where.rpartition(".")[2].partition("[")[0] in PROSE
    return named and isinstance(stored, str) and isinstance(computed, str) and bool(stored) == bool(computed)


def _differences(stored: Any, computed: Any, where: str = "") -> Iterator[Difference]:
    """What differs. A name that was not stored yet is none."""
    if isinstance(stored, Mapping) and isinstance(computed, Mapping):
        for name in stored.keys() | computed.keys():
            inner = f"{where}.{name}" if where else str(name)
            if name in stored and name in computed:
                yield from _differences(stored[name], computed[name], inner)
            elif name in stored and stored[name] is not None:
                yield inner, stored[name], None
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for at, (one, other) in enumerate(zip(stored, computed, strict=True)):
            yield from _differences(one, other, f"{where}[{at}]")
    elif not _same(stored, computed):
        yield where, stored, computed


def _same(stored: Any, computed: Any) -> bool:
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (stored, computed))
    if numbers:
        return math.isclose(stored, computed, rel_tol=CLOSE, abs_tol=1e-12)
    return type(stored) is type(computed) and bool(stored == computed)


def _sentence(difference: Difference) -> str:
    where, stored, computed = difference
    return f"{where} is {_shown(stored)}, and {_shown(computed)} by the raw data"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | Mapping):
        return f"{len(value)} of them"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"'{str(value)[:100]}'"
