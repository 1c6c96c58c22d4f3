//! The protocol's options, and the names of topics.

use serde_json::Value;

use super::commands::SubscriptionType;
use crate::security::{Auth, Secret};
use crate::tls::Tls;
use crate::{ClientError, Endpoint};

/// Longest text of an option.
const TEXT_BYTES_MAX: usize = 4096;
/// Bytes of messages that a consumer lets the brokers send ahead, over all its partitions.
const RECEIVE_BYTES: u64 = 32 << 20;
/// The port of a broker's web service, where no other is named, and with TLS.
const WEB_PORT: u16 = 8080;
const WEB_PORT_TLS: u16 = 8443;
/// The mechanisms of authentication that this client has.
const MECHANISMS: &[&str] = &["token", "external"];

/// The protocol's options.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// TLS, with brokers and their web services alike.
    pub tls: Option<Tls>,
    /// `host:port` of brokers' web services, for administration.
    pub admin: Vec<String>,
    /// `tenant/namespace` of the topics.
    pub namespace: String,
    pub subscription_type: SubscriptionType,
    pub receive_bytes: u64,
    /// A token, or the client's certificate.
    pub auth: Option<Auth>,
}

const KNOWN: &str = "admin, namespace, subscription_type, receive_bytes, token";

impl Options {
    /// Reads the options of a request.
    pub fn read(endpoint: &Endpoint) -> Result<Options, ClientError> {
        check_servers("system.bootstrap", &endpoint.bootstrap)?;
        endpoint.security.check("pulsar", MECHANISMS)?;
        let web_port = match &endpoint.security.tls {
            None => WEB_PORT,
            Some(_) => WEB_PORT_TLS,
        };
        let web = |server: &String| {
            let host = server.rsplit_once(':').map_or(server.as_str(), |(host, _)| host);
            format!("{host}:{web_port}")
        };
        let mut options = Options {
            tls: endpoint.security.tls.clone(),
            admin: endpoint.bootstrap.iter().map(web).collect(),
            namespace: "public/default".to_owned(),
            subscription_type: SubscriptionType::Exclusive,
            receive_bytes: RECEIVE_BYTES,
            auth: endpoint.security.auth.clone(),
        };
        for (name, value) in &endpoint.options {
            match name.as_str() {
                "admin" => options.admin = servers(name, value)?,
                "namespace" => options.namespace = namespace(name, value)?,
                "subscription_type" => options.subscription_type = subscription_type(name, value)?,
                "receive_bytes" => options.receive_bytes = bytes(name, value)?,
                "token" => {
                    endpoint.security.check_option(name)?;
                    options.auth = Some(Auth::Token(Secret::new(text(name, value)?)));
                }
                _ => {
                    let message = format!("the pulsar protocol has no such option; it has {KNOWN}");
                    return Err(wrong(name, message));
                }
            }
        }
        Ok(options)
    }

    /// The token, where there is one.
    pub fn token(&self) -> Option<&Secret> {
        match &self.auth {
            Some(Auth::Token(token)) => Some(token),
            _ => None,
        }
    }

    /// A partition's full name.
    pub fn partition_name(&self, topic: &str, partition: u32) -> String {
        format!("persistent://{}/{topic}-partition-{partition}", self.namespace)
    }
}

fn wrong(name: &str, message: impl Into<String>) -> ClientError {
    ClientError::input(format!("system.options.{name}"), message)
}

/// The servers have the form host:port.
fn check_servers(field: &str, servers: &[String]) -> Result<(), ClientError> {
    if servers.is_empty() {
        return Err(ClientError::input(field, "expected at least one host:port"));
    }
    for (at, server) in servers.iter().enumerate() {
        let port = server.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        // What has a user in it has a password in it, and a host is named in errors.
        if !matches!(port, Some(Ok(1..))) || server.contains('@') {
            return Err(ClientError::input(format!("{field}[{at}]"), "expected host:port"));
        }
    }
    Ok(())
}

