"""What RabbitMQ tells of itself by its plugin rabbitmq_prometheus (`/metrics`, added up over queues and channels).

Source: "Monitoring with Prometheus and Grafana" of RabbitMQ's documentation. What counts for queues, channels and connections is written by
them every 5 s (`collect_statistics_interval`); alarms, I/O and the Erlang machine's figures are those of the moment.
"""

from __future__ import annotations

from streamgauge.model.own_metric import OwnMetric
from streamgauge.systems.support.prometheus import Pick, PrometheusMetrics


def _count(name: str, series: str) -> Pick:
    """Operations, which times are divided by."""
    metric = OwnMetric(name=name, title="operations", unit="ops", kind="counter", explains="-", role="count")
    return Pick(metric, (series,))


METRICS = PrometheusMetrics(
    [
        _count("io_syncs", "rabbitmq_io_sync_ops_total"),
        _count("io_writes", "rabbitmq_io_write_ops_total"),
        Pick(
            OwnMetric(
                name="memory_alarm",
                title="memory alarm",
                unit="alarms",
                kind="gauge",
                explains="the node takes nothing from publishers until memory is free",
            ),
            ("rabbitmq_alarms_memory_used_watermark",),
        ),
        Pick(
            OwnMetric(
                name="disk_alarm",
                title="disk alarm",
                unit="alarms",
                kind="gauge",
                explains="the node takes nothing from publishers until the disk has room",
            ),
            ("rabbitmq_alarms_free_disk_space_watermark",),
        ),
        Pick(
            OwnMetric(
                name="io_sync_ms",
                title="time of an fsync (classic queues)",
                unit="ms",
                kind="counter",
                explains="a confirm of a persistent message waits for one",
                per="io_syncs",
            ),
            ("rabbitmq_io_sync_time_seconds_total",),
            scale=1e3,
        ),
        Pick(
            OwnMetric(
                name="io_write_ms",
                title="time of a write (classic queues)",
                unit="ms",
                kind="counter",
                explains="a queue waits while it writes",
                per="io_writes",
            ),
            ("rabbitmq_io_write_time_seconds_total",),
            scale=1e3,
        ),
        Pick(
            OwnMetric(
                name="raft_commit_ms",
                title="commit latency of quorum queues",
                unit="ms",
                kind="gauge",
                together="max",
                explains="a confirm waits for a majority of the copies",
                role="sign",
            ),
            ("rabbitmq_raft_entry_commit_latency_seconds",),
            scale=1e3,
        ),
        Pick(
            OwnMetric(
                name="raft_unapplied",
                title="committed and not yet applied",
                unit="entries",
                kind="gauge",
                explains="a queue's process is behind its log",
                role="sign",
            ),
            ("rabbitmq_raft_log_commit_index",),
            second=("rabbitmq_raft_log_last_applied_index",),
            by="minus",
        ),
        Pick(
            OwnMetric(
                name="run_queue",
                title="Erlang processes that wait for a scheduler",
                unit="processes",
                kind="gauge",
                explains="the node is out of CPU, and queues wait for their turn",
                role="sign",
            ),
            ("rabbitmq_erlang_scheduler_run_queue",),
        ),
        Pick(
            OwnMetric(
                name="pending_packets",
                title="packets not yet sent",
                unit="packets",
                kind="gauge",
                explains="clients do not read, and flow control holds publishers back",
                role="sign",
            ),
            ("rabbitmq_connection_pending_packets",),
        ),
        Pick(
            OwnMetric(
                name="messages_ready",
                title="messages ready",
                unit="messages",
                kind="gauge",
                explains="consumers are behind",
                role="sign",
            ),
            ("rabbitmq_queue_messages_ready",),
        ),
        Pick(
            OwnMetric(
                name="paged_out",
                title="messages paged out",
                unit="messages",
                kind="gauge",
                explains="queues write to the disk to save memory, and read again later",
            ),
            ("rabbitmq_queue_messages_paged_out",),
        ),
        Pick(
            OwnMetric(
                name="memory_mb",
                title="memory of the node",
                unit="MB",
                kind="gauge",
                explains="on its way to the memory alarm",
                role="sign",
            ),
            ("rabbitmq_process_resident_memory_bytes",),
            scale=1e-6,
        ),
    ]
)
