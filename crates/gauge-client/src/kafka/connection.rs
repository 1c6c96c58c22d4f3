//! One connection to one broker: non-blocking, requests out, answers in, in the same order.
//!
//! A broker answers the requests of a connection in their order, so one queue is both the write queue and the list of what is
//! under way: its first `written` requests are on the wire. Large batches are written from where they were built, by vectored
//! writes; answers are parsed where they were read.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::errors::kind;
use super::wire::{Malformed, Reader};
use crate::{Interest, Poller, Ready};

/// An answer longer than this is not believed. A fetch is limited to far less, but one batch is always sent whole.
pub(crate) const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Buffers handed to the kernel in one write.
const SLICES_MAX: usize = 64;
/// How long a connection may take to come about.
const CONNECT_TIMEOUT_NS: i64 = 5_000_000_000;

/// The byte stream under a connection. TLS becomes a second variant.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
}

impl Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(into),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write_vectored(slices),
        }
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket().as_raw_fd()
    }
}

/// What travels with a request: what its answer is for, and bytes that are sent from where they are.
pub(crate) trait Cargo {
    /// The pieces that lie between parts of the request's head: (position in the head after which it is sent, bytes).
    fn piece(&self, _index: usize) -> Option<(usize, &[u8])> {
        None
    }
}

/// A request with the place of its answer's body in the connection's bytes.
pub(crate) type Answered<C> = (Request<C>, Range<usize>);

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Request<C> {
    pub correlation: i32,
    /// The request's bytes except for the cargo's pieces.
    pub head: Vec<u8>,
    /// Bytes of the whole request.
    pub bytes: usize,
    /// When the connection counts as lost if there is no answer.
    pub deadline_ns: i64,
    /// Produce with acks=0 has no answer.
    pub has_answer: bool,
    pub cargo: C,
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Lost {
    /// It never came about.
    Connect(io::Error),
    /// It ended.
    Closed(Option<io::Error>),
    /// An answer, or the connection, took too long.
    Timeout,
    /// The server does not follow the protocol.
    Malformed(Malformed),
}

impl Lost {
    /// The kind under which it is counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Lost::Connect(_) => kind::CONNECT_FAILED,
            Lost::Closed(_) => kind::CONNECTION_LOST,
            Lost::Timeout => kind::REQUEST_TIMEOUT,
            Lost::Malformed(_) => kind::MALFORMED_ANSWER,
        }
    }
}

impl From<Malformed> for Lost {
    fn from(malformed: Malformed) -> Lost {
        Lost::Malformed(malformed)
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::Connect(error) => write!(formatter, "cannot connect: {error}"),
            Lost::Closed(Some(error)) => write!(formatter, "the connection broke: {error}"),
            Lost::Closed(None) => formatter.write_str("the server closed the connection"),
            Lost::Timeout => formatter.write_str("no answer in time"),
            Lost::Malformed(malformed) => malformed.fmt(formatter),
        }
    }
}

/// A connection. Dropping it closes the socket, which also takes it out of the poller.
#[derive(Debug)]
pub(crate) struct Connection<C> {
    stream: Stream,
    token: u64,
    is_open: bool,
    wants_write: bool,
    connect_deadline_ns: i64,
    next_correlation: i32,
    requests: VecDeque<Request<C>>,
    /// Requests at the front of the queue that are written whole.
    written: usize,
    /// Bytes written of the request after those.
    written_bytes: usize,
    input: Vec<u8>,
    /// The part of `input` that was read and not consumed.
    filled: Range<usize>,
}

