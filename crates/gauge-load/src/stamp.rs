//! The stamp: what makes a message recognisable, in its first 32 bytes.
//!
//! ```text
//! offset  size  field (little-endian)
//!      0     4  magic "SGm1"
//!      4     4  run
//!      8     4  producer
//!     12     4  checksum: CRC-32C of the bytes from 32 on, then bytes 0-11, then bytes 16-31
//!     16     8  sequence, from 0 without a gap per producer
//!     24     8  intended time, CLOCK_MONOTONIC ns of the producer's host
//! ```
//!
//! Into the checksum of a message that goes to a partition the partition is mixed, so that one that turns up in another is noticed. Readiness probes,
//! and messages of earlier releases, have it as it is.
//!
//! The checksum begins with the rest of the message because that part comes from a template: its CRC is computed once, and a
//! message costs the 28 bytes that differ.

use crate::crc::{crc32c, crc32c_append_words};

/// Bytes of the stamp; a shorter message carries none, and cannot be audited.
pub const STAMP_BYTES: usize = 32;

/// First bytes of every stamped message.
pub const MAGIC: [u8; 4] = *b"SGm1";

/// Producer number of readiness probes; their sequence is a partition slot. They are counted nowhere.
pub const PROBE_PRODUCER: u32 = u32::MAX;

/// The identity of a message and its place on the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The trial's number.
    pub run: u32,
    /// The producer's number, unique within the trial.
    pub producer: u32,
    /// Position in the producer's sequence, from 0.
    pub sequence: u64,
    /// When the schedule said that it leaves.
    pub intended_ns: i64,
}

/// What a consumer finds in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// A stamp whose checksum is right.
    Whole(Stamp),
    /// A whole stamp, of a message that was sent to another partition.
    Misrouted,
    /// The magic is there and the checksum is wrong.
    Corrupted,
    /// No stamp of ours.
    Foreign,
}

/// An odd number, so that no two partitions are mixed to the same.
const MIX: u32 = 0x9E37_79B1;
const UNMIX: u32 = inverse(MIX);
/// There are fewer partitions than this: what is mixed in says which it is, or is no partition.
const PARTITIONS_MAX: u32 = 1 << 20;

/// Of an odd number, modulo 2^32: each step doubles the bits that are right, from three on.
const fn inverse(odd: u32) -> u32 {
    let mut found = odd;
    let mut step = 0;
    while step < 4 {
        found = found.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(found)));
        step += 1;
    }
    found
}

const fn mixed(partition: u32) -> u32 {
    partition.wrapping_add(1).wrapping_mul(MIX)
}

fn is_of_a_partition(difference: u32) -> bool {
    difference.wrapping_mul(UNMIX).wrapping_sub(1) < PARTITIONS_MAX
}

/// CRC-32C of a message's bytes after the stamp, as `write` and `check` begin with it.
pub fn tail_crc(tail: &[u8]) -> u32 {
    crc32c(tail)
}

/// Writes the stamp into the first 32 bytes of `message`, whose other bytes are in place and have the CRC `tail_crc`.
///
/// # Panics
/// When the message is shorter than the stamp: the caller has checked its size once, for all messages.
#[inline]
pub fn write(message: &mut [u8], stamp: &Stamp, tail_crc: u32) {
    put(message, stamp, tail_crc, 0);
}

/// As `write`, of a message that goes to a partition.
#[inline]
pub fn write_for(message: &mut [u8], stamp: &Stamp, tail_crc: u32, partition: u32) {
    put(message, stamp, tail_crc, mixed(partition));
}

