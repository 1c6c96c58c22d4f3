//! DescribeConfigs, and which topic settings are accepted. What is reported is what is done: a setting that this log does not follow is refused, not stored.

use super::error::ErrorCode;
use super::metadata::NODE_ID;
use super::topics::Refusal;
use super::{Outcome, Request, finish};
use crate::broker::topics::Topic;
use crate::shared::Shared;
use crate::storage::journal::PAYLOAD_BYTES_MAX;
use crate::wire::{Read, Writer};

/// Where a setting comes from (the protocol's `ConfigSource`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum Source {
    /// Given when the topic was created.
    Topic = 1,
    /// Given on the command line.
    Static = 4,
    /// Built in.
    Default = 5,
}

/// The protocol's `ConfigType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
enum Kind {
    Boolean = 1,
    String = 2,
    Int = 3,
    Long = 5,
    List = 7,
}

/// A setting as it is reported.
#[derive(Debug)]
pub struct Config {
    /// Name.
    pub name: &'static str,
    /// Value.
    pub value: String,
    /// Whether it can be changed: nothing can, while the log runs.
    pub read_only: bool,
    /// Where it comes from.
    pub source: Source,
    kind: Kind,
}

fn config(name: &'static str, value: impl ToString, source: Source, kind: Kind) -> Config {
    Config {
        name,
        value: value.to_string(),
        read_only: true,
        source,
        kind,
    }
}

/// How often data is forced to disk, in Kafka's terms: after every batch, or never.
fn flush_messages(shared: &Shared) -> i64 {
    if shared.is_fsync() { 1 } else { i64::MAX }
}

fn flush_ms(shared: &Shared) -> i64 {
    if shared.is_fsync() { 0 } else { i64::MAX }
}

fn retention_ms(shared: &Shared) -> i64 {
    shared
        .settings
        .retention_age
        .map_or(-1, |age| age.as_millis() as i64)
}

/// The settings of a topic (of one without settings of its own for None).
pub fn topic_configs(shared: &Shared, topic: Option<&Topic>) -> Vec<Config> {
    let durability = Source::Static;
    let mut configs = vec![
        config("cleanup.policy", "delete", Source::Default, Kind::List),
        config("compression.type", "producer", Source::Default, Kind::String),
        config("flush.messages", flush_messages(shared), durability, Kind::Long),
        config("flush.ms", flush_ms(shared), durability, Kind::Long),
        config("max.message.bytes", PAYLOAD_BYTES_MAX, Source::Default, Kind::Int),
        config(
            "message.timestamp.type",
            "CreateTime",
            Source::Default,
            Kind::String,
        ),
        config("min.insync.replicas", 1, Source::Default, Kind::Int),
        config("retention.bytes", -1, Source::Default, Kind::Long),
        config("retention.ms", retention_ms(shared), Source::Static, Kind::Long),
        config(
            "segment.bytes",
            shared.settings.segment_bytes,
            Source::Static,
            Kind::Int,
        ),
    ];
    if let Some(value) = topic.and_then(|topic| topic.configs.get("retention.ms"))
        && let Some(config) = configs.iter_mut().find(|config| config.name == "retention.ms")
    {
        config.value.clone_from(value);
        config.source = Source::Topic;
    }
    configs
}

fn broker_configs(shared: &Shared) -> Vec<Config> {
    let settings = &shared.settings;
    let limit = settings
        .limit_mb_s
        .map_or("none".to_owned(), |limit| limit.to_string());
    vec![
        config("broker.id", NODE_ID, Source::Default, Kind::Int),
        config("node.id", NODE_ID, Source::Default, Kind::Int),
        config(
            "auto.create.topics.enable",
            settings.auto_create_partitions > 0,
            Source::Static,
            Kind::Boolean,
        ),
        config(
            "num.partitions",
            settings.auto_create_partitions.max(1),
            Source::Static,
            Kind::Int,
        ),
        config("default.replication.factor", 1, Source::Default, Kind::Int),
        config("min.insync.replicas", 1, Source::Default, Kind::Int),
        config(
            "log.flush.interval.messages",
            flush_messages(shared),
            Source::Static,
            Kind::Long,
        ),
        config(
            "log.flush.interval.ms",
            flush_ms(shared),
            Source::Static,
            Kind::Long,
        ),
        config("log.retention.bytes", -1, Source::Default, Kind::Long),
        config(
            "log.retention.ms",
            retention_ms(shared),
            Source::Static,
            Kind::Long,
        ),
        config("log.dirs", settings.data.display(), Source::Static, Kind::String),
        config("message.max.bytes", PAYLOAD_BYTES_MAX, Source::Default, Kind::Int),
        config("num.network.threads", settings.threads, Source::Static, Kind::Int),
        config("group.initial.rebalance.delay.ms", 0, Source::Default, Kind::Int),
        config(
            "streamgauge.durability",
            settings.durability.name(),
            Source::Static,
            Kind::String,
        ),
        config(
            "streamgauge.security.protocol",
            settings.access.security_protocol(),
            Source::Static,
            Kind::String,
        ),
        config(
            "streamgauge.memory.bytes",
            settings.memory_bytes,
            Source::Static,
            Kind::Long,
        ),
        config(
            "streamgauge.journal.retention.bytes",
            settings.retention_bytes.map_or(-1, |bytes| bytes as i64),
            Source::Static,
            Kind::Long,
        ),
        config("streamgauge.limit.mb.s", limit, Source::Static, Kind::String),
        config(
            "streamgauge.version",
            env!("CARGO_PKG_VERSION"),
            Source::Default,
            Kind::String,
        ),
    ]
}

