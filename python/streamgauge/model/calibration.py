"""Pairs of known truth: a system and itself, or itself made slower by a known amount; the study that compares them, and what became of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from streamgauge.model.document import FileModel

DELAYED = "gauge-log"
"""Whose commits can be delayed."""
FIGURES = ("publish_ms.p50", "publish_ms.p99")


class Answer(FileModel):
    """What the study said of a figure: whether B's is higher than A's."""

    figure: str
    verdict: str
    ratio: float | None = None
    rounds: int
    """After how many it ended."""
    decided_after: int | None = None
    predicted: int | None = None
    """Rounds that the first look asked for, where it was undecided then and named a number."""


class Pair(FileModel):
    """One comparison."""

    system: str
    rate_msgs_s: float
    effect_percent: Annotated[float, Field(ge=0)]
    delay_us: int
    base_p50_ms: float
    took_s: float
    run: str
    answers: list[Answer]


def study_text(system: str, rate_msgs_s: float, delay_us: int) -> str:
    """The study file of a pair."""
    options = f", options: {{commit_delay_us: {delay_us}}}" if delay_us else ""
    scale = "{nodes: 1, repeats: 3, restart: trial, limit: 3m}"
    claims = "\n".join(
        f'  - {{claim: "{figure} of B is higher than of A", tests: [{{figure: {figure}, ratio: [b, a], above: 1}}]}}'
        for figure in FIGURES
    )
    return f"""\
study: calibration
title: One system under two names
source: {{publisher: streamgauge, published: "2026"}}
systems:
  a: {{system: {system}, title: A, level: L4, nodes: 1}}
  b: {{system: {system}, title: B, level: L4, nodes: 1{options}}}
workload: {{messageSize: 1KiB, rate: {rate_msgs_s:g}, warmup: 3s, duration: 6s}}
cells:
  - {{cell: a, system: a}}
  - {{cell: b, system: b}}
scales:
  laptop: {scale}
  quick: {scale}
claims:
{claims}
"""
