"""--metrics: the text is OpenMetrics by its own parser, the figures are those that were recorded, and a real Prometheus that scrapes a real run agrees with
its report and answers every query of the dashboard."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import watched_run as watched
from lab_support import ROOT, lab
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from ruamel.yaml import YAML
from streamgauge.cli.watch_feed import Feed
from streamgauge.cli.watch_metrics import PHASES, MetricsObserver
from streamgauge.report.openmetrics import BOUNDS_S, Buckets
from streamgauge.systems.support import processes
from streamgauge.vocabulary.gauge_binary import find_gauge
from streamgauge.vocabulary.histograms import recorded
from streamgauge.vocabulary.waiting import wait_until
from test_systems_declared import tool

SAMPLES_NS = [500_000, 1_000_000, 1_000_001, 2_000_000, 40_000_000]


def told(metrics: MetricsObserver) -> dict[str, list[Sample]]:
    """Name -> samples, by the official parser."""
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(metrics.text()):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def value(found: dict[str, list[Sample]], name: str, **labels: str) -> float:
    (one,) = [one for one in found[name] if labels.items() <= one.labels.items()]
    return float(one.value)


def test_what_is_told_is_openmetrics_and_adds_up(tmp_path: Path) -> None:
    metrics = MetricsObserver()
    assert "streamgauge_run_info" in told(metrics), "before anything has begun"
    feed = Feed([metrics])
    watched.begin(feed, tmp_path / "run-1")
    feed.phase_started("warm-up", 1.0)
    watched.second(feed, 0, "warm-up", SAMPLES_NS)
    feed.phase_started("measure", 9.0)
    for index in (1, 2):
        watched.second(feed, index, "measure", SAMPLES_NS, unacked=3)
    found = told(metrics)
    of = {"run": "run-1", "trial": "1", "system": "kafka", "workload": "w"}
    assert value(found, "streamgauge_sent_messages_total", **of) == 3 * watched.RATE
    assert value(found, "streamgauge_acked_messages_total", **of) == 3 * (watched.RATE - 1)
    assert value(found, "streamgauge_failed_messages_total", **of) == 3
    assert value(found, "streamgauge_received_messages_total", subscription='a "b"\\') == 3 * (
        watched.RATE - 2
    )
    assert value(found, "streamgauge_backlog_messages", subscription='a "b"\\') == 5
    assert value(found, "streamgauge_target_messages_per_second", **of) == watched.RATE
    assert value(found, "streamgauge_cpu_seconds_total", owner="generator") == 0.75
    assert value(found, "streamgauge_cpu_seconds_total", owner="system") == 1.5
    assert value(found, "streamgauge_system_memory_bytes", **of) == 10_000_000
    assert value(found, "streamgauge_disturbed_ratio", **of) == pytest.approx(0.1)
    assert value(found, "streamgauge_disturbed_seconds_total", **of) == pytest.approx(0.3)
    assert value(found, "streamgauge_left_seconds") == 40
    states = {one.labels["streamgauge_phase"]: one.value for one in found["streamgauge_phase"]}
    assert states == {phase: float(phase == "measure") for phase in PHASES}
    name = "streamgauge_publish_latency_seconds"
    # What was never answered is slower than everything.
    assert value(found, f"{name}_count", phase="measure", **of) == 2 * (len(SAMPLES_NS) + 3)
    assert value(found, f"{name}_bucket", phase="measure", le="100.0") == 2 * len(SAMPLES_NS)
    assert value(found, f"{name}_bucket", phase="warm-up", le="+Inf") == len(SAMPLES_NS)
    assert value(found, f"{name}_sum", phase="warm-up") == pytest.approx(sum(SAMPLES_NS) / 1e9, rel=1e-3)
    for metric in ("end_to_end_latency", "send_delay", "receive_delay"):
        assert value(found, f"streamgauge_{metric}_seconds_count", phase="measure") == 2 * len(SAMPLES_NS)


def test_due_messages_follow_the_schedule_and_end_with_it(tmp_path: Path) -> None:
    metrics = MetricsObserver()
    feed = Feed([metrics])
    watched.begin(feed, tmp_path)
    for index, phase in enumerate(("measure", "measure", "measure", "drain", "drain")):
        watched.second(feed, index, phase, SAMPLES_NS)
    assert value(told(metrics), "streamgauge_due_messages_total") == 3 * watched.RATE


def test_the_trial_before_is_told_still_and_one_made_again_takes_its_place(tmp_path: Path) -> None:
    metrics = MetricsObserver()
    feed = Feed([metrics])
    watched.begin(feed, tmp_path)
    watched.second(feed, 0, "measure", SAMPLES_NS)
    feed.trial_started(watched.start(1))
    assert value(told(metrics), "streamgauge_sent_messages_total") == 0
    watched.second(feed, 0, "measure", SAMPLES_NS)
    feed.trial_started(watched.start(2))
    watched.second(feed, 0, "measure", SAMPLES_NS)
    found = told(metrics)
    assert [one.labels["trial"] for one in found["streamgauge_sent_messages_total"]] == ["1", "2"]
    feed.run_ended(tmp_path, "complete")
    assert value(told(metrics), "streamgauge_phase", streamgauge_phase="ended") == 1


def test_bounds_are_fine_enough_and_counts_are_exact_within_them() -> None:
    assert max(high / low for low, high in itertools.pairwise(BOUNDS_S)) <= 1.2801
    values = np.random.default_rng(7).lognormal(math.log(2e6), 2.0, 20_000).astype(np.int64)
    buckets = Buckets()
    buckets.add(recorded(values, np.ones(len(values), dtype=np.int64)), below=2, above=5)
    so_far = np.cumsum(buckets.counts)
    assert so_far[-1] == len(values) + 7
    for bound, count in zip(BOUNDS_S, so_far, strict=False):
        # A bucket of the histogram that holds the bound is counted above it.
        assert (values <= bound * 1e9 * (1 - 2e-3)).sum() + 2 <= count <= (values <= bound * 1e9).sum() + 2


def test_resources_that_come_late_or_never_hold_nothing_up(tmp_path: Path) -> None:
    metrics = MetricsObserver()
    feed = Feed([metrics])
    watched.begin(feed, tmp_path)
    feed.recorded([watched.interval(0, "measure", SAMPLES_NS)])
    assert value(told(metrics), "streamgauge_sent_messages_total") == 0
    feed.recorded([watched.interval(1, "measure", SAMPLES_NS)])
    assert value(told(metrics), "streamgauge_sent_messages_total") == watched.RATE
    feed.sampled(watched.resources(1))
    found = told(metrics)
    assert value(found, "streamgauge_sent_messages_total") == 2 * watched.RATE
    assert value(found, "streamgauge_cpu_seconds_total", owner="system") == 0.5


# ---------------------------------------------------------------------- the dashboard, and a real Prometheus

DASHBOARD = ROOT / "deploy" / "grafana" / "streamgauge.json"
SCRAPE_S = 1
SECONDS = 6
READY_WITHIN_S = 60.0


def queries(of: str | None = None) -> list[tuple[str, str]]:
    """Title of the panel and PromQL, with the variables filled in; of one row or of all."""
    found, row = [], ""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        for target in panel.get("targets", []):
            if of in (None, row):
                text = target["expr"].replace("$__rate_interval", "4s").replace("$run", ".*")
                assert "$" not in text
                found.append((panel["title"], text))
    return found


def test_the_dashboard_is_what_its_tool_writes() -> None:
    dashboard = tool("dashboard")
    assert json.loads(DASHBOARD.read_text("utf-8")) == dashboard.dashboard()
    places = [tuple(panel["gridPos"].values()) for panel in dashboard.dashboard()["panels"]]
    assert len(set(places)) == len(places)


def test_compose_names_files_that_are_there() -> None:
    place = ROOT / "deploy" / "observe"
    services = YAML(typ="safe").load(place / "compose.yaml")["services"]
    for service in services.values():
        for volume in service["volumes"]:
            assert (place / volume.partition(":")[0]).resolve().exists(), volume
    mounted = [volume.split(":")[1] for volume in services["grafana"]["volumes"]]
    provider = YAML(typ="safe").load(ROOT / "deploy/grafana/provisioning/dashboards/streamgauge.yaml")
    assert any(path.startswith(provider["providers"][0]["options"]["path"]) for path in mounted)


class Prometheus:
    """A server of its own, with its own directory, that scrapes one address."""

    def __init__(self, directory: Path, target: str) -> None:
        self.address = f"127.0.0.1:{processes.free_ports(1)[0]}"
        configuration = directory / "prometheus.yaml"
        text = (ROOT / "deploy" / "observe" / "prometheus.yaml").read_text("utf-8")
        assert "127.0.0.1:7481" in text
        configuration.write_text(text.replace("127.0.0.1:7481", target), "utf-8")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={configuration}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={self.address}",
                "--log.level=warn",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)

    def get(self, path: str, **parameters: str | float) -> Any:
        answer = httpx.get(f"http://{self.address}{path}", params=parameters, timeout=20)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def ready(self) -> str | None:
        try:
            return (
                None
                if httpx.get(f"http://{self.address}/-/ready").status_code == 200
                else "Prometheus to be ready"
            )
        except httpx.TransportError:
            return "Prometheus to listen"

    def at(self, query: str, unix_s: float) -> float:
        (one,) = self.get("/api/v1/query", query=query, time=unix_s)["result"]
        return float(one["value"][1])


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, dict[str, Any], float]]:
    """A real run of the reference log while Prometheus scrapes it; its result, and when it had ended."""
    directory = tmp_path_factory.mktemp("scraped")
    port = processes.free_ports(1)[0]
    server = Prometheus(directory, f"127.0.0.1:{port}")
    try:
        assert wait_until(server.ready, READY_WITHIN_S) is None
        arguments = f"run --metrics {port} --rate 2k --duration {SECONDS}s --warmup 1s"
        process = lab(find_gauge(), directory, *arguments.split())
        _, errors = process.communicate(timeout=120)
        assert process.returncode in (0, 1), errors
        assert f"metrics: http://127.0.0.1:{port}/metrics" in errors
        result = json.loads((directory / "runs/latest/trials/001/result.json").read_text("utf-8"))
        yield server, result, time.time()
    finally:
        server.close()


needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no Prometheus: install the package prometheus"
)


@needs_prometheus
def test_every_query_of_the_generator_has_series_and_every_other_is_understood(
    scraped: tuple[Prometheus, dict[str, Any], float],
) -> None:
    server, _, end_s = scraped
    for title, query in queries():
        found = server.get("/api/v1/query_range", query=query, start=end_s - 60, end=end_s, step=1)["result"]
        if (title, query) in queries("Generator"):
            values = [float(value) for one in found for _, value in one["values"]]
            assert any(math.isfinite(value) for value in values), (title, query)


@needs_prometheus
def test_prometheus_agrees_with_the_report(scraped: tuple[Prometheus, dict[str, Any], float]) -> None:
    server, result, end_s = scraped
    # The last scrape comes after the run's end: nothing of the last seconds is lost.
    last = "last_over_time({}[60s])"
    assert server.at(last.format("streamgauge_sent_messages_total"), end_s) == result["audit"]["sent"]
    assert server.at(last.format("streamgauge_acked_messages_total"), end_s) == result["audit"]["acked"]
    assert server.at(last.format("streamgauge_received_messages_total"), end_s) == result["audit"]["received"]
    for metric, figure in (("publish", "publish_ms"), ("end_to_end", "end_to_end_ms")):
        name = f"streamgauge_{metric}_latency_seconds"
        assert server.at(last.format(f'{name}_count{{phase="measure"}}'), end_s) == result[figure]["count"]
        for share, percentile in ((0.5, "p50"), (0.99, "p99")):
            buckets = last.format(name + '_bucket{phase="measure"}')
            told_s = server.at(f"histogram_quantile({share}, {buckets})", end_s)
            high = next(at for at, bound in enumerate(BOUNDS_S) if bound >= result[figure][percentile] / 1e3)
            assert BOUNDS_S[high - 1] * 0.998 <= told_s <= BOUNDS_S[high] * 1.002, (metric, percentile)
    measuring = 'streamgauge_acked_messages_per_second and on (trial) streamgauge_phase{streamgauge_phase="measure"} == 1'
    rate = server.at(f"avg_over_time(({measuring})[60s:1s])", end_s)
    assert rate == pytest.approx(result["publish_rate_msgs_s"], rel=0.02)


@needs_prometheus
def test_prometheus_took_every_scrape(scraped: tuple[Prometheus, dict[str, Any], float]) -> None:
    server, _, end_s = scraped
    pools = server.get("/api/v1/targets")["activeTargets"]
    errors = [one["lastError"] for one in pools if one["labels"]["job"] == "streamgauge"]
    # After the end there is nobody any more; a refused line would be told instead.
    assert all("connection refused" in error or not error for error in errors), errors
    assert server.at('max_over_time(up{job="streamgauge"}[60s])', end_s) == 1
