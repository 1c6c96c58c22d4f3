"""`streamgauge bench`: a first result on this machine."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import typer

from streamgauge.cli.carry_out import execute_chosen
from streamgauge.cli.execute import Request
from streamgauge.cli.pages import parse_pages
from streamgauge.model.like_with_like import alike
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import read_workload
from streamgauge.model.system_file import SystemOverrides, choose_systems, parse_tls
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.exit_status import ExitStatus

BENCH_SYSTEMS = ("gauge-log", "kafka")
BENCH_WORKLOAD = "1-topic-16-partitions-100b"
BENCH_WARM_UP = "auto:90s"
"""On 2 cores the compiler of a JVM works for half a minute; what needs no more is measured sooner."""
BENCH_RATE = "50000"
"""At most."""
BENCH_CPU_SHARE = 0.5
"""Of the CPU that can be had: what the machine can carry, with room for what comes in bursts."""


def bench(
    out: Path,
    data: Path | None,
    events: str | None,
    live: str | None,
    metrics: str | None,
    token_file: str | None,
    tls: str | None,
    profile: bool,
    quiet: bool,
) -> None:
    """The work of commands/bench.py."""
    pages = parse_pages(live, metrics, token_file)
    known = systems()
    able = []
    for name in BENCH_SYSTEMS:
        missing = known[name].missing()
        if missing:
            print(f"skipping {known[name].title}: {missing}", file=sys.stderr)
        else:
            able.append(name)
    if not able:
        print("nothing was measured: no system can run on this machine as it is", file=sys.stderr)
        raise typer.Exit(ExitStatus.FAILED)
    overrides = Overrides.of(rate=BENCH_RATE, duration="30s", warmup=BENCH_WARM_UP, profile=profile)
    request = Request(
        workloads=(BENCH_WORKLOAD,),
        systems=",".join(able),
        nodes=None,
        durability=None,
        connect=(),
        overrides=overrides,
        repeat=1,
        seed=None,
        out=out,
        data=data,
        events=events,
        pages=pages,
        tls=tls,
        quiet=quiet,
    )
    choices = choose_systems(request.systems, SystemOverrides(tls=parse_tls(tls)), known)
    choices, told = alike(choices, None)
    request = dataclasses.replace(request, told=(told,) if told else ())
    # The one that needs the most CPU finds the rate, and the others have the same.
    choices.sort(key=lambda choice: -BENCH_SYSTEMS.index(choice.system.name))
    workload = dataclasses.replace(read_workload(BENCH_WORKLOAD, overrides), pace_share=BENCH_CPU_SHARE)
    # The lab did its work, and the answer says what that is worth.
    raise typer.Exit(execute_chosen(request, [workload], choices, invalid_answers=True))
