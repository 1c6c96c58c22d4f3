//! The publish command: one frame with many messages for one stream.
//!
//! Publisher (1 byte) and number of messages (4), then for each message its publishing number (8), its length (4) and its bytes. A frame
//! is built before it is known over which connection, and as which publisher of it, it will leave; that is filled in when it does.

use super::super::batch::Batch;
use super::message;
use super::wire::{HEAD_BYTES, key};

/// Bytes before the first message.
pub(super) const FRAME_BYTES: usize = HEAD_BYTES + 1 + 4;
const COUNT_AT: usize = HEAD_BYTES + 1;
/// Publishing number and length before a message.
const ENTRY_BYTES: usize = 8 + 4;

/// Bytes of a message in a frame.
#[inline]
pub(super) fn entry_bytes(body_bytes: usize) -> usize {
    ENTRY_BYTES + message::head_bytes(body_bytes) + body_bytes
}

/// The publishing number of a message: they begin with 1, since 0 is what a server answers for a publisher that it does not know.
#[inline]
pub(super) fn number_of(serial: u64) -> u64 {
    serial + 1
}

/// Begins a frame.
pub(super) fn begin(batch: &mut Batch) {
    let head = batch.extend(FRAME_BYTES);
    head.fill(0);
    head[4..6].copy_from_slice(&key::PUBLISH.to_be_bytes());
    // Version 1.
    head[7] = 1;
}

/// Appends a message, whose body `write` fills in. Its serial number is that of the batch's next message.
#[inline]
pub(super) fn append(batch: &mut Batch, body_bytes: usize, write: impl FnOnce(&mut [u8])) {
    let number = number_of(batch.end_serial());
    let place = batch.extend(entry_bytes(body_bytes));
    place[..8].copy_from_slice(&number.to_be_bytes());
    let message_bytes = (place.len() - ENTRY_BYTES) as u32;
    place[8..12].copy_from_slice(&message_bytes.to_be_bytes());
    write(message::write_head(&mut place[ENTRY_BYTES..], body_bytes));
    batch.messages += 1;
}

/// Ends a frame with as many messages as were appended.
pub(super) fn end(batch: &mut Batch) {
    let messages = batch.messages;
    set_count(batch, messages);
}

fn set_count(batch: &mut Batch, messages: u32) {
    let length = (batch.len() - 4) as u32;
    let bytes = batch.bytes_mut();
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes[COUNT_AT..FRAME_BYTES].copy_from_slice(&messages.to_be_bytes());
}

/// Fills in the publisher.
pub(super) fn address(batch: &mut Batch, publisher: u8) {
    batch.bytes_mut()[HEAD_BYTES] = publisher;
}

/// Removes the messages that do not wait any more (by serial number). Returns whether any is left.
pub(super) fn compact(batch: &mut Batch, is_waiting: impl Fn(u64) -> bool) -> bool {
    let bytes = batch.bytes_mut();
    let (mut from, mut kept_bytes, mut kept) = (FRAME_BYTES, FRAME_BYTES, 0);
    while let Some(head) = bytes[from..].first_chunk::<ENTRY_BYTES>() {
        let [a, b, c, d, e, f, g, h, length @ ..] = *head;
        let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let length = ENTRY_BYTES + u32::from_be_bytes(length) as usize;
        if is_waiting(number - 1) {
            bytes.copy_within(from..from + length, kept_bytes);
            kept_bytes += length;
            kept += 1;
        }
        from += length;
    }
    batch.shorten(kept_bytes);
    set_count(batch, kept);
    kept > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Batch {
        let mut batch = Batch::default();
        batch.first_serial = 9;
        begin(&mut batch);
        for body in [b"a", b"b", b"c"] {
            append(&mut batch, 1, |place| place.copy_from_slice(body));
        }
        end(&mut batch);
        batch
    }

    #[test]
    fn a_frame_holds_numbered_messages() {
        let mut batch = filled();
        address(&mut batch, 5);
        let bytes = batch.as_ref();
        assert_eq!(bytes.len(), FRAME_BYTES + 3 * entry_bytes(1));
        assert_eq!(bytes[..4], ((bytes.len() - 4) as u32).to_be_bytes());
        assert_eq!(bytes[4..13], [0, 2, 0, 1, 5, 0, 0, 0, 3]);
        let first = [0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 6, 0, 0x53, 0x75, 0xa0, 1, b'a'];
        assert_eq!(bytes[13..31], first);
    }

    #[test]
    fn what_is_sent_again_keeps_its_numbers() {
        let mut batch = filled();
        assert!(compact(&mut batch, |serial| serial != 10));
        let bytes = batch.as_ref();
        assert_eq!(bytes[..4], ((bytes.len() - 4) as u32).to_be_bytes());
        assert_eq!(bytes[9..13], [0, 0, 0, 2]);
        assert_eq!((bytes[20], bytes[20 + entry_bytes(1)]), (10, 12));
        assert_eq!(batch.end_serial(), 12);
        assert!(compact(&mut batch, |serial| serial == 11));
        assert!(!compact(&mut batch, |_| false));
        assert_eq!(batch.len(), FRAME_BYTES);
    }
}
