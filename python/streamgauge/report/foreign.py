"""Results of the OpenMessaging Benchmark (OMB), read so that they keep their value beside ours.

An OMB result is one JSON file per workload and driver: arrays with one value per 10 s, scalars
`aggregated...`, and maps from percentile to value. Its publish latency starts at the actual send, so it is
our *service* latency, and is never shown as publish latency; rates are messages/s, latencies ms,
`publishDelayLatency` us. It carries no audit and no check of its generator: it is *foreign*, neither valid
nor invalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.model.result_base import Latency
from streamgauge.store.opened import read_json
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.files import clean

FIGURE_MAX = 1e15
PERIOD_S = 10.0
"""OMB samples every 10 s."""
SUFFIXES: dict[str, str] = {
    "mean": "Avg",
    "p50": "50pct",
    "p75": "75pct",
    "p95": "95pct",
    "p99": "99pct",
    "p99_9": "999pct",
    "p99_99": "9999pct",
    "max": "Max",
}
REQUIRED = ("workload", "driver", "publishRate", "consumeRate")


@dataclass(frozen=True)
class ForeignResult:
    """What an OMB result file holds, in our names and units."""

    path: Path
    workload: str
    driver: str
    message_size_bytes: int | None
    topics: int | None
    partitions_per_topic: int | None
    producers_per_topic: int | None
    consumers_per_topic: int | None
    publish_rate_msgs_s: float
    """Mean over the periods."""
    consume_rate_msgs_s: float
    publish_rate_mb_s: float | None
    failed_msgs_s: float | None
    backlog_msgs_max: int | None
    service_ms: Latency
    end_to_end_ms: Latency
    send_delay_ms: Latency
    service_quantiles_ms: dict[float, float]
    """Percentile (0-100) -> ms, ascending."""
    end_to_end_quantiles_ms: dict[float, float]
    series: dict[str, list[float]]
    """publish_rate_msgs_s, consume_rate_msgs_s, backlog_msgs, service_ms_p50/p99/max,
    end_to_end_ms_p50/p99/max per period.
    """

    @property
    def foreign(self) -> bool:
        """Always True: no audit, no validity."""
        return True


def read_omb(path: Path, *, follow: bool = False) -> ForeignResult:
    """Reads an OMB result file. `follow`: links are followed, as for a file that the user names. Raises InputError for anything
    else."""
    told = read_json(path, follow=follow)
    if not isinstance(told, dict):
        raise InputError(f"{path}: holds a JSON {type(told).__name__}; an OMB result is an object.")
    missing = [key for key in REQUIRED if key not in told]
    if missing:
        raise InputError(
            f"{path}: is no OMB result: {', '.join(missing)} missing. Expected what OMB writes per "
            "workload and driver."
        )
    return _converted(path, told)


def _converted(path: Path, told: Mapping[str, Any]) -> ForeignResult:
    rate = _numbers(path, told, "publishRate")
    consumed = _numbers(path, told, "consumeRate")
    backlog = _numbers(path, told, "backlog")
    failed = _numbers(path, told, "publishErrorRate")
    size = _whole(path, told, "messageSize")
    series = {"publish_rate_msgs_s": rate, "consume_rate_msgs_s": consumed, "backlog_msgs": backlog}
    for ours, theirs in (("service", "publishLatency"), ("end_to_end", "endToEndLatency")):
        for figure in ("p50", "p99", "max"):
            series[f"{ours}_ms_{figure}"] = _numbers(path, told, theirs + SUFFIXES[figure])
    return ForeignResult(
        path=path,
        workload=str(told["workload"]),
        driver=str(told["driver"]),
        message_size_bytes=size,
        topics=_whole(path, told, "topics"),
        partitions_per_topic=_whole(path, told, "partitions"),
        producers_per_topic=_whole(path, told, "producersPerTopic"),
        consumers_per_topic=_whole(path, told, "consumersPerTopic"),
        publish_rate_msgs_s=_mean(rate),
        consume_rate_msgs_s=_mean(consumed),
        publish_rate_mb_s=_mean(rate) * size / 1e6 if size else None,
        failed_msgs_s=_mean(failed) if failed else None,
        backlog_msgs_max=int(max(backlog)) if backlog else None,
        service_ms=_latency(path, told, "aggregatedPublishLatency", 1.0),
        end_to_end_ms=_latency(path, told, "aggregatedEndToEndLatency", 1.0),
        send_delay_ms=_latency(path, told, "aggregatedPublishDelayLatency", 1e-3),
        service_quantiles_ms=_quantiles(path, told, "aggregatedPublishLatencyQuantiles"),
        end_to_end_quantiles_ms=_quantiles(path, told, "aggregatedEndToEndLatencyQuantiles"),
        series=series,
    )


def _latency(path: Path, told: Mapping[str, Any], prefix: str, to_ms: float) -> Latency:
    figures: dict[str, float | None] = {}
    for ours, suffix in SUFFIXES.items():
        value = told.get(prefix + suffix)
        figures[ours] = None if value is None else _number(path, prefix + suffix, value) * to_ms
    return Latency.model_validate(figures)


def _quantiles(path: Path, told: Mapping[str, Any], key: str) -> dict[float, float]:
    found = told.get(key) or {}
    if not isinstance(found, Mapping):
        raise InputError(f"{path}: {key} is a {type(found).__name__}; expected a map from percentile to ms.")
    try:
        pairs = sorted((_percent(percent), _number(path, key, value)) for percent, value in found.items())
    except ValueError as error:
        raise InputError(f"{path}: {key} has a key that is no number; expected percentiles.") from error
    return dict(pairs)


def _percent(text: str) -> float:
    found = float(text)
    if not 0 <= found <= 100:
        raise ValueError(f"{text} is no percentage")
    return found


def _numbers(path: Path, told: Mapping[str, Any], key: str) -> list[float]:
    found = told.get(key) or []
    if not isinstance(found, list):
        raise InputError(
            f"{path}: {key} is a {type(found).__name__}; expected an array with one number per 10 s."
        )
    return [_number(path, key, value) for value in found]


def _whole(path: Path, told: Mapping[str, Any], key: str) -> int | None:
    value = told.get(key)
    return None if value is None else int(_number(path, key, value))


def _number(path: Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= FIGURE_MAX:
        raise InputError(f"{path}: {key} holds {clean(repr(value))[:80]}; expected a number.")
    return float(value)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
