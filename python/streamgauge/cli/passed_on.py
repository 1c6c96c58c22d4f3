"""Results that may come from anybody: a run's directory, or a file that `submit` has made; and what `verify` finds about them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.analysis.verify.rules import Verification
from streamgauge.analysis.verify.whole import verify
from streamgauge.store.directory import RunDirectory
from streamgauge.store.lab import is_running
from streamgauge.store.submission import is_submission, unpack
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.histograms import HistogramError
from streamgauge.vocabulary.levels import Level


@dataclass(frozen=True)
class PassedOn:
    """A result, opened."""

    asked: str
    """As it was named."""
    run: RunDirectory
    wrong_files: tuple[str, ...] | None
    """What of a file is not as its list says; None for a run's directory."""

    def verified(self) -> Verification:
        """What `verify` says of it. Raises InputError when a file of it is damaged."""
        try:
            return verify(self.run, told_level, self.wrong_files)
        except HistogramError as error:
            raise InputError(Problem(f"holds a damaged histogram: {error}", self.asked)) from None


@contextlib.contextmanager
def opened(names: Sequence[str], out: Path) -> Iterator[list[PassedOn]]:
    """Results by their names; files are unpacked for as long as it takes. Raises InputError."""
    with contextlib.ExitStack() as stack:
        found = []
        for name in names:
            if is_submission(Path(name)):
                place = stack.enter_context(tempfile.TemporaryDirectory(prefix="streamgauge-"))
                unpacked = unpack(Path(name), Path(place))
                found.append(PassedOn(name, unpacked.run, tuple(unpacked.wrong)))
                continue
            run = RunDirectory.open(name, out)
            run = RunDirectory(run.path.resolve())
            if run.ours and is_running(run):
                raise InputError(f"{run.path}: this run is still going on; check it when it has ended")
            found.append(PassedOn(name, run, None))
        yield found


def told_level(settings: Mapping[str, Any]) -> Level | None:
    """The level that stored settings amount to; None where no system that is installed here knows them as its own."""
    # Systems are called as users like: whose settings they are is told by the settings.
    known = (systems()[name].told_level(settings) for name in systems())
    levels = {level for level in known if level is not None}
    return levels.pop() if len(levels) == 1 else None
