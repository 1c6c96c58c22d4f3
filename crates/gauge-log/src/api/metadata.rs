//! Metadata, DescribeCluster and DescribeLogDirs: one broker, which leads everything.

use std::collections::BTreeMap;

use super::error::ErrorCode;
use super::topics::{self, NewTopic};
use super::{Outcome, Request, finish};
use crate::broker::Broker;
use crate::broker::topics::{Topic, name_is_legal};
use crate::storage::journal::Full;
use crate::wire::{Malformed, Read, Writer, check_names};

/// The id of the only broker.
pub const NODE_ID: i32 = 1;
/// What "authorized operations" says when they were not asked for.
const OPERATIONS_UNKNOWN: i32 = i32::MIN;

/// A topic that was asked for.
enum Asked<'a> {
    Name(&'a str),
    Id([u8; 16]),
}

/// Partitions that one request may be told beyond those that there are.
const PARTITIONS_AGAIN_MAX: usize = 1_000;

/// Says which topics there are and who leads their partitions; creates topics that a client asks for, if that is wanted.
pub fn metadata(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let body = &mut request.body;
    let mut asked: Option<Vec<Asked<'_>>> = None;
    if let Some(count) = body.nullable_array(2)? {
        check_names(count, request.shared.broker().topics.len())?;
        let mut topics = Vec::with_capacity(count);
        for _ in 0..count {
            let id = if version >= 10 { body.uuid()? } else { [0; 16] };
            let name = body.nullable_string()?;
            body.tags()?;
            topics.push(name.map_or(Asked::Id(id), Asked::Name));
        }
        // In version 0 an empty list means all topics; later null does.
        asked = (version > 0 || count > 0).then_some(topics);
    }
    let may_create = version < 4 || body.bool()?;
    let mut broker = request.shared.broker();
    let mut position = 0;
    if may_create && let Some(asked) = &asked {
        match create_missing(&request, &mut broker, asked)? {
            Ok(created) => position = created,
            Err(Full) => return Ok(Outcome::NoMemory),
        }
    }
    let mut out = request.respond();
    if version >= 3 {
        out.i32(0);
    }
    out.array(1);
    respond_broker(&request, &mut out, version >= 1);
    if version >= 2 {
        out.nullable_string(Some(&request.shared.cluster_id));
    }
    if version >= 1 {
        out.i32(NODE_ID);
    }
    match &asked {
        None => {
            out.array(broker.topics.len());
            broker
                .topics
                .iter()
                .for_each(|topic| respond_topic(version, &mut out, topic));
        }
        Some(asked) => {
            out.array(asked.len());
            let mut left = broker.topics.partition_count() + PARTITIONS_AGAIN_MAX;
            for asked in asked {
                left = left
                    .checked_sub(respond_asked(version, &mut out, &broker, asked))
                    .ok_or(Malformed("it names the same topics again and again"))?;
                out.check_budget()?;
            }
        }
    }
    if (8..=10).contains(&version) {
        out.i32(OPERATIONS_UNKNOWN);
    }
    out.tags();
    Ok(Outcome::AnswerAfter(finish(out, 0), position))
}

/// Creates the named topics that are not there, all or none; returns the position that must be durable before they are reported.
fn create_missing(
    request: &Request<'_>,
    broker: &mut Broker,
    asked: &[Asked<'_>],
) -> Read<Result<u64, Full>> {
    let partitions = request.shared.settings.auto_create_partitions;
    let missing = |asked: &Asked<'_>| match asked {
        Asked::Name(name) => partitions > 0 && broker.topics.get(name).is_none() && name_is_legal(name),
        Asked::Id(_) => false,
    };
    let missing: Vec<NewTopic<'_>> = asked
        .iter()
        .filter(|asked| missing(asked))
        .filter_map(|asked| match *asked {
            Asked::Name(name) => Some(NewTopic {
                name,
                partitions,
                configs: BTreeMap::new(),
            }),
            Asked::Id(_) => None,
        })
        .collect();
    let bytes = missing.iter().map(NewTopic::bytes).sum();
    if let Err(full) = broker.reserve_changes(bytes, missing.len())? {
        return Ok(Err(full));
    }
    let mut position = 0;
    for new in missing {
        // What cannot be made is reported with the topic.
        if let Ok(created) = topics::create_one(request.shared, broker, new) {
            position = created;
        }
    }
    Ok(Ok(position))
}

fn respond_broker(request: &Request<'_>, out: &mut Writer, with_rack: bool) {
    let (host, port) = &request.shared.advertised;
    out.i32(NODE_ID);
    out.string(host);
    out.i32(i32::from(*port));
    if with_rack {
        out.nullable_string(None);
    }
    out.tags();
}

