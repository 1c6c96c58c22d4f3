//! What the probes saw in an interval, put together: windows and who took them, quiet time, and whether windows begin whenever they like.
//!
//! Pure: observations come in as values.

use std::collections::VecDeque;

use gauge_load::mutants::{self, Mutant};
use gauge_load::quiet::{NOTHING_DUE_NS, Sample, Spans, Window};
use serde::Serialize;

/// Windows that an interval lists; of the others it tells how many and how long.
const LISTED_MAX: usize = 50;
/// Windows and samples that wait for their interval, at most: nobody may have asked for long.
const KEPT_MAX: usize = 1 << 16;
/// Ages of the oldest message under way that are told apart.
const AGES_NS: [i64; 4] = [500_000, 1_000_000, 2_000_000, 5_000_000];

/// Who took the CPU, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The host of the virtual machine, by its steal account.
    Host,
    /// Another real-time program (or a stretch of the kernel that nothing interrupts): the probe could have run, and was not let.
    RealTime,
    /// Deferred work of interrupts.
    Softirq,
    /// The timer itself came late, and no account tells why: a host that keeps none, the machine's firmware, too little for a tick, or a generator that was
    /// stopped as a whole.
    Unknown,
}

/// What the kernel's accounts say of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// How late the probe was.
    pub late_ns: i64,
    /// For how much of it the probe waited for the CPU in the run queue.
    pub waited_ns: i64,
    /// The window's part of what the steal account grew.
    pub steal_ns: i64,
    /// And the softirq account.
    pub softirq_ns: i64,
}

/// Who took the CPU.
///
/// A thread that is in the run queue for most of its lateness was woken up on time: the CPU ran, and ran something else. Nothing of
/// normal priority can be that, as the probe goes before it. Otherwise the timer came late: then nothing ran on this CPU.
pub fn cause(evidence: &Evidence) -> Cause {
    let has_waited = evidence.waited_ns * 2 >= evidence.late_ns;
    if evidence.steal_ns > 0 {
        Cause::Host
    } else if has_waited && evidence.softirq_ns * 2 >= evidence.late_ns {
        Cause::Softirq
    } else if has_waited {
        Cause::RealTime
    } else {
        Cause::Unknown
    }
}

/// A window as an interval shows it; times on the schedule's axis.
#[derive(Clone, Debug, Serialize)]
pub struct WindowOut {
    cpu: usize,
    from_s: f64,
    to_s: f64,
    late_s: f64,
    recovered_s: f64,
    cause: Cause,
    steal_s: f64,
    waited_s: f64,
    softirq_s: f64,
}

/// The windows of an interval that are not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Unlisted {
    windows: u64,
    length_s: f64,
}

/// How often the oldest message under way was older than each of the ages: over quiet time, and where disturbed spans begin.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Attraction {
    quiet_samples: u64,
    quiet_older: [u64; AGES_NS.len()],
    begins: u64,
    begins_older: [u64; AGES_NS.len()],
    /// How long those spans were. What one is longer than was known when its interval was put together is told with the next.
    begins_older_s: [f64; AGES_NS.len()],
}

/// A span that may still become longer, and began while something was old.
#[derive(Clone, Copy, Debug)]
struct OpenSpan {
    from_ns: i64,
    told_to_ns: i64,
    is_older: [bool; AGES_NS.len()],
}

/// An interval's disturbance, as docs/worker-api.md has it. Without probes only the steal account is known.
#[derive(Clone, Debug, Serialize)]
pub struct DisturbanceOut {
    #[serde(flatten)]
    pub probed: Option<Probed>,
    /// In the order of the status's `probes.cpus`.
    steal_s: Vec<f64>,
    /// What finding all this out has cost: part of the process's CPU time.
    probes_cpu_s: f64,
}

/// What only probes can tell.
#[derive(Clone, Debug, Serialize)]
pub struct Probed {
    quiet_s: f64,
    disturbed_s: f64,
    windows: Vec<WindowOut>,
    unlisted: Unlisted,
    /// For how long probes waited for the kernel's work for threads of lower priority, over all CPUs: no windows. None: it could not be told from them.
    stretches_s: Option<f64>,
    attraction: Attraction,
    /// Of the messages that were decided in the interval.
    #[serde(flatten)]
    pub due: DueInQuiet,
}

