//! Why a probe could not be made, and whose turn it is to do something about it.

use std::fmt;
use std::io;

/// A probe that could not be made.
#[derive(Debug)]
pub enum ProbeError {
    /// What was asked for cannot be done: a directory that is missing, not writable or full. Exit status 2.
    Input(String),
    /// The machine failed while it was measured: a disk that returns errors, a network that refuses. Exit status 3.
    Machine(String),
}

impl ProbeError {
    /// The exit status of a command that ends with this error.
    pub fn exit_status(&self) -> u8 {
        match self {
            ProbeError::Input(_) => 2,
            ProbeError::Machine(_) => 3,
        }
    }

    /// Sorts an error of the file system by who can act on it: space, quota and permission are the user's choice of a directory, and
    /// anything else is a disk that fails. `doing` completes the sentence "the probe could not ...".
    pub fn from_disk(doing: &str, error: &io::Error) -> Self {
        let advice = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                "there is not enough room; free some or name another directory with --dir"
            }
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
                "it is not writable; change its permissions or name another directory with --dir"
            }
            Some(libc::ENOENT | libc::ENOTDIR) => "name a directory that exists with --dir",
            Some(libc::ELOOP | libc::ENAMETOOLONG | libc::EMFILE | libc::ENFILE) => {
                "name another directory with --dir"
            }
            _ => {
                return ProbeError::Machine(format!(
                    "the probe could not {doing}: {error}; the disk or its file system is failing (the kernel's log, `dmesg`, says more)"
                ));
            }
        };
        ProbeError::Input(format!("the probe could not {doing}: {error}; {advice}"))
    }

    /// An error of the machine that is not the disk's. `doing` completes the sentence "the probe could not ...".
    pub fn from_machine(doing: &str, error: &io::Error) -> Self {
        ProbeError::Machine(format!("the probe could not {doing}: {error}"))
    }
}

impl fmt::Display for ProbeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeError::Input(message) | ProbeError::Machine(message) => formatter.write_str(message),
        }
    }
}

impl std::error::Error for ProbeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_or_forbidden_directory_is_the_users_to_change_and_a_broken_disk_is_not() {
        for (errno, expected) in [
            (libc::ENOSPC, 2),
            (libc::EDQUOT, 2),
            (libc::EACCES, 2),
            (libc::EROFS, 2),
            (libc::ENOENT, 2),
            (libc::EIO, 3),
            (libc::ENXIO, 3),
            (libc::EUCLEAN, 3),
        ] {
            let error = ProbeError::from_disk("write to /disk", &io::Error::from_raw_os_error(errno));
            assert_eq!(error.exit_status(), expected, "{error}");
            assert!(error.to_string().contains("write to /disk"), "{error}");
        }
    }
}
