//! Where the bytes of a file are kept: in a file of the disk below, or in memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;
/// The `fallocate` mode that makes a range read as zeros and leaves the size.
pub const HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

/// Bytes that can be read, written and cut off; behind the end there are zeros.
#[derive(Debug)]
pub enum Store {
    /// A file, created and opened when it is needed.
    File {
        /// Its path.
        path: PathBuf,
        /// Its descriptor, while it is open.
        file: Option<File>,
    },
    /// Memory, for simulations.
    Memory(Vec<u8>),
}

impl Store {
    /// A file at `path`, or memory.
    pub fn new(path: Option<PathBuf>) -> Store {
        match path {
            Some(path) => Store::File { path, file: None },
            None => Store::Memory(Vec::new()),
        }
    }

    /// Whether the bytes are in memory.
    pub fn is_memory(&self) -> bool {
        matches!(self, Store::Memory(_))
    }

    /// The file, opened; an error in memory.
    pub fn file(&mut self) -> io::Result<&File> {
        let Store::File { path, file } = self else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        if file.is_none() {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            *file = Some(options.open(path)?);
        }
        file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Bytes that it has.
    ///
    /// # Errors
    /// Those of the disk below, as with all that follow.
    pub fn bytes(&mut self) -> io::Result<u64> {
        match self {
            Store::Memory(bytes) => Ok(bytes.len() as u64),
            Store::File { .. } => Ok(self.file()?.metadata()?.len()),
        }
    }

    /// Reads up to the end of the buffer or of the bytes; returns how many there were.
    pub fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Store::Memory(bytes) = self {
            let from = bytes.len().min(offset as usize);
            let count = buffer.len().min(bytes.len() - from);
            buffer[..count].copy_from_slice(&bytes[from..from + count]);
            return Ok(count);
        }
        let file = self.file()?;
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes all of `data`.
    pub fn write_at(&mut self, data: &[u8], offset: u64) -> io::Result<()> {
        let Store::Memory(bytes) = self else {
            return self.file()?.write_all_at(data, offset);
        };
        let (from, end) = (offset as usize, offset as usize + data.len());
        bytes.resize(bytes.len().max(end), 0);
        bytes[from..end].copy_from_slice(data);
        Ok(())
    }

    /// Cuts off, or extends with zeros.
    pub fn set_bytes(&mut self, size: u64) -> io::Result<()> {
        match self {
            Store::Memory(bytes) => {
                bytes.resize(size as usize, 0);
                Ok(())
            }
            Store::File { .. } => self.file()?.set_len(size),
        }
    }

    /// `fallocate`.
    pub fn allocate(&mut self, mode: i32, offset: u64, length: u64) -> io::Result<()> {
        if let Store::Memory(bytes) = self {
            let end = (offset + length) as usize;
            if mode & libc::FALLOC_FL_KEEP_SIZE == 0 {
                bytes.resize(bytes.len().max(end), 0);
            }
            if mode & !libc::FALLOC_FL_KEEP_SIZE != 0 {
                let end = end.min(bytes.len());
                bytes[end.min(offset as usize)..end].fill(0);
            }
            return Ok(());
        }
        let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        };
        // SAFETY: a system call on a descriptor that is open, without pointers.
        match unsafe { libc::fallocate(self.file()?.as_raw_fd(), mode, offset, length) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Copies `start..end` to the same place in `target`; what is not there are zeros. A target that `is_sparse` gets no zeros but holes: preallocated journals cost nothing.
    pub fn copy_to(&mut self, target: &mut Store, start: u64, end: u64, is_sparse: bool) -> io::Result<()> {
        let mut buffer = Vec::new();
        for from in (start..end).step_by(COPY_BYTES as usize) {
            buffer.resize((end - from).min(COPY_BYTES) as usize, 0);
            let count = self.read_at(&mut buffer, from)?;
            buffer[count..].fill(0);
            if !is_sparse || buffer.iter().any(|&byte| byte != 0) {
                target.write_at(&buffer, from)?;
            } else if target.bytes()? > from {
                target.allocate(HOLE, from, buffer.len() as u64)?;
            }
        }
        Ok(())
    }

    /// Closes the descriptor; it is opened again when it is needed.
    pub fn close(&mut self) {
        if let Store::File { file, .. } = self {
            *file = None;
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Store::File { path, .. } = self {
            // It may never have been created.
            let _ = std::fs::remove_file(path);
        }
    }
}
