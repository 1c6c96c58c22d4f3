//! When the oldest message under way was due, to a sixteenth of a millisecond.

use super::NOTHING_DUE_NS;

/// A bin is 2^16 ns wide.
const BIN_BITS: u32 = 16;
/// Bins: those of 4 s. Whoever is under way for longer is merely very old.
const BINS: i64 = 1 << 16;

/// Counts messages under way by when they were due. A message costs an addition when it is sent and a subtraction when it is answered.
#[derive(Debug)]
pub struct UnderWay {
    bins: Box<[u32]>,
    /// No bin before this one holds anything.
    first: i64,
    /// No bin from this one on does.
    until: i64,
    /// Messages older than the bins.
    ancient: u64,
}

impl Default for UnderWay {
    fn default() -> UnderWay {
        UnderWay {
            bins: vec![0; BINS as usize].into_boxed_slice(),
            first: 0,
            until: 0,
            ancient: 0,
        }
    }
}

fn place(bin: i64) -> usize {
    (bin & (BINS - 1)) as usize
}

impl UnderWay {
    /// Messages were sent.
    #[inline]
    pub fn begin(&mut self, due_ns: i64, messages: u32) {
        let bin = due_ns >> BIN_BITS;
        if self.first >= self.until {
            (self.first, self.until) = (bin, bin);
        }
        if bin >= self.until {
            if bin - self.first >= BINS {
                self.age(bin - BINS + 1);
            }
            self.until = bin + 1;
        } else if bin < self.first {
            if self.until - bin > BINS {
                self.ancient += u64::from(messages);
                return;
            }
            self.first = bin;
        }
        self.bins[place(bin)] += messages;
    }

    /// What is due before this bin becomes ancient.
    #[cold]
    fn age(&mut self, first: i64) {
        for bin in self.first..first.min(self.until) {
            self.ancient += u64::from(std::mem::take(&mut self.bins[place(bin)]));
        }
        self.first = first;
        self.until = self.until.max(first);
    }

    /// Messages have come to an end.
    #[inline]
    pub fn end(&mut self, due_ns: i64, messages: u32) {
        let bin = due_ns >> BIN_BITS;
        if bin >= self.first && bin < self.until {
            let count = &mut self.bins[place(bin)];
            let ended = messages.min(*count);
            *count -= ended;
            // What is left was due in this bin and had become ancient when others of it came.
            self.ancient = self.ancient.saturating_sub(u64::from(messages - ended));
        } else {
            self.ancient = self.ancient.saturating_sub(u64::from(messages));
        }
    }

    /// The beginning of the bin of the oldest; [`NOTHING_DUE_NS`] if nothing is under way.
    #[inline]
    pub fn oldest_due_ns(&mut self) -> i64 {
        if self.ancient > 0 {
            return (self.until - BINS) << BIN_BITS;
        }
        while self.first < self.until {
            if self.bins[place(self.first)] > 0 {
                return self.first << BIN_BITS;
            }
            self.first += 1;
        }
        NOTHING_DUE_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIN_NS: i64 = 1 << BIN_BITS;

    #[test]
    fn the_oldest_is_found_in_whatever_order_answers_come() {
        let mut under_way = UnderWay::default();
        assert_eq!(under_way.oldest_due_ns(), NOTHING_DUE_NS);
        let at = |bin: i64| 1_000_000 * BIN_NS + bin * BIN_NS + 5;
        for bin in [3, 1, 2, 9] {
            under_way.begin(at(bin), 2);
        }
        assert_eq!(under_way.oldest_due_ns(), at(1) - 5);
        under_way.end(at(2), 2);
        under_way.end(at(1), 1);
        assert_eq!(under_way.oldest_due_ns(), at(1) - 5);
        under_way.end(at(1), 1);
        assert_eq!(under_way.oldest_due_ns(), at(3) - 5);
        under_way.end(at(3), 2);
        under_way.end(at(9), 2);
        assert_eq!(under_way.oldest_due_ns(), NOTHING_DUE_NS);
        under_way.begin(at(0), 1);
        assert_eq!(under_way.oldest_due_ns(), at(0) - 5);
    }

    #[test]
    fn what_is_older_than_the_bins_is_still_counted() {
        let mut under_way = UnderWay::default();
        under_way.begin(0, 3);
        under_way.begin(10 * BINS * BIN_NS, 1);
        assert!(10 * BINS * BIN_NS - under_way.oldest_due_ns() >= (BINS - 1) * BIN_NS);
        under_way.end(0, 3);
        assert_eq!(under_way.oldest_due_ns(), 10 * BINS * BIN_NS);
        under_way.begin(0, 1);
        under_way.end(10 * BINS * BIN_NS, 1);
        under_way.end(0, 1);
        assert_eq!(under_way.oldest_due_ns(), NOTHING_DUE_NS);
    }
}
