"""Who may read a page that the lab serves.

On loopback whoever can connect, as long as no web page of somebody else makes the browser do it. What such a page cannot do is choose the name that it is
asked by: one of its own that it has led here (DNS rebinding) stands in the header Host. A request that another origin caused is refused. Beyond loopback
only who shows the token is answered, as `Authorization: Bearer TOKEN`, or as the password of HTTP's basic authentication, which is what a browser asks for.
Nothing can be changed through such a page: there is GET and no more.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamgauge.fleet.hosts import is_loopback
from streamgauge.fleet.trust import NotTrusted, read_token
from streamgauge.vocabulary.errors import InputError

LOOPBACK = "127.0.0.1"
TOKEN_CHARACTERS_MIN = 16
PORT_MAX = 65535
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:@/?#,\[\]\\]+))(?::[0-9]{1,5})?")
"""The header Host, in small letters: an address or a name, and a port."""

PORT_ALONE = "expected PORT or HOST:PORT, such as 7480, 127.0.0.1:7480 or [::1]:7480"

OWN_PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""A page of ours whose scripts and styles are files of the same server."""
REPORT = (
    "sandbox allow-scripts; default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; img-src data:; "
    "script-src 'unsafe-inline'; frame-ancestors 'none'"
)
"""A report, which is one file: its own policy (a meta element) allows its scripts by hash, and where a report of somebody else has no such policy, its
scripts run in an origin of their own, so that they see nothing else of this server, and no network."""
NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""Anything that is no page."""


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

    @property
    def is_local(self) -> bool:
        """Whether this machine alone is served."""
        return is_loopback(self.host)

    def refusal(self, method: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Status and sentence for a request that is not answered; None for one that is. `headers`: by their names in small letters; one that came twice
        with all its values."""
        if self.token is not None and not self._shown(headers.get("authorization", "")):
            return (
                401,
                "a token is needed: as the password, with any user name, or as Authorization: Bearer TOKEN",
            )
        host = headers.get("host", "").lower()
        if not self._is_ours(host):
            return (
                403,
                "the header Host names another machine: expected an address of this one, such as 127.0.0.1",
            )
        if _is_foreign(host, headers):
            return 403, "asked by a page of another origin"
        if method != "GET":
            return 405, "there is GET and nothing else"
        return None

    def _is_ours(self, host: str) -> bool:
        """An address in digits, or a name that nobody else can lead here."""
        found = HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1] or found[2]
        if is_loopback(name):
            return True
        return not self.is_local and (_is_address(name) or name == socket.gethostname().lower())

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


def parse_access(option: str, text: str, token_file: Path | None, *, expected: str = PORT_ALONE) -> Access:
    """What an option says: `HOST:PORT`, port 0 for any that is free, or with PORT_ALONE also `PORT` (on 127.0.0.1), and a file with the token. Raises
    InputError."""
    host, separator, port = text.rpartition(":")
    if expected != PORT_ALONE and not host:
        raise InputError(f"{option} {text}: {expected}")
    host = (host.removeprefix("[").removesuffix("]") if separator else "") or LOOPBACK
    if not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise InputError(f"{option} {text}: {expected}")
    if host == "localhost":
        host = LOOPBACK
    if not _is_address(host):
        raise InputError(f"{option} {text}: '{host}' is no IP address; {expected}")
    if token_file is None:
        if not is_loopback(host):
            raise InputError(
                f"{option} {text}: whoever reaches that address could read it: expected --token-file FILE as well (a secret in one line, chmod 600), "
                "or an address of loopback"
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


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_foreign(host: str, headers: Mapping[str, str]) -> bool:
    """Whether another page made the browser ask. Going to a page by a link is nobody's reading of it."""
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"http://{host}":
        return True
    site = headers.get("sec-fetch-site")
    return site not in (None, "none", "same-origin") and headers.get("sec-fetch-mode") != "navigate"
