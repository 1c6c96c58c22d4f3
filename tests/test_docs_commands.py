"""The commands of the documentation, run as they are written: what a block shows exists, works, and ends as the page says.

Long times, high rates and brokers with a JVM are replaced by the block's own marker (docs_pages.py), so that all pages together take well under a
minute of CPU. What is not run is read all the same: test_docs.py holds every command against the options that there are.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import lab_support
import pytest
from docs_pages import ROOT, Block, blocks, commands, guides
from streamgauge.systems.support import processes

RUN = [page for page in guides() if any(block.is_run for block in blocks(page))]
TOO_BUSY = "0,1"
"""A crowded machine may make a trial invalid: the command has worked."""
OPTIONS = {"background", "ends"}
"""Of a marker; all others are options of `streamgauge run`."""


def replaced(arguments: Sequence[str], options: dict[str, str]) -> list[str]:
    """`streamgauge run` with options in place of its own."""
    found: list[str] = []
    skipped = False
    for one in arguments:
        if skipped:
            skipped = False
        elif one.removeprefix("--") in options and one.startswith("--"):
            skipped = True
        else:
            found.append(one)
    return [*found, *(word for name, value in options.items() for word in (f"--{name}", value))]


class Reader:
    """Who does what a page says, in a directory of their own."""

    def __init__(self, gauge: Path, directory: Path, stack: contextlib.ExitStack) -> None:
        self._gauge, self._directory, self._stack = gauge, directory, stack
        self._moved: dict[str, str] = {}

    def follow(self, block: Block) -> None:
        text = block.text
        for address, other in self._moved.items():
            text = text.replace(address, other)
        if block.marker.startswith("file:"):
            (self._directory / block.marker.partition(":")[2].strip()).write_text(text, encoding="utf-8")
        elif block.is_run and "background" in block.options:
            self._leave_running(text, block)
        elif block.is_run:
            for command in commands(text):
                self._do(command, block)

    def _start(self, program: str, arguments: Sequence[str], block: Block) -> subprocess.Popen[str]:
        if program == "streamgauge":
            options = {name: value for name, value in block.options.items() if name not in OPTIONS}
            if arguments[0] == "run":
                arguments = replaced(arguments, options)
            return lab_support.started(self._gauge, self._directory, arguments)
        found = str(self._gauge) if program == "gauge" else shutil.which(program)
        assert found is not None, f"{block.place}: no program {program}"
        return subprocess.Popen(
            [found, *arguments],
            cwd=self._directory,
            env={**os.environ, "GAUGE": str(self._gauge)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _do(self, command: list[str], block: Block) -> None:
        program, *arguments = command
        with self._start(program, arguments, block) as process:
            try:
                told = process.communicate(timeout=120)
            finally:
                process.kill()
        ends = [int(status) for status in block.options.get("ends", TOO_BUSY).split(",")]
        assert process.returncode in ends, f"{block.place}: {' '.join(command)}\n{''.join(told)}"

    def _leave_running(self, text: str, block: Block) -> None:
        address = block.options["background"]
        moved = f"127.0.0.1:{processes.free_ports(1)[0]}"
        self._moved[address] = moved
        ((program, *arguments),) = commands(text.replace(address, moved))
        process = self._stack.enter_context(self._start(program, arguments, block))
        self._stack.callback(process.terminate)
        assert process.stdout is not None
        assert re.match("ready ", process.stdout.readline()), f"{block.place}: it is not ready"


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_says(page: Path, gauge: Path, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        reader = Reader(gauge, tmp_path, stack)
        for block in blocks(page):
            reader.follow(block)


def test_something_is_run() -> None:
    assert {ROOT / "README.md", ROOT / "docs/tutorial.md", ROOT / "docs/recipes.md"} <= set(RUN)
