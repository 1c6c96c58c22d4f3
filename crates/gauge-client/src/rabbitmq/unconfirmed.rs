//! Messages without an end: what was handed to the client and has no confirmation yet, in the order of their serial numbers.
//!
//! RabbitMQ confirms messages by number, one by one or all up to a number, and not in order: messages for different queues overtake each
//! other. So every message is remembered until the server has named it.

use std::collections::VecDeque;

use gauge_load::mutants::{self, Mutant};
use gauge_load::{BatchLedger, Observer};

use super::session::error;

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// A readiness probe, which is counted nowhere.
    Probe,
    /// It came back: the confirmation that follows is none.
    Returned,
    /// It has come to its end.
    Done,
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub sequence: u64,
    pub intended_ns: i64,
    pub sent_ns: i64,
    pub payload_bytes: u32,
    /// What it takes on the wire.
    pub wire_bytes: u32,
    state: State,
}

impl Entry {
    pub fn message(
        sequence: u64,
        intended_ns: i64,
        sent_ns: i64,
        payload_bytes: usize,
        wire_bytes: usize,
    ) -> Entry {
        Entry {
            sequence,
            intended_ns,
            sent_ns,
            payload_bytes: payload_bytes as u32,
            wire_bytes: wire_bytes as u32,
            state: State::Waiting,
        }
    }

    pub fn probe(sent_ns: i64, wire_bytes: usize) -> Entry {
        Entry {
            state: State::Probe,
            ..Entry::message(0, sent_ns, sent_ns, 0, wire_bytes)
        }
    }
}

/// What a reading of confirmations has brought to its end. Used again.
#[derive(Debug, Default)]
pub(super) struct Settled {
    acked: BatchLedger,
    returned: BatchLedger,
    refused: BatchLedger,
    pub messages: u64,
    pub probes: usize,
    pub wire_bytes: usize,
}

impl Settled {
    /// Forgets everything.
    pub fn clear(&mut self, producer: u32) {
        self.acked.clear(producer);
        self.returned.clear(producer);
        self.refused.clear(producer);
        (self.messages, self.probes, self.wire_bytes) = (0, 0, 0);
    }

    /// Whether nothing has come to its end.
    pub fn is_empty(&self) -> bool {
        self.messages == 0 && self.probes == 0
    }

    /// Tells the observer. `refusal`: the kind under which messages are counted that the server would not take.
    pub fn report(&self, observer: &mut Observer, now_ns: i64, refusal: &'static str) {
        if !self.acked.is_empty() {
            observer.acked(&self.acked, now_ns);
        }
        if !self.returned.is_empty() {
            observer.failed(&self.returned, error::UNROUTABLE);
        }
        if !self.refused.is_empty() {
            observer.failed(&self.refused, refusal);
        }
    }

    fn add(&mut self, entry: &Entry, is_acked: bool) {
        self.wire_bytes += entry.wire_bytes as usize;
        if entry.state == State::Probe {
            self.probes += 1;
            return;
        }
        self.messages += 1;
        if is_acked && entry.state == State::Waiting && mutants::is(Mutant::RabbitmqAckDropped) {
            return;
        }
        let ledger = match (is_acked, entry.state) {
            (_, State::Returned) => &mut self.returned,
            (true, _) => &mut self.acked,
            (false, _) => &mut self.refused,
        };
        ledger.push(
            entry.sequence,
            entry.intended_ns,
            entry.sent_ns,
            entry.payload_bytes as usize,
        );
    }
}

/// The messages without an end. Serial numbers rise by one.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    entries: VecDeque<Entry>,
    /// Serial number of the first entry.
    first: u64,
}

