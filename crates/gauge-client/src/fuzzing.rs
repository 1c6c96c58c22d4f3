//! What `make fuzz` calls (fuzz/README.md): each target is a decoder of bytes that a server sends. A target must neither panic nor take
//! memory or time out of proportion to its input; it has no result.

pub(crate) use gauge_load::fuzzing::Target;

use crate::{kafka, nats, pulsar, rabbitmq};

/// The targets of this crate.
pub fn targets() -> Vec<Target> {
    [
        &kafka::fuzzing::TARGETS[..],
        &pulsar::fuzzing::TARGETS,
        &rabbitmq::fuzzing::TARGETS,
        &rabbitmq::stream::fuzzing::TARGETS,
        &nats::fuzzing::TARGETS,
    ]
    .concat()
}

/// The first byte of an input, which chooses among some ways to read the rest.
pub(crate) fn choice(input: &[u8]) -> (u8, &[u8]) {
    input
        .split_first()
        .map_or((0, input), |(first, rest)| (*first, rest))
}
