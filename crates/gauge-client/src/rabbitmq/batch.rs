//! A batch: messages in their frames as they go over the wire, built in place, kept until the last of them is confirmed.

/// First size of a buffer.
const SMALLEST_BYTES: usize = 4 << 10;
/// Empty batches that are kept for later use, and the largest buffer that is kept with one.
const SPARE_BATCHES_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 2 << 20;

/// A batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// All of it is initialised; the first `used` bytes count.
    buffer: Vec<u8>,
    used: usize,
    /// Serial number of the first message.
    pub first_serial: u64,
    pub messages: u32,
    /// The partition that it goes to, where a batch has only one.
    pub partition: u32,
    /// When it leaves at the latest.
    pub due_ns: i64,
    /// When its first message was handed over.
    pub first_sent_ns: i64,
}

impl Batch {
    /// Bytes on the wire.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Room for `bytes` more, which count as used from here on.
    #[inline]
    pub fn extend(&mut self, bytes: usize) -> &mut [u8] {
        let from = self.used;
        self.used += bytes;
        if self.used > self.buffer.len() {
            let larger = self.used.next_power_of_two().max(SMALLEST_BYTES);
            self.buffer.resize(larger, 0);
        }
        &mut self.buffer[from..self.used]
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.used]
    }

    /// Only the first `bytes` count from here on.
    pub fn shorten(&mut self, bytes: usize) {
        assert!(bytes <= self.used, "a batch is only made shorter");
        self.used = bytes;
    }

    /// Serial number behind the last message.
    pub fn end_serial(&self) -> u64 {
        self.first_serial + u64::from(self.messages)
    }
}

impl AsRef<[u8]> for Batch {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.used]
    }
}

/// Empty batches, boxed so that queues move pointers.
#[derive(Debug, Default)]
pub(super) struct Spares {
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    batches: Vec<Box<Batch>>,
}

impl Spares {
    /// An empty batch whose first message is `first_serial`.
    pub fn open(&mut self, first_serial: u64, now_ns: i64, due_ns: i64) -> Box<Batch> {
        let mut batch = self.batches.pop().unwrap_or_default();
        batch.used = 0;
        batch.messages = 0;
        batch.first_serial = first_serial;
        batch.first_sent_ns = now_ns;
        batch.due_ns = due_ns;
        batch
    }

    /// Gives a batch back.
    pub fn close(&mut self, batch: Box<Batch>) {
        if self.batches.len() < SPARE_BATCHES_MAX && batch.buffer.len() <= SPARE_BYTES_MAX {
            self.batches.push(batch);
        }
    }
}
