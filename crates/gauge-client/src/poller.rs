//! Waiting for sockets and for the next due time at once, to the microsecond.
//!
//! `epoll_wait` counts in milliseconds, which is longer than a lane may oversleep, so this uses `epoll_pwait2` (Linux 5.11) and,
//! where the kernel does not have it, a timerfd inside the epoll set. A timerfd alone, set only when the time to wait for changes, would take 15 % less CPU per
//! message at 10,000 and at 50,000 msg/s (medians of five, in turn), as a processor's timer is expensive to set on a virtual machine; but a lane then wakes up 5 us
//! later, and without real-time priority its p99.9 is twice as late.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gauge_load::clock::monotonic_ns;

use crate::{Waker, world};

/// Events taken from the kernel per call.
pub(crate) const EVENTS_MAX: usize = 64;
const WAKE_TOKEN: u64 = u64::MAX;
const TIMER_TOKEN: u64 = u64::MAX - 1;

/// What to be told about a socket. Readability is always told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// When there is something to read.
    Read,
    /// Also when there is room to write.
    ReadWrite,
}

/// A socket that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token it was registered with.
    pub token: u64,
    /// There is something to read, or the other side is gone (which a read finds out).
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
}

/// An eventfd that ends a wait.
#[derive(Debug)]
pub(crate) struct WakeFd(OwnedFd);

