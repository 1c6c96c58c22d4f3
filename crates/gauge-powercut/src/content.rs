//! The bytes of one file: as they are now, and as a power cut would leave them.
//!
//! The file below (the *backing file*) holds the newest content. Before a durable byte is overwritten, cut off or punched out,
//! it is copied to the same place in a second, sparse file, the *undo file*, and the range is noted as saved. So the durable
//! content is: what is saved, else what the backing file has, up to the durable size. A sync forgets what was saved; a cut
//! copies it back. Memory holds ranges only, and a file that is appended to has one.
//!
//! A sync makes durable what was there when it began (`Snapshot`): of what was written since, the older version goes to the undo file, from where `versions`
//! has it. What a failed sync dropped is *adrift*: it is read, and no sync will save it.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::extents::Extents;
use crate::store::{HOLE, Store};
use crate::survive::Survive;
use crate::versions::Versions;

/// What the kernel keeps of a file as a whole: a write to a part of it makes all of it dirty again.
const PAGE_BYTES: u64 = 4096;

/// Lost bytes are kept in pieces of so many.
const TRACE_BYTES: u64 = 64 << 10;

/// One `truncate` or `fallocate` whose size the journal has not committed.
#[derive(Clone, Copy, Debug)]
struct Resize {
    order: u64,
    /// The smallest size in between: durable content beyond it is gone.
    lowest: u64,
    /// The size that was set.
    set: u64,
}

/// A file as it was when a sync of it began.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    order: u64,
    size: u64,
}

/// What a cut did to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reverted {
    /// Un-synced bytes that are gone.
    pub dropped_bytes: u64,
    /// Un-synced bytes that survived.
    pub survived_bytes: u64,
    /// What is gone, with its places, as far as it was to be kept for look-ups.
    pub lost: Vec<(u64, Vec<u8>)>,
}

/// The bytes of one file.
#[derive(Debug)]
pub struct Content {
    id: u64,
    /// Numbers the writes to a disk.
    clock: Arc<AtomicU64>,
    backing: Store,
    undo: Store,
    versions: Versions,
    size: u64,
    durable_size: u64,
    dirty: Extents,
    saved: Extents,
    adrift: Extents,
    /// The newest change.
    order: u64,
    /// The newest change of which all is durable.
    synced: u64,
    resizes: Vec<Resize>,
    unsynced_since: Option<Instant>,
}

impl Content {
    /// An empty file `id`, kept at these paths (of the file and of what it needs to go back), which are created when they are needed; without paths, in memory.
    /// `clock` numbers the writes to all files of the disk.
    pub fn new(id: u64, paths: Option<(PathBuf, PathBuf)>, clock: Arc<AtomicU64>) -> Content {
        let (backing, undo) = paths.unzip();
        let versions = undo.as_ref().map(|path| path.with_extension("versions"));
        Content {
            id,
            clock,
            backing: Store::new(backing),
            undo: Store::new(undo),
            versions: Versions::new(versions),
            size: 0,
            durable_size: 0,
            dirty: Extents::default(),
            saved: Extents::default(),
            adrift: Extents::default(),
            order: 0,
            synced: 0,
            resizes: Vec::new(),
            unsynced_since: None,
        }
    }

    /// Bytes in the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes written and not yet durable.
    pub fn unsynced_bytes(&self) -> u64 {
        self.dirty.bytes() + self.adrift.bytes()
    }

    /// Bytes of old content kept for a cut.
    pub fn undo_bytes(&self) -> u64 {
        self.saved.bytes()
    }

    /// Since when there has been something to lose.
    pub fn unsynced_since(&self) -> Option<Instant> {
        self.unsynced_since
    }

    /// Whether the size changed since it was last durable.
    pub fn resized(&self) -> bool {
        self.size != self.durable_size || !self.resizes.is_empty()
    }

