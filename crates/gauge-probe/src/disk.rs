//! The disk: sequential bandwidth past the page cache, and what a durable append costs.
//!
//! Bandwidth is one thread and one 1 MiB block at a time: the kernel cuts a block into as many requests as the device takes at once, and more
//! threads gave nothing on the disks that were tried. Blocks hold incompressible bytes and differ from each other, so that neither a compressing nor a
//! deduplicating file system flatters itself.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::ProbeError;
use crate::report::{Disk, FsyncMs, rounded};
use crate::samples::Samples;
use crate::scratch::ScratchFile;

const PAGE_BYTES: usize = 4096;
const BLOCK_BYTES: usize = 1 << 20;
const APPEND_BYTES: usize = 4096;
/// The file of the appends is begun anew at this size.
const APPENDED_BYTES_MAX: u64 = 1 << 30;
const SECOND_NS: i64 = 1_000_000_000;
/// Below this there is too little room for the bandwidth file to mean anything.
const FREE_BYTES_MIN: u64 = 128 << 20;

/// How much the disk may be worked, each bound on its own.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Time for the durable appends.
    pub fsync: Duration,
    /// Number of durable appends.
    pub fsync_count: usize,
    /// Time for the sequential write.
    pub write: Duration,
    /// Time for the sequential read.
    pub read: Duration,
    /// Size of the file that is written.
    pub file_bytes: u64,
}

/// One page, at an address that O_DIRECT takes.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// A block whose address and length O_DIRECT takes.
struct Block(Vec<Page>);

