"""What a file may ask of a system without being trusted, and what runs code (docs/security.md, "What a file may do").

Options of system files, of cells of studies and of runs that are resumed reach JVMs and brokers. Some of what those take
names code, commands or files: whoever writes the file then decides what runs here. Lists of what is allowed are kept, and
not of what is not: what is missing from them costs a word (`--trust-file`), what is forgotten on the others costs the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streamgauge.model.system_request import SystemRequest
from streamgauge.model.untrusted import Untrusted
from streamgauge.vocabulary.errors import SystemInputError

NUMBER = re.compile(r"-?\d+(\.\d+)?\s?[A-Za-z]{0,3}|true|false", re.IGNORECASE | re.ASCII)
"""Numbers, sizes and switches can name neither a class nor a file elsewhere."""
WORDS = re.compile(r"[\w.,: -]*", re.ASCII)

JVM_SWITCH = re.compile(r"-XX:[+-](\w+)", re.ASCII)
JVM_VALUE = re.compile(r"-XX:(\w+)=(?:\d+(?:\.\d+)?[kKmMgGtT]?|[a-z]+)", re.ASCII)
JVM_NAMES = re.compile(
    r"""(?:G1|Z|Shenandoah)[A-Z]\w*
    | Use(?:G1|Z|Shenandoah|Parallel|Serial|Epsilon)GC | ZGenerational | Unlock(?:Experimental|Diagnostic)VMOptions
    | UseLargePages | UseTransparentHugePages | UseNUMA | UseCompressedOops | UseCompactObjectHeaders | UseContainerSupport
    | UseStringDeduplication | UseAdaptiveSizePolicy | AlwaysPreTouch | ParallelRefProcEnabled | PerfDisableSharedMem
    | DisableExplicitGC | ExplicitGCInvokesConcurrent | ExitOnOutOfMemoryError
    | MaxGCPauseMillis | GCPauseIntervalMillis | GCTimeRatio | InitiatingHeapOccupancyPercent
    | ParallelGCThreads | ConcGCThreads | ActiveProcessorCount | CICompilerCount
    | (?:Max)?NewSize | NewRatio | SurvivorRatio | MaxTenuringThreshold | (?:Min|Max)HeapFreeRatio | SoftMaxHeapSize
    | MaxDirectMemorySize | (?:Max)?MetaspaceSize | CompressedClassSpaceSize | ThreadStackSize | MaxRAMPercentage
    | TieredCompilation | TieredStopAtLevel | MaxInlineLevel | InitialCodeCacheSize | ReservedCodeCacheSize""",
    re.VERBOSE | re.ASCII,
)
"""Collectors, sizes, threads and the compiler."""
JVM_OTHERS = re.compile(r"-Xss\d+[kKmMgG]?|-Xmn\d+[kKmMgG]?|-verbose:gc", re.ASCII)
JVM_LOG = re.compile(
    r"-Xlog:(?:async|disable|[\w*+,=]+(?::(?:stdout|stderr|file=logs/\w[\w.%-]*)?(?::[\w,]*(?::[\w,=]*)?)?)?)",
    re.ASCII,
)
"""Logs of the JVM: on the console, which is a file of the trial, or in the node's own directory `logs`."""


@dataclass(frozen=True)
class Allowed:
    """The settings that a kind of server is given without a question."""

    numbers: re.Pattern[str]
    """Names of those that may hold a number or a switch."""
    words: frozenset[str] = field(default_factory=frozenset)
    """Those that choose among words; none of them is a class, a command or a file."""


def jvm_flags(value: object) -> Iterator[Untrusted]:
    """The flags in a list `jvm_flags` that are not known to be harmless. What is no list of texts is found out elsewhere."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return
    for number, flag in enumerate(value):
        if isinstance(flag, str) and not _is_harmless(flag):
            why = "is none of the JVM's flags for collectors, memory, threads and logs below 'logs/', and others can run code or write files"
            yield Untrusted(("jvm_flags", number), flag, why)


def _is_harmless(flag: str) -> bool:
    found = JVM_SWITCH.fullmatch(flag) or JVM_VALUE.fullmatch(flag)
    if found is not None:
        return JVM_NAMES.fullmatch(found.group(1)) is not None
    return JVM_OTHERS.fullmatch(flag) is not None or JVM_LOG.fullmatch(flag) is not None


def settings(key: str, value: object, allowed: Allowed) -> Iterator[Untrusted]:
    """The settings of a server below `key` that may name code or files, open a listener or change who may ask."""
    if not isinstance(value, Mapping):
        return
    for name, setting in value.items():
        texts = _texts(setting)
        if allowed.numbers.fullmatch(str(name)) and all(NUMBER.fullmatch(text) for text in texts):
            continue
        if name in allowed.words and all(WORDS.fullmatch(text) for text in texts):
            continue
        why = "is no setting that takes only numbers or words, so it can name code or files, open a listener or change who may ask"
        yield Untrusted((key, str(name)), str(name), why)


def _texts(value: object) -> list[str]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [text for item in value for text in _texts(item)]
    return [str(value)]


def require_trust(request: SystemRequest, found: Iterator[Untrusted]) -> None:
    """Raises SystemInputError for the first of them, unless the file is trusted. Files with lines are judged before, where
    the lines are known (model/trust.py); nothing starts without this.
    """
    first = None if request.trusted else next(found, None)
    if first is not None:
        where = f"{request.source}: " if request.source else ""
        raise SystemInputError(where + first.sentence(request.source))