#[inline]
fn put(message: &mut [u8], stamp: &Stamp, tail_crc: u32, mixed_in: u32) {
    let head: &mut [u8; STAMP_BYTES] = (&mut message[..STAMP_BYTES])
        .try_into()
        .expect("the slice has the stamp's length");
    let first = u64::from(u32::from_le_bytes(MAGIC)) | u64::from(stamp.run) << 32;
    let intended = stamp.intended_ns.cast_unsigned();
    let checksum = crc32c_append_words(tail_crc, first, stamp.producer, stamp.sequence, intended);
    let second = u64::from(stamp.producer) | u64::from(checksum ^ mixed_in) << 32;
    head[0..8].copy_from_slice(&first.to_le_bytes());
    head[8..16].copy_from_slice(&second.to_le_bytes());
    head[16..24].copy_from_slice(&stamp.sequence.to_le_bytes());
    head[24..32].copy_from_slice(&intended.to_le_bytes());
}

/// Reads and verifies the stamp of a whole message that came through a partition.
#[inline]
pub fn check_in(message: &[u8], partition: u32) -> Checked {
    match read(message) {
        None => Checked::Foreign,
        Some((stamp, 0)) => Checked::Whole(stamp),
        Some((stamp, difference)) if difference == mixed(partition) => Checked::Whole(stamp),
        Some((_, difference)) if is_of_a_partition(difference) => Checked::Misrouted,
        Some(_) => Checked::Corrupted,
    }
}

/// Reads and verifies the stamp of a whole message, whichever partition it was sent to.
pub fn check(message: &[u8]) -> Checked {
    match read(message) {
        None => Checked::Foreign,
        Some((stamp, difference)) if difference == 0 || is_of_a_partition(difference) => {
            Checked::Whole(stamp)
        }
        Some(_) => Checked::Corrupted,
    }
}

/// The stamp, and by what its checksum differs from that of the bytes; None: it is none of ours.
#[inline]
fn read(message: &[u8]) -> Option<(Stamp, u32)> {
    let head = message.first_chunk::<STAMP_BYTES>()?;
    if head[0..4] != MAGIC {
        return None;
    }
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let tail_crc = crc32c(&message[STAMP_BYTES..]);
    let checksum = crc32c_append_words(tail_crc, long(0), word(8), long(16), long(24));
    let stamp = Stamp {
        run: word(4),
        producer: word(8),
        sequence: long(16),
        intended_ns: long(24).cast_signed(),
    };
    Some((stamp, checksum ^ word(12)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_stamp_is_read_as_written(run: u32, producer: u32, sequence: u64, intended_ns: i64,
                                      partition in 0..PARTITIONS_MAX, tail in proptest::collection::vec(any::<u8>(), 0..300)) {
            let stamp = Stamp { run, producer, sequence, intended_ns };
            let mut message = vec![0xAA; STAMP_BYTES];
            message.extend_from_slice(&tail);
            write(&mut message, &stamp, tail_crc(&tail));
            prop_assert_eq!(check(&message), Checked::Whole(stamp));
            prop_assert_eq!(check_in(&message, partition), Checked::Whole(stamp));
            write_for(&mut message, &stamp, tail_crc(&tail), partition);
            prop_assert_eq!(check(&message), Checked::Whole(stamp));
            prop_assert_eq!(check_in(&message, partition), Checked::Whole(stamp));
            prop_assert_eq!(check_in(&message, (partition + 1) % PARTITIONS_MAX), Checked::Misrouted);
        }

        #[test]
        fn every_flipped_bit_is_found(tail in proptest::collection::vec(any::<u8>(), 0..100), at: prop::sample::Index, bit in 0..8u32) {
            let mut message = vec![0; STAMP_BYTES];
            message.extend_from_slice(&tail);
            write_for(&mut message, &Stamp { run: 7, producer: 1, sequence: 9, intended_ns: 5 }, tail_crc(&tail), 3);
            let at = at.index(message.len());
            message[at] ^= 1 << bit;
            prop_assert!(!matches!(check_in(&message, 3), Checked::Whole(_)));
        }
    }

    #[test]
    fn short_and_foreign_messages_are_foreign() {
        assert_eq!(check(b"short"), Checked::Foreign);
        assert_eq!(check(&[0; 100]), Checked::Foreign);
    }
}
