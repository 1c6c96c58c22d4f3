"""From the keys of a workload file and the command line's options to a checked Workload.

Nothing is ignored: a key that has no meaning here is refused at its line, and a key whose effect differs
from OMB's leaves a note that ends up in the result.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from streamgauge.model.document import Document
from streamgauge.model.named_workload import find_workload
from streamgauge.model.overrides import KEYS, Overrides
from streamgauge.model.refusals import Refusals
from streamgauge.model.resolve_special import (
    check_sweep,
    resolve_backlog,
    resolve_faults,
    resolve_search,
    resolve_steps,
)
from streamgauge.model.trust import Trust, is_beside
from streamgauge.model.untrusted import how_to_trust
from streamgauge.model.workload import Workload
from streamgauge.model.workload_file import HINTS, LanesFile, Rate, WorkloadFile
from streamgauge.vocabulary.choices import Arrival, Keys
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.phases import INTERVAL_S
from streamgauge.vocabulary.sizes import SizeSpread
from streamgauge.vocabulary.units import format_duration

STAMP_BYTES = 32
"""Below this size a message cannot carry the stamp (docs/method.md): no audit, no end-to-end latency."""

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
AUTO_LIMIT_S_MIN = 12.0
"""`warmup: auto` looks at ten intervals."""
WARM_UP_DEFAULT_S_MAX = 60.0
"""Where nothing is said, it ends when the load is steady: on 2 cores the compiler of a JVM works for half a minute; what needs no more is measured sooner."""
WARM_UP_SWEEP_S_MAX = 30.0
"""A sweep warms up as fast as it goes, which takes less time and is seldom steady."""
WARM_UP_FIXED_S = 10.0
"""Where the load changes on the way and nothing is said."""
CHANGING = ("ramp", "steps", "surges")
BUFFER_BYTES_MIN = 1 << 10
BUFFER_BYTES_MAX = 16 << 30
OMB_KEY_COUNT = 10_000
"""OMB's key distributors use 10,000 distinct keys (its KeyDistributor.UNIQUE_COUNT)."""


def read_workload(text: str, overrides: Overrides | None = None) -> Workload:
    """Reads a workload by path or name, applies what the command line sets and checks the whole. Raises
    InputError, also for one of several rates."""
    document, path = find_workload(text)
    return resolve_workload(document, path, overrides or Overrides(), text if Path(text).is_file() else None)


def read_workloads(text: str, overrides: Overrides | None = None) -> tuple[Workload, ...]:
    """As `read_workload`; with several rates the workload once at each, from the lowest to the highest."""
    document, path = find_workload(text)
    file = text if Path(text).is_file() else None
    document, written, rate = _written(document, overrides or Overrides())
    trust = (overrides or Overrides()).trust
    rates = [Rate(msgs_s) for msgs_s in rate.several] or [rate]
    return tuple(_resolved(document, path, written, one, trust, file) for one in rates)


def resolve_workload(
    document: Document, path: Path, overrides: Overrides, file: str | None = None
) -> Workload:
    """From a document to a checked Workload. `file`: the one in which it stands, where there is one. Raises InputError, also where it asks for a curve:
    what stands for one trial has one rate."""
    document, written, rate = _written(document, overrides)
    if rate.several or rate.sweep:
        problems: list[Problem] = []
        what = "several rates are" if rate.several else "a sweep is"
        Refusals(document, problems)(
            f"rate: {what} measured by streamgauge run; expected one rate here, max or sustainable",
            "rate",
            "producerRate",
        )
        raise InputError(problems)
    return _resolved(document, path, written, rate, overrides.trust, file)


def _written(document: Document, overrides: Overrides) -> tuple[Document, WorkloadFile, Rate]:
    """The document with what the command line sets, its keys, and its rate or rates."""
    for option, value in overrides.given.items():
        for location in KEYS[option].instead_of:
            document = document.without(location)
        document = document.with_option(option, KEYS[option].location, value)
    written = document.validate(WorkloadFile, HINTS)
    return document, written, written.producerRate or written.rate or Rate(50_000.0)


