//! The reader of the past: brings whole chunks from disk into memory, checks them, and wakes who waits for them.
//!
//! One thread, one large sequential read at a time, whatever the number of readers; what it reads is shared by all of them. It has no lower priority than other threads: on a busy machine that stopped
//! it altogether, and threads that publish are let in soon all the same (see `scheduling`).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use crate::batch;
use crate::recovery::report_damage;
use crate::shared::{Shared, lock};
use crate::storage::buffer::BLOCK_BYTES;
use crate::storage::chunk::{BatchPlace, Chunk, Directory, Memory};
use crate::storage::entry::{self, Kind, Step};
use crate::storage::journal::ChunkExtent;

/// How long to wait for memory before trying again.
const MEMORY_WAIT: Duration = Duration::from_millis(2);

/// The thread: reads chunks that are asked for until everything should end.
pub fn run(shared: &Shared) {
    while let Some(start) = next(shared) {
        let outcome = load(shared, start);
        let mut loads = lock(&shared.loads);
        let waiting = loads.waiting.remove(&start).unwrap_or_default();
        if let Err(reason) = outcome {
            shared
                .events
                .write("load_failed", json!({"chunk": start, "reason": reason}));
            loads.failed.insert(start, reason);
        }
        drop(loads);
        shared.wake(&waiting, None);
    }
}

fn next(shared: &Shared) -> Option<u64> {
    let mut loads = lock(&shared.loads);
    loop {
        if shared.is_stopping() {
            return None;
        }
        if let Some(start) = loads.queue.pop_front() {
            return Some(start);
        }
        loads = shared
            .loads_changed
            .wait(loads)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
    }
}

/// Brings the chunk that begins at `start` into memory, if it is not there.
pub fn load(shared: &Shared, start: u64) -> Result<(), String> {
    if shared.cache.contains(start) {
        return Ok(());
    }
    // A chunk that retention has deleted meanwhile: who waits for it finds out by asking again.
    let Some((extent, segment)) = shared.broker().journal.locate(start) else {
        return Ok(());
    };
    let slot = loop {
        match shared.cache.take_slot(true) {
            Some(slot) => break slot,
            None if shared.is_stopping() => return Ok(()),
            None => std::thread::sleep(MEMORY_WAIT),
        }
    };
    let length = (extent.end - extent.start) as usize;
    if let Some(mapping) = segment.map(start, length) {
        let directory = index(shared, mapping.bytes(), extent);
        shared.metrics.loaded_bytes.add(length as u64);
        insert(shared, start, Memory::Mapped(mapping), directory);
        return Ok(());
    }
    let mut buffer = slot.into_buffer(shared.cache.chunk_bytes());
    let read = segment.read(
        &mut buffer.all_mut()[..length.next_multiple_of(BLOCK_BYTES)],
        start,
    );
    let count = match read {
        Ok(count) => count.min(length),
        Err(error) => {
            shared.cache.give_back(buffer);
            return Err(format!("{}: {error}", segment.final_path().display()));
        }
    };
    shared.metrics.loaded_bytes.add(count as u64);
    let directory = index(shared, &buffer.all_mut()[..count], extent);
    insert(shared, start, Memory::Own(buffer), directory);
    Ok(())
}

fn insert(shared: &Shared, start: u64, memory: Memory, directory: Directory) {
    let chunk = Chunk::new(start, memory, true);
    chunk.directory.set(directory).expect("a new chunk has none");
    chunk.clean.store(true, Ordering::Release);
    shared.cache.insert(Arc::new(chunk));
}

/// Checks every entry of a chunk and lists the batches that are whole; the others are left out and so never served.
fn index(shared: &Shared, bytes: &[u8], extent: ChunkExtent) -> Directory {
    let mut places = Vec::new();
    let mut end = 0;
    let mut damaged = Vec::new();
    entry::walk(bytes, extent.start, |step| {
        if let Step::Entry(at, _, payload) = &step {
            end = at + entry::footprint(payload.len());
        }
        match step {
            Step::Entry(at, header, payload) if header.kind == Kind::Batch => {
                let batch = batch::header(payload);
                places.push(BatchPlace {
                    base_offset: batch.base_offset,
                    offset_count: batch.offset_count as u32,
                    partition: header.partition,
                    at: (at + entry::HEADER_BYTES) as u32,
                    bytes: payload.len() as u32,
                    timestamp_ms_max: batch.timestamp_ms_max,
                });
            }
            Step::Entry(..) => {}
            Step::Damage(from, to) => damaged.push((from, to)),
        }
        ControlFlow::Continue(())
    });
    // Behind the last entry nothing says where it ended but this.
    let last_end = (extent.last_end - extent.start) as usize;
    if end < last_end {
        damaged.push((end, last_end));
    }
    for (from, to) in damaged {
        report(shared, extent.start + from as u64, extent.start + to as u64);
    }
    Directory::new(&places)
}

/// Says that bytes `from` to `to` of the journal are damaged; once, however often they are read.
fn report(shared: &Shared, from: u64, to: u64) {
    if lock(&shared.loads).damaged.insert((from, to)) {
        shared.metrics.damaged.add(1);
        let segments = shared.broker().journal.segments.clone();
        report_damage(&shared.events, &segments, from, to);
    }
}
