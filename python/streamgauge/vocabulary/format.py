"""Figures as people read them: three significant digits, units spelled by the column, a dash for what is not
known.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

UNKNOWN = "-"
SMALLEST = 0.0001
"""Below this (0.1 us for latencies in ms) more digits would only be noise."""


def significant(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant digits and no exponent; thousands are separated."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "unbounded"
    if value == 0:
        return "0"
    if abs(value) < SMALLEST:
        return f"<{SMALLEST}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    rounded = round(value, decimals)
    text = f"{rounded:,.{decimals}f}"
    # 9.999 rounds to 10.00: a digit more than was asked for.
    if decimals and len(text.replace(",", "").replace(".", "").lstrip("-0")) > digits:
        text = f"{rounded:,.{decimals - 1}f}"
    return text


def trimmed(value: float | None, digits: int = 3) -> str:
    """Significant digits without trailing zeros, for what was asked and for figures within sentences: 30, 2.5."""
    text = significant(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def signed(value: float, digits: int = 3) -> str:
    """`trimmed`, with its sign: +30, -2.5."""
    return ("+" if value > 0 else "") + trimmed(value, digits)


def milliseconds(value: float | None) -> str:
    """A latency in ms without the unit; a percentile beyond the recorders' range reads as such."""
    return significant(value)


def rate(value: float | None) -> str:
    """Messages per second as a whole number."""
    return UNKNOWN if value is None or math.isnan(value) else f"{value:,.0f}"


def count(value: int | None) -> str:
    """A whole number with separated thousands."""
    return UNKNOWN if value is None else f"{value:,}"


def percent(share: float | None, decimals: int = 0) -> str:
    """A share (0-1) in percent."""
    return UNKNOWN if share is None or math.isnan(share) else f"{100 * share:.{decimals}f} %"


def size(value: float | None) -> str:
    """Bytes in decimal units (MB is 10^6 bytes)."""
    if value is None:
        return UNKNOWN
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= scale:
            return f"{significant(value / scale)} {unit}"
    return f"{value:.0f} B"


def exact_size(value: int) -> str:
    """Bytes in the unit that divides them evenly, binary ones first: 1048576 is 1 MiB, 1000 is 1 kB."""
    units = (
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
        ("GB", 10**9),
        ("MB", 10**6),
        ("kB", 1000),
    )
    for unit, scale in units:
        if value and value % scale == 0:
            return f"{value // scale} {unit}"
    return f"{value} B"


def seconds(value: float | None) -> str:
    """A duration, in the largest unit that suits it."""
    if value is None:
        return UNKNOWN
    if value < 120:
        return f"{trimmed(value)} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")


def instant(unix_ms: int | None) -> str:
    """A point in time, UTC, to the second."""
    if unix_ms is None:
        return UNKNOWN
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def joined(items: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + " and " + items[-1]


def plural(number: int, noun: str) -> str:
    """`1 trial`, `3 trials`, `2 copies`: the noun's regular plural."""
    if number == 1:
        return f"1 {noun}"
    ending = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {ending}"


def every(number: int, noun: str) -> str:
    """`the trial`, `both trials`, `all 3 trials`."""
    return f"the {noun}" if number == 1 else f"both {noun}s" if number == 2 else f"all {plural(number, noun)}"


def capital(sentence: str) -> str:
    """With a capital letter first, the rest as it is."""
    return sentence[:1].upper() + sentence[1:]
