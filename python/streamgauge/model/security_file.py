"""The section `security` of a system file: how clients reach a cluster that already runs (docs/security.md).

    security:
      ca_file: ca.pem
      certificate_file: client.pem
      key_file: client.key
      server_name: kafka.example.org
      verify: true
      auth: {mechanism: scram-sha-512, username: bench, password_file: secrets/password}

Secrets are in files of their own or in environment variables: a system file is shared, kept in version control and copied
into results. They are read here, before anything is started, and no message repeats them.
"""

from __future__ import annotations

import dataclasses
import os
import stat
from pathlib import Path

from streamgauge.model.document import Document, FileModel, Location
from streamgauge.model.security import SECRETS, Auth, Mechanism, Security, Tls
from streamgauge.model.trust import is_beside
from streamgauge.model.untrusted import how_to_trust
from streamgauge.vocabulary.errors import InputError, Problem

KEY = "security"
FILE_BYTES_MAX = 1 << 20
BEGIN_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
NOT_HERE = "secrets are not written into system files: give {0}_file or {0}_env"
HINTS = {
    "password": NOT_HERE.format("password"),
    "token": NOT_HERE.format("token"),
    "seed": NOT_HERE.format("seed"),
    "ca_pem": "give ca_file, the file with the authority's certificates",
    "truststore": "Java's key stores are not read: give ca_file in PEM (keytool -exportcert -rfc)",
    "keystore": "Java's key stores are not read: give certificate_file and key_file in PEM (openssl pkcs12)",
}


class AuthFile(FileModel):
    """Who the client is. The secret is in a file or in an environment variable."""

    mechanism: Mechanism
    username: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    token_file: str | None = None
    token_env: str | None = None
    seed_file: str | None = None
    seed_env: str | None = None


