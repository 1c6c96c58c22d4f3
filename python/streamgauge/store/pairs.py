"""The pairs of known truth that were compared, one per line of `pairs.jsonl`: what `calibrate-verdicts` goes on from."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from streamgauge.model.calibration import Pair
from streamgauge.vocabulary.errors import InputError

PAIRS = "pairs.jsonl"


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
