"""Labs that need not load what they run: forked from a process that has, which is most of the CPU that a short run takes.

The process that tests is the parent of such a lab as it is of any other, so that everything a test does with one (signals, its exit status, its children,
its CPU) is as with one that was started. What a start itself does is tested with labs that are (test_completion.py, test_quiet_real.py and others).
"""

from __future__ import annotations

import array
import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
PATH = (str(TESTS), str(TESTS.parent / "python"))
SERVE = "import prepared; prepared.serve()"
LONGEST = 1 << 17
"""Bytes of a request: arguments and environment."""
SET_CHILD_SUBREAPER = 36
"""Of prctl: descendants whose parent ends become its caller's children."""


def load() -> None:
    """All that a command may need."""
    import streamgauge.cli.app
    from streamgauge import systems
    from streamgauge.cli import deferred

    for work in (*deferred.WORK, "streamgauge.cli.carry_out:"):
        importlib.import_module(work.partition(":")[0])
    for module in pkgutil.walk_packages(systems.__path__, f"{systems.__name__}."):
        importlib.import_module(module.name)
    assert streamgauge.cli.app


def serve() -> None:
    """Loads, and forks a lab for each request until nobody can ask any more. Returns in labs alone, when they have ended."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    load()
    gc.collect()
    gc.freeze()
    while True:
        message, files, _, _ = socket.recv_fds(asked, LONGEST, 3)
        if not message:
            os._exit(0)
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            # Only now has the lab another parent.
            asked.send(b"forked")
            for file in files:
                os.close(file)
        else:
            between = os.getpid()
            lab = os.fork()
            if lab:
                asked.send(str(lab).encode("ascii"))
                os._exit(0)
            asked.close()
            while os.getppid() == between:
                time.sleep(0.0005)
            become(json.loads(message), files)
            return


def become(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """The program of a request, as if it had been started."""
    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["-c", *request["arguments"]]
    mine = [one for one in sys.path if one and one not in PATH]
    sys.path[:] = ["", *(one for one in request["env"].get("PYTHONPATH", "").split(os.pathsep) if one), *mine]
    importlib.import_module(request["module"]).main()


class Server:
    """The process that has loaded everything."""

    def __init__(self) -> None:
        self._asked, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(other.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(PATH)},
            )
        atexit.register(self._close)
        self._lock = threading.Lock()
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl

    def fork(self, request: Mapping[str, Any], files: Sequence[int]) -> int:
        """The process number of a lab, which is a child of this process."""
        with self._lock:
            self._adopt(True)
            try:
                passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
                self._asked.sendmsg([json.dumps(request).encode()], passed)
                number = self._asked.recv(64)
                assert number, f"the process that labs are forked from has ended: {self._process.wait()}"
                assert self._asked.recv(64) == b"forked"
            finally:
                self._adopt(False)
        return int(number)

    def _close(self) -> None:
        self._asked.close()
        self._process.kill()
        self._process.wait()

    def _adopt(self, orphans: bool) -> None:
        if self._prctl(SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


@functools.cache
def server() -> Server:
    """That of this process."""
    return Server()


class Lab(subprocess.Popen[str]):
    """`module`.main() with arguments, as a child process."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        cwd: Path,
        env: Mapping[str, str],
    ) -> None:
        """As Popen does."""
        self._module = module
        super().__init__(arguments, stdin=stdin, stdout=stdout, stderr=stderr, text=True, cwd=cwd, env=env)

    def _execute_child(self, *given: Any) -> None:
        """What Popen does to start a process, with what it has prepared for that."""
        arguments, _, _, _, _, cwd, env, *_ = given
        pipes = given[10:16]
        ends = enumerate((pipes[0], pipes[3], pipes[5]))
        files = [standard if end < 0 else end for standard, end in ends]
        request = {"module": self._module, "arguments": [*arguments], "cwd": str(cwd), "env": {**env}}
        self.pid = server().fork(request, files)
        self._child_created = True
        # What is the lab's of the pipes that Popen has made.
        for mine, others in ((1, 0), (2, 3), (4, 5)):
            if pipes[mine] >= 0:
                os.close(pipes[others])