fn servers(name: &str, value: &Value) -> Result<Vec<String>, ClientError> {
    let expected = "expected a list of host:port";
    let list = value.as_array().ok_or_else(|| wrong(name, expected))?;
    let texts = list.iter().map(|server| server.as_str().map(str::to_owned));
    let servers = texts
        .collect::<Option<Vec<String>>>()
        .ok_or_else(|| wrong(name, expected))?;
    check_servers(&format!("system.options.{name}"), &servers)?;
    Ok(servers)
}

fn text(name: &str, value: &Value) -> Result<String, ClientError> {
    match value {
        Value::String(text) if !text.is_empty() && text.len() <= TEXT_BYTES_MAX => Ok(text.clone()),
        _ => Err(wrong(
            name,
            format!("expected a string of 1 to {TEXT_BYTES_MAX} bytes"),
        )),
    }
}

fn namespace(name: &str, value: &Value) -> Result<String, ClientError> {
    let text = text(name, value)?;
    let is_name = |part: &str| {
        let mut bytes = part.bytes();
        !part.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-=:._".contains(&byte))
    };
    match text.split_once('/') {
        Some((tenant, rest)) if is_name(tenant) && is_name(rest) => Ok(text),
        _ => Err(wrong(name, format!("expected tenant/namespace, got {text:?}"))),
    }
}

fn subscription_type(name: &str, value: &Value) -> Result<SubscriptionType, ClientError> {
    match value.as_str() {
        Some("exclusive") => Ok(SubscriptionType::Exclusive),
        Some("failover") => Ok(SubscriptionType::Failover),
        Some("shared") => Ok(SubscriptionType::Shared),
        Some("key_shared") => Ok(SubscriptionType::KeyShared),
        _ => Err(wrong(
            name,
            "expected \"exclusive\", \"failover\", \"shared\" or \"key_shared\"",
        )),
    }
}

fn bytes(name: &str, value: &Value) -> Result<u64, ClientError> {
    match value.as_u64() {
        Some(bytes @ 65_536..=4_294_967_296) => Ok(bytes),
        _ => Err(wrong(name, "expected a number of bytes from 65536 to 4294967296")),
    }
}

/// A topic's name becomes part of a path.
pub(super) fn check_topic_name(name: &str) -> Result<(), ClientError> {
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-=:._".contains(&byte));
    if name.is_empty() || name.len() > 200 || !is_plain {
        let message = format!(
            "{name:?} cannot name a Pulsar topic here: expected 1 to 200 letters, digits and -=:._ (without tenant and namespace, which are options)"
        );
        return Err(ClientError::input("topics", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: Value) -> Result<Options, ClientError> {
        Options::read(&Endpoint {
            bootstrap: vec!["127.0.0.1:6650".to_owned()],
            options: options.as_object().cloned().unwrap_or_default(),
            security: crate::Security::default(),
        })
    }

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        let options = read(serde_json::json!({"namespace": "a/b", "subscription_type": "key_shared"}));
        let options = options.expect("they are right");
        assert_eq!(options.partition_name("t", 3), "persistent://a/b/t-partition-3");
        assert_eq!(options.admin, ["127.0.0.1:8080"]);
        for (given, field) in [
            (serde_json::json!({"namespace": "a"}), "namespace"),
            (serde_json::json!({"admin": "127.0.0.1:80"}), "admin"),
            (serde_json::json!({"admin": ["127.0.0.1"]}), "admin[0]"),
            (
                serde_json::json!({"subscription_type": "queue"}),
                "subscription_type",
            ),
            (serde_json::json!({"receive_bytes": 1}), "receive_bytes"),
            (serde_json::json!({"tokens": ""}), "tokens"),
        ] {
            match read(given) {
                Err(ClientError::Input { field: found, .. }) => {
                    assert_eq!(found, format!("system.options.{field}"));
                }
                other => panic!("{field}: {other:?}"),
            }
        }
    }
}
