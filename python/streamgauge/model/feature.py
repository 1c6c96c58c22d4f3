"""What a system declares of itself for others: what it can do, as the conformance suite tries it (`streamgauge.conformance`) and as the table of
features shows it, and how long it takes to start."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Feature(Enum):
    """Something that not every system can do. The value is its heading in the table; the order is the table's."""

    LEVELS = "durability level read back"
    DELETION = "topics deleted"
    KEYS = "keys in order"
    SUBSCRIPTIONS = "independent subscriptions"
    BACKLOG = "backlog read from its beginning"
    PAUSE = "subscriptions paused and resumed"
    ATTACHING = "attached to"
    RESTART = "killed and restarted, nothing lost"
    POWER_CUT = "power cut, nothing lost at L3"
    TLS = "TLS"
    CREDENTIALS = "credentials made for a start"
    PLACES = "nodes at other addresses"
    NODES = "three nodes"
    NODE_LOSS = "goes on without one of three nodes, nothing lost"
    LEADERS = "leader of a topic told"


@dataclass(frozen=True)
class StartTime:
    """What a start takes on two cores, about, until the system answers: for estimates of what a study takes."""

    one_node_s: float
    nodes_s: float
    """On several nodes."""

    def of(self, nodes: int) -> float:
        """For a start on so many nodes, in seconds."""
        return self.one_node_s if nodes == 1 else self.nodes_s
