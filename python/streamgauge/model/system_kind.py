"""What the model asks of a kind of system before anything is started; `systems.base.System` is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Protocol, TypeVar

from streamgauge.model.feature import Feature, StartTime
from streamgauge.model.security import MECHANISMS
from streamgauge.model.system_request import SystemRequest, where_of
from streamgauge.model.untrusted import Untrusted
from streamgauge.vocabulary.errors import SystemInputError


class SystemKind(Protocol):
    """A kind of system as files and options name it. Who knows the systems passes them in, by name."""

    name: ClassVar[str]
    title: ClassVar[str]
    protocol: ClassVar[str]
    """The client that drives it."""
    default_version: ClassVar[str]
    option_keys: ClassVar[frozenset[str]]
    """Keys that a system file may hold besides the common ones."""
    start_time: ClassVar[StartTime]
    level_of_topics: ClassVar[bool]
    """Whether the level is a matter of its topics and its clients alone, so that one start serves cells of several."""
    cannot: ClassVar[Mapping[Feature, str]]
    """What it cannot do, and why."""
    omb_drivers: ClassVar[frozenset[str]]
    """Names under which the OpenMessaging Benchmark has drivers for it."""
    omb_workers: ClassVar[str | None]
    """Why the OpenMessaging Benchmark's own workers cannot put load on it, None where they can."""
    mechanisms: ClassVar[frozenset[str]]
    """How its clients can authenticate (`security.Mechanism`)."""

    @property
    def tells_metrics(self) -> bool:
        """Whether its own metrics can be read."""

    @property
    def encrypts(self) -> bool:
        """Whether it can be measured over TLS."""

    def check(self, request: SystemRequest) -> None:
        """Raises SystemInputError when the request cannot be met."""

    def untrusted(self, request: SystemRequest) -> Iterator[Untrusted]:
        """What of the options is done for a trusted file alone."""


KindType = TypeVar("KindType", bound=SystemKind)
"""A kind as its owner has it: who passes in systems that can be started gets such back."""
KindOf = TypeVar("KindOf", bound=SystemKind, covariant=True)


def check_security(system: SystemKind, request: SystemRequest) -> None:
    """Raises SystemInputError for TLS or a mechanism that cannot be had of this system."""
    where, security = where_of(request), request.security
    if request.tls and request.connect:
        raise SystemInputError(
            f"{where}tls: certificates are made for systems that streamgauge starts. For a cluster that already runs "
            "(connect), write a system file with a section 'security' (docs/security.md)"
        )
    if (request.tls or (security is not None and security.tls is not None)) and not system.encrypts:
        raise SystemInputError(
            f"{where}tls: {system.title} cannot be measured over TLS ({system.cannot[Feature.TLS]}); leave it out"
        )
    if request.guarded and Feature.CREDENTIALS in system.cannot:
        raise SystemInputError(
            f"{where}{system.title} makes no credentials for a start: {system.cannot[Feature.CREDENTIALS]}"
        )
    if security is None:
        return
    if not request.connect:
        raise SystemInputError(
            f"{where}security: says how clients reach a cluster that already runs (key connect). Systems that streamgauge "
            "starts get certificates of their own with 'tls: true' or --tls on"
        )
    if security.auth is not None and security.auth.mechanism not in system.mechanisms:
        possible = ", ".join(one for one in MECHANISMS if one in system.mechanisms) or "none"
        raise SystemInputError(
            f"{where}security.auth.mechanism: {system.title} does not know {security.auth.mechanism}; expected one of: "
            f"{possible}"
        )
