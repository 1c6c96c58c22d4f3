//! When messages are due.
//!
//! A schedule is a value: it answers when the next message is due, and is moved on by taking it. It is absolute and is never
//! rebased: a lane that comes late takes all that is due, each message with the time at which it should have left.
//!
//! # Theory
//!
//! Let r(t) be the rate and L(t) its integral from 0 to t: the number of messages that should have left by t. Message i leaves
//! when L(t) = u_i, where u_0 < u_1 < ... is a process of rate one: i plus a constant for `uniform`, sums of exponential gaps
//! for `poisson`, one value shared by a whole burst for `burst`. (This is the time-rescaling theorem for point processes; see
//! Brown et al. 2002, "The time-rescaling theorem and its application to neural spike train data analysis".) Every change of
//! the rate is a change of L alone, so it bends future gaps and cannot move a message that was due already.

use std::collections::VecDeque;

use crate::mutants::{self, Mutant};

/// How messages arrive on the schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// Equal gaps.
    Uniform,
    /// Exponential gaps, seeded.
    Poisson,
    /// `messages` at a time, at equal gaps between the bursts.
    Burst {
        /// Messages of one burst; at least 1.
        messages: u32,
    },
    /// No schedule: a message is due whenever the client has room. For throughput only.
    Closed,
}

/// A linear change of the rate that begins with the schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// Rate at the end of the ramp and after it, in messages per second.
    pub to_msgs_s: f64,
    /// Length of the ramp in nanoseconds; above 0.
    pub over_ns: i64,
}

/// A change of the rate that is planned before the schedule begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateChange {
    /// Where it begins, in nanoseconds since the schedule's start; not before the change in front of it has ended.
    pub at_ns: i64,
    /// The rate after it, in messages per second.
    pub to_msgs_s: f64,
    /// How long it takes, linearly; 0: a step.
    pub over_ns: i64,
}

/// Everything that determines one producer's schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleSpec {
    /// The arrival process.
    pub arrival: Arrival,
    /// This producer's rate in messages per second; finite and not negative. Ignored when `arrival` is closed.
    pub rate_msgs_s: f64,
    /// A change of the rate from the beginning on.
    pub ramp: Option<Ramp>,
    /// Where in its first gap the first message of a uniform schedule (the first burst of a bursty one) lies, 0 to 1: producers that
    /// share a rate are staggered by it.
    pub stagger: f64,
    /// End of the schedule: messages due at this offset or later do not exist.
    pub stop_ns: Option<i64>,
    /// Seed of the Poisson gaps.
    pub seed: u64,
}

/// One piece of L(t): from `from_ns` on, the rate is `rate` + `slope` (t - `from_ns`).
#[derive(Clone, Copy, Debug)]
struct Segment {
    from_ns: i64,
    /// L at `from_ns`.
    from_u: f64,
    /// Messages per nanosecond.
    rate: f64,
    /// Messages per nanosecond, per nanosecond.
    slope: f64,
}

impl Segment {
    /// L(t), for t >= from_ns.
    fn due_by(&self, t_ns: i64) -> f64 {
        let x = (t_ns - self.from_ns) as f64;
        self.from_u + (self.rate + 0.5 * self.slope * x) * x
    }

    /// The rate at t.
    fn rate_at(&self, t_ns: i64) -> f64 {
        self.rate + self.slope * (t_ns - self.from_ns) as f64
    }

    /// The t at which L(t) = u; None when the rate is zero and it never is.
    #[inline]
    fn time_of(&self, u: f64) -> Option<i64> {
        let du = u - self.from_u;
        let x = if self.slope == 0.0 {
            if self.rate <= 0.0 {
                return None;
            }
            du / self.rate
        } else {
            // The root of slope/2 x^2 + rate x = du, in the form that does not cancel.
            let square = self.rate * self.rate + 2.0 * self.slope * du;
            if square < 0.0 {
                return None;
            }
            let mean = self.rate + square.sqrt();
            if mean == 0.0 {
                // The rate begins at nothing, and what is due at its beginning is due then.
                return (self.slope > 0.0).then_some(self.from_ns);
            }
            2.0 * du / mean
        };
        // Rounded up: a message is never due before its exact time. Beyond about 290 years there is no time.
        let x = x.ceil();
        (x < 9.0e18).then(|| self.from_ns.saturating_add(x as i64))
    }
}

/// By how much the number of drawn arrivals of which so many are expected may differ from it: more once in some hundred million times.
fn spread(mean: f64) -> f64 {
    6.0 * mean.sqrt() + 6.0
}

/// Changes of the rate that lie ahead; more than this at once is a caller's error.
const SEGMENTS_MAX: usize = 4096;

