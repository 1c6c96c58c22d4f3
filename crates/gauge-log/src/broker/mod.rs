//! The broker's state behind one lock, and what is done to it. No I/O happens while the lock is held.

pub mod change;
pub mod checkpoint;
pub mod groups;
pub mod marks;
pub mod producers;
pub mod sessions;
pub mod times;
pub mod topics;

use std::collections::BTreeMap;
use std::sync::Arc;

use change::Change;
use groups::Groups;
use producers::Verdict;
use sessions::Sessions;
use topics::{ConnectionId, Topics};

use crate::api::error::ErrorCode;
use crate::batch::Header;
use crate::mutants::{self, Mutant};
use crate::storage::cache::ChunkCache;
use crate::storage::chunk::BatchPlace;
use crate::storage::journal::{Full, Journal, Pending, Room};
use crate::wire::{Malformed, Read};

/// Batches of one response at most, which bounds what a connection that does not read can hold.
pub const EXTENTS_MAX: usize = 4096;
/// The same while memory for responses is short.
pub const EXTENTS_SHORT: usize = 64;

/// A batch's bytes, as a place in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Start of the chunk that holds it.
    pub chunk: u64,
    /// First byte in the chunk.
    pub at: u32,
    /// Number of bytes.
    pub bytes: u32,
}

/// How much a read of one partition may add.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of batches.
    pub bytes_max: usize,
    /// Whether one batch may be larger than that.
    pub at_least_one: bool,
    /// Batches in all, with those that are there already.
    pub extents_max: usize,
}

/// What a read of one partition found.
#[derive(Debug, Default)]
pub struct Found {
    /// Bytes of the batches that were added.
    pub bytes: usize,
    /// A chunk that must be read from disk before more can be found.
    pub load: Option<u64>,
    /// Chunks that will be wanted soon by whoever reads on, in order.
    pub ahead: Vec<u64>,
}

/// Everything that the log knows.
#[derive(Debug)]
pub struct Broker {
    /// Topics and partitions.
    pub topics: Topics,
    /// Groups and committed offsets.
    pub groups: Groups,
    /// Fetch sessions.
    pub sessions: Sessions,
    /// The end of the journal.
    pub journal: Journal,
    /// The next producer id.
    pub next_producer_id: i64,
    /// Producer ids below this one are taken in the journal.
    pub producer_ids_taken: i64,
    cache: Arc<ChunkCache>,
    places: Vec<BatchPlace>,
}

/// Chunks that are read from disk before their reader asks for them, so that reading, checking and sending overlap.
const AHEAD_CHUNKS: usize = 3;
/// Bytes of a change at most, names and settings not counted.
const CHANGE_BYTES: usize = 64;
/// Bytes of all changes of one request at most: what the smallest memory has room for.
const CHANGES_BYTES_MAX: usize = 10 << 20;
/// Producer ids taken with one journal entry.
const PRODUCER_IDS_AT_ONCE: i64 = 1000;

impl Broker {
    /// Puts the recovered parts together.
    pub fn new(
        topics: Topics,
        groups: Groups,
        journal: Journal,
        producer_ids_taken: i64,
        cache: Arc<ChunkCache>,
    ) -> Self {
        Self {
            topics,
            groups,
            sessions: Sessions::default(),
            journal,
            next_producer_id: producer_ids_taken,
            producer_ids_taken,
            cache,
            places: Vec::new(),
        }
    }

    /// Stores a checked batch; `Journal::reserve` was called for it. Returns the base offset it has, and for a large one the room that it is to be copied to.
    pub fn append(
        &mut self,
        partition_id: u32,
        batch: &[u8],
        header: &Header,
    ) -> Result<(i64, Option<Room>), ErrorCode> {
        let (marks_max, producers_max) = (self.topics.chunk_marks_max(), self.topics.producers_max());
        let partition = self
            .topics
            .partition_mut(partition_id)
            .ok_or(ErrorCode::UnknownTopicOrPartition)?;
        match partition.producers.judge(header) {
            Verdict::New => {}
            Verdict::Duplicate(base_offset) => return Ok((base_offset, None)),
            Verdict::OutOfOrder => return Err(ErrorCode::OutOfOrderSequenceNumber),
            Verdict::Fenced => return Err(ErrorCode::InvalidProducerEpoch),
        }
        let base_offset = partition.next_offset;
        let (chunk, room) =
            self.journal
                .append_batch(partition_id, batch, header, base_offset, &mut partition.last);
        let marks = partition.note_chunk(base_offset, chunk, header.timestamp_ms_max, marks_max);
        partition.next_offset = base_offset + header.offset_count;
        let known = partition
            .producers
            .note(producers::mark(header, base_offset), producers_max);
        if mutants::is(Mutant::ShownBeforeWritten) {
            partition.high_watermark = partition.next_offset;
        }
        self.topics.add_marks(marks);
        self.topics.add_producers(known);
        Ok((base_offset, room))
    }

