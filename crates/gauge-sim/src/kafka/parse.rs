//! Reads the record batches that clients send.

use crate::truth::{Message, MessageKey};

/// What a record batch of Kafka says, and its messages. The records must not be compressed.
#[derive(Debug)]
pub struct Parsed {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub records: i32,
    pub messages: Vec<Message>,
    /// Of each message (probes left out), where its body lies.
    pub bodies: Vec<std::ops::Range<usize>>,
}

/// Bytes before the records.
pub const HEADER_BYTES: usize = 61;

/// Reads a batch that a client sent.
///
/// # Errors
/// What is wrong with it.
pub fn parse(batch: &[u8]) -> Result<Parsed, String> {
    if batch.len() < HEADER_BYTES || batch.len() != 12 + be32(batch, 8) as usize {
        return Err(format!("a batch of {} bytes has another length", batch.len()));
    }
    if crc32c::crc32c(&batch[21..]) != be32(batch, 17) {
        return Err("a batch has another checksum than its bytes".to_owned());
    }
    let records = be32(batch, 57).cast_signed();
    if be32(batch, 23).cast_signed() + 1 != records || batch[22] & 7 != 0 {
        return Err("a batch has another number of records, or is compressed".to_owned());
    }
    let mut parsed = Parsed {
        producer_id: be64(batch, 43),
        producer_epoch: i16::from_be_bytes([batch[51], batch[52]]),
        base_sequence: be32(batch, 53).cast_signed(),
        records,
        messages: Vec::with_capacity(records as usize),
        bodies: Vec::with_capacity(records as usize),
    };
    let (first_ms, mut last_ms) = (be64(batch, 27), i64::MIN);
    let mut at = HEADER_BYTES;
    for number in 0..records {
        let length = varint(batch, &mut at)? as usize;
        let end = at + length;
        at += 1;
        last_ms = last_ms.max(first_ms + varint(batch, &mut at)?);
        if varint(batch, &mut at)? != i64::from(number) {
            return Err("records of a batch are not numbered through".to_owned());
        }
        let key_bytes = varint(batch, &mut at)?;
        let key = usize::try_from(key_bytes).ok();
        let key = key.and_then(|key_bytes| batch.get(at..at + key_bytes));
        at += key.map_or(0, <[u8]>::len);
        let body_bytes = varint(batch, &mut at)? as usize;
        let body = batch
            .get(at..at + body_bytes)
            .ok_or("a record ends beyond its batch")?;
        if let Some(message) = Message::read(body)? {
            let key = MessageKey::told(key);
            parsed.messages.push(Message { key, ..message });
            parsed.bodies.push(at..at + body_bytes);
        }
        at = end;
    }
    let told_ms = be64(batch, 35);
    if told_ms != last_ms {
        return Err(format!(
            "a batch says that its last message is of {told_ms}, and it is of {last_ms}"
        ));
    }
    if at != batch.len() {
        return Err("the records of a batch have another length than it says".to_owned());
    }
    Ok(parsed)
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be64(bytes: &[u8], at: usize) -> i64 {
    i64::from(be32(bytes, at).cast_signed()) << 32 | i64::from(be32(bytes, at + 4))
}

fn varint(bytes: &[u8], at: &mut usize) -> Result<i64, String> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let byte = *bytes.get(*at).ok_or("a record ends too early")?;
        *at += 1;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
        }
        shift += 7;
        if shift > 63 {
            return Err("a number in a record does not end".to_owned());
        }
    }
}
