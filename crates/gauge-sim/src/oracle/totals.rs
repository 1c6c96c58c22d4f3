//! What is told in two places must be the same: levels beside the counters that lead to them, the result's totals beside the intervals, percentiles
//! and extremes beside their histograms, and when the load ended beside when it was told to.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use serde_json::Value as Json;

use super::distributions::{decoded, entries, key_of, name_of};
use super::{Bounds, Case, Told};
use crate::scenario::Step;

/// Seconds are told in full; what is summed up is not.
const ROUNDED_S: f64 = 1e-9;
/// Who leads the trial looks so often at a drain, and a turn takes a while.
const LOOK_S: f64 = 0.2;

/// Compares.
pub(super) fn totals(case: &Case<'_>, told: &mut Told) {
    levels(case, told);
    sums(case, told);
    extremes(case, told);
    ends(case, told);
}

fn number(of: &Json, key: &str) -> u64 {
    of[key].as_u64().unwrap_or(u64::MAX)
}

/// Each interval has its place, and what is left at its end follows from what happened by then.
fn levels(case: &Case<'_>, told: &mut Told) {
    let count = case.intervals.len();
    let interval_s = case.scenario.interval_ns as f64 / 1e9;
    let is_joined = |interval: &&Json| interval["joined_lanes"].as_u64() != Some(0);
    let joined_last = case.intervals.iter().rev().take_while(is_joined).count();
    let given_up = number(&case.result["audit"], "censored");
    let (mut sent, mut acked, mut ended) = (0, 0, 0);
    let mut received = vec![0; case.scenario.subscriptions.len()];
    for (index, interval) in case.intervals.iter().enumerate() {
        sent += number(interval, "sent_msgs");
        acked += number(interval, "acked_msgs");
        ended += number(interval, "acked_msgs") + number(interval, "failed_msgs");
        let is_last = index + 1 == count;
        let name = |what: &str| format!("{what} at the end of interval {index} of {count}");
        // At the end nobody waits for what was given up, and so in all intervals that are told together with the last one.
        let most = sent.saturating_sub(ended);
        let least = match is_last || index + joined_last >= count {
            true => most.saturating_sub(given_up),
            false => most,
        };
        let most = if is_last { least } else { most };
        let waiting = Bounds(i128::from(least), i128::from(most));
        told.check(&name("waiting_msgs"), &interval["waiting_msgs"], waiting);
        for (at, received) in received.iter_mut().enumerate() {
            let own = &interval["subscriptions"][at];
            *received += number(own, "received_msgs");
            let backlog = Bounds::exactly(acked.saturating_sub(*received) as usize);
            told.check(&name("backlog_msgs"), &own["backlog_msgs"], backlog);
        }
        let second = |key: &str| interval[key].as_f64().unwrap_or(f64::NAN);
        let (start_s, duration_s) = (second("start_s"), second("duration_s"));
        let is_placed = (start_s - interval_s * index as f64).abs() < ROUNDED_S;
        let (least_s, most_s) = match is_last {
            true => ends_s(case, start_s),
            false => (interval_s, interval_s),
        };
        let most_s = most_s.min(interval_s);
        if !is_placed || !(least_s - ROUNDED_S..=most_s + ROUNDED_S).contains(&duration_s) {
            told.say(|| {
                format!(
                    "interval {index} of {count} is told to begin at {start_s} s and to last {duration_s} s"
                )
            });
        }
    }
}

/// How long the last interval lasted, at least and at most: from its beginning until the last acknowledgement was read, and until the world ended.
fn ends_s(case: &Case<'_>, start_s: f64) -> (f64, f64) {
    let read = case.truth.acked.values().map(|seen| seen.read_ns);
    let since_s = |at_ns: i64| (at_ns - case.start_ns) as f64 / 1e9 - start_s;
    let least_s = read.max().map_or(0.0, |at_ns| since_s(at_ns).max(0.0));
    (least_s, since_s(case.end_ns))
}