impl Block {
    fn of_noise() -> Self {
        let mut block = Block(vec![Page([0; PAGE_BYTES]); BLOCK_BYTES / PAGE_BYTES]);
        let mut state = clock::monotonic_ns().unsigned_abs();
        for word in block.bytes().chunks_exact_mut(8) {
            word.copy_from_slice(&next_random(&mut state).to_le_bytes());
        }
        block
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: a Page is exactly PAGE_BYTES initialised bytes without padding (repr(C), its size is a multiple of its alignment), and the
        // slice borrows the vector for as long as it lives.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * PAGE_BYTES) }
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A directory that was looked at: it exists, and there is room.
pub struct Target {
    /// Absolute, without links.
    pub directory: PathBuf,
    free_bytes: u64,
}

/// Looks at the directory before anything is measured, so that a mistake is told at once. What is odd about it goes to `notes`. `bytes`: what was
/// asked to be written there, of which half of the free space must hold all.
pub fn inspect(directory: &Path, bytes: Option<u64>, notes: &mut Vec<String>) -> Result<Target, ProbeError> {
    let shown = directory.display();
    let absolute = directory
        .canonicalize()
        .map_err(|error| ProbeError::from_disk(&format!("open the directory {shown}"), &error))?;
    if !absolute.is_dir() {
        return Err(ProbeError::Input(format!(
            "{shown} is not a directory; name one with --dir"
        )));
    }
    let status = file_system(&absolute)
        .map_err(|error| ProbeError::from_disk(&format!("look at the file system of {shown}"), &error))?;
    let free_bytes = status
        .f_bavail
        .saturating_mul(u64::try_from(status.f_frsize).unwrap_or(0));
    if free_bytes < FREE_BYTES_MIN {
        return Err(ProbeError::Input(format!(
            "{shown} is full: {} MB are free and the disk probe needs {} MB; free some or name another directory with --dir",
            free_bytes / 1_000_000,
            FREE_BYTES_MIN / 1_000_000
        )));
    }
    if let Some(bytes) = bytes.filter(|bytes| *bytes > free_bytes / 2) {
        return Err(ProbeError::Input(format!(
            "{shown} has {} MB free, and {} MB are to be written, twice of which must be free: ask for fewer with --bytes, or name another directory with --dir",
            free_bytes / 1_000_000,
            bytes / 1_000_000
        )));
    }
    notes.extend(oddity(&absolute, status.f_type));
    Ok(Target {
        directory: absolute,
        free_bytes,
    })
}

fn file_system(directory: &Path) -> io::Result<libc::statfs> {
    let path = std::ffi::CString::new(directory.as_os_str().as_bytes())?;
    // SAFETY: statfs is a plain C struct for which all-zero bytes are valid.
    let mut status: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a C string and `status` is valid for writing.
    if unsafe { libc::statfs(path.as_ptr(), &mut status) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(status)
}

/// A sentence about file systems whose figures mean something else. The numbers are those of statfs(2).
fn oddity(directory: &Path, kind: libc::__fsword_t) -> Option<String> {
    let shown = directory.display();
    match kind as u32 {
        0x0102_1994 | 0x8584_58f6 => Some(format!(
            "{shown} is a file system in memory: its bandwidth and fsync figures say nothing about a disk"
        )),
        0x6969 | 0x0102_1997 | 0xff53_4d42 | 0xfe53_4d42 | 0x6573_5546 => Some(format!(
            "{shown} is on a network or user-space file system: its figures are not those of a local disk"
        )),
        _ => None,
    }
}

/// Measures the three disk figures. `progress` is told each step before it begins.
///
/// The appends come first: giving gigabytes back to the file system would disturb them.
pub fn measure(
    target: &Target,
    bounds: Bounds,
    notes: &mut Vec<String>,
    progress: &mut dyn FnMut(&str),
) -> Result<Disk, ProbeError> {
    progress("4 KiB append + fdatasync");
    let appends = durable_appends(target, bounds)?;

    let shown = target.directory.display();
    let mut file = ScratchFile::nameless_direct(&target.directory)
        .map_err(|error| ProbeError::from_disk(&format!("create a file in {shown}"), &error))?;
    let mut block = Block::of_noise();
    progress("sequential write");
    let written = sequential_write(&mut file, &mut block, target, bounds)?;
    progress("sequential read");
    let read_mb_s = sequential_read(&file, &mut block, target, written.bytes, bounds)?;
    if !file.is_direct() {
        notes.push(format!(
            "{shown} does not take O_DIRECT: write bandwidth is through the page cache with a flush at the end, read bandwidth may be memory's"
        ));
    }
    if written.bytes < (16 << 20) {
        notes.push(format!(
            "only {} MB could be written in the time given",
            written.bytes / 1_000_000
        ));
    }
    file.release_space()
        .map_err(|error| ProbeError::from_disk(&format!("give the space in {shown} back"), &error))?;
    Ok(Disk {
        dir: target.directory.to_string_lossy().into_owned(),
        o_direct: file.is_direct(),
        write_mb_s: written.mb_s,
        written_bytes: written.bytes,
        read_mb_s,
        fsync_ms: appends.ms,
        fsync_per_s: appends.per_s,
        fsync_p99_ms_by_second: appends.p99_ms_by_second,
    })
}

struct Appends {
    ms: FsyncMs,
    per_s: f64,
    p99_ms_by_second: Vec<f64>,
}

fn durable_appends(target: &Target, bounds: Bounds) -> Result<Appends, ProbeError> {
    let shown = target.directory.display();
    let failed = |error| ProbeError::from_disk(&format!("append and fdatasync in {shown}"), &error);
    let file = ScratchFile::named(&target.directory)
        .map_err(|error| ProbeError::from_disk(&format!("create a file in {shown}"), &error))?;
    let no_memory = |_| ProbeError::Machine("the probe could not get memory for its samples".into());
    let mut samples = Samples::with_limit(bounds.fsync_count).map_err(no_memory)?;
    let mut block = Block::of_noise();
    let append = &block.bytes()[..APPEND_BYTES];
    let bytes_max = APPENDED_BYTES_MAX.min(target.free_bytes / 2);
    let mut offset = 0u64;
    let limit_ns = clock::nanoseconds(bounds.fsync);
    let start_ns = clock::monotonic_ns();
    let mut last_ns = start_ns;
    loop {
        file.write_all_at(append, offset).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        offset += APPEND_BYTES as u64;
        let now_ns = clock::monotonic_ns();
        samples.record(now_ns - last_ns);
        last_ns = now_ns;
        if now_ns - start_ns >= limit_ns || samples.is_full() {
            break;
        }
        if offset + APPEND_BYTES as u64 > bytes_max {
            file.release_space().map_err(failed)?;
            offset = 0;
            last_ns = clock::monotonic_ns();
        }
    }
    let seconds = (last_ns - start_ns).max(1) as f64 / 1e9;
    let per_s = rounded(samples.count() as f64 / seconds, 1);
    file.release_space().map_err(failed)?;
    let mut by_second = samples.intervals(SECOND_NS).map_err(no_memory)?;
    if by_second.len() < 2 {
        by_second.clear();
    }
    Ok(Appends {
        p99_ms_by_second: by_second.iter_mut().map(|one| FsyncMs::of(one).p99).collect(),
        ms: FsyncMs::of(&mut samples),
        per_s,
    })
}

struct Written {
    bytes: u64,
    mb_s: f64,
}

fn sequential_write(
    file: &mut ScratchFile,
    block: &mut Block,
    target: &Target,
    bounds: Bounds,
) -> Result<Written, ProbeError> {
    let failed =
        |error| ProbeError::from_disk(&format!("write a file in {}", target.directory.display()), &error);
    let bytes_max = bounds.file_bytes.min(target.free_bytes / 2);
    let mut start = Instant::now();
    let mut offset = 0u64;
    while offset + BLOCK_BYTES as u64 <= bytes_max && (offset == 0 || start.elapsed() < bounds.write) {
        block.bytes()[..8].copy_from_slice(&offset.to_le_bytes());
        match file.write_all_at(block.bytes(), offset) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && offset == 0 && file.is_direct() => {
                file.give_up_direct().map_err(failed)?;
                start = Instant::now();
                continue;
            }
            result => result.map_err(failed)?,
        }
        offset += BLOCK_BYTES as u64;
    }
    file.sync_data().map_err(failed)?;
    Ok(Written {
        bytes: offset,
        mb_s: megabytes_per_s(offset, start.elapsed()),
    })
}

/// Reads what was written, once at most: a second pass could come from a cache in the device.
fn sequential_read(
    file: &ScratchFile,
    block: &mut Block,
    target: &Target,
    bytes: u64,
    bounds: Bounds,
) -> Result<f64, ProbeError> {
    if !file.is_direct() {
        // SAFETY: the descriptor is open, and the call takes integers only. It is advice: a refusal changes nothing that can be repaired.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    let start = Instant::now();
    let mut offset = 0u64;
    while offset < bytes && (offset == 0 || start.elapsed() < bounds.read) {
        file.read_exact_at(block.bytes(), offset).map_err(|error| {
            ProbeError::from_disk(
                &format!("read its file in {}", target.directory.display()),
                &error,
            )
        })?;
        let found = u64::from_le_bytes(block.bytes()[..8].try_into().unwrap_or_default());
        if found != offset {
            return Err(ProbeError::Machine(format!(
                "the disk of {} returned other data than was written at offset {offset}; it is failing",
                target.directory.display()
            )));
        }
        offset += BLOCK_BYTES as u64;
    }
    Ok(megabytes_per_s(offset, start.elapsed()))
}

fn megabytes_per_s(bytes: u64, elapsed: Duration) -> f64 {
    rounded(bytes as f64 / 1e6 / elapsed.as_secs_f64().max(1e-9), 1)
}
