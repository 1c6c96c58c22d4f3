"""What the command line does without, and what others would load for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Pandas(MetaPathFinder):
    """pyarrow loads pandas, where it is installed, to see whether what it is given is a frame: a fifth of the CPU of a start."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("the command line has no use for pandas", name=name)
        return None


def do_without() -> None:
    """For the rest of the process. Frames for notebooks are made elsewhere (frames.py)."""
    sys.meta_path.insert(0, _Pandas())
