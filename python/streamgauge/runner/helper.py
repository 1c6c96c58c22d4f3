"""Programs of `gauge` that run beside a trial: they say that they are ready, do their work, and are ended."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from streamgauge.vocabulary.gauge_binary import find_gauge

READY = "ready"
END_WITHIN_S = 3.0


class Helper:
    """A running one, from here to `end`."""

    def __init__(self, words: Sequence[str], gauge: Path | None) -> None:
        self._process = subprocess.Popen(
            [str(gauge or find_gauge()), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asks, self._answers = self._process.stdin, self._process.stdout
        self._is_ready = self._answers.readline().startswith(READY)
        # One that cannot do its work is waited for here: nobody asks it again, and it would stay a zombie for as long as the lab runs.
        self._why_not = "" if self._is_ready else self._last_words()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def end(self) -> None:
        """Ends it. Idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                # What was asked of one that had died is still to be written, and cannot be.
                with suppress(BrokenPipeError):
                    pipe.close()

    def _last_words(self) -> str:
        """What one says that is not ready; it has ended afterwards."""
        try:
            return self._process.communicate(timeout=END_WITHIN_S)[1].strip()
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.communicate()[1].strip()
