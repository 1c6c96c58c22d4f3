"""A web server of which a test says what it answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answers = dict[str, bytes | int | Callable[[BaseHTTPRequestHandler], None]]


@contextmanager
def answering(answers: Answers) -> Iterator[str]:
    """Its address (host:port). By path it answers with bytes, with a status, or lets a function that is given the connection do it; 404 for others."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer = answers.get(self.path, 404)
            if callable(answer):
                answer(self)
                return
            body = answer if isinstance(answer, bytes) else b""
            self.send_response(200 if isinstance(answer, bytes) else answer)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
