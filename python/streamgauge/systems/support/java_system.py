"""What systems have in common that Maven fetches and Java runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from streamgauge.systems.base import Progress, System
from streamgauge.systems.support import maven, released
from streamgauge.systems.support.cache import Cache, Installation
from streamgauge.systems.support.java import find_java
from streamgauge.vocabulary.errors import SystemFailure


class JavaSystem(System):
    """A system of the cache, which needs a JDK to run and Maven to be fetched."""

    def __init__(self, cache: Cache | None = None) -> None:
        self._cache = cache

    @property
    def cache(self) -> Cache:
        """Looked up at each use: STREAMGAUGE_CACHE may change in a long-lived process."""
        return self._cache if self._cache is not None else Cache()

    def installed(self, version: str | None = None) -> str | None:
        found = self.cache.find(self.name, version or self.default_version)
        return None if found is None else str(found.path)

    def obtain(
        self, version: str, title: str, fetch: Callable[[Path], Mapping[str, Any]], progress: Progress
    ) -> Installation:
        """The installation, verified against the checksums that streamgauge is released with, where it has them. Raises
        SystemFailure.
        """
        expected = released.files(self.name, version)

        def fetch_and_say(into: Path) -> Mapping[str, Any]:
            source = fetch(into)
            server = "what Maven's repository says of its own files"
            return {**source, "checked_against": released.said(title, expected is not None, server, progress)}

        return self.cache.obtain(self.name, version, fetch_and_say, progress, expected)

    def missing(self) -> str | None:
        try:
            find_java()
            if self.installed() is None:
                maven.find_maven()
        except SystemFailure as failure:
            return str(failure)
        return None
