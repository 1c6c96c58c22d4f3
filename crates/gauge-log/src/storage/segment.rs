//! Segment files: the journal on disk, cut into files of equal size so that its old end can be deleted.
//!
//! In `fsync` mode a file is opened with O_DIRECT and O_DSYNC: a write returns when the device has the data, the page cache is neither filled nor
//! paid for, and blocks are allocated ahead so that no write waits for the file system's own journal longer than it must. In `async` mode a write goes to the
//! page cache, which survives the death of the process but not of the machine: what Kafka gives by default.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::buffer::{AlignedBuffer, BLOCK_BYTES};
use super::disk::{Access, Disk, DiskFile};
use super::mapping::Mapping;
use crate::mutants::{self, Mutant};

/// The extension of a file that waits to become the next segment.
pub const SPARE_EXTENSION: &str = "spare";

/// What an acknowledgement promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The batch is on the device.
    Fsync,
    /// The batch is in the page cache.
    Async,
}

impl Durability {
    /// The name used on the command line and in `DescribeConfigs`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Async => "async",
        }
    }

    fn access(self) -> Access {
        match self {
            Self::Fsync => Access::Synced,
            Self::Async => Access::Cached,
        }
    }
}

/// One file of the journal.
#[derive(Debug)]
pub struct Segment {
    /// The journal position of the file's first byte.
    pub base: u64,
    disk: Arc<dyn Disk>,
    /// The name of a prepared file before it has its segment's.
    spare: Option<String>,
    named: AtomicBool,
    /// Whether all blocks were written before.
    is_written: bool,
    file: Box<dyn DiskFile>,
    durability: Durability,
    /// How far write-back to the device was started (`async` mode), as a byte of the file.
    written_back: AtomicU64,
}

/// The journal's file name for a base position, and the reverse.
pub fn file_name(base: u64, extension: &str) -> String {
    format!("{base:020}.{extension}")
}

/// The base position in a segment's file name; None for other files.
pub fn base_of(name: &str, extension: &str) -> Option<u64> {
    let (stem, found) = name.split_once('.')?;
    (found == extension && stem.len() == 20)
        .then(|| stem.parse().ok())
        .flatten()
}

/// Bytes read at once: a write to the device waits behind what is being read. (With pieces of 4 MiB a small synced write took twice as long as with 1 MiB, and reading was no
/// faster.)
const READ_BYTES: usize = 1 << 20;
/// Bytes of zeroes in memory.
const ZEROES_BYTES: usize = 1 << 20;

/// Writes zeroes to a file that will become a segment.
#[derive(Debug)]
pub struct Zeroes {
    file: Box<dyn DiskFile>,
    buffer: AlignedBuffer,
}

impl Zeroes {
    /// Writes `bytes` zeroes at byte `from` of the file, both multiples of the block size.
    pub fn write(&self, from: u64, bytes: u64) -> io::Result<()> {
        let mut at = from;
        while at < from + bytes {
            let count = (from + bytes - at).min(self.buffer.capacity_bytes() as u64);
            // SAFETY: nobody writes to this buffer: it stays as it was allocated.
            let zeroes = unsafe { self.buffer.bytes(0, count as usize) };
            self.file.write_at(zeroes, at)?;
            at += count;
        }
        Ok(())
    }

    /// Makes what was written durable, and with it the knowledge that the blocks are written.
    pub fn finish(self) -> io::Result<()> {
        self.file.sync()
    }
}

impl Segment {
    /// Opens the segment with the given base, creating it if it is not there.
    pub fn open(disk: &Arc<dyn Disk>, base: u64, durability: Durability) -> io::Result<Self> {
        let file = disk.open(&file_name(base, "log"), durability.access())?;
        Ok(Self {
            base,
            disk: Arc::clone(disk),
            spare: None,
            file,
            durability,
            written_back: AtomicU64::new(0),
            named: AtomicBool::new(true),
            is_written: false,
        })
    }

    /// Prepares file number `number` for a segment whose base is not known yet (see `rebased`), with blocks for `reserve_bytes` set aside in `fsync` mode.
    pub fn prepare(
        disk: &Arc<dyn Disk>,
        number: u64,
        durability: Durability,
        reserve_bytes: u64,
    ) -> io::Result<Self> {
        let spare = file_name(number, SPARE_EXTENSION);
        let file = disk.open(&spare, durability.access())?;
        let segment = Self {
            base: 0,
            disk: Arc::clone(disk),
            spare: Some(spare),
            file,
            durability,
            written_back: AtomicU64::new(0),
            named: AtomicBool::new(false),
            is_written: false,
        };
        segment.reserve(reserve_bytes)?;
        Ok(segment)
    }

