"""The machine under everything: its limits, its page cache, its free space."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from streamgauge.fleet.children import last_lines, start_child, stop_child

PROBE_WITHIN_S = 60.0
PROBE_ROUNDS = 3
FREE_BYTES_MIN = 512 * 1024 * 1024
"""A trial ends before it fills the disk: what a full disk does to a system is no figure."""


class ProbeFailure(Exception):
    """The machine's limits could not be measured. The run goes on without them, and says so."""


def probe(gauge: Path, directory: Path, when: str) -> dict[str, Any]:
    """`gauge probe --short` where the systems' data lives. Raises ProbeFailure."""
    with tempfile.TemporaryDirectory(prefix="streamgauge-probe-") as scratch:
        log, errors = Path(scratch) / "out", Path(scratch) / "errors"
        command = [str(gauge), "probe", "--short", "--json", "--dir", str(directory)]
        try:
            child = start_child(command, log, errors=errors)
        except OSError as error:
            raise ProbeFailure(f"gauge probe could not be started: {error.strerror}") from None
        try:
            child.wait(PROBE_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise ProbeFailure(f"gauge probe did not end within {PROBE_WITHIN_S:g} s") from None
        finally:
            stop_child(child, 2.0)
        if child.returncode != 0:
            said = last_lines(errors, 1) or "it said nothing"
            raise ProbeFailure(f"gauge probe ended with status {child.returncode}: {said}")
        try:
            found = json.loads(log.read_text("utf-8"))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ProbeFailure("gauge probe printed something that is no JSON object")
        if isinstance(found.get("host"), dict):
            # A run is passed on: what the machine is says something of its figures, what it is called does not.
            found["host"].pop("hostname", None)
        return {"when": when, **found}


def steady_probe(gauge: Path, directory: Path, when: str) -> dict[str, Any]:
    """As `probe`, the median of PROBE_ROUNDS: a study is judged by what changed between its probes, and a single one of 3 s catches
    whatever the machine did in them. Raises ProbeFailure."""
    found = [probe(gauge, directory, when) for _ in range(PROBE_ROUNDS)]
    middle = _median(found)
    notes = dict.fromkeys(note for one in found for note in one.get("notes", []))
    return {**middle, "rounds": PROBE_ROUNDS, "notes": list(notes)}


def _median(values: list[Any]) -> Any:
    """The median of numbers, figure by figure in what holds them; of everything else the first."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _median([one.get(key, first[key]) for one in values]) for key in first}
    if isinstance(first, bool) or not isinstance(first, int | float):
        return first
    return type(first)(statistics.median(values))


def drop_page_cache() -> str | None:
    """Writes dirty pages and drops the page cache, so that no trial reads what an earlier one wrote. None
    when
    it was done, else one sentence why not."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1\n", encoding="ascii")
    except OSError as error:
        return f"the page cache was not dropped before the trial ({error.strerror}; it takes root on Linux)"
    return None


def free_bytes(directory: Path) -> int | None:
    """Free space where `directory` lives, or None when it cannot be told."""
    with contextlib.suppress(OSError):
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize
    return None


def disk_problem(directory: Path) -> str | None:
    """One sentence when the disk is nearly full."""
    free = free_bytes(directory)
    if free is None or free >= FREE_BYTES_MIN:
        return None
    return (
        f"only {free / 1e6:.0f} MB are free where the system keeps its data ({directory}); "
        f"expected {FREE_BYTES_MIN / 1e6:.0f} MB or more: free space, or choose another place with --data"
    )


def unix_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def cores() -> int:
    """Cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def stolen_s() -> float:
    """CPU time that the host of this machine has taken away since it started, over all cores; 0 where it does not tell."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))
