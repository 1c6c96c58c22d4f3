//! From what is on disk to a running log.
//!
//! The newest whole state is read, then the journal from the beginning of the segment that the state points into, batch by batch, every checksum tested. Older segments are
//! known from their indexes and are not read. Damage at the end is a torn tail: nothing behind it was ever acknowledged, and the file is cut
//! there. Damage with acknowledged entries behind it (they say so themselves, see `storage::entry`) is reported, and the damaged entries are never served.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use crate::batch;
use crate::broker::change::Change;
use crate::broker::checkpoint::{self, Index, State};
use crate::broker::groups::Groups;
use crate::broker::topics::Topics;
use crate::broker::{self};
use crate::events::Events;
use crate::settings::Settings;
use crate::storage::buffer::{AlignedBuffer, BLOCK_BYTES};
use crate::storage::chunk::CHUNK_BYTES;
use crate::storage::entry::{self, Kind, Step};
use crate::storage::journal::ChunkExtent;
use crate::storage::segment::{SPARE_EXTENSION, Segment, base_of, file_name};
use crate::wire::Reader;

/// What recovery found.
#[derive(Debug)]
pub struct Recovered {
    /// Topics and partitions.
    pub topics: Topics,
    /// Groups.
    pub groups: Groups,
    /// Producer ids below this are taken.
    pub producer_ids_taken: i64,
    /// Segments, oldest first; at least one.
    pub segments: VecDeque<Arc<Segment>>,
    /// Chunks, oldest first.
    pub chunks: VecDeque<ChunkExtent>,
    /// Where the journal goes on.
    pub end: u64,
    /// Bytes of the journal that were read.
    pub scanned_bytes: u64,
    /// Bytes cut off as a torn tail.
    pub cut_bytes: u64,
    /// Damaged ranges with acknowledged entries behind them.
    pub damaged_ranges: u64,
}

/// A failure that a person has to act on.
pub fn failure(what: &str, path: &Path, error: impl Display) -> String {
    format!("{what} {}: {error}", path.display())
}

/// Files of the data directory with an extension, by base position.
fn bases(directory: &Path, extension: &str) -> Result<BTreeMap<u64, PathBuf>, String> {
    let list = std::fs::read_dir(directory).map_err(|error| failure("cannot list", directory, error))?;
    let paths = list.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths
        .filter_map(|path| Some((base_of(&path, extension)?, path)))
        .collect())
}

/// Recovers the log in `settings.data`, or begins one there.
pub fn recover(settings: &Settings, groups: Groups, events: &Events) -> Result<Recovered, String> {
    let directory = &settings.data;
    for spare in bases(directory, SPARE_EXTENSION)?.values() {
        let _ = std::fs::remove_file(spare);
    }
    let mut segments = VecDeque::new();
    for &base in bases(directory, "log")?.keys() {
        let segment = Segment::open(directory, base, settings.durability);
        segments.push_back(Arc::new(
            segment.map_err(|error| failure("cannot open a segment in", directory, error))?,
        ));
    }
    if segments.is_empty() {
        let first = Segment::open(directory, 0, settings.durability)
            .map_err(|error| failure("cannot create a segment in", directory, error))?;
        segments.push_back(Arc::new(first));
    }
    let state = newest_state(directory, &segments, events)?;
    let mut recovery = Recovery {
        events,
        state_position: state.position,
        topics: Topics::default(),
        groups,
        producer_ids_taken: 0,
        chunks: VecDeque::new(),
        scanned_bytes: 0,
        cut_bytes: 0,
        damaged_ranges: 0,
    };
    for change in state.changes {
        recovery.apply(change);
    }
    let scan_from = segments
        .iter()
        .rposition(|segment| segment.base <= state.position)
        .unwrap_or(0);
    let mut end = segments[0].base;
    for (index, segment) in segments.iter().enumerate() {
        let next_base = segments.get(index + 1).map(|next| next.base);
        if index < scan_from && recovery.use_index(directory, segment, next_base) {
            end = next_base.unwrap_or(end);
            continue;
        }
        end = recovery.scan(segment, next_base)?;
    }
    if end < state.position {
        return Err(format!(
            "the journal in {} ends at byte {end}, before byte {} that its newest state was made of: acknowledged data is missing. \
             Restore the directory from a copy, or delete it to begin anew",
            directory.display(),
            state.position
        ));
    }
    let last = segments.back().expect("at least one segment");
    // What a torn write left in its last block must be gone before something is written behind it.
    let torn = end;
    let end = end.next_multiple_of(BLOCK_BYTES as u64);
    last.cut(torn)
        .and_then(|()| last.cut(end))
        .map_err(|error| failure("cannot cut the torn tail of", &last.final_path(), error))?;
    last.reserve(settings.segment_bytes)
        .map_err(|error| failure("cannot reserve space for", &last.final_path(), error))?;
    for (_, partition) in recovery.topics.partitions_mut() {
        partition.high_watermark = partition.next_offset;
    }
    Ok(Recovered {
        topics: recovery.topics,
        groups: recovery.groups,
        producer_ids_taken: recovery.producer_ids_taken,
        segments,
        chunks: recovery.chunks,
        end,
        scanned_bytes: recovery.scanned_bytes,
        cut_bytes: recovery.cut_bytes,
        damaged_ranges: recovery.damaged_ranges,
    })
}

