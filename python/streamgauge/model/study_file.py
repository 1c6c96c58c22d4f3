"""The keys of a study file (docs/studies.md): what a published study did, what it printed, what it claims.

What they mean together - cells expanded, figures and cells looked up - is decided in `checked_study.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from streamgauge.model.document import FileModel
from streamgauge.model.workload_file import DurationField, NumberField, SearchFile
from streamgauge.vocabulary.choices import Restart
from streamgauge.vocabulary.levels import Level

Scalar = bool | str | int | float
Words = list[str]
SOURCE = "source"
"""The key, wherever it stands, under which a value says what it rests on: a section, figure, table or few words of the document, or repository, file and
commit of its authors. Of `workload` and of the figures of a cell it is a key among theirs."""


def _web_address(text: str) -> str:
    parts = urlsplit(text)
    if (
        parts.scheme not in ("http", "https")
        or not parts.netloc
        or any(not 33 <= ord(one) < 127 for one in text)
    ):
        raise ValueError(f"expected an address that begins with https:// or http://, found '{text}'")
    return text


Link = Annotated[str, AfterValidator(_web_address)]
"""It becomes a link in reports, where another scheme could run a script."""


class SourceFile(FileModel):
    """Who published it, where, when, and with which versions of the systems."""

    publisher: str
    published: str
    link: Link | None = None
    versions: dict[str, str] = Field(default_factory=dict)


class SystemOfStudy(FileModel):
    """A system of the study: which one, at which level on three nodes; `options` as in a system file.

    `nodes` fixes the number of nodes at every scale. `weight`: how much more a message costs on this system than
    on the others, for the rule that scales rates.
    """

    system: str
    title: str
    level: Level
    version: str | None = None
    nodes: Literal[1, 3] | None = None
    weight: Annotated[NumberField, Field(gt=0, le=100)] = 1.0
    options: dict[str, Any] = Field(default_factory=dict)
    machines: Annotated[str, Field(min_length=1)] | None = None
    """What its machines are that makes it a variant (`both disks as RAID 0`): it is measured on a cluster that runs alone, one that is named for it."""
    vouched: Words = Field(default_factory=list)
    """Where it is a cluster that runs already: options, `durability` or `machines`, of which the user knows that they are so, and which nobody can read."""
    source: str | None = None
    """What its settings rest on."""


class VersionFile(FileModel):
    """The version of a system that the study was made with, as a registry has it; or why none has it."""

    version: str | None = None
    cannot: str | None = None
    source: str | None = None
    """What the study says of it."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> VersionFile:
        if (self.version is None) == (self.cannot is None):
            raise ValueError("expected version, or cannot with the reason")
        return self


class SlipFile(FileModel):
    """Where the study's text and its own tables disagree, and where both stand."""

    slip: str
    source: str | None = None

    @property
    def text(self) -> str:
        """As one line."""
        return self.slip if self.source is None else f"{self.slip} ({self.source})"


def _read_slip(value: Any) -> Any:
    """A text is short for `{slip: text}`."""
    return {"slip": value} if isinstance(value, str) else value


class CellsFile(FileModel):
    """One cell, or as many as the values in `each` have combinations: `{name}` stands for the value."""

    cell: str
    system: str
    title: str | None = None
    each: dict[str, list[Scalar]] = Field(default_factory=dict)
    workload: dict[str, Any] = Field(default_factory=dict)
    tls: bool | str = False
    """Whether clients speak TLS: true or false; with `each`, also on and off, for names such as `kafka-tls-{tls}`."""
    source: str | None = None
    """What its workload rests on."""


class CellScale(FileModel):
    """What a scale sets for some cells only."""

    nodes: Literal[1, 3] | None = None
    repeats: Annotated[int | None, Field(ge=1, le=100)] = None
    warmup: DurationField | None = None
    duration: DurationField | None = None
    limit: DurationField | None = None
    fresh: bool = False
    """The system is restarted for each trial of these cells, whatever the scale says."""
    workload: dict[str, Any] = Field(default_factory=dict)
    """Keys of a workload that differ from the published ones at this scale; a mapping such as `batch` replaces only what it names."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the system that only this scale sets; again a mapping replaces only what it names."""


class ScaleFile(FileModel):
    """How a study is run at one scale; what is absent is as published."""

    nodes: Literal[1, 3] = 3
    repeats: Annotated[int, Field(ge=1, le=100)] = 5
    warmup: DurationField | None = None
    duration: DurationField | None = None
    rates: Literal["published", "machine"] = "published"
    backlog: DurationField | None = None
    """Backlogs hold so many seconds of traffic."""
    after: DurationField | None = None
    """How long is measured after a backlog was read."""
    search: SearchFile | None = None
    restart: Restart = "trial"
    budget: DurationField | None = None
    """How long all of it may take: what is left after `repeats` rounds goes to the cells of the claims that are still in doubt."""
    limit: DurationField = 3600.0
    leave_out: Words = Field(default_factory=list)
    because: str | None = None
    """Why the cells that are left out may be."""
    cells: dict[str, CellScale] = Field(default_factory=dict)


TESTS = ("value", "ratio", "spread", "rising", "falling")


