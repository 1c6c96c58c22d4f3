//! What of each distribution is of quiet time, by the definition and with all windows known: a message that began within a disturbed span is left
//! out, one that began before a span and ended behind its beginning is censored there, and all others are quiet.

use std::collections::BTreeMap;

use gauge_load::quiet::{GROUPS_MAX, LATE_NS_MIN};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use serde_json::Value as Json;

use super::distributions::{Expected, Key, Value, decoded, entries, entries_of, key_of, name_of, ranks};
use super::{Bounds, Case, Told};
use crate::marks::{Mark, Marks};
use crate::scenario::Away;

/// Sums of seconds that are told one by one are right to so much.
const ROUNDED_S: f64 = 1e-6;

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Quiet,
    Censored(i64),
    LeftOut,
}

/// Disturbed spans, each from a window's beginning until the CPU has recovered.
struct Spans(Vec<(i64, i64)>);

impl Spans {
    fn judge(&self, began_ns: i64, ended_ns: i64) -> Fate {
        if self
            .0
            .iter()
            .any(|(from_ns, until_ns)| (*from_ns..*until_ns).contains(&began_ns))
        {
            return Fate::LeftOut;
        }
        let begin = self.0.iter().map(|(from_ns, _)| *from_ns);
        let next = begin
            .filter(|from_ns| (began_ns..ended_ns).contains(from_ns))
            .min();
        next.map_or(Fate::Quiet, Fate::Censored)
    }

    /// None: it is not known what becomes of it.
    fn fate(&self, value: &Value) -> Option<Fate> {
        let (began, ended) = (value.began, value.ended);
        // No span is shorter than a window, so that bounds which are closer see all of those between them.
        let is_wide = began.1 - began.0 >= LATE_NS_MIN || ended.1 - ended.0 >= LATE_NS_MIN;
        if value.is_vague || is_wide {
            return None;
        }
        let fate = self.judge(began.0, ended.0);
        let others = [(began.0, ended.1), (began.1, ended.0), (began.1, ended.1)];
        others
            .iter()
            .all(|(began_ns, ended_ns)| self.judge(*began_ns, *ended_ns) == fate)
            .then_some(fate)
    }

    /// How much of a time is in one of them.
    fn within_ns(&self, from_ns: i64, until_ns: i64) -> i64 {
        let (mut sum_ns, mut behind_ns) = (0, from_ns);
        for (from_ns, to_ns) in &self.0 {
            let (from_ns, to_ns) = ((*from_ns).max(behind_ns), (*to_ns).min(until_ns));
            sum_ns += (to_ns - from_ns).max(0);
            behind_ns = behind_ns.max(to_ns);
        }
        sum_ns
    }
}

/// What a distribution's parts must be.
#[derive(Default)]
struct Parts {
    quiet: Vec<(i64, i64)>,
    censored: Vec<(i64, i64)>,
    left_out: usize,
    /// So many more may be in one of them.
    more: usize,
}

impl Parts {
    fn of(expected: &Expected, spans: &Spans) -> Parts {
        let mut parts = Parts {
            more: expected.more,
            ..Parts::default()
        };
        for value in &expected.values {
            match spans.fate(value) {
                Some(Fate::Quiet) => parts.quiet.push(value.bounds_ns()),
                Some(Fate::Censored(at_ns)) => {
                    parts
                        .censored
                        .push((at_ns - value.began.1, at_ns - value.began.0));
                }
                Some(Fate::LeftOut) => parts.left_out += 1,
                None => parts.more += 1,
            }
        }
        parts
    }
}

/// The same as the intervals tell it, added up.
#[derive(Default)]
struct Sums {
    all: u64,
    quiet: (u64, Option<Histogram<u64>>),
    censored: (u64, Option<Histogram<u64>>),
    left_out: u64,
}

