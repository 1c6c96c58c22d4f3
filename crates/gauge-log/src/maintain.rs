//! Work beside the data path: writing states and indexes when a segment is complete, and deleting old segments.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::broker::checkpoint;
use crate::shared::{Shared, lock};
use crate::storage::segment::{Segment, file_name};

/// How often retention looks, at least.
const PERIOD: Duration = Duration::from_secs(1);
/// States that are kept: the newest, and one in case it is damaged.
const STATES_KEPT: usize = 2;

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
            write_checkpoint(shared)?;
        }
        expire_topics(shared);
        delete_old_segments(shared)?;
    }
}

/// Writes the index of the segment that was completed last, and the state.
pub fn write_checkpoint(shared: &Shared) -> io::Result<()> {
    let directory = &shared.settings.data;
    let (position, state, index, base, segments) = {
        let broker = shared.broker();
        let (position, state) = checkpoint::encode_state(&broker);
        let segments = broker.journal.segments.clone();
        let current = segments.back().map_or(0, |segment| segment.base);
        let completed = segments.iter().rev().nth(1).map(|segment| segment.base);
        let index = completed.map(|base| (base, checkpoint::encode_index(&broker, base, current)));
        (position, state, index, current, segments)
    };
    // A state must never be ahead of the journal: it would promise what is not there.
    while shared.committed.load(Ordering::Acquire) < position {
        if shared.is_stopping() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    if let Some(completed) = segments.iter().rev().nth(1) {
        completed.trim(base)?;
    }
    for segment in segments.iter().rev().take(2) {
        segment.sync()?;
    }
    if let Some((completed, index)) = index {
        checkpoint::write_file(&directory.join(file_name(completed, "index")), false, &index)?;
    }
    checkpoint::write_file(&directory.join(file_name(base, "state")), true, &state)?;
    remove_old_states(shared)
}

fn remove_old_states(shared: &Shared) -> io::Result<()> {
    let mut paths: Vec<_> = std::fs::read_dir(&shared.settings.data)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "state"))
        .collect();
    paths.sort();
    let old = paths.len().saturating_sub(STATES_KEPT);
    paths[..old].iter().try_for_each(std::fs::remove_file)
}

/// Moves the start of partitions whose topic has a `retention.ms` of its own past chunks that are older.
fn expire_topics(shared: &Shared) {
    let now_ms = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |age| age.as_millis() as i64);
    let mut broker = shared.broker();
    let with_retention: Vec<(i64, Vec<u32>)> = broker
        .topics
        .iter()
        .filter_map(|topic| {
            let retention_ms: i64 = topic.configs.get("retention.ms")?.parse().ok()?;
            (retention_ms >= 0).then(|| (retention_ms, topic.partitions.clone()))
        })
        .collect();
    for (retention_ms, partitions) in with_retention {
        for id in partitions {
            let Some(partition) = broker.topics.partition(id) else {
                continue;
            };
            let is_old = |start: u64| {
                let newest = broker.journal.timestamp_of(start);
                newest != i64::MAX && newest.saturating_add(retention_ms) < now_ms
            };
            let keep_from = partition
                .chunk_marks
                .iter()
                .find(|&&(_, start)| !is_old(start))
                .map(|&(_, start)| start);
            let all_old = partition.chunk_marks.last().map(|&(_, start)| start + 1);
            let Some(keep_from) = keep_from.or(all_old) else {
                continue;
            };
            if let Some(partition) = broker.topics.partition_mut(id) {
                partition.forget_before(keep_from);
            }
        }
    }
}

/// Deletes the oldest segments while the journal is too large, they are too old, or nothing in them is alive.
fn delete_old_segments(shared: &Shared) -> io::Result<()> {
    loop {
        let mut broker = shared.broker();
        let journal = &broker.journal;
        let Some(next_base) = journal.segments.get(1).map(|segment| segment.base) else {
            return Ok(());
        };
        let oldest = Arc::clone(&journal.segments[0]);
        // A state behind the segment must be on disk before the segment may go.
        let state_is_written = shared.settings.data.join(file_name(next_base, "state")).exists()
            || journal
                .segments
                .iter()
                .skip(2)
                .any(|later| shared.settings.data.join(file_name(later.base, "state")).exists());
        let too_large = shared
            .settings
            .retention_bytes
            .is_some_and(|limit| journal.end() - oldest.base > limit.max(shared.settings.segment_bytes));
        let is_dead = || {
            let first_alive = |(_, partition): (u32, &crate::broker::topics::Partition)| {
                partition.chunk_marks.first().map(|&(_, start)| start)
            };
            broker
                .topics
                .partitions()
                .filter_map(first_alive)
                .all(|start| start >= next_base)
        };
        if !state_is_written || !(too_large || is_too_old(shared, &oldest) || is_dead()) {
            return Ok(());
        }
        broker.journal.segments.pop_front();
        while broker
            .journal
            .chunks
            .front()
            .is_some_and(|chunk| chunk.start < next_base)
        {
            broker.journal.chunks.pop_front();
        }
        for (_, partition) in broker.topics.partitions_mut() {
            partition.forget_before(next_base);
        }
        broker.topics.recount();
        drop(broker);
        let path = oldest.final_path();
        std::fs::remove_file(&path)?;
        let _ = std::fs::remove_file(path.with_extension("index"));
        shared.metrics.segments_deleted.add(1);
        shared
            .events
            .write("segment_deleted", json!({"path": path.display().to_string()}));
    }
}

fn is_too_old(shared: &Shared, segment: &Segment) -> bool {
    let Some(age_max) = shared.settings.retention_age else {
        return false;
    };
    let modified = std::fs::metadata(segment.final_path()).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > age_max))
}
