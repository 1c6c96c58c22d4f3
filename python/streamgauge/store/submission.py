"""A run as one file that can be passed on and checked: a zip with the list of what is in it (`submission.json`), and of what was left out.

The same run gives the same bytes. Whoever opens one trusts nothing of it: names are of a short list, sizes are bounded while it is unpacked, and what is
unpacked is opened as any run of somebody else (store/opened.py).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import Field

from streamgauge.model.checked_study import study_directory
from streamgauge.model.result_base import Model
from streamgauge.model.result_columns import (
    INTERVAL_COLUMNS,
    METRIC_COLUMNS,
    PROFILE_COLUMNS,
    RESOURCE_COLUMNS,
)
from streamgauge.store.directory import DURABILITY_NAME, RunDirectory
from streamgauge.store.opened import as_model, check_tree, parse_json, read_bytes
from streamgauge.store.parquet import read_rows
from streamgauge.store.plan_file import PLAN_NAME
from streamgauge.store.redaction import Redaction, left
from streamgauge.store.tables import write_table
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.files import clean, is_text_log, open_plain
from streamgauge.vocabulary.version import version

SUFFIX = ".streamgauge.zip"
LIST_NAME = "submission.json"
LIST_BYTES_MAX = 16 << 20
FILE_BYTES_MAX = 1 << 30
"""Of the packed file."""
MEMBER_BYTES_MAX = 512 << 20
UNPACKED_BYTES_MAX = 2 << 30
ENTRIES_MAX = 40_000
DIRECTORY_BYTES_MAX = 16 << 20
"""Of the zip's own list."""
PIECE_BYTES = 1 << 20
OF_RUN = ("manifest.json", PLAN_NAME, DURABILITY_NAME)
COLUMNS = {
    "intervals.parquet": INTERVAL_COLUMNS,
    "resources.parquet": RESOURCE_COLUMNS,
    "metrics.parquet": METRIC_COLUMNS,
    "profile.parquet": PROFILE_COLUMNS,
}
OF_TRIAL = ("trial.json", "result.json", "events.jsonl", *COLUMNS, "acks.csv")
KEY_COLUMNS = ("interval", "start_s", "duration_s")
"""Without these no row is one (store/parquet.py)."""
_LINK = re.compile(r"^\s*link:\s*(https://\S+)", re.MULTILINE)
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
_NAME = re.compile(
    rf"(?:{'|'.join(map(re.escape, (LIST_NAME, *OF_RUN)))}|trials/[0-9]{{3,6}}/(?:{'|'.join(map(re.escape, OF_TRIAL))}|logs/(?:{_PART}/){{0,4}}{_PART}))"
)
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_END = struct.Struct("<4s4H2LH")
_TIME = (1980, 1, 1, 0, 0, 0)


class PackedFile(Model):
    """A file of a submission."""

    name: str
    bytes: int
    sha256: str


class LeftOut(Model):
    """What is in the run and not in the file."""

    what: str
    why: str


class Submission(Model):
    """`submission.json`."""

    format: int = 1
    streamgauge_version: str
    """Of the lab that packed it."""
    run_id: str
    files: list[PackedFile]
    left_out: list[LeftOut] = Field(default_factory=list)
    replaced: list[str] = Field(default_factory=list)
    """What was taken out of texts, a phrase each."""


@dataclass(frozen=True)
class Unpacked:
    """A submission that was unpacked."""

    run: RunDirectory
    listed: Submission
    wrong: list[str]
    """What of the files is not as the list says, a sentence each."""


