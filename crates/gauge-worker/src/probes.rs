//! The probes: a thread on each CPU that wakes up once per period of its board (a millisecond or two for a load, see [`FOLLOWING`]) and notes when it could not (see `gauge_load::quiet`).
//!
//! A probe is `SCHED_FIFO`, one above the lanes: whatever keeps it from running keeps lanes and systems from running as well, and nothing of
//! normal priority can keep it, however busy. It is no higher than that, so that it sees other real-time programs that take a CPU from
//! the load; one that is below the lanes it cannot see.
//!
//! A probe reads a clock, writes to memory, and now and then reads one small file of its own; who took a CPU is found out afterwards, by a thread of
//! normal priority (the witness) that reads the kernel's accounts every 20 ms. Only on windows do both do more.
//!
//! What a probe cannot interrupt is the kernel: where it works for a thread of lower priority and is not preemptible, the probe waits, and that is no
//! disturbance but the system's own work (or the generator's). Nor is what the system's own threads do at a real-time priority above the probe's.
//! Where the kernel lets the probes see who had the CPU meanwhile ([`Ticks`]), such stretches are no windows. Where a thread of lower priority was in its own
//! code, a probe that could have run would have run: the generator's process was stopped, which is a window.
//!
//! Probes that follow no messages sample: they may wake up seldom, and what they see of each window is not where it began, but over many windows how
//! long the CPU was away.
//!
//! Several workers on one machine each have their own probes: a second set costs as little as the first, and every worker knows its windows on its own
//! clock without asking another.

mod own;
mod period;
mod witness;

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gauge_load::clock::{monotonic_ns, thread_cpu_ns};
use gauge_load::quiet::{Board, LATE_NS_MIN, Sample, Window};
use serde::Serialize;

use crate::accounts;
use crate::disturbance::Disturbance;
use crate::scheduling;
use crate::ticks::{Holder, Rank, Tick, Ticks, holder};
use own::Finder;
pub use own::Own;
pub use period::{FOLLOWING, SAMPLING};
use witness::Witness;

/// How long a probe may take to begin.
const BEGIN_WITHIN: Duration = Duration::from_secs(1);
/// A probe tells its CPU time once in so many wake-ups.
const TELL_CPU_EVERY: u32 = 128;
/// And reads how long it has waited in run queues: reading costs 4 us. A window is charged with the waits of the punctual wake-ups since then,
/// some us each.
const READ_QUEUE_EVERY: u32 = 16;
/// By as much a tick may be late without a CPU having been away.
const TICK_SLACK_NS: i64 = LATE_NS_MIN / 2;
/// A probe waits for its first tick for so many periods.
const FIRST_TICK_PERIODS: i64 = 5;

/// The probes of a trial, as its status shows them.
#[derive(Clone, Debug, Serialize)]
pub struct ProbesStatus {
    pub cpus: Vec<usize>,
    pub is_on: bool,
    /// Why not, and what to grant: a sentence.
    pub why_not: Option<String>,
    pub scheduling: Option<String>,
    /// How often they wake up.
    pub period_ms: f64,
    pub cpu_s: f64,
    /// Of one CPU, the mean over all since they began.
    pub cpu_share: f64,
    pub windows: u64,
}

/// What probes waited for the kernel's work for threads of lower priority, and for threads of the system under test.
#[derive(Debug)]
struct Stretches {
    length_ns: AtomicI64,
    /// Whether all of them can tell.
    are_told: AtomicBool,
}

impl Stretches {
    /// So far, over all CPUs; None: it cannot be told from windows.
    fn told_ns(&self) -> Option<i64> {
        let are_told = self.are_told.load(Ordering::Relaxed);
        are_told.then(|| self.length_ns.load(Ordering::Relaxed))
    }
}

impl Default for Stretches {
    fn default() -> Stretches {
        Stretches {
            length_ns: AtomicI64::new(0),
            are_told: AtomicBool::new(true),
        }
    }
}

/// What the witness finds out, and the collector takes.
#[derive(Clone, Debug)]
pub struct Seen(Arc<Mutex<Disturbance>>);

