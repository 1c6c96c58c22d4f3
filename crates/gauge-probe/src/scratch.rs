//! The file that a disk probe writes, and the promise that it is gone afterwards.
//!
//! It is removed when it is dropped (success, error, panic) and by a signal handler (Ctrl-C, SIGTERM, SIGHUP). The large file of the bandwidth
//! measurement has no name at all once it is open, so that not even SIGKILL leaves it behind. The file of the durable appends keeps its name,
//! because some file systems (btrfs) skip the work of fsync for a file without one; it is small.

use std::ffi::{CString, c_char, c_int};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The path that the signal handler removes. Whoever swaps a pointer out of it owns the string behind it.
static PATH_TO_REMOVE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
/// One scratch file at a time: two probes of one process would measure each other, and the handler knows one path.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// A file of its own in a directory, read and write, removed on drop.
pub struct ScratchFile {
    file: File,
    path: Option<PathBuf>,
    direct: bool,
    _only: MutexGuard<'static, ()>,
}

impl ScratchFile {
    /// A file that keeps its name until it is dropped.
    pub fn named(directory: &Path) -> io::Result<Self> {
        let only = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let path = unused_path(directory);
        remember(&path)?;
        match open_new(&path, 0) {
            Ok(file) => Ok(ScratchFile {
                file,
                path: Some(path),
                direct: false,
                _only: only,
            }),
            Err(error) => {
                forget();
                Err(error)
            }
        }
    }

    /// A file whose name is gone as soon as it is open, opened with O_DIRECT where the file system takes it.
    pub fn nameless_direct(directory: &Path) -> io::Result<Self> {
        let only = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let path = unused_path(directory);
        remember(&path)?;
        let opened = match open_new(&path, libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                // Linux creates the file first and refuses the flag second, so the name may be taken by now.
                let _ = std::fs::remove_file(&path);
                open_new(&path, 0).map(|file| (file, false))
            }
            other => other.map(|file| (file, true)),
        };
        let removed = match &opened {
            Ok(_) => std::fs::remove_file(&path),
            Err(_) => Ok(()),
        };
        forget();
        removed?;
        opened.map(|(file, direct)| ScratchFile {
            file,
            path: None,
            direct,
            _only: only,
        })
    }

    /// Whether reads and writes go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Goes back to the page cache, for file systems that take O_DIRECT when a file is opened and refuse the first write.
    pub fn give_up_direct(&mut self) -> io::Result<()> {
        let descriptor = self.file.as_raw_fd();
        // SAFETY: the descriptor is open as long as `self.file` lives; F_GETFL takes no further argument.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        if flags < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above; F_SETFL takes the flags as an integer.
        if unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags & !libc::O_DIRECT) } < 0 {
            return Err(io::Error::last_os_error());
        }
        self.direct = false;
        Ok(())
    }

    /// Gives the space back now and waits until the file system has done so, because giving back gigabytes (and telling the device, where
    /// `discard` is on) would otherwise disturb whatever is measured next.
    pub fn release_space(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.sync_all()
    }
}

impl Deref for ScratchFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // A file that someone else has removed already is what we want; nothing better can be done about other errors here.
            let _ = std::fs::remove_file(path);
            forget();
        }
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP remove the scratch file before they end the process as they always do.
pub fn remove_on_signals() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: sigaction is a plain C struct for which all-zero bytes are valid (no flags, an empty mask).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `previous` is valid for writing, and a null new action only asks for the present one.
        if unsafe { libc::sigaction(signal, ptr::null(), &mut previous) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // A signal that the parent chose to ignore (nohup, a shell's background job) stays ignored.
        if previous.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        action.sa_sigaction = remove_and_die as *const () as libc::sighandler_t;
        // SAFETY: `action` is complete, and its handler only makes calls that signal-safety(7) allows.
        if unsafe { libc::sigaction(signal, &action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The handler: unlink, write, signal and raise are all async-signal-safe, and atomics without a lock are too.
extern "C" fn remove_and_die(signal: c_int) {
    const MESSAGE: &[u8] = b"gauge probe: stopped by a signal; nothing is left on the disk\n";
    // The string stays allocated: freeing memory is not allowed here, and the process ends.
    let path = PATH_TO_REMOVE.swap(ptr::null_mut(), Ordering::SeqCst);
    // SAFETY: `path` is null or a C string that only its new owner, this handler, could free. The message is valid for its length. Restoring
    // the default action and raising the signal again ends the process when the handler returns.
    unsafe {
        if !path.is_null() {
            libc::unlink(path);
        }
        libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

fn unused_path(directory: &Path) -> PathBuf {
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    directory.join(format!(".gauge-probe-{}-{number}.tmp", std::process::id()))
}

fn open_new(path: &Path, flags: c_int) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
}

/// Tells the handler about a path *before* the file exists, so that there is no instant at which a signal would leave it behind.
fn remember(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let previous = PATH_TO_REMOVE.swap(path.into_raw(), Ordering::SeqCst);
    assert!(previous.is_null(), "one scratch file at a time");
    Ok(())
}

fn forget() {
    let path = PATH_TO_REMOVE.swap(ptr::null_mut(), Ordering::SeqCst);
    if !path.is_null() {
        // SAFETY: every non-null pointer in PATH_TO_REMOVE came from CString::into_raw, and the swap made us its only owner.
        drop(unsafe { CString::from_raw(path) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("gauge-probe-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn entries(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn a_named_file_goes_with_its_owner_and_on_a_panic() {
        let directory = directory("named");
        let file = ScratchFile::named(&directory).unwrap();
        assert_eq!(entries(&directory), 1);
        drop(file);
        assert_eq!(entries(&directory), 0);

        let inside = directory.clone();
        let panicked = std::thread::spawn(move || {
            let _file = ScratchFile::named(&inside).unwrap();
            panic!("a failure while the file is open");
        });
        assert!(panicked.join().is_err());
        assert_eq!(entries(&directory), 0);
        std::fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn a_nameless_file_can_be_written_and_is_not_in_the_directory() {
        let directory = directory("nameless");
        let mut file = ScratchFile::nameless_direct(&directory).unwrap();
        assert_eq!(entries(&directory), 0);
        file.give_up_direct().unwrap();
        assert!(!file.is_direct());
        file.write_all_at(b"unaligned", 3).unwrap();
        file.release_space().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        drop(file);
        std::fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn a_missing_directory_is_an_error_and_the_next_file_still_works() {
        let directory = directory("missing");
        assert!(ScratchFile::named(&directory.join("absent")).is_err());
        assert!(ScratchFile::nameless_direct(&directory.join("absent")).is_err());
        drop(ScratchFile::named(&directory).unwrap());
        std::fs::remove_dir(&directory).unwrap();
    }
}
