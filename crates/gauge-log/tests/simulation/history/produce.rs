//! Producers: batches of every kind and size, sent once or again.

use std::collections::BTreeSet;

use gauge_log::storage::entry;

use super::{CROWD, History, PAYLOAD_BYTES_MAX, Step, wrong};
use crate::client::{self, Batch, Full};
use crate::model::{self, MARK_BYTES, Op, Place, Stored};

impl History {
    /// Producers that do not know whether their last batch arrived send it again.
    pub(super) fn resend_some(&mut self) -> Step {
        for _ in 0..3 {
            let Some((name, index)) = self.choose_partition() else {
                return Ok(());
            };
            let partition = &self.now.topics[&name].partitions[index];
            let known: BTreeSet<i64> = partition
                .batches
                .iter()
                .filter_map(|batch| Some(batch.producer?.0))
                .collect();
            if known.is_empty() {
                continue;
            }
            let chosen = known.iter().nth(self.rng.usize(..known.len())).copied();
            self.resend(&name, index, chosen.unwrap())?;
        }
        Ok(())
    }

    fn resend(&mut self, name: &str, index: usize, producer: i64) -> Step {
        let topic = &self.now.topics[name];
        let place = (topic.id, index);
        let batches = topic.partitions[index].batches.iter();
        let mut of = batches.filter(|batch| batch.producer.is_some_and(|(id, _)| id == producer));
        let Some(last) = of.next_back().cloned() else {
            return Ok(());
        };
        let batch = Batch {
            records: last.records as i32,
            producer: last.producer,
            timestamp_ms: self.clock_ms,
            payload: &model::mark(&place, last.number),
        };
        let answer = client::produce(self.shared(), name, index as i32, &batch.bytes());
        self.marks.note("batch sent again");
        match answer {
            Ok(answer) if answer.error == 0 && answer.number == last.base => Ok(()),
            Ok(answer) => wrong(format!(
                "producer {producer} sent its batch at offset {} of {name}-{index} again and was answered {answer:?}",
                last.base
            )),
            Err(Full) => Ok(()),
        }
    }

    pub(super) fn produce(&mut self, producer: Option<i64>) -> Step {
        let Some((name, index)) = self.choose_partition() else {
            return self.create();
        };
        let producer = match producer {
            None if self.rng.u32(..4) == 0 && !self.producers.is_empty() => {
                Some(self.producers[self.rng.usize(..self.producers.len())])
            }
            producer => producer,
        };
        if let Some(id) = producer
            && self.rng.u32(..8) == 0
        {
            return self.resend(&name, index, id);
        }
        self.produce_to(&name, index, producer)
    }

    fn payload(&mut self, place: &Place, number: u64) -> Vec<u8> {
        let mut payload = model::mark(place, number);
        let bytes = match self.rng.u32(..8) {
            0 => self.rng.usize(..PAYLOAD_BYTES_MAX),
            // Entries that fill blocks exactly.
            1 => (4096usize - entry::HEADER_BYTES - gauge_log::batch::HEADER_BYTES)
                .saturating_sub(self.rng.usize(..32)),
            2 => self.rng.usize(..3000),
            _ => self.rng.usize(..300),
        };
        let bytes = bytes.max(MARK_BYTES);
        match self.rng.u32(..4) {
            // Looks like the journal's own entries, of another place.
            0 => {
                let inner = Batch {
                    records: 1,
                    producer: None,
                    timestamp_ms: self.clock_ms,
                    payload: &model::mark(&([9; 16], 9), 9),
                };
                let inner = inner.bytes();
                let header = entry::Header {
                    position: 1 << 40,
                    partition: self.internal_ids.first().copied().unwrap_or(0),
                    payload_bytes: inner.len() as u32,
                    group_bytes: 0,
                    kind: entry::Kind::Batch,
                    chunk_start: false,
                    synced: true,
                    gap_bytes: 0,
                    counts: entry::Counts::default(),
                };
                // Behind the entry's header, the batch's header and the mark it begins at a multiple of 8.
                let before = entry::HEADER_BYTES + gauge_log::batch::HEADER_BYTES + payload.len();
                payload.resize(payload.len() + (before.next_multiple_of(8) - before), 0);
                while payload.len() + 200 < bytes {
                    payload.extend(entry::encode(&header, &inner));
                    payload.extend(&inner);
                    payload.resize(payload.len() + 3, 0);
                }
            }
            1 => payload.resize(bytes, 0),
            _ => payload.resize(bytes, number as u8 | 1),
        }
        payload
    }

    pub(super) fn produce_to(&mut self, name: &str, index: usize, producer: Option<i64>) -> Step {
        let topic = &self.now.topics[name];
        let place = (topic.id, index);
        let partition = &topic.partitions[index];
        let base = partition.next;
        let sequence = producer.map(|id| {
            let mut batches = partition.batches.iter().rev();
            let last = batches.find(|batch| batch.producer.is_some_and(|(of, _)| of == id));
            last.map_or(0, |batch| {
                batch.producer.map_or(0, |(_, first)| first) + batch.records as i32
            })
        });
        self.next_number += 1;
        let number = self.next_number;
        let producer = producer.zip(sequence);
        let records = self.rng.i32(1..5);
        let payload = self.payload(&place, number);
        let batch = Batch {
            records,
            producer,
            // Time goes backwards now and then.
            timestamp_ms: self.clock_ms - self.rng.i64(0..2_000) * i64::from(self.rng.u32(..4) == 0),
            payload: &payload,
        };
        let from = self.shared().broker().journal.end();
        let answer = match client::produce(self.shared(), name, index as i32, &batch.bytes()) {
            Ok(answer) => answer,
            Err(Full) => return self.commit(),
        };
        let to = self.shared().broker().journal.end();
        if answer.error != 0 || answer.number != base {
            return wrong(format!(
                "a batch for {name}-{index} by {producer:?} was answered {answer:?}, and its offset is {base}"
            ));
        }
        let stored = Stored {
            base,
            records: i64::from(records),
            number,
            producer,
            timestamp_ms: batch.timestamp_ms,
            range: (from, to),
        };
        self.issue(
            Op::Append {
                name: name.to_owned(),
                partition: index,
                stored,
            },
            answer.position,
        );
        Ok(())
    }

    /// More producers than a partition used to remember.
    pub(super) fn crowd(&mut self) -> Step {
        self.create()?;
        for _ in 0..CROWD {
            self.take_producer_id()?;
        }
        self.commit()?;
        let Some((name, index)) = self.choose_partition() else {
            return Ok(());
        };
        for id in self.producers.clone() {
            self.produce_to(&name, index, Some(id))?;
            if self.rng.u32(..8) == 0 {
                self.commit()?;
            }
        }
        self.marks.note("a hundred producers");
        for id in self.producers.clone() {
            self.resend(&name, index, id)?;
        }
        Ok(())
    }
}
