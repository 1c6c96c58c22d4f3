//! The protocol's options, and the names of streams.

use serde_json::{Map, Value};

use super::super::login::Login;
use super::super::options::{self as amqp, check_servers, text, wrong};
use crate::tls::Tls;
use crate::{ClientError, Endpoint, Topic};

/// Chunks that the server may send ahead: what RabbitMQ's Java client begins with.
const CREDITS: u16 = 10;
const HEARTBEAT_S: u32 = 60;
/// Streams that a consumer reads over one connection: with more, each waits for the others (docs/systems/rabbitmq.md).
const STREAMS_PER_CONNECTION: u16 = 1;
/// The upper half of the numbers of subscriptions has another use.
const STREAMS_PER_CONNECTION_MAX: u16 = 128;

/// The protocol's options.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// `host:port` of nodes, of their stream listeners.
    pub servers: Vec<String>,
    /// Options of the AMQP listeners of the nodes: exchange and bindings of a super stream are made there. None: there are none.
    pub amqp: Option<amqp::Options>,
    pub tls: Option<Tls>,
    pub login: Login,
    pub virtual_host: String,
    pub heartbeat_s: u32,
    /// Chunks that the server may send ahead, per stream.
    pub credits: u16,
    /// Streams that a consumer reads over one connection.
    pub streams_per_connection: u16,
    /// Arguments with which streams are created, in the protocol's names.
    pub stream_arguments: Map<String, Value>,
}

const KNOWN: &str =
    "user, password, virtual_host, heartbeat_s, credits, streams_per_connection, stream_arguments, amqp";

impl Options {
    /// Reads the options of a request.
    pub fn read(endpoint: &Endpoint) -> Result<Options, ClientError> {
        let mut options = Options {
            servers: endpoint.bootstrap.clone(),
            amqp: None,
            tls: endpoint.security.tls.clone(),
            login: Login::of(endpoint)?,
            virtual_host: "/".to_owned(),
            heartbeat_s: HEARTBEAT_S,
            credits: CREDITS,
            streams_per_connection: STREAMS_PER_CONNECTION,
            stream_arguments: Map::new(),
        };
        let mut amqp_servers = Vec::new();
        for (name, value) in &endpoint.options {
            match name.as_str() {
                // Read above.
                "user" | "password" => {}
                "virtual_host" => options.virtual_host = text(name, value)?,
                "heartbeat_s" => options.heartbeat_s = number(name, value, 0, u16::MAX)?.into(),
                "credits" => options.credits = number(name, value, 1, u16::MAX)?,
                "streams_per_connection" => {
                    options.streams_per_connection = number(name, value, 1, STREAMS_PER_CONNECTION_MAX)?;
                }
                "stream_arguments" => options.stream_arguments = arguments(name, value)?,
                "amqp" => amqp_servers = servers(name, value)?,
                _ => {
                    return Err(wrong(
                        name,
                        format!("the rabbitmq-stream protocol has no such option; it has {KNOWN}"),
                    ));
                }
            }
        }
        check_servers(&options.servers)?;
        if !amqp_servers.is_empty() {
            let login = ["user", "password", "virtual_host"];
            let given = endpoint
                .options
                .iter()
                .filter(|(name, _)| login.contains(&name.as_str()));
            options.amqp = Some(amqp::Options::read(&Endpoint {
                bootstrap: amqp_servers,
                options: given.map(|(name, value)| (name.clone(), value.clone())).collect(),
                security: endpoint.security.clone(),
            })?);
        }
        Ok(options)
    }
}

fn number(name: &str, value: &Value, least: u16, most: u16) -> Result<u16, ClientError> {
    let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| wrong(name, format!("expected a whole number from {least} to {most}")))
}

fn servers(name: &str, value: &Value) -> Result<Vec<String>, ClientError> {
    let expected = || wrong(name, "expected a list of host:port of AMQP listeners");
    let given = value.as_array().ok_or_else(expected)?;
    given
        .iter()
        .map(|server| server.as_str().map(str::to_owned).ok_or_else(expected))
        .collect()
}

/// Arguments of a stream: names and short texts.
fn arguments(name: &str, value: &Value) -> Result<Map<String, Value>, ClientError> {
    let expected = "expected an object of strings, as in {\"max-length-bytes\": \"1000000000\"}";
    let fields = value.as_object().ok_or_else(|| wrong(name, expected))?;
    for (key, value) in fields {
        let is_short = |text: &str| text.len() <= amqp::NAME_BYTES_MAX;
        if !is_short(key) || !value.as_str().is_some_and(is_short) {
            return Err(wrong(name, format!("{key}: {expected}")));
        }
    }
    Ok(fields.clone())
}

/// The stream of a partition. A topic of one partition is a stream, one of several is a super stream, whose streams are called as
/// RabbitMQ's own tools call them.
pub(super) fn stream_name(topic: &str, partition: u32, partitions: u32) -> String {
    match partitions {
        1 => topic.to_owned(),
        _ => format!("{topic}-{partition}"),
    }
}

/// The streams of a topic.
pub(super) fn streams_of(topic: &str, partitions: u32) -> impl Iterator<Item = String> + '_ {
    (0..partitions).map(move |partition| stream_name(topic, partition, partitions))
}

/// The stream of a topic's partition.
pub(super) fn stream_of(topic: &Topic, partition: u32) -> String {
    stream_name(&topic.name, partition, topic.partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: Value) -> Result<Options, ClientError> {
        Options::read(&Endpoint {
            bootstrap: vec!["127.0.0.1:5552".to_owned()],
            options: options.as_object().cloned().unwrap_or_default(),
            security: crate::Security::default(),
        })
    }

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        let options = read(serde_json::json!({
            "credits": 3, "user": "u", "amqp": ["127.0.0.1:5672"], "stream_arguments": {"max-age": "1h"}
        }))
        .unwrap();
        assert_eq!((options.credits, options.heartbeat_s), (3, HEARTBEAT_S));
        assert_eq!(options.amqp.unwrap().login, options.login);
        assert_eq!(options.login.response(), b"\0u\0guest");
        for (given, field) in [
            (
                serde_json::json!({"prefetch_msgs": 1}),
                "system.options.prefetch_msgs",
            ),
            (serde_json::json!({"credits": 0}), "system.options.credits"),
            (
                serde_json::json!({"streams_per_connection": 129}),
                "system.options.streams_per_connection",
            ),
            (serde_json::json!({"amqp": "a:1"}), "system.options.amqp"),
            (
                serde_json::json!({"stream_arguments": {"max-age": 1}}),
                "system.options.stream_arguments",
            ),
        ] {
            match read(given) {
                Err(ClientError::Input { field: named, .. }) => assert_eq!(named, field),
                other => panic!("expected an input error, got {other:?}"),
            }
        }
    }

    #[test]
    fn streams_are_called_as_those_of_a_super_stream() {
        assert_eq!(stream_name("t", 0, 1), "t");
        assert_eq!(streams_of("t", 2).collect::<Vec<_>>(), ["t-0", "t-1"]);
    }
}
