//! Distributions as the intervals tell them: every rank, sums and extremes, and what must add up.

use std::collections::BTreeMap;

use base64::Engine;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use super::{Bounds, Case, Told};
use crate::truth::Seen;

/// What a lane that wakes up does before it reads.
const READINGS_NS: i64 = 50_000;

pub(super) type Key = (usize, &'static str, Option<usize>);

/// A latency that must be there: when it began, and when it ended, at the earliest and at the latest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) began: (i64, i64),
    pub(super) ended: (i64, i64),
    /// When it began counts for nothing but its length.
    pub(super) is_vague: bool,
}

impl Value {
    pub(super) fn bounds_ns(&self) -> (i64, i64) {
        (self.ended.0 - self.began.1, self.ended.1 - self.began.0)
    }
}

/// What a distribution must be: its values; and how many more there may be.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) values: Vec<Value>,
    pub(super) more: usize,
}

/// A distribution as it was told.
#[derive(Debug)]
pub(super) struct Found {
    histogram: Histogram<u64>,
    count: u64,
    outside: u64,
    sum_ns: i128,
    min_ns: i64,
    max_ns: i64,
}

/// Parts of others, of which the world does not know each value.
const PARTS: [&str; 3] = ["backpressure", "ack_delay", "receive_delay"];

fn metric(name: &str) -> Option<&'static str> {
    let all = ["publish", "service", "send_delay", "end_to_end"];
    all.into_iter().chain(PARTS).find(|known| *known == name)
}

/// The distributions of all intervals, one by one.
pub(super) fn entries<'a>(case: &Case<'a>) -> impl Iterator<Item = &'a serde_json::Value> {
    let latencies = case
        .intervals
        .iter()
        .filter_map(|interval| interval["latencies"].as_array());
    latencies.flatten()
}

/// Those of an interval that are of one metric, and of one subscription where the metric has some.
pub(super) fn entries_of<'a>(
    interval: &'a serde_json::Value,
    metric: &'a str,
    subscription: Option<&'a str>,
) -> impl Iterator<Item = &'a serde_json::Value> {
    let all = interval["latencies"].as_array().into_iter().flatten();
    all.filter(move |one| one["metric"] == metric && one["subscription"].as_str() == subscription)
}

/// A distribution in words.
pub(super) fn name_of(case: &Case<'_>, (phase, metric, subscription): Key) -> String {
    let of = subscription.map_or(String::new(), |at| {
        format!(" of {}", case.scenario.subscriptions[at])
    });
    format!("{metric}{of} in phase {phase}")
}

/// Of which distribution an entry of an interval is a part.
pub(super) fn key_of(case: &Case<'_>, latency: &serde_json::Value) -> Option<Key> {
    let phase = latency["phase"].as_str()?.strip_prefix('p')?.parse().ok()?;
    let subscription = latency["subscription"].as_str();
    let subscription =
        subscription.and_then(|name| case.scenario.subscriptions.iter().position(|own| own == name));
    Some((phase, metric(latency["metric"].as_str()?)?, subscription))
}

/// A histogram as the API tells it.
pub(super) fn decoded(told: &serde_json::Value, deserializer: &mut Deserializer) -> Option<Histogram<u64>> {
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(told.as_str()?)
        .ok()?;
    deserializer.deserialize::<u64, _>(&mut bytes.as_slice()).ok()
}

