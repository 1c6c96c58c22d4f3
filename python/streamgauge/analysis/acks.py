"""When acknowledgements came, and when none did."""

from __future__ import annotations

import csv
import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from streamgauge.store.files import read_log
from streamgauge.vocabulary.errors import InputError, Problem

COLUMNS = ("at_s", "acked_msgs")
_LINE = re.compile(r"(-?[0-9]{1,9}(?:\.[0-9]{1,9})?),([0-9]{1,18})")
RATE_BACK_SHARE = 0.9
"""The rate is back when this share of the rate before comes in over a window."""
WINDOW_S = 0.5
LAG_S = 0.1
"""Caught up: no more is outstanding than this much traffic beyond what was outstanding before."""


@dataclass
class Acks:
    """How many messages had been acknowledged in all, at moments on the schedule's axis; ascending."""

    at_s: list[float] = field(default_factory=list)
    acked_msgs: list[int] = field(default_factory=list)

    def add(self, at_s: float, acked_msgs: int) -> None:
        """One look."""
        self.at_s.append(at_s)
        self.acked_msgs.append(acked_msgs)

    def write(self, path: Path) -> None:
        """As CSV."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for at_s, acked_msgs in zip(self.at_s, self.acked_msgs, strict=True):
                writer.writerow((f"{at_s:.4f}", acked_msgs))

    @classmethod
    def read(cls, path: Path) -> Acks:
        """From CSV; empty where there is none. Raises InputError when it is none that `write` has made."""
        acks = cls()
        if not path.exists():
            return acks
        for number, line in enumerate(itertools.islice(read_log(path), 1, None), start=2):
            found = _LINE.fullmatch(line)
            if found is None:
                raise InputError(Problem("expected a time and a count", str(path), number))
            acks.add(float(found[1]), int(found[2]))
            if acks.at_s[-1] < acks.at_s[-2:][0]:
                raise InputError(Problem("expected times that go up", str(path), number))
        return acks

    def resolution_s(self) -> float:
        """The usual time between two looks."""
        return float(np.median(np.diff(self.at_s))) if len(self.at_s) > 1 else 0.0

    def rate_msgs_s(self, from_s: float, until_s: float) -> float:
        """Mean rate of acknowledgements between two moments; 0 where nothing is known."""
        if until_s <= from_s or not self.at_s:
            return 0.0
        return (self._acked_at(until_s) - self._acked_at(from_s)) / (until_s - from_s)

    def acked_between(self, from_s: float, until_s: float) -> int:
        """Messages acknowledged between the looks within this time: at least so many were."""
        within = [
            acked for at_s, acked in zip(self.at_s, self.acked_msgs, strict=True) if from_s <= at_s <= until_s
        ]
        return within[-1] - within[0] if within else 0

    def gap(self, from_s: float, until_s: float) -> tuple[float, float] | None:
        """The longest stretch without an acknowledgement that touches the time between two moments: when the last
        one before it was seen, and the first after it, or where the looks end. None without a look.
        """
        found: tuple[float, float] | None = None
        for begin_s, end_s in self._gaps():
            touches = begin_s < until_s and end_s > from_s
            if touches and (found is None or end_s - begin_s > found[1] - found[0]):
                found = (begin_s, end_s)
        return found

    def rate_back(self, from_s: float, until_s: float, rate_msgs_s: float) -> float | None:
        """The first moment from which `RATE_BACK_SHARE` of a rate comes in over `WINDOW_S`; None when it does not
        before `until_s`.
        """
        if rate_msgs_s <= 0:
            return None
        for at_s, acked_msgs in zip(self.at_s, self.acked_msgs, strict=True):
            if at_s < from_s:
                continue
            if at_s + WINDOW_S > until_s:
                return None
            if self._acked_at(at_s + WINDOW_S) - acked_msgs >= RATE_BACK_SHARE * rate_msgs_s * WINDOW_S:
                return at_s
        return None

    def caught_up(self, from_s: float, until_s: float, rate_msgs_s: float, before_s: float) -> float | None:
        """The first moment from which what is due and not acknowledged stays as small as before `from_s`."""
        looks = list(zip(self.at_s, self.acked_msgs, strict=True))
        usual = max(
            (rate_msgs_s * at_s - acked for at_s, acked in looks if before_s <= at_s < from_s), default=0.0
        )
        allowed = max(usual, 0.0) + max(LAG_S * rate_msgs_s, 1.0)
        behind = [
            at_s
            for at_s, acked in looks
            if from_s <= at_s <= until_s and rate_msgs_s * at_s - acked > allowed
        ]
        after = [at_s for at_s in self.at_s if at_s <= until_s and at_s > (behind[-1] if behind else from_s)]
        return after[0] if after else None

    def _gaps(self) -> list[tuple[float, float]]:
        gaps: list[tuple[float, float]] = []
        last_s: float | None = None
        for index, at_s in enumerate(self.at_s):
            if index == 0 or self.acked_msgs[index] != self.acked_msgs[index - 1]:
                if last_s is not None:
                    gaps.append((last_s, at_s))
                last_s = at_s
        if last_s is not None and self.at_s[-1] > last_s:
            gaps.append((last_s, self.at_s[-1]))
        return gaps

    def _acked_at(self, at_s: float) -> float:
        return float(np.interp(at_s, self.at_s, self.acked_msgs))
