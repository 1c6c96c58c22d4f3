"""Writes deploy/grafana/streamgauge.json, the dashboard of generator and broker side by side: `python tools/dashboard.py`.

The names of the brokers' metrics are those of their own endpoints: Kafka through the JMX exporter with the rules that come with it, RabbitMQ's plugin
rabbitmq_prometheus, Pulsar's brokers and bookies, NATS through prometheus-nats-exporter (-varz -jsz=all).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "streamgauge.json"
RUN = 'run=~"$run"'
INTERVAL = "$__rate_interval"
WIDTH, HALF, HEIGHT = 24, 12, 8
Query = tuple[str, str]
"""PromQL and the legend."""


def quantile(share: str, metric: str) -> Query:
    name = f"p{float(share) * 100:g}"
    of = f"streamgauge_{metric}_bucket{{{RUN}}}[{INTERVAL}]"
    return (
        f"histogram_quantile({share}, sum by (le, system, trial) (rate({of})))",
        f"{{{{system}}}} {{{{trial}}}} {name}",
    )


GENERATOR: tuple[tuple[str, str, tuple[Query, ...]], ...] = (
    (
        "Messages per second",
        "cps",
        (
            (f"streamgauge_target_messages_per_second{{{RUN}}}", "{{system}} asked for"),
            (f"streamgauge_sent_messages_per_second{{{RUN}}}", "{{system}} sent"),
            (f"streamgauge_acked_messages_per_second{{{RUN}}}", "{{system}} acknowledged"),
            (
                f"sum by (system, subscription) (rate(streamgauge_received_messages_total{{{RUN}}}[{INTERVAL}]))",
                "{{system}} received by {{subscription}}",
            ),
        ),
    ),
    (
        "Publish latency",
        "s",
        (
            quantile("0.5", "publish_latency_seconds"),
            quantile("0.99", "publish_latency_seconds"),
            quantile("0.999", "publish_latency_seconds"),
        ),
    ),
    (
        "End-to-end latency",
        "s",
        (quantile("0.5", "end_to_end_latency_seconds"), quantile("0.99", "end_to_end_latency_seconds")),
    ),
    (
        "Backlog",
        "short",
        (
            (f"streamgauge_backlog_messages{{{RUN}}}", "{{system}} {{subscription}}"),
            (f"streamgauge_waiting_messages{{{RUN}}}", "{{system}} waiting for an acknowledgement"),
        ),
    ),
    (
        "CPU, cores",
        "short",
        ((f"sum by (owner) (rate(streamgauge_cpu_seconds_total{{{RUN}}}[{INTERVAL}]))", "{{owner}}"),),
    ),
    (
        "The generator's own delay, p99",
        "s",
        (quantile("0.99", "send_delay_seconds"), quantile("0.99", "receive_delay_seconds")),
    ),
    (
        "Disturbed share of the time",
        "percentunit",
        ((f"streamgauge_disturbed_ratio{{{RUN}}}", "{{system}}"),),
    ),
    ("Phase", "short", ((f"streamgauge_phase{{{RUN}}} == 1", "{{streamgauge_phase}}"),)),
)
BROKERS: dict[str, tuple[tuple[str, str, tuple[Query, ...]], ...]] = {
    "Kafka (JMX exporter)": (
        (
            "Messages and bytes in",
            "short",
            (
                (
                    f'sum(rate(kafka_server_brokertopicmetrics_messagesin_total{{topic=""}}[{INTERVAL}]))',
                    "messages/s",
                ),
                (
                    f'sum(rate(kafka_server_brokertopicmetrics_bytesin_total{{topic=""}}[{INTERVAL}]))',
                    "bytes/s",
                ),
            ),
        ),
        (
            "Produce: total, in the queue, local, remote, p99",
            "ms",
            tuple(
                (f'max(kafka_network_requestmetrics_{part}timems{{request="Produce",quantile="0.99"}})', part)
                for part in ("total", "requestqueue", "local", "remote")
            ),
        ),
        (
            "Queue, purgatory, replicas behind",
            "short",
            (
                ("sum(kafka_network_requestchannel_requestqueuesize)", "request queue"),
                (
                    'sum(kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Produce"})',
                    "produce purgatory",
                ),
                ("sum(kafka_server_replicamanager_underreplicatedpartitions)", "under-replicated partitions"),
            ),
        ),
        (
            "Log flush, p99",
            "ms",
            (('max(kafka_log_logflushstats_logflushrateandtimems{quantile="0.99"})', "flush"),),
        ),
    ),
    "RabbitMQ (rabbitmq_prometheus)": (
        (
            "Messages per second",
            "cps",
            (
                (f"sum(rate(rabbitmq_global_messages_received_total[{INTERVAL}]))", "received"),
                (f"sum(rate(rabbitmq_global_messages_confirmed_total[{INTERVAL}]))", "confirmed"),
                (f"sum(rate(rabbitmq_global_messages_delivered_total[{INTERVAL}]))", "delivered"),
            ),
        ),
        (
            "Memory, and where it blocks publishers",
            "bytes",
            (
                ("sum(rabbitmq_process_resident_memory_bytes)", "resident"),
                ("sum(rabbitmq_resident_memory_limit_bytes)", "limit"),
            ),
        ),
        (
            "Alarms",
            "short",
            (
                ("max(rabbitmq_alarms_memory_used_watermark)", "memory"),
                ("max(rabbitmq_alarms_free_disk_space_watermark)", "disk"),
            ),
        ),
        (
            "Messages in queues",
            "short",
            (
                ("sum(rabbitmq_queue_messages_ready)", "ready"),
                ("sum(rabbitmq_queue_messages_unacked)", "unacknowledged"),
            ),
        ),
    ),
    "Pulsar and BookKeeper": (
        ("Messages per second", "cps", (("sum(pulsar_rate_in)", "in"), ("sum(pulsar_rate_out)", "out"))),
        (
            "Bookie: journal, p99",
            "ms",
            (
                ('max(bookie_journal_JOURNAL_ADD_ENTRY{success="true",quantile="0.99"})', "add entry"),
                ('max(bookie_journal_JOURNAL_SYNC{success="true",quantile="0.99"})', "sync"),
            ),
        ),
        (
            "Bookie: queues",
            "short",
            (
                ("sum(bookie_journal_JOURNAL_QUEUE_SIZE)", "journal"),
                ("sum(bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE)", "force write"),
            ),
        ),
        ("Backlog", "short", (("sum(pulsar_msg_backlog)", "messages"),)),
    ),
    "NATS (prometheus-nats-exporter)": (
        (
            "Messages per second",
            "cps",
            (
                (f"sum(rate(gnatsd_varz_in_msgs[{INTERVAL}]))", "in"),
                (f"sum(rate(gnatsd_varz_out_msgs[{INTERVAL}]))", "out"),
            ),
        ),
        ("Memory", "bytes", (("sum(gnatsd_varz_mem)", "resident"),)),
        ("Slow consumers", "short", (("sum(gnatsd_varz_slow_consumers)", "slow consumers"),)),
        ("Messages in JetStream", "short", (("sum(jetstream_server_total_messages)", "messages"),)),
    ),
}
SOURCE = {"type": "prometheus", "uid": "${source}"}


def panel(number: int, title: str, unit: str, queries: tuple[Query, ...], x: int, y: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": HALF, "h": HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": unit, "min": 0, "custom": {"lineWidth": 1, "fillOpacity": 5}},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for at, (expression, legend) in enumerate(queries)
        ],
    }


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana reads it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, found in (("Generator", GENERATOR), *BROKERS.items()):
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
            }
        )
        y += 1
        for at, (title, unit, queries) in enumerate(found):
            panels.append(panel(len(panels) + 1, title, unit, queries, HALF * (at % 2), y))
            y += HEIGHT * (at % 2)
        y += HEIGHT * (len(found) % 2)
    return {
        "uid": "streamgauge",
        "title": "streamgauge: generator and broker",
        "tags": ["streamgauge"],
        "schemaVersion": 39,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "graphTooltip": 1,
        "templating": {
            "list": [
                {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                {
                    "name": "run",
                    "label": "Run",
                    "type": "query",
                    "datasource": SOURCE,
                    "query": {"query": "label_values(streamgauge_run_info, run)", "refId": "run"},
                    "refresh": 2,
                    "sort": 2,
                    "includeAll": False,
                },
            ]
        },
        "panels": panels,
    }


def main() -> None:
    """Writes the file."""
    TARGET.write_text(json.dumps(dashboard(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
