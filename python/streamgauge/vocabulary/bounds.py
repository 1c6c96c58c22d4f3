"""Bounds of the generator: up to where a figure is the system's and not the load workers'. Trials (`analysis.validity`) and probes of a search
(`analysis.search`) are held to the same ones, but for how busy a lane may be: a probe tells by other signs, too, that the generator was the limit.
"""

from __future__ import annotations

SEND_DELAY_SHARE_MAX = 0.05
"""Send delay, as a share of the publish latency, both at p99."""
SEND_DELAY_MS_FLOOR = 1.0
"""Send delays below it are never held against a trial."""
ACHIEVED_SHARE_MIN = 0.99
"""Of the rate that was asked for."""
WORKERS_SHARE_MAX = 0.90
"""Of the cores of a worker."""
LANE_BUSY_SHARE_MAX = 0.90
"""Of a lane's time, in a trial."""
PROBE_LANE_BUSY_SHARE_MAX = 0.97
"""Of a lane's time, in a probe."""
DISTURBED_SHARE_MAX = 0.01
"""Up to this share of disturbed time the figures as they came stand: a quiet machine has 0.3 to 0.8 %."""
