//! The transport under a connection: a TCP socket, or TLS over one. The only place where sockets are opened.
//!
//! A [`Transport`] is non-blocking and comes about in steps: [`Transport::connect`] begins, [`Transport::advance`] is called with every
//! event until it says that the transport is open, which with TLS means that the handshake is complete. [`Blocking`] waits in its calls,
//! for administration.
//!
//! # What an owner of TLS must know
//!
//! - Bytes count as written when rustls has taken them: it holds 256 KiB at most, and takes nothing while the socket has not taken what
//!   it holds. [`Transport::flush`] goes on with that, and [`Transport::settle`] keeps the poller's interest right meanwhile.
//! - A read that fills less than its buffer has emptied the socket and rustls: nothing stays behind of which the poller cannot tell.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;

use gauge_load::clock::monotonic_ns;

use crate::names::{self, Name};
use crate::socket::Socket;
use crate::tls::{self, Tls};
use crate::{Interest, Poller, Ready};

/// How long a connection may take to come about, the handshake of TLS included.
const CONNECT_TIMEOUT_NS: i64 = 5_000_000_000;

/// Kinds under which the ends of connections are counted; the same for every protocol.
pub(crate) mod kind {
    /// A connection did not come about.
    pub const CONNECT_FAILED: &str = "CONNECT_FAILED";
    /// A connection broke or was closed by the server.
    pub const CONNECTION_LOST: &str = "CONNECTION_LOST";
    /// An answer took too long.
    pub const REQUEST_TIMEOUT: &str = "REQUEST_TIMEOUT";
    /// The server does not follow the protocol.
    pub const MALFORMED_ANSWER: &str = "MALFORMED_ANSWER";
    /// A message waited for longer than it may be retried.
    pub const RETRY_TIME_OVER: &str = "RETRY_TIME_OVER";
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Lost {
    /// It never came about.
    Connect(io::Error),
    /// It ended; without an error: the server closed it.
    Closed(Option<io::Error>),
    /// An answer took too long.
    Timeout,
    /// The server does not follow the protocol: what was wrong.
    Malformed(String),
    /// The server has ended the connection and said why: a kind to count it under, and its words.
    Refused(&'static str, String),
}

impl Lost {
    /// The kind under which it is counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Lost::Connect(_) => kind::CONNECT_FAILED,
            Lost::Closed(_) => kind::CONNECTION_LOST,
            Lost::Timeout => kind::REQUEST_TIMEOUT,
            Lost::Malformed(_) => kind::MALFORMED_ANSWER,
            Lost::Refused(kind, _) => kind,
        }
    }

    /// What an error of a read or a write means.
    pub fn broken(error: io::Error) -> Lost {
        Lost::Closed(Some(error))
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::Connect(error) => write!(formatter, "cannot connect: {error}"),
            Lost::Closed(Some(error)) => write!(formatter, "the connection broke: {error}"),
            Lost::Closed(None) => formatter.write_str("the server closed the connection"),
            Lost::Timeout => formatter.write_str("no answer in time"),
            Lost::Malformed(what) => write!(formatter, "the server does not follow the protocol: {what}"),
            Lost::Refused(_, words) => write!(formatter, "the server ended the connection: {words}"),
        }
    }
}

/// Where a server listens.
#[derive(Clone, Debug)]
enum Place {
    Address(SocketAddr),
    /// A name, and which of its addresses, counted from the one whose turn it is.
    Name(Arc<Name>, usize),
}

/// Where a server listens and how it is spoken to. Two are the same when their address is: a server may be known by several names.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    place: Place,
    /// The name or address under which it was given: what its certificate must be for.
    host: Arc<str>,
    /// TLS, if it is spoken to in it.
    tls: Option<Tls>,
}

impl Peer {
    /// Whether it is spoken to in TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Its address; None while its name is being looked up.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.place {
            Place::Address(address) => Some(*address),
            Place::Name(name, offset) => name.address(*offset),
        }
    }

    /// Why it has no address.
    pub fn trouble(&self) -> String {
        match &self.place {
            Place::Address(_) => String::new(),
            Place::Name(name, _) => name.trouble(),
        }
    }
}

