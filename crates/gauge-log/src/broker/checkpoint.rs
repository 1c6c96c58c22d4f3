//! Files beside the journal that make recovery short: the state at a position (`.state`), and where each partition's records lie in a complete segment (`.index`).
//!
//! Both are only shortcuts. A state that is missing or damaged makes recovery begin at an older one; an index that is missing or damaged makes it read that segment.

use std::collections::VecDeque;
use std::io;

use super::Broker;
use super::change::{Change, CommittedOffset};
use super::marks::Mark;
use crate::mutants::{self, Mutant};
use crate::storage::buffer::BLOCK_BYTES;
use crate::storage::disk::{Access, Disk};
use crate::storage::entry::Counts;
use crate::storage::journal::ChunkExtent;
use crate::wire::{Malformed, Read, Reader, Writer};

/// The extension of a file that is being written and has not got its name yet.
pub const UNFINISHED_EXTENSION: &str = "unfinished";
const STATE_MAGIC: &[u8; 8] = b"SGLSTAT2";
const INDEX_MAGIC: &[u8; 8] = b"SGLINDX3";
/// The first bytes of a state that an earlier version wrote.
pub const STATE_MAGIC_OF_FORMAT_1: &[u8; 8] = b"SGLSTAT1";
/// Offsets per change when a group's offsets are written to a state.
const OFFSETS_PER_CHANGE: usize = 1000;

/// The state as changes, and the journal position that it stands for.
#[derive(Debug, Default)]
pub struct State {
    /// Everything before this position is in the state.
    pub position: u64,
    /// Where the last entry before it ends.
    pub last_end: u64,
    /// What the journal holds before it.
    pub counts: Counts,
    /// The changes that lead to it.
    pub changes: Vec<Change>,
}

/// Writes the current state: call under the broker's lock.
pub fn encode_state(broker: &Broker) -> (u64, Vec<u8>) {
    let mut position = broker.journal.end();
    if mutants::is(Mutant::StateOneStepTooNew) {
        position = position.next_multiple_of(BLOCK_BYTES as u64) + 8;
    }
    let counts = broker.journal.counts();
    let mut out = Writer::new(false);
    out.i64(position as i64);
    out.i64(broker.journal.last_end() as i64);
    out.i32(counts.changes as i32);
    out.i32(counts.records as i32);
    let mut put = |change: Change| change.encode(&mut out);
    put(Change::ProducerIdsTaken {
        next: broker.producer_ids_taken,
    });
    if !mutants::is(Mutant::PartitionIdsReused) {
        put(Change::PartitionIdsTaken {
            next: broker.topics.next_partition(),
        });
    }
    for topic in broker.topics.iter() {
        let configs = topic.configs.clone().into_iter().collect();
        let id = topic.id;
        let name = topic.name.clone();
        put(Change::TopicCreated {
            id,
            name,
            first_partition: 0,
            partitions: 0,
            configs,
        });
        for &partition in &topic.partitions {
            put(Change::PartitionsAdded {
                id,
                first_partition: partition,
                partitions: 1,
            });
        }
    }
    for (id, partition) in broker.topics.partitions() {
        let log_start = match mutants::is(Mutant::StateForgetsLogStarts) {
            true => 0,
            false => partition.deleted_before,
        };
        let next_offset = partition.next_offset;
        put(Change::PartitionAt {
            partition: id,
            log_start,
            next_offset,
        });
        let is_forgetful = mutants::is(Mutant::StateForgetsProducers);
        for &mark in partition.producers.marks().filter(|_| !is_forgetful) {
            put(Change::ProducerAt { partition: id, mark });
        }
    }
    for (name, group) in broker.groups.iter() {
        let offsets: Vec<CommittedOffset> = group
            .offsets
            .iter()
            .map(|((topic, partition), (offset, metadata))| CommittedOffset {
                topic: topic.clone(),
                partition: *partition,
                offset: *offset,
                metadata: metadata.clone(),
            })
            .collect();
        for offsets in offsets.chunks(OFFSETS_PER_CHANGE) {
            put(Change::OffsetsCommitted {
                group: name.clone(),
                offsets: offsets.to_vec(),
            });
        }
    }
    (position, out.into_bytes())
}

/// Reads a state.
pub fn decode_state(bytes: &[u8]) -> Read<State> {
    let mut reader = Reader::new(bytes, false);
    let position = reader.i64()? as u64;
    let last_end = reader.i64()? as u64;
    let counts = Counts {
        changes: reader.i32()? as u32,
        records: reader.i32()? as u32,
    };
    let mut changes = Vec::new();
    while reader.remaining() > 0 {
        changes.push(Change::decode(&mut reader)?);
    }
    Ok(State {
        position,
        last_end,
        counts,
        changes,
    })
}

