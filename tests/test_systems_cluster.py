"""What clusters have in common that the lab starts: attempts with other ports, and directories that must be fresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamgauge.systems.support.cluster import ATTEMPTS, fresh_directory, start_in_attempts
from streamgauge.vocabulary.errors import SystemFailure


class Starts:
    """A start that fails with these reasons, one after the other, and then succeeds."""

    def __init__(self, directory: Path, *reasons: str) -> None:
        self._reasons = list(reasons)
        self._directory = directory
        self.found: list[int] = []
        """Entries of the directory at each start."""

    def __call__(self) -> Any:
        self.found.append(len(list(self._directory.iterdir())))
        (self._directory / "node-1").mkdir()
        if self._reasons:
            raise SystemFailure(self._reasons.pop(0))
        return "running"


@pytest.mark.parametrize(
    "reason",
    [
        "Kafka node 1 exited with status 1 while starting: java.net.BindException: Address already in use",
        "Pulsar broker-1 exited with status 1 while starting: io.netty.channel.unix.Errors$NativeIoException: bind(..) failed: "
        "Address already in use",
        "NATS node 1 exited with status 1: Error listening on port: listen tcp 127.0.0.1:1: bind: address already in use",
        "RabbitMQ node 1 exited with status 1: {listen_error,{acceptor,{127,0,0,1},1},eaddrinuse}",
        "RabbitMQ node 2 exited with status 1: ERROR: distribution port 25672 in use on localhost by gauge1",
    ],
)
def test_a_lost_port_is_followed_by_another_attempt_in_an_empty_directory(
    tmp_path: Path, reason: str
) -> None:
    said: list[str] = []
    starts = Starts(tmp_path, reason)
    assert start_in_attempts(starts, tmp_path, (), said.append) == "running"
    assert starts.found == [0, 0]
    assert said == [f"{reason}; trying other ports"]


@pytest.mark.parametrize(
    ("reason", "chosen", "starts_made"),
    [
        ("Address already in use", (9092,), 1),
        ("Invalid value -5 for configuration num.network.threads", (), 1),
        ("Address already in use", (), ATTEMPTS),
    ],
)
def test_what_other_ports_do_not_mend_fails(
    tmp_path: Path, reason: str, chosen: tuple[int, ...], starts_made: int
) -> None:
    starts = Starts(tmp_path, *[reason] * (ATTEMPTS + 1))
    with pytest.raises(SystemFailure, match=reason):
        start_in_attempts(starts, tmp_path, chosen, print)
    assert len(starts.found) == starts_made


def test_a_cluster_is_started_in_a_directory_of_its_own(tmp_path: Path) -> None:
    fresh_directory(tmp_path / "a" / "b", "Kafka")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    with pytest.raises(SystemFailure, match=r"a is not empty; Kafka is started on fresh data only"):
        fresh_directory(tmp_path / "a", "Kafka")
    (tmp_path / "file").touch()
    with pytest.raises(SystemFailure, match=r"cannot use .*file for NATS's data"):
        fresh_directory(tmp_path / "file", "NATS")
