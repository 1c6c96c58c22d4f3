"""Driver files of the OpenMessaging Benchmark: not read, but a person who has one is told what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from streamgauge.model.system_kind import SystemKind

SECURITY_KEY = re.compile(
    r"^\s*((?:ssl|sasl|security)\.[\w.]+|tls\w*|authPlugin\w*|authParam\w*|amqps\S*)\s*[=:]", re.IGNORECASE
)
SASL_MECHANISM = re.compile(
    r"^\s*sasl\.mechanism\s*=\s*(PLAIN|SCRAM-SHA-256|SCRAM-SHA-512)\s*$", re.MULTILINE
)


def advice(values: Mapping[str, Any], known: Mapping[str, SystemKind]) -> str:
    """What to write instead of a driver file, as one message. It repeats names of settings and no values of them, except the class of
    the driver. `known` are the systems that there are.
    """
    driver = str(values.get("driverClass", ""))
    this = "this is a driver file of the OpenMessaging Benchmark, which this version does not read"
    system = _system_of(driver, known)
    if system is None:
        with_drivers = [name for name, one in known.items() if one.omb_drivers]
        return (
            f"{this}, and {driver or 'it'} drives none of the systems here (with drivers of OMB: {', '.join(with_drivers)}). A system "
            "that speaks the protocol of one of them can be attached to as that one: write a system file with 'system' and 'connect'"
        )
    message = (
        f"{this}; write a system file "
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


def _system_of(driver: str, known: Mapping[str, SystemKind]) -> str | None:
    """The system whose driver a class is: `io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver` is in the package `kafka`, or
    begins with that name. None where it is nobody's that is known.
    """
    package, _, kind = driver.lower().rpartition(".")
    for name, system in known.items():
        if any(one == package.rpartition(".")[2] or kind.startswith(one) for one in system.omb_drivers):
            return name
    return None


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
