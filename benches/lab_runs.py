"""What benches share that run the lab as a program."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LAB = str(Path(sys.executable).with_name("streamgauge"))


def measures(process: subprocess.Popen[Any], events: Path) -> bool:
    """Waits until the lab measures; False where it ended before."""
    while process.poll() is None:
        lines = events.read_text().splitlines() if events.exists() else []
        if any('"measure"' in line for line in lines):
            return True
        time.sleep(0.05)
    return False
