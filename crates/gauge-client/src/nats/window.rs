//! Chunks of published messages, and what becomes of each message.
//!
//! NATS has no batches. A chunk is what one producer hands to its socket together: whole PUB operations, one behind the other. Every message
//! is acknowledged by itself, through a reply subject that ends with its number, so a chunk ends when its last message has.

use gauge_load::{BatchLedger, Departure};

use super::wire::put_decimal;

/// What is known of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It waits for its turn or for its answer.
    Waiting,
    /// It has come to its end.
    Ended,
    /// It must be sent again.
    Refused,
}

/// One message of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub sequence: u64,
    pub intended_ns: i64,
    pub sent_ns: i64,
    /// Where its PUB begins in the chunk's bytes.
    pub offset: u32,
    pub payload_bytes: u32,
    pub fate: Fate,
}

/// Messages that travel together.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    /// Its PUBs; empty while a connection holds them.
    pub bytes: Vec<u8>,
    /// How many bytes there are, also while a connection holds them.
    pub len: usize,
    /// Number of its first message; the others follow without a gap.
    pub first_number: u64,
    pub entries: Vec<Entry>,
    /// Messages under way without an answer.
    pub unanswered: usize,
    /// Messages that have not come to their end.
    pub left: usize,
    /// When it leaves although it is not full.
    pub due_ns: i64,
    /// When its first message was handed over.
    pub first_sent_ns: i64,
    /// Messages were acknowledged while it waited, and their bytes are still in it.
    pub has_gaps: bool,
    /// Readiness probes: in no book, and sent until they arrive.
    pub is_probe: bool,
    /// Bytes by which it counts against the lane's limit.
    pub charged_bytes: usize,
    /// The kind of its latest error.
    pub last_error: Option<&'static str>,
}

/// The parts of a PUB that are the same for all messages of a partition of a producer.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    /// `PUB subject reply.` or, without acknowledgements, `PUB subject `.
    pub publish: Vec<u8>,
    /// The same with HPUB, for messages with headers.
    pub publish_with_headers: Vec<u8>,
    /// Whether a number follows.
    pub is_numbered: bool,
}

/// Most bytes that a PUB has besides heading, headers and body: a number, two lengths, line ends.
pub(crate) const PUBLISH_REST_BYTES_MAX: usize = 20 + 1 + 8 + 1 + 8 + 2 + 2;

impl Chunk {
    /// Panics where it has another number of messages without an end than it counts.
    pub fn check(&self) {
        let left = self.entries.iter().filter(|entry| entry.fate != Fate::Ended);
        assert_eq!(self.left, left.count(), "messages without an end");
    }

    /// The same of messages without an answer, once it has left.
    pub fn check_under_way(&self) {
        let unanswered = self.entries.iter().filter(|entry| entry.fate == Fate::Waiting);
        assert_eq!(self.unanswered, unanswered.count(), "messages without an answer");
    }

    /// Begins anew.
    pub fn begin(&mut self, first_number: u64, now_ns: i64, due_ns: i64) {
        self.bytes.clear();
        self.entries.clear();
        self.len = 0;
        self.first_number = first_number;
        self.unanswered = 0;
        self.left = 0;
        self.due_ns = due_ns;
        self.first_sent_ns = now_ns;
        self.has_gaps = false;
        self.is_probe = false;
        self.charged_bytes = 0;
        self.last_error = None;
    }

    /// Appends everything of a PUB before the body, and returns the place of the body, which the line end follows already.
    #[inline]
    pub fn begin_publish(&mut self, heading: &Heading, headers: &[u8], payload_bytes: usize) -> &mut [u8] {
        let number = self.first_number + self.entries.len() as u64;
        let bytes = &mut self.bytes;
        bytes.extend_from_slice(if headers.is_empty() {
            &heading.publish
        } else {
            &heading.publish_with_headers
        });
        if heading.is_numbered {
            put_decimal(bytes, number);
            bytes.push(b' ');
        }
        if !headers.is_empty() {
            put_decimal(bytes, headers.len() as u64);
            bytes.push(b' ');
        }
        put_decimal(bytes, (headers.len() + payload_bytes) as u64);
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(headers);
        let from = bytes.len();
        bytes.resize(from + payload_bytes + 2, 0);
        let place = &mut bytes[from..];
        place[payload_bytes..].copy_from_slice(b"\r\n");
        &mut place[..payload_bytes]
    }

