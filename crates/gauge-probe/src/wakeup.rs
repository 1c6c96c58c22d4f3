//! How late a sleeping thread wakes up: the floor of any schedule's lateness on this machine.
//!
//! The thread sleeps until absolute instants 100 us apart, as a paced load does. The instants are never moved: after a stall, every
//! instant that went by is a sample with its own lateness, as every message that was due would have been.

use std::io;
use std::thread;
use std::time::Duration;

use crate::clock::{self, monotonic_ns};
use crate::error::ProbeError;
use crate::report::OvershootUs;
use crate::samples::Samples;

const PERIOD_NS: i64 = 100_000;

/// The scheduling class that the sleeping thread asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// SCHED_FIFO at its lowest priority, which already goes before every normal thread.
    Fifo,
    /// What every process has.
    Normal,
}

/// The outcome of a measurement in one class.
pub enum Outcome {
    /// What was measured.
    Measured(OvershootUs),
    /// The kernel's reason not to give the class.
    Refused(io::Error),
}

/// Sleeps for `duration` in a thread of its own, because the class and the timer slack belong to a thread.
pub fn measure(class: Class, duration: Duration) -> Result<Outcome, ProbeError> {
    let sleeper = thread::Builder::new()
        .name("wakeup".into())
        .spawn(move || -> Result<Outcome, ProbeError> {
            set_timer_slack();
            if class == Class::Fifo
                && let Err(error) = ask_for_fifo()
            {
                return Ok(Outcome::Refused(error));
            }
            sleep_and_record(duration).map(|mut samples| Outcome::Measured(OvershootUs::of(&mut samples)))
        })
        .map_err(|error| ProbeError::from_machine("start a thread", &error))?;
    sleeper
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn sleep_and_record(duration: Duration) -> Result<Samples, ProbeError> {
    let periods = (clock::nanoseconds(duration) / PERIOD_NS).max(1);
    let limit = usize::try_from(periods).unwrap_or(usize::MAX);
    let mut samples = Samples::with_limit(limit)
        .map_err(|_| ProbeError::Machine("the probe could not get memory for its samples".into()))?;
    let start_ns = monotonic_ns();
    for period in 1..=periods {
        let due_ns = start_ns + period * PERIOD_NS;
        sleep_until(due_ns)?;
        samples.record(monotonic_ns() - due_ns);
    }
    Ok(samples)
}

fn sleep_until(due_ns: i64) -> Result<(), ProbeError> {
    let due = libc::timespec {
        tv_sec: due_ns / 1_000_000_000,
        tv_nsec: due_ns % 1_000_000_000,
    };
    loop {
        // SAFETY: `due` is a valid timespec; with TIMER_ABSTIME nothing is written to the null remainder.
        let status = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &due,
                std::ptr::null_mut(),
            )
        };
        match status {
            0 => return Ok(()),
            libc::EINTR => continue,
            errno => {
                return Err(ProbeError::from_machine(
                    "sleep",
                    &io::Error::from_raw_os_error(errno),
                ));
            }
        }
    }
}

/// 1 ns in place of the 50 us by which the kernel may delay a timer to join it with others. It cannot fail with this argument.
fn set_timer_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

fn ask_for_fifo() -> io::Result<()> {
    // SAFETY: no memory is involved; the argument is a constant of the interface.
    let priority = unsafe { libc::sched_get_priority_min(libc::SCHED_FIFO) };
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `parameters` is valid for the call; 0 means the calling thread.
    let status = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_period_is_a_sample_and_none_is_early() {
        let samples = sleep_and_record(Duration::from_millis(20)).unwrap();
        assert_eq!(samples.count(), 200);
        let mut samples = samples;
        assert!(samples.quantile_ns(0.0) >= 0);
    }

    #[test]
    fn fifo_is_measured_or_refused_with_a_reason() {
        match measure(Class::Fifo, Duration::from_millis(5)).unwrap() {
            Outcome::Measured(overshoot) => assert_eq!(overshoot.count, 50),
            Outcome::Refused(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
    }
}
