"""Profiles of a run for its page: a flame graph of each process, of the measured phase and of its slowest seconds, with the functions in a table.

Of the trials of one system and workload that with the median p99 is shown, as in the charts over time; the samples of all of them are in profile.parquet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgauge.analysis import profiles
from streamgauge.analysis.cells import Cell
from streamgauge.analysis.intervals import Intervals, Window, read_resources, series
from streamgauge.analysis.profiles import Function, Sampled
from streamgauge.model.result import TrialResult
from streamgauge.model.result_profile import Profile
from streamgauge.report.details import Grid
from streamgauge.report.explain import STATES
from streamgauge.report.run import Run
from streamgauge.vocabulary.format import percent, plural, seconds
from streamgauge.vocabulary.phases import MEASURE

NODES_MAX = 1200
"""Of a graph."""
FUNCTIONS_MAX = 40
MADE_AT_RUN_TIME = "[code made at run time]"
"""As samples of it are kept (model/result_columns.py)."""
GRAPHS_MAX = 24
"""Of a page; the others are named."""
HOW = {
    "cpu": "Each sample is {period} of CPU time, in the program or in the kernel for it (perf).",
    "java": "Each sample is a thread that ran Java code when it was looked at, every {period} (Flight Recorder).",
    "native": "Each sample is a thread in native code when one was looked at, every {period}, at work or waiting, as for the network (Flight Recorder).",
}


@dataclass(frozen=True)
class Graph:
    """Of one process and state."""

    title: str
    how: str
    explanation: str
    nodes: dict[str, Any]
    """What the script draws (assets/flames.js)."""
    table: Grid
    has_slowest: bool


@dataclass(frozen=True)
class ProfiledTrial:
    """Of one system and workload."""

    label: str
    chosen: str
    """Which seconds are the slowest."""
    graphs: Sequence[Graph]


def figures(run: Run, labels: Sequence[str]) -> list[ProfiledTrial]:
    """The profiles of a run; empty where nothing was profiled."""
    found: list[ProfiledTrial] = []
    left = GRAPHS_MAX
    for cell, label in zip(run.cells, labels, strict=False):
        trial = _shown(cell)
        if trial is None or left <= 0:
            continue
        graphs = list(_graphs(run, trial))[:left]
        left -= len(graphs)
        many = sum(one.profiled is not None for one in cell.trials)
        assert trial.profiled is not None
        chosen = profiles.chosen_text(trial.profiled)
        which = f"{label}, trial {trial.trial}" if many > 1 else label
        found.append(ProfiledTrial(which, chosen, graphs))
    return found


def island(trials: Sequence[ProfiledTrial]) -> dict[str, Any]:
    """What the script draws, by the places that the template makes."""
    return {
        f"{at}-{number}": graph.nodes
        for at, trial in enumerate(trials)
        for number, graph in enumerate(trial.graphs)
    }


def _shown(cell: Cell) -> TrialResult | None:
    """The trial whose p99 is the median."""
    able = [one for one in cell.counted if one.profiled is not None] or [
        one for one in cell.trials if one.profiled is not None
    ]
    able.sort(key=lambda one: one.headline_ms.p99 or float("inf"))
    return able[(len(able) - 1) // 2] if able else None


def _graphs(run: Run, trial: TrialResult) -> Iterator[Graph]:
    assert trial.profiled is not None
    directory = run.directory_of(trial)
    intervals = Intervals.read(directory)
    lined_up = series(intervals, read_resources(directory), None)
    measured = next((phase for phase in trial.phases if phase.name == MEASURE), None)
    if measured is None or measured.until_s is None:
        return
    window = Window(measured.from_s, measured.until_s)
    slow = np.isin(lined_up.start_s[lined_up.within(window)], trial.profiled.slowest_s)
    told = {(one.process, one.role, one.state): one for one in trial.profiled.profiles}
    for sampled in profiles.read(directory, lined_up, window):
        profile = told.get(
            (sampled.process, "worker" if sampled.role == "worker" else "system", sampled.state)
        )
        if profile is not None:
            yield _graph(sampled, profile, slow)


def _graph(sampled: Sampled, profile: Profile, slow: Any) -> Graph:
    who = "generator" if profile.role == "worker" else "system"
    title = f"{sampled.process} ({who}): {STATES.get(sampled.state, sampled.state)}"
    period = seconds(sampled.period_s) if sampled.period_s >= 1 else f"{1e3 * sampled.period_s:g} ms"
    how = HOW.get(sampled.state, "").format(period=period)
    if any(MADE_AT_RUN_TIME in stack for stack in sampled.stacks):
        how += " What a process has compiled for itself has no names here, and who called it is not seen."
    nodes = profiles.tree(sampled, slow, NODES_MAX)
    names = list(dict.fromkeys(node.name for node in nodes))
    number = {name: at for at, name in enumerate(names)}
    there = int(slow[sampled.at].sum())
    rows = profiles.functions(sampled, slow, FUNCTIONS_MAX)
    return Graph(
        title=title,
        how=f"{how} There are {plural(profile.samples, 'sample')} of the measured phase, {profile.samples_slowest:,} of them in the slowest seconds.",
        explanation=profile.explanation,
        nodes={
            "title": title,
            "names": names,
            # Name, depth, samples in the slowest seconds, samples in the others.
            "nodes": [[number[node.name], node.depth, node.slowest, node.rest] for node in nodes],
            # What stands out in the slowest seconds beyond chance.
            "more": [one.function for one in profile.stands_out],
            "slowest": there,
            "rest": len(sampled.stack) - there,
        },
        table=_table(title, rows),
        has_slowest=there > 0,
    )


def _table(title: str, rows: Sequence[Function]) -> Grid:
    return Grid.of(
        f"{title}: functions by their share of the samples",
        rows,
        {
            "function": lambda one: one.name,
            "on the stack": lambda one: percent(one.share, 1),
            "itself": lambda one: percent(one.own, 1),
            "slowest seconds": lambda one: percent(one.slowest, 1),
            "the rest": lambda one: percent(one.rest, 1),
        },
    )
