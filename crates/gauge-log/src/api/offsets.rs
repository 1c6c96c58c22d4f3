//! ListOffsets, OffsetForLeaderEpoch and DeleteRecords.

use std::collections::BTreeMap;

use super::error::ErrorCode;
use super::{Api, Outcome, Reading, Request, begin, finish};
use crate::broker::Broker;
use crate::broker::change::Change;
use crate::broker::times::{Search, Step, Wanted};
use crate::broker::topics::ConnectionId;
use crate::shared::{Shared, lock};
use crate::wire::Read;

/// Asks for the offset behind the last record.
const LATEST: i64 = -1;
/// Asks for the first offset.
const EARLIEST: i64 = -2;
/// Asks for the first record with the largest timestamp (KIP-734).
const NEWEST: i64 = -3;
/// The first version in which that may be asked for.
const NEWEST_FROM_VERSION: i16 = 7;
/// Batches, chunks and records that are looked at in one go.
const WORK_PER_TURN: usize = 20_000;

/// (timestamp in ms, offset) for one partition, -1 for what there is not.
type Answer = Result<(i64, i64), ErrorCode>;

/// What is asked of one partition.
#[derive(Debug)]
enum Asked {
    Answered(Answer),
    Open(Search),
}

/// A request with times that have to be looked for, which may take reading from disk.
#[derive(Debug)]
pub struct TimeRequest {
    api: Api,
    version: i16,
    correlation_id: i32,
    topics: Vec<(String, Vec<(i32, Asked)>)>,
    /// Topic and partition that are looked at.
    at: (usize, usize),
    memory_bytes: usize,
}

/// Says where partitions begin and end, and where a time begins in them.
pub fn list_offsets(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let body = &mut request.body;
    let _replica_id = body.i32()?;
    if version >= 2 {
        body.i8()?;
    }
    let topic_count = body.array(4)?;
    let broker = request.shared.broker();
    let mut topics = Vec::with_capacity(topic_count);
    let mut is_open = false;
    for _ in 0..topic_count {
        let name = body.string()?;
        let count = body.array(12)?;
        let mut partitions = Vec::with_capacity(count);
        for _ in 0..count {
            let index = body.i32()?;
            if version >= 4 {
                body.i32()?;
            }
            let timestamp = body.i64()?;
            body.tags()?;
            let asked = ask(&broker, name, (index, timestamp), version);
            is_open |= matches!(asked, Asked::Open(_));
            partitions.push((index, asked));
        }
        body.tags()?;
        topics.push((name.to_owned(), partitions));
    }
    drop(broker);
    let part_bytes = |(name, partitions): &(String, Vec<_>)| {
        size_of::<(String, Vec<(i32, Asked)>)>()
            + name.capacity()
            + partitions.capacity() * size_of::<(i32, Asked)>()
    };
    let request = TimeRequest {
        api: request.api,
        version,
        correlation_id: request.correlation_id,
        memory_bytes: topics.iter().map(part_bytes).sum(),
        topics,
        at: (0, 0),
    };
    Ok(match is_open {
        true => Outcome::Read(Reading::Times(Box::new(request))),
        false => Outcome::Answer(request.respond()),
    })
}

fn ask(broker: &Broker, topic: &str, (index, timestamp): (i32, i64), version: i16) -> Asked {
    let id = broker.topics.partition_id(topic, index);
    let found = id.and_then(|id| Some((id, broker.topics.partition(id)?)));
    let Some((id, partition)) = found else {
        return Asked::Answered(Err(ErrorCode::UnknownTopicOrPartition));
    };
    match timestamp {
        LATEST => Asked::Answered(Ok((-1, partition.high_watermark))),
        EARLIEST => Asked::Answered(Ok((-1, partition.log_start))),
        NEWEST if version >= NEWEST_FROM_VERSION => Asked::Open(Search::new(id, Wanted::Newest)),
        0.. => Asked::Open(Search::new(id, Wanted::From(timestamp))),
        _ => Asked::Answered(Err(ErrorCode::UnsupportedVersion)),
    }
}

impl TimeRequest {
    /// Bytes of memory that the request holds while it waits.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The response, if it could be completed; otherwise the connection is woken when there is something to go on with.
    pub fn answer(&mut self, shared: &Shared, connection: ConnectionId) -> Option<Vec<u8>> {
        let mut work = WORK_PER_TURN;
        while let Some((_, partitions)) = self.topics.get_mut(self.at.0) {
            let Some((_, asked)) = partitions.get_mut(self.at.1) else {
                self.at = (self.at.0 + 1, 0);
                continue;
            };
            if let Asked::Open(search) = asked {
                *asked = Asked::Answered(go_on(search, shared, connection, &mut work)?);
            }
            self.at.1 += 1;
        }
        Some(self.respond())
    }

    fn respond(&self) -> Vec<u8> {
        let version = self.version;
        let mut out = begin(self.api, version, self.correlation_id);
        if version >= 2 {
            out.i32(0);
        }
        out.array(self.topics.len());
        for (name, partitions) in &self.topics {
            out.string(name);
            out.array(partitions.len());
            for (index, asked) in partitions {
                let answer = match asked {
                    Asked::Answered(answer) => *answer,
                    Asked::Open(_) => Err(ErrorCode::UnknownServerError),
                };
                let (timestamp, offset) = answer.unwrap_or((-1, -1));
                out.i32(*index);
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
        finish(out, 0)
    }
}

/// Leads a search to its end; None when it has to go on later.
fn go_on(search: &mut Search, shared: &Shared, connection: ConnectionId, work: &mut usize) -> Option<Answer> {
    loop {
        let step = shared.broker().search(search, work);
        match step {
            Step::Batch(candidate) => {
                if let Some(record) = search.look(&candidate, work) {
                    return Some(Ok(record));
                }
            }
            Step::Nothing => return Some(Ok((-1, -1))),
            Step::Gone => return Some(Err(ErrorCode::UnknownTopicOrPartition)),
            Step::Load(chunk) if lock(&shared.loads).failed.contains_key(&chunk) => {
                return Some(Err(ErrorCode::KafkaStorageError));
            }
            Step::Load(chunk) => {
                shared.request_load(chunk, Some(connection));
                return None;
            }
            Step::Later => {
                shared.wake(&[connection], None);
                return None;
            }
        }
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
