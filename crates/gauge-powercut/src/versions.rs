//! The writes to a file since its last sync, and what they took the place of: so a cut can leave a block as it was between two of them, and a sync can make durable
//! what was there when it began.
//!
//! What is only appended costs a few bytes of memory per write and no copy. Un-synced bytes that are written over are copied to a file of their own first.

use std::io;
use std::path::PathBuf;

use crate::extents::Extents;
use crate::store::Store;

/// Writes that are told apart, per file. Beyond it, those so far count as one: a block is durable, or as it is now.
const WRITES_MAX: usize = 1 << 16;
/// Bytes of earlier versions that are kept, per file; beyond it as above.
const BYTES_MAX: u64 = 64 << 20;

/// A write, by its place in the order of all writes to the disk.
#[derive(Clone, Copy, Debug)]
struct Write {
    order: u64,
    start: u64,
    end: u64,
}

/// Un-synced bytes that the write `order` took the place of, kept `at` a place of the store.
#[derive(Clone, Copy, Debug)]
struct Replaced {
    order: u64,
    start: u64,
    end: u64,
    at: u64,
}

/// A part of the un-synced data, with the last write of which it may show anything; 0: of none.
pub type Piece = (u64, u64, u64);

/// Un-synced writes and what they replaced.
#[derive(Debug)]
pub struct Versions {
    writes: Vec<Write>,
    replaced: Vec<Replaced>,
    store: Store,
    stored: u64,
    /// Syncs that began and have not ended: what was there at their begin must remain known.
    pins: u32,
}

impl Versions {
    /// None yet; earlier versions are kept at `path`, or in memory.
    pub fn new(path: Option<PathBuf>) -> Versions {
        Versions {
            writes: Vec::new(),
            replaced: Vec::new(),
            store: Store::new(path),
            stored: 0,
            pins: 0,
        }
    }

