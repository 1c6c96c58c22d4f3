"""The claims of a study, judged together: look by look, with one error rate over all of them.

observed = Observed(sample=..., printed=..., cells=("kafka-1", "pulsar-1"), looks=(3, 4, 6), void={2: "the disk slowed down"})
judged = judge(study.claims, observed)
again = wanted_cells(judged, costs, left_s)          # price.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from streamgauge.inference.samples import Sample
from streamgauge.inference.verdict import Verdict
from streamgauge.model.study_file import CheckFile, ClaimFile

SampleOf = Callable[[str, str], Sample]
"""Cell and figure -> the sample."""
PrintedOf = Callable[[str, str], float | None]
"""Cell and figure -> the figure as printed, where it is a number."""


@dataclass(frozen=True)
class Observed:
    """All that a study has measured so far."""

    sample: SampleOf
    printed: PrintedOf
    cells: tuple[str, ...]
    """All cells of the study, in its order: what they have in common tells how a figure varies."""
    looks: tuple[int, ...] = ()
    """After which rounds claims were judged, up to now, in rising order (settled before anything was measured); the last is the one at hand. Empty: they are judged once, with
    all that there is."""
    void: Mapping[int, str] = field(default_factory=dict)
    """Rounds that do not count, and why."""


@dataclass(frozen=True)
class Estimate:
    """A number and its interval (95 % over all looks), in the figure's unit or as a ratio."""

    value: float
    low: float
    high: float
    rounds: int
    """How many rounds it rests on (of starts, where the two sides have starts of their own)."""


@dataclass(frozen=True)
class Price:
    """What would decide an undecided test or claim if what was estimated so far is true, with a power of 80 %."""

    rounds: int | None
    """So many more; None where no reasonable number would."""
    why: str = ""
    """Why there is none."""


@dataclass(frozen=True)
class Tested:
    """What a test came to; `rising` and `falling` are one for each step."""

    test: CheckFile
    text: str
    """What is compared, in words."""
    printed: float | None
    """The same number from the printed figures; None where they are not numbers."""
    measured: Estimate | None
    margin: float
    """The smallest ratio that matters, above 1."""
    verdict: Verdict
    why: str = ""
    """For one that is undecided or not shown: why. For others: what has to be known of them (an old design)."""
    missing: tuple[tuple[str, str], ...] = ()
    """Cells without a figure, and why each has none."""
    price: Price | None = None
    """Of an undecided one."""


@dataclass(frozen=True)
class Judged:
    """A claim, its tests and its verdict."""

    claim: ClaimFile
    tests: tuple[Tested, ...]
    verdict: Verdict
    rounds: int | None = None
    """After which round it was decided; None while it is not."""
    price: Price | None = None
    """Of an undecided one."""

    @property
    def why(self) -> str:
        """For one that is undecided or not shown: why, cells with the same reason together."""
        raise NotImplementedError


def judge(claims: Sequence[ClaimFile], observed: Observed) -> list[Judged]:
    """Judges all claims of a study."""
    raise NotImplementedError
