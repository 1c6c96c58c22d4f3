//! What the log was told on the command line, checked.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::access::Access;
use crate::storage::segment::Durability;

/// Bytes of one request at most.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// The least memory that the log works with.
pub const MEMORY_BYTES_MIN: u64 = 96 << 20;

/// What the log does wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Acknowledges before anything is written.
    EarlyAck,
    /// Acknowledges at the end of a sync what arrived while it ran.
    AckAtAnySync,
    /// Takes a write or sync that failed for one that did not.
    IgnoreFailedSync,
    /// Does not start when the journal ends in a torn commit.
    RefuseTornTail,
    /// Does not make names durable.
    ForgetDirectorySync,
}

/// Settings of a log.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The host name or address that clients are told; the listening address by default.
    pub advertise: Option<String>,
    /// Who may ask, and how connections are protected.
    pub access: Access,
    /// Where the journal is.
    pub data: PathBuf,
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// Break that promise, for tests of experiments that must find it out.
    pub fault: Option<Fault>,
    /// Memory for the journal's tail, the past that is being read, and requests, bytes.
    pub memory_bytes: u64,
    /// Bytes of one segment file.
    pub segment_bytes: u64,
    /// Bytes of a chunk: `CHUNK_BYTES`, except in tests that want many of them.
    pub chunk_bytes: usize,
    /// Oldest segments are deleted while the journal is larger than this.
    pub retention_bytes: Option<u64>,
    /// Segments whose newest entry is older than this are deleted.
    pub retention_age: Option<Duration>,
    /// Bytes of batches accepted per second at most, in MB.
    pub limit_mb_s: Option<f64>,
    /// Every commit takes so much longer, as on a slower device: a known effect for what is to find it.
    pub commit_delay: Duration,
    /// Network threads.
    pub threads: u16,
    /// Partitions of a topic that is created because a client asked for it; 0: never.
    pub auto_create_partitions: u32,
    /// Where to serve metrics.
    pub metrics: Option<SocketAddr>,
    /// Where to append events.
    pub events: Option<PathBuf>,
}

impl Settings {
    /// Chunks that may be in memory: six tenths of the memory; the rest is for directories, requests and responses.
    pub fn chunks_max(&self) -> usize {
        (self.memory_bytes / 10 * 6) as usize / self.chunk_bytes
    }

    /// Bytes of incomplete requests over all connections at most, besides the one that is being finished.
    pub fn input_bytes_max(&self) -> usize {
        (self.memory_bytes / 8) as usize
    }

    /// Bytes of fetches that wait for data over all connections at most, small ones not counted.
    pub fn parked_bytes_max(&self) -> usize {
        (self.memory_bytes / 8) as usize
    }

    /// Bytes of unread responses over all connections at most.
    pub fn output_bytes_max(&self) -> usize {
        (self.memory_bytes / 8) as usize
    }
}
