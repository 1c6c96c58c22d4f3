"""What several workers answered, put together: status, counters, intervals, results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from streamgauge.model.messages import (
    Counters,
    IntervalsPage,
    ProbesStatus,
    Readiness,
    SubscriptionCounters,
    TrialStatus,
)

ORDER = ("failed", "aborted", "preparing", "ready", "running", "draining", "finished")
"""The state of the whole is the first of these that a worker is in."""
SUMMED = (
    "sent_msgs",
    "sent_bytes",
    "acked_msgs",
    "acked_bytes",
    "failed_msgs",
    "retries",
    "waiting_msgs",
    "requests",
    "batches",
    "wakeups",
    "cpu_s",
    "rss_bytes",
    "backpressured_s",
)

Row = dict[str, Any]


def merge_status(statuses: Sequence[tuple[str, TrialStatus]]) -> TrialStatus:
    """The least advanced state, the first error, readiness added up."""
    name, behind = min(statuses, key=lambda pair: ORDER.index(pair[1].state))
    ready = [status.readiness for _, status in statuses]
    return behind.model_copy(
        update={
            "error": f"{name}: {behind.error}" if behind.error else None,
            "readiness": Readiness(
                partitions=sum(one.partitions for one in ready),
                assigned=sum(one.assigned for one in ready),
                proven=sum(one.proven for one in ready),
            ),
            "cannot": list(dict.fromkeys(text for _, status in statuses for text in status.cannot)),
            "probes": merge_probes(statuses),
            "lanes": [
                lane.model_copy(update={"worker": worker})
                for worker, status in statuses
                for lane in status.lanes
            ],
        }
    )


def merge_probes(statuses: Sequence[tuple[str, TrialStatus]]) -> ProbesStatus | None:
    """What all of them can see: one that sees nothing leaves its share of the messages in the dark."""
    found = [(name, status.probes) for name, status in statuses if status.probes is not None]
    if not found:
        return None
    why_not = [f"{name}: {probes.why_not}" for name, probes in found if probes.why_not]
    return ProbesStatus(
        cpus=sorted({cpu for _, probes in found for cpu in probes.cpus}),
        is_on=len(found) == len(statuses) and all(probes.is_on for _, probes in found),
        why_not=why_not[0] if why_not else None,
        scheduling=found[0][1].scheduling,
        period_ms=max((probes.period_ms for _, probes in found if probes.period_ms), default=None),
        cpu_s=sum(probes.cpu_s for _, probes in found),
        cpu_share=max(probes.cpu_share for _, probes in found),
    )


def merge_counters(counters: Sequence[Counters]) -> Counters:
    """Sums; a subscription's backlog is what all workers had acknowledged less what all received."""
    acked = sum(one.acked_msgs for one in counters)
    received: dict[str, list[SubscriptionCounters]] = defaultdict(list)
    for one in counters:
        for subscription in one.subscriptions:
            received[subscription.name].append(subscription)
    return Counters(
        acked_msgs=acked,
        acked_bytes=sum(one.acked_bytes for one in counters),
        waiting_msgs=sum(one.waiting_msgs for one in counters),
        subscriptions=[
            SubscriptionCounters(
                name=name,
                received_msgs=sum(one.received_msgs for one in mine),
                received_bytes=sum(one.received_bytes for one in mine),
                fetches=sum(one.fetches or 0 for one in mine),
                backlog_msgs=max(acked - sum(one.received_msgs for one in mine), 0),
            )
            for name, mine in received.items()
        ],
    )


def merge_finish(answers: Sequence[tuple[str, Mapping[str, Any]]], audit: Mapping[str, Any]) -> Row:
    """One result of several, with the audit that was made of all their books."""
    first = answers[0][1]
    stopped = [answer["stopped_s"] for _, answer in answers if answer.get("stopped_s") is not None]
    return {
        "state": first["state"],
        "totals": _add_up([answer["totals"] for _, answer in answers]),
        "drained": all(answer["drained"] for _, answer in answers),
        "start_unix_ns": first["start_unix_ns"],
        "start_ns": first["start_ns"],
        "stopped_s": min(stopped, default=None),
        "audit": dict(audit),
        "lanes": [{**lane, "worker": name} for name, answer in answers for lane in answer["lanes"]],
        "client": first["client"],
        "cannot": list(dict.fromkeys(text for _, answer in answers for text in answer["cannot"])),
    }


