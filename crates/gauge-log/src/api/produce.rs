//! Produce and InitProducerId.

use super::error::ErrorCode;
use super::{Outcome, Request, finish};
use crate::batch::{self, Header, Rejected};
use crate::storage::journal::{PAYLOAD_BYTES_MAX, Room};
use crate::wire::Read;

/// The records for one partition.
struct Part<'a> {
    topic: usize,
    index: i32,
    records: &'a [u8],
    checked: Result<Header, (ErrorCode, &'static str)>,
}

fn check(records: &[u8]) -> Result<Header, (ErrorCode, &'static str)> {
    if records.len() > PAYLOAD_BYTES_MAX {
        return Err((
            ErrorCode::MessageTooLarge,
            "the record batch is larger than max.message.bytes",
        ));
    }
    batch::check(records).map_err(|rejected| match rejected {
        Rejected::Corrupt(reason) => (ErrorCode::CorruptMessage, reason),
        Rejected::Invalid(reason) => (ErrorCode::InvalidRecord, reason),
        Rejected::LogAppendTime => (
            ErrorCode::InvalidTimestamp,
            "a producer may not say that its timestamps are the log's (LogAppendTime)",
        ),
        Rejected::OldFormat => (
            ErrorCode::UnsupportedForMessageFormat,
            "only record batch format 2 is stored",
        ),
    })
}

/// Stores batches. The CRC of every batch is checked before the lock is taken, and large batches are copied behind it.
pub fn produce(mut request: Request<'_>) -> Read<Outcome> {
    let body = &mut request.body;
    let transactional = body.nullable_string()?.is_some();
    let acks = body.i16()?;
    let _timeout_ms = body.i32()?;
    let mut topics: Vec<(&str, usize)> = Vec::new();
    let mut parts: Vec<Part<'_>> = Vec::new();
    for topic in 0..body.array(4)? {
        let name = body.string()?;
        let count = body.array(5)?;
        topics.push((name, count));
        for _ in 0..count {
            let index = body.i32()?;
            let records = body.nullable_bytes()?.unwrap_or_default();
            body.tags()?;
            parts.push(Part {
                topic,
                index,
                records,
                checked: check(records),
            });
        }
        body.tags()?;
    }
    body.tags()?;
    if transactional || !(-1..=1).contains(&acks) {
        let error = if transactional {
            ErrorCode::TransactionalIdAuthorizationFailed
        } else {
            ErrorCode::InvalidRequiredAcks
        };
        parts
            .iter_mut()
            .for_each(|part| part.checked = Err((error, "transactions are not supported")));
    }
    store(&request, &topics, &parts, acks)
}

fn store(request: &Request<'_>, topics: &[(&str, usize)], parts: &[Part<'_>], acks: i16) -> Read<Outcome> {
    let accepted = parts.iter().filter(|part| part.checked.is_ok());
    let (bytes, count) = accepted.fold((0, 0), |(bytes, count), part| {
        (bytes + part.records.len(), count + 1)
    });
    let mut out = request.respond();
    out.array(topics.len());
    let mut records = 0;
    let mut rooms: Vec<(Room, &[u8])> = Vec::new();
    let mut broker = request.shared.broker();
    if count > 0 && broker.journal.reserve(bytes, count).is_err() {
        return Ok(Outcome::NoMemory);
    }
    let mut rest = parts.iter().peekable();
    for (index, (name, partitions)) in topics.iter().enumerate() {
        out.string(name);
        out.array(*partitions);
        while let Some(part) = rest.next_if(|part| part.topic == index) {
            let outcome = part.checked.and_then(|header| {
                let partition = broker.topics.partition_id(name, part.index);
                let partition =
                    partition.ok_or((ErrorCode::UnknownTopicOrPartition, "no such topic or partition"))?;
                let (base_offset, room) = broker
                    .append(partition, part.records, &header)
                    .map_err(|error| (error, "the batch's sequence number does not follow"))?;
                rooms.extend(room.map(|room| (room, part.records)));
                records += header.offset_count;
                let log_start = broker
                    .topics
                    .partition(partition)
                    .map_or(0, |partition| partition.log_start);
                Ok((base_offset, log_start))
            });
            respond_partition(request.version, &mut out, part.index, outcome);
        }
        out.tags();
    }
    let position = broker.journal.end();
    drop(broker);
    for (room, records) in rooms {
        room.fill(records);
    }
    out.i32(0);
    out.tags();
    let metrics = &request.shared.metrics;
    metrics.batches.add(count as u64);
    metrics.batch_bytes.add(bytes as u64);
    metrics.records.add(records as u64);
    let response = (acks != 0).then(|| finish(out, 0));
    Ok(Outcome::Produced {
        response,
        position,
        bytes,
    })
}

fn respond_partition(
    version: i16,
    out: &mut crate::wire::Writer,
    index: i32,
    outcome: Result<(i64, i64), (ErrorCode, &'static str)>,
) {
    let (error, message) = outcome
        .err()
        .map_or((ErrorCode::None, None), |(error, message)| (error, Some(message)));
    let (base_offset, log_start) = outcome.unwrap_or((-1, -1));
    out.i32(index);
    out.i16(error as i16);
    out.i64(base_offset);
    out.i64(-1);
    if version >= 5 {
        out.i64(log_start);
    }
    if version >= 8 {
        out.array(0);
        out.nullable_string(message);
    }
    out.tags();
}

/// Gives a producer an id for idempotence. Transactions are not offered.
pub fn init_producer_id(mut request: Request<'_>) -> Read<Outcome> {
    let transactional = request.body.nullable_string()?.is_some();
    let mut out = request.respond();
    out.i32(0);
    let (error, id, position) = if transactional {
        (ErrorCode::TransactionalIdAuthorizationFailed, -1, 0)
    } else {
        match request.shared.broker().take_producer_id() {
            Ok((id, position)) => (ErrorCode::None, id, position),
            Err(_full) => return Ok(Outcome::NoMemory),
        }
    };
    out.i16(error as i16);
    out.i64(id);
    out.i16(if id < 0 { -1 } else { 0 });
    out.tags();
    Ok(Outcome::AnswerAfter(finish(out, 0), position))
}
