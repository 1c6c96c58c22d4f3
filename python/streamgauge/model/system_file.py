"""System files and `--system`: which system, which version, how many nodes, which durability level, which
settings.

A system file holds the common keys below; the rest (heap, JVM flags, `broker:` and `topic:` settings, ...)
belongs to the system's module, which names its keys in `System.option_keys` and checks their values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.model.document import Document, read_document
from streamgauge.model.errors import InputError, Problem, nearest
from streamgauge.systems.base import Level, System, SystemInputError, SystemRequest

COMMON_KEYS = frozenset({"name", "system", "version", "nodes", "durability", "connect"})
LEVELS: tuple[Level, ...] = ("L1", "L2", "L3", "L4")


@dataclass(frozen=True)
class SystemChoice:
    """One system that a run measures."""

    name: str
    """As it is called in this run: `kafka`, `kafka@3.9.1`, or the system file's `name`."""
    system: System
    request: SystemRequest

    @property
    def version(self) -> str:
        """The version asked for, or the module's default."""
        return self.request.version or self.system.default_version


@dataclass(frozen=True)
class SystemOverrides:
    """What the command line sets for all systems; None leaves the file's value or the default."""

    nodes: int | None = None
    level: str | None = None
    connect: tuple[str, ...] = ()


def choose_systems(text: str, overrides: SystemOverrides, known: Mapping[str, System]) -> list[SystemChoice]:
    """Reads `NAME[@VERSION][,NAME...]`, each item a name or a system file, and has every module check its
    request.

    Raises InputError with the problems of all items: nothing has been fetched or started by then.
    """
    problems: list[Problem] = []
    choices: list[SystemChoice] = []
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise InputError(
            "--system names no system: expected a name (kafka), a name and a version (kafka@4.3.1) or a "
            "system file"
        )
    if overrides.connect and len(items) > 1:
        raise InputError(
            f"--connect names one cluster, but --system names {len(items)} systems: expected one"
        )
    for item in items:
        try:
            choices.append(_choose(item, overrides, known))
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(problems)
    return _distinct(choices)


def _distinct(choices: Sequence[SystemChoice]) -> list[SystemChoice]:
    names = [choice.name for choice in choices]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"--system names '{name}' more than once: give each system file a name of its own, or use "
                "--repeat"
            )
    return list(choices)


def _choose(item: str, overrides: SystemOverrides, known: Mapping[str, System]) -> SystemChoice:
    path = Path(item)
    if (
        path.suffix.lower() in {".yaml", ".yml", ".json"}
        or len(path.parts) > 1
        or (path.is_file() and item not in known)
    ):
        return _from_file(path, overrides, known)
    name, _, version = item.partition("@")
    system = known.get(name)
    if system is None:
        hint = nearest(name, known) or f"; known systems: {', '.join(known)}"
        raise InputError(f"no system '{name}'{hint}")
    if "@" in item and not version:
        raise InputError(
            f"{item}: no version after '@'; expected for instance {name}@{system.default_version}"
        )
    level = _level(overrides.level, lambda message: Problem(f"--durability {message}"))
    request = SystemRequest(
        version=version or None,
        nodes=_nodes(overrides.nodes, 1),
        level=level,
        connect=_addresses(overrides.connect, lambda message: Problem(f"--connect {message}")),
    )
    return _checked(item, system, request)


def _from_file(path: Path, overrides: SystemOverrides, known: Mapping[str, System]) -> SystemChoice:
    document = read_document(path)
    values = document.values
    if "driverClass" in values:
        raise InputError(
            document.problem(
                "this is a driver file of the OpenMessaging Benchmark, which this version does not read; "
                "write a system file instead: "
                "'system: kafka' and 'connect: host:port' (from bootstrap.servers)",
                ("driverClass",),
            )
        )
    system = _system_of(document, known)
    _check_keys(document, system)
    problems: list[Problem] = []

    def text(key: str) -> str | None:
        value = values.get(key)
        if value is not None and not isinstance(value, str):
            quoted = f"; write it in quotes: '{value}'" if key == "version" else ""
            problems.append(document.problem(f"{key}: expected text, found {value}{quoted}", (key,)))
            return None
        return value

    nodes = values.get("nodes", 1)
    if not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 1:
        problems.append(
            document.problem(f"nodes: expected a whole number of 1 or more, found {nodes}", ("nodes",))
        )
        nodes = 1
    name, version, level_text = text("name"), text("version"), text("durability")
    connect: tuple[str, ...] = ()
    level: Level | None = None
    try:
        level = _level(overrides.level, lambda message: Problem(f"--durability {message}")) or _level(
            level_text, lambda message: document.problem(f"durability: {message}", ("durability",))
        )
        connect = _addresses(
            overrides.connect, lambda message: Problem(f"--connect {message}")
        ) or _addresses(
            _as_list(values.get("connect")),
            lambda message: document.problem(f"connect: {message}", ("connect",)),
        )
    except InputError as error:
        problems.extend(error.problems)
    if problems:
        raise InputError(problems)
    request = SystemRequest(
        version=version,
        nodes=_nodes(overrides.nodes, nodes),
        level=level,
        connect=connect,
        options={key: value for key, value in values.items() if key not in COMMON_KEYS},
        source=str(path),
    )
    return _checked(name or path.stem, system, request)


def _system_of(document: Document, known: Mapping[str, System]) -> System:
    wanted = document.values.get("system")
    if wanted is None:
        raise InputError(
            document.problem(
                f"key 'system' is missing: expected which system to run, one of {', '.join(sorted(known))}"
            )
        )
    system = known.get(str(wanted))
    if system is None:
        hint = nearest(str(wanted), known) or f"; known systems: {', '.join(known)}"
        raise InputError(document.problem(f"system: no system '{wanted}'{hint}", ("system",)))
    return system


def _check_keys(document: Document, system: System) -> None:
    allowed = COMMON_KEYS | system.option_keys
    problems = []
    for key in document.values:
        if key not in allowed:
            hint = nearest(key, allowed) or f"; known keys: {', '.join(sorted(allowed))}"
            problems.append(document.problem(f"unknown key '{key}'{hint}", (key,)))
    if problems:
        raise InputError(problems)


def _checked(name: str, system: System, request: SystemRequest) -> SystemChoice:
    """Asks the module whether the request can be met; its refusal becomes an input error."""
    try:
        json.dumps(dict(request.options), default=str)
        system.check(request)
    except SystemInputError as error:
        message = str(error)
        if request.source and not message.startswith(request.source):
            message = f"{request.source}: {message}"
        raise InputError(message) from None
    return SystemChoice(name=name, system=system, request=request)


def _nodes(override: int | None, value: int) -> int:
    if override is None:
        return value
    if override < 1:
        raise InputError(f"--nodes {override}: expected 1 or more")
    return override


def _level(text: str | None, at: Any) -> Level | None:
    if text is None:
        return None
    for level in LEVELS:
        if text.upper() == level:
            return level
    raise InputError(at(f"{text}: expected one of L1, L2, L3, L4 (see docs/method.md)"))


def _as_list(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, str):
        return value.split(",")
    return value if isinstance(value, list) else [value]


def _addresses(texts: Sequence[Any], at: Any) -> tuple[str, ...]:
    """Checks host:port addresses."""
    addresses = []
    for text in texts:
        host, separator, port = str(text).strip().rpartition(":")
        if not separator or not host or not port.isdigit() or not 1 <= int(port) <= 65535:
            raise InputError(at(f"{text}: expected host:port, such as 127.0.0.1:9092"))
        addresses.append(f"{host}:{port}")
    return tuple(addresses)
