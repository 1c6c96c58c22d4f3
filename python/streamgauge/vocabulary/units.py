"""Durations, sizes and rates as people write them.

- duration: a number and a unit, or several: `500us`, `10ms`, `30s`, `5m`, `1h30m`. Without a unit it is an
  error, because `5` is minutes in one tool and seconds in the next.
- size: bytes without a unit (`100`), decimal `kB MB GB` (10^n), binary `KiB MiB GiB` (2^n). `kb` and `KB`
  are errors, because half of the world means 1000 by them and the other half 1024.
- rate: messages per second: `50000`, `50k`, `1.5M`, or `max` for a closed loop (as fast as the batch
  policy lets through). `sustainable`, the other word for a rate, is read by the workload file.

All functions raise ValueError with a sentence that says what was found, what was expected and what to
write instead.
"""

from __future__ import annotations

import math
import re
from typing import Any

from streamgauge.vocabulary.format import trimmed

DURATION_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
SIZE_UNITS_BYTES = {
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}
RATE_UNITS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}
RATE_MAX_MSGS_S = 1e9
DURATION_MAX_S = 30 * 24 * 3600.0

_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")
_NUMBER_AND_UNIT = re.compile(r"([+-]?\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(\S*)")


def parse_duration(value: Any) -> float:
    """Seconds in a duration such as `1h30m` or `500ms`."""
    expected = "expected a duration with a unit, such as 30s, 5m, 1h30m or 500ms"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"{value} has no unit: {expected}")
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"found {_shown(value)}: {expected}")
    text = value.strip()
    total_s, position = 0.0, 0
    while position < len(text):
        part = _DURATION_PART.match(text, position)
        if part is None:
            hint = f"{text} has no unit: " if re.fullmatch(r"[\d.]+", text) else f"found '{text}': "
            raise ValueError(hint + expected)
        unit_s = DURATION_UNITS_S.get(part.group(2))
        if unit_s is None:
            raise ValueError(f"unknown unit '{part.group(2)}' in '{text}': expected one of us, ms, s, m, h")
        total_s += float(part.group(1)) * unit_s
        position = part.end()
    if total_s > DURATION_MAX_S:
        raise ValueError(f"'{text}' is more than 30 days: expected a shorter duration")
    return total_s


WARM_UP_LIMIT_S = 120.0
"""How long `warmup: auto` may take, unless it is said."""


def parse_warm_up(value: Any) -> tuple[float, bool]:
    """A warm-up: seconds, and whether it ends sooner, when the load is steady: `10s`, `auto` (2m at most), `auto:5m`."""
    text = value.strip() if isinstance(value, str) else value
    if text == "auto":
        return WARM_UP_LIMIT_S, True
    if isinstance(text, str) and text.startswith("auto:"):
        return parse_duration(text.removeprefix("auto:")), True
    try:
        return parse_duration(value), False
    except ValueError as error:
        raise ValueError(f"{error}; or auto, or auto:5m for 5m at most") from None


def parse_size(value: Any) -> int:
    """Bytes in a size such as `100`, `1kB` (1000) or `1KiB` (1024)."""
    expected = "expected bytes (100), a decimal size (1kB = 1000, 1MB) or a binary size (1KiB = 1024, 1MiB)"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"found {_shown(value)}: {expected}")
    found = _NUMBER_AND_UNIT.fullmatch(str(value).strip())
    if found is None:
        raise ValueError(f"found {_shown(value)}: {expected}")
    number, unit = float(found.group(1).replace("_", "")), found.group(2)
    if unit and unit not in SIZE_UNITS_BYTES:
        raise ValueError(_size_unit_problem(found.group(1), unit, expected))
    size_bytes = number * SIZE_UNITS_BYTES[unit or "B"]
    if not math.isfinite(size_bytes) or size_bytes < 0 or size_bytes != int(size_bytes):
        raise ValueError(f"{_shown(value)} is not a whole number of bytes: {expected}")
    return int(size_bytes)


def _size_unit_problem(number: str, unit: str, expected: str) -> str:
    """The sentence for a size unit that does not exist; one that exists in another spelling is ambiguous."""
    letter = unit[0].upper()
    if unit.lower() in {"k", "kb", "m", "mb", "g", "gb"}:
        decimal, binary = ("kB" if letter == "K" else f"{letter}B"), f"{letter}iB"
        return (
            f"'{number}{unit}' is ambiguous: write {number}{decimal} ({SIZE_UNITS_BYTES[decimal]} bytes "
            "each) "
            f"or {number}{binary} ({SIZE_UNITS_BYTES[binary]} bytes each)"
        )
    return f"unknown unit '{unit}' in '{number}{unit}': {expected}"


def parse_rate(value: Any) -> float | None:
    """Messages per second in a rate such as `50000`, `50k` or `1.5M`; None for `max` (closed loop)."""
    expected = "expected messages per second (50000, 50k, 1.5M) or max"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"found {_shown(value)}: {expected}")
    text = str(value).strip()
    if text == "max":
        return None
    found = _NUMBER_AND_UNIT.fullmatch(text)
    if found is None:
        raise ValueError(f"found {_shown(value)}: {expected}")
    number, unit = float(found.group(1).replace("_", "")), found.group(2)
    if unit in {"x", "X", "%"}:
        raise ValueError(f"'{text}' is a multiple or a share, and a rate is a number of messages: {expected}")
    if unit not in RATE_UNITS:
        raise ValueError(f"unknown unit '{unit}' in '{text}': {expected}")
    rate_msgs_s = number * RATE_UNITS[unit]
    if rate_msgs_s == 0:
        raise ValueError("a rate of 0 sends nothing: write max for as fast as the batch policy lets through")
    if not math.isfinite(rate_msgs_s) or not 0 < rate_msgs_s <= RATE_MAX_MSGS_S:
        raise ValueError(f"'{text}' is out of range: {expected}, above 0 and at most 1000M")
    return rate_msgs_s


def format_duration(seconds: float) -> str:
    """The shortest exact spelling: 90 -> `1m30s`, 0.0005 -> `500us`."""
    if seconds == 0:
        return "0s"
    if seconds < 1e-3:
        return f"{seconds * 1e6:g}us"
    if seconds < 1:
        return f"{seconds * 1e3:g}ms"
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [(hours, "h"), (minutes, "m"), (rest, "s")]
    return "".join(f"{amount:g}{unit}" for amount, unit in parts if amount)


def round_rate(rate_msgs_s: float) -> float:
    """Four significant digits: a rate that can be said and typed again."""
    return float(f"{rate_msgs_s:.4g}")


def format_rate(rate_msgs_s: float | None) -> str:
    """`50k msg/s`, `1.5M msg/s`, `max`."""
    if rate_msgs_s is None:
        return "max"
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if rate_msgs_s >= factor:
            return f"{rate_msgs_s / factor:.4g}{unit} msg/s"
    return f"{rate_msgs_s:.4g} msg/s"


def format_size(size_bytes: float) -> str:
    """Decimal: `100 B`, `1.02 kB`, `3.5 MB`."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= factor:
            return f"{trimmed(size_bytes / factor)} {unit}"
    return f"{size_bytes:.0f} B"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f"'{value}'"
    return str(value)
