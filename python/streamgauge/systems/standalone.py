"""A system kept up by itself, without a run: `streamgauge systems up|down|status|logs`.

A supervisor process (this module, run as a script) starts the system exactly as a run does, outlives the
command and the shell that started it, and ends the system when it is told to, or when one of its processes
dies. Whoever kills the supervisor ends the system too: its guard sees to that.

    CACHE/standalone/NAME/request.json      what was asked for
    CACHE/standalone/NAME/state.json        what became of it; pids with their start times
    CACHE/standalone/NAME/supervisor.log    progress, and what went wrong
    CACHE/standalone/NAME/system/           the system's directory; data is wiped by `down`, logs stay until
    the next `up`

A process is known by its pid *and* its start time, never by its name: a pid that was given to another program
is left alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import Progress, RunningSystem, System
from streamgauge.systems.registry import systems
from streamgauge.systems.support.cache import cache_root
from streamgauge.systems.support.guard import identity, kill_group
from streamgauge.systems.support.processes import POLL_S, log_tail
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError, no_system
from streamgauge.vocabulary.waiting import wait_until

UP_TIMEOUT_S = 420.0
"""Above all that a start may wait for by itself, so that its own message comes first."""
DOWN_TIMEOUT_S = 60.0
WATCH_S = 0.5
"""How often the supervisor looks at the system's processes."""

State = Literal["starting", "up", "failed", "down"]


@dataclass(frozen=True)
class Standalone:
    """A system that was started by hand."""

    name: str
    state: State
    directory: Path
    version: str = ""
    nodes: int = 0
    level: str | None = None
    connection: dict[str, Any] = field(default_factory=dict)
    """As RunningSystem.connection; `bootstrap` holds the addresses."""
    metrics: list[str] = field(default_factory=list)
    """Where its processes tell metrics (`run --system-metrics`)."""
    started_unix_s: int = 0
    supervisor: tuple[int, str] | None = None
    """Pid and start time."""
    processes: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Name -> pid and start time."""
    message: str = ""
    """Why it failed."""


def up(name: str, request: SystemRequest, progress: Progress) -> Standalone:
    """Starts a system that stays up when the command ends. Raises SystemInputError (also when it is up
    already) or SystemFailure.
    """
    system = _system(name)
    if request.connect:
        raise SystemInputError(
            f"{name} at {', '.join(request.connect)} runs already; there is nothing to start"
        )
    with _lock(name):
        now = status(name)
        if now.state in ("up", "starting"):
            where = ", ".join(now.connection.get("bootstrap", [])) or f"see {now.directory}"
            raise SystemInputError(
                f"{name} is up already ({where}); `streamgauge systems down {name}` ends it"
            )
        system.check(request)
        system.install(request.version, progress)
        _end_processes(now)
        shutil.rmtree(now.directory, ignore_errors=True)
        now.directory.mkdir(mode=0o700, parents=True)
        _write_json(now.directory / "request.json", _request_as_json(request))
        with (now.directory / "supervisor.log").open("ab") as log:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", "streamgauge.systems.standalone", name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # It must survive the shell's end and its Ctrl-C.
            )
        try:
            return _await_up(name, supervisor, progress)
        except BaseException:
            _end(supervisor.pid, identity(supervisor.pid), DOWN_TIMEOUT_S)
            supervisor.poll()
            raise


def down(name: str, progress: Progress) -> bool:
    """Ends a system and wipes its data; logs stay. False when there was nothing to end. Raises SystemFailure
    when it cannot be ended.
    """
    _system(name)
    with _lock(name):
        now = status(name)
        if now.state in ("up", "starting") and now.supervisor is not None:
            progress(f"stopping {name}")
        ended = now.supervisor is not None and _end(*now.supervisor, DOWN_TIMEOUT_S)
        left = _end_processes(now)
        if now.directory.is_dir():
            for data in _data_directories(now.directory):
                shutil.rmtree(data, ignore_errors=True)
            _write_state(dataclasses.replace(now, state="down", supervisor=None, processes={}))
        return ended or left


def status(name: str) -> Standalone:
    """What is known about a system; its state is checked against the processes that really run."""
    directory = _directory(name)
    try:
        read = json.loads((directory / "state.json").read_text())
        supervisor = read.pop("supervisor")
        known = Standalone(
            **{
                **read,
                "directory": directory,
                "supervisor": (int(supervisor[0]), str(supervisor[1])) if supervisor else None,
                "processes": {key: (int(pid), str(start)) for key, (pid, start) in read["processes"].items()},
            }
        )
    except (OSError, ValueError, TypeError, KeyError):
        return Standalone(name=name, state="down", directory=directory)
    if known.state in ("up", "starting") and (known.supervisor is None or not _alive(*known.supervisor)):
        why = "its supervisor is gone (killed, or the machine was restarted)"
        return dataclasses.replace(known, state="failed", message=why)
    return known


def statuses() -> list[Standalone]:
    """The state of every system that streamgauge knows."""
    return [status(name) for name in systems()]


def logs(name: str) -> list[Path]:
    """The log files of a system that is or was up: the supervisor's, then the system's own."""
    _system(name)
    directory = _directory(name)
    # Segments of a message log carry the same ending; they are named by their first offset and lie below data directories.
    written = (path for path in (directory / "system").rglob("*.log") if "data" not in path.parts)
    own = sorted(path for path in written if path.stat().st_size > 0)
    return [path for path in (directory / "supervisor.log",) if path.exists()] + own


# ---------------------------------------------------------------------- the command's side


def _system(name: str) -> System:
    known = systems()
    if name not in known:
        raise SystemInputError(no_system(name, known))
    return known[name]


def _directory(name: str) -> Path:
    return cache_root() / "standalone" / name


@contextlib.contextmanager
def _lock(name: str) -> Iterator[None]:
    """One command at a time works on a system; it falls with the process that holds it."""
    path = _directory(name).with_suffix(".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("w")
    except OSError as error:
        raise SystemFailure(
            f"cannot write {path}: {error}; set STREAMGAUGE_CACHE to another directory"
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemFailure(f"another command is starting or stopping {name}; wait for it") from None
        yield


def _await_up(name: str, supervisor: subprocess.Popen[bytes], progress: Progress) -> Standalone:
    """Shows the supervisor's progress until the system is up."""
    log = _directory(name) / "supervisor.log"
    shown = 0
    now = status(name)

    def missing() -> str | None:
        nonlocal shown, now
        ended = supervisor.poll() is not None  # Asked first: what it wrote before it ended is then complete.
        lines = log.read_text(errors="replace").splitlines(keepends=True)
        for line in lines[shown:]:
            if line.endswith("\n"):
                shown += 1
                progress(line.strip())
        now = status(name)
        if now.state == "up":
            return None
        if ended:
            raise SystemFailure(now.message or f"the supervisor of {name} ended: {log_tail(log)}")
        return f"{name} to be up"

    late = wait_until(missing, UP_TIMEOUT_S, POLL_S)
    if late is not None:
        raise SystemFailure(f"{late}; see {log}")
    return now