impl Seen {
    /// Nothing yet, of these CPUs.
    pub(crate) fn nothing(cpus: Vec<usize>, is_probed: bool) -> Seen {
        Seen(Arc::new(Mutex::new(Disturbance::new(cpus, is_probed))))
    }

    /// The disturbance. Held briefly, and never by a probe or a lane.
    pub fn lock(&self) -> MutexGuard<'_, Disturbance> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Probes at work; they end when this is dropped.
pub struct Probes {
    cpus: Vec<usize>,
    board: Arc<Board>,
    seen: Seen,
    stop: Arc<AtomicBool>,
    why_not: Option<String>,
    began_ns: i64,
    ended_ns: Option<i64>,
}

impl Probes {
    /// Starts a probe on each of these CPUs, which are those of the board, and the witness. Where probes cannot be had, `why_not` says so, and the
    /// witness alone is at work. `own`: the system under test.
    pub fn start(cpus: Vec<usize>, board: Arc<Board>, own: Own) -> Probes {
        let stop = Arc::new(AtomicBool::new(false));
        let stretches = Arc::new(Stretches::default());
        let own = Arc::new(own);
        let why_not = why_not(cpus.len()).or_else(|| begin(&cpus, &board, &stop, &stretches, &own).err());
        let is_on = why_not.is_none();
        if is_on {
            board.turn_on();
        } else {
            // Those that have begun end; the witness goes on.
            stop.store(true, Ordering::Release);
        }
        let seen = Seen::nothing(cpus.clone(), is_on);
        let stop = if is_on { stop } else { Arc::default() };
        let witness = Witness::new(
            cpus.clone(),
            Arc::clone(&board),
            stretches,
            Finder::new(own),
            seen.clone(),
        );
        let told = Arc::clone(&stop);
        let spawned = std::thread::Builder::new()
            .name("witness".to_owned())
            .spawn(move || witness.run(&told));
        let mut probes = Probes {
            cpus,
            board,
            seen,
            stop,
            why_not,
            began_ns: monotonic_ns(),
            ended_ns: None,
        };
        if let Err(error) = spawned {
            probes.stop();
            probes.why_not = Some(format!("no thread could be started: {error}"));
        }
        probes
    }

    /// What they have seen.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Ends them.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.ended_ns.get_or_insert_with(monotonic_ns);
    }

