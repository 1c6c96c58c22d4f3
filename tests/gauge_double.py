"""A stand-in for the `gauge` program in tests of the runner: it speaks the worker API as
docs/worker-api.md has it, over real HTTP, as a real process.

It sends no messages. Its figures are made up from the schedule and from whether the system double's port
answers, second by second, so that a broker that is killed or stopped shows as it would: acknowledgements
cease, messages wait, and are censored at the end. The books always balance, and histograms hold the messages
that the counters count (tests/test_gauge_double.py). What it must not be used for:
figures.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hdrh.histogram import HdrHistogram

PROBE = {
    "version": 1,
    "short": True,
    "started_unix_ms": 0,
    "host": {"hostname": "double", "kernel": "x", "cpu_model": "x", "cores": 2, "memory_bytes": 1 << 34},
    "disk": {"write_mb_s": 1500.0, "read_mb_s": 1800.0, "fsync_ms": {"p50": 0.2, "p99": 0.7}},
    "network": {"loopback_mb_s": 1700.0, "round_trip_us": {"p50": 6.0, "p99": 9.0}},
    "cpu": {"memcpy_mb_s": 9000.0, "crc32c_mb_s": 8000.0},
    "wakeup_us": {"fifo": None, "normal": {"p50": 60.0, "p99": 300.0}},
    "clock": {"resolution_ns": 1, "read_ns": 16},
    "notes": [],
}


LIMIT_MSGS_S = float(os.environ.get("DOUBLE_LIMIT_MSGS_S", "1e9"))
"""What the broker that is made up takes."""


LANES_CPU_S = {"producer": 0.03, "consumer": 0.02}
"""What each lane uses in an interval."""


class Queue:
    """Messages in the order in which they came, counted by phase."""

    def __init__(self) -> None:
        self.total = 0
        self._parts: deque[list[Any]] = deque()

    def put(self, phase: str, count: int) -> None:
        self.total += count
        if count:
            self._parts.append([phase, count])

    def take(self, most: int) -> dict[str, int]:
        """Takes so many at most, the oldest first: phase -> count."""
        taken: dict[str, int] = {}
        while self._parts and most > 0:
            part = self._parts[0]
            count = min(most, part[1])
            taken[part[0]] = taken.get(part[0], 0) + count
            part[1] -= count
            most, self.total = most - count, self.total - count
            if part[1] == 0:
                self._parts.popleft()
        return taken


class Refusal(Exception):
    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        self.status, self.body = status, {"error": {"code": code, "message": message, "field": field}}


PATIENCE_S = 10.0
"""How long a client waits for a broker to answer a question; in the load it is taken for dead within an interval."""


def alive(system: dict[str, Any], within_s: float = 0.8) -> bool:
    host, _, port = system["bootstrap"][0].rpartition(":")
    try:
        with socket.create_connection((host, int(port)), within_s) as connection:
            connection.settimeout(within_s)
            return connection.recv(2) == b"ok"
    except OSError:
        return False


class Trial:
    """One trial: a thread makes an interval each second."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.state = "preparing"
        self.error: str | None = None
        self.intervals: list[dict[str, Any]] = []
        self.start_ns: int | None = None
        self.touched_s = time.monotonic()
        self.sent = self.acked = 0
        # Messages by the phase in which they were due, oldest first: those without an acknowledgement, and those that a subscription has not read.
        self.unacked = Queue()
        self.unread = {one["name"]: Queue() for one in request["subscriptions"]}
        self.paused: set[str] = set()
        self.stopped_s: float | None = None
        self.answer: dict[str, Any] | None = None
        self.lock = threading.Lock()
        threading.Thread(target=self._prepare, daemon=True).start()

    @property
    def partitions(self) -> int:
        return sum(int(topic["partitions"]) for topic in self.request["topics"])

    @property
    def waiting(self) -> int:
        return self.unacked.total

    @property
    def behind(self) -> dict[str, int]:
        return {name: queue.total for name, queue in self.unread.items()}

    @property
    def step_s(self) -> float:
        return float(self.request["interval_ms"]) / 1000

    def _prepare(self) -> None:
        time.sleep(0.1)
        if alive(self.request["system"], PATIENCE_S):
            self.state = "ready"
        else:
            self.state, self.error = "failed", "no broker answers"

    def start(self, delay_ms: float) -> None:
        if self.state != "ready":
            raise Refusal(409, "conflict", f"the trial is {self.state}")
        self.start_ns = time.monotonic_ns() + int(delay_ms * 1e6)
        self.state = "running"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        assert self.start_ns is not None
        index = 0
        while self.state in ("running", "draining"):
            time.sleep(max(0.0, self.start_ns / 1e9 + (index + 1) * self.step_s - time.monotonic()))
            with self.lock:
                if self.state not in ("running", "draining"):
                    return
                if time.monotonic() - self.touched_s > float(self.request["lease_s"]):
                    self.state, self.error = "aborted", "lease expired"
                    return
                self._interval(index)
            index += 1

    def _interval(self, index: int) -> None:
        stop_s = self.stopped_s if self.stopped_s is not None else self.stop_s
        rate = float(self.request["schedule"].get("rate_msgs_s", 100_000.0))
        start_s = index * self.step_s
        due = int(rate * max(0.0, min(self.step_s, stop_s - start_s)))
        up = alive(self.request["system"])
        begun = [phase["name"] for phase in self.request["phases"] if phase["from_s"] <= start_s]
        self.sent += due
        self.unacked.put(begun[-1], due)
        acks = self.unacked.take(int(LIMIT_MSGS_S * self.step_s) if up else 0)
        acked = sum(acks.values())
        self.acked += acked
        size = int(self.request["payload"].get("size_bytes", 100))
        latencies = [
            entry(phase, metric, None, count, ns)
            for phase, count in acks.items()
            for metric, ns in (("publish", 1_000_000), ("service", 900_000), ("send_delay", 90_000))
        ]
        received = {}
        for name, queue in self.unread.items():
            for phase, count in acks.items():
                queue.put(phase, count)
            # A reader is ten times as fast as the schedule.
            read = queue.take(0 if name in self.paused else 10 * int(rate * self.step_s) + acked)
            received[name] = sum(read.values())
            latencies += [entry(phase, "end_to_end", name, count, 1_400_000) for phase, count in read.items()]
        waiting, behind = self.waiting, self.behind
        self.intervals.append(
            {
                "index": index,
                "start_s": start_s,
                "duration_s": self.step_s,
                "sent_msgs": due,
                "sent_bytes": due * size,
                "acked_msgs": acked,
                "acked_bytes": acked * size,
                "failed_msgs": 0,
                "retries": 0,
                "errors": {} if up else {"CONNECTION": 1},
                "waiting_msgs": waiting,
                "requests": 100,
                "batches": 100,
                "subscriptions": [
                    {
                        "name": name,
                        "received_msgs": received[name],
                        "received_bytes": received[name] * size,
                        "fetches": 90,
                        "backlog_msgs": behind[name],
                    }
                    for name in behind
                ],
                "cpu_s": sum(LANES_CPU_S.values()),
                "lanes_cpu_s": list(LANES_CPU_S.values()),
                "rss_bytes": 40_000_000,
                "backpressured_s": 0.0,
                "latencies": latencies,
            }
        )

    @property
    def stop_s(self) -> float:
        return float(self.request["schedule"].get("stop_s", 1e9))

    def begin_phase(self, name: str) -> dict[str, Any]:
        assert self.start_ns is not None
        from_s = float(math.ceil((time.monotonic_ns() - self.start_ns) / 1e9 + 0.2))
        self.request["phases"].append({"name": name, "from_s": from_s})
        return {"name": name, "from_s": from_s}

    def counters(self) -> dict[str, Any]:
        with self.lock:
            counted = [
                {"name": name, "received_msgs": self.acked - behind, "backlog_msgs": behind}
                for name, behind in self.behind.items()
            ]
            return {"sent_msgs": self.sent, "acked_msgs": self.acked, "subscriptions": counted}

    def finish(self, drain_s: float, quiet_s: float) -> dict[str, Any]:
        if self.start_ns is None:
            raise Refusal(409, "conflict", "the trial was never started")
        if self.answer is not None:
            return self.answer
        now_s = time.monotonic() - self.start_ns / 1e9
        self.stopped_s = min(now_s, self.stop_s)
        self.state = "draining"
        began_s = time.monotonic()
        seen = -1
        while time.monotonic() - began_s < drain_s:
            with self.lock:
                over = len(self.intervals) >= self.stopped_s
                # Who does not fetch is not waited for.
                left = self.waiting + sum(
                    behind for name, behind in self.behind.items() if name not in self.paused
                )
            if over and left == 0:
                break
            if left != seen:
                seen, quiet_since_s = left, time.monotonic()
            elif over and time.monotonic() - quiet_since_s > quiet_s:
                break
            time.sleep(0.05)
        with self.lock:
            self.state = "finished"
        books = {
            "lost": 0,
            "lost_prefix": 0,
            "lost_middle": 0,
            "lost_tail": 0,
            "duplicated": 0,
            "reordered": 0,
        }
        books |= {"corrupted": 0, "unexpected": 0, "unknown": self.waiting, "recovered": 0}
        self.answer = {
            "state": "finished",
            "totals": {"sent_msgs": self.sent, "acked_msgs": self.acked},
            "drained": self.waiting == 0,
            "drain_s": time.monotonic() - began_s,
            "start_ns": self.start_ns,
            "stopped_s": self.stopped_s,
            "audit": {
                "enabled": True,
                "sent": self.sent,
                "acked": self.acked,
                "failed": 0,
                "censored": self.waiting,
                "subscriptions": [
                    {
                        "name": name,
                        **books,
                        "received": self.acked - behind,
                        "unique": self.acked - behind,
                        "censored": behind,
                        "balanced": True,
                        "imbalance": None,
                        "examples": [],
                    }
                    for name, behind in self.behind.items()
                ],
                "balanced": True,
                "imbalance": None,
            },
            "lanes": self.lanes,
            "client": "double",
            "cannot": [],
        }
        return self.answer

    @property
    def lanes(self) -> list[dict[str, Any]]:
        count = len(self.intervals)
        return [
            {"name": f"{role}-0", "role": role, "scheduling": "normal", "cpu_s": count * cpu_s}
            for role, cpu_s in LANES_CPU_S.items()
        ]

    def status(self) -> dict[str, Any]:
        ready = self.partitions if self.state != "preparing" else 0
        return {
            "id": "1",
            "state": self.state,
            "error": self.error,
            "readiness": {"partitions": self.partitions, "assigned": ready, "proven": ready},
            "start_ns": self.start_ns,
            "next_interval": len(self.intervals),
            "audit_enabled": True,
            "client": "double",
            "cannot": [],
            "lanes": self.lanes,
            "lease_s": self.request["lease_s"],
        }