    /// Makes room for `count` changes with names and settings of `bytes` in all, which are then made with `change_reserved`: a request is handled as a whole, or later (`Full`).
    /// One that takes more than there will ever be is malformed.
    pub fn reserve_changes(&mut self, bytes: usize, count: usize) -> Read<Result<(), Full>> {
        let bytes = bytes + count * CHANGE_BYTES;
        if bytes > CHANGES_BYTES_MAX {
            return Err(Malformed("it asks for too many changes at once"));
        }
        Ok(match count {
            0 => Ok(()),
            _ => self.journal.reserve(bytes, count),
        })
    }

    /// Applies a change and writes it to the journal; returns the position that must be durable before it is acknowledged, and connections to wake.
    pub fn change(&mut self, change: Change) -> Result<(u64, Vec<ConnectionId>), Full> {
        let bytes = change.to_bytes();
        self.journal.reserve(bytes.len(), 1)?;
        Ok(self.append_change(change, &bytes))
    }

    /// As `change`, for one of those that `reserve_changes` was called for.
    pub fn change_reserved(&mut self, change: Change) -> (u64, Vec<ConnectionId>) {
        let bytes = change.to_bytes();
        self.append_change(change, &bytes)
    }

    fn append_change(&mut self, change: Change, bytes: &[u8]) -> (u64, Vec<ConnectionId>) {
        let position = self.journal.append_change(bytes);
        if let Change::RecordsDeleted { starts } = &change {
            for &(partition, log_start) in starts {
                self.journal.publish_start(partition, log_start);
            }
        }
        (position, self.apply(change))
    }

    /// Notes that a commit was written: shows readers what it holds. Returns connections to wake.
    pub fn note_committed(&mut self, pending: Pending) -> Vec<ConnectionId> {
        self.journal.note_durable(pending.end);
        let mut woken = Vec::new();
        // A partition that is gone was deleted since.
        for (partition, next_offset) in pending.published {
            if let Some(partition) = self.topics.partition_mut(partition) {
                partition.high_watermark = partition.high_watermark.max(next_offset);
                woken.append(&mut partition.waiters);
                for &watcher in &partition.watchers {
                    self.sessions.note(watcher, &mut woken);
                }
            }
        }
        for (partition, log_start) in pending.started {
            if let Some(partition) = self.topics.partition_mut(partition) {
                let marks = partition.start_at(log_start);
                self.topics.add_marks(marks);
            }
        }
        woken
    }

    /// Applies a change that is in the journal already; returns connections to wake.
    fn apply(&mut self, change: Change) -> Vec<ConnectionId> {
        let mut woken = apply(
            &mut self.topics,
            &mut self.groups,
            &mut self.producer_ids_taken,
            change,
        );
        for watcher in self.topics.take_orphaned() {
            self.sessions.note(watcher, &mut woken);
        }
        woken
    }

    /// A producer id that was never given out before.
    pub fn take_producer_id(&mut self) -> Result<(i64, u64), Full> {
        let mut position = self.journal.end();
        if self.next_producer_id == self.producer_ids_taken {
            let next = self.producer_ids_taken + PRODUCER_IDS_AT_ONCE;
            position = self.change(Change::ProducerIdsTaken { next })?.0;
        }
        self.next_producer_id += 1;
        Ok((self.next_producer_id - 1, position))
    }

    /// Adds the batches of a partition from `offset` on to `extents`, within the limits and as far as they are in memory.
    /// The offset lies between the start of the log and the high watermark.
    pub fn read(
        &mut self,
        partition_id: u32,
        offset: i64,
        limits: Limits,
        extents: &mut Vec<Extent>,
    ) -> Found {
        let mut found = Found::default();
        let cursor = self.walk(partition_id, offset, limits, extents, &mut found);
        if let Some((offset, chunk)) = cursor {
            found.ahead = self.chunks_ahead(partition_id, chunk);
            if let Some(partition) = self.topics.partition_mut(partition_id) {
                partition.note_cursor(offset, chunk);
            }
        }
        found
    }

