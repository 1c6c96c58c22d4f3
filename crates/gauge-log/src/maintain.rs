//! Work beside the data path: writing states and indexes when a segment is complete, and deleting old segments.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::broker::Broker;
use crate::broker::change::Change;
use crate::broker::checkpoint;
use crate::broker::topics::Partition;
use crate::mutants::{self, Mutant};
use crate::shared::{Shared, lock};
use crate::storage::disk::Disk;
use crate::storage::journal::Full;
use crate::storage::segment::{Durability, Segment, base_of, file_name};

/// How often retention looks, at least.
const PERIOD: Duration = Duration::from_secs(1);
/// States that are kept: the newest, and one in case it is damaged.
const STATES_KEPT: usize = 2;
/// Partitions in one change of the journal.
const STARTS_PER_CHANGE: usize = 10_000;

/// The thread: maintains until everything should end.
pub fn run(shared: &Shared) -> io::Result<()> {
    loop {
        {
            let mut wanted = lock(&shared.maintenance_wanted);
            if !*wanted && !shared.is_stopping() {
                wanted = shared
                    .maintenance_changed
                    .wait_timeout(wanted, PERIOD)
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .0;
            }
            *wanted = false;
        }
        if shared.is_stopping() {
            return Ok(());
        }
        if shared.broker().journal.rolled.swap(false, Ordering::AcqRel) {
            let checkpoint = Checkpoint::begin(shared);
            if wait_for_commit(shared, checkpoint.position) {
                checkpoint.finish(shared)?;
            }
        }
        expire_topics(shared, now_ms());
        while let Some(deletion) = Deletion::begin(shared)? {
            if !wait_for_commit(shared, deletion.position) {
                break;
            }
            deletion.finish(shared)?;
        }
    }
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |age| age.as_millis() as i64)
}