    /// Sets blocks aside in `fsync` mode, so that a write does not have to wait for the file system to find some.
    pub fn reserve(&self, bytes: u64) -> io::Result<()> {
        if self.durability == Durability::Async || self.file.bytes()? >= bytes {
            return Ok(());
        }
        match self.file.allocate(bytes) {
            // A full disk is noticed by the write that does not fit; until then there may be room.
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => return Ok(()),
            allocated => allocated?,
        }
        self.file.sync()
    }

    /// A way to write zeroes to the first `bytes` of a prepared file, where that makes later writes faster; None elsewhere.
    pub fn zeroes(&self, bytes: u64) -> io::Result<Option<Zeroes>> {
        let Some(spare) = &self.spare else {
            return Ok(None);
        };
        if self.durability == Durability::Async || !self.file.is_direct() || self.file.bytes()? < bytes {
            return Ok(None);
        }
        // Not synced write by write: the file is synced once, at the end.
        Ok(Some(Zeroes {
            file: self.disk.open(spare, Access::Direct)?,
            buffer: AlignedBuffer::new(ZEROES_BYTES.min(bytes as usize)),
        }))
    }

    /// Notes that all blocks of a prepared file were written.
    pub fn note_written(&mut self) {
        self.is_written = true;
    }

    /// Whether all blocks of the file were written before it became a segment.
    pub fn is_written(&self) -> bool {
        self.is_written
    }

    /// Whether a file whose blocks were written before would be faster.
    pub fn could_be_written(&self) -> bool {
        self.durability == Durability::Fsync && self.file.is_direct() && !self.is_written
    }

    /// Gives back the blocks behind journal position `end`, where the next segment begins.
    pub fn trim(&self, end: u64) -> io::Result<()> {
        if self.durability == Durability::Fsync && self.file.bytes()? > end - self.base {
            self.file.set_bytes(end - self.base)?;
        }
        Ok(())
    }

    /// A prepared file, as the segment that begins at journal position `base`; it gets its name with its first write.
    pub fn rebased(mut self, base: u64) -> Self {
        self.base = base;
        self
    }

    /// Gives a prepared file the name of its segment, durably; once.
    fn name(&self) -> io::Result<()> {
        if let Some(spare) = &self.spare {
            self.disk.rename(spare, &self.file_name())?;
        }
        if !mutants::is(Mutant::SegmentNameNotSynced) {
            self.disk.sync_names()?;
        }
        self.named.store(true, Ordering::Release);
        Ok(())
    }

    /// The name that the file has as a segment.
    pub fn file_name(&self) -> String {
        file_name(self.base, "log")
    }

    /// Where the file is once it has its name.
    pub fn final_path(&self) -> PathBuf {
        self.disk.path(&self.file_name())
    }

    /// Writes `bytes` at journal position `position`; returns when they are as durable as the mode promises. In `fsync` mode
    /// the position, the length and the memory are multiples of the block size.
    pub fn write(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if !self.named.load(Ordering::Acquire) {
            self.name()?;
        }
        self.file.write_at(bytes, position - self.base)
    }

    /// In `async` mode, starts write-back of the next piece before journal position `position`, at most `bytes_max` bytes; false when there is none. Waits only
    /// until the device has room for it in its queue.
    pub fn start_write_back(&self, position: u64, bytes_max: u64) -> bool {
        let from = self.written_back.load(Ordering::Relaxed);
        let to = position.saturating_sub(self.base).min(from + bytes_max) & !(BLOCK_BYTES as u64 - 1);
        if self.durability == Durability::Fsync || to <= from {
            return false;
        }
        self.file.start_write_back(from, to);
        self.written_back.store(to, Ordering::Relaxed);
        true
    }

    /// Bytes from journal position `position` on, which belong to a complete chunk, without a copy; None where they have to be read.
    pub fn map(&self, position: u64, bytes: usize) -> Option<Mapping> {
        self.file.map(position - self.base, bytes)
    }

    /// Fills `bytes` from journal position `position`; returns how many bytes there were before the end of the file. In `fsync` mode the position,
    /// the length and the memory are multiples of the block size.
    pub fn read(&self, bytes: &mut [u8], position: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            let piece = bytes.len().min(filled + READ_BYTES);
            let count = self
                .file
                .read_at(&mut bytes[filled..piece], position - self.base + filled as u64)?;
            filled += count;
            if filled < piece {
                break;
            }
        }
        Ok(filled)
    }

    /// Bytes in the file, blocks set aside included.
    pub fn file_bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    /// Cuts the file at journal position `position` and makes that durable.
    pub fn cut(&self, position: u64) -> io::Result<()> {
        self.file.set_bytes(position - self.base)?;
        self.file.sync()
    }

    /// Forces everything written to the device.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
