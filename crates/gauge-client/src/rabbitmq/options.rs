//! The protocol's options, and the names of exchanges and queues.

use serde_json::{Map, Value};

use super::login::Login;
use crate::tls::Tls;
use crate::{ClientError, Endpoint};

/// Longest name that AMQP carries.
pub(super) const NAME_BYTES_MAX: usize = 255;
/// Messages that a queue may have delivered and not seen acknowledged.
const PREFETCH_MSGS: u16 = 2000;
/// Interval of heartbeats that is asked for; a server that wants less gets it.
const HEARTBEAT_S: u16 = 60;
/// Subscriptions of a trial: each has its own queues, and all of them are looked for when a topic is deleted.
pub(super) const SUBSCRIPTIONS_MAX: usize = 8;

/// How consumers acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsumerAcks {
    /// Many messages at a time, after they were handed to the observer.
    Manual,
    /// The server counts a message as consumed when it has written it to the socket.
    Automatic,
}

/// The protocol's options.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub servers: Vec<String>,
    pub tls: Option<Tls>,
    pub login: Login,
    pub virtual_host: String,
    /// delivery-mode 2: the server writes the message to disk.
    pub persistent: bool,
    /// A message that no queue takes comes back and counts as failed.
    pub mandatory: bool,
    pub consumer_acks: ConsumerAcks,
    pub prefetch_msgs: u16,
    pub heartbeat_s: u16,
    /// Arguments of queue.declare: x-queue-type and the like.
    pub queue_arguments: Map<String, Value>,
}

const KNOWN: &str = "user, password, virtual_host, persistent, mandatory, consumer_acks, prefetch_msgs, heartbeat_s, queue_arguments";

impl Options {
    /// Reads the options of a request.
    pub fn read(endpoint: &Endpoint) -> Result<Options, ClientError> {
        let mut options = Options {
            servers: endpoint.bootstrap.clone(),
            tls: endpoint.security.tls.clone(),
            login: Login::of(endpoint)?,
            virtual_host: "/".to_owned(),
            persistent: true,
            mandatory: true,
            consumer_acks: ConsumerAcks::Manual,
            prefetch_msgs: PREFETCH_MSGS,
            heartbeat_s: HEARTBEAT_S,
            queue_arguments: Map::new(),
        };
        for (name, value) in &endpoint.options {
            match name.as_str() {
                // Read above.
                "user" | "password" => {}
                "virtual_host" => options.virtual_host = text(name, value)?,
                "persistent" => options.persistent = truth(name, value)?,
                "mandatory" => options.mandatory = truth(name, value)?,
                "prefetch_msgs" => options.prefetch_msgs = number(name, value)?,
                "heartbeat_s" => options.heartbeat_s = number(name, value)?,
                "consumer_acks" => options.consumer_acks = consumer_acks(value)?,
                "queue_arguments" => options.queue_arguments = arguments(value)?,
                _ => {
                    return Err(wrong(
                        name,
                        format!("the rabbitmq protocol has no such option; it has {KNOWN}"),
                    ));
                }
            }
        }
        check_servers(&options.servers)?;
        if options.is_stream() {
            let expected =
                "RabbitMQ delivers a stream over AMQP only with manual acknowledgements and a prefetch limit";
            if options.consumer_acks == ConsumerAcks::Automatic {
                return Err(wrong("consumer_acks", expected));
            }
            if options.prefetch_msgs == 0 {
                return Err(wrong("prefetch_msgs", expected));
            }
        }
        Ok(options)
    }

    /// Whether the queues are streams: read by everybody from where they like, never emptied.
    pub fn is_stream(&self) -> bool {
        self.queue_arguments.get("x-queue-type").and_then(Value::as_str) == Some("stream")
    }
}

/// The servers have the form host:port.
pub(super) fn check_servers(servers: &[String]) -> Result<(), ClientError> {
    if servers.is_empty() {
        return Err(ClientError::input(
            "system.bootstrap",
            "expected at least one host:port",
        ));
    }
    for (at, server) in servers.iter().enumerate() {
        let port = server.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(1..))) {
            return Err(ClientError::input(
                format!("system.bootstrap[{at}]"),
                "expected host:port",
            ));
        }
    }
    Ok(())
}

pub(super) fn wrong(name: &str, message: impl Into<String>) -> ClientError {
    ClientError::input(format!("system.options.{name}"), message)
}

