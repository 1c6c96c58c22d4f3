//! Idempotent producers (KIP-98): sequence numbers per partition, so that a batch that was sent again is stored once.

use std::collections::{BTreeMap, HashMap};

use super::change::ProducerMark;
use crate::batch::Header;

/// Batches per producer whose repetition is recognised; clients keep at most five requests in flight.
const BATCHES_REMEMBERED: usize = 5;

/// What a batch's sequence number says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Store it.
    New,
    /// It is stored already, at this base offset.
    Duplicate(i64),
    /// A batch before it is missing (OUT_OF_ORDER_SEQUENCE_NUMBER).
    OutOfOrder,
    /// A newer incarnation of the producer has written (INVALID_PRODUCER_EPOCH).
    Fenced,
}

/// The producers of one partition.
#[derive(Debug, Default)]
pub struct Producers {
    /// Nothing for the many partitions that have none.
    known: Option<Box<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    producers: HashMap<i64, Producer>,
    /// Producer ids by when they wrote last; the one that was silent for longest is forgotten first.
    by_use: BTreeMap<u64, i64>,
    uses: u64,
}

#[derive(Debug)]
struct Producer {
    epoch: i16,
    batches: Vec<ProducerMark>,
    last_use: u64,
}

/// The sequence number that follows `count` records from `sequence`; it wraps to zero behind `i32::MAX`.
fn following(sequence: i32, count: i64) -> i32 {
    ((i64::from(sequence) + count) & i64::from(i32::MAX)) as i32
}

impl Producers {
    /// Judges a batch before it is stored. Batches without a producer id are always new.
    pub fn judge(&self, batch: &Header) -> Verdict {
        if batch.producer_id < 0 {
            return Verdict::New;
        }
        let known = self.known.as_ref();
        let Some(producer) = known.and_then(|known| known.producers.get(&batch.producer_id)) else {
            // Nothing is known of a producer whose last batch was forgotten or removed by retention; brokers accept it, and so do we.
            return Verdict::New;
        };
        if batch.producer_epoch < producer.epoch {
            return Verdict::Fenced;
        }
        if batch.producer_epoch > producer.epoch {
            return if batch.base_sequence == 0 {
                Verdict::New
            } else {
                Verdict::OutOfOrder
            };
        }
        let same = |mark: &&ProducerMark| {
            mark.base_sequence == batch.base_sequence && mark.offset_count == batch.offset_count
        };
        if let Some(mark) = producer.batches.iter().find(same) {
            return Verdict::Duplicate(mark.base_offset);
        }
        match producer.batches.last() {
            Some(last) if following(last.base_sequence, last.offset_count) != batch.base_sequence => {
                Verdict::OutOfOrder
            }
            _ => Verdict::New,
        }
    }

    /// Notes a batch that was stored; at most `producers_max` producers are remembered. Returns by how much their number has changed.
    pub fn note(&mut self, mark: ProducerMark, producers_max: usize) -> isize {
        if mark.producer_id < 0 {
            return 0;
        }
        let known = self.known.get_or_insert_default();
        let before = known.producers.len();
        known.uses += 1;
        let producer = known.producers.entry(mark.producer_id).or_insert(Producer {
            epoch: mark.producer_epoch,
            batches: Vec::new(),
            last_use: known.uses,
        });
        known.by_use.remove(&producer.last_use);
        producer.last_use = known.uses;
        known.by_use.insert(known.uses, mark.producer_id);
        if producer.epoch != mark.producer_epoch {
            producer.epoch = mark.producer_epoch;
            producer.batches.clear();
        }
        if producer.batches.len() == BATCHES_REMEMBERED {
            producer.batches.remove(0);
        }
        producer.batches.push(mark);
        while known.producers.len() > producers_max.max(1) {
            let Some((_, silent)) = known.by_use.pop_first() else {
                break;
            };
            known.producers.remove(&silent);
        }
        known.producers.len() as isize - before as isize
    }

    /// Producers that are remembered.
    pub fn len(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.producers.len())
    }

    /// Whether no producer is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every batch that is remembered, oldest first per producer, the producer that was silent for longest first.
    pub fn marks(&self) -> impl Iterator<Item = &ProducerMark> {
        self.known.iter().flat_map(|known| {
            let producers = known.by_use.values().filter_map(|id| known.producers.get(id));
            producers.flat_map(|producer| &producer.batches)
        })
    }
}

/// The mark of a batch stored at `base_offset`.
pub fn mark(batch: &Header, base_offset: i64) -> ProducerMark {
    ProducerMark {
        producer_id: batch.producer_id,
        producer_epoch: batch.producer_epoch,
        base_sequence: batch.base_sequence,
        offset_count: batch.offset_count,
        base_offset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(epoch: i16, base_sequence: i32, offset_count: i64) -> Header {
        Header {
            base_offset: 0,
            offset_count,
            timestamp_ms_max: 0,
            producer_id: 9,
            producer_epoch: epoch,
            base_sequence,
        }
    }

    #[test]
    fn a_repeated_batch_is_recognised_and_a_gap_is_refused() {
        let mut producers = Producers::default();
        for (index, base_sequence) in [0, 10, 20].into_iter().enumerate() {
            assert_eq!(producers.judge(&batch(0, base_sequence, 10)), Verdict::New);
            producers.note(mark(&batch(0, base_sequence, 10), 100 + index as i64 * 10), 9);
        }
        assert_eq!(producers.judge(&batch(0, 10, 10)), Verdict::Duplicate(110));
        assert_eq!(producers.judge(&batch(0, 40, 10)), Verdict::OutOfOrder);
        assert_eq!(producers.judge(&batch(1, 0, 10)), Verdict::New);
        producers.note(mark(&batch(1, 0, 10), 130), 9);
        assert_eq!(producers.judge(&batch(0, 30, 10)), Verdict::Fenced);
    }

    #[test]
    fn sequence_numbers_wrap_behind_the_largest() {
        let mut producers = Producers::default();
        producers.note(mark(&batch(0, i32::MAX - 4, 5), 0), 9);
        assert_eq!(producers.judge(&batch(0, 0, 1)), Verdict::New);
    }

    #[test]
    fn the_producer_that_was_silent_for_longest_is_forgotten_first() {
        let mut producers = Producers::default();
        let of = |producer_id| ProducerMark {
            producer_id,
            ..mark(&batch(0, 0, 1), 0)
        };
        let changed: isize = (0..1000).map(|id| producers.note(of(id), 100)).sum();
        assert_eq!((producers.len(), changed), (100, 100));
        // It has written again, so that another one goes.
        producers.note(of(900), 100);
        producers.note(of(1000), 100);
        let left: Vec<i64> = producers.marks().map(|mark| mark.producer_id).collect();
        assert!(left.contains(&900) && !left.contains(&901));
    }
}
