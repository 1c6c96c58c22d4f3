"""The seam between the lab and a system under test.

A system is one package: how to get it, start it, read its settings back, stop it and wipe it, and what it declares of
itself. Nothing outside the package knows where a system comes from or what its processes are called; the runner only
sees the two classes below.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from streamgauge.model.feature import Feature, StartTime
from streamgauge.model.system_request import SystemRequest
from streamgauge.model.untrusted import Untrusted
from streamgauge.systems.base.own_metrics import MetricSource, OwnMetrics
from streamgauge.systems.base.parts import Part
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.levels import Level

Progress = Callable[[str], None]
"""Receives one plain line about what is being done now ("downloading Kafka 4.3.1")."""


Describe = Callable[[Sequence[str]], Mapping[str, Any]]
"""Asks the live system about itself through a worker (docs/worker-api.md, /v1/admin/describe); takes topic
names.
"""


@dataclass(frozen=True)
class SystemProcess:
    """One process of the system under test, so that its CPU, memory and disk use can be charged to it."""

    name: str
    pid: int


@dataclass(frozen=True)
class TopicPlan:
    """How topics must be created so that the level holds."""

    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True)
class ReadBack:
    """Settings of the live system and what they mean for durability."""

    level: Level | None
    """The level that the settings read back amount to, with the client's acks; None when it cannot be told.
    """
    settings: Mapping[str, Any]
    """The settings that matter, as the live system reports them (flat: "topic.flush.messages",
    "node.1.num.io.threads", ...).
    """
    mismatches: tuple[str, ...]
    """One sentence for each setting that is not as asked; any makes the trial invalid."""

    @classmethod
    def judged(
        cls,
        system: str,
        level: Level | None,
        asked: Level | None,
        settings: Mapping[str, Any],
        mismatches: Sequence[str],
    ) -> ReadBack:
        """With one more mismatch where the level is another than the one `asked` for (None: whatever is read back is right)."""
        if level is None or asked in (None, level):
            return cls(level, settings, tuple(mismatches))
        told = f"durability {asked} was asked for, but the settings read back from {system} amount to {level}"
        return cls(level, settings, (*mismatches, told))


class RunningSystem(abc.ABC):
    """A system that answers. Obtained from `System.start` or `System.attach`; always ended with `stop`
    (idempotent).
    """

    name: str
    title: str | None = None
    """What it is called where it is not known to be what its kind is."""
    version: str
    nodes: int
    level: Level | None
    """The level that this system was configured for (declared)."""
    attached: bool
    """True for a cluster that was running already: it is never stopped or wiped."""
    kept: bool = False
    """True for one that goes on after the trial: what the trial made in it, the trial removes."""
    has_run: bool = False
    """True where a trial before has gone on it."""

    def take_level(self, request: SystemRequest) -> None:
        """Goes on at the level of this request, which is like the one that started it in all else; where `System.level_of_topics`."""
        raise SystemFailure(
            f"{self.name} cannot go on at level {request.level}: its package says that the level is one of topics (level_of_topics) and has no take_level"
        )

    @property
    @abc.abstractmethod
    def connection(self) -> dict[str, Any]:
        """The `system` object of the worker API."""

    @property
    def acks(self) -> Literal["all", "leader", "none"]:
        """What the client must wait for at this level."""
        return "all"

    @abc.abstractmethod
    def topic_plan(self) -> TopicPlan:
        """How to create topics at this level."""

    @abc.abstractmethod
    def processes(self) -> list[SystemProcess]:
        """The system's processes; empty when attached."""

    @abc.abstractmethod
    def failure(self) -> str | None:
        """One sentence (with the log's last lines or its path) when a process has died unasked; None while
        all is well.
        """

    def goes_on(self) -> bool:
        """Whether the system is made to go on although `failure` tells of a process that died: most of its
        nodes live. The load then goes on too, so that the trial shows what becomes of it.
        """
        return False

    knows_leaders: ClassVar[bool] = False
    """Whether `leader` can answer."""
    leader_stores: ClassVar[bool] = True
    """Whether who leads a topic keeps a copy itself."""

    def leader(self, topic: str) -> str | None:  # noqa: ARG002
        """The node ("node-2") that leads the first partition of a topic at this moment: the one that takes its messages
        and acknowledges them. None when it cannot be told; never raises.
        """
        return None

    def without_content(self, topic: str) -> Sequence[str]:  # noqa: ARG002
        """What the system itself says of the places of a topic that it serves no more and no longer knows the content of, though it runs: asked where
        acknowledged messages cannot be read. Empty where it says nothing of the kind; never raises.
        """
        return ()

    def parts(self) -> Sequence[Part]:
        """What of it can be killed, stopped and started again by itself. Empty when attached: it is not ours to
        break.
        """
        return ()

    @abc.abstractmethod
    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        """Reads settings back from the live system and compares them with what was asked."""

    def metric_sources(self) -> Sequence[MetricSource]:
        """The processes whose metrics (`System.own_metrics`) are read once per second. Empty where there is nothing to be had."""
        return ()

    @abc.abstractmethod
    def configuration(self) -> dict[str, Any]:
        """What was configured, for the manifest: files as written, JVM flags, ports, package checksums. No
        secrets.
        """

    @abc.abstractmethod
    def collect_logs(self, into: Path) -> None:
        """Copies the system's logs into the run's directory (bounded: the last 10 MB of each)."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stops what this module started: SIGTERM, generous wait, SIGKILL. Idempotent; never raises for a
        dead process.
        """

    @abc.abstractmethod
    def wipe(self) -> None:
        """Removes the data directories. Nothing when attached."""

    def discard(self) -> None:
        """Ends it with its data, which nobody needs any more, and for which it need not end in order. Idempotent."""
        self.stop()
        self.wipe()


