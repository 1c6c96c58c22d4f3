"""What the options of several systems have in common: how they are read, and how a person is told what is wrong."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from streamgauge.model.system_request import SystemRequest, where_of
from streamgauge.vocabulary.errors import SystemInputError, else_known

NOT_THE_BROKER = re.compile(
    r"(-cp|-classpath|--class-path|-jar|-p|--module-path|-m|--module|--source|--version|-version|--help|-help)(=|$)"
)
"""Flags after which a JVM runs something else, trusted or not."""
NODES = (1, 3)
"""On how many nodes the lab runs a cluster."""


def known(given: Iterable[str], keys: Collection[str], message: str) -> None:
    """Raises SystemInputError with `message` (`{}` stands for the key) and the nearest key for one that is not among `keys`."""
    for key in given:
        if key not in keys:
            raise SystemInputError(message.format(key) + else_known(str(key), sorted(keys), "keys"))


def mapping(value: object, key: str, where: str) -> Mapping[str, Any]:
    """Keys and values, none where nothing was given. Raises SystemInputError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SystemInputError(f"{where}{key}: expected keys and values, found {value!r}")
    return value


def byte_count(value: object, least: int, most: int, where: str) -> int:
    """A number of bytes within these bounds. Raises SystemInputError."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SystemInputError(f"{where}: expected a number of bytes from {least} to {most}, found {value!r}")
    return value


def check_nodes(request: SystemRequest, system: str) -> None:
    """Raises SystemInputError for a number of nodes on which clusters are not started."""
    if request.nodes not in NODES:
        raise SystemInputError(
            f"{where_of(request)}nodes {request.nodes}: the lab runs {system} on 1 or 3 nodes; an even number tolerates no more "
            "faults than the odd one below it, and five do not fit one machine"
        )


def check_attached(request: SystemRequest, keys: Iterable[str]) -> None:
    """Raises SystemInputError for one of `keys`, which are of systems that the lab starts, where one is attached to."""
    for key in keys:
        if key in request.options:
            raise SystemInputError(
                f"{where_of(request)}{key} cannot be set for a system that already runs (connect)"
            )


def version_numbers(version: str, where: str, system: str, example: str) -> tuple[int, int, int]:
    """The three numbers of a version. Raises SystemInputError for what is none."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        raise SystemInputError(
            f"{where}'{version}' is no {system} version; expected three numbers such as {example}"
        )
    return int(found.group(1)), int(found.group(2)), int(found.group(3))


def size_mib(value: object) -> int | None:
    """MiB of a size such as 1g, 768m or 768MiB; None for what is none."""
    found = re.fullmatch(r"(\d+)\s*([mMgG])(?:iB|IB|ib)?", str(value).strip())
    return None if found is None else int(found.group(1)) * (1024 if found.group(2) in "gG" else 1)


def text(value: object) -> str:
    """A YAML value as configuration files have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def ports(value: object, nodes: int, where: str, key: str = "ports") -> tuple[int, ...]:
    """Different ports, one per node; none where nothing was given. Raises SystemInputError."""
    if value is None:
        return ()
    found: list[int] = []
    for port in value if isinstance(value, Sequence) and not isinstance(value, str) else [value]:
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
            raise SystemInputError(f"{where}{key}: '{port}' is no port; expected numbers from 1 to 65535")
        found.append(port)
    if len(found) != nodes or len(set(found)) != nodes:
        raise SystemInputError(f"{where}{key}: expected {nodes} different ports, one per node, not {found}")
    return tuple(found)


def parse_address(address: str, where: str, of: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. `of` says whose, with an example: "a Kafka broker; expected host:port such as
    127.0.0.1:9092". Raises SystemInputError.
    """
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\],]+)):(\d{1,5})", address)
    if found is None or not 1 <= int(found.group(3)) <= 65535:
        raise SystemInputError(f"{where}'{address}' is no address of {of}")
    return found.group(1) or found.group(2), int(found.group(3))


def extra_jvm_flags(value: object, where: str, own: str, instead: str) -> tuple[str, ...]:
    """Flags for a JVM. Those that match `own` are set by a key of their own: `instead` says by which ("sets the heap; use the key heap
    instead"). Raises SystemInputError."""
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise SystemInputError(f"{where}jvm_flags: expected a list such as ['-XX:MaxGCPauseMillis=10']")
    for flag in value:
        if not isinstance(flag, str) or not flag.startswith("-"):
            raise SystemInputError(
                f"{where}jvm_flags: '{flag}' is no JVM flag; expected one that begins with '-'"
            )
        if re.match(own, flag):
            raise SystemInputError(f"{where}jvm_flags: '{flag}' {instead}")
        if NOT_THE_BROKER.match(flag):
            raise SystemInputError(f"{where}jvm_flags: '{flag}' changes what is run and is not allowed")
    return tuple(value)


def refuse_both(request: SystemRequest, given: Mapping[str, Any], keys: tuple[str, ...], prefix: str) -> None:
    """Raises SystemInputError when credentials are in the options (`keys` of `given`) and in `security` too."""
    twice = [key for key in keys if key in given]
    if twice and request.security is not None and request.security.auth is not None:
        raise SystemInputError(
            f"{where_of(request)}{prefix}{twice[0]} and security.auth both say who the client is; leave one of them out"
        )