/// Compares them.
pub(super) fn quiet(case: &Case<'_>, expected: &BTreeMap<Key, Expected>, marks: &mut Marks, told: &mut Told) {
    let Some(probed) = &case.scenario.probed else {
        return;
    };
    let windows = probed.windows.iter();
    let spans = Spans(
        windows
            .map(|away| (case.start_ns + away.from_ns, case.start_ns + away.recovered_ns))
            .collect(),
    );
    let undecided: u64 = case
        .intervals
        .iter()
        .map(|one| one["disturbance"]["undecided_msgs"].as_u64().unwrap_or(u64::MAX))
        .fold(0, u64::saturating_add);
    if undecided > 0 {
        // There is room for so many batches, which a fast closed loop makes while a CPU is away.
        let all = case.result["audit"]["subscriptions"].as_array();
        let received = all
            .into_iter()
            .flatten()
            .map(|one| one["received"].as_u64().unwrap_or(0));
        let answers = case.truth.acked.len().max(received.sum::<u64>() as usize);
        if answers <= GROUPS_MAX {
            told.say(|| format!("for {undecided} messages it was not decided whether they are quiet"));
        }
        return;
    }
    let mut found = parts(case, told);
    for (key, expected) in expected {
        let name = name_of(case, *key);
        let parts = Parts::of(expected, &spans);
        let found = found.remove(key).unwrap_or_default();
        if !parts.censored.is_empty() {
            marks.set(Mark::Censored);
        }
        for (what, (count, histogram), least) in [
            ("quiet", &found.quiet, &parts.quiet),
            ("censored", &found.censored, &parts.censored),
        ] {
            let name = format!("{name}, {what}");
            let most = least.len() + parts.more;
            told.check(
                &name,
                &Json::from(*count),
                Bounds(least.len() as i128, most as i128),
            );
            if let Some(histogram) = histogram
                && parts.more == 0
                && *count == least.len() as u64
                && histogram.len() == *count
            {
                ranks(&name, least, histogram, told);
            }
        }
        let most = parts.left_out + parts.more;
        let bounds = Bounds(parts.left_out as i128, most as i128);
        told.check(&format!("{name}, left out"), &Json::from(found.left_out), bounds);
    }
    due_in_quiet(case, told);
    // Of the others the world does not know each value.
    for (key, found) in &found {
        if found.quiet.0 + found.censored.0 + found.left_out != found.all {
            told.say(|| {
                format!(
                    "{key:?}: {} are quiet, {} censored and {} left out, of {}",
                    found.quiet.0, found.censored.0, found.left_out, found.all
                )
            });
        }
    }
    times(case, &spans, told);
}

fn parts(case: &Case<'_>, told: &mut Told) -> BTreeMap<Key, Sums> {
    let mut all: BTreeMap<Key, Sums> = BTreeMap::new();
    let mut deserializer = Deserializer::new();
    for latency in entries(case) {
        let Some(key) = key_of(case, latency).filter(|key| key.1 != "backpressure") else {
            continue;
        };
        let number = |value: &Json| value.as_u64().unwrap_or(u64::MAX);
        let sum = all.entry(key).or_default();
        sum.all += number(&latency["count"]);
        sum.left_out = sum.left_out.saturating_add(number(&latency["left_out"]));
        for (part, (count, histogram)) in [
            (&latency["quiet"], &mut sum.quiet),
            (&latency["censored"], &mut sum.censored),
        ] {
            let more = number(&part["count"]);
            *count = count.saturating_add(more);
            if more == 0 {
                continue;
            }
            match (decoded(&part["histogram"], &mut deserializer), &mut *histogram) {
                (Some(more), Some(sum)) => {
                    if sum.add(&more).is_err() {
                        told.say(|| format!("{key:?}: parts have different bounds"));
                    }
                }
                (Some(more), none) => *none = Some(more),
                (None, _) => told.say(|| format!("{key:?}: a part's histogram cannot be read")),
            }
        }
    }
    all
}

