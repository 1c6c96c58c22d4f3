//! What the world knows of a trial: what was sent, stored, acknowledged and delivered, and when. Nothing here is asked of the gauge.

use std::collections::HashMap;

use gauge_load::clock::simulated;
use gauge_load::stamp::{self, Checked, PROBE_PRODUCER};

use crate::net::Delivery;

/// A message's key as its frame tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageKey {
    /// Frames of this protocol tell none.
    #[default]
    Untold,
    Absent,
    Number(u32),
    /// It is none of ours.
    Odd,
}

impl MessageKey {
    /// The key of a frame that may have one.
    pub fn told(bytes: Option<&[u8]>) -> MessageKey {
        let Some(bytes) = bytes else {
            return MessageKey::Absent;
        };
        let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
        number.map_or(MessageKey::Odd, MessageKey::Number)
    }
}

/// A message as it was found in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub producer: u32,
    pub sequence: u64,
    pub intended_ns: i64,
    pub key: MessageKey,
}

impl Message {
    /// The message of a body; None: a probe.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(body: &[u8]) -> Result<Option<Message>, String> {
        match stamp::check(body) {
            Checked::Whole(stamp) if stamp.producer == PROBE_PRODUCER => Ok(None),
            Checked::Whole(stamp) => Ok(Some(Message {
                producer: stamp.producer,
                sequence: stamp.sequence,
                intended_ns: stamp.intended_ns,
                key: MessageKey::Untold,
            })),
            other => Err(format!("a message was sent whose stamp is {other:?}")),
        }
    }

    /// Damages a body: its sequence. The message says that it is another, and only its own checksum tells.
    pub fn damage(body: &mut [u8]) {
        body[16] ^= 0x40;
    }
}

/// A batch that reached a log.
#[derive(Debug)]
pub struct Batch {
    pub slot: usize,
    pub messages: Vec<Message>,
    /// When followers had it, so that consumers could read it.
    pub visible_ns: i64,
    /// Which of its messages were damaged in the log.
    pub damaged: Vec<usize>,
    /// From this message on it cannot be read at all, and counts as one that is damaged.
    pub unreadable_from: Option<usize>,
    /// It is in the log at the end.
    pub is_alive: bool,
    /// The only subscription that can read it; None: all can.
    pub reader: Option<usize>,
    /// The system has delivered it and does not keep it: who has not read it never will.
    pub is_forgotten: bool,
    /// The system does not keep it any more: who has not read it never will, and who has may have been about to read it again.
    pub is_expired: bool,
    /// It was delivered to somebody who has not acknowledged it, and comes back when the system notices that he is not there.
    pub is_withheld: bool,
}

/// When something was read by the client: by its clock, and in which turn of the lane; since when it was there to be read, and when the lane was told for the last
/// time that there was nothing to read on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub read_ns: i64,
    pub turn_ns: i64,
    pub come_ns: i64,
    pub empty_ns: i64,
}

/// When a message was taken: between two readings of the clock, in a turn of the lane.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub from_ns: i64,
    pub until_ns: i64,
    pub turn_ns: i64,
    /// When the lane had planned to take what is due; what was due before it counts as handed over then.
    pub planned_ns: i64,
    /// Its producer had found no room before, so that it may have waited for the system.
    pub is_held: bool,
}

impl Taken {
    /// How late it was handed over at the least and at the most.
    pub fn late_ns(&self, intended_ns: i64) -> (i64, i64) {
        let late = |now_ns: i64, planned_ns: i64| (now_ns - intended_ns.max(planned_ns)).max(0);
        if self.is_held {
            return (late(self.from_ns, self.planned_ns), late(self.until_ns, i64::MIN));
        }
        (
            late(self.from_ns, self.planned_ns),
            late(self.until_ns, self.planned_ns),
        )
    }
}