class System(abc.ABC):
    """One kind of system that streamgauge can get and run. What others must know of it is declared here, once."""

    name: ClassVar[str]
    """As on the command line, and as its entry point is called."""
    title: ClassVar[str]
    protocol: ClassVar[str]
    """The client that drives it (worker API, `system.protocol`)."""
    default_version: ClassVar[str]
    page: ClassVar[str]
    """Where its documentation is: a path in this repository, or an address."""
    obtained: ClassVar[str]
    """How it gets here, in a few words."""
    option_keys: ClassVar[frozenset[str]]
    """Keys that a system file may hold besides the common ones (`name`, `system`, `version`, `nodes`,
    `durability`, `connect`).
    """
    start_time: ClassVar[StartTime]
    cannot: ClassVar[Mapping[Feature, str]]
    """What it cannot do, and why. The conformance suite tries that too: what works in spite of its reason is an error here."""

    levels: ClassVar[frozenset[Level]] = frozenset({"L3", "L4"})
    """Those that it has on one node."""
    level_of_topics: ClassVar[bool] = False
    """Whether the level is a matter of its topics and its clients alone: then `RunningSystem.take_level` is there."""
    levels_of_nodes: ClassVar[frozenset[Level]] = frozenset({"L1", "L2", "L3", "L4"})
    """Those that it has on three; without a meaning where it cannot have NODES."""
    mechanisms: ClassVar[frozenset[str]] = frozenset()
    """How its clients can authenticate (`security.Mechanism`)."""
    omb_drivers: ClassVar[frozenset[str]] = frozenset()
    """Names under which the OpenMessaging Benchmark has drivers for it, in small letters ("kafka")."""
    small_segments: ClassVar[Mapping[str, Any]] = {}
    """Options with which a load of seconds fills and rolls its segments, ledgers or journals; none where there are no such settings."""
    omb_workers: ClassVar[str | None] = (
        "OMB's workers can be given Kafka and Pulsar by this lab, and nothing else"
    )
    """Why the OpenMessaging Benchmark's own workers cannot put load on it, None where they can (docs/omb-fleet.md)."""

    own_metrics: ClassVar[OwnMetrics | None] = None
    """What it measures of itself that explains latency, and how that is read (docs/causes.md); None: nothing that is known here."""

    def can(self, feature: Feature) -> bool:
        """Whether it declares nothing against a feature."""
        return feature not in self.cannot

    @property
    def placed(self) -> bool:
        """Whether it starts its nodes where `SystemRequest.placement` says."""
        return self.can(Feature.PLACES)

    @property
    def tells_metrics(self) -> bool:
        """Whether its own metrics can be read."""
        return self.own_metrics is not None

    @property
    def encrypts(self) -> bool:
        """Whether it can be measured over TLS: started so (`SystemRequest.tls`), or attached to."""
        return self.can(Feature.TLS)

    @classmethod
    def told_level(cls, settings: Mapping[str, Any]) -> Level | None:  # noqa: ARG003
        """The durability level that settings amount to which were read back and stored (`ReadBack.settings`), so that a result can be checked without the
        system; None where they do not tell."""
        return None

    @abc.abstractmethod
    def check(self, request: SystemRequest) -> None:
        """Raises SystemInputError when the request cannot be met, before anything is fetched or started: says
        which levels exist and why.
        """

    def untrusted(self, request: SystemRequest) -> Iterator[Untrusted]:  # noqa: ARG002
        """What of the options is done for a trusted file alone, because it can run code or reach files elsewhere."""
        yield from ()

    @abc.abstractmethod
    def installed(self, version: str | None = None) -> str | None:
        """Where the version is installed, or None."""

    @abc.abstractmethod
    def missing(self) -> str | None:
        """One sentence naming what this machine lacks to run the system (a JDK, a package) and how to get it;
        None when nothing is.
        """

    @abc.abstractmethod
    def install(self, version: str | None, progress: Progress) -> None:
        """Gets the version into the cache (verified by checksums); returns at once when it is there. Raises
        SystemFailure.
        """

    @abc.abstractmethod
    def start(self, request: SystemRequest, directory: Path, progress: Progress) -> RunningSystem:
        """Installs if need be, configures, starts and waits until the system answers. `directory` is empty
        and belongs to this system. On failure everything already started is stopped and SystemFailure raised
        with the reason from the system's log.
        """

    @abc.abstractmethod
    def attach(self, request: SystemRequest) -> RunningSystem:
        """A running system behind `request.connect`."""