    /// Numbers of the writes that are not durable.
    pub fn unsynced_orders(&self) -> impl Iterator<Item = u64> + '_ {
        self.versions.orders()
    }

    fn touch(&mut self) {
        self.order = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        self.unsynced_since.get_or_insert_with(Instant::now);
    }

    /// Reads up to the end of the buffer or of the file.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn read(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.backing.read_at(&mut buffer[..wanted], offset)
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        self.preserve(offset, end)?;
        self.touch();
        self.revive(offset, end)?;
        self.note(offset, end)?;
        // Part of it may be there when the write fails: what lies within the file counts as written, the rest is cut off.
        self.dirty.insert(offset, end.min(self.size), self.order);
        let size = self.size;
        if let Err(error) = self.backing.write_at(data, offset) {
            self.backing.set_bytes(size)?;
            self.versions.cut_off(size);
            return Err(error);
        }
        self.dirty.insert(offset, end, self.order);
        self.size = size.max(end);
        Ok(())
    }

    fn note(&mut self, start: u64, end: u64) -> io::Result<()> {
        self.versions
            .note(self.order, (start, end), &self.dirty, &mut self.backing)
    }

    /// What a failed sync dropped of the pages of `[start, end)` is dirty again: the page is written as a whole.
    fn revive(&mut self, start: u64, end: u64) -> io::Result<()> {
        if self.adrift.is_empty() || start >= end {
            return Ok(());
        }
        let (first, last) = (
            start / PAGE_BYTES * PAGE_BYTES,
            end.div_ceil(PAGE_BYTES) * PAGE_BYTES,
        );
        for (from, until) in self.adrift.within(first, last) {
            self.note(from, until)?;
            self.dirty.insert(from, until, self.order);
        }
        self.adrift.remove(first, last);
        Ok(())
    }

    /// Sets the size.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn truncate(&mut self, size: u64) -> io::Result<()> {
        self.preserve(size, u64::MAX)?;
        self.touch();
        self.backing.set_bytes(size)?;
        self.dirty.remove(size, u64::MAX);
        self.adrift.remove(size, u64::MAX);
        self.versions.cut_off(size);
        let lowest = if size < self.size { size } else { u64::MAX };
        self.resizes.push(Resize {
            order: self.order,
            lowest,
            set: size,
        });
        self.size = size;
        Ok(())
    }

    /// `fallocate`: sets blocks aside, with or without `FALLOC_FL_KEEP_SIZE`, punches holes, zeroes ranges.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for any other mode; those of the disk below.
    pub fn allocate(&mut self, mode: i32, offset: u64, length: u64) -> io::Result<()> {
        let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let end = offset
            .checked_add(length)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => self.backing.allocate(mode, offset, length)?,
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE => {
                self.preserve(offset, end)?;
                self.touch();
                let until = if keeps_size { end.min(self.size) } else { end };
                self.revive(offset, until)?;
                self.note(offset, until)?;
                self.backing.allocate(mode, offset, length)?;
                self.dirty.insert(offset, until, self.order);
            }
            _ => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
        if !keeps_size && end > self.size {
            self.touch();
            self.resizes.push(Resize {
                order: self.order,
                lowest: u64::MAX,
                set: end,
            });
            self.size = end;
        }
        Ok(())
    }

    /// Copies what is durable in `[start, end)` aside, once.
    fn preserve(&mut self, start: u64, end: u64) -> io::Result<()> {
        let end = end.min(self.durable_size);
        if start >= end {
            return Ok(());
        }
        for (from, until) in self.saved.gaps(start, end) {
            self.backing.copy_to(&mut self.undo, from, until, true)?;
            self.saved.insert(from, until, 0);
        }
        Ok(())
    }

    /// A sync begins: what it will make durable, if it succeeds. It must be ended by `sync_to`, `abandon` or `drop_unsynced`.
    pub fn snapshot(&mut self) -> Snapshot {
        self.versions.pin();
        Snapshot {
            order: self.clock.load(Ordering::Relaxed),
            size: self.size,
        }
    }

    /// A sync ended without any effect.
    pub fn abandon(&mut self) {
        self.versions.unpin();
    }

    /// A sync ends: what was there when it began is durable. Returns how many un-synced bytes of it there were.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn sync_to(&mut self, snapshot: Snapshot) -> io::Result<u64> {
        self.versions.unpin();
        if snapshot.order < self.synced {
            // A sync that began later has ended before.
            return Ok(0);
        }
        self.synced = snapshot.order;
        if self.order <= snapshot.order && self.adrift.is_empty() {
            return self.settle();
        }
        let bytes = self.unsynced_bytes();
        let before = self.durable_size;
        let resized = folded(self.resizes.iter().filter(|resize| resize.order > snapshot.order));
        self.durable_size = resized.map_or(snapshot.size, |resize| resize.lowest.min(snapshot.size));
        let stays = self.versions.after(snapshot.order);
        let mut kept = stays.clone();
        for (from, until) in self.adrift.ranges() {
            kept.insert(from, until, 0);
        }
        // What was not there before reads as zeros, unless it had been written when the sync began.
        self.zero_undo(&kept, before, self.durable_size)?;
        self.versions.restore_replaced(snapshot.order, &mut self.undo)?;
        kept.remove(self.durable_size, u64::MAX);
        if kept.is_empty() {
            self.forget_saved()?;
        }
        self.saved = kept;
        self.dirty = stays;
        self.resizes.retain(|resize| resize.order > snapshot.order);
        self.versions.forget(snapshot.order)?;
        self.unsynced_since = Some(Instant::now());
        self.still_unsynced();
        Ok(bytes - self.unsynced_bytes())
    }

    /// Makes everything durable that a sync can. Returns how many un-synced bytes there were.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn sync(&mut self) -> io::Result<u64> {
        let snapshot = self.snapshot();
        self.sync_to(snapshot)
    }

    /// A sync fails as those of Linux do: what was to be written is marked as clean, and no later sync will write it. It can be read until the power goes.
    /// Returns how many bytes there were.
    pub fn drop_unsynced(&mut self, snapshot: Snapshot) -> u64 {
        self.versions.unpin();
        let stays = self.versions.after(snapshot.order);
        let before = self.adrift.bytes();
        for (start, end) in self.dirty.ranges() {
            for (from, until) in stays.gaps(start, end) {
                self.adrift.insert(from, until, 0);
            }
        }
        self.dirty = stays;
        // The store of versions is emptied with the next sync.
        let _ = self.versions.forget(snapshot.order);
        self.adrift.bytes() - before
    }

    /// All that there is, is durable now.
    fn settle(&mut self) -> io::Result<u64> {
        self.forget_saved()?;
        let bytes = self.dirty.bytes();
        self.dirty.clear();
        self.versions.clear()?;
        self.durable_size = self.size;
        self.resizes.clear();
        self.unsynced_since = None;
        Ok(bytes)
    }

    /// A second descriptor of the file below, to sync it without holding up the others.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn backing_copy(&mut self) -> io::Result<File> {
        self.backing.file()?.try_clone()
    }

    fn forget_saved(&mut self) -> io::Result<()> {
        if !self.saved.is_empty() {
            self.undo.set_bytes(0)?;
            self.saved.clear();
        }
        Ok(())
    }

    /// Lets the parts of `ranges` in `[start, end)` read as zeros after a cut: the undo file may still have an older byte there.
    fn zero_undo(&mut self, ranges: &Extents, start: u64, end: u64) -> io::Result<()> {
        if start >= end {
            return Ok(());
        }
        for (from, until) in ranges.within(start, end) {
            if self.undo.bytes()? > from {
                self.undo.allocate(HOLE, from, until - from)?;
            }
            self.saved.insert(from, until, 0);
        }
        Ok(())
    }

    /// Makes the size durable that `truncate` and `fallocate` set up to number `order`, as a journal does, but no data: what was written beyond
    /// the old durable content reads as zeros after a cut.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn commit_size(&mut self, order: u64) -> io::Result<()> {
        let Some(resized) = folded(self.resizes.iter().filter(|resize| resize.order <= order)) else {
            return Ok(());
        };
        self.resizes.retain(|resize| resize.order > order);
        self.saved.remove(resized.lowest, u64::MAX);
        self.durable_size = self.durable_size.min(resized.lowest);
        if resized.set > self.durable_size {
            let mut unsynced = self.dirty.clone();
            for (from, until) in self.adrift.ranges() {
                unsynced.insert(from, until, 0);
            }
            self.zero_undo(&unsynced, self.durable_size, resized.set)?;
            self.durable_size = resized.set;
        }
        self.still_unsynced();
        Ok(())
    }

    fn still_unsynced(&mut self) {
        if self.dirty.is_empty() && self.adrift.is_empty() && self.saved.is_empty() && !self.resized() {
            self.unsynced_since = None;
        }
    }

    /// Goes back to the durable content, except for what survives. Blocks are of `block_bytes`; up to `trace_bytes` of what is lost are handed over.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn revert(&mut self, survive: Survive, block_bytes: u64, trace_bytes: u64) -> io::Result<Reverted> {
        if self.unsynced_since.is_none() {
            return Ok(Reverted::default());
        }
        let pieces = survive.pieces(
            &self.dirty,
            || self.versions.by_block(block_bytes),
            self.id,
            block_bytes,
        );
        let kept = self.versions.covered(&pieces);
        let mut gone = self.adrift.clone();
        for (start, end) in self.dirty.ranges() {
            for (from, until) in kept.gaps(start, end) {
                gone.insert(from, until, 0);
            }
        }
        let lost = self.trace(&gone, trace_bytes)?;
        if !kept.is_empty() {
            // Blocks written after a truncation can only be found once the truncation is on the disk.
            self.commit_size(u64::MAX)?;
        }
        self.versions.take_back(&pieces, &mut self.backing)?;
        let size = self.durable_size.max(kept.end());
        self.backing.set_bytes(size)?;
        for (start, end) in gone.ranges() {
            let (start, end) = (start.max(self.durable_size), end.min(size));
            if start < end {
                self.backing.allocate(HOLE, start, end - start)?;
            }
        }
        for (start, end) in self.saved.ranges() {
            for (from, until) in kept.gaps(start, end) {
                self.undo.copy_to(&mut self.backing, from, until, false)?;
            }
        }
        let reverted = Reverted {
            dropped_bytes: gone.bytes(),
            survived_bytes: kept.bytes(),
            lost,
        };
        self.size = size;
        self.adrift.clear();
        self.versions.unpin_all();
        self.settle()?;
        Ok(reverted)
    }

    /// The newest content of these ranges, as far as it fits; what is zero is left out.
    fn trace(&mut self, ranges: &Extents, bytes_max: u64) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let mut left = bytes_max;
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        for (start, end) in ranges.ranges() {
            for from in (start..end).step_by(TRACE_BYTES as usize) {
                let mut bytes = vec![0; (end - from).min(TRACE_BYTES).min(left) as usize];
                let count = self.backing.read_at(&mut bytes, from)?;
                bytes.truncate(count);
                if bytes.iter().all(|&byte| byte == 0) {
                    continue;
                }
                left -= count as u64;
                // Pieces that go on stay together: what is looked for may lie across.
                match found.last_mut() {
                    Some((begin, before)) if *begin + before.len() as u64 == from => {
                        before.append(&mut bytes)
                    }
                    _ => found.push((from, bytes)),
                }
            }
        }
        Ok(found)
    }

    /// All of the newest content, as far as it fits.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn trace_all(&mut self, bytes_max: u64) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let mut whole = Extents::default();
        whole.insert(0, self.size, 0);
        self.trace(&whole, bytes_max)
    }

    /// Changes bytes behind the back of whoever uses the disk: damage to what is durable.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn corrupt(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backing.write_at(data, offset)
    }

    /// Closes the descriptors; they are opened again when they are needed.
    pub fn close(&mut self) {
        self.backing.close();
        self.undo.close();
        self.versions.close();
    }
}

