//! A piece of a file in the log's address space: what is in the page cache is read, checked and sent from there without a copy.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// Bytes that the kernel is asked for at once. It hands them to the device in one go, which nothing interrupts on a kernel without preemption: with 4 MiB, everybody on a processor, real-time
/// programs too, waited for half a millisecond a hundred times per second of a drain, and publishing beside it had 1.5 times the p99 (1.1 with this; the drain is no slower).
const ASKED_BYTES: usize = 128 << 10;

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
        if is_cached(start, bytes) {
            // The first look at each piece maps it: for a third of what it takes to ask for all of it, page by page.
            return Some(mapping);
        }
        // All of it is asked for before any is waited for; that it could not be read ahead is not known yet.
        mapping.advise(libc::MADV_WILLNEED);
        // Unlike a look at the bytes, which would end the process, this says whether the device could be read.
        mapping.advise(libc::MADV_POPULATE_READ).then_some(mapping)
    }

    /// Tells the kernel what is wanted of all bytes, piece by piece; whether all of them succeeded.
    fn advise(&self, advice: libc::c_int) -> bool {
        (0..self.bytes).step_by(ASKED_BYTES).all(|at| {
            let bytes = ASKED_BYTES.min(self.bytes - at);
            // SAFETY: the range is a part of the mapping; the advice changes no byte of it.
            unsafe { libc::madvise(self.start.as_ptr().add(at).cast(), bytes, advice) == 0 }
        })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped as long as `self` lives, and the file does not change there.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

/// Whether all of a mapping is in the page cache and whole, so that a look at it asks no device. What the kernel tried to read ahead and could not is in the page cache as well, and
/// not whole: mincore(2) tells the two apart, cachestat(2) does not.
fn is_cached(start: *mut libc::c_void, bytes: usize) -> bool {
    // SAFETY: it reads a number.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let mut pages = vec![0u8; bytes.div_ceil(page_bytes)];
    // SAFETY: the range is mapped, and there is a byte for each of its pages.
    let failed = unsafe { libc::mincore(start, bytes, pages.as_mut_ptr()) };
    failed == 0 && pages.iter().all(|page| page & 1 == 1)
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
        for is_cold in [false, true] {
            if is_cold {
                file.sync_all().unwrap();
                // SAFETY: advice about a file that is open.
                unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            }
            if let Some(mapping) = Mapping::of(&file, 4096, 8192) {
                assert!(is_cached(mapping.start.as_ptr().cast(), 8192));
                assert_eq!(mapping.bytes(), &content[4096..]);
            }
        }
        assert!(Mapping::of(&file, 4096, 8193).is_none());
        assert!(Mapping::of(&file, 0, 0).is_none());
        std::fs::remove_file(&path).unwrap();
    }
}
