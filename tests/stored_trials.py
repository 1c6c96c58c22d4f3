"""Real trials that are kept (tests/data/trials), each with the result that was computed from it: NAME.tar.xz holds what `analyse` reads, NAME.json the result.

`tools/keep_trial.py` makes both.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamgauge.analysis.trial import analyse
from streamgauge.store.directory import TrialDirectory

KEPT = Path(__file__).with_name("data") / "trials"

LEFT_OUT = (
    "quiet",
    "validity.word",
    "validity.conclusion",
    "search.probes.disturbed_share",
    "search.soak.disturbed_share",
    "search.probes.away_share",
    "search.soak.away_share",
)
"""Keys of a result that are not compared."""

SINCE: Mapping[str, Any] = {
    "own_metrics": [],
    "own_metrics_spared": [],
    "cluster_hosts": [],
    "profiled": None,
    "cpu.wakeups_per_s": None,
    "processes.syncs_per_s": None,
    "processes.sync_ms": None,
    "search.probes.by_machine": False,
    "search.soak.by_machine": False,
}
"""Keys of a result that came after trials were kept -> their value in those."""

DIGITS = 12
"""Of a number: the last ones depend on how numpy was built for the processor."""


def names() -> list[str]:
    """The trials that are kept."""
    return sorted(path.name.removesuffix(".tar.xz") for path in KEPT.glob("*.tar.xz"))


def unpack(name: str, into: Path) -> None:
    """Lays a kept trial into a directory."""
    with tarfile.open(KEPT / f"{name}.tar.xz") as archive:
        archive.extractall(into, filter="data")


def result_of(directory: Path) -> str:
    """The result of the trial in a directory, in canonical JSON: sorted, a line for each key, numbers to `DIGITS` digits, without `LEFT_OUT`."""
    context = TrialDirectory(directory).read_context()
    assert context is not None
    result: dict[str, Any] = json.loads(analyse(context, directory).model_dump_json())
    for key in LEFT_OUT:
        found, last = _holding(result, key)
        for one in found:
            del one[last]
    return canonical(result)


def stored(name: str) -> str:
    """The result that was kept, with `SINCE`."""
    kept: dict[str, Any] = json.loads((KEPT / f"{name}.json").read_text("utf-8"))
    for key, value in SINCE.items():
        found, last = _holding(kept, key)
        for one in found:
            one.setdefault(last, value)
    return canonical(kept)


def _holding(result: dict[str, Any], key: str) -> tuple[list[dict[str, Any]], str]:
    """What has the last part of a key in it, in lists each of their entries, and that part."""
    *path, last = key.split(".")
    found = [result]
    for part in path:
        below = [one[part] for one in found if one[part] is not None]
        found = [one for value in below for one in (value if isinstance(value, list) else [value])]
    return found, last


def canonical(result: Mapping[str, Any]) -> str:
    """A result as it is kept."""
    lines = (f"{json.dumps(key)}: {_line(value)}" for key, value in sorted(result.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(_rounded(value), sort_keys=True, ensure_ascii=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value
