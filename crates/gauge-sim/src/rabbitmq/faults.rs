//! What goes wrong with RabbitMQ's nodes, and what else a seed draws of them.

use fastrand::Rng;

use crate::nodes::Place;
use crate::scenario::{MS, one};

/// How many kinds of faults there are.
pub const KINDS: u32 = 17;

/// A queue: the one of a slot that this subscription reads, counted round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    pub slot: usize,
    pub reader: usize,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A quorum queue gets another leader. A classic queue's process dies and is started again; of what it had not confirmed so many messages
    /// are kept, and all of them are refused.
    Move { queue: Which, keeps: usize },
    /// The next messages of a queue are refused (basic.nack); stored or not.
    Refuse {
        queue: Which,
        is_stored: bool,
        messages: u32,
    },
    /// Followers do not follow, or the disk does not write, for so long.
    Stall { queue: Which, for_ns: i64 },
    /// The consumers of a queue are cancelled (basic.cancel).
    Cancel { queue: Which },
    /// The channels of producers, or of consumers, at a node are closed with this code.
    CloseChannels {
        node: usize,
        code: u16,
        of_producers: bool,
    },
    /// A node closes its connections with this code.
    CloseConnections { node: usize, code: u16 },
    /// Memory or disk run short: whoever publishes is blocked for so long.
    Alarm { for_ns: i64 },
    /// Whoever wants the messages of a queue next has the channel closed with this code.
    RefuseConsume { queue: Which, code: u16, times: u32 },
    /// A message is damaged in a queue.
    Damage { queue: Which },
    /// A queue has nobody who leads it for so long.
    Away { queue: Which, for_ns: i64 },
    /// Connections that come next to a node are closed with this code instead of opened.
    RefuseOpening { node: usize, code: u16, times: u32 },
}

/// What is drawn of RabbitMQ alone.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Queues are replicated; otherwise each lives on one node.
    pub is_quorum: bool,
    /// Until followers or the disk have a message, at most.
    pub follow_ns: i64,
    /// How long a channel gathers confirmations.
    pub gathers_ns: i64,
    /// A message for a queue whose node is down finds no queue; otherwise it is refused.
    pub dead_is_unroutable: bool,
    pub is_mandatory: bool,
    pub is_automatic: bool,
    pub prefetch: u16,
    pub heartbeat_s: u16,
    /// Longest body in a frame.
    pub body_bytes: usize,
}

impl Settings {
    /// Draws them.
    pub fn draw(rng: &mut Rng) -> Settings {
        Settings {
            is_quorum: rng.f64() < 0.6,
            follow_ns: one(rng, &[0, 100_000, 5_000_000]),
            gathers_ns: one(rng, &[0, 50_000, 2_000_000]),
            dead_is_unroutable: rng.bool(),
            is_mandatory: rng.f64() < 0.8,
            is_automatic: rng.f64() < 0.15,
            prefetch: one(rng, &[1, 7, 200, 2_000, 2_000, 0]),
            heartbeat_s: one(rng, &[1, 10, 60]),
            body_bytes: one(rng, &[131_064, 131_064, 33]),
        }
    }
}

/// Draws a fault of a kind of RabbitMQ's own.
pub fn draw(kind: u32, place: Place, rng: &mut Rng) -> Fault {
    let Place { slot, node, for_ns } = place;
    let queue = Which {
        slot,
        reader: rng.usize(..6),
    };
    match kind {
        0 => Fault::Move {
            queue,
            keeps: one(rng, &[0, 1, 5, 1000]),
        },
        7 => Fault::Refuse {
            queue,
            is_stored: rng.bool(),
            messages: rng.u32(1..40),
        },
        8 => Fault::Stall { queue, for_ns },
        9 => Fault::Cancel { queue },
        10 => Fault::CloseChannels {
            node,
            code: one(rng, &[404, 405, 406, 406]),
            of_producers: rng.bool(),
        },
        11 => Fault::CloseConnections {
            node,
            code: one(rng, &[320, 541]),
        },
        12 => Fault::Alarm { for_ns },
        13 => Fault::RefuseConsume {
            queue,
            code: one(rng, &[404, 405, 406]),
            times: rng.u32(1..4),
        },
        14 => Fault::Damage { queue },
        15 => Fault::Away {
            queue,
            for_ns: one(rng, &[30, 300, 1_500]) * MS,
        },
        _ => Fault::RefuseOpening {
            node,
            code: one(rng, &[320, 530, 541]),
            times: rng.u32(1..4),
        },
    }
}
