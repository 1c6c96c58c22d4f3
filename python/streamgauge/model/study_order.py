"""The order in which a study runs its cells: in rounds, and within a round system by system.

A round holds each of its cells once, or in as many turns. Where a system is kept for a block of trials, a block is one start of it: heated until it is steady
and compiled under the load of one of its cells, and by the rehearsal of a trial, then each of its cells once in each turn, those that want a start of their own
last. The systems of a round come in random order by the seed, and so do the cells of a turn; all cells of a turn meet the same arrivals. So a start is never
shared between rounds, and what the machine does in an hour meets all systems alike.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Collection, Sequence

from streamgauge.model.study_plan import AROUND_S, PlannedCell, PlannedTrial, StudyPlan
from streamgauge.vocabulary.choices import Restart
from streamgauge.vocabulary.units import format_duration

HEATING_USUAL_S, HEATING_LIMIT_S = 30.0, 45.0
"""A start is heated until it is steady and its JVMs' compilers are done: so long on two cores, and at most."""
HEATING_MEASURED_S = 1.0
WARMING_UP = "warming-up-for"
REHEARSAL_WARMUP_S, REHEARSAL_S = 1.0, 4.0
"""The first trial on a start that looks steady differs from those behind it: its topics come after others, which goes ways that nothing has gone before."""
HEATING_MSGS_S = 5000.0
HEATING_PARTITIONS = 100


def with_heating(plan: StudyPlan, restart: Restart) -> StudyPlan:
    """The plan with cells behind the others for each system that is kept for a block: they heat a start of that system and are not counted."""
    if restart == "trial":
        return plan
    groups = [[cell for cell in group if not cell.fresh] for group in _by_system(plan.cells, plan)]
    heating = [made for group in groups if group for made in _heatings(group)]
    return plan.model_copy(update={"cells": [*plan.cells, *heating]})


def with_rounds(plan: StudyPlan, rounds: int) -> StudyPlan:
    """The plan with so many rounds of all cells (of a cell that asks for fewer repeats: so many as it asks for)."""
    for number in range(1, rounds + 1):
        wanted = [cell.cell for cell in plan.cells if not cell.heats and number <= cell.repeats]
        plan = with_round(plan, wanted)
    return plan


def with_round(plan: StudyPlan, wanted: Collection[str], turns: int = 1) -> StudyPlan:
    """The plan with one more round, of the cells with these names. `turns`: how often a start goes through those that do not want one of their own."""
    number = plan.rounds + 1
    shuffler = random.Random(zlib.crc32(f"{plan.seed}/order/{number}".encode()))
    cells = [cell for cell in plan.cells if cell.cell in wanted and not cell.heats]
    trials, block = list(plan.trials), max((trial.block for trial in plan.trials), default=0)
    for members in _blocks(cells, plan, shuffler, turns):
        block += 1
        for cell, turn in members:
            before = sum(trial.cell == cell.cell for trial in trials)
            trials.append(
                PlannedTrial(
                    number=len(trials) + 1,
                    cell=cell.cell,
                    repeat=before + 1,
                    round=number,
                    block=block,
                    seed=zlib.crc32(f"{plan.seed}/{number}{f'/{turn}' if turn else ''}".encode()),
                )
            )
    return plan.model_copy(update={"trials": trials})


def _blocks(
    cells: Sequence[PlannedCell], plan: StudyPlan, shuffler: random.Random, turns: int
) -> list[list[tuple[PlannedCell, int]]]:
    """A round's trials, start by start, each with its turn."""
    heating: dict[str, list[PlannedCell]] = {}
    for cell in plan.cells:
        if cell.heats:
            heating.setdefault(instance_of(cell, plan), []).append(cell)
    if not heating:
        return [[(cell, 0)] for cell in shuffler.sample(cells, len(cells))]
    blocks = []
    for group in _by_system(cells, plan):
        kept = [cell for cell in group if not cell.fresh]
        fresh = [cell for cell in group if cell.fresh]
        # What wants a system of its own comes last, so that the kept one is not interrupted.
        block = [(cell, turn) for turn in range(turns) for cell in shuffler.sample(kept, len(kept))]
        block += [(cell, 0) for cell in shuffler.sample(fresh, len(fresh))]
        levels = {cell.level for cell in kept}
        heats = (
            [
                (cell, 0)
                for cell in heating[instance_of(group[0], plan)]
                if _is_first(cell) or cell.level in levels
            ]
            if kept
            else []
        )
        blocks.append([*heats, *block])
    return shuffler.sample(blocks, len(blocks))


