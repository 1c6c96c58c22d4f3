"""Where a cluster that already runs tells its own metrics: key `metrics` of a system file, and --system-metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from streamgauge.model.system_kind import SystemKind
from streamgauge.model.system_request import SystemRequest, where_of
from streamgauge.vocabulary.errors import InputError, Problem, SystemInputError

KEY = "metrics"
EVERY_SECOND = "every-second"
URLS_MAX = 64
URL_CHARACTERS_MAX = 500


@dataclass(frozen=True)
class MetricsAsked:
    """What a file or an option says of a system's own metrics."""

    wanted: bool = True
    every_second: bool = False
    urls: tuple[str, ...] = ()


def parse_metrics(value: Any, at: Callable[[str], Problem]) -> MetricsAsked:
    """Raises InputError."""
    if isinstance(value, bool):
        return MetricsAsked(value)
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list) or len(texts) > URLS_MAX:
        raise InputError(
            at(
                f"expected at most {URLS_MAX} URLs, {EVERY_SECOND}, or false (do not read any), found {value!r}"
            )
        )
    said = [str(text).strip() for text in texts]
    urls = tuple(_url(text, at) for text in said if text != EVERY_SECOND)
    return MetricsAsked(every_second=EVERY_SECOND in said, urls=urls)


def _url(text: str, at: Callable[[str], Problem]) -> str:
    expected = f"expected a URL such as http://10.0.0.5:9404/metrics, or {EVERY_SECOND}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InputError(at(f"{text!r} is no URL; {expected}")) from None
    odd = not text.isascii() or not text.isprintable() or " " in text or len(text) > URL_CHARACTERS_MAX
    if odd or parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise InputError(at(f"{text!r} is no URL; {expected}"))
    if parts.username is not None or parts.password is not None:
        raise InputError(
            at(
                f"the URL of {parts.hostname} holds credentials, which would be kept with every run; {expected}"
            )
        )
    return text


def check_metrics(system: SystemKind, request: SystemRequest) -> None:
    """Raises SystemInputError for addresses that nothing is read from."""
    where = where_of(request)
    if request.metrics and not request.connect:
        raise SystemInputError(
            f"{where}metrics: URLs are for a cluster that already runs (key connect); of a system that streamgauge starts it knows where "
            "they are"
        )
    if request.agents and not request.connect:
        raise SystemInputError(
            f"{where}agents: are for a cluster that already runs (key connect); what streamgauge starts is on this machine, which it watches itself"
        )
    if request.metrics_every_second and request.connect and not request.metrics:
        raise SystemInputError(
            f"{where}metrics: {EVERY_SECOND} of a cluster that already runs (key connect) needs the URLs at which its processes tell them, too"
        )
    if (request.metrics or request.metrics_every_second) and not system.tells_metrics:
        raise SystemInputError(f"{where}metrics: {system.title} declares none that could be read")
