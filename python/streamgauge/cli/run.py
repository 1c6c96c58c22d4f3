"""`streamgauge run`: workloads on systems."""

from __future__ import annotations

from pathlib import Path

import typer

from streamgauge.cli.execute import Request, execute
from streamgauge.cli.options import DEFAULT_SYSTEM, Undecided
from streamgauge.cli.outputs import Asked, Outputs
from streamgauge.cli.pages import parse_pages
from streamgauge.fleet.choice import choose_fleet
from streamgauge.model.overrides import Overrides
from streamgauge.model.trust import Trust
from streamgauge.vocabulary.errors import InputError


def run(
    workloads: list[str] | None,
    system: str | None,
    nodes: int | None,
    durability: str | None,
    tls: str | None,
    rate: str | None,
    duration: str | None,
    warmup: str | None,
    repeat: int,
    seed: int | None,
    out: Path,
    data: Path | None,
    connect: str | None,
    system_metrics: str | None,
    agents: str | None,
    at: str | None,
    insecure: bool,
    events: str | None,
    live: str | None,
    metrics: str | None,
    token_file: str | None,
    quiet: bool,
    size: str | None,
    partitions: int | None,
    linger: str | None,
    batch_bytes: str | None,
    in_flight: int | None,
    backlog: str | None,
    fault: list[str] | None,
    idle: str | None,
    profile: bool,
    quiet_limit: float,
    allow_unstamped: bool,
    fleet: str | None,
    workers: int | None,
    topology: str,
    on_worker_loss: str,
    fail_if: list[str] | None,
    baseline: str | None,
    undecided: Undecided | None,
    json: str | None,
    markdown: str | None,
    junit: str | None,
    trust_file: list[str] | None,
) -> None:
    """The work of commands/run.py."""
    if connect and not system:
        raise InputError("--connect needs --system: which system is it that runs there?")
    overrides = Overrides.of(
        Trust.parse(trust_file),
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
        idle=idle,
        profile=profile,
        allow_unstamped=allow_unstamped,
    )
    request = Request(
        workloads=tuple(workloads or ["1-topic-16-partitions-100b"]),
        systems=system or DEFAULT_SYSTEM,
        nodes=nodes,
        durability=durability,
        tls=tls,
        connect=tuple(connect.split(",")) if connect else (),
        agents=tuple(agents.split(",")) if agents else (),
        system_metrics=tuple(system_metrics.split(",")) if system_metrics else (),
        at=at,
        insecure=insecure,
        overrides=overrides,
        quiet_limit=quiet_limit,
        repeat=repeat,
        seed=seed,
        out=out,
        data=data,
        events=events,
        pages=parse_pages(live, metrics, token_file),
        quiet=quiet,
        fleet=choose_fleet(fleet, workers, topology, on_worker_loss),
        gates=Asked(tuple(fail_if or ()), baseline, undecided, Outputs(json, markdown, junit)),
    )
    raise typer.Exit(execute(request))
