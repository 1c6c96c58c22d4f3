//! A network thread: accepts, receives, hands requests to `api`, sends responses, and begins commits.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::connection::{Connection, Parked};
use super::output::{self, Response, Sent};
use super::poll::{Poll, Ready};
use crate::api::{self, Outcome};
use crate::broker::topics::ConnectionId;
use crate::commit;
use crate::scheduling::prefer_short_slices;
use crate::settings::FRAME_BYTES_MAX;
use crate::shared::{Mail, Shared, lock};

/// Bytes received with one system call at most, into memory that all connections of the thread share.
const SCRATCH_BYTES: usize = 256 << 10;
/// Bytes received from one connection before others have their turn.
const TURN_BYTES: usize = 1 << 20;
/// Input memory that a connection may have without asking: most requests fit.
const INPUT_FREE_BYTES: usize = 64 << 10;
/// Memory that the beginning of a request takes at first.
const INPUT_FIRST_BYTES: usize = 4 << 10;
/// How often connections that wait for memory try again.
const MEMORY_PERIOD: Duration = Duration::from_millis(1);
/// While memory is short, a request that was begun must go on, and a response must be read on, within this time.
const STALL_TIME: Duration = Duration::from_secs(1);
/// In `async` mode up to this many pending bytes are written by the network thread itself, which saves two changes of threads; more is left to the committer, so
/// that receiving and writing overlap. A write to the device is always left to the committer: nobody else should wait for it.
const COMMIT_HERE_BYTES: usize = 512 << 10;
const TOKEN_LISTENER: u64 = u64::MAX;
const TOKEN_WAKE: u64 = u64::MAX - 1;

