"""How clients reach a system: whether it can be had as asked (docs/security.md)."""

from __future__ import annotations

from collections.abc import Mapping

from streamgauge.systems.base import System, SystemInputError, SystemRequest
from streamgauge.systems.base.features import Feature
from streamgauge.systems.base.options import where_of
from streamgauge.systems.base.security import MECHANISMS


def is_encrypted(request: SystemRequest) -> bool:
    """Whether clients speak TLS with the system."""
    return request.tls or (request.security is not None and request.security.tls is not None)


def mechanism_of(request: SystemRequest) -> str | None:
    """How clients authenticate, where a system file's `security` says it."""
    auth = request.security.auth if request.security is not None else None
    return auth.mechanism if auth is not None else None


def check(system: System, request: SystemRequest) -> None:
    """Raises SystemInputError for TLS or a mechanism that cannot be had of this system."""
    where, security = where_of(request), request.security
    if request.tls and request.connect:
        raise SystemInputError(
            f"{where}tls: certificates are made for systems that streamgauge starts. For a cluster that already runs "
            "(connect), write a system file with a section 'security' (docs/security.md)"
        )
    if (request.tls or (security is not None and security.tls is not None)) and not system.encrypts:
        raise SystemInputError(f"{where}tls: {system.title} cannot be measured over TLS ({system.cannot[Feature.TLS]}); leave it out")
    if request.guarded and not system.can(Feature.CREDENTIALS):
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


def refuse_both(request: SystemRequest, given: Mapping[str, Any], keys: tuple[str, ...], prefix: str) -> None:
    """Raises SystemInputError when credentials are in the options (`keys` of `given`) and in `security` too."""
    twice = [key for key in keys if key in given]
    if twice and request.security is not None and request.security.auth is not None:
        raise SystemInputError(
            f"{where_of(request)}{prefix}{twice[0]} and security.auth both say who the client is; leave one of them out"
        )
