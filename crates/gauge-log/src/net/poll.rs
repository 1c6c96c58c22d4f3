//! A thin layer over epoll.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// An epoll set.
#[derive(Debug)]
pub struct Poll(OwnedFd);

/// Something happened to a descriptor.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    /// The token it was added with.
    pub token: u64,
    /// It may have something to read (or has ended).
    pub readable: bool,
    /// It may take something.
    pub writable: bool,
    /// The other side will send nothing more.
    pub ended: bool,
    /// Both directions are closed, or the connection failed.
    pub broken: bool,
}

impl Poll {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a plain system call; the descriptor is checked and owned below.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    fn add_with(&self, descriptor: i32, token: u64, flags: i32) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: flags as u32,
            u64: token,
        };
        // SAFETY: the event lives during the call.
        let failed =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &mut event) };
        if failed != 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Reports reading as long as there is something to read.
    pub fn add_reader(&self, descriptor: i32, token: u64) -> io::Result<()> {
        self.add_with(descriptor, token, libc::EPOLLIN)
    }

    /// Reports each change of a connection once (edge-triggered), so that no system call is needed to pause and resume it.
    pub fn add_connection(&self, descriptor: i32, token: u64) -> io::Result<()> {
        self.add_with(
            descriptor,
            token,
            libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET,
        )
    }

    /// Waits for at most `timeout` (forever for None) and fills `ready`.
    pub fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 256];
        // Rounded up: waking before a deadline would only mean to wait again.
        let timeout_ms = timeout.map_or(-1, |timeout| {
            timeout.as_micros().div_ceil(1000).min(60_000) as i32
        });
        // SAFETY: the events live during the call, and the call is told how many there are.
        let count = unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as i32,
                timeout_ms,
            )
        };
        ready.clear();
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(())
            } else {
                Err(error)
            };
        }
        ready.extend(events[..count as usize].iter().map(|event| {
            let flags = event.events as i32;
            Ready {
                token: event.u64,
                readable: flags & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) != 0,
                ended: flags & libc::EPOLLRDHUP != 0,
                writable: flags & libc::EPOLLOUT != 0,
                broken: flags & (libc::EPOLLHUP | libc::EPOLLERR) != 0,
            }
        }));
        Ok(())
    }
}
