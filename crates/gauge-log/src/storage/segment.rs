//! Segment files: the journal on disk, cut into files of equal size so that its old end can be deleted.
//!
//! In `fsync` mode a file is opened with O_DIRECT and O_DSYNC: a write returns when the device has the data, the page cache is neither filled nor
//! paid for, and blocks are allocated ahead so that no write waits for the file system's own journal longer than it must. In `async` mode a write goes to the
//! page cache, which survives the death of the process but not of the machine: what Kafka gives by default.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::buffer::{AlignedBuffer, BLOCK_BYTES};

/// The extension of a file that waits to become the next segment.
pub const SPARE_EXTENSION: &str = "spare";
/// Numbers spare files, so that one that still waits for its name is never taken for the next one.
static SPARES: AtomicU64 = AtomicU64::new(0);

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
}

/// How writes reach the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WritePath {
    Direct,
    CacheThenSync,
    Cache,
}

/// One file of the journal.
#[derive(Debug)]
pub struct Segment {
    /// The journal position of the file's first byte.
    pub base: u64,
    path: PathBuf,
    named: AtomicBool,
    /// Whether all blocks were written before.
    is_written: bool,
    file: File,
    mode: WritePath,
    /// How far write-back to the device was started (`async` mode), as a byte of the file.
    written_back: AtomicU64,
}

/// The journal's file name for a base position, and the reverse.
pub fn file_name(base: u64, extension: &str) -> String {
    format!("{base:020}.{extension}")
}

/// The base position in a segment's file name; None for other files.
pub fn base_of(path: &Path, extension: &str) -> Option<u64> {
    if path.extension()?.to_str()? != extension {
        return None;
    }
    path.file_stem()?
        .to_str()
        .filter(|stem| stem.len() == 20)?
        .parse()
        .ok()
}

/// Makes created, renamed and deleted names in `directory` durable.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Bytes read at once: a write to the device waits behind what is being read. (With pieces of 4 MiB a small synced write took twice as long as with 1 MiB, and reading was no
/// faster.)
const READ_BYTES: usize = 1 << 20;
/// Bytes of zeroes in memory.
const ZEROES_BYTES: usize = 1 << 20;

/// Writes zeroes to a file that will become a segment.
#[derive(Debug)]
pub struct Zeroes {
    file: File,
    buffer: AlignedBuffer,
}

impl Zeroes {
    /// Writes `bytes` zeroes at byte `from` of the file, both multiples of the block size.
    pub fn write(&self, from: u64, bytes: u64) -> io::Result<()> {
        let mut at = from;
        while at < from + bytes {
            let count = (from + bytes - at).min(ZEROES_BYTES as u64);
            // SAFETY: nobody writes to this buffer: it stays as it was allocated.
            let zeroes = unsafe { self.buffer.bytes(0, count as usize) };
            self.file.write_all_at(zeroes, at)?;
            at += count;
        }
        Ok(())
    }

    /// Makes what was written durable, and with it the knowledge that the blocks are written.
    pub fn finish(self) -> io::Result<()> {
        self.file.sync_all()
    }
}

impl Segment {
    /// Opens the segment with the given base in `directory`, creating it if it is not there.
    pub fn open(directory: &Path, base: u64, durability: Durability) -> io::Result<Self> {
        let path = directory.join(file_name(base, "log"));
        let (file, mode) = Self::open_file(&path, durability)?;
        Ok(Self {
            base,
            path,
            file,
            mode,
            written_back: AtomicU64::new(0),
            named: AtomicBool::new(true),
            is_written: false,
        })
    }

    /// Prepares a file for a segment whose base is not known yet (see `rebased`), with blocks for `reserve_bytes` set aside in `fsync` mode.
    pub fn prepare(directory: &Path, durability: Durability, reserve_bytes: u64) -> io::Result<Self> {
        let path = directory.join(file_name(SPARES.fetch_add(1, Ordering::Relaxed), SPARE_EXTENSION));
        let (file, mode) = Self::open_file(&path, durability)?;
        let segment = Self {
            base: 0,
            path,
            file,
            mode,
            written_back: AtomicU64::new(0),
            named: AtomicBool::new(false),
            is_written: false,
        };
        segment.reserve(reserve_bytes)?;
        Ok(segment)
    }

