"""Finds a Java runtime that is new enough for the JVM systems."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from streamgauge.vocabulary.errors import SystemFailure

JAVA_MIN = 17
"""Oldest feature release on which every JVM system here runs (Kafka 4.x needs 17: KIP-1013)."""
JVM_DIRECTORY = Path("/usr/lib/jvm")
INSTALL_HINT = (
    f"install Java {JAVA_MIN} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "Fedora: dnf install java-17-openjdk-headless; macOS: brew install openjdk@17) or set JAVA_HOME to one"
)
VERSION_TIMEOUT_S = 20.0
COMPILED_QUICKLY = "-XX:TieredStopAtLevel=1"
"""For tools that run for seconds: without the second compiler."""


@dataclass(frozen=True)
class Java:
    """A Java runtime."""

    executable: Path
    version: str
    """As the runtime says it, for instance "17.0.15"."""
    feature: int
    """The feature release: 8, 11, 17, 21, ..."""

    @property
    def home(self) -> Path:
        """What JAVA_HOME must be for this runtime."""
        return self.executable.resolve().parent.parent


def flags(heap_mib: int) -> list[str]:
    """What every broker's JVM here is started with; paths are relative to the directory in which it runs."""
    return [
        f"-Xms{heap_mib}m",
        f"-Xmx{heap_mib}m",
        "-XX:+UseG1GC",
        # Without it each safepoint writes to a file mapped from /tmp, and a busy disk stalls the whole JVM for that write.
        "-XX:+PerfDisableSharedMem",
        # A process that has run out of memory must be seen to die, not limp.
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:ErrorFile=logs/hs_err_%p.log",
        # For the analysis of pauses; written by a thread of its own, so that a busy disk does not stall the JVM.
        "-Xlog:async",
        "-Xlog:gc*,safepoint:file=logs/gc.log:time,uptime,level,tags:filecount=4,filesize=20m",
        "-Djava.awt.headless=true",
    ]


def parse_version(text: str) -> tuple[str, int] | None:
    """Version and feature release from what `java -version` prints; None when there is none.

    Knows the schemes before and since JEP 223: `"1.8.0_292"` is release 8, `"17.0.15"`, `"21"` and `"25-ea"`
    are what they say.
    """
    found = re.search(r'version "([^"]+)"', text)
    if found is None:
        return None
    version = found.group(1)
    numbers = re.match(r"(\d+)(?:\.(\d+))?", version)
    if numbers is None:
        return None
    first = int(numbers.group(1))
    second = numbers.group(2)
    return version, int(second) if first == 1 and second is not None else first


def find_java(feature_min: int = JAVA_MIN) -> Java:
    """The first runtime of at least `feature_min` in JAVA_HOME, on the PATH or below /usr/lib/jvm. Raises
    SystemFailure with what to install.
    """
    rejected: list[str] = []
    for origin, executable in _candidates():
        try:
            java = _inspect(executable)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            rejected.append(f"{executable} ({origin}) does not work: {error}")
            continue
        if java.feature >= feature_min:
            return java
        rejected.append(f"{executable} ({origin}) is Java {java.version}")
    if not rejected:
        raise SystemFailure(f"no Java found in JAVA_HOME, on the PATH or in {JVM_DIRECTORY}: {INSTALL_HINT}")
    raise SystemFailure(
        f"no Java {feature_min} or newer found: {'; '.join(rejected)}. To go on, {INSTALL_HINT}"
    )


def _candidates() -> list[tuple[str, Path]]:
    """Where a runtime may be, best first, each place once."""
    places: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME", "")
    if home:
        places.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path is not None:
        places.append(("PATH", Path(on_path)))
    if JVM_DIRECTORY.is_dir():
        below = sorted(JVM_DIRECTORY.glob("*/bin/java"))
        places.extend((str(JVM_DIRECTORY), path) for path in below)
    seen: set[Path] = set()
    unique = []
    for origin, path in places:
        real = path.resolve()
        if real not in seen:
            seen.add(real)
            unique.append((origin, path))
    return unique


@functools.lru_cache(maxsize=64)
def _inspect(executable: Path) -> Java:
    """Runs `java -version`. Raises OSError, SubprocessError or ValueError."""
    if not executable.is_file():
        raise FileNotFoundError(f"{executable} is not a file")
    answer = subprocess.run(
        [str(executable), "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
    )
    parsed = parse_version(answer.stderr) or parse_version(answer.stdout)
    if parsed is None:
        raise ValueError("`java -version` does not tell a version")
    return Java(executable=executable, version=parsed[0], feature=parsed[1])
