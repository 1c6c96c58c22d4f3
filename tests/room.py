"""A test that takes long begins when the cores have room for it (docs/testing.md).

How many tests fit beside each other depends on what they do just then and on the machine: most wait, for a broker to come up or for a trial
to last as long as it must, and some compute. So there are more processes than the cores could bear, and each looks before it begins a test:
as many tests as there are cores run in any case, and every other one begins when a part of the cores had nothing to do a moment ago.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest
from quiet import cpu_ticks
from xdist.workermanage import WorkerController

CORES = len(os.sched_getaffinity(0))
TAKES_LONG = ("jvm", "server", "browser", "lab")
LOOK_S = 0.5
"""The cores are looked at for so long before another test begins; that one shows what it takes before the next."""
ROOM = 0.1
"""The share of the cores that had nothing to do for all that time."""
LOW_PRIORITY = 0.4
"""What is computed at low priority leaves the cores to others, though not at once, and counts as so much of nothing."""
POLL_S = 0.1


def idle_s() -> float:
    """Seconds that CPUs were idle since boot, summed over CPUs. What a host takes away counts as busy."""
    _, nice, _, idle, iowait, *_ = cpu_ticks()
    return (LOW_PRIORITY * nice + idle + iowait) / os.sysconf("SC_CLK_TCK")


class Room:
    """What the processes of one run of tests share: a directory with locks."""

    def __init__(self, directory: Path, cores: int = CORES) -> None:
        self.places = [directory / f"place-{at}" for at in range(cores)]
        self.look = directory / "look"
        self.cores = cores

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Waits until a test may begin, and holds its place, if it has got one, until it ends."""
        with ExitStack() as held:
            while not (self.has_place(held) or self.is_room()):
                time.sleep(POLL_S)
            yield

    def has_place(self, held: ExitStack) -> bool:
        """Whether one of the places was free; it is taken then."""
        for path in self.places:
            place = path.open("ab")
            if is_locked_now(place):
                held.enter_context(place)
                # What the test has forked has the file open too.
                held.callback(fcntl.flock, place, fcntl.LOCK_UN)
                return True
            place.close()
        return False

    def is_room(self) -> bool:
        """Whether the cores had room since they were looked at last, by whichever process."""
        with self.look.open("a+", encoding="ascii") as look:
            if not is_locked_now(look):
                return False
            look.seek(0)
            now_s, idle = time.monotonic(), idle_s()
            last_s, last_idle = (float(part) for part in (look.read() or f"{now_s} {idle}").split())
            passed_s = now_s - last_s
            if 0.0 < passed_s < LOOK_S:
                return False
            look.truncate(0)
            look.write(f"{now_s} {idle}")
            # A look of long ago tells nothing of now.
            return LOOK_S <= passed_s < 4 * LOOK_S and idle - last_idle >= ROOM * self.cores * passed_s


def is_locked_now(file: IO[bytes] | IO[str]) -> bool:
    """Whether a lock of a file was to be had; it lasts until the file is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


SHARED = pytest.StashKey[str]()
OURS = pytest.StashKey[Room]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tells each process of a run where what they share is."""
    config = node.config
    if SHARED not in config.stash:
        directory = tempfile.TemporaryDirectory(prefix="room-")
        config.add_cleanup(directory.cleanup)
        config.stash[SHARED] = directory.name
    node.workerinput["room"] = config.stash[SHARED]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Of several processes, one that comes to a test that takes long waits for room. Its limit of time begins behind that."""
    shared = getattr(item.config, "workerinput", {}).get("room")
    if shared is None or not any(item.get_closest_marker(mark) for mark in TAKES_LONG):
        return (yield)
    if OURS not in item.config.stash:
        item.config.stash[OURS] = Room(Path(shared))
    with item.config.stash[OURS].entered():
        return (yield)
