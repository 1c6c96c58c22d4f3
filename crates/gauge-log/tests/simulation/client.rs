//! Requests as a client sends them, without a connection: frames in, frames out.

use gauge_log::api::{self, Outcome, Reading};
use gauge_log::broker::topics::ConnectionId;
use gauge_log::load;
use gauge_log::shared::{Shared, lock};
use gauge_log::wire::{Reader, Writer};

const CONNECTION: ConnectionId = ConnectionId { thread: 0, number: 1 };

/// A record batch: where it belongs and its number are in its first record's place, and something behind that fills it.
pub struct Batch<'a> {
    pub records: i32,
    pub producer: Option<(i64, i32)>,
    pub timestamp_ms: i64,
    pub payload: &'a [u8],
}

impl Batch<'_> {
    pub fn bytes(&self) -> Vec<u8> {
        let mut batch = vec![0u8; gauge_log::batch::HEADER_BYTES];
        batch.extend_from_slice(self.payload);
        let length = (batch.len() - 12) as i32;
        let (producer_id, sequence) = self.producer.unwrap_or((-1, -1));
        let epoch = if self.producer.is_some() { 0i16 } else { -1 };
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        batch[16] = 2;
        // The payload is not made of records; of compressed ones nobody looks at more than the header.
        batch[22] = 4;
        batch[23..27].copy_from_slice(&(self.records - 1).to_be_bytes());
        batch[27..35].copy_from_slice(&self.timestamp_ms.to_be_bytes());
        batch[35..43].copy_from_slice(&self.timestamp_ms.to_be_bytes());
        batch[43..51].copy_from_slice(&producer_id.to_be_bytes());
        batch[51..53].copy_from_slice(&epoch.to_be_bytes());
        batch[53..57].copy_from_slice(&sequence.to_be_bytes());
        batch[57..61].copy_from_slice(&self.records.to_be_bytes());
        let crc = gauge_load::crc::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        batch
    }
}

/// What a request came to: its error code and a number, once the journal is committed up to a position.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    pub error: i16,
    pub number: i64,
    pub position: u64,
}

/// The log has no memory now.
#[derive(Debug)]
pub struct Full;

