//! CreateTopics, CreatePartitions and DeleteTopics.

use std::collections::BTreeMap;
use std::io::Read as _;

use super::configs;
use super::error::ErrorCode;
use super::{Outcome, Request, finish};
use crate::broker::Broker;
use crate::broker::change::Change;
use crate::broker::topics::{PARTITIONS_MAX, name_is_legal};
use crate::shared::Shared;
use crate::wire::{Read, Writer};

/// A topic to be created.
#[derive(Debug)]
pub struct NewTopic<'a> {
    /// Name.
    pub name: &'a str,
    /// Number of partitions.
    pub partitions: u32,
    /// Settings.
    pub configs: BTreeMap<String, String>,
}

impl NewTopic<'_> {
    /// Bytes of its name and settings.
    pub fn bytes(&self) -> usize {
        self.name.len() + configs::bytes_of(&self.configs)
    }
}

/// Why something was not done: the code, and a sentence for a person.
pub type Refusal = (ErrorCode, String);

/// A random identity.
pub fn random_id() -> [u8; 16] {
    let mut id = [0u8; 16];
    let random = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut id));
    if random.is_err() {
        // Without a random device the clock has to do; ids only have to differ within this log.
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        id.copy_from_slice(&now.as_nanos().to_be_bytes());
    }
    id
}

/// Checks and creates one topic, for which room was reserved; returns the position that must be durable before it is reported.
pub fn create_one(shared: &Shared, broker: &mut Broker, new: NewTopic<'_>) -> Result<u64, Refusal> {
    check_new(shared, broker, &new)?;
    let change = Change::TopicCreated {
        id: random_id(),
        name: new.name.to_owned(),
        first_partition: broker.topics.next_partition(),
        partitions: new.partitions,
        configs: new.configs.into_iter().collect(),
    };
    let (position, _) = broker.change_reserved(change);
    shared.events.write(
        "topic_created",
        serde_json::json!({"topic": new.name, "partitions": new.partitions}),
    );
    Ok(position)
}

fn check_new(shared: &Shared, broker: &Broker, new: &NewTopic<'_>) -> Result<(), Refusal> {
    if !name_is_legal(new.name) {
        let text =
            "a topic's name has 1 to 249 of the characters a-z A-Z 0-9 . _ - and is neither \".\" nor \"..\"";
        return Err((ErrorCode::InvalidTopic, text.to_owned()));
    }
    if broker.topics.get(new.name).is_some() {
        return Err((
            ErrorCode::TopicAlreadyExists,
            format!("topic '{}' already exists", new.name),
        ));
    }
    check_partitions(broker, new.partitions)?;
    new.configs
        .iter()
        .try_for_each(|(key, value)| configs::check_topic_config(shared, key, value))
}

fn check_partitions(broker: &Broker, more: u32) -> Result<(), Refusal> {
    let have = broker.topics.partition_count();
    if more == 0 || have + more as usize > PARTITIONS_MAX {
        let text = format!(
            "asked for {more} partitions; a topic has at least 1, and this log at most {PARTITIONS_MAX} ({have} are there)"
        );
        return Err((ErrorCode::InvalidPartitions, text));
    }
    Ok(())
}

/// Reads one topic of a CreateTopics request.
fn read_new<'a>(request: &mut Request<'a>) -> Read<(&'a str, Result<NewTopic<'a>, Refusal>)> {
    let body = &mut request.body;
    let name = body.string()?;
    let partitions = body.i32()?;
    let replication_factor = body.i16()?;
    let assignments = body.array(8)?;
    for _ in 0..assignments {
        body.i32()?;
        for _ in 0..body.array(4)? {
            body.i32()?;
        }
        body.tags()?;
    }
    // The last one counts, as in Kafka.
    let mut configs = BTreeMap::new();
    for _ in 0..body.array(2)? {
        let key = body.string()?.to_owned();
        let value = body.nullable_string()?;
        body.tags()?;
        // A null value asks for the default.
        configs.extend(value.map(|value| (key, value.to_owned())));
    }
    body.tags()?;
    if replication_factor != -1 && replication_factor != 1 {
        let text = format!("asked for {replication_factor} replicas; this log is one node and keeps 1");
        return Ok((name, Err((ErrorCode::InvalidReplicationFactor, text))));
    }
    let partitions = match (assignments, partitions) {
        (0, -1) => request.shared.settings.auto_create_partitions.max(1),
        (0, count) => u32::try_from(count).unwrap_or(0),
        (assigned, _) => assigned as u32,
    };
    Ok((
        name,
        Ok(NewTopic {
            name,
            partitions,
            configs,
        }),
    ))
}

