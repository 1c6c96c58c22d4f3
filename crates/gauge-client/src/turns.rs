//! Whose turn it is: every socket of a lane that is ready gets one turn before any gets a second, and none is first for ever.
//!
//! A lane stamps what came when it gets to the socket, so what a socket waits for its turn is part of the latencies that are measured
//! there. [`Turns`] tells of each turn since when the bytes may have been there ([`Turn::since_ns`]), so that the generator knows how much
//! of a latency is its own; and which of several ready sockets comes first changes from one look to the next, so that subscriptions that
//! are served together do not differ by their number.

use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};

use crate::poller::EVENTS_MAX;
use crate::{Poller, Ready};

/// A look at the sockets that took at least so long has slept: what is ready then has just come.
const SLEPT_NS: i64 = 20_000;

/// A socket's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub ready: Ready,
    /// When there was nothing to read on it for the last time, at the earliest.
    pub since_ns: i64,
}

/// The sockets that are ready, in their order.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turns: Vec<Turn>,
    /// So many of them have had their turn.
    taken: usize,
    /// Those with more to read than there was time for: they come after all others.
    again: Vec<Turn>,
    /// What the poller told last.
    ready: Vec<Ready>,
    /// The poller was asked since the last call of `begin`.
    is_polled: bool,
    /// When the poller told of all that was ready for the last time.
    told_ns: i64,
    /// How often the poller told of something.
    looks: usize,
    /// How often `begin` was called.
    begun: usize,
}

impl Turns {
    /// Whether somebody waits for a turn.
    pub fn are_left(&self) -> bool {
        self.taken < self.turns.len() || !self.again.is_empty()
    }

    /// Asks the poller, unless somebody waits for a turn or it was just asked.
    pub fn begin(&mut self, poller: &mut Poller, now_ns: i64) {
        self.begun = self.begun.wrapping_add(1);
        if self.taken >= self.turns.len() && !self.is_polled {
            self.poll(poller, now_ns);
        }
        self.is_polled = false;
    }

    /// The numbers below `count`, each time from another on.
    pub fn order(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let first = self.begun;
        (0..count).map(move |at| (first % count + at) % count)
    }

    /// Waits until a socket is ready or the clock shows `until_ns`; returns at once while somebody waits for a turn.
    pub fn wait(&mut self, poller: &mut Poller, until_ns: i64) {
        if self.taken < self.turns.len() {
            return;
        }
        self.poll(poller, until_ns);
    }

    fn poll(&mut self, poller: &mut Poller, until_ns: i64) {
        let before_ns = monotonic_ns();
        let until_ns = if self.again.is_empty() { until_ns } else { 0 };
        // The poller's only error is a closed descriptor, which cannot be while the lane lives; an empty answer is safe in any case.
        if poller.wait(until_ns, &mut self.ready).is_err() {
            self.ready.clear();
        }
        let now_ns = monotonic_ns();
        let slept = now_ns - before_ns >= SLEPT_NS;
        if slept && !mutants::is(Mutant::SleepCountsAsLate) {
            self.told_ns = now_ns;
        }
        let since_ns = match mutants::is(Mutant::AwakeForgotten) {
            true => now_ns,
            false => self.told_ns,
        };
        if self.ready.len() < EVENTS_MAX {
            self.told_ns = now_ns;
        }
        self.line_up(since_ns);
        self.is_polled = true;
    }

    /// Puts what is ready in order.
    fn line_up(&mut self, since_ns: i64) {
        self.turns.clear();
        self.taken = 0;
        if !self.ready.is_empty() {
            self.looks = self.looks.wrapping_add(1);
            let first = self.looks % self.ready.len();
            self.ready.rotate_left(first);
        }
        for ready in &self.ready {
            match self.again.iter_mut().find(|turn| turn.ready.token == ready.token) {
                Some(turn) => turn.ready.writable |= ready.writable,
                None => self.turns.push(Turn {
                    ready: *ready,
                    since_ns,
                }),
            }
        }
        self.turns.append(&mut self.again);
    }

    /// The next turn, until all have had theirs.
    pub fn next(&mut self) -> Option<Turn> {
        let turn = self.turns.get(self.taken).copied()?;
        self.taken += 1;
        Some(turn)
    }

    /// There was more to read than there was time for: the socket gets another turn after all others.
    pub fn again(&mut self, turn: Turn) {
        self.again.push(Turn {
            // Room to write was a matter of the first turn.
            ready: Ready {
                writable: false,
                ..turn.ready
            },
            since_ns: monotonic_ns(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(token: u64) -> Ready {
        Ready {
            token,
            readable: true,
            writable: false,
        }
    }

    fn tokens(turns: &mut Turns) -> Vec<u64> {
        std::iter::from_fn(|| turns.next())
            .map(|turn| turn.ready.token)
            .collect()
    }

    #[test]
    fn who_always_has_more_does_not_keep_the_turn() {
        let mut turns = Turns {
            ready: vec![ready(0), ready(1)],
            looks: 1,
            ..Turns::default()
        };
        turns.line_up(5);
        let first = turns.next().unwrap();
        assert_eq!((first.ready.token, first.since_ns), (0, 5));
        turns.again(first);
        assert!(turns.are_left());
        assert_eq!(
            tokens(&mut turns),
            [1],
            "the other comes before the first comes again"
        );
        assert!(turns.are_left());
        // It is told of again, together with a third: it has one turn, and the last.
        turns.ready = vec![ready(0), ready(2)];
        turns.line_up(9);
        assert_eq!(tokens(&mut turns), [2, 0]);
        assert!(!turns.are_left());
    }

    #[test]
    fn each_is_first_as_often_as_the_others() {
        let mut turns = Turns::default();
        let mut first = [0; 10];
        for _ in 0..100 {
            turns.ready = (0..10).map(ready).collect();
            turns.line_up(0);
            first[tokens(&mut turns)[0] as usize] += 1;
        }
        assert_eq!(first, [10; 10]);
    }

    #[test]
    fn what_waits_is_as_old_as_the_look_before() -> std::io::Result<()> {
        let mut poller = Poller::new()?;
        let (one, other) = std::os::unix::net::UnixStream::pair()?;
        poller.add(&one, 7, crate::Interest::Read)?;
        let mut turns = Turns::default();
        turns.begin(&mut poller, 0);
        let empty_ns = turns.told_ns;
        std::io::Write::write_all(&mut &other, b"x")?;
        turns.begin(&mut poller, 0);
        let turn = turns.next().unwrap();
        assert_eq!((turn.ready.token, turn.since_ns), (7, empty_ns));
        Ok(())
    }
}
