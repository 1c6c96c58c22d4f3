"""System files and `--system`: which system, which version, how many nodes, which durability level, which
settings.

A system file holds the common keys below; the rest (heap, JVM flags, `broker:` and `topic:` settings, ...)
belongs to the system's module, which names its keys in `SystemKind.option_keys` and checks their values.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic

from streamgauge.model.document import Document, read_document
from streamgauge.model.omb_driver import advice
from streamgauge.model.security import Security
from streamgauge.model.security_file import KEY as SECURITY
from streamgauge.model.security_file import read_security
from streamgauge.model.system_kind import KindOf, KindType, SystemKind, check_security
from streamgauge.model.system_metrics import KEY as METRICS
from streamgauge.model.system_metrics import MetricsAsked, check_metrics, parse_metrics
from streamgauge.model.system_request import SystemRequest
from streamgauge.model.trust import NOBODY, Trust, untrusted
from streamgauge.vocabulary.errors import InputError, Problem, SystemInputError, else_known, no_system
from streamgauge.vocabulary.levels import LEVELS, Level

COMMON_KEYS = frozenset(
    {"name", "system", "version", "nodes", "durability", "connect", "tls", METRICS, "agents", SECURITY}
)
WITH_TLS = "+tls"
"""What --tls adds to the name of a system that it is on for."""


@dataclass(frozen=True)
class SystemChoice(Generic[KindOf]):
    """One system that a run measures."""

    name: str
    """As it is called in this run: `kafka`, `kafka@3.9.1`, or the system file's `name`."""
    system: KindOf
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
    metrics: tuple[str, ...] = ()
    """Where a cluster that already runs tells its own metrics."""
    agents: tuple[str, ...] = ()
    tls: tuple[bool, ...] | None = None
    """With it, without it, or first without and then with it."""
    trust: Trust = NOBODY
    """Files that may do what runs code."""


def parse_tls(text: str | None) -> tuple[bool, ...] | None:
    """`--tls on|off|both`; None where it was not given. Raises InputError."""
    known = {
        "on": (True,),
        "off": (False,),
        "both": (False, True),
        "off,on": (False, True),
        "on,off": (False, True),
    }
    if text is None:
        return None
    if text not in known:
        raise InputError(f"--tls {text}: expected on, off, or both (trials without it beside trials with it)")
    return known[text]


def choose_systems(
    text: str, overrides: SystemOverrides, known: Mapping[str, KindType]
) -> list[SystemChoice[KindType]]:
    """Reads `NAME[@VERSION][,NAME...]`, each item a name or a system file, and has every module check its
    request.

    Raises InputError with the problems of all items: nothing has been fetched or started by then.
    """
    problems: list[Problem] = []
    choices: list[SystemChoice[KindType]] = []
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
            choices += _variants(_choose(item, overrides, known), overrides.tls)
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(problems)
    return _distinct(choices)


def _distinct(choices: Sequence[SystemChoice[KindType]]) -> list[SystemChoice[KindType]]:
    names = [choice.name for choice in choices]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"--system names '{name}' more than once: give each system file a name of its own, or use "
                "--repeat"
            )
    return list(choices)


def _variants(
    choice: SystemChoice[KindType], wanted: tuple[bool, ...] | None
) -> list[SystemChoice[KindType]]:
    """The system as it was asked for, or without TLS, with it, or both. What is not possible is refused."""
    if wanted is not None and choice.request.connect:
        raise InputError(
            f"--tls: {choice.name} already runs (connect), and how it is reached is for its system file to say "
            "(section 'security', docs/security.md)"
        )
    found = [choice]
    if wanted is not None:
        found = [
            dataclasses.replace(
                choice,
                name=choice.name + (WITH_TLS if tls else ""),
                request=dataclasses.replace(choice.request, tls=tls),
            )
            for tls in wanted
        ]
    for one in found:
        _refused_as_input(one.request, partial(check_security, one.system, one.request))
    return found


def _choose(item: str, overrides: SystemOverrides, known: Mapping[str, KindType]) -> SystemChoice[KindType]:
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
        raise InputError(no_system(name, known))
    if "@" in item and not version:
        raise InputError(
            f"{item}: no version after '@'; expected for instance {name}@{system.default_version}"
        )
    level = _level(overrides.level, lambda message: Problem(f"--durability {message}"))
    asked = _metrics_of(overrides)
    request = SystemRequest(
        version=version or None,
        nodes=_nodes(overrides.nodes, 1),
        level=level,
        connect=_addresses(overrides.connect, lambda message: Problem(f"--connect {message}")),
        metrics=asked.urls,
        metrics_every_second=asked.every_second,
        agents=overrides.agents,
    )
    return _checked(item, system, request)


