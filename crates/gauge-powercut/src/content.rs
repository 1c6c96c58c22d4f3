//! The bytes of one file: as they are now, and as a power cut would leave them.
//!
//! The file below (the *backing file*) holds the newest content. Before a durable byte is overwritten, cut off or punched out,
//! it is copied to the same place in a second, sparse file, the *undo file*, and the range is noted as saved. So the durable
//! content is: what is saved, else what the backing file has, up to the durable size. A sync forgets what was saved; a cut
//! copies it back. Memory holds ranges only, and a file that is appended to has one.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use crate::extents::Extents;
use crate::store::{HOLE, Store};
use crate::survive::Survive;

/// What `truncate` and `fallocate` did to the size since it was last committed.
#[derive(Clone, Copy, Debug)]
struct Resized {
    /// The smallest size in between: durable content beyond it is gone.
    lowest: u64,
    /// The size that was set last.
    set: u64,
}

/// What a cut did to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reverted {
    /// Un-synced bytes that are gone.
    pub dropped_bytes: u64,
    /// Un-synced bytes that survived.
    pub survived_bytes: u64,
}

/// The bytes of one file.
#[derive(Debug)]
pub struct Content {
    id: u64,
    backing: Store,
    undo: Store,
    /// In memory: every write since the last sync, so that an older one may survive a newer one.
    versions: Vec<(u64, Vec<u8>)>,
    size: u64,
    durable_size: u64,
    dirty: Extents,
    saved: Extents,
    order: u64,
    resized: Option<Resized>,
    unsynced_since: Option<Instant>,
}

impl Content {
    /// An empty file `id`, kept at these paths (of the file and of what it needs to go back), which are created when they are needed; without paths, in memory.
    pub fn new(id: u64, paths: Option<(PathBuf, PathBuf)>) -> Content {
        let (backing, undo) = paths.unzip();
        Content {
            id,
            backing: Store::new(backing),
            undo: Store::new(undo),
            versions: Vec::new(),
            size: 0,
            durable_size: 0,
            dirty: Extents::default(),
            saved: Extents::default(),
            order: 0,
            resized: None,
            unsynced_since: None,
        }
    }

    /// Bytes in the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes written and not yet durable.
    pub fn unsynced_bytes(&self) -> u64 {
        self.dirty.bytes()
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
        self.size != self.durable_size || self.resized.is_some()
    }

