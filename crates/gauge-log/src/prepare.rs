//! The next segment's file, made before it is needed.
//!
//! In `fsync` mode the file's blocks are not only set aside but written with zeroes, as long as the journal grows slowly enough. Blocks that are only set aside
//! are marked as unwritten, and each first write to some has to wait for the file system's own journal; overwriting waits for the device alone: half of
//! the time at the median and a small part of it in the tail (docs/reference-log.md). When the journal grows fast, its writes are large and hardly
//! notice, and writing everything twice would cost more than it gives.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::shared::{Shared, lock};
use crate::storage::segment::{Segment, Zeroes};

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
    let mut preparation = Preparation::begin(shared)?;
    let mut next = Instant::now();
    while preparation.step(shared)? {
        next = (next + PIECE_TIME).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(preparation.segment)
}

/// A segment that is being made ready, piece by piece.
#[derive(Debug)]
pub struct Preparation {
    /// The segment, which can be used at any time.
    pub segment: Segment,
    zeroes: Option<Zeroes>,
    pieces: u64,
    piece_bytes: u64,
    /// Where the journal ended when this began.
    begun: u64,
}

impl Preparation {
    /// Makes the file, with its blocks set aside.
    pub fn begin(shared: &Shared) -> io::Result<Self> {
        let settings = &shared.settings;
        let number = shared.spares.fetch_add(1, Ordering::Relaxed);
        let segment = Segment::prepare(&shared.disk, number, settings.durability, settings.segment_bytes)?;
        Ok(Self {
            zeroes: segment.zeroes(settings.segment_bytes)?,
            segment,
            pieces: 0,
            piece_bytes: PIECE_BYTES.min(settings.segment_bytes / 4),
            begun: shared.broker().journal.end(),
        })
    }

    /// Writes one piece of zeroes; false when nothing is left to be done.
    pub fn step(&mut self, shared: &Shared) -> io::Result<bool> {
        let Some(zeroes) = &self.zeroes else {
            return Ok(false);
        };
        let done_bytes = self.pieces * self.piece_bytes;
        if done_bytes < shared.settings.segment_bytes {
            zeroes.write(done_bytes, self.piece_bytes)?;
            self.pieces += 1;
            let grown = shared.broker().journal.end() - self.begun;
            return Ok(!shared.is_stopping() && grown <= self.piece_bytes + done_bytes / 2);
        }
        if let Some(zeroes) = self.zeroes.take() {
            zeroes.finish()?;
            self.segment.note_written();
        }
        Ok(false)
    }
}
