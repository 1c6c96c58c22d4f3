"""The systems that are installed, found by their entry points: ours, and those of other distributions.

A distribution declares its systems in the group `streamgauge.systems`, as ours does (pyproject.toml):

    [project.entry-points."streamgauge.systems"]
    kafka = "streamgauge.systems.kafka.system:Kafka"

Names are known without importing a system's module; it is imported when the system is asked for. What cannot be had of one
distribution is told with its name, and leaves the others alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

from streamgauge.model.feature import Feature, StartTime
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems import names
from streamgauge.systems.base import Progress, RunningSystem, System
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError
from streamgauge.vocabulary.levels import Level


class UnusableSystem(System):
    """In the place of a system that its distribution does not provide as it should: says so, and can do nothing else."""

    protocol: ClassVar[str] = "none"
    default_version: ClassVar[str] = "unknown"
    page: ClassVar[str] = "docs/adding-a-system.md"
    obtained: ClassVar[str] = "not at all"
    option_keys: ClassVar[frozenset[str]] = frozenset()
    start_time: ClassVar[StartTime] = StartTime(0.0, 0.0)
    level_of_topics: ClassVar[bool] = False
    levels: ClassVar[frozenset[Level]] = frozenset()
    levels_of_nodes: ClassVar[frozenset[Level]] = frozenset()

    def __init__(self, name: str, reason: str) -> None:
        # The contract has them as the class's; here each is one of its own.
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "title", name)
        object.__setattr__(self, "cannot", dict.fromkeys(Feature, reason))
        self.reason = reason

    def check(self, request: SystemRequest) -> None:  # noqa: ARG002
        """Refuses whatever is asked."""
        raise SystemInputError(self.reason)

    def installed(self, version: str | None = None) -> str | None:  # noqa: ARG002
        """See System."""
        return None

    def missing(self) -> str | None:
        """What its distribution does wrong."""
        return self.reason

    def install(self, version: str | None, progress: Progress) -> None:  # noqa: ARG002
        """See System."""
        raise SystemFailure(self.reason)

    def start(self, request: SystemRequest, directory: Path, progress: Progress) -> RunningSystem:  # noqa: ARG002
        """See System."""
        raise SystemFailure(self.reason)

    def attach(self, request: SystemRequest) -> RunningSystem:  # noqa: ARG002
        """See System."""
        raise SystemFailure(self.reason)


class Systems(Mapping[str, System]):
    """Name -> system, in the order of their names. A system's module is imported when it is asked for."""

    def __init__(self, found: Sequence[EntryPoint]) -> None:
        self._found = {
            name: [one for one in found if one.name == name] for name in sorted({one.name for one in found})
        }
        self._loaded: dict[str, System] = {}

    def __getitem__(self, name: str) -> System:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self._found[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


@cache
def systems() -> Systems:
    """The systems that are installed, looked up once in the life of a program."""
    return Systems(names.declared())


def _load(name: str, found: Sequence[EntryPoint]) -> System:
    if len(found) > 1:
        declared = " and ".join(sorted(f"{_distribution(one)} ({one.value})" for one in found))
        return UnusableSystem(
            name,
            f"two systems are called '{name}', of {declared}: which one is meant cannot be told; uninstall one of them, or have "
            "its author choose another name",
        )
    (entry,) = found
    refused = f"system '{name}' of {_distribution(entry)} cannot be used: {{}}; uninstall it, or have its author mend it"
    try:
        kind = entry.load()
        if not (inspect.isclass(kind) and issubclass(kind, System)):
            return UnusableSystem(name, refused.format(f"{entry.value} is no class of a System"))
        lacking = [key for key in System.__annotations__ if not hasattr(kind, key)] + sorted(
            kind.__abstractmethods__
        )
        if lacking:
            return UnusableSystem(name, refused.format(f"{entry.value} does not say {', '.join(lacking)}"))
        if kind.name != name:
            return UnusableSystem(name, refused.format(f"{entry.value} calls itself '{kind.name}'"))
        return kind()
    except Exception as error:  # Whatever somebody else's module does when it is imported.
        return UnusableSystem(name, refused.format(f"{entry.value}: {type(error).__name__}: {error}"))


def _distribution(entry: EntryPoint) -> str:
    """The distribution's name and version."""
    return "an unknown distribution" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
