"""CPUs that are kept awake while a trial runs (`idle: poll`): `gauge idle` spins where nothing else wants to run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.gauge_binary import find_gauge

READY = "ready "
END_WITHIN_S = 3.0


class Awake:
    """The process that keeps them awake, from here to `end`."""

    def __init__(self, gauge: Path | None = None) -> None:
        """Raises SystemFailure where CPUs cannot be kept awake, as under a quota."""
        command = [str(gauge or find_gauge()), "idle", "--parent-pid", str(os.getpid())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith(READY):
            _, said = self._process.communicate()
            raise SystemFailure(f"the CPUs cannot be kept awake (idle: poll): {said.strip()}")

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def end(self) -> None:
        """Lets them fall asleep again. Idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
