"""CPUs that are kept awake while a trial runs (`idle: poll`): `gauge idle` spins where nothing else wants to run."""

from __future__ import annotations

import os
from pathlib import Path

from streamgauge.runner.helper import Helper
from streamgauge.vocabulary.errors import SystemFailure


class Awake(Helper):
    """The process that keeps them awake, from here to `end`."""

    def __init__(self, gauge: Path | None = None) -> None:
        """Raises SystemFailure where CPUs cannot be kept awake, as under a quota."""
        super().__init__(["idle", "--parent-pid", str(os.getpid())], gauge)
        if not self._is_ready:
            raise SystemFailure(f"the CPUs cannot be kept awake (idle: poll): {self._why_not}")