/// Waits until the journal is committed up to `position`; false when the log ends before that.
fn wait_for_commit(shared: &Shared, position: u64) -> bool {
    while shared.committed.load(Ordering::Acquire) < position {
        if shared.is_stopping() {
            return false;
        }
        shared.want_commit();
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// The indexes of segments that were completed, and the state, as they are to be written.
#[derive(Debug)]
pub struct Checkpoint {
    /// The journal position that must be committed first: a state that is ahead of the journal would promise what is not there.
    pub position: u64,
    state: Vec<u8>,
    /// By the base of their segments.
    indexes: Vec<(u64, Vec<u8>)>,
    /// Segments that were not synced since they were completed, and the one that was being written.
    segments: Vec<Arc<Segment>>,
}

impl Checkpoint {
    /// Takes what is to be written.
    pub fn begin(shared: &Shared) -> Self {
        let broker = shared.broker();
        let (position, state) = checkpoint::encode_state(&broker);
        let journal = &broker.journal;
        let segments = journal.segments.iter();
        let segments: Vec<Arc<Segment>> = segments
            .filter(|segment| segment.base >= journal.unsynced_from)
            .cloned()
            .collect();
        let indexes = segments.windows(2).map(|pair| {
            let index = checkpoint::encode_index(&broker, pair[0].base, pair[1].base);
            (pair[0].base, index)
        });
        Self {
            position: match mutants::is(Mutant::StateBeforeItsData) {
                true => 0,
                false => position,
            },
            state,
            indexes: indexes.collect(),
            segments,
        }
    }

    /// Writes it, once the journal is committed up to `position`.
    pub fn finish(self, shared: &Shared) -> io::Result<()> {
        let disk = shared.disk.as_ref();
        let Some(last) = self.segments.last() else {
            return Ok(());
        };
        for pair in self.segments.windows(2) {
            pair[0].trim(pair[1].base)?;
        }
        if !mutants::is(Mutant::StateBeforeItsData) {
            self.segments.iter().try_for_each(|segment| segment.sync())?;
        }
        for (base, index) in self.indexes {
            let content = checkpoint::file_of(&index, false);
            checkpoint::write_file(disk, &file_name(base, "index"), &content)?;
        }
        let content = checkpoint::file_of(&self.state, true);
        checkpoint::write_file(disk, &file_name(last.base, "state"), &content)?;
        shared.broker().journal.unsynced_from = last.base;
        remove_old_states(disk)
    }
}

fn remove_old_states(disk: &dyn Disk) -> io::Result<()> {
    let mut names = disk.list()?;
    names.retain(|name| base_of(name, "state").is_some());
    names.sort();
    let old = names.len().saturating_sub(STATES_KEPT);
    names[..old].iter().try_for_each(|name| disk.remove(name))
}

/// Moves the start of partitions whose topic has a `retention.ms` of its own past chunks that were old at `now_ms`.
pub fn expire_topics(shared: &Shared, now_ms: i64) {
    let mut broker = shared.broker();
    let mut starts = Vec::new();
    for topic in broker.topics.iter() {
        let retention_ms = topic.configs.get("retention.ms");
        let retention_ms: Option<i64> = retention_ms.and_then(|text| text.parse().ok());
        let Some(retention_ms) = retention_ms.filter(|&retention_ms| retention_ms >= 0) else {
            continue;
        };
        let is_old = |start: u64| {
            let newest = broker.journal.timestamp_of(start);
            newest != i64::MAX && newest.saturating_add(retention_ms) < now_ms
        };
        for &id in &topic.partitions {
            let Some(partition) = broker.topics.partition(id) else {
                continue;
            };
            let marks = &partition.chunk_marks;
            let keep_from = marks.iter().find(|mark| !is_old(mark.chunk));
            let keep_from = keep_from.map_or(u64::MAX, |mark| mark.chunk);
            let start = partition.start_behind(keep_from);
            starts.extend(
                start
                    .filter(|&start| start > partition.deleted_before)
                    .map(|start| (id, start)),
            );
        }
    }
    // Without memory for it now there is a next time.
    let _ = move_starts(&mut broker, starts);
}

/// Lets partitions begin at the given offsets, once that is committed.
fn move_starts(broker: &mut Broker, starts: Vec<(u32, i64)>) -> Result<(), Full> {
    for starts in starts.chunks(STARTS_PER_CHANGE) {
        let starts = starts.to_vec();
        if mutants::is(Mutant::LogStartNotJournaled) {
            for (partition, log_start) in starts {
                if let Some(partition) = broker.topics.partition_mut(partition) {
                    partition.start_at(log_start);
                }
            }
            continue;
        }
        broker.change(Change::RecordsDeleted { starts })?;
    }
    Ok(())
}

/// The oldest segment on its way out.
#[derive(Debug)]
pub struct Deletion {
    /// The journal position that must be committed first: it says where partitions begin without that segment.
    pub position: u64,
    segment: Arc<Segment>,
    /// Where the next segment begins.
    next_base: u64,
    /// What must be on the device first, so that no loss of power leaves partitions that begin in a segment which is gone.
    unsynced: Vec<Arc<Segment>>,
}

impl Deletion {
    /// Begins to delete the oldest segment, if the journal is too large, it is too old, or nothing in it is alive.
    pub fn begin(shared: &Shared) -> io::Result<Option<Self>> {
        let states = shared.disk.list()?;
        let states: Vec<u64> = states.iter().filter_map(|name| base_of(name, "state")).collect();
        // Nobody else removes segments, so that it is still the oldest one below; and nobody waits for the file system.
        let Some(oldest) = shared.broker().journal.segments.front().cloned() else {
            return Ok(None);
        };
        let is_too_old = is_too_old(shared, &oldest);
        let mut broker = shared.broker();
        let journal = &broker.journal;
        let Some(next_base) = journal.segments.get(1).map(|segment| segment.base) else {
            return Ok(None);
        };
        let segment = oldest;
        // A state behind the segment must be on disk before the segment may go.
        let state_is_written =
            states.iter().any(|&base| base >= next_base) || mutants::is(Mutant::SegmentDeletedWithoutState);
        let too_large = shared
            .settings
            .retention_bytes
            .is_some_and(|limit| journal.end() - segment.base > limit.max(shared.settings.segment_bytes));
        let is_dead = || {
            let first_alive =
                |(_, partition): (u32, &Partition)| partition.chunk_marks.first().map(|mark| mark.chunk);
            let mut alive = broker.topics.partitions().filter_map(first_alive);
            alive.all(|start| start >= next_base)
        };
        if !state_is_written || !(too_large || is_too_old || is_dead()) {
            return Ok(None);
        }
        let starts = broker.topics.partitions().filter_map(|(id, partition)| {
            let start = partition.start_behind(next_base)?;
            (start > partition.deleted_before).then_some((id, start))
        });
        let starts: Vec<(u32, i64)> = starts.collect();
        if move_starts(&mut broker, starts).is_err() {
            return Ok(None);
        }
        // Also what was said before and is not committed yet.
        let position = match mutants::is(Mutant::SegmentDeletedBeforeItsLogStart) {
            true => 0,
            false => broker.journal.end(),
        };
        let journal = &broker.journal;
        let unsynced = journal.segments.iter().filter(|segment| {
            shared.settings.durability == Durability::Async && segment.base >= journal.unsynced_from
        });
        Ok(Some(Self {
            position,
            unsynced: unsynced.cloned().collect(),
            segment,
            next_base,
        }))
    }

    /// Deletes it, once the journal is committed up to `position`.
    pub fn finish(self, shared: &Shared) -> io::Result<()> {
        if !mutants::is(Mutant::SegmentDeletedBeforeItsLogStart) {
            self.unsynced.iter().try_for_each(|segment| segment.sync())?;
        }
        let mut broker = shared.broker();
        broker.journal.segments.pop_front();
        while broker
            .journal
            .chunks
            .front()
            .is_some_and(|chunk| chunk.start < self.next_base)
        {
            broker.journal.chunks.pop_front();
        }
        for (_, partition) in broker.topics.partitions_mut() {
            partition.forget_before(self.next_base);
        }
        broker.topics.recount();
        drop(broker);
        let disk = shared.disk.as_ref();
        // The index first: one without its segment would stay for ever.
        match disk.remove(&file_name(self.segment.base, "index")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        disk.remove(&self.segment.file_name())?;
        // In order: a segment that came back without the one behind it would look like damage.
        disk.sync_names()?;
        shared.metrics.segments_deleted.add(1);
        shared.events.write(
            "segment_deleted",
            json!({"path": self.segment.final_path().display().to_string()}),
        );
        Ok(())
    }
}

fn is_too_old(shared: &Shared, segment: &Segment) -> bool {
    let Some(age_max) = shared.settings.retention_age else {
        return false;
    };
    let modified = shared.disk.modified(&segment.file_name());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > age_max))
}
