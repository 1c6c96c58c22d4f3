"""Ctrl-C (and SIGTERM, SIGHUP): once to finish with what is there, twice to stop at once.

What a signal does depends on where the run is:

- `raising`: nothing has been measured yet; the first signal raises Interrupted where the program stands.
- `flagging`: load runs; the first signal is seen by the loop, which ends the load in good order; a second one
  raises Interrupted.
- `shielded`: things are being stopped and written; signals never raise here. From the second signal on, what
  is being stopped politely is killed.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Literal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Mode = Literal["raising", "flagging", "shielded"]


class Interrupted(KeyboardInterrupt):
    """The user wants to stop. Not an Exception, so that no handler for errors swallows it."""


class OutOfTime(BaseException):
    """A time limit was reached. Not an Exception, so that no handler for errors swallows it."""


class Interrupts:
    """Counts signals; a context manager that takes over the handlers and gives them back."""

    def __init__(self) -> None:
        self.count = 0
        self._mode: Mode = "raising"
        self._killers: list[Callable[[], None]] = []
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether the user wants to stop."""
        return self.count > 0

    @property
    def at_once(self) -> bool:
        """Whether the user wants to stop without further ado."""
        return self.count > 1

    def __enter__(self) -> Interrupts:
        # Handlers belong to the main thread; elsewhere (a test's thread) nobody sends signals.
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def check(self) -> None:
        """Raises Interrupted if a stop was requested in a mode that did not raise."""
        if self.requested:
            raise Interrupted

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """See the module's docstring."""
        with self._as("raising"):
            # The signal may have come just before, while the mode was another one.
            self.check()
            yield

    @contextlib.contextmanager
    def flagging(self) -> Iterator[None]:
        """See the module's docstring."""
        with self._as("flagging"):
            yield

    @staticmethod
    @contextlib.contextmanager
    def within(seconds: float | None) -> Iterator[None]:
        """Raises OutOfTime where the program stands after so long; None sets no limit. For the main thread, as signals
        are."""
        if seconds is None or threading.current_thread() is not threading.main_thread():
            yield
            return

        def ring(_number: int, _frame: FrameType | None) -> None:
            raise OutOfTime

        previous = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)

    @contextlib.contextmanager
    def shielded(self, kill: Callable[[], None] | None = None) -> Iterator[None]:
        """See the module's docstring. `kill` must be quick and safe to call at any time."""
        if kill is not None:
            self._killers.append(kill)
        try:
            with self._as("shielded"):
                if self.at_once and kill is not None:
                    kill()
                yield
        finally:
            if kill is not None:
                self._killers.remove(kill)

    @contextlib.contextmanager
    def _as(self, mode: Mode) -> Iterator[None]:
        previous, self._mode = self._mode, mode
        try:
            yield
        finally:
            self._mode = previous

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._mode == "raising" or (self._mode == "flagging" and self.at_once):
            raise Interrupted
        if self._mode == "shielded" and self.at_once:
            for kill in self._killers:
                with contextlib.suppress(Exception):
                    kill()
