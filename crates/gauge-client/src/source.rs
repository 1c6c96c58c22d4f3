//! A protocol's producer, and what all of them do alike: they take what is due as long as there is room for it.

use std::ops::Range;

use gauge_load::clock::monotonic_ns;
use gauge_load::stamp::Stamp;
use gauge_load::{Departure, Emitter, Observer, SentRun};

use crate::shared::Shared;
use crate::{ClientError, Offer, Ready, Topic};

/// Messages, and bytes of bodies, after which the clock is read again.
const CLOCK_MSGS: u32 = 256;
const CLOCK_BYTES: usize = 64 << 10;
/// `offer` returns to let batches leave when this much is ready, or this much time has passed.
const OFFER_BYTES: usize = 64 << 10;
const OFFER_NS: i64 = 200_000;
/// How often what waits is looked through for what has waited too long.
const EXPIRY_CHECK_NS: i64 = 50_000_000;

/// What a producer has taken and not brought to its end.
#[derive(Debug)]
pub(crate) struct Held {
    /// Its partitions, as they are numbered over all topics.
    pub slots: Range<usize>,
    pub msgs: u64,
    /// Readiness probes.
    pub probes: usize,
    /// Room was made since the last offer that found none.
    pub has_room: bool,
    /// Bytes of batches that are ready to leave. It grows by each batch that becomes so while messages are taken.
    pub queued_bytes: usize,
    /// Batches leave without waiting for their linger.
    pub is_flushing: bool,
    /// When what waits is looked through next ([`Held::is_expiry_due`]).
    pub next_expiry_ns: i64,
}

impl Held {
    /// Nothing, of a producer to this topic.
    pub fn new(topic: &Topic) -> Held {
        Held {
            slots: topic.first_slot..topic.first_slot + topic.partitions as usize,
            msgs: 0,
            probes: 0,
            has_room: false,
            queued_bytes: 0,
            is_flushing: false,
            next_expiry_ns: 0,
        }
    }

    /// Whether it is time to look through what waits for what has waited too long; it is then said to have been done.
    pub fn is_expiry_due(&mut self, now_ns: i64) -> bool {
        let is_due = now_ns >= self.next_expiry_ns;
        if is_due {
            self.next_expiry_ns = now_ns + EXPIRY_CHECK_NS;
        }
        is_due
    }

    /// So many have come to their end, which makes room.
    pub fn ended(&mut self, msgs: u64, probes: usize) {
        self.msgs -= msgs;
        self.probes -= probes;
        self.has_room = true;
    }
}

/// Where messages go that are not taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Into one batch until that is full; it holds so many bytes and messages, or is not opened yet.
    One { bytes: usize, msgs: usize },
    /// Into any of several open batches.
    Any,
    /// Nobody can tell.
    Unknown,
}

impl Next {
    /// Into a batch that is not opened yet.
    pub const NEW: Next = Next::One { bytes: 0, msgs: 0 };
}