/// Everything that happened.
#[derive(Debug, Default)]
pub struct Truth {
    /// Per producer and sequence.
    pub taken: HashMap<u32, Vec<Taken>>,
    /// Per producer and sequence: when it was due, of those that reached a wire.
    pub intended: HashMap<(u32, u64), i64>,
    pub acked: HashMap<(u32, u64), Seen>,
    /// How often each message reached a broker.
    pub met: HashMap<(u32, u64), usize>,
    /// When it reached one first.
    pub met_ns: HashMap<(u32, u64), i64>,
    /// Requests with messages that came to a node, where the world knows them by their frames.
    pub requests: Option<u64>,
    /// For how long producers had found no room while something was due, all of them together: at the least, and at the most.
    pub held_ns: (i64, i64),
    /// Of producers that have found none up to now: since when, at the earliest and at the latest.
    pub held_since_ns: HashMap<u32, (i64, i64)>,
    pub batches: Vec<Batch>,
    /// Per subscription and batch: the answers that were read with it.
    pub delivered: HashMap<(usize, usize), Vec<Seen>>,
    /// Per subscription: answers that were read.
    pub answers: HashMap<usize, u64>,
    /// Per subscription and slot: when the latest answer was made of those that were read and told where the slot ends.
    pub told_ns: HashMap<(usize, usize), i64>,
    /// Per subscription and slot: consumers that the system has closed by itself.
    pub closed: HashMap<(usize, usize), usize>,
    /// Changes of the rate while the load ran: from when on, at the earliest and at the latest, and the rate of all producers.
    pub rates: Vec<((i64, i64), f64)>,
    /// A subscription was told to pause, or to go on: when at the latest, and which of both.
    pub pauses: Vec<(usize, i64, bool)>,
    /// When the load was ended, at the earliest and at the latest.
    pub stopped_ns: Option<(i64, i64)>,
    /// The client has given up on what had no end, and closes what it has: what comes to its end from now on does so for nobody.
    pub is_given_up: bool,
    /// Whether anything stored was lost again by the system.
    pub has_truncated: bool,
    /// What the client did that no client may do.
    pub offences: Vec<String>,
}

impl Truth {
    pub fn took(&mut self, producer: u32, messages: u64, taken: Taken) {
        let all = self.taken.entry(producer).or_default();
        all.extend((0..messages).map(|_| taken));
    }

    /// A producer finds no room, since then at the earliest and at the latest.
    pub fn held(&mut self, producer: u32, earliest_ns: i64, latest_ns: i64) {
        self.held_since_ns
            .entry(producer)
            .or_insert((earliest_ns, latest_ns));
    }

    /// A producer gives messages: if it had found no room, it has now.
    pub fn released(&mut self, producer: u32, now_ns: i64) {
        if let Some((earliest_ns, latest_ns)) = self.held_since_ns.remove(&producer) {
            self.held_ns.0 += now_ns.saturating_sub(latest_ns).max(0);
            self.held_ns.1 += (now_ns - earliest_ns).max(0);
        }
    }

    /// A request with messages came to a node.
    pub fn requested(&mut self) {
        *self.requests.get_or_insert(0) += 1;
    }

    /// A batch reached a broker, whatever becomes of it.
    pub fn met(&mut self, messages: &[Message]) {
        let now_ns = simulated::now_ns().unwrap_or(i64::MAX);
        for message in messages {
            let key = (message.producer, message.sequence);
            self.met_ns.entry(key).or_insert(now_ns);
            *self.met.entry(key).or_default() += 1;
            let known = *self.intended.entry(key).or_insert(message.intended_ns);
            if known != message.intended_ns {
                self.offend(|| format!("{key:?} is due at {known} and at {}", message.intended_ns));
            }
        }
    }

    /// A batch was appended to a log; returns its number.
    pub fn stored(&mut self, slot: usize, messages: Vec<Message>) -> usize {
        self.batches.push(Batch {
            slot,
            messages,
            visible_ns: i64::MAX,
            damaged: Vec::new(),
            unreadable_from: None,
            is_alive: true,
            reader: None,
            is_forgotten: false,
            is_expired: false,
            is_withheld: false,
        });
        self.batches.len() - 1
    }

    /// The client has read that these messages are acknowledged.
    pub fn acknowledged(&mut self, messages: &[Message], seen: Seen) {
        if self.is_given_up {
            return;
        }
        for message in messages {
            let key = (message.producer, message.sequence);
            if self.acked.insert(key, seen).is_some() {
                self.offend(|| {
                    format!("{key:?} was acknowledged twice: it was sent again after its acknowledgement")
                });
            }
        }
    }

    /// The client has read an answer of a system whose answers may come twice: the first counts.
    pub fn first_acknowledged(&mut self, messages: &[Message], seen: Seen) {
        for message in messages {
            let key = (message.producer, message.sequence);
            self.acked.entry(key).or_insert(seen);
        }
    }

    /// The client has read an answer to a fetch.
    pub fn delivered(&mut self, delivery: Delivery, seen: Seen) {
        let subscription = delivery.subscription;
        *self.answers.entry(subscription).or_default() += 1;
        for batch in delivery.batches {
            let all = self.delivered.entry((subscription, batch)).or_default();
            all.push(seen);
        }
        for slot in delivery.told {
            self.told_ns.insert((subscription, slot), delivery.made_ns);
        }
    }

    /// The system closes a consumer by itself.
    pub fn closed(&mut self, subscription: usize, slot: usize) {
        *self.closed.entry((subscription, slot)).or_default() += 1;
    }

    pub fn offend(&mut self, what: impl FnOnce() -> String) {
        if self.offences.len() < 5 {
            self.offences.push(what());
        }
    }
}
