//! Fetch, version 11: requests built and answers walked through without allocation.

use super::consumer::Position;
use super::wire::{Malformed, Put, Reader};
use crate::Topic;

/// Bounds of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub wait_ms: i32,
    pub bytes: i32,
    pub partition_bytes: i32,
}

/// Writes a request; partitions of one topic that follow each other share an entry.
pub(super) struct FetchWriter<'a> {
    head: &'a mut Vec<u8>,
    partition_bytes: i32,
    topics_at: usize,
    topics: i32,
    topic: usize,
    partitions_at: usize,
    partitions: i32,
}

impl<'a> FetchWriter<'a> {
    pub fn begin(head: &'a mut Vec<u8>, limits: Limits, session: i32, epoch: i32) -> FetchWriter<'a> {
        // Not a replica.
        head.put_i32(-1);
        head.put_i32(limits.wait_ms);
        // One byte is enough for an answer.
        head.put_i32(1);
        head.put_i32(limits.bytes);
        // Read uncommitted.
        head.put_i8(0);
        head.put_i32(session);
        head.put_i32(epoch);
        let topics_at = head.len();
        head.put_count(0);
        FetchWriter {
            head,
            partition_bytes: limits.partition_bytes,
            topics_at,
            topics: 0,
            topic: usize::MAX,
            partitions_at: 0,
            partitions: 0,
        }
    }

    /// Adds a partition; one whose position is not known, or in doubt, is left out.
    pub fn add(&mut self, position: &Position, topics: &[Topic]) {
        let Some(next) = position.next.filter(|_| !position.is_doubtful) else {
            return;
        };
        if self.topic != position.topic {
            self.end_topic();
            self.topic = position.topic;
            self.topics += 1;
            self.head.put_string(&topics[position.topic].name);
            self.partitions_at = self.head.len();
            self.head.put_count(0);
        }
        self.partitions += 1;
        self.head.put_i32(position.partition);
        // Another leader than the one that is meant refuses: its log may be another.
        self.head.put_i32(position.leader_epoch);
        self.head.put_i64(next);
        // Only followers tell where their log begins.
        self.head.put_i64(-1);
        self.head.put_i32(self.partition_bytes);
    }

    fn end_topic(&mut self) {
        if self.topics > 0 {
            let count = self.partitions.to_be_bytes();
            self.head[self.partitions_at..self.partitions_at + 4].copy_from_slice(&count);
        }
        self.partitions = 0;
    }

    pub fn finish(mut self) {
        self.end_topic();
        let count = self.topics.to_be_bytes();
        self.head[self.topics_at..self.topics_at + 4].copy_from_slice(&count);
        // No partition is taken out of the session: it begins anew instead.
        self.head.put_count(0);
        // No rack.
        self.head.put_string("");
    }
}

/// One partition of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchRow<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub code: i16,
    pub high_watermark: i64,
    pub records: &'a [u8],
    /// Where the records begin in the answer.
    pub records_at: usize,
}

/// Walks through an answer.
pub(super) struct FetchReader<'a> {
    reader: Reader<'a>,
    pub code: i16,
    pub session: i32,
    topics_left: usize,
    topic: &'a str,
    partitions_left: usize,
}

impl<'a> FetchReader<'a> {
    pub fn begin(body: &'a [u8]) -> Result<FetchReader<'a>, Malformed> {
        let mut reader = Reader::new(body);
        // Throttle time: since Kafka 2.0 the broker answers at once and is deaf for that long (KIP-219), so that the next answer comes late.
        reader.i32()?;
        let (code, session) = (reader.i16()?, reader.i32()?);
        let topics_left = reader.count(6)?;
        Ok(FetchReader {
            reader,
            code,
            session,
            topics_left,
            topic: "",
            partitions_left: 0,
        })
    }

    /// The next partition, or None after the last.
    pub fn next(&mut self) -> Result<Option<FetchRow<'a>>, Malformed> {
        while self.partitions_left == 0 {
            if self.topics_left == 0 {
                return Ok(None);
            }
            self.topics_left -= 1;
            self.topic = self.reader.string()?;
            self.partitions_left = self.reader.count(42)?;
        }
        self.partitions_left -= 1;
        let reader = &mut self.reader;
        let (partition, code, high_watermark) = (reader.i32()?, reader.i16()?, reader.i64()?);
        // Last stable offset, start of the log.
        reader.skip(16)?;
        let aborted = reader.count(16)?;
        reader.skip(aborted * 16)?;
        // Preferred replica to read from: without a rack, none is told.
        reader.i32()?;
        let length = usize::try_from(reader.i32()?.max(0)).unwrap_or(0);
        let records_at = reader.at();
        let records = reader.take(length)?;
        Ok(Some(FetchRow {
            topic: self.topic,
            partition,
            code,
            high_watermark,
            records,
            records_at,
        }))
    }
}
