"""The cells of `streamgauge durability --all`: those of the study of that name."""

from __future__ import annotations

from collections.abc import Mapping

from streamgauge.model.durability_study import disputed
from streamgauge.model.system_file import SystemChoice
from streamgauge.systems.base import System


def matrix(known: Mapping[str, System]) -> list[SystemChoice[System]]:
    """Every cell whose system can run on this machine; the others are left out."""
    study = disputed(known)
    choices = [study.choice(name, known) for name in study.written.cells]
    return [choice for choice in choices if choice.system.missing() is None]
