"""Bounds of the generator: up to where a figure is the system's and not the load workers'. Trials (`analysis.validity`) and probes of a search
(`analysis.search`) are held to the same ones, but for how busy a lane may be: a probe tells by other signs, too, that the generator was the limit.
"""

from __future__ import annotations

OWN_SHARE_MAX = 0.25
"""What the generator may add to a latency by being late in sending or in reading, as a share of it, both at p99: beyond, the figure is not the system's."""
OWN_SHARE_SAID = 0.10
"""From here on it is said."""
LINGER_HIDES_MS_MAX = 1.0
"""Of a message that leaves late so much is made up for by a batch that lingers (LATENESS_FORGIVEN_NS of the generator)."""
SERVICE_DELAY_MS_FLOOR = 1.0
"""Where service time stands for publish latency, what leaves late is not part of the figure: less than this is never held against a trial."""
ACHIEVED_SHARE_MIN = 0.99
"""Of the rate that was asked for."""
WORKERS_SHARE_MAX = 0.90
"""Of the cores of a worker."""
LANE_BUSY_SHARE_MAX = 0.90
"""Of a lane's time, in a trial."""
PROBE_LANE_BUSY_SHARE_MAX = 0.97
"""Of a lane's time, in a probe."""
QUIET_LIMIT = 3.0
"""So many times as long as asked a trial may be measured, until enough of it was quiet."""
DISTURBED_SHARE_MAX = 0.01
"""Up to this share of disturbed time the figures as they came stand: a quiet machine has 0.3 to 0.8 %."""
