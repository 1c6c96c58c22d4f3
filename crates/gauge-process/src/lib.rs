//! Signals and the parent: how a command that runs long ends when nobody tells it to.
//!
//! The parent is watched through a pidfd, not through `PR_SET_PDEATHSIG`: that one fires when the parent's *thread* ends which
//! started the command, while its process may go on.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// How long stopping may take before the process ends anyhow.
const PATIENCE: Duration = Duration::from_secs(3);
/// Exit status less the signal's number, as shells have it.
const SIGNAL_STATUS: i32 = 128;

/// What a system call has answered that makes a descriptor.
///
/// # Safety
/// Nobody else has the descriptor.
///
/// # Errors
/// The kernel's, where the call has made none.
pub unsafe fn owned(answer: i64) -> io::Result<OwnedFd> {
    match i32::try_from(answer) {
        // SAFETY: the caller's promise.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Blocks SIGTERM and SIGINT for this thread and those it will start, and returns a descriptor that reads them.
///
/// # Errors
/// The kernel's, when the process may open no more descriptors.
pub fn take_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset and outlives the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        owned(i64::from(libc::signalfd(-1, &set, libc::SFD_CLOEXEC)))
    }
}

/// A descriptor that becomes readable when the process ends.
///
/// # Errors
/// When there is no such process, or the kernel is older than 5.3.
pub fn watch_process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: a system call that takes no pointers and makes a descriptor.
    unsafe { owned(libc::syscall(libc::SYS_pidfd_open, pid, 0)) }
}

/// As [`watch_process`], of the process that `--parent-pid` names, if it names one. The error is a sentence.
///
/// # Errors
/// When the process cannot be watched.
pub fn watch_parent(pid: Option<u32>) -> Result<Option<OwnedFd>, String> {
    pid.map(|pid| {
        watch_process(pid)
            .map_err(|error| format!("--parent-pid {pid}: the process cannot be watched: {error}"))
    })
    .transpose()
}

/// Waits in a thread of its own for a signal or the parent's end; then runs `stop`, for a few seconds at most, and ends the process.
/// `command` is the subcommand of `gauge` that a message names.
///
/// # Errors
/// When no thread could be started.
pub fn end_on(
    command: &'static str,
    signals: OwnedFd,
    parent: Option<OwnedFd>,
    stop: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let status = wait_for_end(command, &signals, parent.as_ref());
            let bounded = std::thread::Builder::new().spawn(move || {
                std::thread::sleep(PATIENCE);
                std::process::exit(status);
            });
            if bounded.is_ok() {
                stop();
            }
            std::process::exit(status);
        })
        .map(drop)
}

/// The exit status that goes with what happened.
fn wait_for_end(command: &str, signals: &OwnedFd, parent: Option<&OwnedFd>) -> i32 {
    let watched = |descriptor: i32| libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    // poll skips negative descriptors.
    let mut descriptors = [
        watched(signals.as_raw_fd()),
        watched(parent.map_or(-1, AsRawFd::as_raw_fd)),
    ];
    loop {
        // SAFETY: the array has two entries and outlives the call.
        let ready = unsafe { libc::poll(descriptors.as_mut_ptr(), 2, -1) };
        if ready > 0 {
            break;
        }
    }
    if descriptors[0].revents == 0 {
        eprintln!("gauge {command}: the parent process has ended, so this one ends too");
        return SIGNAL_STATUS + libc::SIGTERM;
    }
    // SAFETY: the structure is plain data, and the read writes no more than its size.
    let signal = unsafe {
        let mut information: libc::signalfd_siginfo = std::mem::zeroed();
        let bytes = size_of::<libc::signalfd_siginfo>();
        libc::read(
            signals.as_raw_fd(),
            std::ptr::from_mut(&mut information).cast(),
            bytes,
        );
        information.ssi_signo
    };
    SIGNAL_STATUS + i32::try_from(signal).unwrap_or(libc::SIGTERM)
}
