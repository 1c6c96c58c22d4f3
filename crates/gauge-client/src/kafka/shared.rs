//! What the producers and consumers of a lane have in common.

use gauge_load::clock;

use super::Access;
use super::batch::BatchPool;
use super::buffers::Buffers;
use super::cluster::{Answer, Cluster};
use crate::LaneSpec;
use crate::shared::{self, own_token};

/// Free batch buffers that a lane keeps at most, unless its policy allows less.
const FREE_BYTES_MAX: usize = 32 << 20;
/// Empty request heads that are kept for later use.
const SPARE_HEADS_MAX: usize = 64;
/// A head larger than this is not kept.
const SPARE_HEAD_BYTES_MAX: usize = 256 << 10;

/// What the producers and consumers of a lane have in common.
pub(crate) type Shared = shared::Shared<Commons>;

/// What only this protocol has of it.
pub(crate) struct Commons {
    pub client_id: String,
    pub cluster: Cluster,
    pub buffers: Buffers,
    pub batches: BatchPool,
    /// Wall-clock time minus the monotonic clock, for the timestamps in records.
    unix_offset_ns: i64,
    heads: Vec<Vec<u8>>,
    pub(super) answers: Vec<Answer>,
}

impl Commons {
    pub fn new(bootstrap: &[String], access: Access, spec: &LaneSpec) -> Commons {
        let groups = spec
            .consumers
            .iter()
            .map(|consumer| consumer.name.clone())
            .collect();
        Commons {
            client_id: access.client_id.clone(),
            cluster: Cluster::new(access, bootstrap, &spec.topics, groups, own_token(0)),
            buffers: Buffers::new(spec.batch.buffer_bytes.min(FREE_BYTES_MAX)),
            batches: BatchPool::default(),
            unix_offset_ns: clock::unix_ns() - clock::monotonic_ns(),
            heads: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Milliseconds since 1970 at an instant of the monotonic clock.
    pub fn unix_ms(&self, now_ns: i64) -> i64 {
        (now_ns + self.unix_offset_ns) / 1_000_000
    }

    /// An empty buffer for a request's head.
    pub fn take_head(&mut self) -> Vec<u8> {
        self.heads.pop().unwrap_or_default()
    }

    /// Gives a head back.
    pub fn give_head(&mut self, mut head: Vec<u8>) {
        if self.heads.len() < SPARE_HEADS_MAX && head.capacity() <= SPARE_HEAD_BYTES_MAX {
            head.clear();
            self.heads.push(head);
        }
    }
}
