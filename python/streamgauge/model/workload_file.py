"""The keys of a workload file, as they may be written: OMB's and our own (docs/workloads.md).

What they mean together is decided in `workload.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from streamgauge.model.document import FileModel
from streamgauge.model.fault import read_faults
from streamgauge.vocabulary.choices import Arrival, Compression, Idle, Keys, Reader
from streamgauge.vocabulary.sizes import parse_message_size
from streamgauge.vocabulary.units import parse_duration, parse_rate, parse_size, parse_warm_up

SUSTAINABLE = "sustainable"
SWEEP = "sweep"
RATES_MAX = 50
"""Of one workload."""


def _int_to_float(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


DurationField = Annotated[float, BeforeValidator(parse_duration)]
WarmUpField = Annotated[Any, BeforeValidator(parse_warm_up)]
"""Seconds, and whether it ends when the load is steady."""
SizeField = Annotated[int, BeforeValidator(parse_size)]
MessageSizeField = Annotated[Any, BeforeValidator(parse_message_size)]
"""An int, or a SizeSpread."""
NumberField = Annotated[float, BeforeValidator(_int_to_float)]
CountField = Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True)
class Rate:
    """A rate that was written down: None within is `max`, which must be told from a key that is absent."""

    msgs_s: float | None
    sustainable: bool = False
    """The rate is to be found: the highest that the system sustains."""
    several: tuple[float, ...] = ()
    """A curve: the workload is measured at each of these, from the lowest to the highest; `msgs_s` is None."""
    sweep: bool = False
    """A curve whose rates are chosen while it is measured; `msgs_s` is None."""


def read_rate(value: Any) -> Rate:
    """A rate as it may be written in `rate` and `--rate`: messages per second, several of these (`5k,10k,20k`, or a list), `max`, `sustainable` or `sweep`.
    Raises ValueError."""
    if isinstance(value, str):
        if value.strip() == SUSTAINABLE:
            return Rate(None, sustainable=True)
        if value.strip() == SWEEP:
            return Rate(None, sweep=True)
        if "," in value:
            return _several([part.strip() for part in value.split(",")], value)
    if isinstance(value, (list, tuple)):
        return _several(list(value), ",".join(str(part) for part in value))
    try:
        return Rate(parse_rate(value))
    except ValueError as error:
        text = str(error)
        if text.endswith(" or max"):
            text = (
                text.removesuffix(" or max")
                + f", several of these (5k,10k,20k), max, {SUSTAINABLE} or {SWEEP}"
            )
        raise ValueError(text) from None


def _several(parts: list[Any], text: str) -> Rate:
    """Rates of a curve, each once and in order. Raises ValueError."""
    expected = "expected messages per second, each once (5k,10k,20k)"
    rates: list[float] = []
    for part in parts:
        if part == "" or part is None:
            raise ValueError(f"'{text}' has an empty place among its rates: {expected}")
        if str(part).strip() in ("max", SUSTAINABLE, SWEEP):
            raise ValueError(f"'{part}' stands alone and not among rates: {expected}, or {part} by itself")
        if str(part).strip() in ("0", "000"):
            hint = "; a number is written without commas (10000, 10k)" if str(part) == "000" else ""
            raise ValueError(f"'{text}' has a rate of 0, which sends nothing: {expected}{hint}")
        try:
            found = parse_rate(part)
        except ValueError as error:
            raise ValueError(f"{str(error).removesuffix(' or max')}, in '{text}'") from None
        assert found is not None, "max was refused"
        rates.append(found)
    if len(rates) < 2:
        raise ValueError(f"'{text}': a list of rates has at least two: {expected}, or one rate by itself")
    twice = next((rate for rate in rates if rates.count(rate) > 1), None)
    if twice is not None:
        raise ValueError(
            f"'{text}' has {twice:,.10g} msg/s twice: {expected}; --repeat measures all of them again"
        )
    if len(rates) > RATES_MAX:
        raise ValueError(f"{len(rates)} rates: expected at most {RATES_MAX}")
    return Rate(None, several=tuple(sorted(rates)))


def read_single_rate(value: Any) -> Rate:
    """A rate where there is but one: messages per second, or `max`, which whoever asks may refuse. Raises ValueError."""
    return Rate(parse_rate(value))


def _read_producer_rate(value: Any) -> Rate:
    """OMB's `producerRate`: as `rate`, and 0 means to find the maximum."""
    if value == 0 and not isinstance(value, bool):
        return Rate(None, sustainable=True)
    return read_rate(value)


FaultsField = Annotated[Any, BeforeValidator(read_faults)]
RateField = Annotated[Any, BeforeValidator(read_rate)]
SingleRateField = Annotated[Any, BeforeValidator(read_single_rate)]
ProducerRateField = Annotated[Any, BeforeValidator(_read_producer_rate)]


class BatchFile(FileModel):
    """One batching policy for all systems: a batch leaves when it holds `bytes` or its first message is
    `linger` old; at most `buffer` bytes wait or travel."""

    bytes: SizeField = 131072
    linger: DurationField = 0.001
    in_flight: Annotated[int, Field(ge=1, le=1000)] = 5
    buffer: SizeField = 64 << 20


class RampFile(FileModel):
    """A rate that moves linearly from `rate` to `to` over `over`, from the trial's start."""

    to: SingleRateField
    over: DurationField


