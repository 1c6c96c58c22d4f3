"""What cannot be measured with OMB's workers, said before anything is started."""

from __future__ import annotations

from collections.abc import Sequence

from streamgauge.model.system_file import SystemChoice
from streamgauge.model.system_kind import SystemKind
from streamgauge.model.workload import Workload
from streamgauge.vocabulary.errors import Problem

SECRETS = ("token", "username", "password", "security")


def refusals(workloads: list[Workload], choices: Sequence[SystemChoice[SystemKind]]) -> list[Problem]:
    """A problem for each workload and system that OMB's workers cannot drive, and what can be done instead."""
    return [
        *(
            Problem(f"--fleet omb: {workload.name}: {text}")
            for workload in workloads
            for text in _load(workload)
        ),
        *(Problem(f"--fleet omb: {choice.name}: {text}") for choice in choices for text in _system(choice)),
    ]


def _load(workload: Workload) -> list[str]:
    found = []
    if workload.consumes_only:
        found.append("OMB's consumers read as soon as they exist, and cannot wait for the trial to begin")
    if workload.search is not None:
        found.append(
            "the search for the sustainable rate needs intervals of 100 ms and what waits, which OMB's workers do not tell: give a rate"
        )
    elif workload.arrival == "closed":
        found.append("OMB's workers have no closed loop, they pace: give a rate (--rate 50000)")
    elif workload.arrival != "uniform":
        found.append(f"arrival {workload.arrival}: OMB's workers pace uniformly")
    if workload.ramp_to_msgs_s is not None:
        found.append("a ramp: OMB's workers change their rate at once only; write steps instead")
    if any(step.over_s > 0 for step in workload.steps):
        found.append("steps that take time (over): OMB's workers change their rate at once only")
    if workload.keys == "zipf":
        found.append("keys zipf: OMB's workers send keys in turn (keyed), or none")
    if workload.processing_ms_per_msg or workload.processing_ms_per_fetch:
        found.append("slow consumers (processing): OMB's workers take messages as they come")
    if workload.faults:
        found.append("faults are seen in the times of acknowledgements, which OMB's workers do not tell")
    if workload.backlog is not None and (
        workload.backlog.reader != "same" or workload.subscriptions_per_topic > 1
    ):
        found.append(
            "a backlog with OMB's workers is read by a single subscription that was paused before (reader same): they pause all consumers at once"
        )
    return found


def _system(choice: SystemChoice[SystemKind]) -> list[str]:
    found = []
    why = choice.system.omb_workers
    if why is not None:
        found.append(f"{choice.system.title}: {why}")
    options = choice.request.options
    client = options.get("client")
    given = {*options, *(client if isinstance(client, dict) else ())}
    if choice.request.tls or (
        choice.request.security is not None and choice.request.security.tls is not None
    ):
        found.append(
            "TLS: OMB's drivers are written here for plain text, without credentials: leave it out (with --at, say --insecure)"
        )
    secrets = sorted(given & set(SECRETS))
    if secrets:
        found.append(
            f"{', '.join(secrets)}: OMB's workers write their driver's settings into their logs, so no secret is sent to them"
        )
    return found
