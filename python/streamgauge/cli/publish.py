"""`streamgauge publish`: a site of results."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from streamgauge.cli.passed_on import PassedOn, opened
from streamgauge.report import site
from streamgauge.store.files import write_atomically
from streamgauge.store.submission import SUFFIX, pack, unpack
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.format import plural

FRONT = "index.html"
RESULTS_PER_PROCESS = 3
"""With fewer a process costs more than it gains: it begins with reading the program."""
MARK = ".streamgauge-site"
"""In a directory that this command has made, so that it is not another one that is written over."""


def publish(results: list[str], to: Path, *, with_hosts: bool, out: Path) -> None:
    """The work of commands/publish.py."""
    _check_target(to)
    with contextlib.ExitStack() as stack:
        passed_on = stack.enter_context(opened(results, out))
        _make(to)
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".streamgauge-", dir=to)))
        found = _all_published(passed_on, place, with_hosts=with_hosts)
        twice = [
            name for name, times in Counter(one.manifest.run_id for one, _ in found).items() if times > 1
        ]
        if twice:
            raise InputError(f"two of the results are of the run {twice[0]}: expected each once")
        _clear(to)
        for one, packed in found:
            (to / one.place).mkdir(parents=True)
            shutil.copyfile(packed, to / one.place / one.file)
        written = 0
        for path, text in site.pages([one for one, _ in found]):
            (to / path).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(to / path, text)
            written += 1
    grades = Counter(one.verification.grade for one, _ in found)
    told = ", ".join(f"{count} {grade}" for grade, count in sorted(grades.items()))
    print(f"{to / FRONT}: {plural(len(found), 'run')} on {plural(written, 'page')}; {told}")


def _all_published(
    passed_on: Sequence[PassedOn], place: Path, *, with_hosts: bool
) -> list[tuple[site.Published, Path]]:
    """All results, on all cores: each is verified from its raw data, which takes a second or so."""
    places = [place / str(number) for number in range(len(passed_on))]
    work = functools.partial(_published, with_hosts=with_hosts)
    processes = min(len(os.sched_getaffinity(0)), len(passed_on) // RESULTS_PER_PROCESS)
    if processes < 2:
        return list(map(work, passed_on, places))
    # Copies of this process, which has no threads yet: fresh ones would have to read the program first, for a second each.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        return list(pool.map(work, passed_on, places))


def _published(one: PassedOn, place: Path, *, with_hosts: bool) -> tuple[site.Published, Path]:
    """A result as the site shows it, made of its packed file and of nothing else; and that file."""
    place.mkdir()
    if one.wrong_files is None:
        packed = place / f"{one.run.run_id}{SUFFIX}"
        pack(one.run, packed, with_hosts=with_hosts)
        unpacked = unpack(packed, place / "run")
        one = PassedOn(one.asked, unpacked.run, tuple(unpacked.wrong))
    else:
        packed = Path(one.asked)
    found = site.read(one.run, one.verified(), f"{site.safe(one.run.run_id)}{SUFFIX}")
    return found, packed


def _check_target(to: Path) -> None:
    if to.exists() and not to.is_dir():
        raise InputError(f"--to {to}: is no directory")
    if to.is_dir() and any(to.iterdir()) and not (to / MARK).is_file():
        raise InputError(
            f"--to {to}: holds something that is no site of streamgauge, which would be written over; expected a new or an empty directory"
        )


def _make(to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    (to / MARK).touch()


def _clear(to: Path) -> None:
    """Removes what an earlier site has written."""
    for name in ("runs", "workloads", "studies"):
        if (to / name).is_dir() and not (to / name).is_symlink():
            shutil.rmtree(to / name)