/// Of an interval's messages those which were due in quiet time are the quiet ones and the censored ones.
fn due_in_quiet(case: &Case<'_>, told: &mut Told) {
    for (index, interval) in case.intervals.iter().enumerate() {
        let due = |metric: &str, subscription: Option<&str>| -> usize {
            let count = |one: &Json, part: &str| one[part]["count"].as_u64().unwrap_or(0);
            let of = entries_of(interval, metric, subscription);
            of.map(|one| count(one, "quiet") + count(one, "censored"))
                .sum::<u64>() as usize
        };
        let disturbance = &interval["disturbance"];
        let name = |what: &str| format!("{what} in interval {index}");
        let acked = Bounds::exactly(due("publish", None));
        told.check(&name("quiet_acked_msgs"), &disturbance["quiet_acked_msgs"], acked);
        for (at, subscription) in case.scenario.subscriptions.iter().enumerate() {
            let found = &disturbance["quiet_received_msgs"][at];
            let received = Bounds::exactly(due("end_to_end", Some(subscription)));
            told.check(&name("quiet_received_msgs"), found, received);
        }
    }
}

/// How long was quiet, and what was sent then.
fn times(case: &Case<'_>, spans: &Spans, told: &mut Told) {
    let sum = |key: &str| -> f64 {
        let of = |one: &Json| one["disturbance"][key].as_f64().unwrap_or(f64::NAN);
        case.intervals.iter().map(of).sum()
    };
    let lasted_s: f64 = case
        .intervals
        .iter()
        .map(|one| one["duration_s"].as_f64().unwrap_or(f64::NAN))
        .sum();
    let until_ns = case.start_ns + (lasted_s * 1e9).round() as i64;
    let disturbed_s = spans.within_ns(case.start_ns, until_ns) as f64 / 1e9;
    windows(case, until_ns, told);
    let slack_s = ROUNDED_S * (case.intervals.len() + 1) as f64;
    for (what, is_s, expected_s) in [
        ("disturbed", sum("disturbed_s"), disturbed_s),
        ("quiet", sum("quiet_s"), lasted_s - disturbed_s),
    ] {
        // What is not told is no number.
        if is_s.is_nan() || (is_s - expected_s).abs() > slack_s {
            told.say(|| format!("{is_s} s were {what}, and it is {expected_s}"));
        }
    }
    let (mut least, mut most) = (0, 0);
    for (producer, all) in &case.truth.taken {
        for sequence in 0..all.len() as u64 {
            let fate = case
                .truth
                .intended
                .get(&(*producer, sequence))
                .map(|due_ns| spans.judge(*due_ns, *due_ns));
            least += i128::from(fate == Some(Fate::Quiet));
            most += i128::from(fate != Some(Fate::LeftOut));
        }
    }
    told.check(
        "messages that were due in quiet time",
        &Json::from(sum("quiet_sent_msgs") as u64),
        Bounds(least, most),
    );
}

/// Each window is told once, with its times, as far as there is room; and how often a span begins.
fn windows(case: &Case<'_>, until_ns: i64, told: &mut Told) {
    let Some(probed) = &case.scenario.probed else {
        return;
    };
    let seconds = |ns: i64| ns as f64 / 1e9;
    let drawn: Vec<&Away> = probed
        .windows
        .iter()
        .filter(|away| case.start_ns + away.from_ns < until_ns)
        .collect();
    let (mut next, mut begins, mut spans, mut behind_ns) = (0, 0, 0, i64::MIN);
    for away in &drawn {
        spans += u64::from(away.from_ns > behind_ns);
        behind_ns = behind_ns.max(away.recovered_ns);
    }
    for interval in case.intervals {
        let disturbance = &interval["disturbance"];
        for window in disturbance["windows"].as_array().into_iter().flatten() {
            let is = |key: &str, ns: i64| {
                (window[key].as_f64().unwrap_or(f64::NAN) - seconds(ns)).abs() < ROUNDED_S
            };
            let is_drawn = |away: &&Away| {
                is("from_s", away.from_ns) && is("to_s", away.to_ns) && is("recovered_s", away.recovered_ns)
            };
            if !drawn.get(next).is_some_and(is_drawn) {
                told.say(|| format!("window {next} of {} is told as {window}", drawn.len()));
            }
            next += 1;
        }
        next += disturbance["unlisted"]["windows"].as_u64().unwrap_or(0) as usize;
        begins += disturbance["attraction"]["begins"].as_u64().unwrap_or(0);
    }
    if (next, begins) != (drawn.len(), spans) {
        told.say(|| {
            format!(
                "{next} windows are told in {begins} spans, and there were {} in {spans}",
                drawn.len()
            )
        });
    }
}
