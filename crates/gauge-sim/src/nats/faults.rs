//! What goes wrong with NATS servers, and what else a seed draws of them.

use fastrand::Rng;

use crate::nodes::Place;
use crate::scenario::one;

/// How many kinds of faults there are.
pub const KINDS: u32 = 16;

/// How a stream answers a publication that it does not acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody listens to the subject (status 503).
    NoResponders,
    /// JetStream's error of this number.
    Error(u32),
    /// Not at all.
    Silence,
}

/// How a consumer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is deleted, and those who wait for messages are told so.
    Deleted,
    /// It is gone, and nobody is told.
    Gone,
    /// It has another leader: pulls are ended with a status that tells how much of them was left.
    Moved,
    /// The same; the status does not tell.
    MovedUncounted,
    /// The same; there is no status.
    MovedSilently,
    /// The new leader lacks the last deliveries and makes them again.
    Behind,
    /// The next delivery is lost between two servers.
    Dropped,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A stream gets another leader; of what was proposed and not acknowledged so many messages are kept.
    Move { slot: usize, keeps: usize },
    /// The next messages of a stream are answered so; stored or not.
    Refuse {
        slot: usize,
        refusal: Refusal,
        is_stored: bool,
        messages: u32,
    },
    /// Followers do not follow for so long.
    Stall { slot: usize, for_ns: i64 },
    /// The next requests for consumers of a stream are answered so.
    RefuseConsumer {
        slot: usize,
        refusal: Refusal,
        requests: u32,
    },
    /// Consumers of a stream are lost.
    LoseConsumers { slot: usize, loss: Loss },
    /// A node says `-ERR` to all and closes their connections.
    Error { node: usize, which: usize },
    /// A node tells that it will go, and closes everything after so long.
    LameDuck { node: usize, for_ns: i64 },
    /// A node tells of other servers.
    News { node: usize },
    /// A node asks whether its clients are there.
    Ping { node: usize },
    /// A message is damaged in the stream.
    Damage { slot: usize },
}

/// What a server says before it closes a connection.
pub const WORDS: [&str; 4] = [
    "Stale Connection",
    "Slow Consumer",
    "Maximum Connections Exceeded",
    "Secure Connection - TLS Required",
];

/// What is drawn of NATS alone.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Until a stream's followers have a message, at most; `draw_the_end` bounds it by what the load needs.
    pub follow_ns: i64,
    /// Whether a stream remembers the ids of messages.
    pub ack_policy: &'static str,
    pub window_msgs: u32,
    /// An answer goes to whoever listens to its subject now, and not only to the connection of the question.
    pub answers_wander: bool,
}

impl Settings {
    /// Draws them.
    pub fn draw(rng: &mut Rng) -> Settings {
        Settings {
            follow_ns: one(rng, &[0, 100_000, 5_000_000, 50_000_000]),
            ack_policy: one(rng, &["explicit", "all", "none"]),
            window_msgs: one(rng, &[1, 50, 4_000, 4_000]),
            answers_wander: true,
        }
    }
}

/// Draws a fault of a kind of NATS' own.
pub fn draw(kind: u32, place: Place, rng: &mut Rng) -> Fault {
    let Place { slot, node, for_ns } = place;
    match kind {
        0 => Fault::Move {
            slot,
            keeps: one(rng, &[0, 1, 5, 1000]),
        },
        7 => {
            let (refusal, is_stored) = one(
                rng,
                &[
                    (Refusal::NoResponders, false),
                    (Refusal::Error(10_008), false),
                    (Refusal::Error(10_023), false),
                    (Refusal::Error(10_077), false),
                    (Refusal::Error(10_077), true),
                    (Refusal::Error(10_167), false),
                    (Refusal::Error(99_999), true),
                    (Refusal::Silence, false),
                    (Refusal::Silence, true),
                ],
            );
            Fault::Refuse {
                slot,
                refusal,
                is_stored,
                messages: rng.u32(1..40),
            }
        }
        8 => Fault::Stall { slot, for_ns },
        9 => Fault::RefuseConsumer {
            slot,
            refusal: one(
                rng,
                &[
                    Refusal::NoResponders,
                    Refusal::Error(10_008),
                    Refusal::Error(10_118),
                    Refusal::Silence,
                ],
            ),
            requests: rng.u32(1..4),
        },
        10 => Fault::LoseConsumers {
            slot,
            loss: one(
                rng,
                &[
                    Loss::Deleted,
                    Loss::Gone,
                    Loss::Moved,
                    Loss::MovedUncounted,
                    Loss::MovedSilently,
                    Loss::Behind,
                    Loss::Dropped,
                ],
            ),
        },
        11 => Fault::Error {
            node,
            which: rng.usize(..WORDS.len()),
        },
        12 => Fault::LameDuck { node, for_ns },
        13 => Fault::News { node },
        14 => Fault::Ping { node },
        _ => Fault::Damage { slot },
    }
}
