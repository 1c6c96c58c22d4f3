//! The end of the journal: appending, sealing chunks, and handing out what is to be written.
//!
//! Everything here touches memory only; files are written by `commit`. All of it happens under the broker's lock, but for the bytes of large batches: their owner copies
//! them into the `Room` that was made for them, beside other producers, and a commit waits for those who do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::buffer::{AlignedBuffer, BLOCK_BYTES};
use super::cache::ChunkCache;
use super::chunk::{BatchPlace, CHUNK_BYTES, CHUNK_ENTRIES_MAX, Chunk, Directory, Memory};
use super::entry::{self, Counts, Kind};
use super::segment::{Durability, Segment};
use crate::mutants::{self, Mutant};

/// Bytes of the largest payload (a record batch or a change of state). Two of them fit into a chunk.
pub const PAYLOAD_BYTES_MAX: usize = payload_bytes_max(CHUNK_BYTES);

const fn payload_bytes_max(chunk_bytes: usize) -> usize {
    chunk_bytes / 2 - 2 * BLOCK_BYTES
}

/// A batch of so many bytes or fewer is copied under the broker's lock: that takes less than giving its room away.
const COPIED_AT_ONCE_BYTES: usize = 8 << 10;

/// Where a chunk lies in the journal.
#[derive(Debug, Clone, Copy)]
pub struct ChunkExtent {
    /// Journal position of its first byte.
    pub start: u64,
    /// Journal position behind its last byte.
    pub end: u64,
    /// Where its last entry ends; what follows up to `end` is padding.
    pub last_end: u64,
    /// Largest record timestamp in it, ms; `i64::MIN` for a chunk without batches.
    pub timestamp_ms_max: i64,
}

/// The last batch of a partition in the active chunk, from which a reader walks back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastPlace {
    chunk_start: u64,
    index_plus_one: u32,
}

/// A range of a chunk that is to be written.
#[derive(Debug)]
pub struct PendingWrite {
    /// The chunk.
    pub chunk: Arc<Chunk>,
    /// First byte of the range in the chunk.
    pub from: usize,
    /// Byte behind the range.
    pub to: usize,
    /// The file that it goes to.
    pub segment: Arc<Segment>,
    /// Whether the chunk is complete with this write.
    pub completes: bool,
}

/// Room in the journal for the bytes of a batch behind its header. Whoever was given it fills it, and needs no lock for that.
#[derive(Debug)]
#[must_use = "a commit waits until it is filled"]
pub struct Room {
    chunk: Arc<Chunk>,
    /// Where the batch begins in the chunk.
    at: usize,
    batch_bytes: usize,
    /// Rooms that are not filled yet, of the whole journal.
    unfilled: Arc<AtomicUsize>,
    filled: bool,
}

impl Room {
    /// Copies what the room was made for.
    pub fn fill(mut self, batch: &[u8]) {
        assert_eq!(batch.len(), self.batch_bytes, "the batch that the room is for");
        let from = crate::batch::HEADER_BYTES;
        // SAFETY: nobody else has this range. It lies below the journal's length, so that nothing is appended there; and nothing of it is
        // read before a commit has taken it, which waits until there is no unfilled room.
        unsafe { self.chunk.buffer().write(self.at + from, &batch[from..]) };
        self.filled = true;
        // Whoever sees the count fall sees the bytes.
        self.unfilled.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // While a panic unwinds this ends the process: a commit would wait without end, or write what nobody sent.
        assert!(self.filled, "room in the journal was given up");
    }
}

/// Everything that one commit writes and then publishes.
#[derive(Debug, Default)]
pub struct Pending {
    /// What to write, in order.
    pub writes: Vec<PendingWrite>,
    /// Partitions and the offsets up to which readers may read once the writes are done.
    pub published: Vec<(u32, i64)>,
    /// Partitions and the offsets from which on their records are kept once the writes are done.
    pub started: Vec<(u32, i64)>,
    /// The journal position that is durable once the writes are done.
    pub end: u64,
}

/// Where a journal goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tail {
    /// The position of the next entry, a multiple of the block size.
    pub start: u64,
    /// Where the last entry ended.
    pub last_end: u64,
    /// What was appended before.
    pub counts: Counts,
    /// The base of the first segment that was not known from its index.
    pub scanned_from: u64,
}

