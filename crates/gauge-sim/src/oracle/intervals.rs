//! Each interval has what happened in it, and all of them have everything.

use serde_json::Value;

use super::distributions::entries_of;
use super::{Bounds, Case, Told};
use crate::marks::{Mark, Marks};

/// Each interval has what happened in it; what is told together is marked as such.
pub(super) fn intervals(case: &Case<'_>, marks: &mut Marks, told: &mut Told) {
    let interval_ns = case.scenario.interval_ns;
    let count = case.intervals.len();
    let of = |turn_ns: i64| ((turn_ns - case.start_ns).max(0) / interval_ns) as usize;
    let mut sent = vec![0u64; count];
    let mut acked = vec![0u64; count];
    let place = |turn_ns: i64| of(turn_ns).min(count.saturating_sub(1));
    for taken in case.truth.taken.values().flatten() {
        if count > 0 {
            sent[place(taken.turn_ns)] += 1;
        }
    }
    for seen in case.truth.acked.values() {
        if count > 0 {
            acked[place(seen.turn_ns)] += 1;
        }
    }
    for (name, expected) in [("sent_msgs", sent), ("acked_msgs", acked)] {
        let (mut is, mut told_so_far) = (0, 0);
        for (index, interval) in case.intervals.iter().enumerate() {
            is += expected[index];
            told_so_far += interval[name].as_u64().unwrap_or(0);
            let is_joined = interval["joined_lanes"].as_u64() != Some(0);
            if is_joined {
                marks.set(Mark::Joined);
            }
            let agrees = if is_joined {
                told_so_far >= is
            } else {
                told_so_far == is
            };
            if !agrees {
                told.say(|| {
                    format!("{name} up to interval {index} of {count}: {told_so_far}, and there were {is}")
                });
                break;
            }
        }
        if told_so_far != is {
            told.say(|| format!("{name} of all intervals: {told_so_far}, and there were {is}"));
        }
    }
    for (index, interval) in case.intervals.iter().enumerate() {
        interval_of(case, index, interval, told);
    }
    receipts(case, told);
    counters(case, told);
    if case
        .intervals
        .iter()
        .any(|interval| interval["backpressured_s"].as_f64() > Some(0.0))
    {
        marks.set(Mark::Backpressure);
    }
}

/// What an interval tells twice must be the same.
fn interval_of(case: &Case<'_>, index: usize, interval: &Value, told: &mut Told) {
    let number = |key: &str| interval[key].as_u64().unwrap_or(u64::MAX);
    let samples = |metric: &str, subscription: Option<&str>| -> u64 {
        let of = entries_of(interval, metric, subscription);
        of.map(|one| one["count"].as_u64().unwrap_or(0)).sum()
    };
    let (sent, acked) = (number("sent_msgs"), number("acked_msgs"));
    let answered = if case.scenario.acks == 0 { 0 } else { acked };
    let size = case.scenario.payload_bytes;
    let mut twice = vec![
        ("index", number("index"), index as u64),
        ("sent_bytes", number("sent_bytes"), sent * size),
        ("acked_bytes", number("acked_bytes"), acked * size),
        ("values of send_delay", samples("send_delay", None), sent),
        ("values of publish", samples("publish", None), acked),
        ("values of service", samples("service", None), acked),
        ("values of ack_delay", samples("ack_delay", None), answered),
    ];
    for name in &case.scenario.subscriptions {
        let of = |metric| samples(metric, Some(name));
        twice.push(("values of receive_delay", of("receive_delay"), of("end_to_end")));
    }
    for (what, is, expected) in twice {
        if is != expected {
            told.say(|| format!("{what} in interval {index}: {is}, and it is {expected}"));
        }
    }
    let (retries, errors) = (&interval["retries"], &interval["errors"]);
    let is_quiet = *retries == 0 && errors.as_object().is_none_or(|all| all.is_empty());
    if case.is_calm && !case.expects.may_fail && !is_quiet {
        told.say(|| {
            format!("nothing goes wrong, and interval {index} has {retries} retries and errors: {errors}")
        });
    }
}