impl PartialEq for Peer {
    fn eq(&self, other: &Peer) -> bool {
        if let (Place::Name(one, a), Place::Name(two, b)) = (&self.place, &other.place)
            && Arc::ptr_eq(one, two)
        {
            return a == b;
        }
        match (self.address(), other.address()) {
            (Some(one), Some(two)) => one == two,
            _ => false,
        }
    }
}

impl Eq for Peer {}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Some(address) => address.fmt(formatter),
            None => formatter.write_str(&self.host),
        }
    }
}

/// The peers behind a `host:port`, one for each address; blocks while a name is looked up.
///
/// # Errors
/// One sentence when it is not of this form, or the name has no address.
pub(crate) fn resolve(server: &str, tls: Option<&Tls>) -> Result<Vec<Peer>, String> {
    let first = find(server, tls)?;
    let Place::Name(name, _) = &first.place else {
        return Ok(vec![first]);
    };
    let peer = |offset| Peer {
        place: Place::Name(Arc::clone(name), offset),
        ..first.clone()
    };
    Ok((0..name.wait()?).map(peer).collect())
}

/// The peer behind a `host:port`, at once: it has no address while its name is looked up.
///
/// # Errors
/// One sentence when it is not of this form.
pub(crate) fn find(server: &str, tls: Option<&Tls>) -> Result<Peer, String> {
    let place = match server.parse() {
        Ok(address) => Place::Address(address),
        Err(_) => {
            let port = server
                .rsplit_once(':')
                .map(|(host, port)| (host.is_empty(), port.parse::<u16>()));
            if !matches!(port, Some((false, Ok(_)))) {
                return Err(format!("{server:?} has no address: expected host:port"));
            }
            Place::Name(names::of(server), 0)
        }
    };
    Ok(Peer {
        place,
        host: host_of(server).into(),
        tls: tls.cloned(),
    })
}

/// The host of a `host:port`, without the brackets of an IPv6 address.
fn host_of(server: &str) -> &str {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The socket is not connected.
    Connecting,
    /// The handshake of TLS is not complete.
    Shaking,
    Open,
}

/// A socket, with TLS over it if that is asked for. Dropping it closes the socket, which also takes it out of the poller.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: Socket,
    tls: Option<Box<tls::Session>>,
    stage: Stage,
    token: u64,
    /// What the poller was last told to watch for.
    wants_write: bool,
    deadline_ns: i64,
    /// The name whose address this is, until it is open.
    name: Option<Arc<Name>>,
}

impl Transport {
    /// Begins to connect, in TLS if the peer is spoken to in it.
    pub fn connect(peer: &Peer, poller: &Poller, token: u64, now_ns: i64) -> Result<Transport, Lost> {
        let mut transport = Transport::connect_plain(peer, poller, token, now_ns)?;
        transport.tls = session(peer)?;
        Ok(transport)
    }

    /// Begins to connect without TLS, which may begin later ([`Transport::start_tls`]).
    pub fn connect_plain(peer: &Peer, poller: &Poller, token: u64, now_ns: i64) -> Result<Transport, Lost> {
        let Some(address) = peer.address() else {
            let error = io::Error::new(io::ErrorKind::AddrNotAvailable, peer.trouble());
            return Err(Lost::Connect(error));
        };
        let name = match &peer.place {
            Place::Address(_) => None,
            Place::Name(name, _) => Some(Arc::clone(name)),
        };
        let socket =
            Socket::connect(address, poller, token).inspect_err(|_| name.iter().for_each(Name::failed));
        Ok(Transport {
            socket: socket.map_err(Lost::Connect)?,
            tls: None,
            stage: Stage::Connecting,
            token,
            wants_write: true,
            deadline_ns: now_ns.saturating_add(CONNECT_TIMEOUT_NS),
            name,
        })
    }

