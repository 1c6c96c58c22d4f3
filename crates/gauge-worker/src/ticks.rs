//! What a CPU was doing when its timer interrupt came, once per period of its probe: the kernel's own sampling clock (`perf_event_open(2)`).
//!
//! A probe that is late tells that it could not run, and not why. Interrupts are served also where a thread of normal priority is in a stretch of
//! the kernel that nothing interrupts, as on kernels without preemption every long system call is: a broker that writes a megabyte into the page
//! cache keeps even a real-time thread waiting for a millisecond or two. What the kernel's accounts say of it is no help, as they do not count that
//! wait (the run queue's clock stands still from such a wake-up to the next tick). So the probes ask who had the CPU while they waited.

use std::io;

use crate::perf::{Event, Ring, SAMPLE_TID, SAMPLE_TIME};

const TYPE_SOFTWARE: u32 = 1;
const CONFIG_CPU_CLOCK: u64 = 0;
/// A power of two: 1,300 ticks, and a probe takes them out each period.
const RING_PAGES: usize = 8;

/// A tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// CLOCK_MONOTONIC.
    pub at_ns: i64,
    /// The thread that it interrupted; 0: none, the CPU was idle.
    pub tid: u32,
    /// Whether it interrupted the thread's own code, and not the kernel's for it.
    pub is_user: bool,
}

/// The ticks of a CPU, as long as it lives.
#[derive(Debug)]
pub struct Ticks {
    ring: Ring,
    period_ns: i64,
    _event: Event,
}

impl Ticks {
    /// Ticks of a CPU, from now on, `period_ns` apart.
    ///
    /// # Errors
    /// Those of [`Event::of_cpu`] and [`Ring::of`].
    pub fn of_cpu(cpu: usize, period_ns: i64) -> io::Result<Ticks> {
        let event = Event::of_cpu(
            TYPE_SOFTWARE,
            CONFIG_CPU_CLOCK,
            period_ns as u64,
            SAMPLE_TID | SAMPLE_TIME,
            cpu,
        )?;
        Ok(Ticks {
            ring: Ring::of(&event, RING_PAGES)?,
            period_ns,
            _event: event,
        })
    }

    /// Between two ticks.
    pub fn period_ns(&self) -> i64 {
        self.period_ns
    }

    /// Takes out the ticks that have come since it was asked last, in their order.
    pub fn drain(&mut self, mut each: impl FnMut(Tick)) {
        self.ring.drain(|sample| {
            let [thread, at_ns] = sample.words;
            each(Tick {
                at_ns: at_ns as i64,
                tid: (thread >> 32) as u32,
                is_user: sample.is_user,
            })
        });
    }
}

/// What a thread is to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// It goes before the probe or is its equal, and is not of the system under test.
    Above,
    /// The same, of the system under test.
    Own,
    /// The probe goes before it.
    Below,
}

/// Who had a CPU while a probe waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody that kept the probe from running: interrupts came late as well, or the probe itself was not to run, as its process was stopped (by a signal, or
    /// as a group is frozen).
    Away,
    /// A thread that goes before the probe or is its equal.
    Above,
    /// The system's own threads, or those that the probe goes before, in the kernel.
    Below,
}

