//! What is remembered of a batch until its acknowledgement: which messages, when they were due, when they were handed over.

/// Consecutive messages of one producer that share both times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Sequence of the first.
    pub sequence: u64,
    /// How many; sequences follow each other without a gap.
    pub messages: u32,
    /// When they were due.
    pub intended_ns: i64,
    /// When they were handed to the client.
    pub sent_ns: i64,
}

/// The messages of one batch of one producer. Owned by the client while the batch waits and travels; cleared and used again.
#[derive(Clone, Debug, Default)]
pub struct BatchLedger {
    producer: u32,
    runs: Vec<Run>,
    messages: u32,
    payload_bytes: u64,
}

impl BatchLedger {
    /// An empty ledger for a batch of this producer.
    pub fn new(producer: u32) -> BatchLedger {
        BatchLedger {
            producer,
            ..BatchLedger::default()
        }
    }

    /// Forgets the messages, keeps the memory.
    pub fn clear(&mut self, producer: u32) {
        self.producer = producer;
        self.runs.clear();
        self.messages = 0;
        self.payload_bytes = 0;
    }

    /// Adds a message.
    #[inline]
    pub fn push(&mut self, sequence: u64, intended_ns: i64, sent_ns: i64, payload_bytes: usize) {
        self.messages += 1;
        self.payload_bytes += payload_bytes as u64;
        if let Some(last) = self.runs.last_mut()
            && last.intended_ns == intended_ns
            && last.sent_ns == sent_ns
            && last.sequence + u64::from(last.messages) == sequence
        {
            last.messages += 1;
            return;
        }
        self.runs.push(Run {
            sequence,
            messages: 1,
            intended_ns,
            sent_ns,
        });
    }

    /// Whose messages these are.
    pub fn producer(&self) -> u32 {
        self.producer
    }

    /// The messages, in the order in which they were handed over.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// How many messages.
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Bytes of the messages' bodies.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }
}
