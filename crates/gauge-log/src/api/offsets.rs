//! ListOffsets, OffsetForLeaderEpoch and DeleteRecords.

use std::collections::BTreeMap;

use super::error::ErrorCode;
use super::{Outcome, Request, finish};
use crate::broker::Broker;
use crate::broker::change::Change;
use crate::wire::Read;

/// Asks for the offset behind the last record.
const LATEST: i64 = -1;
/// Asks for the first offset.
const EARLIEST: i64 = -2;

/// Says where partitions begin and end, and where a time begins in them.
///
/// A time is looked up by chunks of the journal, without decoding records: the offset returned is that of the first record in the first chunk that may hold the time, so
/// that reading from there misses nothing and may begin earlier than asked.
pub fn list_offsets(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let body = &mut request.body;
    let _replica_id = body.i32()?;
    if version >= 2 {
        body.i8()?;
    }
    let topic_count = body.array(4)?;
    let broker = request.shared.broker();
    let mut answers = Vec::with_capacity(topic_count);
    for _ in 0..topic_count {
        let name = body.string()?;
        let mut partitions = Vec::new();
        for _ in 0..body.array(12)? {
            let index = body.i32()?;
            if version >= 4 {
                body.i32()?;
            }
            let timestamp = body.i64()?;
            body.tags()?;
            partitions.push((index, look_up(&broker, name, index, timestamp)));
        }
        body.tags()?;
        answers.push((name, partitions));
    }
    drop(broker);
    let mut out = request.respond();
    if version >= 2 {
        out.i32(0);
    }
    out.array(answers.len());
    for (name, partitions) in answers {
        out.string(name);
        out.array(partitions.len());
        for (index, answer) in partitions {
            let (timestamp, offset) = answer.unwrap_or((-1, -1));
            out.i32(index);
            out.i16(answer.err().unwrap_or(ErrorCode::None) as i16);
            out.i64(timestamp);
            out.i64(offset);
            if version >= 4 {
                out.i32(if offset >= 0 { 0 } else { -1 });
            }
            out.tags();
        }
        out.tags();
    }
    out.tags();
    Ok(Outcome::Answer(finish(out, 0)))
}

/// (timestamp, offset) for one partition.
fn look_up(broker: &Broker, topic: &str, index: i32, timestamp: i64) -> Result<(i64, i64), ErrorCode> {
    let id = broker
        .topics
        .partition_id(topic, index)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let partition = broker
        .topics
        .partition(id)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if timestamp == LATEST {
        return Ok((-1, partition.high_watermark));
    }
    if timestamp == EARLIEST {
        return Ok((-1, partition.log_start));
    }
    let is_empty = partition.high_watermark == partition.log_start;
    if timestamp < 0 {
        return Err(ErrorCode::InvalidRequest);
    }
    let found = partition
        .chunk_marks
        .iter()
        .find(|&&(_, start)| broker.journal.newest_timestamp_of(start) >= timestamp);
    match found {
        Some(&(offset, _)) if !is_empty => Ok((
            timestamp,
            offset.clamp(partition.log_start, partition.high_watermark),
        )),
        _ => Ok((-1, -1)),
    }
}

/// Says where a leader epoch ends. The leader never changes: its only epoch is 0.
pub fn offset_for_leader_epoch(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let body = &mut request.body;
    if version >= 3 {
        body.i32()?;
    }
    let topic_count = body.array(4)?;
    let broker = request.shared.broker();
    let mut answers = Vec::with_capacity(topic_count);
    for _ in 0..topic_count {
        let name = body.string()?;
        let mut partitions = Vec::new();
        for _ in 0..body.array(12)? {
            let index = body.i32()?;
            let _current_epoch = body.i32()?;
            let epoch = body.i32()?;
            body.tags()?;
            let partition = broker
                .topics
                .partition_id(name, index)
                .and_then(|id| broker.topics.partition(id));
            partitions.push((index, epoch, partition.map(|partition| partition.high_watermark)));
        }
        body.tags()?;
        answers.push((name, partitions));
    }
    drop(broker);
    let mut out = request.respond();
    out.i32(0);
    out.array(answers.len());
    for (name, partitions) in answers {
        out.string(name);
        out.array(partitions.len());
        for (index, epoch, end) in partitions {
            let error = if end.is_some() {
                ErrorCode::None
            } else {
                ErrorCode::UnknownTopicOrPartition
            };
            let known = epoch == 0 && end.is_some();
            out.i16(error as i16);
            out.i32(index);
            out.i32(if known { 0 } else { -1 });
            out.i64(if known { end.unwrap_or(-1) } else { -1 });
            out.tags();
        }
        out.tags();
    }
    out.tags();
    Ok(Outcome::Answer(finish(out, 0)))
}

/// Moves the start of partitions forward.
pub fn delete_records(mut request: Request<'_>) -> Read<Outcome> {
    let body = &mut request.body;
    let topic_count = body.array(4)?;
    let mut asked = Vec::with_capacity(topic_count);
    for _ in 0..topic_count {
        let name = body.string()?;
        let mut partitions = Vec::new();
        for _ in 0..body.array(12)? {
            let index = body.i32()?;
            let offset = body.i64()?;
            body.tags()?;
            partitions.push((index, offset));
        }
        body.tags()?;
        asked.push((name, partitions));
    }
    let mut out = request.respond();
    out.i32(0);
    out.array(asked.len());
    let mut position = 0;
    let mut starts: BTreeMap<u32, i64> = BTreeMap::new();
    let mut broker = request.shared.broker();
    for (name, partitions) in asked {
        out.string(name);
        out.array(partitions.len());
        for (index, offset) in partitions {
            let outcome = find_start(&broker, name, index, offset);
            if let Ok((id, start, true)) = outcome {
                let asked = starts.entry(id).or_default();
                *asked = start.max(*asked);
            }
            out.i32(index);
            out.i64(outcome.map_or(-1, |(_, start, _)| start));
            out.i16(outcome.err().unwrap_or(ErrorCode::None) as i16);
            out.tags();
        }
        out.tags();
    }
    out.tags();
    if !starts.is_empty() {
        let starts = starts.into_iter().collect();
        match broker.change(Change::RecordsDeleted { starts }) {
            Ok((end, _)) => position = end,
            Err(_full) => return Ok(Outcome::NoMemory),
        }
    }
    Ok(Outcome::AnswerAfter(finish(out, 0), position))
}

/// (internal id, where the partition will begin, whether it does not yet) for one partition of a DeleteRecords request.
fn find_start(broker: &Broker, topic: &str, index: i32, offset: i64) -> Result<(u32, i64, bool), ErrorCode> {
    let id = broker
        .topics
        .partition_id(topic, index)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let partition = broker
        .topics
        .partition(id)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let log_start = if offset == -1 {
        partition.high_watermark
    } else {
        offset
    };
    if log_start < 0 || log_start > partition.high_watermark {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    // What somebody has asked for already may not be committed yet; then it is said again.
    let is_new = log_start > partition.log_start;
    Ok((id, log_start.max(partition.deleted_before), is_new))
}
