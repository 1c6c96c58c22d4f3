"""Options that several commands have, as the shell and `--help` see them; what they mean is read by the commands' work."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.vocabulary.choices import ON_LOSS, TOPOLOGIES
from streamgauge.vocabulary.figures import RESULT_FIGURES
from streamgauge.vocabulary.levels import LEVELS

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
        metavar="|".join(LEVELS),
        autocompletion=complete.words(*LEVELS),
        help="Durability level (docs/method.md).",
    ),
]

DurabilityOfRunOption = Annotated[
    str | None,
    typer.Option(
        "--durability",
        metavar="|".join((*LEVELS, "default")),
        autocompletion=complete.words(*LEVELS, "default"),
        help="Durability level (docs/method.md); default: each system's own [default: one level that all the systems named have].",
    ),
]

QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show nothing of how it goes: problems and results alone.")
]

ProfileOption = Annotated[
    bool,
    typer.Option(
        "--profile",
        help="Sample where system and generator spend their time, for flame graphs in the report; the result says so (docs/causes.md).",
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
        metavar="RATE[,...]|max|sustainable|sweep",
        help="Messages per second over all producers: 50000, 50k, max; sustainable searches for the maximum; a curve: 5k,10k,20k, or sweep, which chooses.",
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

LiveOption = Annotated[
    str | None,
    typer.Option(
        "--live",
        metavar="[ADDRESS]",
        help="Serve a page that shows the run while it goes on, at PORT or HOST:PORT, or at any free port of loopback when nothing follows (docs/live.md).",
    ),
]

MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="ADDRESS",
        help="Serve everything per second as OpenMetrics, for Prometheus, at PORT or HOST:PORT (docs/live.md).",
    ),
]

TokenFileOption = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Who shows the token in this file may read --live and --metrics; needed beyond loopback.",
    ),
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
        metavar="|".join(TOPOLOGIES),
        autocompletion=complete.words(*TOPOLOGIES),
        help="Several workers: producers and consumers on the same ones, or apart; swarm: each reads everything and measures its own messages.",
    ),
]

OnWorkerLossOption = Annotated[
    str,
    typer.Option(
        "--on-worker-loss",
        metavar="|".join(ON_LOSS),
        autocompletion=complete.words(*ON_LOSS),
        help="A worker of several is lost: end the trial, or let the others take over its rate.",
    ),
]

AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="ADDRESS",
        help="Address of this machine on which systems are started, for workers elsewhere [default: 127.0.0.1]; with --tls on, or --insecure.",
    ),
]

InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="With --at: no one has to log in; whoever reaches the address can read, write and delete everything there.",
    ),
]


class Undecided(StrEnum):
    """What a gate that is undecided does to the exit status."""

    fail = "fail"
    passes = "pass"


FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="'FIGURE > NUMBER'",
        autocompletion=complete.words(*RESULT_FIGURES),
        help="A gate: what must not be, such as 'publish_ms.p99 > 20' (ms), or as a ratio to a baseline 'publish_ms.p99 > 1.1'. Passed, failed (status 4) "
        "or undecided (5). May be repeated; names of figures are those of result.json (docs/gate-in-ci.md).",
    ),
]

UndecidedOption = Annotated[
    Undecided | None,
    typer.Option(
        "--undecided",
        help="What a gate does about which the trials cannot tell: end with status 5, or pass [default: fail].",
    ),
]


JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE|-", help="Write it as JSON, too; - is standard output.")
]

MarkdownOption = Annotated[
    str | None,
    typer.Option("--markdown", metavar="FILE|-", help="Write it as Markdown, too; - is standard output."),
]

JunitOption = Annotated[
    str | None,
    typer.Option("--junit", metavar="FILE|-", help="Write it as JUnit's XML, too; - is standard output."),
]


HtmlOption = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE|-",
        help="Write it as a page, too: one file that needs no network; - is standard output.",
    ),
]


class ExportFormat(StrEnum):
    """What a run can be exported to."""

    csv = "csv"
    parquet = "parquet"
    omb = "omb"


class AnswerFormat(StrEnum):
    """How an answer is printed."""

    table = "table"
    csv = "csv"
    json = "json"
