//! What OMB wants to know, from the intervals of our own API.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde_json::{Map, Value, json};

/// OMB's histograms: significant digits, and the highest value in microseconds of publish latencies and of end-to-end latency.
const DIGITS: u8 = 5;
const PUBLISH_US_MAX: u64 = 60_000_000;
const END_TO_END_US_MAX: u64 = 43_200_000_000;
/// Our distributions: 1 ns to an hour.
const NS_MAX: u64 = 3_600_000_000_000;

/// Our metric -> OMB's field. Its publish latency begins with the actual send, which is our service time.
const FIELDS: [(&str, &str, u64); 3] = [
    ("service", "publishLatency", PUBLISH_US_MAX),
    ("send_delay", "publishDelayLatency", PUBLISH_US_MAX),
    ("end_to_end", "endToEndLatency", END_TO_END_US_MAX),
];

/// The three distributions.
pub struct Latencies([Histogram<u64>; 3]);

impl Default for Latencies {
    fn default() -> Latencies {
        let empty = || {
            Histogram::new_with_bounds(1, NS_MAX, 3)
                .expect("the bounds are constants that the library accepts")
        };
        Latencies([empty(), empty(), empty()])
    }
}

impl Latencies {
    /// Adds the distributions of an interval (docs/worker-api.md).
    pub fn add(&mut self, interval: &Value) {
        for entry in interval["latencies"].as_array().into_iter().flatten() {
            let Some(at) = FIELDS.iter().position(|(metric, ..)| entry["metric"] == *metric) else {
                continue;
            };
            let bytes = entry["histogram"]
                .as_str()
                .and_then(|text| STANDARD.decode(text).ok())
                .unwrap_or_default();
            let decoded: Result<Histogram<u64>, _> = Deserializer::new().deserialize(&mut bytes.as_slice());
            if let Ok(part) = decoded {
                // Both have the same bounds.
                let _ = self.0[at].add(&part);
            }
            // What is beyond our range is beyond theirs, too, where it counts as the highest value.
            let overflow = entry["overflow"].as_u64().unwrap_or(0);
            self.0[at].saturating_record_n(NS_MAX, overflow);
        }
    }

    /// OMB's fields.
    pub fn fields(&self) -> Map<String, Value> {
        FIELDS
            .iter()
            .zip(&self.0)
            .map(|((_, field, highest), ns)| ((*field).to_owned(), json!(in_us(ns, *highest))))
            .collect()
    }
}

/// A distribution in nanoseconds as OMB has it.
fn in_us(ns: &Histogram<u64>, highest: u64) -> String {
    let mut us = Histogram::<u64>::new_with_bounds(1, highest, DIGITS)
        .expect("the bounds are constants that the library accepts");
    for step in ns.iter_recorded() {
        let middle_ns = ns.median_equivalent(step.value_iterated_to());
        us.saturating_record_n((middle_ns + 500) / 1000, step.count_since_last_iteration());
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(&us, &mut bytes)
        .expect("writing to memory does not fail");
    STANDARD.encode(bytes)
}

/// Messages and bytes, since some point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Acknowledged: what OMB calls sent.
    pub sent_msgs: u64,
    pub sent_bytes: u64,
    pub failed_msgs: u64,
    pub received_msgs: u64,
    pub received_bytes: u64,
}

impl Totals {
    /// Those of our counters.
    pub fn of(counters: &Value) -> Totals {
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        let received = |key: &str| {
            let all = counters["subscriptions"].as_array().into_iter().flatten();
            all.map(|one| count(&one[key])).sum()
        };
        Totals {
            sent_msgs: count(&counters["acked_msgs"]),
            sent_bytes: count(&counters["acked_bytes"]),
            failed_msgs: count(&counters["failed_msgs"]),
            received_msgs: received("received_msgs"),
            received_bytes: received("received_bytes"),
        }
    }

    /// Sums or differences, field by field.
    fn with(self, other: Totals, join: impl Fn(u64, u64) -> u64) -> Totals {
        Totals {
            sent_msgs: join(self.sent_msgs, other.sent_msgs),
            sent_bytes: join(self.sent_bytes, other.sent_bytes),
            failed_msgs: join(self.failed_msgs, other.failed_msgs),
            received_msgs: join(self.received_msgs, other.received_msgs),
            received_bytes: join(self.received_bytes, other.received_bytes),
        }
    }

    pub fn plus(self, other: Totals) -> Totals {
        self.with(other, u64::saturating_add)
    }

    pub fn minus(self, other: Totals) -> Totals {
        self.with(other, u64::saturating_sub)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

    use super::*;

    #[test]
    fn nanoseconds_become_their_microseconds() {
        let mut ours = Histogram::<u64>::new_with_bounds(1, NS_MAX, 3).unwrap();
        ours.record_n(1_500_000, 10).unwrap();
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&ours, &mut bytes).unwrap();
        let interval = json!({"latencies": [
            {"metric": "service", "overflow": 2, "histogram": STANDARD.encode(bytes)},
            {"metric": "backpressure", "overflow": 0, "histogram": ""},
        ]});
        let mut latencies = Latencies::default();
        latencies.add(&interval);
        let fields = latencies.fields();
        let bytes = STANDARD
            .decode(fields["publishLatency"].as_str().unwrap())
            .unwrap();
        assert_eq!(
            bytes[..4],
            0x1c84_9314_u32.to_be_bytes(),
            "the cookie that OMB reads"
        );
        let theirs: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!((theirs.len(), theirs.sigfig()), (12, 5));
        assert!(theirs.min().abs_diff(1500) <= 1, "{}", theirs.min());
        assert!(theirs.max() >= PUBLISH_US_MAX, "an hour is more than a minute");
        assert!(fields["endToEndLatency"].is_string(), "never missing");
    }

    #[test]
    fn totals_add_up_over_subscriptions() {
        let counters = json!({"acked_msgs": 5, "acked_bytes": 50, "failed_msgs": 1, "subscriptions": [
            {"received_msgs": 3, "received_bytes": 30}, {"received_msgs": 2, "received_bytes": 20}]});
        let totals = Totals::of(&counters);
        assert_eq!((totals.received_msgs, totals.received_bytes), (5, 50));
        assert_eq!(totals.plus(totals).minus(totals), totals);
    }
}
