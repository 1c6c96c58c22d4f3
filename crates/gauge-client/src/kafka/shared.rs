//! What the producers and consumers of a lane have in common.

use super::batch::BatchPool;
use super::buffers::Buffers;
use super::cluster::Cluster;
use crate::{LaneSpec, Poller};
use gauge_load::clock;

/// Free batch buffers that a lane keeps at most, unless its policy allows less.
const FREE_BYTES_MAX: usize = 32 << 20;
/// Empty request heads that are kept for later use.
const SPARE_HEADS_MAX: usize = 64;
/// A head larger than this is not kept.
const SPARE_HEAD_BYTES_MAX: usize = 256 << 10;

/// What the producers and consumers of a lane have in common.
pub(crate) struct Shared {
    pub spec: LaneSpec,
    pub client_id: String,
    pub poller: Poller,
    pub cluster: Cluster,
    pub buffers: Buffers,
    pub batches: BatchPool,
    /// Bytes of batches that wait or travel, over all producers.
    pub buffered_bytes: usize,
    /// Wall-clock time minus the monotonic clock, for the timestamps in records.
    pub unix_offset_ns: i64,
    heads: Vec<Vec<u8>>,
}

impl Shared {
    pub fn new(spec: LaneSpec, client_id: String, poller: Poller, cluster: Cluster) -> Shared {
        let free_bytes = spec.batch.buffer_bytes.min(FREE_BYTES_MAX);
        Shared {
            spec,
            client_id,
            poller,
            cluster,
            buffers: Buffers::new(free_bytes),
            batches: BatchPool::default(),
            buffered_bytes: 0,
            unix_offset_ns: clock::unix_ns() - clock::monotonic_ns(),
            heads: Vec::new(),
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