def _add_up(rows: Sequence[Mapping[str, Any]]) -> Row:
    """Counters of several workers as those of one; distributions stay side by side."""
    merged: Row = {key: sum(row.get(key) or 0 for row in rows) for key in SUMMED if key in rows[0]}
    errors: dict[str, int] = defaultdict(int)
    subscriptions: dict[str, Row] = {}
    for row in rows:
        for kind, count in (row.get("errors") or {}).items():
            errors[kind] += count
        for one in row.get("subscriptions") or []:
            mine = subscriptions.setdefault(one["name"], {"name": one["name"]})
            for key in ("received_msgs", "received_bytes", "fetches", "backlog_msgs"):
                mine[key] = mine.get(key, 0) + (one.get(key) or 0)
    merged["errors"] = dict(errors)
    merged["subscriptions"] = list(subscriptions.values())
    return merged


def _least_quiet(rows: Sequence[Mapping[str, Any]]) -> Row | None:
    """How quiet an interval was for all of them; None where one does not tell."""
    quiet_s: list[float | None] = [(row.get("disturbance") or {}).get("quiet_s") for row in rows]
    known = [one for one in quiet_s if one is not None]
    return {"quiet_s": min(known)} if known and len(known) == len(quiet_s) else None


class Lineup:
    """Intervals of several workers, given out when all have them.

    All parts of a trial start at one instant, so intervals with the same index are of the same time. A worker
    knows only what it sent itself: the backlog of a subscription is computed here, over all, and stands on the
    first row that has the subscription (the levels of the others are 0, because levels are added up).
    """

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._rows: dict[int, dict[str, Row]] = defaultdict(dict)
        self._acked_msgs = 0
        self._received_msgs: dict[str, int] = defaultdict(int)
        self._ended = False

    def join(self, worker: str) -> None:
        """A worker takes part."""
        self._next[worker] = 0

    def drop(self, worker: str) -> None:
        """A worker is lost: nobody waits for it any more. What it gave stays."""
        self._next.pop(worker, None)

    def end(self) -> None:
        """The load has ended: the rest comes as it is, because the last intervals differ in number."""
        self._ended = True

    def next_of(self, worker: str) -> int:
        """Which interval of a worker comes next."""
        return self._next.get(worker, 0)

    def add(self, worker: str, found: IntervalsPage) -> None:
        """Intervals of a worker."""
        if worker not in self._next:
            return
        for row in found.intervals:
            self._rows[int(row["index"])][worker] = row
        self._next[worker] = found.next

    def take(self, since: int) -> IntervalsPage:
        """What is complete over all, each once; `since` is what was given out before."""
        behind = max if self._ended else min
        until = max(behind(self._next.values(), default=since), since)
        intervals, shown = [], []
        for index in sorted(self._rows):
            if index >= until:
                break
            rows = self._rows.pop(index)
            self._level(rows)
            intervals += [{**row, "worker": worker} for worker, row in rows.items()]
            shown.append(self._summary(list(rows.values())))
        return IntervalsPage(next=until, intervals=intervals, shown=shown)

    def _level(self, rows: dict[str, Row]) -> None:
        self._acked_msgs += sum(row["acked_msgs"] for row in rows.values())
        leveled: set[str] = set()
        subscriptions = [one for row in rows.values() for one in row["subscriptions"]]
        for one in subscriptions:
            self._received_msgs[one["name"]] += one["received_msgs"]
        for one in subscriptions:
            name = one["name"]
            level = max(self._acked_msgs - self._received_msgs[name], 0)
            one["backlog_msgs"] = 0 if name in leveled else level
            leveled.add(name)

    @staticmethod
    def _summary(rows: list[Row]) -> Row:
        return {
            **{key: rows[0][key] for key in ("index", "start_s")},
            "duration_s": max(row["duration_s"] for row in rows),
            **_add_up(rows),
            "latencies": [entry for row in rows for entry in row["latencies"]],
            "disturbance": _least_quiet(rows),
        }
