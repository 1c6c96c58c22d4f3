"""Room for connections: few are served at a time, and those who come when there is no room wait for some.

A connection that is not being answered makes room for one that waits: a browser keeps its connection when it has its answer, and whoever says nothing keeps
it, too. The one that has been silent for longest goes first. As long as somebody waits, an answer is the last of its connection (`is_wanted`), so that
readers take turns, in the order in which they came.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque

SILENT_S = 0.5
"""Whoever has just sat down has so long to say something."""
LOOK_S = 0.05
FEW = 4
"""With fewer free seats than this it is crowded."""


class Seats:
    """`count` of them; all methods may be called from any thread."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._changed = threading.Condition()
        self._silent_since_s: dict[socket.socket, float | None] = {}
        """None: is being answered, or has been asked to leave."""
        self._line: deque[socket.socket] = deque()

    def take(self, connection: socket.socket, within_s: float) -> bool:
        """Waits for a seat, so long at most; whether there was one."""
        until_s = time.monotonic() + within_s
        with self._changed:
            self._line.append(connection)
            try:
                while len(self._silent_since_s) >= self._count or self._line[0] is not connection:
                    now_s = time.monotonic()
                    if now_s >= until_s:
                        return False
                    self._make_room(now_s)
                    self._changed.wait(min(until_s - now_s, LOOK_S))
                self._silent_since_s[connection] = time.monotonic()
                return True
            finally:
                self._line.remove(connection)
                self._changed.notify_all()

    def leave(self, connection: socket.socket) -> None:
        """The connection is closed."""
        with self._changed:
            self._silent_since_s.pop(connection, None)
            self._changed.notify_all()

    def is_answered(self, connection: socket.socket) -> None:
        """Its request has come."""
        with self._changed:
            self._silent_since_s[connection] = None

    def is_silent(self, connection: socket.socket) -> None:
        """It has its answer."""
        with self._changed:
            self._silent_since_s[connection] = time.monotonic()

    @property
    def free(self) -> int:
        """Seats that nobody has."""
        with self._changed:
            return self._count - len(self._silent_since_s)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits."""
        with self._changed:
            return bool(self._line)

    @property
    def is_crowded(self) -> bool:
        """Whether somebody waits, or will soon."""
        with self._changed:
            return bool(self._line) or self._count - len(self._silent_since_s) < FEW

    def _make_room(self, now_s: float) -> None:
        """Asks the one that has been silent for longest to leave: its thread sees the end of the connection, and leaves."""
        silent = [
            (since_s, connection)
            for connection, since_s in self._silent_since_s.items()
            if since_s is not None and now_s - since_s >= SILENT_S
        ]
        if not silent:
            return
        _, connection = min(silent, key=lambda pair: pair[0])
        self._silent_since_s[connection] = None
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
