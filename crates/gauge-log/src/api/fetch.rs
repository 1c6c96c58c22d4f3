//! Fetch: batches from memory, or from the chunks that are read from disk for it; waits for data if the client says so.
//!
//! A client may begin a session (KIP-227, see `broker::sessions`) and then says only what has changed, and is answered only what has; a fetch without one is complete in itself.

use std::sync::Arc;
use std::time::Duration;

use super::error::ErrorCode;
use super::{Api, Outcome, Reading, Request, begin, finish};
use crate::broker::sessions::resolve;
use crate::broker::topics::{ConnectionId, name_is_legal};
use crate::broker::{Broker, EXTENTS_MAX, EXTENTS_SHORT, Extent, Limits};
use crate::net::output::Response;
use crate::shared::{Shared, lock};
use crate::wire::{Read, Writer};

/// Bytes of batches in one response at most, whatever the client asks for.
const RESPONSE_BYTES_MAX: usize = 8 << 20;

/// What is wanted of one partition.
#[derive(Debug)]
struct Wanted {
    index: i32,
    partition: Option<u32>,
    offset: i64,
    bytes_max: usize,
}

/// A fetch.
#[derive(Debug)]
pub struct FetchRequest {
    api: Api,
    version: i16,
    correlation_id: i32,
    wait_max_ms: i32,
    bytes_min: usize,
    bytes_max: usize,
    session_error: ErrorCode,
    /// The session that the response names; 0: none.
    session_id: i32,
    /// Whether only changes of the session are answered; `topics` is empty then.
    is_incremental: bool,
    topics: Vec<(String, Vec<Wanted>)>,
}

/// Reads a fetch; it is answered by `FetchRequest::answer`.
pub fn fetch(mut request: Request<'_>) -> Read<Outcome> {
    let version = request.version;
    let body = &mut request.body;
    let _replica_id = body.i32()?;
    let wait_max_ms = body.i32()?;
    let bytes_min = body.i32()?;
    let bytes_max = body.i32()?;
    let _isolation_level = body.i8()?;
    let (session_id, session_epoch) = match version >= 7 {
        true => (body.i32()?, body.i32()?),
        false => (0, -1),
    };
    let mut broker = request.shared.broker();
    let mut topics = Vec::new();
    for _ in 0..body.array(5)? {
        let name = body.string()?;
        let count = body.array(16)?;
        let mut wanted = Vec::with_capacity(count);
        for _ in 0..count {
            let index = body.i32()?;
            if version >= 9 {
                body.i32()?;
            }
            let offset = body.i64()?;
            if version >= 12 {
                body.i32()?;
            }
            if version >= 5 {
                body.i64()?;
            }
            let partition_bytes_max = body.i32()?;
            body.tags()?;
            let partition = broker.topics.partition_id(name, index);
            wanted.push(Wanted {
                index,
                partition,
                offset,
                bytes_max: partition_bytes_max.max(0) as usize,
            });
        }
        body.tags()?;
        topics.push((name, wanted));
    }
    let mut forgotten = Vec::new();
    if version >= 7 {
        for _ in 0..body.array(3)? {
            let name = body.string()?;
            for _ in 0..body.array(4)? {
                forgotten.push((name, body.i32()?));
            }
            body.tags()?;
        }
    }
    let told = Told {
        id: session_id,
        epoch: session_epoch,
        topics: &topics,
        forgotten: &forgotten,
    };
    let session = told.apply(&mut broker, request.connection);
    drop(broker);
    let is_incremental = session_epoch > 0;
    Ok(Outcome::Read(Reading::Fetch(Box::new(FetchRequest {
        api: request.api,
        version,
        correlation_id: request.correlation_id,
        wait_max_ms,
        bytes_min: (bytes_min.max(0) as usize).min(RESPONSE_BYTES_MAX),
        bytes_max: (bytes_max.max(0) as usize).min(RESPONSE_BYTES_MAX),
        session_error: session.err().unwrap_or(ErrorCode::None),
        session_id: session.unwrap_or(0),
        is_incremental,
        topics: match is_incremental {
            true => Vec::new(),
            false => topics
                .into_iter()
                .map(|(name, wanted)| (name.to_owned(), wanted))
                .collect(),
        },
    }))))
}

