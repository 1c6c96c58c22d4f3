"""Durability levels."""

from __future__ import annotations

from typing import Literal

Level = Literal["L1", "L2", "L3", "L4"]
"""Durability level (docs/method.md): L1 replicated and fsynced before the ack, L2 replicated, L3 fsynced, L4
neither.
"""
LEVELS: tuple[Level, ...] = ("L1", "L2", "L3", "L4")
