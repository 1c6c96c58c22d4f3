"""`streamgauge publish`: a site of results."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from streamgauge.cli.passed_on import PassedOn, opened
from streamgauge.report import site
from streamgauge.store.files import write_atomically
from streamgauge.store.submission import SUFFIX, pack, unpack
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.format import plural

FRONT = "index.html"
RESULTS_PER_PROCESS = 3
"""With fewer a process costs more than it gains."""
MARK = ".streamgauge-site"
"""In a directory that this command has made, so that it is not another one that is written over."""


@dataclass(frozen=True)
class _Made:
    """A result, ready for the site."""

    of: site.Published
    place: Path
    """What is to lie in its directory."""
    pages: int


def publish(results: list[str], to: Path, *, with_hosts: bool, out: Path) -> None:
    """The work of commands/publish.py."""
    _check_target(to)
    with contextlib.ExitStack() as stack:
        passed_on = stack.enter_context(opened(results, out))
        _make(to)
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".streamgauge-", dir=to)))
        made = _all_made(passed_on, place, with_hosts=with_hosts)
        found = [one.of for one in made]
        twice = [name for name, times in Counter(one.manifest.run_id for one in found).items() if times > 1]
        if twice:
            raise InputError(f"two of the results are of the run {twice[0]}: expected each once")
        _clear(to)
        for one in made:
            (to / one.of.place).parent.mkdir(exist_ok=True)
            # Copied where a directory may not be put into another one, as the kernel's fence has it.
            shutil.move(one.place, to / one.of.place)
        written = sum(one.pages for one in made) + _write(to, site.pages(found))
    grades = Counter(one.verification.grade for one in found)
    told = ", ".join(f"{count} {grade}" for grade, count in sorted(grades.items()))
    print(f"{to / FRONT}: {plural(len(found), 'run')} on {plural(written, 'page')}; {told}")


def _all_made(passed_on: Sequence[PassedOn], place: Path, *, with_hosts: bool) -> list[_Made]:
    """All results, on all cores: each is verified from its raw data, which takes half a second or so."""
    places = [place / str(number) for number in range(len(passed_on))]
    work = functools.partial(_made, with_hosts=with_hosts)
    processes = min(len(os.sched_getaffinity(0)), len(passed_on) // RESULTS_PER_PROCESS)
    if processes < 2:
        return list(map(work, passed_on, places))
    # Processes are copies of this one, which has no threads yet and has read, with the first result, the program, its systems and its templates.
    first = work(passed_on[0], places[0])
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        return [first, *pool.map(work, passed_on[1:], places[1:])]


def _made(one: PassedOn, place: Path, *, with_hosts: bool) -> _Made:
    """A result as the site shows it, made of its packed file and of nothing else."""
    place.mkdir()
    if one.wrong_files is None:
        packed = place / f"{one.run.run_id}{SUFFIX}"
        pack(one.run, packed, with_hosts=with_hosts)
        unpacked = unpack(packed, place / "run")
        one = PassedOn(one.asked, unpacked.run, tuple(unpacked.wrong))
    else:
        packed = Path(one.asked)
    found = site.read(one.run, one.verified(), f"{site.safe(one.run.run_id)}{SUFFIX}")
    top = place / "site"
    written = _write(top, site.reports(found))
    shutil.copyfile(packed, top / found.place / found.file)
    return _Made(found, top / found.place, written)


def _write(top: Path, pages: Iterable[tuple[str, str]]) -> int:
    """Writes pages; how many."""
    written = 0
    for path, text in pages:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(top / path, text)
        written += 1
    return written


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
