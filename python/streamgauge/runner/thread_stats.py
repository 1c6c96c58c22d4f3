"""CPU of a process's threads: a broker whose one busy thread is at its end is at its end, however many cores are idle."""

from __future__ import annotations

import os
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BUSIEST = 3
"""So many threads of each process are kept."""


def read_threads(pid: int) -> dict[int, tuple[str, float]]:
    """Thread -> its name and the CPU seconds it has used; empty when the process is gone."""
    found: dict[int, tuple[str, float]] = {}
    try:
        tasks = list(os.scandir(f"/proc/{pid}/task"))
    except OSError:
        return found
    for task in tasks:
        try:
            text = (Path(task.path) / "stat").read_text("utf-8", errors="replace")
        except OSError:
            continue
        # The name stands in parentheses and may hold any character; what follows it is numbers.
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        found[int(task.name)] = (name, (int(fields[11]) + int(fields[12])) / TICKS_PER_S)
    return found


def busiest(
    before: dict[int, tuple[str, float]], now: dict[int, tuple[str, float]]
) -> list[tuple[str, float]]:
    """The threads that used most CPU between two readings: name and seconds."""
    spent = [
        (f"{name} ({thread})", cpu_s - before[thread][1])
        for thread, (name, cpu_s) in now.items()
        if thread in before
    ]
    return sorted(spent, key=lambda one: -one[1])[:BUSIEST]
