//! From what is on disk to a running log.
//!
//! The newest whole state is read, then the journal from the beginning of the segment that the state points into, entry by entry, every checksum tested. Older segments are
//! known from their indexes and are not read. Each entry says where the one before it ended, so that whatever is missing is noticed. What becomes of a missing piece is the
//! repair rule of docs/reference-log.md:
//!
//! 1. It lies before the state, or a later entry proves that it had been on the device: acknowledged data is damaged. It is reported and never served; the log begins only
//!    if it knows nevertheless what it holds, which offsets were lost, and where each partition goes on.
//! 2. Otherwise it belongs to a commit that was not acknowledged: the journal is cut there.

mod scan;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use crate::broker::change::Change;
use crate::broker::checkpoint::{self, Index, State};
use crate::broker::groups::Groups;
use crate::broker::topics::Topics;
use crate::broker::{self};
use crate::events::Events;
use crate::mutants::{self, Mutant};
use crate::settings::{Fault, Settings};
use crate::storage::buffer::BLOCK_BYTES;
use crate::storage::disk::Disk;
use crate::storage::entry::{Counts, MAGIC_OF_FORMAT_1};
use crate::storage::journal::{ChunkExtent, Tail};
use crate::storage::segment::{Durability, SPARE_EXTENSION, Segment, base_of, file_name};

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
    pub tail: Tail,
    /// Bytes of the journal that were read.
    pub scanned_bytes: u64,
    /// Bytes cut off as a torn tail.
    pub cut_bytes: u64,
    /// Damaged ranges of what had been acknowledged, as journal positions.
    pub damaged: Vec<(u64, u64)>,
}

/// A failure that a person has to act on.
pub fn failure(what: &str, path: &Path, error: impl Display) -> String {
    format!("{what} {}: {error}", path.display())
}

/// What to do where nothing can be done here.
const RESTORE: &str = "Restore the directory from a copy, or delete it to begin anew";

/// The directory, for sentences.
fn directory(disk: &dyn Disk) -> String {
    disk.path("")
        .display()
        .to_string()
        .trim_end_matches('/')
        .to_owned()
}

/// Files with an extension, by base position.
fn bases(disk: &dyn Disk, extension: &str) -> Result<BTreeMap<u64, String>, String> {
    let names = disk
        .list()
        .map_err(|error| failure("cannot list", &disk.path(""), error))?;
    Ok(names
        .into_iter()
        .filter_map(|name| Some((base_of(&name, extension)?, name)))
        .collect())
}

