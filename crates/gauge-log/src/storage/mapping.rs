//! A piece of a file in the log's address space: what is in the page cache is read, checked and sent from there without a copy.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// A piece of a file that nobody writes to or cuts off any more.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is only read, from any thread, until it is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Bytes `at..at + bytes` of the file, all of which are in memory on return; None where that cannot be had: the file is shorter, it cannot be read, or the kernel (Linux before 5.14) or
    /// the file system knows no such thing. Reading in the ordinary way says then what is wrong, if something is.
    pub fn of(file: &File, at: u64, bytes: usize) -> Option<Self> {
        let is_whole = |file: &File| {
            file.metadata()
                .is_ok_and(|found| found.len() >= at + bytes as u64)
        };
        if bytes == 0 || !is_whole(file) {
            return None;
        }
        // SAFETY: a new mapping of whatever the kernel chooses touches no memory of ours; its failure is looked at below.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                at as libc::off_t,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        let mapping = Self {
            start: NonNull::new(start.cast())?,
            bytes,
        };
        if is_cached(file, at, bytes) {
            // The first look at each piece maps it: for a third of what it takes to ask for all of it, page by page.
            return Some(mapping);
        }
        // Unlike a look at the bytes, which would end the process, this says whether the device could be read.
        // SAFETY: the range is the mapping just made.
        let failed = unsafe {
            // All of it is asked for first, or it would come in small pieces, each waited for.
            libc::madvise(start, bytes, libc::MADV_WILLNEED);
            libc::madvise(start, bytes, libc::MADV_POPULATE_READ)
        };
        (failed == 0).then_some(mapping)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped as long as `self` lives, and the file does not change there.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

/// Whether all of a piece of a file is in the page cache by now, so that a look at it asks no device; false where the kernel (Linux before 6.5) cannot tell.
fn is_cached(file: &File, at: u64, bytes: usize) -> bool {
    #[repr(C)]
    struct Range {
        at: u64,
        bytes: u64,
    }
    let range = Range {
        at,
        bytes: bytes as u64,
    };
    /// cachestat(2), on x86-64 and aarch64 alike; `libc` has no name for it on all of them.
    const CACHESTAT: libc::c_long = 451;
    // In memory, dirty, being written, evicted, evicted lately (linux/mman.h).
    let mut pages = [0u64; 5];
    // SAFETY: both structures are as the kernel has them, and live during the call.
    let failed = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0) };
    // SAFETY: it reads a number.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let wanted = (at + range.bytes).div_ceil(page_bytes) - at / page_bytes;
    failed == 0 && pages[0] >= wanted
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `of`, and nobody has a slice of it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_a_file_is_there_or_refused() {
        let path = std::env::temp_dir().join(format!("gauge-log-mapping-{}", std::process::id()));
        let content: Vec<u8> = (0..3 * 4096u32).map(|at| (at / 4096) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        if let Some(mapping) = Mapping::of(&file, 4096, 8192) {
            assert_eq!(mapping.bytes(), &content[4096..]);
        }
        assert!(Mapping::of(&file, 4096, 8193).is_none());
        assert!(Mapping::of(&file, 0, 0).is_none());
        std::fs::remove_file(&path).unwrap();
    }
}
