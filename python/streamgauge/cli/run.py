"""`streamgauge run`: workloads on systems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete, names
from streamgauge.cli.gates import Asked, FailIfOption, UndecidedOption
from streamgauge.cli.outputs import JsonOption, JunitOption, MarkdownOption, Outputs

DEFAULT_SYSTEM = "gauge-log"
OUT = Path("runs")

SystemOption = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="NAME[@VERSION][,NAME...]",
        autocompletion=complete.systems,
        help=f"Systems to measure, by name or by system file [default: {DEFAULT_SYSTEM}].",
    ),
]
NodesOption = Annotated[int | None, typer.Option("--nodes", metavar="N", min=1, help="Nodes of each system.")]
DurabilityOption = Annotated[
    str | None,
    typer.Option(
        "--durability",
        metavar="|".join(names.LEVELS),
        autocompletion=complete.words(*names.LEVELS),
        help="Durability level (docs/method.md).",
    ),
]
TlsOption = Annotated[
    str | None,
    typer.Option(
        "--tls",
        metavar="on|off|both",
        autocompletion=complete.words("on", "off", "both"),
        help="Clients reach the system over TLS, with certificates made for it; both: trials without and with it (docs/security.md).",
    ),
]
RateOption = Annotated[
    str | None,
    typer.Option(
        "--rate",
        metavar="RATE|max|sustainable",
        help="Messages per second over all producers: 50000, 50k, max; sustainable searches for the maximum.",
    ),
]
DurationOption = Annotated[
    str | None, typer.Option("--duration", metavar="TIME", help="Measured time, such as 30s or 5m.")
]
WarmupOption = Annotated[
    str | None,
    typer.Option(
        "--warmup", metavar="TIME|auto", help="Warm-up before it, at the same rate; auto: until steady."
    ),
]
RepeatOption = Annotated[
    int,
    typer.Option(
        "--repeat", "--repeats", metavar="N", min=1, max=1000, help="Trials of each workload on each system."
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="N", min=0, max=2**32 - 1, help="Repeats the arrivals and order of a run."
    ),
]
OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the run's directory is made.")]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Where systems keep their data [default: in the run's directory]."
    ),
]
EventsOption = Annotated[
    str | None,
    typer.Option("--events", metavar="FILE|-", help="Write events as JSON lines; - is standard output."),
]

TrustOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trust-file",
        metavar="FILE",
        help="Let this file's options run code and read files elsewhere (docs/security.md); may be repeated.",
    ),
]

FleetOption = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="FILE|kubernetes[:FILE]|omb:URL[,URL]",
        help="Load workers on other machines: a hosts file, or a cluster as kubernetes.yaml says (docs/fleet.md); or workers of the "
        "OpenMessaging Benchmark (docs/omb-fleet.md).",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        max=64,
        help="Load workers that share the load [default: 1, or all of the fleet's].",
    ),
]
TopologyOption = Annotated[
    str,
    typer.Option(
        "--topology",
        metavar="same|split|swarm",
        autocompletion=complete.words("same", "split", "swarm"),
        help="Several workers: producers and consumers on the same ones, or apart; swarm: each reads everything and measures its own messages.",
    ),
]
OnWorkerLossOption = Annotated[
    str,
    typer.Option(
        "--on-worker-loss",
        metavar="end|go-on",
        autocompletion=complete.words("end", "go-on"),
        help="A worker of several is lost: end the trial, or let the others take over its rate.",
    ),
]


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
    durability: DurabilityOption = None,
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
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="ADDRESS",
            help="Address of this machine on which systems are started, for workers elsewhere [default: 127.0.0.1]; with --tls on, or --insecure.",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="With --at: no one has to log in; whoever reaches the address can read, write and delete everything there.",
        ),
    ] = False,
    events: EventsOption = None,
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
            autocompletion=complete.listed(names.FAULTS),
            help="Break the system on purpose while it is measured: kill:1@10s,restart@20s (docs/durability.md).",
        ),
    ] = None,
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
    from streamgauge.cli.execute import Request, execute
    from streamgauge.fleet.choice import choose_fleet
    from streamgauge.model.overrides import Overrides
    from streamgauge.model.trust import Trust
    from streamgauge.vocabulary.errors import InputError

    if connect and not system:
        raise InputError("--connect needs --system: which system is it that runs there?")
    overrides = Overrides.parse(
        rate=rate,
        duration=duration,
        warmup=warmup,
        size=size,
        partitions=partitions,
        batch_bytes=batch_bytes,
        linger=linger,
        in_flight=in_flight,
        backlog=backlog,
        fault=fault,
        allow_unstamped=allow_unstamped,
    )
    request = Request(
        workloads=tuple(workloads or ["1-topic-16-partitions-100b"]),
        systems=system or DEFAULT_SYSTEM,
        nodes=nodes,
        durability=durability,
        tls=tls,
        connect=tuple(connect.split(",")) if connect else (),
        at=at,
        insecure=insecure,
        overrides=replace(overrides, trust=Trust.parse(trust_file)),
        repeat=repeat,
        seed=seed,
        out=out,
        data=data,
        events=events,
        fleet=choose_fleet(fleet, workers, topology, on_worker_loss),
        gates=Asked(tuple(fail_if or ()), baseline, undecided, Outputs(json, markdown, junit)),
    )
    raise typer.Exit(execute(request))
