//! The clocks. Latencies use `CLOCK_MONOTONIC` only; wall-clock time labels a run and measures nothing.

/// Nanoseconds of a POSIX clock.
fn read(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid, writable timespec; the call has no other effect.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(
        status, 0,
        "the clocks used here exist on every Linux since 2.6.12"
    );
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Nanoseconds of `CLOCK_MONOTONIC`: the clock of every latency.
#[inline]
pub fn monotonic_ns() -> i64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since the Unix epoch, for labels.
pub fn unix_ns() -> i64 {
    read(libc::CLOCK_REALTIME)
}

/// CPU time, user and system, of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> i64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time, user and system, of the whole process in nanoseconds.
pub fn process_cpu_ns() -> i64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}