/// The appending end of the journal.
#[derive(Debug)]
pub struct Journal {
    cache: Arc<ChunkCache>,
    durability: Durability,
    segment_bytes: u64,
    active: Arc<Chunk>,
    active_segment: Arc<Segment>,
    length: usize,
    taken: usize,
    places: Vec<BatchPlace>,
    previous: Vec<u32>,
    timestamp_ms_max: i64,
    spares: Vec<AlignedBuffer>,
    sealed: Vec<PendingWrite>,
    published: Vec<(u32, i64)>,
    started: Vec<(u32, i64)>,
    /// Where the last entry ended that an earlier commit has taken.
    group_start: u64,
    /// The same as far as it was known to be durable already.
    durable: u64,
    last_end: u64,
    counts: Counts,
    /// Rooms that are not filled yet. It rises under the broker's lock alone.
    unfilled: Arc<AtomicUsize>,
    next_segment: Option<Segment>,
    /// Complete chunks, oldest first.
    pub chunks: VecDeque<ChunkExtent>,
    /// Segments, oldest first; the last one is being written.
    pub segments: VecDeque<Arc<Segment>>,
    /// Set when a segment was begun since the flag was last cleared.
    pub rolled: AtomicBool,
    /// Segments from this base on have no index yet and, in `async` mode, may not be on the device.
    pub unsynced_from: u64,
}

/// The journal has no memory for what is to be appended until earlier appends are written.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

impl Journal {
    /// A journal that goes on in the last of `segments`.
    pub fn new(
        cache: Arc<ChunkCache>,
        durability: Durability,
        segment_bytes: u64,
        tail: Tail,
        chunks: VecDeque<ChunkExtent>,
        segments: VecDeque<Arc<Segment>>,
    ) -> Self {
        let buffer = cache.take_buffer(false).expect("a new cache has room");
        let active = Arc::new(Chunk::new(tail.start, Memory::Own(buffer), false));
        cache.insert(Arc::clone(&active));
        let active_segment = Arc::clone(segments.back().expect("at least one segment"));
        Self {
            cache,
            durability,
            segment_bytes,
            active,
            active_segment,
            length: 0,
            taken: 0,
            places: Vec::new(),
            previous: Vec::new(),
            timestamp_ms_max: i64::MIN,
            spares: Vec::new(),
            sealed: Vec::new(),
            published: Vec::new(),
            started: Vec::new(),
            group_start: tail.last_end,
            durable: tail.last_end,
            last_end: tail.last_end,
            counts: tail.counts,
            unfilled: Arc::default(),
            next_segment: None,
            chunks,
            segments,
            rolled: AtomicBool::new(false),
            unsynced_from: tail.scanned_from,
        }
    }

    /// The position behind the last entry.
    pub fn end(&self) -> u64 {
        self.active.start + self.length as u64
    }

    /// Where the last entry ends; padding may follow.
    pub fn last_end(&self) -> u64 {
        self.last_end
    }

    /// What was appended so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Makes sure that appends of `payload_bytes` in `count` payloads cannot fail, or says that it has to wait.
    pub fn reserve(&mut self, payload_bytes: usize, count: usize) -> Result<(), Full> {
        let wanted = payload_bytes + count * (entry::HEADER_BYTES + entry::ALIGNMENT);
        let chunk_bytes = self.cache.chunk_bytes();
        let fits_now = self.length + wanted + BLOCK_BYTES <= chunk_bytes;
        if fits_now && self.places.len() + count <= CHUNK_ENTRIES_MAX {
            return Ok(());
        }
        // A sealed chunk is at least half full of bytes or completely full of entries.
        let chunks = 1 + wanted / (chunk_bytes / 2) + count / CHUNK_ENTRIES_MAX;
        while self.spares.len() < chunks {
            self.spares.push(self.cache.take_buffer(false).ok_or(Full)?);
        }
        Ok(())
    }

