"""Asks a HotSpot JVM on this machine to do something, as `jcmd` does: by its attach mechanism, without a JVM of our own beside the measurement.

A file `.attach_pidN` in the JVM's working directory and SIGQUIT make it listen at `/tmp/.java_pidN`; a request is the protocol's version, the operation and
three arguments, each ended by a zero byte, and the answer a status in decimal and text. (HotSpot's `attachListener_posix.cpp`; the protocol is the same
since JDK 6, and JDK 24 still takes this version of it.)
"""

from __future__ import annotations

import contextlib
import re
import signal
import socket
from os import kill
from pathlib import Path

from streamgauge.vocabulary.waiting import wait_until

LISTENS_WITHIN_S = 10.0
"""A JVM starts the thread that listens at its next safepoint, which a busy machine delays."""
ANSWER_WITHIN_S = 30.0
ANSWER_BYTES_MAX = 1 << 20


class NotAttached(Exception):
    """Why a JVM did not do what it was asked to, as the rest of a sentence."""


def is_jvm(pid: int) -> bool:
    """Whether a process runs `java`."""
    try:
        return (Path("/proc") / str(pid) / "exe").readlink().name == "java"
    except OSError:
        return False


def command(pid: int, text: str) -> str:
    """Has the JVM carry out a diagnostic command (`JFR.start ...`); what it says. Raises NotAttached."""
    try:
        path = _listening(pid)
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(ANSWER_WITHIN_S)
            line.connect(str(path))
            line.sendall(b"".join(part.encode() + b"\0" for part in ("1", "jcmd", text, "", "")))
            answer = b""
            while piece := line.recv(65536):
                answer += piece
                if len(answer) > ANSWER_BYTES_MAX:
                    raise NotAttached("it answers without an end")
    except OSError as error:
        raise NotAttached(f"it cannot be reached: {error.strerror or error}") from None
    status, _, said = answer.decode("utf-8", "replace").partition("\n")
    if status.strip() != "0":
        first = next((line for line in said.splitlines() if line.strip()), f"status {status.strip()[:20]}")
        raise NotAttached(f"it says: {first.strip()[:300]}")
    return said


def _listening(pid: int) -> Path:
    """Where the JVM listens; it is made to where it does not yet."""
    process = Path("/proc") / str(pid)
    inner = _inner_pid(process, pid)
    path = process / "root" / "tmp" / f".java_pid{inner}"
    if path.is_socket():
        return path
    if not _catches_quit(process):
        # Whoever does not expect the signal dies of it.
        raise NotAttached("it does not take SIGQUIT for a request (-Xrs, or no HotSpot JVM)")
    places = (process / "cwd", process / "root" / "tmp")
    mark = None
    try:
        for place in places:
            with contextlib.suppress(OSError):
                mark = place / f".attach_pid{inner}"
                mark.touch(mode=0o600)
                break
        else:
            raise NotAttached("a request cannot be left in its directory")
        kill(pid, signal.SIGQUIT)
        late = wait_until(lambda: None if path.is_socket() else "it to listen", LISTENS_WITHIN_S)
        if late is not None:
            raise NotAttached(
                f"it did not listen within {LISTENS_WITHIN_S:g} s (-XX:+DisableAttachMechanism?)"
            )
    finally:
        if mark is not None:
            with contextlib.suppress(OSError):
                mark.unlink(missing_ok=True)
    return path


def _inner_pid(process: Path, pid: int) -> int:
    """The process's id as it knows it itself, in a PID namespace of its own."""
    found = re.search(r"^NSpid:.*?(\d+)$", (process / "status").read_text(), re.MULTILINE)
    return int(found.group(1)) if found else pid


def _catches_quit(process: Path) -> bool:
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", (process / "status").read_text(), re.MULTILINE)
    return found is not None and bool(int(found.group(1), 16) >> (signal.SIGQUIT - 1) & 1)
