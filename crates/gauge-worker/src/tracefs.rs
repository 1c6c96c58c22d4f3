//! The kernel's trace file system: where it is mounted or, on a machine on which nobody has mounted it, by a mount of our own that no path leads to and that is
//! gone when it is closed (`fsopen(2)`, Linux 5.2; CAP_SYS_ADMIN).

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use gauge_process::owned;

/// Where it may be.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const FSOPEN_CLOEXEC: c_long = 1;
const FSMOUNT_CLOEXEC: c_long = 1;
const FSCONFIG_CMD_CREATE: c_long = 6;
const MOUNT_ATTR_RDONLY: c_long = 1;

/// A directory with the trace file system, as long as this is there.
#[derive(Debug)]
pub struct TraceFs {
    path: PathBuf,
    _mount: Option<OwnedFd>,
}

impl TraceFs {
    /// # Errors
    /// It is not mounted, and this process may not do so.
    pub fn open() -> io::Result<TraceFs> {
        let mounted = MOUNTED
            .iter()
            .map(Path::new)
            .find(|path| path.join("events").is_dir());
        if let Some(path) = mounted {
            return Ok(TraceFs {
                path: path.to_owned(),
                _mount: None,
            });
        }
        let mount = detached().map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("the kernel's trace file system (tracefs) is not mounted where it may be read, and cannot be mounted: {error}"),
            )
        })?;
        Ok(TraceFs {
            path: PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())),
            _mount: Some(mount),
        })
    }

    /// Its root.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn detached() -> io::Result<OwnedFd> {
    // SAFETY: the name ends with a zero and outlives the call, which makes a descriptor.
    let context = unsafe {
        owned(libc::syscall(
            libc::SYS_fsopen,
            c"tracefs".as_ptr(),
            FSOPEN_CLOEXEC,
        ))
    }?;
    // SAFETY: the descriptor is open; this command takes neither a key nor a value.
    let made = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            c_long::from(context.as_raw_fd()),
            FSCONFIG_CMD_CREATE,
            std::ptr::null::<u8>(),
            std::ptr::null::<u8>(),
            0 as c_long,
        )
    };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open; the others are flags; the call makes a descriptor.
    unsafe {
        owned(libc::syscall(
            libc::SYS_fsmount,
            c_long::from(context.as_raw_fd()),
            FSMOUNT_CLOEXEC,
            MOUNT_ATTR_RDONLY,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_for_whoever_may_mount_it_or_it_is_said_why_not() {
        let has_one = std::fs::read_to_string("/proc/filesystems")
            .unwrap()
            .contains("tracefs");
        let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        match detached() {
            Ok(mount) => {
                let events = format!("/proc/self/fd/{}/events", mount.as_raw_fd());
                assert!(Path::new(&events).is_dir());
                assert_eq!(
                    before,
                    std::fs::read_to_string("/proc/self/mountinfo").unwrap(),
                    "nobody else sees it"
                );
            }
            Err(error) => {
                // SAFETY: a plain system call.
                let is_root = unsafe { libc::geteuid() } == 0;
                assert!(
                    !(is_root && has_one) || error.kind() == io::ErrorKind::PermissionDenied,
                    "{error}"
                );
            }
        }
    }
}
