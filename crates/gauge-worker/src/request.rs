//! The bodies of requests, as docs/worker-api.md writes them. Types and defaults only; `plan` looks at the values.

use axum::body::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// Reads a body. An empty one counts as `{}`.
///
/// # Errors
/// A bad request that names the field and what was expected of it.
pub fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, ApiError> {
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let message = unread(error.inner());
        match path.as_str() {
            "." => ApiError::bad_request(message),
            _ => ApiError::field(path, message),
        }
    })?;
    reader
        .end()
        .map_err(|error| ApiError::bad_request(format!("there is more after the JSON value: {error}")))?;
    Ok(value)
}

/// Why a body could not be read, without the text that stood where something else was expected: it may be a password or a URL with one.
pub fn unread(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let without = match (said.find("string \""), said.rfind('"')) {
        (Some(from), Some(to)) => format!("{}a string{}", &said[..from], &said[to + 1..]),
        _ => said,
    };
    format!("the body could not be read: {without}")
}

/// The system under test. Of its options and its security nothing is printed: passwords may be among them.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    pub protocol: String,
    pub bootstrap: Vec<String>,
    #[serde(default)]
    pub options: serde_json::Map<String, serde_json::Value>,
    /// Read by `gauge_client::Security`, whose errors repeat nothing of it.
    #[serde(default)]
    pub security: serde_json::Value,
}

impl std::fmt::Debug for System {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("System")
            .field("protocol", &self.protocol)
            .field("bootstrap", &self.bootstrap)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateTopics {
    pub system: System,
    pub topics: Vec<NewTopic>,
    #[serde(default = "timeout_s")]
    pub timeout_s: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTopic {
    pub name: String,
    pub partitions: u32,
    #[serde(default = "one")]
    pub replication_factor: u32,
    #[serde(default)]
    pub configs: std::collections::BTreeMap<String, String>,
}

/// The body of `delete-topics` and of `describe`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedTopics {
    pub system: System,
    #[serde(default)]
    pub topics: Vec<String>,
    #[serde(default = "timeout_s")]
    pub timeout_s: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    pub run: u32,
    #[serde(default)]
    pub seed: u64,
    pub system: System,
    pub topics: Vec<Topic>,
    #[serde(default)]
    pub producers: Vec<Producer>,
    #[serde(default)]
    pub subscriptions: Vec<Subscription>,
    pub schedule: Option<Schedule>,
    #[serde(default)]
    pub phases: Vec<Phase>,
    #[serde(default)]
    pub batch: Batch,
    #[serde(default)]
    pub acks: Acks,
    #[serde(default)]
    pub idempotence: bool,
    #[serde(default)]
    pub compression: Compression,
    #[serde(default)]
    pub payload: Payload,
    #[serde(default)]
    pub lanes: Lanes,
    #[serde(default = "interval_ms")]
    pub interval_ms: u64,
    #[serde(default = "lease_s")]
    pub lease_s: f64,
    #[serde(default = "ready_timeout_s")]
    pub ready_timeout_s: f64,
    #[serde(default = "request_timeout_ms")]
    pub request_timeout_ms: u64,
    #[serde(default = "retry_for_ms")]
    pub retry_for_ms: u64,
    #[serde(default)]
    pub shared: bool,
    #[serde(default)]
    pub measure: Measure,
    #[serde(default)]
    pub quiet: Quiet,
}

/// How disturbance is measured.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quiet {
    pub probes: bool,
}

impl Default for Quiet {
    fn default() -> Quiet {
        Quiet { probes: true }
    }
}

