//! What the threads that answer clients ask of the kernel's scheduler.

/// The time slice that is asked for, ns: the least that the kernel gives.
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr` in its first version (sched_setattr(2)).
#[repr(C)]
#[derive(Debug, Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    slice_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Asks for short time slices for the calling thread: it runs as much as before, but is let in sooner when it wakes up (Linux 6.12 and later; older kernels
/// ignore it). It takes no privilege, and takes nothing from other programs.
pub fn prefer_short_slices() {
    let mut attributes = SchedulingAttributes::default();
    let size = size_of::<SchedulingAttributes>() as u32;
    // SAFETY: the structure lives during both calls and is as large as they are told. Failure leaves everything as it is.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) != 0 {
            return;
        }
        if attributes.policy == libc::SCHED_OTHER as u32 {
            attributes.size = size;
            attributes.slice_ns = SLICE_NS;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}
