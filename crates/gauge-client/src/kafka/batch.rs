//! A batch on its way from the first message to the acknowledgement, and the pool that batches come from.

use gauge_load::BatchLedger;

use super::buffers::Buffers;
use super::record_batch::{self, HEADER_BYTES, RecordSize, SHAPE_SLACK_BYTES, Seal, Shape};

/// Empty batches that are kept for later use.
const SPARE_BATCHES_MAX: usize = 1024;
/// Runs (32 bytes each) for which the ledgers of all spare batches may keep memory: 8 MiB.
const SPARE_RUNS_MAX: usize = 256 << 10;

/// The identity with which a batch was numbered, or -1 without idempotence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbering {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
}

impl Numbering {
    pub const NONE: Numbering = Numbering {
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
    };
}

/// Messages of one producer for one partition.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    buffer: Vec<u8>,
    len: usize,
    pub partition: u32,
    /// Position among the partition's batches: order is kept by it when batches are sent again.
    pub serial: u64,
    pub records: u32,
    first_timestamp_ms: i64,
    last_timestamp_ms: i64,
    /// When it must leave although it is not full.
    pub due_ns: i64,
    /// When its first message was handed over.
    pub first_sent_ns: i64,
    /// A readiness probe: not in any book, and sent until it arrives.
    pub is_probe: bool,
    /// Bytes by which it counts against the lane's limit, from its first message to its end.
    pub charged_bytes: usize,
    /// Number of the codec once the records are compressed.
    pub codec: i16,
    pub is_compressed: bool,
    /// Whether header and CRC are in place.
    pub is_sealed: bool,
    /// The kind of its latest error.
    pub last_error: Option<&'static str>,
    pub ledger: BatchLedger,
    /// Runs for which the ledger keeps memory while the batch is spare.
    spare_runs: usize,
}

impl Batch {
    /// Bytes on the wire, as far as it is written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes on the wire.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// The size that a message would have as the next record.
    #[inline]
    pub fn size_of_next(&self, timestamp_ms: i64, key: Option<&[u8]>, value_bytes: usize) -> RecordSize {
        let delta_ms = timestamp_ms - self.first_timestamp_ms;
        record_batch::record_size(delta_ms, self.records, key.map(<[u8]>::len), value_bytes)
    }

    /// Appends a record and returns the place of its value.
    #[inline]
    pub fn append(
        &mut self,
        buffers: &mut Buffers,
        size: RecordSize,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value_bytes: usize,
    ) -> &mut [u8] {
        let end = self.len + size.bytes;
        if end > self.buffer.len() {
            buffers.grow(&mut self.buffer, self.len, end);
        }
        let delta_ms = timestamp_ms - self.first_timestamp_ms;
        self.last_timestamp_ms = self.last_timestamp_ms.max(timestamp_ms);
        let place = &mut self.buffer[self.len..end];
        let offset_delta = self.records;
        self.len = end;
        self.records += 1;
        record_batch::write_record(place, size, delta_ms, offset_delta, key, value_bytes)
    }

    /// Whether the next record has a shape.
    #[inline]
    pub fn fits(&self, shape: &Shape, timestamp_ms: i64, value_bytes: usize) -> bool {
        shape.fits(timestamp_ms - self.first_timestamp_ms, self.records, value_bytes)
    }

    /// The shape of the next record if it has no key.
    pub fn shape_of_next(&self, timestamp_ms: i64, value_bytes: usize) -> Shape {
        Shape::new(timestamp_ms - self.first_timestamp_ms, self.records, value_bytes)
    }

    /// Appends a record that fits a shape and returns the place of its value. None: the buffer is too short for this way.
    #[inline]
    pub fn append_shaped(&mut self, shape: &Shape, timestamp_ms: i64) -> Option<&mut [u8]> {
        let end = self.len + shape.bytes;
        let place = self.buffer.get_mut(self.len..end + SHAPE_SLACK_BYTES)?;
        let offset_delta = self.records;
        self.last_timestamp_ms = self.last_timestamp_ms.max(timestamp_ms);
        self.len = end;
        self.records += 1;
        Some(shape.write(place, offset_delta))
    }

    /// The records, before they are compressed.
    pub fn records_bytes(&self) -> &[u8] {
        &self.buffer[HEADER_BYTES..self.len]
    }

    /// Replaces the records by their compressed form.
    pub fn set_compressed(&mut self, buffers: &mut Buffers, codec: i16, compressed: &[u8]) {
        let len = HEADER_BYTES + compressed.len();
        if len > self.buffer.len() {
            buffers.grow(&mut self.buffer, HEADER_BYTES, len);
        }
        self.buffer[HEADER_BYTES..len].copy_from_slice(compressed);
        self.len = len;
        self.codec = codec;
        self.is_compressed = true;
    }

    /// Writes header and CRC.
    pub fn seal(&mut self, numbering: Numbering) {
        let seal = Seal {
            records: self.records,
            compression: self.codec,
            first_timestamp_ms: self.first_timestamp_ms,
            last_timestamp_ms: self.last_timestamp_ms,
            producer_id: numbering.producer_id,
            producer_epoch: numbering.producer_epoch,
            base_sequence: numbering.base_sequence,
        };
        record_batch::seal(&mut self.buffer[..self.len], &seal);
        self.is_sealed = true;
    }
}

/// Empty batches. They are boxed, so that queues move pointers, and keep their ledgers' memory.
#[derive(Default)]
pub(crate) struct BatchPool {
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    spare: Vec<Box<Batch>>,
    spare_runs: usize,
}

/// What a new batch begins with.
pub(crate) struct Opening {
    pub producer: u32,
    pub partition: u32,
    pub serial: u64,
    pub timestamp_ms: i64,
    pub now_ns: i64,
    pub due_ns: i64,
    /// First size of the buffer.
    pub bytes: usize,
    pub is_probe: bool,
}

impl BatchPool {
    pub fn open(&mut self, buffers: &mut Buffers, opening: &Opening) -> Box<Batch> {
        let mut batch = self.spare.pop().unwrap_or_default();
        self.spare_runs -= batch.spare_runs;
        let mut ledger = std::mem::take(&mut batch.ledger);
        ledger.clear(opening.producer);
        *batch = Batch {
            buffer: buffers.take(opening.bytes.max(HEADER_BYTES)),
            len: HEADER_BYTES,
            partition: opening.partition,
            serial: opening.serial,
            first_timestamp_ms: opening.timestamp_ms,
            last_timestamp_ms: opening.timestamp_ms,
            due_ns: opening.due_ns,
            first_sent_ns: opening.now_ns,
            is_probe: opening.is_probe,
            ledger,
            ..Batch::default()
        };
        batch
    }

    pub fn close(&mut self, buffers: &mut Buffers, mut batch: Box<Batch>) {
        buffers.give(std::mem::take(&mut batch.buffer));
        if self.spare.len() == SPARE_BATCHES_MAX {
            return;
        }
        batch.spare_runs = batch.ledger.runs().len();
        if self.spare_runs + batch.spare_runs > SPARE_RUNS_MAX {
            batch.ledger = BatchLedger::default();
            batch.spare_runs = 0;
        }
        self.spare_runs += batch.spare_runs;
        self.spare.push(batch);
    }
}