/// Partition, whether marks are missing, and the marks.
pub type PartitionMarks = (u32, bool, Vec<Mark>);

/// What an index says about one segment.
#[derive(Debug, Default)]
pub struct Index {
    /// Its chunks.
    pub chunks: Vec<ChunkExtent>,
    /// What each partition has in them.
    pub marks: Vec<PartitionMarks>,
}

/// Writes what is known of the chunks from `from` to `to`: call under the broker's lock.
pub fn encode_index(broker: &Broker, from: u64, to: u64) -> Vec<u8> {
    let mut out = Writer::new(false);
    let chunks: Vec<&ChunkExtent> = range(&broker.journal.chunks, from, to).collect();
    out.array(chunks.len());
    for chunk in chunks {
        out.i64(chunk.start as i64);
        out.i64(chunk.end as i64);
        out.i64(chunk.last_end as i64);
        out.i64(chunk.timestamp_ms_max);
    }
    for (id, partition) in broker.topics.partitions() {
        let all = &partition.chunk_marks;
        let first = all.partition_point(|mark| mark.chunk < from);
        let mut behind = all.partition_point(|mark| mark.chunk < to);
        if mutants::is(Mutant::IndexOneChunkShort) {
            behind = behind.saturating_sub(1).max(first);
        }
        let marks = &all[first..behind];
        if !marks.is_empty() {
            out.i32(id as i32);
            out.bool(partition.thinned);
            out.array(marks.len());
            for mark in marks {
                out.i64(mark.first_offset);
                out.i64(mark.chunk as i64);
                out.i64(match mutants::is(Mutant::IndexForgetsTimes) {
                    true => 0,
                    false => mark.timestamp_ms_max,
                });
            }
        }
    }
    out.into_bytes()
}

fn range(chunks: &VecDeque<ChunkExtent>, from: u64, to: u64) -> impl Iterator<Item = &ChunkExtent> {
    let first = chunks.partition_point(|chunk| chunk.start < from);
    chunks.range(first..).take_while(move |chunk| chunk.start < to)
}

/// Reads an index.
pub fn decode_index(bytes: &[u8]) -> Read<Index> {
    let mut reader = Reader::new(bytes, false);
    let mut index = Index::default();
    for _ in 0..reader.array(32)? {
        index.chunks.push(ChunkExtent {
            start: reader.i64()? as u64,
            end: reader.i64()? as u64,
            last_end: reader.i64()? as u64,
            timestamp_ms_max: reader.i64()?,
        });
    }
    while reader.remaining() > 0 {
        let partition = reader.i32()? as u32;
        let thinned = reader.bool()?;
        let count = reader.array(24)?;
        let marks = (0..count)
            .map(|_| Ok(Mark::new(reader.i64()?, reader.i64()? as u64, reader.i64()?)))
            .collect::<Read<Vec<_>>>()?;
        index.marks.push((partition, thinned, marks));
    }
    Ok(index)
}

/// Writes a file that is either there, whole, or not there: under another name first, forced to disk, then renamed.
pub fn write_file(disk: &dyn Disk, name: &str, content: &[u8]) -> io::Result<()> {
    let unfinished = format!("{name}.{UNFINISHED_EXTENSION}");
    if mutants::is(Mutant::StateNotSynced) {
        disk.open(&unfinished, Access::Cached)?.write_at(content, 0)?;
    } else {
        disk.write(&unfinished, content)?;
    }
    disk.rename(&unfinished, name)?;
    disk.sync_names()
}

/// A file's bytes.
pub fn file_of(body: &[u8], is_state: bool) -> Vec<u8> {
    let magic: &[u8] = if is_state { STATE_MAGIC } else { INDEX_MAGIC };
    [magic, &gauge_load::crc::crc32c(body).to_le_bytes(), body].concat()
}

/// Takes the body out of a file's bytes; an error for anything that is not whole.
pub fn body_of(bytes: &[u8], is_state: bool) -> Result<&[u8], String> {
    let damaged = || Malformed("its checksum does not match").to_string();
    let (head, body) = bytes.split_at_checked(12).ok_or_else(damaged)?;
    let magic: &[u8] = if is_state { STATE_MAGIC } else { INDEX_MAGIC };
    if head[..8] != *magic || head[8..12] != gauge_load::crc::crc32c(body).to_le_bytes() {
        return Err(damaged());
    }
    Ok(body)
}
