//! How topics, partitions and subscriptions are called in NATS.
//!
//! A topic is a stream of the same name, a partition is a subject, and the stream collects `<prefix>.*`. The prefix is the topic's name;
//! of a long name it is a checksum, because a subject travels with every message, and those of NATS's users are short.

use crate::ClientError;

/// The longest topic name that serves as the subjects' prefix itself.
const PREFIX_BYTES_MAX: usize = 24;

/// Checks a name that becomes a stream's or a consumer's.
///
/// # Errors
/// When NATS does not take it: ADR-6 "Naming rules".
pub(crate) fn check(field: &str, name: &str) -> Result<(), ClientError> {
    let is_wrong = |character: char| {
        character.is_whitespace() || character.is_control() || ['.', '*', '>', '/', '\\'].contains(&character)
    };
    match name.chars().find(|character| is_wrong(*character)) {
        Some(character) => Err(ClientError::input(
            field,
            format!(
                "'{name}' cannot be the name of a NATS stream or consumer: it has the character {character:?}; expected letters, digits, '-' and '_'"
            ),
        )),
        None if name.is_empty() => Err(ClientError::input(field, "expected a name, found none")),
        None => Ok(()),
    }
}

/// What the subjects of a topic begin with.
pub(crate) fn prefix(topic: &str) -> String {
    if topic.len() <= PREFIX_BYTES_MAX {
        topic.to_owned()
    } else {
        format!("sg-{:08x}", fnv1a(topic.as_bytes()))
    }
}

/// The subject of a partition.
pub(crate) fn subject(topic: &str, partition: u32) -> String {
    format!("{}.{partition}", prefix(topic))
}

/// FNV-1a with 32 bits: what the server's own `partition()` mapping hashes subjects' tokens with.
pub(crate) fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// The partition of a key, as the server's `partition(n, token)` mapping chooses it.
pub(crate) fn partition_of(key: &[u8], partitions: u32) -> u32 {
    fnv1a(key) % partitions.max(1)
}

/// A name that nobody else has: for inboxes.
pub(crate) fn unique() -> String {
    use std::hash::{BuildHasher, Hasher};
    // The standard library's hasher is seeded by the operating system.
    let random = crate::world::unique().unwrap_or_else(|| {
        std::collections::hash_map::RandomState::new()
            .build_hasher()
            .finish()
    });
    format!("{random:016x}")[4..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // Test vectors of draft-eastlake-fnv.
        assert_eq!(fnv1a(b""), 0x811c_9dc5);
        assert_eq!(fnv1a(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn names_that_nats_does_not_take_are_refused() {
        for wrong in ["", "a.b", "a b", "a*", ">", "a/b", "a\\b", "a\n"] {
            assert!(check("topics[0].name", wrong).is_err(), "{wrong:?}");
        }
        assert!(check("topics[0].name", "streamgauge-2026-11-21-1-0").is_ok());
    }

    #[test]
    fn subjects_are_short() {
        assert_eq!(subject("t-0", 3), "t-0.3");
        let long = subject("streamgauge-20261121-155139-abc-1c291ca3-1-0", 15);
        assert!(
            long.starts_with("sg-") && long.ends_with(".15") && long.len() == 14,
            "{long}"
        );
    }
}