/// What several changes of the size amount to.
fn folded<'a>(resizes: impl Iterator<Item = &'a Resize>) -> Option<Resize> {
    resizes.copied().reduce(|sum, resize| Resize {
        lowest: sum.lowest.min(resize.lowest),
        ..resize
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_sector_in_memory_may_survive_as_it_was_between_two_writes() {
        let mut seen = BTreeSet::new();
        for seed in 0..50 {
            let mut content = Content::new(1, None, Arc::default());
            content.write(0, &[1; 512]).unwrap();
            content.sync().unwrap();
            content.write(0, &[2; 512]).unwrap();
            content.write(0, &[3; 512]).unwrap();
            content
                .revert(Survive::Versions { keep: 0.5, seed }, 512, 0)
                .unwrap();
            let mut sector = [0; 512];
            assert_eq!(content.read(&mut sector, 0).unwrap(), 512);
            assert!(sector.iter().all(|&byte| byte == sector[0]));
            seen.insert(sector[0]);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_growing_file_in_memory_keeps_what_was_synced() {
        for seed in 0..50 {
            let mut content = Content::new(1, None, Arc::default());
            content.write(0, &[1; 1000]).unwrap();
            content.sync().unwrap();
            content.write(1000, &[2; 1000]).unwrap();
            content.truncate(1500).unwrap();
            content
                .revert(Survive::Versions { keep: 0.5, seed }, 512, 0)
                .unwrap();
            let mut bytes = [9; 2000];
            let count = content.read(&mut bytes, 0).unwrap();
            assert!((1000..=1500).contains(&count), "{count} bytes");
            assert!(bytes[..1000].iter().all(|&byte| byte == 1));
            assert!(bytes[1000..count].iter().all(|&byte| byte == 0 || byte == 2));
        }
    }
}