/// One producer's schedule, in nanoseconds since its start.
#[derive(Clone, Debug)]
pub struct Schedule {
    arrival: Arrival,
    stop_ns: i64,
    segment: Segment,
    ahead: VecDeque<Segment>,
    /// Segments that were passed over since a message was taken: the next one lies behind them, unless the rate changes before.
    passed: VecDeque<Segment>,
    random: fastrand::Rng,
    /// Messages taken.
    taken: u64,
    stagger: f64,
    /// u of the next message.
    next_u: f64,
    /// Time of the next message, however far; i64::MAX when there is none.
    next_ns: i64,
}

impl Schedule {
    /// A schedule that begins at 0.
    pub fn new(spec: &ScheduleSpec) -> Schedule {
        assert!(
            spec.rate_msgs_s.is_finite() && spec.rate_msgs_s >= 0.0,
            "a rate is finite and not negative"
        );
        assert!(
            (0.0..=1.0).contains(&spec.stagger),
            "the stagger is a share of a gap"
        );
        let per_ns = |rate_msgs_s: f64| rate_msgs_s / 1e9;
        let mut segment = Segment {
            from_ns: 0,
            from_u: 0.0,
            rate: per_ns(spec.rate_msgs_s),
            slope: 0.0,
        };
        let mut ahead = VecDeque::new();
        if let Some(ramp) = spec.ramp {
            assert!(
                ramp.over_ns > 0 && ramp.to_msgs_s >= 0.0,
                "a ramp takes time and ends at a rate"
            );
            segment.slope = (per_ns(ramp.to_msgs_s) - segment.rate) / ramp.over_ns as f64;
            if mutants::is(Mutant::RampIsAStep) {
                (segment.rate, segment.slope) = (per_ns(ramp.to_msgs_s), 0.0);
            }
            let from_u = segment.due_by(ramp.over_ns);
            ahead.push_back(Segment {
                from_ns: ramp.over_ns,
                from_u,
                rate: per_ns(ramp.to_msgs_s),
                slope: 0.0,
            });
        }
        let mut schedule = Schedule {
            arrival: spec.arrival,
            stop_ns: spec.stop_ns.unwrap_or(i64::MAX),
            segment,
            ahead,
            passed: VecDeque::new(),
            random: fastrand::Rng::with_seed(match mutants::is(Mutant::GapsAlike) {
                true => 0,
                false => spec.seed,
            }),
            taken: 0,
            stagger: match mutants::is(Mutant::StaggerLost) {
                true => 0.0,
                false => spec.stagger,
            },
            next_u: 0.0,
            next_ns: 0,
        };
        schedule.find_next_u();
        schedule.find_next_time();
        schedule
    }

    /// When the next message is due; None when there is none before the stop. Closed: 0, always due.
    #[inline]
    pub fn next_ns(&self) -> Option<i64> {
        (self.next_ns < self.stop_ns).then_some(self.next_ns)
    }