    /// For the trial's status.
    pub fn status(&self) -> ProbesStatus {
        let lasted_ns = self.ended_ns.unwrap_or_else(monotonic_ns) - self.began_ns;
        let cpu_ns = self.board.cpu_ns();
        let all_ns = lasted_ns.max(1) as f64 * self.cpus.len().max(1) as f64;
        ProbesStatus {
            cpus: self.cpus.clone(),
            is_on: self.board.is_on(),
            why_not: self.why_not.clone(),
            scheduling: self
                .board
                .is_on()
                .then(|| format!("fifo:{}", scheduling::PROBE_PRIORITY)),
            period_ms: self.board.period_ns() as f64 / 1e6,
            cpu_s: cpu_ns as f64 / 1e9,
            cpu_share: cpu_ns as f64 / all_ns,
            windows: self.seen.lock().seen_windows(),
        }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Why there can be no probes here, as far as files tell it.
fn why_not(cpus: usize) -> Option<String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    accounts::throttle(
        &read("/proc/sys/kernel/sched_rt_runtime_us"),
        &read("/proc/sys/kernel/sched_rt_period_us"),
    )
    .or_else(|| {
        accounts::quota(
            &read("/proc/self/cgroup"),
            std::path::Path::new("/sys/fs/cgroup"),
            cpus,
        )
        .map(|(share, file)| {
            format!(
                "a quota of {share:.2} CPUs ({}) stops threads of normal priority where no probe can see it: run the worker without it, or with a set of CPUs (cpuset) in its place",
                file.display()
            )
        })
    })
    .or_else(|| {
        accounts::no_real_time(&read("/proc/self/cgroup"), std::path::Path::new("/sys/fs/cgroup")).map(|file| {
            format!(
                "the control group gives real-time threads no time ({} is 0): write what it may have of each second into it, in us (950000; docker run \
                 --cpu-rt-runtime 950000), or run the worker outside of the group",
                file.display()
            )
        })
    })
}

/// Starts all probes. The error is a sentence.
fn begin(
    cpus: &[usize],
    board: &Arc<Board>,
    stop: &Arc<AtomicBool>,
    stretches: &Arc<Stretches>,
    own: &Arc<Own>,
) -> Result<(), String> {
    let (answers, begun) = channel();
    for (seat, &cpu) in cpus.iter().enumerate() {
        let (board, stop, answers) = (Arc::clone(board), Arc::clone(stop), answers.clone());
        let (stretches, own) = (Arc::clone(stretches), Arc::clone(own));
        std::thread::Builder::new()
            .name(format!("probe-{cpu}"))
            // It calls nothing deep, and there may be a hundred of them.
            .stack_size(128 << 10)
            .spawn(move || probe(seat, cpu, &board, &stop, &stretches, &own, &answers))
            .map_err(|error| format!("no thread could be started for a probe: {error}"))?;
    }
    for _ in cpus {
        begun
            .recv_timeout(BEGIN_WITHIN)
            .map_err(|_| "a probe did not begin within 1 s: its CPU was not to be had".to_owned())??;
    }
    Ok(())
}

/// A probe's life.
fn probe(
    seat: usize,
    cpu: usize,
    board: &Board,
    stop: &AtomicBool,
    stretches: &Stretches,
    own: &Own,
    answers: &Sender<Result<(), String>>,
) {
    scheduling::exact_timers();
    let prepared = scheduling::pin_to(cpu)
        .map_err(|error| format!("a probe could not be bound to CPU {cpu}: {error}"))
        .and_then(|()| {
            scheduling::raise_probe().map_err(|error| {
                format!(
                    "the kernel refuses real-time priority {} ({error}): grant CAP_SYS_NICE (setcap cap_sys_nice+ep on the gauge \
                     program, or --cap-add SYS_NICE of a container) or the limit (ulimit -r {0}, LimitRTPRIO={0})",
                    scheduling::PROBE_PRIORITY
                )
            })
        });
    let is_ready = prepared.is_ok();
    let period_ns = board.period_ns();
    let mut ticking = is_ready.then(|| Ticking::of_cpu(cpu, period_ns)).flatten();
    if ticking.is_none() {
        stretches.are_told.store(false, Ordering::Relaxed);
    }
    let mut last_ns = monotonic_ns();
    board.looked(seat, last_ns);
    // When nobody waits for it any more, the stop is on its way.
    let _ = answers.send(prepared);
    if !is_ready {
        return;
    }
    // Where ticks tell who had the CPU, nobody asks for how long it was waited for.
    let queue = match ticking {
        Some(_) => None,
        None => File::open("/proc/thread-self/schedstat").ok(),
    };
    let waited_ns = || queue.as_ref().map_or(0, run_delay_ns);
    let mut last_waited_ns = waited_ns();
    let mut last_oldest_ns = board.oldest_due_ns();
    let mut due_ns = match &ticking {
        // One interrupt for both.
        Some(ticking) => next_due_ns(ticking.last_ns(), last_ns, period_ns),
        None => last_ns + period_ns,
    };
    let mut wake_ups = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        if !scheduling::sleep_until(due_ns) {
            // A real-time thread that does not sleep would take the CPU: rather no probe. What follows is never decided.
            return;
        }
        let now_ns = monotonic_ns();
        wake_ups = wake_ups.wrapping_add(1);
        let late_ns = now_ns - due_ns;
        let held_by = match &mut ticking {
            Some(ticking) => ticking.look(due_ns, now_ns, late_ns >= LATE_NS_MIN, own),
            None => None,
        };
        if late_ns >= LATE_NS_MIN && held_by != Some(Holder::Below) {
            let waited_so_far_ns = waited_ns();
            let waited_ns = match held_by {
                Some(Holder::Above) => late_ns,
                Some(_) => 0,
                None => (waited_so_far_ns - last_waited_ns).min(late_ns),
            };
            board.window(&Window {
                seat,
                from_ns: if board.is_sampled() {
                    sampled_from_ns(due_ns, now_ns, period_ns)
                } else {
                    // None of the messages that are followed may count as one of quiet time while the CPU may have been away.
                    last_ns
                },
                due_ns,
                to_ns: now_ns,
                recovered_ns: now_ns + board.recovery_ns(seat, late_ns),
                waited_ns,
                oldest_due_ns: last_oldest_ns,
            });
            last_waited_ns = waited_so_far_ns;
            last_oldest_ns = board.oldest_due_ns();
        } else {
            if late_ns >= LATE_NS_MIN {
                stretches.length_ns.fetch_add(late_ns, Ordering::Relaxed);
            }
            last_oldest_ns = board.oldest_due_ns();
            if seat == 0 {
                board.sample(Sample {
                    at_ns: now_ns,
                    oldest_due_ns: last_oldest_ns,
                });
            }
            board.looked(seat, now_ns);
            if wake_ups.is_multiple_of(READ_QUEUE_EVERY) {
                last_waited_ns = waited_ns();
            }
        }
        last_ns = now_ns;
        let in_step_ns = ticking.as_ref().map_or(due_ns, |ticking| {
            in_step_ns(ticking.last_ns(), due_ns, now_ns, period_ns)
        });
        due_ns = next_due_ns(in_step_ns, now_ns, period_ns);
        if wake_ups.is_multiple_of(TELL_CPU_EVERY) {
            board.set_cpu_ns(seat, thread_cpu_ns());
        }
    }
    board.set_cpu_ns(seat, thread_cpu_ns());
}