class SecurityFile(FileModel):
    """TLS (with any key besides `auth`) and authentication."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    verify: bool | None = None
    auth: AuthFile | None = None


class _Section(FileModel):
    security: SecurityFile


def read_security(document: Document, *, trusted: bool = False) -> Security | None:
    """The section of a system file; None without one. Paths in it are relative to the file. Secrets come from below the
    file's directory, unless it is trusted: it also says where they are sent.

    Raises InputError with every problem found.
    """
    if KEY not in document.values:
        return None
    part = dataclasses.replace(document, values={KEY: document.values[KEY]})
    return _Reader(document, part.validate(_Section, HINTS).security, trusted=trusted).read()


class _Reader:
    """Reads what the section names, and collects what is wrong with it."""

    def __init__(self, document: Document, written: SecurityFile, *, trusted: bool) -> None:
        self._document = document
        self._trusted = trusted
        self._written = written
        self._base = Path(document.file).parent
        self._problems: list[Problem] = []

    def read(self) -> Security:
        tls = self._tls()
        auth = None if self._written.auth is None else self._auth(self._written.auth, tls)
        if tls is None and auth is None and not self._problems:
            self._problem("says nothing: expected ca_file (TLS), auth, or both")
        if self._problems:
            raise InputError(self._problems)
        return Security(tls, auth)

    def _problem(self, message: str, *keys: str) -> None:
        place = ".".join((KEY, *keys))
        location: Location = (KEY, *keys)
        self._problems.append(self._document.problem(f"{place}: {message}", location))

    def _tls(self) -> Tls | None:
        written = self._written
        given = written.model_dump(exclude={"auth"}, exclude_none=True)
        if not given:
            return None
        verify = written.verify is not False
        if verify and written.ca_file is None:
            self._problem(
                "ca_file is missing: no authorities come with streamgauge, so that it must be told whose certificates "
                "to believe (a file in PEM; those that Debian believes are in /etc/ssl/certs/ca-certificates.crt)"
            )
        if not verify and written.server_name is not None:
            self._problem("has no meaning with verify: false, which accepts any name", "server_name")
        if not verify and written.ca_file is not None:
            self._problem("has no meaning with verify: false, which accepts any certificate", "ca_file")
        for key, other in (("certificate_file", "key_file"), ("key_file", "certificate_file")):
            if key in given and other not in given:
                self._problem(f"needs {other} beside it", key)
        tls = Tls(
            ca_pem=self._certificates("ca_file", written.ca_file),
            certificate_pem=self._certificates("certificate_file", written.certificate_file),
            key_pem=self._key(written.key_file),
            server_name=written.server_name,
            verify=verify,
            certificate_file=self._path(written.certificate_file),
            key_file=self._path(written.key_file),
        )
        if not self._problems:
            try:
                tls.context()
            except (OSError, ValueError) as error:
                why = getattr(error, "reason", None) or error
                self._problem(
                    f"the certificates cannot be used ({why}): expected PEM, and a key that belongs to its certificate"
                )
        return tls

    def _path(self, file: str | None) -> Path | None:
        return None if file is None else self._base / Path(file).expanduser()

    def _certificates(self, key: str, file: str | None) -> str | None:
        text = None if file is None else self._text(file, key)
        if text is not None and BEGIN_CERTIFICATE not in text:
            self._problem(f"{file} holds no certificate in PEM ({BEGIN_CERTIFICATE})", key)
        return text

    def _key(self, file: str | None) -> str | None:
        text = None if file is None else self._secret_text(file, "key_file")
        if text is None:
            return None
        if "ENCRYPTED" in text:
            self._problem(
                f"{file} is encrypted: decrypt it (openssl pkey -in {file} -out plain.pem; chmod 600 plain.pem)",
                "key_file",
            )
        elif "PRIVATE KEY-----" not in text:
            self._problem(f"{file} holds no private key in PEM (-----BEGIN PRIVATE KEY-----)", "key_file")
        return text

    def _auth(self, auth: AuthFile, tls: Tls | None) -> Auth:
        kind = SECRETS.get(auth.mechanism)
        known = ("password", "token", "seed")
        for name in known:
            for key in (f"{name}_file", f"{name}_env"):
                if name != kind and getattr(auth, key) is not None:
                    self._problem(f"has no meaning with mechanism: {auth.mechanism}", "auth", key)
        named = kind == "password"
        if named and not auth.username:
            self._problem(f"username is missing: {auth.mechanism} needs one", "auth")
        if not named and auth.username is not None:
            self._problem(f"has no meaning with mechanism: {auth.mechanism}", "auth", "username")
        if auth.mechanism == "external" and (tls is None or tls.certificate_pem is None):
            self._problem(
                "external proves who the client is by its certificate: give certificate_file and key_file",
                "auth",
                "mechanism",
            )
        secret = None if kind is None else self._secret(kind, auth)
        return Auth(auth.mechanism, auth.username, secret)

    def _secret(self, kind: str, auth: AuthFile) -> str | None:
        file: str | None = getattr(auth, f"{kind}_file")
        variable: str | None = getattr(auth, f"{kind}_env")
        if (file is None) == (variable is None):
            what = "only one of" if file is not None else "one of"
            self._problem(f"expected {what} {kind}_file and {kind}_env with {auth.mechanism}", "auth")
            return None
        if variable is not None:
            self._require_trust(f"'{variable}' is a variable of your environment", "auth", f"{kind}_env")
            found = os.environ.get(variable)
            if not found:
                state = "is not set" if found is None else "is empty"
                self._problem(
                    f"the environment variable {variable} {state}: set it to the {kind}",
                    "auth",
                    f"{kind}_env",
                )
            return found
        assert file is not None, "one of the two is given"
        text = self._secret_text(file, "auth", f"{kind}_file")
        if text is None:
            return None
        secret = text.removesuffix("\n").removesuffix("\r")
        if not secret or "\n" in secret:
            self._problem(f"{file}: expected the {kind} alone, in one line", "auth", f"{kind}_file")
        return secret

    def _secret_text(self, file: str, *keys: str) -> str | None:
        """The text of a file that nobody else may read."""
        path = self._path(file)
        assert path is not None
        if not is_beside(path, self._base):
            self._require_trust(f"{file} is not below {self._base.resolve()}, or hidden", *keys)
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            return self._text(file, *keys)
        if mode & stat.S_IRWXO:
            self._problem(f"{file} can be read by everybody (mode {mode:04o}): chmod 600 {path}", *keys)
            return None
        return self._text(file, *keys)

    def _require_trust(self, what: str, *keys: str) -> None:
        """Whoever writes the file says to which address a secret goes, and so may not choose any that is yours."""
        if not self._trusted:
            self._problem(
                f"{what}, and this file says where the secret is sent; {how_to_trust(self._document.file)}",
                *keys,
            )

    def _text(self, file: str, *keys: str) -> str | None:
        path = self._path(file)
        assert path is not None
        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                self._problem(f"{file} is larger than 1 MiB: expected a small text file", *keys)
                return None
            return path.read_text("utf-8")
        except UnicodeDecodeError:
            self._problem(f"{file} is not text: expected PEM or one line of UTF-8", *keys)
        except FileNotFoundError:
            self._problem(f"no such file: {path}", *keys)
        except OSError as error:
            self._problem(f"{file} cannot be read: {error.strerror}", *keys)
        return None