/// Who had the CPU from `due_ns`, when a probe was to run and a tick was to come, to `now_ns`, when it did. `rank`: of a thread, as far as that can be found
/// out.
///
/// `period_ns`: between two ticks. `slack_ns`: by as much a tick may be late, and a probe for other reasons. What came before does not matter: a CPU that was idle has no ticks.
pub fn holder(
    ticks: &[Tick],
    due_ns: i64,
    now_ns: i64,
    period_ns: i64,
    slack_ns: i64,
    rank: impl Fn(u32) -> Rank,
) -> Holder {
    let during = &ticks[ticks.partition_point(|tick| tick.at_ns < due_ns - slack_ns)..];
    // One was to come with the probe, and then one each period.
    let mut next_ns = due_ns;
    for at_ns in during.iter().map(|tick| tick.at_ns).chain([now_ns]) {
        if at_ns - next_ns > slack_ns {
            return Holder::Away;
        }
        next_ns = at_ns + period_ns;
    }
    // An idle CPU would have run the probe.
    if during.is_empty() || during.iter().any(|tick| tick.tid == 0) {
        return Holder::Away;
    }
    let mut found = Holder::Below;
    for tick in during {
        match rank(tick.tid) {
            Rank::Above => return Holder::Above,
            // Who is not in the kernel is put aside for a probe that can run, if not by that very tick.
            Rank::Below if tick.is_user && tick.at_ns - due_ns > slack_ns => found = Holder::Away,
            Rank::Below | Rank::Own => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_NS: i64 = 1_000_000;
    const SLACK_NS: i64 = 250_000;
    const THIEF: u32 = 7;
    const BROKER: u32 = 8;

    /// Who had the CPU, by ticks that came in the kernel.
    fn held(ticks: &[(i64, u32)], due_us: i64, now_us: i64) -> Holder {
        held_in(ticks, &[], due_us, now_us)
    }

    /// `in_user_us`: which of them came in a program's own code.
    fn held_in(ticks: &[(i64, u32)], in_user_us: &[i64], due_us: i64, now_us: i64) -> Holder {
        let ticks: Vec<Tick> = ticks
            .iter()
            .map(|(at_us, tid)| Tick {
                at_ns: at_us * 1000,
                tid: *tid,
                is_user: in_user_us.contains(at_us),
            })
            .collect();
        holder(
            &ticks,
            due_us * 1000,
            now_us * 1000,
            TICK_NS,
            SLACK_NS,
            |tid| match tid {
                THIEF => Rank::Above,
                BROKER => Rank::Own,
                _ => Rank::Below,
            },
        )
    }

    #[test]
    fn a_stretch_of_the_kernel_is_told_from_a_host_and_from_a_thief() {
        assert_eq!(
            held(&[(9_010, 1), (10_010, 5), (11_010, 5)], 10_000, 11_700),
            Holder::Below
        );
        assert_eq!(
            held(&[(9_010, 1), (11_690, 5)], 10_000, 11_700),
            Holder::Away,
            "no tick came on time"
        );
        assert_eq!(
            held(&[(9_010, 1), (10_010, THIEF), (11_010, THIEF)], 10_000, 11_700),
            Holder::Above
        );
        assert_eq!(
            held(&[(9_010, 1), (10_010, 5), (11_010, THIEF)], 10_000, 11_700),
            Holder::Above,
            "part of the time is enough"
        );
        assert_eq!(
            held(&[(9_010, 1), (10_010, 0)], 10_000, 10_700),
            Holder::Away,
            "it was idle, and did not wake up"
        );
        assert_eq!(held(&[(9_010, 1)], 10_000, 10_700), Holder::Away);
        assert_eq!(held(&[], 10_000, 10_700), Holder::Away);
        // It was idle until just before.
        assert_eq!(
            held(&[(2_010, 1), (10_010, 5), (11_010, 5)], 10_000, 11_700),
            Holder::Below
        );
    }

    #[test]
    fn a_probe_whose_process_is_stopped_waits_for_nobody() {
        let ticks = [(9_010, 5), (10_010, 5), (11_010, 5), (12_010, 6), (13_010, 5)];
        assert_eq!(held_in(&ticks, &[12_010], 10_000, 13_700), Holder::Away);
        assert_eq!(
            held_in(&ticks, &[9_010, 10_010], 10_000, 13_700),
            Holder::Below,
            "a thread may enter the kernel in the moment in which the probe is due"
        );
        let ticks = [(9_010, 5), (10_010, BROKER), (11_010, BROKER)];
        assert_eq!(
            held_in(&ticks, &[10_010, 11_010], 10_000, 11_700),
            Holder::Below,
            "what goes before the probe does so in its own code as well"
        );
        let ticks = [(10_010, THIEF), (11_010, 5)];
        assert_eq!(held_in(&ticks, &[10_010, 11_010], 10_000, 11_700), Holder::Above);
    }

    #[test]
    fn a_host_that_takes_the_cpu_within_a_stretch_is_seen() {
        assert_eq!(
            held(&[(9_010, 1), (10_010, 5), (13_400, 5)], 10_000, 13_500),
            Holder::Away
        );
        assert_eq!(
            held(&[(9_010, 1), (10_010, 5)], 10_000, 11_700),
            Holder::Away,
            "the last tick is missing"
        );
    }

    #[test]
    fn a_cpu_ticks_where_it_is_permitted() {
        let mut ticks = match Ticks::of_cpu(0, TICK_NS) {
            Ok(ticks) => ticks,
            Err(error) => {
                let refused = matches!(
                    error.raw_os_error(),
                    Some(libc::EACCES | libc::EPERM | libc::ENOSYS)
                );
                assert!(refused, "{error}");
                return;
            }
        };
        let mut seen = Vec::new();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            ticks.drain(|tick| seen.push(tick));
        }
        // An idle CPU may sleep through some, and a busy machine through others.
        assert!(seen.len() > 3, "{seen:?}");
        assert!(seen.iter().all(|tick| tick.at_ns > 0));
        assert!(seen.windows(2).all(|two| two[0].at_ns < two[1].at_ns), "{seen:?}");
        let mut again = Vec::new();
        ticks.drain(|tick| again.push(tick));
        assert!(again.len() < 100, "what was taken out does not come again");
    }
}
