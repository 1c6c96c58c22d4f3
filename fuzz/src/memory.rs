//! An allocator that ends the process when an input makes it keep more than its length allows: amplification is a finding, too.
//! (libFuzzer's own -malloc_limit_mb needs hooks that come with sanitizers.)

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What any input may take at a time, and what each of its bytes may on top: the documented limits of the parsers (128 MiB for
/// decompressed records and for the bodies of messages) lie below, what nobody has counted above.
const BYTES: usize = 320 << 20;
const BYTES_PER_BYTE: usize = 4 << 10;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// An input of this length begins.
pub fn begin(length: usize) {
    MOST.store(NOW.load(Relaxed) + BYTES + length * BYTES_PER_BYTE, Relaxed);
}

/// The system's allocator, counted.
pub struct Bounded;

fn take(bytes: usize) {
    let now = NOW.fetch_add(bytes, Relaxed) + bytes;
    if now > MOST.load(Relaxed) {
        // Once: what is said of it takes memory as well.
        MOST.store(usize::MAX, Relaxed);
        eprintln!("the input takes too much memory: {bytes} bytes more, {now} in all");
        std::process::abort();
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting does not allocate.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        take(bytes.saturating_sub(layout.size()));
        NOW.fetch_sub(layout.size().saturating_sub(bytes), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}
