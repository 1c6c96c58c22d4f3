//! Which partition a key belongs to, as Pulsar's Java client decides it by default (JavaStringHash): the hash that Java's language
//! specification gives a string's characters, without its sign, modulo the partitions.

/// Room for the decimal digits of a key.
pub(super) const KEY_BYTES: usize = 10;

/// The decimal digits of a key.
#[inline]
pub(super) fn decimal(mut key: u32, digits: &mut [u8; KEY_BYTES]) -> &[u8] {
    let mut at = KEY_BYTES;
    loop {
        at -= 1;
        digits[at] = b'0' + (key % 10) as u8;
        key /= 10;
        if key == 0 {
            return &digits[at..];
        }
    }
}

/// The partition of a key that consists of ASCII characters.
#[inline]
pub(super) fn partition_of(key: &[u8], partitions: usize) -> usize {
    let hash = key.iter().fold(0u32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u32::from(*byte))
    });
    (hash & 0x7FFF_FFFF) as usize % partitions.max(1)
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
        let mut digits = [0; KEY_BYTES];
        assert_eq!(decimal(u32::MAX, &mut digits), b"4294967295");
        assert_eq!(decimal(0, &mut digits), b"0");
    }
}
