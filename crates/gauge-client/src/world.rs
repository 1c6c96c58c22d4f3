//! The network of a simulated world (`gauge-sim`), for the thread that lives in it: sockets and pollers are the world's, and what uses them is
//! the same code. There is no TLS and no look-up of names in it.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use gauge_load::clock::monotonic_ns;

use crate::{Interest, Ready};

/// A set of sockets of the world.
pub type PollerId = u64;
/// A socket of the world.
pub type SocketId = u64;

/// What a world does when clients call it. Its methods may be called while another of them is under way: `wait` lets time pass, in which
/// others may have their turn on the same thread.
pub trait Network {
    /// A new, empty set of sockets.
    fn poller(&self) -> PollerId;

    /// Begins to connect.
    ///
    /// # Errors
    /// When that fails at once.
    fn connect(&self, to: SocketAddr) -> io::Result<SocketId>;

    /// Whether the connection has come about.
    ///
    /// # Errors
    /// Why it has not.
    fn is_connected(&self, socket: SocketId) -> io::Result<bool>;

    /// As `read` of a socket that does not block.
    ///
    /// # Errors
    /// Those of `read`.
    fn read(&self, socket: SocketId, into: &mut [u8]) -> io::Result<usize>;

    /// As `write_vectored` of a socket that does not block.
    ///
    /// # Errors
    /// Those of `write_vectored`.
    fn write_vectored(&self, socket: SocketId, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// The client closes the socket, which leaves its set.
    fn close(&self, socket: SocketId);

    /// From now on the set tells of this socket, by this token.
    fn watch(&self, poller: PollerId, socket: SocketId, token: u64, interest: Interest);

    /// Lets time pass until a socket is ready, somebody wakes the poller, or the clock shows `until_ns`.
    fn wait(&self, poller: PollerId, until_ns: i64, ready: &mut Vec<Ready>);

    /// Ends a wait.
    fn wake(&self, poller: PollerId);

    /// A number that nobody else was given, for names that must be unique.
    fn unique(&self) -> u64;
}

thread_local! {
    static NETWORK: RefCell<Option<Rc<dyn Network>>> = const { RefCell::new(None) };
}

/// From now on this thread's sockets are of this world; None: of the kernel.
pub fn set(network: Option<Rc<dyn Network>>) {
    NETWORK.set(network);
}

fn network() -> Option<Rc<dyn Network>> {
    NETWORK.with_borrow(Clone::clone)
}

fn required() -> io::Result<Rc<dyn Network>> {
    network().ok_or_else(|| io::ErrorKind::NetworkUnreachable.into())
}

/// A set of sockets, if the thread lives in a world.
pub(crate) fn poller() -> Option<PollerId> {
    Some(network()?.poller())
}

pub(crate) fn wait(poller: PollerId, until_ns: i64, ready: &mut Vec<Ready>) -> io::Result<()> {
    required()?.wait(poller, until_ns, ready);
    Ok(())
}

pub(crate) fn wake(poller: PollerId) {
    if let Some(network) = network() {
        network.wake(poller);
    }
}

/// Sleeps. In a world time passes meanwhile, as it does there.
pub fn sleep(for_ns: i64) {
    match network() {
        None => std::thread::sleep(Duration::from_nanos(for_ns.max(0).unsigned_abs())),
        Some(network) => {
            let nothing = network.poller();
            network.wait(nothing, monotonic_ns() + for_ns, &mut Vec::new());
        }
    }
}

/// A number for a name that must be unique, if the thread lives in a world.
pub(crate) fn unique() -> Option<u64> {
    Some(network()?.unique())
}

/// A socket of the world. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Socket(SocketId);

impl Socket {
    pub fn connect(to: SocketAddr) -> io::Result<Socket> {
        required()?.connect(to).map(Socket)
    }

    pub fn is_connected(&self) -> io::Result<bool> {
        required()?.is_connected(self.0)
    }

    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        required()?.read(self.0, into)
    }

    pub fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        required()?.write_vectored(self.0, slices)
    }

    pub fn watch(&self, poller: PollerId, token: u64, interest: Interest) -> io::Result<()> {
        required()?.watch(poller, self.0, token, interest);
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(network) = network() {
            network.close(self.0);
        }
    }
}
