//! What the producers and consumers of a lane have in common.

use std::net::SocketAddr;

use super::options::Options;
use super::window::Chunk;
use crate::{LaneSpec, Poller};

/// Bytes of free chunks that a lane keeps at most, unless its policy allows less.
const FREE_BYTES_MAX: usize = 32 << 20;

/// What the producers and consumers of a lane have in common.
pub(crate) struct Shared {
    pub spec: LaneSpec,
    pub options: Options,
    pub addresses: Vec<SocketAddr>,
    pub poller: Poller,
    pub chunks: Chunks,
    /// Bytes of messages that wait or travel, over all producers.
    pub buffered_bytes: usize,
}

impl Shared {
    pub fn new(spec: LaneSpec, options: Options, addresses: Vec<SocketAddr>, poller: Poller) -> Shared {
        let free_bytes_max = spec.batch.buffer_bytes.min(FREE_BYTES_MAX);
        Shared {
            spec,
            options,
            addresses,
            poller,
            chunks: Chunks {
                free: Vec::new(),
                free_bytes: 0,
                free_bytes_max,
            },
            buffered_bytes: 0,
        }
    }

    /// A chunk has come to its end.
    pub fn end(&mut self, chunk: Box<Chunk>) {
        self.buffered_bytes -= chunk.charged_bytes;
        self.chunks.give(chunk);
    }
}

/// Empty chunks with their memory. They are boxed, so that queues move pointers.
pub(crate) struct Chunks {
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    free: Vec<Box<Chunk>>,
    free_bytes: usize,
    free_bytes_max: usize,
}

fn memory(chunk: &Chunk) -> usize {
    size_of::<Chunk>() + chunk.bytes.capacity() + chunk.entries.capacity() * size_of::<super::window::Entry>()
}

impl Chunks {
    /// An empty chunk, or one whose contents `Chunk::begin` forgets.
    pub fn take(&mut self) -> Box<Chunk> {
        match self.free.pop() {
            Some(chunk) => {
                self.free_bytes -= memory(&chunk);
                chunk
            }
            None => Box::default(),
        }
    }

    fn give(&mut self, chunk: Box<Chunk>) {
        let bytes = memory(&chunk);
        if self.free_bytes + bytes <= self.free_bytes_max {
            self.free_bytes += bytes;
            self.free.push(chunk);
        }
    }
}
