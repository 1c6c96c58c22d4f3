//! The clocks of other hosts: what a time in a message means here.
//!
//! A message carries its intended time on the clock of the worker that sent it. The lab measures how far such a clock is ahead of this
//! worker's, and how fast it gains (docs/fleet.md); here a time of it is turned into one of ours as the message is received, so that
//! latencies and phases are those of one clock. What is left of the error is stated with the figures.

use crate::clock::{share_ppb, unshown_ns};

/// How another worker's clock relates to this one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// At this time of the other clock...
    pub at_ns: i64,
    /// ...it is ahead by this much...
    pub ahead_ns: i64,
    /// ...and gains so many nanoseconds per second.
    pub drift_ppb: i64,
}

/// The clocks of all producers that are elsewhere; the others are on this clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clocks(Vec<Option<Ahead>>);

impl Clocks {
    /// The producers whose clock is another.
    pub fn new(producers: impl IntoIterator<Item = (u32, Ahead)>) -> Clocks {
        let mut clocks = Vec::new();
        for (producer, ahead) in producers {
            let at = producer as usize;
            if clocks.len() <= at {
                clocks.resize(at + 1, None);
            }
            clocks[at] = Some(ahead);
        }
        Clocks(clocks)
    }

    /// A producer's stamped time on this worker's clock.
    #[inline]
    pub fn here_ns(&self, producer: u32, stamped_ns: i64) -> i64 {
        match self.0.get(producer as usize) {
            Some(Some(ahead)) => {
                let gained_ns = share_ppb(stamped_ns.saturating_sub(ahead.at_ns), ahead.drift_ppb);
                unshown_ns(
                    stamped_ns
                        .saturating_sub(ahead.ahead_ns)
                        .saturating_sub(gained_ns),
                )
            }
            _ => unshown_ns(stamped_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_other_clocks_become_times_of_ours() {
        let ahead = Ahead {
            at_ns: 1_000_000_000,
            ahead_ns: 50_000_000,
            drift_ppb: 100_000,
        };
        let clocks = Clocks::new([(3, ahead)]);
        assert_eq!(clocks.here_ns(3, 1_000_000_000), 950_000_000);
        // Ten seconds later it has gained a millisecond more.
        assert_eq!(clocks.here_ns(3, 11_000_000_000), 10_949_000_000);
        assert_eq!(clocks.here_ns(2, 7), 7);
        assert_eq!(clocks.here_ns(u32::MAX, 7), 7);
    }
}
