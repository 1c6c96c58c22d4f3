"""Reads what a JVM's Flight Recorder has written: samples of its threads, and nothing else.

The file describes itself. It is a row of chunks; each has a header, events, one event that tells the types (metadata) and some that tell the constants
(threads, methods, stack traces) to which the others refer by number. Integers are base-128, least significant group first, nine bytes at most. The format
has no document of its own: it is as the JDK's own reader (jdk.jfr.internal.consumer, versions 2.0 and 2.1) takes it.

It is read where it was made, by the lab that started the JVM; a report reads the table that is made of it (model/result_columns.py, PROFILE_COLUMNS). It
is bounded all the same: what a damaged file claims is believed nowhere.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgauge.runner.profiles.stacks import Sample, State, folded, java_name

FILE_BYTES_MAX = 256 << 20
CHUNK_BYTES_MAX = 64 << 20
"""A JVM begins the next one at 12 MB."""
DEPTH_MAX = 32
"""Of types within types, and of the elements that describe them."""
STATES: dict[str, State] = {"jdk.ExecutionSample": "java", "jdk.NativeMethodSample": "native"}
KEPT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(STATES, ("startTime", "sampledThread", "stackTrace")),
    "jdk.types.StackTrace": ("truncated", "frames"),
    "jdk.types.StackFrame": ("method",),
    "jdk.types.Method": ("type", "name"),
    "java.lang.Class": ("name",),
    "jdk.types.Symbol": ("string",),
    "java.lang.Thread": ("javaName", "osName"),
}
"""What is wanted of a value: of a type with one field here it stands for the value. All others are read over."""
TRUNCATED = "[deeper than was recorded]"

_HEADER = struct.Struct(">4sHHQQQQQQQI")
_METADATA, _CHECKPOINT = 0, 1

Pools = dict[int, dict[int, Any]]
Read = Callable[["_Cursor"], Any]


class DamagedRecording(ValueError):
    """A file that is no recording, or not a whole one."""


def read_samples(path: Path) -> Iterator[Sample]:
    """The samples of a recording, `at_s` in seconds since the epoch. Raises DamagedRecording, OSError."""
    if path.stat().st_size > FILE_BYTES_MAX:
        raise DamagedRecording(f"it is larger than {FILE_BYTES_MAX >> 20} MiB")
    content = path.read_bytes()
    begin = 0
    while begin < len(content):
        try:
            chunk = _Chunk(content, begin)
            yield from chunk.samples()
        except DamagedRecording:
            raise
        except (
            IndexError,
            KeyError,
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
            struct.error,
        ) as error:
            raise DamagedRecording(f"the chunk at byte {begin} is damaged ({type(error).__name__})") from None
        begin += chunk.size


@dataclass
class _Cursor:
    """A place in the bytes."""

    content: bytes
    at: int

    def byte(self) -> int:
        value = self.content[self.at]
        self.at += 1
        return value

    def long(self) -> int:
        """An unsigned integer of up to 64 bits."""
        content, at = self.content, self.at
        value = shift = 0
        for _ in range(8):
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                return value
            shift += 7
        value |= content[at] << shift
        self.at = at + 1
        return value

    def count(self) -> int:
        """How many things follow. Raises DamagedRecording where they cannot be in the file."""
        value = self.long()
        if value > len(self.content) - self.at:
            raise DamagedRecording(f"it tells of {value} things in fewer bytes")
        return value

    def text(self) -> str | int | None:
        """A string; the number of a constant where it is told elsewhere."""
        kind = self.byte()
        if kind == 0:
            return None
        if kind == 1:
            return ""
        if kind == 2:
            return self.long()
        length = self.count()
        if kind == 4:
            return "".join(chr(self.long() & 0xFFFF) for _ in range(length))
        if kind not in (3, 5):
            raise DamagedRecording(f"a string of kind {kind}")
        bytes_ = self.content[self.at : self.at + length]
        self.at += length
        return bytes_.decode("utf-8" if kind == 3 else "latin-1", "replace")

    def skip(self, count: int) -> None:
        self.at += count


@dataclass
class _Field:
    name: str
    type_id: int
    is_constant: bool
    is_array: bool


@dataclass
class _Type:
    name: str
    fields: list[_Field] = field(default_factory=list)


class _Chunk:
    """One chunk: its types and constants, and the events that are wanted."""

    def __init__(self, content: bytes, begin: int) -> None:
        if len(content) - begin < _HEADER.size:
            raise DamagedRecording("it ends within a chunk")
        header = _HEADER.unpack_from(content, begin)
        magic, major, _, self.size, constants, metadata, epoch_ns, _, self._start_ticks, ticks_s, features = (
            header
        )
        if magic != b"FLR\0" or major != 2:
            raise DamagedRecording("it is no recording of a kind that is known (version 2)")
        if not features & 1 or not ticks_s:
            raise DamagedRecording("its numbers are written in a way that is not known")
        if not _HEADER.size <= self.size <= len(content) - begin:
            raise DamagedRecording("it ends within a chunk")
        if self.size > CHUNK_BYTES_MAX:
            raise DamagedRecording(f"a chunk is larger than {CHUNK_BYTES_MAX >> 20} MiB")
        self._content = content[begin : begin + self.size]
        self._epoch_s, self._tick_s = epoch_ns / 1e9, 1.0 / ticks_s
        self._types: dict[int, _Type] = {}
        self._readers: dict[int, Read] = {}
        self._pools: Pools = {}
        self._read_metadata(_Cursor(self._content, metadata))
        self._read_constants(constants)
        self._names: dict[int, str] = {}
        self._stacks: dict[int, str] = {}

    def samples(self) -> Iterator[Sample]:
        wanted = {number: STATES[one.name] for number, one in self._types.items() if one.name in STATES}
        at = _HEADER.size
        while at < self.size:
            cursor = _Cursor(self._content, at)
            size, kind = cursor.long(), cursor.long()
            if size <= 0:
                raise DamagedRecording("an event without a size")
            if kind in wanted:
                event = self._composite(kind)(cursor)
                stack = self._stack(event["stackTrace"])
                if stack:
                    at_s = self._epoch_s + (event["startTime"] - self._start_ticks) * self._tick_s
                    yield Sample(at_s, self._thread(event["sampledThread"]), wanted[kind], stack)
            at += size

    # What is told of types

    def _read_metadata(self, cursor: _Cursor) -> None:
        cursor.long()
        if cursor.long() != _METADATA:
            raise DamagedRecording("it has no types where they should be")
        for _ in range(3):
            cursor.long()  # When, for how long, and which.
        texts = [told if isinstance(told := cursor.text(), str) else "" for _ in range(cursor.count())]
        self._element(cursor, texts, None, 0)

    def _element(self, cursor: _Cursor, texts: list[str], within: _Type | None, depth: int) -> None:
        """An element of the tree that describes the types; those of classes and their fields are kept."""
        if depth > DEPTH_MAX:
            raise DamagedRecording("its types are described too deeply")
        name = texts[cursor.long()]
        told = {texts[cursor.long()]: texts[cursor.long()] for _ in range(cursor.count())}
        mine = within
        if name == "class":
            mine = self._types[int(told["id"])] = _Type(told["name"])
        elif name == "field" and within is not None:
            is_array = int(told.get("dimension", "0")) > 0
            within.fields.append(
                _Field(told["name"], int(told["class"]), told.get("constantPool") == "true", is_array)
            )
        for _ in range(cursor.count()):
            self._element(cursor, texts, mine, depth + 1)

    def _reader(self, type_id: int, depth: int = 0) -> Read:
        """What reads a value of a type."""
        found = self._readers.get(type_id)
        if found is None:
            found = self._readers[type_id] = self._primitive(self._types[type_id].name) or self._composite(
                type_id, depth
            )
        return found

    @staticmethod
    def _primitive(name: str) -> Read | None:
        if name in ("boolean", "byte"):
            return _Cursor.byte
        if name in ("char", "short", "int", "long"):
            return _Cursor.long
        if name in ("float", "double"):
            size = 4 if name == "float" else 8
            return lambda cursor: cursor.skip(size)
        return _Cursor.text if name == "java.lang.String" else None

    def _composite(self, type_id: int, depth: int = 0) -> Read:
        """What reads the fields of a type (KEPT)."""
        if depth > DEPTH_MAX:
            raise DamagedRecording("its types hold each other")
        one = self._types[type_id]
        readers: list[tuple[str, Read]] = []
        for field_ in one.fields:
            read = _Cursor.long if field_.is_constant else self._reader(field_.type_id, depth + 1)
            readers.append((field_.name, _array(read) if field_.is_array else read))
        kept = KEPT.get(one.name, ())

        def read_fields(cursor: _Cursor) -> Any:
            begin = cursor.at
            found: dict[str, Any] = {}
            for name, read in readers:
                value = read(cursor)
                if name in kept:
                    found[name] = value
            if cursor.at == begin:
                # What takes no room could be there as often as a file likes to claim.
                raise DamagedRecording(f"a value of {one.name[:80]} without a byte")
            return found[kept[0]] if len(kept) == 1 else found

        return read_fields

    # Constants

    def _read_constants(self, at: int) -> None:
        """Events of constants, from the last to the first: each tells how far before it the one before is."""
        seen: set[int] = set()
        while at not in seen and 0 < at < self.size:
            seen.add(at)
            cursor = _Cursor(self._content, at)
            cursor.long()
            if cursor.long() != _CHECKPOINT:
                raise DamagedRecording("it has no constants where they should be")
            cursor.long()
            cursor.long()
            back = cursor.long()
            back = back - (1 << 64) if back >= 1 << 63 else back
            cursor.byte()
            for _ in range(cursor.count()):
                self._read_pool(cursor)
            if back == 0:
                break
            at += back

    def _read_pool(self, cursor: _Cursor) -> None:
        type_id = cursor.long()
        read = self._reader(type_id)
        pool = self._pools.setdefault(type_id, {})
        for _ in range(cursor.count()):
            key = cursor.long()
            value = read(cursor)
            pool.setdefault(key, value)

    def _constants(self, name: str) -> Mapping[int, Any]:
        found: dict[int, Any] = {}
        for number, one in self._types.items():
            if one.name == name:
                found |= self._pools.get(number, {})
        return found

    # What samples refer to

    def _pool(self, name: str) -> Mapping[int, Any]:
        key = f"_{name}"
        found: Mapping[int, Any] | None = self.__dict__.get(key)
        if found is None:
            found = self.__dict__[key] = self._constants(name)
        return found

    def _text(self, told: Any) -> str:
        if isinstance(told, str):
            return told
        return self._text(self._pool("java.lang.String").get(told)) if isinstance(told, int) else ""

    def _symbol(self, number: int) -> str:
        symbol = self._pool("jdk.types.Symbol").get(number)
        return self._text(symbol)

    def _thread(self, number: int) -> str:
        thread = self._pool("java.lang.Thread").get(number) or {}
        return self._text(thread.get("javaName")) or self._text(thread.get("osName")) or "thread"

    def _method(self, number: int) -> str:
        name = self._names.get(number)
        if name is None:
            method = self._pool("jdk.types.Method").get(number)
            if method is None:
                return "[unknown]"
            owner = self._pool("java.lang.Class").get(method["type"])
            name = java_name("?" if owner is None else self._symbol(owner), self._symbol(method["name"]))
            self._names[number] = name
        return name

    def _stack(self, number: int) -> str:
        stack = self._stacks.get(number)
        if stack is None:
            trace = self._pool("jdk.types.StackTrace").get(number)
            if trace is None:
                return ""
            names = [self._method(method) for method in reversed(trace["frames"])]
            if trace["truncated"]:
                names.insert(0, TRUNCATED)
            stack = self._stacks[number] = folded(names)
        return stack


def _array(read: Read) -> Read:
    return lambda cursor: [read(cursor) for _ in range(cursor.count())]
