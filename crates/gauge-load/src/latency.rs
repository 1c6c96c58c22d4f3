//! Latency distributions in which nothing is thrown away.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializeError, V2DeflateSerializer};

use crate::mutants::{self, Mutant};

/// The largest value that a histogram holds: 1 h.
pub const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// The latencies of docs/method.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Intended to acknowledged.
    Publish,
    /// Sent to acknowledged.
    Service,
    /// Intended to sent, less the time for which the client had no room.
    SendDelay,
    /// The time for which the client had no room.
    Backpressure,
    /// Intended to received.
    EndToEnd,
    /// How long an acknowledgement may have waited for the lane to read it.
    AckDelay,
    /// How long a message may have waited for the lane to read it.
    ReceiveDelay,
}

impl Metric {
    /// The name in the worker API.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Publish => "publish",
            Metric::Service => "service",
            Metric::SendDelay => "send_delay",
            Metric::Backpressure => "backpressure",
            Metric::EndToEnd => "end_to_end",
            Metric::AckDelay => "ack_delay",
            Metric::ReceiveDelay => "receive_delay",
        }
    }
}

const FULL: &str = "an interval has fewer samples of a latency than its counters can count";

/// Values that are gathered before they are entered: enough that each line of the histogram's memory, fetched once, serves several.
const PENDING_MAX: usize = 8192;

/// A distribution in nanoseconds: an HdrHistogram of 3 significant digits from 1 ns to 1 h, and what lies outside, counted.
///
/// A paced lane sleeps between its messages, and the histogram is out of the cache when the next one comes: entering a value waits
/// for memory. So single values are gathered and entered together, where the waits overlap. Whoever reads calls
/// [`Latency::settle`] first; reading with values pending panics.
///
/// It is that of an interval, and counts to 4,294,967,295: what goes beyond panics. Half of the memory is half of what must be fetched.
#[derive(Clone, Debug)]
pub struct Latency {
    pending: Vec<i64>,
    histogram: Histogram<u32>,
    overflow: u64,
    negative: u64,
    sum_ns: i128,
    min_ns: i64,
    max_ns: i64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

impl Latency {
    /// An empty distribution; takes about 135 KB, and 64 KB for what is pending.
    pub fn new() -> Latency {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)
            .expect("the bounds are constants that the library accepts");
        Latency {
            pending: Vec::with_capacity(PENDING_MAX),
            histogram,
            overflow: 0,
            negative: 0,
            sum_ns: 0,
            min_ns: i64::MAX,
            max_ns: i64::MIN,
        }
    }

    /// An empty distribution into which values are entered at once.
    pub(crate) fn unbuffered() -> Latency {
        Latency {
            pending: Vec::new(),
            ..Latency::new()
        }
    }

    /// Records a value `count` times.
    #[inline]
    pub fn record(&mut self, value_ns: i64, count: u64) {
        if count != 1 {
            self.enter(value_ns, count);
            return;
        }
        if self.pending.len() == PENDING_MAX {
            self.settle();
        }
        self.pending.push(value_ns);
    }

    /// Enters what is pending, so that the distribution can be read.
    pub fn settle(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        if mutants::is(Mutant::SampleLost) {
            pending.pop();
        }
        for value_ns in pending.drain(..) {
            self.enter(value_ns, 1);
        }
        self.pending = pending;
    }

