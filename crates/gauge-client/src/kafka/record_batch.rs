//! Record batches, version 2 ("magic 2"): built in place and parsed in place.
//!
//! ```text
//! offset size field (big-endian)                     offset size field
//!      0    8 base offset                                35    8 largest timestamp, ms since 1970
//!      8    4 length of what follows this field          43    8 producer id
//!     12    4 leader epoch, set by the broker            51    2 producer epoch
//!     16    1 magic: 2                                   53    4 base sequence
//!     17    4 CRC-32C from offset 21 to the end          57    4 number of records
//!     21    2 attributes                                 61      the records, compressed as a whole
//!     23    4 offset of the last record, relative
//!     27    8 timestamp of the first record
//! ```
//!
//! A record is a length, one unused byte, timestamp and offset relative to the batch, key, value and headers, with lengths and
//! deltas as zigzag varints. Source: the Kafka protocol guide, "Record Batch"; KIP-98.

use gauge_load::crc::crc32c;

use super::wire::Malformed;

/// Bytes before the records.
pub(crate) const HEADER_BYTES: usize = 61;
/// Bytes before the leader epoch: base offset and length, which every version of the format begins with.
pub(crate) const PREFIX_BYTES: usize = 12;

const MAGIC: u8 = 2;
pub(crate) const CRC_FROM: usize = 21;
/// Bits of the attributes.
const COMPRESSION_MASK: i16 = 0x07;
const CONTROL: i16 = 0x20;

/// Everything in a batch's header that its records do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub records: u32,
    /// Number of the codec, 0 for none.
    pub compression: i16,
    pub first_timestamp_ms: i64,
    pub last_timestamp_ms: i64,
    /// -1 without idempotence, and then `producer_epoch` and `base_sequence` as well.
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
}

