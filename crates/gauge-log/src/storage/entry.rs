//! The form of one entry in the journal: a 40-byte header, then the payload, padded to 8 bytes.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0-3 | magic | `SGL2` |
//! | 4-7 | crc | CRC-32C of header bytes 8-39 and of the payload's first bytes (`GUARDED_BYTES` for a record batch, all of it for the others) |
//! | 8-15 | position | where the entry lies in the journal: an old block of a reused file, or one written to the wrong place, never passes |
//! | 16-19 | partition | the partition's internal id; 0 for other kinds |
//! | 20-23 | payload length | bytes |
//! | 24-27 | group | bytes between the end of the last entry of the commit before this entry's own, and this entry |
//! | 28 | kind | see `Kind` |
//! | 29 | flags | bit 0: the first entry of a chunk; bit 1: written in `fsync` mode |
//! | 30-31 | gap | bytes of padding between the end of the entry before and this one |
//! | 32-35 | changes | changes in the journal before this entry, modulo 2^32 |
//! | 36-39 | records | offsets given to batches in the journal before this entry, modulo 2^32 |
//!
//! A record batch carries a CRC-32C of its own over everything behind its first 21 bytes. The header's CRC covers those 21 bytes (and so
//! that CRC), hence every byte is checked exactly by what was computed where the byte was made: by the producer, or here.
//!
//! *Gap* makes a lost entry visible: each says where the one before it ended, so that zeroes which should not be there are never taken for padding. *Group* tells a torn
//! commit from damage to what was acknowledged: commits are written one after the other, so that whatever is of a commit shows that every entry of the commits before it had been
//! written (and, in `fsync` mode, was on the device). The two counts tell what was in a place that is lost.

use std::ops::ControlFlow;

use super::buffer::BLOCK_BYTES;
use crate::batch;
use crate::mutants::{self, Mutant};

/// Bytes of an entry's header.
pub const HEADER_BYTES: usize = 40;
/// Entries begin at multiples of this.
pub const ALIGNMENT: usize = 8;
/// The payload bytes of a record batch that the header's CRC covers.
const GUARDED_BYTES: usize = 21;
const MAGIC: [u8; 4] = *b"SGL2";
/// The first bytes of a segment that an earlier version wrote.
pub const MAGIC_OF_FORMAT_1: [u8; 4] = *b"SGL1";
const FLAG_CHUNK_START: u8 = 1;
const FLAG_SYNCED: u8 = 2;

/// What an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A record batch of a partition.
    Batch,
    /// A change of the log's own state (see `storage::change`).
    Change,
}

/// The header of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Where the entry begins in the journal.
    pub position: u64,
    /// Internal id of the partition.
    pub partition: u32,
    /// Bytes of the payload.
    pub payload_bytes: u32,
    /// Bytes between the end of the last entry of the commit before and `position`.
    pub group_bytes: u32,
    /// What the payload is.
    pub kind: Kind,
    /// Whether a chunk begins here.
    pub chunk_start: bool,
    /// Whether it was written in `fsync` mode.
    pub synced: bool,
    /// Bytes of padding before it.
    pub gap_bytes: u16,
    /// What the journal holds before it.
    pub counts: Counts,
}

impl Header {
    /// Where the entry before it ended.
    pub fn previous_end(&self) -> u64 {
        self.position - u64::from(self.gap_bytes)
    }

    /// Every entry before this position was on the device when this one was written, as far as it can tell.
    pub fn proves(&self) -> u64 {
        if self.synced {
            self.position - u64::from(self.group_bytes)
        } else {
            0
        }
    }
}

/// How much was appended to the journal, modulo 2^32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Changes of state.
    pub changes: u32,
    /// Offsets given to batches.
    pub records: u32,
}

impl Counts {
    /// Behind an entry with this payload.
    pub fn after(self, kind: Kind, payload: &[u8]) -> Self {
        match kind {
            Kind::Change => Self {
                changes: self.changes.wrapping_add(1),
                ..self
            },
            Kind::Batch => Self {
                records: self
                    .records
                    .wrapping_add(batch::header(payload).offset_count as u32),
                ..self
            },
        }
    }

    /// What was appended between `before` and here.
    pub fn since(self, before: Self) -> Self {
        Self {
            changes: self.changes.wrapping_sub(before.changes),
            records: self.records.wrapping_sub(before.records),
        }
    }
}

/// Bytes that an entry with a payload of `payload_bytes` takes, padding included.
pub fn footprint(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(ALIGNMENT)
}

fn crc(kind: Kind, header: &[u8], payload: &[u8]) -> u32 {
    let guarded = match kind {
        Kind::Batch => &payload[..GUARDED_BYTES],
        Kind::Change => payload,
    };
    gauge_load::crc::crc32c_append(gauge_load::crc::crc32c(&header[8..HEADER_BYTES]), guarded)
}

