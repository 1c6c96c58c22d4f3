"""What a trial took of its machine, and of what the machine can do, as its result tells it."""

from __future__ import annotations

from streamgauge.model.result_base import Model


class Cpu(Model):
    """CPU seconds spent in the measured phase."""

    cores: int
    duration_s: float
    workers_s: float | None
    """None where the workers are not ours and not on this machine."""
    system_s: float | None = None
    others_s: float | None = None
    steal_s: float | None = None
    workers_us_per_msg: float | None = None
    """Worker CPU per message sent; producing and all consuming together."""
    system_us_per_msg: float | None = None
    wakeups_per_s: float | None = None
    """How often per second the generator's lanes had nothing to do and waited, all of them together; None where workers do not tell it."""
    workers_share: float | None
    """Share of all cores."""
    system_share: float | None = None
    others_share: float | None = None


class Limits(Model):
    """What the machine can do, by the probe before and after the run (short version). None where it was not measured."""

    disk_write_mb_s: float | None = None
    disk_read_mb_s: float | None = None
    fsync_ms_p50: float | None = None
    fsync_ms_p99: float | None = None
    loopback_mb_s: float | None = None
    round_trip_us_p50: float | None = None
    memcpy_mb_s: float | None = None
    crc32c_mb_s: float | None = None
    wakeup_us_p99: float | None = None
    cores: int | None = None


class Share(Model):
    """How much of one limit was used in the measured phase."""

    name: str
    """cpu, disk_write, network, worker_cpu, system_cpu, ..."""
    value: float
    """0-1 (may exceed 1 when a probe was low)."""
    explanation: str


class Process(Model):
    """One process of the system in the measured phase."""

    name: str
    cpu_s: float
    cpu_share: float
    rss_bytes_max: int
    disk_write_bytes: int
    disk_read_bytes: int
    syncs_per_s: float | None = None
    """Calls of fsync and fdatasync that returned; None where the kernel does not tell (docs/causes.md)."""
    sync_ms: float | None = None
    """Time in such a call, the mean."""


class Thread(Model):
    """One thread of the system in the measured phase."""

    process: str
    name: str
    core_share: float
    """Of one core: 1 is all that a thread can use."""


class Lane(Model):
    """One thread of a worker and the scheduling it got."""

    worker: str
    name: str
    role: str
    scheduling: str
    cpu_s: float


class SystemMetric(Model):
    """A figure that a bookie told of itself, in runs of before such figures were read every second (`OwnMetric`)."""

    name: str
    """Bookie and metric, with its unit: "bookie-1.journal_sync_ms_p99"."""
    before: float | None = None
    """When the load began."""
    after: float
    """When it had ended. What only counts up grew by the difference."""
