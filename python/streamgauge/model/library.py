"""The workloads that ship with streamgauge, from one compact table.

They carry the names under which publications cite the workloads of the OpenMessaging Benchmark, and ask for the same
load; what is added here has names of the same pattern. The duration is ours (60 s measured, after a warm-up until the load is steady), because
those of OMB run for up to four hours; `--duration` sets any other.

A name is turned into the text of a workload file, so that what ships is read like any file, can be printed
(`streamgauge workloads NAME`), saved and changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FIXED_RATE = 50_000
TOPIC_COUNTS = {"100": 100, "500": 500, "1k": 1_000, "5k": 5_000, "10k": 10_000, "50k": 50_000}
TOPIC_COUNTS |= {f"{hundreds}00k": hundreds * 100_000 for hundreds in range(1, 10)} | {"1m": 1_000_000}
SIZES = {"100b": "100", "1kb": "1KiB", "64kb": "64KiB"}
GIB_100 = "100GiB"
FILE_SUFFIXES = {".yaml", ".yml", ".json"}


@dataclass(frozen=True)
class Shipped:
    """A workload that ships: what it is called, where it is listed, and what it asks for."""

    name: str
    group: str
    size: str
    rate: str
    topics: int = 1
    partitions: int = 1
    producers: int = 1
    subscriptions: int = 1
    consumers: int = 1
    backlog: str | None = None
    pool: int = 0
    """Half-random payloads, so many different ones; 0: zeros."""
    remark: str = ""

    def text(self) -> str:
        """As a workload file."""
        lines = [
            f"# {self.remark or self.group}",
            f"name: {self.name}",
            "",
            f"topics: {self.topics}",
            f"partitionsPerTopic: {self.partitions}",
            f"messageSize: {self.size}",
            "",
            f"producersPerTopic: {self.producers}",
            f"subscriptionsPerTopic: {self.subscriptions}",
            f"consumerPerSubscription: {self.consumers}",
            "",
            f"rate: {self.rate}",
        ]
        if self.pool:
            lines += [
                "useRandomizedPayloads: true",
                "randomBytesRatio: 0.5",
                f"randomizedPayloadPoolSize: {self.pool}",
            ]
        if self.backlog is not None:
            lines.append(f"backlog: {{size: {self.backlog}}}")
        return "\n".join([*lines, "duration: 60s", ""])


def _fixed_rate() -> Iterator[Shipped]:
    group = "Fixed rate"
    for partitions, size in ((1, "100b"), (1, "1kb"), (16, "100b"), (16, "1kb"), (100, "1kb")):
        word = "partition" if partitions == 1 else "partitions"
        yield Shipped(
            f"1-topic-{partitions}-{word}-{size}", group, SIZES[size], str(FIXED_RATE), partitions=partitions
        )
    # These two are called "partition" where they are published.
    for partitions in (6, 16):
        name = f"1-topic-{partitions}-partition-100b"
        yield Shipped(name, group, "100", str(FIXED_RATE), partitions=partitions)
    yield Shipped("simple-workload", group, "1KiB", "10000", partitions=10)
    yield Shipped("100-topics-1-partitions-1kb", group, "1KiB", "150000", topics=100, subscriptions=3)
    for partitions in (1, 2, 3, 4, 6, 9, 16):
        word = "partition" if partitions == 1 else "partitions"
        name = f"1m-10-topics-{partitions}-{word}-100b"
        yield Shipped(name, group, "100", "1000000", topics=10, partitions=partitions, pool=1000)
    for partitions in (100, 10_000):
        for thousands in (200, 500, 1000, 2000):
            yield Shipped(
                f"1-topic-{partitions}-partitions-1kb-4p-4c-{thousands}k",
                group,
                "1KiB",
                f"{thousands}k",
                partitions=partitions,
                producers=4,
                consumers=4,
                pool=1000,
            )


def _many_topics() -> Iterator[Shipped]:
    slow = {"1k", "5k", "10k", "50k", "100k", "200k"}
    for word, topics in TOPIC_COUNTS.items():
        for rate in ("100k", "500k", "2000k"):
            if rate == "100k" and word not in slow:
                continue
            # Published under this name, with 500,000 messages per second all the same.
            shown = "600k" if (word, rate) == ("600k", "500k") else rate
            yield Shipped(
                f"{word}-topic-1kb-4p-4c-{shown}",
                "Many topics (4 producers and 4 consumers on each)",
                "1KiB",
                rate,
                topics=topics,
                producers=4,
                consumers=4,
                pool=1000,
            )


def _backlogs() -> Iterator[Shipped]:
    group = "Backlog and catch-up reads (--backlog SIZE for a smaller one)"
    for partitions in (1, 16):
        word = "partition" if partitions == 1 else "partitions"
        name = f"backlog-1-topic-{partitions}-{word}-1kb"
        yield Shipped(name, group, "1KiB", "100k", partitions=partitions, backlog=GIB_100)
    yield Shipped(
        "1-topic-100-partitions-1kb-4p-4c-200k-backlog",
        group,
        "1KiB",
        "200k",
        partitions=100,
        producers=4,
        consumers=4,
        backlog="512GiB",
        pool=1000,
    )


def _sustainable() -> Iterator[Shipped]:
    group = "Maximum sustainable rate (a search)"
    for partitions in (16, 100):
        for size in ("100b", "1kb"):
            name = f"max-rate-1-topic-{partitions}-partitions-{size}"
            yield Shipped(name, group, SIZES[size], "sustainable", partitions=partitions)
    yield Shipped(
        "1-topic-3-partition-100b-3producers", group, "100", "sustainable", partitions=3, producers=3
    )


def _closed_loops() -> Iterator[Shipped]:
    group = "As fast as the batch policy lets through (closed loop)"

    def one(partitions: int, clients: tuple[int, int], size: str, *, random: bool = True) -> Shipped:
        producers, consumers = clients
        word = "partition" if partitions == 1 else "partitions"
        return Shipped(
            f"max-rate-1-topic-{partitions}-{word}-{producers}p-{consumers}c-{size}",
            group,
            SIZES[size],
            "max",
            partitions=partitions,
            producers=producers,
            consumers=consumers,
            pool=(100 if size == "64kb" else 1000) if random else 0,
        )

    for size in SIZES:
        yield one(1, (1, 1), size)
        yield one(10, (1, 1), size)
        if size != "64kb":
            yield one(16, (1, 1), size)
            yield one(100, (1, 1), size, random=False)
    yield one(1, (4, 1), "1kb")
    for clients in (10, 20, 30, 40, 50, 60, 70, 80, 90, 100):
        # The odd ones have neither the largest size nor random payloads.
        even = clients in (10, 20, 40, 60, 80, 100)
        for size in SIZES:
            if even or size != "64kb":
                yield one(clients, (clients, clients), size, random=even)
    for topics in (10, 20, 30, 40, 50, 60, 70, 80, 90, 100):
        even = topics in (10, 20, 40, 60, 80, 100)
        for size in SIZES:
            if even or size != "64kb":
                yield Shipped(
                    f"max-rate-{topics}-topics-1-partition-{size}",
                    group,
                    SIZES[size],
                    "max",
                    topics=topics,
                    pool=(100 if size == "64kb" else 1000) if even else 0,
                )


def library() -> dict[str, Shipped]:
    """Every workload that ships, by name, in the order in which they are listed."""
    families = (_fixed_rate, _sustainable, _closed_loops, _backlogs, _many_topics)
    found: dict[str, Shipped] = {}
    for family in families:
        for shipped in family():
            if shipped.name in found:
                raise AssertionError(f"two workloads that ship are called {shipped.name}")
            found[shipped.name] = shipped
    return found


def library_directory() -> Path:
    """Where the workloads that are written by hand are."""
    return Path(__file__).resolve().parent.parent / "workloads"


def library_names() -> list[str]:
    """Names of the workloads that ship with streamgauge, in the order of their groups."""
    return [name for _, names in groups() for name in names]


def groups() -> Iterator[tuple[str, list[str]]]:
    """Group -> names, as they are listed. Those written by hand come first."""
    yield "What this lab adds", sorted(path.stem for path in library_directory().glob("*.yaml"))
    found: dict[str, list[str]] = {}
    for shipped in library().values():
        found.setdefault(shipped.group, []).append(shipped.name)
    yield from found.items()


def shipped_text(name: str) -> str | None:
    """The text of a workload that ships, or None when none has this name."""
    path = library_directory() / f"{name}.yaml"
    # A name is no path: it cannot lead out of the directory.
    if Path(name).name == name and path.is_file():
        return path.read_text(encoding="utf-8")
    found = library().get(name)
    return None if found is None else found.text()
