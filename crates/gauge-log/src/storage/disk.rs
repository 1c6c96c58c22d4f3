//! The disk below the log: the files of one directory, behind a small trait with two implementations. `Directory` is the real one; the crash simulator of the tests has one that loses power.
//!
//! Calls are made for a whole commit, file or chunk, never for a single batch, so that a call through a table costs nothing that can be measured.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::mapping::Mapping;

/// How writes to a file reach the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A write returns when the device has the data.
    Synced,
    /// A write goes past the page cache, and is durable after a sync.
    Direct,
    /// A write goes to the page cache, and is durable after a sync.
    Cached,
}

/// The files of a data directory.
pub trait Disk: std::fmt::Debug + Send + Sync {
    /// Makes the directory if it is not there.
    fn make(&self) -> io::Result<()>;
    /// Makes the directory's own name durable.
    fn sync_own_name(&self) -> io::Result<()>;
    /// Names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens a file, which is made if it is not there.
    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>>;
    /// The content of a file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Makes a file with this content; the content is durable, the name is not.
    fn write(&self, name: &str, content: &[u8]) -> io::Result<()>;
    /// Gives a file another name, in the place of whatever has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes names that were added, changed and removed durable.
    fn sync_names(&self) -> io::Result<()>;
    /// When a file was last written to.
    fn modified(&self, name: &str) -> io::Result<SystemTime>;
    /// A file's whole path, for people.
    fn path(&self, name: &str) -> PathBuf;
}

/// An open file.
pub trait DiskFile: std::fmt::Debug + Send + Sync {
    /// Writes all of `bytes` at byte `at`.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Reads at byte `at`; returns how many bytes there were, fewer than asked for only before the end.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize>;
    /// Bytes `at..at + bytes`, which nobody writes to any more, without a copy; None where they have to be read.
    fn map(&self, at: u64, bytes: usize) -> Option<Mapping>;
    /// Bytes in the file, those set aside included.
    fn bytes(&self) -> io::Result<u64>;
    /// Cuts the file off or extends it with zeroes.
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;
    /// Sets blocks aside for the first `bytes`, where the file system can.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
    /// Makes content and size durable.
    fn sync(&self) -> io::Result<()>;
    /// Starts to move bytes to the device, without waiting for it.
    fn start_write_back(&self, from: u64, to: u64);
    /// Whether writes go past the page cache, so that blocks which were written before are faster.
    fn is_direct(&self) -> bool;
}

/// A directory of the machine.
#[derive(Debug, Clone)]
pub struct Directory(pub PathBuf);

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

impl Disk for Directory {
    fn make(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.0)
    }

    fn sync_own_name(&self) -> io::Result<()> {
        // A name is durable once the directory that holds it is synced. Which of them were made just now, or by a start that did not come this far, nobody knows.
        let path = std::fs::canonicalize(&self.0)?;
        path.ancestors()
            .skip(1)
            .try_for_each(|parent| match sync_directory(parent) {
                // What we may not even read, we have not made.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                // Some file systems of the kernel's own know no such sync.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
                synced => synced,
            })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let path = self.0.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let flags = match access {
            Access::Cached => 0,
            Access::Direct => libc::O_DIRECT,
            Access::Synced => libc::O_DIRECT | libc::O_DSYNC,
        };
        let (file, is_direct) = match options.clone().custom_flags(flags).open(&path) {
            Ok(file) => (file, access != Access::Cached),
            // tmpfs and some network file systems know no O_DIRECT.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (options.open(&path)?, false),
            Err(error) => return Err(error),
        };
        let syncs_writes = access == Access::Synced && !is_direct;
        Ok(Box::new(PlainFile {
            file,
            is_direct,
            is_cached: access == Access::Cached,
            syncs_writes,
        }))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.0.join(name))
    }

    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = File::create(self.0.join(name))?;
        file.write_all(content)?;
        file.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.0.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_directory(&self.0)
    }

    fn modified(&self, name: &str) -> io::Result<SystemTime> {
        std::fs::metadata(self.0.join(name))?.modified()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

#[derive(Debug)]
struct PlainFile {
    file: File,
    is_direct: bool,
    is_cached: bool,
    /// Whether each write is followed by a sync, where the file system cannot do both at once.
    syncs_writes: bool,
}

impl DiskFile for PlainFile {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)?;
        if self.syncs_writes {
            self.file.sync_data()?;
        }
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], at + filled as u64) {
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

    fn map(&self, at: u64, bytes: usize) -> Option<Mapping> {
        // What goes past the page cache on its way in is not there.
        match self.is_cached {
            true => Mapping::of(&self.file, at, bytes),
            false => None,
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        // SAFETY: a plain system call on a file descriptor that `self` keeps open.
        let failed = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, 0, bytes as libc::off_t) };
        // Where a file system cannot set blocks aside, writes extend the file; only speed is lost.
        if failed != 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EOPNOTSUPP) {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn start_write_back(&self, from: u64, to: u64) {
        // SAFETY: a plain system call on a file descriptor that `self` keeps open; failure only means that the kernel decides itself when to write.
        unsafe {
            libc::sync_file_range(
                self.file.as_raw_fd(),
                from as libc::off64_t,
                (to - from) as libc::off64_t,
                libc::SYNC_FILE_RANGE_WRITE,
            );
        }
    }

    fn is_direct(&self) -> bool {
        self.is_direct
    }
}
