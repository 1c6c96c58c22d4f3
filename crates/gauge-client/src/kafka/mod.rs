//! The native Kafka client.
//!
//! It speaks Kafka's wire protocol itself, with one version of each API that every server from Kafka 2.3 on offers; see `wire.rs`.
//! The hot path is written by hand: `record_batch` (building and parsing in place), `producer`, `sender` and `settle` (batches,
//! requests, retries), `consumer`, `receiver` and `fetch`. The rest serves it: `connection` (one socket), `link` (a connection that
//! is kept up), `cluster` (leaders), `commit`, `compress`, `buffers` and `batch` (memory that is used again). `lane` joins it to the
//! [`Lane`] of all protocols, `admin` creates and describes topics with blocking calls (`caller`), and `describe` asks one
//! broker for the lab.
//!
//! `sasl` (with `scram`) logs in before a connection's first request; TLS is the transport's business.

mod admin;
mod batch;
mod buffers;
mod caller;
mod cluster;
mod commit;
pub(crate) mod compress;
mod connection;
mod consumer;
pub(crate) mod describe;
mod errors;
mod fetch;
pub(crate) mod fuzzing;
mod lane;
mod link;
mod messages;
mod producer;
mod receiver;
mod record_batch;
mod sasl;
mod scram;
mod sender;
mod settle;
mod shared;
#[cfg(test)]
mod tests;
mod wire;

use self::sasl::{Credentials, Login};
use self::shared::{Commons, Shared};
use crate::lane::Lane;
use crate::tls::Tls;
use crate::{Acks, Admin, ClientError, Compression, Endpoint, LaneClient, LaneSpec, Protocol};

/// The Kafka protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kafka;

/// The client id that brokers see when the options name none.
const CLIENT_ID: &str = "streamgauge";
/// Options with the names that Kafka's own consumer has for them.
const FETCH_MAX_BYTES: &str = "fetch.max.bytes";
const MAX_PARTITION_FETCH_BYTES: &str = "max.partition.fetch.bytes";
/// Bounds of both: an answer is held as a whole, and each connection has a buffer for one.
const FETCH_BYTES_LEAST: u64 = 64 << 10;
const FETCH_BYTES_MOST: u64 = 64 << 20;
/// Longest string that the protocol carries.
const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// The mechanisms of authentication that this client has.
const MECHANISMS: &[&str] = &["plain", "scram-sha-256", "scram-sha-512"];

/// How this client introduces itself, and how it speaks to brokers.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    client_id: String,
    limits: FetchLimits,
    tls: Option<Tls>,
    credentials: Option<Credentials>,
}

/// How much consumers ask for at once, where the options say so.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FetchLimits {
    /// Bytes of an answer, at most.
    pub bytes: Option<usize>,
    /// Bytes of a partition in it, at most.
    pub partition_bytes: Option<usize>,
}

impl Access {
    /// The login of a new connection, where there is one.
    fn login(&self) -> Option<Box<Login>> {
        let credentials = self.credentials.as_ref()?;
        Some(Box::new(Login::new(credentials, &self.client_id)))
    }
}

fn access(endpoint: &Endpoint) -> Result<Access, ClientError> {
    endpoint.security.check("kafka", MECHANISMS)?;
    let mut options = Access {
        client_id: CLIENT_ID.to_owned(),
        limits: FetchLimits::default(),
        tls: endpoint.security.tls.clone(),
        credentials: Credentials::of(&endpoint.security),
    };
    for (name, value) in &endpoint.options {
        match (name.as_str(), value) {
            ("client_id", serde_json::Value::String(text)) if text.len() <= STRING_BYTES_MAX => {
                options.client_id.clone_from(text);
            }
            ("client_id", _) => {
                return Err(ClientError::input(
                    "system.options.client_id",
                    format!("expected a string of at most {STRING_BYTES_MAX} bytes"),
                ));
            }
            (FETCH_MAX_BYTES, _) => options.limits.bytes = Some(fetch_bytes(name, value)?),
            (MAX_PARTITION_FETCH_BYTES, _) => {
                options.limits.partition_bytes = Some(fetch_bytes(name, value)?);
            }
            _ => {
                return Err(ClientError::input(
                    format!("system.options.{name}"),
                    format!(
                        "the kafka protocol has no such option; it has client_id, {FETCH_MAX_BYTES} and {MAX_PARTITION_FETCH_BYTES}"
                    ),
                ));
            }
        }
    }
    if endpoint.bootstrap.is_empty() {
        return Err(ClientError::input(
            "system.bootstrap",
            "expected at least one host:port",
        ));
    }
    for (at, server) in endpoint.bootstrap.iter().enumerate() {
        let port = server.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(1..))) {
            return Err(ClientError::input(
                format!("system.bootstrap[{at}]"),
                "expected host:port",
            ));
        }
    }
    Ok(options)
}

