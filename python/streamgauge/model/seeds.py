"""Numbers that follow from what a run was asked and how it is called, so that they can be computed again by whoever holds its results."""

from __future__ import annotations

import zlib


def trial_seed(run_seed: int, workload: str, repeat: int) -> int:
    """The seed of a trial: the same for all systems of a repeat, so that they meet the same arrivals."""
    return zlib.crc32(f"{run_seed}/{workload}/{repeat}".encode())


def run_mark(run_id: str, trial: int, probe: int | None = None) -> int:
    """What messages of a trial (or of a probe of its search) carry, and what its arrivals are drawn with."""
    return zlib.crc32(f"{run_id}/{trial}{'' if probe is None else f'/p{probe}'}".encode())
