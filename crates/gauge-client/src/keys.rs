//! Keys of messages: numbers, sent in decimal digits; and which partition a message goes to.

use gauge_load::mutants::{self, Mutant};

use crate::{Keys, ProducerSpec, Topic};

/// Room for the digits of a key.
pub(crate) const KEY_BYTES: usize = 10;

/// The decimal digits of a key.
#[inline]
pub(crate) fn decimal(mut key: u32, digits: &mut [u8; KEY_BYTES]) -> &[u8] {
    let mut at = KEY_BYTES;
    loop {
        at -= 1;
        digits[at] = b'0' + (key % 10) as u8;
        key /= 10;
        if key == 0 {
            return &digits[at..];
        }
    }
}

/// Which partition a producer's message goes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partitioner {
    keys: Keys,
    count: usize,
    turn: usize,
}

impl Partitioner {
    /// Producers begin at different partitions, so that they do not all crowd the first.
    pub fn new(producer: &ProducerSpec, topic: &Topic) -> Partitioner {
        Partitioner {
            keys: producer.keys,
            count: topic.partitions.max(1) as usize,
            turn: (producer.id % topic.partitions.max(1)) as usize,
        }
    }

    /// The partition that the next message without a key goes to.
    pub fn turn(&self) -> usize {
        self.turn
    }

    /// A batch goes to one partition, the next batch to the next one.
    pub fn is_sticky(&self) -> bool {
        self.keys == Keys::Sticky
    }

    /// Where a message goes. `hash` tells the partition of a key among so many; `goes`, whether a partition takes messages now.
    #[inline]
    pub fn place(
        &mut self,
        key: Option<&[u8]>,
        hash: impl FnOnce(&[u8], u32) -> u32,
        goes: impl Fn(usize) -> bool,
    ) -> usize {
        match (self.keys, key) {
            (Keys::Keyed, Some(key)) => hash(key, self.count as u32) as usize,
            (Keys::Sticky, _) => self.turn,
            (Keys::RoundRobin | Keys::Keyed, _) => {
                let turn = self.turn;
                self.advance(goes);
                turn
            }
        }
    }

    /// A batch for this partition is closed: without keys, the next one has its turn if it was this one's.
    pub fn closed(&mut self, at: usize, goes: impl Fn(usize) -> bool) {
        if self.is_sticky() && at == self.turn && !mutants::is(Mutant::PulsarStickyStays) {
            self.advance(goes);
        }
    }

    /// The next partition that takes messages has its turn; the next one, if none does.
    #[inline]
    pub fn advance(&mut self, goes: impl Fn(usize) -> bool) {
        let after = self.turn + 1;
        let next = if after == self.count { 0 } else { after };
        let mut others = (after..self.count).chain(0..self.turn);
        self.turn = others.find(|at| goes(*at)).unwrap_or(next);
    }
}

/// Every partition takes messages.
pub(crate) fn every(_at: usize) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sent_in_decimal() {
        let mut digits = [0; KEY_BYTES];
        assert_eq!(decimal(u32::MAX, &mut digits), b"4294967295");
        assert_eq!(decimal(0, &mut digits), b"0");
    }
    fn partitioner(keys: Keys, id: u32) -> Partitioner {
        let producer = ProducerSpec { id, topic: 0, keys };
        let topic = Topic {
            name: String::new(),
            partitions: 3,
            first_slot: 0,
        };
        Partitioner::new(&producer, &topic)
    }

    #[test]
    fn messages_go_round_by_key_or_with_their_batch() {
        let hash = |key: &[u8], _: u32| u32::from(key[0] - b'0');
        let mut round = partitioner(Keys::RoundRobin, 4);
        let places: Vec<usize> = (0..4).map(|_| round.place(None, hash, every)).collect();
        assert_eq!(places, [1, 2, 0, 1]);
        let mut keyed = partitioner(Keys::Keyed, 0);
        assert_eq!(keyed.place(Some(b"2"), hash, every), 2);
        assert_eq!([keyed.place(None, hash, every), keyed.turn()], [0, 1]);
        let mut sticky = partitioner(Keys::Sticky, 0);
        assert_eq!([sticky.place(Some(b"2"), hash, every), sticky.turn()], [0, 0]);
        sticky.closed(1, every);
        assert_eq!(sticky.turn(), 0);
        sticky.closed(0, every);
        assert_eq!(sticky.turn(), 1);
    }

    #[test]
    fn a_partition_that_takes_nothing_is_passed_over_while_another_does() {
        let mut sticky = partitioner(Keys::Sticky, 0);
        sticky.advance(|at| at == 2);
        assert_eq!(sticky.turn(), 2);
        sticky.advance(|_| false);
        assert_eq!(sticky.turn(), 0);
    }
}
