//! What clients write, read by a parser of the world's own, and what brokers write.

use std::collections::HashMap;
use std::ops::Range;

use crate::truth::{Message, MessageKey};

/// What a client says.
#[derive(Debug, PartialEq, Eq)]
pub enum Command<'a> {
    Connect,
    Ping,
    Pong,
    Lookup {
        topic: &'a str,
        request: u64,
        is_authoritative: bool,
    },
    Producer {
        topic: &'a str,
        id: u64,
        request: u64,
        name: &'a str,
        epoch: u64,
    },
    Send {
        producer: u64,
        sequence: u64,
        messages: u64,
        highest: u64,
        payload: &'a [u8],
    },
    Subscribe(Subscribe<'a>),
    Flow {
        consumer: u64,
        permits: u64,
    },
    Ack {
        consumer: u64,
        is_cumulative: bool,
        entries: Vec<(i64, i64)>,
    },
    CloseConsumer {
        consumer: u64,
        request: u64,
    },
    LastMessageId {
        consumer: u64,
        request: u64,
    },
}

/// What a consumer asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    pub topic: &'a str,
    pub subscription: &'a str,
    pub kind: u64,
    pub consumer: u64,
    pub request: u64,
    pub name: &'a str,
    pub is_earliest: bool,
}

#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// A message of Protocol Buffers: its fields, in their order.
struct Fields<'a>(Vec<(u64, Value<'a>)>);

impl<'a> Fields<'a> {
    fn read(mut bytes: &'a [u8]) -> Result<Fields<'a>, String> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            let value = match tag & 7 {
                0 => Value::Number(varint(&mut bytes)?),
                2 => {
                    let length = varint(&mut bytes)? as usize;
                    let (value, rest) = bytes
                        .split_at_checked(length)
                        .ok_or("a field ends beyond its message")?;
                    bytes = rest;
                    Value::Bytes(value)
                }
                other => return Err(format!("a field has the wire type {other}")),
            };
            fields.push((tag >> 3, value));
        }
        Ok(Fields(fields))
    }

    fn all(&self, field: u64) -> impl Iterator<Item = Value<'a>> {
        let of = self.0.iter().filter(move |(number, _)| *number == field);
        of.map(|(_, value)| *value)
    }

    fn maybe(&self, field: u64) -> Option<u64> {
        match self.all(field).last()? {
            Value::Number(number) => Some(number),
            Value::Bytes(_) => None,
        }
    }

    fn number(&self, field: u64) -> Result<u64, String> {
        self.maybe(field)
            .ok_or_else(|| format!("a command lacks its number {field}"))
    }

    fn bytes(&self, field: u64) -> Result<&'a [u8], String> {
        match self.all(field).last() {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            _ => Err(format!("a command lacks its text {field}")),
        }
    }

    fn text(&self, field: u64) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes(field)?).map_err(|_| "a text is not UTF-8".to_owned())
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0;
    for shift in 0..10 {
        let (byte, rest) = bytes.split_first().ok_or("a number ends too early")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7F) << (7 * shift);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number does not end".to_owned())
}

fn be32(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
}

/// The first command and its length; None while it is not there whole.
///
/// # Errors
/// What is wrong with it.
pub fn command(bytes: &[u8]) -> Result<Option<(Command<'_>, usize)>, String> {
    let (Some(total), Some(length)) = (be32(bytes, 0), be32(bytes, 4)) else {
        return Ok(None);
    };
    let Some(frame) = bytes.get(4..4 + total) else {
        return Ok(None);
    };
    let (head, payload) = frame[4..]
        .split_at_checked(length)
        .ok_or("a frame is shorter than its command")?;
    let outer = Fields::read(head)?;
    let kind = outer.number(1)?;
    let body = Fields::read(outer.bytes(kind)?)?;
    let command = match kind {
        2 => {
            body.text(1)?;
            Command::Connect
        }
        5 => Command::Producer {
            topic: body.text(1)?,
            id: body.number(2)?,
            request: body.number(3)?,
            name: body.text(4)?,
            epoch: body.number(8)?,
        },
        4 => Command::Subscribe(Subscribe {
            topic: body.text(1)?,
            subscription: body.text(2)?,
            kind: body.number(3)?,
            consumer: body.number(4)?,
            request: body.number(5)?,
            name: body.text(6)?,
            is_earliest: body.number(13)? == 1,
        }),
        6 => Command::Send {
            producer: body.number(1)?,
            sequence: body.number(2)?,
            messages: body.number(3)?,
            highest: body.number(6)?,
            payload,
        },
        10 => {
            let mut entries = Vec::new();
            for value in body.all(3) {
                let Value::Bytes(id) = value else {
                    return Err("an acknowledgement of no entry".to_owned());
                };
                let id = Fields::read(id)?;
                entries.push((id.number(1)?.cast_signed(), id.number(2)?.cast_signed()));
            }
            Command::Ack {
                consumer: body.number(1)?,
                is_cumulative: body.number(2)? == 1,
                entries,
            }
        }
        11 => Command::Flow {
            consumer: body.number(1)?,
            permits: body.number(2)?,
        },
        16 => Command::CloseConsumer {
            consumer: body.number(1)?,
            request: body.number(2)?,
        },
        18 => Command::Ping,
        19 => Command::Pong,
        23 => Command::Lookup {
            topic: body.text(1)?,
            request: body.number(2)?,
            is_authoritative: body.maybe(3) == Some(1),
        },
        29 => Command::LastMessageId {
            consumer: body.number(1)?,
            request: body.number(2)?,
        },
        other => return Err(format!("nobody has to say a command of the kind {other}")),
    };
    if kind != 6 && !payload.is_empty() {
        return Err("a command has something behind it".to_owned());
    }
    Ok(Some((command, 4 + total)))
}

