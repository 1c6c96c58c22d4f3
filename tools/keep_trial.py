"""Keeps a trial of a run as test data: what its figures are computed from, and the result, for tests/test_stored_trials.py.

    python tools/keep_trial.py runs/RUN/trials/001 NAME
    python tools/keep_trial.py --again [NAME ...]     computes kept results anew (all of them without a name), after a change that was meant to move them

What is not read is left out (settings, logs other than the collector's), paths lose their directories, and a trial that still names this machine or a
home directory is refused.
"""

import io
import json
import re
import socket
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import stored_trials

TABLES = ("intervals.parquet", "resources.parquet", "acks.csv")
_PATH = re.compile(r"(?<![\w.~:/])/(?:[\w.@+~-]+/)+([\w.@+~-]*)")


def without_paths(text: str) -> str:
    """A text with paths of this machine reduced to their last names."""
    return _PATH.sub(r"/kept/\1", text)


def cleared(value: Any) -> Any:
    """As `without_paths`, for every text within."""
    if isinstance(value, dict):
        return {key: cleared(one) for key, one in value.items()}
    if isinstance(value, list):
        return [cleared(one) for one in value]
    return without_paths(value) if isinstance(value, str) else value


def files_of(trial: Path) -> dict[str, bytes]:
    """What is kept of a trial's directory: name within it -> content."""
    context = cleared(json.loads((trial / "trial.json").read_text("utf-8")))
    context |= {"configuration": {}, "data_directory": None}
    files = {"trial.json": json.dumps(context, indent=1).encode()}
    files |= {name: (trial / name).read_bytes() for name in TABLES if (trial / name).is_file()}
    for log in sorted((trial / "logs").rglob("gc.log*")):
        files[str(log.relative_to(trial))] = without_paths(log.read_text("utf-8", "replace")).encode()
    return files


def texts_of(name: str, content: bytes) -> str:
    """What a file says in words."""
    if not name.endswith(".parquet"):
        return content.decode("utf-8", "replace")
    table = parquet.read_table(io.BytesIO(content))
    words = [
        table.column(one.name).unique().to_pylist() for one in table.schema if one.type == pyarrow.string()
    ]
    return "\n".join(str(word) for column in words for word in column)


def refuse_names(files: dict[str, bytes]) -> None:
    """Raises SystemExit where a file names this machine or a home directory, or holds what looks like a token."""
    for name, content in files.items():
        for told in (
            rf"\b{re.escape(socket.gethostname())}\b",
            r"/home/\w|/root\b|~/",
            r"\beyJ\w{8}|-----BEGIN",
        ):
            if found := re.search(told, texts_of(name, content)):
                raise SystemExit(f"{name}: holds {found[0]!r}: keep another trial")


def pack(files: dict[str, bytes], archive: Path) -> None:
    """Writes an archive that depends on nothing but the files."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def compute(name: str) -> None:
    """Writes the result of a kept trial."""
    with tempfile.TemporaryDirectory() as directory:
        stored_trials.unpack(name, Path(directory))
        (stored_trials.KEPT / f"{name}.json").write_text(stored_trials.result_of(Path(directory)), "utf-8")


def main() -> None:
    match sys.argv[1:]:
        case ["--again", *names]:
            for name in names or stored_trials.names():
                compute(name)
        case [trial, name] if re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
            files = files_of(Path(trial))
            refuse_names(files)
            pack(files, stored_trials.KEPT / f"{name}.tar.xz")
            compute(name)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