    /// Appends a record batch whose base offset becomes `base_offset`; `reserve` was called for it. `last` is the partition's last place and is updated.
    /// Returns the start of the chunk that the batch is in, and for a large batch the room that its bytes are to be copied to.
    pub fn append_batch(
        &mut self,
        partition: u32,
        batch: &[u8],
        header: &crate::batch::Header,
        base_offset: i64,
        last: &mut LastPlace,
    ) -> (u64, Option<Room>) {
        let at = self.append(Kind::Batch, partition, batch, Some(base_offset));
        let room = (batch.len() > COPIED_AT_ONCE_BYTES).then(|| {
            self.unfilled.fetch_add(1, Ordering::Relaxed);
            Room {
                chunk: Arc::clone(&self.active),
                at,
                batch_bytes: batch.len(),
                unfilled: Arc::clone(&self.unfilled),
                filled: false,
            }
        });
        let previous = self.index_of(last).map_or(0, |index| index + 1);
        self.places.push(BatchPlace {
            base_offset,
            offset_count: header.offset_count as u32,
            partition,
            at: at as u32,
            bytes: batch.len() as u32,
            timestamp_ms_max: header.timestamp_ms_max,
        });
        self.previous.push(previous);
        *last = LastPlace {
            chunk_start: self.active.start,
            index_plus_one: self.places.len() as u32,
        };
        self.timestamp_ms_max = self.timestamp_ms_max.max(header.timestamp_ms_max);
        self.published
            .push((partition, base_offset + header.offset_count));
        (self.active.start, room)
    }

    /// Appends a change of state; `reserve` was called for it. Returns the position that must be durable before the change is acknowledged.
    pub fn append_change(&mut self, change: &[u8]) -> u64 {
        self.append(Kind::Change, 0, change, None);
        self.end()
    }

    /// Puts one payload behind an entry header, sealing the active chunk when it does not fit; returns where the payload lies in the active chunk. Of a
    /// batch that gets a `Room` only the header is copied.
    fn append(&mut self, kind: Kind, partition: u32, payload: &[u8], base_offset: Option<i64>) -> usize {
        let chunk_bytes = self.cache.chunk_bytes();
        assert!(payload.len() <= payload_bytes_max(chunk_bytes));
        let footprint = entry::footprint(payload.len());
        if self.length + footprint > chunk_bytes || self.places.len() == CHUNK_ENTRIES_MAX {
            self.seal();
        }
        let at = self.length + entry::HEADER_BYTES;
        let position = self.end();
        let buffer = self.active.buffer();
        let now = match base_offset {
            Some(_) if payload.len() > COPIED_AT_ONCE_BYTES => &payload[..crate::batch::HEADER_BYTES],
            _ => payload,
        };
        // SAFETY: the journal's lock is held, and everything from `length` on is still unpublished.
        unsafe { buffer.write(at, now) };
        if let Some(base_offset) = base_offset {
            let mut head = [0u8; crate::batch::HEADER_BYTES];
            head.copy_from_slice(&payload[..crate::batch::HEADER_BYTES]);
            crate::batch::place(&mut head, base_offset);
            // SAFETY: as above.
            unsafe { buffer.write(at, &head) };
        }
        let group_start = match mutants::is(Mutant::DurableEndAtAppend) {
            true => self.durable,
            false => self.group_start,
        };
        let header = entry::Header {
            position,
            partition,
            payload_bytes: payload.len() as u32,
            group_bytes: u32::try_from(position - group_start).unwrap_or(u32::MAX),
            kind,
            chunk_start: self.length == 0,
            synced: self.durability == Durability::Fsync,
            gap_bytes: (position - self.last_end) as u16,
            counts: self.counts,
        };
        // SAFETY: this was just written, under the same lock, and nobody writes there again.
        let placed = unsafe { buffer.bytes(at, at + now.len()) };
        let encoded = entry::encode(&header, placed);
        // SAFETY: as for the payload.
        unsafe {
            buffer.write(self.length, &encoded);
            buffer.zero(at + payload.len(), self.length + footprint);
        }
        self.length += footprint;
        self.last_end = self.end();
        self.counts = self.counts.after(kind, payload);
        at
    }

    /// Notes that a partition's records are kept from `log_start` on as soon as what was appended is committed.
    pub fn publish_start(&mut self, partition: u32, log_start: i64) {
        self.started.push((partition, log_start));
    }

    fn pad_to_block(&mut self) {
        let padded = self.length.next_multiple_of(BLOCK_BYTES);
        // SAFETY: the journal's lock is held, and everything from `length` on is still unpublished.
        unsafe { self.active.buffer().zero(self.length, padded) };
        self.length = padded;
    }

