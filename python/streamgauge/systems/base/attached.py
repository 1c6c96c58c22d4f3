"""A system that was running before the lab came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streamgauge.model.security import secured, told
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem, System, SystemProcess
from streamgauge.systems.base.own_metrics import MetricSource, OwnMetrics
from streamgauge.vocabulary.levels import Level


def attached_sources(metrics: OwnMetrics | None, urls: Sequence[str]) -> Sequence[MetricSource]:
    """Processes that were running already, named by their addresses."""
    return [] if metrics is None else [metrics.source(urlsplit(url).netloc, url) for url in urls]


class AttachedSystem(RunningSystem):
    """A system that was running already. Only the topics of a trial are created and deleted: it is never configured, stopped or
    wiped.
    """

    def __init__(
        self,
        kind: type[System],
        request: SystemRequest,
        nodes: int,
        *,
        version: str | None = None,
        level: Level | None = None,
        protocol: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`version`: what was found where nothing was asked for. `level`: None where what is read back decides. `protocol`: None for
        that of the system. `options`: the client's.
        """
        self.name = kind.name
        self.version = request.version or version or "unknown"
        self.nodes = nodes
        self.level = level
        self.attached = True
        self._protocol = protocol or kind.protocol
        self._options = options or {}
        self._connect = request.connect
        self._security = request.security
        self._own_metrics, self._metric_urls = kind.own_metrics, request.metrics

    @property
    def connection(self) -> dict[str, Any]:
        plain = {
            "protocol": self._protocol,
            "bootstrap": list(self._connect),
            "options": dict(self._options),
        }
        return secured(plain, self._security)

    def processes(self) -> list[SystemProcess]:
        return []

    def failure(self) -> str | None:
        return None

    def metric_sources(self) -> Sequence[MetricSource]:
        return attached_sources(self._own_metrics, self._metric_urls)

    def configuration(self) -> dict[str, Any]:
        return {"version": self.version, "connect": list(self._connect), "security": told(self._security)}

    def collect_logs(self, into: Path) -> None:
        """Its logs are where its owner keeps them."""

    def stop(self) -> None:
        """It is not ours to stop."""

    def wipe(self) -> None:
        """It is not ours to wipe."""
