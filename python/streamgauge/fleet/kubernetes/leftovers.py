"""Removes what was placed, and what a lab has left that was killed.

Every placement says on its Job which lab it belongs to and when that was last there (`objects.HOLDER`, `RENEWED`). A
lab of this machine whose process is gone is dead; one of another machine is taken for dead when it has not renewed for
two minutes. So the next start removes what the last one left, and never what another lab still works with.
"""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from streamgauge.fleet.kubernetes.api import Cluster, ClusterError
from streamgauge.fleet.kubernetes.objects import HOLDER, MANAGED_BY, RENEWED, RUN_LABEL
from streamgauge.vocabulary.waiting import wait_until

RENEW_EVERY_S = 15.0
DEAD_AFTER_S = 120.0
REMOVED_WITHIN_S = 20.0
POLITE_S = 3.0
"""Pods of nodes that answer are gone by then; the others' are forced."""
POLL_S = 0.2


@dataclass(frozen=True)
class Placed:
    """A placement that is there."""

    name: str
    holder: str
    unseen_s: float | None
    """Since its lab was last there; None when nothing says so."""

    @property
    def held(self) -> bool:
        """Whether its lab still works with it."""
        lives = holder_lives(self.holder)
        if lives is not None:
            return lives
        return self.unseen_s is not None and self.unseen_s < DEAD_AFTER_S

    @property
    def whose(self) -> str:
        """Its lab, for people."""
        host, _, pid = parts(self.holder)[:3]
        return f"process {pid} on {host}" if host else "nobody known"


@dataclass(frozen=True)
class Swept:
    """What was done with a placement: removed, or left and why."""

    placed: Placed
    left: tuple[str, ...]
    """What is still there although it was to be removed."""
    removed: bool


def boot() -> str:
    """Tells this start of this machine from all others, whatever it is called."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{psutil.boot_time():.0f}"


def holder() -> str:
    """This lab."""
    process = psutil.Process()
    return f"{socket.gethostname()}/{boot()}/{process.pid}/{process.create_time():.2f}"


def parts(text: str) -> tuple[str, str, str, str]:
    """Host, boot, process and its start; empty texts when it is not a holder's."""
    found = text.split("/")
    return (found[0], found[1], found[2], found[3]) if len(found) == 4 else ("", "", "", "")


def holder_lives(text: str) -> bool | None:
    """Whether a lab lives; None when that cannot be seen from here."""
    host, booted, pid, started = parts(text)
    if not pid.isdigit() or (host, booted) != (socket.gethostname(), boot()):
        return None
    try:
        return f"{psutil.Process(int(pid)).create_time():.2f}" == started
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return None


def placements(cluster: Cluster) -> list[Placed]:
    """All that labs have placed in the namespace. Raises ClusterError."""
    found = []
    for job in cluster.jobs(MANAGED_BY):
        notes = job.metadata.annotations or {}
        unseen_s = None
        with contextlib.suppress(ValueError):
            unseen_s = time.time() - float(notes.get(RENEWED, ""))
        found.append(Placed(job.metadata.name, notes.get(HOLDER, ""), unseen_s))
    return found


def sweep(cluster: Cluster, *, everything: bool = False) -> list[Swept]:
    """Removes the placements of labs that are dead; `everything`: of the living as well. Raises ClusterError."""
    swept = []
    for one in placements(cluster):
        if one.held and not everything:
            swept.append(Swept(one, (), removed=False))
        else:
            swept.append(Swept(one, tuple(remove(cluster, one.name)), removed=True))
    return swept


def remove(cluster: Cluster, name: str, within_s: float = REMOVED_WITHIN_S) -> list[str]:
    """Removes a placement and waits until nothing of it is there; what is left after `within_s`. Raises ClusterError."""
    labels = {**MANAGED_BY, RUN_LABEL: name}
    forced_s = time.monotonic() + POLITE_S
    cluster.delete_job(name)
    cluster.delete_others(labels)
    for pod in cluster.pods(labels)[0]:
        cluster.delete_pod(pod.metadata.name, grace_s=1)
    left: list[str] = []

    def missing() -> str | None:
        nonlocal left
        pods = cluster.pods(labels)[0]
        left = [f"{kind} {one}" for kind, one in cluster.others(labels)]
        left += [f"pod {pod.metadata.name}" for pod in pods]
        left += [f"Secret {name}"] if cluster.delete_secret(name) else []
        left += [f"Job {job.metadata.name}" for job in cluster.jobs(labels)]
        if pods and time.monotonic() > forced_s:
            # Nobody confirms the end of a pod whose node does not answer. Its worker stops by its lease, and the node
            # removes it when it is back.
            for pod in pods:
                cluster.delete_pod(pod.metadata.name, grace_s=0)
        return f"the end of {', '.join(left)}" if left else None

    wait_until(missing, within_s, POLL_S)
    return left


def remove_at_once(cluster: Cluster, name: str) -> None:
    """Has a placement removed and does not wait for it. Never raises."""
    with contextlib.suppress(ClusterError):
        cluster.delete_job(name)
        for pod in cluster.pods({**MANAGED_BY, RUN_LABEL: name})[0]:
            cluster.delete_pod(pod.metadata.name, grace_s=0)
