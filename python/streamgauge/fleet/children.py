"""Child processes that never outlive the lab.

A child gets a process group of its own, so that Ctrl-C in a terminal reaches the lab and not the child, and
asks the kernel to kill it when the lab dies (prctl(2), PR_SET_PDEATHSIG), so that even a lab that is killed
with SIGKILL leaves nothing behind. PR_SET_PDEATHSIG is tied to the *thread* that starts the child: start
children from a thread that lives as long as they should, which in the lab is the main thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
# Loaded before any fork, because a child between fork and exec must not load anything.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with_parent(parent: int) -> Callable[[], None] | None:
    if _LIBC is None:
        return None
    libc = _LIBC

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The lab may have died between the fork and the call above.
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def start_child(
    command: Sequence[str], log: Path, errors: Path | None = None, *, secret: str | None = None
) -> subprocess.Popen[bytes]:
    """Starts a program whose output goes to a log file, and its error output to `errors` or to the same one.
    It finds a secret, if there is one, on its standard input: nobody else sees it there. Raises OSError when it
    cannot be started."""
    with log.open("ab") as sink, (errors or log).open("ab") as error_sink:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL if secret is None else subprocess.PIPE,
            stdout=sink,
            stderr=error_sink,
            process_group=0,
            preexec_fn=_die_with_parent(os.getpid()),
        )
    if secret is not None and child.stdin is not None:
        # A child that has ended already does not read it; its end is noticed by whoever waits for it.
        with contextlib.suppress(BrokenPipeError), child.stdin:
            child.stdin.write(secret.encode())
    return child


def stop_child(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """SIGTERM to the child's group, a wait of `grace_s` seconds, then SIGKILL. Idempotent, never raises."""
    if child.poll() is None and grace_s > 0:
        _signal_group(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    if child.poll() is None:
        _signal_group(child, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10.0)


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def last_lines(log: Path, count: int = 3, bytes_max: int = 8192) -> str:
    """The last lines of a log that say something, joined with " | "; an empty string when there are none."""
    try:
        with log.open("rb") as source:
            source.seek(0, os.SEEK_END)
            source.seek(max(source.tell() - bytes_max, 0))
            text = source.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return " | ".join(line.strip() for line in text.splitlines() if line.strip().strip("|"))[-400 * count :]
