"""Where processes of this one listen, however short: a port that is open on all addresses for the moment of a start is open to all for that moment."""

from __future__ import annotations

import contextlib
import ipaddress
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import psutil

Address = tuple[str, int]
LOOK_EVERY_S = 0.05
LISTENS = "0A"
"""TCP_LISTEN in /proc/net/tcp (proc_net_tcp.txt of Linux)."""


class Listeners:
    """Looks at the descendants of this process that have come since its context began, until its end."""

    def __init__(self) -> None:
        self.found: set[Address] = set()
        """TCP addresses on which one of them listened."""
        self._before: set[psutil.Process] = set()
        self._known: set[str] = set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._before = set(psutil.Process().children(recursive=True))
        self._known = set(_listening())
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
        """Whose a socket is takes a look at every file that a process has open, so it is asked of each socket once."""
        sockets = _listening()
        new = sockets.keys() - self._known
        if new:
            self._known |= new
            ours = _sockets_of(set(psutil.Process().children(recursive=True)) - self._before)
            self.found |= {sockets[inode] for inode in new & ours}

    def beyond_loopback(self) -> set[Address]:
        """Those that are not at the address that this machine alone reaches and that the lab uses itself."""
        return {one for one in self.found if one[0] not in ("127.0.0.1", "::1")}


def listening(processes: Iterable[psutil.Process]) -> set[Address]:
    """Where they listen now."""
    sockets, ours = _listening(), _sockets_of(processes)
    return {address for inode, address in sockets.items() if inode in ours}


def for_workers(connection: Mapping[str, Any]) -> set[Address]:
    """What workers are told to connect to: the addresses of a connection, and those in lists of its options."""
    lists = [
        connection["bootstrap"],
        *(one for one in connection["options"].values() if isinstance(one, list)),
    ]
    parted = (str(address).rpartition(":") for addresses in lists for address in addresses)
    return {(host, int(port)) for host, _, port in parted if port.isdecimal()}


def _listening() -> dict[str, Address]:
    """Of this network namespace: inode -> address of each TCP socket that listens."""
    return {
        inode: address for table in ("tcp", "tcp6") for inode, address in _rows(Path("/proc/net") / table)
    }


def _rows(table: Path) -> Iterator[tuple[str, Address]]:
    with contextlib.suppress(FileNotFoundError):
        for line in table.read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS:
                host, _, port = fields[1].partition(":")
                # Words of 32 bits in the order of this machine.
                words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
                address = ipaddress.ip_address(b"".join(words))
                mapped = getattr(address, "ipv4_mapped", None)
                yield fields[9], (str(mapped or address), int(port, 16))


def _sockets_of(processes: Iterable[psutil.Process]) -> set[str]:
    """Inodes of the sockets that these have open."""
    found = set()
    for process in processes:
        # It may end, or close one, while it is looked at.
        with contextlib.suppress(OSError):
            for file in Path(f"/proc/{process.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    kind, _, inode = str(file.readlink()).partition(":[")
                    if kind == "socket":
                        found.add(inode.rstrip("]"))
    return found
