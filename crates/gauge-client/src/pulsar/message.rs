//! The payload behind a command: a checksum, the batch's metadata, and the messages.
//!
//! ```text
//! 0x0e01 | CRC-32C of what follows | length | MessageMetadata | messages, compressed as a whole
//! ```
//!
//! In a batch each message is: length, SingleMessageMetadata, body. A broker may put metadata of its own in front (`0x0e02`, a length
//! and as many bytes), which is skipped.

use gauge_load::crc::crc32c;

use super::wire::{Fields, Malformed, Value, varint_bytes, write_varint};

/// In front of a checksum.
pub(super) const CHECKSUM_MAGIC: [u8; 2] = [0x0E, 0x01];
/// In front of what the broker adds.
const BROKER_MAGIC: [u8; 2] = [0x0E, 0x02];

const CUT: Malformed = Malformed("a message ends before its metadata does");
/// Tags of SingleMessageMetadata: partition_key and payload_size.
const TAG_KEY: u8 = 2 << 3 | 2;
const TAG_PAYLOAD_SIZE: u8 = 3 << 3;

/// Bytes in front of a message's body in a batch.
#[inline]
pub(super) fn head_bytes(payload_bytes: usize, key: &[u8]) -> usize {
    let key_bytes = match key.len() {
        0 => 0,
        length => 2 + length,
    };
    4 + 1 + varint_bytes(payload_bytes as u64) + key_bytes
}

/// Writes what stands in front of a message's body; `key` has at most 127 bytes. Returns the length, which is `head_bytes`.
#[inline]
pub(super) fn write_head(into: &mut [u8], payload_bytes: usize, key: &[u8]) -> usize {
    let mut at = 4;
    if !key.is_empty() {
        into[at] = TAG_KEY;
        into[at + 1] = key.len() as u8;
        into[at + 2..at + 2 + key.len()].copy_from_slice(key);
        at += 2 + key.len();
    }
    into[at] = TAG_PAYLOAD_SIZE;
    at += 1;
    at += write_varint(&mut into[at..], payload_bytes as u64);
    into[..4].copy_from_slice(&((at - 4) as u32).to_be_bytes());
    at
}

/// An entry as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Number of the codec.
    pub compression: u64,
    pub uncompressed_bytes: usize,
    /// How many messages there are; None: one that is no batch.
    pub messages: Option<u32>,
    /// A marker of the broker's own (transactions, replication), which is no message.
    pub is_marker: bool,
    pub is_encrypted: bool,
    pub body: &'a [u8],
}

impl Entry<'_> {
    /// For how many messages the broker counts this entry.
    pub fn permits(&self) -> u32 {
        self.messages.unwrap_or(1)
    }
}

/// What is wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Checksum,
    Malformed(Malformed),
}

impl From<Malformed> for Broken {
    fn from(malformed: Malformed) -> Broken {
        Broken::Malformed(malformed)
    }
}

/// Splits a field with a length of four bytes off the front.
#[inline]
fn split_sized(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (size, rest) = bytes.split_first_chunk::<4>().ok_or(CUT)?;
    rest.split_at_checked(u32::from_be_bytes(*size) as usize)
        .ok_or(CUT)
}

/// The checksum of an entry, if it has one, and what it covers.
#[inline]
fn without_checksum(mut bytes: &[u8]) -> Result<(Option<u32>, &[u8]), Malformed> {
    if let Some(rest) = bytes.strip_prefix(&BROKER_MAGIC) {
        bytes = split_sized(rest)?.1;
    }
    match bytes.strip_prefix(&CHECKSUM_MAGIC) {
        None => Ok((None, bytes)),
        Some(rest) => {
            let (checksum, covered) = rest.split_first_chunk::<4>().ok_or(CUT)?;
            Ok((Some(u32::from_be_bytes(*checksum)), covered))
        }
    }
}

/// Reads an entry and verifies its checksum, if it has one.
pub(super) fn read(bytes: &[u8]) -> Result<Entry<'_>, Broken> {
    let (checksum, covered) = without_checksum(bytes)?;
    if checksum.is_some_and(|checksum| checksum != crc32c(covered)) {
        return Err(Broken::Checksum);
    }
    let (metadata, body) = split_sized(covered)?;
    let mut entry = Entry {
        compression: 0,
        uncompressed_bytes: 0,
        messages: None,
        is_marker: false,
        is_encrypted: false,
        body,
    };
    let mut fields = Fields::new(metadata);
    while let Some((field, value)) = fields.next()? {
        match field {
            8 => entry.compression = value.number()?,
            9 => entry.uncompressed_bytes = usize::try_from(value.number()?).unwrap_or(usize::MAX),
            11 => {
                let messages = u32::try_from(value.number()?);
                entry.messages = Some(messages.map_err(|_| Malformed("a batch of a negative number"))?);
            }
            13 => entry.is_encrypted = true,
            20 => entry.is_marker = true,
            _ => {}
        }
    }
    Ok(entry)
}

