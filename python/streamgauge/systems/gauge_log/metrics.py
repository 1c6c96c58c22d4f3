"""What the reference log tells of itself (`gauge log --metrics`, docs/reference-log.md)."""

from __future__ import annotations

from streamgauge.model.own_metric import OwnMetric
from streamgauge.systems.support.prometheus import Pick, PrometheusMetrics

METRICS = PrometheusMetrics(
    [
        # The sum of squares over the sum: a commit that takes a hundred times as long is met by a hundred times as many messages, and would vanish in a mean
        # over commits.
        Pick(
            OwnMetric(
                name="commit_time",
                title="time in commits",
                unit="ms",
                kind="counter",
                explains="-",
                role="count",
            ),
            ("gauge_log_commit_seconds_total",),
            scale=1e3,
        ),
        Pick(
            OwnMetric(
                name="commit_ms",
                title="time of the commit that a message meets",
                unit="ms",
                kind="counter",
                explains="writes and syncs of the journal: an acknowledgement waits for one",
                per="commit_time",
            ),
            ("gauge_log_commit_seconds_squared_total",),
            scale=1e6,
        ),
        Pick(
            OwnMetric(
                name="commits",
                title="commits",
                unit="commits",
                kind="counter",
                explains="few of them while messages come: each takes long",
                role="sign",
            ),
            ("gauge_log_commits_total",),
        ),
        Pick(
            OwnMetric(
                name="pending_kb",
                title="appended and not yet written",
                unit="kB",
                kind="gauge",
                explains="messages that wait for the journal",
                role="sign",
            ),
            ("gauge_log_pending_bytes",),
            scale=1e-3,
        ),
        Pick(
            OwnMetric(
                name="memory_waits",
                title="requests that waited for memory",
                unit="requests",
                kind="counter",
                explains="producers are faster than the disk",
            ),
            ("gauge_log_memory_waits_total",),
        ),
        Pick(
            OwnMetric(
                name="loaded_mb",
                title="read from the disk for readers of the past",
                unit="MB",
                kind="counter",
                explains="catch-up reads share the disk with the journal",
            ),
            ("gauge_log_loaded_bytes_total",),
            scale=1e-6,
        ),
        Pick(
            OwnMetric(
                name="segments_deleted",
                title="deleted segments",
                unit="files",
                kind="counter",
                explains="retention: deleting a large file can hold up the file system",
            ),
            ("gauge_log_segments_deleted_total",),
        ),
    ]
)