/// What a fetch says about its session.
struct Told<'a> {
    id: i32,
    epoch: i32,
    topics: &'a [(&'a str, Vec<Wanted>)],
    forgotten: &'a [(&'a str, i32)],
}

impl Told<'_> {
    /// Begins, changes or ends the connection's session; returns its id, 0 for none.
    fn apply(&self, broker: &mut Broker, connection: ConnectionId) -> Result<i32, ErrorCode> {
        let Broker { topics, sessions, .. } = broker;
        let mut id = self.id;
        if self.epoch > 0 {
            let session = sessions
                .get_mut(id)
                .filter(|session| session.connection == connection)
                .ok_or(ErrorCode::FetchSessionIdNotFound)?;
            if session.epoch != self.epoch {
                return Err(ErrorCode::InvalidFetchSessionEpoch);
            }
            session.epoch = session.epoch.checked_add(1).unwrap_or(1);
            if !self.has_legal_names() {
                sessions.end(topics, connection);
                return Err(ErrorCode::FetchSessionIdNotFound);
            }
        } else {
            sessions.end(topics, connection);
            let partitions = self.topics.iter().map(|(_, wanted)| wanted.len()).sum();
            let begun = (self.epoch == 0 && self.has_legal_names())
                .then(|| sessions.begin(connection, partitions))
                .flatten();
            let Some(begun) = begun else {
                return Ok(0);
            };
            id = begun;
        }
        for &(name, index) in self.forgotten {
            sessions.forget(topics, id, name, index);
        }
        for (name, wanted) in self.topics {
            for wanted in wanted {
                if !sessions.set(topics, id, name, wanted.index, wanted.offset, wanted.bytes_max) {
                    sessions.end(topics, connection);
                    return Err(ErrorCode::FetchSessionIdNotFound);
                }
            }
        }
        Ok(id)
    }
}

impl Told<'_> {
    /// A session remembers no name, as long as it may be, that no topic will ever have.
    fn has_legal_names(&self) -> bool {
        self.topics.iter().all(|(name, _)| name_is_legal(name))
    }
}

/// A partition of a session that is part of the response.
struct Changed {
    topic: Arc<str>,
    index: i32,
    standing: Standing,
    /// Its first batch among those found.
    first: usize,
}

/// Where a partition stands, for its part of the response.
struct Standing {
    error: ErrorCode,
    high_watermark: i64,
    log_start: i64,
    extents: usize,
    bytes: usize,
}

impl FetchRequest {
    /// Bytes of memory that the request holds while it waits.
    pub fn memory_bytes(&self) -> usize {
        let topics = self.topics.iter();
        let topic = |(name, wanted): &(String, Vec<Wanted>)| {
            size_of::<(String, Vec<Wanted>)>() + name.capacity() + wanted.capacity() * size_of::<Wanted>()
        };
        topics.map(topic).sum()
    }

    /// How long the client is willing to wait.
    pub fn wait_max(&self) -> Duration {
        Duration::from_millis(self.wait_max_ms.max(0) as u64)
    }

    /// The response, if there is enough data, an error, or no time left (`expired`); otherwise the connection is noted as waiting and None returned.
    pub fn answer(&self, shared: &Shared, connection: ConnectionId, expired: bool) -> Option<Response> {
        if self.is_incremental && self.session_error == ErrorCode::None {
            return self.answer_changes(shared, connection, expired);
        }
        let mut extents: Vec<Extent> = Vec::new();
        let mut standings: Vec<Standing> = Vec::new();
        let mut loads: Vec<(u64, bool)> = Vec::new();
        let mut bytes = 0;
        let mut failed = self.session_error != ErrorCode::None;
        let mut broker = shared.broker();
        for wanted in self.topics.iter().flat_map(|(_, wanted)| wanted) {
            let standing = self.read(&mut broker, shared, wanted, bytes, &mut extents, &mut loads);
            bytes += standing.bytes;
            failed |= standing.error != ErrorCode::None;
            standings.push(standing);
        }
        let waits_for_disk = loads.iter().any(|&(_, blocks)| blocks);
        let enough = bytes >= self.bytes_min.max(1) || (bytes > 0 && waits_for_disk);
        // Data that is on its way from the disk is worth waiting for, even beyond the client's time: an empty answer would only be asked again.
        let must =
            failed || (expired && !(waits_for_disk && bytes == 0)) || self.topics.is_empty() && expired;
        if !enough && !must {
            self.note_waiter(&mut broker, connection);
        }
        drop(broker);
        request_loads(shared, loads, (!enough && !must).then_some(connection));
        if !enough && !must {
            return None;
        }
        shared.metrics.fetched_bytes.add(bytes as u64);
        let mut standings = standings.iter();
        let answered: Vec<(&str, Vec<(i32, &Standing)>)> = match self.session_error {
            ErrorCode::None => self
                .topics
                .iter()
                .map(|(name, wanted)| {
                    let indices = wanted.iter().map(|wanted| wanted.index);
                    (name.as_str(), indices.zip(standings.by_ref()).collect())
                })
                .collect(),
            _ => Vec::new(),
        };
        Some(self.respond(&answered, &extents))
    }

