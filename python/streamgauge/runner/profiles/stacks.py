"""A moment in which a thread was seen, and the names that its frames are given.

Names are what people know a function by and what stays the same from one process to the next: without hashes, addresses and the numbers of generated
classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["cpu", "java", "native"]
"""cpu: the kernel's clock of CPU time ran out in it; java: a JVM's thread that ran its code; native: one that was in native code, at work there or waiting."""

FRAMES_MAX = 256
NAME_CHARACTERS_MAX = 200
UNKNOWN = "[unknown]"
MADE_AT_RUN_TIME = "[code made at run time]"
"""What a JVM or another program has compiled for itself: it is in no file that could tell its names."""

_GENERATED = re.compile(
    r"(\$\$Lambda|LambdaForm\$[A-Za-z]+|\$Proxy|Generated(?:Constructor|Method|SerializationConstructor)Accessor)\d*(?:[$/.+](?:0x)?[0-9a-fA-F]+)*$"
)
_HIDDEN = re.compile(r"(?:[/+](?:0x)?[0-9a-fA-F]{6,})+$")
_HASH = re.compile(r"::h[0-9a-f]{16}$")
_OFFSET = re.compile(r"(?:\+0x[0-9a-f]+|@@?[A-Z][A-Za-z]*_[0-9.]+)$")
"""Where in the function, or which version of it a library has."""
_OF_NO_FILE = re.compile(r"^(?:perf-\d+\.map|//anon|anon_inode:.*|memfd:.*)$")
_DIGITS = re.compile(r"\d+")
_SCAFFOLD = re.compile(
    r"^(?:\[unknown\]|clone3?|__clone|start_thread|__libc_start_main\S*|__libc_start_call_main|_start|main"
    r"|.*::thread_start|.*__rust_begin_short_backtrace|.*FnOnce.*call_once.*|std::rt::lang_start.*|std::panicking::.*|std::panic::.*|__rust_try)$"
)
"""What every thread begins with, and what is left where a stack was too deep to be copied whole."""


@dataclass(frozen=True)
class Sample:
    """A thread seen at a moment."""

    at_s: float
    """On the clock of whoever saw it: CLOCK_MONOTONIC (perf) or seconds since the epoch (JFR)."""
    thread: str
    state: State
    stack: str
    """Names from the outermost frame to the innermost, separated by semicolons."""


def java_name(class_name: str, method: str) -> str:
    """`kafka.log.UnifiedLog.append` of what a JVM calls its class (`kafka/log/UnifiedLog`) and method."""
    name = _HIDDEN.sub("", _GENERATED.sub(r"\1", class_name))
    return f"{name.replace('/', '.')}.{method}"


def native_name(symbol: str, module: str) -> str:
    """The name of a function of a program or of the kernel. `module`: the path of the file that holds it, of which the last name is told where the symbol is
    not known."""
    name = _OFFSET.sub("", _HASH.sub("", symbol.strip()))
    if module.startswith("[kernel") or module.endswith(".ko"):
        return f"{name} [kernel]"
    if name in ("", UNKNOWN):
        short = module if module == "//anon" else module.rpartition("/")[2]
        if _OF_NO_FILE.match(short):
            return MADE_AT_RUN_TIME
        return UNKNOWN if short in ("", UNKNOWN) else f"[{short}]"
    return name


def without_scaffold(frames: list[str]) -> list[str]:
    """Frames from the outermost on without what every thread begins with, and code without a name once where it calls itself."""
    begin = 0
    while begin < len(frames) - 1 and _SCAFFOLD.match(frames[begin]):
        begin += 1
    left = frames[begin:]
    return [
        name
        for at, name in enumerate(left)
        if at == 0 or name != left[at - 1] or name not in (MADE_AT_RUN_TIME, UNKNOWN)
    ]


def folded(frames: Iterable[str]) -> str:
    """Frames from the outermost on as one text, bounded: of a deeper stack the innermost are kept."""
    names = [name.replace(";", ",")[:NAME_CHARACTERS_MAX] for name in frames]
    return ";".join(names if len(names) <= FRAMES_MAX else ["[more]", *names[-(FRAMES_MAX - 1) :]])


def thread_group(name: str) -> str:
    """Threads that do the same are told together: `data-plane-kafka-request-handler-3` is one of `data-plane-kafka-request-handler-N`."""
    return _DIGITS.sub("N", name.strip())[:NAME_CHARACTERS_MAX] or "thread"