/// Recovers the log on `disk`, or begins one there.
pub fn recover(
    settings: &Settings,
    disk: &Arc<dyn Disk>,
    groups: Groups,
    events: &Events,
) -> Result<Recovered, String> {
    for spare in bases(disk.as_ref(), SPARE_EXTENSION)?.values() {
        disk.remove(spare)
            .map_err(|error| failure("cannot remove", &disk.path(spare), error))?;
    }
    let mut segments = VecDeque::new();
    for &base in bases(disk.as_ref(), "log")?.keys() {
        segments.push_back(open(settings, disk, base)?);
    }
    if segments.is_empty() {
        segments.push_back(open(settings, disk, 0)?);
    }
    refuse_format_1(disk.as_ref(), &segments)?;
    let state = newest_state(disk.as_ref(), &segments, events)?;
    let mut recovery = Recovery {
        events,
        state_position: state.position,
        state_end: state.last_end,
        topics: Topics::default(),
        groups,
        producer_ids_taken: 0,
        chunks: VecDeque::new(),
        chunk_bytes: settings.chunk_bytes,
        counted: state.counts,
        lost: Counts::default(),
        skipped: 0,
        scanned_bytes: 0,
        cut_bytes: 0,
        damaged: Vec::new(),
    };
    for change in state.changes {
        recovery.apply(change);
    }
    let scan_from = segments
        .iter()
        .rposition(|segment| segment.base <= state.position)
        .unwrap_or(0);
    let first = (0..scan_from)
        .find(|&index| !recovery.use_index(disk.as_ref(), &segments[index], segments[index + 1].base))
        .unwrap_or(scan_from);
    let end = recovery.scan(&segments, first)?;
    if end < state.last_end {
        return Err(format!(
            "the journal in {} ends at byte {end}, before byte {} that its newest state was made of: acknowledged data is missing. {RESTORE}",
            directory(disk.as_ref()),
            state.last_end
        ));
    }
    recovery.refuse_unknown_losses(&segments)?;
    let tail = Tail {
        start: end.next_multiple_of(BLOCK_BYTES as u64),
        last_end: end,
        counts: recovery.counted,
        scanned_from: segments[first].base,
    };
    if settings.fault == Some(Fault::RefuseTornTail) && recovery.cut_bytes > 0 {
        return Err(format!(
            "the journal ends in {} bytes of a torn commit: refused, as --fault refuse-torn-tail says",
            recovery.cut_bytes
        ));
    }
    cut_behind(settings, disk.as_ref(), &mut segments, tail)?;
    for (_, partition) in recovery.topics.partitions_mut() {
        if mutants::is(Mutant::OffsetOffByOne) {
            partition.next_offset = (partition.next_offset - 1).max(0);
        }
        partition.high_watermark = partition.next_offset;
        partition.start_at(partition.deleted_before.min(partition.next_offset));
        if partition.thinned {
            // Which times the chunks have that no mark is left of, no index says.
            partition.chunk_marks.forget_times();
        }
    }
    recovery.topics.recount();
    Ok(Recovered {
        topics: recovery.topics,
        groups: recovery.groups,
        producer_ids_taken: match mutants::is(Mutant::ProducerIdsReused) {
            true => 0,
            false => recovery.producer_ids_taken,
        },
        segments,
        chunks: recovery.chunks,
        tail,
        scanned_bytes: recovery.scanned_bytes,
        cut_bytes: recovery.cut_bytes,
        damaged: recovery.damaged,
    })
}

fn open(settings: &Settings, disk: &Arc<dyn Disk>, base: u64) -> Result<Arc<Segment>, String> {
    let segment = Segment::open(disk, base, settings.durability);
    segment
        .map(Arc::new)
        .map_err(|error| failure("cannot open", &disk.path(&file_name(base, "log")), error))
}

/// A directory that an earlier version wrote is not touched.
fn refuse_format_1(disk: &dyn Disk, segments: &VecDeque<Arc<Segment>>) -> Result<(), String> {
    let mut is_old = false;
    for segment in [segments.front(), segments.back()].into_iter().flatten() {
        let mut block = crate::storage::buffer::AlignedBuffer::new(BLOCK_BYTES);
        let read = segment.read(block.all_mut(), segment.base);
        read.map_err(|error| failure("cannot read", &segment.final_path(), error))?;
        is_old |= block.all_mut().starts_with(&MAGIC_OF_FORMAT_1);
    }
    for name in bases(disk, "state")?.values() {
        is_old |= disk
            .read(name)
            .is_ok_and(|bytes| bytes.starts_with(checkpoint::STATE_MAGIC_OF_FORMAT_1));
    }
    if is_old {
        return Err(format!(
            "{} was written by an earlier version of gauge log (format 1), and this one reads and writes format 2. \
             Consume what is worth keeping with the version that wrote it; then delete the directory, or choose another one with --data",
            directory(disk)
        ));
    }
    Ok(())
}

