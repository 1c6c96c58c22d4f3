//! What all threads share: the broker behind its lock, the chunks in memory, and the ways to wake each other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::broker::Broker;
use crate::broker::topics::ConnectionId;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::storage::cache::ChunkCache;
use crate::storage::disk::Disk;
use crate::storage::segment::Durability;
use crate::write_back::WriteBack;

/// Locks a mutex whose holder may have panicked: the process is ending then anyway.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An eventfd: a descriptor that another thread can make readable.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// A new one, not signalled.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a plain system call; the descriptor is checked and owned below.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// The descriptor, to wait for.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Makes the descriptor readable.
    pub fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer lives during the call. A full counter means that the reader is signalled already.
        unsafe { libc::write(self.descriptor(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it unreadable again.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the buffer lives during the call and is as long as the call is told.
        unsafe { libc::read(self.descriptor(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// What other threads left for a network thread.
#[derive(Debug, Default)]
pub struct Mail {
    /// Connections whose parked request should be looked at again.
    pub woken: Vec<u64>,
    /// Complete responses for connections whose request was parked.
    pub responses: Vec<(u64, Vec<u8>)>,
    /// Connections accepted for this thread.
    pub accepted: Vec<OwnedFd>,
}

/// A network thread as seen by the others.
#[derive(Debug)]
pub struct Mailbox {
    /// Wakes the thread.
    pub wake: Wake,
    /// What is left for it.
    pub mail: Mutex<Mail>,
    /// Whether the thread holds acknowledgements back until a commit is done.
    pub awaits_commit: AtomicBool,
}

/// Requests to read chunks from disk.
#[derive(Debug, Default)]
pub struct Loads {
    /// Chunks to read, in order.
    pub queue: VecDeque<u64>,
    /// Who waits for which chunk; a chunk is here from its request until it was read.
    pub waiting: HashMap<u64, Vec<ConnectionId>>,
    /// Chunks that could not be read, with the reason.
    pub failed: HashMap<u64, String>,
    /// Damaged ranges of the journal that were reported.
    pub damaged: HashSet<(u64, u64)>,
}

/// What all threads share.
#[derive(Debug)]
pub struct Shared {
    /// As given on the command line.
    pub settings: Settings,
    /// The address that clients are told.
    pub advertised: (String, u16),
    /// Random identity of the log, made when its directory was.
    pub cluster_id: String,
    /// Where the files are.
    pub disk: Arc<dyn Disk>,
    /// The state.
    pub broker: Mutex<Broker>,
    /// Chunks in memory.
    pub cache: Arc<ChunkCache>,
    /// Everything in the journal before this position is as durable as promised.
    pub committed: AtomicU64,
    /// One per network thread.
    pub mailboxes: Vec<Mailbox>,
    /// Chunks to be read.
    pub loads: Mutex<Loads>,
    /// Signalled when there are chunks to be read.
    pub loads_changed: Condvar,
    /// Whether the committer has something to do.
    pub commit_wanted: Mutex<bool>,
    /// Signalled when `commit_wanted` is set.
    pub commit_changed: Condvar,
    /// Held while a commit is written.
    pub commit_running: Mutex<()>,
    /// Set when a commit could not be written: there is none behind it.
    pub commit_failed: AtomicBool,
    /// Numbers prepared segments, so that one that still waits for its name is never taken for the next one.
    pub spares: AtomicU64,
    /// What is to be written back (`async` mode).
    pub write_back: WriteBack,
    /// Whether the maintenance thread has something to do.
    pub maintenance_wanted: Mutex<bool>,
    /// Signalled when `maintenance_wanted` is set.
    pub maintenance_changed: Condvar,
    /// Whether the next segment should be made ready.
    pub segment_wanted: Mutex<bool>,
    /// Signalled when `segment_wanted` is set.
    pub segment_changed: Condvar,
    /// Why the log had to stop, if it had to.
    pub failure: Mutex<Option<String>>,
    /// Set when everything should end.
    pub stopping: AtomicBool,
    /// Bytes of incomplete requests over all connections.
    pub input_bytes: AtomicUsize,
    /// The connection that may take input memory beyond the limit; 0: none.
    pub input_turn: AtomicU64,
    /// Bytes of fetches that wait for data, over all connections.
    pub parked_bytes: AtomicUsize,
    /// Bytes of responses that clients have not read, over all connections (batches not counted: they are not copied).
    pub output_bytes: AtomicUsize,
    /// Counters.
    pub metrics: Metrics,
    /// The event file.
    pub events: Events,
    /// When the byte rate limit lets the next batch in, ns since `started`.
    pub limit_free_ns: AtomicI64,
    /// When the server started.
    pub started: Instant,
}

impl Shared {
    /// Locks the state.
    pub fn broker(&self) -> MutexGuard<'_, Broker> {
        lock(&self.broker)
    }

    /// Whether everything should end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Ends everything: wakes every thread.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.mailboxes.iter().for_each(|mailbox| mailbox.wake.signal());
        self.loads_changed.notify_all();
        self.write_back.wake();
        self.want_commit();
        self.want_maintenance();
        self.want_segment();
    }

    /// Stops because of a failure that cannot be worked around: data that cannot be written is never acknowledged.
    pub fn fail(&self, reason: String) {
        self.events.write("failed", serde_json::json!({"reason": reason}));
        lock(&self.failure).get_or_insert(reason);
        self.stop();
    }

    /// Asks for the next segment to be made ready.
    pub fn want_segment(&self) {
        *lock(&self.segment_wanted) = true;
        self.segment_changed.notify_one();
    }

    /// Asks for a state to be written, or deleted data to be removed.
    pub fn want_maintenance(&self) {
        *lock(&self.maintenance_wanted) = true;
        self.maintenance_changed.notify_one();
    }

    /// Asks the committer for a commit.
    pub fn want_commit(&self) {
        *lock(&self.commit_wanted) = true;
        self.commit_changed.notify_one();
    }

    /// Wakes connections whose parked requests should be looked at again; the caller's own thread (`own`) is not signalled.
    pub fn wake(&self, connections: &[ConnectionId], own: Option<u16>) {
        for (index, mailbox) in self.mailboxes.iter().enumerate() {
            let mut mail = None;
            for connection in connections
                .iter()
                .filter(|connection| usize::from(connection.thread) == index)
            {
                mail.get_or_insert_with(|| lock(&mailbox.mail))
                    .woken
                    .push(connection.number);
            }
            if mail.is_some() && own != Some(index as u16) {
                mailbox.wake.signal();
            }
        }
    }

    /// Hands a complete response to a connection whose request was parked.
    pub fn deliver(&self, connection: ConnectionId, response: Vec<u8>) {
        let mailbox = &self.mailboxes[usize::from(connection.thread)];
        lock(&mailbox.mail).responses.push((connection.number, response));
        mailbox.wake.signal();
    }

    /// Asks for a chunk to be read from disk, and for the connection to be woken then.
    pub fn request_load(&self, chunk: u64, connection: Option<ConnectionId>) {
        let mut loads = lock(&self.loads);
        let is_new = !loads.waiting.contains_key(&chunk);
        let waiting = loads.waiting.entry(chunk).or_default();
        waiting.extend(connection.filter(|connection| !waiting.contains(connection)));
        if is_new {
            loads.queue.push_back(chunk);
            self.loads_changed.notify_one();
        }
    }

    /// Whether responses that clients do not read take so much memory that every one should be small.
    pub fn is_short_of_output(&self) -> bool {
        self.output_bytes.load(Ordering::Relaxed) > self.settings.output_bytes_max() / 2
    }

    /// Memory of unread responses with which a connection has no further request handled.
    pub fn unread_bytes_max(&self) -> usize {
        if self.is_short_of_output() {
            UNREAD_BYTES_SHORT
        } else {
            UNREAD_BYTES_MAX
        }
    }

    /// Whether chunks may be read before somebody waits for them: not while so many are asked for that they might be dropped again before they are used.
    pub fn may_load_ahead(&self) -> bool {
        lock(&self.loads).queue.len() < LOADS_AHEAD_MAX
    }

    /// Notes `bytes` of batches against `--limit-mb-s`; returns how long their connection should pause.
    pub fn charge(&self, bytes: usize) -> Option<Duration> {
        let rate_mb_s = self.settings.limit_mb_s?;
        let now_ns = self.started.elapsed().as_nanos() as i64;
        let cost_ns = (bytes as f64 * 1000.0 / rate_mb_s) as i64;
        let mut free_ns = self.limit_free_ns.load(Ordering::Relaxed);
        loop {
            let next_ns = free_ns.max(now_ns - LIMIT_BURST_NS) + cost_ns;
            let exchanged = self.limit_free_ns.compare_exchange_weak(
                free_ns,
                next_ns,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match exchanged {
                Ok(_) if next_ns > now_ns => return Some(Duration::from_nanos((next_ns - now_ns) as u64)),
                Ok(_) => return None,
                Err(current) => free_ns = current,
            }
        }
    }

    /// Whether acknowledgements wait for the device.
    pub fn is_fsync(&self) -> bool {
        self.settings.durability == Durability::Fsync
    }
}

/// Memory of unread responses per connection: usually, and while memory is short.
const UNREAD_BYTES_MAX: usize = 256 << 10;
const UNREAD_BYTES_SHORT: usize = 4 << 10;
/// Requests for chunks that may be queued while chunks are read ahead.
const LOADS_AHEAD_MAX: usize = 4;
/// How much unused time the byte rate limit lets a burst use.
const LIMIT_BURST_NS: i64 = 5_000_000;