def _resolved(
    document: Document, path: Path, written: WorkloadFile, rate: Rate, trust: Trust, file: str | None
) -> Workload:
    """The checked Workload at a rate, which is one of those written."""
    notes: list[str] = []
    problems: list[Problem] = []
    refuse = Refusals(document, problems)
    _check_conflicts(document, refuse)
    _note_without_effect(written, document, notes)
    arrival = _arrival(written, rate, refuse)
    keys, key_count = _keys(written, refuse, notes)
    warmup_s, duration_s, warmup_auto = _times(written, rate, refuse)
    _check_reading(written, refuse)
    size = written.messageSize
    sizes = size if isinstance(size, SizeSpread) else None
    size_bytes = size if sizes is None else round(sizes.mean_bytes)
    workload = Workload(
        name=written.name or path.stem,
        file=file,
        topics=written.topics if written.read is None else len(written.read),
        partitions_per_topic=written.partitionsPerTopic,
        message_size_bytes=size_bytes,
        producers_per_topic=written.producersPerTopic if written.read is None else 0,
        subscriptions_per_topic=written.subscriptionsPerTopic,
        consumers_per_subscription=written.consumerPerSubscription,
        rate_msgs_s=None if written.read is not None else rate.msgs_s,
        arrival=arrival,
        burst_msgs=written.burst,
        ramp_to_msgs_s=written.ramp.to.msgs_s if written.ramp else None,
        ramp_over_s=written.ramp.over if written.ramp else None,
        keys=keys,
        key_count=key_count,
        warmup_s=warmup_s,
        warmup_auto=warmup_auto,
        duration_s=duration_s,
        batch_bytes=written.batch.bytes,
        linger_ms=written.batch.linger * 1000,
        in_flight=written.batch.in_flight,
        buffer_bytes=written.batch.buffer,
        compression=written.compression,
        idempotence=written.idempotence,
        idle=written.idle,
        profile=written.profile,
        payload_random_ratio=written.randomBytesRatio if written.useRandomizedPayloads else 0.0,
        payload_pool=max(written.randomizedPayloadPoolSize or 64, 1),
        payload_file=_payload_file(written, document, path, trust, refuse),
        drain_s=written.drain,
        lanes=_lanes(written.lanes),
        search=resolve_search(written, rate, refuse),
        sweep=rate.sweep,
        backlog=resolve_backlog(written, rate, duration_s, size_bytes, refuse),
        sizes=sizes,
        steps=resolve_steps(written, rate, warmup_s + duration_s, refuse),
        zipf_exponent=_zipf_exponent(written, keys, refuse),
        processing_ms_per_msg=1000 * written.processing.message if written.processing else 0.0,
        processing_ms_per_fetch=1000 * written.processing.fetch if written.processing else 0.0,
        read_topics=tuple(written.read or ()),
        start=written.start or ("latest" if written.read is None else "earliest"),
        faults=resolve_faults(written, rate, duration_s, refuse),
    )
    _check_ranges(workload, written, refuse)
    if rate.sweep:
        check_sweep(written, duration_s, refuse)
    _note_idle_consumers(workload, notes)
    if problems:
        problems.sort(key=lambda problem: problem.line or 0)
        raise InputError(problems)
    return dataclasses.replace(workload, notes=tuple(notes))


def _check_conflicts(document: Document, refuse: Refusals) -> None:
    """Two spellings of the same thing in one file: nobody can say which one is meant."""
    pairs = [
        ("rate", "producerRate"),
        ("duration", "testDurationMinutes"),
        ("warmup", "warmupDurationMinutes"),
        ("keys", "keyDistributor"),
        ("backlog", "consumerBacklogSizeGB"),
    ]
    for ours, theirs in pairs:
        if document.holds(ours) and document.holds(theirs):
            refuse(f"'{ours}' and '{theirs}' say the same thing: keep one of them", ours)


def _note_without_effect(written: WorkloadFile, document: Document, notes: list[str]) -> None:
    """Keys of OMB that change nothing in this file are said so."""
    if written.backlogDrainRatio is not None and not (written.consumerBacklogSizeGB or written.backlog):
        notes.append("backlogDrainRatio has no effect without a backlog (consumerBacklogSizeGB)")
    if not written.useRandomizedPayloads:
        for key in ("randomBytesRatio", "randomizedPayloadPoolSize"):
            if document.values.get(key):
                notes.append(f"{key} has no effect without useRandomizedPayloads: true")


def _arrival(written: WorkloadFile, rate: Rate, refuse: Refusals) -> Arrival:
    if written.read is not None:
        return "uniform"
    if rate.msgs_s is None:
        what = (
            "the search (rate sustainable) paces evenly" if rate.sustainable else "a closed loop (rate max)"
        )
        if rate.sweep:
            what = "a sweep (rate sweep), which chooses its rates and paces them evenly,"
        paced = rate.sustainable or rate.sweep
        allowed = (None, "uniform") if paced else (None, "closed")
        if written.arrival not in allowed:
            refuse(
                f"arrival {written.arrival} needs a rate: {what.removesuffix(',')}"
                + ("" if paced else " has no schedule"),
                "arrival",
            )
        if written.ramp is not None:
            refuse(f"a ramp needs a rate to begin with: {what} has none", "ramp")
        return "uniform" if paced else "closed"
    if written.arrival == "closed":
        refuse("arrival closed has no rate: write rate: max, or another arrival", "arrival")
    if written.ramp is not None and written.ramp.to.msgs_s is None:
        refuse("ramp.to: a ramp ends at a rate, not at max", "ramp.to", "ramp")
    if (written.arrival == "burst") != (written.burst is not None):
        refuse("arrival: burst and burst: N (messages per burst) belong together", "arrival", "burst")
    return written.arrival or "uniform"


