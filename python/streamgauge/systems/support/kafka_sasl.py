"""SASL for the lab's own requests to a Kafka that asks who it is: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677).

The messages are those of KIP-43 and KIP-152: SaslHandshake names the mechanism, SaslAuthenticate carries its tokens.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable

from streamgauge.model.security import Auth

HASHES = {"scram-sha-256": "sha256", "scram-sha-512": "sha512"}
ITERATIONS_MAX = 1_000_000
"""A server that asks for more wants to keep us busy; Kafka's own default is 4,096."""


class SaslError(Exception):
    """The server does not take the credentials, or does not prove that it knows them. Never with a secret in it."""


Exchange = Callable[[bytes], bytes]
"""Sends a token of ours; the server's answer. Raises SaslError for a refusal."""


def authenticate(auth: Auth, exchange: Exchange) -> None:
    """Proves who we are, and with SCRAM lets the server prove that it knows us. Raises SaslError."""
    username, password = auth.username or "", auth.secret or ""
    if auth.mechanism == "plain":
        exchange(b"\0".join((b"", username.encode(), password.encode())))
        return
    scram = Scram(HASHES[auth.mechanism], username, password)
    scram.verify(exchange(scram.answer(exchange(scram.first()))))


class Scram:
    """One exchange of the client's side, without channel binding."""

    def __init__(self, hash_name: str, username: str, password: str, nonce: str | None = None) -> None:
        """`nonce`: for tests; else a random one."""
        self._hash = hash_name
        self._password = password.encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """client-first-message."""
        return f"n,,{self._bare}".encode()

    def answer(self, server_first: bytes) -> bytes:
        """client-final-message. Raises SaslError for an answer that is none."""
        text = server_first.decode("utf-8", "replace")
        fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        try:
            nonce, iterations = fields["r"], int(fields["i"])
            salt = base64.b64decode(fields["s"], validate=True)
        except (KeyError, ValueError, binascii.Error):
            raise SaslError("the server's SCRAM message cannot be read") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError("the server answers another SCRAM exchange than ours")
        if not 1 <= iterations <= ITERATIONS_MAX:
            raise SaslError(
                f"the server asks for {iterations} iterations of SCRAM; {ITERATIONS_MAX} at most are made"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        without_proof = f"c=biws,r={nonce}"
        signed = ",".join((self._bare, text, without_proof)).encode()
        client_key = self._hmac(salted, b"Client Key")
        client_signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(left ^ right for left, right in zip(client_key, client_signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Raises SaslError unless the server knows the credentials too."""
        told = server_final.decode("utf-8", "replace").partition("v=")[2].partition(",")[0]
        expected = base64.b64encode(self._signature).decode()
        if not self._signature or not hmac.compare_digest(told, expected):
            raise SaslError("the server does not prove that it knows the credentials: it may be another one")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()
