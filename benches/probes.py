"""What probes and the quiet parts cost: the same load with and without them, in turn, on one reference log.

    .venv/bin/python benches/probes.py    --rounds 5    --seconds 8

CPU per message of the worker's process without what the probes themselves used, which is shown beside it as a share of one core.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile

from gauge_client import MEASURE_AFTER_S, gauge
from streamgauge.vocabulary.gauge_binary import find_gauge

PARTITIONS = 16
LOADS = ((200_000, 5.0, False), (50_000, 1.0, True))
"""Messages per second, linger in ms, whether they are consumed."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as directory:
        command = [str(find_gauge()), "log", "--listen", "127.0.0.1:0", "--data", directory]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[-1]
            for rate, linger_ms, consume in LOADS:
                compare(address, rate, linger_ms, chosen.rounds, chosen.seconds, consume=consume)
        finally:
            server.kill()
            server.wait()


def compare(address: str, rate: int, linger_ms: float, rounds: int, seconds: float, *, consume: bool) -> None:
    """Runs the load with and without probes in turn, and prints medians and their ratio."""
    costs: dict[bool, list[float]] = {False: [], True: []}
    shares: list[float] = []
    with gauge(address) as ours:
        for _ in range(rounds):
            for probes in costs:
                with ours.topic(PARTITIONS) as topic:
                    trial = ours.run(
                        topic,
                        PARTITIONS,
                        seconds,
                        rate=rate,
                        linger_ms=linger_ms,
                        consume=consume,
                        probes=probes,
                    )
                measured = [one for one in trial.intervals if one["start_s"] >= MEASURE_AFTER_S][:-1]
                spent_s = sum(one.get("disturbance", {}).get("probes_cpu_s", 0.0) for one in measured)
                cost = trial.cost()
                costs[probes].append((cost.cpu_s - spent_s) / cost.messages * 1e6)
                if probes:
                    shares.append(spent_s / cost.seconds)
    medians = {probes: statistics.median(found) for probes, found in costs.items()}
    print(
        f"{rate} msg/s, linger {linger_ms} ms{', consumed' if consume else ''}: {medians[False]:.3f} us/msg without probes, "
        f"{medians[True]:.3f} with ({medians[True] / medians[False]:.3f} times); fastest {min(costs[False]):.3f} and "
        f"{min(costs[True]):.3f} ({min(costs[True]) / min(costs[False]):.3f} times); probes and witness {statistics.median(shares):.2%} of a core"
    )


if __name__ == "__main__":
    main()