/// Messages that were due in quiet time; of those that were decided in an interval.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DueInQuiet {
    pub quiet_sent_msgs: u64,
    pub quiet_acked_msgs: u64,
    /// In the order of the interval's `subscriptions`.
    pub quiet_received_msgs: Vec<u64>,
    pub undecided_msgs: u64,
}

impl DisturbanceOut {
    /// About the bytes that it takes.
    pub fn kept_bytes(&self) -> usize {
        200 + self
            .probed
            .as_ref()
            .map_or(0, |probed| 400 + 200 * probed.windows.len())
    }
}

/// Collects what the probes saw, until the interval is put together.
#[derive(Debug)]
pub struct Disturbance {
    cpus: Vec<usize>,
    is_probed: bool,
    spans: Spans,
    windows: VecDeque<(Window, Evidence)>,
    samples: VecDeque<Sample>,
    open_spans: Vec<OpenSpan>,
    /// Per CPU: when the steal account was read, and by how much it had grown.
    steal: VecDeque<(i64, Vec<i64>)>,
    settled_ns: i64,
    seen_windows: u64,
    /// CPU time of probes and witness so far, and of that what intervals have told.
    cpu_ns: i64,
    told_cpu_ns: i64,
    /// The same of what probes waited for and was no window; None: nobody can tell.
    stretches_ns: Option<i64>,
    told_stretches_ns: i64,
}

impl Disturbance {
    /// Nothing yet. Without probes only steal will come.
    pub fn new(cpus: Vec<usize>, is_probed: bool) -> Disturbance {
        Disturbance {
            cpus,
            is_probed,
            spans: Spans::default(),
            windows: VecDeque::new(),
            samples: VecDeque::new(),
            open_spans: Vec::new(),
            steal: VecDeque::new(),
            settled_ns: i64::MIN,
            seen_windows: 0,
            cpu_ns: 0,
            told_cpu_ns: 0,
            stretches_ns: None,
            told_stretches_ns: 0,
        }
    }

    /// A window, with what is known of it.
    pub fn window(&mut self, window: Window, evidence: Evidence) {
        self.seen_windows += 1;
        self.spans.add(window.from_ns, window.recovered_ns);
        // Those of several CPUs come mixed.
        let at = self
            .windows
            .partition_point(|(other, _)| other.from_ns <= window.from_ns);
        self.windows.insert(at, (window, evidence));
        if self.windows.len() > KEPT_MAX {
            self.windows.pop_front();
        }
    }

    /// A sample of what is under way.
    pub fn sample(&mut self, sample: Sample) {
        self.samples.push_back(sample);
        if self.samples.len() > KEPT_MAX {
            self.samples.pop_front();
        }
    }

    /// The steal accounts were read, and had grown by this much.
    pub fn steal(&mut self, at_ns: i64, grown_ns: Vec<i64>) {
        self.steal.push_back((at_ns, grown_ns));
        if self.steal.len() > KEPT_MAX {
            self.steal.pop_front();
        }
    }

    /// The CPU time of probes and witness, so far.
    pub fn cost(&mut self, cpu_ns: i64) {
        self.cpu_ns = cpu_ns;
    }

    /// What probes waited for and was no window, so far.
    pub fn stretched(&mut self, stretches_ns: Option<i64>) {
        self.stretches_ns = stretches_ns;
    }

    /// Everything before this time has been told.
    pub fn settle(&mut self, until_ns: i64) {
        self.settled_ns = self.settled_ns.max(until_ns);
    }

    /// Until when everything has been told.
    pub fn settled_ns(&self) -> i64 {
        self.settled_ns
    }

    /// Windows so far.
    pub fn seen_windows(&self) -> u64 {
        self.seen_windows
    }

