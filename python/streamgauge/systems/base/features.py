"""What a system can do, as the conformance suite tries it (`streamgauge.conformance`) and as the table of features shows it."""

from __future__ import annotations

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
    LEADERS = "leader of a topic told"
