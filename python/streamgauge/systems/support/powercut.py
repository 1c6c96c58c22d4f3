"""Disks that can lose power: `gauge powercut` below a system's data directories (docs/powercut.md).

Each part of a system gets a disk of its own, so that one node's power can fail while the others' stays on. The
processes that serve the disks end, and unmount, with the lab; what one that was killed left mounted is cleaned at the
next start.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamgauge.model.power_cut import LostFile, Place, PowerCut, arguments
from streamgauge.systems.base.parts import Part, kill_together
from streamgauge.systems.support import privileges
from streamgauge.vocabulary.choices import Survivors
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError
from streamgauge.vocabulary.gauge_binary import ready_address
from streamgauge.vocabulary.waiting import wait_until

FUSE = Path("/dev/fuse")
MOUNTS = Path("/proc/self/mounts")
MARK = "powercut"
"""What its mounts are called in the table of mounts."""
SOCKETS = "streamgauge-disks-"
"""What directories with sockets are called, before the process that made them."""
READY_WITHIN_S = 20.0
ANSWER_WITHIN_S = 60.0
STOP_WITHIN_S = 20.0
CLEAN_WITHIN_S = 20.0
POLL_S = 0.02
MS_PER_S = 1000.0
NS_PER_MS = 1e6
DEEDS_TIMED = ("created", "written", "synced", "sync_failed", "renamed", "removed")
"""What a cut tells of a file: when it was last done."""


def missing() -> str | None:
    """One sentence on what this machine lacks to have such disks; None when nothing."""
    if not FUSE.exists():
        return (
            f"there is no {FUSE}: file systems in user space are not available here (modprobe fuse, or start the "
            "container with --device /dev/fuse and the capability SYS_ADMIN)"
        )
    try:
        os.close(os.open(FUSE, os.O_RDWR | os.O_CLOEXEC))
    except PermissionError as error:
        if error.errno == errno.EPERM:
            return f"{FUSE} is there but may not be used in this container (start it with --device /dev/fuse)"
        mode = FUSE.stat().st_mode & 0o777
        return (
            f"{FUSE} may not be opened by this user (its mode is {mode:o}; chmod 666 {FUSE}, or run as root)"
        )
    except OSError as error:
        return f"{FUSE} cannot be opened: {error.strerror} (modprobe fuse)"
    if os.geteuid() == 0 and privileges.has(privileges.SYS_ADMIN[1]):
        return None
    helper = shutil.which("fusermount3")
    if helper is None:
        who = "root without the capability SYS_ADMIN" if os.geteuid() == 0 else "a user who is not root"
        return f"mounting as {who} needs fusermount3 (apt-get install fuse3)"
    if os.geteuid() != 0 and not Path(helper).stat().st_mode & stat.S_ISUID:
        return f"{helper} is not setuid root, so that it cannot mount for this user (chmod u+s {helper})"
    if os.geteuid() == 0:
        return "mounting needs the capability SYS_ADMIN, which this root does not have (start the container with --cap-add SYS_ADMIN)"
    return None


def lost_file(part: str, found: Mapping[str, Any], cut_ns: int) -> LostFile:
    """Of the answer to `cut` or `find`: a file that lost something, with times before the cut."""
    before = {
        f"{deed}_ms": (cut_ns - int(at_ns)) / NS_PER_MS
        for deed in DEEDS_TIMED
        if (at_ns := found.get(f"{deed}_ns")) is not None
    }
    return LostFile(
        part=part,
        path=str(found["path"]),
        lost=found["lost"],
        dropped_bytes=int(found["dropped_bytes"]),
        survived_bytes=int(found["survived_bytes"]),
        **before,
    )


class Disk:
    """One mounted disk: its control socket, spoken to line by line."""

    def __init__(self, name: str, gauge: Path, mount: Path, base: Path, socket_path: Path) -> None:
        self.name = name
        self.mount = mount
        self._log = base / f"{name}.log"
        self._socket_path = socket_path
        base.mkdir(parents=True, exist_ok=True)
        mount.mkdir(parents=True, exist_ok=True)
        command = [str(gauge), "powercut", "--mount", str(mount), "--state", str(base / name)]
        command += ["--control", str(socket_path), "--parent-pid", str(os.getpid())]
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, options: Sequence[str]) -> None:
        """Mounts. Raises SystemFailure with what it said."""
        try:
            with self._log.open("wb") as log:
                # Not killed with the lab as other children are: it must unmount, which it does when its parent has
                # ended.
                process = subprocess.Popen(
                    [*self._command, *options],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                )
        except OSError as error:
            raise SystemFailure(f"{self._command[0]} could not be started: {error.strerror}") from None
        self._process = process

        def missing() -> str | None:
            if ready_address(self._log) is not None:
                return None
            if process.poll() is not None:
                raise SystemFailure(f"no disk that can lose power at {self.mount}: {self._said()}")
            return f"the disk at {self.mount} to be ready"

        late = wait_until(missing, READY_WITHIN_S, POLL_S)
        if late is not None:
            self.stop()
            raise SystemFailure(f"{late}: {self._said()}")
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.settimeout(ANSWER_WITHIN_S)
        self._connection.connect(str(self._socket_path))
        self._answers = self._connection.makefile("rb")

    def _said(self) -> str:
        lines = self._log.read_text("utf-8", "replace").split("\n")
        return " ".join(line for line in lines[-4:] if line) or "it said nothing"

    def ask(self, what: str, /, **arguments: Any) -> dict[str, Any]:
        """A command of its control socket and the answer to it. Raises SystemFailure."""
        request = json.dumps({"do": what, **arguments}) + "\n"
        try:
            self._connection.sendall(request.encode())
            answer = json.loads(self._answers.readline() or b"null")
        except (OSError, ValueError) as error:
            raise SystemFailure(
                f"the disk of {self.name} did not answer {what}: {error} ({self._said()})"
            ) from None
        if not isinstance(answer, dict) or not answer.get("ok"):
            told = answer.get("error") if isinstance(answer, dict) else "nothing"
            raise SystemFailure(f"the disk of {self.name} refused {what}: {told}")
        return answer

    def failure(self) -> str | None:
        """How it ended, when it did."""
        if self._process is None or self._process.poll() is None:
            return None
        return f"the disk of {self.name} ended with status {self._process.returncode}: {self._said()}"

    def stop(self) -> None:
        """Unmounts and ends. Idempotent; never raises."""
        with contextlib.suppress(OSError, AttributeError):
            self._connection.close()
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_WITHIN_S)
            if process.poll() is None:
                process.kill()
                process.wait()
        self._socket_path.unlink(missing_ok=True)


class Disks:
    """The disks of one running system. `provide` is the `SystemRequest.volume` of its start."""

    def __init__(self, gauge: Path, base: Path, options: Sequence[str] = ()) -> None:
        """`base`: where what is on the disks is kept, with the logs; removed by `stop`."""
        self._gauge = gauge
        self._base = base
        self._options = tuple(options)
        # Paths of sockets are short, those of runs may not be.
        self._sockets = Path(tempfile.mkdtemp(prefix=f"{SOCKETS}{os.getpid()}-"))
        self._disks: dict[str, Disk] = {}
        self._faults: dict[str, dict[str, Any]] = {}
        self._cut_ns: dict[str, int] = {}
        """When the power of each disk was cut last."""

    def provide(self, name: str, path: Path) -> None:
        """Mounts a disk for a part's data. Once more for the same part (a start that is tried again): a fresh one."""
        if name in self._disks:
            self._disks.pop(name).stop()
        disk = Disk(name, self._gauge, path, self._base, self._sockets / f"{name}.sock")
        self._disks[name] = disk
        disk.start(self._options)

    @property
    def names(self) -> list[str]:
        """The parts that have a disk."""
        return list(self._disks)

    def ask(self, names: Sequence[str], what: str, /, **arguments: Any) -> dict[str, dict[str, Any]]:
        """A command to several disks; the answers by part. Parts without a disk are left out."""
        return {name: self._disks[name].ask(what, **arguments) for name in names if name in self._disks}

    def settle(self) -> None:
        """Makes everything durable, as a system is after an hour of doing nothing."""
        for disk in self._disks.values():
            _sync_mount(disk.mount)
            disk.ask("sync")

    def written_bytes(self, names: Sequence[str]) -> int:
        """What has been written to these disks since they were mounted, synced or not; also while they have no power."""
        answers = self.ask(names, "accounts").values()
        return sum(
            int(one.get("bytes_written", 0)) for answer in answers for one in answer["classes"].values()
        )

    def delay_syncs(self, names: Sequence[str], delay_s: float) -> None:
        """From now on every sync on these disks takes so much longer; on the others as long as it takes."""
        for name in self._disks:
            self.set_faults([name], sync_delay_ms=delay_s * MS_PER_S if name in names else None)

    def set_faults(self, names: Sequence[str], **changes: Any) -> None:
        """Changes what is wrong with these disks (keys of the rules of `fault`); None ends it, what is not named stays."""
        for name in names:
            if name in self._disks:
                known = {**self._faults.get(name, {}), **changes}
                self._faults[name] = {key: value for key, value in known.items() if value is not None}
                rules = [{"glob": "*", **self._faults[name]}] if self._faults[name] else []
                self._disks[name].ask("fault", rules=rules)

    def cut_power(self, parts: Sequence[Part], survivors: Survivors = "none", seed: int = 0) -> PowerCut:
        """Power fails for these parts: their processes stop at one instant, of what was not synced the survivors are left,
        and the processes are gone. The disks have power again then.
        """
        names = [part.name for part in parts]
        # Stopped first and killed last: nothing is acknowledged between the two. Not waited for: a sync that is under way would end.
        for part in parts:
            part.process.signal(signal.SIGSTOP)
        answers = self.ask(names, "cut", **arguments(survivors, seed))
        self._cut_ns = {name: int(answer["cut_ns"]) for name, answer in answers.items()}
        kill_together(parts)
        self.ask(names, "power-on")

        def total(key: str) -> int:
            return sum(int(answer.get(key, 0)) for answer in answers.values())

        return PowerCut(
            survivors=survivors,
            seed=seed,
            dropped_bytes=total("dropped_bytes"),
            survived_bytes=total("survived_bytes"),
            names_reverted=total("names_reverted"),
            files=[
                lost_file(name, found, self._cut_ns[name])
                for name, answer in answers.items()
                for found in answer.get("lost") or []
            ],
        )

    def find_lost(self, names: Sequence[str], wanted: str) -> list[tuple[LostFile, int]]:
        """Files and places in them at which these bytes (hexadecimal, ?? for any) were among what the last cut took."""
        answers = self.ask(names, "find", hex=wanted)
        return [
            (lost_file(name, found, self._cut_ns.get(name, 0)), int(found["offset"]))
            for name, answer in answers.items()
            for found in answer["found"]
        ]

    def keep_names(self, *, strictly: bool) -> None:
        """How names survive from now on: with their directory's sync alone, or with any (docs/powercut.md). Everything is durable then."""
        for disk in self._disks.values():
            _sync_mount(disk.mount)
        self.ask(self.names, "metadata", model="strict" if strictly else "ordered")

    def hold_at(self, names: Sequence[str], place: Place) -> None:
        """These disks stand still at a place, until their power is cut."""
        self.ask(names, "hold", glob=place.glob, at=place.deed, count=place.count)

    def is_held(self, names: Sequence[str]) -> bool:
        """Whether one of these disks stands still."""
        held = [answer["hold"] for answer in self.ask(names, "status").values()]
        return any(one is not None and one["held_ns"] is not None for one in held)

    def release(self) -> None:
        """No disk stands still, or will."""
        self.ask(self.names, "release")

    def syncs_failed(self, names: Sequence[str]) -> int:
        """Syncs that failed on these disks since they were mounted."""
        answers = self.ask(names, "accounts").values()
        return sum(
            int(one.get("syncs_failed", 0)) for answer in answers for one in answer["classes"].values()
        )

    def failure(self) -> str | None:
        """Why there is a disk less than there should be."""
        return next((said for said in (disk.failure() for disk in self._disks.values()) if said), None)

    def stop(self) -> None:
        """Unmounts all and removes what was on them. Idempotent."""
        for disk in self._disks.values():
            disk.stop()
        self._disks.clear()
        shutil.rmtree(self._sockets, ignore_errors=True)
        shutil.rmtree(self._base, ignore_errors=True)


