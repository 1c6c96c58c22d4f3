"""One way to wait for a condition (vocabulary/waiting.py), and no other."""

from __future__ import annotations

import ast
import time

import pytest
from sources import PACKAGE, around, files, nodes
from streamgauge.vocabulary.waiting import wait_until

PACING = {
    "vocabulary/waiting.py:wait_until": "the one that waits",
    "runner/settle.py:settle": "the time over which the CPU is measured",
    "runner/search.py:search": "a rest between probes",
    "runner/search.py:_touch": "for so long new topics are written to",
    "runner/search.py:_watch": "paces the pulling of intervals",
    "runner/study_run.py:lasting": "the time after which a probe is made again",
    "runner/durability/bench.py:wait": "passes time, looking around",
    "runner/load.py:_wait": "passes time until a place on the schedule, looking around",
    "systems/standalone.py:supervise": "the supervisor's watch, for as long as the system is up",
    "fleet/omb/clockwork.py:take_rest": "paces readings, which are counted",
    "fleet/omb/ensemble.py:is_busy": "the time between two readings",
    "fleet/omb/calls.py:start": "the delay that was asked for",
    "cli/watch_page.py:state": "lets come together what is told together",
}
"""The functions that may sleep, and why: they pace something, and do not wait for a condition."""


def sleeping() -> set[str]:
    """FILE:FUNCTION of every call of a `sleep`, however it was imported."""
    found = set()
    for path in files():
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module == "time":
                assert "sleep" not in [one.name for one in node.names], f"{path}: import time, for this test"
            if isinstance(node, ast.Attribute) and node.attr == "sleep":
                name = around(path, node.lineno)[-1:] or ["-"]
                found.add(f"{path.relative_to(PACKAGE)}:{name[0]}")
    return found


def test_only_what_paces_something_sleeps() -> None:
    assert sleeping() == set(PACING), "wait for a condition with streamgauge.vocabulary.waiting.wait_until"


def test_it_ends_when_nothing_is_missing_any_more() -> None:
    answers = iter(["node 1", "node 1", None])
    assert wait_until(lambda: next(answers), 10.0, 0.001) is None


def test_it_says_what_it_waited_for_last_and_for_how_long() -> None:
    answers = iter(["node 1 to answer", *["node 2 to answer"] * 10_000])
    began_s = time.monotonic()
    assert wait_until(lambda: next(answers), 0.05, 0.01) == "waited 0.05 s for node 2 to answer"
    assert time.monotonic() - began_s >= 0.05


def test_it_asks_once_even_when_the_time_is_up() -> None:
    assert wait_until(lambda: None, 0.0) is None
    assert wait_until(lambda: "rain", -1.0) == "waited -1 s for rain"


def test_a_question_that_outlasts_the_deadline_is_asked_again() -> None:
    answers = iter(["node 1 to answer", None])

    def slow() -> str | None:
        time.sleep(0.03)
        return next(answers)

    assert wait_until(slow, 0.01, 5.0) is None


def test_what_the_question_raises_ends_the_wait() -> None:
    def died() -> str | None:
        raise ProcessLookupError("node 1")

    with pytest.raises(ProcessLookupError, match="node 1"):
        wait_until(died, 10.0)
