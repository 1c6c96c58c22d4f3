//! Is each message due when the load that was asked for says so? Reckoned anew, from the request and from the changes of the rate, and not by the gauge's
//! own schedule.

use serde_json::Value as Json;

use super::{Bounds, Case, Told};

/// Due times are rounded up to nanoseconds.
const ROUNDING_S: f64 = 2e-9;
/// Of a message: what is summed up here is summed up in another order. Where the rate comes to nothing it decides for long.
const ROUNDING: f64 = 1e-6;
/// What is drawn may differ from what is expected by so many standard deviations.
const DEVIATIONS: f64 = 6.0;
/// Fewer gaps than this tell nothing of how they are drawn.
const GAPS_MIN: usize = 30;
/// Of so many gaps one may be missing.
const MISSING_PART: usize = 100;
/// So many first gaps are not alike by chance.
const ALIKE: usize = 3;

/// From a time on: how many messages were due by then, the rate then, and by how much it rises per second.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from_s: f64,
    due: f64,
    rate: f64,
    rise: f64,
}

impl Piece {
    fn due_by(&self, at_s: f64) -> f64 {
        let for_s = at_s - self.from_s;
        self.due + self.rate * for_s + self.rise * for_s * for_s / 2.0
    }

    fn rate_at(&self, at_s: f64) -> f64 {
        self.rate + self.rise * (at_s - self.from_s)
    }

    /// When so many are due, if the rate goes on like this.
    fn when(&self, due: f64) -> Option<f64> {
        let more = (due - self.due).max(0.0);
        if self.rise == 0.0 {
            return (self.rate > 0.0).then(|| self.from_s + more / self.rate);
        }
        let under = self.rate * self.rate + 2.0 * self.rise * more;
        (under >= 0.0).then(|| self.from_s + (under.sqrt() - self.rate) / self.rise)
    }
}

/// One producer's rate over the time since the start.
#[derive(Clone, Debug)]
struct Course(Vec<Piece>);

impl Course {
    /// As the request has it, of which the producer has a share.
    fn asked(schedule: &Json, share: f64) -> Course {
        let number = |of: &Json, key: &str| of[key].as_f64().unwrap_or(0.0);
        let mut course = Course(vec![Piece {
            from_s: 0.0,
            due: 0.0,
            rate: number(schedule, "rate_msgs_s") * share,
            rise: 0.0,
        }]);
        let ramp = &schedule["ramp"];
        if ramp.is_object() {
            course.turn(0.0, number(ramp, "to_msgs_s") * share, number(ramp, "over_s"));
        }
        for change in schedule["changes"].as_array().into_iter().flatten() {
            let to = number(change, "rate_msgs_s") * share;
            course.turn(number(change, "at_s"), to, number(change, "over_s"));
        }
        course
    }

    fn piece_at(&self, at_s: f64) -> Piece {
        let behind = self.0.partition_point(|piece| piece.from_s <= at_s).max(1);
        self.0[behind - 1]
    }

    /// From a time on the rate moves to another, and what was planned for later is dropped.
    fn turn(&mut self, at_s: f64, to: f64, over_s: f64) {
        let before = self.piece_at(at_s);
        self.0.retain(|piece| piece.from_s < at_s);
        let mut next = Piece {
            from_s: at_s,
            due: before.due_by(at_s),
            rate: to,
            rise: 0.0,
        };
        if over_s > 0.0 {
            let rate = before.rate_at(at_s);
            let bent = Piece {
                rate,
                rise: (to - rate) / over_s,
                ..next
            };
            self.0.push(bent);
            (next.from_s, next.due) = (at_s + over_s, bent.due_by(at_s + over_s));
        }
        self.0.push(next);
    }

    fn due_by(&self, at_s: f64) -> f64 {
        self.piece_at(at_s).due_by(at_s)
    }

    /// When so many are due; None: never.
    fn when(&self, due: f64) -> Option<f64> {
        let ends = self.0.iter().skip(1).map(|next| next.due);
        let ends = ends.chain([f64::INFINITY]);
        let mut pieces = self.0.iter().zip(ends).filter(|(_, end)| due <= *end);
        pieces.find_map(|(piece, _)| piece.when(due))
    }
}

/// A producer's course, with the changes of the rate as early as they may have been, and as late.
struct Producer {
    /// Its number.
    id: u32,
    /// How far it is behind the first one, of a gap.
    stagger: f64,
    courses: [Course; 2],
}

impl Producer {
    /// When so many are due, at the earliest and at the latest; endless: never.
    fn when(&self, due: f64) -> (f64, f64) {
        let [one, other] = &self.courses;
        let when = |course: &Course, due: f64| match due <= 0.0 {
            true => 0.0,
            false => course.when(due).unwrap_or(f64::INFINITY),
        };
        let (less, more) = (due - ROUNDING, due + ROUNDING);
        (
            when(one, less).min(when(other, less)) - ROUNDING_S,
            when(one, more).max(when(other, more)) + ROUNDING_S,
        )
    }
}

/// Compares.
pub(super) fn schedule(case: &Case<'_>, told: &mut Told) {
    let asked = &case.scenario.request["schedule"];
    let producers = producers(case, asked);
    let since_s = |at_ns: i64| (at_ns - case.start_ns) as f64 / 1e9;
    let stop_s = asked["stop_s"].as_f64().unwrap_or(f64::INFINITY);
    let stopped = case.truth.stopped_ns.unwrap_or((i64::MAX, i64::MAX));
    let until_s = (stop_s.min(since_s(stopped.0)), stop_s.min(since_s(stopped.1)));
    for ((producer, sequence), due_ns) in &case.truth.intended {
        if since_s(*due_ns) >= until_s.1 {
            told.say(|| format!("message {sequence} of producer {producer} is due behind the end"));
        }
    }
    match asked["arrival"].as_str() {
        Some("uniform") => known(case, &producers, 1, until_s, told),
        Some("burst") => {
            let burst = asked["burst_msgs"].as_u64().unwrap_or(1);
            known(case, &producers, burst, until_s, told);
        }
        Some("poisson") => drawn(case, &producers, until_s, told),
        _ => {}
    }
}

