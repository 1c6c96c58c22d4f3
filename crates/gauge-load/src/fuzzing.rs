//! What `make fuzz` calls (fuzz/README.md): the decoders of what others send.

use crate::SequenceSet;
use crate::stamp::{self, Stamp};

/// Name, what runs an input, and inputs to begin with.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// The targets of this crate.
pub fn targets() -> Vec<Target> {
    vec![
        ("stamps", stamps, stamp_seeds),
        ("sequence-sets", sequence_sets, sequence_set_seeds),
    ]
}

fn stamps(message: &[u8]) {
    std::hint::black_box(stamp::check(message));
}

fn stamp_seeds() -> Vec<Vec<u8>> {
    let stamp = Stamp {
        run: 1,
        producer: 2,
        sequence: 3,
        intended_ns: 4,
    };
    let mut message = vec![7; 64];
    let tail_crc = stamp::tail_crc(&message[stamp::STAMP_BYTES..]);
    stamp::write(&mut message, &stamp, tail_crc);
    vec![message]
}

fn sequence_sets(bytes: &[u8]) {
    let Some(set) = SequenceSet::from_bytes(bytes) else {
        return;
    };
    assert_eq!(set.to_bytes(), bytes, "a set is written as it was read");
    let mut both = set.clone();
    assert_eq!(both.unite(&set), set.len(), "all of a set is in itself");
    for (from, until) in set.missing_below(set.last().map_or(0, |last| last + 1)) {
        assert!(from < until && !set.contains(from) && !set.contains(until - 1));
    }
}

fn sequence_set_seeds() -> Vec<Vec<u8>> {
    let mut set = SequenceSet::new();
    [1, 2, 70_000].into_iter().for_each(|sequence| {
        set.insert(sequence);
    });
    vec![set.to_bytes(), vec![1, 1, 0]]
}
