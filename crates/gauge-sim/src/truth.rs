//! What the world knows of a trial: what was sent, stored, acknowledged and delivered, and when. Nothing here is asked of the gauge.

use std::collections::HashMap;

use gauge_load::stamp::{self, Checked, PROBE_PRODUCER};

use crate::net::Delivery;

/// A message as it was found in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub producer: u32,
    pub sequence: u64,
    pub intended_ns: i64,
}

/// A batch that reached a log.
#[derive(Debug)]
pub struct Batch {
    pub slot: usize,
    pub messages: Vec<Message>,
    /// When followers had it, so that consumers could read it.
    pub visible_ns: i64,
    /// Which of its messages were damaged in the log.
    pub damaged: Vec<usize>,
    /// It is in the log at the end.
    pub is_alive: bool,
}

/// When something was read by the client: by its clock, and in which turn of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub read_ns: i64,
    pub turn_ns: i64,
}

/// When a message was taken: between two readings of the clock, in a turn of the lane.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub from_ns: i64,
    pub until_ns: i64,
    pub turn_ns: i64,
}

/// Everything that happened.
#[derive(Debug, Default)]
pub struct Truth {
    /// Per producer and sequence.
    pub taken: HashMap<u32, Vec<Taken>>,
    /// Per producer and sequence: when it was due, of those that reached a wire.
    pub intended: HashMap<(u32, u64), i64>,
    pub acked: HashMap<(u32, u64), Seen>,
    pub batches: Vec<Batch>,
    /// Per subscription and batch: the answers that were read with it.
    pub delivered: HashMap<(usize, usize), Vec<Seen>>,
    /// Per subscription and slot: when the latest answer was made of those that were read and told where the slot ends.
    pub told_ns: HashMap<(usize, usize), i64>,
    /// Whether anything stored was lost again by the system.
    pub has_truncated: bool,
    /// What the client did that no client may do.
    pub offences: Vec<String>,
}

impl Truth {
    pub fn took(&mut self, producer: u32, messages: u64, taken: Taken) {
        let all = self.taken.entry(producer).or_default();
        all.extend((0..messages).map(|_| taken));
    }

    /// A batch reached a broker, whatever becomes of it.
    pub fn met(&mut self, messages: &[Message]) {
        for message in messages {
            let key = (message.producer, message.sequence);
            let known = *self.intended.entry(key).or_insert(message.intended_ns);
            if known != message.intended_ns {
                self.offend(|| format!("{key:?} is due at {known} and at {}", message.intended_ns));
            }
        }
    }

    /// A batch was appended to a log; returns its number.
    pub fn stored(&mut self, slot: usize, messages: Vec<Message>) -> usize {
        self.batches.push(Batch {
            slot,
            messages,
            visible_ns: i64::MAX,
            damaged: Vec::new(),
            is_alive: true,
        });
        self.batches.len() - 1
    }

    /// The client has read that these messages are acknowledged.
    pub fn acknowledged(&mut self, messages: &[Message], seen: Seen) {
        for message in messages {
            let key = (message.producer, message.sequence);
            if self.acked.insert(key, seen).is_some() {
                self.offend(|| {
                    format!("{key:?} was acknowledged twice: it was sent again after its acknowledgement")
                });
            }
        }
    }

    /// The client has read an answer to a fetch.
    pub fn delivered(&mut self, delivery: Delivery, seen: Seen) {
        let subscription = delivery.subscription;
        for batch in delivery.batches {
            let all = self.delivered.entry((subscription, batch)).or_default();
            all.push(seen);
        }
        for slot in delivery.told {
            self.told_ns.insert((subscription, slot), delivery.made_ns);
        }
    }

    pub fn offend(&mut self, what: impl FnOnce() -> String) {
        if self.offences.len() < 5 {
            self.offences.push(what());
        }
    }
}

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
        producer_id: i64::from_be_bytes(batch[43..51].try_into().map_err(|_| "short")?),
        producer_epoch: i16::from_be_bytes([batch[51], batch[52]]),
        base_sequence: be32(batch, 53).cast_signed(),
        records,
        messages: Vec::with_capacity(records as usize),
        bodies: Vec::with_capacity(records as usize),
    };
    let mut at = HEADER_BYTES;
    for number in 0..records {
        let length = varint(batch, &mut at)? as usize;
        let end = at + length;
        at += 1;
        varint(batch, &mut at)?;
        if varint(batch, &mut at)? != i64::from(number) {
            return Err("records of a batch are not numbered through".to_owned());
        }
        let key_bytes = varint(batch, &mut at)?;
        at += key_bytes.max(0) as usize;
        let body_bytes = varint(batch, &mut at)? as usize;
        let body = batch
            .get(at..at + body_bytes)
            .ok_or("a record ends beyond its batch")?;
        match stamp::check(body) {
            Checked::Whole(stamp) if stamp.producer == PROBE_PRODUCER => {}
            Checked::Whole(stamp) => {
                parsed.messages.push(Message {
                    producer: stamp.producer,
                    sequence: stamp.sequence,
                    intended_ns: stamp.intended_ns,
                });
                parsed.bodies.push(at..at + body_bytes);
            }
            other => return Err(format!("a message was sent whose stamp is {other:?}")),
        }
        at = end;
    }
    if at != batch.len() {
        return Err("the records of a batch have another length than it says".to_owned());
    }
    Ok(parsed)
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
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
