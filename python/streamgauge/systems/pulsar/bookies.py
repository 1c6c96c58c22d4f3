"""The settings that a bookie runs with, over its HTTP service. What its journal and ledgers do is read every second (metrics.py).

Source: BookKeeper's "HTTP API" (`/api/v1/config/server_config`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgauge.systems.pulsar.admin import Web
from streamgauge.systems.support import processes


def configuration(port: int, host: str = processes.LOOPBACK) -> Mapping[str, Any]:
    """Settings of the running bookie. Raises httpx.HTTPError or ValueError."""
    answer = Web(port, host).get("/api/v1/config/server_config").json()
    if not isinstance(answer, Mapping):
        raise ValueError(f"expected settings, got {type(answer).__name__}")
    return answer
