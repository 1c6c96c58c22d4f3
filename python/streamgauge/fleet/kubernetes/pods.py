"""What becomes of the workers' pods, as the cluster sees it.

The heartbeat (fleet.heartbeat) notices every loss; the cluster often knows earlier, and why: evicted, out of memory,
stopped, its node gone. A watch tells it as it happens.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgauge.fleet.kubernetes.api import EXPIRED, Cluster, ClusterError
from streamgauge.fleet.kubernetes.objects import CONTAINER, INDEX_LABEL
from streamgauge.vocabulary.background import Background

WATCH_S = 240
AGAIN_S = 1.0
HOPELESS = frozenset(
    {"ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"}
)
"""Reasons to wait that waiting does not mend."""
SIGNALS = {137: "SIGKILL", 143: "SIGTERM"}


@dataclass(frozen=True)
class PodState:
    """One look at a pod."""

    name: str
    uid: str
    index: int | None
    node: str
    ended: str | None
    """How it ended, when it did: the end of a sentence whose subject is the pod."""
    waiting: str | None
    """What it waits for, while it does."""
    hopeless: bool

    @classmethod
    def of(cls, pod: Any) -> PodState:
        """What a pod's object says."""
        status, labels = pod.status, pod.metadata.labels or {}
        index = labels.get(INDEX_LABEL, "")
        waiting, hopeless = _waiting(status)
        return cls(
            name=pod.metadata.name,
            uid=pod.metadata.uid,
            index=int(index) if index.isdigit() else None,
            node=pod.spec.node_name or "",
            ended=_ended(pod),
            waiting=waiting,
            hopeless=hopeless,
        )


def _container(status: Any) -> Any:
    for one in status.container_statuses or []:
        if one.name == CONTAINER:
            return one.state
    return None


def _ended(pod: Any) -> str | None:
    status = pod.status
    state = _container(status)
    if state is not None and state.terminated is not None:
        return _end_of(state.terminated, status)
    if status.phase in ("Failed", "Succeeded"):
        why = ": ".join(part for part in (status.reason, status.message) if part)
        return f"has ended ({why or status.phase})"
    if pod.metadata.deletion_timestamp is not None:
        return "is being removed from the cluster" + _disruption(status)
    return None


def _end_of(end: Any, status: Any) -> str:
    code = end.exit_code
    named = f" ({SIGNALS[code]})" if code in SIGNALS else ""
    reason = f", {end.reason}" if end.reason not in (None, "Error", "Completed") else ""
    pod_reason = f", {status.reason}" if status.reason else ""
    return f"ended with status {code}{named}{reason}{pod_reason}{_disruption(status)}"


def _disruption(status: Any) -> str:
    for one in status.conditions or []:
        if one.type == "DisruptionTarget" and one.status == "True":
            return f": {one.message or one.reason}"
    return ""


def _waiting(status: Any) -> tuple[str | None, bool]:
    state = _container(status)
    if state is not None and state.waiting is not None:
        reason, message = state.waiting.reason or "waiting", state.waiting.message
        return f"{reason}: {message}" if message else reason, reason in HOPELESS
    for one in status.conditions or []:
        if one.type == "PodScheduled" and one.status == "False":
            return f"{one.reason}: {one.message}" if one.message else str(one.reason), False
    return None, False


class PodWatch(Background):
    """Knows the latest state of each pod with some labels. Its thread ends with `stop`, or with the lab."""

    def __init__(self, cluster: Cluster, labels: Mapping[str, str]) -> None:
        # What comes later is not seen, and nobody waits for the connection to close.
        super().__init__("pods", 0.0)
        self._cluster = cluster
        self._labels = dict(labels)
        self._states: dict[str, PodState] = {}
        self._gone: set[str] = set()
        self._lock = threading.Lock()

    def states(self) -> list[PodState]:
        """All that are there."""
        with self._lock:
            return list(self._states.values())

    def end_of(self, pod: str) -> str | None:
        """How a pod ended or is about to, as the end of a sentence; None while it runs."""
        with self._lock:
            if pod in self._gone:
                return "was removed from the cluster"
            state = self._states.get(pod)
        return state.ended if state is not None else None

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except ClusterError as error:
                # The API server may be away while the workers go on: the heartbeat is what counts.
                if error.status != EXPIRED:
                    self._stop.wait(AGAIN_S)

    def _follow(self) -> None:
        pods, version = self._cluster.pods(self._labels)
        states = {pod.metadata.name: PodState.of(pod) for pod in pods}
        with self._lock:
            self._gone |= self._states.keys() - states.keys()
            self._states = states
        for kind, pod in self._cluster.watch_pods(self._labels, version, WATCH_S):
            if self._stop.is_set():
                return
            with self._lock:
                if kind == "DELETED":
                    self._states.pop(pod.metadata.name, None)
                    self._gone.add(pod.metadata.name)
                else:
                    self._states[pod.metadata.name] = PodState.of(pod)
