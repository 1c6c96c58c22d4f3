"""HTTP for the pages: GET alone, few connections at a time, each with a deadline."""

from __future__ import annotations

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from streamgauge.serve.gate import Gate
from streamgauge.serve.pages import Answer, Pages

CONNECTIONS_MAX = 16
REQUEST_S = 10.0
"""A request that has not arrived by then is not waited for."""
ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
METHODS = ("HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT")


class PagesServer(ThreadingHTTPServer):
    """Serves until `shutdown`. Raises OSError where the address is not to be had."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], pages: Pages, gate: Gate) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.pages, self.gate = pages, gate
        self.free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, where there is room for one more."""
        if not self.free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The request in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who left is no error of ours; anything else is, and is shown."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: PagesServer
    timeout = REQUEST_S
    server_version, sys_version = "streamgauge", ""

    def do_GET(self) -> None:
        refusal = self.server.gate.refusal(self._headers)
        if refusal is None:
            try:
                answer = self.server.pages.answer(self.path)
            except Exception:
                answer = self.server.pages.refused(500, "this page cannot be made: a fault of streamgauge")
                self._send(answer)
                raise
        else:
            answer = self.server.pages.refused(refusal.status, refusal.why)
        self._send(answer)

    def do_other(self) -> None:
        answer = self.server.pages.refused(405, "this is for reading: expected GET")
        self._send(Answer(answer.status, answer.body, {**answer.headers, "Allow": "GET"}))

    @property
    def _headers(self) -> dict[str, str]:
        """By names in small letters; of one that came twice all values, which nothing expects."""
        found: dict[str, str] = {}
        for name, value in self.headers.items():
            before = found.get(name.lower())
            found[name.lower()] = value if before is None else f"{before}, {value}"
        return found

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        headers = {**ALWAYS, **answer.headers, "Content-Length": str(len(answer.body))}
        if answer.status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="streamgauge", charset="UTF-8"'
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what is looked at is nobody's business, and addresses of strangers do not belong into a terminal."""


for _method in METHODS:
    setattr(_Handler, f"do_{_method}", _Handler.do_other)
