"""What systems have in common that Maven fetches and Java runs."""

from __future__ import annotations

import abc
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import Progress, RunningSystem, System
from streamgauge.systems.support import class_archive, maven, released
from streamgauge.systems.support.cache import Cache, Installation
from streamgauge.systems.support.class_archive import ClassArchives
from streamgauge.systems.support.cluster import ClusterLaunch
from streamgauge.systems.support.java import Java, find_java
from streamgauge.vocabulary.errors import SystemFailure


@dataclass(frozen=True, kw_only=True)
class JavaLaunch(ClusterLaunch):
    """What is decided of every cluster of JVMs before its first process runs."""

    java: Java
    installation: Installation
    classes: ClassArchives = class_archive.NONE


Launch = TypeVar("Launch", bound=JavaLaunch)


class JavaSystem(System, Generic[Launch]):
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

    @abc.abstractmethod
    def installation(self, version: str, java: Java, progress: Progress) -> Installation:
        """The distribution in the cache, fetched where it is not there. Raises SystemInputError or SystemFailure."""

    @abc.abstractmethod
    def launch(self, request: SystemRequest, directory: Path, progress: Progress) -> Launch:
        """What is decided for a request that has been checked, apart from the archives of classes."""

    @abc.abstractmethod
    def start_cluster(self, launch: Launch, progress: Progress) -> RunningSystem:
        """Starts what was decided, and waits until it serves. Raises SystemFailure; nothing is left running then."""

    def install(self, version: str | None, progress: Progress) -> None:
        java = find_java()
        self._classes(self.installation(version or self.default_version, java, progress), java, progress)

    def start(self, request: SystemRequest, directory: Path, progress: Progress) -> RunningSystem:
        self.check(request)
        launch = self.launch(request, directory, progress)
        classes = self._classes(launch.installation, launch.java, progress)
        return self.start_cluster(replace(launch, classes=classes), progress)

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

    def _classes(self, installation: Installation, java: Java, progress: Progress) -> ClassArchives:
        """The archives of classes of an installation, made by a start where they are not there. Without them everything works,
        and starts take longer.
        """
        if not class_archive.can_be_made(java):
            return class_archive.NONE
        version = installation.version
        name, of_this = f"{self.name}-classes", f"{version}-{class_archive.key(installation, java)}"

        def make(into: Path) -> Mapping[str, Any]:
            progress(f"archiving the classes of {self.title} {version}, once: later starts take less")
            with tempfile.TemporaryDirectory(prefix="start-", dir=into.parent) as directory:
                request = SystemRequest(version=version, has_metrics=False)
                launch = self.launch(request, Path(directory) / "system", progress)
                # An agent, such as the one for metrics, would have to be there whenever the archive is used.
                classes = ClassArchives(into, are_written=True)
                self.start_cluster(replace(launch, classes=classes), _say_nothing).stop()
            for other in self.cache.versions(name):
                # Of an installation that has been repaired since, or of another JVM.
                if other.startswith(f"{version}-"):
                    self.cache.remove(name, other)
            return {"of": f"{self.name} {version}", "java": java.version}

        try:
            found = self.cache.obtain(name, of_this, make, progress)
        except SystemFailure as failure:
            progress(
                f"no archive of the classes of {self.title} {version}, so that starts take longer: {failure}"
            )
            return class_archive.NONE
        return ClassArchives(found.path)

    def missing(self) -> str | None:
        try:
            find_java()
            if self.installed() is None:
                maven.find_maven()
        except SystemFailure as failure:
            return str(failure)
        return None


def _say_nothing(_text: str) -> None:
    """A start that is not one of the user's tells nothing."""