def entry(phase: str, metric: str, subscription: str | None, count: int, ns: int) -> dict[str, Any]:
    """A hundredth of the messages takes three times as long."""
    slow = count // 100
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    histogram.record_value(ns, count - slow)
    if slow:
        histogram.record_value(ns * 3, slow)
    return {
        "phase": phase,
        "metric": metric,
        "subscription": subscription,
        "count": count,
        "overflow": 0,
        "negative": 0,
        "sum_ns": ns * (count + 2 * slow),
        "min_ns": ns,
        "max_ns": ns * 3 if slow else ns,
        "p50_ns": ns,
        "p99_ns": ns,
        "histogram": histogram.encode().decode(),
    }


class Worker:
    trial: Trial | None = None

    def call(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        parts = path.strip("/").split("/")[1:]
        if parts == ["info"]:
            info = {"api": 1, "version": "double", "hostname": "double", "pid": os.getpid(), "cores": 2}
            return {**info, "protocols": ["double"]}
        if parts[0] == "admin":
            return self.admin(parts[1], body)
        if parts[0] != "trials":
            raise Refusal(404, "not_found", path)
        if method == "POST" and len(parts) == 1:
            if os.environ.get("DOUBLE_TALKS"):
                # No worker does; the lab must not rely on it.
                raise Refusal(400, "bad_request", f"cannot use {json.dumps(body['system'])}", "system")
            if set(body) - {"lanes"} != {
                *(
                    "run",
                    "seed",
                    "system",
                    "topics",
                    "producers",
                    "subscriptions",
                    "schedule",
                    "phases",
                    "batch",
                ),
                *(
                    "acks",
                    "idempotence",
                    "compression",
                    "payload",
                    "interval_ms",
                    "lease_s",
                    "ready_timeout_s",
                ),
            }:
                raise Refusal(400, "bad_request", f"keys {sorted(body)}")
            self.trial = Trial(body)
            return self.trial.status()
        if self.trial is None:
            raise Refusal(404, "not_found", "no trial")
        self.trial.touched_s = time.monotonic()
        return self.trial_call(self.trial, parts[2] if len(parts) > 2 else "", parts[3:], query, body)

    def admin(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        if not alive(body["system"], PATIENCE_S):
            raise Refusal(502, "system", "no broker answers")
        journal = os.environ.get("DOUBLE_TOPICS")
        names = [topic if isinstance(topic, str) else topic["name"] for topic in body["topics"]]
        if journal and action != "describe":
            with open(journal, "a", encoding="utf-8") as sink:  # noqa: PTH123
                sink.write(json.dumps([action, *names]) + "\n")
        if action == "describe":
            return {"topics": {name: {"settings": {}} for name in names}, "node_settings": {}, "nodes": []}
        return {"created": names} if action == "create-topics" else {"deleted": names, "missing": []}

    def trial_call(
        self, trial: Trial, action: str, rest: list[str], query: dict[str, str], body: dict[str, Any]
    ) -> dict[str, Any]:
        if action == "start":
            trial.start(float(body.get("delay_ms", 0)))
        elif action == "intervals":
            since, limit = int(query.get("since", 0)), int(query.get("limit", 100))
            found = trial.intervals[since : since + limit]
            return {"next": since + len(found), "intervals": found}
        elif action == "finish":
            return trial.finish(float(body["drain_s"]), float(body["quiet_s"]))
        elif action == "abort":
            trial.state = "aborted"
        elif action == "phases":
            return trial.begin_phase(str(body["name"]))
        elif action == "counters":
            return trial.counters()
        elif action == "stop":
            trial.request["schedule"]["stop_s"] = float(body["at_s"])
        elif action == "subscriptions":
            trial.paused.add(rest[0]) if rest[1] == "pause" else trial.paused.discard(rest[0])
        elif action not in ("", "lease"):
            raise Refusal(404, "not_found", action)
        return trial.status()


def make_handler(worker: Worker, token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            path, _, query = self.path.partition("?")
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            options = dict(pair.split("=", 1) for pair in query.split("&") if "=" in pair)
            try:
                if self.headers["Authorization"] != f"Bearer {token}":
                    raise Refusal(401, "unauthorized", "expected the token")
                status, value = 200, worker.call(self.command, path, options, body)
            except Refusal as refusal:
                status, value = refusal.status, refusal.body
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def main() -> None:
    if sys.argv[1] == "probe":
        print(json.dumps(PROBE))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["worker"])
    parser.add_argument("--listen", required=True)
    parser.add_argument("--token-file", required=True)
    token = Path(parser.parse_args().token_file).read_text()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    server = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(Worker(), token))
    server.daemon_threads = True
    print(f"ready 127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
