//! Fetch: batches from memory, or from the chunks that are read from disk for it; waits for data if the client says so.
//!
//! Fetch sessions (KIP-227) are answered as "no session": every fetch is complete in itself, as it is for clients that know no sessions.

use std::time::Duration;

use super::error::ErrorCode;
use super::{Api, Outcome, Request, begin, finish};
use crate::broker::topics::ConnectionId;
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
    let mut session_error = ErrorCode::None;
    if version >= 7 {
        let session_id = body.i32()?;
        let _session_epoch = body.i32()?;
        if session_id != 0 {
            session_error = ErrorCode::FetchSessionIdNotFound;
        }
    }
    let broker = request.shared.broker();
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
        topics.push((name.to_owned(), wanted));
    }
    drop(broker);
    Ok(Outcome::Fetch(Box::new(FetchRequest {
        api: request.api,
        version,
        correlation_id: request.correlation_id,
        wait_max_ms,
        bytes_min: (bytes_min.max(0) as usize).min(RESPONSE_BYTES_MAX),
        bytes_max: (bytes_max.max(0) as usize).min(RESPONSE_BYTES_MAX),
        session_error,
        topics,
    })))
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
    /// How long the client is willing to wait.
    pub fn wait_max(&self) -> Duration {
        Duration::from_millis(self.wait_max_ms.max(0) as u64)
    }

    /// The response, if there is enough data, an error, or no time left (`expired`); otherwise the connection is noted as waiting and None returned.
    pub fn answer(&self, shared: &Shared, connection: ConnectionId, expired: bool) -> Option<Response> {
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
        // What somebody waits for goes first.
        loads.sort_by_key(|&(_, blocks)| !blocks);
        for (chunk, blocks) in loads {
            if blocks || shared.may_load_ahead() {
                shared.request_load(chunk, (blocks && !enough && !must).then_some(connection));
            }
        }
        if !enough && !must {
            return None;
        }
        shared.metrics.fetched_bytes.add(bytes as u64);
        Some(self.respond(&standings, &extents))
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
            if let Some(partition) = wanted.partition.and_then(|id| broker.topics.partition_mut(id))
                && !partition.waiters.contains(&connection)
            {
                partition.waiters.push(connection);
            }
        }
    }

    /// The connection waits no longer.
    pub fn forget_waiter(&self, broker: &mut Broker, connection: ConnectionId) {
        for wanted in self.topics.iter().flat_map(|(_, wanted)| wanted) {
            if let Some(partition) = wanted.partition.and_then(|id| broker.topics.partition_mut(id)) {
                partition.waiters.retain(|waiter| *waiter != connection);
            }
        }
    }

    fn respond(&self, standings: &[Standing], extents: &[Extent]) -> Response {
        let mut out = begin(self.api, self.version, self.correlation_id);
        let mut cuts = Vec::new();
        let mut batch_bytes = 0;
        out.i32(0);
        if self.version >= 7 {
            out.i16(self.session_error as i16);
            out.i32(0);
        }
        let answered = if self.session_error == ErrorCode::None {
            &self.topics[..]
        } else {
            &[]
        };
        out.array(answered.len());
        let mut standings = standings.iter();
        for (name, wanted) in answered {
            out.string(name);
            out.array(wanted.len());
            for (wanted, standing) in wanted.iter().zip(standings.by_ref()) {
                self.respond_partition(&mut out, wanted.index, standing);
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
