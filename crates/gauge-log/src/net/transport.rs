//! How bytes go over a connection: as they are, or encrypted.
//!
//! Plain bytes go straight between the socket and the log's memory. Encrypted ones are copied, and little of them is kept: what is received is at most one record
//! ahead of what is handled (16 KiB), and at most 64 KiB are encrypted before the socket has taken what was encrypted before.

use std::io::{self, BufRead, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use super::output::Sent;

/// Reads from a socket in one go that bring nothing for the log (records that are incomplete, empty, or TLS's own) before others have their turn.
const READS_PER_TURN: usize = 32;

/// How bytes go over a connection.
#[derive(Debug)]
pub enum Transport {
    /// As they are.
    Plain,
    /// With TLS.
    Tls(Box<ServerConnection>),
}

/// How an attempt to receive ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes were received.
    Bytes(usize),
    /// There is nothing more for now.
    Nothing,
    /// There may be more, but others have their turn first.
    Turn,
    /// What is to be sent has to be taken by the client first.
    Full,
    /// The connection has ended, or is broken.
    Ended,
    /// What was received is not TLS, or was tampered with.
    Malformed,
}

impl Transport {
    /// For a new connection.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub fn new(tls: Option<&Arc<ServerConfig>>) -> Result<Self, rustls::Error> {
        match tls {
            None => Ok(Self::Plain),
            Some(config) => Ok(Self::Tls(Box::new(ServerConnection::new(Arc::clone(config))?))),
        }
    }

    /// Whether it encrypts.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Fills the front of `buffer`.
    pub fn receive(&mut self, descriptor: i32, buffer: &mut [MaybeUninit<u8>]) -> Received {
        match self {
            Self::Plain => match receive_from(descriptor, buffer) {
                Ok(0) => Received::Ended,
                Ok(count) => Received::Bytes(count),
                Err(error) => ended(&error),
            },
            Self::Tls(session) => receive_decrypted(session, descriptor, buffer),
        }
    }

    /// Sends what was encrypted and not taken yet.
    pub fn push(&mut self, descriptor: i32) -> Result<(), Sent> {
        match self {
            Self::Plain => Ok(()),
            Self::Tls(session) => push(session, descriptor),
        }
    }

    /// Whether there is something that `push` has to send.
    pub fn has_unsent(&self) -> bool {
        match self {
            Self::Plain => false,
            Self::Tls(session) => session.wants_write(),
        }
    }

    /// Bytes that `push` has to send.
    pub fn unsent_bytes(&mut self) -> usize {
        match self {
            Self::Tls(session) if session.wants_write() => session
                .process_new_packets()
                .map_or(0, |state| state.tls_bytes_to_write()),
            _ => 0,
        }
    }

    /// Sends the front of `pieces`; returns how much. With TLS it is sent when it is encrypted: `push` does the rest.
    ///
    /// # Safety
    /// The pieces point to initialised memory that lives and does not change during the call.
    pub unsafe fn send(&mut self, descriptor: i32, pieces: &mut [libc::iovec]) -> Result<usize, Sent> {
        match self {
            // SAFETY: the caller's promise.
            Self::Plain => unsafe { send_to(descriptor, pieces) }.map_err(|error| full(&error)),
            Self::Tls(session) => {
                let slices: Vec<IoSlice<'_>> = pieces
                    .iter()
                    // SAFETY: the caller's promise.
                    .map(|piece| unsafe {
                        std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
                    })
                    .map(IoSlice::new)
                    .collect();
                match session.writer().write_vectored(&slices) {
                    Ok(count) if count > 0 => Ok(count),
                    _ => Err(Sent::Broken),
                }
            }
        }
    }

    /// Says goodbye, if the socket takes it.
    pub fn end(&mut self, descriptor: i32) {
        if let Self::Tls(session) = self {
            session.send_close_notify();
            let _ = push(session, descriptor);
        }
    }
}

fn push(session: &mut ServerConnection, descriptor: i32) -> Result<(), Sent> {
    while session.wants_write() {
        match session.write_tls(&mut Socket(descriptor)) {
            Ok(_) => {}
            Err(error) => return Err(full(&error)),
        }
    }
    Ok(())
}

fn receive_decrypted(
    session: &mut ServerConnection,
    descriptor: i32,
    buffer: &mut [MaybeUninit<u8>],
) -> Received {
    for _ in 0..READS_PER_TURN {
        let mut reader = session.reader();
        match reader.fill_buf() {
            // The client has said goodbye.
            Ok([]) => return Received::Ended,
            Ok(bytes) => {
                let count = bytes.len().min(buffer.len());
                // SAFETY: both are at least `count` bytes long, and one is the session's, the other the caller's.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.as_mut_ptr().cast(), count) };
                reader.consume(count);
                return Received::Bytes(count);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Received::Ended,
        }
        // Who does not take what TLS has to say is not listened to: answers to its messages would pile up.
        match push(session, descriptor) {
            Ok(()) => {}
            Err(Sent::Full) => return Received::Full,
            Err(_) => return Received::Ended,
        }
        match session.read_tls(&mut Socket(descriptor)) {
            Ok(0) => return Received::Ended,
            Ok(_) => {}
            Err(error) => return ended(&error),
        }
        if session.process_new_packets().is_err() {
            // The alert that says what was wrong.
            let _ = push(session, descriptor);
            return Received::Malformed;
        }
    }
    Received::Turn
}

fn ended(error: &io::Error) -> Received {
    match error.kind() {
        io::ErrorKind::WouldBlock => Received::Nothing,
        io::ErrorKind::Interrupted => Received::Turn,
        _ => Received::Ended,
    }
}

fn full(error: &io::Error) -> Sent {
    match error.kind() {
        io::ErrorKind::WouldBlock => Sent::Full,
        _ => Sent::Broken,
    }
}

fn receive_from(descriptor: i32, buffer: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    // SAFETY: the buffer lives during the call and is as long as the call is told.
    let count = unsafe {
        libc::recv(
            descriptor,
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Sends the front of `pieces`.
///
/// # Safety
/// They point to initialised memory that lives during the call.
unsafe fn send_to(descriptor: i32, pieces: &mut [libc::iovec]) -> io::Result<usize> {
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    loop {
        // SAFETY: the message lives during the call, and so does what it points to: the caller's promise.
        let sent = unsafe { libc::sendmsg(descriptor, &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        if let Ok(count) = usize::try_from(sent) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A socket as TLS wants it.
struct Socket(i32);

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the same memory, of which less is promised; only initialised bytes are written to it.
        let buffer = unsafe { &mut *(std::ptr::from_mut(buffer) as *mut [MaybeUninit<u8>]) };
        receive_from(self.0, buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut vectors: Vec<libc::iovec> = pieces
            .iter()
            .map(|piece| libc::iovec {
                iov_base: piece.as_ptr().cast_mut().cast(),
                iov_len: piece.len(),
            })
            .collect();
        // SAFETY: the vectors are the pieces, which are borrowed during the call.
        unsafe { send_to(self.0, &mut vectors) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
