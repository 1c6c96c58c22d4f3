"""Workers as child processes on this machine."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

from streamgauge.fleet.base import Fleet, FleetFailure, Worker
from streamgauge.fleet.binary import find_gauge
from streamgauge.fleet.children import last_lines, start_child, stop_child
from streamgauge.fleet.client import WorkerClient, WorkerLost, WorkerRefused

READY_WITHIN_S = 10.0
READY_PREFIX = "ready "
STOP_GRACE_S = 3.0
POLL_S = 0.01
API_VERSION = 1


class LocalFleet(Fleet):
    """One worker, a child of the lab that dies with it."""

    def __init__(self, gauge: Path | None = None) -> None:
        self._gauge = gauge
        self._child: subprocess.Popen[bytes] | None = None
        self._client: WorkerClient | None = None
        self._log: Path | None = None

    def start(self, log_directory: Path) -> Worker:
        """Starts `gauge worker` on a free loopback port."""
        self.stop()
        gauge = self._gauge or find_gauge()
        log_directory.mkdir(parents=True, exist_ok=True)
        self._log = log_directory / "worker.log"
        try:
            self._child = start_child([str(gauge), "worker", "--listen", "127.0.0.1:0"], self._log)
        except OSError as error:
            raise FleetFailure(f"{gauge} could not be started: {error.strerror}") from None
        try:
            self._client = WorkerClient(self._await_address())
            info = self._client.info()
        except (WorkerLost, WorkerRefused) as error:
            self.stop(at_once=True)
            raise FleetFailure(f"the worker did not come up: {error}") from None
        except BaseException:
            self.stop(at_once=True)
            raise
        if info.api != API_VERSION:
            self.stop(at_once=True)
            raise FleetFailure(
                f"{gauge} speaks version {info.api} of the worker API, expected {API_VERSION}: "
                "streamgauge and gauge are from different versions, install both anew"
            )
        return Worker(name="worker-0", client=self._client, pid=self._child.pid)

    def _await_address(self) -> str:
        """Waits for the line `ready HOST:PORT`."""
        assert self._child is not None
        assert self._log is not None
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            for line in self._log.read_text("utf-8", "replace").splitlines(keepends=True):
                if line.startswith(READY_PREFIX) and line.endswith("\n"):
                    return line[len(READY_PREFIX) :].strip()
            if self._child.poll() is not None:
                said = last_lines(self._log) or "it said nothing"
                raise FleetFailure(f"the worker ended with status {self._child.returncode}: {said}")
            time.sleep(POLL_S)
        raise FleetFailure(f"the worker was not ready within {READY_WITHIN_S:g} s (log: {self._log})")

    def failure(self) -> str | None:
        """How the child ended, when it did."""
        if self._child is None:
            return "the worker was stopped"
        if self._child.poll() is None:
            return None
        status = self._child.returncode
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        said = last_lines(self._log, 1) if self._log is not None and status > 0 else ""
        return f"the worker {how}" + (f": {said}" if said else "")

    def stop(self, *, at_once: bool = False) -> None:
        """Closes the connections and stops the child."""
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.close()
            self._client = None
        if self._child is not None:
            stop_child(self._child, 0.0 if at_once else STOP_GRACE_S)
            self._child = None
