//! CRC-32C (Castagnoli, RFC 3720 appendix B.4) of short pieces, quickly.
//!
//! The `crc32c` crate is made for long buffers; a stamp is 28 bytes and most messages are short, where its set-up costs more than
//! the sum. On x86-64 with SSE 4.2 pieces up to [`SHORT_BYTES`] take the instruction directly, eight bytes at a time; longer ones, and
//! other machines, take the crate.

/// Up to here the plain loop is quicker than the crate's three-way one.
#[cfg(target_arch = "x86_64")]
const SHORT_BYTES: usize = 256;

/// The CRC of what had the CRC `crc`, followed by `bytes`.
#[inline]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_BYTES && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the feature was detected in the line above.
        return unsafe { append_short(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn append_short(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let mut state = u64::from(!crc);
    let (words, mut rest) = bytes.as_chunks::<8>();
    for word in words {
        state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
    }
    // The instruction leaves the CRC in the lower half.
    let mut state = state as u32;
    if let Some((half, after)) = rest.split_first_chunk::<4>() {
        state = _mm_crc32_u32(state, u32::from_le_bytes(*half));
        rest = after;
    }
    for byte in rest {
        state = _mm_crc32_u8(state, *byte);
    }
    !state
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_crate_s_sum(crc: u32, bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert_eq!(super::append(crc, &bytes), crc32c::crc32c_append(crc, &bytes));
        }
    }

    #[test]
    fn the_rfc_s_example() {
        // RFC 3720, B.4: 32 bytes of zeroes, and 0 to 31.
        assert_eq!(super::append(0, &[0; 32]), 0x8A91_36AA);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(super::append(0, &rising), 0x46DD_794E);
    }
}
