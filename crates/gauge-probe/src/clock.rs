//! CLOCK_MONOTONIC: reading it, its resolution, and what a reading costs.

use std::hint::black_box;
use std::io;

use crate::error::ProbeError;
use crate::report::{Clock, rounded};

const READINGS: u32 = 200_000;

/// Nanoseconds of `clock`, one of the CLOCK_ constants that exist on every Linux.
fn now_of_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that outlives the call.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(
        status, 0,
        "clock_gettime cannot fail on a clock that every Linux has"
    );
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> i64 {
    now_of_ns(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> i64 {
    now_of_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// A duration in nanoseconds, for arithmetic with the clocks above.
pub fn nanoseconds(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Measures the clock itself. The cost is CPU time per reading, so that a busy neighbour does not count.
pub fn measure() -> Result<Clock, ProbeError> {
    let mut resolution = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `resolution` is a valid timespec that outlives the call.
    if unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, &mut resolution) } != 0 {
        return Err(ProbeError::from_machine(
            "read the clock's resolution",
            &io::Error::last_os_error(),
        ));
    }
    let before_ns = thread_cpu_ns();
    for _ in 0..READINGS {
        black_box(monotonic_ns());
    }
    let spent_ns = thread_cpu_ns() - before_ns;
    Ok(Clock {
        resolution_ns: (resolution.tv_sec * 1_000_000_000 + resolution.tv_nsec).unsigned_abs(),
        read_ns: rounded(spent_ns as f64 / f64::from(READINGS), 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_run_backwards() {
        let readings: Vec<i64> = (0..1_000).map(|_| monotonic_ns()).collect();
        assert!(readings.is_sorted());
    }

    #[test]
    fn a_reading_costs_something() {
        let clock = measure().unwrap();
        assert!(clock.resolution_ns >= 1);
        assert!(clock.read_ns > 0.0);
    }
}