fn newest_state(
    disk: &dyn Disk,
    segments: &VecDeque<Arc<Segment>>,
    events: &Events,
) -> Result<State, String> {
    for name in bases(disk, "state")?.values().rev() {
        let read = disk.read(name).map_err(|error| error.to_string());
        let state = read.and_then(|bytes| {
            checkpoint::decode_state(checkpoint::body_of(&bytes, true)?)
                .map_err(|malformed| malformed.to_string())
        });
        match state {
            Ok(state) if state.position >= segments[0].base => return Ok(state),
            Ok(_) => {}
            Err(error) => events.write(
                "state_damaged",
                json!({"path": disk.path(name).display().to_string(), "error": error}),
            ),
        }
    }
    if segments[0].base != 0 {
        return Err(format!(
            "no usable state in {}: its .state files are missing or damaged, and the segments that they could be made from again are deleted. {RESTORE}",
            directory(disk)
        ));
    }
    Ok(State::default())
}

/// Removes whatever lies behind the end of the journal, durably, before something else is written there; and makes what was found durable, before anybody is shown it.
fn cut_behind(
    settings: &Settings,
    disk: &dyn Disk,
    segments: &mut VecDeque<Arc<Segment>>,
    tail: Tail,
) -> Result<(), String> {
    while !mutants::is(Mutant::SegmentsBehindTheTailKept)
        && segments.len() > 1
        && segments.back().is_some_and(|last| last.base > tail.last_end)
    {
        let last = segments.pop_back().expect("there is more than one");
        disk.remove(&last.file_name())
            .map_err(|error| failure("cannot remove", &last.final_path(), error))?;
    }
    let last = segments.back().expect("at least one segment");
    let cut = match mutants::is(Mutant::TailNotTruncated) {
        true => last.cut(tail.start.max(last.file_bytes().unwrap_or(0))),
        // What a torn write left in its last block must be gone as well.
        false => last.cut(tail.last_end).and_then(|()| last.cut(tail.start)),
    };
    cut.map_err(|error| failure("cannot cut the torn tail of", &last.final_path(), error))?;
    last.reserve(settings.segment_bytes)
        .map_err(|error| failure("cannot reserve space for", &last.final_path(), error))?;
    if settings.durability == Durability::Fsync {
        // Readers see what was found, and entries from now on prove that it is on the device.
        for segment in segments
            .iter()
            .filter(|segment| segment.base >= tail.scanned_from)
        {
            segment
                .sync()
                .map_err(|error| failure("cannot sync", &segment.final_path(), error))?;
        }
    }
    if mutants::is(Mutant::FirstSegmentNotSynced) {
        return Ok(());
    }
    disk.sync_names()
        .map_err(|error| failure("cannot sync", &disk.path(""), error))
}

