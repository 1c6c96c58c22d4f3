"""What tests cost: the CPU of their process and of the programs that it has waited for, by file. Most of a suite's time is a few files'."""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Generator

import pytest

SHOWN = 15
LEAST_S = 60.0
"""Of a run that took less CPU nobody asks what it went into."""
BEGAN = pytest.StashKey[tuple[float, float]]()


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Notes where a test begins, with the fixtures that are made for it."""
    item.stash[BEGAN] = (cpu_s(), time.monotonic())
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds CPU and wall-clock seconds to the report of a test's end. What a shared fixture costs is its first and last test's."""
    report = yield
    if report.when == "teardown" and BEGAN in item.stash:
        cpu, wall = item.stash[BEGAN]
        report.user_properties.append(("cost", (cpu_s() - cpu, time.monotonic() - wall)))
    return report


def tell(terminalreporter: pytest.TerminalReporter) -> None:
    """The files that cost most, and the dearest test of each."""
    files: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for report in terminalreporter.getreports(""):
        for name, value in getattr(report, "user_properties", ()):
            if name == "cost":
                path, _, test = report.nodeid.partition("::")
                files[path].append((*value, test))
    spent = {path: sum(cpu for cpu, _, _ in tests) for path, tests in files.items()}
    if sum(spent.values()) < LEAST_S:
        return
    terminalreporter.line(f"{sum(spent.values()):.0f} s of CPU in tests; the files that took most:")
    terminalreporter.line("   CPU s   wall s  tests  file, and its dearest test")
    for path in sorted(spent, key=spent.__getitem__, reverse=True)[:SHOWN]:
        dearest = max(files[path])
        wall = sum(one for _, one, _ in files[path])
        line = (
            f"{spent[path]:8.1f} {wall:8.1f} {len(files[path]):6d}  {path} ({dearest[0]:.1f} s: {dearest[2]})"
        )
        terminalreporter.line(line)
