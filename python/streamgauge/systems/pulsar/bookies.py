"""The settings that a bookie runs with, over its HTTP service. What its journal and ledgers do is read every second (metrics.py).

Source: BookKeeper's "HTTP API" (`/api/v1/config/server_config`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from streamgauge.systems.pulsar.admin import Web
from streamgauge.systems.support import processes


def read(addresses: Mapping[str, tuple[str, int | str]]) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """Settings of the running bookies at these hosts and ports, by name; and of which they could not be had, a sentence each."""
    found: dict[str, Mapping[str, Any]] = {}
    trouble = []
    for name, (host, port) in addresses.items():
        try:
            found[name] = _configuration(int(port), host)
        except (httpx.HTTPError, ValueError) as error:
            trouble.append(f"the settings of {name} ({host}:{port}) could not be read back: {error}")
    return found, trouble


def _configuration(port: int, host: str = processes.LOOPBACK) -> Mapping[str, Any]:
    """Settings of the running bookie. Raises httpx.HTTPError or ValueError."""
    answer = Web(port, host).get("/api/v1/config/server_config").json()
    if not isinstance(answer, Mapping):
        raise ValueError(f"expected settings, got {type(answer).__name__}")
    return answer
