"""How far the schedule is met: `send_delay` at 50,000 msg/s, with SCHED_FIFO where permitted and without.

    .venv/bin/python benches/lateness.py [--connect HOST:PORT] [--rate 50000] [--seconds 15] [--rounds 3]

Without --connect it drives the reference log, so that the machine has little else to do.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from gauge_client import gauge
from streamgauge.vocabulary.gauge_binary import find_gauge

PERCENTILES = (50.0, 99.0, 99.9)


@contextmanager
def target(connect: str | None) -> Iterator[str]:
    """The address of a system to drive."""
    if connect:
        yield connect
        return
    with tempfile.TemporaryDirectory() as data:
        server = subprocess.Popen(
            [str(find_gauge()), "log", "--listen", "127.0.0.1:0", "--data", data],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[-1]
        finally:
            server.terminate()
            server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connect")
    parser.add_argument("--rate", type=float, default=50_000)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with target(chosen.connect) as bootstrap, gauge(bootstrap) as ours:
        seen: dict[str, list[list[float]]] = {"auto": [], "off": []}
        granted: dict[str, set[str]] = {"auto": set(), "off": set()}
        for _ in range(chosen.rounds):
            for realtime in seen:
                with ours.topic(16) as topic:
                    trial = ours.run(
                        topic, 16, chosen.seconds, rate=chosen.rate, consume=True, realtime=realtime
                    )
                seen[realtime].append(trial.latency_ms("send_delay", PERCENTILES))
                granted[realtime] |= {lane["scheduling"] for lane in trial.finish["lanes"]}
        print(
            f"send_delay in ms at {chosen.rate:,.0f} msg/s, medians of {chosen.rounds} rounds "
            "(goal with FIFO: p99 <= 0.2, p99.9 <= 0.5)"
        )
        for realtime, rounds in seen.items():
            medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
            figures = "  ".join(
                f"p{percentile:g} {value:.3f}" for percentile, value in zip(PERCENTILES, medians, strict=True)
            )
            print(f"  realtime {realtime:5} {figures}   ({', '.join(sorted(granted[realtime]))})")


if __name__ == "__main__":
    main()