    fn touch(&mut self) {
        self.order += 1;
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
        // Part of it may be there when the write fails: what lies within the file counts as written, the rest is cut off.
        self.dirty.insert(offset, end.min(self.size), self.order);
        let size = self.size;
        if let Err(error) = self.backing.write_at(data, offset) {
            self.backing.set_bytes(size)?;
            return Err(error);
        }
        if self.backing.is_memory() {
            self.versions.push((offset, data.to_vec()));
        }
        self.dirty.insert(offset, end, self.order);
        self.size = size.max(end);
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
        for (offset, data) in &mut self.versions {
            data.truncate(size.saturating_sub(*offset) as usize);
        }
        let lowest = self.resized.map_or(u64::MAX, |resized| resized.lowest);
        let shrunk = if size < self.size { size } else { u64::MAX };
        self.resized = Some(Resized {
            lowest: lowest.min(shrunk),
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
                self.backing.allocate(mode, offset, length)?;
                let until = if keeps_size { end.min(self.size) } else { end };
                self.dirty.insert(offset, until, self.order);
            }
            _ => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
        if !keeps_size && end > self.size {
            self.touch();
            let lowest = self.resized.map_or(u64::MAX, |resized| resized.lowest);
            self.resized = Some(Resized { lowest, set: end });
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

    /// Makes everything durable. Returns how many un-synced bytes there were.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn sync(&mut self) -> io::Result<u64> {
        self.forget_saved()?;
        let bytes = self.dirty.bytes();
        self.dirty.clear();
        self.versions.clear();
        self.durable_size = self.size;
        self.resized = None;
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

    /// Makes the size durable that `truncate` and `fallocate` set, as a journal does, but no data: what was written beyond
    /// the old durable content reads as zeros after a cut.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn commit_size(&mut self) -> io::Result<()> {
        let Some(resized) = self.resized.take() else {
            return Ok(());
        };
        self.saved.remove(resized.lowest, u64::MAX);
        self.durable_size = self.durable_size.min(resized.lowest);
        if resized.set > self.durable_size {
            for (from, until) in self.dirty.within(self.durable_size, resized.set) {
                // The undo file may still have an older byte there; a hole reads as zeros.
                if self.undo.bytes()? > from {
                    self.undo.allocate(HOLE, from, until - from)?;
                }
                self.saved.insert(from, until, 0);
            }
            self.durable_size = resized.set;
        }
        self.still_unsynced();
        Ok(())
    }

    fn still_unsynced(&mut self) {
        if self.dirty.is_empty() && self.saved.is_empty() && !self.resized() {
            self.unsynced_since = None;
        }
    }

    /// Goes back to the durable content, except for what survives.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn revert(&mut self, survive: Survive) -> io::Result<Reverted> {
        if self.unsynced_since.is_none() {
            return Ok(Reverted::default());
        }
        if let Survive::Versions { .. } = survive {
            return self.revert_to_versions(survive);
        }
        let mut kept = survive.choose(&self.dirty, self.id);
        if !kept.is_empty() {
            // Blocks written after a truncation can only be found once the truncation is on the disk.
            self.commit_size()?;
            kept = survive.choose(&self.dirty, self.id);
        }
        let size = self.durable_size.max(kept.end());
        let lost: Vec<(u64, u64)> = self
            .dirty
            .ranges()
            .flat_map(|(start, end)| kept.gaps(start, end))
            .collect();
        self.backing.set_bytes(size)?;
        for &(start, end) in &lost {
            let start = start.max(self.durable_size);
            let end = end.min(size);
            if start < end {
                self.backing.allocate(HOLE, start, end - start)?;
            }
        }
        if !self.saved.is_empty() {
            for (start, end) in self.saved.ranges() {
                for (from, until) in kept.gaps(start, end) {
                    self.undo.copy_to(&mut self.backing, from, until, false)?;
                }
            }
        }
        let reverted = Reverted {
            dropped_bytes: lost.iter().map(|(start, end)| end - start).sum(),
            survived_bytes: kept.bytes(),
        };
        self.size = size;
        self.sync()?;
        Ok(reverted)
    }

    /// Goes back to the durable content, over which some sectors of some writes survive, in the order of the writes: a sector may be left as it was in between.
    fn revert_to_versions(&mut self, survive: Survive) -> io::Result<Reverted> {
        let versions = std::mem::take(&mut self.versions);
        let mut kept = Vec::new();
        for (index, (offset, data)) in versions.iter().enumerate() {
            let mut written = Extents::default();
            written.insert(*offset, offset + data.len() as u64, 1);
            // Each write has its own chance, a sector of it its own.
            for (start, end) in survive
                .choose(&written, self.id ^ ((index as u64 + 1) << 32))
                .ranges()
            {
                kept.push((start, &data[(start - offset) as usize..(end - offset) as usize]));
            }
        }
        if !kept.is_empty() {
            self.commit_size()?;
        }
        let mut reverted = self.revert(Survive::Nothing)?;
        for (start, data) in kept {
            self.backing.write_at(data, start)?;
            self.size = self.size.max(start + data.len() as u64);
            reverted.survived_bytes += data.len() as u64;
        }
        self.sync()?;
        Ok(reverted)
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
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_sector_in_memory_may_survive_as_it_was_between_two_writes() {
        let mut seen = BTreeSet::new();
        for seed in 0..50 {
            let mut content = Content::new(1, None);
            content.write(0, &[1; 512]).unwrap();
            content.sync().unwrap();
            content.write(0, &[2; 512]).unwrap();
            content.write(0, &[3; 512]).unwrap();
            content.revert(Survive::Versions { keep: 0.5, seed }).unwrap();
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
            let mut content = Content::new(1, None);
            content.write(0, &[1; 1000]).unwrap();
            content.sync().unwrap();
            content.write(1000, &[2; 1000]).unwrap();
            content.truncate(1500).unwrap();
            content.revert(Survive::Versions { keep: 0.5, seed }).unwrap();
            let mut bytes = [9; 2000];
            let count = content.read(&mut bytes, 0).unwrap();
            assert!((1000..=1500).contains(&count), "{count} bytes");
            assert!(bytes[..1000].iter().all(|&byte| byte == 1));
            assert!(bytes[1000..count].iter().all(|&byte| byte == 0 || byte == 2));
        }
    }
}
