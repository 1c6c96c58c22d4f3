"""Gates: bounds on figures that decide over the exit status, as `--fail-if 'publish_ms.p99 > 1.1'`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.figures import check_figure

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_GATE = re.compile(r"\s*([a-z][\w.]*)\s*(>=|<=|>|<)\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*")


@dataclass(frozen=True)
class Gate:
    """What must not be."""

    figure: str
    sign: str
    bound: float

    def fails(self, value: float) -> bool:
        """Whether a value is what must not be."""
        return OPERATORS[self.sign](value, self.bound)

    def __str__(self) -> str:
        return f"{self.figure} {self.sign} {self.bound:g}"


def read_gates(texts: Sequence[str], *, of_ratios: bool = False) -> tuple[Gate, ...]:
    """Gates as they are written on the command line. `of_ratios`: the bound is a ratio to a baseline. Raises InputError with one problem for each that cannot
    be read or makes no sense."""
    problems: list[Problem] = []
    gates: list[Gate] = []
    for text in texts:
        found = _GATE.fullmatch(text)
        if found is None:
            problems.append(
                Problem(
                    f"--fail-if '{text}': expected FIGURE > NUMBER (or <, >=, <=), such as 'publish_ms.p99 > 1.1'"
                )
            )
            continue
        bound = float(found.group(3))
        if not math.isfinite(bound) or (of_ratios and bound <= 0):
            expected = "a ratio to the baseline, which is above 0" if of_ratios else "a finite number"
            problems.append(Problem(f"--fail-if '{text}': expected {expected}, found {found.group(3)}"))
            continue
        try:
            gates.append(Gate(check_figure(found.group(1)), found.group(2), bound))
        except InputError as error:
            problems.extend(Problem(f"--fail-if '{text}': {problem.message}") for problem in error.problems)
    if problems:
        raise InputError(problems)
    return tuple(gates)
