//! DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, and which topic settings are accepted. What is reported is what is done: a setting that this log does not follow is refused, not stored.

use std::collections::{BTreeMap, HashSet};

use super::error::ErrorCode;
use super::metadata::NODE_ID;
use super::topics::Refusal;
use super::{Outcome, Request, finish};
use crate::broker::change::Change;
use crate::broker::topics::Topic;
use crate::shared::Shared;
use crate::storage::journal::PAYLOAD_BYTES_MAX;
use crate::wire::{Malformed, Read, Reader, Writer, check_names};

/// What has settings (the protocol's `ConfigResource`).
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

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
    /// Whether it cannot be changed while the log runs.
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
    if let Some(config) = configs.iter_mut().find(|config| config.name == "retention.ms") {
        config.read_only = false;
        if let Some(value) = topic.and_then(|topic| topic.configs.get("retention.ms")) {
            config.value.clone_from(value);
            config.source = Source::Topic;
        }
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

/// Characters of the longest number.
const NUMBER_BYTES_MAX: usize = 20;

/// Whether a topic may have a setting: only if this log does what it says.
pub fn check_topic_config(shared: &Shared, key: &str, value: &str) -> Result<(), Refusal> {
    let refuse = |text: String| Err((ErrorCode::InvalidConfig, text));
    if key == "retention.ms" {
        return match value.parse::<i64>() {
            Ok(-1..) if value.len() <= NUMBER_BYTES_MAX => Ok(()),
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

/// How often one request may ask for the settings of the broker.
const BROKER_AGAIN_MAX: usize = 10;

/// Reports settings of topics and of the broker.
pub fn describe(mut request: Request<'_>) -> Read<Outcome> {
    let body = &mut request.body;
    let count = body.array(4)?;
    let topics = request.shared.broker().topics.len();
    check_names(count, topics)?;
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
    let mut described = 0;
    for (kind, name, keys) in asked {
        let mut outcome = configs_of(&request, kind, name);
        described += usize::from(outcome.is_ok());
        if described > topics + BROKER_AGAIN_MAX {
            return Err(Malformed("it asks for the same settings again and again"));
        }
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

/// Changes of one resource at most.
const CHANGES_MAX: usize = 100;

/// What a resource's settings should become; the error is about one of them.
type Wanted = Result<BTreeMap<String, String>, Refusal>;

/// Reads the new settings of one resource, which has those of `topic` so far if it is one.
type ReadWanted = for<'a> fn(&mut Reader<'a>, &Shared, Option<&Topic>) -> Read<Wanted>;

/// Replaces all settings of topics: those that are not named get their defaults.
pub fn alter(request: Request<'_>) -> Read<Outcome> {
    change(request, |body, _, _| {
        let mut configs = BTreeMap::new();
        for _ in 0..body.array(3)? {
            let key = body.string()?;
            let value = body.nullable_string()?;
            body.tags()?;
            configs.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        }
        Ok(Ok(configs))
    })
}

/// Changes the settings of topics that are named.
pub fn alter_incrementally(request: Request<'_>) -> Read<Outcome> {
    change(request, |body, shared, topic| {
        let mut configs = topic.map_or_else(BTreeMap::new, |topic| topic.configs.clone());
        let mut refusal = None;
        for index in 0..body.array(4)? {
            let key = body.string()?;
            let operation = body.i8()?;
            let value = body.nullable_string()?;
            body.tags()?;
            refusal = match refusal {
                // Others wait meanwhile.
                None if index >= CHANGES_MAX => {
                    let text = format!("more than {CHANGES_MAX} changes, and there are fewer settings");
                    Some((ErrorCode::InvalidRequest, text))
                }
                None => change_one(shared, &mut configs, key, operation, value).err(),
                refused => refused,
            };
        }
        Ok(refusal.map_or(Ok(configs), Err))
    })
}

/// One step of an IncrementalAlterConfigs request: 0 sets, 1 goes back to the default, 2 and 3 add to and take from a list.
fn change_one(
    shared: &Shared,
    configs: &mut BTreeMap<String, String>,
    key: &str,
    operation: i8,
    value: Option<&str>,
) -> Result<(), Refusal> {
    match (operation, value) {
        (0, Some(value)) => {
            check_topic_config(shared, key, value)?;
            configs.insert(key.to_owned(), value.to_owned());
        }
        (1, _) => {
            let known = topic_configs(shared, None);
            let default = known.iter().find(|config| config.name == key);
            check_topic_config(shared, key, default.map_or("", |config| &config.value))?;
            configs.remove(key);
        }
        (0, None) => return Err((ErrorCode::InvalidConfig, format!("{key} is set to nothing"))),
        (2 | 3, _) => {
            let text = format!("{key} is no list that could be changed");
            return Err((ErrorCode::InvalidConfig, text));
        }
        _ => {
            let text = format!("{operation} is no operation on a setting: 0 sets, 1 deletes");
            return Err((ErrorCode::InvalidRequest, text));
        }
    }
    Ok(())
}

/// Handles a request that changes settings, resource by resource, each as a whole.
fn change(mut request: Request<'_>, read: ReadWanted) -> Read<Outcome> {
    let shared = request.shared;
    let body = &mut request.body;
    let mut broker = shared.broker();
    let mut asked = Vec::new();
    let mut named = HashSet::new();
    let count = body.array(4)?;
    check_names(count, broker.topics.len())?;
    for _ in 0..count {
        let kind = body.i8()?;
        let name = body.string()?;
        let topic = broker.topics.get(name).filter(|_| kind == TOPIC);
        let wanted = read(body, shared, topic)?;
        body.tags()?;
        let checked = match named.insert((kind, name)) {
            true => wanted.and_then(|configs| check_change(shared, kind, name, topic, configs)),
            false => Err((ErrorCode::InvalidRequest, format!("'{name}' is named twice"))),
        };
        asked.push((kind, name, checked));
    }
    let validate_only = body.bool()?;
    let changes = asked.iter().filter_map(|(.., checked)| checked.as_ref().ok());
    let bytes = |(_, configs): &(_, BTreeMap<String, String>)| bytes_of(configs);
    let (bytes, count) = changes.fold((0, 0), |(all, count), change| (all + bytes(change), count + 1));
    if !validate_only && broker.reserve_changes(bytes, count)?.is_err() {
        return Ok(Outcome::NoMemory);
    }
    let mut position = 0;
    let mut out = request.respond();
    out.i32(0);
    out.array(asked.len());
    for (kind, name, checked) in asked {
        let refusal = match checked {
            Err(refusal) => Some(refusal),
            Ok((id, configs)) => {
                if !validate_only {
                    let configs = configs.into_iter().collect();
                    position = broker.change_reserved(Change::TopicConfigured { id, configs }).0;
                }
                None
            }
        };
        out.i16(refusal.as_ref().map_or(ErrorCode::None, |refusal| refusal.0) as i16);
        out.nullable_string(refusal.as_ref().map(|refusal| refusal.1.as_str()));
        out.i8(kind);
        out.string(name);
        out.tags();
        out.check_budget()?;
    }
    out.tags();
    Ok(Outcome::AnswerAfter(finish(out, 0), position))
}

/// Bytes of settings in a change.
pub fn bytes_of(configs: &BTreeMap<String, String>) -> usize {
    let configs = configs.iter();
    configs.map(|(key, value)| key.len() + value.len() + 4).sum()
}

/// Whether a resource may have these settings; returns the topic's id with them.
fn check_change(
    shared: &Shared,
    kind: i8,
    name: &str,
    topic: Option<&Topic>,
    configs: BTreeMap<String, String>,
) -> Result<([u8; 16], BTreeMap<String, String>), Refusal> {
    match (kind, topic) {
        (TOPIC, Some(topic)) => {
            for (key, value) in &configs {
                check_topic_config(shared, key, value)?;
            }
            Ok((topic.id, configs))
        }
        (TOPIC, None) => Err(no_topic(name)),
        (BROKER, _) => {
            let text = "the broker's settings are given on its command line (gauge log --help) and stay while it runs";
            Err((ErrorCode::InvalidConfig, text.to_owned()))
        }
        _ => Err(no_settings()),
    }
}

fn no_topic(name: &str) -> Refusal {
    let text = format!("there is no topic '{name}'");
    (ErrorCode::UnknownTopicOrPartition, text)
}

fn no_settings() -> Refusal {
    let text = "only topics (2) and brokers (4) have settings";
    (ErrorCode::InvalidRequest, text.to_owned())
}

fn configs_of(request: &Request<'_>, kind: i8, name: &str) -> Result<Vec<Config>, Refusal> {
    match kind {
        TOPIC => match request.shared.broker().topics.get(name) {
            Some(topic) => Ok(topic_configs(request.shared, Some(topic))),
            None => Err(no_topic(name)),
        },
        BROKER if name.is_empty() || name == NODE_ID.to_string() => Ok(broker_configs(request.shared)),
        BROKER => Err((
            ErrorCode::InvalidRequest,
            format!("there is no broker {name}; the only one is {NODE_ID}"),
        )),
        _ => Err(no_settings()),
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