    /// Whether the schedule is closed-loop: due means "now", and the caller names the time.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.arrival == Arrival::Closed
    }

    /// Where the schedule ends; i64::MAX when it does not.
    #[inline]
    pub fn stop_ns(&self) -> i64 {
        self.stop_ns
    }

    /// Takes the next message, whose time was `next_ns`.
    #[inline]
    pub fn take(&mut self) {
        self.taken += 1;
        if !self.passed.is_empty() {
            self.passed.clear();
        }
        if self.arrival != Arrival::Closed {
            self.find_next_u();
            self.find_next_time();
        }
    }

    /// From `at_ns` on the rate is `rate_msgs_s`; messages due before it keep their times, also if they were not taken yet.
    /// Changes that were planned for later than `at_ns` (the rest of a ramp) are dropped.
    pub fn set_rate(&mut self, at_ns: i64, rate_msgs_s: f64) {
        assert!(
            rate_msgs_s.is_finite() && rate_msgs_s >= 0.0,
            "a rate is finite and not negative"
        );
        while let Some(passed) = self.passed.pop_back()
            && !mutants::is(Mutant::PauseOutlived)
        {
            self.ahead
                .push_front(std::mem::replace(&mut self.segment, passed));
        }
        while self.ahead.back().is_some_and(|segment| segment.from_ns >= at_ns) {
            self.ahead.pop_back();
        }
        assert!(
            self.ahead.len() < SEGMENTS_MAX,
            "changes of the rate are taken as time goes by"
        );
        let last = *self.ahead.back().unwrap_or(&self.segment);
        // A change in the past of the segment that is in force begins with that segment: what was taken stays taken.
        let at_ns = at_ns.max(last.from_ns);
        self.ahead.push_back(Segment {
            from_ns: at_ns,
            from_u: last.due_by(at_ns),
            rate: rate_msgs_s / 1e9,
            slope: 0.0,
        });
        if self.arrival != Arrival::Closed {
            self.find_next_time();
        }
    }

    /// Plans changes of the rate, in the order of their times; they come after a ramp, if there is one. Before anything was taken.
    pub fn plan(&mut self, changes: &[RateChange]) {
        for change in changes {
            let last = *self.ahead.back().unwrap_or(&self.segment);
            assert!(
                change.at_ns >= last.from_ns && change.over_ns >= 0 && change.to_msgs_s >= 0.0,
                "changes follow each other and end at a rate"
            );
            let rate = last.rate_at(change.at_ns);
            let to = change.to_msgs_s / 1e9;
            let mut from_u = last.due_by(change.at_ns);
            if change.over_ns > 0 {
                let bent = Segment {
                    from_ns: change.at_ns,
                    from_u,
                    rate,
                    slope: (to - rate) / change.over_ns as f64,
                };
                from_u = bent.due_by(change.at_ns + change.over_ns);
                self.ahead.push_back(bent);
            }
            self.ahead.push_back(Segment {
                from_ns: change.at_ns + change.over_ns,
                from_u,
                rate: to,
                slope: 0.0,
            });
        }
        assert!(
            self.ahead.len() < SEGMENTS_MAX,
            "changes of the rate are bounded where they are read"
        );
        self.find_next_time();
    }

    /// A time before which the message `count` places behind the next one is not due; that very time where gaps are known, an earlier one
    /// where they are drawn or the rate is about to change. `i64::MAX`: it never is.
    pub fn earliest_ns(&self, count: u64) -> i64 {
        let u = match self.arrival {
            Arrival::Uniform => self.next_u + count as f64,
            Arrival::Poisson => self.next_u + (count as f64 - spread(count as f64)).max(0.0),
            Arrival::Burst { messages } => {
                let messages = u64::from(messages.max(1));
                ((self.taken + count) / messages * messages) as f64 + self.stagger * messages as f64
            }
            Arrival::Closed => return 0,
        };
        let due_ns = self.segment.time_of(u).unwrap_or(i64::MAX);
        let next_ns = self.ahead.front().map_or(i64::MAX, |ahead| ahead.from_ns);
        due_ns.min(next_ns.max(self.next_ns))
    }

    /// How many messages may be due within so many nanoseconds, wherever they begin; with drawn gaps all but surely no more.
    pub fn most_within(&self, ns: i64) -> u64 {
        // A rate that rises is highest where it ends, and another one may have been set before it has come there.
        let all = || [&self.segment].into_iter().chain(&self.ahead);
        let ends = all()
            .zip(all().skip(1))
            .map(|(one, next)| one.rate_at(next.from_ns));
        let peak = all().map(|one| one.rate).chain(ends).fold(0.0, f64::max);
        let mean = peak * ns as f64;
        let most = match self.arrival {
            Arrival::Uniform => mean + 1.0,
            Arrival::Poisson => mean + spread(mean) + 1.0,
            Arrival::Burst { messages } => mean + f64::from(messages),
            Arrival::Closed => f64::INFINITY,
        };
        most.ceil() as u64
    }

    /// Ends the schedule at `at_ns`, unless it ends earlier.
    pub fn stop_at(&mut self, at_ns: i64) {
        self.stop_ns = self.stop_ns.min(at_ns);
    }

    #[inline]
    fn find_next_u(&mut self) {
        match self.arrival {
            Arrival::Uniform => self.next_u = self.taken as f64 + self.stagger,
            // 1 - [0, 1) lies in (0, 1], whose logarithm is finite.
            Arrival::Poisson => self.next_u -= (1.0 - self.random.f64()).ln(),
            Arrival::Burst { messages } => {
                let messages = u64::from(messages.max(1));
                self.next_u = (self.taken / messages * messages) as f64 + self.stagger * messages as f64;
            }
            Arrival::Closed => {}
        }
    }

    #[inline]
    fn find_next_time(&mut self) {
        if self.arrival == Arrival::Closed {
            self.next_ns = 0;
            return;
        }
        loop {
            let next = self.segment.time_of(self.next_u);
            match (next, self.ahead.front()) {
                // The boundary itself belongs to the later segment; L is continuous, so both give the same time.
                (Some(t_ns), None) => self.next_ns = t_ns,
                (Some(t_ns), Some(ahead)) if t_ns <= ahead.from_ns => self.next_ns = t_ns,
                (None, None) => self.next_ns = i64::MAX,
                (_, Some(_)) => {
                    if let Some(segment) = self.ahead.pop_front() {
                        self.passed
                            .push_back(std::mem::replace(&mut self.segment, segment));
                    }
                    continue;
                }
            }
            return;
        }
    }
}
