//! Compression of the records of a batch, as the Kafka codecs write it.
//!
//! - gzip: one gzip member (RFC 1952) with an empty header; several members are read as one.
//! - snappy: the framing of the xerial Java library, which Kafka's Java client writes and expects; bare snappy is read as well.
//! - lz4: the LZ4 frame format with independent blocks of 64 KiB (KIP-57 corrected its header checksum for batches of version 2).
//! - zstd: one zstd frame (KIP-110).
//!
//! Contexts are made once and used again, except for lz4 whose crate has none to offer.

use std::io::{Read, Write};

use flate2::{Compress, Crc, Decompress, FlushCompress, FlushDecompress, Status};
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use zstd::stream::raw::{Decoder as ZstdDecoder, InBuffer, Operation, OutBuffer};

use super::wire::Malformed;
use crate::Compression;

/// Decompressed records of one batch may not be longer than this: 128 MiB, more than any broker's batch limit in use.
pub(crate) const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;

const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Magic, version 1, oldest compatible version 1.
const XERIAL_HEADER: [u8; 16] = [
    0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1,
];
/// The block size of the Java library.
const XERIAL_BLOCK_BYTES: usize = 32 << 10;
const GZIP_HEADER: [u8; 10] = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0];
/// What the Java client uses when no level is configured.
const ZSTD_LEVEL: i32 = 3;
/// Output grows in steps of at least this.
const GROW_BYTES: usize = 64 << 10;

const BROKEN: Malformed = Malformed("compressed records that cannot be decompressed");
const TOO_LONG: Malformed = Malformed("compressed records longer than 128 MiB");

/// The number of a codec in a batch's attributes.
pub(crate) fn codec_number(compression: Compression) -> i16 {
    match compression {
        Compression::None => 0,
        Compression::Gzip => 1,
        Compression::Snappy => 2,
        Compression::Lz4 => 3,
        Compression::Zstd => 4,
    }
}

/// Compresses batches with one codec.
pub(crate) enum Compressor {
    None,
    Gzip(Compress),
    /// Boxed because of its table, which is larger than all the rest.
    Snappy(Box<snap::raw::Encoder>),
    Lz4,
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Compressor {
    pub fn new(compression: Compression) -> std::io::Result<Compressor> {
        Ok(match compression {
            Compression::None => Compressor::None,
            Compression::Gzip => Compressor::Gzip(Compress::new(flate2::Compression::default(), false)),
            Compression::Snappy => Compressor::Snappy(Box::new(snap::raw::Encoder::new())),
            Compression::Lz4 => Compressor::Lz4,
            Compression::Zstd => Compressor::Zstd(zstd::bulk::Compressor::new(ZSTD_LEVEL)?),
        })
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Compressor::None)
    }

    /// Appends the compressed form of `records` to `out`.
    ///
    /// # Errors
    /// The codec's own; none is known for input of a batch's size.
    pub fn compress(&mut self, records: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            Compressor::None => out.extend_from_slice(records),
            Compressor::Gzip(state) => gzip(state, records, out)?,
            Compressor::Snappy(encoder) => xerial(encoder, records, out)?,
            Compressor::Lz4 => {
                let info = FrameInfo::new()
                    .block_size(BlockSize::Max64KB)
                    .block_mode(BlockMode::Independent);
                let mut encoder = FrameEncoder::with_frame_info(info, &mut *out);
                encoder.write_all(records)?;
                encoder.finish().map_err(std::io::Error::other)?;
            }
            Compressor::Zstd(compressor) => {
                let from = out.len();
                out.resize(from + zstd::zstd_safe::compress_bound(records.len()), 0);
                let written = compressor.compress_to_buffer(records, &mut out[from..])?;
                out.truncate(from + written);
            }
        }
        Ok(())
    }
}

fn gzip(state: &mut Compress, records: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    out.extend_from_slice(&GZIP_HEADER);
    state.reset();
    let mut input = records;
    loop {
        if out.capacity() - out.len() < GROW_BYTES {
            out.reserve(GROW_BYTES);
        }
        let before = state.total_in();
        let status = state
            .compress_vec(input, out, FlushCompress::Finish)
            .map_err(std::io::Error::other)?;
        input = &input[(state.total_in() - before) as usize..];
        if status == Status::StreamEnd {
            break;
        }
    }
    let mut crc = Crc::new();
    crc.update(records);
    out.extend_from_slice(&crc.sum().to_le_bytes());
    out.extend_from_slice(&crc.amount().to_le_bytes());
    Ok(())
}

fn xerial(encoder: &mut snap::raw::Encoder, records: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    out.extend_from_slice(&XERIAL_HEADER);
    for block in records.chunks(XERIAL_BLOCK_BYTES) {
        let length_at = out.len();
        out.resize(length_at + 4 + snap::raw::max_compress_len(block.len()), 0);
        let written = encoder.compress(block, &mut out[length_at + 4..])?;
        out[length_at..length_at + 4].copy_from_slice(&(written as u32).to_be_bytes());
        out.truncate(length_at + 4 + written);
    }
    Ok(())
}

/// Decompresses batches of any codec into a buffer that is used again.
pub(crate) struct Decompressor {
    gzip: Decompress,
    snappy: snap::raw::Decoder,
    zstd: Option<ZstdDecoder<'static>>,
    out: Vec<u8>,
}

impl Decompressor {
    pub fn new() -> Decompressor {
        Decompressor {
            gzip: Decompress::new(false),
            snappy: snap::raw::Decoder::new(),
            zstd: None,
            out: Vec::new(),
        }
    }