/// Whether a topic may be created with a setting: only if this log does what it says.
pub fn check_topic_config(shared: &Shared, key: &str, value: &str) -> Result<(), Refusal> {
    let refuse = |text: String| Err((ErrorCode::InvalidConfig, text));
    if key == "retention.ms" {
        return match value.parse::<i64>() {
            Ok(-1..) => Ok(()),
            _ => refuse(format!(
                "retention.ms is a number of milliseconds or -1, not '{value}'"
            )),
        };
    }
    let known = topic_configs(shared, None);
    let Some(config) = known.iter().find(|config| config.name == key) else {
        let names: Vec<&str> = known.iter().map(|config| config.name).collect();
        return refuse(format!(
            "unknown setting '{key}'; this log knows {}",
            names.join(", ")
        ));
    };
    if config.value == value {
        return Ok(());
    }
    let hint = match key {
        "flush.messages" | "flush.ms" => ": it follows from --durability fsync|async",
        "segment.bytes" => ": it follows from --segment-mib",
        _ => "",
    };
    refuse(format!(
        "{key} is {} here and cannot be {value}{hint}",
        config.value
    ))
}

/// Reports settings of topics and of the broker.
pub fn describe(mut request: Request<'_>) -> Read<Outcome> {
    let body = &mut request.body;
    let count = body.array(4)?;
    let mut asked = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = body.i8()?;
        let name = body.string()?;
        let mut keys: Option<Vec<&str>> = None;
        if let Some(count) = body.nullable_array(1)? {
            keys = Some((0..count).map(|_| body.string()).collect::<Read<Vec<_>>>()?);
        }
        body.tags()?;
        asked.push((kind, name, keys));
    }
    let with_synonyms = body.bool()?;
    let mut out = request.respond();
    out.i32(0);
    out.array(asked.len());
    for (kind, name, keys) in asked {
        let mut outcome = configs_of(&request, kind, name);
        if let (Ok(configs), Some(keys)) = (&mut outcome, keys) {
            configs.retain(|config| keys.contains(&config.name));
        }
        let refusal = outcome.as_ref().err();
        out.i16(refusal.map_or(ErrorCode::None, |refusal| refusal.0) as i16);
        out.nullable_string(refusal.map(|refusal| refusal.1.as_str()));
        out.i8(kind);
        out.string(name);
        let configs = outcome.unwrap_or_default();
        out.array(configs.len());
        for config in &configs {
            respond_config(request.version, &mut out, config, with_synonyms);
        }
        out.tags();
        out.check_budget()?;
    }
    out.tags();
    Ok(Outcome::Answer(finish(out, 0)))
}

fn configs_of(request: &Request<'_>, kind: i8, name: &str) -> Result<Vec<Config>, Refusal> {
    match kind {
        2 => match request.shared.broker().topics.get(name) {
            Some(topic) => Ok(topic_configs(request.shared, Some(topic))),
            None => Err((
                ErrorCode::UnknownTopicOrPartition,
                format!("there is no topic '{name}'"),
            )),
        },
        4 if name.is_empty() || name == NODE_ID.to_string() => Ok(broker_configs(request.shared)),
        4 => Err((
            ErrorCode::InvalidRequest,
            format!("there is no broker {name}; the only one is {NODE_ID}"),
        )),
        _ => Err((
            ErrorCode::InvalidRequest,
            "only topics (2) and brokers (4) have settings".to_owned(),
        )),
    }
}

fn respond_config(version: i16, out: &mut Writer, config: &Config, with_synonyms: bool) {
    out.string(config.name);
    out.nullable_string(Some(&config.value));
    out.bool(config.read_only);
    out.i8(config.source as i8);
    out.bool(false);
    out.array(usize::from(with_synonyms));
    if with_synonyms {
        out.string(config.name);
        out.nullable_string(Some(&config.value));
        out.i8(config.source as i8);
        out.tags();
    }
    if version >= 3 {
        out.i8(config.kind as i8);
        out.nullable_string(None);
    }
    out.tags();
}
