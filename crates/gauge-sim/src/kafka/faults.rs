//! What goes wrong with brokers, and what else a seed draws of them.

use fastrand::Rng;

use crate::nodes::Place;
use crate::scenario::{MS, one};

/// How many kinds of faults there are.
pub const KINDS: u32 = 15;

/// How a batch is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One of its messages; its checksum is that of what it is now.
    Message,
    /// So that its checksum does not fit.
    Checksum,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A partition gets another leader, which lacks so many of the batches that followers have, and all that they have not.
    Move { slot: usize, lacks: usize },
    /// The next batches of a partition are answered with this code; stored or not.
    Refuse {
        slot: usize,
        code: i16,
        is_stored: bool,
        batches: u32,
    },
    /// A node answers, says that it throttles, and is deaf for so long; so many times.
    Throttle { node: usize, for_ns: i64, answers: u32 },
    /// A node does not hear of other leaders for so long.
    Stale { node: usize, for_ns: i64 },
    /// A partition forgets its idempotent producers.
    Forget { slot: usize },
    /// Followers do not follow for so long.
    Stall { slot: usize, for_ns: i64 },
    /// A node forgets its fetch sessions, or their epochs.
    ForgetSessions { node: usize },
    /// The next fetches of a partition are answered with this code.
    RefuseFetch { slot: usize, code: i16, fetches: u32 },
    /// A batch is damaged in the log.
    Damage { slot: usize, damage: Damage },
    /// A partition keeps nothing of what followers have: whoever has not read it never will.
    Expire { slot: usize },
}

/// What is drawn of Kafka alone.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Followers are so far behind at most.
    pub follow_ns: i64,
    /// Until a node hears of another leader, at most.
    pub news_ns: i64,
    pub keeps_sessions: bool,
    /// No answer to a fetch has more, whatever it asks for (a broker's own `fetch.max.bytes`).
    pub answer_bytes: usize,
    /// What a forgotten producer is told; 0: it is taken as it comes.
    pub forgotten_code: i16,
    /// Behind so many batches of a partition another producer's transaction ends: a batch that is no message. 0: behind none.
    pub control_every: usize,
}

impl Settings {
    /// Draws them.
    pub fn draw(rng: &mut Rng) -> Settings {
        Settings {
            follow_ns: one(rng, &[0, 100_000, 5_000_000]),
            news_ns: one(rng, &[0, 2_000_000, 100_000_000]),
            keeps_sessions: rng.f64() < 0.8,
            answer_bytes: usize::MAX,
            forgotten_code: one(rng, &[0, 45, 59, 59]),
            control_every: 0,
        }
    }
}

/// Draws a fault of a kind of Kafka's own.
pub fn draw(kind: u32, place: Place, rng: &mut Rng) -> Fault {
    let Place { slot, node, for_ns } = place;
    match kind {
        0 => Fault::Move {
            slot,
            lacks: one(rng, &[0, 0, 1, 3]),
        },
        7 => {
            let (code, is_stored) = one(
                rng,
                &[
                    (19, false),
                    (20, true),
                    (7, true),
                    (6, false),
                    (3, false),
                    (2, false),
                    (56, false),
                    (10, false),
                    (87, false),
                    (-1, true),
                ],
            );
            Fault::Refuse {
                slot,
                code,
                is_stored,
                batches: rng.u32(1..6),
            }
        }
        8 => Fault::Throttle {
            node,
            for_ns: for_ns.min(100 * MS),
            answers: rng.u32(1..6),
        },
        9 => Fault::Stale { node, for_ns },
        10 => Fault::Forget { slot },
        11 => Fault::Stall { slot, for_ns },
        12 => Fault::ForgetSessions { node },
        13 => Fault::RefuseFetch {
            slot,
            code: one(rng, &[3, 6, 74, 75, 56, -1]),
            fetches: rng.u32(1..4),
        },
        _ => Fault::Damage {
            slot,
            damage: Damage::Message,
        },
    }
}
