"""ansible-core as a program of its own: locked in requirements/ansible.txt, in an environment beside the tests' cache, and no part of streamgauge."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab_support import ROOT

ANSIBLE = ROOT / "deploy" / "ansible"
LOCK = ROOT / "requirements" / "ansible.txt"
INSTALL_S = 300
PLAY_S = 1200
"""Far above what a play takes on a busy machine: one that waits for an answer never ends."""


def install(cache: Path) -> Path:
    """The program ansible-playbook; installed once for each lock."""
    place = cache / f"ansible-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}-{sys.version_info[1]}"
    program = place / "bin" / "ansible-playbook"
    if not (place / "whole").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True, timeout=INSTALL_S)
        pip: list[str | Path] = [
            place / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
        ]
        subprocess.run([*pip, "--require-hashes", "-r", LOCK], check=True, timeout=INSTALL_S)
        (place / "whole").touch()
    return program


def play(
    program: Path, directory: Path, *arguments: str | Path, within: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """ansible-playbook ARGUMENTS, run in deploy/ansible with its own files in `directory`. `within`: a command that runs it."""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")},
        "ANSIBLE_HOME": str(directory / "home"),
        "ANSIBLE_LOCAL_TEMP": str(directory / "local"),
        "ANSIBLE_REMOTE_TEMP": str(directory / "remote"),
        # For what is on this machine: a module that comes through a pipe takes Python a third more CPU than one in a file.
        "ANSIBLE_PIPELINING": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "LC_ALL": "C.UTF-8",
    }
    return subprocess.run(
        [*within, str(program), *map(str, arguments)],
        cwd=ANSIBLE,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PLAY_S,
        stdin=subprocess.DEVNULL,
    )


def archive(of: Mapping[str, Path], name: str, into: Path) -> dict[str, str]:
    """An archive as its makers pack it, of files that are there; its URL and SHA-256. `of`: path in the archive -> directory."""
    path = into / f"{name}.tar"
    with tarfile.open(path, "w") as packed:
        for place, directory in of.items():
            for file in sorted(directory.iterdir()):
                if file.name != "manifest.json":
                    packed.add(file, f"{name}/{place}/{file.name}")
    with path.open("rb") as stream:
        return {
            "url": path.as_uri(),
            "checksum": f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}",
        }


def command_of(unit: Path) -> tuple[list[str], Path]:
    """What systemd would start, and where."""
    settings = dict(line.split("=", 1) for line in unit.read_text("utf-8").splitlines() if "=" in line)
    return shlex.split(settings["ExecStart"]), Path(settings.get("WorkingDirectory", "/"))
