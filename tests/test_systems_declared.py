"""Systems as they are found and as they declare themselves: entry points of any distribution, the tables that are written from them, and what
a kept system hands on."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import lab_support
import pytest
from lab_doubles import DoubleSystem
from streamgauge.model.feature import Feature
from streamgauge.model.system_file import SystemOverrides, choose_systems
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem, System
from streamgauge.systems.kept import KeptSystem
from streamgauge.systems.names import GROUP
from streamgauge.systems.registry import Systems, systems
from streamgauge.vocabulary.errors import InputError, SystemInputError

ROOT = Path(__file__).resolve().parent.parent
OURS = ["gauge-log", "kafka", "nats", "pulsar", "rabbitmq"]


def tool(name: str) -> ModuleType:
    """A program of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def distribution(directory: Path, name: str, *lines: str, **modules: str) -> None:
    """What an installation leaves on the path."""
    (directory / f"{name}-1.0.dist-info").mkdir(parents=True)
    info = directory / f"{name}-1.0.dist-info"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(f"{line}\n" for line in lines))
    for module, text in modules.items():
        (directory / f"{module}.py").write_text(text)


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Systems]:
    """The systems, with those of distributions in `tmp_path`."""
    monkeypatch.syspath_prepend(tmp_path)
    return lambda: Systems(list(entry_points(group=GROUP)))


def test_ours_are_found_by_their_entry_points() -> None:
    assert list(systems()) == OURS
    assert [system.name for system in systems().values()] == OURS


def test_names_are_known_without_their_modules() -> None:
    told = (
        "import sys; from streamgauge.systems.registry import systems; print(*systems());"
        "print(*[one for one in sys.modules if one.startswith('streamgauge.systems.kafka') or one == 'psutil'])"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [" ".join(OURS), ""]


@pytest.mark.parametrize(
    ("entry", "text", "reason"),
    [
        ("odd = none_such:Odd", "", r"none_such:Odd: ModuleNotFoundError: No module named 'none_such'"),
        ("odd = odd_a:Odd", "raise OSError('no')", r"odd_a:Odd: OSError: no"),
        ("odd = odd_b:Odd", "Odd = 3", r"odd_b:Odd is no class of a System"),
        (
            "odd = odd_c:Odd",
            "from streamgauge.systems.base import System\nclass Odd(System):\n    name = 'odd'",
            "odd_c:Odd does not say title, protocol, default_version, page, .*start_time, cannot, attach, check",
        ),
    ],
    ids=["not there", "cannot be imported", "no system", "says too little"],
)
def test_a_system_that_cannot_be_had_is_told_with_its_distribution(
    tmp_path: Path, found: Callable[[], Systems], entry: str, text: str, reason: str
) -> None:
    distribution(tmp_path, "odd-systems", entry, **{entry.partition("= ")[2].partition(":")[0]: text or ""})
    if not text:
        (tmp_path / "none_such.py").unlink()
    known = found()
    assert list(known) == sorted([*OURS, "odd"])
    with pytest.raises(InputError, match=f"system 'odd' of odd-systems 1.0 cannot be used: {reason}"):
        choose_systems("odd", SystemOverrides(), known)
    assert "odd-systems 1.0" in (known["odd"].missing() or "")
    assert choose_systems("gauge-log", SystemOverrides(), known)[0].system.name == "gauge-log"


def test_a_name_that_is_there_twice_is_nobodys(tmp_path: Path, found: Callable[[], Systems]) -> None:
    distribution(tmp_path, "other-kafka", "kafka = json:JSONDecoder")
    known = found()
    assert list(known) == OURS
    with pytest.raises(SystemInputError, match=r"other-kafka 1\.0 \(json:JSONDecoder\) and streamgauge "):
        known["kafka"].check(SystemRequest())
    assert known["nats"].title == "NATS JetStream"


def test_the_list_tells_of_those_that_cannot_be_had(tmp_path: Path) -> None:
    distribution(tmp_path, "odd-systems", "odd = none_such:Odd")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['streamgauge', 'systems', 'list']; {lab_support.PROGRAM}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert list(lines) == sorted([*OURS, "odd"])
    assert "system 'odd' of odd-systems 1.0 cannot be used" in lines["odd"]


def test_the_tables_are_those_that_are_declared() -> None:
    for path, text in tool("systems_table").pages().items():
        assert path.read_text("utf-8") == text, "run tools/systems_table.py"


def test_every_reason_stands_alone() -> None:
    for system in systems().values():
        assert (ROOT / system.page).is_file()
        for reason in system.cannot.values():
            assert not reason.endswith(".")
            assert not reason[0].isupper()


def test_what_a_system_declares_a_kept_one_declares(tmp_path: Path) -> None:
    """Whatever it is, of the class or of the instance, also what the contract does not know yet."""

    class Told(DoubleSystem):
        cannot = {Feature.TLS: "no"}  # noqa: RUF012
        declared_later = 7

    system = Told()
    kept = KeptSystem.of(system, tmp_path / "block")
    own = {"start", "of", "end"}
    for name in [*dir(System), "declared_later", "cannot"]:
        if not name.startswith("_") and name not in own:
            one, other = getattr(kept, name), getattr(system, name)
            assert getattr(one, "__func__", one) == getattr(other, "__func__", other), name
    running = kept.start(SystemRequest(), tmp_path / "trial", lambda _: None)
    try:
        whole = type(running).__mro__[2]
        changed = {"kept", "stop", "wipe", "of"}
        for name in {*dir(RunningSystem), *dir(whole)} - changed:
            if not name.startswith("_"):
                assert inspect.getattr_static(type(running), name) is inspect.getattr_static(whole, name), (
                    name
                )
    finally:
        kept.end()


# ---------------------------------------------------------------------- a system in a package of its own


def installed(directory: Path) -> None:
    """What pip makes of a package, as far as entry points need it."""
    project = tomllib.loads((directory / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [f"{name} = {value}" for name, value in project["entry-points"][GROUP].items()]
    distribution(directory, project["name"].replace("-", "_"), *lines)


@pytest.mark.server
@pytest.mark.timeout(300)
def test_a_new_system_passes_the_suite_from_outside(tmp_path: Path) -> None:
    home = tmp_path / "my-queue-system"
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/new_system.py"), "my-queue", str(home)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "my_queue_system.py" in done.stdout
    text = (home / "my_queue_system.py").read_text("utf-8")
    assert "toy" not in text.lower()
    assert len(text.splitlines()) <= 150
    installed(home)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rxX",
        "-W",
        "error",
        "test_my_queue_system.py",
    ]
    tried = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "its one node leads everything" in tried.stdout


def test_a_skeleton_is_laid_over_nothing(tmp_path: Path) -> None:
    lay = tool("new_system").lay
    (tmp_path / "there").mkdir()
    with pytest.raises(SystemExit, match="is there already"):
        lay("mine", tmp_path / "there")
    with pytest.raises(SystemExit, match="small letters, digits and hyphens"):
        lay("My_Queue", tmp_path / "new")
