"""Certificates for systems that the lab starts: an authority that lives as long as one start, and one certificate of it.

The authority's key is never written: it signs one certificate and is forgotten, so that nobody can make another one that
the workers of this trial trust. The server's key is below the system's directory, readable by its owner alone, and goes
with the data. Keys are ECDSA on P-256: all systems read them, and what a handshake costs is as small as it gets.

X.509 is written with the package `cryptography`, the usual one in Python: the standard library cannot make certificates,
and the program `openssl` is not on every machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import ipaddress
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from streamgauge.model.security import Auth, Mechanism, Security, Tls
from streamgauge.model.system_request import Placement
from streamgauge.vocabulary.files import write_secret

DIRECTORY = "tls"
USER = "streamgauge"
"""Who clients are where they must log in."""
VALID_DAYS = 7
"""Longer than any run; a key that was left behind by a crash is worth nothing after it."""
CLOCK_TOLERANCE = datetime.timedelta(hours=1)
"""Workers on other machines may be behind."""
ALWAYS = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Certificates:
    """What a server needs (files), and what its clients do (`security`)."""

    directory: Path
    authority: Path
    certificate: Path
    key: Path
    """PKCS #8, mode 0600."""
    both: Path
    """Key and certificate in one file, mode 0600."""
    security: Security
    """How clients reach the server: they trust the authority and nothing else, and log in where they must."""

    @property
    def login(self) -> Auth | None:
        """How clients must log in; None where whoever reaches the server is served."""
        return self.security.auth

    def private_file(self, name: str, text: str) -> Path:
        """Writes a file with a secret beside the keys, which goes with them."""
        path = self.directory / name
        write_secret(path, text.encode())
        return path


def make_certificates(directory: Path, names: Sequence[str]) -> Certificates:
    """Makes an authority and a server's certificate for IP addresses and host names, besides those of loopback, in a new
    directory. Files that were there are replaced.
    """

    authority, certificate, key = _sign(sorted({*names, *ALWAYS}))
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    authority_pem, certificate_pem = (one.public_bytes(Encoding.PEM) for one in (authority, certificate))
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, mode=0o700)
    made = Certificates(
        directory=directory,
        authority=directory / "authority.pem",
        certificate=directory / "certificate.pem",
        key=directory / "key.pem",
        both=directory / "server.pem",
        security=Security(tls=Tls(ca_pem=authority_pem.decode("ascii"))),
    )
    made.authority.write_bytes(authority_pem)
    made.certificate.write_bytes(certificate_pem)
    write_secret(made.key, key_pem)
    write_secret(made.both, key_pem + certificate_pem)
    return made


def keys_directory(directory: Path) -> Path:
    """Where a system's keys are, below its directory."""
    return directory / DIRECTORY / "keys"


def for_nodes(
    wanted: bool, directory: Path, placement: Placement, nodes: int, login: Mechanism | None = None
) -> Certificates | None:
    """The certificates of a system whose nodes are placed so, below its directory; None where none are wanted. `login`:
    clients get a secret of this start too, with which they log in so.
    """
    if not wanted:
        return None
    hosts = [placement.shared_host, *(placement.host(node) for node in range(1, nodes + 1))]
    made = make_certificates(keys_directory(directory), hosts)
    if login is None:
        return made
    auth = Auth(login, None if login == "token" else USER, secrets.token_urlsafe(32))
    return dataclasses.replace(made, security=dataclasses.replace(made.security, auth=auth))


def forget(certificates: Certificates | None) -> None:
    """Removes the keys, if there are any. Idempotent."""
    if certificates is not None:
        shutil.rmtree(certificates.directory, ignore_errors=True)


def security_of(certificates: Certificates | None) -> Security | None:
    """How clients reach the server; None in plain text."""
    return certificates.security if certificates is not None else None


def _sign(
    names: Sequence[str],
) -> tuple[x509.Certificate, x509.Certificate, ec.EllipticCurvePrivateKey]:
    """An authority, a certificate that it has signed, and that certificate's key (RFC 5280)."""

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def builder(subject: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("streamgauge authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_TOLERANCE)
            .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ours.public_key()), critical=False
            )
        )

    ours, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = (
        builder("streamgauge authority", ours)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(ours, hashes.SHA256())
    )
    certificate = (
        builder("streamgauge server", key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .sign(ours, hashes.SHA256())
    )
    return authority, certificate, key


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    """An address is verified as an address, anything else as a host name."""

    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    return x509.DNSName(name)
