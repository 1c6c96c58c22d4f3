//! One producer's stream of messages: schedule, sequence, body and key of each, and what held it up.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::clock;
use crate::mutants::{self, Mutant};
use crate::pacing::{RateChange, Schedule, ScheduleSpec};
use crate::payload::{PayloadPool, Template};
use crate::skew::KeySkew;
use crate::stamp::{self, Stamp};

/// Everything that determines a producer's messages.
#[derive(Clone, Debug)]
pub struct EmitterSpec {
    /// The trial's number, stamped into every message.
    pub run: u32,
    /// The producer's number, unique within the trial.
    pub producer: u32,
    /// The schedule.
    pub schedule: ScheduleSpec,
    /// Changes of the rate that are planned from the beginning.
    pub changes: Vec<RateChange>,
    /// The bodies, taken in turn. Each producer begins at another one, so that many do not send the same sizes at the same time.
    pub pool: Arc<PayloadPool>,
    /// Number of distinct keys, taken in turn; 0: messages have no key.
    pub key_count: u32,
    /// How popular the keys are; None: they are taken in turn.
    pub skew: Option<Arc<KeySkew>>,
}

/// One message on its way out: valid until the next one is taken.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// Its identity, and when it was due.
    pub stamp: Stamp,
    /// When it is handed to the client: when it was due, and what the lane was late by (see [`Emitter::expect`]).
    pub sent_ns: i64,
    /// How long the client had no room for it since it was due.
    pub held_ns: i64,
    /// Its key, when keys are asked for.
    pub key: Option<u32>,
    /// Its body.
    pub template: &'a Template,
}

/// By how much of the generator's own lateness a batch leaves sooner, at most: what a lane may sleep between two looks at the schedule.
const LATENESS_FORGIVEN_NS: i64 = 1_000_000;

impl Departure<'_> {
    /// From when on a batch that begins with this message lingers: from when it was due, as in a generator that is never late; from when it is handed
    /// over, less 1 ms, in one that is later than that; and from the end of the time for which the client had no room.
    #[inline]
    pub fn lingers_from_ns(&self) -> i64 {
        let late_ns = self.sent_ns - self.stamp.intended_ns - self.held_ns;
        self.sent_ns - late_ns.clamp(0, LATENESS_FORGIVEN_NS)
    }

    /// Bytes of the body.
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        self.template.bytes().len()
    }

    /// Writes body and stamp into `slot`, whose length is `payload_bytes`, for a partition of the topic.
    #[inline]
    pub fn write_into(&self, slot: &mut [u8], partition: usize) {
        slot.copy_from_slice(self.template.bytes());
        if self.template.is_stampable() {
            let shown = Stamp {
                intended_ns: clock::shown_ns(self.stamp.intended_ns),
                ..self.stamp
            };
            stamp::write_for(slot, &shown, self.template.tail_crc(), partition as u32);
        }
    }
}

/// Times in which the client had no room, oldest first. Messages are taken in the order of their due times, so what lies
/// before the message at hand is dropped as the producer catches up.
#[derive(Clone, Debug, Default)]
struct Holds {
    closed: VecDeque<(i64, i64)>,
    open_since_ns: Option<i64>,
}

/// Holds remembered at once. When a producer is held more often than this before it catches up, neighbours are joined, which
/// charges the short gap between them to back-pressure.
const HOLDS_MAX: usize = 256;

impl Holds {
    fn begin(&mut self, now_ns: i64) {
        self.open_since_ns.get_or_insert(now_ns);
    }

    #[inline]
    fn end(&mut self, now_ns: i64) {
        if let Some(since_ns) = self.open_since_ns.take()
            && now_ns > since_ns
        {
            if self.closed.len() == HOLDS_MAX
                && let Some((_, until_ns)) = self.closed.back_mut()
            {
                *until_ns = now_ns;
                return;
            }
            self.closed.push_back((since_ns, now_ns));
        }
    }

    /// How much of [intended, now] was spent held.
    #[inline]
    fn held_since(&mut self, intended_ns: i64) -> i64 {
        if self.closed.is_empty() {
            return 0;
        }
        while self
            .closed
            .front()
            .is_some_and(|(_, until_ns)| *until_ns <= intended_ns)
        {
            self.closed.pop_front();
        }
        self.closed
            .iter()
            .map(|(since_ns, until_ns)| until_ns - since_ns.max(&intended_ns))
            .sum()
    }
}

/// Keys drawn at random.
#[derive(Clone, Debug)]
struct Skewed {
    keys: Arc<KeySkew>,
    random: fastrand::Rng,
}

