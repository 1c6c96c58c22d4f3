"""Workers and agents as they are on other machines, behind TLS and a token; and hosts for them, made of network namespaces on this one."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from streamgauge.systems.support import network

PORT = 7400


@contextlib.contextmanager
def network_of(hosts: int) -> Iterator[network.Namespaces]:
    """A switch with so many hosts on it."""
    made = network.Namespaces(hosts)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@dataclass(frozen=True)
class Seat:
    """A place for a worker or an agent, by its name in the file of hosts."""

    name: str
    host: str = "127.0.0.1"
    port: int = 0
    on: Callable[[Sequence[str]], list[str]] = list
    """A command as it is started there."""
    words: tuple[str, ...] = ()
    """More of its command line."""
    keys: str = ""
    """More of its line in the file: `roles: producers, `."""


def seats_of(
    hosts: network.Namespaces, numbers: Iterable[int], words: Mapping[int, tuple[str, ...]] | None = None
) -> list[Seat]:
    """Hosts of a network, one seat each; `words` by their numbers."""
    more = words or {}
    return [
        Seat(
            f"host-{number}",
            hosts.host(number),
            PORT,
            lambda command, number=number: hosts.command(number, command),  # type: ignore[misc]
            more.get(number, ()),
        )
        for number in numbers
    ]


@contextlib.contextmanager
def started(
    gauge: Path, directory: Path, seats: Iterable[Seat], program: Literal["worker", "agent"] = "worker"
) -> Iterator[Path]:
    """The file of hosts of workers or agents behind TLS and a token; they end with it."""
    identity = directory / "identity"
    made = subprocess.run(
        [gauge, "worker", "--make-identity", identity], capture_output=True, text=True, check=True
    )
    secrets = [f"--token-file={identity}/token", f"--certificate={identity}/certificate.pem"]
    secrets.append(f"--key={identity}/key.pem")
    lines = [f"token_file: {identity / 'token'}", "hosts:"]
    running: list[subprocess.Popen[str]] = []
    file = directory / f"{program}s.yaml"
    try:
        for seat in seats:
            command = [str(gauge), program, "--listen", f"{seat.host}:{seat.port}", *secrets, *seat.words]
            process = subprocess.Popen(seat.on(command), stdout=subprocess.PIPE, text=True)
            running.append(process)
            assert process.stdout is not None
            assert process.stdout.readline() == f"certificate {made.stdout}"
            address = process.stdout.readline().removeprefix("ready ").strip()
            lines.append(
                f"  - {{name: {seat.name}, address: '{address}', {seat.keys}fingerprint: '{made.stdout.strip()}'}}"
            )
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        yield file
    finally:
        for process in running:
            process.terminate()
        ended = [process.wait(10) for process in running]
    assert ended == [143] * len(ended)
