//! Consumers that take their time over what they have received.
//!
//! A lane cannot sleep for one of its consumers: it serves the others, too, and its producers. So the time that a subscription's consumers
//! need for what came is added up, and for as long the subscription does not fetch on this lane. What was received is stamped when it was received; what
//! waits because nobody fetches waits in the system, where it would wait for a slow application, too.
//!
//! Consumers of one subscription on one lane work side by side: n of them need an n-th of the time. Whether the messages were evenly spread
//! over them is not looked at.

/// Less than this is put off until more has come together: stopping to fetch costs some protocols requests of their own.
const PAUSE_NS_MIN: i64 = 2_000_000;

/// How long the consumers of a subscription on a lane need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Index of the subscription.
    pub subscription: usize,
    /// For a message, all consumers of the lane together.
    pub ns_per_msg: f64,
    /// For an answer to a fetch, all consumers of the lane together.
    pub ns_per_fetch: f64,
}

#[derive(Debug)]
struct Busy {
    pace: Pace,
    msgs: u64,
    fetches: u64,
    /// Until when there is work.
    until_ns: f64,
    is_pausing: bool,
}

/// The slow subscriptions of a lane; usually there are none.
#[derive(Debug)]
pub struct Processing {
    busy: Vec<Busy>,
}

impl Processing {
    /// Nothing has come yet.
    pub fn new(paces: &[Pace]) -> Processing {
        let busy = |pace: &Pace| Busy {
            pace: *pace,
            msgs: 0,
            fetches: 0,
            until_ns: 0.0,
            is_pausing: false,
        };
        Processing {
            busy: paces.iter().map(busy).collect(),
        }
    }

    /// Whether nobody is slow.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.busy.is_empty()
    }

    /// Whether the subscription does not fetch because its consumers are busy.
    pub fn is_pausing(&self, subscription: usize) -> bool {
        self.busy
            .iter()
            .any(|busy| busy.pace.subscription == subscription && busy.is_pausing)
    }

    /// Adds the work for what has come. `received`: messages and fetches of a subscription so far; `pause` is called where one has to stop
    /// fetching, or goes on.
    pub fn look(
        &mut self,
        now_ns: i64,
        received: impl Fn(usize) -> (u64, u64),
        mut pause: impl FnMut(usize, bool),
    ) {
        let now = now_ns as f64;
        for busy in &mut self.busy {
            let (msgs, fetches) = received(busy.pace.subscription);
            let work_ns = (msgs - busy.msgs) as f64 * busy.pace.ns_per_msg
                + (fetches - busy.fetches) as f64 * busy.pace.ns_per_fetch;
            (busy.msgs, busy.fetches) = (msgs, fetches);
            if work_ns > 0.0 {
                busy.until_ns = busy.until_ns.max(now) + work_ns;
            }
            let must_pause = if busy.is_pausing {
                busy.until_ns > now
            } else {
                busy.until_ns > now + PAUSE_NS_MIN as f64
            };
            if must_pause != busy.is_pausing {
                busy.is_pausing = must_pause;
                pause(busy.pace.subscription, must_pause);
            }
        }
    }

    /// When the next of them goes on; `i64::MAX` when all do.
    pub fn next_ns(&self) -> i64 {
        self.busy
            .iter()
            .filter(|busy| busy.is_pausing)
            .map(|busy| busy.until_ns.ceil() as i64)
            .min()
            .unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_worked_off_at_the_pace_of_the_consumers() {
        let pace = Pace {
            subscription: 1,
            ns_per_msg: 5e6,
            ns_per_fetch: 1e6,
        };
        let mut processing = Processing::new(&[pace]);
        let mut told = Vec::new();
        let mut look = |now_ns: i64, received: (u64, u64)| {
            processing.look(
                now_ns,
                |_| received,
                |subscription, pause| told.push((now_ns, subscription, pause)),
            );
            processing.next_ns()
        };
        assert_eq!(look(0, (0, 0)), i64::MAX);
        assert_eq!(look(1000, (10, 1)), 51_001_000, "ten messages and a fetch");
        assert_eq!(look(2000, (11, 1)), 56_001_000, "one that was on its way");
        assert_eq!(look(56_001_000, (11, 1)), i64::MAX);
        assert_eq!(look(60_000_000, (11, 2)), i64::MAX, "too little to stop for");
        assert_eq!(look(60_000_000, (11, 4)), 63_000_000, "together it is enough");
        assert_eq!(
            told,
            [(1000, 1, true), (56_001_000, 1, false), (60_000_000, 1, true)]
        );
    }
}
