//! The clocks. Latencies use `CLOCK_MONOTONIC` only; wall-clock time labels a run and measures nothing.

use std::sync::atomic::{AtomicI64, Ordering};

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

/// A clock that is shown wrong on purpose, for tests: by so much, and so much more per second since `SKEWED_FROM_NS`.
static SKEW_NS: AtomicI64 = AtomicI64::new(0);
static SKEW_PPB: AtomicI64 = AtomicI64::new(0);
static SKEWED_FROM_NS: AtomicI64 = AtomicI64::new(0);

/// From now on other machines see this one's clock ahead by `offset_ns`, and gaining `drift_ppb` nanoseconds per second.
pub fn skew(offset_ns: i64, drift_ppb: i64) {
    SKEWED_FROM_NS.store(monotonic_ns(), Ordering::Relaxed);
    SKEW_PPB.store(drift_ppb, Ordering::Relaxed);
    SKEW_NS.store(offset_ns, Ordering::Relaxed);
}

/// `ppb` billionths of a time.
#[inline]
pub(crate) fn share_ppb(time_ns: i64, ppb: i64) -> i64 {
    // Exact for years: i128 holds the product.
    (i128::from(time_ns) * i128::from(ppb) / 1_000_000_000) as i64
}

/// A time of this clock as other machines are told it; the same, unless the clock is skewed.
#[inline]
pub fn shown_ns(time_ns: i64) -> i64 {
    let offset_ns = SKEW_NS.load(Ordering::Relaxed);
    let drift_ppb = SKEW_PPB.load(Ordering::Relaxed);
    if offset_ns == 0 && drift_ppb == 0 {
        return time_ns;
    }
    time_ns + offset_ns + share_ppb(time_ns - SKEWED_FROM_NS.load(Ordering::Relaxed), drift_ppb)
}

/// The time of this clock that is told as `shown_ns`.
#[inline]
pub fn unshown_ns(shown_ns: i64) -> i64 {
    let offset_ns = SKEW_NS.load(Ordering::Relaxed);
    let drift_ppb = SKEW_PPB.load(Ordering::Relaxed);
    if offset_ns == 0 && drift_ppb == 0 {
        return shown_ns;
    }
    // x + d(x - f) = y has the solution x = f + (y - f)/(1 + d), whose first two terms are exact to nanoseconds for hours.
    let from_ns = SKEWED_FROM_NS.load(Ordering::Relaxed);
    let since_ns = shown_ns - offset_ns - from_ns;
    let first_ns = since_ns - share_ppb(since_ns, drift_ppb);
    from_ns + first_ns + share_ppb(share_ppb(since_ns, drift_ppb), drift_ppb)
}
