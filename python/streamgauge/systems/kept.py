"""A system that is kept between trials: started by the first trial of a block, stopped by whoever keeps it.

To a trial it is a system like any other, except that stopping and wiping do nothing: the next trial finds it as this one
left it, and works on topics of its own. One that has failed is not kept.

Both classes here are laid over the class of what is kept, whose attributes and methods are inherited and not handed on one by
one: whatever a system declares, a kept one declares.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from streamgauge.model.system_kind import check_security
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import (
    Progress,
    RunningSystem,
    System,
)
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.files import rescue_logs

T = TypeVar("T")


def _laid_over(over: type[T], thing: Any, **members: Any) -> T:
    """The same thing - its class and its state - with the methods of `over` before its own."""
    kind = type(f"{over.__name__}{type(thing).__name__}", (over, type(thing)), members)
    found: Any = object.__new__(kind)
    found.__dict__ = vars(thing)
    return cast(T, found)


class KeptRunning(RunningSystem):
    """A running system as a trial sees it."""

    kept = True

    @classmethod
    def of(cls, running: RunningSystem, *, has_run: bool) -> Self:
        """The view of a trial on a system that goes on after it. `has_run`: a trial before."""
        return _laid_over(cls, running, has_run=has_run)

    def stop(self) -> None:
        """Nothing: the next trial goes on with it."""

    def wipe(self) -> None:
        """Nothing: its data are removed with the block."""


@dataclass
class _Block:
    """What is kept, and where."""

    system: System
    directory: Path
    running: RunningSystem | None = None


class KeptSystem(System):
    """A system with at most one instance, which lives in a directory from the first `start` to `end`. What later starts ask may differ from the first in the
    level, where that is a matter of topics."""

    _block: _Block

    @classmethod
    def of(cls, system: System, directory: Path) -> Self:
        """The system, whose instance will be kept in `directory`."""
        return _laid_over(cls, system, _block=_Block(system, directory))

    def start(self, request: SystemRequest, directory: Path, progress: Progress) -> RunningSystem:
        """The instance that runs, or a new one. A trial's `directory` stays empty."""
        block = self._block
        if block.running is not None and block.running.failure() is not None:
            self.end()
        has_run = block.running is not None
        if block.running is None:
            require(block.system, request)
            block.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                block.running = block.system.start(request, block.directory, progress)
            except BaseException:
                # The trial keeps what it finds of logs in its own directory.
                rescue_logs(block.directory, directory)
                self.end()
                raise
        else:
            progress(f"{self.title} runs already")
            if self.level_of_topics:
                block.running.take_level(request)
        return KeptRunning.of(block.running, has_run=has_run)

    def end(self) -> None:
        """Stops the instance and removes its data. Idempotent."""
        block = self._block
        running, block.running = block.running, None
        if running is not None:
            running.discard()
        shutil.rmtree(block.directory, ignore_errors=True)


class CheckedSystem(KeptSystem):
    """A system that is started for each trial, and checked then: what cannot run here fails that trial."""

    def start(self, request: SystemRequest, directory: Path, progress: Progress) -> RunningSystem:
        """See System."""
        require(self._block.system, request)
        return self._block.system.start(request, directory, progress)


class WithheldSystem(System):
    """A cluster that runs and is not measured: what was to make it ready has failed, and a trial on it fails with that reason."""

    _why: str

    @classmethod
    def of(cls, system: System, why: str) -> Self:
        """The system, and why it is not measured."""
        return _laid_over(cls, system, _why=why)

    def attach(self, request: SystemRequest) -> RunningSystem:  # noqa: ARG002
        """See System."""
        raise SystemFailure(self._why)


def require(system: System, request: SystemRequest) -> None:
    """Raises SystemFailure or SystemInputError when the system cannot run on this machine."""
    missing = system.missing()
    if missing:
        raise SystemFailure(f"{system.title} cannot run here: {missing}")
    check_security(system, request)
    system.check(request)