    /// The interval `[from_ns, to_ns)` of a schedule that began at `start_ns`. Intervals are asked for in order; what came before is
    /// forgotten.
    pub fn take(&mut self, start_ns: i64, from_ns: i64, to_ns: i64) -> DisturbanceOut {
        let mut steal_ns = vec![0; self.cpus.len()];
        while let Some((_, grown_ns)) = self.steal.pop_front_if(|(at_ns, _)| *at_ns < to_ns) {
            for (sum, grown_ns) in steal_ns.iter_mut().zip(grown_ns) {
                *sum += grown_ns;
            }
        }
        let steal_s = steal_ns.iter().map(|ns| *ns as f64 / 1e9).collect();
        let probes_cpu_s = (self.cpu_ns - std::mem::replace(&mut self.told_cpu_ns, self.cpu_ns)) as f64 / 1e9;
        if !self.is_probed {
            return DisturbanceOut {
                probed: None,
                steal_s,
                probes_cpu_s,
            };
        }
        let disturbed_ns = self.spans.within_ns(from_ns, to_ns);
        let mut attraction = Attraction::default();
        while let Some(sample) = self.samples.pop_front_if(|sample| sample.at_ns < to_ns) {
            if sample.at_ns >= from_ns && !self.spans.contains(sample.at_ns) {
                attraction.quiet_samples += 1;
                count(
                    &mut attraction.quiet_older,
                    older(sample.at_ns, sample.oldest_due_ns),
                );
            }
        }
        let mut windows = Vec::new();
        let mut begun_ns = i64::MIN;
        while let Some((window, evidence)) = self.windows.pop_front_if(|(window, _)| window.from_ns < to_ns) {
            let is_forgotten = mutants::is(Mutant::WindowNotTold) && window.from_ns < from_ns + 5_000_000;
            if window.from_ns < from_ns || is_forgotten {
                continue;
            }
            // Where a span begins, and not where one CPU follows the other.
            let begins = self
                .spans
                .as_slice()
                .binary_search_by_key(&window.from_ns, |span| span.0)
                .is_ok();
            if begins && begun_ns != window.from_ns {
                begun_ns = window.from_ns;
                let is_older = older(window.from_ns, window.oldest_due_ns);
                attraction.begins += 1;
                count(&mut attraction.begins_older, is_older);
                if is_older.contains(&true) {
                    self.open_spans.push(OpenSpan {
                        from_ns: window.from_ns,
                        told_to_ns: window.from_ns,
                        is_older,
                    });
                }
            }
            windows.push((window, evidence));
        }
        self.measure_old(&mut attraction, to_ns);
        self.spans.forget_before(from_ns);
        let causes = causes(&windows, &steal_ns);
        let stretches_s = self
            .stretches_ns
            .map(|ns| (ns - std::mem::replace(&mut self.told_stretches_ns, ns)) as f64 / 1e9);
        let seconds = |ns: i64| ns as f64 / 1e9;
        let shown = windows
            .iter()
            .zip(causes)
            .take(LISTED_MAX)
            .map(|((window, evidence), cause)| WindowOut {
                cpu: self.cpus.get(window.seat).copied().unwrap_or(window.seat),
                from_s: seconds(window.from_ns - start_ns),
                to_s: seconds(window.to_ns - start_ns),
                late_s: seconds(evidence.late_ns),
                recovered_s: seconds(window.recovered_ns - start_ns),
                cause,
                steal_s: seconds(evidence.steal_ns),
                waited_s: seconds(evidence.waited_ns),
                softirq_s: seconds(evidence.softirq_ns),
            })
            .collect();
        let rest = windows.get(LISTED_MAX..).unwrap_or_default();
        DisturbanceOut {
            probed: Some(Probed {
                quiet_s: seconds((to_ns - from_ns - disturbed_ns).max(0)),
                disturbed_s: seconds(disturbed_ns),
                windows: shown,
                unlisted: Unlisted {
                    windows: rest.len() as u64,
                    length_s: rest
                        .iter()
                        .map(|(window, _)| seconds(window.to_ns - window.from_ns))
                        .sum(),
                },
                stretches_s,
                attraction,
                due: DueInQuiet::default(),
            }),
            steal_s,
            probes_cpu_s,
        }
    }