/// The header's bytes for `payload`; of a record batch, which must already have its base offset, its own header is enough.
pub fn encode(header: &Header, payload: &[u8]) -> [u8; HEADER_BYTES] {
    debug_assert!(header.payload_bytes as usize == payload.len() || header.kind == Kind::Batch);
    let mut bytes = [0u8; HEADER_BYTES];
    bytes[0..4].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&header.position.to_le_bytes());
    bytes[16..20].copy_from_slice(&header.partition.to_le_bytes());
    bytes[20..24].copy_from_slice(&header.payload_bytes.to_le_bytes());
    bytes[24..28].copy_from_slice(&header.group_bytes.to_le_bytes());
    bytes[28] = match header.kind {
        Kind::Batch => 1,
        Kind::Change => 2,
    };
    bytes[29] = u8::from(header.chunk_start) * FLAG_CHUNK_START + u8::from(header.synced) * FLAG_SYNCED;
    bytes[30..32].copy_from_slice(&header.gap_bytes.to_le_bytes());
    bytes[32..36].copy_from_slice(&header.counts.changes.to_le_bytes());
    bytes[36..40].copy_from_slice(&header.counts.records.to_le_bytes());
    let crc = crc(header.kind, &bytes, payload);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0u8; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Reads and checks the entry at the front of `bytes`, which is claimed to lie at `position` of the journal; returns its header and payload.
/// None when there is no whole, undamaged entry of that position.
pub fn decode(bytes: &[u8], position: u64) -> Option<(Header, &[u8])> {
    if bytes.len() < HEADER_BYTES || bytes[0..4] != MAGIC {
        return None;
    }
    let is_here = u64::from_le_bytes(field(bytes, 8)) == position;
    if !is_here && !mutants::is(Mutant::ChecksumNotBoundToPosition) {
        return None;
    }
    let kind = match bytes[28] {
        1 => Kind::Batch,
        2 => Kind::Change,
        _ => return None,
    };
    let payload_bytes = u32::from_le_bytes(field(bytes, 20));
    let payload = bytes.get(HEADER_BYTES..HEADER_BYTES + payload_bytes as usize)?;
    if kind == Kind::Batch && payload.len() < batch::HEADER_BYTES {
        return None;
    }
    if crc(kind, &bytes[..HEADER_BYTES], payload) != u32::from_le_bytes(field(bytes, 4)) {
        return None;
    }
    if kind == Kind::Batch && !batch::crc_matches(payload) {
        return None;
    }
    let header = Header {
        position,
        partition: u32::from_le_bytes(field(bytes, 16)),
        payload_bytes,
        group_bytes: u32::from_le_bytes(field(bytes, 24)),
        kind,
        chunk_start: bytes[29] & FLAG_CHUNK_START != 0,
        synced: bytes[29] & FLAG_SYNCED != 0,
        gap_bytes: u16::from_le_bytes(field(bytes, 30)),
        counts: Counts {
            changes: u32::from_le_bytes(field(bytes, 32)),
            records: u32::from_le_bytes(field(bytes, 36)),
        },
    };
    // Nothing begins before the journal does.
    let is_possible = u64::from(header.group_bytes) <= position && u64::from(header.gap_bytes) <= position;
    is_possible.then_some((header, payload))
}

