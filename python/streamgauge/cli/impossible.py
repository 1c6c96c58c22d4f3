"""What does not go together: told with all other problems of the input, before anything is fetched or started."""

from __future__ import annotations

import dataclasses

from streamgauge.fleet.choice import FleetChoice
from streamgauge.fleet.omb.refusals import refusals
from streamgauge.model.fault import ON_NETWORK, ON_STORAGE
from streamgauge.model.system_file import SystemChoice
from streamgauge.model.workload import Workload
from streamgauge.systems.base import System
from streamgauge.systems.registry import systems
from streamgauge.systems.support import network, powercut
from streamgauge.systems.support.network import own_address
from streamgauge.vocabulary.errors import InputError, Problem


def impossible(
    fleet: FleetChoice, workloads: list[Workload], choices: list[SystemChoice[System]]
) -> list[Problem]:
    """A problem for each workload, system and fleet that cannot be together here."""
    return [
        *_faults_of_others(workloads, choices),
        *_impossible_faults(workloads, choices),
        *_out_of_reach(fleet, choices),
        *_backlogs_of_swarms(fleet, workloads),
        *_of_omb(fleet, workloads, choices),
        *_awake_elsewhere(fleet, workloads, choices),
        *_profiles_of_others(workloads, choices),
    ]


def _awake_elsewhere(
    fleet: FleetChoice, workloads: list[Workload], choices: list[SystemChoice[System]]
) -> list[Problem]:
    """Only this machine's CPUs are kept awake."""
    elsewhere = fleet.is_elsewhere or any(choice.request.connect for choice in choices)
    return [
        Problem(
            f"{workload.name}: idle poll keeps CPUs of this machine awake, and workers or systems run on others: expected halt, or all of it here"
        )
        for workload in workloads
        if workload.idle == "poll" and elsewhere
    ]


def _profiles_of_others(workloads: list[Workload], choices: list[SystemChoice[System]]) -> list[Problem]:
    """Where nothing is started there is no system that could be profiled."""
    profiled = [workload.name for workload in workloads if workload.profile]
    return [
        Problem(
            f"{choice.name}: a cluster that already runs (connect) cannot be profiled ({', '.join(profiled)}): of all that takes part only the "
            "generator is the lab's, and its profile alone says nothing of the system; expected a system that the lab starts, or no --profile"
        )
        for choice in choices
        if profiled and choice.request.connect
    ]


def started_at(
    address: str, choices: list[SystemChoice[System]], *, insecure: bool
) -> list[SystemChoice[System]]:
    """Systems that are started on another address of this machine than loopback: clients reach them over TLS and log in, or
    `insecure` says that nobody else reaches that address. Raises InputError.
    """
    try:
        placement = own_address(address)
    except ValueError as error:
        raise InputError(f"--at {address}: {error}; expected an address of this machine") from None
    problems = [
        Problem(f"--at {address}: {choice.name} {reason}")
        for choice in choices
        for reason in (_why_not_there(choice, insecure=insecure),)
        if reason
    ]
    if problems:
        raise InputError(problems)
    return [
        dataclasses.replace(
            choice, request=dataclasses.replace(choice.request, placement=placement, guarded=not insecure)
        )
        for choice in choices
    ]


def _why_not_there(choice: SystemChoice[System], *, insecure: bool) -> str | None:
    if choice.request.connect:
        return "is not started, it runs already (connect); leave one of the two out"
    if not choice.system.placed:
        return f"is started on loopback alone; those that can be elsewhere: {_placed()}"
    if not choice.request.tls and not insecure:
        return (
            "would serve whoever reaches that address, in plain text: expected --tls on (clients then log in, with credentials "
            "that are made for each start), or --insecure when the network is yours alone"
        )
    return None