impl<C: Cargo> Connection<C> {
    /// Begins to connect. `input_bytes`: first size of the buffer for answers, which grows with what arrives.
    pub fn connect(
        address: SocketAddr,
        poller: &Poller,
        token: u64,
        input_bytes: usize,
        now_ns: i64,
    ) -> Result<Connection<C>, Lost> {
        let begin = || -> io::Result<TcpStream> {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_nonblocking(true)?;
            socket.set_tcp_nodelay(true)?;
            match socket.connect(&address.into()) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
                Err(error) => return Err(error),
            }
            let stream = TcpStream::from(socket);
            poller.add(&stream, token, Interest::ReadWrite)?;
            Ok(stream)
        };
        Ok(Connection {
            stream: Stream::Plain(begin().map_err(Lost::Connect)?),
            token,
            is_open: false,
            wants_write: true,
            connect_deadline_ns: now_ns + CONNECT_TIMEOUT_NS,
            next_correlation: 1,
            requests: VecDeque::new(),
            written: 0,
            written_bytes: 0,
            input: vec![0; input_bytes],
            filled: 0..0,
        })
    }

    /// Whether requests can be written.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Requests that wait, travel, or are being answered.
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// The correlation number of the next request.
    pub fn next_correlation(&mut self) -> i32 {
        let correlation = self.next_correlation;
        self.next_correlation = self.next_correlation.wrapping_add(1) & i32::MAX;
        correlation
    }

    /// Queues a request; `write` sends it.
    pub fn push(&mut self, request: Request<C>) {
        self.requests.push_back(request);
    }

    /// The earliest time at which something is overdue.
    pub fn deadline_ns(&self) -> i64 {
        if !self.is_open {
            return self.connect_deadline_ns;
        }
        self.requests
            .front()
            .map_or(i64::MAX, |request| request.deadline_ns)
    }

    /// Looks whether something is overdue.
    pub fn check_deadline(&self, now_ns: i64) -> Result<(), Lost> {
        if now_ns < self.deadline_ns() {
            Ok(())
        } else if self.is_open {
            Err(Lost::Timeout)
        } else {
            Err(Lost::Connect(io::ErrorKind::TimedOut.into()))
        }
    }

    /// To be called when the poller says that the socket is ready: completes the connection. True: it has just become open.
    pub fn advance(&mut self, ready: &Ready) -> Result<bool, Lost> {
        if self.is_open || !(ready.writable || ready.readable) {
            return Ok(false);
        }
        let socket = self.stream.socket();
        if let Some(error) = socket.take_error().map_err(Lost::Connect)? {
            return Err(Lost::Connect(error));
        }
        match socket.peer_addr() {
            Ok(_) => {
                self.is_open = true;
                Ok(true)
            }
            // A stale event of an earlier connection with the same token.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(Lost::Connect(error)),
        }
    }

    /// Writes as much as the socket takes.
    pub fn write(&mut self, poller: &Poller) -> Result<(), Lost> {
        let mut blocked = false;
        while self.is_open && !blocked && self.written < self.requests.len() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = gather(&self.requests, self.written, self.written_bytes, &mut slices);
            match self.stream.write_vectored(&slices[..count]) {
                Ok(0) => return Err(Lost::Closed(None)),
                Ok(bytes) => self.wrote(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => blocked = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::Closed(Some(error))),
            }
        }
        let wants_write = blocked || !self.is_open;
        if wants_write != self.wants_write {
            let interest = if wants_write {
                Interest::ReadWrite
            } else {
                Interest::Read
            };
            poller
                .modify(&self.stream, self.token, interest)
                .map_err(|error| Lost::Closed(Some(error)))?;
            self.wants_write = wants_write;
        }
        Ok(())
    }

    fn wrote(&mut self, mut bytes: usize) {
        while self.written < self.requests.len() {
            let left = self.requests[self.written].bytes - self.written_bytes;
            if bytes < left {
                self.written_bytes += bytes;
                return;
            }
            bytes -= left;
            self.written += 1;
            self.written_bytes = 0;
        }
    }

    /// Takes the first request if it is written whole and has no answer to wait for.
    pub fn pop_unanswered(&mut self) -> Option<Request<C>> {
        if self.written == 0 || self.requests.front()?.has_answer {
            return None;
        }
        self.written -= 1;
        self.requests.pop_front()
    }

    /// Reads once. True: there may be more to read.
    pub fn read(&mut self) -> Result<bool, Lost> {
        if !self.is_open {
            return Ok(false);
        }
        self.make_room()?;
        let room = self.input.len() - self.filled.end;
        loop {
            return match self.stream.read(&mut self.input[self.filled.end..]) {
                Ok(0) => Err(Lost::Closed(None)),
                Ok(bytes) => {
                    self.filled.end += bytes;
                    Ok(bytes == room)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(Lost::Closed(Some(error))),
            };
        }
    }

    /// Makes room behind what was read: moves it to the front, or doubles the buffer, but never beyond what the answer at hand
    /// needs and never for bytes that were announced and did not come.
    fn make_room(&mut self) -> Result<(), Lost> {
        if self.filled.is_empty() {
            self.filled = 0..0;
        }
        if self.filled.end < self.input.len() {
            return Ok(());
        }
        if self.filled.start > 0 {
            self.input.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
            return Ok(());
        }
        let needed = self.announced()?.map_or(0, |length| length + 4);
        let larger = (self.input.len() * 2).max(64);
        let larger = if needed > self.input.len() {
            larger.min(needed.next_multiple_of(4096))
        } else {
            larger
        };
        self.input.resize(larger, 0);
        Ok(())
    }

    /// The length of the answer that is being read, once its first four bytes are there.
    fn announced(&self) -> Result<Option<usize>, Lost> {
        let Some(head) = self.input[self.filled.clone()].first_chunk::<4>() else {
            return Ok(None);
        };
        match usize::try_from(i32::from_be_bytes(*head)) {
            Ok(length) if (4..=ANSWER_BYTES_MAX).contains(&length) => Ok(Some(length)),
            _ => Err(Lost::Malformed(Malformed(
                "its length is below 4 bytes or above 128 MiB",
            ))),
        }
    }

    /// Whether a whole answer has been read.
    pub fn has_answer(&self) -> Result<bool, Lost> {
        Ok(self
            .announced()?
            .is_some_and(|length| self.filled.len() >= length + 4))
    }

    /// Takes the next whole answer: the request, and where its body lies in `bytes`. The place holds until the next `read`.
    pub fn answer(&mut self) -> Result<Option<Answered<C>>, Lost> {
        let Some(length) = self.announced()? else {
            return Ok(None);
        };
        if self.filled.len() < length + 4 {
            return Ok(None);
        }
        let from = self.filled.start + 4;
        let correlation = Reader::new(&self.input[from..from + 4]).i32()?;
        if self.written == 0 {
            return Err(Lost::Malformed(Malformed("it answers nothing that was asked")));
        }
        match self.requests.front() {
            Some(request) if request.correlation == correlation && request.has_answer => {}
            _ => return Err(Lost::Malformed(Malformed("it answers another request"))),
        }
        let Some(request) = self.requests.pop_front() else {
            return Ok(None);
        };
        self.written -= 1;
        self.filled.start = from + length;
        Ok(Some((request, from + 4..from + length)))
    }

    /// Bytes that were read.
    pub fn bytes(&self) -> &[u8] {
        &self.input
    }

    /// Ends the connection and gives back what had no answer, in the order in which it was queued.
    pub fn into_requests(self) -> VecDeque<Request<C>> {
        self.requests
    }
}

/// Collects what is still to be written, from byte `skip` of request `from` on.
fn gather<'a, C: Cargo>(
    requests: &'a VecDeque<Request<C>>,
    from: usize,
    mut skip: usize,
    slices: &mut [IoSlice<'a>; SLICES_MAX],
) -> usize {
    let mut count = 0;
    let mut add = |bytes: &'a [u8]| -> bool {
        if skip >= bytes.len() {
            skip -= bytes.len();
            return true;
        }
        slices[count] = IoSlice::new(&bytes[skip..]);
        skip = 0;
        count += 1;
        count < SLICES_MAX
    };
    'requests: for request in requests.range(from..) {
        let mut head_from = 0;
        let mut index = 0;
        while let Some((head_end, piece)) = request.cargo.piece(index) {
            if !add(&request.head[head_from..head_end]) || !add(piece) {
                break 'requests;
            }
            head_from = head_end;
            index += 1;
        }
        if !add(&request.head[head_from..]) {
            break;
        }
    }
    count
}