/// The ticks of a probe's CPU since it ran last, and the one that came with it.
struct Ticking {
    ticks: Ticks,
    latest: Vec<Tick>,
}

impl Ticking {
    /// None where the kernel does not let it, or shows nothing.
    fn of_cpu(cpu: usize, period_ns: i64) -> Option<Ticking> {
        let mut ticks = Ticks::of_cpu(cpu, period_ns).ok()?;
        let mut latest = Vec::with_capacity(16);
        let until_ns = monotonic_ns() + FIRST_TICK_PERIODS * period_ns;
        // It has to be busy: an idle CPU is not told of.
        while latest.is_empty() && monotonic_ns() < until_ns {
            ticks.drain(|tick| latest.push(tick));
            std::hint::spin_loop();
        }
        (!latest.is_empty()).then_some(Ticking { ticks, latest })
    }

    /// When the latest tick came.
    fn last_ns(&self) -> i64 {
        self.latest.last().map_or(0, |tick| tick.at_ns)
    }

    /// Takes out the ticks since the last look; who had the CPU from `due_ns` on, where that is asked.
    fn look(&mut self, due_ns: i64, now_ns: i64, is_late: bool, own: &Own) -> Option<Holder> {
        let latest = &mut self.latest;
        self.ticks.drain(|tick| latest.push(tick));
        let found = is_late.then(|| {
            let known = Cell::new((0, Rank::Below));
            holder(
                latest,
                due_ns,
                now_ns,
                self.ticks.period_ns(),
                TICK_SLACK_NS,
                |tid| {
                    if known.get().0 != tid {
                        let rank = if scheduling::is_below_probes(tid) {
                            Rank::Below
                        } else if own.holds(tid) {
                            Rank::Own
                        } else {
                            Rank::Above
                        };
                        known.set((tid, rank));
                    }
                    known.get().1
                },
            )
        });
        latest.drain(..latest.len().saturating_sub(1));
        found
    }
}

/// When a probe that was due at `due_ns` and woke up at `now_ns` should have been due, to come with the ticks of its CPU, of which `tick_ns` is the latest: the first one,
/// by which it went until then, may have come late.
fn in_step_ns(tick_ns: i64, due_ns: i64, now_ns: i64, period_ns: i64) -> i64 {
    let is_fresh = now_ns - tick_ns < period_ns;
    let is_off = (tick_ns - due_ns).abs() > TICK_SLACK_NS / 2;
    if is_fresh && is_off { tick_ns } else { due_ns }
}

