//! Chunks: the unit in which a stream stores and delivers messages.
//!
//! Source: PROTOCOL.adoc of the plugin rabbitmq_stream (OsirisChunk). 48 bytes of header, then entries: a message with its length, or
//! a batch of messages (sub-batch), which may be compressed. The checksum (CRC-32 of IEEE 802.3) covers the entries.

use super::super::codec::{Malformed, Reader};

/// First byte: magic 5 and version 0.
const MAGIC_VERSION: u8 = 0x50;
/// A chunk of messages; others are of the stream's own.
const USER_CHUNK: u8 = 0;
/// Bit of an entry that holds several messages.
const SUB_BATCH: u8 = 0x80;

/// A chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk<'a> {
    /// Offset of its first message.
    pub first_offset: u64,
    /// Number of its messages.
    pub records: u32,
    entries: u16,
    crc: u32,
    is_user: bool,
    data: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Reads a chunk's header.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Result<Chunk<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != MAGIC_VERSION {
            return Err(Malformed("a chunk is of an unknown version"));
        }
        let kind = reader.u8()?;
        let (entries, records) = (reader.u16()?, reader.u32()?);
        // Timestamp and epoch.
        reader.bytes(16)?;
        let (first_offset, crc, data_bytes) = (reader.u64()?, reader.u32()?, reader.u32()?);
        // Length of the trailer, and a reserved field whose first byte is the length of a filter since RabbitMQ 3.13.
        reader.u32()?;
        let filter_bytes = reader.u32()? >> 24;
        reader.bytes(filter_bytes as usize)?;
        Ok(Chunk {
            first_offset,
            records,
            entries,
            crc,
            is_user: kind == USER_CHUNK,
            data: reader.bytes(data_bytes as usize)?,
        })
    }

    /// Offset behind its last message.
    pub fn end_offset(&self) -> u64 {
        self.first_offset.saturating_add(self.records.into())
    }

    /// Whether the checksum fits.
    pub fn is_whole(&self) -> bool {
        let mut crc = flate2::Crc::new();
        crc.update(self.data);
        crc.sum() == self.crc
    }

    /// Hands every message to `deliver`, with its offset.
    #[inline]
    pub fn messages(&self, mut deliver: impl FnMut(u64, &'a [u8])) -> Result<(), Malformed> {
        if !self.is_user {
            return Ok(());
        }
        let mut reader = Reader::new(self.data);
        let mut offset = self.first_offset;
        for _ in 0..self.entries {
            let head = reader.u8()?;
            if head & SUB_BATCH == 0 {
                let [a, b, c] = [reader.u8()?, reader.u8()?, reader.u8()?];
                let bytes = u32::from_be_bytes([head, a, b, c]) as usize;
                deliver(offset, reader.bytes(bytes)?);
                offset = offset.wrapping_add(1);
                continue;
            }
            let compression = head >> 4 & 7;
            let (records, _, bytes) = (reader.u16()?, reader.u32()?, reader.u32()?);
            let mut batch = Reader::new(reader.bytes(bytes as usize)?);
            if compression != 0 {
                return Err(Malformed(
                    "a batch within a chunk is compressed, which this client does not read",
                ));
            }
            for _ in 0..records {
                let bytes = batch.u32()?;
                deliver(offset, batch.bytes(bytes as usize)?);
                offset = offset.wrapping_add(1);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::codec::Put;
    use super::*;

    fn chunk(entries: u16, records: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![MAGIC_VERSION, USER_CHUNK];
        bytes.put_u16(entries);
        bytes.put_u32(records);
        bytes.put_u64(1_700_000_000_000);
        bytes.put_u64(1);
        bytes.put_u64(40);
        let mut crc = flate2::Crc::new();
        crc.update(data);
        bytes.put_u32(crc.sum());
        bytes.put_u32(data.len() as u32);
        bytes.put_u32(0);
        bytes.put_u32(0);
        bytes.put(data);
        bytes
    }

    fn messages(bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut found = Vec::new();
        let chunk = Chunk::read(bytes).unwrap();
        assert!(chunk.is_whole());
        chunk
            .messages(|offset, message| found.push((offset, message.to_vec())))
            .unwrap();
        found
    }

    #[test]
    fn simple_entries_and_batches_are_read() {
        let mut data = Vec::new();
        data.put_long_string(b"one");
        // A batch of two, not compressed.
        data.put_u8(SUB_BATCH);
        data.put_u16(2);
        data.put_u32(13);
        data.put_u32(13);
        data.put_long_string(b"two");
        data.put_long_string(b"3s");
        let bytes = chunk(2, 3, &data);
        assert_eq!(Chunk::read(&bytes).unwrap().end_offset(), 43);
        let expected = [(40, b"one".to_vec()), (41, b"two".to_vec()), (42, b"3s".to_vec())];
        assert_eq!(messages(&bytes), expected);
    }

    #[test]
    fn the_checksum_is_that_of_ieee_802_3() {
        // The checksum's published check value is that of these nine digits.
        let bytes = chunk(0, 0, b"123456789");
        assert_eq!(&bytes[32..36], &0xcbf4_3926u32.to_be_bytes());
    }

    #[test]
    fn a_changed_byte_is_found() {
        let mut data = Vec::new();
        data.put_long_string(b"one");
        let mut bytes = chunk(1, 1, &data);
        *bytes.last_mut().unwrap() ^= 1;
        assert!(!Chunk::read(&bytes).unwrap().is_whole());
    }

    #[test]
    fn compressed_batches_are_refused_by_name() {
        let mut data = Vec::new();
        data.put_u8(SUB_BATCH | 1 << 4);
        data.put_u16(1);
        data.put_u32(10);
        data.put_long_string(b"gzip");
        let bytes = chunk(1, 1, &data);
        assert!(Chunk::read(&bytes).unwrap().messages(|_, _| {}).is_err());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(entries in any::<u16>(), data in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..250) {
            let bytes = chunk(entries, 5, &data);
            let bytes = &bytes[..cut.min(bytes.len())];
            if let Ok(chunk) = Chunk::read(bytes) {
                let _ = chunk.messages(|_, _| {});
            }
        }
    }
}