def _sync_mount(mount: Path) -> None:
    """sync -f: what processes changed through shared mappings reaches the disk."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["sync", "-f", str(mount)], check=False, timeout=ANSWER_WITHIN_S, capture_output=True)


def open_disks(gauge: Path, base: Path, options: Sequence[str] = ()) -> Disks:
    """Disks for a system; what earlier ones left mounted is cleaned first.

    Raises SystemInputError that says what is missing where there can be none.
    """
    lacking = missing()
    if lacking is not None:
        raise SystemInputError(f"faults of disks cannot be made here: {lacking}")
    clean(gauge)
    return Disks(gauge, base, options)


def clean(gauge: Path) -> list[str]:
    """Unmounts what killed ones left mounted; where. Mounts that are served are left alone by `gauge powercut --clean`. Directories of sockets of labs that
    were killed are removed; the sockets have gone with their disks."""
    left = [line.split(" ") for line in MOUNTS.read_text("utf-8", "replace").splitlines()]
    places = [
        fields[1].encode().decode("unicode_escape")
        for fields in left
        if len(fields) > 2 and MARK in f"{fields[0]} {fields[2]}"
    ]
    for place in places:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [str(gauge), "powercut", "--clean", place],
                check=False,
                timeout=CLEAN_WITHIN_S,
                capture_output=True,
            )
    for directory in Path(tempfile.gettempdir()).glob(f"{SOCKETS}*-*"):
        maker = directory.name.removeprefix(SOCKETS).partition("-")[0]
        if not Path("/proc", maker).exists():
            with contextlib.suppress(OSError):
                directory.rmdir()
    return places
