//! The next segment's file, made before it is needed.
//!
//! In `fsync` mode the file's blocks are not only set aside but written with zeroes, as long as the journal grows slowly enough. Blocks that are only set aside
//! are marked as unwritten, and each first write to some has to wait for the file system's own journal; overwriting waits for the device alone: half of
//! the time at the median and a small part of it in the tail (docs/reference-log.md). When the journal grows fast, its writes are large and hardly
//! notice, and writing everything twice would cost more than it gives.

use std::io;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::shared::{Shared, lock};
use crate::storage::segment::Segment;

/// Zeroes written at once.
const PIECE_BYTES: u64 = 1 << 20;
/// The shortest time from one piece to the next: zeroes take no more than about 130 MB/s of the device.
const PIECE_TIME: Duration = Duration::from_millis(8);

/// The thread: makes segments ready until everything should end.
pub fn run(shared: &Shared) -> io::Result<()> {
    loop {
        {
            let mut wanted = lock(&shared.segment_wanted);
            while !*wanted && !shared.is_stopping() {
                wanted = shared
                    .segment_changed
                    .wait(wanted)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            *wanted = false;
        }
        if shared.is_stopping() {
            return Ok(());
        }
        if shared.broker().journal.wants_segment() {
            let segment = prepare(shared)?;
            shared.broker().journal.offer_segment(segment);
        }
    }
}

fn prepare(shared: &Shared) -> io::Result<Segment> {
    let settings = &shared.settings;
    let mut segment = Segment::prepare(&settings.data, settings.durability, settings.segment_bytes)?;
    let Some(zeroes) = segment.zeroes(settings.segment_bytes)? else {
        return Ok(segment);
    };
    let begun = shared.broker().journal.end();
    let mut next = Instant::now();
    for piece in 0..settings.segment_bytes / PIECE_BYTES {
        zeroes.write(piece * PIECE_BYTES, PIECE_BYTES)?;
        next = (next + PIECE_TIME).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let grown = shared.broker().journal.end() - begun;
        if shared.is_stopping() || grown > PIECE_BYTES + piece * PIECE_BYTES / 2 {
            return Ok(segment);
        }
    }
    zeroes.finish()?;
    segment.note_written();
    Ok(segment)
}
