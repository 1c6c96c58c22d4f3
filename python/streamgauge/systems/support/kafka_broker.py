"""What a broker that speaks Kafka's protocol says of itself, asked by `gauge describe`: with the client that the workers have.

The lab never touches a message and speaks no protocol itself. But readiness must be proven over the socket before a worker exists, and an
attached cluster must be looked at before anything is planned.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

from streamgauge.model.security import Security
from streamgauge.systems.base import options
from streamgauge.vocabulary.errors import FleetFailure, SystemFailure
from streamgauge.vocabulary.gauge_binary import find_gauge

MECHANISMS = frozenset({"plain", "scram-sha-256", "scram-sha-512"})
"""How clients can say who they are."""
WITHIN_S = 30.0
"""Gauge gives a broker 3 s for each answer; a name server may take longer."""


def parse_address(address: str, where: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises SystemInputError."""
    return options.parse_address(address, where, "a Kafka broker; expected host:port such as 127.0.0.1:9092")


class NotDescribed(Exception):
    """The other side cannot be reached, does not answer as Kafka does, or does not let us in: in one sentence that names it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        """Which of them (crates/gauge-client/src/kafka/describe.rs)."""


@dataclass(frozen=True)
class Description:
    """A broker and its cluster, as the broker sees it."""

    release: str | None
    """The line of its release ("4.3"); None when it does not say."""
    cluster_id: str | None
    brokers: int
    """How many belong to the cluster."""
    leader: int | None
    """The node that leads the first partition of the topic that was asked for; None when there is none at the moment."""


def describe(server: str, security: Security | None = None, topic: str | None = None) -> Description:
    """Asks the broker at `host:port`. Raises NotDescribed, and SystemFailure where gauge itself fails."""
    asked = {
        "server": server,
        "security": None if security is None else security.request(),
        "topic": topic,
    }
    try:
        ended = subprocess.run(
            [find_gauge(), "describe"],
            input=json.dumps(asked),
            capture_output=True,
            encoding="utf-8",
            timeout=WITHIN_S,
            check=False,
        )
    except (FleetFailure, OSError) as failure:
        raise SystemFailure(f"a broker cannot be asked: {failure}") from None
    except subprocess.TimeoutExpired:
        raise NotDescribed("silent", f"{server} does not answer within {WITHIN_S:g} s") from None
    try:
        said: dict[str, Any] = json.loads(ended.stdout)
    except ValueError:
        raise SystemFailure(
            f"gauge describe ended with status {ended.returncode}: {ended.stderr.strip() or 'it said nothing'}"
        ) from None
    if "error" in said:
        raise NotDescribed(said["error"]["code"], said["error"]["message"])
    leaders = {row["partition"]: row["leader"] for row in said["leaders"]}
    return Description(said["release"], said["cluster_id"], len(said["brokers"]), leaders.get(0))
