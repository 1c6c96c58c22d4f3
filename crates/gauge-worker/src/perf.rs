//! Events of a CPU as the kernel records them: `perf_event_open(2)` and the ring into which it writes.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use gauge_process::owned;

pub const SAMPLE_TID: u64 = 1 << 1;
pub const SAMPLE_TIME: u64 = 1 << 2;
pub const SAMPLE_IDENTIFIER: u64 = 1 << 16;
const FLAG_USE_CLOCKID: u64 = 1 << 25;
const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
/// Of a record's header: in which mode the CPU was, three bits of the half word after the type.
const MODE_SHIFT: u32 = 32;
const MODE_MASK: u64 = 0b111;
const MODE_USER: u64 = 2;
const PAGE_BYTES: usize = 4096;
/// Of the page before the data, which both sides write: where the kernel has written to, and what has been read.
const HEAD_OFFSET: usize = 1024;
const TAIL_OFFSET: usize = 1032;
const IOC_SET_OUTPUT: libc::Ioctl = 0x2405;
const IOC_ID: libc::Ioctl = 0x8008_2407_u32 as libc::Ioctl;

/// The kernel's `struct perf_event_attr` as of its fifth version (Linux 4.1), which is the first with a clock to choose.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

/// What is recorded of a CPU, as long as it lives.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// Records from now on each `period`-th occurrence on a CPU, with what `sample_type` asks for; times are CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// The kernel's: mostly that it is not permitted (CAP_PERFMON, or `kernel.perf_event_paranoid` of 0 or less).
    pub fn of_cpu(kind: u32, config: u64, period: u64, sample_type: u64, cpu: usize) -> io::Result<Event> {
        let attributes = Attributes {
            kind,
            size: size_of::<Attributes>() as u32,
            config,
            sample_period: period,
            sample_type,
            flags: FLAG_USE_CLOCKID,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        // SAFETY: the attributes are as long as they say, and the kernel only reads them; the rest are numbers; the call makes a descriptor.
        let made = unsafe {
            owned(libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                -1,
                cpu as libc::c_int,
                -1,
                FLAG_FD_CLOEXEC,
            ))
        };
        made.map(Event)
    }

    /// By which its samples are known where several events write into one ring.
    ///
    /// # Errors
    /// The kernel's.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0_u64;
        // SAFETY: the kernel writes the eight bytes that it is given.
        let status = unsafe { libc::ioctl(self.0.as_raw_fd(), IOC_ID, &raw mut id) };
        if status < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(id)
        }
    }

    /// Has it write into the ring of another event of its CPU.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write_into(&self, other: &Event) -> io::Result<()> {
        // SAFETY: both descriptors are open.
        let status = unsafe { libc::ioctl(self.0.as_raw_fd(), IOC_SET_OUTPUT, other.0.as_raw_fd()) };
        if status < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

/// Of a sample, the first `N` words.
#[derive(Clone, Copy, Debug)]
pub struct Sample<const N: usize> {
    pub words: [u64; N],
    /// Whether the CPU was in a program's own code, and not in the kernel.
    pub is_user: bool,
}

/// Where an event's samples are put.
#[derive(Debug)]
pub struct Ring {
    mapping: NonNull<u8>,
    data_bytes: usize,
    tail: u64,
}

// SAFETY: the mapping is the ring's own; what the kernel writes meanwhile is read behind the head alone.
unsafe impl Send for Ring {}

impl Ring {
    /// The ring of an event; `pages` is a power of two.
    ///
    /// # Errors
    /// The kernel's: mostly that no more memory may be locked.
    pub fn of(event: &Event, pages: usize) -> io::Result<Ring> {
        let data_bytes = pages * PAGE_BYTES;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let mapping = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE_BYTES + data_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.0.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(mapping.cast::<u8>()) {
            Some(found) if mapping != libc::MAP_FAILED => Ok(Ring {
                mapping: found,
                data_bytes,
                tail: 0,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A number of the page that both sides write.
    fn shared(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self` lives, the offset is within it and aligned, and all sides access it atomically.
        unsafe { &*self.mapping.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Reads a number of the data; `at` counts bytes since the beginning. Records are multiples of eight bytes and may go round the end.
    fn word(&self, at: u64) -> u64 {
        let offset = PAGE_BYTES + at as usize % self.data_bytes;
        // SAFETY: within the mapping, aligned as `at` is a multiple of eight, and written before the head that was read.
        unsafe { self.mapping.as_ptr().add(offset).cast::<u64>().read() }
    }

    /// Takes out the samples that have come since it was asked last, in their order. Whether any were lost.
    pub fn drain<const N: usize>(&mut self, mut each: impl FnMut(Sample<N>)) -> bool {
        let mut were_lost = false;
        let head = self.shared(HEAD_OFFSET).load(Ordering::Acquire);
        while self.tail < head {
            let header = self.word(self.tail);
            let bytes = header >> 48;
            if bytes == 0 {
                // No record is empty: rather lose samples than turn here for ever.
                self.tail = head;
                were_lost = true;
                break;
            }
            match header as u32 {
                RECORD_SAMPLE => each(Sample {
                    words: std::array::from_fn(|at| self.word(self.tail + 8 + 8 * at as u64)),
                    is_user: (header >> MODE_SHIFT) & MODE_MASK == MODE_USER,
                }),
                RECORD_LOST => were_lost = true,
                _ => {}
            }
            self.tail += bytes;
        }
        self.shared(TAIL_OFFSET).store(self.tail, Ordering::Release);
        were_lost
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing refers to it any more.
        unsafe {
            libc::munmap(self.mapping.as_ptr().cast(), PAGE_BYTES + self.data_bytes);
        }
    }
}
