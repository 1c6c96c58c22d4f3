"""`streamgauge run`: workloads on systems."""

from __future__ import annotations

from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import (
    OUT,
    AtOption,
    DataOption,
    DurabilityOfRunOption,
    DurationOption,
    EventsOption,
    FailIfOption,
    FleetOption,
    InsecureOption,
    JsonOption,
    JunitOption,
    LiveOption,
    MarkdownOption,
    MetricsOption,
    NodesOption,
    OnWorkerLossOption,
    OutOption,
    ProfileOption,
    QuietOption,
    RateOption,
    RepeatOption,
    SeedOption,
    SystemOption,
    TlsOption,
    TokenFileOption,
    TopologyOption,
    TrustOption,
    UndecidedOption,
    WarmupOption,
    WorkersOption,
)
from streamgauge.vocabulary.choices import FAULTS, IDLES


@deferred("streamgauge.cli.run:run")
def run(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORKLOAD...]",
            autocompletion=complete.workload,
            help="Workload files, or names (streamgauge workloads).",
        ),
    ] = None,
    system: SystemOption = None,
    nodes: NodesOption = None,
    durability: DurabilityOfRunOption = None,
    tls: TlsOption = None,
    rate: RateOption = None,
    duration: DurationOption = None,
    warmup: WarmupOption = None,
    repeat: RepeatOption = 1,
    seed: SeedOption = None,
    out: OutOption = OUT,
    data: DataOption = None,
    connect: Annotated[
        str | None,
        typer.Option(
            "--connect",
            metavar="HOST:PORT[,...]",
            help="Measure a cluster that runs already; it is left running.",
        ),
    ] = None,
    system_metrics: Annotated[
        str | None,
        typer.Option(
            "--system-metrics",
            metavar="URL[,...]",
            help="With --connect: where the cluster's processes tell their own metrics. And every-second: read them each second, which slows a system down.",
        ),
    ] = None,
    agents: Annotated[
        str | None,
        typer.Option(
            "--agents",
            metavar="FILE|HOST:PORT[,...]",
            help="With --connect: agents (gauge agent) on the cluster's machines: a file of hosts, or addresses on loopback.",
        ),
    ] = None,
    at: AtOption = None,
    insecure: InsecureOption = False,
    events: EventsOption = None,
    live: LiveOption = None,
    metrics: MetricsOption = None,
    token_file: TokenFileOption = None,
    quiet: QuietOption = False,
    size: Annotated[
        str | None, typer.Option("--size", metavar="BYTES", help="Message size: 100, 1kB, 1KiB.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", metavar="N", help="Partitions per topic.")
    ] = None,
    linger: Annotated[
        str | None, typer.Option("--linger", metavar="TIME", help="How long a batch may wait: 1ms, 500us.")
    ] = None,
    batch_bytes: Annotated[
        str | None, typer.Option("--batch-bytes", metavar="BYTES", help="How much a batch may hold.")
    ] = None,
    in_flight: Annotated[
        int | None, typer.Option("--in-flight", metavar="N", help="Requests per connection.")
    ] = None,
    backlog: Annotated[
        str | None,
        typer.Option(
            "--backlog",
            metavar="BYTES",
            help="Size of the backlog that is built and read: 500MB, 2GiB; 0 for none.",
        ),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="FAULT@TIME[,...]",
            autocompletion=complete.listed(FAULTS),
            help="Break the system on purpose while it is measured: kill:1@10s,restart@20s (docs/durability.md).",
        ),
    ] = None,
    idle: Annotated[
        str | None,
        typer.Option(
            "--idle",
            metavar="|".join(IDLES),
            autocompletion=complete.words(*IDLES),
            help="`poll` keeps this machine's CPUs awake when they have nothing to do; never compared with `halt` (docs/quiet-time.md).",
        ),
    ] = None,
    profile: ProfileOption = False,
    quiet_limit: Annotated[
        float,
        typer.Option(
            "--quiet-limit",
            metavar="TIMES",
            min=1,
            help="On a disturbed machine go on until as much was quiet as --duration asks for, so many times as long at most; 1 for never longer.",
        ),
    ] = 3.0,
    allow_unstamped: Annotated[
        bool,
        typer.Option("--allow-unstamped", help="Allow messages below 32 bytes: no audit, no end-to-end."),
    ] = False,
    fleet: FleetOption = None,
    workers: WorkersOption = None,
    topology: TopologyOption = "same",
    on_worker_loss: OnWorkerLossOption = "end",
    fail_if: FailIfOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="RUN[:SYSTEM]",
            autocompletion=complete.run,
            help="Gates are on the ratio to this run; `latest` is the latest before this one.",
        ),
    ] = None,
    undecided: UndecidedOption = None,
    json: JsonOption = None,
    markdown: MarkdownOption = None,
    junit: JunitOption = None,
    trust_file: TrustOption = None,
) -> None:
    """Measure one or more workloads on one or more systems.

    Every trial starts its system fresh, warms it up, measures, audits that no message was lost, and stops and
    wipes it. Ctrl-C keeps what was measured.
    """
