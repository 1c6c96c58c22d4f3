//! What goes wrong with RabbitMQ's streams, and what else a seed draws of them.

use fastrand::Rng;

use super::parse::code;
use crate::nodes::Place;
use crate::scenario::one;

/// How many kinds of faults there are.
pub const KINDS: u32 = 16;

/// How a chunk is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A message; the checksum is that of what it is now.
    Message,
    /// A byte, which the checksum tells.
    Checksum,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A stream gets another leader; of what a majority does not have yet so many frames are kept.
    Move { slot: usize, keeps: usize },
    /// The next frame of messages of a stream is refused with this code; stored or not.
    Refuse {
        slot: usize,
        code: u16,
        is_stored: bool,
        frames: u32,
    },
    /// Copies do not follow for so long.
    Stall { slot: usize, for_ns: i64 },
    /// The copy on a node hears for so long of nothing that is new.
    Lag { node: usize, for_ns: i64 },
    /// Publishers and subscriptions of a stream are dropped (metadata update), and the stream stays where it is.
    Drop { slot: usize },
    /// The next publishers of a stream are refused.
    RefusePublisher { slot: usize, code: u16, times: u32 },
    /// The next subscriptions to a stream are refused.
    RefuseSubscription { slot: usize, code: u16, times: u32 },
    /// Whoever looks for a stream is told this.
    RefuseLookup { slot: usize, code: u16, times: u32 },
    /// A node closes its connections with this code.
    CloseConnections { node: usize, code: u16 },
    /// Chunks are damaged.
    Damage { slot: usize, damage: Damage, times: u32 },
}

/// What is drawn of streams alone.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Until a majority has a chunk, and until a copy knows that it has, at most.
    pub follow_ns: i64,
    pub news_ns: i64,
    /// So many frames may share a chunk.
    pub frames_max: usize,
    pub heartbeat_s: u32,
    pub credits: u16,
    pub streams_per_connection: u16,
    /// Bytes of a filter behind the header of chunks.
    pub filter_bytes: u8,
}

impl Settings {
    /// Draws them.
    pub fn draw(rng: &mut Rng) -> Settings {
        Settings {
            follow_ns: one(rng, &[0, 100_000, 5_000_000]),
            news_ns: one(rng, &[0, 100_000, 20_000_000]),
            frames_max: one(rng, &[1, 3, 20]),
            heartbeat_s: one(rng, &[1, 10, 60]),
            credits: one(rng, &[1, 2, 10]),
            streams_per_connection: one(rng, &[1, 1, 3, 50]),
            filter_bytes: one(rng, &[0, 0, 16]),
        }
    }
}

/// Draws a fault of a kind of the streams' own.
pub fn draw(kind: u32, place: Place, rng: &mut Rng) -> Fault {
    let Place { slot, node, for_ns } = place;
    let refused = one(rng, &[code::NOT_AVAILABLE, code::INTERNAL]);
    let times = rng.u32(1..4);
    match kind {
        0 => Fault::Move {
            slot,
            keeps: one(rng, &[0, 1, 5, 1000]),
        },
        7 => Fault::Refuse {
            slot,
            code: one(rng, &[code::NOT_AVAILABLE, code::INTERNAL, code::NO_PUBLISHER]),
            is_stored: rng.bool(),
            frames: times,
        },
        8 => Fault::Stall { slot, for_ns },
        9 => Fault::Lag { node, for_ns },
        10 => Fault::Drop { slot },
        11 => Fault::RefusePublisher {
            slot,
            code: refused,
            times,
        },
        12 => Fault::RefuseSubscription {
            slot,
            code: refused,
            times,
        },
        13 => Fault::RefuseLookup {
            slot,
            code: code::NOT_AVAILABLE,
            times,
        },
        14 => Fault::CloseConnections {
            node,
            code: code::INTERNAL,
        },
        _ => Fault::Damage {
            slot,
            damage: one(rng, &[Damage::Message, Damage::Checksum]),
            times,
        },
    }
}
