//! Files beside the journal that make recovery short: the state at a position (`.state`), and where each partition's records lie in a complete segment (`.index`).
//!
//! Both are only shortcuts. A state that is missing or damaged makes recovery begin at an older one; an index that is missing or damaged makes it read that segment.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::Broker;
use super::change::{Change, CommittedOffset};
use crate::storage::journal::ChunkExtent;
use crate::storage::segment::sync_directory;
use crate::wire::{Malformed, Read, Reader, Writer};

const STATE_MAGIC: &[u8; 8] = b"SGLSTAT1";
const INDEX_MAGIC: &[u8; 8] = b"SGLINDX1";
/// Offsets per change when a group's offsets are written to a state.
const OFFSETS_PER_CHANGE: usize = 1000;

/// The state as changes, and the journal position that it stands for.
#[derive(Debug)]
pub struct State {
    /// Everything before this position is in the state.
    pub position: u64,
    /// The changes that lead to it.
    pub changes: Vec<Change>,
}

/// Writes the current state: call under the broker's lock.
pub fn encode_state(broker: &Broker) -> (u64, Vec<u8>) {
    let position = broker.journal.end();
    let mut out = Writer::new(false);
    out.i64(position as i64);
    let mut put = |change: Change| change.encode(&mut out);
    put(Change::ProducerIdsTaken {
        next: broker.producer_ids_taken,
    });
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
        let (log_start, next_offset) = (partition.log_start, partition.next_offset);
        put(Change::PartitionAt {
            partition: id,
            log_start,
            next_offset,
        });
        for &mark in partition.producers.marks() {
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
    let mut changes = Vec::new();
    while reader.remaining() > 0 {
        changes.push(Change::decode(&mut reader)?);
    }
    Ok(State { position, changes })
}

/// Partition, whether marks are missing, and the marks: (first offset in a chunk, start of that chunk).
pub type PartitionMarks = (u32, bool, Vec<(i64, u64)>);

/// What an index says about one segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// (start, end, largest timestamp) of its chunks.
    pub chunks: Vec<(u64, u64, i64)>,
    /// For each partition: whether marks are missing, and (first offset in a chunk, that chunk's start).
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
        out.i64(chunk.timestamp_ms_max);
    }
    for (id, partition) in broker.topics.partitions() {
        let all = &partition.chunk_marks;
        let first = all.partition_point(|&(_, start)| start < from);
        let marks = &all[first..all.partition_point(|&(_, start)| start < to)];
        if !marks.is_empty() {
            out.i32(id as i32);
            out.bool(partition.thinned);
            out.array(marks.len());
            for &(offset, start) in marks {
                out.i64(offset);
                out.i64(start as i64);
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
    for _ in 0..reader.array(24)? {
        index
            .chunks
            .push((reader.i64()? as u64, reader.i64()? as u64, reader.i64()?));
    }
    while reader.remaining() > 0 {
        let partition = reader.i32()? as u32;
        let thinned = reader.bool()?;
        let count = reader.array(16)?;
        let marks = (0..count)
            .map(|_| Ok((reader.i64()?, reader.i64()? as u64)))
            .collect::<Read<Vec<_>>>()?;
        index.marks.push((partition, thinned, marks));
    }
    Ok(index)
}

/// Writes a file that is either there, whole, or not there: under another name first, forced to disk, then renamed.
pub fn write_file(path: &Path, is_state: bool, body: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    let mut file = File::create(&unfinished)?;
    file.write_all(&file_of(body, is_state))?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// A file's bytes.
pub fn file_of(body: &[u8], is_state: bool) -> Vec<u8> {
    let magic: &[u8] = if is_state { STATE_MAGIC } else { INDEX_MAGIC };
    [magic, &gauge_load::crc::crc32c(body).to_le_bytes(), body].concat()
}

/// Reads a file that `write_file` wrote; an error for anything else.
pub fn read_file(path: &Path, is_state: bool) -> Result<Vec<u8>, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let damaged = || Malformed("its checksum does not match").to_string();
    let (head, body) = bytes.split_at_checked(12).ok_or_else(damaged)?;
    let magic: &[u8] = if is_state { STATE_MAGIC } else { INDEX_MAGIC };
    if head[..8] != *magic || head[8..12] != gauge_load::crc::crc32c(body).to_le_bytes() {
        return Err(damaged());
    }
    Ok(body.to_vec())
}
