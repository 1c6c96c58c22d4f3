"""A small HTTP server for pages of the lab: a thread per connection, few connections, GET alone, every answer made by one function."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from streamgauge.vocabulary.errors import InputError
from streamgauge.web.access import NOTHING, Access, security_headers

CONNECTIONS_MAX = 64
IDLE_S = 30.0
"""So long a connection may say nothing."""
QUERY_FIELDS_MAX = 32
ENDS_WITHIN_S = 2.0

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True)
class Asked:
    """What is asked for, by somebody who may."""

    path: str
    query: dict[str, str]
    accept: str = ""
    """The header Accept."""


@dataclass(frozen=True)
class Answer:
    """What is answered."""

    body: bytes
    kind: str = TEXT
    """The header Content-Type."""
    status: int = 200
    policy: str = NOTHING
    """The content security policy."""


NOT_FOUND = Answer(b"there is no such page\n", status=404)


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

    def stop(self) -> None:
        """Ends; answers under way are not waited for."""
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join(ENDS_WITHIN_S)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, access: Access, answer: Callable[[Asked], Answer]) -> None:
        self.address_family = socket.AF_INET6 if access.family_is_6 else socket.AF_INET
        self.access = access
        self.answer = answer
        self._seats = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((access.host, access.port), _Handler)

    def server_bind(self) -> None:
        # The library's own would look its name up, which may ask the network.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.access.host, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._seats.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._seats.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    disable_nagle_algorithm = True
    server: _Server

    def version_string(self) -> str:
        return "streamgauge"

    def log_message(self, format: str, *args: object) -> None:
        """Standard error is the run's."""

    def _respond(self) -> None:
        refused = self.server.access.refusal(self.command, self.headers)
        if refused is not None:
            # What else came with the request is not read.
            self.close_connection = True
            self._send(Answer(f"{refused[1]}\n".encode(), status=refused[0]))
            return
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True
        parts = urlsplit(self.path)
        try:
            query = dict(parse_qsl(parts.query, max_num_fields=QUERY_FIELDS_MAX))
        except ValueError:
            self._send(Answer(b"too much is asked at once\n", status=400))
            return
        self._send(self.server.answer(Asked(parts.path, query, self.headers.get("Accept", ""))))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _respond

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        headers = {
            "Content-Type": answer.kind,
            "Content-Length": str(len(answer.body)),
            **security_headers(answer.policy),
        }
        if answer.status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="streamgauge", charset="UTF-8"'
        if answer.status == 405:
            headers["Allow"] = "GET"
        if self.close_connection:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