    /// The decompressed form of a batch's records.
    ///
    /// # Errors
    /// When they cannot be decompressed, or would be longer than [`DECOMPRESSED_BYTES_MAX`].
    pub fn decompress(&mut self, codec: i16, records: &[u8]) -> Result<&[u8], Malformed> {
        self.out.clear();
        match codec {
            1 => self.gunzip(records)?,
            2 => self.unsnappy(records)?,
            3 => read_all(FrameDecoder::new(records), &mut self.out)?,
            4 => self.unzstd(records)?,
            _ => return Err(Malformed("records compressed with an unknown codec")),
        }
        Ok(&self.out)
    }

    fn gunzip(&mut self, mut input: &[u8]) -> Result<(), Malformed> {
        while !input.is_empty() {
            input = &input[gzip_header_bytes(input)?..];
            self.gzip.reset(false);
            let from = self.out.len();
            loop {
                grow(&mut self.out)?;
                let (read, written) = (self.gzip.total_in(), self.gzip.total_out());
                let status = self
                    .gzip
                    .decompress_vec(input, &mut self.out, FlushDecompress::None)
                    .map_err(|_| BROKEN)?;
                input = &input[(self.gzip.total_in() - read) as usize..];
                if status == Status::StreamEnd {
                    break;
                }
                if input.is_empty() && self.gzip.total_out() == written {
                    return Err(BROKEN);
                }
            }
            let mut crc = Crc::new();
            crc.update(&self.out[from..]);
            let trailer = input.first_chunk::<8>().ok_or(BROKEN)?;
            if trailer[..4] != crc.sum().to_le_bytes() || trailer[4..] != crc.amount().to_le_bytes() {
                return Err(BROKEN);
            }
            input = &input[8..];
        }
        Ok(())
    }

    fn unsnappy(&mut self, input: &[u8]) -> Result<(), Malformed> {
        if !input.starts_with(&XERIAL_MAGIC) {
            return self.unsnappy_block(input);
        }
        let mut input = input.get(XERIAL_HEADER.len()..).ok_or(BROKEN)?;
        while !input.is_empty() {
            let length = u32::from_be_bytes(*input.first_chunk::<4>().ok_or(BROKEN)?) as usize;
            let block = input[4..].get(..length).ok_or(BROKEN)?;
            self.unsnappy_block(block)?;
            input = &input[4 + length..];
        }
        Ok(())
    }

    fn unsnappy_block(&mut self, block: &[u8]) -> Result<(), Malformed> {
        let length = snap::raw::decompress_len(block).map_err(|_| BROKEN)?;
        // Snappy cannot do better than 64 bytes for 3 (one copy element): a length beyond that is a lie, and not worth the memory.
        let from = self.out.len();
        if length > block.len().saturating_mul(24) {
            return Err(BROKEN);
        }
        if length > DECOMPRESSED_BYTES_MAX - from {
            return Err(TOO_LONG);
        }
        self.out.resize(from + length, 0);
        let written = self
            .snappy
            .decompress(block, &mut self.out[from..])
            .map_err(|_| BROKEN)?;
        self.out.truncate(from + written);
        Ok(())
    }

    fn unzstd(&mut self, input: &[u8]) -> Result<(), Malformed> {
        let decoder = match &mut self.zstd {
            Some(decoder) => decoder,
            empty => empty.insert(ZstdDecoder::new().map_err(|_| BROKEN)?),
        };
        decoder.reinit().map_err(|_| BROKEN)?;
        let mut source = InBuffer::around(input);
        loop {
            grow(&mut self.out)?;
            let from = self.out.len();
            self.out.resize(self.out.capacity(), 0);
            let mut target = OutBuffer::around(&mut self.out[from..]);
            let hint = decoder.run(&mut source, &mut target).map_err(|_| BROKEN)?;
            let written = target.pos();
            self.out.truncate(from + written);
            if hint == 0 && source.pos() == input.len() {
                return Ok(());
            }
            if written == 0 && source.pos() == input.len() {
                return Err(BROKEN);
            }
        }
    }
}

/// Makes room for at least one more step of output, doubling, up to the limit.
fn grow(out: &mut Vec<u8>) -> Result<(), Malformed> {
    if out.len() >= DECOMPRESSED_BYTES_MAX {
        return Err(TOO_LONG);
    }
    if out.capacity() - out.len() < GROW_BYTES {
        out.reserve(GROW_BYTES.max(out.len().min(DECOMPRESSED_BYTES_MAX - out.len())));
    }
    Ok(())
}

fn read_all(source: impl Read, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let limit = DECOMPRESSED_BYTES_MAX as u64;
    let read = source.take(limit + 1).read_to_end(out).map_err(|_| BROKEN)?;
    if read as u64 > limit {
        return Err(TOO_LONG);
    }
    Ok(())
}

/// Bytes of the header of a gzip member (RFC 1952, 2.3).
fn gzip_header_bytes(input: &[u8]) -> Result<usize, Malformed> {
    let head = input.first_chunk::<10>().ok_or(BROKEN)?;
    if head[..3] != GZIP_HEADER[..3] {
        return Err(BROKEN);
    }
    let flags = head[3];
    let mut at = 10;
    if flags & 0x04 != 0 {
        let length = input.get(at..at + 2).ok_or(BROKEN)?;
        at += 2 + usize::from(u16::from_le_bytes([length[0], length[1]]));
    }
    for text in [0x08, 0x10] {
        if flags & text != 0 {
            let rest = input.get(at..).ok_or(BROKEN)?;
            at += rest.iter().position(|byte| *byte == 0).ok_or(BROKEN)? + 1;
        }
    }
    if flags & 0x02 != 0 {
        at += 2;
    }
    if at > input.len() { Err(BROKEN) } else { Ok(at) }
}
