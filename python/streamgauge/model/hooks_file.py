"""Commands of the user between the blocks of a study on clusters that run (docs/studies.md, "Blocks and hooks").

```yaml
timeout: 10m                                    # of each command; 10 minutes is the default
reconfigure: [ansible-playbook, -i, inventory.ini, reconfigure.yaml]
start: {run: [./start.sh], timeout: 5m, systems: ["pulsar-*"]}
drop-caches: [./drop-caches.sh]
stop: [./stop.sh]
```

A hooks file is code that runs with the user's account, so that it must be trusted by name (`--trust-file`).
"""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from streamgauge.model.checked_study import Study
from streamgauge.model.document import Document, FileModel, read_document
from streamgauge.model.result_base import Model
from streamgauge.model.trust import Trust
from streamgauge.model.untrusted import how_to_trust
from streamgauge.model.workload_file import DurationField
from streamgauge.vocabulary.errors import InputError, Problem, nearest

HOOKS = ("reconfigure", "start", "drop-caches", "stop")
"""In the order in which a block meets them; the third before each of its trials."""
TIMEOUT_S = 600.0


class HookEntry(FileModel):
    """A hook as written."""

    run: Annotated[list[str], Field(min_length=1)]
    timeout: DurationField | None = None
    systems: Annotated[list[str], Field(min_length=1)] = Field(default_factory=lambda: ["*"])
    """Systems of the study, by names or patterns, for which it is run."""


def _read_entry(value: Any) -> Any:
    """A command alone is short for `{run: command}`."""
    return {"run": value} if isinstance(value, list) else value


Entry = Annotated[HookEntry | None, BeforeValidator(_read_entry)]


class HooksFile(FileModel):
    """A hooks file as written."""

    timeout: DurationField = TIMEOUT_S
    reconfigure: Entry = None
    start: Entry = None
    drop_caches: Annotated[Entry, Field(alias="drop-caches")] = None
    stop: Entry = None

    def entries(self) -> Iterator[tuple[str, HookEntry]]:
        """Those that are there, by their names in the file."""
        for name in HOOKS:
            entry: HookEntry | None = getattr(self, name.replace("-", "_"))
            if entry is not None:
                yield name, entry


class PlannedHook(Model):
    """A command that is run at its time."""

    run: list[str]
    timeout_s: float
    systems: list[str]
    """Names of systems of the study."""


class PlannedHooks(Model):
    """The commands of a study, as its plan has them."""

    file: str
    directory: str
    """Of the file: where commands are run."""
    hooks: dict[str, PlannedHook]

    def of(self, name: str, system: str) -> PlannedHook | None:
        """The command of a hook for a system of the study, if there is one."""
        hook = self.hooks.get(name)
        return hook if hook is not None and system in hook.systems else None


def read_hooks(path: Path, study: Study, trust: Trust) -> PlannedHooks:
    """Reads a hooks file for a study. Raises InputError with every problem and its line."""
    document = read_document(path)
    if not trust.covers(path):
        message = f"its commands run with your account; {how_to_trust(str(path))}"
        raise InputError(Problem(message, str(path)))
    written = document.validate(HooksFile)
    problems: list[Problem] = []
    entries = list(written.entries())
    if not entries:
        problems.append(document.problem(f"no hook is in it: expected one of {', '.join(HOOKS)}"))
    hooks = {}
    for name, entry in entries:
        problems.extend(_problems(document, name, entry, path.parent.absolute(), study))
        names = [one for one in study.written.systems for pattern in entry.systems if _meets(one, pattern)]
        timeout_s = entry.timeout if entry.timeout is not None else written.timeout
        hooks[name] = PlannedHook(run=entry.run, timeout_s=timeout_s, systems=list(dict.fromkeys(names)))
    if problems:
        raise InputError(problems)
    return PlannedHooks(file=str(path.absolute()), directory=str(path.parent.absolute()), hooks=hooks)


def _meets(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern)


def _problems(document: Document, name: str, entry: HookEntry, base: Path, study: Study) -> Iterator[Problem]:
    is_short = "systems" not in entry.model_fields_set and "timeout" not in entry.model_fields_set
    program = entry.run[0]
    if shutil.which(base / program if "/" in program else program) is None:
        message = f"{name}: no program '{program}'; expected one on the PATH, or an executable file by its path from {base}"
        yield document.problem(message, (name,) if is_short else (name, "run"))
    for at, pattern in enumerate(entry.systems):
        if not any(_meets(one, pattern) for one in study.written.systems):
            message = f"{name}: '{pattern}' meets no system of {study.name}{nearest(pattern, study.written.systems)}"
            yield document.problem(message, (name, "systems", at))