/// For how many messages the broker counts an entry, whose checksum may be wrong: the broker reads the same metadata.
pub(super) fn counted(bytes: &[u8]) -> u32 {
    let metadata = || {
        let (metadata, _) = split_sized(without_checksum(bytes)?.1)?;
        let mut fields = Fields::new(metadata);
        while let Some((field, value)) = fields.next()? {
            if field == 11 {
                return value.number();
            }
        }
        Ok(1)
    };
    // What the broker cannot read either it does not send.
    metadata().map_or(1, |messages| u32::try_from(messages).unwrap_or(1))
}

/// Hands over the bodies of a batch's messages that are in `ack_set` (empty: all).
#[inline]
pub(super) fn each(
    mut batch: &[u8],
    messages: u32,
    ack_set: &[u64],
    mut take: impl FnMut(&[u8]),
) -> Result<(), Malformed> {
    for index in 0..messages {
        let (metadata, rest) = split_sized(batch)?;
        let single = single(metadata)?;
        let (body, rest) = rest.split_at_checked(single.payload_bytes).ok_or(CUT)?;
        batch = rest;
        let word = ack_set.get(index as usize / 64).copied();
        let is_meant = ack_set.is_empty() || word.is_some_and(|word| word >> (index % 64) & 1 == 1);
        if is_meant && !single.is_compacted_out {
            take(body);
        }
    }
    Ok(())
}

struct Single {
    payload_bytes: usize,
    is_compacted_out: bool,
}

#[inline]
fn single(metadata: &[u8]) -> Result<Single, Malformed> {
    let mut single = Single {
        payload_bytes: 0,
        is_compacted_out: false,
    };
    let mut fields = Fields::new(metadata);
    while let Some((field, value)) = fields.next()? {
        match (field, value) {
            (3, Value::Number(bytes)) => single.payload_bytes = usize::try_from(bytes).map_err(|_| CUT)?,
            (4, Value::Number(flag)) => single.is_compacted_out = flag != 0,
            _ => {}
        }
    }
    Ok(single)
}

#[cfg(test)]
mod tests {
    use super::super::wire::Put;
    use super::*;
    use proptest::prelude::*;

    fn entry(messages: u32, body: &[u8]) -> Vec<u8> {
        let mut metadata = Vec::new();
        metadata.put_bytes(1, b"p");
        metadata.put_number(2, 0);
        metadata.put_number(3, 1);
        metadata.put_number(11, u64::from(messages));
        let mut covered = (metadata.len() as u32).to_be_bytes().to_vec();
        covered.extend_from_slice(&metadata);
        covered.extend_from_slice(body);
        let mut bytes = CHECKSUM_MAGIC.to_vec();
        bytes.extend_from_slice(&crc32c(&covered).to_be_bytes());
        bytes.extend_from_slice(&covered);
        bytes
    }

    fn batch(bodies: &[&[u8]], key: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for body in bodies {
            let mut head = [0; 32];
            let length = write_head(&mut head, body.len(), key);
            assert_eq!(length, head_bytes(body.len(), key));
            bytes.extend_from_slice(&head[..length]);
            bytes.extend_from_slice(body);
        }
        bytes
    }

    #[test]
    fn messages_are_framed_as_the_specification_says() {
        assert_eq!(batch(&[b"ab"], b""), b"\0\0\0\x02\x18\x02ab");
        assert_eq!(batch(&[b"ab"], b"17"), b"\0\0\0\x06\x12\x0217\x18\x02ab");
    }

    #[test]
    fn an_entry_is_read_and_its_checksum_verified() {
        let bodies: [&[u8]; 3] = [b"one", b"", b"three"];
        let bytes = entry(3, &batch(&bodies, b"9"));
        let found = read(&bytes).expect("it is whole");
        let mut taken = Vec::new();
        each(found.body, found.permits(), &[], |body| taken.push(body.to_vec())).expect("it is whole");
        assert_eq!(taken, bodies);
        taken.clear();
        each(found.body, 3, &[0b100], |body| taken.push(body.to_vec())).expect("it is whole");
        assert_eq!(taken, [b"three"]);
        let mut with_broker = BROKER_MAGIC.to_vec();
        with_broker.extend_from_slice(&[0, 0, 0, 2, 8, 1]);
        with_broker.extend_from_slice(&bytes);
        assert_eq!(read(&with_broker), Ok(found));
        let mut wrong = bytes.clone();
        *wrong.last_mut().expect("it is not empty") ^= 1;
        assert_eq!(read(&wrong), Err(Broken::Checksum));
        assert_eq!((counted(&wrong), counted(b"nothing")), (3, 1));
        assert!(each(&found.body[..5], 3, &[], |_| {}).is_err());
    }

    proptest! {
        #[test]
        fn garbage_is_no_reason_to_panic(bytes: Vec<u8>, messages: u32) {
            let _ = read(&bytes);
            let _ = counted(&bytes);
            let _ = each(&bytes, messages, &[], |_| {});
        }
    }
}
