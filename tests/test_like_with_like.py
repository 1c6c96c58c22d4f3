"""Systems of one run do the same work before they acknowledge, unless they are asked not to."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamgauge.model.like_with_like import OWN, alike
from streamgauge.model.system_file import SystemChoice, SystemOverrides, choose_systems
from streamgauge.systems.base import System
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError


def chosen(
    text: str, durability: str | None = None, **overrides: object
) -> tuple[list[SystemChoice[System]], str]:
    level = None if durability == OWN else durability
    return alike(
        choose_systems(text, SystemOverrides(level=level, **overrides), systems()),  # type: ignore[arg-type]
        durability,
    )


def levels(found: list[SystemChoice[System]]) -> list[str | None]:
    return [one.request.level for one in found]


@pytest.mark.parametrize(
    ("text", "nodes", "level"),
    [
        ("gauge-log,kafka", None, "L4"),
        ("kafka,nats,pulsar,rabbitmq,gauge-log", None, "L4"),
        ("kafka,pulsar", 3, "L2"),
    ],
)
def test_several_systems_get_one_level_and_it_is_said_why(text: str, nodes: int | None, level: str) -> None:
    found, told = chosen(text, nodes=nodes)
    assert set(levels(found)) == {level}
    assert told.startswith(f"durability {level} (acknowledged when in ")
    assert "like is compared with like" in told
    assert "--durability default" in told


def test_a_level_that_one_of_them_cannot_have_is_not_chosen() -> None:
    """The reference log is one node: it copies nothing."""
    found, told = chosen("gauge-log,kafka")
    assert set(levels(found)) <= {"L3", "L4"}
    assert told


def test_whoever_asks_for_each_systems_own_gets_it() -> None:
    found, told = chosen("gauge-log,kafka", OWN)
    assert levels(found) == [None, None]
    assert "each system's own, as asked" in told


def test_a_level_that_was_asked_for_is_told_in_six_words() -> None:
    found, told = chosen("gauge-log,kafka", "L3")
    assert levels(found) == ["L3", "L3"]
    assert told == "durability L3 (acknowledged when on one node's disk), as asked"


def test_one_system_keeps_its_own_also_with_and_without_tls() -> None:
    assert chosen("kafka") == (chosen("kafka", OWN)[0], "")
    found, told = chosen("kafka", tls=(False, True))
    assert levels(found) == [None, None]
    assert told == ""


def test_a_system_file_has_its_say(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nsystem: kafka\n", encoding="utf-8")
    found, told = chosen(f"{file},gauge-log")
    assert levels(found) == [None, None]
    assert "a system file or a cluster that runs has its say" in told


def test_default_is_no_level_of_a_system_by_itself() -> None:
    with pytest.raises(InputError, match="expected one of L1"):
        choose_systems("kafka", SystemOverrides(level="default"), systems())
