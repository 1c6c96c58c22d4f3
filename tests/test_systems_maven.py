"""What is said when Maven cannot do its work."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamgauge.systems.support import maven
from streamgauge.systems.support.java import Java
from streamgauge.vocabulary.errors import SystemFailure

JAVA = Java(Path("/usr/bin/java"), "17.0.1", 17)
ARTIFACT = maven.Artifact("org.example", "thing", "1.0")


def test_missing_maven_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemFailure, match=r"mvn is not on the PATH.*apt-get install maven"):
        maven.copy_dependencies("Thing 1.0", [ARTIFACT], tmp_path / "out", JAVA, tmp_path / "log", print)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "[INFO] x\n[ERROR] Failed to execute goal on project fetch: Could not find artifact "
            "org.example:thing:jar:9.9 in central (https://repo) -> [Help 1]\n",
            "repositories do not have org.example:thing:jar:9.9; ask for another version",
        ),
        (
            "[\x1b[1;31mERROR\x1b[m] Failed: org.example:thing:jar:9.9 was not found in https://repo during "
            "a "
            "previous attempt\n",
            "repositories do not have org.example:thing:jar:9.9",
        ),
        (
            "[ERROR] Could not transfer artifact org.example:thing:pom:1.0 from/to central: repo: Unknown "
            "host\n",
            "check the network, the proxy or the mirrors",
        ),
        (
            "[ERROR] Could not transfer artifact x: Checksum validation failed, expected a but is b\n",
            "a checksum does not match",
        ),
        ("Error: JAVA_HOME is not defined correctly.\n", "Error: JAVA_HOME is not defined correctly."),
    ],
)
def test_failures_are_explained(tmp_path: Path, output: str, expected: str) -> None:
    log = tmp_path / "maven.log"
    log.write_text(output)
    message = maven.explain_failure("Thing 1.0", log)
    assert message.startswith("cannot download Thing 1.0: ")
    assert expected in message
    assert str(log) in message


def test_a_maven_that_fails_is_reported_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "mvn"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho '[ERROR] No space left on device'\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    with pytest.raises(SystemFailure, match=r"cannot download Thing 1\.0: No space left on device"):
        maven.copy_dependencies("Thing 1.0", [ARTIFACT], tmp_path / "out", JAVA, tmp_path / "log", print)
