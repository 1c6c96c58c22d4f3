"""Why a JVM of a system ended: its own log (`server.log`, lines `[time] LEVEL message (logger)`), and what it printed
before it had one.
"""

from __future__ import annotations

import re
from pathlib import Path

from streamgauge.systems.support import processes

JVM_ENVIRONMENT = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH")
"""Variables that would change the JVM behind the back of the settings in the report."""


def explain(logs: Path) -> str:
    """Why a node ended, from its logs: the last error with its cause, else what the JVM printed, else the
    last lines.
    """
    server = processes.log_tail(logs / "server.log", lines=400)
    console = processes.log_tail(logs / "console.log", lines=100)
    formatting = processes.log_tail(logs / "format.log", lines=100)
    reason = _last_error(server) or _jvm_error(console) or _jvm_error(formatting)
    if reason is not None:
        return f"{reason} (logs: {logs})"
    tail = "\n".join((console or server or formatting).splitlines()[-processes.TAIL_LINES :])
    return (
        f"there is no error in its logs in {logs}; the last lines are:\n{tail}"
        if tail
        else f"its logs in {logs} are empty"
    )


def _last_error(text: str) -> str | None:
    """The last ERROR or FATAL event of a server.log: its message, and the cause that its stack trace ends
    with.
    """
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if re.match(r"\[[^\]]+\] (ERROR|FATAL) ", line)]
    if not starts:
        return None
    message = re.sub(r"^\[[^\]]+\] (?:ERROR|FATAL) ", "", lines[starts[-1]])
    message = re.sub(r" \([\w.$]+\)$", "", message)
    cause = None
    for line in lines[starts[-1] + 1 :]:
        if re.match(r"\[[^\]]+\] [A-Z]+ ", line):
            break
        found = re.match(r"(?:Caused by: )?(?:[\w$]+\.)+([\w$]*(?:Exception|Error)(?:: .*)?)$", line)
        if found is not None:
            cause = found.group(1)
    return message if cause is None else f"{message}: {cause}"


def _jvm_error(text: str) -> str | None:
    """What a JVM or a command-line tool prints when it cannot begin, or dies of itself."""
    marks = (
        r"^Error\b|^Unrecognized|^Invalid |insufficient memory|OutOfMemoryError|^Terminating due to"
        r"|not found$|^Exception in thread|^(?:[\w$]+\.)+[\w$]*(?:Exception|Error): "
    )
    for line in text.splitlines():
        if re.search(marks, line.strip()):
            return line.strip()
    return None


def why_it_died(process: processes.ManagedProcess) -> str:
    """Why a process ended that nobody stopped."""
    if process.exit_status() == -9:
        # Nothing of this is in its log: the process had no chance to write.
        return (
            "by another program, or by the kernel for lack of memory (dmesg tells); "
            f"logs: {process.log.parent}"
        )
    return explain(process.log.parent)
