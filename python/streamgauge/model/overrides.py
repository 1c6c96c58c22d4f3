"""What the command line sets over a workload file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamgauge.model.fault import read_faults
from streamgauge.model.result_asked import FaultAsked
from streamgauge.model.trust import NOBODY, Trust
from streamgauge.model.workload_file import Rate, read_rate
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.units import parse_duration, parse_size, parse_warm_up


@dataclass(frozen=True)
class Overrides:
    """What the command line sets over the file; None leaves the file's value. `rate` holds None within for
    `max`."""

    rate: Rate | None = None
    duration_s: float | None = None
    warmup: tuple[float, bool] | None = None
    """Seconds, and whether it ends sooner, when the load is steady."""
    message_size_bytes: int | None = None
    partitions_per_topic: int | None = None
    batch_bytes: int | None = None
    linger_s: float | None = None
    in_flight: int | None = None
    backlog_bytes: int | None = None
    faults: tuple[FaultAsked, ...] | None = None
    allow_unstamped: bool = False
    trust: Trust = NOBODY
    """Files that may read others from elsewhere."""

    @classmethod
    def parse(
        cls,
        *,
        rate: str | None = None,
        duration: str | None = None,
        warmup: str | None = None,
        size: str | None = None,
        partitions: int | None = None,
        batch_bytes: str | None = None,
        linger: str | None = None,
        in_flight: int | None = None,
        backlog: str | None = None,
        fault: list[str] | None = None,
        allow_unstamped: bool = False,
    ) -> Overrides:
        """From the options' texts. Raises InputError with one problem for each option that cannot be read."""
        problems: list[Problem] = []

        def read(option: str, text: str | list[str] | None, parse: Callable[[Any], Any]) -> Any:
            if text is None:
                return None
            try:
                return parse(text)
            except ValueError as error:
                told = text if isinstance(text, str) else ",".join(text)
                problems.append(Problem(f"{option} {told}: {error}"))
                return None

        overrides = cls(
            rate=read("--rate", rate, read_rate),
            duration_s=read("--duration", duration, parse_duration),
            warmup=read("--warmup", warmup, parse_warm_up),
            message_size_bytes=read("--size", size, parse_size),
            partitions_per_topic=partitions,
            batch_bytes=read("--batch-bytes", batch_bytes, parse_size),
            linger_s=read("--linger", linger, parse_duration),
            in_flight=in_flight,
            backlog_bytes=read("--backlog", backlog, parse_size),
            faults=read("--fault", fault or None, read_faults),
            allow_unstamped=allow_unstamped,
        )
        if problems:
            raise InputError(problems)
        return overrides