/// What has been recovered so far.
struct Recovery<'a> {
    events: &'a Events,
    state_position: u64,
    /// Where the last entry ends that the state was made of; padding may follow up to `state_position`.
    state_end: u64,
    topics: Topics,
    groups: Groups,
    producer_ids_taken: i64,
    chunks: VecDeque<ChunkExtent>,
    chunk_bytes: usize,
    /// What the journal holds up to here, from the state on.
    counted: Counts,
    /// What is missing of it.
    lost: Counts,
    /// Offsets that are missing between two batches of a partition.
    skipped: u32,
    scanned_bytes: u64,
    cut_bytes: u64,
    damaged: Vec<(u64, u64)>,
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
    fn use_index(&mut self, disk: &dyn Disk, segment: &Segment, next_base: u64) -> bool {
        let name = file_name(segment.base, "index");
        let read = disk.read(&name).map_err(|error| error.to_string());
        let index = read.and_then(|bytes| {
            checkpoint::decode_index(checkpoint::body_of(&bytes, false)?)
                .map_err(|malformed| malformed.to_string())
        });
        let index = match index {
            Ok(index) if index_covers(&index, segment.base, next_base) => index,
            Ok(_) => return false,
            Err(error) => {
                self.events.write(
                    "index_unusable",
                    json!({"path": disk.path(&name).display().to_string(), "error": error}),
                );
                return false;
            }
        };
        self.chunks.extend(index.chunks);
        let marks_max = self.topics.chunk_marks_max();
        for (partition, thinned, marks) in index.marks {
            // Partitions that are not in the state were deleted; their ids are nobody else's.
            let Some(partition) = self.topics.partition_mut(partition) else {
                continue;
            };
            partition.thinned |= thinned;
            let added: isize = marks
                .into_iter()
                .map(|mark| {
                    partition.note_chunk(mark.first_offset, mark.chunk, mark.timestamp_ms_max, marks_max)
                })
                .sum();
            self.topics.add_marks(added);
        }
        true
    }

    /// A log that does not know what it should hold does not begin.
    fn refuse_unknown_losses(&self, segments: &VecDeque<Arc<Segment>>) -> Result<(), String> {
        let places: Vec<String> = self
            .damaged
            .iter()
            .filter(|&&(_, to)| to > self.state_position)
            .map(|&(from, to)| place(segments, from, to))
            .collect();
        let places = places.join(", ");
        if self.lost.changes > 0 && !mutants::is(Mutant::LostChangesIgnored) {
            return Err(format!(
                "{} acknowledged changes of topics, groups or producers are lost, so that the log does not know what it should hold: {places}. {RESTORE}",
                self.lost.changes
            ));
        }
        if self.lost.records != self.skipped && !mutants::is(Mutant::LostRecordsIgnored) {
            return Err(format!(
                "acknowledged records at the end of partitions are lost, and their offsets would be given out again: {places}. {RESTORE}"
            ));
        }
        Ok(())
    }

    fn report_damage(&mut self, segments: &VecDeque<Arc<Segment>>, from: u64, to: u64) {
        self.damaged.push((from, to));
        report_damage(self.events, segments, from, to);
    }
}

/// Says that bytes `from` to `to` of the journal are damaged.
pub fn report_damage(events: &Events, segments: &VecDeque<Arc<Segment>>, from: u64, to: u64) {
    let place = place(segments, from, to);
    eprintln!("gauge log: {place}; the batches there are lost and will not be served");
    events.write("damage", json!({"place": place, "from": from, "to": to}));
}

/// Where a damaged range is, for people.
fn place(segments: &VecDeque<Arc<Segment>>, from: u64, to: u64) -> String {
    let next_bases = segments.iter().skip(1).map(|next| next.base).chain([u64::MAX]);
    let touched = segments
        .iter()
        .zip(next_bases)
        .filter(|&(segment, next_base)| segment.base < to && from < next_base);
    let places: Vec<String> = touched
        .map(|(segment, next_base)| {
            format!(
                "{}: bytes {} to {} are damaged",
                segment.final_path().display(),
                from.saturating_sub(segment.base),
                to.min(next_base) - segment.base
            )
        })
        .collect();
    places.join(", ")
}

/// Whether the chunks of an index lie side by side from `base` to the next segment.
fn index_covers(index: &Index, base: u64, next_base: u64) -> bool {
    let mut at = base;
    for chunk in &index.chunks {
        if chunk.start != at
            || chunk.end <= chunk.start
            || !(chunk.start..=chunk.end).contains(&chunk.last_end)
        {
            return false;
        }
        at = chunk.end;
    }
    at == next_base
}

/// Reads and sets the identity of a log, which is made with its directory.
pub fn cluster_id(disk: &dyn Disk, new: impl FnOnce() -> String) -> Result<String, String> {
    const NAME: &str = "cluster-id";
    if let Ok(bytes) = disk.read(NAME)
        && let Ok(id) = String::from_utf8(bytes)
        && !id.trim().is_empty()
    {
        return Ok(id.trim().to_owned());
    }
    let id = new();
    // Once the identity is there, an earlier start has come as far as this.
    let own_name = match mutants::is(Mutant::DataDirectoryNotSynced) {
        true => Ok(()),
        false => disk.sync_own_name(),
    };
    own_name
        .and_then(|()| checkpoint::write_file(disk, NAME, id.as_bytes()))
        .map_err(|error| failure("cannot write", &disk.path(NAME), error))?;
    Ok(id)
}