/// A batch, and its messages.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub key: Vec<u8>,
    pub messages: Vec<Message>,
    /// Of each message (probes left out): where what stands before its body lies, and where the body does.
    pub heads: Vec<usize>,
    pub bodies: Vec<Range<usize>>,
}

/// Where the checksum covers a batch from.
const COVERED_FROM: usize = 6;

/// Reads a batch that a client sent, which must not be compressed.
///
/// # Errors
/// What is wrong with it.
pub fn batch(payload: &[u8], name: &str, sequence: u64, messages: u64) -> Result<Parsed, String> {
    if payload.get(..2) != Some(&[0x0E, 0x01]) {
        return Err("a batch has no checksum".to_owned());
    }
    let covered = payload.get(COVERED_FROM..).ok_or("a batch ends too early")?;
    if be32(payload, 2) != Some(crc32c::crc32c(covered) as usize) {
        return Err("a batch has another checksum than its bytes".to_owned());
    }
    let metadata_bytes = be32(payload, COVERED_FROM).ok_or("a batch ends too early")?;
    let from = COVERED_FROM + 4;
    let metadata = payload
        .get(from..from + metadata_bytes)
        .ok_or("a batch ends too early")?;
    let metadata = Fields::read(metadata)?;
    if metadata.text(1)? != name
        || metadata.number(2)? != sequence
        || metadata.number(11)? != messages
        || metadata.number(24)? != sequence + messages - 1
        || metadata.maybe(8).is_some()
    {
        return Err("a batch is another than its command says, or is compressed".to_owned());
    }
    metadata.number(3)?;
    let mut parsed = Parsed {
        key: metadata.bytes(6).unwrap_or_default().to_vec(),
        messages: Vec::new(),
        heads: Vec::new(),
        bodies: Vec::new(),
    };
    let mut at = from + metadata_bytes;
    for _ in 0..messages {
        let head = at;
        let single_bytes = be32(payload, at).ok_or("a message ends too early")?;
        let single = payload
            .get(at + 4..at + 4 + single_bytes)
            .ok_or("a message ends too early")?;
        let single = Fields::read(single)?;
        let body_bytes = single.number(3)? as usize;
        at += 4 + single_bytes;
        let body = payload
            .get(at..at + body_bytes)
            .ok_or("a message ends too early")?;
        if let Some(message) = Message::read(body)? {
            let key = MessageKey::told(single.bytes(2).ok());
            parsed.messages.push(Message { key, ..message });
            parsed.heads.push(head);
            parsed.bodies.push(at..at + body_bytes);
        }
        at += body_bytes;
    }
    if at != payload.len() {
        return Err("a batch has another length than its messages".to_owned());
    }
    Ok(parsed)
}

/// The checksum is that of the bytes, whatever they are now.
pub fn seal(payload: &mut [u8]) {
    let checksum = crc32c::crc32c(&payload[COVERED_FROM..]);
    payload[2..COVERED_FROM].copy_from_slice(&checksum.to_be_bytes());
}

/// The topic (without its namespace) and the partition of a full name.
pub fn partition(name: &str) -> Option<(&str, i32)> {
    let rest = name.strip_prefix("persistent://public/default/")?;
    let (topic, partition) = rest.rsplit_once("-partition-")?;
    Some((topic, partition.parse().ok()?))
}

/// A body that is being written.
#[derive(Clone, Debug, Default)]
pub struct Body(Vec<u8>);

impl Body {
    fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub fn number(mut self, field: u64, value: u64) -> Body {
        self.put(field << 3);
        self.put(value);
        self
    }

    pub fn bytes(mut self, field: u64, value: &[u8]) -> Body {
        self.put(field << 3 | 2);
        self.put(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub fn text(self, field: u64, value: &str) -> Body {
        self.bytes(field, value.as_bytes())
    }

    /// An entry's number; (-1, -1): none.
    pub fn entry(self, field: u64, (ledger, entry): (i64, i64)) -> Body {
        let id = Body::default()
            .number(1, ledger.cast_unsigned())
            .number(2, entry.cast_unsigned());
        self.bytes(field, &id.0)
    }
}

/// A command's frame.
pub fn frame(kind: u64, body: Body, payload: &[u8]) -> Vec<u8> {
    let command = Body::default().number(1, kind).bytes(kind, &body.0).0;
    let total = 4 + command.len() + payload.len();
    let mut bytes = (total as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&(command.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&command);
    bytes.extend_from_slice(payload);
    bytes
}

/// Where entries are, by their numbers.
pub type Index = HashMap<(i64, i64), usize>;

/// The name of the producer of a batch.
pub fn name(payload: &[u8]) -> Option<&str> {
    let metadata_bytes = be32(payload, COVERED_FROM)?;
    let from = COVERED_FROM + 4;
    let metadata = Fields::read(payload.get(from..from + metadata_bytes)?).ok()?;
    metadata.text(1).ok()
}
