"""The parts of a running system: processes that can be killed, stopped and started again each by itself.

An experiment that breaks a system on purpose knows nothing of brokers and bookies. It asks a system for its parts,
breaks some of them, and asks a part whether it serves again.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

ALL = "all"
KILL_WAIT_S = 10.0
"""How long to wait for the kernel to reap after SIGKILL (a process in uninterruptible I/O takes its time)."""


class PartProcess(Protocol):
    """What a part must be able to do with its process (`support/processes.py`)."""

    down_on_purpose: bool
    """An experiment has killed it: that it is gone is no failure."""

    log: Path
    """Where its output goes."""

    def ending(self) -> str | None:
        """How it ended, as the rest of a sentence; None while it runs."""

    @property
    def pid(self) -> int:
        """The process's id."""

    def running(self) -> bool:
        """True until it has ended."""

    def wait(self, deadline_s: float) -> bool:
        """Waits until it ends, at most until `deadline_s` on the monotonic clock; True when it has ended."""

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to it and its descendants."""

    def await_standing(self) -> None:
        """Waits until neither it nor its descendants, which got SIGSTOP, run. Raises SystemFailure."""

    def respawn(self) -> None:
        """Starts it once more, with the same command. Raises SystemFailure."""


@dataclass(frozen=True)
class Part:
    """One process of a system that the lab has started."""

    name: str
    """As in `RunningSystem.processes`: "node-1", "bookie-2"."""
    process: PartProcess = field(repr=False)
    waits_for: Callable[[], str | None] = field(repr=False)
    """What it still has to do until it serves, as the rest of a sentence; None when it serves."""
    data: tuple[Path, ...] = ()
    """The directories in which it keeps messages and what it must know of them; none for a part without state."""
    before_restart: Callable[[], None] | None = field(default=None, repr=False)
    """What must be done before it is started again."""

    def resume(self) -> None:
        """SIGCONT."""
        self.process.signal(signal.SIGCONT)

    def restart(self) -> None:
        """Starts it again on the data it has. Does not wait until it serves. Raises SystemFailure."""
        if self.before_restart is not None:
            self.before_restart()
        self.process.respawn()


def pause_together(parts: Sequence[Part]) -> None:
    """SIGSTOP to all of them before any is waited for: they keep their connections, and do nothing more when this returns. What was under way in
    the kernel, a sync, may have ended meanwhile. Raises SystemFailure.
    """
    for part in parts:
        part.process.signal(signal.SIGSTOP)
    for part in parts:
        part.process.await_standing()


def kill_together(parts: Sequence[Part]) -> None:
    """SIGKILL to all of them before any is waited for."""
    for part in parts:
        part.process.down_on_purpose = True
    for part in parts:
        part.process.signal(signal.SIGKILL)
    deadline_s = time.monotonic() + KILL_WAIT_S
    for part in parts:
        part.process.wait(deadline_s)


def stages(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts of a kind together, in the order in which they must be started: a bookie needs a ZooKeeper that serves."""
    found: list[list[Part]] = []
    for part in parts:
        if found and _kind(found[-1][0]) == _kind(part):
            found[-1].append(part)
        else:
            found.append([part])
    return found


def _kind(part: Part) -> str:
    return part.name.rpartition("-")[0] or part.name


def node_of(part: Part) -> int | None:
    """The number of the node that a part belongs to; None for what all nodes share."""
    number = part.name.rpartition("-")[2]
    return int(number) if number.isdigit() else None


def on_same_nodes(parts: Sequence[Part], chosen: Sequence[Part]) -> list[Part]:
    """All parts of the nodes on which those chosen are: what their network is cut for.

    Raises ValueError when one of them belongs to no node.
    """
    lost = [part.name for part in chosen if node_of(part) is None]
    if lost and len(chosen) == len(lost):
        raise ValueError(
            f"{', '.join(lost)} is on no node of its own, so that it has no network that could be cut"
        )
    nodes = {node_of(part) for part in chosen} - {None}
    return [part for part in parts if node_of(part) in nodes]


def choose(parts: Sequence[Part], target: str) -> list[Part]:
    """The parts that a target means: "all", a part's name, or a number (or "node-" and a number), which is a node: all parts of it.

    Raises ValueError that says what there is.
    """
    if target == ALL:
        chosen = list(parts)
    elif target.removeprefix("node-").isdigit():
        number = int(target.removeprefix("node-"))
        chosen = [part for part in parts if node_of(part) == number]
    else:
        chosen = [part for part in parts if target in (part.name, part.name.rpartition("-")[0])]
    if not chosen:
        names = ", ".join(part.name for part in parts)
        raise ValueError(f"'{target}' is no part of it; expected a node's number, {ALL}, or one of: {names}")
    return chosen