    /// Enters a value `count` times, at once.
    #[inline]
    pub(crate) fn enter(&mut self, value_ns: i64, count: u64) {
        self.sum_ns += i128::from(value_ns) * i128::from(count);
        self.min_ns = self.min_ns.min(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
        match u64::try_from(value_ns) {
            Ok(value_ns) if value_ns <= LATENCY_NS_MAX => {
                let count = u32::try_from(count).expect(FULL);
                self.histogram
                    .record_n(value_ns, count)
                    .expect("the value lies within the bounds");
            }
            Ok(_) => self.overflow += count,
            Err(_) => self.negative += count,
        }
    }

    fn settled(&self) -> &Histogram<u32> {
        assert!(
            self.pending.is_empty(),
            "a distribution is settled before it is read"
        );
        &self.histogram
    }

    /// Adds another distribution.
    pub fn add(&mut self, other: &Latency) {
        // Most distributions of an interval are empty, and going over one costs its 135 KB of memory.
        if other.is_empty() {
            return;
        }
        assert!(self.count() + other.count() <= u64::from(u32::MAX), "{FULL}");
        self.histogram
            .add(other.settled())
            .expect("all distributions have the same bounds");
        self.overflow += other.overflow;
        self.negative += other.negative;
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Takes away samples that are all in it. The extremes are then as exact as the histogram is; where only samples outside of it are
    /// left, they stay what they were.
    pub fn subtract(&mut self, other: &Latency) {
        if other.is_empty() {
            return;
        }
        self.settled();
        self.histogram
            .subtract(other.settled())
            .expect("what is taken away was recorded");
        self.overflow -= other.overflow;
        self.negative -= other.negative;
        self.sum_ns -= other.sum_ns;
        if self.negative == 0 && !self.histogram.is_empty() {
            self.min_ns = self.histogram.min().cast_signed();
        }
        if self.overflow == 0 && !self.histogram.is_empty() {
            self.max_ns = self.histogram.max().cast_signed();
        }
    }

    /// Empties it, keeps the memory.
    pub fn clear(&mut self) {
        self.pending.clear();
        // Memory that was never written stays unclaimed.
        if !self.histogram.is_empty() {
            self.histogram.reset();
        }
        self.overflow = 0;
        self.negative = 0;
        self.sum_ns = 0;
        self.min_ns = i64::MAX;
        self.max_ns = i64::MIN;
    }

    /// All samples, inside and outside of the histogram.
    pub fn count(&self) -> u64 {
        self.settled().len() + self.overflow + self.negative
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Samples above 1 h.
    pub fn overflow(&self) -> u64 {
        self.settled();
        self.overflow
    }

    /// Samples below 0.
    pub fn negative(&self) -> u64 {
        self.settled();
        self.negative
    }

    /// Sum of all samples.
    pub fn sum_ns(&self) -> i128 {
        self.settled();
        self.sum_ns
    }

    /// The smallest sample; 0 without samples.
    pub fn min_ns(&self) -> i64 {
        if self.is_empty() { 0 } else { self.min_ns }
    }

    /// The largest sample; 0 without samples.
    pub fn max_ns(&self) -> i64 {
        if self.is_empty() { 0 } else { self.max_ns }
    }

    /// The value at a percentile (0 to 100) of the samples inside the histogram, at its precision.
    pub fn percentile_ns(&self, percentile: f64) -> u64 {
        self.settled().value_at_percentile(percentile)
    }

    /// The histogram.
    pub fn histogram(&self) -> &Histogram<u32> {
        self.settled()
    }

    /// The histogram in HdrHistogram's V2 encoding, compressed (readable by the Java and Python libraries), appended to `out`.
    ///
    /// # Errors
    /// The serializer's, when compression fails.
    pub fn encode(
        &self,
        serializer: &mut V2DeflateSerializer,
        out: &mut Vec<u8>,
    ) -> Result<(), V2DeflateSerializeError> {
        serializer.serialize(self.settled(), out).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;

    #[test]
    fn nothing_is_thrown_away() {
        let mut latency = Latency::new();
        for value in [
            -5,
            0,
            1,
            1_000_000,
            LATENCY_NS_MAX as i64,
            LATENCY_NS_MAX as i64 + 1,
        ] {
            latency.record(value, 2);
        }
        latency.settle();
        assert_eq!(
            (latency.count(), latency.negative(), latency.overflow()),
            (12, 2, 2)
        );
        assert_eq!(
            (latency.min_ns(), latency.max_ns()),
            (-5, LATENCY_NS_MAX as i64 + 1)
        );
        let mut twice = latency.clone();
        twice.add(&latency);
        assert_eq!((twice.count(), twice.sum_ns()), (24, 2 * latency.sum_ns()));
        twice.clear();
        assert!(twice.is_empty() && twice.sum_ns() == 0);
    }

    #[test]
    fn what_is_taken_away_is_gone_whatever_it_was() {
        let values = [-5, 0, 1, 1_000_000, LATENCY_NS_MAX as i64 + 1];
        let (mut latency, mut half, mut whole) = (Latency::new(), Latency::unbuffered(), Latency::new());
        for value in values {
            latency.record(value, 2);
            half.enter(value, 1);
            whole.record(value, 2);
        }
        latency.settle();
        whole.settle();
        latency.subtract(&half);
        assert_eq!(
            (latency.count(), latency.negative(), latency.overflow()),
            (5, 1, 1)
        );
        assert_eq!(latency.sum_ns(), half.sum_ns());
        assert_eq!(latency.histogram(), half.histogram());
        whole.subtract(&half);
        whole.subtract(&half);
        assert!(whole.is_empty() && whole.sum_ns() == 0);
    }

    #[test]
    #[should_panic(expected = "settled before it is read")]
    fn nothing_is_read_while_values_are_pending() {
        let mut latency = Latency::new();
        latency.record(5, 1);
        latency.count();
    }

    #[test]
    fn the_encoding_is_read_back_exactly() {
        let mut latency = Latency::new();
        (1..10_000).for_each(|value| latency.record(value * 977, 1));
        latency.settle();
        let mut bytes = Vec::new();
        latency
            .encode(&mut V2DeflateSerializer::new(), &mut bytes)
            .unwrap();
        let read: Histogram<u32> = hdrhistogram::serialization::Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .unwrap();
        assert_eq!(&read, latency.histogram());
        let _ = Deserializer::new();
    }
}
