"""Who may ask the workers that the lab starts on its own machine."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from streamgauge.fleet.client import WorkerClient
from streamgauge.fleet.local import LocalFleet
from streamgauge.fleet.redaction import redacted
from streamgauge.vocabulary.errors import FleetFailure, WorkerRefused


def test_only_the_lab_may_ask_the_workers_that_it_starts(gauge: Path, tmp_path: Path) -> None:
    fleet = LocalFleet(gauge, count=2)
    try:
        worker = fleet.start(tmp_path)
        children = fleet._children
        assert len({child.token for child in children}) == 2
        for child in children:
            assert child.client is not None
            address = child.client.address
            with pytest.raises(WorkerRefused, match="did not accept the token"):
                WorkerClient(address).info()
            other = next(one for one in children if one is not child)
            with pytest.raises(WorkerRefused, match="did not accept the token"):
                WorkerClient(address, token=other.token).info()
            for method, path in (
                ("POST", "/v1/shutdown"),
                ("POST", "/v1/admin/describe"),
                ("GET", "/v1/info"),
            ):
                answer = httpx.request(method, f"http://{address}{path}", json={}, trust_env=False)
                assert (answer.status_code, answer.content) == (401, b"")
            # A second connection, as the watch of acknowledgements has one, asks as the first does.
            again = child.client.another()
            assert again.info().pid == child.process.pid == worker.pids[child.name]
            again.close()
            # Another user reads the command line and sees the log; the environment is the lab's own.
            process = Path(f"/proc/{child.process.pid}")
            seen = [
                (process / "cmdline").read_bytes(),
                (process / "environ").read_bytes(),
                child.log.read_bytes(),
                repr(child).encode(),
            ]
            assert not any(child.token.encode() in text for text in seen)
    finally:
        fleet.stop()


def test_a_worker_that_ends_at_once_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(FleetFailure, match="ended with status"):
        LocalFleet(Path("/bin/false")).start(tmp_path)


def test_a_secret_is_hidden_in_every_form_that_a_message_may_have() -> None:
    secret = 'p"ss w/rd'
    for said in (secret, '{"password": "p\\"ss w/rd"}', "amqp://u:p%22ss%20w%2Frd@host"):
        assert "ss" not in redacted(said, [secret]).replace("password", "")
    pem = "-----BEGIN PRIVATE KEY-----\nAAAABBBB\nCCCCDDDD\n-----END PRIVATE KEY-----\n"
    assert redacted("line CCCCDDDD is wrong", [pem]) == "line (hidden) is wrong"
