"""Work beside the lab's own, on a thread that ends when it is told to, or with the lab."""

from __future__ import annotations

import abc
import threading


class Background(abc.ABC):
    """Work on a thread of its own, from `start` until `stop`."""

    def __init__(self, name: str, ends_within_s: float) -> None:
        """`ends_within_s`: how long `stop` waits for the thread, which may be in the middle of something."""
        self._ends_within_s = ends_within_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends, if it has begun. Idempotent."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(self._ends_within_s)

    @abc.abstractmethod
    def _run(self) -> None:
        """The work, which returns when `_stop` is set."""
