"""`streamgauge study` and `streamgauge studies`: published studies, repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import (
    OUT,
    AtOption,
    DataOption,
    EventsOption,
    FleetOption,
    InsecureOption,
    JsonOption,
    LiveOption,
    MetricsOption,
    OnWorkerLossOption,
    OutOption,
    QuietOption,
    SeedOption,
    TokenFileOption,
    TopologyOption,
    TrustOption,
    WorkersOption,
)
from streamgauge.vocabulary.choices import SCALES


@deferred("streamgauge.cli.studies:studies")
def studies(json: JsonOption = None) -> None:
    """List the studies that ship with streamgauge."""


@deferred("streamgauge.cli.study_trials:study")
def study(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|FILE|RUN]",
            autocompletion=complete.study,
            help="A study (streamgauge studies), a study file, or with --resume also a run of one.",
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            "--scale",
            metavar="|".join(SCALES),
            autocompletion=complete.words(*SCALES),
            help="As published, as this machine can, or in about 20 minutes [default: laptop].",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="--scale quick: fewer cells and nodes, short trials.")
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats",
            "--repeat",
            metavar="N",
            min=1,
            max=100,
            help="Rounds, each with one trial of every cell [default: 5; 3 if quick, and more within its budget]; of durability: power cuts.",
        ),
    ] = None,
    seed: SeedOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the latest run of the study.")] = False,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="CELL[,CELL...]", help="Only these cells: names or patterns."),
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--duration", metavar="TIME", help="Measured time of every trial.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Time for all of it: what is left after the first rounds goes to claims in doubt [default: the scale's]; with --resume: from now on.",
        ),
    ] = None,
    connect: Annotated[
        list[str] | None,
        typer.Option(
            "--connect",
            metavar="SYSTEM=HOST:PORT[,...]|SYSTEM=FILE",
            help="Measure a cluster that runs already instead of starting this system (or this variant of the study); FILE: a system file "
            "that says how it is reached; may be repeated.",
        ),
    ] = None,
    fleet: FleetOption = None,
    workers: WorkersOption = None,
    topology: TopologyOption = "same",
    on_worker_loss: OnWorkerLossOption = "end",
    at: AtOption = None,
    insecure: InsecureOption = False,
    probe_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--probe-hosts",
            metavar="FILE|HOST:PORT",
            help="Agents (gauge agent --probe-dir DIR) whose disks are probed first, kept with the run: a file of hosts, or a loopback address; repeatable.",
        ),
    ] = None,
    probe_bytes: Annotated[
        str | None,
        typer.Option(
            "--probe-bytes",
            metavar="SIZE",
            help="How much is written to each of their disks, such as 64GiB, as dd would; it is removed afterwards [default: half a second's worth].",
        ),
    ] = None,
    probe_fsync: Annotated[
        str | None,
        typer.Option(
            "--probe-fsync",
            metavar="DURATION",
            help="For how long each of their disks is synced, 10m at most; the p99 is drawn second by second [default: half a second].",
        ),
    ] = None,
    hooks: Annotated[
        Path | None,
        typer.Option(
            "--hooks",
            metavar="FILE",
            help="Commands around the blocks of clusters that run: reconfigure, start, drop-caches, stop (docs/studies.md); with --trust-file FILE.",
        ),
    ] = None,
    versions: Annotated[
        str | None,
        typer.Option(
            "--versions",
            metavar="published|current|published,current",
            help="Of systems that are started: the versions that the study was made with, today's, or both side by side [default: current].",
        ),
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Print the cells, what is scaled and how long it takes, and stop.")
    ] = False,
    out: OutOption = OUT,
    data: DataOption = None,
    events: EventsOption = None,
    live: LiveOption = None,
    metrics: MetricsOption = None,
    token_file: TokenFileOption = None,
    quiet: QuietOption = False,
    trust_file: TrustOption = None,
) -> None:
    """Repeat a published study: its report shows our figures beside the printed ones, and which claims hold here.

    Cells go in a seeded random order. Ctrl-C or a crash loses nothing: --resume goes on where it ended.
    """
