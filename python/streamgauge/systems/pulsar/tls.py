"""What Pulsar is told where clients speak TLS, and where they must log in: settings of brokers, and a token."""

from __future__ import annotations

import base64
import dataclasses
import hmac
import json

from streamgauge.model.security import Auth
from streamgauge.systems.pulsar.settings import NodePorts
from streamgauge.systems.support.certificates import USER, Certificates

TOKEN, TOKEN_KEY = "token", "token.key"
"""Files, where clients must log in."""


def tls_settings(ports: NodePorts, certificates: Certificates | None) -> dict[str, str]:
    """The listeners of a broker for clients that speak TLS; none without certificates."""
    if certificates is None:
        return {}
    settings = {
        "brokerServicePortTls": str(ports.broker_tls),
        "webServicePortTls": str(ports.web_tls),
        "tlsCertificateFilePath": str(certificates.certificate),
        "tlsKeyFilePath": str(certificates.key),
        "tlsTrustCertsFilePath": str(certificates.authority),
    }
    if ports.is_plain_closed:
        settings |= {
            "brokerServicePort": "",
            "webServicePort": "",
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": str(certificates.authority),
        }
    if certificates.login is not None:
        settings |= {
            "authenticationEnabled": "true",
            "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
            "authenticateMetricsEndpoint": "true",
            "tokenSecretKey": (certificates.directory / TOKEN_KEY).as_uri(),
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": (certificates.directory / TOKEN).as_uri(),
        }
    return settings


def with_token(certificates: Certificates) -> Certificates:
    """With a token for the clients: a JSON web token (RFC 7519), signed with HMAC-SHA-256 by the secret that was made for
    them, which then stays here. Both are beside the other keys.
    """
    assert certificates.login is not None, "there is a secret where clients must log in"
    key = str(certificates.login.secret)

    def part(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")

    said = part(b'{"alg":"HS256"}') + "." + part(json.dumps({"sub": USER}).encode())
    token = said + "." + part(hmac.digest(key.encode("ascii"), said.encode("ascii"), "sha256"))
    certificates.private_file(TOKEN_KEY, key)
    certificates.private_file(TOKEN, token)
    security = dataclasses.replace(certificates.security, auth=Auth("token", secret=token))
    return dataclasses.replace(certificates, security=security)