impl Unconfirmed {
    /// Serial number of the first entry that may be waiting.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Serial number of the next message.
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    #[inline]
    pub fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
    }

    /// The server has named one message. One that has its end already, or that was never there, changes nothing.
    pub fn settle(&mut self, serial: u64, is_acked: bool, settled: &mut Settled) {
        let Some(at) = serial.checked_sub(self.first) else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(at as usize)
            && entry.state != State::Done
        {
            settled.add(entry, is_acked);
            entry.state = State::Done;
        }
        self.drop_done();
    }

    /// The server has named all messages up to and including one.
    pub fn settle_up_to(&mut self, serial: u64, is_acked: bool, settled: &mut Settled) {
        while self.first <= serial
            && let Some(entry) = self.entries.pop_front()
        {
            if entry.state != State::Done {
                settled.add(&entry, is_acked);
            }
            self.first += 1;
        }
        self.drop_done();
    }

    fn drop_done(&mut self) {
        while self
            .entries
            .front()
            .is_some_and(|entry| entry.state == State::Done)
        {
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// A message came back. Without a stamp its sequence is not known: then it counts as the oldest one that waits.
    pub fn mark_returned(&mut self, sequence: Option<u64>) {
        let is_it = |entry: &&mut Entry| {
            entry.state == State::Waiting && sequence.is_none_or(|sequence| sequence == entry.sequence)
        };
        if let Some(entry) = self.entries.iter_mut().find(is_it) {
            entry.state = State::Returned;
        }
    }

    /// Whether a message has no end yet.
    pub fn is_waiting(&self, serial: u64) -> bool {
        let at = serial.checked_sub(self.first);
        let entry = at.and_then(|at| self.entries.get(at as usize));
        entry.is_some_and(|entry| entry.state != State::Done)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes from a batch of wire bytes, which begins with message `first_serial` and holds `messages`, those that have their end.
    /// Returns how many bytes and messages are left. The entries themselves are dropped by `forget_done`.
    pub fn compact(&self, bytes: &mut [u8], first_serial: u64, messages: u32) -> (usize, u32) {
        let (mut from, mut kept_bytes, mut kept) = (0, 0, 0);
        for serial in first_serial..first_serial + u64::from(messages) {
            let entry = serial
                .checked_sub(self.first)
                .and_then(|at| self.entries.get(at as usize));
            // An entry that is gone was at the front and had its end; its length went with it, so the bytes before the first entry
            // that is left are found from the end.
            let Some(entry) = entry else { continue };
            if kept == 0 && kept_bytes == 0 && from == 0 {
                from = bytes.len() - self.wire_bytes_between(serial, first_serial + u64::from(messages));
            }
            let length = entry.wire_bytes as usize;
            if entry.state != State::Done {
                bytes.copy_within(from..from + length, kept_bytes);
                kept_bytes += length;
                kept += 1;
            }
            from += length;
        }
        (kept_bytes, kept)
    }

    /// Bytes of those below a serial number that have no end.
    pub fn waiting_bytes(&self, below: u64) -> usize {
        let count = below.saturating_sub(self.first) as usize;
        let without_end = self
            .entries
            .iter()
            .take(count)
            .filter(|entry| entry.state != State::Done);
        without_end.map(|entry| entry.wire_bytes as usize).sum()
    }

    fn wire_bytes_between(&self, from: u64, until: u64) -> usize {
        let range = (from - self.first) as usize..(until - self.first) as usize;
        self.entries
            .range(range)
            .map(|entry| entry.wire_bytes as usize)
            .sum()
    }

    /// Drops entries that have their end; the serial numbers of those behind them move up.
    pub fn forget_done(&mut self) {
        self.entries.retain(|entry| entry.state != State::Done);
        for entry in &mut self.entries {
            // It will be sent again, and may find a queue then.
            if entry.state == State::Returned {
                entry.state = State::Waiting;
            }
        }
    }

    /// Everything that waits, for the end of the trial.
    pub fn take_all(&mut self, ledger: &mut BatchLedger) {
        self.first += self.entries.len() as u64;
        for entry in self.entries.drain(..) {
            if matches!(entry.state, State::Waiting | State::Returned) {
                ledger.push(
                    entry.sequence,
                    entry.intended_ns,
                    entry.sent_ns,
                    entry.payload_bytes as usize,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u64) -> Unconfirmed {
        let mut unconfirmed = Unconfirmed::default();
        for sequence in 0..count {
            unconfirmed.push(Entry::message(sequence, 5, 6, 100, 2));
        }
        unconfirmed
    }

    #[test]
    fn single_and_multiple_confirmations_bring_each_message_to_one_end() {
        let mut unconfirmed = filled(10);
        let mut settled = Settled::default();
        settled.clear(1);
        unconfirmed.settle(4, true, &mut settled);
        unconfirmed.settle(4, true, &mut settled);
        assert_eq!((settled.messages, unconfirmed.first()), (1, 0));
        unconfirmed.settle_up_to(3, true, &mut settled);
        assert_eq!((settled.messages, unconfirmed.first()), (5, 5));
        unconfirmed.settle_up_to(2, true, &mut settled);
        unconfirmed.mark_returned(Some(7));
        unconfirmed.settle_up_to(9, true, &mut settled);
        assert_eq!((settled.acked.messages(), settled.returned.messages()), (9, 1));
        assert!(unconfirmed.is_empty());
        assert_eq!(unconfirmed.next(), 10);
        assert_eq!(settled.wire_bytes, 20);
    }

    #[test]
    fn a_batch_that_is_sent_again_holds_what_has_no_end() {
        let mut unconfirmed = filled(6);
        let mut settled = Settled::default();
        settled.clear(1);
        unconfirmed.settle(0, true, &mut settled);
        unconfirmed.settle(3, true, &mut settled);
        let mut first = *b"aabbcc";
        let mut second = *b"ddeeff";
        assert_eq!(unconfirmed.compact(&mut first, 0, 3), (4, 2));
        assert_eq!(&first[..4], b"bbcc");
        assert_eq!(unconfirmed.compact(&mut second, 3, 3), (4, 2));
        assert_eq!(&second[..4], b"eeff");
        unconfirmed.forget_done();
        assert_eq!((unconfirmed.first(), unconfirmed.next()), (1, 5));
    }

    #[test]
    fn a_batch_of_which_everything_has_its_end_is_empty() {
        let mut unconfirmed = filled(4);
        let mut settled = Settled::default();
        settled.clear(1);
        unconfirmed.settle_up_to(1, true, &mut settled);
        assert_eq!(unconfirmed.compact(&mut [0; 4], 0, 2), (0, 0));
        assert_eq!(unconfirmed.compact(&mut [0; 4], 2, 2), (4, 2));
    }
}
