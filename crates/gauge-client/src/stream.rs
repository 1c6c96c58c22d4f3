//! A non-blocking byte stream: what every protocol's connection stands on.
//!
//! Outgoing pieces are queued as they were built and leave by vectored writes; a piece that is written whole is handed back to its
//! owner, who recycles it or keeps it until the system acknowledges it. Incoming bytes are parsed where they were read. The stream
//! knows neither frames nor answers: those are the protocol's.
//!
//! # Use
//!
//! 1. [`ByteStream::connect`] begins; [`ByteStream::advance`] is called with every event and says when the stream has become open.
//! 2. [`ByteStream::push`] queues, [`ByteStream::write`] writes as much as the socket takes and keeps the poller's interest right.
//! 3. While [`ByteStream::read`] says that there may be more: parse [`ByteStream::input`], [`ByteStream::consume`] what is done with.
//! 4. Any [`Lost`] ends the stream: [`ByteStream::into_unwritten`] gives back what was queued; dropping it closes the socket.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;

use crate::transport::Transport;
pub(crate) use crate::transport::{Lost, Peer, find, kind, resolve};
use crate::{Poller, Ready};

/// Pieces handed to the kernel in one write.
const SLICES_MAX: usize = 64;
/// Pause before the first attempt to connect again; doubles up to a second.
const RECONNECT_PAUSE_NS: i64 = 20_000_000;
const RECONNECT_PAUSE_NS_MAX: i64 = 1_000_000_000;

/// Sizes of the buffer for what is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputBytes {
    /// Its first size.
    pub first: usize,
    /// It doubles up to this; whoever needs more of one frame does not follow the protocol.
    pub max: usize,
}

/// A byte stream. `P` is what is queued for writing: anything that lends its bytes. Dropping the stream closes the socket, which also
/// takes it out of the poller.
pub(crate) struct ByteStream<P> {
    transport: Transport,
    queue: VecDeque<P>,
    /// Bytes written of the first piece in the queue.
    written_bytes: usize,
    queued_bytes: usize,
    input: Vec<u8>,
    /// The part of `input` that was read and not consumed.
    filled: Range<usize>,
    input_bytes_max: usize,
}

impl<P> fmt::Debug for ByteStream<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not what is queued or was read: logins are among it.
        formatter
            .debug_struct("ByteStream")
            .field("transport", &self.transport)
            .field("queued_bytes", &self.queued_bytes)
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

impl<P: AsRef<[u8]>> ByteStream<P> {
    /// Begins to connect, in TLS if the peer is spoken to in it.
    pub fn connect(
        peer: &Peer,
        poller: &Poller,
        token: u64,
        input: InputBytes,
        now_ns: i64,
    ) -> Result<ByteStream<P>, Lost> {
        Ok(ByteStream::over(
            Transport::connect(peer, poller, token, now_ns)?,
            input,
        ))
    }

    /// Begins to connect without TLS, which may begin later ([`ByteStream::start_tls`]).
    pub fn connect_plain(
        peer: &Peer,
        poller: &Poller,
        token: u64,
        input: InputBytes,
        now_ns: i64,
    ) -> Result<ByteStream<P>, Lost> {
        Ok(ByteStream::over(
            Transport::connect_plain(peer, poller, token, now_ns)?,
            input,
        ))
    }

    fn over(transport: Transport, input: InputBytes) -> ByteStream<P> {
        ByteStream {
            transport,
            queue: VecDeque::new(),
            written_bytes: 0,
            queued_bytes: 0,
            input: vec![0; input.first.max(64)],
            filled: 0..0,
            input_bytes_max: input.max.max(input.first),
        }
    }

    /// Begins TLS on an open stream that has none and on which nothing is queued. The stream is open again when `advance` says so.
    pub fn start_tls(&mut self, peer: &Peer, poller: &Poller, now_ns: i64) -> Result<(), Lost> {
        if !self.filled.is_empty() {
            // What came before the handshake could be anybody's.
            let words = "it sends more before TLS has begun".to_owned();
            return Err(Lost::Malformed(words));
        }
        self.transport.start_tls(peer, poller, now_ns)
    }

