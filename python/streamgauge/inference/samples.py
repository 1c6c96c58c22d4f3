"""What was measured of a figure in a cell: a value per trial, with the start of the system and the round that it comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """A figure of one trial."""

    value: float
    """In the figure's unit."""
    round: int
    """From 1. What is measured in one round belongs together; a comparison pairs by it."""
    start: str
    """Which start of a system it was measured on: values with the same start share what a start has by chance. Any name that is unique within the study."""
    error: float = 0.0
    """Standard deviation of its logarithm by what the trial knows of itself (from its own interval); 0 where nothing is known."""


@dataclass(frozen=True)
class Bounded:
    """A figure of one trial of which only bounds stand."""

    round: int
    start: str
    at_least: float
    at_most: float | None
    """None where there is no such bound."""


@dataclass(frozen=True)
class Sample:
    """One figure of one cell over its trials, or why there is none."""

    measured: tuple[Measured, ...] = ()
    """Of valid trials."""
    bounded: tuple[Bounded, ...] = ()
    """Of trials of which bounds are all that stands."""
    why: str | None = None
    """Why values are missing: the cell was left out, failed, or was invalid."""
    ran: int = 0
    """How many trials of the cell ran, whatever became of them."""
