"""The lab as a process of its own, with the real gauge."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAIN = "from streamgauge.cli import main; main()"


def lab(
    gauge: Path, directory: Path, *arguments: str, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """`streamgauge ARGUMENTS` in a directory. `stderr`: STDOUT puts both outputs into one."""
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        cwd=directory,
        env={**os.environ, "GAUGE": str(gauge), "PYTHONPATH": path},
    )
