"""The man pages say what the commands say, and troff takes them as they are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from test_systems_declared import tool


def pages() -> dict[Path, str]:
    return dict(tool("man_pages").pages())


def test_they_are_what_the_command_line_says() -> None:
    found = pages()
    directory = next(iter(found)).parent
    assert {path.name for path in directory.glob("*")} == {path.name for path in found}
    for path, text in found.items():
        assert path.read_text("utf-8") == text, "run tools/man_pages.py"


def test_every_option_of_a_command_is_there() -> None:
    text = next(text for path, text in pages().items() if path.name == "streamgauge-run.1")
    for option in ("rate", "durability", "quiet", "fail\\-if"):
        assert f"\\fB\\-\\-{option}\\fR" in text


@pytest.mark.skipif(
    shutil.which("groff") is None, reason="no groff, which reads man pages: install the package groff"
)
def test_troff_has_nothing_to_say_about_them() -> None:
    """All in one call: what is no macro, or runs over, is a warning."""
    files = [str(path) for path in pages()]
    done = subprocess.run(
        ["groff", "-man", "-ww", "-z", *files], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