def _keys(written: WorkloadFile, refuse: Refusals, notes: list[str]) -> tuple[Keys, int | None]:
    keys: Keys = written.keys or "none"
    key_count = written.key_count
    if written.keyDistributor in ("KEY_ROUND_ROBIN", "RANDOM_NANO"):
        keys, key_count = "keyed", key_count or OMB_KEY_COUNT
    if written.keyDistributor == "RANDOM_NANO":
        notes.append(
            "keyDistributor RANDOM_NANO picks each key by the clock's nanoseconds; here the same number of "
            "keys is used in turn, "
            "which spreads the same over partitions and can be repeated"
        )
    if keys in ("keyed", "zipf"):
        return keys, key_count or OMB_KEY_COUNT
    if key_count is not None:
        refuse("key_count needs keys: keyed or zipf", "key_count")
    return keys, None


def _zipf_exponent(written: WorkloadFile, keys: Keys, refuse: Refusals) -> float | None:
    if keys != "zipf":
        if written.zipf_exponent is not None:
            refuse("zipf_exponent needs keys: zipf", "zipf_exponent")
        return None
    return 1.0 if written.zipf_exponent is None else written.zipf_exponent


def _check_reading(written: WorkloadFile, refuse: Refusals) -> None:
    """A workload that reads what is there produces nothing."""
    if written.read is None:
        if written.producersPerTopic == 0:
            refuse(
                "producersPerTopic 0: expected read: [TOPIC, ...] with the topics that exist",
                "producersPerTopic",
            )
        if written.start is not None:
            refuse("start: belongs to read (topics that exist)", "start")
        return
    if not written.read or len(set(written.read)) != len(written.read):
        refuse("read: expected the names of topics that exist, each once", "read")
    if written.subscriptionsPerTopic == 0:
        refuse("read: needs a subscription: subscriptionsPerTopic is 0", "read")
    found = [
        key
        for key in (
            "rate",
            "producerRate",
            "arrival",
            "ramp",
            "steps",
            "surges",
            "keys",
            "backlog",
            "payloadFile",
        )
        if getattr(written, key) is not None
    ]
    for key in found:
        refuse(
            f"{key}: nothing is produced where topics are read that exist (read): remove one of the two", key
        )


def _times(written: WorkloadFile, rate: Rate, refuse: Refusals) -> tuple[float, float, bool]:
    """Warm-up and duration in seconds, and whether the warm-up ends sooner, when the load is steady. Whole
    intervals, because a figure is made of whole intervals."""
    duration_s = 60.0
    if written.duration is not None:
        duration_s = written.duration
    elif written.testDurationMinutes is not None:
        duration_s = written.testDurationMinutes * 60
    warmup_s, warmup_auto = _warm_up(written, rate)
    if warmup_auto:
        _check_auto(written, warmup_s, refuse)
    whole = "expected whole seconds, because figures are made of whole 1 s intervals"
    if duration_s < INTERVAL_S or duration_s % INTERVAL_S:
        refuse(
            f"duration {format_duration(duration_s)}: {whole}, and at least 1s",
            "duration",
            "testDurationMinutes",
        )
    if warmup_s % INTERVAL_S:
        refuse(f"warmup {format_duration(warmup_s)}: {whole}", "warmup", "warmupDurationMinutes")
    return warmup_s, duration_s, warmup_auto


def _warm_up(written: WorkloadFile, rate: Rate) -> tuple[float, bool]:
    """Its seconds, and whether it ends sooner."""
    if written.warmup is not None:
        warmup_s, warmup_auto = written.warmup
        return warmup_s, warmup_auto
    if written.warmupDurationMinutes is not None:
        return written.warmupDurationMinutes * 60, False
    if written.testDurationMinutes is not None:
        # OMB warms up for one minute unless told otherwise; a file in its spelling is read as it reads it.
        return 60.0, False
    if written.read is not None:
        # What is read in the warm-up cannot be read again.
        return 0.0, False
    if any(getattr(written, key) is not None for key in CHANGING):
        return WARM_UP_FIXED_S, False
    return (WARM_UP_SWEEP_S_MAX if rate.sweep else WARM_UP_DEFAULT_S_MAX), True


