//! A network thread: accepts, receives, hands requests to `api`, sends responses, and begins commits.
//!
//! `accept`: connections come and go; `strangers`: those whose clients have shown nothing yet; `receive`: from bytes to requests; `memory`: who has to wait or go when it
//! is short; here: the loop, and what becomes of requests.

mod accept;
mod memory;
mod receive;
mod strangers;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::api::{self, Outcome, Reading};
use crate::broker::topics::ConnectionId;
use crate::commit;
use crate::net::connection::{Connection, Parked};
use crate::net::output::{self, Response, Sent};
use crate::net::poll::{Poll, Ready};
use crate::scheduling::prefer_short_slices;
use crate::shared::{Mail, Shared, lock};
use memory::charge_encrypted;
use strangers::Strangers;

/// Bytes received with one system call at most, into memory that all connections of the thread share.
const SCRATCH_BYTES: usize = 256 << 10;
/// In `async` mode up to this many pending bytes are written by the network thread itself, which saves two changes of threads; more is left to the committer, so
/// that receiving and writing overlap. A write to the device is always left to the committer: nobody else should wait for it.
const COMMIT_HERE_BYTES: usize = 512 << 10;
/// Fetches that take less than this may wait whatever the others take.
const PARKED_FREE_BYTES: usize = 4 << 10;
const TOKEN_LISTENER: u64 = u64::MAX;
const TOKEN_WAKE: u64 = u64::MAX - 1;

/// A network thread.
pub struct Server<'a> {
    shared: &'a Shared,
    index: u16,
    poll: Poll,
    listener: Option<TcpListener>,
    /// A descriptor to give up when there are no more: see `accept`.
    reserve: Option<File>,
    connections: HashMap<u64, Connection>,
    next_number: u64,
    next_thread: u16,
    queue: VecDeque<u64>,
    /// Connections with responses that wait for a commit, by the position that they wait for.
    held: VecDeque<(u64, u64)>,
    /// Deadlines of parked connections.
    deadlines: BTreeMap<(Instant, u64), ()>,
    /// Connections that wait for memory, when to look again whether there is some, and up to where the journal was durable at the last look.
    waiting_for_memory: Vec<u64>,
    next_memory_look: Instant,
    committed_at_look: u64,
    scratch: Vec<u8>,
    appended: bool,
    next_sweep: Instant,
    strangers: Strangers,
}

impl<'a> Server<'a> {
    /// A thread with the given index; the first one has the listener.
    pub fn new(shared: &'a Shared, index: u16, listener: Option<TcpListener>) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.add_reader(shared.mailboxes[usize::from(index)].wake.descriptor(), TOKEN_WAKE)?;
        if let Some(listener) = &listener {
            listener.set_nonblocking(true)?;
            poll.add_reader(listener.as_raw_fd(), TOKEN_LISTENER)?;
        }
        Ok(Self {
            shared,
            index,
            poll,
            listener,
            reserve: File::open("/dev/null").ok(),
            connections: HashMap::new(),
            next_number: 0,
            next_thread: 0,
            queue: VecDeque::new(),
            held: VecDeque::new(),
            deadlines: BTreeMap::new(),
            waiting_for_memory: Vec::new(),
            next_memory_look: Instant::now(),
            committed_at_look: 0,
            scratch: vec![0; SCRATCH_BYTES],
            appended: false,
            next_sweep: Instant::now(),
            strangers: Strangers::new(shared.settings.threads),
        })
    }

    /// Serves until everything should end.
    pub fn run(mut self) -> io::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        prefer_short_slices();
        while !self.shared.is_stopping() {
            self.poll.wait(self.timeout(), &mut ready)?;
            for event in &ready {
                match event.token {
                    TOKEN_LISTENER => self.accept(),
                    TOKEN_WAKE => self.shared.mailboxes[usize::from(self.index)].wake.clear(),
                    number => self.note_event(number, event),
                }
            }
            self.read_mail();
            self.release_held();
            self.expire(Instant::now());
            for _ in 0..self.queue.len() {
                let Some(number) = self.queue.pop_front() else {
                    break;
                };
                self.turn(number);
            }
            self.commit()?;
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.queue.is_empty() || !lock(&self.mailbox().mail).woken.is_empty() {
            return Some(Duration::ZERO);
        }
        let mut next = self
            .deadlines
            .first_key_value()
            .map(|((deadline, _), ())| *deadline);
        if self.index == 0 {
            let groups = self.shared.broker().groups.next_deadline(Instant::now());
            next = next.into_iter().chain(groups).min();
        }
        if !self.waiting_for_memory.is_empty() {
            next = next.into_iter().chain([self.next_memory_look]).min();
        }
        next = next.into_iter().chain(self.strangers.deadline()).min();
        let now = Instant::now();
        let sweep = (!self.connections.is_empty()).then_some(self.next_sweep);
        next.into_iter()
            .chain(sweep)
            .min()
            .map(|deadline| deadline.saturating_duration_since(now))
    }

