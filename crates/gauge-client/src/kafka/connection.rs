//! One connection to one broker: non-blocking, requests out, answers in, in the same order.
//!
//! A broker answers the requests of a connection in their order, so one queue is both the write queue and the list of what is
//! under way: its first `written` requests are on the wire. Large batches are written from where they were built, by vectored
//! writes; answers are parsed where they were read.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;

use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};

use super::sasl::Login;
use super::wire::{Malformed, Reader};
pub(crate) use crate::transport::Lost;
use crate::transport::{Peer, Transport};
use crate::{Poller, Ready};

/// An answer longer than this is not believed. A fetch is limited to far less, but one batch is always sent whole.
pub(crate) const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Buffers handed to the kernel in one write.
const SLICES_MAX: usize = 64;

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

impl From<Malformed> for Lost {
    fn from(malformed: Malformed) -> Lost {
        Lost::Malformed(format!("a faulty answer ({})", malformed.0))
    }
}

/// A connection. Dropping it closes the socket, which also takes it out of the poller.
#[derive(Debug)]
pub(crate) struct Connection<C> {
    transport: Transport,
    /// What must be done before the first request; None: done, or nothing.
    login: Option<Box<Login>>,
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
    /// Begins to connect, and to log in where that is asked for. `input_bytes`: first size of the buffer for answers, which grows with
    /// what arrives.
    pub fn connect(
        peer: &Peer,
        login: Option<Box<Login>>,
        poller: &Poller,
        token: u64,
        input_bytes: usize,
        now_ns: i64,
    ) -> Result<Connection<C>, Lost> {
        Ok(Connection {
            transport: Transport::connect(peer, poller, token, now_ns)?,
            login,
            next_correlation: 1,
            requests: VecDeque::new(),
            written: 0,
            written_bytes: 0,
            input: vec![0; input_bytes],
            filled: 0..0,
        })
    }

    /// Whether requests can be written.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.transport.is_open() && self.login.is_none()
    }

    /// What waits, travels, or is being answered.
    pub fn requests(&self) -> impl Iterator<Item = &Request<C>> {
        self.requests.iter()
    }

    /// How many wait, travel, or are being answered.
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
        if !self.transport.is_open() {
            return self.transport.connect_deadline_ns();
        }
        if let Some(login) = &self.login {
            return login.deadline_ns();
        }
        self.requests
            .front()
            .map_or(i64::MAX, |request| request.deadline_ns)
    }

    /// Looks whether something is overdue.
    pub fn check_deadline(&self, now_ns: i64) -> Result<(), Lost> {
        self.transport.check_deadline(now_ns)?;
        if now_ns < self.deadline_ns() {
            Ok(())
        } else {
            Err(Lost::Timeout)
        }
    }

    /// To be called when the poller says that the socket is ready: completes the connection. True: it has just become open.
    #[inline]
    pub fn advance(&mut self, ready: &Ready, poller: &Poller) -> Result<bool, Lost> {
        if self.is_open() {
            return Ok(false);
        }
        self.come_about(ready, poller)
    }

    fn come_about(&mut self, ready: &Ready, poller: &Poller) -> Result<bool, Lost> {
        let has_opened = self.transport.advance(ready, poller)?;
        if !self.transport.is_open() {
            return Ok(false);
        }
        let Some(mut login) = self.login.take() else {
            return Ok(has_opened);
        };
        if has_opened {
            login.begin(monotonic_ns());
        }
        let is_done = self.log_in(&mut login, ready.readable, poller)?;
        if !is_done {
            self.login = Some(login);
        }
        Ok(is_done)
    }

    /// Goes on with the login as far as the socket allows. True: it is done.
    fn log_in(&mut self, login: &mut Login, may_read: bool, poller: &Poller) -> Result<bool, Lost> {
        loop {
            let mut blocked = self.transport.flush()?;
            while !blocked && !login.unwritten().is_empty() {
                match self.transport.write_vectored(&[IoSlice::new(login.unwritten())]) {
                    Ok(0) => return Err(Lost::Closed(None)),
                    Ok(bytes) => login.wrote(bytes),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => blocked = true,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Lost::broken(error)),
                }
            }
            self.transport.settle(poller, blocked)?;
            if !may_read {
                return Ok(false);
            }
            while !self.has_answer()? {
                if !self.read()? && !self.has_answer()? {
                    return Ok(false);
                }
            }
            let Some(length) = self.announced()? else {
                return Ok(false);
            };
            let from = self.filled.start + 4;
            let answer = &self.input[from..from + length];
            let correlation = Reader::new(answer).i32()?;
            self.filled.start = from + length;
            if login.answered(correlation, &answer[4..])? {
                return Ok(true);
            }
        }
    }

    /// Writes as much as the socket takes.
    pub fn write(&mut self, poller: &Poller) -> Result<(), Lost> {
        let mut blocked = self.transport.flush()?;
        while self.is_open() && !blocked && self.written < self.requests.len() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = gather(&self.requests, self.written, self.written_bytes, &mut slices);
            match self.transport.write_vectored(&slices[..count]) {
                Ok(0) => return Err(Lost::Closed(None)),
                Ok(bytes) => self.wrote(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => blocked = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::broken(error)),
            }
        }
        self.transport.settle(poller, blocked || self.is_login_blocked())
    }

    fn is_login_blocked(&self) -> bool {
        self.login
            .as_ref()
            .is_some_and(|login| !login.unwritten().is_empty())
    }

    fn wrote(&mut self, mut bytes: usize) {
        while self.written < self.requests.len() {
            let left = self.requests[self.written].bytes - self.written_bytes;
            if bytes < left {
                if !mutants::is(Mutant::PartialWriteRepeated) {
                    self.written_bytes += bytes;
                }
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
        if !self.is_open() {
            return Ok(false);
        }
        self.make_room()?;
        let room = self.input.len() - self.filled.end;
        loop {
            return match self.transport.read(&mut self.input[self.filled.end..]) {
                Ok(0) => Err(Lost::Closed(None)),
                Ok(bytes) => {
                    self.filled.end += bytes;
                    Ok(bytes == room)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(Lost::broken(error)),
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
            _ => Err(Malformed("its length is below 4 bytes or above 128 MiB").into()),
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
            return Err(Malformed("it answers nothing that was asked").into());
        }
        match self.requests.front() {
            Some(request) if request.correlation == correlation && request.has_answer => {}
            _ => return Err(Malformed("it answers another request").into()),
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