/// When a probe that was due at `due_ns` and woke up at `now_ns` wakes up next: in half a period at the earliest, and a whole number of periods
/// after it was due, so that it stays with its ticks.
fn next_due_ns(due_ns: i64, now_ns: i64, period_ns: i64) -> i64 {
    let periods = (now_ns - due_ns + period_ns / 2 + period_ns - 1).div_euclid(period_ns);
    due_ns + periods.max(1) * period_ns
}

/// Where the window of a sampling probe begins that was due at `due_ns` and woke up at `now_ns`: it is as long as the wake-ups that it took, `period_ns` each,
/// which is how long the CPU was away on average, for windows of any length that are seen at all.
fn sampled_from_ns(due_ns: i64, now_ns: i64, period_ns: i64) -> i64 {
    let taken = (now_ns - due_ns).div_euclid(period_ns) + 1;
    now_ns - taken * period_ns
}

/// How long the thread has waited in run queues; 0 where the kernel does not count it.
fn run_delay_ns(file: &File) -> i64 {
    let mut text = [0; 64];
    let Ok(read) = file.read_at(&mut text, 0) else {
        return 0;
    };
    let mut numbers = text[..read].split(|byte| *byte == b' ');
    let second = numbers.nth(1).unwrap_or_default();
    second
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |number, byte| number * 10 + i64::from(byte - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn a_probe_is_never_due_in_the_past() {
        for late_ns in [0, 499_999, 500_000, 1_500_000, 300 * MS] {
            let next_ns = next_due_ns(1000 * MS, 1000 * MS + late_ns, MS);
            let sleep_ns = next_ns - (1000 * MS + late_ns);
            assert!((MS / 2..MS * 3 / 2).contains(&sleep_ns), "{late_ns}: {sleep_ns}");
            assert_eq!(next_ns % MS, 0, "it stays with its ticks");
        }
    }

    #[test]
    fn a_probe_keeps_step_with_its_ticks() {
        // The first tick was 0.4 ms late: the others come before the probe.
        assert_eq!(in_step_ns(9_600_000, 10 * MS, 10 * MS + 9_000, MS), 9_600_000);
        assert_eq!(next_due_ns(9_600_000, 10 * MS + 9_000, MS), 10_600_000);
        assert_eq!(
            in_step_ns(10 * MS - 4_000, 10 * MS, 10 * MS + 9_000, MS),
            10 * MS,
            "as good as together"
        );
        assert_eq!(
            in_step_ns(3_600_000, 10 * MS, 10 * MS + 9_000, MS),
            10 * MS,
            "the CPU was idle since"
        );
    }

    #[test]
    fn sparse_probes_see_how_long_a_cpu_was_away_on_average() {
        let period_ns = 10 * MS;
        for away_ns in [MS, 3 * MS, 10 * MS, 30 * MS, 301 * MS] {
            let (mut seen_ns, mut times) = (0, 0);
            // The CPU goes away at each time between two wake-ups.
            for began_ns in (0..period_ns).step_by(10_000) {
                let (due_ns, now_ns) = (period_ns, began_ns + away_ns);
                times += 1;
                if now_ns - due_ns >= LATE_NS_MIN {
                    let from_ns = sampled_from_ns(due_ns, now_ns, period_ns);
                    assert!((0..=due_ns).contains(&from_ns), "{from_ns}");
                    seen_ns += now_ns - from_ns;
                }
            }
            let mean_ns = seen_ns / times;
            // Those that end within half a millisecond after a wake-up was due are on time.
            assert!(
                (away_ns - LATE_NS_MIN - 10_000..=away_ns + 10_000).contains(&mean_ns),
                "{away_ns}: {mean_ns}"
            );
        }
    }

    #[test]
    fn the_run_queue_is_read() {
        let file = File::open("/proc/thread-self/schedstat").unwrap();
        assert!(run_delay_ns(&file) >= 0);
    }
}