fn call(
    shared: &Shared,
    (key, version): (i16, i16),
    body: impl FnOnce(&mut Writer),
    read: impl FnOnce(&mut Reader<'_>) -> gauge_log::wire::Read<(i16, i64)>,
) -> Result<Answer, Full> {
    let mut out = Writer::new(false);
    out.i16(key);
    out.i16(version);
    out.i32(7);
    out.nullable_string(Some("simulation"));
    body(&mut out);
    let outcome = api::handle(shared, CONNECTION, &out.into_bytes()).expect("the request is well formed");
    let (response, position) = match outcome {
        Outcome::Answer(response) => (response, 0),
        Outcome::AnswerAfter(response, position) => (response, position),
        Outcome::Produced {
            response, position, ..
        } => (response.expect("all requests want an answer"), position),
        Outcome::NoMemory => return Err(Full),
        other => panic!("an unexpected outcome: {other:?}"),
    };
    let mut reader = Reader::new(&response[8..], false);
    let (error, number) = read(&mut reader).expect("the response is well formed");
    Ok(Answer {
        error,
        number,
        position,
    })
}

pub fn produce(shared: &Shared, topic: &str, partition: i32, batch: &[u8]) -> Result<Answer, Full> {
    let body = |out: &mut Writer| {
        out.nullable_string(None);
        out.i16(-1);
        out.i32(1000);
        out.array(1);
        out.string(topic);
        out.array(1);
        out.i32(partition);
        out.bytes(batch);
    };
    call(shared, (0, 7), body, |reader| {
        reader.array(1)?;
        reader.string()?;
        reader.array(1)?;
        reader.i32()?;
        Ok((reader.i16()?, reader.i64()?))
    })
}

pub fn create(
    shared: &Shared,
    topic: &str,
    partitions: i32,
    retention_ms: Option<i64>,
) -> Result<Answer, Full> {
    let body = |out: &mut Writer| {
        out.array(1);
        out.string(topic);
        out.i32(partitions);
        out.i16(1);
        out.array(0);
        out.array(usize::from(retention_ms.is_some()));
        if let Some(retention_ms) = retention_ms {
            out.string("retention.ms");
            out.nullable_string(Some(&retention_ms.to_string()));
        }
        out.i32(1000);
        out.bool(false);
    };
    call(shared, (19, 3), body, |reader| {
        reader.i32()?;
        reader.array(1)?;
        reader.string()?;
        Ok((reader.i16()?, 0))
    })
}

/// Asks for topics, which are made if they are not there.
pub fn metadata(shared: &Shared, topics: &[String]) -> Result<Answer, Full> {
    let body = |out: &mut Writer| {
        out.array(topics.len());
        topics.iter().for_each(|topic| out.string(topic));
        out.bool(true);
    };
    call(shared, (3, 4), body, |_| Ok((0, 0)))
}

pub fn add_partitions(shared: &Shared, topic: &str, total: i32) -> Result<Answer, Full> {
    let body = |out: &mut Writer| {
        out.array(1);
        out.string(topic);
        out.i32(total);
        out.nullable_length(None);
        out.i32(1000);
        out.bool(false);
    };
    call(shared, (37, 1), body, |reader| {
        reader.i32()?;
        reader.array(1)?;
        reader.string()?;
        Ok((reader.i16()?, 0))
    })
}

pub fn delete(shared: &Shared, topic: &str) -> Result<Answer, Full> {
    let body = |out: &mut Writer| {
        out.array(1);
        out.string(topic);
        out.i32(1000);
    };
    call(shared, (20, 3), body, |reader| {
        reader.i32()?;
        reader.array(1)?;
        reader.string()?;
        Ok((reader.i16()?, 0))
    })
}

pub fn delete_records(shared: &Shared, topic: &str, partition: i32, offset: i64) -> Result<Answer, Full> {
    let body = |out: &mut Writer| {
        out.array(1);
        out.string(topic);
        out.array(1);
        out.i32(partition);
        out.i64(offset);
        out.i32(1000);
    };
    call(shared, (21, 1), body, |reader| {
        reader.i32()?;
        reader.array(1)?;
        reader.string()?;
        reader.array(1)?;
        reader.i32()?;
        let low = reader.i64()?;
        Ok((reader.i16()?, low))
    })
}

pub fn commit_offset(
    shared: &Shared,
    group: &str,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<Answer, Full> {
    let body = |out: &mut Writer| {
        out.string(group);
        out.i32(-1);
        out.string("");
        out.i64(-1);
        out.array(1);
        out.string(topic);
        out.array(1);
        out.i32(partition);
        out.i64(offset);
        out.nullable_string(Some("note"));
    };
    call(shared, (8, 2), body, |reader| {
        reader.array(1)?;
        reader.string()?;
        reader.array(1)?;
        reader.i32()?;
        Ok((reader.i16()?, 0))
    })
}

/// Gives a topic a `retention.ms` of its own, or takes it away.
pub fn configure(shared: &Shared, topic: &str, retention_ms: Option<i64>) -> Result<Answer, Full> {
    let body = |out: &mut Writer| {
        out.array(1);
        out.i8(2);
        out.string(topic);
        out.array(1);
        out.string("retention.ms");
        out.i8(i8::from(retention_ms.is_none()));
        out.nullable_string(retention_ms.map(|value| value.to_string()).as_deref());
        out.bool(false);
    };
    call(shared, (44, 0), body, |reader| {
        reader.i32()?;
        reader.array(1)?;
        Ok((reader.i16()?, 0))
    })
}

pub fn delete_offset(shared: &Shared, group: &str, topic: &str, partition: i32) -> Result<Answer, Full> {
    let body = |out: &mut Writer| {
        out.string(group);
        out.array(1);
        out.string(topic);
        out.array(1);
        out.i32(partition);
    };
    call(shared, (47, 0), body, |reader| {
        let error = reader.i16()?;
        Ok((error, 0))
    })
}

pub fn delete_group(shared: &Shared, group: &str) -> Result<Answer, Full> {
    let body = |out: &mut Writer| {
        out.array(1);
        out.string(group);
    };
    call(shared, (42, 1), body, |reader| {
        reader.i32()?;
        reader.array(1)?;
        reader.string()?;
        Ok((reader.i16()?, 0))
    })
}

pub fn producer_id(shared: &Shared) -> Result<Answer, Full> {
    let body = |out: &mut Writer| {
        out.nullable_string(None);
        out.i32(1000);
    };
    call(shared, (22, 1), body, |reader| {
        reader.i32()?;
        Ok((reader.i16()?, reader.i64()?))
    })
}

/// Looks for a time, -3 for the newest record: (timestamp, offset). The error is why a chunk could not be read.
pub fn find_time(
    shared: &Shared,
    topic: &str,
    partition: i32,
    timestamp_ms: i64,
) -> Result<(i64, i64), String> {
    let mut out = Writer::new(true);
    out.i16(2);
    out.i16(7);
    out.i32(7);
    // The client's name has its length in two bytes, here as well.
    out.i16(-1);
    out.tags();
    out.i32(-1);
    out.i8(0);
    out.array(1);
    out.string(topic);
    out.array(1);
    out.i32(partition);
    out.i32(-1);
    out.i64(timestamp_ms);
    out.tags();
    out.tags();
    out.tags();
    let outcome = api::handle(shared, CONNECTION, &out.into_bytes()).expect("the request is well formed");
    let Outcome::Read(Reading::Times(mut request)) = outcome else {
        panic!("an unexpected outcome: {outcome:?}");
    };
    let response = loop {
        if let Some(response) = request.answer(shared, CONNECTION) {
            break response;
        }
        while let Some(chunk) = { lock(&shared.loads).queue.pop_front() } {
            lock(&shared.loads).waiting.remove(&chunk);
            load::load(shared, chunk)?;
        }
    };
    let mut reader = Reader::new(&response[8..], true);
    let mut read = || {
        reader.tags()?;
        reader.i32()?;
        reader.array(1)?;
        reader.string()?;
        reader.array(1)?;
        reader.i32()?;
        Ok::<_, gauge_log::wire::Malformed>((reader.i16()?, reader.i64()?, reader.i64()?))
    };
    match read().expect("the response is well formed") {
        (0, timestamp_ms, offset) => Ok((timestamp_ms, offset)),
        (error, ..) => Err(format!("error {error}")),
    }
}

/// Timestamp -2: where the partition begins; -1: where it ends.
pub fn list_offset(shared: &Shared, topic: &str, partition: i32, timestamp: i64) -> Result<Answer, Full> {
    let body = |out: &mut Writer| {
        out.i32(-1);
        out.array(1);
        out.string(topic);
        out.array(1);
        out.i32(partition);
        out.i64(timestamp);
    };
    call(shared, (2, 1), body, |reader| {
        reader.array(1)?;
        reader.string()?;
        reader.array(1)?;
        reader.i32()?;
        let error = reader.i16()?;
        reader.i64()?;
        Ok((error, reader.i64()?))
    })
}