/// Whose messages' end-to-end latency a worker measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    #[default]
    All,
    Own,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    pub name: String,
    pub partitions: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Producer {
    pub id: u32,
    pub topic: String,
    #[serde(default)]
    pub keys: Keys,
    pub key_count: Option<u32>,
    pub zipf_exponent: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keys {
    #[default]
    None,
    RoundRobin,
    Keyed,
    Zipf,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscription {
    pub name: String,
    #[serde(default)]
    pub start: Start,
    #[serde(default = "one")]
    pub consumers: u32,
    #[serde(default)]
    pub consumer_from: u32,
    pub consumer_count: Option<u32>,
    #[serde(default = "commit_interval_ms")]
    pub commit_interval_ms: Option<u64>,
    #[serde(default)]
    pub processing: Processing,
}

/// What a consumer does with what it has received, as far as time goes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Processing {
    pub us_per_msg: f64,
    pub us_per_fetch: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    #[default]
    Latest,
    Earliest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    Uniform,
    Poisson,
    Burst,
    Closed,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    pub arrival: Arrival,
    pub rate_msgs_s: Option<f64>,
    pub burst_msgs: Option<u32>,
    pub ramp: Option<Ramp>,
    #[serde(default)]
    pub changes: Vec<RateChange>,
    pub stop_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateChange {
    pub at_s: f64,
    pub rate_msgs_s: f64,
    #[serde(default)]
    pub over_s: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    pub to_msgs_s: f64,
    pub over_s: f64,
}

/// A phase of the trial, and the body of `/phases`, where `from_s` may be missing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    pub name: String,
    pub from_s: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    pub bytes: u64,
    pub linger_ms: f64,
    pub in_flight: u32,
    pub buffer_bytes: u64,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            bytes: 1 << 20,
            linger_ms: 1.0,
            in_flight: 5,
            buffer_bytes: 64 << 20,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acks {
    #[default]
    All,
    Leader,
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Payload {
    pub size_bytes: Option<u64>,
    pub sizes_bytes: Option<Vec<u64>>,
    pub random_ratio: Option<f64>,
    pub pool: Option<u64>,
    pub templates_base64: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Realtime {
    #[default]
    Auto,
    Off,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lanes {
    pub producer: Option<u32>,
    pub consumer: Option<u32>,
    pub realtime: Realtime,
    pub pin: bool,
    pub quantum_us: Option<u64>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes {
            producer: None,
            consumer: None,
            realtime: Realtime::Auto,
            pin: false,
            quantum_us: None,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartTrial {
    #[serde(default = "delay_ms")]
    pub delay_ms: u64,
    pub at_ns: Option<i64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    pub rate_msgs_s: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    pub at_s: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finish {
    #[serde(default = "timeout_s")]
    pub drain_s: f64,
    #[serde(default = "quiet_s")]
    pub quiet_s: f64,
}

/// The body of a request that has nothing to say.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// The query of `intervals`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntervalsQuery {
    #[serde(default)]
    pub since: u64,
    #[serde(default = "interval_limit")]
    pub limit: usize,
}

fn one() -> u32 {
    1
}
fn timeout_s() -> f64 {
    30.0
}
fn quiet_s() -> f64 {
    5.0
}
fn commit_interval_ms() -> Option<u64> {
    Some(5000)
}
fn interval_ms() -> u64 {
    1000
}
fn lease_s() -> f64 {
    10.0
}
fn ready_timeout_s() -> f64 {
    60.0
}
fn request_timeout_ms() -> u64 {
    30_000
}
fn retry_for_ms() -> u64 {
    120_000
}
fn delay_ms() -> u64 {
    100
}
fn interval_limit() -> usize {
    100
}

/// How far the clock of some producers' worker is ahead of this worker's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignClock {
    pub producers: Vec<u32>,
    pub at_ns: i64,
    pub ahead_ns: i64,
    pub drift_ppb: i64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clocks {
    pub clocks: Vec<ForeignClock>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeClocks {
    pub key: u64,
    #[serde(default)]
    pub peers: Vec<std::net::SocketAddr>,
    #[serde(default = "period_ms")]
    pub period_ms: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockQuery {
    #[serde(default)]
    pub since: u64,
}

fn period_ms() -> u64 {
    100
}