/// Makes the position and the checksums of whatever looks like an entry right, for fuzzing: nothing behind them would ever be reached.
#[doc(hidden)]
pub fn mend(bytes: &mut [u8], start: u64) {
    for at in (0..bytes.len()).step_by(ALIGNMENT) {
        let entry = &mut bytes[at..];
        if entry.len() < HEADER_BYTES || entry[..4] != MAGIC {
            continue;
        }
        entry[8..16].copy_from_slice(&(start + at as u64).to_le_bytes());
        let payload_bytes = u32::from_le_bytes(field(entry, 20)) as usize;
        let (header, rest) = entry.split_at_mut(HEADER_BYTES);
        let Some(payload) = rest.get_mut(..payload_bytes) else {
            continue;
        };
        let kind = if header[28] == 1 {
            Kind::Batch
        } else {
            Kind::Change
        };
        if kind == Kind::Batch {
            if payload_bytes < batch::HEADER_BYTES {
                continue;
            }
            let crc = gauge_load::crc::crc32c(&payload[GUARDED_BYTES..]);
            payload[17..21].copy_from_slice(&crc.to_be_bytes());
        }
        let crc = crc(kind, header, payload);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

/// What a walk over a piece of the journal meets.
#[derive(Debug)]
pub enum Step<'a> {
    /// A whole entry: where it lies in the piece, its header, its payload.
    Entry(usize, Header, &'a [u8]),
    /// Entries are missing: bytes `from..to` of the piece hold neither an entry nor the zeroes that pad a commit.
    Damage(usize, usize),
}

/// Walks over `bytes`, which begin at journal position `start` (where a chunk begins), and calls `visit` for every entry and every damaged range,
/// in order, until it breaks off. Behind a damaged range the walk goes on at the next whole entry. What follows the last entry is not judged.
pub fn walk<'a>(bytes: &'a [u8], start: u64, mut visit: impl FnMut(Step<'a>) -> ControlFlow<()>) {
    let mut end = 0;
    while let Some((at, header, payload)) = next(bytes, start, end) {
        let claimed = header.previous_end().saturating_sub(start) as usize;
        if claimed > end && visit(Step::Damage(end, claimed)).is_break() {
            return;
        }
        if visit(Step::Entry(at, header, payload)).is_break() {
            return;
        }
        end = at + footprint(payload.len());
    }
}

/// The first whole entry at or behind `from` in `bytes`, which begin at journal position `start`: where it lies, its header, its payload.
pub fn next(bytes: &[u8], start: u64, from: usize) -> Option<(usize, Header, &[u8])> {
    let mut at = from.next_multiple_of(ALIGNMENT);
    while at + HEADER_BYTES <= bytes.len() {
        if bytes[at..at + 4] == MAGIC
            && let Some((header, payload)) = decode(&bytes[at..], start + at as u64)
        {
            return Some((at, header, payload));
        }
        // Zeroes come by the block.
        let block = (at + 1).next_multiple_of(BLOCK_BYTES).min(bytes.len());
        at = match is_zero(&bytes[at..block]) {
            true => block,
            false => at + ALIGNMENT,
        };
    }
    None
}

/// Whether there is nothing but zeroes.
pub fn is_zero(bytes: &[u8]) -> bool {
    // Most bytes that are no zeroes show it at once; a whole block is looked at faster without a branch for each byte.
    bytes.iter().take(ALIGNMENT).all(|&byte| byte == 0) && bytes.iter().fold(0, |any, &byte| any | byte) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = Vec::new();
        let mut starts = Vec::new();
        let mut counts = Counts::default();
        for partition in 0..5u32 {
            let payload = batch::for_test(2, 100 + partition as usize, (-1, -1, -1));
            let header = Header {
                position: 8192 + bytes.len() as u64,
                partition,
                payload_bytes: payload.len() as u32,
                group_bytes: 0,
                kind: Kind::Batch,
                chunk_start: partition == 0,
                synced: true,
                gap_bytes: 0,
                counts,
            };
            counts = counts.after(Kind::Batch, &payload);
            starts.push(bytes.len());
            bytes.extend(encode(&header, &payload));
            bytes.extend(&payload);
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        }
        bytes.resize(8192, 0);
        (bytes, starts)
    }

    fn partitions(bytes: &[u8], start: u64) -> (Vec<u32>, usize) {
        let (mut found, mut damaged) = (Vec::new(), 0);
        walk(bytes, start, |step| {
            match step {
                Step::Entry(_, header, _) => found.push(header.partition),
                Step::Damage(..) => damaged += 1,
            }
            ControlFlow::Continue(())
        });
        (found, damaged)
    }

    #[test]
    fn a_walk_finds_every_entry_and_skips_padding() {
        let (bytes, _) = piece();
        assert_eq!(partitions(&bytes, 8192), (vec![0, 1, 2, 3, 4], 0));
    }

    #[test]
    fn entries_of_another_position_are_never_found() {
        let (bytes, _) = piece();
        assert_eq!(partitions(&bytes, 4096).0, Vec::<u32>::new());
    }

    #[test]
    fn any_flipped_byte_removes_exactly_the_entry_it_lies_in() {
        let (bytes, starts) = piece();
        for at in starts[2]..starts[3] - 7 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(partitions(&damaged, 8192), (vec![0, 1, 3, 4], 1), "byte {at}");
        }
    }

    #[test]
    fn a_block_of_zeroes_is_no_padding() {
        let (bytes, starts) = piece();
        let mut damaged = bytes.clone();
        damaged[starts[1]..starts[2]].fill(0);
        assert_eq!(partitions(&damaged, 8192), (vec![0, 2, 3, 4], 1));
    }

    #[test]
    fn an_entry_says_what_was_lost_before_it() {
        let (bytes, starts) = piece();
        let (_, header, _) = next(&bytes, 8192, starts[3]).unwrap();
        let lost = header.counts.since(Counts {
            changes: 0,
            records: 2,
        });
        assert_eq!((lost.changes, lost.records), (0, 4));
        assert_eq!(header.previous_end(), 8192 + starts[3] as u64);
        assert_eq!(header.proves(), header.position);
    }
}
