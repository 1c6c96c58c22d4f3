"""Writes the checksums that streamgauge is released with: of the default versions of Kafka, Pulsar and NATS.

    PYTHONPATH=python .venv/bin/python tools/lock_downloads.py [kafka] [pulsar] [nats]

Everything is fetched anew, with an empty cache, and checked by what the servers say; look at `git diff` before you commit it. A version
that stays must keep its checksums: one that does not match is an error here as for every user, until its line or file is removed by hand.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from streamgauge.systems.base import System
from streamgauge.systems.kafka.system import Kafka
from streamgauge.systems.nats.system import MODULE, Nats
from streamgauge.systems.pulsar.system import Pulsar, artifact
from streamgauge.systems.support import released
from streamgauge.systems.support.cache import Cache, Installation


def write_lines(name: str, lines: list[str]) -> None:
    path = released.FOLDER / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{path}: {len(lines)} checksum(s)")


def lock(name: str, cache: Cache) -> None:
    """Fetches the default version of a system and writes its checksums."""
    systems: dict[str, Callable[[Cache], System]] = {"kafka": Kafka, "pulsar": Pulsar, "nats": Nats}
    system = systems[name](cache)
    version = system.default_version
    system.install(None, print)
    found = cache.find(name, version)
    assert isinstance(found, Installation)
    if name == "nats":
        # The program differs from one version of Go to the next; its sources do not.
        write_lines(released.MODULES, [f"{MODULE} v{version} {found.source['go_sum']}"])
        return
    for old in released.FOLDER.glob(f"{name}-*.sha256"):
        old.unlink()
    write_lines(
        f"{name}-{version}.sha256", [f"{found.sha256[file]}  {file}" for file in sorted(found.sha256)]
    )
    if name == "pulsar":
        wanted = artifact(version)
        file = f"{wanted.name}-{version}-{wanted.classifier}.{wanted.packaging}"
        write_lines(released.ARCHIVES, [f"{found.source['archive_sha256']}  {file}"])


def main() -> None:
    names = sys.argv[1:] or ["kafka", "pulsar", "nats"]
    if set(names) - {"kafka", "pulsar", "nats"}:
        raise SystemExit(__doc__)
    work = Path(tempfile.mkdtemp(prefix="streamgauge-lock-"))
    try:
        for name in names:
            lock(name, Cache(work))
    finally:
        shutil.rmtree(work)


main()