def pack(run: RunDirectory, target: Path, *, with_hosts: bool = False, with_logs: bool = False) -> Submission:
    """Writes a run as one file; what is in it. Raises InputError where the run is none of ours, or is larger than such a file may be."""
    if not run.ours:
        message = "holds imported results alone: there is nothing in them that could be checked"
        raise InputError(Problem(message, str(run.path)))
    if not _RUN_ID.fullmatch(run.run_id):
        message = f"cannot be packed: its name is to be of letters, digits, '.', '_' and '-', and is '{clean(run.run_id)}'"
        raise InputError(Problem(message, str(run.path)))
    redaction = Redaction(with_hosts=with_hosts, machines=_machines(run), links=_published_links())
    files = dict(sorted(_files(run, redaction, with_logs=with_logs)))
    listed = Submission(
        streamgauge_version=version(),
        run_id=run.run_id,
        files=[
            PackedFile(name=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            for name, content in files.items()
        ],
        left_out=_left_out(run, set(files), with_logs=with_logs),
        replaced=left(redaction.counts),
    )
    text = listed.model_dump_json(indent=1).encode()
    if sum(map(len, files.values())) > UNPACKED_BYTES_MAX:
        message = f"is larger than {UNPACKED_BYTES_MAX >> 30} GiB, which is as much as one file takes"
        raise InputError(Problem(message, str(run.path)))
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as sink:
            for name, content in {LIST_NAME: text, **files}.items():
                entry = zipfile.ZipInfo(name, _TIME)
                entry.external_attr = 0o100644 << 16
                entry.create_system = 3
                sink.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return listed


def unpack(source: Path, into: Path) -> Unpacked:
    """Unpacks a submission into a directory of its own below `into`. Raises InputError for anything that no submission holds."""
    file = clean(str(source))
    try:
        with open_plain(source, follow=True) as packed:
            _check_ends(packed)
            with zipfile.ZipFile(packed) as archive:
                entries = _entries(archive)
                text = _read(archive, entries[LIST_NAME], LIST_BYTES_MAX)
                listed = as_model(
                    Submission, parse_json(text, f"{file}: {LIST_NAME}"), f"{file}: {LIST_NAME}"
                )
                if not _RUN_ID.fullmatch(listed.run_id):
                    raise ValueError("the name of its run cannot be one")
                run = RunDirectory(into / listed.run_id)
                (run.path / "trials").mkdir(parents=True)
                digests = _extract(archive, entries, run.path)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        NotImplementedError,
        RuntimeError,
        OSError,
    ) as error:
        if isinstance(error, InputError):
            raise
        told = clean(str(error).splitlines()[0])[:200] if str(error) else type(error).__name__
        message = f"is no file that `streamgauge submit` has made: {told}"
        raise InputError(Problem(message, file)) from None
    check_tree(run.path)
    return Unpacked(run, listed, list(_differences(listed, digests)))