pub(super) fn text(name: &str, value: &Value) -> Result<String, ClientError> {
    match value {
        Value::String(text) if text.len() <= NAME_BYTES_MAX => Ok(text.clone()),
        _ => Err(wrong(
            name,
            format!("expected a string of at most {NAME_BYTES_MAX} bytes"),
        )),
    }
}

fn truth(name: &str, value: &Value) -> Result<bool, ClientError> {
    value
        .as_bool()
        .ok_or_else(|| wrong(name, "expected true or false"))
}

fn number(name: &str, value: &Value) -> Result<u16, ClientError> {
    let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
    number.ok_or_else(|| wrong(name, "expected a whole number from 0 to 65535"))
}

fn consumer_acks(value: &Value) -> Result<ConsumerAcks, ClientError> {
    match value.as_str() {
        Some("manual") => Ok(ConsumerAcks::Manual),
        Some("automatic") => Ok(ConsumerAcks::Automatic),
        _ => Err(wrong("consumer_acks", "expected \"manual\" or \"automatic\"")),
    }
}

/// Arguments of a queue: names and strings, whole numbers or truth values.
fn arguments(value: &Value) -> Result<Map<String, Value>, ClientError> {
    let expected = "expected an object of strings, whole numbers, true or false";
    let fields = value
        .as_object()
        .ok_or_else(|| wrong("queue_arguments", expected))?;
    for (name, value) in fields {
        let is_scalar = value.is_string() || value.is_i64() || value.is_boolean();
        if !is_scalar || name.len() > NAME_BYTES_MAX {
            return Err(wrong("queue_arguments", format!("{name}: {expected}")));
        }
    }
    Ok(fields.clone())
}

/// The routing key of a partition, with which the topic's exchange finds the queues.
pub(super) fn routing_key(partition: u32) -> String {
    partition.to_string()
}

/// The queue in which a subscription of the trial finds a partition. The first subscription has the queues that were created with the
/// topic, so that what is published before anybody subscribes is kept.
pub(super) fn queue_name(topic: &str, partition: u32, subscription: usize) -> String {
    match subscription {
        0 => format!("{topic}.{partition}"),
        _ => format!("{topic}.{partition}.{subscription}"),
    }
}

/// A topic's name leaves room for partition and subscription.
pub(super) fn check_topic_name(name: &str) -> Result<(), ClientError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX - 16 || name.starts_with("amq.") {
        return Err(ClientError::input(
            "topics",
            format!(
                "{name:?} cannot name an exchange: expected 1 to {} bytes that do not begin with \"amq.\"",
                NAME_BYTES_MAX - 16
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: Value) -> Result<Options, ClientError> {
        Options::read(&Endpoint {
            bootstrap: vec!["127.0.0.1:5672".to_owned()],
            options: options.as_object().cloned().unwrap_or_default(),
            security: crate::Security::default(),
        })
    }

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        let options = read(serde_json::json!({
            "persistent": false, "consumer_acks": "automatic", "queue_arguments": {"x-queue-type": "quorum"}
        }))
        .unwrap();
        assert!(!options.persistent && options.mandatory);
        assert_eq!(options.consumer_acks, ConsumerAcks::Automatic);
        assert_eq!(options.queue_arguments["x-queue-type"], "quorum");
        for (given, field) in [
            (serde_json::json!({"prefetch": 1}), "system.options.prefetch"),
            (
                serde_json::json!({"prefetch_msgs": -1}),
                "system.options.prefetch_msgs",
            ),
            (
                serde_json::json!({"queue_arguments": {"a": [1]}}),
                "system.options.queue_arguments",
            ),
            (
                serde_json::json!({"queue_arguments": {"x-queue-type": "stream"}, "consumer_acks": "automatic"}),
                "system.options.consumer_acks",
            ),
        ] {
            match read(given) {
                Err(ClientError::Input { field: named, .. }) => assert_eq!(named, field),
                other => panic!("expected an input error, got {other:?}"),
            }
        }
    }

    #[test]
    fn every_subscription_has_queues_of_its_own() {
        assert_eq!(queue_name("t", 3, 0), "t.3");
        assert_eq!(queue_name("t", 3, 2), "t.3.2");
        assert!(check_topic_name("").is_err() && check_topic_name("amq.t").is_err());
    }
}
