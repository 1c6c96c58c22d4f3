"""A few requests of the Kafka protocol, enough to ask a broker whether it serves, who else is there and who leads a topic.

The lab never touches a message; workers speak the protocol for real. But readiness must be proven over the
socket before a worker exists, and an attached cluster must be looked at before anything is planned. Formats:
the Kafka protocol guide (https://kafka.apache.org/protocol), KIP-35 (ApiVersions), KIP-482 (tagged fields),
KIP-584 (features), KIP-152 (SASL).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from streamgauge.model.security import Auth, Security
from streamgauge.systems.base import options
from streamgauge.systems.support import kafka_sasl as sasl

TIMEOUT_S = 3.0
RESPONSE_BYTES_MAX = 4 * 1024 * 1024
"""Answers here are a few kB; anything that claims to be larger is not Kafka."""

API_METADATA = 3
API_SASL_HANDSHAKE = 17
API_VERSIONS = 18
API_SASL_AUTHENTICATE = 36
METADATA_VERSION = 4
"""Since Kafka 1.0; the first one that can be told not to create topics."""
MECHANISMS = frozenset({"plain", *sasl.HASHES})
"""How the lab and its workers can say who they are."""
CLIENT = "streamgauge"
_CORRELATION = 7

RELEASES = (
    # Highest `metadata.version` level that the releases of a line support -> the line (KIP-778; Kafka's enum
    # MetadataVersion).
    (7, "3.3"),
    (8, "3.4"),
    (11, "3.5"),
    (14, "3.6"),
    (19, "3.7"),
    (20, "3.8"),
    (21, "3.9"),
    (25, "4.0"),
    (27, "4.1"),
    (29, "4.2"),
    (30, "4.3"),
)


def parse_address(address: str, where: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises SystemInputError."""
    return options.parse_address(address, where, "a Kafka broker; expected host:port such as 127.0.0.1:9092")


class WireError(Exception):
    """The other side cannot be reached or does not answer as Kafka does."""


@dataclass(frozen=True)
class Broker:
    """A broker as the cluster's metadata lists it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True)
class ClusterMetadata:
    """Who belongs to a cluster, as one of its brokers sees it."""

    cluster_id: str | None
    brokers: tuple[Broker, ...]


def api_versions(host: str, port: int, security: Security | None = None) -> int:
    """Asks for the API versions (v0, which every Kafka since 0.10 answers); the number of APIs. Raises
    WireError.
    """
    body = _exchange(host, port, struct.pack(">hhih", API_VERSIONS, 0, _CORRELATION, -1), security)
    reader = _Reader(body)
    error = reader.number(">h")
    if error != 0:
        raise WireError(f"{host}:{port} answers ApiVersions with error {error}")
    return reader.number(">i")


def release_line(host: str, port: int, security: Security | None = None) -> str | None:
    """The release line ("4.3") told from the highest metadata.version that the broker supports; None when it
    does not say.

    A broker never tells its version. What it supports is a property of its code, unlike what the cluster has
    finalized.
    """
    header = struct.pack(">hhi", API_VERSIONS, 3, _CORRELATION) + _string(CLIENT) + b"\0"
    request = header + _compact_string(CLIENT) + _compact_string("1") + b"\0"
    reader = _Reader(_exchange(host, port, request, security))
    if reader.number(">h") != 0:
        return None  # Older than ApiVersions v3: KIP-511, Kafka 2.4.
    for _ in range(reader.unsigned_varint() - 1):
        reader.take(6)
        reader.skip_tags()
    reader.number(">i")
    for tag, value in reader.tags():
        if tag == 0:
            return _line_of(_feature_level_max(value, "metadata.version"))
    return None


def metadata(host: str, port: int, security: Security | None = None) -> ClusterMetadata:
    """Asks for the cluster's brokers and no topics. Raises WireError."""
    header = struct.pack(">hhi", API_METADATA, METADATA_VERSION, _CORRELATION) + _string(CLIENT)
    reader = _Reader(_exchange(host, port, header + struct.pack(">ib", 0, 0), security))
    reader.number(">i")  # throttle time
    brokers = []
    for _ in range(reader.number(">i")):
        broker_id = reader.number(">i")
        name = reader.string() or ""
        broker_port = reader.number(">i")
        reader.string()  # rack
        brokers.append(Broker(broker_id, name, broker_port))
    return ClusterMetadata(reader.string(), tuple(sorted(brokers, key=lambda broker: broker.id)))


def leader(host: str, port: int, topic: str, security: Security | None = None) -> int | None:
    """The node that leads the first partition of a topic, as one broker sees it; None when there is none at the moment.
    Raises WireError.
    """
    header = struct.pack(">hhi", API_METADATA, METADATA_VERSION, _CORRELATION) + _string(CLIENT)
    request = header + struct.pack(">i", 1) + _string(topic) + b"\0"
    reader = _Reader(_exchange(host, port, request, security))
    reader.number(">i")  # throttle time
    for _ in range(reader.number(">i")):
        reader.number(">i")
        reader.string()
        reader.number(">i")
        reader.string()
    reader.string()  # cluster id
    reader.number(">i")  # controller
    for _ in range(reader.number(">i")):
        reader.number(">h")
        reader.string()
        reader.take(1)  # internal or not
        for _ in range(reader.number(">i")):
            reader.number(">h")
            partition, led_by = reader.number(">i"), reader.number(">i")
            for _ in range(2):  # replicas, and those in sync
                reader.take(4 * max(0, reader.number(">i")))
            if partition == 0:
                return led_by if led_by >= 0 else None
    return None


