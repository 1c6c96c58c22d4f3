"""The suite's own machinery: lanes, the table at the end, and that a skip does not pass for green."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE
from types import ModuleType

import lanes
import pytest
import room
from prepared import Lab

TESTS = Path(__file__).resolve().parent
SKIPPED = "import pytest\n\ndef test_it():\n    pytest.skip('no broker here')\n"
MODULE = "import pytest\n\npytest.importorskip('no_such_module')\n\ndef test_it():\n    pass\n"
GREEN = "def test_it():\n    pass\n"


def tool(name: str) -> ModuleType:
    """A file of tools/, which is no module of a package."""
    found = importlib.util.spec_from_file_location(name, TESTS.parent / "tools" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def suite() -> ModuleType:
    """What runs the lanes."""
    return tool("suite")


def run_pytest(directory: Path, test: str, *arguments: str, **environment: str) -> tuple[int, str]:
    """A run of one test file under the rule for skips."""
    (directory / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(TESTS)!r})\nfrom skips import pytest_configure as pytest_configure\n"
    )
    (directory / "test_one.py").write_text(test)
    (directory / "test_two.py").write_text(GREEN)
    (directory / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "xdist.plugin",
            "-p",
            "no:cacheprovider",
            *arguments,
            str(directory),
        ],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=100,
        check=False,
        # Without the other plugins, which each of its processes would load.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "false", **environment},
    )
    return done.returncode, done.stdout


def test_kinds_of_tests_come_in_turn_and_the_quick_ones_last() -> None:
    kinds = {
        "quick": [["quick"]],
        "last": [["last"]],
        "waits": [["wait 1"], ["wait 2"], ["wait 3"], ["wait 4"]],
        "jvm": [["start", "same start"], ["other start"]],
    }
    waits_first = [
        "wait 1",
        "start",
        "same start",
        "wait 2",
        "wait 3",
        "other start",
        "wait 4",
        "last",
        "quick",
    ]
    assert lanes.in_turn(kinds) == waits_first
    assert lanes.in_turn({"quick": [["quick"]]}) == ["quick"]


def test_as_many_tests_as_cores_begin_in_any_case(tmp_path: Path) -> None:
    processes = [room.Room(tmp_path, cores=2) for _ in range(3)]
    with ExitStack() as first, ExitStack() as second, ExitStack() as third:
        assert processes[0].has_place(first)
        assert processes[1].has_place(second)
        assert not processes[2].has_place(third)
        # A process that a test has left behind holds nothing up.
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=PIPE, close_fds=False) as left:
            first.close()
            assert processes[2].has_place(third)
            left.kill()


def test_beyond_them_a_test_begins_when_the_cores_had_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, idle_s = 100.0, 7.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(room, "idle_s", lambda: idle_s)
    one, other = room.Room(tmp_path, cores=2), room.Room(tmp_path, cores=2)
    for passed_s, passed_idle_s, process, begins, why in (
        (0.0, 0.0, one, False, "nobody has looked before"),
        (0.3, 0.6, one, False, "too early to tell"),
        (0.3, 0.0, one, True, "room since the first look"),
        (0.1, 0.1, other, False, "what has begun shows what it takes first"),
        (0.5, 0.0, other, False, "busy"),
        (0.5, 0.4, other, True, "room again"),
        (60.0, 60.0, one, False, "of what was idle long ago"),
    ):
        now_s, idle_s = now_s + passed_s, idle_s + passed_idle_s
        assert process.is_room() is begins, why


@pytest.mark.parametrize("processes", ["0", "2"])
@pytest.mark.parametrize("test", [SKIPPED, MODULE], ids=["test", "module"])
def test_a_skip_that_is_not_in_the_list_fails_a_run_of_ci(tmp_path: Path, test: str, processes: str) -> None:
    status, out = run_pytest(tmp_path, test, "-n", processes, CI="true")
    assert status == 1, out
    assert "skipped, and not in tests/allowed-skips.txt" in out
    assert "test_one.py" in out


def test_what_is_green_or_not_in_ci_fails_nothing(tmp_path: Path) -> None:
    for test in (SKIPPED, MODULE):
        assert run_pytest(tmp_path, test)[0] == 0, "elsewhere it is a skip"
    assert run_pytest(tmp_path, GREEN, "-n", "2", CI="true")[0] == 0


def test_every_name_in_the_tables_is_that_of_a_test() -> None:
    """A test that is renamed would else run beside others, or in no group, without a word."""
    groups = (pattern for _, pattern in lanes.GROUPS)
    for pattern in (
        *lanes.QUIET,
        *lanes.LONG,
        *lanes.LAB,
        *lanes.COMPUTES,
        *lanes.LONGEST,
        *lanes.LAST,
        *groups,
    ):
        file, _, test = pattern.partition("::")
        files = list(TESTS.glob(file))
        assert files, pattern
        name = test.partition("*")[0].partition("?")[0]
        kind = name.removesuffix("::")
        wanted = f"def {name}" if kind == name else f"class {kind}("
        assert any(wanted in path.read_text("utf-8") for path in files), pattern


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("test result: ok. 12 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out", (12, 1, 3)),
        ("===== 2 failed, 10 passed, 4 skipped, 3 deselected, 1 error in 61.22s (0:01:01) =====", (10, 3, 4)),
        ("5 passed in 0.10s", (5, 0, 0)),
        (
            "\x1b[32m===== \x1b[32m\x1b[1m7 passed\x1b[0m\x1b[32m in 1.50s\x1b[0m\x1b[32m =====\x1b[0m",
            (7, 0, 0),
        ),
        ("tests/test_x.py: 3 passed of them", None),
    ],
)
def test_closing_lines_are_counted(
    suite: ModuleType, line: str, expected: tuple[int, int, int] | None
) -> None:
    assert suite.counted(line) == expected


def test_a_lane_that_hangs_or_breaks_has_failed_and_is_in_the_sum(
    suite: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    hang = suite.Lane(
        "hang",
        (sys.executable, "-c", "import time; print('3 passed in 0.1s', flush=True); time.sleep(60)"),
        2.0,
    )
    broken = suite.Lane("broken", (sys.executable, "-c", "raise SystemExit(101)"), 20.0)
    rows = [suite.run(lane, [])[1] for lane in (hang, broken)]
    assert [row.counts for row in rows] == [(3, 1, 0), (0, 1, 0)]
    assert "took longer than 2 s and was ended" in capfd.readouterr().out
    assert [suite.Took.parse(row.line()).counts for row in rows] == [row.counts for row in rows]
    assert suite.closing(rows) == "3 passed, 2 failed, 0 skipped"


def test_a_lane_beside_another_is_shown_behind_it(
    suite: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    one, two = (
        suite.Lane(name, (sys.executable, "-c", f"print('{name}'); print('{count} passed in 0.1s')"), 60.0)
        for name, count in (("one", 1), ("two", 2))
    )
    with suite.beside(two) as ended:
        first = suite.run(one, [])
        status, second = ended()
    assert (first[0], first[1].counts, status, second.counts) == (0, (1, 0, 0), 0, (2, 0, 0))
    said = capfd.readouterr().out
    assert [line for line in said.splitlines() if line in ("one", "two")] == ["one", "two"]


def test_a_lane_beside_another_ends_with_it(suite: ModuleType) -> None:
    lane = suite.Lane("two", (sys.executable, "-c", "import time; time.sleep(60)"), 60.0)
    began_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt), suite.beside(lane):
        raise KeyboardInterrupt
    assert time.monotonic() - began_s < 30


def test_test_programs_are_those_that_cargo_has_built_the_longest_first(tmp_path: Path) -> None:
    def message(name: str, *, test: bool = True, executable: str | None = "/target/it") -> str:
        return json.dumps(
            {
                "reason": "compiler-artifact",
                "manifest_path": str(tmp_path / "gauge-sim" / "Cargo.toml"),
                "target": {"name": name},
                "profile": {"test": test},
                "executable": executable,
            }
        )

    told = [
        json.dumps({"reason": "build-script-executed"}),
        message("gauge-sim", test=False),
        message("a library", executable=None),
        message("gauge-sim"),
        message("swarm"),
    ]
    rust_tests = tool("rust_tests")
    found = rust_tests.programs("\n".join(told))
    assert {program.directory for program in found} == {tmp_path / "gauge-sim"}
    names = {choice: [one.name for one in rust_tests.chosen(found, choice)] for choice in rust_tests.CHOICES}
    assert names == {
        "all": ["gauge-sim: swarm", "gauge-sim: gauge-sim"],
        "simulated": ["gauge-sim: swarm"],
        "others": ["gauge-sim: gauge-sim"],
    }


def test_programs_that_run_apart_are_there() -> None:
    rust_tests = tool("rust_tests")
    files = {path.stem for path in TESTS.parent.glob("crates/*/tests/*.rs")}
    crates = {path.parent.name for path in TESTS.parent.glob("crates/*/tests/*/main.rs")}
    assert {*rust_tests.SIMULATED, *rust_tests.TIMED} <= files | crates


def test_a_program_that_fails_fails_the_lane(capsys: pytest.CaptureFixture[str]) -> None:
    rust_tests = tool("rust_tests")
    failing = rust_tests.Program("one", (sys.executable, "-c", "print('test result: FAILED.'); exit(101)"))
    assert rust_tests.run(failing) == 101
    assert capsys.readouterr().out.endswith("test result: FAILED.\n")


def test_a_prepared_lab_is_a_process_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(
        "import os, sys\n"
        "def main():\n"
        "    print(os.getppid(), os.getcwd(), *sys.argv[1:], os.environ['TOLD'], flush=True)\n"
        "    sys.stdin.read()\n"
        "    sys.exit('it ends')\n"
    )
    environment = {"PYTHONPATH": str(tmp_path), "TOLD": "so", "PATH": os.environ["PATH"]}
    for signalled, status, said in ((None, 1, "it ends\n"), (signal.SIGTERM, -signal.SIGTERM, "")):
        with Lab(
            "told", ["one", "two"], stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=environment
        ) as lab:
            assert lab.stdout is not None
            assert lab.stdout.readline() == f"{os.getpid()} {tmp_path} one two so\n"
            if signalled is not None:
                lab.send_signal(signalled)
                assert lab.wait(10) == status
            assert lab.communicate(timeout=10) == ("", said)
        assert lab.returncode == status