def _by_system(cells: Sequence[PlannedCell], plan: StudyPlan) -> list[list[PlannedCell]]:
    groups: dict[str, list[PlannedCell]] = {}
    for cell in cells:
        groups.setdefault(instance_of(cell, plan), []).append(cell)
    return list(groups.values())


def instance_of(cell: PlannedCell, plan: StudyPlan) -> str:
    """What makes two cells meet the same system: L1 and L3 are one and the same on one node, and all levels where the level is a matter of topics. A cluster
    that runs is what its owner makes of it for each of the study's systems."""
    level = None if cell.level_of_topics else cell.level
    made = [cell.kind, cell.version, cell.nodes, level, cell.options, cell.tls]
    return json.dumps([*made, cell.system] if plan.addresses(cell) else made, sort_keys=True)


def _work(cell: PlannedCell) -> tuple[bool, bool, int]:
    """Warming up wants a plain load, and of such the one that has most to do: what is done for each partition is done for none of them often. But not more
    than warms: thousands of partitions are a load of their own."""
    plain = "backlog" not in cell.workload and cell.workload.get("rate") not in ("max", "sustainable")
    partitions = int(cell.workload.get("partitionsPerTopic", 1))
    within = partitions <= HEATING_PARTITIONS
    return plain, within, partitions if within else -partitions


def _rehearsed(cell: PlannedCell) -> tuple[bool, bool, int, int]:
    """Of cells of as many partitions that of most subscriptions is rehearsed: reading by many goes ways of its own."""
    return *_work(cell), int(cell.workload.get("subscriptionsPerTopic", 1))


def _heatings(group: Sequence[PlannedCell]) -> list[PlannedCell]:
    """What heats a start of a system: the load of a cell until it is steady, with a bound, and then a rehearsal, as a trial with topics of its own, of a cell
    of each level that the start serves: what flushes has ways of its own."""
    most = {
        level: max((one for one in group if one.level == level), key=_rehearsed)
        for level in sorted({one.level for one in group})
    }
    first = max(group, key=_work)
    return [
        _heating(first, WARMING_UP, HEATING_LIMIT_S, HEATING_MEASURED_S, usual_s=HEATING_USUAL_S),
        *(_heating(cell, "rehearsal-of", REHEARSAL_WARMUP_S, REHEARSAL_S) for cell in most.values()),
    ]


def _is_first(cell: PlannedCell) -> bool:
    """Of those that heat a start."""
    return cell.cell.startswith(WARMING_UP)


def _heating(
    cell: PlannedCell, called: str, warmup_s: float, measured_s: float, usual_s: float | None = None
) -> PlannedCell:
    """A cell that is not counted, with the load of one that is. `usual_s`: its warm-up ends when the load is steady, usually after so long."""
    name = f"{called}-{cell.cell}"
    left_out = ("backlog", "search", "ramp", "steps", "surges")
    workload = {key: value for key, value in cell.workload.items() if key not in left_out}
    workload |= {
        "name": name,
        "warmup": ("" if usual_s is None else "auto:") + format_duration(warmup_s),
        "duration": format_duration(measured_s),
    }
    if workload.get("rate") in ("max", "sustainable"):
        workload["rate"] = HEATING_MSGS_S
    return cell.model_copy(
        update={
            "cell": name,
            "title": f"{cell.system_title}: warming up",
            "workload": workload,
            "heats": True,
            "trial_s": AROUND_S + (usual_s or warmup_s) + measured_s,
            "scaled": [],
        }
    )