fn newest_state(
    directory: &Path,
    segments: &VecDeque<Arc<Segment>>,
    events: &Events,
) -> Result<State, String> {
    for path in bases(directory, "state")?.values().rev() {
        let read = checkpoint::read_file(path, true)
            .and_then(|bytes| checkpoint::decode_state(&bytes).map_err(|malformed| malformed.to_string()));
        match read {
            Ok(state) if state.position >= segments[0].base => return Ok(state),
            Ok(_) => {}
            Err(error) => events.write(
                "state_damaged",
                json!({"path": path.display().to_string(), "error": error}),
            ),
        }
    }
    if segments[0].base != 0 {
        return Err(format!(
            "no usable state in {}: its .state files are missing or damaged, and the segments that they could be made from again are deleted. \
             Restore the directory from a copy, or delete it to begin anew",
            directory.display()
        ));
    }
    Ok(State {
        position: 0,
        changes: Vec::new(),
    })
}

/// What has been recovered so far.
struct Recovery<'a> {
    events: &'a Events,
    state_position: u64,
    topics: Topics,
    groups: Groups,
    producer_ids_taken: i64,
    chunks: VecDeque<ChunkExtent>,
    scanned_bytes: u64,
    cut_bytes: u64,
    damaged_ranges: u64,
}

/// A piece of a segment in memory, from which its chunks are taken one after the other, however small they are.
struct Window {
    buffer: AlignedBuffer,
    start: u64,
    count: usize,
    /// Whether the window reaches to the end of the segment.
    is_last: bool,
}

/// Bytes of the window.
const WINDOW_BYTES: usize = 4 * CHUNK_BYTES;
/// Bytes in view of a chunk's scan: where a chunk ends is only known from the first entry of the next one, which must be in view as a whole.
const VIEW_BYTES: usize = 2 * CHUNK_BYTES;

impl Window {
    fn new() -> Self {
        Self {
            buffer: AlignedBuffer::new(WINDOW_BYTES),
            start: 0,
            count: 0,
            is_last: false,
        }
    }

    /// The bytes from `start` (a multiple of the block size) on, at most `VIEW_BYTES` and at most up to `end`, fewer only at the end of the segment; and
    /// how many bytes were read for it.
    fn view(&mut self, segment: &Segment, start: u64, end: Option<u64>) -> std::io::Result<(&[u8], u64)> {
        let window_end = self.start + self.count as u64;
        let in_window = (self.start..window_end).contains(&start)
            && (self.is_last || window_end - start >= VIEW_BYTES as u64);
        let mut read_bytes = 0;
        if !in_window {
            let room = end.map_or(WINDOW_BYTES as u64, |end| (end - start).min(WINDOW_BYTES as u64));
            let count = segment.read(&mut self.buffer.all_mut()[..room as usize], start)?;
            self.start = start;
            self.count = count;
            self.is_last = (count as u64) < room || room < WINDOW_BYTES as u64;
            read_bytes = count as u64;
        }
        let from = (start - self.start) as usize;
        let to = self.count.min(from + VIEW_BYTES);
        Ok((&self.buffer.all_mut()[from..to], read_bytes))
    }
}

/// The end of one chunk's scan.
enum ChunkEnd {
    /// The next chunk begins here.
    Next(u64),
    /// Nothing follows: the journal ends here.
    End(u64),
}