def _line_of(level: int | None) -> str | None:
    if level is None:
        return None
    for highest, line in RELEASES:
        if level <= highest:
            return line
    return f"newer than {RELEASES[-1][1]}"


def _feature_level_max(encoded: bytes, wanted: str) -> int | None:
    """Looks into the tagged field SupportedFeatures of an ApiVersions response."""
    reader = _Reader(encoded)
    for _ in range(reader.unsigned_varint() - 1):
        name = reader.take(reader.unsigned_varint() - 1).decode(errors="replace")
        reader.number(">h")
        highest = reader.number(">h")
        reader.skip_tags()
        if name == wanted:
            return highest
    return None


def _exchange(host: str, port: int, request: bytes, security: Security | None) -> bytes:
    """One request, one response; returns what follows the correlation id. Raises WireError."""
    at = f"{host}:{port}"
    try:
        with _connected(host, port, security) as connection:
            if security is not None and security.auth is not None:
                _authenticate(connection, security.auth, at)
            return _asked(connection, request, at)
    except TimeoutError as error:
        raise WireError(f"{at} does not answer within {TIMEOUT_S:g} s") from error
    except ssl.SSLCertVerificationError as error:
        name = _name(host, security)
        raise WireError(
            f"{at} shows a certificate that is not accepted ({error.verify_message}); expected one for {name}, signed by an "
            "authority of ca_file"
        ) from error
    except ssl.SSLError as error:
        raise WireError(f"{at} does not speak TLS with us ({error.reason or error})") from error
    except OSError as error:
        raise WireError(f"{at} cannot be reached: {error.strerror or error}") from error


@contextlib.contextmanager
def _connected(host: str, port: int, security: Security | None) -> Iterator[socket.socket]:
    with socket.create_connection((host, port), timeout=TIMEOUT_S) as plain:
        plain.settimeout(TIMEOUT_S)
        if security is None or security.tls is None:
            yield plain
            return
        with security.tls.context().wrap_socket(plain, server_hostname=_name(host, security)) as encrypted:
            yield encrypted


def _name(host: str, security: Security | None) -> str:
    """What the certificate must be for."""
    tls = security.tls if security is not None else None
    return tls.server_name if tls is not None and tls.server_name else host


def _authenticate(connection: socket.socket, auth: Auth, at: str) -> None:
    """Raises WireError with the broker's words."""
    name = auth.mechanism.upper()
    header = struct.pack(">hhi", API_SASL_HANDSHAKE, 1, _CORRELATION) + _string(CLIENT)
    reader = _Reader(_asked(connection, header + _string(name), at))
    if reader.number(">h") != 0:
        offered = ", ".join(reader.string() or "" for _ in range(max(0, reader.number(">i"))))
        raise WireError(f"{at} does not know the mechanism {auth.mechanism}; it offers {offered or 'none'}")

    def exchange(token: bytes) -> bytes:
        header = struct.pack(">hhi", API_SASL_AUTHENTICATE, 0, _CORRELATION) + _string(CLIENT)
        answer = _Reader(_asked(connection, header + struct.pack(">i", len(token)) + token, at))
        error, said = answer.number(">h"), answer.string()
        if error != 0:
            raise sasl.SaslError(said or f"error {error}")
        return answer.take(max(0, answer.number(">i")))

    try:
        sasl.authenticate(auth, exchange)
    except sasl.SaslError as error:
        raise WireError(f"{at} does not let '{auth.username}' in: {error}") from None


def _asked(connection: socket.socket, request: bytes, at: str) -> bytes:
    """One request on a connection that is open; returns what follows the correlation id. Raises WireError, OSError."""
    connection.sendall(struct.pack(">i", len(request)) + request)
    encrypted = "over TLS" if isinstance(connection, ssl.SSLSocket) else "in plain text"
    size = struct.unpack(">i", _receive(connection, 4, encrypted))[0]
    if not 4 <= size <= RESPONSE_BYTES_MAX:
        raise WireError(f"{at} does not speak the Kafka protocol {encrypted}")
    response = _receive(connection, size, encrypted)
    if struct.unpack(">i", response[:4])[0] != _CORRELATION:
        raise WireError(f"{at} does not speak the Kafka protocol {encrypted}")
    return response[4:]


def _receive(connection: socket.socket, size: int, encrypted: str) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise WireError(
                f"the connection was closed without an answer; is this a Kafka listener {encrypted}, that asks for these "
                "credentials?"
            )
        parts += part
    return bytes(parts)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _compact_string(text: str) -> bytes:
    encoded = text.encode()
    assert len(encoded) < 127, "the length must fit one byte"
    return bytes([len(encoded) + 1]) + encoded


class _Reader:
    """Reads the protocol's primitive types; WireError where the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise WireError("the answer ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, layout: str) -> int:
        return int(struct.unpack(layout, self.take(struct.calcsize(layout)))[0])

    def string(self) -> str | None:
        size = self.number(">h")
        return None if size < 0 else self.take(size).decode(errors="replace")

    def unsigned_varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise WireError("a number in the answer is too long")

    def tags(self) -> list[tuple[int, bytes]]:
        return [
            (self.unsigned_varint(), self.take(self.unsigned_varint())) for _ in range(self.unsigned_varint())
        ]

    def skip_tags(self) -> None:
        self.tags()
