"""Coverage-guided fuzzing of the lab's parsers of somebody else's files, with Atheris (fuzz/README.md).

    FUZZ_TARGET=lab-workloads PYTHONPATH=python .venv/bin/python fuzz/lab.py [ARGUMENTS OF LIBFUZZER] [CORPUS...]

What a parser may say of a file that it cannot read is InputError; anything else that it raises is a finding.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
LAB = ROOT / "python" / "streamgauge"
FILE = "fuzzed"


@dataclass(frozen=True)
class Target:
    """A parser and inputs to begin with."""

    run: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]


def targets() -> dict[str, Target]:
    """All of them, by name. The lab is imported here, so that it can be instrumented before."""
    from pydantic import BaseModel
    from streamgauge.model.checked_study import parse_study
    from streamgauge.model.durability_study import parse_durability_study
    from streamgauge.model.messages import Interval
    from streamgauge.model.resolve import read_workload
    from streamgauge.model.result import Manifest, TrialResult
    from streamgauge.model.result_columns import INTERVAL_COLUMNS
    from streamgauge.model.system_file import SystemOverrides, choose_systems
    from streamgauge.report.foreign import read_omb
    from streamgauge.store.context import TrialContext
    from streamgauge.store.opened import as_model, parse_json
    from streamgauge.store.parquet import read_rows
    from streamgauge.store.tables import interval_rows
    from streamgauge.systems.registry import systems
    from streamgauge.vocabulary.histograms import decode, encode, recorded

    known = systems()

    def of_file(read: Callable[[Path], object], suffix: str) -> Callable[[bytes], object]:
        def run(data: bytes) -> object:
            with tempfile.NamedTemporaryFile(suffix=suffix) as file:
                file.write(data)
                file.flush()
                return read(Path(file.name))

        return run

    def interval(data: bytes) -> object:
        told = as_model(Interval, parse_json(data, FILE), FILE)
        return list(interval_rows("worker-1", told))

    def text(data: bytes) -> str:
        return data.decode("utf-8", "replace")

    def shipped(folder: str) -> Callable[[], list[bytes]]:
        return lambda: [path.read_bytes() for path in sorted((LAB / folder).glob("*.yaml"))]

    def histograms() -> list[bytes]:
        import numpy as np

        made = recorded(np.array([1, 1_000_000, 3_000_000_000]), np.array([1, 2, 3]))
        return [encode(made), encode(recorded(np.array([], dtype=np.int64), np.array([], dtype=np.int64)))]

    def tables() -> list[bytes]:
        import pyarrow
        import pyarrow.parquet

        columns = {"interval": [0, 1], "start_s": [0.0, 1.0], "duration_s": [1.0, 1.0], "worker": ["a", "b"]}
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.table(columns), sink)
        return [sink.getvalue().to_pybytes()]

    def as_json(*values: object) -> Callable[[], list[bytes]]:
        return lambda: [json.dumps(value).encode() for value in values]

    system = {
        "system": "kafka",
        "version": "4.3.1",
        "nodes": 3,
        "durability": "L2",
        "broker": {"num.io.threads": 4},
    }
    interval_seed = {
        "index": 0, "start_s": 0.0, "duration_s": 1.0, "sent_msgs": 3, "errors": {"timeout": 1},
        "subscriptions": [{"name": "s", "received_msgs": 3, "backlog_msgs": 0}],
        "latencies": [{"phase": "measure", "metric": "publish", "count": 3, "histogram": "AAAA"}],
    }  # fmt: skip
    omb = {"workload": "w", "driver": "Kafka", "publishRate": [1.5], "publishLatency99pct": [2.0],
           "aggregatedPublishLatencyQuantiles": {"50.0": 1.0}}  # fmt: skip
    models: dict[str, type[BaseModel]] = {
        "lab-results": TrialResult,
        "lab-manifests": Manifest,
        "lab-contexts": TrialContext,
    }
    return {
        "lab-workloads": Target(of_file(lambda path: read_workload(str(path)), ".yaml"), shipped("workloads")),
        "lab-studies": Target(lambda data: parse_study(text(data), FILE, known), shipped("studies")),
        "lab-durability-studies": Target(
            lambda data: parse_durability_study(text(data), FILE, known), shipped("studies/experiments")
        ),
        "lab-systems": Target(
            of_file(lambda path: choose_systems(str(path), SystemOverrides(), known), ".yaml"), as_json(system)
        ),
        **{
            name: Target(
                lambda data, model=model: as_model(model, parse_json(data, FILE), FILE),  # type: ignore[misc]
                as_json(dict.fromkeys(model.model_fields)),
            )
            for name, model in models.items()
        },
        "lab-intervals": Target(interval, as_json(interval_seed)),
        "lab-histograms": Target(decode, histograms),
        "lab-tables": Target(of_file(lambda path: read_rows(path, INTERVAL_COLUMNS), ".parquet"), tables),
        "lab-omb-results": Target(of_file(read_omb, ".json"), as_json(omb)),
    }  # fmt: skip


def run(target: Target, data: bytes) -> None:
    """One input. Raises what is a finding."""
    from streamgauge.vocabulary.errors import InputError

    try:
        target.run(data)
    except InputError as error:
        if not str(error):
            raise RuntimeError("an error that says nothing") from error


def instrumented() -> dict[str, Target]:
    """All targets, of a lab whose coverage is told. Before the lab is imported for anything else."""
    import atheris

    with atheris.instrument_imports(include=["streamgauge"], enable_loader_override=False):
        return targets()


def fuzz(target: Target, arguments: list[str]) -> NoReturn:
    """Becomes a target. `arguments`: the program's name, and those of libFuzzer."""
    import atheris

    atheris.Setup(arguments, lambda data: run(target, data))
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends the process")


def main() -> None:
    """As the module says."""
    asked, known = os.environ.get("FUZZ_TARGET", ""), instrumented()
    if asked not in known:
        sys.exit(f"FUZZ_TARGET={asked}: there is no such target: expected one of {' '.join(known)}")
    fuzz(known[asked], sys.argv)


if __name__ == "__main__":
    main()
