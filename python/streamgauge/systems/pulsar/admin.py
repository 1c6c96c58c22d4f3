"""Pulsar's and BookKeeper's web services: what the lab asks of a cluster that it runs.

Source: Pulsar's "Admin REST API" (version 2) and BookKeeper's "HTTP API".
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import httpx

from streamgauge.model.security import Security
from streamgauge.systems.support import processes
from streamgauge.vocabulary.errors import SystemFailure

TIMEOUT_S = 20.0


class Web:
    """The web service of a broker or bookie."""

    def __init__(
        self,
        port: int,
        host: str = processes.LOOPBACK,
        timeout_s: float = TIMEOUT_S,
        security: Security | None = None,
    ) -> None:
        """`security`: how it is reached, where not in plain text."""
        tls = None if security is None else security.tls
        self._base = f"{'http' if tls is None else 'https'}://{host}:{port}"
        self._how: dict[str, Any] = {"timeout": timeout_s, "trust_env": False, "follow_redirects": True}
        if tls is not None:
            self._how["verify"] = tls.context()
        if security is not None and security.auth is not None:
            self._how["headers"] = {"Authorization": f"Bearer {security.auth.secret}"}

    def get(self, path: str) -> httpx.Response:
        """Raises httpx.HTTPError, also for a refusal."""
        answer = httpx.get(self._base + path, **self._how)
        answer.raise_for_status()
        return answer

    def send(self, method: str, path: str, body: Any) -> None:
        """Raises SystemFailure with Pulsar's words."""
        try:
            answer = httpx.request(method, self._base + path, json=body, **self._how)
        except httpx.HTTPError as error:
            raise SystemFailure(f"Pulsar's web service {self._base} does not answer: {error}") from error
        if not answer.is_success:
            reason = answer.text
            with contextlib.suppress(ValueError, AttributeError):
                reason = answer.json().get("reason", reason)
            raise SystemFailure(
                f"Pulsar refuses {method} {path}: {reason.strip()} (status {answer.status_code})"
            )


def is_healthy(web: Web) -> str | None:
    """None when the broker publishes and reads a message of its own; else what is wrong."""
    try:
        answer = web.get("/admin/v2/brokers/health").text.strip()
    except httpx.HTTPError as error:
        return str(error).partition("\n")[0]
    return None if answer == "ok" else f"it says {answer!r}"


def bookies(web: Web) -> list[str]:
    """Addresses of all bookies that a broker knows. Raises httpx.HTTPError or ValueError."""
    known = web.get("/admin/v2/bookies/all").json().get("bookies") or []
    return [str(one.get("bookieId")) for one in known]


def owner(web: Web, namespace: str, topic: str) -> str | None:
    """host:port of the broker that owns a topic; None when this broker does not say."""
    try:
        told = web.get(f"/lookup/v2/topic/persistent/{namespace}/{topic}").json()
        url = told.get("brokerUrl") or told.get("brokerUrlTls")
    except (httpx.HTTPError, ValueError, AttributeError):
        return None
    return str(url).partition("://")[2] if url else None


def create_namespace(
    web: Web, cluster: str, namespace: str, quorums: Mapping[str, int], bundles: int
) -> None:
    """Makes tenant and namespace with its persistence (bookkeeperEnsemble, bookkeeperWriteQuorum,
    bookkeeperAckQuorum). Raises SystemFailure.
    """
    tenant = namespace.partition("/")[0]
    web.send("PUT", f"/admin/v2/tenants/{tenant}", {"adminRoles": [], "allowedClusters": [cluster]})
    policies = {"bundles": {"numBundles": bundles}, "replication_clusters": [cluster]}
    web.send("PUT", f"/admin/v2/namespaces/{namespace}", policies)
    persistence = {**quorums, "managedLedgerMaxMarkDeleteRate": 1.0}
    web.send("POST", f"/admin/v2/namespaces/{namespace}/persistence", persistence)