    /// Sets blocks aside in `fsync` mode, so that a write does not have to wait for the file system to find some.
    pub fn reserve(&self, bytes: u64) -> io::Result<()> {
        if self.mode == WritePath::Cache || self.file_bytes()? >= bytes {
            return Ok(());
        }
        // SAFETY: a plain system call on a file descriptor that `self` keeps open.
        let failed = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, 0, bytes as libc::off_t) };
        // Where a file system cannot set blocks aside, writes extend the file; only speed is lost.
        if failed != 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EOPNOTSUPP) {
            return Err(io::Error::last_os_error());
        }
        self.file.sync_all()
    }

    /// A way to write zeroes to the first `bytes` of a prepared file, where that makes later writes faster; None elsewhere.
    pub fn zeroes(&self, bytes: u64) -> io::Result<Option<Zeroes>> {
        if self.mode != WritePath::Direct || self.file_bytes()? < bytes {
            return Ok(None);
        }
        // Without O_DSYNC: the file is synced once, at the end.
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(&self.path)?;
        Ok(Some(Zeroes {
            file,
            buffer: AlignedBuffer::new(ZEROES_BYTES),
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
        self.mode == WritePath::Direct && !self.is_written
    }

    /// Gives back the blocks behind journal position `end`, where the next segment begins.
    pub fn trim(&self, end: u64) -> io::Result<()> {
        if self.mode != WritePath::Cache && self.file_bytes()? > end - self.base {
            self.file.set_len(end - self.base)?;
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
        let directory = self.path.parent().unwrap_or(Path::new("."));
        std::fs::rename(&self.path, self.final_path())?;
        sync_directory(directory)?;
        self.named.store(true, Ordering::Release);
        Ok(())
    }

    /// Where the file is once it has its name.
    pub fn final_path(&self) -> PathBuf {
        self.path.with_file_name(file_name(self.base, "log"))
    }

    fn open_file(path: &Path, durability: Durability) -> io::Result<(File, WritePath)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        if durability == Durability::Async {
            return Ok((options.open(path)?, WritePath::Cache));
        }
        match options
            .clone()
            .custom_flags(libc::O_DIRECT | libc::O_DSYNC)
            .open(path)
        {
            Ok(file) => Ok((file, WritePath::Direct)),
            // tmpfs and some network file systems know no O_DIRECT.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                Ok((options.open(path)?, WritePath::CacheThenSync))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes `bytes` at journal position `position`; returns when they are as durable as the mode promises. In `fsync` mode
    /// the position, the length and the memory are multiples of the block size.
    pub fn write(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if !self.named.load(Ordering::Acquire) {
            self.name()?;
        }
        self.file.write_all_at(bytes, position - self.base)?;
        if self.mode == WritePath::CacheThenSync {
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// In `async` mode, starts write-back of the next piece before journal position `position`, at most `bytes_max` bytes; false when there is none. Waits only
    /// until the device has room for it in its queue.
    pub fn start_write_back(&self, position: u64, bytes_max: u64) -> bool {
        let from = self.written_back.load(Ordering::Relaxed);
        let to = position.saturating_sub(self.base).min(from + bytes_max) & !(BLOCK_BYTES as u64 - 1);
        if self.mode != WritePath::Cache || to <= from {
            return false;
        }
        // SAFETY: a plain system call on a file descriptor that `self` keeps open; failure only means that the kernel decides itself when to write.
        unsafe {
            libc::sync_file_range(
                self.file.as_raw_fd(),
                from as libc::off64_t,
                (to - from) as libc::off64_t,
                libc::SYNC_FILE_RANGE_WRITE,
            );
        }
        self.written_back.store(to, Ordering::Relaxed);
        true
    }

    /// Fills `bytes` from journal position `position`; returns how many bytes there were before the end of the file. In `fsync` mode the position,
    /// the length and the memory are multiples of the block size.
    pub fn read(&self, bytes: &mut [u8], position: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            let piece = bytes.len().min(filled + READ_BYTES);
            match self
                .file
                .read_at(&mut bytes[filled..piece], position - self.base + filled as u64)
            {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A short file leaves the next direct read unaligned, which is refused: it is the end of the file.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Bytes in the file, blocks set aside included.
    pub fn file_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Cuts the file at journal position `position` and makes that durable.
    pub fn cut(&self, position: u64) -> io::Result<()> {
        self.file.set_len(position - self.base)?;
        self.file.sync_all()
    }

    /// Forces everything written to the device.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
