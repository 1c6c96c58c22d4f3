//! What a name leads to: a file, a directory, a symbolic link, or a special file.

use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use crate::content::Content;
use crate::evidence::Deeds;
use crate::lock;
use crate::rules::Label;

/// What kind of thing a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link to this.
    Symlink(OsString),
    /// A named pipe, socket or device: its type as in `st_mode`, and the device.
    Special(u32, u32),
}

/// What `chmod`, `chown` and `utimens` set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, with set-user-id, set-group-id and sticky bit.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access; reads do not change it.
    pub atime: SystemTime,
    /// Last change of the content.
    pub mtime: SystemTime,
    /// Last change of anything.
    pub ctime: SystemTime,
}

impl Attributes {
    /// Those of something that is made now.
    pub fn new(mode: u32, uid: u32, gid: u32) -> Attributes {
        let now = SystemTime::now();
        Attributes {
            mode: mode & 0o7777,
            uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
        }
    }
}

/// The part of a node that changes.
#[derive(Debug)]
pub struct State {
    /// Newest attributes.
    pub attributes: Attributes,
    /// Durable attributes, when they differ.
    pub durable_attributes: Option<Attributes>,
    /// The bytes of a regular file.
    pub content: Option<Content>,
    /// Open descriptions.
    pub opens: u32,
    /// What the rules say of it.
    pub label: Label,
    /// When something was last done to it.
    pub deeds: Deeds,
    /// Registered as having something to lose.
    pub unsynced: bool,
    /// Registered as having metadata that the journal has not committed: number of the newest change.
    pub uncommitted: Option<u64>,
    /// Its data goes to the disk before the journal's next commit (ext4's `auto_da_alloc`).
    pub flush_with_commit: bool,
    /// It was truncated to nothing and not closed since.
    pub emptied: bool,
}

impl State {
    /// Changes attributes, keeping the durable ones for a cut.
    pub fn change_attributes(&mut self, change: impl FnOnce(&mut Attributes)) {
        let before = self.attributes;
        change(&mut self.attributes);
        self.durable_attributes.get_or_insert(before);
    }

    /// Notes that the content was changed now.
    pub fn modified(&mut self) {
        let now = SystemTime::now();
        self.change_attributes(|attributes| {
            attributes.mtime = now;
            attributes.ctime = now;
        });
    }
}

/// A file, directory, symbolic link or special file.
#[derive(Debug)]
pub struct Node {
    /// Never changes and is never used again.
    pub id: u64,
    /// What it is.
    pub kind: Kind,
    number: AtomicU64,
    state: Mutex<State>,
}

impl Node {
    /// A node with inode number `number`.
    pub fn new(id: u64, number: u64, kind: Kind, attributes: Attributes, content: Option<Content>) -> Node {
        Node {
            id,
            kind,
            number: AtomicU64::new(number),
            state: Mutex::new(State {
                attributes,
                durable_attributes: None,
                content,
                opens: 0,
                label: Label::default(),
                deeds: Deeds::default(),
                unsynced: false,
                uncommitted: None,
                flush_with_commit: false,
                emptied: false,
            }),
        }
    }

    /// Its inode number, which changes with a power cut, so that the kernel's caches cannot outlive it.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Gives it another inode number.
    pub fn renumber(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// Its state, locked.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
