"""How a run begins on disk, whatever it measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamgauge.model.result import Manifest
from streamgauge.runner import machine
from streamgauge.store.directory import RunDirectory
from streamgauge.vocabulary.version import version


def new_manifest(
    directory: RunDirectory, command: Sequence[str], seed: int, workloads: Sequence[dict[str, Any]] = ()
) -> Manifest:
    """The manifest of a run in which nothing has been measured yet."""
    return Manifest(
        run_id=directory.run_id,
        streamgauge_version=version(),
        command=list(command),
        started_unix_ms=machine.unix_ms(),
        status="running",
        seed=seed,
        systems=[],
        workloads=list(workloads),
        host={},
    )