/// The result's totals are those of all intervals.
fn sums(case: &Case<'_>, told: &mut Told) {
    let totals = &case.result["totals"];
    let sum = |of: &dyn Fn(&Json) -> u64| case.intervals.iter().map(of).fold(0, u64::saturating_add);
    for key in [
        "sent_msgs",
        "sent_bytes",
        "acked_msgs",
        "acked_bytes",
        "failed_msgs",
        "retries",
        "requests",
        "batches",
        "wakeups",
    ] {
        let expected = Bounds::exactly(sum(&|one| number(one, key)) as usize);
        told.check(&format!("total {key}"), &totals[key], expected);
    }
    for (at, name) in case.scenario.subscriptions.iter().enumerate() {
        for key in ["received_msgs", "received_bytes", "fetches"] {
            let expected = sum(&|one| number(&one["subscriptions"][at], key));
            let found = &totals["subscriptions"][at][key];
            told.check(
                &format!("total {key} of {name}"),
                found,
                Bounds::exactly(expected as usize),
            );
        }
    }
    let kinds = |of: &Json| of["errors"].as_object().cloned().unwrap_or_default();
    let all: Vec<_> = case.intervals.iter().map(kinds).collect();
    let named = all
        .iter()
        .flat_map(|kinds| kinds.keys())
        .collect::<std::collections::BTreeSet<_>>();
    let in_all = kinds(totals);
    for kind in named.into_iter().chain(in_all.keys()) {
        let count =
            |kinds: &serde_json::Map<String, Json>| kinds.get(kind).and_then(Json::as_u64).unwrap_or(0);
        let (expected, found) = (all.iter().map(count).sum::<u64>(), count(&in_all));
        if expected != found {
            told.say(|| format!("total errors of {kind}: {found}, and the intervals have {expected}"));
        }
    }
    let failed = case.result["audit"]["failed"].as_u64();
    if failed != Some(number(totals, "failed_msgs")) {
        told.say(|| {
            format!(
                "{failed:?} messages failed by the audit, and {} in all intervals",
                totals["failed_msgs"]
            )
        });
    }
    let seconds = |of: &Json| of["backpressured_s"].as_f64().unwrap_or(f64::NAN);
    let held_s: f64 = case.intervals.iter().map(seconds).sum();
    let difference_s = (seconds(totals) - held_s).abs();
    // What is not told is no number.
    if difference_s.is_nan() || difference_s > ROUNDED_S * (case.intervals.len() + 1) as f64 {
        told.say(|| {
            format!(
                "{} s without room in all, and {held_s} s in the intervals",
                seconds(totals)
            )
        });
    }
}

/// Of each interval's distributions: the extremes, the sum and two percentiles are those of its histogram.
fn extremes(case: &Case<'_>, told: &mut Told) {
    let mut deserializer = Deserializer::new();
    for entry in entries(case) {
        let Some(histogram) = decoded(&entry["histogram"], &mut deserializer) else {
            continue;
        };
        let is_inside = number(entry, "overflow") == 0 && number(entry, "negative") == 0;
        if histogram.is_empty() || !is_inside {
            continue;
        }
        let name = key_of(case, entry).map_or_else(String::new, |key| name_of(case, key));
        for (key, value) in [
            ("min_ns", histogram.min()),
            ("max_ns", histogram.max()),
            ("p50_ns", histogram.value_at_percentile(50.0)),
            ("p99_ns", histogram.value_at_percentile(99.0)),
        ] {
            told.check(&format!("{name}: {key}"), &entry[key], alike(&histogram, value));
        }
        let mut sum = Bounds::default();
        for step in histogram.iter_recorded() {
            let Bounds(lowest, highest) = alike(&histogram, step.value_iterated_to());
            let count = i128::from(step.count_since_last_iteration());
            sum.add(lowest * count, highest * count);
        }
        told.check(&format!("{name}: sum_ns"), &entry["sum_ns"], sum);
    }
}

/// What the histogram does not tell apart from a value.
fn alike(histogram: &Histogram<u64>, value: u64) -> Bounds {
    Bounds(
        i128::from(histogram.lowest_equivalent(value)),
        i128::from(histogram.highest_equivalent(value)),
    )
}

/// When the load ended, and how long was waited then.
fn ends(case: &Case<'_>, told: &mut Told) {
    let (Some(stopped_ns), Some(stopped_s)) = (case.truth.stopped_ns, case.result["stopped_s"].as_f64())
    else {
        told.say(|| "it is not told when the load ended".to_owned());
        return;
    };
    let planned_s = case.scenario.request["schedule"]["stop_s"]
        .as_f64()
        .unwrap_or(f64::INFINITY);
    let bound = |at_ns: i64| planned_s.min((at_ns - case.start_ns) as f64 / 1e9);
    let (least_s, most_s) = (bound(stopped_ns.0) - ROUNDED_S, bound(stopped_ns.1) + ROUNDED_S);
    if !(least_s..=most_s).contains(&stopped_s) {
        told.say(|| {
            format!(
                "the load is told to have ended after {stopped_s} s, and did after {least_s} to {most_s} s"
            )
        });
    }
    let Some(drain_ns) = case.scenario.drain_ns else {
        return;
    };
    let drain_s = case.result["drain_s"].as_f64().unwrap_or(f64::NAN);
    let least_s = if case.is_cut() { drain_ns as f64 / 1e9 } else { 0.0 };
    let away = case.scenario.steps.iter().map(|(_, step)| match step {
        Step::Stall(for_ns) => *for_ns,
        _ => 0,
    });
    let most_s = (drain_ns + away.sum::<i64>()) as f64 / 1e9 + LOOK_S;
    if !(least_s..=most_s).contains(&drain_s) {
        told.say(|| {
            format!("the drain is told to have lasted {drain_s} s, and lasted {least_s} to {most_s} s")
        });
    }
}