    /// Whether bytes can be written and read.
    #[allow(
        dead_code,
        reason = "part of what a stream tells; not every protocol asks for it"
    )]
    pub fn is_open(&self) -> bool {
        self.transport.is_open()
    }

    /// When the connection counts as lost if it has not come about; `i64::MAX` once it has.
    pub fn connect_deadline_ns(&self) -> i64 {
        self.transport.connect_deadline_ns()
    }

    /// Looks whether connecting takes too long.
    pub fn check_deadline(&self, now_ns: i64) -> Result<(), Lost> {
        self.transport.check_deadline(now_ns)
    }

    /// To be called when the poller says that the socket is ready: completes the connection. True: it has just become open.
    #[inline]
    pub fn advance(&mut self, ready: &Ready, poller: &Poller) -> Result<bool, Lost> {
        self.transport.advance(ready, poller)
    }

    /// Queues a piece; `write` sends it.
    pub fn push(&mut self, piece: P) {
        self.queued_bytes += piece.as_ref().len();
        self.queue.push_back(piece);
    }

    /// Bytes that are queued and not written.
    #[allow(
        dead_code,
        reason = "part of what a stream tells; not every protocol asks for it"
    )]
    pub fn unwritten_bytes(&self) -> usize {
        self.queued_bytes - self.written_bytes
    }

    /// Writes as much as the socket takes. Each piece that is written whole goes to `done`, in order.
    pub fn write(&mut self, poller: &Poller, mut done: impl FnMut(P)) -> Result<(), Lost> {
        let mut blocked = self.transport.flush()?;
        while self.transport.is_open() && !blocked && !self.queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = gather(&self.queue, self.written_bytes, &mut slices);
            let is_nothing = slices[..count].iter().all(|slice| slice.is_empty());
            match self.transport.write_vectored(&slices[..count]) {
                Ok(0) if !is_nothing => return Err(Lost::Closed(None)),
                Ok(bytes) => self.wrote(bytes, &mut done),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => blocked = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::broken(error)),
            }
        }
        self.transport.settle(poller, blocked)
    }

    fn wrote(&mut self, bytes: usize, done: &mut impl FnMut(P)) {
        self.written_bytes += bytes;
        while let Some(first) = self.queue.front() {
            let length = first.as_ref().len();
            if self.written_bytes < length {
                return;
            }
            self.written_bytes -= length;
            self.queued_bytes -= length;
            if let Some(piece) = self.queue.pop_front() {
                done(piece);
            }
        }
        assert_eq!(self.written_bytes, 0, "no more is written than was queued");
    }

    /// Reads once. True: there may be more to read. An error when the buffer is full and may not grow: what was read must be consumed
    /// first, unless one frame is larger than the protocol's connection believes.
    pub fn read(&mut self) -> Result<bool, Lost> {
        if !self.transport.is_open() {
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

    /// Makes room behind what was read: what is left of it moves to the front when little room is behind it, and the buffer doubles when
    /// it is full of one unfinished frame.
    fn make_room(&mut self) -> Result<(), Lost> {
        if self.filled.is_empty() {
            self.filled = 0..0;
        }
        if self.filled.start > 0 && self.input.len() - self.filled.end < self.input.len() / 4 {
            self.input.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        if self.filled.end < self.input.len() {
            return Ok(());
        }
        if self.input.len() >= self.input_bytes_max {
            let message = format!("a frame is longer than {} bytes", self.input_bytes_max);
            return Err(Lost::Malformed(message));
        }
        let larger = (self.input.len() * 2).min(self.input_bytes_max);
        self.input.resize(larger, 0);
        Ok(())
    }

    /// What was read and not consumed.
    pub fn input(&self) -> &[u8] {
        &self.input[self.filled.clone()]
    }

    /// The first `bytes` of `input` are done with.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.filled.len(), "no more is consumed than was read");
        self.filled.start += bytes;
    }

    /// Ends the stream and gives back what was queued and is not written whole, in order.
    pub fn into_unwritten(self) -> VecDeque<P> {
        self.queue
    }
}

/// Collects what is still to be written, from byte `skip` of the first piece on.
fn gather<'a, P: AsRef<[u8]>>(
    queue: &'a VecDeque<P>,
    mut skip: usize,
    slices: &mut [IoSlice<'a>; SLICES_MAX],
) -> usize {
    let mut count = 0;
    for (slice, piece) in slices.iter_mut().zip(queue) {
        *slice = IoSlice::new(&piece.as_ref()[skip..]);
        skip = 0;
        count += 1;
    }
    count
}

/// When to connect again: after a pause that doubles with each failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    retry_at_ns: i64,
    pause_ns: i64,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff {
            retry_at_ns: i64::MIN,
            pause_ns: RECONNECT_PAUSE_NS,
        }
    }
}

impl Backoff {
    /// When the next attempt may be made.
    pub fn retry_at_ns(&self) -> i64 {
        self.retry_at_ns
    }

    /// Whether the next attempt may be made.
    pub fn is_over(&self, now_ns: i64) -> bool {
        now_ns >= self.retry_at_ns
    }

    /// A connection failed or was lost.
    pub fn pause(&mut self, now_ns: i64) {
        self.retry_at_ns = now_ns.saturating_add(self.pause_ns);
        self.pause_ns = (self.pause_ns * 2).min(RECONNECT_PAUSE_NS_MAX);
    }

