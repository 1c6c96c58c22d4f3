"""What a run says of the place where it was measured, taken out before it is passed on (docs/publishing.md).

Paths keep their last name. Addresses become `host-1`, `host-2`, ... by the order in which they are met, the same name for the same address in every file of
a run, so that what was told apart stays apart. Credentials are written into no file of a run; what looks like some all the same is replaced.
"""

from __future__ import annotations

import getpass
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any

PATH = "[path]"
SECRET = "[secret]"
USER = "[user]"
SHORT_CHARACTERS = 200

_PATHS = re.compile(r"(?<![\w.~/\]])(?:~/|/(?=[\w.@+~-]))(?:[\w.@+~-]+/)*([\w.@+~-]*)/?")
_V4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_V6 = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])")
_WITH_PORT = re.compile(r"(?<![\w.@/:-])([A-Za-z][\w-]*(?:\.[\w-]+)*)(?=:\d{3,5}(?!\d|:))")
_OF_URL = re.compile(r"(?<=://)(?:[^\s/@]+@)?([\w.-]+)")
_KEYS = re.compile(
    r"(?:password|passphrase|secret|token|credentials|jaas\.config|private[._]key|access[._]key)$",
    re.IGNORECASE,
)
_SECRETS = re.compile(
    r"-----BEGIN [^-]+-----.*?(?:-----END [^-]+-----|$)|\beyJ[\w-]{8,}(?:\.[\w-]*)*"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)|(?<=password=)[^\s;,]+|(?<=--token[= ])\S+",
    re.DOTALL | re.IGNORECASE,
)
_NOT_HOSTS = {"localhost", "host", "http", "https", "file", "omb", "at", "port"}
"""What stands before a number and is no machine."""
_NUMBERED = re.compile(r"host-\d+")


class Redaction:
    """Takes out of texts what a run that is passed on does not tell."""

    def __init__(
        self, *, with_hosts: bool = False, machines: Iterable[str] = (), links: Iterable[str] = ()
    ) -> None:
        """`with_hosts`: names and addresses of machines stay. `machines`: names that stand for themselves, without a port or a scheme that would tell them.
        `links`: addresses of what was published, which are nobody's machines and stay."""
        self._with_hosts = with_hosts
        self._published = {found[1] for link in links for found in _OF_URL.finditer(link)}
        self._hosts: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        """What was taken out -> how often."""
        here = {socket.gethostname(), socket.gethostname().partition(".")[0]}
        self._here = _words((here | set(machines)) - {"localhost", ""})
        self._user = _words({_user()} - {"", "root"})
        self._untouched: set[str] = set()
        """Short texts, most of them names of figures, in which there was nothing."""

    def value(self, value: Any, key: str = "") -> Any:
        """A JSON value without them."""
        if isinstance(value, dict):
            return {self.text(name): self.value(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner, key) for inner in value]
        if not isinstance(value, str):
            return value
        if value and _KEYS.search(key) and value not in (SECRET, "off", "none", "None"):
            return self._count("secrets", SECRET)
        return self.text(value)

    def text(self, text: str) -> str:
        """A text without them."""
        if text in self._untouched:
            return text
        cleared = self._cleared(text)
        if cleared == text and len(text) <= SHORT_CHARACTERS:
            self._untouched.add(text)
        return cleared

    def _cleared(self, text: str) -> str:
        text = _SECRETS.sub(lambda _: self._count("secrets", SECRET), text)
        if not self._with_hosts:
            text = _OF_URL.sub(lambda found: found[0].replace(found[1], self._host(found[1])), text)
            for pattern in (_V4, _V6):
                text = pattern.sub(self._address, text)
            text = _WITH_PORT.sub(lambda found: self._host(found[1]), text)
            if self._here:
                text = self._here.sub(lambda found: self._host(found[0]), text)
        text = _PATHS.sub(self._path, text)
        return self._user.sub(lambda _: self._count("user names", USER), text) if self._user else text

    def _path(self, found: re.Match[str]) -> str:
        return self._count("paths", f"{PATH}/{found[1]}" if found[1] else PATH)

    def _address(self, found: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(found[0])
        except ValueError:
            return found[0]
        return found[0] if address.is_loopback or address.is_unspecified else self._host(found[0])

    def _host(self, name: str) -> str:
        if (
            name in self._published
            or name.lower() in _NOT_HOSTS
            or _NUMBERED.fullmatch(name)
            or _is_here(name)
        ):
            return name
        if name not in self._hosts:
            self._hosts[name] = f"host-{len(self._hosts) + 1}"
        return self._count("names of machines", self._hosts[name])

    def _count(self, what: str, instead: str) -> str:
        self.counts[what] = self.counts.get(what, 0) + 1
        return instead


def left(counts: Mapping[str, int]) -> list[str]:
    """What was taken out, a phrase each."""
    return [f"{what} ({count:,} in all)" for what, count in sorted(counts.items())]


def _is_here(name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _words(names: set[str]) -> re.Pattern[str] | None:
    if not names:
        return None
    return re.compile(r"(?<![\w.-])(?:" + "|".join(re.escape(name) for name in sorted(names)) + r")(?![\w-])")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
