"""The guard: a tiny process that outlives the lab by a moment and ends what the lab has started.

Run as a script by `streamgauge.systems.support.processes`, one per lab process. It reads lines from standard input, a
pipe whose only writer is the lab:

    add PID IDENTITY     the process group PID is ours (IDENTITY is `identity(PID)`)
    remove PID           it has ended, or was ended properly

When the lab goes - by exit, exception or SIGKILL - the kernel closes the pipe, the guard reads the end of it,
and kills every group left. This holds whichever thread started a process (`PR_SET_PDEATHSIG` fires when the
starting *thread* ends) and reaches grandchildren too.

It imports nothing but a little of the standard library, so that it starts in milliseconds and stays small.
"""

import contextlib
import os
import signal
import sys


def identity(pid: int) -> str | None:
    """What tells a process from a later one with the same pid: its start time in clock ticks since boot
    (proc(5), field 22).

    None when there is no such process (or only its zombie); "unknown" where the host has no /proc.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:  # noqa: PTH123 - pathlib would triple the guard's start-up time.
            # The second field is the command's name in brackets and may itself hold spaces and brackets.
            fields = handle.read().rpartition(b")")[2].split()
    except OSError:
        if os.path.exists("/proc/self/stat"):  # noqa: PTH110
            return None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return "unknown"
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def kill_group(pid: int, expected: str) -> None:
    """Kills the group that `pid` leads, unless the pid has since been given to another process."""
    if identity(pid) in (None, expected):  # None: the leader is gone, the rest of its group may not be.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def main() -> None:
    """Keeps the book of groups until the lab is gone."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_IGN)
    groups: dict[int, str] = {}
    for line in sys.stdin:
        words = line.split()
        if len(words) == 3 and words[0] == "add":
            groups[int(words[1])] = words[2]
        elif len(words) == 2 and words[0] == "remove":
            groups.pop(int(words[1]), None)
    for pid, expected in groups.items():
        kill_group(pid, expected)


if __name__ == "__main__":
    main()