impl Recovery<'_> {
    fn apply(&mut self, change: Change) {
        broker::apply(
            &mut self.topics,
            &mut self.groups,
            &mut self.producer_ids_taken,
            change,
        );
    }

    /// Takes a complete segment's chunks and marks from its index; false when that cannot be used.
    fn use_index(&mut self, directory: &Path, segment: &Segment, next_base: Option<u64>) -> bool {
        let path = directory.join(file_name(segment.base, "index"));
        let read = checkpoint::read_file(&path, false)
            .and_then(|bytes| checkpoint::decode_index(&bytes).map_err(|malformed| malformed.to_string()));
        let index = match read {
            Ok(index) if index_covers(&index, segment.base, next_base) => index,
            Ok(_) => return false,
            Err(error) => {
                self.events.write(
                    "index_unusable",
                    json!({"path": path.display().to_string(), "error": error}),
                );
                return false;
            }
        };
        for (start, end, timestamp_ms_max) in index.chunks {
            self.chunks.push_back(ChunkExtent {
                start,
                end,
                timestamp_ms_max,
            });
        }
        let marks_max = self.topics.chunk_marks_max();
        for (partition, thinned, marks) in index.marks {
            // Partitions that are not in the state were deleted.
            let Some(partition) = self.topics.partition_mut(partition) else {
                continue;
            };
            partition.thinned |= thinned;
            let added: isize = marks
                .into_iter()
                .map(|(offset, start)| partition.note_chunk(offset, start, marks_max))
                .sum();
            self.topics.add_marks(added);
        }
        true
    }

    /// Reads a segment from its beginning; returns where its entries end.
    fn scan(&mut self, segment: &Segment, next_base: Option<u64>) -> Result<u64, String> {
        let mut window = Window::new();
        let mut start = segment.base;
        loop {
            if next_base.is_some_and(|base| start >= base) {
                return Ok(start);
            }
            let (bytes, read_bytes) = window
                .view(segment, start, next_base)
                .map_err(|error| failure("cannot read", &segment.final_path(), error))?;
            self.scanned_bytes += read_bytes;
            match self.scan_chunk(segment, start, bytes)? {
                ChunkEnd::Next(next) => start = next,
                ChunkEnd::End(end) => match next_base {
                    None => return Ok(end),
                    Some(base) => {
                        if end < base {
                            self.report_damage(segment, end, base, "it ends too early");
                        }
                        return Ok(base);
                    }
                },
            }
        }
    }

    /// Takes in the chunk that begins at `start`; `bytes` may reach into the next one.
    fn scan_chunk(&mut self, segment: &Segment, start: u64, bytes: &[u8]) -> Result<ChunkEnd, String> {
        let mut steps = Vec::new();
        let mut next_chunk = None;
        entry::walk(bytes, start, |step| {
            match step {
                Step::Entry(at, header, _) if header.chunk_start && at > 0 => {
                    next_chunk = Some(start + at as u64);
                    return ControlFlow::Break(());
                }
                step => steps.push(step),
            }
            ControlFlow::Continue(())
        });
        // Damage in front of a chunk's beginning belongs to the chunk before it.
        let last_entry = steps.iter().rposition(|step| matches!(step, Step::Entry(..)));
        let mut end = start;
        let mut timestamp_ms_max = i64::MIN;
        for (index, step) in steps.iter().enumerate() {
            match step {
                Step::Entry(at, header, payload) => {
                    end = start + (at + entry::footprint(payload.len())) as u64;
                    self.take_entry(start, header, payload, &mut timestamp_ms_max)?;
                }
                Step::Damage(from, to) => {
                    let (from, to) = (start + *from as u64, start + *to as u64);
                    let followed = next_chunk.is_some() || last_entry.is_some_and(|last| last > index);
                    if !followed && !self.is_acknowledged_behind(segment, from, to)? {
                        return Ok(self.tear(segment, start, from, timestamp_ms_max));
                    }
                    if followed && !acknowledged_after(&steps[index..], from) && next_chunk.is_none() {
                        return Ok(self.tear(segment, start, from, timestamp_ms_max));
                    }
                    self.report_damage(segment, from, to, "its checksum does not match");
                    end = to;
                }
            }
        }
        end = end.next_multiple_of(BLOCK_BYTES as u64);
        let next = next_chunk.unwrap_or(end);
        if next > start {
            self.chunks.push_back(ChunkExtent {
                start,
                end: next,
                timestamp_ms_max,
            });
        }
        match next_chunk {
            Some(next) => Ok(ChunkEnd::Next(next)),
            // A damaged chunk that fills the buffer may hide where the next one begins.
            None if end >= start + bytes.len() as u64 && end > start => Ok(ChunkEnd::Next(end)),
            None => Ok(ChunkEnd::End(end)),
        }
    }

    /// The journal ends at `from`, in the chunk that begins at `start`: what follows was never acknowledged.
    fn tear(&mut self, segment: &Segment, start: u64, from: u64, timestamp_ms_max: i64) -> ChunkEnd {
        let end = from.next_multiple_of(BLOCK_BYTES as u64);
        self.cut_bytes += BLOCK_BYTES as u64;
        let path = segment.final_path().display().to_string();
        self.events
            .write("torn_tail_cut", json!({"path": path, "position": from}));
        if end > start {
            self.chunks.push_back(ChunkExtent {
                start,
                end,
                timestamp_ms_max,
            });
        }
        ChunkEnd::End(from)
    }

    /// Whether somewhere behind `to` there is an entry which says that `from` was durable when it was appended.
    fn is_acknowledged_behind(&mut self, segment: &Segment, from: u64, to: u64) -> Result<bool, String> {
        let mut buffer = AlignedBuffer::new(CHUNK_BYTES);
        let mut position = to / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        loop {
            let bytes = buffer.all_mut();
            let count = segment
                .read(bytes, position)
                .map_err(|error| failure("cannot read", &segment.final_path(), error))?;
            let mut found = false;
            entry::walk(&bytes[..count], position, |step| {
                if let Step::Entry(_, header, _) = step {
                    found |= header.position - u64::from(header.pending_bytes) > from;
                }
                if found {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            if found || count < bytes.len() {
                return Ok(found);
            }
            // Entries may cross the piece's end: the pieces overlap by the largest entry.
            position += (CHUNK_BYTES / 2) as u64;
        }
    }

    fn report_damage(&mut self, segment: &Segment, from: u64, to: u64, reason: &str) {
        self.damaged_ranges += 1;
        let path = segment.final_path().display().to_string();
        eprintln!(
            "gauge log: {path}: bytes {} to {} are damaged ({reason}); the batches there are lost and will not be served",
            from - segment.base,
            to - segment.base
        );
        self.events.write(
            "damage",
            json!({"path": path, "from": from, "to": to, "reason": reason}),
        );
    }

    fn take_entry(
        &mut self,
        chunk: u64,
        header: &entry::Header,
        payload: &[u8],
        timestamp_ms_max: &mut i64,
    ) -> Result<(), String> {
        let is_new = header.position >= self.state_position;
        match header.kind {
            Kind::Change if is_new => {
                let change = Change::decode(&mut Reader::new(payload, false))
                    .map_err(|malformed| format!("journal position {}: {malformed}", header.position))?;
                self.apply(change);
            }
            Kind::Change => {}
            Kind::Batch => {
                let batch = batch::header(payload);
                *timestamp_ms_max = (*timestamp_ms_max).max(batch.timestamp_ms_max);
                let marks_max = self.topics.chunk_marks_max();
                let Some(partition) = self.topics.partition_mut(header.partition) else {
                    return Ok(());
                };
                let marks = partition.note_chunk(batch.base_offset, chunk, marks_max);
                if is_new {
                    partition.next_offset = partition.next_offset.max(batch.base_offset + batch.offset_count);
                    partition
                        .producers
                        .note(broker::producers::mark(&batch, batch.base_offset));
                }
                self.topics.add_marks(marks);
            }
        }
        Ok(())
    }
}

/// Whether one of the entries among `steps` says that `from` was durable when it was appended.
fn acknowledged_after(steps: &[Step<'_>], from: u64) -> bool {
    steps.iter().any(|step| match step {
        Step::Entry(_, header, _) => header.position - u64::from(header.pending_bytes) > from,
        Step::Damage(..) => false,
    })
}

/// Whether the chunks of an index lie side by side from `base` to the next segment.
fn index_covers(index: &Index, base: u64, next_base: Option<u64>) -> bool {
    let mut at = base;
    for &(start, end, _) in &index.chunks {
        if start != at || end <= start {
            return false;
        }
        at = end;
    }
    Some(at) == next_base
}
