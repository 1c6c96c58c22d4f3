"""Opening a run that somebody else made: nothing outside of it is touched, and whatever is wrong in it becomes a sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import landlock
import pytest
from run_fuzz import KINDS, Fuzz, Watch, call, commands, some_commands, write_kinds
from streamgauge.model.durability import DurabilityReport
from test_durability_study import result as durability_result
from test_study_model import plan

QUICK_S = 25.0
SEEDS_MAX = 60
LONG_ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "3000"))
STATUSES = range(7)
statuses: Counter[tuple[str, int]] = Counter()
"""Of what was called so far: a fuzz whose runs are all refused looks at nothing but the border."""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    base = tmp_path_factory.mktemp("kinds")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(base / "state"))
        durability = DurabilityReport(results=[durability_result("gauge-log-fsync", lost=3)])
        yield write_kinds(base, plan(), durability)


@pytest.fixture(scope="module")
def watch() -> Watch:
    found = Watch()
    found.install()
    return found


def play(
    kind: str, seed: int, kinds: dict[str, Path], place: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """One run, changed and opened by every command; what was wrong about that."""
    world = place / f"{kind}-{seed}"
    victim = world / "victim"
    victim.mkdir(parents=True)
    (victim / "file").write_text("precious", encoding="utf-8")
    out = world / "runs"
    run = out / kinds[kind].name
    shutil.copytree(kinds[kind], run)
    change = Fuzz(seed, victim).change(run)
    # Names below a directory that is being removed are told without it.
    monkeypatch.chdir(out)
    wrong = []
    for arguments in some_commands(seed, run, out):
        began_s = time.monotonic()
        with watch.over(out) as touched:
            try:
                status, said = call(arguments)
            except Exception:
                wrong.append(f"{arguments[0]}: {traceback.format_exc(limit=-4)}")
                continue
        statuses[arguments[0], status] += 1
        if status not in STATUSES or (status and not said.strip()) or "Traceback" in said:
            wrong.append(f"{arguments[0]}: status {status}, said {said[-300:]!r}")
        wrong += [f"{arguments[0]} touched {one}" for one in touched]
        if time.monotonic() - began_s > 20:
            wrong.append(f"{arguments[0]} took {time.monotonic() - began_s:.0f} s")
    if [path.name for path in victim.iterdir()] != ["file"] or (victim / "file").read_text() != "precious":
        wrong.append("the victim was changed")
    shutil.rmtree(world)
    return [f"{kind}, seed {seed}, {change.file}: {change.what}\n{one}" for one in wrong]


def test_runs_that_were_changed_are_opened_or_refused_and_nothing_else_is_touched(
    kinds: dict[str, Path], watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline_s, seed = time.monotonic() + QUICK_S, 0
    # On a crowded machine as many as show both answers.
    while time.monotonic() < deadline_s or (
        seed < SEEDS_MAX and not all(statuses["report", one] for one in (0, 2))
    ):
        assert not play(KINDS[seed % len(KINDS)], seed, kinds, tmp_path, watch, monkeypatch)
        seed += 1
    assert seed > 5
    assert statuses["report", 0]
    assert statuses["report", 2]


@pytest.mark.long
@pytest.mark.timeout(0)
def test_many_runs_that_were_changed(
    kinds: dict[str, Path], watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = int(os.environ.get("FUZZ_SEED", "1000"))
    wrong = []
    for seed in range(first, first + LONG_ROUNDS):
        wrong += play(KINDS[seed % len(KINDS)], seed, kinds, tmp_path, watch, monkeypatch)
    assert not wrong, f"{len(wrong)} findings\n" + "\n\n".join(wrong)


INSIDE = """
import sys
sys.path[:0] = sys.argv[1].split(":")
import duckdb, numpy, pyarrow.parquet, scipy.stats, rich.console  # noqa: loaded before the doors close
from landlock import restrict
from run_fuzz import call
ours = [*sys.argv[1].split(":"), sys.prefix, sys.base_prefix]
restrict([*ours, "/usr", "/lib", "/lib64", "/proc", "/sys", "/dev", "/etc/localtime"], sys.argv[2:])
try:
    open("/etc/passwd")
except PermissionError:
    pass
else:
    sys.exit("the doors are open")
for line in sys.stdin:
    status, said = call(line.rstrip("\\n").split("\\t"))
    print(status, said.replace("\\n", " ")[:2000], flush=True)
"""


@pytest.mark.parametrize(
    "kind",
    [
        "killed",
        "study",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("complete", "durability", "imported")),
    ],
)
def test_the_kernel_lets_a_run_be_opened_that_can_reach_nothing_but_itself(
    kind: str, kinds: dict[str, Path], tmp_path: Path
) -> None:
    """Whoever touches something outside is told that it may not: the same sentences and statuses show that nothing does."""
    if not landlock.available():
        pytest.skip("the kernel has no Landlock (Linux 5.13 and later have, unless it is switched off)")
    out = tmp_path / "runs"
    run = out / kinds[kind].name
    shutil.copytree(kinds[kind], run)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(out)
        free = [call(one) for one in commands(run, out)]
    shutil.rmtree(run)
    shutil.copytree(kinds[kind], run)
    here = Path(__file__).resolve().parent
    paths = f"{here}:{here.parent / 'python'}"
    state = os.environ["XDG_STATE_HOME"]
    asked = "".join("\t".join(one) + "\n" for one in commands(run, out))
    done = subprocess.run(
        [sys.executable, "-c", INSIDE, paths, str(out), state],
        input=asked, capture_output=True, text=True, cwd=out, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert [int(line.split()[0]) for line in told] == [status for status, _ in free], told
    assert "Permission denied" not in done.stdout