    /// Completes the active chunk and begins the next one, in the next segment when this one is full and the next is there.
    fn seal(&mut self) {
        self.pad_to_block();
        let directory = Directory::new(&self.places);
        self.places.clear();
        self.active
            .directory
            .set(directory)
            .expect("a chunk is sealed once");
        self.previous.clear();
        let end = self.end();
        self.chunks.push_back(ChunkExtent {
            start: self.active.start,
            end,
            last_end: self.last_end,
            timestamp_ms_max: std::mem::replace(&mut self.timestamp_ms_max, i64::MIN),
        });
        self.sealed.push(PendingWrite {
            chunk: Arc::clone(&self.active),
            from: self.taken,
            to: self.length,
            segment: Arc::clone(&self.active_segment),
            completes: true,
        });
        self.roll_if_due(end);
        let buffer = self.spares.pop().expect("`reserve` was called");
        self.active = Arc::new(Chunk::new(end, Memory::Own(buffer), false));
        self.cache.insert(Arc::clone(&self.active));
        self.length = 0;
        self.taken = 0;
    }

    fn roll_if_due(&mut self, end: u64) {
        // A segment that is not ready yet delays the roll, never an append.
        let Some(next) = self.next_segment.take_if(|next| {
            let is_full = end - self.active_segment.base >= self.segment_bytes;
            // Blocks that were written before are worth a short segment.
            is_full || (next.is_written() && !self.active_segment.is_written())
        }) else {
            return;
        };
        self.active_segment = Arc::new(next.rebased(end));
        self.segments.push_back(Arc::clone(&self.active_segment));
        self.rolled.store(true, Ordering::Release);
    }

    /// Whether the next segment should be made ready.
    pub fn wants_segment(&self) -> bool {
        let is_due = || {
            let is_half_full = self.end() - self.active_segment.base >= self.segment_bytes / 2;
            is_half_full || self.active_segment.could_be_written()
        };
        self.next_segment.is_none() && is_due()
    }

    /// Hands over a prepared file for the next segment.
    pub fn offer_segment(&mut self, segment: Segment) {
        self.next_segment = Some(segment);
    }

    /// Whether something was appended that no commit has taken yet.
    pub fn has_pending(&self) -> bool {
        self.length > self.taken || !self.sealed.is_empty()
    }

    /// Bytes that no commit has taken yet.
    pub fn pending_bytes(&self) -> usize {
        self.sealed
            .iter()
            .map(|write| write.to - write.from)
            .sum::<usize>()
            + self.length
            - self.taken
    }

    /// Takes everything that was appended since the last call.
    pub fn take_pending(&mut self) -> Pending {
        // Nobody gets room meanwhile, and who fills it needs no lock: this is as long as a copy takes.
        while self.unfilled.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
        let mut writes = std::mem::take(&mut self.sealed);
        if self.length > self.taken {
            if self.durability == Durability::Fsync && !mutants::is(Mutant::CommitNotPadded) {
                self.pad_to_block();
            }
            writes.push(PendingWrite {
                chunk: Arc::clone(&self.active),
                from: self.taken,
                to: self.length,
                segment: Arc::clone(&self.active_segment),
                completes: false,
            });
            self.taken = self.length;
        }
        self.group_start = self.last_end;
        Pending {
            writes,
            published: std::mem::take(&mut self.published),
            started: std::mem::take(&mut self.started),
            end: self.end(),
        }
    }

    /// Notes that everything before `end` is as durable as promised.
    pub fn note_durable(&mut self, end: u64) {
        self.durable = end.min(self.last_end);
    }

    fn index_of(&self, last: &LastPlace) -> Option<u32> {
        (last.chunk_start == self.active.start)
            .then_some(last.index_plus_one)?
            .checked_sub(1)
    }

    /// The start of the active chunk.
    pub fn active_start(&self) -> u64 {
        self.active.start
    }