/// Creates topics.
pub fn create(mut request: Request<'_>) -> Read<Outcome> {
    let count = request.body.array(4)?;
    let mut new = Vec::with_capacity(count);
    for _ in 0..count {
        new.push(read_new(&mut request)?);
    }
    let _timeout_ms = request.body.i32()?;
    let validate_only = request.body.bool()?;
    let shared = request.shared;
    let mut broker = shared.broker();
    let mut position = 0;
    let bytes =
        |(_, topic): &(&str, Result<NewTopic<'_>, Refusal>)| topic.as_ref().map_or(0, NewTopic::bytes);
    if broker
        .reserve_changes(new.iter().map(bytes).sum(), new.len())?
        .is_err()
    {
        return Ok(Outcome::NoMemory);
    }
    let mut out = request.respond();
    out.i32(0);
    out.array(new.len());
    for (name, topic) in new {
        let created = topic.and_then(|topic| match validate_only {
            true => check_new(shared, &broker, &topic).map(|()| topic.partitions),
            false => {
                let partitions = topic.partitions;
                create_one(shared, &mut broker, topic).map(|created| {
                    position = created;
                    partitions
                })
            }
        });
        let id = broker.topics.get(name).map_or([0; 16], |topic| topic.id);
        respond_created(&request, &mut out, name, id, created);
    }
    out.tags();
    Ok(Outcome::AnswerAfter(finish(out, 0), position))
}

fn respond_created(
    request: &Request<'_>,
    out: &mut Writer,
    name: &str,
    id: [u8; 16],
    created: Result<u32, Refusal>,
) {
    let version = request.version;
    let (error, message, partitions) = match &created {
        Ok(partitions) => (ErrorCode::None, None, *partitions as i32),
        Err((error, message)) => (*error, Some(message.as_str()), -1),
    };
    out.string(name);
    if version >= 7 {
        out.raw(&id);
    }
    out.i16(error as i16);
    out.nullable_string(message);
    if version >= 5 {
        out.i32(partitions);
        out.i16(if created.is_ok() { 1 } else { -1 });
        let configs = if created.is_ok() {
            configs::topic_configs(request.shared, None)
        } else {
            Vec::new()
        };
        out.array(configs.len());
        for config in configs {
            out.string(config.name);
            out.nullable_string(Some(&config.value));
            out.bool(config.read_only);
            out.i8(config.source as i8);
            out.bool(false);
            out.tags();
        }
    }
    out.tags();
}

/// Adds partitions to topics.
pub fn create_partitions(mut request: Request<'_>) -> Read<Outcome> {
    let body = &mut request.body;
    let count = body.array(6)?;
    let mut asked = Vec::with_capacity(count);
    for _ in 0..count {
        let name = body.string()?;
        let total = body.i32()?;
        for _ in 0..body.nullable_array(4)?.unwrap_or(0) {
            for _ in 0..body.array(4)? {
                body.i32()?;
            }
            body.tags()?;
        }
        body.tags()?;
        asked.push((name, total));
    }
    let _timeout_ms = body.i32()?;
    let validate_only = body.bool()?;
    let mut broker = request.shared.broker();
    let mut position = 0;
    if broker.reserve_changes(0, asked.len())?.is_err() {
        return Ok(Outcome::NoMemory);
    }
    let mut out = request.respond();
    out.i32(0);
    out.array(asked.len());
    for (name, total) in asked {
        let outcome = add_partitions(&mut broker, name, total, validate_only);
        position = position.max(*outcome.as_ref().unwrap_or(&0));
        let refusal = outcome.err();
        out.string(name);
        out.i16(refusal.as_ref().map_or(ErrorCode::None, |refusal| refusal.0) as i16);
        out.nullable_string(refusal.as_ref().map(|refusal| refusal.1.as_str()));
        out.tags();
    }
    out.tags();
    Ok(Outcome::AnswerAfter(finish(out, 0), position))
}

fn add_partitions(broker: &mut Broker, name: &str, total: i32, validate_only: bool) -> Result<u64, Refusal> {
    let Some(topic) = broker.topics.get(name) else {
        return Err((
            ErrorCode::UnknownTopicOrPartition,
            format!("there is no topic '{name}'"),
        ));
    };
    let have = topic.partitions.len();
    let id = topic.id;
    let more = u32::try_from(i64::from(total) - have as i64).unwrap_or(0);
    if more == 0 {
        let text = format!("topic '{name}' has {have} partitions; asked for {total}, which is not more");
        return Err((ErrorCode::InvalidPartitions, text));
    }
    check_partitions(broker, more)?;
    if validate_only {
        return Ok(0);
    }
    let change = Change::PartitionsAdded {
        id,
        first_partition: broker.topics.next_partition(),
        partitions: more,
    };
    Ok(broker.change_reserved(change).0)
}

/// Deletes topics. Their batches leave the disk with the segments that hold them, once nothing else in those is alive.
pub fn delete(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let body = &mut request.body;
    let count = body.array(2)?;
    let mut asked: Vec<(Option<&str>, [u8; 16])> = Vec::with_capacity(count);
    for _ in 0..count {
        if version >= 6 {
            let name = body.nullable_string()?;
            let id = body.uuid()?;
            body.tags()?;
            asked.push((name, id));
        } else {
            asked.push((Some(body.string()?), [0; 16]));
        }
    }
    let _timeout_ms = body.i32()?;
    let shared = request.shared;
    let mut broker = shared.broker();
    let mut woken = Vec::new();
    let mut position = 0;
    if broker.reserve_changes(0, asked.len())?.is_err() {
        return Ok(Outcome::NoMemory);
    }
    let mut out = request.respond();
    out.i32(0);
    out.array(asked.len());
    for (name, id) in asked {
        let topic = match name {
            Some(name) => broker.topics.get(name),
            None => broker.topics.get_by_id(&id),
        };
        let found = topic.map(|topic| (topic.id, topic.name.clone()));
        let unknown = if name.is_some() {
            ErrorCode::UnknownTopicOrPartition
        } else {
            ErrorCode::UnknownTopicId
        };
        let error = match &found {
            None => unknown,
            Some((id, name)) => {
                let (end, waiters) = broker.change_reserved(Change::TopicDeleted { id: *id });
                shared
                    .events
                    .write("topic_deleted", serde_json::json!({"topic": name}));
                position = end;
                woken.extend(waiters);
                ErrorCode::None
            }
        };
        let (id, name) = match found {
            Some((id, name)) => (id, Some(name)),
            None => (id, name.map(str::to_owned)),
        };
        if version >= 6 {
            out.nullable_string(name.as_deref());
            out.raw(&id);
        } else {
            out.string(name.as_deref().unwrap_or_default());
        }
        out.i16(error as i16);
        if version >= 5 {
            out.nullable_string((error != ErrorCode::None).then_some("there is no such topic"));
        }
        out.tags();
    }
    out.tags();
    drop(broker);
    shared.wake(&woken, None);
    shared.want_maintenance();
    Ok(Outcome::AnswerAfter(finish(out, 0), position))
}
