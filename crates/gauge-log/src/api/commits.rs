//! The offsets that groups have committed: commit, fetch and delete.

use std::collections::BTreeSet;
use std::time::Instant;

use super::error::ErrorCode;
use super::groups::Asking;
use super::{Outcome, Request, finish};
use crate::broker::change::{Change, CommittedOffset};
use crate::broker::groups::Group;
use crate::storage::journal::PAYLOAD_BYTES_MAX;
use crate::wire::{Read, check_names};

/// Bytes that a client may attach to a committed offset (Kafka's default).
pub const METADATA_BYTES_MAX: usize = 4096;
/// The same over all committed offsets.
const METADATA_BYTES_MAX_IN_ALL: usize = 32 << 20;
/// Offsets that one change deletes at most: it fits whatever the names of their topics.
const OFFSETS_PER_CHANGE: usize = 1000;

/// (partition, offset, what the client attaches) of one partition.
type AskedCommit<'a> = (i32, i64, &'a str);

/// A group commits offsets; they are as durable as batches.
pub fn commit(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let body = &mut request.body;
    let Asking {
        group,
        generation,
        member_id,
        instance_id,
    } = Asking::read(body, version >= 7)?;
    if version <= 4 {
        body.i64()?;
    }
    let mut topics: Vec<(&str, Vec<AskedCommit<'_>>)> = Vec::new();
    for _ in 0..body.array(4)? {
        let name = body.string()?;
        let mut partitions = Vec::new();
        for _ in 0..body.array(12)? {
            let index = body.i32()?;
            let offset = body.i64()?;
            if version >= 6 {
                body.i32()?;
            }
            let metadata = body.nullable_string()?.unwrap_or_default();
            body.tags()?;
            partitions.push((index, offset, metadata));
        }
        body.tags()?;
        topics.push((name, partitions));
    }
    let mut broker = request.shared.broker();
    let allowed = broker
        .groups
        .may_commit(group, member_id, instance_id, generation, Instant::now());
    let mut offsets = Vec::new();
    let mut bytes = group.len() + 64;
    let mut attached = broker.groups.metadata_bytes();
    let mut out = request.respond();
    if version >= 3 {
        out.i32(0);
    }
    out.array(topics.len());
    for (name, partitions) in &topics {
        out.string(name);
        out.array(partitions.len());
        for &(index, offset, metadata) in partitions {
            let known = broker.topics.partition_id(name, index).is_some();
            let size = name.len() + metadata.len() + 32;
            let error = match allowed {
                Err(error) => error,
                Ok(()) if !known => ErrorCode::UnknownTopicOrPartition,
                Ok(())
                    if metadata.len() > METADATA_BYTES_MAX
                        || (!metadata.is_empty()
                            && attached + metadata.len() > METADATA_BYTES_MAX_IN_ALL) =>
                {
                    ErrorCode::OffsetMetadataTooLarge
                }
                Ok(()) if bytes + size > PAYLOAD_BYTES_MAX => ErrorCode::MessageTooLarge,
                Ok(()) => ErrorCode::None,
            };
            if error == ErrorCode::None {
                bytes += size;
                attached += metadata.len();
                let (topic, metadata) = ((*name).to_owned(), metadata.to_owned());
                offsets.push(CommittedOffset {
                    topic,
                    partition: index,
                    offset,
                    metadata,
                });
            }
            out.i32(index);
            out.i16(error as i16);
            out.tags();
        }
        out.tags();
    }
    out.tags();
    let mut position = 0;
    if !offsets.is_empty() {
        match broker.change(Change::OffsetsCommitted {
            group: group.to_owned(),
            offsets,
        }) {
            Ok((end, _)) => position = end,
            Err(_full) => return Ok(Outcome::NoMemory),
        }
    }
    Ok(Outcome::AnswerAfter(finish(out, 0), position))
}

/// A partition's committed offset, or -1.
fn committed<'a>(group: Option<&'a Group>, topic: &str, partition: i32) -> (i64, &'a str) {
    let found = group.and_then(|group| group.offsets.get(&(topic.to_owned(), partition)));
    found.map_or((-1, ""), |(offset, metadata)| (*offset, metadata.as_str()))
}

type AskedTopics<'a> = Option<Vec<(&'a str, Vec<i32>)>>;

