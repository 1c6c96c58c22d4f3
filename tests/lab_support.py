"""The lab as a process of its own, with the real gauge."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from prepared import Lab

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "from streamgauge.cli.app import main; main()"
COMMAND = (sys.executable, "-c", PROGRAM)
"""`streamgauge` as a program that is started, where what starting it does is part of what is tested."""


def lab(
    gauge: Path,
    directory: Path,
    *arguments: str,
    stderr: int = subprocess.PIPE,
    waits_for_quiet: bool = False,
) -> subprocess.Popen[str]:
    """`streamgauge ARGUMENTS` in a directory. `stderr`: STDOUT puts both outputs into one.

    A run lasts as long as it says, also beside other tests. With `waits_for_quiet` it goes on as it does for a user: up to three times as
    long, until enough of it was quiet.
    """
    if arguments[0] == "run" and not waits_for_quiet:
        arguments = (*arguments, "--quiet-limit", "1")
    return started(gauge, directory, arguments, stderr=stderr)


def started(
    gauge: Path, directory: Path, arguments: Sequence[str], *, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """The same, with nothing but these arguments."""
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    return Lab(
        "streamgauge.cli.app",
        arguments,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=directory,
        env={**os.environ, "GAUGE": str(gauge), "PYTHONPATH": path},
    )


def result(directory: Path) -> dict[str, Any]:
    """The result of the only trial of the latest run below a directory."""
    path = directory / "runs/latest/trials/001/result.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@contextlib.contextmanager
def reference_log(gauge: Path, data: Path, *arguments: str, host: str = "127.0.0.1") -> Iterator[str]:
    """The address of a reference log on a free port, which ends with the context."""
    command = [str(gauge), "log", "--listen", f"{host}:0", "--data", str(data), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().removeprefix("ready ").split()[0]
        finally:
            process.terminate()
