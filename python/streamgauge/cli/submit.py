"""`streamgauge submit`: a run as one file that can be passed on."""

from __future__ import annotations

from pathlib import Path

from streamgauge.store.directory import RunDirectory
from streamgauge.store.lab import is_running
from streamgauge.store.submission import SUFFIX, pack
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.format import exact_size, plural


def submit(run: str, file: Path | None, *, with_hosts: bool, with_logs: bool, out: Path) -> None:
    """The work of commands/submit.py."""
    found = RunDirectory.open(run, out)
    found = RunDirectory(found.path.resolve())
    if found.ours and is_running(found):
        raise InputError(f"{found.path}: this run is still going on; pack it when it has ended")
    target = file or Path(f"{found.run_id}{SUFFIX}")
    if target.is_dir() or not target.parent.is_dir():
        raise InputError(f"--file {target}: expected a file in a directory that exists")
    listed = pack(found, target, with_hosts=with_hosts, with_logs=with_logs)
    print(f"{target}: {plural(len(listed.files), 'file')}, {exact_size(target.stat().st_size)}")
    for one in listed.left_out:
        print(f"left out: {one.what}: {one.why}")
    for told in listed.replaced:
        print(f"replaced: {told}")
    print(f"Whoever has it can check it: streamgauge verify {target.name}")
