//! How connections are protected and who speaks on them: `system.security` of the worker API (docs/worker-api.md).
//!
//! Secrets are kept in [`Secret`], which cannot be printed, and no message of this module repeats a value that it was given.

use std::fmt;

use serde_json::{Map, Value};

use crate::ClientError;
use crate::tls::{Tls, TlsSettings};

/// Path of the object in requests.
const SECURITY: &str = "system.security";
const TLS: &str = "system.security.tls";
const AUTH: &str = "system.security.auth";
/// Longest user name, password, token or seed.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text, for whoever sends it or signs with it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<secret>")
    }
}

/// The hash of a SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScramHash {
    Sha256,
    Sha512,
}

/// Who speaks, and how that is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    /// User name and password as they are.
    Plain { username: String, password: Secret },
    /// User name, and a proof that the password is known (RFC 5802, RFC 7677).
    Scram {
        hash: ScramHash,
        username: String,
        password: Secret,
    },
    /// The client's certificate.
    External,
    /// A token.
    Token(Secret),
    /// The seed of an Ed25519 key in the form of NATS.
    Nkey(Secret),
}

impl Auth {
    /// The mechanism's name in the worker API.
    pub fn mechanism(&self) -> &'static str {
        match self {
            Auth::Plain { .. } => "plain",
            Auth::Scram {
                hash: ScramHash::Sha256,
                ..
            } => "scram-sha-256",
            Auth::Scram {
                hash: ScramHash::Sha512,
                ..
            } => "scram-sha-512",
            Auth::External => "external",
            Auth::Token(_) => "token",
            Auth::Nkey(_) => "nkey",
        }
    }
}

/// Protection and authentication of a system's connections. The default has neither.
#[derive(Clone, Debug, Default)]
pub struct Security {
    pub(crate) tls: Option<Tls>,
    pub(crate) auth: Option<Auth>,
}

impl Security {
    /// Reads `system.security`; null stands for none.
    ///
    /// # Errors
    /// [`ClientError::Input`] that names the field and says what was expected, without repeating what was given.
    pub fn read(value: &Value) -> Result<Security, ClientError> {
        if value.is_null() {
            return Ok(Security::default());
        }
        let fields = object(SECURITY, value, &["tls", "auth"])?;
        let tls = present(fields, "tls").map(read_tls).transpose()?;
        let auth = present(fields, "auth").map(read_auth).transpose()?;
        let has_certificate = tls.as_ref().is_some_and(Tls::has_certificate);
        if auth == Some(Auth::External) && !has_certificate {
            return Err(ClientError::input(
                format!("{TLS}.certificate_pem"),
                "absent: mechanism 'external' means the client's certificate, expected certificate_pem and key_pem",
            ));
        }
        Ok(Security { tls, auth })
    }

    /// Refuses a mechanism that a protocol does not have.
    pub(crate) fn check(&self, protocol: &str, mechanisms: &[&str]) -> Result<(), ClientError> {
        match &self.auth {
            Some(auth) if !mechanisms.contains(&auth.mechanism()) => Err(ClientError::input(
                format!("{AUTH}.mechanism"),
                format!(
                    "the {protocol} protocol has no '{}': expected {}",
                    auth.mechanism(),
                    quoted(mechanisms)
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses an option of a protocol that says the same as `auth`.
    pub(crate) fn check_option(&self, name: &str) -> Result<(), ClientError> {
        match self.auth {
            Some(_) => Err(ClientError::input(
                format!("system.options.{name}"),
                format!("{AUTH} says the same: expected one of them"),
            )),
            None => Ok(()),
        }
    }

    /// One sentence for each thing that is done otherwise than a user would expect.
    pub(crate) fn cannot(&self) -> impl Iterator<Item = String> + use<> {
        let is_blind = self.tls.as_ref().is_some_and(|tls| !tls.verifies());
        is_blind
            .then(|| {
                "tls: whose certificate a server presents is not verified (system.security.tls.verify is false)"
                    .to_owned()
            })
            .into_iter()
    }
}

fn quoted(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "none".to_owned(),
    }
}

/// An object's fields, of which all must be known.
fn object<'a>(path: &str, value: &'a Value, known: &[&str]) -> Result<&'a Map<String, Value>, ClientError> {
    let expected = || format!("expected an object with {}", known.join(", "));
    let fields = value
        .as_object()
        .ok_or_else(|| ClientError::input(path, expected()))?;
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(ClientError::input(
            format!("{path}.{name}"),
            format!("there is no such field: {}", expected()),
        )),
        None => Ok(fields),
    }
}

fn present<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

/// A text that may be absent.
fn text<'a>(
    path: &str,
    fields: &'a Map<String, Value>,
    name: &str,
    bytes_max: usize,
) -> Result<Option<&'a str>, ClientError> {
    match present(fields, name) {
        None => Ok(None),
        Some(Value::String(text)) if (1..=bytes_max).contains(&text.len()) => Ok(Some(text)),
        Some(_) => Err(ClientError::input(
            format!("{path}.{name}"),
            format!("expected a text of 1 to {bytes_max} bytes"),
        )),
    }
}

fn read_tls(value: &Value) -> Result<Tls, ClientError> {
    let known = ["ca_pem", "certificate_pem", "key_pem", "server_name", "verify"];
    let fields = object(TLS, value, &known)?;
    let pem = |name| text(TLS, fields, name, usize::MAX);
    let verify = match present(fields, "verify") {
        None => true,
        Some(Value::Bool(verify)) => *verify,
        Some(_) => {
            return Err(ClientError::input(
                format!("{TLS}.verify"),
                "expected true or false",
            ));
        }
    };
    Tls::new(&TlsSettings {
        ca_pem: pem("ca_pem")?,
        certificate_pem: pem("certificate_pem")?,
        key_pem: pem("key_pem")?,
        server_name: text(TLS, fields, "server_name", 253)?,
        verify,
    })
    .map_err(|(field, message)| ClientError::input(format!("{TLS}.{field}"), message))
}

