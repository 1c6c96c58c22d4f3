//! One client connection: what it has sent so far, what it still gets, and what its last request waits for.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use super::output::Response;
use super::transport::Transport;
use crate::access::exchange::Exchange;
use crate::api::Reading;
use crate::settings::FRAME_BYTES_MAX;

/// What the last request waits for. Later requests of the connection wait with it, as in Kafka.
#[derive(Debug)]
pub enum Parked {
    /// Something that is read waits for data or for the disk.
    Read {
        /// The request.
        request: Reading,
        /// When it waits for data no longer.
        deadline: Instant,
    },
    /// A join or a sync, answered by the group coordinator.
    Group,
    /// A request that is still in `input` and waits for memory.
    Memory,
    /// The byte rate limit, or the one of attempts to log in.
    Limit {
        /// When the connection may go on.
        until: Instant,
    },
}

/// A response that is not sent yet.
#[derive(Debug)]
pub struct Waiting {
    /// The journal position that must be durable first; 0: none.
    pub position: u64,
    /// The response.
    pub response: Response,
}

/// A client connection.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub socket: OwnedFd,
    /// How bytes go over it.
    pub transport: Transport,
    /// How far the client is with showing who it is; None: its requests are answered.
    pub exchange: Option<Exchange>,
    /// Whether nothing that it sent was allowed yet: see `server::strangers`.
    pub is_stranger: bool,
    /// Whether it is closed once everything is sent.
    pub is_ending: bool,
    /// Number in its thread.
    pub number: u64,
    /// Received bytes that are not handled yet: the beginning of a request, or requests that wait behind a parked one.
    pub input: Vec<u8>,
    /// Bytes at the front of `input` that are handled.
    pub input_done: usize,
    /// Memory charged for `input`.
    pub input_charged: usize,
    /// Responses that may be sent, in order.
    pub ready: VecDeque<Response>,
    /// Responses whose data is not durable yet, in order.
    pub held: VecDeque<Waiting>,
    /// Memory that `ready`, `held` and `encrypted_charged` take.
    pub unread_bytes: usize,
    /// Of that, what is encrypted and not sent.
    pub encrypted_charged: usize,
    /// What the last request waits for.
    pub parked: Option<Parked>,
    /// Whether the socket may have something to read.
    pub readable: bool,
    /// Whether the socket may take something.
    pub writable: bool,
    /// Whether sending waits for a chunk from disk.
    pub loading: bool,
    /// Whether the connection is in its thread's run queue.
    pub queued: bool,
    /// Whether reading waits until other connections finish their requests.
    pub starved: bool,
    /// Whether a request of it was handled.
    pub is_proven: bool,
    /// When bytes last went in or out.
    pub last_progress: Instant,
    /// When the request that is incomplete in `input` began.
    pub begun: Instant,
}

impl Connection {
    /// A new connection, whose client may ask at once.
    pub fn new(socket: OwnedFd, transport: Transport, number: u64, now: Instant) -> Self {
        Self {
            socket,
            transport,
            exchange: None,
            is_stranger: false,
            is_ending: false,
            number,
            input: Vec::new(),
            input_done: 0,
            input_charged: 0,
            ready: VecDeque::new(),
            held: VecDeque::new(),
            unread_bytes: 0,
            encrypted_charged: 0,
            parked: None,
            readable: true,
            writable: true,
            loading: false,
            queued: false,
            starved: false,
            is_proven: false,
            last_progress: now,
            begun: now,
        }
    }

    /// The socket's descriptor.
    pub fn descriptor(&self) -> i32 {
        self.socket.as_raw_fd()
    }

    /// Adds a response behind those that are waiting already.
    pub fn answer(&mut self, response: Response, position: u64, committed: u64) {
        if self.held.is_empty() && position <= committed {
            self.ready.push_back(response);
        } else {
            self.held.push_back(Waiting { position, response });
        }
    }

    /// Moves responses whose data is durable to the ready ones; returns whether there were any.
    pub fn release(&mut self, committed: u64) -> bool {
        let before = self.ready.len();
        while self
            .held
            .front()
            .is_some_and(|waiting| waiting.position <= committed)
        {
            self.ready
                .extend(self.held.pop_front().map(|waiting| waiting.response));
        }
        self.ready.len() > before
    }

    /// Bytes received and not handled.
    pub fn pending_input(&self) -> &[u8] {
        &self.input[self.input_done..]
    }

    /// Bytes that a request may have.
    pub fn frame_bytes_max(&self) -> usize {
        match self.exchange {
            None => FRAME_BYTES_MAX,
            Some(_) => FRAME_BYTES_MAX_BEFORE_LOGIN,
        }
    }

    /// Whether there is something to send.
    pub fn has_output(&self) -> bool {
        !self.ready.is_empty() || self.transport.has_unsent()
    }

    /// Whether the next request may be handled.
    /// `unread_bytes_max`: memory of responses that may wait for the client to read them.
    pub fn may_handle(&self, unread_bytes_max: usize) -> bool {
        self.parked.is_none()
            && !self.is_ending
            && self.unread_bytes < unread_bytes_max
            && self.ready.len() + self.held.len() < RESPONSES_MAX
    }
}

/// Bytes of a request from a client that has not logged in.
const FRAME_BYTES_MAX_BEFORE_LOGIN: usize = 8 << 10;
/// Requests of one connection that may be in work at once.
const RESPONSES_MAX: usize = 64;