/// One producer's stream of messages.
#[derive(Clone, Debug)]
pub struct Emitter {
    run: u32,
    producer: u32,
    schedule: Schedule,
    /// Start of the schedule; i64::MAX before it begins.
    start_ns: i64,
    sequence: u64,
    pool: Arc<PayloadPool>,
    template: usize,
    key_count: u32,
    skew: Option<Skewed>,
    holds: Holds,
    payload_bytes_max: usize,
    /// See [`Emitter::expect`].
    planned_ns: i64,
}

impl Emitter {
    /// An emitter whose schedule has not begun.
    pub fn new(spec: &EmitterSpec) -> Emitter {
        let mut schedule = Schedule::new(&spec.schedule);
        if !spec.changes.is_empty() {
            schedule.plan(&spec.changes);
        }
        let skewed = |keys: &Arc<KeySkew>| Skewed {
            keys: Arc::clone(keys),
            // Another stream of numbers than the schedule's gaps.
            random: fastrand::Rng::with_seed(!spec.schedule.seed),
        };
        // The golden ratio's multiples spread evenly, however many producers there are.
        let turn = u64::from(spec.producer.wrapping_mul(0x9E37_79B9));
        let templates = spec.pool.templates().len() as u64;
        Emitter {
            run: spec.run,
            producer: spec.producer,
            schedule,
            start_ns: i64::MAX,
            sequence: 0,
            pool: Arc::clone(&spec.pool),
            template: ((turn * templates) >> 32) as usize,
            key_count: spec.key_count,
            skew: spec.skew.as_ref().map(skewed),
            holds: Holds::default(),
            payload_bytes_max: spec
                .pool
                .templates()
                .iter()
                .map(|template| template.bytes().len())
                .max()
                .unwrap_or(0),
            planned_ns: i64::MIN,
        }
    }

    /// Begins the schedule: its offset 0 is `start_ns`. Nothing is due before this was called.
    pub fn start(&mut self, start_ns: i64) {
        self.start_ns = start_ns;
    }

    /// The producer's number.
    pub fn producer(&self) -> u32 {
        self.producer
    }

    /// Messages taken so far; also the sequence of the next one.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether messages leave as the client has room, without a schedule.
    pub fn is_closed_loop(&self) -> bool {
        self.schedule.is_closed()
    }

    /// When the next message is due; None when the schedule has not begun or has ended. Closed loop: the start.
    #[inline]
    pub fn next_due_ns(&self) -> Option<i64> {
        if self.start_ns == i64::MAX {
            return None;
        }
        self.schedule.next_ns().map(|offset_ns| self.start_ns + offset_ns)
    }

    /// Whether no message will be due any more, at `now_ns` or later.
    pub fn has_ended(&self, now_ns: i64) -> bool {
        if self.start_ns == i64::MAX {
            return false;
        }
        if self.schedule.is_closed() {
            now_ns - self.start_ns >= self.schedule.stop_ns()
        } else {
            self.schedule.next_ns().is_none()
        }
    }

    /// Messages that were due by `now_ns` and were never taken, `limit` at most: what a system that leaves no room keeps out of the books. None
    /// in a closed loop, where nothing is due that was not taken.
    pub fn untaken_msgs(&self, now_ns: i64, limit: u64) -> u64 {
        if self.schedule.is_closed() || self.start_ns == i64::MAX {
            return 0;
        }
        let mut schedule = self.schedule.clone();
        let mut count = 0;
        while count < limit
            && schedule
                .next_ns()
                .is_some_and(|offset_ns| offset_ns <= now_ns - self.start_ns)
        {
            schedule.take();
            count += 1;
        }
        count
    }

    /// What becomes due before `planned_ns` is taken then, and no sooner unless something else happens: until then it would only wait in its
    /// batch. So it counts as handed over when it was due, and late by as much as it is taken after this time. `i64::MIN`: messages are to be taken
    /// when they are due.
    #[inline]
    pub fn expect(&mut self, planned_ns: i64) {
        self.planned_ns = planned_ns;
    }

    /// What was expected last.
    pub fn planned_ns(&self) -> i64 {
        self.planned_ns
    }

    /// When a message counts as handed over that was due then and is handed over now.
    #[inline]
    fn counts_from_ns(&self, due_ns: i64, now_ns: i64) -> i64 {
        if self.planned_ns > due_ns && mutants::is(Mutant::LatenessOfPlanForgotten) {
            return due_ns;
        }
        due_ns + (now_ns - due_ns.max(self.planned_ns)).max(0)
    }

    /// See [`Schedule::earliest_ns`]; with the schedule's start.
    pub fn earliest_ns(&self, count: u64) -> i64 {
        self.start_ns.saturating_add(self.schedule.earliest_ns(count))
    }

