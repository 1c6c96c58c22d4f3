"""Who is answered.

A browser carries requests of every page that it has open to this machine's loopback. What such a page cannot do is choose the name that it is asked by: a name
of its own that it has led here (DNS rebinding) stands in the header Host. Beyond loopback a token is asked for, which no such page has.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from streamgauge.fleet.hosts import is_loopback


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    why: str


@dataclass(frozen=True)
class Gate:
    """What a request must show."""

    loopback: bool
    """Only this machine is served."""
    token: str | None = None

    def refusal(self, headers: Mapping[str, str]) -> Refusal | None:
        """None for a request that is answered. `headers`: by their names in small letters; one that came twice with all its values."""
        if not self._is_ours(headers.get("host", "")):
            return Refusal(
                421,
                "the header Host names another machine; expected an address of this one, such as 127.0.0.1",
            )
        from_elsewhere = headers.get("sec-fetch-site") == "cross-site"
        if from_elsewhere and headers.get("sec-fetch-mode", "navigate") != "navigate":
            return Refusal(403, "another site's page asks; expected a reader who opens this one")
        if self.token is not None and not self._is_shown(headers.get("authorization", "")):
            return Refusal(401, "expected the token of --token-file as the password, under any name")
        return None

    def _is_ours(self, host: str) -> bool:
        """An address in digits, or a name that nobody else can lead here."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if is_loopback(name):
            return True
        if self.loopback:
            return False
        return _is_address(name) or name == socket.gethostname().lower()

    def _is_shown(self, authorization: str) -> bool:
        kind, _, text = authorization.partition(" ")
        shown = text.strip()
        if kind.lower() == "basic":
            try:
                shown = base64.b64decode(shown, validate=True).decode("utf-8").partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(shown.encode(), (self.token or "").encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