    /// Appends a whole message.
    #[inline]
    pub fn append(&mut self, heading: &Heading, headers: &[u8], departure: &Departure<'_>, partition: usize) {
        let offset = self.bytes.len() as u32;
        let payload_bytes = departure.payload_bytes();
        departure.write_into(self.begin_publish(heading, headers, payload_bytes), partition);
        self.enter(
            departure.stamp.sequence,
            departure.stamp.intended_ns,
            departure.sent_ns,
            offset,
            payload_bytes,
        );
    }

    /// Notes a message whose PUB was appended.
    #[inline]
    pub fn enter(
        &mut self,
        sequence: u64,
        intended_ns: i64,
        sent_ns: i64,
        offset: u32,
        payload_bytes: usize,
    ) {
        self.entries.push(Entry {
            sequence,
            intended_ns,
            sent_ns,
            offset,
            payload_bytes: payload_bytes as u32,
            fate: Fate::Waiting,
        });
        self.left += 1;
        self.len = self.bytes.len();
    }

    /// The entry with this number.
    #[inline]
    pub fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let at = usize::try_from(number.checked_sub(self.first_number)?).ok()?;
        self.entries.get_mut(at)
    }

    /// It leaves: all that are left wait for an answer.
    pub fn depart(&mut self) {
        self.unanswered = self.left;
    }

    /// A message was acknowledged. Returns it the first time.
    #[inline]
    pub fn acknowledge(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entry(number)?;
        let (before, copy) = (entry.fate, *entry);
        entry.fate = Fate::Ended;
        match before {
            Fate::Ended => return None,
            Fate::Waiting => self.unanswered = self.unanswered.saturating_sub(1),
            // An acknowledgement that comes after we have given up on it: it will not be sent again.
            Fate::Refused => {}
        }
        self.left -= 1;
        Some(copy)
    }

    /// A message was refused and is to be sent again. True: it was waiting for its answer.
    pub fn refuse(&mut self, number: u64, kind: &'static str) -> bool {
        let Some(entry) = self.entry(number) else {
            return false;
        };
        if entry.fate != Fate::Waiting {
            return false;
        }
        entry.fate = Fate::Refused;
        self.unanswered = self.unanswered.saturating_sub(1);
        self.last_error = Some(kind);
        true
    }

    /// No answer will come any more: everything that is left must be sent again.
    pub fn refuse_all(&mut self, kind: &'static str) {
        for entry in &mut self.entries {
            if entry.fate == Fate::Waiting {
                entry.fate = Fate::Refused;
            }
        }
        self.unanswered = 0;
        self.last_error = Some(kind);
    }

    /// Takes out the bytes of the messages that have ended, so that the rest can be sent again as it is.
    pub fn compact(&mut self) {
        let end = self.bytes.len();
        let mut kept = 0;
        for at in 0..self.entries.len() {
            let from = self.entries[at].offset as usize;
            let until = self
                .entries
                .get(at + 1)
                .map_or(end, |entry| entry.offset as usize);
            self.entries[at].offset = kept as u32;
            if self.entries[at].fate == Fate::Ended {
                continue;
            }
            self.entries[at].fate = Fate::Waiting;
            self.bytes.copy_within(from..until, kept);
            kept += until - from;
        }
        self.bytes.truncate(kept);
        self.len = kept;
        self.has_gaps = false;
    }

    /// Enters the messages that are left into a ledger, and ends them.
    pub fn end_all(&mut self, ledger: &mut BatchLedger) {
        for entry in &mut self.entries {
            if entry.fate != Fate::Ended {
                entry.fate = Fate::Ended;
                let payload_bytes = entry.payload_bytes as usize;
                ledger.push(entry.sequence, entry.intended_ns, entry.sent_ns, payload_bytes);
            }
        }
        self.left = 0;
        self.unanswered = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heading() -> Heading {
        Heading {
            publish: b"PUB t.3 r.".to_vec(),
            publish_with_headers: b"HPUB t.3 r.".to_vec(),
            is_numbered: true,
        }
    }

    fn chunk(messages: &[&[u8]]) -> Chunk {
        let mut chunk = Chunk::default();
        chunk.begin(7, 100, 200);
        for (at, message) in messages.iter().enumerate() {
            let offset = chunk.bytes.len() as u32;
            chunk
                .begin_publish(&heading(), b"", message.len())
                .copy_from_slice(message);
            chunk.enter(at as u64, 1, 2, offset, message.len());
        }
        chunk
    }

    #[test]
    fn publications_are_numbered_and_stand_one_behind_the_other() {
        let mut chunk = chunk(&[b"abc", b""]);
        assert_eq!(chunk.bytes, b"PUB t.3 r.7 3\r\nabc\r\nPUB t.3 r.8 0\r\n\r\n");
        chunk
            .begin_publish(&heading(), b"NATS/1.0\r\nA:1\r\n\r\n", 1)
            .copy_from_slice(b"x");
        assert!(
            chunk
                .bytes
                .ends_with(b"HPUB t.3 r.9 17 18\r\nNATS/1.0\r\nA:1\r\n\r\nx\r\n")
        );
        let longest = PUBLISH_REST_BYTES_MAX + heading().publish_with_headers.len();
        assert!(longest >= b"HPUB t.3 r.18446744073709551615 12345678 12345678\r\n\r\n".len());
    }

    #[test]
    fn a_message_ends_once() {
        let mut chunk = chunk(&[b"abc", b"de"]);
        chunk.depart();
        assert_eq!(chunk.acknowledge(8).map(|entry| entry.sequence), Some(1));
        assert!(chunk.acknowledge(8).is_none());
        assert!(chunk.acknowledge(6).is_none());
        assert!(chunk.acknowledge(9).is_none());
        assert_eq!((chunk.unanswered, chunk.left), (1, 1));
        assert!(chunk.refuse(7, "X"));
        assert!(!chunk.refuse(7, "X"));
        assert_eq!((chunk.unanswered, chunk.left), (0, 1));
        // A late acknowledgement saves it from being sent again.
        assert!(chunk.acknowledge(7).is_some());
        assert_eq!((chunk.unanswered, chunk.left), (0, 0));
    }

    #[test]
    fn what_is_sent_again_keeps_its_numbers() {
        let mut chunk = chunk(&[b"abc", b"de", b"f", b"gh"]);
        chunk.depart();
        chunk.acknowledge(8);
        chunk.acknowledge(10);
        chunk.refuse_all("X");
        chunk.compact();
        assert_eq!(chunk.bytes, b"PUB t.3 r.7 3\r\nabc\r\nPUB t.3 r.9 1\r\nf\r\n");
        assert_eq!(chunk.len, chunk.bytes.len());
        chunk.depart();
        assert_eq!(chunk.unanswered, 2);
        chunk.acknowledge(7);
        chunk.refuse_all("X");
        chunk.compact();
        assert_eq!(chunk.bytes, b"PUB t.3 r.9 1\r\nf\r\n");
        let mut ledger = BatchLedger::new(0);
        chunk.end_all(&mut ledger);
        assert_eq!(
            (
                ledger.messages(),
                ledger.payload_bytes(),
                ledger.runs()[0].sequence
            ),
            (1, 1, 2)
        );
        assert_eq!(chunk.left, 0);
    }
}
