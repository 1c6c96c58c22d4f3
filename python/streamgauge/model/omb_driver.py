"""Driver files of the OpenMessaging Benchmark: not read, but a person who has one is told what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

SYSTEMS = {"kafka": "kafka", "pulsar": "pulsar", "rabbitmq": "rabbitmq", "nats": "nats", "jetstream": "nats"}
SECURITY_KEY = re.compile(
    r"^\s*((?:ssl|sasl|security)\.[\w.]+|tls\w*|authPlugin\w*|authParam\w*|amqps\S*)\s*[=:]", re.IGNORECASE
)
SASL_MECHANISM = re.compile(
    r"^\s*sasl\.mechanism\s*=\s*(PLAIN|SCRAM-SHA-256|SCRAM-SHA-512)\s*$", re.MULTILINE
)


def advice(values: Mapping[str, Any]) -> str:
    """What to write instead of a driver file, as one message. It repeats names of settings and no values of them."""
    driver = str(values.get("driverClass", "")).lower()
    system = next((ours for name, ours in SYSTEMS.items() if name in driver), "kafka")
    message = (
        "this is a driver file of the OpenMessaging Benchmark, which this version does not read; write a system file "
        f"instead: 'system: {system}' and 'connect: host:port' (from bootstrap.servers)"
    )
    texts = list(_texts(values))
    found = sorted({name for text in texts for name in _security_keys(text)})
    if not found:
        return message
    asked = next((match for text in texts if (match := SASL_MECHANISM.search(text))), None)
    mechanism = asked.group(1).lower() if asked is not None else "scram-sha-512"
    return (
        f"{message}. Its security settings ({', '.join(found)}) become a section 'security' (docs/security.md): ca_file (PEM, "
        "out of the trust store) for TLS; 'auth: {mechanism: "
        f"{mechanism}, username: ..., password_file: ...}}' for SASL, with the password in a file of its own"
    )


def _texts(values: Mapping[str, Any]) -> Iterator[str]:
    """Each key with its value, and the texts in which drivers hold the properties of their clients."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _texts(value)
        else:
            yield f"{key}: {value}"
            if isinstance(value, str):
                yield value


def _security_keys(text: str) -> Iterator[str]:
    for line in text.splitlines():
        match = SECURITY_KEY.match(line)
        if match is not None:
            yield match.group(1)
