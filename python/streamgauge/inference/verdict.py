"""The words of a verdict."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What may be said of a claim, a test or a comparison."""

    holds = "holds"
    refuted = "refuted"
    equivalent = "equivalent"
    undecided = "undecided"
    not_shown = "not shown"
    """Nothing could be measured."""
