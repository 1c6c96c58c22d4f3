//! Chunks: the pieces of the journal that are in memory, each with a directory of the batches it holds.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::buffer::AlignedBuffer;
use super::mapping::Mapping;

/// Bytes of a chunk's buffer, unless a test wants smaller ones: also the piece in which the past is read from disk.
pub const CHUNK_BYTES: usize = 4 << 20;
/// Entries of one chunk at most, which bounds the memory of its directory (1 MiB).
pub const CHUNK_ENTRIES_MAX: usize = 32 * 1024;

/// One record batch inside a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPlace {
    /// Offset of the batch's first record.
    pub base_offset: i64,
    /// Offsets that the batch takes.
    pub offset_count: u32,
    /// Internal id of the partition.
    pub partition: u32,
    /// Where the batch's bytes (not its entry) begin in the chunk.
    pub at: u32,
    /// Bytes of the batch.
    pub bytes: u32,
    /// Largest record timestamp, ms, as the batch's header has it.
    pub timestamp_ms_max: i64,
}

impl BatchPlace {
    /// The offset behind the batch.
    pub fn next_offset(&self) -> i64 {
        self.base_offset + i64::from(self.offset_count)
    }
}

/// The batches of a chunk that is complete, sorted by partition and offset.
#[derive(Debug, Default)]
pub struct Directory {
    places: Vec<BatchPlace>,
}

impl Directory {
    /// Sorts places that are in journal order, so that the offsets of each partition already ascend.
    pub fn new(places: &[BatchPlace]) -> Self {
        // Numbers are sorted, not places: those are five times as large, and a drain sorts a thousand for each megabyte.
        let mut order: Vec<u64> = (0u64..)
            .zip(places)
            .map(|(at, place)| u64::from(place.partition) << 32 | at)
            .collect();
        order.sort_unstable();
        Self {
            places: order.iter().map(|&key| places[key as u32 as usize]).collect(),
        }
    }

    /// The batches of a partition from the one that holds `offset` (or the first behind it) on.
    pub fn from_offset(&self, partition: u32, offset: i64) -> &[BatchPlace] {
        let from = self
            .places
            .partition_point(|place| (place.partition, place.next_offset()) <= (partition, offset));
        let rest = &self.places[from..];
        &rest[..rest.partition_point(|place| place.partition == partition)]
    }

    /// All batches, sorted by partition and offset.
    pub fn places(&self) -> &[BatchPlace] {
        &self.places
    }
}

/// Where a chunk's bytes are.
#[derive(Debug)]
pub enum Memory {
    /// In memory of the log's own.
    Own(AlignedBuffer),
    /// In the page cache.
    Mapped(Mapping),
}

/// A piece of the journal in memory.
#[derive(Debug)]
pub struct Chunk {
    /// Where the chunk begins in the journal; also its identity.
    pub start: u64,
    memory: Memory,
    /// Set when the chunk is complete: sealed by the journal, or read from disk and checked.
    pub directory: OnceLock<Directory>,
    /// Whether everything in the chunk is in its file, so that the memory may be used for something else.
    pub clean: AtomicBool,
    /// When the chunk was last used (a count of uses, not a time), for the choice of what to drop.
    pub last_use: AtomicU64,
    /// Whether the chunk was read from disk, for readers of the past.
    pub from_disk: bool,
}

impl Chunk {
    /// An empty chunk that begins at journal position `start`.
    pub fn new(start: u64, memory: Memory, from_disk: bool) -> Self {
        Self {
            start,
            memory,
            directory: OnceLock::new(),
            clean: AtomicBool::new(from_disk),
            last_use: AtomicU64::new(0),
            from_disk,
        }
    }

    /// The memory, when nobody else uses the chunk any more.
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// The buffer that the journal fills; see its contracts.
    pub fn buffer(&self) -> &AlignedBuffer {
        match &self.memory {
            Memory::Own(buffer) => buffer,
            Memory::Mapped(_) => unreachable!("the journal's own chunks are in memory of its own"),
        }
    }

    /// The bytes `from..to`.
    ///
    /// # Safety
    /// As for `AlignedBuffer::bytes`.
    pub unsafe fn bytes(&self, from: usize, to: usize) -> &[u8] {
        match &self.memory {
            // SAFETY: the caller's promise.
            Memory::Own(buffer) => unsafe { buffer.bytes(from, to) },
            Memory::Mapped(mapping) => &mapping.bytes()[from..to],
        }
    }

    /// Whether the chunk may be dropped from memory.
    pub fn is_clean(&self) -> bool {
        self.clean.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_finds_the_batch_that_holds_an_offset() {
        let place = |partition, base_offset| BatchPlace {
            base_offset,
            offset_count: 10,
            partition,
            at: 0,
            bytes: 1,
            timestamp_ms_max: 0,
        };
        let directory = Directory::new(&[place(2, 0), place(1, 50), place(2, 10), place(1, 60), place(3, 0)]);
        let bases = |partition, offset| {
            directory
                .from_offset(partition, offset)
                .iter()
                .map(|place| place.base_offset)
                .collect::<Vec<_>>()
        };
        assert_eq!(bases(1, 0), [50, 60]);
        assert_eq!(bases(1, 59), [50, 60]);
        assert_eq!(bases(1, 60), [60]);
        assert_eq!(bases(1, 70), [0i64; 0]);
        assert_eq!(bases(2, 9), [0, 10]);
        assert_eq!(bases(4, 0), [0i64; 0]);
    }
}
