"""Which certificate a worker must show, and the token that it must be shown.

A worker's certificate is pinned by its fingerprint (SHA-256 of the certificate, as `gauge worker
--make-identity` prints it): it is fetched once, compared, and from then on it is the only one that the TLS
library accepts. The token is sent only over connections that were verified in this way.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import socket
import ssl
import stat
from pathlib import Path

FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")
FETCH_TIMEOUT_S = 5.0
TOKEN_CHARACTERS_MAX = 4096


class NotTrusted(Exception):
    """The worker is not who it should be, or cannot be asked. One sentence."""


def pinned(host: str, port: int, fingerprint: str) -> ssl.SSLContext:
    """A context that accepts the certificate with this fingerprint and no other. Raises NotTrusted."""
    # Nothing is sent here but the handshake.
    curious = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    curious.check_hostname = False
    curious.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), FETCH_TIMEOUT_S) as plain,
            curious.wrap_socket(plain) as encrypted,
        ):
            certificate = encrypted.getpeercert(binary_form=True) or b""
    except (OSError, ValueError) as error:
        raise NotTrusted(f"no TLS connection to {host}:{port} ({error})") from None
    found = f"sha256:{hashlib.sha256(certificate).hexdigest()}"
    if not hmac.compare_digest(found, fingerprint):
        raise NotTrusted(
            f"{host}:{port} shows a certificate with the fingerprint {found}, expected {fingerprint}: another "
            "worker, a new identity, or somebody in between"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate itself is what is trusted, whatever name is in it and whoever signed it.
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    return context


def authority(file: Path) -> ssl.SSLContext:
    """A context that accepts certificates for the worker's name or address that this authority signed. Raises
    NotTrusted."""
    try:
        return ssl.create_default_context(cafile=str(file))
    except (OSError, ssl.SSLError) as error:
        raise NotTrusted(f"{file}: no certificates of an authority (PEM) could be read: {error}") from None


def read_token(file: Path) -> str:
    """The token in a file. Raises NotTrusted, never with the token in it."""
    with contextlib.suppress(UnicodeDecodeError):
        try:
            with file.open(encoding="ascii") as source:
                mode = stat.S_IMODE(os.fstat(source.fileno()).st_mode)
                token = source.read(TOKEN_CHARACTERS_MAX).strip()
        except OSError as error:
            raise NotTrusted(f"{file}: cannot be read: {error.strerror}") from None
        if mode & stat.S_IRWXO:
            raise NotTrusted(f"{file}: can be read by everybody (mode {mode:04o}): chmod 600 {file}")
        if token and not any(character.isspace() for character in token):
            return token
    raise NotTrusted(f"{file}: expected a token in one line, as gauge worker --make-identity makes it")