    /// An answer came: the next loss begins with the short pause.
    pub fn works(&mut self) {
        self.pause_ns = RECONNECT_PAUSE_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gauge_load::clock::monotonic_ns;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    const INPUT: InputBytes = InputBytes { first: 64, max: 256 };

    fn peer_at(address: std::net::SocketAddr) -> Peer {
        resolve(&address.to_string(), None)
            .expect("it is an address")
            .remove(0)
    }

    fn open(listener: &TcpListener, poller: &mut Poller) -> (ByteStream<Vec<u8>>, TcpStream) {
        let address = listener.local_addr().expect("a bound socket has an address");
        let now_ns = monotonic_ns();
        let mut stream =
            ByteStream::connect(&peer_at(address), poller, 7, INPUT, now_ns).expect("loopback takes it");
        let (peer, _) = listener.accept().expect("somebody connects");
        while !stream.is_open() {
            let mut ready = Vec::new();
            poller
                .wait(monotonic_ns() + 1_000_000_000, &mut ready)
                .expect("epoll works");
            assert!(!ready.is_empty(), "a connection on loopback comes about in time");
            stream.advance(&ready[0], poller).expect("it comes about");
        }
        (stream, peer)
    }

    fn pair() -> (ByteStream<Vec<u8>>, TcpStream, Poller) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port exists");
        let mut poller = Poller::new().expect("epoll works");
        let (stream, peer) = open(&listener, &mut poller);
        (stream, peer, poller)
    }

    #[test]
    fn pieces_arrive_in_order_and_come_back_when_written() {
        let (mut stream, mut peer, mut poller) = pair();
        // More than a socket takes at once, so that writes stop in the middle of pieces.
        let pieces: Vec<Vec<u8>> = (0..200u8).map(|n| vec![n; 50_000 + usize::from(n)]).collect();
        let whole: Vec<u8> = pieces.concat();
        let total = whole.len();
        for piece in &pieces {
            stream.push(piece.clone());
        }
        stream.push(Vec::new());
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; total];
            peer.read_exact(&mut got).expect("everything arrives");
            got
        });
        let mut back = Vec::new();
        while back.len() < pieces.len() + 1 {
            stream
                .write(&poller, |piece| back.push(piece))
                .expect("the peer reads");
            let mut ready = Vec::new();
            if stream.unwritten_bytes() > 0 {
                poller
                    .wait(monotonic_ns() + 1_000_000_000, &mut ready)
                    .expect("epoll works");
            }
        }
        assert_eq!(stream.unwritten_bytes(), 0);
        assert!(reader.join().expect("the reader ends") == whole);
        assert!(back[..200] == pieces[..]);
    }

    #[test]
    fn what_is_not_written_is_given_back() {
        let (mut stream, peer, poller) = pair();
        for n in 0..100u8 {
            stream.push(vec![n; 1 << 20]);
        }
        let mut written = 0;
        stream
            .write(&poller, |_| written += 1)
            .expect("the socket's buffers take some");
        let left = stream.into_unwritten();
        assert_eq!(written + left.len(), 100);
        assert_eq!(usize::from(left[0][0]), written);
        drop(peer);
    }

    #[test]
    fn a_frame_may_grow_up_to_the_limit_and_not_beyond() {
        let (mut stream, mut peer, mut poller) = pair();
        peer.write_all(&[9; 1000]).expect("the stream is there");
        let mut ready = Vec::new();
        poller
            .wait(monotonic_ns() + 1_000_000_000, &mut ready)
            .expect("epoll works");
        let lost = loop {
            match stream.read() {
                Ok(_) => {}
                Err(lost) => break lost,
            }
        };
        assert_eq!(stream.input(), [9; 256]);
        assert_eq!(lost.kind(), kind::MALFORMED_ANSWER);
        stream.consume(250);
        assert!(stream.read().is_ok());
        assert!(stream.input().len() > 6);
    }

    #[test]
    fn the_peers_end_is_told() {
        let (mut stream, peer, mut poller) = pair();
        drop(peer);
        let mut ready = Vec::new();
        poller
            .wait(monotonic_ns() + 1_000_000_000, &mut ready)
            .expect("epoll works");
        let lost = stream.read().expect_err("it is closed");
        assert_eq!(lost.kind(), kind::CONNECTION_LOST);
    }

    #[test]
    fn a_refused_connection_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port exists");
        let address = listener.local_addr().expect("a bound socket has an address");
        drop(listener);
        let mut poller = Poller::new().expect("epoll works");
        let mut stream: ByteStream<Vec<u8>> =
            ByteStream::connect(&peer_at(address), &poller, 7, INPUT, monotonic_ns()).expect("it begins");
        let mut ready = Vec::new();
        poller
            .wait(monotonic_ns() + 1_000_000_000, &mut ready)
            .expect("epoll works");
        let lost = stream.advance(&ready[0], &poller).expect_err("nobody listens");
        assert_eq!(lost.kind(), kind::CONNECT_FAILED);
    }

    #[test]
    fn the_pause_doubles_up_to_a_second() {
        let mut backoff = Backoff::default();
        assert!(backoff.is_over(0));
        let mut pauses_ms = Vec::new();
        for _ in 0..8 {
            backoff.pause(0);
            pauses_ms.push(backoff.retry_at_ns() / 1_000_000);
        }
        assert_eq!(pauses_ms, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        backoff.works();
        backoff.pause(0);
        assert!(!backoff.is_over(19_999_999) && backoff.is_over(20_000_000));
    }
}