class CheckFile(FileModel):
    """One thing that can be checked about a figure of cells: its `value` in a cell, the `ratio` of two cells, its
    `spread` (largest over smallest) over cells, or that it is `rising` or `falling` from cell to cell."""

    figure: str
    of: str | None = None
    """The figure of the second cell of a ratio, where it is another one."""
    value: str | None = None
    ratio: Annotated[list[str] | None, Field(min_length=2, max_length=2)] = None
    spread: Annotated[list[str] | None, Field(min_length=2)] = None
    rising: Annotated[list[str] | None, Field(min_length=2)] = None
    falling: Annotated[list[str] | None, Field(min_length=2)] = None
    above: NumberField | None = None
    below: NumberField | None = None
    between: Annotated[list[NumberField] | None, Field(min_length=2, max_length=2)] = None
    margin: Annotated[NumberField | None, Field(gt=1, le=100)] = None
    """The smallest factor that matters where the bound is 1 (higher, lower, rising, falling); else that of the figure (docs/method.md)."""
    printed: str | None = None
    """What the study prints about it, where no figure of its cells says so."""

    @model_validator(mode="after")
    def _asks_one_thing(self) -> CheckFile:
        kinds = [kind for kind in TESTS if getattr(self, kind)]
        if len(kinds) != 1:
            raise ValueError(f"expected exactly one of {', '.join(TESTS)}")
        bounds = sum(bound is not None for bound in (self.above, self.below, self.between))
        if kinds[0] in ("rising", "falling"):
            if bounds:
                raise ValueError(f"{kinds[0]} needs no bound: expected the figure and the cells alone")
        elif bounds != 1:
            raise ValueError(f"{kinds[0]} needs one bound: above, below or between")
        return self

    @property
    def cells(self) -> list[str]:
        """The cells that it names."""
        return [self.value] if self.value else self.ratio or self.spread or self.rising or self.falling or []

    @property
    def figures(self) -> list[str]:
        """The figures that it names."""
        return [self.figure] if self.of is None else [self.figure, self.of]


class ClaimFile(FileModel):
    """A claim of the study, in our words, and what must be true for it to hold here."""

    claim: str
    printed: str | None = None
    note: str | None = None
    source: str | None = None
    """Where the study says so."""
    tests: Annotated[list[CheckFile], Field(min_length=1)]


class AgainstFile(FileModel):
    """Two figures of each cell, against each other."""

    x: str
    y: str


KINDS = ("table", "bars", "over_time", "percentiles", "against")


class PageFile(FileModel):
    """A table or plot of the study: exactly one of KINDS.

    `overlay` draws the cells into one chart, a curve each, instead of a chart per cell. `beside`: of a plot over time a second
    figure, with an axis of its own on the right. `phase`: of percentiles those of the time in which a backlog was built or
    read, or of the time after it. `against`: a point per cell, those of a system joined, on logarithmic axes.
    """

    title: str
    cells: Annotated[Words, Field(min_length=1)]
    table: Words | None = None
    bars: str | None = None
    over_time: str | None = None
    percentiles: Literal["publish_ms", "end_to_end_ms"] | None = None
    against: AgainstFile | None = None
    overlay: bool = False
    beside: str | None = None
    phase: Literal["build backlog", "catch-up", "after"] | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _shows_one_thing(self) -> PageFile:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise ValueError(f"expected exactly one of {', '.join(KINDS)}")
        for key, given, of in (
            ("overlay", self.overlay, ("over_time", "percentiles")),
            ("beside", self.beside is not None, ("over_time",)),
            ("phase", self.phase is not None, ("percentiles",)),
        ):
            if given and kinds[0] not in of:
                raise ValueError(f"{key} says nothing of {kinds[0]}: it is for {' and '.join(of)}")
        if self.beside is not None and self.overlay:
            raise ValueError("beside is an axis of one cell's chart: leave out overlay")
        return self

    @property
    def figures(self) -> list[str]:
        """The figures that it names."""
        pair = () if self.against is None else (self.against.x, self.against.y)
        return [*(self.table or []), *filter(None, (self.bars, self.over_time, self.beside)), *pair]


class ScalesFile(FileModel):
    """The three scales."""

    full: ScaleFile = ScaleFile()
    laptop: ScaleFile
    quick: ScaleFile


class StudyFile(FileModel):
    """A study file."""

    study: str
    title: str
    source: SourceFile
    setup: Words = Field(default_factory=list)
    slips: list[Annotated[SlipFile, BeforeValidator(_read_slip)]] = Field(default_factory=list)
    """Where the study's text and its own tables disagree; a text or `{slip, source}`."""
    systems: dict[str, SystemOfStudy]
    versions: dict[str, VersionFile] = Field(default_factory=dict)
    """System -> the version that was used (`study --versions`)."""
    workload: dict[str, Any] = Field(default_factory=dict)
    cells: Annotated[list[CellsFile], Field(min_length=1)]
    published: dict[str, dict[str, Any]] = Field(default_factory=dict)
    scales: ScalesFile
    claims: list[ClaimFile] = Field(default_factory=list)
    pages: list[PageFile] = Field(default_factory=list)
