"""`streamgauge bench`: a first result on this machine."""

from __future__ import annotations

from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import (
    OUT,
    DataOption,
    EventsOption,
    LiveOption,
    MetricsOption,
    OutOption,
    ProfileOption,
    QuietOption,
    TlsOption,
    TokenFileOption,
)


@deferred("streamgauge.cli.bench:bench")
def bench(
    out: OutOption = OUT,
    data: DataOption = None,
    events: EventsOption = None,
    live: LiveOption = None,
    metrics: MetricsOption = None,
    token_file: TokenFileOption = None,
    tls: TlsOption = None,
    profile: ProfileOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure publish and end-to-end latency of every default system that can run here, at a rate that this machine can carry.

    The rate is found while the load warms up: about half of the CPU, 50,000 messages of 100 bytes per second at most, the same for all. 30 s
    are measured in which nobody takes a CPU away; on a machine that is disturbed that takes up to 90 s. The first line of the result is the answer. A
    system that cannot run here is left out with one line that says what to install.
    """
