"""What is written down as it was told - a worker's answer at the end, a probe of the machine - and so may hold more than is read here.
What is read has a shape all the same, which is checked where a run is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

COUNT_MAX = 1 << 53

Whole = Annotated[int, Field(ge=0, le=COUNT_MAX)]
Figure = Annotated[float, Field(ge=0, le=1e15)]


class Told(BaseModel):
    """Base of what others add to."""

    model_config = ConfigDict(extra="allow")


class ToldSubscription(Told):
    """The audit of one subscription."""

    name: str
    received: Whole
    unique: Whole
    lost: Whole
    lost_prefix: Whole
    lost_middle: Whole
    lost_tail: Whole
    duplicated: Whole
    reordered: Whole
    corrupted: Whole
    unexpected: Whole
    unknown: Whole
    recovered: Whole
    censored: Whole
    balanced: bool
    imbalance: str | None = None
    examples: list[str] = Field(default_factory=list)


class ToldAudit(Told):
    """The books of the workers."""

    enabled: bool | None = None
    sent: Whole = 0
    acked: Whole = 0
    failed: Whole = 0
    censored: Whole = 0
    untaken: Whole | None = None
    balanced: bool = False
    imbalance: str | None = None
    missing: str | None = None
    subscriptions: list[ToldSubscription] = Field(default_factory=list)


class ToldPair(Told):
    """Two clocks."""

    drift_ppm: float


class ToldLoops(Told):
    """Whether the comparison of clocks closes."""

    open: Whole
    looked_at: Whole
    worst_ms: float


class ToldClocks(Told):
    """How clocks compared."""

    bound_ms: Figure
    pairs: list[ToldPair]
    loops: ToldLoops


class ToldFinish(Told):
    """The workers' answers at the end, merged."""

    audit: ToldAudit | None = None
    clocks: ToldClocks | None = None
    remarks: list[str] | None = None


class ToldHost(Told):
    """What the machine is."""

    cpu_model: str | None = None
    cores: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    memory_bytes: Annotated[int, Field(ge=1, le=1 << 60)] | None = None


class ToldProbe(Told):
    """What the machine can do; figures that are no numbers count as not measured (analysis/limits.py)."""

    host: ToldHost | None = None
    notes: list[str] | None = None


def _checked(model: type[Told]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def check(value: dict[str, Any]) -> dict[str, Any]:
        try:
            model.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            raise ValueError(f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}") from None
        return value

    return check


Finish = Annotated[dict[str, Any], AfterValidator(_checked(ToldFinish))]
Host = Annotated[dict[str, Any], AfterValidator(_checked(ToldHost))]
ProbeOfMachine = Annotated[dict[str, Any], AfterValidator(_checked(ToldProbe))]