/// The distributions as the intervals tell them, added up.
pub(super) fn distributions(case: &Case<'_>, told: &mut Told) -> BTreeMap<Key, Found> {
    let mut all: BTreeMap<Key, Found> = BTreeMap::new();
    let mut deserializer = Deserializer::new();
    let mut unacked = 0;
    for latency in entries(case) {
        unacked += latency["unacked_msgs"].as_u64().unwrap_or(0);
        let name = latency["metric"].as_str().unwrap_or_default();
        let Some(key) = key_of(case, latency) else {
            continue;
        };
        let Some(histogram) = decoded(&latency["histogram"], &mut deserializer) else {
            told.say(|| format!("a histogram of {name} cannot be read"));
            continue;
        };
        let number = |key: &str| latency[key].as_i64().unwrap_or(i64::MIN);
        let found = Found {
            count: latency["count"].as_u64().unwrap_or(0),
            outside: latency["overflow"].as_u64().unwrap_or(0) + latency["negative"].as_u64().unwrap_or(0),
            sum_ns: i128::from(number("sum_ns")),
            min_ns: number("min_ns"),
            max_ns: number("max_ns"),
            histogram,
        };
        if found.count == 0 {
            continue;
        }
        match all.get_mut(&key) {
            Some(sum) => {
                if sum.histogram.add(&found.histogram).is_err() {
                    told.say(|| format!("histograms of {name} have different bounds"));
                }
                sum.count += found.count;
                sum.outside += found.outside;
                sum.sum_ns += found.sum_ns;
                sum.min_ns = sum.min_ns.min(found.min_ns);
                sum.max_ns = sum.max_ns.max(found.max_ns);
            }
            None => {
                all.insert(key, found);
            }
        }
    }
    let taken: usize = case.truth.taken.values().map(Vec::len).sum();
    let expected = taken.saturating_sub(case.truth.acked.len()) as u64;
    if unacked != expected {
        told.say(|| {
            format!(
                "the intervals tell of {unacked} messages without acknowledgement, and there are {expected}"
            )
        });
    }
    all
}

/// A latency is lateness of sending, time without room, and what the system took. Where all have an acknowledgement the sums are the same.
pub(super) fn add_up(case: &Case<'_>, found: &BTreeMap<Key, Found>, told: &mut Told) {
    for phase in 0..case.scenario.phases_ns.len() {
        let of = |metric| {
            found
                .get(&(phase, metric, None))
                .map(|one| (one.count, one.sum_ns))
        };
        let (Some(publish), Some(service), Some(delay)) = (of("publish"), of("service"), of("send_delay"))
        else {
            continue;
        };
        let held_ns = of("backpressure").map_or(0, |(_, sum_ns)| sum_ns);
        if publish.0 == delay.0 && publish.1 != service.1 + delay.1 + held_ns {
            told.say(|| {
                format!(
                    "phase {phase}: latencies are {} ns in all, and their parts {} + {held_ns} + {} ns",
                    publish.1, delay.1, service.1
                )
            });
        }
    }
}

/// Acknowledgements are told to be read no less late than they lay there while the lane was awake, and no later than they can have lain there as far as the
/// lane was told.
pub(super) fn lay(case: &Case<'_>, found: &BTreeMap<Key, Found>, told: &mut Told) {
    if case.scenario.acks == 0 {
        return;
    }
    let slack_ns = case.scenario.wake_ns + READINGS_NS;
    let since_ns = |seen: &Seen, from_ns: i64| i128::from(seen.read_ns - from_ns.min(seen.read_ns));
    let lay_ns = |seen: &Seen| (since_ns(seen, seen.come_ns) - i128::from(slack_ns)).max(0);
    let acked = || case.truth.acked.values();
    let least_ns: i128 = acked().map(lay_ns).sum();
    let most_ns: i128 = acked().map(|seen| since_ns(seen, seen.empty_ns)).sum();
    let of_acks = found.iter().filter(|((_, metric, _), _)| *metric == "ack_delay");
    let is_ns: i128 = of_acks.map(|(_, one)| one.sum_ns).sum();
    if !(least_ns..=most_ns).contains(&is_ns) {
        told.say(|| {
            format!(
                "acknowledgements were read {is_ns} ns late in all, and lay for {least_ns} to {most_ns} ns"
            )
        });
    }
    for (at, name) in case.scenario.subscriptions.iter().enumerate() {
        let of = found
            .iter()
            .filter(|((_, metric, of), _)| *metric == "receive_delay" && *of == Some(at));
        let is_ns: i128 = of.map(|(_, one)| one.sum_ns).sum();
        let delivered = case.truth.delivered.iter().filter(|((of, _), _)| *of == at);
        let most_ns: i128 = delivered
            .map(|((_, batch), all)| {
                let messages = case.truth.batches[*batch].messages.len() as i128;
                let each = all.iter().map(|seen| since_ns(seen, seen.empty_ns));
                messages * each.sum::<i128>()
            })
            .sum();
        if is_ns > most_ns {
            told.say(|| format!("{name} was read {is_ns} ns late in all, and lay for {most_ns} ns at most"));
        }
    }
}

