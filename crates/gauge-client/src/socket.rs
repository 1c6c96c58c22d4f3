//! A socket under a transport: the kernel's, or one of the simulated world in which the thread lives.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};

use socket2::{Domain, Protocol, Type};

use crate::poller::{Interest, Poller};
use crate::world;

/// A socket that does not block. Dropping it closes it, which also takes it out of the poller.
#[derive(Debug)]
pub(crate) enum Socket {
    Kernel(TcpStream),
    World(world::Socket),
}

impl Socket {
    /// Begins to connect; the poller tells by `token` how that goes on.
    pub fn connect(to: SocketAddr, poller: &Poller, token: u64) -> io::Result<Socket> {
        if let Some(set) = poller.world() {
            let socket = world::Socket::connect(to)?;
            socket.watch(set, token, Interest::ReadWrite)?;
            return Ok(Socket::World(socket));
        }
        let socket = socket2::Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let stream = TcpStream::from(socket);
        poller.add(&stream, token, Interest::ReadWrite)?;
        Ok(Socket::Kernel(stream))
    }

    /// Whether the connection has come about.
    ///
    /// # Errors
    /// Why it has not.
    pub fn is_connected(&self) -> io::Result<bool> {
        match self {
            Socket::Kernel(stream) => {
                if let Some(error) = stream.take_error()? {
                    return Err(error);
                }
                match stream.peer_addr() {
                    Ok(_) => Ok(true),
                    // A stale event of an earlier connection with the same token.
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
                    Err(error) => Err(error),
                }
            }
            Socket::World(socket) => socket.is_connected(),
        }
    }

    #[inline]
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Kernel(stream) => (&mut &*stream).read(into),
            Socket::World(socket) => socket.read(into),
        }
    }

    #[inline]
    pub fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Kernel(stream) => (&mut &*stream).write_vectored(slices),
            Socket::World(socket) => socket.write_vectored(slices),
        }
    }

    /// Changes what the poller tells.
    pub fn watch(&self, poller: &Poller, token: u64, interest: Interest) -> io::Result<()> {
        match self {
            Socket::Kernel(stream) => poller.modify(stream, token, interest),
            Socket::World(socket) => {
                let set = poller.world().ok_or(io::ErrorKind::Unsupported)?;
                socket.watch(set, token, interest)
            }
        }
    }

    /// The kernel's socket, over which TLS may be spoken.
    ///
    /// # Errors
    /// Unsupported in a simulated world, which has no TLS.
    pub fn kernel(&self) -> io::Result<&TcpStream> {
        match self {
            Socket::Kernel(stream) => Ok(stream),
            Socket::World(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
