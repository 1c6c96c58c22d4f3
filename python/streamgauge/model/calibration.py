"""Pairs of known truth: a system and itself, or itself made slower by a known amount; the study that compares them, and what became of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from streamgauge.model.document import FileModel
from streamgauge.vocabulary.errors import InputError

DELAYED = "gauge-log"
"""Whose commits can be delayed."""
PAIRS = "pairs.jsonl"
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


def append_pair(directory: Path, pair: Pair) -> None:
    """Keeps a pair."""
    with (directory / PAIRS).open("a", encoding="utf-8") as file:
        file.write(pair.model_dump_json() + "\n")


def read_pairs(directory: Path) -> list[Pair]:
    """Those that were kept. Raises InputError for a line that is none."""
    path = directory / PAIRS
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        try:
            found.append(Pair.model_validate(json.loads(line)))
        except (ValueError, ValidationError):
            raise InputError(
                f"{path}, line {number}: expected a pair as calibrate-verdicts writes them; remove the line, or choose another --out"
            ) from None
    return found