/// A network thread.
pub struct Server<'a> {
    shared: &'a Shared,
    index: u16,
    poll: Poll,
    listener: Option<TcpListener>,
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
            let groups = self.shared.broker().groups.next_deadline();
            next = next.into_iter().chain(groups).min();
        }
        if !self.waiting_for_memory.is_empty() {
            next = next.into_iter().chain([self.next_memory_look]).min();
        }
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

    // ---- connections come and go ----

    fn accept(&mut self) {
        for _ in 0..64 {
            let Some(listener) = &self.listener else { return };
            let Ok((stream, _)) = listener.accept() else {
                return;
            };
            let socket = OwnedFd::from(stream);
            let thread = self.next_thread;
            self.next_thread = (thread + 1) % self.shared.settings.threads;
            if thread == self.index {
                self.admit(socket);
            } else {
                let mailbox = &self.shared.mailboxes[usize::from(thread)];
                lock(&mailbox.mail).accepted.push(socket);
                mailbox.wake.signal();
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        let number = self.next_number;
        self.next_number += 1;
        let one: libc::c_int = 1;
        let size = size_of_val(&one) as libc::socklen_t;
        let descriptor = socket.as_raw_fd();
        // SAFETY: plain system calls on a descriptor that `socket` owns; the option lives during the call.
        unsafe {
            libc::setsockopt(
                descriptor,
                libc::IPPROTO_TCP,
                libc::TCP_NODELAY,
                (&raw const one).cast(),
                size,
            );
            libc::fcntl(
                descriptor,
                libc::F_SETFL,
                libc::fcntl(descriptor, libc::F_GETFL) | libc::O_NONBLOCK,
            );
        }
        if self.poll.add_connection(descriptor, number).is_ok() {
            self.connections
                .insert(number, Connection::new(socket, number, Instant::now()));
            self.shared.metrics.connections.add(1);
        }
    }

    fn close(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        self.shared.metrics.connections.add(-1);
        self.shared
            .input_bytes
            .fetch_sub(connection.input_charged, Ordering::Relaxed);
        self.shared
            .output_bytes
            .fetch_sub(connection.unread_bytes, Ordering::Relaxed);
        let id = self.id(number);
        match connection.parked {
            Some(Parked::Fetch { request, deadline }) => {
                self.deadlines.remove(&(deadline, number));
                request.forget_waiter(&mut self.shared.broker(), id);
            }
            Some(Parked::Limit { until }) => {
                self.deadlines.remove(&(until, number));
            }
            Some(Parked::Group) => self.shared.broker().groups.connection_closed(id),
            Some(Parked::Memory) | None => {}
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
        self.try_fetch(number, false);
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
                self.try_fetch(number, true);
            }
        }
        if self.index == 0 {
            api::groups::tick(self.shared, now);
        }
        if now >= self.next_sweep {
            self.next_sweep = now + Duration::from_secs(1);
            self.sweep(now);
        }
    }

    /// While memory is short, closes connections that hold some and make no progress.
    fn sweep(&mut self, now: Instant) {
        // Connections that wait for input memory keep the sum just below its limit.
        let short_of_input = self.connections.values().any(|connection| connection.starved)
            || self.shared.input_bytes.load(Ordering::Relaxed) > self.shared.settings.input_bytes_max();
        let short_of_output =
            self.shared.output_bytes.load(Ordering::Relaxed) > self.shared.settings.output_bytes_max();
        if !short_of_input && !short_of_output {
            return;
        }
        let unread = |connection: &&Connection| {
            let holds = short_of_output && !connection.ready.is_empty() && !connection.writable;
            holds && now.duration_since(connection.last_progress) > STALL_TIME
        };
        let numbers: Vec<u64> = self
            .connections
            .values()
            .filter(unread)
            .map(|connection| connection.number)
            .collect();
        for number in numbers {
            self.shared.metrics.evicted.add(1);
            self.close(number);
        }
        if short_of_input {
            self.evict_begun(now);
        }
    }

    /// While memory for requests is short, closes the connections whose request has been incomplete for longest.
    fn evict_begun(&mut self, now: Instant) {
        let old = |connection: &&Connection| {
            let waits_for_client = connection.parked.is_none() && connection.input_charged > 0;
            waits_for_client && now.duration_since(connection.begun) > STALL_TIME
        };
        let mut begun: Vec<(Instant, u64)> = self
            .connections
            .values()
            .filter(old)
            .map(|connection| (connection.begun, connection.number))
            .collect();
        begun.sort_unstable();
        for (_, number) in begun {
            if self.shared.input_bytes.load(Ordering::Relaxed) <= self.shared.settings.input_bytes_max() / 2 {
                return;
            }
            self.shared.metrics.evicted.add(1);
            self.close(number);
        }
    }

    // ---- a connection's turn ----

    fn turn(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        connection.queued = false;
        self.flush(number);
        if self.handle_buffered(number) && self.receive(number) {
            self.flush(number);
        }
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
        if connection.ready.is_empty() || !connection.writable || connection.loading {
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
            connection.socket.as_raw_fd(),
            &mut connection.ready,
            ready,
            &shared.cache,
            free,
        );
        if bytes > 0 {
            connection.last_progress = Instant::now();
        }
        match sent {
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

    /// Handles requests that are complete in the connection's own buffer; returns whether more may be received.
    fn handle_buffered(&mut self, number: u64) -> bool {
        loop {
            let room = self.shared.unread_bytes_max();
            let Some(connection) = self.connections.get_mut(&number) else {
                return false;
            };
            if !connection.may_handle(room) {
                return false;
            }
            let frame = match frame_in(connection.pending_input()) {
                Err(()) => {
                    self.reject(number);
                    return false;
                }
                Ok(None) => {
                    self.compact_input(number);
                    return true;
                }
                Ok(Some(frame)) => frame,
            };
            // The buffer leaves the connection while a request in it is handled, so that both can be used.
            let input = std::mem::take(&mut connection.input);
            let from = connection.input_done;
            let handled = self.handle(number, &input[from + 4..from + frame]);
            let Some(connection) = self.connections.get_mut(&number) else {
                return false;
            };
            connection.input = input;
            if handled {
                connection.input_done += frame;
                connection.is_proven = true;
            }
        }
    }

    /// Drops handled bytes from the front of the buffer, and the buffer when it is empty.
    fn compact_input(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        if connection.input_done == 0 {
            return;
        }
        connection.input.drain(..connection.input_done);
        connection.input_done = 0;
        connection.begun = Instant::now();
        leave_turn(self.shared, self.index, number);
        if connection.input.is_empty() {
            connection.input = Vec::new();
        }
        charge_input(self.shared, connection);
    }

    /// Receives and handles requests until the turn is over; returns whether the connection is still there.
    fn receive(&mut self, number: u64) -> bool {
        let mut received = 0;
        let mut scratch = std::mem::take(&mut self.scratch);
        let open = loop {
            let room = self.shared.unread_bytes_max();
            let Some(connection) = self.connections.get_mut(&number) else {
                break false;
            };
            if !connection.may_handle(room) || !connection.readable {
                break true;
            }
            if received >= TURN_BYTES {
                self.enqueue(number);
                break true;
            }
            let count = if connection.input.is_empty() {
                self.receive_scratch(number, &mut scratch)
            } else {
                self.receive_input(number)
            };
            match count {
                Some(count) => received += count,
                None => break self.connections.contains_key(&number),
            }
        };
        self.scratch = scratch;
        open
    }

    /// Receives into the thread's memory and handles what is complete there; the beginning of another request goes to the connection's buffer.
    fn receive_scratch(&mut self, number: u64, scratch: &mut [u8]) -> Option<usize> {
        let count = self.receive_into(number, scratch)?;
        let mut rest = &scratch[..count];
        loop {
            let room = self.shared.unread_bytes_max();
            let connection = self.connections.get_mut(&number)?;
            let frame = match frame_in(rest) {
                Err(()) => {
                    self.reject(number);
                    return None;
                }
                Ok(Some(frame)) if connection.may_handle(room) => frame,
                _ => break,
            };
            if !self.handle(number, &rest[4..frame]) {
                break;
            }
            rest = &rest[frame..];
        }
        let connection = self.connections.get_mut(&number)?;
        connection.is_proven |= rest.len() < count;
        connection.begun = Instant::now();
        connection.input.extend_from_slice(rest);
        charge_input(self.shared, connection);
        Some(count)
    }

    /// Receives the rest of a request that was begun into the connection's buffer.
    fn receive_input(&mut self, number: u64) -> Option<usize> {
        let connection = self.connections.get_mut(&number)?;
        let have = connection.input.len();
        let want = match connection.input.first_chunk::<4>() {
            Some(length) => u32::from_be_bytes(*length) as usize + 4,
            None => 4,
        };
        // Grows with what has arrived, not with what was claimed.
        let room = (want - have).min((3 * have).max(INPUT_FIRST_BYTES));
        let used = self.shared.input_bytes.load(Ordering::Relaxed);
        // A quarter is kept for clients that have ended a request before: who only begins some cannot take it all.
        let limit = match connection.is_proven {
            true => self.shared.settings.input_bytes_max(),
            false => self.shared.settings.input_bytes_max() / 4 * 3,
        };
        let over = used + room > limit && have + room > INPUT_FREE_BYTES;
        // One connection at a time may go beyond the limit, or half-received requests could block each other for ever.
        if over && !take_turn(self.shared, self.index, number) {
            connection.starved = true;
            self.shared.metrics.memory_waits.add(1);
            self.waiting_for_memory.push(number);
            return None;
        }
        connection.starved = false;
        let mut input = std::mem::take(&mut connection.input);
        if input.capacity() < have + room {
            input.reserve_exact(room);
        }
        input.resize(have + room, 0);
        let count = self.receive_into(number, &mut input[have..]);
        input.truncate(have + count.unwrap_or(0));
        let connection = self.connections.get_mut(&number)?;
        connection.input = input;
        charge_input(self.shared, connection);
        let count = count?;
        self.handle_buffered(number).then_some(count)
    }

    /// One system call; None when there is nothing more for now, or the connection is gone.
    fn receive_into(&mut self, number: u64, buffer: &mut [u8]) -> Option<usize> {
        let connection = self.connections.get_mut(&number)?;
        // SAFETY: the buffer lives during the call and is as long as the call is told.
        let count = unsafe {
            libc::recv(
                connection.descriptor(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
            )
        };
        if count > 0 {
            connection.last_progress = Instant::now();
            return Some(count as usize);
        }
        connection.readable = false;
        let again = count < 0
            && matches!(
                io::Error::last_os_error().raw_os_error(),
                Some(libc::EAGAIN | libc::EINTR)
            );
        if count < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
            connection.readable = true;
        }
        if !again {
            self.close(number);
        }
        None
    }

    /// Closes a connection that sent something that is no request.
    fn reject(&mut self, number: u64) {
        self.shared.metrics.malformed.add(1);
        self.close(number);
    }

    /// Handles one request; false when it has to be handled again later because there is no memory for it now.
    fn handle(&mut self, number: u64, frame: &[u8]) -> bool {
        let id = self.id(number);
        match api::handle(self.shared, id, frame) {
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
            Ok(Outcome::Fetch(request)) => {
                let deadline = Instant::now() + request.wait_max();
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.parked = Some(Parked::Fetch { request, deadline });
                    self.deadlines.insert((deadline, number), ());
                    self.try_fetch(number, false);
                }
            }
            Ok(Outcome::Group) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.parked = Some(Parked::Group);
                }
                api::groups::deliver(self.shared, id);
            }
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

    /// Answers a parked fetch if it can be answered (or must be).
    fn try_fetch(&mut self, number: u64, expired: bool) {
        let id = self.id(number);
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let Some(Parked::Fetch { request, deadline }) = &connection.parked else {
            return;
        };
        let Some(response) = request.answer(self.shared, id, expired) else {
            return;
        };
        let deadline = *deadline;
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

    /// Lets connections that wait for memory try again: when something was written, which frees chunks, and every `MEMORY_PERIOD`, as other threads free memory too.
    fn look_for_memory(&mut self) {
        if self.waiting_for_memory.is_empty() {
            return;
        }
        let committed = self.shared.committed.load(Ordering::Acquire);
        let now = Instant::now();
        if committed == self.committed_at_look && now < self.next_memory_look {
            return;
        }
        self.committed_at_look = committed;
        self.next_memory_look = now + MEMORY_PERIOD;
        for number in std::mem::take(&mut self.waiting_for_memory) {
            let Some(connection) = self.connections.get_mut(&number) else {
                continue;
            };
            if matches!(connection.parked, Some(Parked::Memory)) {
                connection.parked = None;
            }
            self.enqueue(number);
        }
    }
}

/// What stands for a connection in `Shared::input_turn`.
fn turn_of(thread: u16, number: u64) -> u64 {
    (u64::from(thread) << 48 | number) + 1
}

/// Whether the connection is, or becomes, the one that may take input memory beyond the limit.
fn take_turn(shared: &Shared, thread: u16, number: u64) -> bool {
    let own = turn_of(thread, number);
    let taken = shared
        .input_turn
        .compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire);
    taken.is_ok() || taken == Err(own)
}

/// The connection does not need memory beyond the limit any more.
fn leave_turn(shared: &Shared, thread: u16, number: u64) {
    let _ =
        shared
            .input_turn
            .compare_exchange(turn_of(thread, number), 0, Ordering::AcqRel, Ordering::Acquire);
}

/// Keeps the account of the memory that a connection's input takes.
fn charge_input(shared: &Shared, connection: &mut Connection) {
    let now = connection.input.capacity();
    if now != connection.input_charged {
        shared.input_bytes.fetch_add(now, Ordering::Relaxed);
        shared
            .input_bytes
            .fetch_sub(connection.input_charged, Ordering::Relaxed);
        connection.input_charged = now;
    }
}

/// The size of the request at the front of `bytes`, its length field included; None when it is not complete, an error when it is too large to be one.
fn frame_in(bytes: &[u8]) -> Result<Option<usize>, ()> {
    let Some(length) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(());
    }
    Ok((bytes.len() >= length + 4).then_some(length + 4))
}

/// Owns a descriptor that a system call returned; an error for a negative one.
pub fn own(descriptor: i32) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just returned by a system call and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