def _metrics_of(overrides: SystemOverrides) -> MetricsAsked:
    return parse_metrics(list(overrides.metrics), lambda message: Problem(f"--system-metrics {message}"))


def _from_file(
    path: Path, overrides: SystemOverrides, known: Mapping[str, KindType]
) -> SystemChoice[KindType]:
    document = read_document(path)
    values = document.values
    if "driverClass" in values:
        raise InputError(document.problem(advice(values, known), ("driverClass",)))
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
    tls = values.get("tls", False)
    if not isinstance(tls, bool):
        problems.append(document.problem(f"tls: expected true or false, found {tls}", ("tls",)))
        tls = False
    name, version, level_text = text("name"), text("version"), text("durability")
    reached: Security | None = None
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
    metrics = MetricsAsked()
    try:
        metrics = parse_metrics(
            values.get(METRICS, True), lambda message: document.problem(f"metrics: {message}", (METRICS,))
        )
        given = _metrics_of(overrides)
        metrics = MetricsAsked(
            metrics.wanted or given.every_second,
            metrics.every_second or given.every_second,
            given.urls or metrics.urls,
        )
    except InputError as error:
        problems.extend(error.problems)
    trusted = overrides.trust.covers(path)
    try:
        reached = read_security(document, trusted=trusted)
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
        tls=tls,
        security=reached,
        has_metrics=metrics.wanted,
        metrics=metrics.urls,
        metrics_every_second=metrics.every_second,
        agents=overrides.agents or _agents(path, _as_list(values.get("agents"))),
        trusted=trusted,
    )
    problems = [] if connect else untrusted(document, system, request)
    if problems:
        raise InputError(problems)
    return _checked(name or path.stem, system, request)


def _system_of(document: Document, known: Mapping[str, KindType]) -> KindType:
    wanted = document.values.get("system")
    if wanted is None:
        raise InputError(
            document.problem(
                f"key 'system' is missing: expected which system to run, one of {', '.join(sorted(known))}"
            )
        )
    system = known.get(str(wanted))
    if system is None:
        raise InputError(document.problem(f"system: {no_system(str(wanted), known)}", ("system",)))
    return system


def _check_keys(document: Document, system: SystemKind) -> None:
    allowed = COMMON_KEYS | system.option_keys
    problems = []
    for key in document.values:
        if key not in allowed:
            hint = else_known(key, sorted(allowed), "keys")
            problems.append(document.problem(f"unknown key '{key}'{hint}", (key,)))
    if problems:
        raise InputError(problems)


def _checked(name: str, system: KindType, request: SystemRequest) -> SystemChoice[KindType]:
    """Asks the module whether the request can be met; its refusal becomes an input error."""
    json.dumps(dict(request.options), default=str)
    _refused_as_input(request, partial(check_metrics, system, request))
    _refused_as_input(request, partial(system.check, request))
    return SystemChoice(name=name, system=system, request=request)


def _refused_as_input(request: SystemRequest, check: Callable[[], None]) -> None:
    """A refusal of a system's module as an input error, at the file that it is about."""
    try:
        check()
    except SystemInputError as error:
        message = str(error)
        if request.source and not message.startswith(request.source):
            message = f"{request.source}: {message}"
        raise InputError(message) from None


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


def _agents(file: Path, texts: Sequence[Any]) -> tuple[str, ...]:
    """Files of hosts are looked for beside the system file."""
    return tuple(
        str(file.parent / str(text)) if str(text).endswith((".yaml", ".yml", ".json")) else str(text)
        for text in texts
    )


def _addresses(texts: Sequence[Any], at: Any) -> tuple[str, ...]:
    """Checks host:port addresses."""
    addresses = []
    for text in texts:
        host, separator, port = str(text).strip().rpartition(":")
        if not separator or not host or not port.isdigit() or not 1 <= int(port) <= 65535:
            raise InputError(at(f"{text}: expected host:port, such as 127.0.0.1:9092"))
        addresses.append(f"{host}:{port}")
    return tuple(addresses)