fn read_asked_topics<'a>(request: &mut Request<'a>) -> Read<AskedTopics<'a>> {
    let body = &mut request.body;
    let Some(count) = body.nullable_array(4)? else {
        return Ok(None);
    };
    check_names(count, request.shared.broker().topics.len())?;
    let mut topics = Vec::with_capacity(count);
    for _ in 0..count {
        let name = body.string()?;
        let partitions = (0..body.array(4)?)
            .map(|_| body.i32())
            .collect::<Read<Vec<_>>>()?;
        body.tags()?;
        topics.push((name, partitions));
    }
    Ok(Some(topics))
}

/// Says which offsets groups have committed.
pub fn fetch(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let mut groups: Vec<(&str, AskedTopics<'_>)> = Vec::new();
    if version <= 7 {
        let group = request.body.string()?;
        groups.push((group, read_asked_topics(&mut request)?));
    } else {
        let count = request.body.array(3)?;
        check_names(count, request.shared.broker().groups.len())?;
        for _ in 0..count {
            let group = request.body.string()?;
            groups.push((group, read_asked_topics(&mut request)?));
            request.body.tags()?;
        }
    }
    let broker = request.shared.broker();
    let mut out = request.respond();
    if version >= 3 {
        out.i32(0);
    }
    if version >= 8 {
        out.array(groups.len());
    }
    for (name, topics) in &groups {
        let group = broker.groups.get(name);
        if version >= 8 {
            out.string(name);
        }
        let everything = || {
            let mut all: Vec<(&str, Vec<i32>)> = Vec::new();
            for (topic, partition) in group.iter().flat_map(|group| group.offsets.keys()) {
                match all.last_mut() {
                    Some((last, partitions)) if *last == topic => partitions.push(*partition),
                    _ => all.push((topic, vec![*partition])),
                }
            }
            all
        };
        let topics = topics.clone().unwrap_or_else(everything);
        out.array(topics.len());
        for (topic, partitions) in topics {
            out.string(topic);
            out.array(partitions.len());
            for index in partitions {
                let (offset, metadata) = committed(group, topic, index);
                out.i32(index);
                out.i64(offset);
                if version >= 5 {
                    out.i32(-1);
                }
                out.nullable_string(Some(metadata));
                out.i16(ErrorCode::None as i16);
                out.tags();
            }
            out.tags();
        }
        if version >= 2 {
            out.i16(ErrorCode::None as i16);
        }
        if version >= 8 {
            out.tags();
        }
        out.check_budget()?;
    }
    out.tags();
    Ok(Outcome::Answer(finish(out, 0)))
}

/// Deletes committed offsets of a group that has no members.
pub fn delete(mut request: Request<'_>) -> Read<Outcome> {
    let body = &mut request.body;
    let group = body.string()?;
    let mut topics: Vec<(&str, Vec<i32>)> = Vec::new();
    for _ in 0..body.array(6)? {
        let name = body.string()?;
        let partitions = (0..body.array(4)?)
            .map(|_| body.i32())
            .collect::<Read<Vec<_>>>()?;
        topics.push((name, partitions));
    }
    let mut broker = request.shared.broker();
    let allowed = broker.groups.may_delete(group);
    let mut out = request.respond();
    out.i16(allowed as i16);
    out.i32(0);
    if allowed != ErrorCode::None {
        out.array(0);
        return Ok(Outcome::Answer(finish(out, 0)));
    }
    let mut deleted: BTreeSet<(String, i32)> = BTreeSet::new();
    out.array(topics.len());
    for (name, partitions) in topics {
        out.string(name);
        out.array(partitions.len());
        for index in partitions {
            let is_known = broker.topics.partition_id(name, index).is_some();
            let error = if is_known {
                deleted.insert((name.to_owned(), index));
                ErrorCode::None
            } else {
                ErrorCode::UnknownTopicOrPartition
            };
            out.i32(index);
            out.i16(error as i16);
        }
    }
    let committed = broker.groups.get(group).map(|group| &group.offsets);
    deleted.retain(|partition| committed.is_some_and(|offsets| offsets.contains_key(partition)));
    let deleted: Vec<(String, i32)> = deleted.into_iter().collect();
    let bytes: usize = deleted.iter().map(|(name, _)| name.len() + 6).sum();
    let changes = deleted.chunks(OFFSETS_PER_CHANGE);
    if broker
        .reserve_changes(bytes + group.len() * changes.len(), changes.len())?
        .is_err()
    {
        return Ok(Outcome::NoMemory);
    }
    let mut position = 0;
    for partitions in changes {
        let (group, partitions) = (group.to_owned(), partitions.to_vec());
        position = broker
            .change_reserved(Change::OffsetsDeleted { group, partitions })
            .0;
    }
    Ok(Outcome::AnswerAfter(finish(out, 0), position))
}