    /// As `answer`, for a fetch that only tells and asks for changes: looks at the session's candidates and at nothing else.
    fn answer_changes(&self, shared: &Shared, connection: ConnectionId, expired: bool) -> Option<Response> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut loads: Vec<(u64, bool)> = Vec::new();
        let mut changed: Vec<Changed> = Vec::new();
        let (mut kept, mut served) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        let mut failed = false;
        let mut broker = shared.broker();
        let candidates = broker.sessions.get_mut(self.session_id)?.take_candidates();
        for at in candidates {
            let Broker { topics, sessions, .. } = &mut *broker;
            let Some(slot) = sessions
                .get_mut(self.session_id)
                .and_then(|session| session.slot_mut(at))
            else {
                continue;
            };
            resolve(topics, self.session_id, at, slot);
            let wanted = Wanted {
                index: slot.index,
                partition: slot.partition,
                offset: slot.offset,
                bytes_max: slot.bytes_max,
            };
            let topic = Arc::clone(&slot.topic);
            let first = extents.len();
            let standing = self.read(&mut broker, shared, &wanted, bytes, &mut extents, &mut loads);
            bytes += standing.bytes;
            failed |= standing.error != ErrorCode::None;
            if standing.bytes == 0 && standing.error == ErrorCode::None {
                // There is more than could be read now, or nothing until the next commit.
                if wanted.offset < standing.high_watermark {
                    kept.push(at);
                }
                continue;
            }
            // Behind the others, so that each has its turn; until the client says that it has come further.
            served.push(at);
            changed.push(Changed {
                topic,
                index: wanted.index,
                standing,
                first,
            });
        }
        let waits_for_disk = loads.iter().any(|&(_, blocks)| blocks);
        let enough = bytes >= self.bytes_min.max(1) || (bytes > 0 && waits_for_disk);
        let must = failed || (expired && !(waits_for_disk && bytes == 0));
        if let Some(session) = broker.sessions.get_mut(self.session_id) {
            kept.into_iter().chain(served).for_each(|at| session.keep(at));
            session.waits = !enough && !must;
        }
        drop(broker);
        request_loads(shared, loads, (!enough && !must).then_some(connection));
        if !enough && !must {
            return None;
        }
        shared.metrics.fetched_bytes.add(bytes as u64);
        changed.sort_by(|a, b| a.topic.cmp(&b.topic));
        let mut answered: Vec<(&str, Vec<(i32, &Standing)>)> = Vec::new();
        let mut ordered: Vec<Extent> = Vec::with_capacity(extents.len());
        for one in &changed {
            ordered.extend(&extents[one.first..one.first + one.standing.extents]);
            match answered.last_mut() {
                Some((topic, partitions)) if *topic == &*one.topic => {
                    partitions.push((one.index, &one.standing));
                }
                _ => answered.push((&one.topic, vec![(one.index, &one.standing)])),
            }
        }
        Some(self.respond(&answered, &ordered))
    }

    fn read(
        &self,
        broker: &mut Broker,
        shared: &Shared,
        wanted: &Wanted,
        bytes_so_far: usize,
        extents: &mut Vec<Extent>,
        loads: &mut Vec<(u64, bool)>,
    ) -> Standing {
        let partition = wanted
            .partition
            .and_then(|id| Some((id, broker.topics.partition(id)?)));
        let Some((id, partition)) = partition else {
            let error = ErrorCode::UnknownTopicOrPartition;
            return Standing {
                error,
                high_watermark: -1,
                log_start: -1,
                extents: 0,
                bytes: 0,
            };
        };
        let mut standing = Standing {
            error: ErrorCode::None,
            high_watermark: partition.high_watermark,
            log_start: partition.log_start,
            extents: 0,
            bytes: 0,
        };
        if wanted.offset < partition.log_start || wanted.offset > partition.next_offset {
            standing.error = ErrorCode::OffsetOutOfRange;
            return standing;
        }
        let room = wanted.bytes_max.min(self.bytes_max.saturating_sub(bytes_so_far));
        let may_exceed = bytes_so_far == 0;
        let extents_max = if shared.is_short_of_output() {
            EXTENTS_SHORT
        } else {
            EXTENTS_MAX
        };
        if wanted.offset >= partition.high_watermark
            || extents.len() >= extents_max
            || (room == 0 && !may_exceed)
        {
            return standing;
        }
        let limits = Limits {
            bytes_max: room,
            at_least_one: may_exceed,
            extents_max,
        };
        let before = extents.len();
        let found = broker.read(id, wanted.offset, limits, extents);
        standing.extents = extents.len() - before;
        standing.bytes = found.bytes;
        if let Some(chunk) = found.load {
            if lock(&shared.loads).failed.contains_key(&chunk) {
                standing.error = ErrorCode::KafkaStorageError;
            } else {
                loads.push((chunk, true));
            }
        }
        loads.extend(found.ahead.into_iter().map(|chunk| (chunk, false)));
        standing
    }

    fn note_waiter(&self, broker: &mut Broker, connection: ConnectionId) {
        for wanted in self.topics.iter().flat_map(|(_, wanted)| wanted) {
            let Some(partition) = wanted.partition.and_then(|id| broker.topics.partition_mut(id)) else {
                continue;
            };
            // Who asks for a partition again and again is the last one already: nobody else waits for the search.
            if partition.waiters.last() != Some(&connection) && !partition.waiters.contains(&connection) {
                partition.waiters.push(connection);
            }
        }
    }

    /// The connection waits no longer.
    pub fn forget_waiter(&self, broker: &mut Broker, connection: ConnectionId) {
        if let Some(session) = broker.sessions.get_mut(self.session_id) {
            session.waits = false;
        }
        for wanted in self.topics.iter().flat_map(|(_, wanted)| wanted) {
            if let Some(partition) = wanted.partition.and_then(|id| broker.topics.partition_mut(id)) {
                partition.waiters.retain(|waiter| *waiter != connection);
            }
        }
    }

    /// The response with these topics and partitions; `extents` has their batches, in the same order.
    fn respond(&self, answered: &[(&str, Vec<(i32, &Standing)>)], extents: &[Extent]) -> Response {
        let mut out = begin(self.api, self.version, self.correlation_id);
        let mut cuts = Vec::new();
        let mut batch_bytes = 0;
        out.i32(0);
        if self.version >= 7 {
            out.i16(self.session_error as i16);
            out.i32(self.session_id);
        }
        out.array(answered.len());
        for (name, partitions) in answered {
            out.string(name);
            out.array(partitions.len());
            for &(index, standing) in partitions {
                self.respond_partition(&mut out, index, standing);
                if standing.extents > 0 {
                    cuts.push((out.len(), standing.extents));
                    batch_bytes += standing.bytes;
                }
                out.tags();
            }
            out.tags();
        }
        out.tags();
        Response::with_batches(finish(out, batch_bytes), &cuts, extents)
    }

    fn respond_partition(&self, out: &mut Writer, index: i32, standing: &Standing) {
        out.i32(index);
        out.i16(standing.error as i16);
        out.i64(standing.high_watermark);
        out.i64(standing.high_watermark);
        if self.version >= 5 {
            out.i64(standing.log_start);
        }
        // Null: there are no transactions, hence none that were aborted.
        out.nullable_length(None);
        if self.version >= 11 {
            out.i32(-1);
        }
        out.nullable_length(Some(standing.bytes));
    }
}

/// Asks for chunks; `connection` is woken when those are there that its answer waits for.
fn request_loads(shared: &Shared, mut loads: Vec<(u64, bool)>, connection: Option<ConnectionId>) {
    // What somebody waits for goes first.
    loads.sort_by_key(|&(_, blocks)| !blocks);
    for (chunk, blocks) in loads {
        if blocks || shared.may_load_ahead() {
            shared.request_load(chunk, connection.filter(|_| blocks));
        }
    }
}
