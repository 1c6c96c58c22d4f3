"""A result as one row of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from streamgauge.model.result import TrialResult


def flat(result: TrialResult) -> dict[str, Any]:
    """A result as one row: nested names joined by `_`, lists and free mappings as JSON text."""
    row: dict[str, Any] = {}
    _flatten("", result.model_dump(mode="json"), row)
    return row


FREE_MAPPINGS = frozenset(
    {
        "errors",
        "durability_settings",
        "workload_extra",
        "end_to_end_by_subscription_ms",
        "steadiness_slopes_percent_per_interval",
    }
)
"""Their keys differ from trial to trial, so that columns of their own would be of no use."""


def _flatten(prefix: str, value: Any, row: dict[str, Any]) -> None:
    if isinstance(value, Mapping) and prefix not in FREE_MAPPINGS:
        for key, inner in value.items():
            _flatten(f"{prefix}_{key}" if prefix else key, inner, row)
    elif isinstance(value, Mapping | list):
        row[prefix] = json.dumps(value, ensure_ascii=False)
    else:
        row[prefix] = value
