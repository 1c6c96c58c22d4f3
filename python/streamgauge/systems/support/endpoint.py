"""An HTTP address that is asked again and again: one connection, answers bounded in size and time.

Who answers may be anybody: an answer that is too long, too slow, or no success is an error, redirects are not followed, and no proxy of the
environment is used. The client libraries of the lab build a TLS context and a pool per client, which costs more than the question.
"""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlsplit

from streamgauge.systems.base.own_metrics import NotRead, TooMuch

TIMEOUT_S = 0.8
"""For one answer as a whole: what comes later would belong to the next second."""
ANSWER_BYTES_MAX = 8_000_000
"""A broker with ten thousand partitions tells some MB."""
CHUNK_BYTES = 256 * 1024


class Endpoint:
    """Where metrics are read. To be used by one thread."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._is_tls = parts.hostname or "", parts.port, parts.scheme == "https"
        self._path, self._query = parts.path, f"?{parts.query}" if parts.query else ""
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str = "") -> bytes:
        """The answer's body: of the address itself, or of a path below it. Raises NotRead."""
        until_s = time.monotonic() + TIMEOUT_S
        try:
            whole = self._path.rstrip("/") + path if path else (self._path or "/") + self._query
            return self._ask(whole, until_s)
        except (OSError, http.client.HTTPException) as error:
            self._forget()
            said = str(error) or type(error).__name__
            raise NotRead("no answer in time" if isinstance(error, TimeoutError) else said) from None
        except NotRead:
            self._forget()
            raise

    def _ask(self, path: str, until_s: float) -> bytes:
        connection = self._connection or self._connected()
        try:
            connection.request("GET", path, headers={"Accept": "*/*"})
            response = connection.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected):
            if self._connection is None:
                raise
            # A connection that was kept may have been closed meanwhile.
            self._forget()
            connection = self._connected()
            connection.request("GET", path, headers={"Accept": "*/*"})
            response = connection.getresponse()
        self._connection = None if response.will_close else connection
        if response.status != http.client.OK:
            raise NotRead(f"HTTP status {response.status}")
        body = b""
        while chunk := response.read1(CHUNK_BYTES):
            body += chunk
            if len(body) > ANSWER_BYTES_MAX:
                raise TooMuch(f"an answer of more than {ANSWER_BYTES_MAX:,} bytes")
            if time.monotonic() > until_s:
                raise TimeoutError
        # Whoever reads piece by piece has to say that the answer is over, or the next question finds the connection in use.
        response.close()
        if self._connection is None:
            connection.close()
        return body

    def _connected(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=TIMEOUT_S)

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
