"""maturin, with the streamgauge command executable.

The wheel keeps the mode that the command's file has in the tree, pip installs it with that mode, and an sdist made by maturin forgets it: a package
installed from an sdist would have a command that cannot be run. This backend (PEP 517, PEP 660) sets the mode before each build and leaves everything
else to maturin.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import maturin
from maturin import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = Mapping[str, Any] | None
COMMAND = Path(__file__).resolve().parent.parent / "streamgauge.data" / "scripts" / "streamgauge"


def build_wheel(
    directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """The wheel, by maturin, with the command executable."""
    COMMAND.chmod(0o755)
    return str(maturin.build_wheel(directory, config_settings, metadata_directory))


def build_editable(
    directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """The editable wheel, by maturin, with the command executable."""
    COMMAND.chmod(0o755)
    return str(maturin.build_editable(directory, config_settings, metadata_directory))