    /// Begins the handshake of TLS on an open transport, which is open again when `advance` says so.
    pub fn start_tls(&mut self, peer: &Peer, poller: &Poller, now_ns: i64) -> Result<(), Lost> {
        self.tls = session(peer)?;
        self.stage = Stage::Shaking;
        self.deadline_ns = now_ns.saturating_add(CONNECT_TIMEOUT_NS);
        self.shake(false, poller).map(|_| ())
    }

    /// Whether bytes can be written and read.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// When the connection counts as lost if it has not come about; `i64::MAX` once it has.
    pub fn connect_deadline_ns(&self) -> i64 {
        if self.is_open() {
            i64::MAX
        } else {
            self.deadline_ns
        }
    }

    /// Looks whether connecting takes too long.
    pub fn check_deadline(&self, now_ns: i64) -> Result<(), Lost> {
        if now_ns < self.connect_deadline_ns() {
            return Ok(());
        }
        let error = match self.stage {
            Stage::Shaking => io::Error::new(
                io::ErrorKind::TimedOut,
                "the server did not complete the TLS handshake in time: expected a TLS listener there",
            ),
            _ => io::ErrorKind::TimedOut.into(),
        };
        Err(Lost::Connect(error))
    }

    /// To be called when the poller says that the socket is ready: goes on with what is missing. True: it has just become open.
    #[inline]
    pub fn advance(&mut self, ready: &Ready, poller: &Poller) -> Result<bool, Lost> {
        if self.is_open() || !(ready.writable || ready.readable) {
            return Ok(false);
        }
        self.come_about(ready, poller)
    }

    fn come_about(&mut self, ready: &Ready, poller: &Poller) -> Result<bool, Lost> {
        if self.stage == Stage::Connecting {
            if !self.socket.is_connected().map_err(Lost::Connect)? {
                return Ok(false);
            }
            if self.tls.is_none() {
                self.stage = Stage::Open;
                return Ok(true);
            }
            self.stage = Stage::Shaking;
        }
        self.shake(ready.readable, poller)
    }

    fn shake(&mut self, may_read: bool, poller: &Poller) -> Result<bool, Lost> {
        if let Some(tls) = &mut self.tls {
            let socket = self.socket.kernel();
            if socket
                .and_then(|socket| tls.shake(socket, may_read))
                .map_err(Lost::Connect)?
            {
                self.stage = Stage::Open;
            }
        }
        self.settle(poller, false)?;
        Ok(self.is_open())
    }

    /// Reads as much as there is and `into` takes. 0: the server has closed the connection.
    #[inline]
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(into),
            Some(tls) => tls.read(self.socket.kernel()?, into),
        }
    }

    /// Writes what the socket, or rustls, takes.
    #[inline]
    pub fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.write_vectored(slices),
            Some(tls) => tls.write_vectored(self.socket.kernel()?, slices),
        }
    }

    /// Writes what was taken and has not left, if the transport is open. True: the socket does not take all of it.
    #[inline]
    pub fn flush(&mut self) -> Result<bool, Lost> {
        match &mut self.tls {
            Some(tls) if self.stage == Stage::Open => {
                match self.socket.kernel().and_then(|socket| tls.flush(socket)) {
                    Ok(()) => Ok(false),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
                    Err(error) => Err(Lost::broken(error)),
                }
            }
            _ => Ok(false),
        }
    }

    /// Tells the poller what is waited for: room to write, when the owner is `blocked` or the transport itself has something to write.
    #[inline]
    pub fn settle(&mut self, poller: &Poller, blocked: bool) -> Result<(), Lost> {
        let is_pending = || self.tls.as_ref().is_some_and(|tls| tls.wants_write());
        let wants_write = blocked || self.stage == Stage::Connecting || is_pending();
        if wants_write == self.wants_write {
            return Ok(());
        }
        let interest = if wants_write {
            Interest::ReadWrite
        } else {
            Interest::Read
        };
        self.socket
            .watch(poller, self.token, interest)
            .map_err(Lost::broken)?;
        self.wants_write = wants_write;
        Ok(())
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        // Nobody was there: another address of the name may be.
        if self.stage == Stage::Connecting
            && let Some(name) = &self.name
        {
            name.failed();
        }
    }
}

