//! Mounting, unmounting, and cleaning up what a killed process left.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fuser::{Config, MountOption, Session, SessionACL};

use crate::filesystem::PowercutFs;

/// What `/proc/self/mountinfo` has as the source of our mounts.
const SOURCE: &str = "gauge-powercut";

/// What is at a mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No mount.
    Nothing,
    /// One of ours whose process is gone.
    Stale,
    /// One of ours that answers.
    Living,
    /// Something else.
    Foreign,
}

/// Undoes the octal escapes of `/proc/self/mountinfo` (proc(5)).
fn unescape(field: &str) -> Vec<u8> {
    let bytes = field.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut position = 0;
    while position < bytes.len() {
        let octal = (bytes[position] == b'\\')
            .then(|| field.get(position + 1..position + 4))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(octal.unwrap_or(bytes[position]));
        position += if octal.is_some() { 4 } else { 1 };
    }
    plain
}

/// Type and source of the topmost mount at `directory` in a `mountinfo` text.
fn mounted<'a>(mountinfo: &'a str, directory: &Path) -> Option<(&'a str, &'a str)> {
    let mut found = None;
    for line in mountinfo.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let at = before.split(' ').nth(4).map(unescape);
        if at.as_deref() == Some(directory.as_os_str().as_bytes()) {
            let mut after = after.split(' ');
            found = after.next().zip(after.next());
        }
    }
    found
}

/// The absolute path of a directory, without touching it: a stale mount answers no `stat`.
///
/// # Errors
/// When its parent does not exist.
pub fn absolute(directory: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(directory)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(path),
    }
}

/// What is mounted at `directory`.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn find(directory: &Path) -> io::Result<Found> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(match mounted(&mountinfo, directory) {
        None => Found::Nothing,
        // mount(2) has the type fuse, fusermount3 fuse.SUBTYPE.
        Some((kind, SOURCE)) if kind.starts_with("fuse") => match fs::metadata(directory) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Found::Stale,
            _ => Found::Living,
        },
        Some(_) => Found::Foreign,
    })
}

/// Unmounts; processes that still have files open see errors.
///
/// # Errors
/// Those of `umount2`, or what `fusermount3` said.
pub fn unmount(directory: &Path) -> io::Result<()> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string that outlives the call.
    if unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EPERM) {
        return Err(error);
    }
    let output = Command::new("fusermount3")
        .args(["-u", "-z", "--"])
        .arg(directory)
        .output()
        .map_err(|_| io::Error::new(io::ErrorKind::PermissionDenied, "it needs root or fusermount3"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(said))
}

/// Why nothing can be mounted here, if so: a sentence that says what is missing.
pub fn obstacle() -> Option<String> {
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        let advice = match error.raw_os_error() {
            Some(libc::ENOENT) => {
                "load the kernel's module (modprobe fuse), or give the container the device (--device /dev/fuse)"
            }
            Some(libc::ENODEV | libc::ENXIO) => "the kernel has no FUSE; load its module (modprobe fuse)",
            _ => "this user needs permission to read and write it",
        };
        return Some(format!("FUSE is not available: /dev/fuse: {error}; {advice}"));
    }
    // SAFETY: a system call without arguments.
    let root = unsafe { libc::geteuid() } == 0;
    let helper = || {
        ["fusermount3", "fusermount"].iter().any(|name| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
        })
    };
    if root || helper() {
        return None;
    }
    Some(
        "mounting needs root or the program fusermount3, and neither is there; install the package fuse3, or run as root"
            .to_owned(),
    )
}

/// Mounts `filesystem` at `directory`, served by `threads` threads once the session runs.
///
/// # Errors
/// Those of mount(2), or what `fusermount3` said.
pub fn mount(filesystem: PowercutFs, directory: &Path, threads: usize) -> io::Result<Session<PowercutFs>> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(SOURCE.to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
        MountOption::NoSuid,
        MountOption::NoDev,
    ];
    // SAFETY: a system call without arguments.
    let root = unsafe { libc::geteuid() } == 0;
    config.acl = if root { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(threads);
    config.clone_fd = true;
    Session::new(filesystem, directory, &config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_counts_and_blanks_are_escaped() {
        let text = "21 1 8:1 / /a\\040b rw - ext4 /dev/sda rw\n22 21 0:5 / /a\\040b rw shared:1 - fuse gauge-powercut rw\n";
        assert_eq!(mounted(text, Path::new("/a b")), Some(("fuse", SOURCE)));
        assert_eq!(mounted(text, Path::new("/a")), None);
    }
}