class StepFile(FileModel):
    """From `at` (after the trial's start) on the rate is `rate`; it gets there over `over`, at once without."""

    at: DurationField
    rate: SingleRateField
    over: DurationField = 0.0


class SurgesFile(FileModel):
    """`every` so often the rate is `rate` `for` so long, and the workload's in between; the first one comes
    after `every` less `for`."""

    rate: SingleRateField
    every: DurationField
    for_: Annotated[DurationField, Field(alias="for")]


class ProcessingFile(FileModel):
    """What a consumer needs for each message, and for each answer that holds messages."""

    message: DurationField = 0.0
    fetch: DurationField = 0.0


def _read_processing(value: Any) -> Any:
    """`5ms` is short for `{message: 5ms}`."""
    return value if isinstance(value, dict) else {"message": value}


class SearchFile(FileModel):
    """How the maximum sustainable rate is looked for. `first`: the rate of the first probe; `width`: the bracket
    at which the search ends, in percent; `probe`: measured time of a probe; `publish_p99`: a bound that the rate
    must keep, too; `within`: the search ends after this time with the bracket that it has, however wide."""

    first: SingleRateField = None
    width: Annotated[NumberField, Field(ge=0.5, le=50)] = 5.0
    probe: DurationField = 8.0
    publish_p99: DurationField | None = None
    within: DurationField | None = None


class BacklogFile(FileModel):
    """A backlog that is built and read. `size` (payload bytes) or `traffic` (seconds of traffic at the rate);
    `reader`: who reads it; `producing`: whether producing goes on meanwhile; `drain`: the share that must be read; `within`: how long building and reading may
    take, each; `after`: how long is measured after it."""

    size: SizeField | None = None
    traffic: DurationField | None = None
    reader: Reader = "same"
    producing: Literal["on", "off"] = "on"
    drain: Annotated[NumberField, Field(gt=0, le=1)] = 1.0
    within: DurationField = 1800.0
    after: DurationField | None = None


class LanesFile(FileModel):
    """Threads of the worker; what is absent is the worker's own choice (one lane per core at most)."""

    producer: Annotated[int | None, Field(ge=1, le=256)] = None
    consumer: Annotated[int | None, Field(ge=1, le=256)] = None
    realtime: Literal["auto", "off"] = "auto"
    pin: bool = False


class WorkloadFile(FileModel):
    """The keys of a workload file: OMB's, then our own."""

    name: str | None = None
    topics: CountField = 1
    partitionsPerTopic: CountField = 1
    keyDistributor: Literal["NO_KEY", "KEY_ROUND_ROBIN", "RANDOM_NANO"] | None = None
    messageSize: MessageSizeField = 1024
    useRandomizedPayloads: bool = False
    randomBytesRatio: Annotated[NumberField, Field(ge=0, le=1)] = 0.0
    randomizedPayloadPoolSize: Annotated[int | None, Field(ge=0, le=100_000)] = None
    payloadFile: str | None = None
    subscriptionsPerTopic: Annotated[int, Field(ge=0, le=1000)] = 1
    producersPerTopic: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    consumerPerSubscription: CountField = 1
    producerRate: ProducerRateField = None
    consumerBacklogSizeGB: Annotated[NumberField, Field(ge=0)] = 0.0
    backlogDrainRatio: Annotated[NumberField | None, Field(ge=0, le=1)] = None
    testDurationMinutes: Annotated[NumberField | None, Field(gt=0, le=43200)] = None
    warmupDurationMinutes: Annotated[NumberField | None, Field(ge=0, le=43200)] = None

    rate: RateField = None
    duration: DurationField | None = None
    warmup: WarmUpField = None
    arrival: Arrival | None = None
    burst: CountField | None = None
    ramp: RampFile | None = None
    steps: list[StepFile] | None = None
    surges: SurgesFile | None = None
    processing: Annotated[ProcessingFile | None, BeforeValidator(_read_processing)] = None
    read: list[str] | None = None
    start: Literal["earliest", "latest"] | None = None
    search: SearchFile | None = None
    backlog: BacklogFile | None = None
    keys: Keys | None = None
    key_count: Annotated[int | None, Field(ge=1, le=10_000_000)] = None
    zipf_exponent: Annotated[NumberField | None, Field(ge=0, le=10)] = None
    batch: BatchFile = BatchFile()
    compression: Compression = "none"
    idempotence: bool = False
    faults: FaultsField = ()
    lanes: LanesFile = LanesFile()
    idle: Idle = "halt"
    profile: bool = False
    drain: DurationField = 30.0
    allow_unstamped: bool = False


HINTS = {
    "acks": "acknowledgements follow from the durability level (durability: L1..L4 in the system file, "
    "or --durability)",
    "replicationFactor": "replication follows from the durability level and the number of nodes "
    "(--durability, --nodes)",
    "driverClass": "this is an OMB driver file, not a workload file; give a system with --system",
    "system": "a workload file knows nothing of systems; this looks like a system file, which belongs "
    "to --system",
    "publishRate": "this looks like a result of OMB, not a workload; read it with: streamgauge import FILE",
    "aggregatedPublishLatency50pct": "this is a figure of an OMB result, not a workload key",
}
"""Sentences for keys that do not exist but that people may well expect."""