/// Writes the header of a batch whose records are in place and computes its CRC.
///
/// # Panics
/// When `batch` is shorter than a header.
pub(crate) fn seal(batch: &mut [u8], seal: &Seal) {
    let length = (batch.len() - PREFIX_BYTES) as i32;
    let mut header = [0u8; HEADER_BYTES];
    header[8..12].copy_from_slice(&length.to_be_bytes());
    header[12..16].copy_from_slice(&(-1i32).to_be_bytes());
    header[16] = MAGIC;
    header[21..23].copy_from_slice(&seal.compression.to_be_bytes());
    header[23..27].copy_from_slice(&(seal.records as i32 - 1).to_be_bytes());
    header[27..35].copy_from_slice(&seal.first_timestamp_ms.to_be_bytes());
    header[35..43].copy_from_slice(&seal.last_timestamp_ms.to_be_bytes());
    header[43..51].copy_from_slice(&seal.producer_id.to_be_bytes());
    header[51..53].copy_from_slice(&seal.producer_epoch.to_be_bytes());
    header[53..57].copy_from_slice(&seal.base_sequence.to_be_bytes());
    header[57..61].copy_from_slice(&seal.records.to_be_bytes());
    batch[..HEADER_BYTES].copy_from_slice(&header);
    let crc = crc32c(&batch[CRC_FROM..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Bytes of a zigzag varint of `value`.
#[inline]
fn varint_bytes(value: u64) -> usize {
    // Seven bits per byte, and at least one byte.
    let bits = 64 - (value | 1).leading_zeros() as usize;
    (bits * 9 + 64) / 64
}

#[inline]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

#[inline]
fn put_varint(out: &mut [u8], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        out[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    out[at] = value as u8;
    at + 1
}

/// The sizes of a record, computed before it is written, so that a batch can refuse it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordSize {
    /// What the record's length field says.
    body_bytes: usize,
    /// The whole record.
    pub bytes: usize,
}

/// The size of a record with this place in its batch. `key_bytes` None: a null key.
#[inline]
pub(crate) fn record_size(
    timestamp_delta_ms: i64,
    offset_delta: u32,
    key_bytes: Option<usize>,
    value_bytes: usize,
) -> RecordSize {
    let key = match key_bytes {
        None => 1,
        Some(bytes) => varint_bytes((bytes as u64) << 1) + bytes,
    };
    // One byte of attributes, and one for the number of headers, which is zero.
    let body_bytes = 2
        + varint_bytes(zigzag(timestamp_delta_ms))
        + varint_bytes(u64::from(offset_delta) << 1)
        + key
        + varint_bytes((value_bytes as u64) << 1)
        + value_bytes;
    RecordSize {
        body_bytes,
        bytes: varint_bytes((body_bytes as u64) << 1) + body_bytes,
    }
}

/// How many more records of this size fit into a batch that may be `bytes` long, is `len` long and has `records`: an offset's varint grows
/// with the number of records in front of it.
pub(crate) fn room(
    len: usize,
    records: u32,
    bytes: usize,
    timestamp_delta_ms: i64,
    key_bytes: Option<usize>,
    value_bytes: usize,
) -> usize {
    let (mut left, mut at) = (bytes.saturating_sub(len), records as usize);
    for until in [0x40, 0x2000, 0x10_0000, 0x800_0000] {
        if at >= until {
            continue;
        }
        let size = record_size(timestamp_delta_ms, until as u32 - 1, key_bytes, value_bytes).bytes;
        let fit = left / size;
        if at + fit < until {
            return at + fit - records as usize;
        }
        left -= (until - at) * size;
        at = until;
    }
    at - records as usize
}

/// Writes a record into `out`, which has exactly its size, and returns the place of its value, to be filled by the caller.
#[inline]
pub(crate) fn write_record<'a>(
    out: &'a mut [u8],
    size: RecordSize,
    timestamp_delta_ms: i64,
    offset_delta: u32,
    key: Option<&[u8]>,
    value_bytes: usize,
) -> &'a mut [u8] {
    let mut at = put_varint(out, 0, (size.body_bytes as u64) << 1);
    out[at] = 0;
    at = put_varint(out, at + 1, zigzag(timestamp_delta_ms));
    at = put_varint(out, at, u64::from(offset_delta) << 1);
    match key {
        None => {
            // The zigzag form of -1.
            out[at] = 1;
            at += 1;
        }
        Some(key) => {
            at = put_varint(out, at, (key.len() as u64) << 1);
            out[at..at + key.len()].copy_from_slice(key);
            at += key.len();
        }
    }
    at = put_varint(out, at, (value_bytes as u64) << 1);
    out[at + value_bytes] = 0;
    &mut out[at..at + value_bytes]
}

/// Bytes behind a record that writing it by its shape may touch; they belong to the next record.
pub(crate) const SHAPE_SLACK_BYTES: usize = 16;

/// What the records of a batch have in common when they have no key, the same length and the same timestamp: everything around their
/// values except for the offset. It is worked out once and copied in portions of fixed size, which costs a third of writing each
/// varint by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    timestamp_delta_ms: i64,
    value_bytes: usize,
    /// The offsets whose varints have the same length.
    offset_from: u32,
    offset_until: u32,
    offset_bytes: usize,
    /// Length, attributes and timestamp.
    before: [u8; SHAPE_SLACK_BYTES],
    before_bytes: usize,
    /// The null key and the value's length.
    after: [u8; 8],
    after_bytes: usize,
    /// The whole record.
    pub bytes: usize,
}

impl Shape {
    /// The shape of records like this one; it fits none when the offset needs more than three bytes.
    pub fn new(timestamp_delta_ms: i64, offset_delta: u32, value_bytes: usize) -> Shape {
        let size = record_size(timestamp_delta_ms, offset_delta, None, value_bytes);
        let mut shape = Shape {
            timestamp_delta_ms,
            value_bytes,
            bytes: size.bytes,
            ..Shape::default()
        };
        (shape.offset_from, shape.offset_until, shape.offset_bytes) = match offset_delta {
            0..0x40 => (0, 0x40, 1),
            0x40..0x2000 => (0x40, 0x2000, 2),
            0x2000..0x10_0000 => (0x2000, 0x10_0000, 3),
            _ => return shape,
        };
        let at = put_varint(&mut shape.before, 0, (size.body_bytes as u64) << 1);
        // The attributes are zero already.
        shape.before_bytes = put_varint(&mut shape.before, at + 1, zigzag(timestamp_delta_ms));
        shape.after[0] = 1;
        shape.after_bytes = put_varint(&mut shape.after, 1, (value_bytes as u64) << 1);
        shape
    }

