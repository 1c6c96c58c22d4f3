//! Where a producer's chunks come from and go to.

use super::window::Chunk;
use crate::shared::Shared;

/// Bytes of free chunks that a lane's producers keep at most, all together.
const FREE_BYTES_MAX: usize = 32 << 20;

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
    /// A pool for one of `producers` producers of a lane, which keeps at most as many bytes as the lane may let wait.
    pub fn new(buffer_bytes: usize, producers: usize) -> Chunks {
        Chunks {
            free: Vec::new(),
            free_bytes: 0,
            free_bytes_max: buffer_bytes.min(FREE_BYTES_MAX) / producers.max(1),
        }
    }

    /// A chunk has come to its end.
    pub fn end(&mut self, chunk: Box<Chunk>, shared: &mut Shared) {
        shared.buffered_bytes -= chunk.charged_bytes;
        self.give(chunk);
    }

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