fn fetch_bytes(name: &str, value: &serde_json::Value) -> Result<usize, ClientError> {
    match value.as_u64() {
        Some(bytes @ FETCH_BYTES_LEAST..=FETCH_BYTES_MOST) => Ok(bytes as usize),
        _ => Err(ClientError::input(
            format!("system.options.{name}"),
            format!("expected a number of bytes from {FETCH_BYTES_LEAST} to {FETCH_BYTES_MOST}"),
        )),
    }
}

/// What cannot be done at all.
fn check_spec(spec: &LaneSpec) -> Result<(), ClientError> {
    if spec.idempotence && spec.acks != Acks::All {
        return Err(ClientError::input(
            "idempotence",
            "an idempotent Kafka producer needs acks \"all\"",
        ));
    }
    for topic in spec.topics.iter() {
        if topic.name.is_empty() || topic.name.len() > STRING_BYTES_MAX {
            return Err(ClientError::input(
                "topics",
                "a topic's name has 1 to 249 characters",
            ));
        }
        if topic.partitions == 0 || i32::try_from(topic.partitions).is_err() {
            return Err(ClientError::input(
                "topics",
                format!("topic {:?} needs at least 1 partition", topic.name),
            ));
        }
    }
    for (at, producer) in spec.producers.iter().enumerate() {
        if producer.topic >= spec.topics.len() {
            return Err(ClientError::input(
                format!("producers[{at}].topic"),
                "there is no such topic",
            ));
        }
    }
    for (at, consumer) in spec.consumers.iter().enumerate() {
        let is_there = |(topic, partition): &(usize, u32)| {
            spec.topics
                .get(*topic)
                .is_some_and(|topic| *partition < topic.partitions)
        };
        if !consumer.partitions.iter().all(is_there) {
            return Err(ClientError::input(
                format!("consumers[{at}].partitions"),
                "there is no such partition",
            ));
        }
        if consumer.commit_interval_ns.is_some() && consumer.name.len() > STRING_BYTES_MAX {
            return Err(ClientError::input(
                format!("consumers[{at}].name"),
                "the name is too long for a group",
            ));
        }
    }
    Ok(())
}

/// One sentence for each thing that is done otherwise than asked.
fn cannot(endpoint: &Endpoint, spec: &LaneSpec) -> Vec<String> {
    let mut sentences: Vec<String> = endpoint.security.cannot().collect();
    if endpoint.security.auth.is_some() {
        sentences.push(
            "kafka: a connection logs in once; where brokers set connections.max.reauth.ms, they end it after that time and it is made again"
                .to_owned(),
        );
    }
    if spec.compression != Compression::None {
        sentences.push("kafka: batch.bytes limits a batch before it is compressed".to_owned());
    }
    let window = producer::IDEMPOTENT_WINDOW_MAX;
    if spec.idempotence && spec.batch.in_flight > window {
        sentences.push(format!(
            "kafka: an idempotent producer has at most {window} requests in flight, not {}",
            spec.batch.in_flight
        ));
    }
    if spec.batch.bytes <= record_batch::HEADER_BYTES {
        sentences.push("kafka: a batch holds at least one message, whatever batch.bytes says".to_owned());
    }
    sentences
}

impl Protocol for Kafka {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn client_name(&self) -> &'static str {
        "native kafka"
    }

    fn check(&self, endpoint: &Endpoint, spec: &LaneSpec) -> Result<Vec<String>, ClientError> {
        access(endpoint)?;
        check_spec(spec)?;
        Ok(cannot(endpoint, spec))
    }

    fn lane(&self, endpoint: &Endpoint, spec: LaneSpec) -> Result<Box<dyn LaneClient>, ClientError> {
        let access = access(endpoint)?;
        check_spec(&spec)?;
        let own = Commons::new(&endpoint.bootstrap, access, &spec);
        Ok(Box::new(Lane::new(
            "the Kafka client could not connect and find its partitions",
            Shared::new(endpoint, spec, own)?,
            producer::Producer::new,
            consumer::Consumer::new,
        )?))
    }

    fn admin(&self, endpoint: &Endpoint) -> Result<Box<dyn Admin>, ClientError> {
        let access = access(endpoint)?;
        Ok(Box::new(admin::KafkaAdmin::connect(
            &endpoint.bootstrap,
            &access,
        )?))
    }
}
