"""What this user's lab made itself, as the user's state directory tells, outside of every run.

A run may come from anybody and say anything. What it names is started only when its seal (HMAC-SHA-256, with a key in the state
directory) shows that the lab of this user wrote it, and removed only when the state directory has a record of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import shutil
from pathlib import Path

from streamgauge.store.opened import read_bytes
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.files import write_secret

_KEY_BYTES = 32


def state_directory() -> Path:
    """Where this user's programs keep what outlives them (XDG Base Directory Specification, XDG_STATE_HOME)."""
    told = os.environ.get("XDG_STATE_HOME", "")
    base = Path(told) if Path(told).is_absolute() else Path("~/.local/state").expanduser()
    return base / "streamgauge"


def seal(purpose: str, text: str) -> str | None:
    """The seal of a text; None where there is no place for a key, so that nothing can be shown to be ours."""
    try:
        key = _key()
    except (OSError, RuntimeError, InputError):
        return None
    return hmac.new(key, f"{purpose}\0{text}".encode(), hashlib.sha256).hexdigest()


def is_sealed(found: str | None, purpose: str, text: str) -> bool:
    """Whether a seal is the one that this user's lab makes."""
    expected = seal(purpose, text)
    return (
        found is not None and expected is not None and hmac.compare_digest(found.encode(), expected.encode())
    )


def claim_directory(path: Path, owner: Path) -> Path:
    """Makes a directory outside of a run for data of that run (or trial) at `owner`, and writes down in the state directory that
    the lab did. Raises InputError when it is there already and is not its own."""
    path = path.absolute()
    if path.exists() and not is_claimed(path, owner):
        raise InputError(f"--data: {path} is there already and is not of this run: move it away")
    path.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError, RuntimeError):
        # Without a record the lab removes it all the same, unless it is killed.
        record = _record(path, owner)
        record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_secret(record, _identity(path).encode())
    return path


def is_claimed(path: Path, owner: Path) -> bool:
    """Whether the lab made this very directory for this run or trial. Nothing in it is read."""
    try:
        return not path.is_symlink() and read_bytes(_record(path, owner), 1024).decode() == _identity(path)
    except (OSError, RuntimeError, ValueError, InputError):
        return False


def remove_made(path: Path, owner: Path) -> None:
    """Removes a directory that this very process made with `claim_directory`."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError, RuntimeError):
        _record(path, owner).unlink(missing_ok=True)


def remove_claimed(path: Path, owner: Path) -> None:
    """Removes a directory that the lab made, if it is claimed."""
    if is_claimed(path, owner):
        remove_made(path, owner)


def _record(path: Path, owner: Path) -> Path:
    named = hashlib.sha256(f"{path.resolve()}\0{owner.resolve()}".encode()).hexdigest()
    return state_directory() / "data" / named


def _identity(path: Path) -> str:
    """The directory itself, whatever it is called now."""
    status = path.lstat()
    return f"{status.st_dev} {status.st_ino}"


def _key() -> bytes:
    path = state_directory() / "key"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f".key.{secrets.token_hex(8)}")
        write_secret(temporary, secrets.token_hex(_KEY_BYTES).encode())
        try:
            # Of two labs that start at once, one makes it.
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            temporary.unlink()
    status = path.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise InputError(Problem("is not this user's alone: remove it; the lab makes a new one", str(path)))
    return read_bytes(path, 1024)