fn session(peer: &Peer) -> Result<Option<Box<tls::Session>>, Lost> {
    let session = peer.tls.as_ref().map(|tls| tls.session(&peer.host));
    Ok(session.transpose().map_err(Lost::Connect)?.map(Box::new))
}

/// A transport whose calls wait.
#[derive(Debug)]
pub(crate) struct Blocking {
    transport: Transport,
    poller: Poller,
    ready: Vec<Ready>,
}

impl Blocking {
    /// Connects, in TLS if the peer is spoken to in it.
    pub fn connect(peer: &Peer, deadline_ns: i64) -> Result<Blocking, Lost> {
        Blocking::begin(peer, deadline_ns, Transport::connect)
    }

    /// Connects without TLS, which may begin later ([`Blocking::start_tls`]).
    pub fn connect_plain(peer: &Peer, deadline_ns: i64) -> Result<Blocking, Lost> {
        Blocking::begin(peer, deadline_ns, Transport::connect_plain)
    }

    fn begin(
        peer: &Peer,
        deadline_ns: i64,
        connect: impl Fn(&Peer, &Poller, u64, i64) -> Result<Transport, Lost>,
    ) -> Result<Blocking, Lost> {
        let poller = Poller::new().map_err(Lost::Connect)?;
        let transport = connect(peer, &poller, 0, monotonic_ns())?;
        let mut blocking = Blocking {
            transport,
            poller,
            ready: Vec::new(),
        };
        blocking.open(deadline_ns)?;
        Ok(blocking)
    }

    /// Begins TLS on a connection that has none.
    pub fn start_tls(&mut self, peer: &Peer, deadline_ns: i64) -> Result<(), Lost> {
        self.transport.start_tls(peer, &self.poller, monotonic_ns())?;
        self.open(deadline_ns)
    }

    fn open(&mut self, deadline_ns: i64) -> Result<(), Lost> {
        while !self.transport.is_open() {
            let deadline_ns = deadline_ns.min(self.transport.connect_deadline_ns());
            if let Err(lost) = self.wait(deadline_ns) {
                self.transport.check_deadline(monotonic_ns())?;
                return Err(lost);
            }
            for ready in &self.ready {
                self.transport.advance(ready, &self.poller)?;
            }
        }
        Ok(())
    }

    fn wait(&mut self, deadline_ns: i64) -> Result<(), Lost> {
        if monotonic_ns() >= deadline_ns {
            return Err(Lost::Timeout);
        }
        self.poller
            .wait(deadline_ns, &mut self.ready)
            .map_err(Lost::broken)
    }

    /// Writes all bytes.
    pub fn write_all(&mut self, mut bytes: &[u8], deadline_ns: i64) -> Result<(), Lost> {
        loop {
            let mut blocked = self.transport.flush()?;
            while !blocked && !bytes.is_empty() {
                match self.transport.write_vectored(&[IoSlice::new(bytes)]) {
                    Ok(0) => return Err(Lost::Closed(None)),
                    Ok(written) => bytes = &bytes[written..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => blocked = true,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Lost::broken(error)),
                }
            }
            if bytes.is_empty() && !self.transport.flush()? {
                return Ok(());
            }
            self.transport.settle(&self.poller, true)?;
            self.wait(deadline_ns)?;
        }
    }

    /// Reads what there is, at least one byte. 0: the server has closed the connection.
    pub fn read(&mut self, into: &mut [u8], deadline_ns: i64) -> Result<usize, Lost> {
        loop {
            match self.transport.read(into) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // TLS may have something to say of its own.
                    let blocked = self.transport.flush()?;
                    self.transport.settle(&self.poller, blocked)?;
                    self.wait(deadline_ns)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::broken(error)),
            }
        }
    }

    /// Fills the buffer.
    pub fn read_exact(&mut self, mut into: &mut [u8], deadline_ns: i64) -> Result<(), Lost> {
        while !into.is_empty() {
            match self.read(into, deadline_ns)? {
                0 => return Err(Lost::Closed(None)),
                bytes => into = &mut into[bytes..],
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