    /// Does the work of `read`; returns an offset and a chunk such that everything from that offset on lies in that chunk or behind it.
    fn walk(
        &mut self,
        partition_id: u32,
        offset: i64,
        limits: Limits,
        extents: &mut Vec<Extent>,
        found: &mut Found,
    ) -> Option<(i64, u64)> {
        let partition = self.topics.partition(partition_id)?;
        let (mut offset, high_watermark) = (offset, partition.high_watermark);
        let mut chunk_start = partition.chunk_for(offset);
        while let Some(start) = chunk_start {
            if offset >= high_watermark {
                return Some((offset, start));
            }
            let chunk;
            self.places.clear();
            let places = if start == self.journal.active_start() {
                self.journal
                    .active_places(&partition.last, offset, &mut self.places);
                &self.places[..]
            } else {
                let Some(resident) = self.cache.get(start) else {
                    found.load = Some(start);
                    return Some((offset, start));
                };
                chunk = resident;
                chunk
                    .directory
                    .get()
                    .map_or(&[][..], |directory| directory.from_offset(partition_id, offset))
            };
            for place in places {
                let wanted = found.bytes + place.bytes as usize <= limits.bytes_max
                    || (limits.at_least_one && found.bytes == 0);
                if place.next_offset() > high_watermark || !wanted || extents.len() >= limits.extents_max {
                    return Some((offset, start));
                }
                extents.push(Extent {
                    chunk: start,
                    at: place.at,
                    bytes: place.bytes,
                });
                found.bytes += place.bytes as usize;
                offset = place.next_offset();
            }
            chunk_start = match partition.thinned {
                true => self.journal.start_after(start),
                false => partition.chunk_after(start),
            };
        }
        None
    }

    /// The chunks behind `chunk` that a reader of the partition wants next and that are not in memory.
    fn chunks_ahead(&self, partition_id: u32, chunk: u64) -> Vec<u64> {
        let Some(partition) = self.topics.partition(partition_id) else {
            return Vec::new();
        };
        let after = |&start: &u64| match partition.thinned {
            true => self.journal.start_after(start),
            false => partition.chunk_after(start),
        };
        std::iter::successors(after(&chunk), after)
            .take(AHEAD_CHUNKS)
            .filter(|&start| !self.cache.contains(start))
            .collect()
    }
}

/// Applies a change to the state; used for changes as they happen, for the journal's entries on recovery, and for checkpoints.
/// Returns connections that wait for something that is gone.
pub fn apply(
    topics: &mut Topics,
    groups: &mut Groups,
    producer_ids_taken: &mut i64,
    change: Change,
) -> Vec<ConnectionId> {
    match change {
        Change::TopicCreated {
            id,
            name,
            first_partition,
            partitions,
            configs,
        } => {
            if topics.create(id, &name, configs.into_iter().collect::<BTreeMap<_, _>>()) {
                topics.add_partitions(&id, first_partition, partitions);
            }
        }
        Change::PartitionsAdded {
            id,
            first_partition,
            partitions,
        } => {
            topics.add_partitions(&id, first_partition, partitions);
        }
        Change::TopicDeleted { id } => {
            if let Some((topic, waiters)) = topics.delete(&id) {
                groups.forget_topic(&topic.name);
                return waiters;
            }
        }
        Change::OffsetsCommitted { group, offsets } => groups.store_offsets(&group, offsets),
        Change::GroupDeleted { group } => groups.delete(&group),
        Change::TopicConfigured { id, configs } => topics.configure(&id, configs.into_iter().collect()),
        Change::OffsetsDeleted { group, partitions } => groups.forget_offsets(&group, partitions),
        Change::ProducerIdsTaken { next } => *producer_ids_taken = next,
        Change::RecordsDeleted { starts } => {
            for (partition, log_start) in starts {
                if let Some(partition) = topics.partition_mut(partition) {
                    partition.deleted_before = partition.deleted_before.max(log_start);
                }
            }
        }
        Change::PartitionAt {
            partition,
            log_start,
            next_offset,
        } => {
            if let Some(partition) = topics.partition_mut(partition) {
                partition.deleted_before = log_start;
                partition.next_offset = next_offset;
            }
        }
        Change::ProducerAt { partition, mark } => {
            let producers_max = topics.producers_max();
            if let Some(partition) = topics.partition_mut(partition) {
                let known = partition.producers.note(mark, producers_max);
                topics.add_producers(known);
            }
        }
        Change::PartitionIdsTaken { next } => topics.take_partitions(next),
    }
    Vec::new()
}
