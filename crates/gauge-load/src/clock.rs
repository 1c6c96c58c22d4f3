//! The clocks. Latencies use `CLOCK_MONOTONIC` only; wall-clock time labels a run and measures nothing.
//!
//! A thread that lives in a simulated world ([`simulated`]) has the time of that world on all of them.

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

/// A clock of the kernel, or the time of the world in which this thread lives.
#[inline]
fn read_or_simulated(clock: libc::clockid_t) -> i64 {
    if simulated::is_real() {
        read(clock)
    } else {
        simulated::tick()
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`: the clock of every latency.
#[inline]
pub fn monotonic_ns() -> i64 {
    read_or_simulated(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since the Unix epoch, for labels.
pub fn unix_ns() -> i64 {
    read_or_simulated(libc::CLOCK_REALTIME)
}

/// CPU time, user and system, of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> i64 {
    read_or_simulated(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time, user and system, of the whole process in nanoseconds.
pub fn process_cpu_ns() -> i64 {
    read_or_simulated(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The time of a simulated world, for the thread that lives in it (`gauge-sim`). It stands still but for what the world says, and for what a
/// reading takes: whoever reads the clock in a loop sees it move.
///
/// Every reading of a clock asks whether the thread has one: a load and a comparison, where the reading itself is a call into the vDSO.
pub mod simulated {
    use std::cell::Cell;

    const REAL: i64 = i64::MIN;

    thread_local! {
        static NOW_NS: Cell<i64> = const { Cell::new(REAL) };
        static READING_NS: Cell<i64> = const { Cell::new(0) };
    }

    #[inline]
    pub(super) fn is_real() -> bool {
        NOW_NS.get() == REAL
    }

    #[cold]
    pub(super) fn tick() -> i64 {
        let now_ns = NOW_NS.get() + READING_NS.get();
        NOW_NS.set(now_ns);
        now_ns
    }

    /// From now on this thread's clocks show `now_ns`, and a reading takes `reading_ns`.
    pub fn begin(now_ns: i64, reading_ns: i64) {
        assert!(
            now_ns >= 0 && reading_ns >= 0,
            "time begins at 0 and goes forward"
        );
        NOW_NS.set(now_ns);
        READING_NS.set(reading_ns);
    }

    /// What the clocks show, without a reading; None: the time is real.
    pub fn now_ns() -> Option<i64> {
        Some(NOW_NS.get()).filter(|&now_ns| now_ns != REAL)
    }

    /// Sets the clocks forward.
    pub fn advance_to(now_ns: i64) {
        assert!(
            !is_real() && now_ns >= NOW_NS.get(),
            "simulated time goes forward"
        );
        NOW_NS.set(now_ns);
    }

    /// From now on this thread's clocks are real.
    pub fn end() {
        NOW_NS.set(REAL);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_have_a_time_of_its_own() {
        simulated::begin(1_000, 10);
        assert_eq!((monotonic_ns(), unix_ns()), (1_010, 1_020));
        assert_eq!(simulated::now_ns(), Some(1_020), "looking takes no time");
        simulated::advance_to(5_000);
        assert_eq!(thread_cpu_ns(), 5_010);
        let elsewhere = std::thread::spawn(simulated::now_ns)
            .join()
            .expect("it only looks");
        assert_eq!(elsewhere, None, "others have the real time");
        simulated::end();
        assert!(monotonic_ns() > 5_020);
    }
}
