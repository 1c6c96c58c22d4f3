//! Page-aligned memory that one writer fills while readers use what is already filled.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Alignment of buffers, of writes in `fsync` mode and of the beginning of every chunk: the block size of common disks and of pages.
pub const BLOCK_BYTES: usize = 4096;

/// A fixed-size, block-aligned buffer. It is filled from the front; bytes below the published length never change until `reset`.
#[derive(Debug)]
pub struct AlignedBuffer {
    start: NonNull<u8>,
    capacity_bytes: usize,
}

// SAFETY: the buffer owns its memory; concurrent use is restricted by the contracts of `write` and `bytes` below.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above: shared readers see only bytes that no writer changes any more.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Allocates `capacity_bytes` zeroed bytes; the capacity is a positive multiple of `BLOCK_BYTES`.
    pub fn new(capacity_bytes: usize) -> Self {
        assert!(capacity_bytes > 0 && capacity_bytes.is_multiple_of(BLOCK_BYTES));
        let layout = Self::layout(capacity_bytes);
        // SAFETY: the layout has a non-zero size, asserted above.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(pointer) else {
            handle_alloc_error(layout)
        };
        Self {
            start,
            capacity_bytes,
        }
    }

    fn layout(capacity_bytes: usize) -> Layout {
        Layout::from_size_align(capacity_bytes, BLOCK_BYTES)
            .expect("a positive multiple of a small power of two")
    }

    /// Bytes that fit.
    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Copies `bytes` to `at`.
    ///
    /// # Safety
    /// No other thread may write to, or hold a slice of, `at..at + bytes.len()`. In the log this holds because only the
    /// holder of the journal's lock writes, always at or above the chunk's length, or whoever was given a `Room` of their own there; and slices are only taken below a length
    /// that was published under that lock, when every room below it is filled.
    pub unsafe fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.capacity_bytes);
        // SAFETY: the range lies inside the allocation (asserted) and nobody else uses it (the caller's promise).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) };
    }

    /// Zeroes `from..to`, under the same promise as `write`.
    ///
    /// # Safety
    /// As for `write`.
    pub unsafe fn zero(&self, from: usize, to: usize) {
        assert!(from <= to && to <= self.capacity_bytes);
        // SAFETY: as in `write`.
        unsafe { std::ptr::write_bytes(self.start.as_ptr().add(from), 0, to - from) };
    }

    /// The bytes `from..to`.
    ///
    /// # Safety
    /// The range must lie below a length that was published: no thread writes there while the slice lives.
    pub unsafe fn bytes(&self, from: usize, to: usize) -> &[u8] {
        assert!(from <= to && to <= self.capacity_bytes);
        // SAFETY: the range lies inside the allocation, which is initialised (zeroed at first), and does not change (the caller's promise).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(from), to - from) }
    }

    /// The whole buffer for writing, which exclusive access makes safe.
    pub fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: `&mut self` excludes every other user, and the memory is initialised.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity_bytes) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this same layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity_bytes)) };
    }
}
