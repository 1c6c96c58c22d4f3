//! CRC-32C (Castagnoli; RFC 3720, appendix B.4), fast for both lengths that matter here: the few bytes of a stamp, and whole batches.
//!
//! Up to [`SHORT_BYTES`] the processor's own instruction is used word by word, which needs no set-up; beyond, carry-less
//! multiplication by the `crc-fast` crate, which is about ten times as fast on long input. Processors without the instruction use the
//! `crc32c` crate.

/// Longest input for which one instruction per word is the faster way.
const SHORT_BYTES: usize = 192;

/// The CRC-32C of some bytes.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    if bytes.len() <= SHORT_BYTES {
        short(0, bytes)
    } else {
        long(bytes)
    }
}

/// The CRC-32C of the bytes that had `crc`, followed by `bytes`.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    if bytes.len() <= SHORT_BYTES {
        short(crc, bytes)
    } else {
        let combined = crc_fast::checksum_combine(
            crc_fast::CrcAlgorithm::Crc32Iscsi,
            u64::from(crc),
            u64::from(long(bytes)),
            bytes.len() as u64,
        );
        combined as u32
    }
}

/// The CRC-32C of the bytes that had `crc`, followed by the little-endian bytes of these four words: what a stamp's checksum covers,
/// without a detour through memory (bytes that were just written in other portions are slow to read).
#[inline]
pub fn crc32c_append_words(crc: u32, first: u64, second: u32, third: u64, fourth: u64) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { four_words(crc, first, second, third, fourth) };
    }
    let mut bytes = [0; 28];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..12].copy_from_slice(&second.to_le_bytes());
    bytes[12..20].copy_from_slice(&third.to_le_bytes());
    bytes[20..].copy_from_slice(&fourth.to_le_bytes());
    short(crc, &bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn four_words(crc: u32, first: u64, second: u32, third: u64, fourth: u64) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u32, _mm_crc32_u64};
    let state = _mm_crc32_u64(u64::from(!crc), first);
    let state = _mm_crc32_u32(state as u32, second);
    let state = _mm_crc32_u64(u64::from(state), third);
    !(_mm_crc32_u64(state, fourth) as u32)
}

fn long(bytes: &[u8]) -> u32 {
    // "Crc32Iscsi" is the catalogue's name of CRC-32C; the result has 32 bits.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn short(crc: u32, bytes: &[u8]) -> u32 {
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        unsafe { words(crc, bytes) }
    } else {
        crc32c::crc32c_append(crc, bytes)
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn words(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let mut state = u64::from(!crc);
    let (longs, rest) = bytes.as_chunks::<8>();
    for long in longs {
        state = _mm_crc32_u64(state, u64::from_le_bytes(*long));
    }
    let mut state = state as u32;
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        state = _mm_crc32_u32(state, u32::from_le_bytes(*word));
    }
    for byte in rest {
        state = _mm_crc32_u8(state, *byte);
    }
    !state
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn short(crc: u32, bytes: &[u8]) -> u32 {
    if std::arch::is_aarch64_feature_detected!("crc") {
        // SAFETY: the processor has the instruction.
        unsafe { words(crc, bytes) }
    } else {
        crc32c::crc32c_append(crc, bytes)
    }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "crc")]
fn words(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::aarch64::{__crc32cb, __crc32cd, __crc32cw};
    let mut state = !crc;
    let (longs, rest) = bytes.as_chunks::<8>();
    for long in longs {
        state = __crc32cd(state, u64::from_le_bytes(*long));
    }
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        state = __crc32cw(state, u32::from_le_bytes(*word));
    }
    for byte in rest {
        state = __crc32cb(state, *byte);
    }
    !state
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
fn short(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_check_value_of_the_catalogue_is_reached() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    proptest! {
        #[test]
        fn words_count_as_their_bytes(crc: u32, first: u64, second: u32, third: u64, fourth: u64) {
            let mut bytes = first.to_le_bytes().to_vec();
            bytes.extend_from_slice(&second.to_le_bytes());
            bytes.extend_from_slice(&third.to_le_bytes());
            bytes.extend_from_slice(&fourth.to_le_bytes());
            prop_assert_eq!(
                crc32c_append_words(crc, first, second, third, fourth),
                crc32c::crc32c_append(crc, &bytes)
            );
        }

        #[test]
        fn all_lengths_and_cuts_agree_with_another_implementation(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000), cut: prop::sample::Index,
        ) {
            let expected = crc32c::crc32c(&bytes);
            prop_assert_eq!(crc32c(&bytes), expected);
            let cut = cut.index(bytes.len() + 1);
            prop_assert_eq!(crc32c_append(crc32c(&bytes[..cut]), &bytes[cut..]), expected);
        }
    }
}
