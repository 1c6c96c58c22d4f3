"""`streamgauge calibrate-verdicts`: the pairs one after another, and the table."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

from rich.console import Console

from streamgauge.cli.study_trials import seconds, this_machine
from streamgauge.cli.watch import make_observer
from streamgauge.model.calibration import DELAYED, Pair, study_text
from streamgauge.model.checked_study import parse_study
from streamgauge.model.study_planning import Wishes, plan_study
from streamgauge.report.calibration import table
from streamgauge.runner.calibration import pair_of
from streamgauge.runner.study_run import StudyRun
from streamgauge.store.pairs import append_pair, read_pairs
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError, no_system

EFFECTS = (0.0, 20.0, 0.0, 10.0, 0.0, 50.0)


def calibrate_verdicts(
    system: str,
    budget: str,
    pair_budget: str,
    effects: str | None,
    rate: float,
    seed: int | None,
    out: Path,
) -> None:
    """The work of commands/calibrate.py."""
    if system not in systems():
        raise InputError(f"--system {system}: {no_system(system, systems())}")
    wanted = _effects(effects, system)
    budget_s, pair_s = seconds("budget", budget), seconds("pair-budget", pair_budget)
    seed = secrets.randbits(31) if seed is None else seed
    out.mkdir(parents=True, exist_ok=True)
    pairs = [one for one in read_pairs(out) if (one.system, one.rate_msgs_s) == (system, rate)]
    console, began_s, number = Console(), time.monotonic(), 0
    # The first pair tells what the delays are percents of.
    while number == 0 or time.monotonic() - began_s + pair_s / 2.0 < budget_s:
        known = [one.base_p50_ms for one in pairs]
        effect = wanted[number % len(wanted)] if known else 0.0
        delay_us = round(10.0 * effect * sorted(known)[len(known) // 2]) if known else 0
        found = _pair(system, rate, effect, delay_us, pair_s, seed + number, out)
        number += 1
        if found is None:
            break
        append_pair(out, found)
        pairs.append(found)
    for line in table(pairs):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _pair(
    system: str, rate: float, effect: float, delay_us: int, pair_s: float, seed: int, out: Path
) -> Pair | None:
    """None when the user stopped it."""
    text = study_text(system, rate, delay_us)
    study = parse_study(text, "calibration", systems())
    plan = plan_study(study, Wishes(scale="quick", seed=seed, budget_s=pair_s), this_machine())
    observer = make_observer(None)
    try:
        began_s = time.monotonic()
        run = StudyRun(plan, observer, command=("streamgauge", "calibrate-verdicts"), out=out)
        outcome = run.execute()
        took_s = time.monotonic() - began_s
    finally:
        observer.close()
    if outcome.directory.read_manifest().status != "complete":
        return None
    return pair_of(outcome.directory, effect, delay_us, took_s)


def _effects(text: str | None, system: str) -> tuple[float, ...]:
    if text is None:
        return EFFECTS if system == DELAYED else (0.0,)
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = (-1.0,)
    if not all(0.0 <= one <= 1000.0 for one in found):
        raise InputError(f"--effects {text}: expected percents between 0 and 1000, such as 0,20,50")
    if any(found) and system != DELAYED:
        raise InputError(
            f"--effects {text}: only {DELAYED} can be made slower by a known amount; {system} can be compared with itself (0)"
        )
    return found
