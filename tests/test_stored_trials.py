"""What is computed from real trials is what was computed when they were kept: a change to the analysis that moves a figure is seen here."""

from __future__ import annotations

from pathlib import Path

import pytest
import stored_trials


@pytest.mark.parametrize("name", stored_trials.names())
def test_the_result_is_the_one_that_was_kept(name: str, tmp_path: Path) -> None:
    stored_trials.unpack(name, tmp_path)
    assert stored_trials.result_of(tmp_path) == stored_trials.stored(name)


def test_many_kinds_are_kept() -> None:
    assert len(stored_trials.names()) >= 30