def reachable(choices: list[SystemChoice[System]]) -> list[str]:
    """Who is served where, of systems that are started beyond loopback."""
    notes = []
    for choice in choices:
        request = choice.request
        if request.placement is None:
            continue
        where = f"{choice.name}: clients are served at {request.placement.host(1)}"
        if request.guarded:
            who = "over TLS, once they have logged in with credentials of this start"
        else:
            who = f"whoever they are, {'over TLS' if request.tls else 'in plain text'} (--insecure): all that reach it can read, write and delete"
        notes.append(f"{where} {who}; everything else listens on loopback")
    return notes


def _faults_of_others(workloads: list[Workload], choices: list[SystemChoice[System]]) -> list[Problem]:
    """A cluster that was running already is not ours to break."""
    broken = [workload.name for workload in workloads if workload.faults]
    return [
        Problem(
            f"{choice.name}: faults ({', '.join(broken)}) cannot be made in a cluster that already runs (connect)"
        )
        for choice in choices
        if broken and choice.request.connect
    ]


def _impossible_faults(workloads: list[Workload], choices: list[SystemChoice[System]]) -> list[Problem]:
    """What this machine lacks for faults, and what a system does not support: told before anything starts."""
    asked = {fault.action for workload in workloads for fault in workload.faults}
    problems = []
    for actions, missing in ((ON_STORAGE, powercut.missing), (ON_NETWORK, network.missing)):
        wanted = sorted(asked & actions)
        lacking = missing() if wanted else None
        if lacking is not None:
            problems.append(Problem(f"--fault {wanted[0]} cannot be made here: {lacking}"))
    if asked & ON_NETWORK:
        problems += [
            Problem(
                f"--fault cut-network: {choice.system.title} is started on loopback alone, where no node has a network that "
                f"could be cut; systems that can be started in networks of their own: {_placed()}"
            )
            for choice in choices
            if not choice.system.placed
        ]
        problems += [
            Problem(
                f"--fault cut-network: {choice.name}: its ports (key 'ports') are on loopback; leave them out"
            )
            for choice in choices
            if choice.system.placed and choice.request.options.get("ports")
        ]
        problems += [
            Problem(
                f"--fault cut-network: {choice.name}: its nodes get networks of their own; leave --at out"
            )
            for choice in choices
            if choice.request.placement is not None
        ]
    return problems


def _placed() -> str:
    return ", ".join(name for name, system in systems().items() if system.placed)


def _out_of_reach(fleet: FleetChoice, choices: list[SystemChoice[System]]) -> list[Problem]:
    """A system that the lab starts listens where workers elsewhere cannot reach it."""
    if fleet.kubernetes is not None:
        who = "--fleet kubernetes", "pods"
    elif fleet.hosts is not None and any(_is_elsewhere(host.host) for host in fleet.hosts.hosts):
        who = "--fleet", "workers on other machines"
    elif fleet.omb is not None and fleet.omb.elsewhere:
        who = "--fleet omb", fleet.omb.elsewhere[0]
    else:
        return []
    return [
        Problem(
            f"{who[0]}: {choice.name} would be started here on loopback, where {who[1]} cannot reach it: "
            "expected --at ADDRESS with an address of this machine that they reach, or a cluster that runs: --connect HOST:PORT"
        )
        for choice in choices
        if not choice.request.connect and choice.request.placement is None
    ]


def _is_elsewhere(host: str) -> bool:
    """Whether a worker's host is another machine, as far as the address tells; a name is taken for one."""
    try:
        own_address(host)
    except ValueError:
        return host != "localhost"
    return False


def _of_omb(
    fleet: FleetChoice, workloads: list[Workload], choices: list[SystemChoice[System]]
) -> list[Problem]:
    """OMB's workers can do less than ours."""
    if fleet.omb is None:
        return []

    return refusals(workloads, choices)


def _backlogs_of_swarms(fleet: FleetChoice, workloads: list[Workload]) -> list[Problem]:
    """In a swarm every worker has subscriptions of its own."""
    return [
        Problem(
            f"{workload.name}: a backlog is read by the subscriptions of the workload: --topology same or split"
        )
        for workload in workloads
        if workload.backlog is not None and fleet.topology == "swarm"
    ]
