"""The published JSON schema of `result.json`: `python -m streamgauge.model.schema docs/result.schema.json`
writes it.

Generated from `model.result.TrialResult`, so that the schema and the code cannot part; a test checks that the
file is current.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from streamgauge.model.result import TrialResult

TITLE = "The result of one streamgauge trial"


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a trial's result."""
    generated = TrialResult.model_json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **generated,
        "title": TITLE,
    }


def text() -> str:
    """The file's contents."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Writes the schema to the path given, or to standard output."""
    if len(arguments) > 1:
        print("usage: python -m streamgauge.model.schema [FILE]", file=sys.stderr)
        return 2
    if not arguments:
        print(text(), end="")
        return 0
    path = Path(arguments[0])
    try:
        path.write_text(text(), encoding="utf-8")
    except OSError as error:
        print(f"{path}: the schema cannot be written there: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
