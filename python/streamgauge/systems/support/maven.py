"""Fetches artifacts with Maven: the `mvn` command resolves them, honours the user's settings and mirrors, and
checks checksums.

Maven itself knows how to choose versions, follow mirrors and proxies, authenticate and verify; a downloader
of our own would do all of that worse.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from streamgauge.systems.base import Progress
from streamgauge.systems.support import processes
from streamgauge.systems.support.java import Java
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.waiting import wait_until

INSTALL_HINT = (
    "install Maven (Debian, Ubuntu: apt-get install maven; Fedora: dnf install maven; "
    "macOS: brew install maven)"
)
# Without a version Maven takes whatever its repository calls the newest, and runs it.
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.9.0"
TIMEOUT_S = 1200.0
REPORT_EVERY_S = 3.0


@dataclass(frozen=True)
class Artifact:
    """Maven coordinates of a jar, or of another file with its packaging and classifier."""

    group: str
    name: str
    version: str
    packaging: str = "jar"
    classifier: str = ""

    def __str__(self) -> str:
        coordinates = f"{self.group}:{self.name}:{self.version}"
        if self.packaging == "jar" and not self.classifier:
            return coordinates
        return f"{coordinates}:{self.packaging}" + (f":{self.classifier}" if self.classifier else "")


def find_maven() -> Path:
    """The `mvn` command. Raises SystemFailure with the package to install."""
    found = shutil.which("mvn")
    if found is None:
        raise SystemFailure(
            f"the command mvn is not on the PATH, and it is needed to download this system: {INSTALL_HINT}"
        )
    return Path(found)


def copy_dependencies(
    title: str, artifacts: Sequence[Artifact], into: Path, java: Java, log: Path, progress: Progress
) -> Mapping[str, object]:
    """Puts the artifacts and everything they need at run time into `into`. `title` is for messages ("Kafka
    4.3.1").

    A checksum that does not match fails the download. Maven's output goes to `log`. Raises SystemFailure.
    Returns what to keep as the source in the cache's manifest.
    """
    with tempfile.TemporaryDirectory(prefix="streamgauge-maven-") as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_pom(artifacts), encoding="utf-8")
        goal = ["--file", str(pom), f"{PLUGIN}:copy-dependencies", "-DincludeScope=runtime"]
        _run([*goal, f"-DoutputDirectory={into}"], title, Path(work), java, log, progress)
    return {"from": "maven", "artifacts": [str(artifact) for artifact in artifacts]}


def copy_one(
    title: str, artifact: Artifact, into: Path, java: Java, log: Path, progress: Progress
) -> Mapping[str, object]:
    """Puts one file into `into`, without what it depends on. The rest as `copy_dependencies`."""
    with tempfile.TemporaryDirectory(prefix="streamgauge-maven-") as work:
        goal = [f"{PLUGIN}:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={into}"]
        _run(goal, title, Path(work), java, log, progress)
    return {"from": "maven", "artifacts": [str(artifact)]}


def _run(goal: Sequence[str], title: str, work: Path, java: Java, log: Path, progress: Progress) -> None:
    """Runs Maven in an empty directory and waits for it. Raises SystemFailure."""
    maven = find_maven()
    log.unlink(missing_ok=True)
    process = processes.start(
        "mvn",
        [
            str(maven),
            "--batch-mode",
            "--strict-checksums",
            # Ask again for what was not found before: Maven otherwise remembers a failure for a day.
            "--update-snapshots",
            *goal,
        ],
        log,
        environment={**os.environ, "JAVA_HOME": str(java.home)},
        directory=work,
    )
    try:
        _wait(process, title, progress)
    finally:
        processes.stop([process], wait_s=5.0)


def _wait(process: processes.ManagedProcess, title: str, progress: Progress) -> None:
    """Waits for Maven and shows that it moves."""
    progress(f"downloading {title} with Maven (about a minute)")
    next_report = time.monotonic() + REPORT_EVERY_S
    reported = 0

    def missing() -> str | None:
        nonlocal next_report, reported
        if not process.running():
            return None
        now = time.monotonic()
        if now > next_report:
            next_report = now + REPORT_EVERY_S
            jars = process.log.read_bytes().count(b"Downloaded from") if process.log.exists() else 0
            if jars > reported:
                reported = jars
                progress(f"downloading {title} with Maven: {jars} files so far")
        return f"Maven to download {title}"

    late = wait_until(missing, TIMEOUT_S)
    if late is not None:
        raise SystemFailure(f"{late}, and stopped it; its output is in {process.log}")
    if process.exit_status() != 0:
        raise SystemFailure(explain_failure(title, process.log))


def explain_failure(title: str, log: Path) -> str:
    """One message from Maven's output: what failed, why, and what to do."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        text = ""
    # Maven colours its output even in batch mode on some distributions.
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    errors = [line.removeprefix("[ERROR] ") for line in text.splitlines() if line.startswith("[ERROR] ")]
    first = errors[0] if errors else processes.log_tail(log)
    where = f"Maven's output is in {log}"
    absent = re.search(r"Could not find artifact (\S+)|(\S+) was not found in ", first)
    if absent is not None:
        return (
            f"cannot download {title}: Maven's repositories do not have "
            f"{absent.group(1) or absent.group(2)}; "
            f"ask for another version, or check the mirrors in ~/.m2/settings.xml. {where}"
        )
    if "hecksum" in first:
        return (
            f"cannot download {title}: a checksum does not match ({_short(first)}); try again, or check the "
            f"mirror. {where}"
        )
    if re.search(r"[Uu]nknown host|[Cc]onnect|[Tt]imed? ?out|Could not transfer|offline", first):
        return (
            f"cannot download {title}: {_short(first)}; check the network, the proxy or the mirrors in "
            f"~/.m2/settings.xml. {where}"
        )
    return f"cannot download {title}: {_short(first)}. {where}"


def _short(text: str, characters_max: int = 400) -> str:
    text = text.split(" -> [Help", 1)[0].strip()
    return text if len(text) <= characters_max else text[:characters_max] + "..."


def _pom(artifacts: Sequence[Artifact]) -> str:
    """A project that is nothing but its dependencies."""
    dependencies = "\n".join(
        f"    <dependency><groupId>{escape(artifact.group)}</groupId>"
        f"<artifactId>{escape(artifact.name)}</artifactId><version>{escape(artifact.version)}</version></dependency>"
        for artifact in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "  <modelVersion>4.0.0</modelVersion>\n"
        "  <groupId>io.streamgauge</groupId><artifactId>fetch</artifactId><version>1</version>\n"
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n"
        "</project>\n"
    )