/// A protocol's producer.
pub(crate) trait Source<O = ()> {
    fn held(&self) -> &Held;
    fn held_mut(&mut self) -> &mut Held;
    /// Whether everything can be sent.
    fn is_ready(&self) -> bool;
    /// Puts a message into a batch.
    fn take(&mut self, departure: &Departure<'_>, shared: &mut Shared<O>);
    /// As many bytes as leave together.
    fn batch_bytes(&self, shared: &Shared<O>) -> usize {
        shared.spec.batch.bytes.max(1)
    }
    /// Whether a closed loop has so much ready that it takes no more.
    fn is_full(&self, shared: &Shared<O>) -> bool {
        self.held().queued_bytes >= self.batch_bytes(shared)
    }
    /// Where the next messages go.
    fn next(&self) -> Next;
    /// How many messages with payloads of so many bytes fit for sure into a batch that holds so much; 0 messages: one that is not opened yet.
    fn fitting(&self, bytes: usize, msgs: usize, payload_bytes: usize, shared: &Shared<O>) -> usize;
    /// Whether `drive` would send something at once.
    fn could_send(&self, now_ns: i64) -> bool;
    /// Sends a readiness probe to the producer's partition `at`.
    fn send_probe(&mut self, at: usize, probe: &Stamp, shared: &mut Shared<O>);
    /// From now on batches leave without waiting for their linger.
    fn flush(&mut self) {
        self.held_mut().is_flushing = true;
    }
    /// A socket is ready; `link` is the producer's own number for it.
    fn on_ready(
        &mut self,
        link: usize,
        ready: &Ready,
        shared: &mut Shared<O>,
        observer: &mut Observer,
    ) -> Result<(), ClientError>;
    /// What is to be done without an event.
    fn drive(
        &mut self,
        shared: &mut Shared<O>,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError>;
    fn deadline_ns(&self) -> i64;
    fn abandon(&mut self, shared: &mut Shared<O>, observer: &mut Observer);
    /// See [`LaneClient::check`](crate::LaneClient::check).
    fn check(&self);
}

/// How many of the emitter's next messages fit for sure into the batches that they go to. None: batches do not linger any more, or it is not
/// known. Where there are several batches, all messages might go to one of them.
pub(crate) fn room_msgs<O>(producer: &impl Source<O>, emitter: &Emitter, shared: &Shared<O>) -> Option<u64> {
    if producer.held().is_flushing {
        return None;
    }
    let fitting = |bytes, msgs| producer.fitting(bytes, msgs, emitter.payload_bytes_max(), shared) as u64;
    match producer.next() {
        // A batch takes its first message whatever its size.
        Next::One { bytes, msgs } => Some(fitting(bytes, msgs).max(u64::from(msgs == 0))),
        Next::Any => {
            let most_msgs = emitter.most_within(shared.spec.batch.linger_ns);
            (most_msgs < fitting(0, 0)).then_some(u64::MAX)
        }
        Next::Unknown => None,
    }
}

/// See [`LaneClient::offer`](crate::LaneClient::offer).
pub(crate) fn offer<O>(
    producer: &mut impl Source<O>,
    emitter: &mut Emitter,
    observer: &mut Observer,
    shared: &mut Shared<O>,
    now_ns: i64,
) -> Offer {
    let mut run = SentRun::default();
    let offer = take_due(producer, emitter, observer, shared, now_ns, &mut run);
    run.end(observer);
    offer
}

#[inline]
fn take_due<O>(
    producer: &mut impl Source<O>,
    emitter: &mut Emitter,
    observer: &mut Observer,
    shared: &mut Shared<O>,
    now_ns: i64,
    run: &mut SentRun,
) -> Offer {
    let began_ns = now_ns;
    let enough_bytes = producer.held().queued_bytes + OFFER_BYTES.min(producer.batch_bytes(shared));
    let mut now_ns = now_ns;
    let (mut msgs, mut bytes) = (0, 0);
    loop {
        if msgs == CLOCK_MSGS || bytes >= CLOCK_BYTES {
            now_ns = monotonic_ns();
            if now_ns - began_ns >= OFFER_NS {
                return Offer::More;
            }
            (msgs, bytes) = (0, 0);
        }
        match emitter.next_due_ns() {
            Some(due_ns) if due_ns <= now_ns => {}
            _ => return Offer::Taken,
        }
        let payload_bytes = emitter.next_payload_bytes();
        if !has_room_for(payload_bytes, producer, shared) {
            if shared.spec.closed_loop && producer.could_send(now_ns) {
                return Offer::More;
            }
            producer.held_mut().has_room = false;
            return Offer::Full;
        }
        let Some(departure) = emitter.take(now_ns) else {
            return Offer::Taken;
        };
        run.add(&departure, observer);
        producer.held_mut().msgs += 1;
        msgs += 1;
        bytes += payload_bytes;
        producer.take(&departure, shared);
        if producer.held().queued_bytes >= enough_bytes {
            return Offer::More;
        }
    }
}

#[inline]
fn has_room_for<O>(payload_bytes: usize, producer: &impl Source<O>, shared: &Shared<O>) -> bool {
    if shared.spec.closed_loop && producer.is_full(shared) {
        return false;
    }
    // An empty lane takes a message of any size.
    shared.buffered_bytes + payload_bytes <= shared.spec.batch.buffer_bytes || shared.buffered_bytes == 0
}
