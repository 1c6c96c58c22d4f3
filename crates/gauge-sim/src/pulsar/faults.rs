//! What goes wrong with Pulsar's brokers, and what else a seed draws of them.

use fastrand::Rng;

use crate::nodes::Place;
use crate::scenario::one;

/// How many kinds of faults there are.
pub const KINDS: u32 = 18;

/// How a question is answered, if not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With this error.
    Error(u64),
    /// Not at all.
    Silence,
    /// As it should be, after so long.
    Late(i64),
    /// With another broker, which is to be asked (brokers that do not agree who leads them).
    Elsewhere,
}

/// How an entry is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A message; the checksum is that of what it is now.
    Message,
    /// A byte, which the checksum tells.
    Checksum,
    /// The length of a message, so that what follows cannot be read; the checksum is that of what it is now.
    Length,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A topic is unloaded and has another broker; of what bookies do not have yet so many batches are kept.
    Move { slot: usize, keeps: usize },
    /// The next batches of a topic are answered with this error; stored or not.
    Refuse {
        slot: usize,
        error: u64,
        is_stored: bool,
        batches: u32,
    },
    /// Bookies do not answer for so long.
    Stall { slot: usize, for_ns: i64 },
    /// A write to the bookies fails: so many of those under way are kept, all have errors for answers, and producers are closed.
    Fence { slot: usize, keeps: usize },
    /// The next openings of producers and consumers are answered so.
    RefuseOpening { slot: usize, answer: Answer, times: u32 },
    /// The next lookups are answered so.
    RefuseLookup { slot: usize, answer: Answer, times: u32 },
    /// The next acknowledgements of consumers get lost, because the consumers are disconnected before they are looked at.
    LoseAcks { slot: usize, times: u32 },
    /// The next questions for the end of a topic are answered so.
    RefuseEnd { slot: usize, answer: Answer, times: u32 },
    /// The next entries are damaged.
    Damage { slot: usize, damage: Damage, times: u32 },
    /// A broker asks whether its clients are there.
    Ping { node: usize },
    /// A broker reads nothing from producers for so long (publish throttling).
    Throttle { node: usize, for_ns: i64 },
    /// Consumers of a topic are disconnected, which stays where it is.
    CloseConsumers { slot: usize },
}

/// What is drawn of Pulsar alone.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Until bookies have an entry, at most.
    pub follow_ns: i64,
    /// Until a broker hears of another owner, at most.
    pub news_ns: i64,
    /// The acknowledged position is kept so often.
    pub persist_ns: i64,
    /// Until a broker finds out that nobody is at the other end any more.
    pub liveness_ns: i64,
    /// So many entries are read at a time, and sent whatever the permits.
    pub read_entries: i64,
    /// Lookups of a topic that nobody owns yet go over the leader of the brokers.
    pub redirects: bool,
    /// Whether the namespace drops what is repeated.
    pub deduplicates: bool,
    /// Whether the answer to the question for the end has the acknowledged position.
    pub tells_mark_delete: bool,
    /// Whether producers and consumers that are closed are told where the topic goes.
    pub assigns: bool,
    /// What was under way when a producer was closed is answered yet.
    pub late_receipts: bool,
    pub kind: &'static str,
    pub receive_bytes: u64,
}

impl Settings {
    /// Draws them.
    pub fn draw(rng: &mut Rng) -> Settings {
        Settings {
            follow_ns: one(rng, &[0, 100_000, 5_000_000]),
            news_ns: one(rng, &[0, 2_000_000, 100_000_000]),
            persist_ns: one(rng, &[0, 100_000_000, 1_000_000_000]),
            liveness_ns: one(rng, &[1_000_000_000, 5_000_000_000, 40_000_000_000]),
            read_entries: one(rng, &[1, 5, 100]),
            redirects: rng.bool(),
            deduplicates: rng.bool(),
            tells_mark_delete: rng.f64() < 0.8,
            assigns: rng.bool(),
            late_receipts: true,
            kind: one(
                rng,
                &[
                    "exclusive",
                    "exclusive",
                    "exclusive",
                    "failover",
                    "shared",
                    "key_shared",
                ],
            ),
            receive_bytes: one(rng, &[65_536, 65_536, 1_000_000, 32 << 20]),
        }
    }
}

/// Draws a fault of a kind of Pulsar's own.
pub fn draw(kind: u32, place: Place, rng: &mut Rng) -> Fault {
    let Place { slot, node, for_ns } = place;
    let keeps = one(rng, &[0, 1, 5, 1000]);
    let times = rng.u32(1..4);
    match kind {
        0 => Fault::Move { slot, keeps },
        7 => {
            let (error, is_stored) = one(
                rng,
                &[
                    (0, false),
                    (1, false),
                    (2, false),
                    (2, true),
                    (6, false),
                    (7, false),
                    (9, false),
                    (14, false),
                    (25, false),
                    (0, true),
                ],
            );
            Fault::Refuse {
                slot,
                error,
                is_stored,
                batches: rng.u32(1..8),
            }
        }
        8 => Fault::Stall { slot, for_ns },
        9 => Fault::Fence { slot, keeps },
        10 => Fault::RefuseOpening {
            slot,
            answer: one(
                rng,
                &[
                    Answer::Error(0),
                    Answer::Error(1),
                    Answer::Error(2),
                    Answer::Error(5),
                    Answer::Error(6),
                    Answer::Error(7),
                    Answer::Error(11),
                    Answer::Error(14),
                    Answer::Error(16),
                    Answer::Error(19),
                    Answer::Late(for_ns),
                    Answer::Silence,
                ],
            ),
            times,
        },
        11 => Fault::RefuseLookup {
            slot,
            answer: one(
                rng,
                &[
                    Answer::Error(0),
                    Answer::Error(1),
                    Answer::Error(6),
                    Answer::Error(11),
                    Answer::Error(14),
                    Answer::Late(for_ns),
                    Answer::Silence,
                    Answer::Elsewhere,
                    Answer::Elsewhere,
                ],
            ),
            times: one(rng, &[times, times, 40]),
        },
        12 => Fault::LoseAcks { slot, times },
        13 => Fault::RefuseEnd {
            slot,
            answer: one(
                rng,
                &[
                    Answer::Error(1),
                    Answer::Error(6),
                    Answer::Late(for_ns),
                    Answer::Late(4 * for_ns),
                    Answer::Silence,
                ],
            ),
            times: 4 * times,
        },
        14 => Fault::Damage {
            slot,
            damage: one(rng, &[Damage::Message, Damage::Checksum, Damage::Length]),
            times: 4 * times,
        },
        15 => Fault::Ping { node },
        16 => Fault::Throttle { node, for_ns },
        _ => Fault::CloseConsumers { slot },
    }
}
