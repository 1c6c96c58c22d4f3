"""Whether the processes of a Pulsar cluster serve: None, or what is still missing as the rest of a sentence."""

from __future__ import annotations

import socket

import httpx

from streamgauge.systems.pulsar import admin
from streamgauge.systems.pulsar.launch import Launch, Layout
from streamgauge.systems.pulsar.settings import NodePorts

PROBE_TIMEOUT_S = 2.0


def zookeeper_missing(layout: Layout) -> str | None:
    """What ZooKeeper waits for."""
    try:
        answer = _asked(layout, b"ruok")
    except OSError as error:
        return f"ZooKeeper to answer ({error})"
    return None if answer == b"imok" else f"ZooKeeper to be ready (it says {answer[:16]!r})"


def is_held(layout: Layout, node: str) -> bool:
    """Whether a node of ZooKeeper (its path) belongs to a session that is not over; False where ZooKeeper does not say."""
    try:
        return node.encode() in _asked(layout, b"dump").split()
    except OSError:
        return False


def _asked(layout: Layout, word: bytes) -> bytes:
    """What ZooKeeper answers to one of its four-letter words."""
    with socket.create_connection((layout.zookeeper_host, layout.zookeeper), PROBE_TIMEOUT_S) as connection:
        connection.settimeout(PROBE_TIMEOUT_S)
        connection.sendall(word)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def bookies_missing(layout: Layout, count: int) -> str | None:
    """The first bookie of `count` that is not ready."""
    for node, own in enumerate(layout.ports[:count], start=1):
        missing = bookie_missing(node, own)
        if missing is not None:
            return missing
    return None


def bookie_missing(node: int, own: NodePorts) -> str | None:
    """What one bookie waits for."""
    web = admin.Web(own.bookie_http, own.inside, timeout_s=PROBE_TIMEOUT_S)
    try:
        web.get("/api/v1/bookie/is_ready")
    except httpx.HTTPError as error:
        return f"bookie {node} to be ready ({str(error).partition(chr(10))[0]})"
    return None


def broker_missing(node: int, layout: Layout) -> str | None:
    """What one broker waits for."""
    fault = admin.is_healthy(layout.web(node))
    return None if fault is None else f"broker {node} to be healthy ({fault})"


def brokers_missing(launch: Launch, layout: Layout) -> str | None:
    """The first broker that is not healthy, or does not know all bookies."""
    for node in launch.all_nodes():
        missing = broker_missing(node, layout)
        if missing is not None:
            return missing
        try:
            known = len(admin.bookies(layout.web(node)))
        except (httpx.HTTPError, ValueError) as error:
            return f"broker {node} to know the bookies ({error})"
        if known != launch.nodes:
            return f"broker {node} to know {launch.nodes} bookies (it knows {known})"
    return None