    /// Adds by how much spans that began with something old are longer than was told, and forgets those that were over by `to_ns`.
    fn measure_old(&mut self, attraction: &mut Attraction, to_ns: i64) {
        let spans = self.spans.as_slice();
        self.open_spans.retain_mut(|open| {
            let at = spans.partition_point(|span| span.1 <= open.from_ns);
            let end_ns = spans.get(at).map_or(open.told_to_ns, |span| span.1);
            let grown_s = (end_ns - open.told_to_ns).max(0) as f64 / 1e9;
            for (sum_s, is_older) in attraction.begins_older_s.iter_mut().zip(open.is_older) {
                *sum_s += if is_older { grown_s } else { 0.0 };
            }
            open.told_to_ns = open.told_to_ns.max(end_ns);
            end_ns >= to_ns
        });
    }
}

/// Than which of the ages the oldest message under way was older.
fn older(at_ns: i64, oldest_due_ns: i64) -> [bool; AGES_NS.len()] {
    AGES_NS.map(|age_ns| oldest_due_ns != NOTHING_DUE_NS && at_ns - oldest_due_ns > age_ns)
}

fn count(counts: &mut [u64; AGES_NS.len()], is_older: [bool; AGES_NS.len()]) {
    for (count, is_older) in counts.iter_mut().zip(is_older) {
        *count += u64::from(is_older);
    }
}

