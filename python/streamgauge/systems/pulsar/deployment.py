"""Whether a cluster's brokers are on the machines of its bookies, by the addresses under which its metadata has both.

Brokers are listed by the name or address that they advertise (by default their host's name), bookies by their address unless they were given a
name of their own. So names are looked up, from here: one that is not found here, or that means this very machine to us, tells nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from typing import Any

Addresses = frozenset[str]


def addresses_of(host: str) -> Addresses:
    """Of a name or an address; none where nobody here knows."""
    try:
        return frozenset({str(ipaddress.ip_address(host.strip("[]")))})
    except ValueError:
        pass
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(one for one in found if not ipaddress.ip_address(one.partition("%")[0]).is_loopback)


def deployment_of(
    description: Mapping[str, Any], look_up: Callable[[str], Addresses] = addresses_of
) -> str | None:
    """One of `settings.DEPLOYMENTS`, by the worker's `describe` (docs/worker-api.md); None where it is not told: brokers or bookies are not listed, a bookie
    has a name in place of an address, or some brokers are beside bookies and some are not."""
    brokers = {str(node.get("host")) for node in description.get("nodes") or ()}
    bookies = {str(one).rpartition(":")[0] for one in description.get("storage_nodes") or ()}
    if not brokers or not bookies or "" in bookies:
        return None
    if brokers <= bookies:
        return "co-located"
    stored = {bookie: look_up(bookie) for bookie in bookies}
    beside = {_is_beside(broker, look_up(broker), stored) for broker in brokers}
    if beside == {True}:
        return "co-located"
    return "tiered" if beside == {False} else None


def _is_beside(broker: str, found: Addresses, bookies: Mapping[str, Addresses]) -> bool | None:
    """Whether it is on the machine of a bookie; None where it may be."""
    if broker in bookies or any(found & one for one in bookies.values()):
        return True
    return False if found and all(bookies.values()) else None