    /// Whether a record has this shape.
    #[inline]
    pub fn fits(&self, timestamp_delta_ms: i64, offset_delta: u32, value_bytes: usize) -> bool {
        offset_delta >= self.offset_from
            && offset_delta < self.offset_until
            && timestamp_delta_ms == self.timestamp_delta_ms
            && value_bytes == self.value_bytes
    }

    /// Writes a record that fits, into `out`, which is longer than it by the slack; returns the place of its value.
    #[inline]
    pub fn write<'a>(&self, out: &'a mut [u8], offset_delta: u32) -> &'a mut [u8] {
        out[..SHAPE_SLACK_BYTES].copy_from_slice(&self.before);
        let zigzag = offset_delta << 1;
        let varint = match self.offset_bytes {
            1 => zigzag,
            2 => (zigzag & 0x7F | 0x80) | (zigzag >> 7) << 8,
            _ => (zigzag & 0x7F | 0x80) | ((zigzag >> 7) & 0x7F | 0x80) << 8 | (zigzag >> 14) << 16,
        };
        let at = self.before_bytes;
        out[at..at + 4].copy_from_slice(&varint.to_le_bytes());
        let at = at + self.offset_bytes;
        out[at..at + 8].copy_from_slice(&self.after);
        let at = at + self.after_bytes;
        out[at + self.value_bytes] = 0;
        &mut out[at..at + self.value_bytes]
    }
}

/// The header of a batch that a broker sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub base_offset: i64,
    /// Offset of the first message after this batch.
    pub next_offset: i64,
    /// Number of the codec, 0 for none.
    pub compression: i16,
    /// Whether it holds a marker of a transaction and no messages.
    pub is_control: bool,
    pub records: u32,
    /// Of the leader that took it.
    pub leader_epoch: i32,
}

/// What stands at the beginning of some bytes of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A batch of this many bytes.
    Batch(Header, usize),
    /// A message set of this many bytes in the format of Kafka before 0.11, with the offset of its last message.
    Old(i64, usize),
    /// The beginning of a batch; the rest was cut off by the limit of the fetch.
    Partial,
}

fn word(bytes: &[u8], at: usize) -> i32 {
    bytes[at..]
        .first_chunk::<4>()
        .map_or(0, |chunk| i32::from_be_bytes(*chunk))
}

fn long(bytes: &[u8], at: usize) -> i64 {
    bytes[at..]
        .first_chunk::<8>()
        .map_or(0, |chunk| i64::from_be_bytes(*chunk))
}

/// Looks at the batch at the beginning of `bytes`, without verifying its CRC.
///
/// # Errors
/// When lengths or counts contradict each other.
pub(crate) fn peek(bytes: &[u8]) -> Result<Found, Malformed> {
    if bytes.len() < HEADER_BYTES {
        // Too short for a batch of ours; an old message set could be shorter, but needs 17 bytes to show what it is.
        if bytes.len() > 16 && bytes[16] < MAGIC {
            return peek_old(bytes);
        }
        return Ok(Found::Partial);
    }
    if bytes[16] < MAGIC {
        return peek_old(bytes);
    }
    if bytes[16] != MAGIC {
        return Err(Malformed("a batch of an unknown version"));
    }
    let length = usize::try_from(word(bytes, 8)).map_err(|_| Malformed("a batch of negative length"))?;
    let total = length.saturating_add(PREFIX_BYTES);
    if total < HEADER_BYTES {
        return Err(Malformed("a batch that is shorter than its header"));
    }
    if total > bytes.len() {
        return Ok(Found::Partial);
    }
    let (base_offset, last_delta) = (long(bytes, 0), word(bytes, 23));
    let attributes = i16::from_be_bytes([bytes[21], bytes[22]]);
    let records = u32::try_from(word(bytes, 57)).map_err(|_| Malformed("a batch of negative count"))?;
    if base_offset < 0 || last_delta < 0 || base_offset > i64::MAX - i64::from(last_delta) - 1 {
        return Err(Malformed("a batch with offsets that cannot be"));
    }
    let header = Header {
        base_offset,
        next_offset: base_offset + i64::from(last_delta) + 1,
        compression: attributes & COMPRESSION_MASK,
        is_control: attributes & CONTROL != 0,
        records,
        leader_epoch: word(bytes, 12),
    };
    Ok(Found::Batch(header, total))
}

