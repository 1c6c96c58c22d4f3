"""The compilers of JVMs while a load warms them up.

They have 15 to 50 s of CPU to use before a broker is what it will be, and on a small machine they get a third of a core of it: code that is not compiled yet
takes the rest. So while a warm-up waits for them, their threads go before those of normal priority, and are as they were before anything counts.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator

from streamgauge.runner.thread_stats import read_threads

NAMES = frozenset({"C1 CompilerThre", "C2 CompilerThre"})
"""As far as the kernel keeps the names of threads."""
FIRST_NICE = -19


class Compilers:
    """Those of a system that the lab has started."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        """`pids`: the system's processes, as they are now."""
        self._pids = pids
        self._first = False

    @contextlib.contextmanager
    def first(self) -> Iterator[None]:
        """Until this ends they go before other threads, where this process may decide that (CAP_SYS_NICE)."""
        self._first = True
        try:
            self.used_s()
            yield
        finally:
            self._first = False
            # One that another one starts has its priority from that, and may do so just now: a second look finds it.
            for pid in 2 * list(self._pids()):
                for thread in self._of(pid):
                    _set_nice(thread, pid, FIRST_NICE, None)

    def used_s(self) -> float:
        """CPU seconds that they have used so far, those that are gone left out. Those that are new go first as well, where the others do."""
        used_s: list[float] = []
        for pid in self._pids():
            threads = self._of(pid)
            used_s += threads.values()
            if self._first:
                for thread in threads:
                    _set_nice(thread, pid, None, FIRST_NICE)
        return math.fsum(used_s)

    def _of(self, pid: int) -> dict[int, float]:
        return {thread: cpu_s for thread, (name, cpu_s) in read_threads(pid).items() if name in NAMES}


def _set_nice(thread: int, pid: int, before: int | None, after: int | None) -> None:
    """From one value to another; None is that of the process's first thread."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        usual = os.getpriority(os.PRIO_PROCESS, pid)
        if os.getpriority(os.PRIO_PROCESS, thread) == (usual if before is None else before):
            os.setpriority(os.PRIO_PROCESS, thread, usual if after is None else after)
