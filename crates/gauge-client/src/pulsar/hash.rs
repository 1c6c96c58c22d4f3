//! Which partition a key belongs to, as Pulsar's Java client decides it by default (JavaStringHash): the hash that Java's language
//! specification gives a string's characters, without its sign, modulo the partitions.

/// The partition of a key that consists of ASCII characters.
#[inline]
pub(super) fn partition_of(key: &[u8], partitions: u32) -> u32 {
    let hash = key.iter().fold(0u32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u32::from(*byte))
    });
    (hash & 0x7FFF_FFFF) % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hashed_as_java_does() {
        // As a JDK prints them; the last one's hash is -662265043.
        assert_eq!(partition_of(b"hello", 1 << 31), 99_162_322);
        assert_eq!(partition_of(b"", 16), 0);
        assert_eq!(partition_of(b"1000", 16), 1_507_423 % 16);
        assert_eq!(partition_of(b"4294967295", 1 << 31), (1 << 31) - 662_265_043);
    }
}
