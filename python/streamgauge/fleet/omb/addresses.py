"""Where OMB's workers listen: `omb:URL,URL`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from streamgauge.fleet import hosts
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.format import plural

OMB = "omb"
WORKERS_MAX = 64
EXPECTED = "expected omb:URL[,URL...] as in omb:http://10.0.0.5:8080,http://10.0.0.6:8080"


@dataclass(frozen=True)
class OmbWorkers:
    """Workers of a list, in its order: the first half of them produces, the others consume, and a single one does both."""

    urls: tuple[str, ...]

    def first(self, count: int) -> OmbWorkers:
        """The first `count` of them. Raises InputError when there are fewer."""
        if count > len(self.urls):
            raise InputError(f"--workers {count}: --fleet omb lists {plural(len(self.urls), 'worker')}")
        return replace(self, urls=self.urls[:count])

    @property
    def elsewhere(self) -> list[str]:
        """Those that are not on loopback."""
        return [url for url in self.urls if not is_loopback(url)]


def read_addresses(fleet: str) -> OmbWorkers | None:
    """The workers where `--fleet` lists OMB's; None where it means something else. Raises InputError."""
    word, colon, listed = fleet.partition(":")
    if word != OMB:
        return None
    urls = [url.strip().rstrip("/") for url in listed.split(",") if url.strip()]
    if not colon or not urls:
        raise InputError(f"--fleet {fleet}: names no worker; {EXPECTED}")
    for at, url in enumerate(urls):
        problem = _problem(url)
        if problem is None and url in urls[:at]:
            problem = "is listed twice"
        if problem is not None:
            raise InputError(f"--fleet omb: '{_shown(url)}' {problem}; {EXPECTED}")
    if len(urls) > WORKERS_MAX:
        raise InputError(f"--fleet omb: lists {len(urls)} workers, expected at most {WORKERS_MAX}")
    return OmbWorkers(tuple(urls))


def _problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        has_port = parts.port is not None
    except ValueError:
        return "is no URL"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "is no URL of a worker"
    if parts.username is not None or parts.password is not None:
        return "holds a user's name or password, which OMB's workers do not ask for"
    if parts.path or parts.query or parts.fragment:
        return "has something behind its port"
    return None if has_port else "has no port (OMB's default is 8080)"


def _shown(url: str) -> str:
    """Without what may be a password."""
    return url.rpartition("@")[2]


def is_loopback(url: str) -> bool:
    """Whether the worker is on this machine's loopback."""
    return hosts.is_loopback(urlsplit(url).hostname or "")
