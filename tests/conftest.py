"""What several test modules ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamgauge.fleet.base import FleetFailure
from streamgauge.fleet.binary import find_gauge


@pytest.fixture(scope="session")
def gauge() -> Path:
    """The real gauge."""
    try:
        return find_gauge()
    except FleetFailure as failure:
        pytest.fail(f"{failure}; run the tests with make test")
