"""TLS and authentication between clients and a system, as the worker API has them (docs/worker-api.md, docs/security.md).

A `Security` holds secrets: passwords, tokens, seeds, private keys. They go into requests to workers (`request`) and into
nothing else. What is shown or stored comes from `told`, which has none, and `repr` leaves them out.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Mechanism = Literal["plain", "scram-sha-256", "scram-sha-512", "external", "token", "nkey"]
MECHANISMS: tuple[Mechanism, ...] = ("plain", "scram-sha-256", "scram-sha-512", "external", "token", "nkey")
SECRETS: Mapping[Mechanism, str] = {
    "plain": "password",
    "scram-sha-256": "password",
    "scram-sha-512": "password",
    "token": "token",
    "nkey": "seed",
}
"""Mechanism -> what the worker API calls its secret; `external` has none but the key of its certificate."""


@dataclass(frozen=True)
class Tls:
    """How the system's certificate is verified, and which certificate clients show. All texts are PEM."""

    ca_pem: str | None = field(default=None, repr=False)
    """Authorities that are trusted; None only with `verify` false."""
    certificate_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    server_name: str | None = None
    """What the certificate must be for; None: the host of the address."""
    verify: bool = True
    certificate_file: Path | None = None
    key_file: Path | None = None
    """Where the client's certificate and key were read: Python's TLS reads them from files alone."""

    def context(self) -> ssl.SSLContext:
        """For the lab's own questions. Raises ssl.SSLError or OSError for what cannot be read."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.ca_pem is not None:
            context.load_verify_locations(cadata=self.ca_pem)
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file)
        return context


@dataclass(frozen=True)
class Auth:
    """Who the client is, and how it proves it."""

    mechanism: Mechanism
    username: str | None = None
    secret: str | None = field(default=None, repr=False)
    """Password, token or seed (SECRETS)."""


@dataclass(frozen=True)
class Security:
    """What `security` of a worker's `system` object says."""

    tls: Tls | None = None
    auth: Auth | None = None

    def request(self) -> dict[str, Any]:
        """The member `security` of the worker API. Holds the secrets."""
        found: dict[str, Any] = {}
        if self.tls is not None:
            tls = self.tls
            texts = {
                "ca_pem": tls.ca_pem,
                "certificate_pem": tls.certificate_pem,
                "key_pem": tls.key_pem,
                "server_name": tls.server_name,
            }
            found["tls"] = {key: text for key, text in texts.items() if text is not None}
            found["tls"]["verify"] = tls.verify
        if self.auth is not None:
            auth: dict[str, Any] = {"mechanism": self.auth.mechanism}
            if self.auth.username is not None:
                auth["username"] = self.auth.username
            if self.auth.secret is not None:
                auth[SECRETS[self.auth.mechanism]] = self.auth.secret
            found["auth"] = auth
        return found

    def told(self) -> dict[str, Any]:
        """What may be shown and stored: no secret, no key."""
        found: dict[str, Any] = {"tls": None, "authentication": None}
        if self.tls is not None:
            found["tls"] = {
                "verify": self.tls.verify,
                "server_name": self.tls.server_name,
                "client_certificate": self.tls.certificate_pem is not None,
            }
        if self.auth is not None:
            found["authentication"] = {"mechanism": self.auth.mechanism, "username": self.auth.username}
        return found

    def in_plain_sight(self) -> bool:
        """Whether a password or token is sent as it is, over connections that anybody on the way can read."""
        return self.tls is None and self.auth is not None and self.auth.mechanism in ("plain", "token")


def secured(connection: dict[str, Any], security: Security | None) -> dict[str, Any]:
    """The `system` object of the worker API with its member `security`, if there is any."""
    return connection if security is None else {**connection, "security": security.request()}


def told(security: Security | None) -> dict[str, Any] | None:
    """For a `configuration`: how clients reach the system, without secrets; None where nothing was said."""
    return None if security is None else security.told()
