"""No silent green: with CI=true a test that is skipped without being in tests/allowed-skips.txt fails the run."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from lanes import name_of

ALLOWED = Path(__file__).with_name("allowed-skips.txt")


def allowed_skips() -> list[tuple[str, str]]:
    """Patterns of tests (FILE::TEST, or FILE for a whole module) and of the reasons for which each may be skipped."""
    found = []
    for line in ALLOWED.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            test, _, reason = line.partition(" | ")
            found.append((test.strip(), reason.strip()))
    return found


def is_allowed(nodeid: str, reason: str) -> bool:
    """Whether this test may be skipped for this reason."""
    name = name_of(nodeid).removesuffix("::")
    return any(fnmatchcase(name, test) and fnmatchcase(reason, why) for test, why in allowed_skips())


class Skips:
    """Collects the skips of a run. With xdist it is the controller that sees all of them."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}

    def look(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Remembers a skip that is not allowed."""
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            reason = reason.removeprefix("Skipped: ")
            if not is_allowed(report.nodeid, reason):
                self.refused[report.nodeid] = reason

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that was skipped, or skipped itself."""
        self.look(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that was skipped."""
        self.look(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fails a run that was green up to here."""
        if self.refused and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says what was refused."""
        if self.refused:
            terminalreporter.section("skipped, and not in tests/allowed-skips.txt", sep="!", red=True)
            for nodeid, reason in self.refused.items():
                terminalreporter.line(f"{nodeid}: {reason}")


def pytest_configure(config: pytest.Config) -> None:
    """Watches in continuous integration, in the process that sees all tests."""
    if os.environ.get("CI") == "true" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips(), "refused-skips")