/// What was received is told in no interval before it was read, with its bytes.
fn receipts(case: &Case<'_>, told: &mut Told) {
    for (at, name) in case.scenario.subscriptions.iter().enumerate() {
        let mut read: Vec<(usize, u64)> = Vec::new();
        for ((_, batch), seen) in case.truth.delivered.iter().filter(|(key, _)| key.0 == at) {
            let msgs = case.truth.batches[*batch].messages.len() as u64;
            read.extend(seen.iter().map(|seen| {
                let after_ns = (seen.turn_ns - case.start_ns).max(0);
                ((after_ns / case.scenario.interval_ns) as usize, msgs)
            }));
        }
        read.sort_unstable();
        let (mut read_so_far, mut next) = (0, 0);
        let (mut msgs, mut bytes, mut fetches) = (0, 0, 0);
        for (index, interval) in case.intervals.iter().enumerate() {
            let own = &interval["subscriptions"][at];
            let number = |key: &str| own[key].as_u64().unwrap_or(u64::MAX);
            while read.get(next).is_some_and(|(interval, _)| *interval <= index) {
                read_so_far += read[next].1;
                next += 1;
            }
            (msgs, bytes, fetches) = (
                msgs + number("received_msgs"),
                bytes + number("received_bytes"),
                fetches + number("fetches"),
            );
            if msgs > read_so_far && interval["joined_lanes"].as_u64() == Some(0) {
                told.say(|| {
                    format!("{name} up to interval {index}: {msgs} received, and {read_so_far} were read")
                });
                break;
            }
        }
        let audit = &case.result["audit"]["subscriptions"][at];
        told.check(
            &format!("{name} received in intervals"),
            &audit["received"],
            Bounds::exactly(msgs as usize),
        );
        // What cannot be read has no bytes.
        let corrupted = audit["corrupted"].as_u64().unwrap_or(0);
        let most = msgs * case.scenario.payload_bytes;
        if bytes > most || bytes + corrupted * case.scenario.payload_bytes < most {
            told.say(|| format!("{name}: {bytes} bytes in {msgs} messages"));
        }
        let answers = case.truth.answers.get(&at).copied().unwrap_or(0);
        if fetches > answers || (fetches == 0 && msgs > 0) {
            told.say(|| format!("{name}: {msgs} messages in {fetches} of {answers} answers"));
        }
    }
}

/// Counters of all intervals together.
fn counters(case: &Case<'_>, told: &mut Told) {
    let sum = |key: &str| -> u64 {
        case.intervals
            .iter()
            .map(|one| one[key].as_u64().unwrap_or(0))
            .sum()
    };
    let truth = case.truth;
    if case.scenario.acks != 0 {
        let again = truth.met.values().max().map_or(0, |times| times - 1) as u64;
        let (requests, come) = (sum("requests"), truth.requests.unwrap_or(0));
        // What is on its way when a trial is given up may never come.
        let all_come = case.is_calm && come > 0 && !case.is_cut();
        let most = if all_come { come } else { u64::MAX };
        if !(come..=most).contains(&requests) {
            told.say(|| format!("{requests} requests, and {come} came"));
        }
        if sum("retries") < again {
            told.say(|| {
                format!(
                    "{} retries, and a message was sent {again} times again",
                    sum("retries")
                )
            });
        }
    }
    let held_s: f64 = case
        .intervals
        .iter()
        .map(|one| one["backpressured_s"].as_f64().unwrap_or(-1.0))
        .sum();
    let open_ns: i64 = truth
        .held_since_ns
        .values()
        .map(|(earliest_ns, _)| case.end_ns - earliest_ns)
        .sum();
    let (least_s, most_s) = (
        truth.held_ns.0 as f64 / 1e9,
        (truth.held_ns.1 + open_ns) as f64 / 1e9,
    );
    if !(least_s - 1e-5..=most_s + 1e-5).contains(&held_s) {
        told.say(|| format!("producers were held for {held_s} s, and it is {least_s} to {most_s}"));
    }
}
