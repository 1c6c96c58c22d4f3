"""Where processes of this one listen, however short: a port that is open on all addresses for the moment of a start is open to all for that moment."""

from __future__ import annotations

import contextlib
import ipaddress
import threading
from collections.abc import Mapping
from typing import Any, Self

import psutil

Address = tuple[str, int]
LOOK_EVERY_S = 0.05


class Listeners:
    """Looks at the descendants of this process that have come since its context began, until its end."""

    def __init__(self) -> None:
        self.found: set[Address] = set()
        """TCP addresses on which one of them listened."""
        self._before: set[psutil.Process] = set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._before = set(psutil.Process().children(recursive=True))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._done.wait(LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        for child in set(psutil.Process().children(recursive=True)) - self._before:
            with contextlib.suppress(psutil.Error):
                self.found |= listening(child)

    def beyond_loopback(self) -> set[Address]:
        """Those that are not at the address that this machine alone reaches and that the lab uses itself."""
        return {one for one in self.found if one[0] not in ("127.0.0.1", "::1")}


def listening(process: psutil.Process) -> set[Address]:
    """Where it listens now. Raises psutil.Error."""
    found = set()
    for one in process.net_connections("tcp"):
        if one.status == psutil.CONN_LISTEN and one.laddr:
            address = ipaddress.ip_address(one.laddr.ip)
            mapped = getattr(address, "ipv4_mapped", None)
            found.add((str(mapped or address), one.laddr.port))
    return found


def for_workers(connection: Mapping[str, Any]) -> set[Address]:
    """What workers are told to connect to: the addresses of a connection, and those in lists of its options."""
    lists = [
        connection["bootstrap"],
        *(one for one in connection["options"].values() if isinstance(one, list)),
    ]
    parted = (str(address).rpartition(":") for addresses in lists for address in addresses)
    return {(host, int(port)) for host, _, port in parted if port.isdecimal()}
