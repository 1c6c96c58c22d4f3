//! Responses on their way to a client: bytes made here, and batches that are sent straight from the chunks they lie in.

use std::collections::VecDeque;
use std::sync::Arc;

use super::transport::Transport;
use crate::broker::Extent;
use crate::storage::cache::ChunkCache;
use crate::storage::chunk::Chunk;

/// Bytes sent to one connection before others have their turn: with four times as many, publishing beside a reader of the past had 1.3 times the p99.
pub const TURN_BYTES: usize = 64 << 10;
/// Pieces handed to one system call at most (IOV_MAX is 1024 on Linux; more than this gains nothing).
const PIECES_PER_CALL: usize = 128;

/// A piece of a response.
#[derive(Debug, Clone, Copy)]
enum Piece {
    /// The response's own bytes up to here.
    Own(usize),
    /// A batch.
    Batch(Extent),
}

/// A complete response. Batches are places, not copies: a client that does not read holds no memory but this list.
#[derive(Debug, Default)]
pub struct Response {
    own: Vec<u8>,
    own_sent: usize,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that were sent, if it is a batch.
    batch_sent: usize,
}

impl Response {
    /// A response without batches.
    pub fn plain(own: Vec<u8>) -> Self {
        let pieces = VecDeque::from([Piece::Own(own.len())]);
        Self {
            own,
            own_sent: 0,
            pieces,
            batch_sent: 0,
        }
    }

    /// A response with batches: `cuts` holds, for each place of `own` where batches belong, that place and how many of `extents` follow there.
    pub fn with_batches(own: Vec<u8>, cuts: &[(usize, usize)], extents: &[Extent]) -> Self {
        let mut pieces = VecDeque::with_capacity(2 * cuts.len() + extents.len() + 1);
        let mut rest = extents.iter();
        for &(at, count) in cuts {
            pieces.push_back(Piece::Own(at));
            pieces.extend(rest.by_ref().take(count).map(|&extent| Piece::Batch(extent)));
        }
        pieces.push_back(Piece::Own(own.len()));
        Self {
            own,
            own_sent: 0,
            pieces,
            batch_sent: 0,
        }
    }

    /// Bytes of memory that the response holds.
    pub fn memory_bytes(&self) -> usize {
        self.own.capacity() + self.pieces.capacity() * size_of::<Piece>()
    }

    fn is_sent(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Notes that `count` bytes were sent; returns how many of them belong to later responses.
    fn advance(&mut self, mut count: usize) -> usize {
        while let Some(piece) = self.pieces.front() {
            let left = match piece {
                Piece::Own(end) => end - self.own_sent,
                Piece::Batch(extent) => extent.bytes as usize - self.batch_sent,
            };
            let step = left.min(count);
            count -= step;
            match piece {
                Piece::Own(_) => self.own_sent += step,
                Piece::Batch(_) => self.batch_sent += step,
            }
            if step < left {
                return 0;
            }
            self.batch_sent = 0;
            self.pieces.pop_front();
        }
        count
    }
}

/// How an attempt to send ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// Everything that is ready was sent.
    All,
    /// The turn is over; there is more.
    Turn,
    /// The client's window is full.
    Full,
    /// A chunk must be read from disk first.
    Missing(u64),
    /// The connection is broken.
    Broken,
}

/// Sends as much of `responses` (all of them ready) as the socket takes in one turn; returns how it ended and how many of their bytes went out.
/// Complete responses are removed, and `freed` is told the memory they held.
pub fn send(
    transport: &mut Transport,
    descriptor: i32,
    responses: &mut VecDeque<Response>,
    ready: usize,
    cache: &ChunkCache,
    mut freed: impl FnMut(usize),
) -> (Sent, usize, usize) {
    let mut total = 0;
    let mut done = 0;
    loop {
        if let Err(ended) = transport.push(descriptor) {
            return (ended, total, done);
        }
        if done == ready {
            return (Sent::All, total, done);
        }
        if total >= TURN_BYTES {
            return (Sent::Turn, total, done);
        }
        let mut gathered = Gathered::default();
        for response in responses.iter().take(ready - done) {
            if !gathered.add(response, cache) {
                break;
            }
        }
        if gathered.vectors.is_empty() {
            return (gathered.missing.map_or(Sent::Broken, Sent::Missing), total, done);
        }
        let mut count = match gathered.send(transport, descriptor) {
            Ok(count) => count,
            Err(ended) => return (ended, total, done),
        };
        total += count;
        // A part of them may be all that TLS encrypts at once.
        let is_full = count < gathered.bytes && !transport.is_encrypted();
        while let Some(first) = responses.front_mut() {
            count = first.advance(count);
            if !first.is_sent() {
                break;
            }
            freed(first.memory_bytes());
            responses.pop_front();
            done += 1;
            if count == 0 {
                break;
            }
        }
        if is_full {
            return (Sent::Full, total, done);
        }
    }
}

/// What goes into one system call. The chunks are held while their bytes are used.
#[derive(Default)]
struct Gathered {
    vectors: Vec<libc::iovec>,
    chunks: Vec<Arc<Chunk>>,
    bytes: usize,
    missing: Option<u64>,
}

impl Gathered {
    /// Adds the unsent pieces of a response; false when no more fit or a chunk is not in memory.
    fn add(&mut self, response: &Response, cache: &ChunkCache) -> bool {
        let (mut own_sent, mut batch_sent) = (response.own_sent, response.batch_sent);
        for piece in &response.pieces {
            if self.vectors.len() == PIECES_PER_CALL || self.bytes >= TURN_BYTES {
                return false;
            }
            match *piece {
                Piece::Own(end) => {
                    self.push(&response.own[own_sent..end]);
                    own_sent = end;
                }
                Piece::Batch(extent) => {
                    if self.chunks.last().is_none_or(|chunk| chunk.start != extent.chunk) {
                        let Some(chunk) = cache.get(extent.chunk) else {
                            self.missing = Some(extent.chunk);
                            return false;
                        };
                        self.chunks.push(chunk);
                    }
                    let chunk = self.chunks.last().expect("just pushed");
                    let (from, to) = (
                        extent.at as usize + batch_sent,
                        (extent.at + extent.bytes) as usize,
                    );
                    // SAFETY: only batches below the high watermark are handed out; they do not change any more, and the chunk is held until they are sent.
                    let bytes: *const [u8] = unsafe { chunk.bytes(from, to) };
                    // SAFETY: `self.chunks` keeps the memory alive as long as the vector that points to it.
                    self.push(unsafe { &*bytes });
                    batch_sent = 0;
                }
            }
        }
        true
    }

    fn push(&mut self, bytes: &[u8]) {
        // One piece may be larger than a turn; the rest of it waits for the next.
        let bytes = &bytes[..bytes.len().min(TURN_BYTES)];
        if !bytes.is_empty() {
            self.vectors.push(libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            });
            self.bytes += bytes.len();
        }
    }

    fn send(&mut self, transport: &mut Transport, descriptor: i32) -> Result<usize, Sent> {
        // SAFETY: the vectors point to memory that lives during the call and does not change: responses and held chunks.
        unsafe { transport.send(descriptor, &mut self.vectors) }
    }
}