def _alive(pid: int, start: str) -> bool:
    return identity(pid) == start


def _end(pid: int, start: str | None, wait_s: float) -> bool:
    """SIGTERM, wait, SIGKILL - for this very process only. True when it was running."""
    if start is None or not _alive(pid, start):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if wait_until(lambda: f"process {pid} to end" if _alive(pid, start) else None, wait_s, POLL_S):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # Its guard ends the system's processes.
    return True


def _end_processes(known: Standalone) -> bool:
    """Ends processes of the system that outlived supervisor and guard. True when there were any."""

    def missing() -> str | None:
        return "the guard to end them" if any(_alive(*one) for one in known.processes.values()) else None

    wait_until(missing, 2.0, POLL_S)
    left = [process for process in known.processes.values() if _alive(*process)]
    for pid, start in left:
        kill_group(pid, start)
    return bool(left)


def _data_directories(directory: Path) -> list[Path]:
    """Data that a killed supervisor could not wipe: everything of the system but its logs and configuration
    files.
    """
    return [path for path in (directory / "system").glob("*/*") if path.is_dir() and path.name != "logs"]


def _request_as_json(request: SystemRequest) -> dict[str, Any]:
    """The fields that a supervisor needs; a connection to a running cluster is none of them."""
    return {
        "version": request.version,
        "nodes": request.nodes,
        "level": request.level,
        "options": _plain(request.options),
        "source": request.source,
        "tls": request.tls,
        "trusted": request.trusted,
    }


def _plain(value: object) -> object:
    """Options as JSON knows them; a YAML reader's own mappings and lists become plain ones."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def _write_json(path: Path, content: object) -> None:
    """Replaces a file at once: a reader sees the old or the new content. Options hold passwords, so it is for its owner alone."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(path)


def _write_state(state: Standalone) -> None:
    content = dataclasses.asdict(state)
    del content["directory"]
    _write_json(state.directory / "state.json", content)


# ---------------------------------------------------------------------- the supervisor


class _StopAsked(BaseException):
    """SIGTERM or SIGINT; not an Exception, so that nothing on the way takes it for a failure."""


def supervise(name: str) -> int:
    """Starts the system that request.json asks for, keeps it up, and ends it when asked. Returns the exit
    status.
    """
    directory = _directory(name)
    request = SystemRequest(**json.loads((directory / "request.json").read_text()))
    own = identity(os.getpid())
    state = Standalone(
        name=name,
        state="starting",
        directory=directory,
        nodes=request.nodes,
        started_unix_s=int(time.time()),
        supervisor=(os.getpid(), own) if own is not None else None,
    )
    running: RunningSystem | None = None
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, _ask_to_stop)
    try:
        _write_state(state)
        running = systems()[name].start(request, directory / "system", lambda line: print(line, flush=True))
        state = _describe_running(state, running)
        _write_state(state)
        while (failure := running.failure()) is None:
            time.sleep(WATCH_S)
        raise SystemFailure(failure)
    except _StopAsked:
        state = dataclasses.replace(state, state="down", supervisor=None)
    except (SystemFailure, SystemInputError, OSError) as failure:
        state = dataclasses.replace(state, state="failed", message=str(failure), supervisor=None)
    if running is not None:
        running.stop()
        if state.state == "down":
            running.wipe()
    _write_state(dataclasses.replace(state, processes={}))
    return 0 if state.state == "down" else 1


def _ask_to_stop(_number: int, _frame: types.FrameType | None) -> None:
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, signal.SIG_IGN)  # Once is enough; stopping must not be interrupted.
    raise _StopAsked


def _describe_running(state: Standalone, running: RunningSystem) -> Standalone:
    processes = {process.name: (process.pid, identity(process.pid) or "") for process in running.processes()}
    return dataclasses.replace(
        state,
        state="up",
        version=running.version,
        nodes=running.nodes,
        level=running.level,
        connection=running.connection,
        metrics=[source.url for source in running.metric_sources()],
        processes=processes,
    )


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1]))
