"""What may be chosen by name, in files, options and messages alike."""

from __future__ import annotations

from typing import Literal, get_args

Arrival = Literal["uniform", "poisson", "burst", "closed"]
Keys = Literal["none", "round_robin", "keyed", "zipf"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Idle = Literal["halt", "poll"]
"""What a CPU does that has nothing to do: it falls asleep, as the kernel has it, or is kept awake by a thread that gives way to all others."""
IDLES: tuple[Idle, ...] = get_args(Idle)

Reader = Literal["same", "extra"]
"""Who reads a backlog: the subscriptions that there are, or a further one."""

FaultAction = Literal[
    "kill",
    "stop",
    "cont",
    "restart",
    "power-cut",
    "fsync-delay",
    "fsync-error",
    "disk-full",
    "disk-free",
    "cut-network",
    "heal",
]
FAULTS: tuple[FaultAction, ...] = get_args(FaultAction)

Scale = Literal["full", "laptop", "quick"]
"""Of a study: as published, as this machine can, or in about 20 minutes."""
SCALES: tuple[Scale, ...] = get_args(Scale)

Restart = Literal["trial", "block"]
"""How long a study keeps a system: for one trial, or for a block of them."""

Topology = Literal["same", "split", "swarm"]
TOPOLOGIES: tuple[Topology, ...] = get_args(Topology)

OnLoss = Literal["end", "go-on"]
"""What a trial does when a worker of several is lost."""
ON_LOSS: tuple[OnLoss, ...] = get_args(OnLoss)

Survivors = Literal[
    "none",
    "prefix",
    "random",
    "torn-512",
    "torn-4096",
    "versions",
    "names-without-data",
    "data-without-names",
    "posix-names",
]
"""What of the un-synced a power cut leaves (docs/durability.md)."""
SURVIVORS: tuple[Survivors, ...] = get_args(Survivors)

Deed = Literal["write", "sync", "rename", "create", "unlink", "truncate"]
"""What is done to a file, at which a power cut can be placed."""
DEEDS: tuple[Deed, ...] = get_args(Deed)