/// The causes of an interval's windows. A tick of the steal account is longer than most windows, so that of ten only one may show
/// steal: those whose timer came late for no reason that an account tells are the host's, if the CPU's steal in the interval is at
/// least half of what all of them, and those that are the host's by themselves, were late.
fn causes(windows: &[(Window, Evidence)], steal_ns: &[i64]) -> Vec<Cause> {
    let mut causes: Vec<Cause> = windows.iter().map(|(_, evidence)| cause(evidence)).collect();
    for (seat, steal_ns) in steal_ns.iter().enumerate() {
        let is_late = |cause: Cause| matches!(cause, Cause::Host | Cause::Unknown);
        let late_ns: i64 = windows
            .iter()
            .zip(&causes)
            .filter(|((window, _), cause)| window.seat == seat && is_late(**cause))
            .map(|((_, evidence), _)| evidence.late_ns)
            .sum();
        if *steal_ns > 0 && steal_ns * 2 >= late_ns {
            for ((window, _), cause) in windows.iter().zip(&mut causes) {
                if window.seat == seat && *cause == Cause::Unknown {
                    *cause = Cause::Host;
                }
            }
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn window(seat: usize, from_ms: i64, late_ms: i64, recovery_ms: i64) -> Window {
        let to_ns = (from_ms + 1 + late_ms) * MS;
        Window {
            seat,
            from_ns: from_ms * MS,
            due_ns: (from_ms + 1) * MS,
            to_ns,
            recovered_ns: to_ns + recovery_ms * MS,
            waited_ns: 0,
            oldest_due_ns: from_ms * MS - 3 * MS,
        }
    }

    fn evidence(late_ms: i64, waited_ms: i64, steal_ms: i64, softirq_ms: i64) -> Evidence {
        Evidence {
            late_ns: late_ms * MS,
            waited_ns: waited_ms * MS,
            steal_ns: steal_ms * MS,
            softirq_ns: softirq_ms * MS,
        }
    }

    #[test]
    fn causes_follow_from_the_accounts() {
        assert_eq!(cause(&evidence(5, 0, 10, 0)), Cause::Host);
        assert_eq!(cause(&evidence(5, 5, 10, 0)), Cause::Host);
        assert_eq!(cause(&evidence(5, 4, 0, 0)), Cause::RealTime);
        assert_eq!(cause(&evidence(5, 4, 0, 10)), Cause::Softirq);
        assert_eq!(cause(&evidence(5, 0, 0, 10)), Cause::Unknown);
        assert_eq!(cause(&evidence(5, 0, 0, 0)), Cause::Unknown);
    }

    #[test]
    fn windows_too_short_for_a_tick_are_the_hosts_if_its_account_covers_them_together() {
        let short = |seat, from_ms| (window(seat, from_ms, 2, 1), evidence(2, 0, 0, 0));
        let waited = (window(0, 50, 2, 1), evidence(2, 2, 0, 0));
        let windows = [short(0, 10), short(0, 20), short(1, 30), short(0, 40), waited];
        let found = causes(&windows, &[10 * MS, 0]);
        let (host, unknown) = (Cause::Host, Cause::Unknown);
        assert_eq!(found, [host, host, unknown, host, Cause::RealTime]);
        assert_eq!(causes(&windows[..1], &[0, 0]), [unknown]);
    }

    #[test]
    fn an_interval_tells_quiet_time_windows_and_where_they_begin() {
        let mut seen = Disturbance::new(vec![4, 7], true);
        // CPU 7 from 100 to 103 and to 105 with its recovery; CPU 4 within it, until 107; a span over the interval's end.
        seen.window(window(1, 100, 2, 2), evidence(2, 0, 10, 0));
        seen.window(window(0, 102, 2, 2), evidence(2, 2, 0, 0));
        seen.window(window(0, 198, 4, 2), evidence(4, 0, 0, 0));
        for at_ms in 1..200 {
            seen.sample(Sample {
                at_ns: at_ms * MS,
                oldest_due_ns: if at_ms < 50 {
                    NOTHING_DUE_NS
                } else {
                    at_ms * MS - 1_500_000
                },
            });
        }
        seen.steal(90 * MS, vec![0, 0]);
        seen.steal(110 * MS, vec![0, 10 * MS]);
        seen.steal(210 * MS, vec![20 * MS, 0]);
        let out = seen.take(50 * MS, 0, 200 * MS);
        assert_eq!(out.steal_s, [0.0, 0.01]);
        let probed = out.probed.unwrap();
        assert!((probed.disturbed_s - 0.009).abs() < 1e-9 && (probed.quiet_s - 0.191).abs() < 1e-9);
        let cpus: Vec<usize> = probed.windows.iter().map(|window| window.cpu).collect();
        assert_eq!(cpus, [7, 4, 4]);
        assert!((probed.windows[0].from_s - 0.05).abs() < 1e-9);
        assert!((probed.windows[0].recovered_s - 0.055).abs() < 1e-9);
        assert_eq!(probed.windows[1].cause, Cause::RealTime);
        let attraction = &probed.attraction;
        assert_eq!((attraction.begins, attraction.begins_older), (2, [2, 2, 2, 0]));
        assert_eq!(attraction.begins_older_s, [0.014, 0.014, 0.014, 0.0]);
        assert_eq!(attraction.quiet_samples, 199 - 7 - 2);
        assert_eq!(attraction.quiet_older, [150 - 9, 150 - 9, 0, 0]);
        // The rest of the span is the next interval's.
        let next = seen.take(50 * MS, 200 * MS, 300 * MS).probed.unwrap();
        assert!((next.disturbed_s - 0.005).abs() < 1e-9 && next.windows.is_empty());
    }

    #[test]
    fn an_interval_lists_so_many_windows_and_counts_the_others() {
        let mut seen = Disturbance::new(vec![0], true);
        for at in 0..70 {
            seen.window(window(0, at * 10, 1, 1), evidence(1, 0, 0, 0));
        }
        let probed = seen.take(0, 0, 1000 * MS).probed.unwrap();
        assert_eq!((probed.windows.len(), probed.unlisted.windows), (LISTED_MAX, 20));
        assert!((probed.unlisted.length_s - 0.04).abs() < 1e-9);
        assert!((probed.disturbed_s - 0.21).abs() < 1e-9);
    }

    #[test]
    fn without_probes_there_is_the_steal_account() {
        let mut seen = Disturbance::new(vec![0], false);
        seen.steal(5, vec![20 * MS]);
        seen.cost(3 * MS);
        let out = serde_json::to_value(seen.take(0, 0, 10)).unwrap();
        assert_eq!(out, serde_json::json!({"steal_s": [0.02], "probes_cpu_s": 0.003}));
    }
}
