//! Write-back in `async` mode: moves what was written from the page cache to the device, early and in small pieces.
//!
//! Left to itself the kernel collects dirty pages for half a minute and then writes them all, and at some point makes writers wait. Asked to begin earlier (`sync_file_range`),
//! it may keep the caller for milliseconds while it queues the pieces; and a writer waits for a page that is just being handed to the device. So this is done by a thread of
//! its own, it stays behind the end of the journal, and its pieces are small. Nobody waits for it: an acknowledgement in this mode says that the page cache has the data.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::shared::{Shared, lock};
use crate::storage::segment::{Durability, Segment};

/// Bytes handed to the device at once.
const PIECE_BYTES: u64 = 1 << 20;
/// How far write-back stays behind the end of the journal, so that it never holds a page that is still being filled.
const DISTANCE_BYTES: u64 = 256 << 10;

/// How far which segments should be written back.
#[derive(Debug, Default)]
pub struct WriteBack {
    wanted: Mutex<VecDeque<(Arc<Segment>, u64)>>,
    changed: Condvar,
}

impl WriteBack {
    /// Notes that `segment` was written up to journal position `end`, of which the last `bytes` are new; wakes the thread when a piece is complete.
    pub fn note(&self, segment: &Arc<Segment>, end: u64, bytes: u64) {
        if end / PIECE_BYTES == (end - bytes) / PIECE_BYTES {
            return;
        }
        let to = end.saturating_sub(DISTANCE_BYTES);
        let mut wanted = lock(&self.wanted);
        match wanted.back_mut() {
            Some((last, position)) if Arc::ptr_eq(last, segment) => *position = to,
            _ => wanted.push_back((Arc::clone(segment), to)),
        }
        drop(wanted);
        self.changed.notify_one();
    }

    /// Wakes the thread, so that it can end.
    pub fn wake(&self) {
        drop(lock(&self.wanted));
        self.changed.notify_all();
    }
}

/// The thread: writes back what it is told until everything should end.
pub fn run(shared: &Shared) -> io::Result<()> {
    if shared.settings.durability != Durability::Async {
        return Ok(());
    }
    loop {
        let mut wanted = lock(&shared.write_back.wanted);
        let (segment, to) = loop {
            if shared.is_stopping() {
                return Ok(());
            }
            if let Some(next) = wanted.pop_front() {
                break next;
            }
            wanted = shared
                .write_back
                .changed
                .wait(wanted)
                .unwrap_or_else(PoisonError::into_inner);
        };
        drop(wanted);
        while segment.start_write_back(to, PIECE_BYTES) && !shared.is_stopping() {}
    }
}