/// Returns how many partitions were told.
fn respond_asked(version: i16, out: &mut Writer, broker: &Broker, asked: &Asked<'_>) -> usize {
    let (topic, name, id, error) = match asked {
        Asked::Name(name) => {
            let error = if name_is_legal(name) {
                ErrorCode::UnknownTopicOrPartition
            } else {
                ErrorCode::InvalidTopic
            };
            (broker.topics.get(name), Some(*name), [0; 16], error)
        }
        Asked::Id(id) => (broker.topics.get_by_id(id), None, *id, ErrorCode::UnknownTopicId),
    };
    if let Some(topic) = topic {
        respond_topic(version, out, topic);
        return topic.partitions.len();
    }
    out.i16(error as i16);
    if version >= 12 {
        out.nullable_string(name);
    } else {
        out.string(name.unwrap_or_default());
    }
    if version >= 10 {
        out.raw(&id);
    }
    if version >= 1 {
        out.bool(false);
    }
    out.array(0);
    if version >= 8 {
        out.i32(OPERATIONS_UNKNOWN);
    }
    out.tags();
    0
}

fn respond_topic(version: i16, out: &mut Writer, topic: &Topic) {
    out.i16(ErrorCode::None as i16);
    out.string(&topic.name);
    if version >= 10 {
        out.raw(&topic.id);
    }
    if version >= 1 {
        out.bool(false);
    }
    out.array(topic.partitions.len());
    for index in 0..topic.partitions.len() {
        out.i16(ErrorCode::None as i16);
        out.i32(index as i32);
        out.i32(NODE_ID);
        if version >= 7 {
            out.i32(0);
        }
        for _replicas_and_in_sync in 0..2 {
            out.array(1);
            out.i32(NODE_ID);
        }
        if version >= 5 {
            out.array(0);
        }
        out.tags();
    }
    if version >= 8 {
        out.i32(OPERATIONS_UNKNOWN);
    }
    out.tags();
}

/// Says which brokers there are.
pub fn describe_cluster(mut request: Request<'_>) -> Read<Outcome> {
    let body = &mut request.body;
    let _with_operations = body.bool()?;
    let endpoint_type = if request.version >= 1 { body.i8()? } else { 1 };
    let mut out = request.respond();
    out.i32(0);
    // Endpoint type 2 is a controller's, which this log does not have.
    let error = if endpoint_type == 1 {
        ErrorCode::None
    } else {
        ErrorCode::InvalidRequest
    };
    out.i16(error as i16);
    out.nullable_string((endpoint_type != 1).then_some("this log has broker endpoints only"));
    if request.version >= 1 {
        out.i8(endpoint_type);
    }
    out.string(&request.shared.cluster_id);
    out.i32(NODE_ID);
    out.array(1);
    respond_broker(&request, &mut out, true);
    out.i32(OPERATIONS_UNKNOWN);
    out.tags();
    Ok(Outcome::Answer(finish(out, 0)))
}

/// Says where the journal is and how large it is. All partitions share it, so that each is reported with size 0.
pub fn describe_log_dirs(mut request: Request<'_>) -> Read<Outcome> {
    let body = &mut request.body;
    let mut asked: Option<Vec<(String, Vec<i32>)>> = None;
    if let Some(count) = body.nullable_array(6)? {
        let mut topics = Vec::with_capacity(count);
        for _ in 0..count {
            let name = body.string()?.to_owned();
            let partitions = (0..body.array(4)?)
                .map(|_| body.i32())
                .collect::<Read<Vec<_>>>()?;
            body.tags()?;
            topics.push((name, partitions));
        }
        asked = Some(topics);
    }
    let broker = request.shared.broker();
    let journal_bytes =
        broker.journal.end() - broker.journal.segments.front().map_or(0, |segment| segment.base);
    let topics = asked.unwrap_or_else(|| {
        let all = |topic: &Topic| (topic.name.clone(), (0..topic.partitions.len() as i32).collect());
        broker.topics.iter().map(all).collect()
    });
    let known: Vec<(String, Vec<i32>)> = topics
        .into_iter()
        .map(|(name, partitions)| {
            let known = partitions
                .into_iter()
                .filter(|&index| broker.topics.partition_id(&name, index).is_some());
            let known = known.collect();
            (name, known)
        })
        .collect();
    drop(broker);
    let mut out = request.respond();
    out.i32(0);
    if request.version >= 3 {
        out.i16(ErrorCode::None as i16);
    }
    out.array(1);
    out.i16(ErrorCode::None as i16);
    out.string(&request.shared.settings.data.display().to_string());
    out.array(known.len());
    for (name, partitions) in known {
        out.string(&name);
        out.array(partitions.len());
        for index in partitions {
            out.i32(index);
            out.i64(0);
            out.i64(0);
            out.bool(false);
            out.tags();
        }
        out.tags();
    }
    if request.version >= 4 {
        out.i64(journal_bytes as i64);
        out.i64(-1);
    }
    out.tags();
    out.tags();
    Ok(Outcome::Answer(finish(out, 0)))
}