impl WakeFd {
    pub(crate) fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the descriptor is open as long as self lives, the buffer has 8 bytes. A full counter is a wake-up already.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn drain(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the descriptor is open and non-blocking, the buffer has 8 bytes.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// What ends a wait.
#[derive(Clone, Debug)]
pub(crate) enum Wake {
    Kernel(Arc<WakeFd>),
    World(world::PollerId),
}

impl Wake {
    pub(crate) fn wake(&self) {
        match self {
            Wake::Kernel(descriptor) => descriptor.wake(),
            Wake::World(poller) => world::wake(*poller),
        }
    }
}

/// A set of sockets to wait for.
#[derive(Debug)]
pub struct Poller(Kind);

#[derive(Debug)]
enum Kind {
    Kernel(Epoll),
    /// The thread lives in a simulated world.
    World(world::PollerId),
}

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// When the process may open no more descriptors.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller(match world::poller() {
            Some(poller) => Kind::World(poller),
            None => Kind::Kernel(Epoll::new()?),
        }))
    }

    /// A handle that ends `wait`.
    pub fn waker(&self) -> Waker {
        Waker(match &self.0 {
            Kind::Kernel(epoll) => Wake::Kernel(Arc::clone(&epoll.wake)),
            Kind::World(poller) => Wake::World(*poller),
        })
    }

    /// Adds a socket. Tokens below 2^63 are the caller's.
    ///
    /// # Errors
    /// The kernel's, for instance when the socket is in the set already; unsupported in a simulated world, which knows its own sockets.
    pub fn add(&self, socket: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.epoll()?
            .control(libc::EPOLL_CTL_ADD, socket.as_raw_fd(), token, interest)
    }

    /// Changes what is told about a socket.
    ///
    /// # Errors
    /// As `add`.
    pub fn modify(&self, socket: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.epoll()?
            .control(libc::EPOLL_CTL_MOD, socket.as_raw_fd(), token, interest)
    }

    /// Removes a socket; closing it does the same.
    ///
    /// # Errors
    /// As `add`.
    pub fn remove(&self, socket: &impl AsRawFd) -> io::Result<()> {
        self.epoll()?
            .control(libc::EPOLL_CTL_DEL, socket.as_raw_fd(), 0, Interest::Read)
    }

    fn epoll(&self) -> io::Result<&Epoll> {
        match &self.0 {
            Kind::Kernel(epoll) => Ok(epoll),
            Kind::World(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The set in the simulated world; None: it is the kernel's.
    pub(crate) fn world(&self) -> Option<world::PollerId> {
        match &self.0 {
            Kind::Kernel(_) => None,
            Kind::World(poller) => Some(*poller),
        }
    }

    /// Waits until a socket is ready, the waker was used, or the monotonic clock shows `until_ns` (`i64::MAX`: however long),
    /// and replaces the contents of `ready`.
    ///
    /// # Errors
    /// None in practice; an interrupted call counts as a wake-up.
    pub fn wait(&mut self, until_ns: i64, ready: &mut Vec<Ready>) -> io::Result<()> {
        match &mut self.0 {
            Kind::Kernel(epoll) => epoll.wait(until_ns, ready),
            Kind::World(poller) => {
                ready.clear();
                world::wait(*poller, until_ns, ready)
            }
        }
    }
}

#[derive(Debug)]
struct Epoll {
    epoll: OwnedFd,
    wake: Arc<WakeFd>,
    timer: Option<OwnedFd>,
}

static HAS_PWAIT2: AtomicBool = AtomicBool::new(true);

fn owned(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

impl Epoll {
    fn new() -> io::Result<Epoll> {
        // SAFETY: plain system calls that take no pointers.
        let (epoll, wake) = unsafe {
            (
                owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?,
            )
        };
        let poller = Epoll {
            epoll,
            wake: Arc::new(WakeFd(wake)),
            timer: None,
        };
        poller.control(
            libc::EPOLL_CTL_ADD,
            poller.wake.0.as_raw_fd(),
            WAKE_TOKEN,
            Interest::Read,
        )?;
        Ok(poller)
    }

    fn control(&self, operation: i32, socket: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        let write = if interest == Interest::ReadWrite {
            libc::EPOLLOUT
        } else {
            0
        };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLRDHUP | write).cast_unsigned(),
            u64: token,
        };
        // SAFETY: the event outlives the call; a wrong descriptor is an error, not undefined.
        let status = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, socket, &mut event) };
        if status < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    fn wait(&mut self, until_ns: i64, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        let count = self.wait_raw(until_ns, &mut events)?;
        for event in &events[..count] {
            let (token, flags) = (event.u64, event.events);
            match token {
                WAKE_TOKEN => self.wake.drain(),
                TIMER_TOKEN => {}
                _ => {
                    let has = |flag: i32| flags & flag.cast_unsigned() != 0;
                    ready.push(Ready {
                        token,
                        readable: has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
                        writable: has(libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR),
                    });
                }
            }
        }
        Ok(())
    }

    fn wait_raw(&mut self, until_ns: i64, events: &mut [libc::epoll_event]) -> io::Result<usize> {
        let room = i32::try_from(events.len()).unwrap_or(i32::MAX);
        let left_ns = if until_ns == i64::MAX {
            None
        } else {
            Some((until_ns - monotonic_ns()).max(0))
        };
        if HAS_PWAIT2.load(Ordering::Relaxed) {
            let timeout = left_ns.map(|ns| libc::timespec {
                tv_sec: ns / 1_000_000_000,
                tv_nsec: ns % 1_000_000_000,
            });
            let pointer = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: `events` has `room` entries, the timeout outlives the call, no signal mask is given. The system call is made
            // directly, since an older C library does not know it.
            let count = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    self.epoll.as_raw_fd(),
                    events.as_mut_ptr(),
                    room,
                    pointer,
                    std::ptr::null::<libc::sigset_t>(),
                    8usize,
                )
            };
            match Self::counted(count) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                    HAS_PWAIT2.store(false, Ordering::Relaxed)
                }
                result => return result,
            }
        }
        let timeout_ms = match left_ns {
            None => -1,
            Some(0) => 0,
            Some(_) => {
                self.arm_timer(until_ns)?;
                -1
            }
        };
        // SAFETY: `events` has `room` entries.
        let count =
            unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), room, timeout_ms) };
        Self::counted(i64::from(count))
    }

    fn counted(count: i64) -> io::Result<usize> {
        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
                error => Err(error),
            },
        }
    }

    fn arm_timer(&mut self, until_ns: i64) -> io::Result<()> {
        if self.timer.is_none() {
            // SAFETY: a plain system call that takes no pointers.
            let timer = owned(unsafe {
                libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK)
            })?;
            self.control(
                libc::EPOLL_CTL_ADD,
                timer.as_raw_fd(),
                TIMER_TOKEN,
                Interest::Read,
            )?;
            self.timer = Some(timer);
        }
        let Some(timer) = &self.timer else { return Ok(()) };
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let at = libc::timespec {
            tv_sec: until_ns / 1_000_000_000,
            tv_nsec: until_ns % 1_000_000_000,
        };
        let setting = libc::itimerspec {
            it_interval: zero,
            it_value: at,
        };
        // SAFETY: the setting outlives the call. Setting a timer anew also clears an expiry that nobody has read.
        let status = unsafe {
            libc::timerfd_settime(
                timer.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &setting,
                std::ptr::null_mut(),
            )
        };
        if status < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn a_wait_ends_when_it_shall_whatever_was_waited_for_before() {
        let mut poller = Poller::new().unwrap();
        let mut ready = Vec::new();
        let waits = |poller: &mut Poller, ready: &mut Vec<Ready>, until_ns: i64| {
            // A wait may end early; it is what comes of all that counts.
            while monotonic_ns() < until_ns {
                poller.wait(until_ns, ready).unwrap();
                assert!(ready.is_empty());
            }
        };
        for turn in 0..50 {
            let now_ns = monotonic_ns();
            // Set for later, never waited for, then for earlier, twice for the same time, and for what is over.
            poller.wait(now_ns - MS, &mut ready).unwrap();
            poller.waker().wake();
            poller.wait(now_ns + 20 * MS, &mut ready).unwrap();
            waits(&mut poller, &mut ready, now_ns + MS);
            waits(&mut poller, &mut ready, now_ns + MS);
            waits(&mut poller, &mut ready, now_ns + MS + turn * 10_000);
        }
    }

    #[test]
    fn waiting_for_ever_ends_with_the_waker() {
        let mut poller = Poller::new().unwrap();
        let mut ready = Vec::new();
        let waker = poller.waker();
        let woken = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            waker.wake();
        });
        let began_ns = monotonic_ns();
        poller.waker().wake();
        poller.wait(began_ns + MS, &mut ready).unwrap();
        let mut waits = 0;
        while monotonic_ns() - began_ns < 15 * MS {
            poller.wait(i64::MAX, &mut ready).unwrap();
            waits += 1;
        }
        assert!(
            waits <= 3,
            "what was waited for before ends no more than one: {waits}"
        );
        woken.join().unwrap();
    }
}
