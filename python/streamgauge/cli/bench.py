"""`streamgauge bench`: a first result on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from streamgauge.cli.carry_out import execute_chosen
from streamgauge.cli.execute import Request
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import read_workload
from streamgauge.model.system_file import SystemOverrides, choose_systems, parse_tls
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.exit_status import ExitStatus

BENCH_SYSTEMS = ("gauge-log", "kafka")
BENCH_WORKLOAD = "1-topic-16-partitions-100b"
BENCH_WARM_UP = "auto:60s"
"""On 2 cores the compiler of a JVM works for half a minute; what needs no more is measured sooner."""


def bench(out: Path, data: Path | None, events: str | None, tls: str | None) -> None:
    """The work of commands/bench.py."""
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
    overrides = Overrides.of(rate="50000", duration="30s", warmup=BENCH_WARM_UP)
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
        tls=tls,
    )
    choices = choose_systems(request.systems, SystemOverrides(tls=parse_tls(tls)), known)
    raise typer.Exit(execute_chosen(request, [read_workload(BENCH_WORKLOAD, overrides)], choices))