    /// Batches of the partition in the active chunk from the one that holds `offset` (or the first behind it) on, appended to `found` in order.
    pub fn active_places(&self, last: &LastPlace, offset: i64, found: &mut Vec<BatchPlace>) {
        let from = found.len();
        let mut cursor = self.index_of(last);
        while let Some(index) = cursor {
            let place = self.places[index as usize];
            if place.next_offset() <= offset {
                break;
            }
            found.push(place);
            cursor = self.previous[index as usize].checked_sub(1);
        }
        found[from..].reverse();
    }

    /// The largest record timestamp in the chunk that begins at `start`, ms; the largest possible one for the active chunk, whose records are still being added.
    pub fn timestamp_of(&self, start: u64) -> i64 {
        let found = self.chunks.binary_search_by_key(&start, |chunk| chunk.start);
        found.map_or(i64::MAX, |index| self.chunks[index].timestamp_ms_max)
    }

    /// The largest record timestamp so far in the chunk that begins at `start`, ms.
    pub fn newest_timestamp_of(&self, start: u64) -> i64 {
        match start == self.active.start {
            true => self.timestamp_ms_max,
            false => self.timestamp_of(start),
        }
    }

    /// The start of the chunk behind the one that begins at `start`.
    pub fn start_after(&self, start: u64) -> Option<u64> {
        let behind = self.chunks.partition_point(|chunk| chunk.start <= start);
        match self.chunks.get(behind) {
            Some(chunk) => Some(chunk.start),
            None => (self.active.start > start).then_some(self.active.start),
        }
    }

    /// Where the complete chunk that begins at `start` ends, and the segment it is in.
    pub fn locate(&self, start: u64) -> Option<(ChunkExtent, Arc<Segment>)> {
        let index = self
            .chunks
            .binary_search_by_key(&start, |chunk| chunk.start)
            .ok()?;
        let segment = self
            .segments
            .partition_point(|segment| segment.base <= start)
            .checked_sub(1)?;
        Some((self.chunks[index], Arc::clone(&self.segments[segment])))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::batch;
    use crate::storage::disk::{Directory as Files, Disk};

    fn journal(name: &str) -> Journal {
        let path = std::env::temp_dir().join(format!("gauge-log-journal-{}-{name}", std::process::id()));
        let disk: Arc<dyn Disk> = Arc::new(Files(path.clone()));
        disk.make().unwrap();
        let segment = Segment::open(&disk, 0, Durability::Async).unwrap();
        // An open file needs no name.
        std::fs::remove_dir_all(path).unwrap();
        Journal::new(
            Arc::new(ChunkCache::new(4, CHUNK_BYTES)),
            Durability::Async,
            1 << 30,
            Tail::default(),
            VecDeque::new(),
            VecDeque::from([Arc::new(segment)]),
        )
    }

    fn append(journal: &mut Journal, batch: &[u8]) -> Option<Room> {
        journal.reserve(batch.len(), 1).unwrap();
        let header = batch::header(batch);
        journal
            .append_batch(3, batch, &header, 70, &mut LastPlace::default())
            .1
    }

    #[test]
    fn a_commit_waits_for_who_copies_and_then_has_the_whole_batch() {
        let mut journal = journal("waits");
        let (large, small) = (
            batch::for_test(1, COPIED_AT_ONCE_BYTES, (-1, -1, -1)),
            batch::for_test(1, 100, (-1, -1, -1)),
        );
        let room = append(&mut journal, &large).expect("room for a large batch");
        assert!(append(&mut journal, &small).is_none());
        let (taken, told) = mpsc::channel();
        std::thread::scope(|scope| {
            let journal = &mut journal;
            scope.spawn(move || taken.send(journal.take_pending()).unwrap());
            assert!(
                told.recv_timeout(Duration::from_millis(100)).is_err(),
                "it did not wait"
            );
            room.fill(&large);
            let pending = told.recv().unwrap();
            let [write] = &pending.writes[..] else {
                panic!("one write: {pending:?}")
            };
            // SAFETY: the commit has taken this range.
            let bytes = unsafe { write.chunk.bytes(write.from, write.to) };
            let (first, payload) = entry::decode(bytes, 0).expect("a whole batch");
            assert_eq!(batch::header(payload).base_offset, 70);
            assert_eq!(payload[8..], large[8..]);
            let next = entry::footprint(first.payload_bytes as usize);
            assert!(entry::decode(&bytes[next..], next as u64).is_some());
        });
    }
}
