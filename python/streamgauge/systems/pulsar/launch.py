"""What is decided of a Pulsar cluster before its first process runs, and what the cluster was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamgauge.systems.pulsar import admin, settings
from streamgauge.systems.support.certificates import Certificates, security_of
from streamgauge.systems.support.java_system import JavaLaunch


@dataclass(frozen=True, kw_only=True)
class Launch(JavaLaunch):
    """Everything that is decided before the first process of a cluster runs."""

    options: settings.Options
    plan: settings.Plan


@dataclass(frozen=True)
class Layout:
    """What a launch has been given: ports, and what was written into the configuration files."""

    zookeeper: int
    zookeeper_host: str
    ports: Sequence[settings.NodePorts]
    settings: Mapping[str, Mapping[str, str]]
    """Process -> its settings that differ from the distribution's file."""
    certificates: Certificates | None = None
    """With TLS."""

    def web(self, node: int, timeout_s: float = admin.TIMEOUT_S) -> admin.Web:
        """The web service of a node's broker, as the lab reaches it."""
        own = self.ports[node - 1]
        if own.is_plain_closed and own.web_tls is not None:
            return admin.Web(own.web_tls, own.host, timeout_s, security_of(self.certificates))
        return admin.Web(own.web, own.host, timeout_s)
