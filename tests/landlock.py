"""A process that may read and write below given directories and nowhere else, as the kernel sees to (Landlock, landlock(7)):
what Python's audit events do not tell, such as files that a library opens, is refused as well."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System calls; they have the same numbers on all architectures."""
_ASK_VERSION = 1
_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38
_EXECUTE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 2, 1 << 3
_ALL = (1 << 13) - 1
"""Every right of the first version: execute, write, read, remove and make entries of all kinds."""
_READ = _EXECUTE | _READ_FILE | _READ_DIRECTORY


def available() -> bool:
    """Whether the kernel has it and has not switched it off."""
    return bool(ctypes.CDLL(None).syscall(_CREATE, None, 0, _ASK_VERSION) >= 1)


def restrict(readable: Sequence[str], writable: Sequence[str]) -> None:
    """Takes all rights but these away from this process and its children, for good. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    handled = struct.pack("<Q", _ALL)
    rules = _done(libc.syscall(_CREATE, handled, len(handled), 0))
    for paths, rights in ((readable, _READ), (writable, _ALL)):
        for path in paths:
            if not os.path.exists(path):  # noqa: PTH110
                continue
            directory = os.path.isdir(path)  # noqa: PTH112
            handle = os.open(path, os.O_PATH)
            rule = struct.pack(
                "<Qi", rights if directory else rights & (_EXECUTE | _READ_FILE | 1 << 1), handle
            )
            _done(libc.syscall(_ADD, rules, _BENEATH, rule, 0))
            os.close(handle)
    _done(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _done(libc.syscall(_RESTRICT, rules, 0))


def _done(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