    fn mailbox(&self) -> &'a crate::shared::Mailbox {
        &self.shared.mailboxes[usize::from(self.index)]
    }

    fn id(&self, number: u64) -> ConnectionId {
        ConnectionId {
            thread: self.index,
            number,
        }
    }

    fn note_event(&mut self, number: u64, event: &Ready) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        connection.readable |= event.readable;
        connection.writable |= event.writable;
        // A client that is gone would only be noticed by reading, which a parked connection does not do.
        if event.broken || (event.ended && connection.parked.is_some()) {
            self.close(number);
            return;
        }
        // A parked connection that cannot send has nothing to do until it is woken.
        self.enqueue(number);
    }

    fn enqueue(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number)
            && !connection.queued
        {
            connection.queued = true;
            self.queue.push_back(number);
        }
    }

    // ---- what others ask for ----

    fn read_mail(&mut self) {
        let Mail {
            woken,
            responses,
            accepted,
        } = std::mem::take(&mut *lock(&self.mailbox().mail));
        for socket in accepted {
            self.admit(socket);
        }
        for (number, response) in responses {
            self.unpark_group(number, response);
        }
        for number in woken {
            self.wake(number);
        }
    }

    fn unpark_group(&mut self, number: u64, response: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        if matches!(connection.parked, Some(Parked::Group)) {
            connection.parked = None;
            self.answer(number, Response::plain(response), 0);
            self.enqueue(number);
        }
    }

    /// Something that a parked request waits for may have happened.
    fn wake(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        if std::mem::take(&mut connection.loading) {
            self.enqueue(number);
        }
        self.try_read(number, false);
    }

    fn expire(&mut self, now: Instant) {
        while let Some((&(deadline, number), ())) = self.deadlines.first_key_value() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_first();
            let Some(connection) = self.connections.get_mut(&number) else {
                continue;
            };
            if matches!(connection.parked, Some(Parked::Limit { .. })) {
                connection.parked = None;
                self.enqueue(number);
            } else {
                self.try_read(number, true);
            }
        }
        self.send_away(now);
        if self.index == 0 {
            api::groups::tick(self.shared, now);
        }
        if now >= self.next_sweep {
            self.next_sweep = now + Duration::from_secs(1);
            self.sweep(now);
        }
    }

    // ---- a connection's turn ----

    fn turn(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        connection.queued = false;
        self.flush(number);
        if self.handle_buffered(number) {
            self.receive(number);
        }
        self.flush(number);
    }

    /// Adds a response, counting its memory.
    fn answer(&mut self, number: u64, response: Response, position: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        self.shared.metrics.requests.add(1);
        self.shared
            .output_bytes
            .fetch_add(response.memory_bytes(), Ordering::Relaxed);
        connection.unread_bytes += response.memory_bytes();
        let committed = self.shared.committed.load(Ordering::Acquire);
        connection.answer(response, position, committed);
        if !connection.held.is_empty() {
            self.held.push_back((position, number));
        }
    }

    fn flush(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        if !connection.has_output() || !connection.writable || connection.loading {
            return;
        }
        let ready = connection.ready.len();
        let shared = self.shared;
        let unread_bytes = &mut connection.unread_bytes;
        let free = |bytes| {
            shared.output_bytes.fetch_sub(bytes, Ordering::Relaxed);
            *unread_bytes -= bytes;
        };
        let (sent, bytes, _) = output::send(
            &mut connection.transport,
            connection.socket.as_raw_fd(),
            &mut connection.ready,
            ready,
            &shared.cache,
            free,
        );
        let taken = match connection.transport.is_encrypted() {
            true => charge_encrypted(shared, connection),
            false => 0,
        };
        if bytes > 0 || taken > 0 {
            connection.last_progress = Instant::now();
        }
        match sent {
            Sent::All if connection.is_ending && connection.held.is_empty() => self.close(number),
            Sent::All => {
                if connection.input_done < connection.input.len() || connection.readable {
                    self.enqueue(number);
                }
            }
            Sent::Turn => self.enqueue(number),
            Sent::Full => connection.writable = false,
            Sent::Missing(chunk) => {
                connection.loading = true;
                if lock(&shared.loads).failed.contains_key(&chunk) {
                    self.close(number);
                } else {
                    shared.request_load(
                        chunk,
                        Some(ConnectionId {
                            thread: self.index,
                            number,
                        }),
                    );
                }
            }
            Sent::Broken => self.close(number),
        }
    }

    /// Handles one request; false when it has to be handled again later because there is no memory for it now.
    fn handle(&mut self, number: u64, frame: &[u8]) -> bool {
        let id = self.id(number);
        let outcome = match self.shared.settings.access.users {
            None => api::handle(self.shared, id, frame),
            Some(_) => match self.handle_guarded(number, frame) {
                Some(outcome) => outcome,
                None => return false,
            },
        };
        match outcome {
            Err(_malformed) => self.reject(number),
            Ok(Outcome::Answer(response)) => self.answer(number, Response::plain(response), 0),
            Ok(Outcome::AnswerAfter(response, position)) => {
                self.appended = true;
                self.answer(number, Response::plain(response), position);
            }
            Ok(Outcome::Produced {
                response,
                position,
                bytes,
            }) => {
                self.appended = true;
                if let Some(response) = response {
                    self.answer(number, Response::plain(response), position);
                }
                self.limit(number, bytes);
            }
            Ok(Outcome::Read(request)) => self.park_read(number, request),
            Ok(Outcome::Group) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.parked = Some(Parked::Group);
                }
                api::groups::deliver(self.shared, id);
            }
            Ok(Outcome::LoggedIn(response)) => self.log_in(number, response),
            Ok(Outcome::Refused(response)) => self.refuse(number, response),
            Ok(Outcome::NoMemory) => {
                self.shared.metrics.memory_waits.add(1);
                self.appended = true;
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.parked = Some(Parked::Memory);
                    self.waiting_for_memory.push(number);
                }
                return false;
            }
        }
        true
    }

    /// Pauses a connection when the byte rate limit is reached.
    fn limit(&mut self, number: u64, bytes: usize) {
        let Some(pause) = self.shared.charge(bytes) else {
            return;
        };
        if let Some(connection) = self.connections.get_mut(&number)
            && connection.parked.is_none()
        {
            let until = Instant::now() + pause;
            connection.parked = Some(Parked::Limit { until });
            self.deadlines.insert((until, number), ());
        }
    }

    /// Answers what reads, now or when there is something to answer; now in any case if requests that wait take too much memory.
    fn park_read(&mut self, number: u64, request: Reading) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let bytes = request.memory_bytes();
        let deadline = Instant::now() + request.wait_max();
        connection.parked = Some(Parked::Read { request, deadline });
        self.deadlines.insert((deadline, number), ());
        let others = self.shared.parked_bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_short = bytes > PARKED_FREE_BYTES && others + bytes > self.shared.settings.parked_bytes_max();
        self.try_read(number, is_short);
        let waits = |connection: &Connection| matches!(connection.parked, Some(Parked::Read { .. }));
        if is_short && self.connections.get(&number).is_some_and(waits) {
            // For the disk, which may take long.
            self.shared.metrics.evicted.add(1);
            self.close(number);
        }
    }

    /// Answers a parked reading request if it can be answered (or must be).
    fn try_read(&mut self, number: u64, expired: bool) {
        let id = self.id(number);
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let Some(Parked::Read { request, deadline }) = &mut connection.parked else {
            return;
        };
        let Some(response) = request.answer(self.shared, id, expired) else {
            return;
        };
        let deadline = *deadline;
        self.shared
            .parked_bytes
            .fetch_sub(request.memory_bytes(), Ordering::Relaxed);
        self.deadlines.remove(&(deadline, number));
        connection.parked = None;
        self.answer(number, response, 0);
        self.enqueue(number);
    }

    // ---- commits ----

    fn commit(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.appended) {
            let inline =
                !self.shared.is_fsync() && self.shared.broker().journal.pending_bytes() <= COMMIT_HERE_BYTES;
            self.mailbox().awaits_commit.store(true, Ordering::Release);
            if inline {
                commit::commit_here(self.shared, self.index)?;
            } else {
                self.shared.want_commit();
            }
        }
        self.release_held();
        Ok(())
    }

    /// Sends the responses whose data has become durable, and looks again at what waited for memory.
    fn release_held(&mut self) {
        let committed = self.shared.committed.load(Ordering::Acquire);
        while let Some(&(position, number)) = self.held.front() {
            if position > committed {
                self.mailbox().awaits_commit.store(true, Ordering::Release);
                if self.shared.committed.load(Ordering::Acquire) < position {
                    break;
                }
            }
            self.held.pop_front();
            let committed = self.shared.committed.load(Ordering::Acquire);
            if let Some(connection) = self.connections.get_mut(&number)
                && connection.release(committed)
            {
                self.flush(number);
            }
        }
        self.look_for_memory();
    }
}