def is_submission(path: Path) -> bool:
    """Whether a path is a file, and so not the directory of a run."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _published_links() -> list[str]:
    """Of the studies that ship."""
    texts = (path.read_text("utf-8") for path in study_directory().rglob("*.yaml"))
    return [found[1] for text in texts for found in _LINK.finditer(text)]


def _machines(run: RunDirectory) -> set[str]:
    """Machines that agents told of: those of a cluster, and those whose disks were probed."""
    contexts = (trial.read_context() for trial in run.trials())
    whole = (run.path / "manifest.json").is_file()
    probed = {disk.host for disk in run.read_manifest().disks} if whole else set()
    return probed | {host.name for context in contexts if context is not None for host in context.hosts}


def _files(run: RunDirectory, redaction: Redaction, *, with_logs: bool) -> Iterator[tuple[str, bytes]]:
    for name in OF_RUN:
        if (run.path / name).is_file():
            yield name, _cleared(run.path / name, redaction)
    for trial in run.trials():
        for name in OF_TRIAL:
            if (trial.path / name).is_file():
                yield f"trials/{trial.path.name}/{name}", _cleared(trial.path / name, redaction)
        for path in _logs(trial.logs):
            # What the collector of a JVM says is read for the explanation of the tail: without it that cannot be computed again.
            if with_logs or path.name.startswith("gc.log"):
                name = f"trials/{trial.path.name}/{path.relative_to(trial.path).as_posix()}"
                if _NAME.fullmatch(name) and (is_text_log(path) or path.name.startswith("gc.log")):
                    text = read_bytes(path, MEMBER_BYTES_MAX).decode("utf-8", "replace")
                    yield name, redaction.text(text).encode()


def _logs(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def _cleared(path: Path, redaction: Redaction) -> bytes:
    """The content of a file of the run as it is passed on. Raises InputError for one that the lab would not have written."""
    if path.suffix == ".parquet":
        return _cleared_table(path, redaction)
    content, file = read_bytes(path, MEMBER_BYTES_MAX), clean(str(path))
    if path.suffix == ".json":
        value = redaction.value(parse_json(content, file))
        if path.name in (PLAN_NAME, DURABILITY_NAME):
            _unseal(value)
        return json.dumps(value, indent=1, ensure_ascii=False).encode()
    text = content.decode("utf-8", "replace")
    if path.suffix == ".jsonl":
        # What a killed lab left after its last whole line is none.
        lines = text.split("\n")[:-1]
        values = [parse_json(line, file, number) for number, line in enumerate(lines, 1)]
        return "".join(json.dumps(redaction.value(value)) + "\n" for value in values).encode()
    return redaction.text(text).encode()


def _unseal(value: object) -> None:
    """A seal is of the lab that wrote a plan, and says nothing to others."""
    if isinstance(value, dict):
        if "seal" in value:
            value["seal"] = None
        for inner in value.values():
            _unseal(inner)


def _cleared_table(path: Path, redaction: Redaction) -> bytes:
    """A table; the same bytes where none of its texts says too much."""
    columns = COLUMNS[path.name]
    texts = {name: kind for name, kind in columns.items() if kind == "string" or name in KEY_COLUMNS}
    # The columns of errors and disturbances hold JSON, whose texts are cleared as texts.
    told = {value for row in read_rows(path, texts) for value in row.values() if isinstance(value, str)}
    instead = {text: redaction.text(text) for text in sorted(told)}
    if all(text == cleared for text, cleared in instead.items()):
        return read_bytes(path, MEMBER_BYTES_MAX)
    rows = [
        {name: instead.get(value, value) if isinstance(value, str) else value for name, value in row.items()}
        for row in read_rows(path, columns)
    ]
    sink = io.BytesIO()
    write_table(rows, columns, sink)
    return sink.getvalue()


def _left_out(run: RunDirectory, packed: set[str], *, with_logs: bool) -> list[LeftOut]:
    logs = 0
    others: dict[str, int] = {}
    for folder, _, names in os.walk(run.path):
        for name in names:
            path = (Path(folder) / name).relative_to(run.path).as_posix()
            if path in packed:
                continue
            if "/logs/" in path:
                logs += 1
            else:
                first = re.sub(r"^trials/[0-9]+/", "trials/*/", path).split("/")
                others["/".join(first[:3])] = others.get("/".join(first[:3]), 0) + 1
    found = [
        LeftOut(what=f"{what} ({count:,} files)" if count > 1 else what, why=_why(what))
        for what, count in sorted(others.items())
    ]
    if logs:
        why = (
            "they are no text"
            if with_logs
            else "logs tell of the machine and are not needed to check figures; --with-logs packs them"
        )
        found.append(LeftOut(what=f"logs of systems and workers ({logs:,} files)", why=why))
    return found


def _why(what: str) -> str:
    if what.endswith(".html"):
        return "it is made of the rest (streamgauge report)"
    if what.startswith(("repeated", "unfinished")):
        return "trials that do not count: disturbed ones that were done again, or cut off ones"
    return "no figure is computed from it"


def _check_ends(packed: BinaryIO) -> None:
    """The end of a zip, before a library makes objects of what it lists. Raises ValueError."""
    size = packed.seek(0, os.SEEK_END)
    if size > FILE_BYTES_MAX:
        raise ValueError(f"it is larger than {FILE_BYTES_MAX >> 30} GiB")
    if size < _END.size:
        raise ValueError("it is too short")
    packed.seek(size - _END.size)
    signature, disk, first, here, entries, listed_bytes, _, comment = _END.unpack(packed.read(_END.size))
    if signature != b"PK\5\6" or disk or first or here != entries or comment:
        raise ValueError("its end is not that of a zip without a comment")
    if not 0 < entries <= ENTRIES_MAX or listed_bytes > DIRECTORY_BYTES_MAX:
        raise ValueError(f"it lists {entries:,} files in {listed_bytes:,} bytes")
    packed.seek(0)


def _entries(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The files by their names, checked. Raises ValueError."""
    found: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for entry in archive.infolist():
        name = entry.filename
        if entry.orig_filename != name or not _NAME.fullmatch(name) or name in found:
            raise ValueError(f"it holds '{name[:120]}', or holds it twice")
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise ValueError(f"{name} is no plain file")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or entry.flag_bits & 1:
            raise ValueError(f"{name} is packed in another way")
        total += entry.file_size
        if entry.file_size > MEMBER_BYTES_MAX or total > UNPACKED_BYTES_MAX:
            raise ValueError(f"{name} unpacks to more than any run")
        found[name] = entry
    if LIST_NAME not in found or "manifest.json" not in found:
        raise ValueError(f"it has no {LIST_NAME if LIST_NAME not in found else 'manifest.json'}")
    return found


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, bytes_max: int) -> bytes:
    with archive.open(entry) as source:
        content = source.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise ValueError(f"{entry.filename} is larger than {bytes_max >> 20} MiB")
    return content


def _extract(
    archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], into: Path
) -> dict[str, tuple[int, str]]:
    """Writes all files but the list; name -> size and digest. What an entry says of its size is not believed."""
    found: dict[str, tuple[int, str]] = {}
    left_bytes = UNPACKED_BYTES_MAX
    for name, entry in entries.items():
        if name == LIST_NAME:
            continue
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        digest, written = hashlib.sha256(), 0
        with archive.open(entry) as source, path.open("xb") as sink:
            while piece := source.read(PIECE_BYTES):
                written += len(piece)
                left_bytes -= len(piece)
                if written > MEMBER_BYTES_MAX or left_bytes < 0:
                    raise ValueError(f"{name} unpacks to more than any run")
                digest.update(piece)
                sink.write(piece)
        found[name] = (written, digest.hexdigest())
    return found


def _differences(listed: Submission, digests: dict[str, tuple[int, str]]) -> Iterator[str]:
    expected = {one.name: (one.bytes, one.sha256) for one in listed.files}
    for name in sorted(expected.keys() | digests.keys()):
        if name not in digests:
            yield f"{name} is listed and not there"
        elif name not in expected:
            yield f"{name} is there and not listed"
        elif expected[name] != digests[name]:
            yield f"{name} is not the file whose digest is listed"
