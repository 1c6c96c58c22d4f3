//! Idempotent producers (KIP-98): sequence numbers per partition, so that a batch that was sent again is stored once.

use super::change::ProducerMark;
use crate::batch::Header;

/// Batches per producer whose repetition is recognised; clients keep at most five requests in flight.
const BATCHES_REMEMBERED: usize = 5;
/// Producers remembered per partition; the one that was silent for longest is forgotten first.
const PRODUCERS_MAX: usize = 64;

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

/// The producers of one partition, the one that wrote last at the end.
#[derive(Debug, Default)]
pub struct Producers {
    known: Vec<Producer>,
}

#[derive(Debug)]
struct Producer {
    id: i64,
    epoch: i16,
    batches: Vec<ProducerMark>,
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
        let Some(producer) = self
            .known
            .iter()
            .rev()
            .find(|producer| producer.id == batch.producer_id)
        else {
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

    /// Notes a batch that was stored.
    pub fn note(&mut self, mark: ProducerMark) {
        if mark.producer_id < 0 {
            return;
        }
        let mut producer = match self
            .known
            .iter()
            .position(|producer| producer.id == mark.producer_id)
        {
            Some(at) => self.known.remove(at),
            None => Producer {
                id: mark.producer_id,
                epoch: mark.producer_epoch,
                batches: Vec::new(),
            },
        };
        if producer.epoch != mark.producer_epoch {
            producer.epoch = mark.producer_epoch;
            producer.batches.clear();
        }
        if producer.batches.len() == BATCHES_REMEMBERED {
            producer.batches.remove(0);
        }
        producer.batches.push(mark);
        if self.known.len() == PRODUCERS_MAX {
            self.known.remove(0);
        }
        self.known.push(producer);
    }

    /// Every batch that is remembered, oldest first per producer.
    pub fn marks(&self) -> impl Iterator<Item = &ProducerMark> {
        self.known.iter().flat_map(|producer| &producer.batches)
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
            producers.note(mark(&batch(0, base_sequence, 10), 100 + index as i64 * 10));
        }
        assert_eq!(producers.judge(&batch(0, 10, 10)), Verdict::Duplicate(110));
        assert_eq!(producers.judge(&batch(0, 40, 10)), Verdict::OutOfOrder);
        assert_eq!(producers.judge(&batch(1, 0, 10)), Verdict::New);
        producers.note(mark(&batch(1, 0, 10), 130));
        assert_eq!(producers.judge(&batch(0, 30, 10)), Verdict::Fenced);
    }

    #[test]
    fn sequence_numbers_wrap_behind_the_largest() {
        let mut producers = Producers::default();
        producers.note(mark(&batch(0, i32::MAX - 4, 5), 0));
        assert_eq!(producers.judge(&batch(0, 0, 1)), Verdict::New);
    }

    #[test]
    fn memory_is_bounded() {
        let mut producers = Producers::default();
        for producer_id in 0..1000 {
            producers.note(ProducerMark {
                producer_id,
                ..mark(&batch(0, 0, 1), 0)
            });
        }
        assert_eq!(producers.marks().count(), PRODUCERS_MAX);
    }
}
