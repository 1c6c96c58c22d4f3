//! A file system that behaves as a disk behind a volatile cache, and can lose power (docs/powercut.md).
//!
//! - `store`: where bytes are kept; `content`: the bytes of a file, newest and durable; `versions`: those in between; `extents`: ranges of bytes; `survive`: what a cut
//!   leaves of the un-synced.
//! - `tree` and `node`: names and what they lead to, newest and durable.
//! - `disk`: all of it together: operations, syncs, power; knows nothing of FUSE.
//! - `rules`: which files are slow or fail; `hold`: the operation at which the disk stands still; `evidence`: what a cut took; `accounts`: counters and the record of writes and syncs.
//! - `filesystem`: FUSE requests on a disk; `syncs`: syncs that take time; `mount`: mounting, unmounting, cleaning up.
//! - `control`: the socket that takes commands; `cli`: the command line.

pub mod accounts;
pub mod cli;
pub mod content;
pub mod control;
pub mod disk;
pub mod evidence;
pub mod extents;
pub mod filesystem;
#[doc(hidden)]
pub mod fuzzing;
pub mod hold;
pub mod mount;
pub mod node;
pub mod rules;
pub mod store;
pub mod survive;
pub mod syncs;
pub mod tree;
pub mod versions;

use std::sync::{Mutex, MutexGuard};

/// Locks; a thread that panicked while it held the lock does not stop the others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
