//! Which partition a key belongs to: as RabbitMQ's own stream clients decide it for super streams.
//!
//! Murmur3 (32 bits, x86 variant) with seed 104729, as RabbitMQ's Java and Go clients hash routing keys; then modulo the partitions.

const SEED: u32 = 104_729;

/// The partition of a key.
pub(super) fn partition_of(key: &[u8], partitions: u32) -> u32 {
    murmur3(key, SEED) % partitions.max(1)
}

fn murmur3(bytes: &[u8], seed: u32) -> u32 {
    let mix = |word: u32| {
        word.wrapping_mul(0xcc9e_2d51)
            .rotate_left(15)
            .wrapping_mul(0x1b87_3593)
    };
    let mut hash = seed;
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        hash = (hash ^ mix(u32::from_le_bytes(*word)))
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64);
    }
    let mut last = 0;
    for (at, byte) in tail.iter().enumerate() {
        last |= u32::from(*byte) << (8 * at);
    }
    hash ^= mix(last);
    hash ^= bytes.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // Published test vectors of MurmurHash3_x86_32.
        assert_eq!(murmur3(b"", 0), 0);
        assert_eq!(murmur3(b"", 1), 0x514e_28b7);
        assert_eq!(murmur3(b"test", 0), 0xba6b_d213);
        assert_eq!(murmur3(b"Hello, world!", 0x9747_b28c), 0x2488_4cba);
    }
}
