//! Taking what is due from an emitter: the same for both of RabbitMQ's protocols.

use gauge_load::clock::monotonic_ns;
use gauge_load::{Departure, Emitter, Observer};

use crate::Offer;
use crate::lane::Shared;

/// Messages, and bytes of bodies, after which the clock is read again.
const CLOCK_MSGS: u32 = 256;
const CLOCK_BYTES: usize = 64 << 10;
/// `offer` returns to let batches leave when this much is queued, or this much time has passed.
const OFFER_BYTES: usize = 64 << 10;
const OFFER_NS: i64 = 200_000;
/// Room for the decimal digits of a key.
pub(super) const KEY_BYTES: usize = 10;

/// A producer that takes messages.
pub(super) trait Taker {
    /// Bytes of closed batches that have not left.
    fn queued_bytes(&self) -> usize;
    /// Whether `drive` would send something at once.
    fn could_send(&self) -> bool;
    /// There was no room: `drive` is to say when there is.
    fn wait_for_room(&mut self);
    /// Puts a message into a batch.
    fn take(&mut self, departure: &Departure<'_>, shared: &mut Shared);
}

/// See [`LaneClient::offer`](crate::LaneClient::offer).
#[inline]
pub(super) fn offer(
    producer: &mut impl Taker,
    emitter: &mut Emitter,
    observer: &mut Observer,
    shared: &mut Shared,
    now_ns: i64,
) -> Offer {
    let began_ns = now_ns;
    let queued_before = producer.queued_bytes();
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
        if !has_room_for(payload_bytes, producer.queued_bytes(), shared) {
            if shared.spec.closed_loop && producer.could_send() {
                return Offer::More;
            }
            producer.wait_for_room();
            return Offer::Full;
        }
        let Some(departure) = emitter.take(now_ns) else {
            return Offer::Taken;
        };
        observer.sent(&departure);
        msgs += 1;
        bytes += payload_bytes;
        producer.take(&departure, shared);
        if producer.queued_bytes() >= queued_before + OFFER_BYTES.min(shared.spec.batch.bytes.max(1)) {
            return Offer::More;
        }
    }
}

fn has_room_for(payload_bytes: usize, queued_bytes: usize, shared: &Shared) -> bool {
    let batch = &shared.spec.batch;
    if shared.spec.closed_loop && queued_bytes >= batch.bytes.max(1) {
        return false;
    }
    // An empty lane takes a message of any size.
    shared.buffered_bytes + payload_bytes <= batch.buffer_bytes || shared.buffered_bytes == 0
}

/// The decimal digits of a key.
pub(super) fn decimal(mut key: u32, digits: &mut [u8; KEY_BYTES]) -> &[u8] {
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