def _check_auto(written: WorkloadFile, limit_s: float, refuse: Refusals) -> None:
    """A warm-up can only end when the load is steady if the load is one that can be."""
    problem = None
    if limit_s < AUTO_LIMIT_S_MIN:
        problem = f"auto: the limit of {format_duration(limit_s)} is too short: expected {AUTO_LIMIT_S_MIN:g}s or more"
    elif written.read is not None:
        problem = "auto: nothing is produced where topics are read that exist (read)"
    else:
        for key in CHANGING:
            if getattr(written, key) is not None:
                problem = (
                    f"auto: the rate changes on the way ({key}), at times that count from the trial's start"
                )
    if problem is not None:
        refuse(f"warmup {problem}", "warmup")


def _payload_file(
    written: WorkloadFile, document: Document, path: Path, trust: Trust, refuse: Refusals
) -> str | None:
    """The payload file's absolute path: beside the workload, beside its folder (as OMB lays them out), or
    from here."""
    if written.payloadFile is None or written.useRandomizedPayloads:
        return None
    bases = (path.parent, path.parent.parent, Path.cwd())
    tried = [base / written.payloadFile for base in bases]
    for base, candidate in zip(bases, tried, strict=True):
        if not candidate.is_file():
            continue
        if is_beside(candidate, base) or trust.covers(path):
            return str(candidate.resolve())
        # Its content goes to the system under test, which may be anywhere.
        refuse(
            f"payloadFile: {candidate.resolve()} is not below {base.resolve()}, or hidden; {how_to_trust(document.file)}",
            "payloadFile",
        )
        return None
    refuse(
        f"payloadFile: no such file; tried {', '.join(str(candidate) for candidate in tried)}", "payloadFile"
    )
    return None


def _lanes(lanes: LanesFile) -> dict[str, Any]:
    """Only what was written: the rest is the worker's choice."""
    chosen: dict[str, Any] = {"producer": lanes.producer, "consumer": lanes.consumer}
    if lanes.realtime != "auto":
        chosen["realtime"] = lanes.realtime
    if lanes.pin:
        chosen["pin"] = True
    return {key: value for key, value in chosen.items() if value is not None}


def _note_idle_consumers(workload: Workload, notes: list[str]) -> None:
    partitions = workload.topics * workload.partitions_per_topic
    idle = workload.consumers_per_subscription - partitions
    if workload.subscriptions_per_topic and idle > 0:
        notes.append(
            f"{idle} of the {workload.consumers_per_subscription} consumers of each subscription will have nothing to do: "
            f"the workload has {plural(partitions, 'partition')}, and a partition has one consumer"
        )


def _check_ranges(workload: Workload, written: WorkloadFile, refuse: Refusals) -> None:
    """Ranges of what is written with a unit, or that depend on several keys."""
    sizes = workload.sizes.sizes_bytes if workload.sizes is not None else (workload.message_size_bytes,)
    size = max(sizes) if max(sizes) > MESSAGE_BYTES_MAX else min(sizes)
    if size < 1 or size > MESSAGE_BYTES_MAX:
        refuse(f"messageSize {size}: expected 1 byte to 64 MiB", "messageSize")
    elif size < STAMP_BYTES and not written.allow_unstamped:
        refuse(
            f"messageSize {size}: a message below {STAMP_BYTES} bytes cannot carry its stamp, so there would be "
            "no audit and no end-to-end "
            f"latency; expected {STAMP_BYTES} bytes or more, or allow_unstamped: true (--allow-unstamped) "
            "to measure without them",
            "messageSize",
        )
    if not 1 <= workload.batch_bytes <= 1 << 30:
        refuse(f"batch.bytes {workload.batch_bytes}: expected 1 byte to 1 GiB", "batch.bytes")
    if workload.linger_ms > 60_000:
        refuse(f"batch.linger {workload.linger_ms:g} ms: expected 1m or less", "batch.linger")
    if not BUFFER_BYTES_MIN <= workload.buffer_bytes <= BUFFER_BYTES_MAX:
        refuse(
            f"batch.buffer {workload.buffer_bytes}: expected 1 KiB to 16 GiB",
            "batch.buffer",
        )
    if workload.payload_file is not None:
        found = Path(workload.payload_file).stat().st_size
        if workload.sizes is not None:
            refuse("payloadFile has one size: messageSize cannot be a distribution", "payloadFile")
        elif found != size:
            refuse(
                f"payloadFile holds {found} bytes, but a message has {size}: they must be equal",
                "payloadFile",
            )
