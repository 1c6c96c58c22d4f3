"""A small HTTP server for pages of the lab: a thread per connection, few connections, each with deadlines, GET alone, every answer made by one function."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from streamgauge.vocabulary.errors import InputError
from streamgauge.web.access import NOTHING, Access, security_headers
from streamgauge.web.seats import Seats

CONNECTIONS_MAX = 16
"""Served at a time."""
WAITING_MAX = 32
"""Connections that wait for a seat, or are told that there is none. Those beyond are closed."""
WAIT_S = 5.0
"""A connection waits so long for a seat."""
REQUEST_S = 10.0
"""A request that has not arrived by then is not waited for, nor is a reader who has not taken the answer."""
TARGET_CHARACTERS_MAX = 8192
QUERY_FIELDS_MAX = 32
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT")
ENDS_WITHIN_S = 2.0

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True)
class Asked:
    """What is asked for, by somebody who may."""

    path: str
    """Decoded."""
    fields: tuple[tuple[str, str], ...] = ()
    """Of the query, in their order."""
    is_crowded: bool = False
    """Others wait for a connection, or will soon: an answer that waits for something new should not wait for long."""

    @classmethod
    def of(cls, target: str, *, is_crowded: bool = False) -> Asked:
        """What stands in the request: path and query. Raises Unreadable."""
        if len(target) > TARGET_CHARACTERS_MAX:
            raise Unreadable(414, f"the address is longer than {TARGET_CHARACTERS_MAX} characters")
        try:
            parts = urlsplit(target)
            fields = parse_qsl(parts.query, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError:
            raise Unreadable(
                400, f"the address cannot be read, or asks for more than {QUERY_FIELDS_MAX} things at once"
            ) from None
        return cls(unquote(parts.path), tuple(fields), is_crowded)

    @property
    def query(self) -> dict[str, str]:
        """The last of each name."""
        return dict(self.fields)

    def every(self, name: str) -> list[str]:
        """All values of a name."""
        return [value for one, value in self.fields if one == name]


class Unreadable(Exception):
    """Status and sentence for a request that nobody can read."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Answer:
    """What is answered."""

    body: bytes
    kind: str = TEXT
    """The header Content-Type."""
    status: int = 200
    policy: str = NOTHING
    """The content security policy."""
    location: str | None = None
    """Where to look instead, with a status that says so."""


NOT_FOUND = Answer(b"there is no such page\n", status=404)
FULL = Answer(
    f"there is room for {CONNECTIONS_MAX} readers at a time, and none for you now: try again in some seconds\n".encode(),
    status=503,
)


class PageServer:
    """Answers on threads of its own from `start` until `stop`."""

    def __init__(self, option: str, access: Access, answer: Callable[[Asked], Answer]) -> None:
        """Begins to listen. `option` is named where that cannot be: raises InputError."""
        self._access = access
        try:
            self._server = _Server(access, answer)
        except OSError as error:
            raise InputError(
                f"{option} {access.host}:{access.port}: cannot listen there: {error.strerror or error}; expected a free port of an address of this "
                "machine (port 0 takes any that is free)"
            ) from None
        self.seats = self._server.seats
        """Room for connections."""
        self._thread = threading.Thread(target=self._server.serve_forever, name="pages", daemon=True)

    @property
    def address(self) -> str:
        """HOST:PORT, as it is bound."""
        port = self._server.server_address[1]
        return f"[{self._access.host}]:{port}" if self._access.family_is_6 else f"{self._access.host}:{port}"

    @property
    def url(self) -> str:
        """Where a reader finds it: bound to every address, by this machine's name."""
        if self._access.host in ("0.0.0.0", "::"):
            return f"http://{socket.gethostname()}:{self._server.server_address[1]}/"
        return f"http://{self.address}/"

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def wait(self) -> None:
        """As long as it answers."""
        self._thread.join()

    def stop(self) -> None:
        """Ends; answers under way are not waited for."""
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join(ENDS_WITHIN_S)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MAX + WAITING_MAX

    def __init__(self, access: Access, answer: Callable[[Asked], Answer]) -> None:
        self.address_family = socket.AF_INET6 if access.family_is_6 else socket.AF_INET
        self.access = access
        self.answer = answer
        self.seats = Seats(CONNECTIONS_MAX)
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX + WAITING_MAX)
        super().__init__((access.host, access.port), _Handler)

    def server_bind(self) -> None:
        # The library's own would look its name up, which may ask the network.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.access.host, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        if not self.seats.take(request, WAIT_S):
            _NoSeat(request, client_address, self)
            return
        try:
            _Handler(request, client_address, self)
        finally:
            self.seats.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away is no news."""


class _Patience(io.RawIOBase):
    """What a connection sends, until a deadline: one that sends a byte now and then holds its seat no longer than one that sends nothing."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.until_s = 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request has not arrived in time")
        self._connection.settimeout(left_s)
        try:
            return self._connection.recv_into(buffer)
        finally:
            # Of a whole answer.
            self._connection.settimeout(REQUEST_S)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server
    has_seat = True
    request_s: float | None = None
    """Instead of REQUEST_S."""

    def version_string(self) -> str:
        return "streamgauge"

    def log_message(self, format: str, *args: object) -> None:
        """Standard error is the run's."""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._patience = _Patience(self.connection)
        self.rfile = io.BufferedReader(self._patience)

    def handle_one_request(self) -> None:
        self._patience.until_s = time.monotonic() + (self.request_s or REQUEST_S)
        super().handle_one_request()

    def _respond(self) -> None:
        if self.has_seat:
            self.server.seats.is_answered(self.connection)
            self._respond_now()
            self.server.seats.is_silent(self.connection)
        else:
            self.close_connection = True
            self._respond_now()

    def _respond_now(self) -> None:
        refused = self.server.access.refusal(self.command, self._headers)
        if refused is not None:
            # What else came with the request is not read.
            self.close_connection = True
            self._send(Answer(f"{refused[1]}\n".encode(), status=refused[0]))
            return
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True
        try:
            asked = Asked.of(self.path, is_crowded=self.server.seats.is_crowded)
        except Unreadable as error:
            self._send(Answer(f"{error}\n".encode(), status=error.status))
            return
        self._send(self._answer(asked))

    def _answer(self, _asked: Asked) -> Answer:
        return self.server.answer(_asked)

    @property
    def _headers(self) -> dict[str, str]:
        """By names in small letters; of one that came twice all values, which nothing expects."""
        found: dict[str, str] = {}
        for name, value in self.headers.items():
            before = found.get(name.lower())
            found[name.lower()] = value if before is None else f"{before}, {value}"
        return found

    def _send(self, answer: Answer) -> None:
        if self.server.seats.is_wanted:
            self.close_connection = True
        self.send_response(answer.status)
        headers = {
            "Content-Type": answer.kind,
            "Content-Length": str(len(answer.body)),
            **security_headers(answer.policy),
        }
        if answer.location is not None:
            headers["Location"] = answer.location
        if answer.status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="streamgauge", charset="UTF-8"'
        if answer.status == 405:
            headers["Allow"] = "GET"
        if answer.status == 503:
            headers["Retry-After"] = f"{WAIT_S:.0f}"
        if self.close_connection:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)


class _NoSeat(_Handler):
    """For whom there was no room: it is told."""

    has_seat = False
    request_s = 1.0

    def _answer(self, _asked: Asked) -> Answer:
        return FULL


for _method in METHODS:
    setattr(_Handler, f"do_{_method}", _Handler._respond)
