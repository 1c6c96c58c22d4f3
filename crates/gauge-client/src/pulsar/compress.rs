//! Compression of a batch's messages as Pulsar defines it: bare blocks whose uncompressed size stands in the metadata.
//!
//! - LZ4: one block without frame or length. ZLIB: one zlib stream (RFC 1950). ZSTD: one zstd frame. SNAPPY: one raw block.
//!
//! A workload's `gzip` is Pulsar's ZLIB: the same deflate with another wrapping.

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

use super::wire::Malformed;
use crate::Compression;
use crate::kafka::compress::{Compressor as Shared, DECOMPRESSED_BYTES_MAX};

const BROKEN: Malformed = Malformed("compressed messages that cannot be decompressed");

/// The number of a codec in the metadata.
pub(super) fn codec_number(compression: Compression) -> u64 {
    match compression {
        Compression::None => 0,
        Compression::Lz4 => 1,
        Compression::Gzip => 2,
        Compression::Zstd => 3,
        Compression::Snappy => 4,
    }
}

/// Compresses batches with one codec.
pub(super) enum Compressor {
    None,
    Zlib(Compress),
    Lz4,
    Snappy(Box<snap::raw::Encoder>),
    /// Nothing differs from the other protocols. Made with the first batch.
    Zstd(Option<Shared>),
}

impl Compressor {
    pub fn new(compression: Compression) -> Compressor {
        match compression {
            Compression::None => Compressor::None,
            Compression::Gzip => Compressor::Zlib(Compress::new(flate2::Compression::default(), true)),
            Compression::Lz4 => Compressor::Lz4,
            Compression::Snappy => Compressor::Snappy(Box::new(snap::raw::Encoder::new())),
            Compression::Zstd => Compressor::Zstd(None),
        }
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Compressor::None)
    }

    /// Appends the compressed form of `messages` to `out`.
    ///
    /// # Errors
    /// The codec's own; none is known for input of a batch's size.
    pub fn compress(&mut self, messages: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            Compressor::None => out.extend_from_slice(messages),
            Compressor::Zstd(shared) => {
                let shared = match shared {
                    Some(shared) => shared,
                    empty => empty.insert(Shared::new(Compression::Zstd)?),
                };
                shared.compress(messages, out)?;
            }
            Compressor::Zlib(state) => {
                state.reset();
                let mut status = Status::Ok;
                while status != Status::StreamEnd {
                    out.reserve(messages.len() / 2 + 1024);
                    let rest = &messages[state.total_in() as usize..];
                    status = state
                        .compress_vec(rest, out, FlushCompress::Finish)
                        .map_err(std::io::Error::other)?;
                }
            }
            Compressor::Lz4 => {
                let from = out.len();
                out.resize(from + lz4_flex::block::get_maximum_output_size(messages.len()), 0);
                let written = lz4_flex::block::compress_into(messages, &mut out[from..])
                    .map_err(std::io::Error::other)?;
                out.truncate(from + written);
            }
            Compressor::Snappy(encoder) => {
                let from = out.len();
                out.resize(from + snap::raw::max_compress_len(messages.len()), 0);
                let written = encoder.compress(messages, &mut out[from..])?;
                out.truncate(from + written);
            }
        }
        Ok(())
    }
}

const UNKNOWN_CODEC: Malformed = Malformed("messages compressed with an unknown codec");

/// How many bytes a byte can become at most, by the number of the codec: none; LZ4, a byte of a match's length is 255 bytes; zlib, two bits
/// are a match of 258; zstd, a block of 4 bytes repeats one for 128 KiB; Snappy, 3 bytes copy 64.
const RATIOS_MAX: [usize; 5] = [1, 255, 1032, 32 << 10, 22];

/// Decompresses batches of any codec into a buffer that is used again.
pub(super) struct Decompressor {
    zlib: Decompress,
    snappy: snap::raw::Decoder,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    out: Vec<u8>,
}

impl Decompressor {
    pub fn new() -> Decompressor {
        Decompressor {
            zlib: Decompress::new(true),
            snappy: snap::raw::Decoder::new(),
            zstd: None,
            out: Vec::new(),
        }
    }

    /// The decompressed form of a batch's messages.
    ///
    /// # Errors
    /// When they cannot be decompressed, or are not as long as the metadata says.
    pub fn decompress(&mut self, codec: u64, messages: &[u8], bytes: usize) -> Result<&[u8], Malformed> {
        if bytes > DECOMPRESSED_BYTES_MAX {
            return Err(Malformed("compressed messages longer than 128 MiB"));
        }
        // What no message of this length can become is a lie, and not worth the memory.
        let ratio_max = usize::try_from(codec)
            .ok()
            .and_then(|codec| RATIOS_MAX.get(codec));
        let Some(&ratio_max) = ratio_max else {
            return Err(UNKNOWN_CODEC);
        };
        if bytes > messages.len().saturating_mul(ratio_max) {
            return Err(BROKEN);
        }
        self.out.clear();
        self.out.resize(bytes, 0);
        let out = &mut self.out[..];
        let written = match codec {
            1 => lz4_flex::block::decompress_into(messages, out).map_err(|_| BROKEN)?,
            2 => {
                self.zlib.reset(true);
                let status = self.zlib.decompress(messages, out, FlushDecompress::Finish);
                if status.map_err(|_| BROKEN)? != Status::StreamEnd {
                    return Err(BROKEN);
                }
                self.zlib.total_out() as usize
            }
            3 => {
                let decoder = match &mut self.zstd {
                    Some(decoder) => decoder,
                    empty => empty.insert(zstd::bulk::Decompressor::new().map_err(|_| BROKEN)?),
                };
                decoder.decompress_to_buffer(messages, out).map_err(|_| BROKEN)?
            }
            4 => self.snappy.decompress(messages, out).map_err(|_| BROKEN)?,
            _ => return Err(UNKNOWN_CODEC),
        };
        if written != bytes {
            return Err(BROKEN);
        }
        Ok(&self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Compression; 4] = [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    #[test]
    fn what_is_compressed_comes_back() {
        let mut decompressor = Decompressor::new();
        for compression in ALL {
            let mut compressor = Compressor::new(compression);
            for messages in [Vec::new(), vec![7; 100_000], (0..=255).collect::<Vec<u8>>()] {
                let mut out = b"head".to_vec();
                compressor.compress(&messages, &mut out).expect("it fits");
                let codec = codec_number(compression);
                let back = decompressor.decompress(codec, &out[4..], messages.len());
                assert_eq!(back, Ok(&messages[..]), "{compression:?}");
                assert!(
                    decompressor
                        .decompress(codec, &out[4..], messages.len() + 1)
                        .is_err()
                );
            }
        }
    }

    proptest! {
        #[test]
        fn garbage_is_no_reason_to_panic(codec in 0..6u64, bytes: Vec<u8>, length in 0..10_000usize) {
            let _ = Decompressor::new().decompress(codec, &bytes, length);
        }
    }
}
