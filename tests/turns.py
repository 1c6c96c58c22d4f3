"""Tests that want a core all the time (tests/lanes.py) take turns, so that there may be many processes for those that wait.

Without turns, JVMs start four at once where there are as many processes as it takes to use the time in which tests wait, and time runs out for what
waits for them.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
from lanes import kind_of

AT_ONCE = len(os.sched_getaffinity(0))
LOOK_S = 0.1


def taken(run: str) -> socket.socket | None:
    """One of the turns of a run, if one is free: a name that the kernel gives to one process at a time, and takes back when that ends."""
    for number in range(AT_ONCE):
        turn = socket.socket(socket.AF_UNIX)
        try:
            turn.bind(f"\0streamgauge-tests-{run}-{number}")
        except OSError:
            turn.close()
        else:
            return turn
    return None


@contextmanager
def in_turn(run: str) -> Iterator[None]:
    """Holds one of the turns, as soon as it is free."""
    while (turn := taken(run)) is None:
        time.sleep(LOOK_S)
    with turn:
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Before the test's own clock (pytest-timeout) begins. A run of one process has no turns to take."""
    run = getattr(item.config, "workerinput", {}).get("testrunuid")
    if run is None or kind_of([item]) not in ("jvm", "computes"):
        return (yield)
    with in_turn(run):
        return (yield)