    /// Notes that write number `order` will write `[start, end)`, and keeps what of it is `dirty` already.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn note(
        &mut self,
        order: u64,
        (start, end): (u64, u64),
        dirty: &Extents,
        backing: &mut Store,
    ) -> io::Result<()> {
        if start >= end {
            return Ok(());
        }
        if self.pins == 0 && (self.writes.len() >= WRITES_MAX || self.stored >= BYTES_MAX) {
            self.collapse(dirty)?;
        }
        for (from, until) in dirty.within(start, end) {
            copy(backing, from, &mut self.store, self.stored, until - from)?;
            self.replaced.push(Replaced {
                order,
                start: from,
                end: until,
                at: self.stored,
            });
            self.stored += until - from;
        }
        self.writes.push(Write { order, start, end });
        Ok(())
    }

    /// From now on all un-synced data counts as written at once.
    fn collapse(&mut self, dirty: &Extents) -> io::Result<()> {
        self.clear()?;
        let ranges = dirty.ranges_with_order();
        self.writes = ranges
            .map(|(start, end, order)| Write { order, start, end })
            .collect();
        self.writes.sort_unstable_by_key(|write| write.order);
        Ok(())
    }

    /// A sync begins.
    pub fn pin(&mut self) {
        self.pins += 1;
    }

    /// A sync has ended.
    pub fn unpin(&mut self) {
        self.pins = self.pins.saturating_sub(1);
    }

    /// No sync is under way any more.
    pub fn unpin_all(&mut self) {
        self.pins = 0;
    }

    /// Forgets what lies behind `size`.
    pub fn cut_off(&mut self, size: u64) {
        for write in &mut self.writes {
            write.end = write.end.min(size);
        }
        for replaced in &mut self.replaced {
            replaced.end = replaced.end.min(size);
        }
        self.writes.retain(|write| write.start < write.end);
        self.replaced.retain(|replaced| replaced.start < replaced.end);
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn clear(&mut self) -> io::Result<()> {
        self.writes.clear();
        self.replaced.clear();
        if self.stored > 0 {
            self.store.set_bytes(0)?;
            self.stored = 0;
        }
        Ok(())
    }

    /// Forgets writes up to number `order`.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn forget(&mut self, order: u64) -> io::Result<()> {
        self.writes.retain(|write| write.order > order);
        self.replaced.retain(|replaced| replaced.order > order);
        if self.writes.is_empty() {
            self.clear()?;
        }
        Ok(())
    }

    /// What was written after number `order`.
    pub fn after(&self, order: u64) -> Extents {
        let mut found = Extents::default();
        for write in self.writes.iter().filter(|write| write.order > order) {
            found.insert(write.start, write.end, write.order);
        }
        found
    }

    /// Numbers of all writes.
    pub fn orders(&self) -> impl Iterator<Item = u64> + '_ {
        self.writes.iter().map(|write| write.order)
    }

    /// Writes to `target` what was un-synced after write number `order` and was written over since, at the places that it had. Returns these places.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn restore_replaced(&mut self, order: u64, target: &mut Store) -> io::Result<Extents> {
        let (mut seen, mut restored) = (Extents::default(), Extents::default());
        let mut replaced = self
            .replaced
            .iter()
            .filter(|replaced| replaced.order > order)
            .peekable();
        for write in self.writes.iter().filter(|write| write.order > order) {
            while let Some(old) = replaced.next_if(|old| old.order <= write.order) {
                // Bytes that a write since then was the first to touch had what it replaced.
                for (from, until) in seen.gaps(old.start, old.end) {
                    copy(
                        &mut self.store,
                        old.at + (from - old.start),
                        target,
                        from,
                        until - from,
                    )?;
                    restored.insert(from, until, 0);
                }
            }
            seen.insert(write.start, write.end, 0);
        }
        Ok(restored)
    }

    /// Which bytes of the pieces show a write: those that one up to the piece's last write covers.
    pub fn covered(&self, pieces: &[Piece]) -> Extents {
        let mut kept = Extents::default();
        for write in &self.writes {
            for &(start, end, last) in overlapping(pieces, write.start, write.end) {
                if write.order <= last {
                    kept.insert(write.start.max(start), write.end.min(end), 0);
                }
            }
        }
        kept
    }

    /// Takes back in `target` what was written after each piece's last write, where something un-synced was there before it.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn take_back(&mut self, pieces: &[Piece], target: &mut Store) -> io::Result<()> {
        for old in self.replaced.iter().rev() {
            for &(start, end, last) in overlapping(pieces, old.start, old.end) {
                if last > 0 && old.order > last {
                    let from = old.start.max(start);
                    let until = old.end.min(end);
                    copy(
                        &mut self.store,
                        old.at + (from - old.start),
                        target,
                        from,
                        until - from,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Numbers of the writes to each block of `block_bytes` within `dirty`, by the block's place.
    pub fn by_block(&self, block_bytes: u64) -> std::collections::BTreeMap<u64, Vec<u64>> {
        let mut found: std::collections::BTreeMap<u64, Vec<u64>> = std::collections::BTreeMap::new();
        for write in &self.writes {
            for block in write.start / block_bytes..write.end.div_ceil(block_bytes) {
                found.entry(block).or_default().push(write.order);
            }
        }
        found
    }

    /// Closes the descriptor; it is opened again when it is needed.
    pub fn close(&mut self) {
        self.store.close();
    }
}

/// The pieces that share bytes with `[start, end)`; they are in order and do not overlap.
fn overlapping(pieces: &[Piece], start: u64, end: u64) -> impl Iterator<Item = &Piece> {
    let first = pieces.partition_point(|&(_, until, _)| until <= start);
    pieces[first..]
        .iter()
        .take_while(move |&&(from, _, _)| from < end)
}

/// Copies bytes from one place to another; what is not there are zeros.
fn copy(source: &mut Store, from: u64, target: &mut Store, to: u64, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; bytes as usize];
    let count = source.read_at(&mut buffer, from)?;
    buffer[count..].fill(0);
    target.write_at(&buffer, to)
}