    /// See [`Schedule::most_within`].
    pub fn most_within(&self, ns: i64) -> u64 {
        self.schedule.most_within(ns)
    }

    /// Bytes of the largest body.
    pub fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    /// Bytes of the next message's body, so that a client can look for room before it takes it.
    #[inline]
    pub fn next_payload_bytes(&self) -> usize {
        self.pool.templates()[self.template].bytes().len()
    }

    /// Takes the next message if it is due at `now_ns`: from here on it counts as sent.
    ///
    /// Always inlined: a departure that is returned through memory is read back in wider pieces than it was written in, which waits
    /// until all earlier stores have left the core, among them those of the previous message to memory that is not in the cache.
    #[allow(
        clippy::inline_always,
        reason = "measured: a sixth of the producing path at 200,000 msg/s"
    )]
    #[inline(always)]
    pub fn take(&mut self, now_ns: i64) -> Option<Departure<'_>> {
        let due_ns = self.next_due_ns()?;
        if due_ns > now_ns {
            return None;
        }
        let intended_ns = if self.schedule.is_closed() {
            if now_ns - self.start_ns >= self.schedule.stop_ns() {
                return None;
            }
            now_ns
        } else {
            due_ns
        };
        self.schedule.take();
        self.holds.end(now_ns);
        let held_ns = self.holds.held_since(intended_ns);
        let sent_ns = self.counts_from_ns(intended_ns, now_ns);
        let sequence = self.sequence;
        self.sequence += 1;
        let template = &self.pool.templates()[self.template];
        self.template += 1;
        if self.template == self.pool.templates().len() {
            self.template = 0;
        }
        let key = (self.key_count > 0).then(|| match &mut self.skew {
            None => {
                (sequence % u64::from(self.key_count)) as u32 & !u32::from(mutants::is(Mutant::KeysShared))
            }
            Some(skew) => skew.keys.draw(&mut skew.random),
        });
        let stamp = Stamp {
            run: self.run,
            producer: self.producer,
            sequence,
            intended_ns,
        };
        Some(Departure {
            stamp,
            sent_ns,
            held_ns,
            key,
            template,
        })
    }

    /// The client has no room: what is due from now on waits for the system, not for the generator. Ends by itself when the next message is taken.
    /// Returns from when on: a message that was left to be taken now has found no room since it was due. None: nothing is due, and only time in
    /// which something is counts as held.
    pub fn hold(&mut self, now_ns: i64) -> Option<i64> {
        let due_ns = self.next_due_ns().filter(|due_ns| *due_ns <= now_ns)?;
        let from_ns = self.counts_from_ns(due_ns, now_ns);
        self.holds.begin(from_ns);
        Some(from_ns)
    }

    /// A time on the schedule's axis: its beginning for one before it, and where it has not begun.
    fn offset_ns(&self, at_ns: i64) -> i64 {
        match self.start_ns {
            i64::MAX => 0,
            start_ns => (at_ns - start_ns).max(0),
        }
    }

    /// From `at_ns` on the rate is `rate_msgs_s`.
    pub fn set_rate(&mut self, at_ns: i64, rate_msgs_s: f64) {
        let late_ns = if mutants::is(Mutant::RateSetLate) {
            10_000_000
        } else {
            0
        };
        self.schedule
            .set_rate(self.offset_ns(at_ns) + late_ns, rate_msgs_s);
    }

    /// No message is due at `at_ns` or later.
    pub fn stop_at(&mut self, at_ns: i64) {
        let late_ns = if mutants::is(Mutant::StopLate) {
            5_000_000
        } else {
            0
        };
        self.schedule.stop_at(self.offset_ns(at_ns) + late_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_lingers_from_when_its_first_message_was_due() {
        let template = Template::new(vec![0; 32]);
        let from = |intended_ns: i64, sent_ns: i64, held_ns: i64| {
            let stamp = Stamp {
                run: 1,
                producer: 0,
                sequence: 0,
                intended_ns,
            };
            let departure = Departure {
                stamp,
                sent_ns,
                held_ns,
                key: None,
                template: &template,
            };
            departure.lingers_from_ns()
        };
        assert_eq!(from(5_000_000, 5_200_000, 0), 5_000_000, "a wake-up later");
        assert_eq!(
            from(5_000_000, 25_000_000, 0),
            24_000_000,
            "a generator that was held up itself"
        );
        assert_eq!(
            from(5_000_000, 25_000_000, 19_900_000),
            24_900_000,
            "a client without room"
        );
        assert_eq!(from(5_000_000, 5_000_000, 0), 5_000_000, "a closed loop");
    }
}
