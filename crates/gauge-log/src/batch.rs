//! The header of a record batch, format version 2, as far as a log needs it.
//!
//! Source: <https://kafka.apache.org/documentation/#recordbatch> (KIP-98). A batch is checked (length, magic, CRC-32C), gets its base offset, and is stored and served as
//! the bytes that the producer made. Records are looked at only when somebody asks for a time, and never inflated.

/// Bytes of a batch's header, up to its first record.
pub const HEADER_BYTES: usize = 61;
/// Where the bytes begin that a batch's own CRC covers (its attributes).
const CRC_FROM: usize = 21;
/// Bytes of the smallest record: its length, attributes, deltas of time and offset, lengths of key and value, and its count of headers, a byte each.
const RECORD_BYTES_MIN: i64 = 7;
/// Attribute bits: how the records are compressed, 0 for not at all.
const COMPRESSION: i16 = 0x07;
/// Attribute bit: the largest timestamp is every record's.
const LOG_APPEND_TIME: i16 = 0x08;
/// Attribute bit: the batch belongs to a transaction.
const TRANSACTIONAL: i16 = 0x10;
/// Attribute bit: the batch is a control batch, which producers may not send.
const CONTROL: i16 = 0x20;

/// Why a batch is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// Its bytes do not match its CRC, or its length field does not match the bytes sent (CORRUPT_MESSAGE).
    Corrupt(&'static str),
    /// It is whole, but not something that this log stores (INVALID_RECORD).
    Invalid(&'static str),
    /// An old message format (UNSUPPORTED_FOR_MESSAGE_FORMAT).
    OldFormat,
    /// Its timestamps claim to be those of the log's own clock (INVALID_TIMESTAMP).
    LogAppendTime,
}

/// What a log needs to know of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Offsets that the batch takes: its last offset delta plus one.
    pub offset_count: i64,
    /// Largest timestamp of its records, ms since the epoch (or as the producer set it).
    pub timestamp_ms_max: i64,
    /// Producer id, -1 for a producer that is not idempotent.
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// Sequence number of the first record.
    pub base_sequence: i32,
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0u8; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Reads the header of a batch that is known to be whole (at least `HEADER_BYTES` long).
pub fn header(batch: &[u8]) -> Header {
    Header {
        base_offset: i64::from_be_bytes(field(batch, 0)),
        offset_count: i64::from(i32::from_be_bytes(field(batch, 23))) + 1,
        timestamp_ms_max: i64::from_be_bytes(field(batch, 35)),
        producer_id: i64::from_be_bytes(field(batch, 43)),
        producer_epoch: i16::from_be_bytes(field(batch, 51)),
        base_sequence: i32::from_be_bytes(field(batch, 53)),
    }
}

/// Whether the CRC that a whole batch carries matches its bytes.
pub fn crc_matches(batch: &[u8]) -> bool {
    batch.len() >= HEADER_BYTES
        && gauge_load::crc::crc32c(&batch[CRC_FROM..]) == u32::from_be_bytes(field(batch, 17))
}

/// Checks the records of one partition in a Produce request: exactly one whole batch of format 2 (as brokers demand since KIP-98).
pub fn check(records: &[u8]) -> Result<Header, Rejected> {
    if records.len() > 16 && records[16] != 2 {
        return Err(if records[16] < 2 {
            Rejected::OldFormat
        } else {
            Rejected::Invalid("unknown batch format")
        });
    }
    if records.len() < HEADER_BYTES {
        return Err(Rejected::Corrupt("the record batch is shorter than its header"));
    }
    let length = i32::from_be_bytes(field(records, 8));
    if length < (HEADER_BYTES - 12) as i32 || length as usize + 12 > records.len() {
        return Err(Rejected::Corrupt(
            "the record batch's length does not match its bytes",
        ));
    }
    if (length as usize) + 12 != records.len() {
        return Err(Rejected::Invalid(
            "a Produce request holds exactly one record batch per partition",
        ));
    }
    if !crc_matches(records) {
        return Err(Rejected::Corrupt("the record batch does not match its CRC"));
    }
    let attributes = i16::from_be_bytes(field(records, 21));
    if attributes & (TRANSACTIONAL | CONTROL) != 0 {
        return Err(Rejected::Invalid(
            "transactional and control batches are not supported",
        ));
    }
    if attributes & LOG_APPEND_TIME != 0 {
        return Err(Rejected::LogAppendTime);
    }
    let header = header(records);
    let record_count = i64::from(i32::from_be_bytes(field(records, 57)));
    if record_count < 1 || record_count != header.offset_count {
        return Err(Rejected::Invalid(
            "the record count does not match the last offset delta",
        ));
    }
    let bytes_per_record = match attributes & COMPRESSION {
        0 => RECORD_BYTES_MIN,
        _ => 0,
    };
    if record_count * bytes_per_record > (records.len() - HEADER_BYTES) as i64 {
        return Err(Rejected::Invalid("so many records have no room in the batch"));
    }
    Ok(header)
}

/// The first record of a whole batch that has offset `from` or a larger one and a timestamp of `threshold_ms` or later: (timestamp in ms, offset). The error is the largest timestamp that
/// there is instead, ms (`i64::MIN` when all offsets are smaller).
///
/// Of compressed records only the header is known: the timestamp of the first one and the largest. When the first one is too old, the answer is the largest timestamp, and the
/// batch's first offset from `from` on (reading from there misses nothing), or for the newest record (`is_newest`) its last offset, where it is as long as time does not go
/// backwards. The same holds for records that cannot be read.
pub fn find_time(batch: &[u8], threshold_ms: i64, from: i64, is_newest: bool) -> Result<(i64, i64), i64> {
    let attributes = i16::from_be_bytes(field(batch, 21));
    if attributes & (COMPRESSION | LOG_APPEND_TIME) == 0
        && let Some(found) = find_record(batch, threshold_ms, from)
    {
        return found;
    }
    let header = header(batch);
    let last_offset = header.base_offset + header.offset_count - 1;
    let first_ms = match attributes & LOG_APPEND_TIME {
        0 => i64::from_be_bytes(field(batch, 27)),
        _ => header.timestamp_ms_max,
    };
    if last_offset < from {
        return Err(i64::MIN);
    }
    if header.timestamp_ms_max < threshold_ms {
        return Err(header.timestamp_ms_max);
    }
    Ok(if first_ms >= threshold_ms && header.base_offset >= from {
        (first_ms, header.base_offset)
    } else if is_newest {
        (header.timestamp_ms_max, last_offset)
    } else {
        (header.timestamp_ms_max, header.base_offset.max(from))
    })
}

/// `find_time` record by record; None when they cannot be read.
fn find_record(batch: &[u8], threshold_ms: i64, from: i64) -> Option<Result<(i64, i64), i64>> {
    let (base_offset, base_ms) = (header(batch).base_offset, i64::from_be_bytes(field(batch, 27)));
    let count = i32::from_be_bytes(field(batch, 57));
    let mut rest = &batch[HEADER_BYTES..];
    let mut newest_ms = i64::MIN;
    for _ in 0..count {
        let length = usize::try_from(varint(&mut rest)?).ok()?;
        let (record, behind) = rest.split_at_checked(length)?;
        rest = behind;
        // One byte of attributes that no one uses.
        let mut fields = record.get(1..)?;
        let timestamp_ms = base_ms.checked_add(varint(&mut fields)?)?;
        let offset = base_offset.checked_add(varint(&mut fields)?)?;
        if offset < from {
            continue;
        }
        if timestamp_ms >= threshold_ms {
            return Some(Ok((timestamp_ms, offset)));
        }
        newest_ms = newest_ms.max(timestamp_ms);
    }
    Some(Err(newest_ms))
}

/// Takes a zigzag number of variable length off the front.
fn varint(bytes: &mut &[u8]) -> Option<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

/// Sets the base offset and the leader epoch (always 0 here), which the batch's own CRC does not cover.
pub fn place(batch: &mut [u8], base_offset: i64) {
    batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[12..16].copy_from_slice(&0i32.to_be_bytes());
}

/// A batch with `record_count` records of `payload_bytes` zero bytes in all; for tests of the log (the records are not valid Kafka records).
#[doc(hidden)]
pub fn for_test(record_count: i32, payload_bytes: usize, producer: (i64, i16, i32)) -> Vec<u8> {
    let mut batch = vec![0u8; HEADER_BYTES + payload_bytes];
    let length = (batch.len() - 12) as i32;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[16] = 2;
    batch[23..27].copy_from_slice(&(record_count - 1).to_be_bytes());
    batch[35..43].copy_from_slice(&1_700_000_000_000i64.to_be_bytes());
    batch[43..51].copy_from_slice(&producer.0.to_be_bytes());
    batch[51..53].copy_from_slice(&producer.1.to_be_bytes());
    batch[53..57].copy_from_slice(&producer.2.to_be_bytes());
    batch[57..61].copy_from_slice(&record_count.to_be_bytes());
    let crc = gauge_load::crc::crc32c(&batch[CRC_FROM..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_batch_passes_and_every_flipped_byte_is_noticed() {
        let batch = for_test(3, 40, (-1, -1, -1));
        assert_eq!(check(&batch).map(|header| header.offset_count), Ok(3));
        // The base offset and the leader epoch are the broker's to set; everything else must be noticed.
        for at in (8..12).chain(16..batch.len()) {
            let mut damaged = batch.clone();
            damaged[at] ^= 0x40;
            assert!(check(&damaged).is_err(), "byte {at} flipped unnoticed");
        }
    }

    #[test]
    fn what_a_producer_may_not_say_is_refused() {
        let changed = |at: usize, value: u8| {
            let mut batch = for_test(3, 40, (-1, -1, -1));
            batch[at] = value;
            let crc = gauge_load::crc::crc32c(&batch[CRC_FROM..]);
            batch[17..21].copy_from_slice(&crc.to_be_bytes());
            check(&batch)
        };
        assert!(changed(22, 0).is_ok());
        assert_eq!(changed(22, 0x08), Err(Rejected::LogAppendTime));
        assert!(matches!(changed(22, 0x10), Err(Rejected::Invalid(_))));
        assert!(matches!(changed(22, 0x20), Err(Rejected::Invalid(_))));
    }

    #[test]
    fn more_records_than_there_are_bytes_for_are_refused() {
        assert!(check(&for_test(4, 28, (-1, -1, -1))).is_ok());
        assert!(matches!(
            check(&for_test(5, 28, (-1, -1, -1))),
            Err(Rejected::Invalid(_))
        ));
        assert!(matches!(
            check(&for_test(i32::MAX, 28, (-1, -1, -1))),
            Err(Rejected::Invalid(_))
        ));
    }

    #[test]
    fn placing_a_batch_leaves_its_crc_valid() {
        let mut batch = for_test(1, 10, (-1, -1, -1));
        place(&mut batch, 123);
        assert_eq!(check(&batch).map(|header| header.base_offset), Ok(123));
    }

    /// A batch at offset 100 whose records have these timestamps, ms.
    fn timed(times: &[i64], attributes: i16) -> Vec<u8> {
        let put = |bytes: &mut Vec<u8>, value: i64| {
            let mut value = (value << 1 ^ value >> 63) as u64;
            while value >= 0x80 {
                bytes.push(value as u8 | 0x80);
                value >>= 7;
            }
            bytes.push(value as u8);
        };
        let mut batch = for_test(times.len() as i32, 0, (-1, -1, -1));
        place(&mut batch, 100);
        batch[21..23].copy_from_slice(&attributes.to_be_bytes());
        batch[27..35].copy_from_slice(&times[0].to_be_bytes());
        batch[35..43].copy_from_slice(&times.iter().max().unwrap().to_be_bytes());
        for (delta, time) in times.iter().enumerate() {
            let mut record = vec![0];
            put(&mut record, time - times[0]);
            put(&mut record, delta as i64);
            // No key, no value, no headers.
            record.extend([1, 1, 0]);
            put(&mut batch, record.len() as i64);
            batch.extend(record);
        }
        batch
    }

    #[test]
    fn a_time_is_found_record_by_record() {
        let batch = timed(&[1_000, 5_000, 3_000, 90_000, 90_000], 0);
        let find = |threshold_ms, from| find_time(&batch, threshold_ms, from, false);
        assert_eq!(find(0, 0), Ok((1_000, 100)));
        assert_eq!(find(1_001, 0), Ok((5_000, 101)));
        assert_eq!(find(1_001, 102), Ok((3_000, 102)));
        assert_eq!(find(90_000, 0), Ok((90_000, 103)));
        assert_eq!(find(90_001, 0), Err(90_000));
        assert_eq!(find(0, 105), Err(i64::MIN));
    }

    #[test]
    fn of_compressed_records_the_header_is_known() {
        let batch = timed(&[1_000, 5_000, 4_000], 4);
        let find = |threshold_ms, from| find_time(&batch, threshold_ms, from, false);
        assert_eq!(find(1_000, 0), Ok((1_000, 100)));
        assert_eq!(find(1_001, 0), Ok((5_000, 100)));
        assert_eq!(find(1_000, 101), Ok((5_000, 101)));
        assert_eq!(find_time(&batch, 5_000, 0, true), Ok((5_000, 102)));
        assert_eq!(find(5_001, 0), Err(5_000));
    }

    #[test]
    fn records_that_cannot_be_read_are_like_compressed_ones() {
        let mut batch = timed(&[1_000, 5_000], 0);
        batch.truncate(batch.len() - 3);
        assert_eq!(find_time(&batch, 1_001, 0, false), Ok((5_000, 100)));
        let nothing = for_test(2, 40, (-1, -1, -1));
        assert_eq!(find_time(&nothing, 1, 0, false), Ok((1_700_000_000_000, 0)));
    }

    #[test]
    fn two_batches_in_one_field_are_refused() {
        let mut records = for_test(1, 10, (-1, -1, -1));
        records.extend(for_test(1, 10, (-1, -1, -1)));
        assert!(matches!(check(&records), Err(Rejected::Invalid(_))));
    }
}