fn producers(case: &Case<'_>, asked: &Json) -> Vec<Producer> {
    let all = case.scenario.request["producers"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let share = 1.0 / all.len().max(1) as f64;
    let course = |is_late: bool| {
        let mut course = Course::asked(asked, share);
        for (from_ns, rate) in &case.truth.rates {
            let at_ns = if is_late { from_ns.1 } else { from_ns.0 };
            course.turn((at_ns - case.start_ns) as f64 / 1e9, rate * share, 0.0);
        }
        course
    };
    let courses = [course(false), course(true)];
    let producer = |(at, producer): (usize, &Json)| Producer {
        id: producer["id"].as_u64().unwrap_or(0) as u32,
        stagger: at as f64 * share,
        courses: courses.clone(),
    };
    all.iter().enumerate().map(producer).collect()
}

/// How many messages were due: those that were taken, and those that never were.
fn due_msgs(case: &Case<'_>) -> usize {
    let taken: usize = case.truth.taken.values().map(Vec::len).sum();
    let untaken = case.result["audit"]["untaken"].as_u64().unwrap_or(0);
    taken + untaken as usize
}

/// Messages come one by one, or so many at once: each has its time.
fn known(case: &Case<'_>, producers: &[Producer], burst: u64, until_s: (f64, f64), told: &mut Told) {
    let mut all = Bounds::default();
    for producer in producers {
        let due_of = |sequence: u64| {
            let first = sequence / burst * burst;
            producer.when(first as f64 + producer.stagger * burst as f64)
        };
        let taken = case.truth.taken.get(&producer.id).map_or(0, Vec::len) as u64;
        for sequence in 0..taken {
            let Some(due_ns) = case.truth.intended.get(&(producer.id, sequence)) else {
                continue;
            };
            let due_s = (due_ns - case.start_ns) as f64 / 1e9;
            let asked = due_of(sequence);
            if !(asked.0..=asked.1).contains(&due_s) {
                told.say(|| {
                    format!(
                        "message {sequence} of producer {} is due after {due_s} s, and was to be after {asked:?}",
                        producer.id
                    )
                });
                break;
            }
        }
        let count = |until_s: f64, of: fn((f64, f64)) -> f64| {
            let is_due = |sequence: &u64| of(due_of(*sequence)) < until_s;
            (0..).take_while(is_due).count() as i128
        };
        all.add(count(until_s.0, |due| due.1), count(until_s.1, |due| due.0));
    }
    let due = due_msgs(case);
    if !all.holds(due as i128) {
        told.say(|| format!("{due} messages were due, and were to be {} to {}", all.0, all.1));
    }
}

/// Gaps are drawn, each producer's by itself: exponential ones, of the rate at their time.
fn drawn(case: &Case<'_>, producers: &[Producer], until_s: (f64, f64), told: &mut Told) {
    let expected: f64 = producers
        .iter()
        .map(|producer| producer.courses[1].due_by(until_s.1))
        .sum();
    let due = due_msgs(case);
    if (due as f64 - expected).abs() > DEVIATIONS * expected.sqrt() + DEVIATIONS {
        told.say(|| format!("{due} messages were due, and were to be about {expected:.0}"));
    }
    let mut firsts: Vec<Vec<f64>> = Vec::new();
    for producer in producers {
        let taken = case.truth.taken.get(&producer.id).map_or(0, Vec::len) as u64;
        let place = |sequence: u64| {
            let due_ns = case.truth.intended.get(&(producer.id, sequence))?;
            Some(producer.courses[1].due_by((due_ns - case.start_ns) as f64 / 1e9))
        };
        let gap = |sequence: u64| Some(place(sequence + 1)? - place(sequence)?);
        let gaps: Vec<f64> = (0..taken.saturating_sub(1)).filter_map(gap).collect();
        firsts.push(gaps.iter().take(ALIKE).copied().collect());
        // Whole batches are missing of what reached no wire, and in those that are there the gaps are short.
        let missing = (taken as usize).saturating_sub(1 + gaps.len());
        if gaps.len() < GAPS_MIN || missing * MISSING_PART > gaps.len() {
            continue;
        }
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count;
        let long = gaps.iter().filter(|gap| **gap > 1.0).count() as f64 / count;
        let expected = (-1.0f64).exp();
        let spread = (expected * (1.0 - expected)).sqrt();
        for (what, value, expected, spread) in [
            ("gaps", mean, 1.0, 1.0),
            ("the share of long ones", long, expected, spread),
        ] {
            if (value - expected).abs() > DEVIATIONS * spread / count.sqrt() {
                told.say(|| {
                    format!(
                        "producer {}, {count} gaps in their rate: {what} are {value:.3}, and were to be {expected:.3}",
                        producer.id
                    )
                });
            }
        }
    }
    let alike = |one: &[f64], other: &[f64]| {
        one.len() == ALIKE && other.len() == ALIKE && one.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-3)
    };
    let is_twin = |(at, first): (usize, &Vec<f64>)| firsts[..at].iter().any(|other| alike(first, other));
    if firsts.iter().enumerate().any(is_twin) {
        told.say(|| "two producers have drawn the same gaps".to_owned());
    }
}
