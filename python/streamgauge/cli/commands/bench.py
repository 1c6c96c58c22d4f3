"""`streamgauge bench`: a first result on this machine."""

from __future__ import annotations

from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import OUT, DataOption, EventsOption, OutOption, TlsOption


@deferred("streamgauge.cli.bench:bench")
def bench(
    out: OutOption = OUT, data: DataOption = None, events: EventsOption = None, tls: TlsOption = None
) -> None:
    """Measure 50,000 messages of 100 bytes per second for 30 s on every default system that can run here,
    when its load has become steady.

    A system that cannot run here is left out with one line that says what to install.
    """
