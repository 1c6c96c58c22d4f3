"""Who may read a page that the lab serves.

On loopback whoever can connect, as long as no web page of somebody else makes the browser do it: the Host header must name loopback (DNS
rebinding), and a request that another origin caused is refused. Beyond loopback only who shows the token, as `Authorization: Bearer TOKEN`, or as the
password of HTTP's basic authentication, which is what a browser asks for. Nothing can be changed through such a page: there is GET and no more.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from streamgauge.fleet.hosts import is_loopback
from streamgauge.fleet.trust import NotTrusted, read_token
from streamgauge.vocabulary.errors import InputError

LOOPBACK = "127.0.0.1"
TOKEN_CHARACTERS_MIN = 16
PORT_MAX = 65535

OWN_PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""A page of ours whose scripts and styles are files of the same server."""
REPORT = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox allow-modals"
)
"""A report, which is one file: its own policy (a meta element) allows its scripts by hash, and where a report of somebody else has no such policy, its
scripts run in an origin of their own, from which nothing of this server can be read."""
NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""Anything that is no page."""


class Headers(Protocol):
    """Of a request; names are found in any case."""

    def get(self, name: str, /) -> str | None:
        """The header, or None."""


@dataclass(frozen=True)
class Access:
    """Where a page is served, and to whom."""

    host: str
    """An IP address, or `localhost`."""
    port: int
    """0: any that is free."""
    token: str | None = field(default=None, repr=False)

    @property
    def family_is_6(self) -> bool:
        """Whether the address is one of IPv6."""
        return ":" in self.host

    def refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """Status and sentence for a request that is not answered; None for one that is."""
        if self.token is not None and not self._shown(headers.get("Authorization") or ""):
            return (
                401,
                "a token is needed: as the password, with any user name, or as Authorization: Bearer TOKEN",
            )
        host = headers.get("Host") or ""
        if self.token is None and not is_loopback(_name(host)):
            return 403, "Host must name loopback: expected localhost, 127.0.0.1 or [::1]"
        if _is_foreign(host, headers):
            return 403, "asked by a page of another origin"
        if method != "GET":
            return 405, "there is GET and nothing else"
        return None

    def _shown(self, authorization: str) -> bool:
        scheme, _, shown = authorization.partition(" ")
        if scheme.lower() == "basic":
            try:
                shown = base64.b64decode(shown, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        elif scheme.lower() != "bearer":
            return False
        assert self.token is not None
        return hmac.compare_digest(shown.strip().encode(), self.token.encode())


def parse_access(option: str, text: str, token_file: Path | None) -> Access:
    """What an option says: `PORT` (on 127.0.0.1) or `HOST:PORT`, port 0 for any that is free, and a file with the token. Raises InputError."""
    host, separator, port = text.rpartition(":")
    expected = "expected PORT or HOST:PORT, such as 7480, 127.0.0.1:7480 or [::1]:7480"
    host = (host.removeprefix("[").removesuffix("]") if separator else "") or LOOPBACK
    if not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise InputError(f"{option} {text}: {expected}")
    if host == "localhost":
        host = LOOPBACK
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise InputError(f"{option} {text}: '{host}' is no IP address; {expected}") from None
    if token_file is None:
        if not is_loopback(host):
            raise InputError(
                f"{option} {text}: whoever reaches that address could read it; expected a token (--token-file FILE), or an address of loopback"
            )
        return Access(host, int(port))
    return Access(host, int(port), _token(token_file))


def _token(file: Path) -> str:
    try:
        token = read_token(file)
    except NotTrusted as error:
        raise InputError(f"--token-file {error}") from None
    if len(token) < TOKEN_CHARACTERS_MIN:
        raise InputError(
            f"--token-file {file}: a token of {len(token)} characters can be guessed; expected {TOKEN_CHARACTERS_MIN} or more"
        )
    return token


def security_headers(policy: str) -> dict[str, str]:
    """What every answer carries: nothing is kept, framed, sniffed or read by others."""
    return {
        "Cache-Control": "no-store",
        "Content-Security-Policy": policy,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }


def _name(host: str) -> str:
    """The host of a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _is_foreign(host: str, headers: Headers) -> bool:
    """Whether another page made the browser ask. Going to a page by a link is nobody's reading of it."""
    origin = headers.get("Origin")
    if origin is not None and origin.lower() != f"http://{host.lower()}":
        return True
    site = headers.get("Sec-Fetch-Site")
    return site not in (None, "none", "same-origin") and headers.get("Sec-Fetch-Mode") != "navigate"