fn peek_old(bytes: &[u8]) -> Result<Found, Malformed> {
    let length = usize::try_from(word(bytes, 8)).map_err(|_| Malformed("a message of negative length"))?;
    let total = length.saturating_add(PREFIX_BYTES);
    if total > bytes.len() {
        return Ok(Found::Partial);
    }
    Ok(Found::Old(long(bytes, 0), total))
}

/// Whether the CRC of a whole batch is right.
pub(crate) fn is_whole(batch: &[u8]) -> bool {
    batch.len() >= HEADER_BYTES && crc32c(&batch[CRC_FROM..]) == word(batch, 17).cast_unsigned()
}

/// Walks over uncompressed records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    left: u32,
}

const RECORD_SHORT: Malformed = Malformed("a record that ends outside of its batch");

impl<'a> Records<'a> {
    /// The records of a batch with a verified header; `bytes` begins with the first of `count`.
    pub fn new(bytes: &'a [u8], count: u32) -> Records<'a> {
        Records {
            bytes,
            at: 0,
            left: count,
        }
    }

    #[inline]
    fn varint(&mut self) -> Result<i64, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or(RECORD_SHORT)?;
        self.at += 1;
        if byte < 0x80 {
            return Ok(i64::from(byte >> 1) ^ -i64::from(byte & 1));
        }
        let mut value = u64::from(byte & 0x7F);
        for shift in (7..70).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or(RECORD_SHORT)?;
            self.at += 1;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
            }
        }
        Err(Malformed("a varint does not end"))
    }

    /// The next record as (offset relative to the batch, value); a null value is an empty one. None after the last.
    ///
    /// # Errors
    /// When a length points outside; the rest of the batch cannot be read then.
    #[inline]
    pub fn next(&mut self) -> Result<Option<(i64, &'a [u8])>, Malformed> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let length = usize::try_from(self.varint()?).map_err(|_| RECORD_SHORT)?;
        let end = self.at.checked_add(length).ok_or(RECORD_SHORT)?;
        if end > self.bytes.len() {
            return Err(RECORD_SHORT);
        }
        // The unused attributes.
        self.at += 1;
        self.varint()?;
        let offset_delta = self.varint()?;
        let key = self.varint()?;
        if key > 0 {
            self.at = self
                .at
                .checked_add(usize::try_from(key).map_err(|_| RECORD_SHORT)?)
                .ok_or(RECORD_SHORT)?;
        }
        let value = usize::try_from(self.varint()?.max(0)).map_err(|_| RECORD_SHORT)?;
        let value_end = self.at.checked_add(value).ok_or(RECORD_SHORT)?;
        if value_end > end {
            return Err(RECORD_SHORT);
        }
        let value = &self.bytes[self.at..value_end];
        self.at = end;
        Ok(Some((offset_delta, value)))
    }
}

/// The hash with which Kafka's Java client spreads keys over partitions: MurmurHash2, 32 bits, by Austin Appleby, with the
/// client's seed; the partition is the hash without its sign bit, modulo the number of partitions.
pub(crate) fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_B28C;
    const M: u32 = 0x5BD1_E995;
    let mut hash = SEED ^ key.len() as u32;
    let mut chunks = key.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// The partition of a key among `partitions`, as Kafka's Java client chooses it.
#[inline]
pub(crate) fn partition_of(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7FFF_FFFF) % partitions.max(1)
}