pub(super) fn compare(
    case: &Case<'_>,
    expected: &BTreeMap<Key, Expected>,
    found: &BTreeMap<Key, Found>,
    told: &mut Told,
) {
    let is_part = |(_, metric, _): &Key| PARTS.contains(metric);
    for key in found
        .keys()
        .filter(|key| !is_part(key) && !expected.contains_key(*key))
    {
        told.say(|| format!("{key:?} was told, and there is no such message"));
    }
    for (key, expected) in expected {
        let name = name_of(case, *key);
        let least = expected.values.len() as u64;
        let Some(found) = found.get(key) else {
            if least > 0 {
                told.say(|| format!("{name}: nothing was told, and there are {least} values"));
            }
            continue;
        };
        if !(least..=least + expected.more as u64).contains(&found.count) {
            told.say(|| {
                format!(
                    "{name}: {} values, and there are {least} to {}",
                    found.count,
                    least + expected.more as u64
                )
            });
            continue;
        }
        if found.histogram.len() + found.outside != found.count || found.outside > 0 {
            told.say(|| {
                format!(
                    "{name}: {} of {} values are in the histogram",
                    found.histogram.len(),
                    found.count
                )
            });
        }
        if expected.more == 0 {
            let bounds: Vec<(i64, i64)> = expected.values.iter().map(Value::bounds_ns).collect();
            sums(&name, &bounds, found, told);
            ranks(&name, &bounds, &found.histogram, told);
        }
    }
}

/// The lower bounds and the upper ones, each in their order.
fn in_order(bounds: &[(i64, i64)]) -> (Vec<i64>, Vec<i64>) {
    let (mut least, mut most): (Vec<i64>, Vec<i64>) = bounds.iter().copied().unzip();
    least.sort_unstable();
    most.sort_unstable();
    (least, most)
}

/// The extremes and the sum.
fn sums(name: &str, bounds: &[(i64, i64)], found: &Found, told: &mut Told) {
    let (least, most) = in_order(bounds);
    let (Some(first), Some(last)) = (least.first().zip(most.first()), least.last().zip(most.last())) else {
        return;
    };
    let sum = |values: &[i64]| values.iter().map(|value| i128::from(*value)).sum::<i128>();
    for (what, value, bounds) in [
        ("sum", found.sum_ns, Bounds(sum(&least), sum(&most))),
        (
            "minimum",
            i128::from(found.min_ns),
            Bounds(i128::from(*first.0), i128::from(*first.1)),
        ),
        (
            "maximum",
            i128::from(found.max_ns),
            Bounds(i128::from(*last.0), i128::from(*last.1)),
        ),
    ] {
        if !bounds.holds(value) {
            told.say(|| {
                format!(
                    "{name}: the {what} is told as {value} ns, and it is {} to {}",
                    bounds.0, bounds.1
                )
            });
        }
    }
}

/// Every rank; there are as many values as bounds.
pub(super) fn ranks(name: &str, bounds: &[(i64, i64)], histogram: &Histogram<u64>, told: &mut Told) {
    let (least, most) = in_order(bounds);
    let mut rank = 0;
    for step in histogram.iter_recorded() {
        let value = step.value_iterated_to();
        let (lowest, highest) = (
            histogram.lowest_equivalent(value) as i64,
            histogram.highest_equivalent(value) as i64,
        );
        let until = rank + step.count_since_last_iteration() as usize;
        // Bounds rise with the rank, so the first and the last of those that share a bucket tell of all.
        for at in [rank, until - 1] {
            if least[at] > highest || most[at] < lowest {
                told.say(|| {
                    format!(
                        "{name}: rank {at} of {} is told as {lowest} to {highest} ns, and it is {} to {}",
                        bounds.len(),
                        least[at],
                        most[at]
                    )
                });
                return;
            }
        }
        rank = until;
    }
}
