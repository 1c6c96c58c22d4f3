"""The machines of a cluster, as their agents told of them (docs/causes.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from streamgauge.model.result_base import Model
from streamgauge.model.result_machine import Limits
from streamgauge.model.result_told import ProbeOfMachine


class ClusterHost(Model):
    """A machine with an agent, as the runner knew it."""

    name: str
    cores: Annotated[int, Field(ge=1, le=1 << 20)]
    probe: ProbeOfMachine | None = None


class ProbedDisk(Model):
    """What a disk of a machine can do, as its agent found it."""

    host: str
    dir: str
    write_mb_s: Annotated[float, Field(ge=0)]
    """One block of 1 MiB after the other, with the flush of the device at the end."""
    written_bytes: Annotated[int, Field(ge=0)]
    """How much that was."""
    read_mb_s: Annotated[float, Field(ge=0)]
    is_direct: bool
    """Whether past the page cache."""
    fsync_ms_p50: float
    """Of 4 KiB that are appended and fdatasynced, as the following ones."""
    fsync_ms_p99: float
    fsync_ms_p99_9: float
    fsync_ms_max: float
    fsyncs: Annotated[int, Field(ge=0)]
    fsync_ms_p99_by_second: list[Annotated[float, Field(ge=0)]] = Field(default_factory=list, max_length=3600)
    """Empty where they took less than two seconds."""
    started_unix_ms: int


class DiskFigures(Model):
    """A whole disk in the measured phase."""

    name: str
    write_mb_s: float
    read_mb_s: float
    busy_share: float
    queue: float
    """Reads and writes under way, the mean."""
    op_ms: float | None = None
    """Of a read or write, the mean; None where there was none."""
    flush_ms: float | None = None


class HostFigures(Model):
    """A machine in the measured phase. Shares are of all its cores, or of the time."""

    name: str
    cores: int
    seconds: float
    """Of the measured phase, told by the agent."""
    cpu_share: float
    system_cpu_share: float
    """Of the processes that listen on the cluster's ports, and those that the agent names."""
    steal_share: float
    disturbed_share: float | None = None
    """Of the time: a CPU was not to be had. None where the agent has no probes."""
    run_delay_share: float | None = None
    """Time for which the system's threads waited for a CPU, in threads on average."""
    pressure_cpu_share: float | None = None
    pressure_io_share: float | None = None
    pressure_memory_share: float | None = None
    retransmits_per_s: float | None = None
    network_mb_s: float
    """Received and sent, all interfaces but loopback."""
    memory_available_bytes_min: int | None = None
    page_cache_bytes: int | None = None
    disks: list[DiskFigures] = Field(default_factory=list)
    limits: Limits | None = None
    """What the machine can do, where the agent may probe it."""
