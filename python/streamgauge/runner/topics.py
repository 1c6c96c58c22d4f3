"""The topics of a trial: created for it, or found where they are; and what a worker is asked to do with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamgauge.fleet.base import WorkerCalls
from streamgauge.model.workload import Workload
from streamgauge.runner import machine
from streamgauge.runner.plan import TrialPlan
from streamgauge.runner.request import ready_within_s, topic_names, topic_requests, trial_request
from streamgauge.systems.base import RunningSystem
from streamgauge.vocabulary.errors import SystemInputError
from streamgauge.vocabulary.format import plural, trimmed


class Topics:
    """Those of one trial."""

    def __init__(self, plan: TrialPlan, run_id: str) -> None:
        self._plan = plan
        self._run_id = run_id
        self.created: list[str] = []
        """The latest that were created, or may have been: they are ours to delete."""
        self._existing: dict[str, int] = {}
        """Topic -> partitions, where topics are read that exist."""

    @property
    def all_names(self) -> list[str]:
        """The topics that the trial uses."""
        return list(self._existing) or self.created

    def create(
        self, workload: Workload, running: RunningSystem, client: WorkerCalls, *, probe: int | None = None
    ) -> None:
        """Creates topics with names that no other trial and no other probe has. Raises WorkerRefused, WorkerLost."""
        names = topic_names(workload, self._run_id, self._plan.number, probe)
        # Remembered first: a request that is cut short may have created them all the same.
        self.created = names
        requests = topic_requests(workload, names, running.topic_plan())
        client.create_topics(running.connection, requests, ready_within_s(workload))

    def find(self, workload: Workload, running: RunningSystem, client: WorkerCalls) -> None:
        """Topics that exist already, with as many partitions as they have; they are not ours to delete.

        Raises SystemInputError for one that is not there.
        """
        told = client.describe(running.connection, list(workload.read_topics)).get("topics") or {}
        partitions: dict[str, int] = {}
        for name in workload.read_topics:
            count = (told.get(name) or {}).get("partitions")
            if not count:
                raise SystemInputError(
                    f"read: no topic '{name}' on {', '.join(self._plan.choice.request.connect)}"
                )
            partitions[name] = int(count)
        self._existing = partitions

    def request(
        self,
        workload: Workload,
        running: RunningSystem,
        *,
        probe: int | None = None,
        within_s: float | None = None,
    ) -> dict[str, Any]:
        """The body with which a worker is given the trial (docs/worker-api.md). `within_s`: see `trial_request`."""
        return trial_request(
            workload,
            self.all_names,
            partitions=self._existing,
            system=running.connection,
            acks=running.acks,
            run_id=self._run_id,
            trial=self._plan.number,
            seed=self._plan.seed,
            probe=probe,
            within_s=within_s,
        )


def check_room(workload: Workload, copies: int, data: Path) -> None:
    """A backlog that cannot fit is refused before anything is produced. Raises SystemInputError."""
    asked, free = workload.backlog, machine.free_bytes(data)
    if asked is None or free is None:
        return
    readers = 1 if asked.reader == "extra" else workload.subscriptions_per_topic
    needed = asked.size_bytes // readers * copies + machine.FREE_BYTES_MIN
    if needed > free:
        raise SystemInputError(
            f"a backlog of {trimmed(asked.size_bytes / 1e9)} GB ({plural(copies, 'copy')}) does not fit: it "
            f"needs {trimmed(needed / 1e9)} GB, and {trimmed(free / 1e9)} GB are free where the system keeps its data; choose a "
            "smaller one with --backlog, or another place with --data"
        )
