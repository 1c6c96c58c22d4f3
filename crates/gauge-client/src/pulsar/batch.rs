//! A batch: messages in the form in which they go over the wire, built in place behind room for the frame's head, kept until the broker
//! has it.

use std::time::SystemTime;

use gauge_load::BatchLedger;
use gauge_load::crc::crc32c;

use super::commands;
use super::compress::Compressor;
use super::message::CHECKSUM_MAGIC;
use super::wire::Put;
use crate::keys::{KEY_BYTES, decimal};

/// Room for all that stands in front of the messages: two lengths, the command (at most 40 bytes), the checksum, and the metadata with a
/// producer's name of 31 bytes and a key of 10 digits (at most 110 bytes).
const HEAD_BYTES: usize = 192;
/// First size of a buffer.
const SMALLEST_BYTES: usize = 4 << 10;
/// Empty batches that are kept for later use, and the largest buffer that is kept with one.
const SPARE_BATCHES_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 2 << 20;

/// A batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// All of it is initialised. The frame lies in `from..used`; until it is sealed, the messages do.
    buffer: Vec<u8>,
    from: usize,
    used: usize,
    is_sealed: bool,
    /// Its partition.
    pub partition: usize,
    /// The key of its first message.
    pub key: Option<u32>,
    /// The number of its first message among the partition's, from 0.
    pub sequence: u64,
    /// Messages, with probes.
    pub messages: u32,
    pub probes: u32,
    /// What is told when it has come to its end.
    pub ledger: BatchLedger,
    /// When it leaves at the latest.
    pub due_ns: i64,
    /// When its first message was handed over.
    pub first_sent_ns: i64,
    /// Bytes of its messages, as they count against the lane's buffer.
    pub held_bytes: usize,
}

/// What all batches of a producer have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub name: String,
    pub codec: u64,
}

impl Batch {
    /// Bytes on the wire, as far as it is built.
    pub fn len(&self) -> usize {
        self.used - self.from
    }

    /// Room for `bytes` more, which count as used from here on.
    #[inline]
    pub fn extend(&mut self, bytes: usize) -> &mut [u8] {
        let from = self.used;
        self.used += bytes;
        self.held_bytes += bytes;
        if self.used > self.buffer.len() {
            let larger = self.used.next_power_of_two().max(SMALLEST_BYTES);
            self.buffer.resize(larger, 0);
        }
        &mut self.buffer[from..self.used]
    }

    /// Compresses the messages and writes the frame's head, if that has not been done. `spare` is used and left empty.
    pub fn seal(
        &mut self,
        common: &Common,
        compressor: &mut Compressor,
        spare: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        if std::mem::replace(&mut self.is_sealed, true) {
            return Ok(());
        }
        let uncompressed_bytes = self.len();
        if !compressor.is_none() {
            spare.clear();
            spare.resize(HEAD_BYTES, 0);
            compressor.compress(&self.buffer[self.from..self.used], spare)?;
            self.used = spare.len();
            std::mem::swap(&mut self.buffer, spare);
        }
        let mut command = Vec::with_capacity(HEAD_BYTES);
        commands::put_send(&mut command, self.partition as u64, self.sequence, self.messages);
        let mut metadata = Vec::with_capacity(HEAD_BYTES);
        self.put_metadata(&mut metadata, common, uncompressed_bytes);

        let covered_from = HEAD_BYTES - metadata.len() - 4;
        self.buffer[covered_from + 4..HEAD_BYTES].copy_from_slice(&metadata);
        self.buffer[covered_from..covered_from + 4].copy_from_slice(&(metadata.len() as u32).to_be_bytes());
        let checksum = crc32c(&self.buffer[covered_from..self.used]);
        self.from = covered_from - 6 - command.len() - 8;
        let frame_bytes = (self.used - self.from - 4) as u32;
        let head = &mut self.buffer[self.from..covered_from];
        let (lengths, rest) = head.split_at_mut(8);
        lengths[..4].copy_from_slice(&frame_bytes.to_be_bytes());
        lengths[4..].copy_from_slice(&(command.len() as u32).to_be_bytes());
        let (command_at, rest) = rest.split_at_mut(command.len());
        command_at.copy_from_slice(&command);
        rest[..2].copy_from_slice(&CHECKSUM_MAGIC);
        rest[2..].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }

    /// The fields of MessageMetadata.
    fn put_metadata(&self, into: &mut Vec<u8>, common: &Common, uncompressed_bytes: usize) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        into.put_bytes(1, common.name.as_bytes());
        into.put_number(2, self.sequence);
        into.put_number(3, now.map_or(0, |now| now.as_millis() as u64));
        if let Some(key) = self.key {
            let mut digits = [0; KEY_BYTES];
            into.put_bytes(6, decimal(key, &mut digits));
        }
        if common.codec != 0 {
            into.put_number(8, common.codec);
            into.put_number(9, uncompressed_bytes as u64);
        }
        into.put_number(11, u64::from(self.messages));
        into.put_number(24, self.sequence + u64::from(self.messages) - 1);
    }
}

impl AsRef<[u8]> for Batch {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[self.from..self.used]
    }
}

/// Empty batches, boxed so that queues move pointers.
#[derive(Debug, Default)]
pub(super) struct Spares {
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    batches: Vec<Box<Batch>>,
}

impl Spares {
    /// An empty batch.
    pub fn open(&mut self, producer: u32, partition: usize, now_ns: i64, due_ns: i64) -> Box<Batch> {
        let mut batch = self.batches.pop().unwrap_or_default();
        (batch.from, batch.used) = (HEAD_BYTES, HEAD_BYTES);
        batch.is_sealed = false;
        batch.partition = partition;
        batch.key = None;
        (batch.messages, batch.probes, batch.held_bytes) = (0, 0, 0);
        batch.ledger.clear(producer);
        (batch.first_sent_ns, batch.due_ns) = (now_ns, due_ns);
        if batch.buffer.len() < SMALLEST_BYTES {
            batch.buffer.resize(SMALLEST_BYTES, 0);
        }
        batch
    }

    /// Gives a batch back.
    pub fn close(&mut self, batch: Box<Batch>) {
        if self.batches.len() < SPARE_BATCHES_MAX && batch.buffer.len() <= SPARE_BYTES_MAX {
            self.batches.push(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{commands, message};
    use super::*;
    use crate::Compression;

    fn sealed(compression: Compression, bodies: &[&[u8]]) -> Box<Batch> {
        let mut batch = Spares::default().open(1, 3, 0, 0);
        batch.sequence = u64::MAX >> 8;
        batch.key = Some(u32::MAX);
        for body in bodies {
            let place = batch.extend(message::head_bytes(body.len(), b"4294967295") + body.len());
            let head = message::write_head(place, body.len(), b"4294967295");
            place[head..].copy_from_slice(body);
            batch.messages += 1;
        }
        let common = Common {
            name: "streamgauge-ffffffff-4294967295".to_owned(),
            codec: super::super::compress::codec_number(compression),
        };
        let mut compressor = Compressor::new(compression);
        batch
            .seal(&common, &mut compressor, &mut Vec::new())
            .expect("it fits");
        batch
            .seal(&common, &mut compressor, &mut Vec::new())
            .expect("nothing happens");
        batch
    }

    #[test]
    fn a_sealed_batch_is_a_frame_that_can_be_read() {
        let bodies: [&[u8]; 3] = [&[1; 300], &[2; 5000], &[]];
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let batch = sealed(compression, &bodies);
            let bytes = batch.as_ref().as_ref() as &[u8];
            let size =
                |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            assert_eq!(size(0) as usize, bytes.len() - 4);
            let payload_at = 8 + size(4) as usize;
            assert_eq!(
                commands::read(&bytes[8..payload_at]),
                Ok(commands::Command::Other)
            );
            let entry = message::read(&bytes[payload_at..]).expect("the checksum is right");
            assert_eq!(entry.permits(), 3);
            let mut decompressor = super::super::compress::Decompressor::new();
            let messages = match entry.compression {
                0 => entry.body,
                codec => decompressor
                    .decompress(codec, entry.body, entry.uncompressed_bytes)
                    .expect("it was compressed"),
            };
            let mut taken = Vec::new();
            message::each(messages, 3, &[], |body| taken.push(body.to_vec())).expect("it is whole");
            assert_eq!(taken, bodies);
        }
    }
}
