"""What systems have in common that Maven fetches and Java runs."""

from __future__ import annotations

from streamgauge.systems import maven
from streamgauge.systems.base import System, SystemFailure
from streamgauge.systems.cache import Cache
from streamgauge.systems.java import find_java


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

    def missing(self) -> str | None:
        try:
            find_java()
            if self.installed() is None:
                maven.find_maven()
        except SystemFailure as failure:
            return str(failure)
        return None