/// The mechanisms, with the fields that each needs.
const MECHANISMS: &[(&str, &[&str])] = &[
    ("plain", &["username", "password"]),
    ("scram-sha-256", &["username", "password"]),
    ("scram-sha-512", &["username", "password"]),
    ("external", &[]),
    ("token", &["token"]),
    ("nkey", &["seed"]),
];

fn read_auth(value: &Value) -> Result<Auth, ClientError> {
    let fields = object(
        AUTH,
        value,
        &["mechanism", "username", "password", "token", "seed"],
    )?;
    let named = fields.get("mechanism").and_then(Value::as_str);
    let mechanism = MECHANISMS.iter().find(|(name, _)| Some(*name) == named);
    let Some((mechanism, needed)) = mechanism else {
        let names: Vec<&str> = MECHANISMS.iter().map(|(name, _)| *name).collect();
        return Err(ClientError::input(
            format!("{AUTH}.mechanism"),
            format!("expected {}", quoted(&names)),
        ));
    };
    let takes = || match needed {
        [] => format!("mechanism '{mechanism}' takes nothing else"),
        _ => format!("mechanism '{mechanism}' takes {}", needed.join(" and ")),
    };
    for name in fields.keys().filter(|name| *name != "mechanism") {
        if !needed.contains(&name.as_str()) && present(fields, name).is_some() {
            return Err(ClientError::input(format!("{AUTH}.{name}"), takes()));
        }
    }
    let given = |name: &str| match text(AUTH, fields, name, TEXT_BYTES_MAX)? {
        // The NUL separates the parts of a PLAIN login; the others are in no name, password or token that a server could know.
        Some(text) if !text.contains(char::is_control) => Ok(text.to_owned()),
        Some(_) => Err(ClientError::input(
            format!("{AUTH}.{name}"),
            "expected a text without control characters (is there a line's end behind it?)",
        )),
        None => Err(ClientError::input(
            format!("{AUTH}.{name}"),
            format!("absent: {}", takes()),
        )),
    };
    let secret = |name: &str| given(name).map(Secret::new);
    let scram = |hash| {
        Ok(Auth::Scram {
            hash,
            username: given("username")?,
            password: secret("password")?,
        })
    };
    match *mechanism {
        "plain" => Ok(Auth::Plain {
            username: given("username")?,
            password: secret("password")?,
        }),
        "scram-sha-256" => scram(ScramHash::Sha256),
        "scram-sha-512" => scram(ScramHash::Sha512),
        "token" => secret("token").map(Auth::Token),
        "nkey" => secret("seed").map(Auth::Nkey),
        _ => Ok(Auth::External),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field_of(given: Value) -> String {
        match Security::read(&given) {
            Err(ClientError::Input { field, message }) => {
                let said = format!("{field}: {message}");
                assert!(!said.contains("geheim"), "a secret is repeated: {said}");
                field
            }
            other => panic!("expected an input error, got {other:?}"),
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_never_repeated() {
        for (given, field) in [
            (json!("geheim"), ""),
            (json!({"token": "geheim"}), ".token"),
            (json!({"auth": "geheim"}), ".auth"),
            (json!({"auth": {"mechanism": "geheim"}}), ".auth.mechanism"),
            (
                json!({"auth": {"mechanism": "plain", "username": "u", "password": ["geheim"]}}),
                ".auth.password",
            ),
            (
                json!({"auth": {"mechanism": "plain", "username": "u"}}),
                ".auth.password",
            ),
            (
                json!({"auth": {"mechanism": "token", "token": "geheim", "password": "geheim"}}),
                ".auth.password",
            ),
            (
                json!({"auth": {"mechanism": "token", "token": "geheim\n"}}),
                ".auth.token",
            ),
            (json!({"auth": {"mechanism": "external"}}), ".tls.certificate_pem"),
            (json!({"tls": {}}), ".tls.ca_pem"),
            (json!({"tls": {"ca_pem": "geheim"}}), ".tls.ca_pem"),
            (
                json!({"tls": {"verify": false, "key_pem": "geheim"}}),
                ".tls.certificate_pem",
            ),
            (json!({"tls": {"verify": "geheim"}}), ".tls.verify"),
        ] {
            assert_eq!(field_of(given), format!("system.security{field}"));
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let given = json!({"auth": {"mechanism": "scram-sha-512", "username": "u", "password": "geheim"}});
        let security = Security::read(&given).expect("it is right");
        assert!(!format!("{security:?}").contains("geheim"));
        assert!(security.check("kafka", &["plain", "scram-sha-512"]).is_ok());
        let error = security
            .check("pulsar", &["token", "external"])
            .expect_err("it has none");
        assert_eq!(
            error.to_string(),
            "system.security.auth.mechanism: the pulsar protocol has no 'scram-sha-512': expected 'token' or 'external'"
        );
        assert!(security.check_option("password").is_err());
    }

    #[test]
    fn a_server_that_is_not_verified_is_told_of() {
        let security = Security::read(&json!({"tls": {"verify": false}, "auth": null}));
        assert_eq!(security.expect("it is right").cannot().count(), 1);
        assert_eq!(Security::default().cannot().count(), 0);
    }
}
