//! Operations on the content of files, and syncs.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::{Disk, Metadata, Outcome, errno};
use crate::accounts::Deed;
use crate::content::{Content, Snapshot};
use crate::lock;
use crate::node::{Kind, Node, State};
use crate::tree::Names;

use super::names::Attr;

/// A snapshot of a directory's entries, for a reader that goes through it.
pub type Listing = Option<Vec<(OsString, u64, Kind)>>;

/// An open file or directory.
#[derive(Debug)]
pub struct Handle {
    /// What is open.
    pub node: Arc<Node>,
    /// The entries, once a directory is read.
    pub listing: Mutex<Listing>,
}

/// Attributes to change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SystemTime>,
    /// Last change.
    pub mtime: Option<SystemTime>,
}

/// A sync that is under way.
#[derive(Debug)]
pub struct Pending {
    node: Arc<Node>,
    data_only: bool,
    start_ns: i64,
    cuts: u64,
    /// The newest change when it began.
    order: u64,
    snapshot: Option<Snapshot>,
    names: Mutex<Option<Names>>,
    /// How much longer it takes.
    pub delay: Duration,
}

fn content(state: &mut State) -> Outcome<&mut Content> {
    state.content.as_mut().ok_or(libc::EINVAL)
}

impl Disk {
    /// Opens a node.
    ///
    /// # Errors
    /// `ESTALE`, `EIO` without power.
    pub fn open(&self, number: u64) -> Outcome<u64> {
        let _power = self.powered()?;
        let node = self.node(&lock(&self.tree), number)?;
        node.state().opens += 1;
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let opened = Arc::new(Handle {
            node,
            listing: Mutex::new(None),
        });
        self.handles
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .insert(handle, opened);
        Ok(handle)
    }

    /// What is open as `handle`.
    ///
    /// # Errors
    /// `EIO` for one from before a cut.
    pub fn handle(&self, handle: u64) -> Outcome<Arc<Handle>> {
        let handles = self
            .handles
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        handles.get(&handle).cloned().ok_or(libc::EIO)
    }

    /// Closes a handle, with or without power.
    pub fn close(&self, handle: u64) {
        let closed = self
            .handles
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .remove(&handle);
        let Some(closed) = closed else { return };
        let mut state = closed.node.state();
        state.opens = state.opens.saturating_sub(1);
        if state.opens > 0 {
            return;
        }
        if let Some(content) = &mut state.content {
            content.close();
        }
        if std::mem::take(&mut state.emptied) && self.metadata() == Metadata::Ext4 {
            state.flush_with_commit = true;
            self.mark_uncommitted(&closed.node, &mut state);
        }
    }

    /// Reads up to the end of the buffer or of the file.
    ///
    /// # Errors
    /// `EIO` without power or for a handle from before a cut; those of the disk below.
    pub fn read(&self, handle: u64, buffer: &mut [u8], offset: u64) -> Outcome<usize> {
        let _power = self.powered()?;
        let handle = self.handle(handle)?;
        let mut state = handle.node.state();
        content(&mut state)?
            .read(buffer, offset)
            .map_err(|error| errno(&error))
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// `EIO` without power or for a handle from before a cut, `ENOSPC`, what a rule says, those of the disk below.
    pub fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Outcome<()> {
        let start_ns = Self::now();
        let _power = self.powered()?;
        let handle = self.handle(handle)?;
        let node = &handle.node;
        let (label, written) = {
            let mut state = node.state();
            let written = self.write_to(node, &mut state, offset, data);
            if written.is_ok() {
                state.deeds.written_ns = Some(Self::now());
            }
            (state.label, written)
        };
        self.enter_as(
            label.class,
            node.id,
            Deed::Write,
            start_ns,
            (offset, data.len() as u64),
            written,
        );
        if label.is_watched && written.is_ok() {
            self.hold.count(Deed::Write);
        }
        written
    }

    fn write_to(&self, node: &Arc<Node>, state: &mut State, offset: u64, data: &[u8]) -> Outcome<()> {
        if let Some(error) = state.label.write_error {
            return Err(error);
        }
        let end = offset.checked_add(data.len() as u64).ok_or(libc::EFBIG)?;
        let bytes = content(state)?;
        let before = bytes.size();
        self.check_space(before, end)?;
        let written = bytes.write(offset, data).map_err(|error| errno(&error));
        self.grown(before, bytes.size());
        state.modified();
        self.mark_unsynced(node, state);
        written
    }

    /// `fallocate` with the modes of [`Content::allocate`].
    ///
    /// # Errors
    /// As [`Disk::write`], and `EOPNOTSUPP`.
    pub fn allocate(&self, handle: u64, mode: i32, offset: u64, length: u64) -> Outcome<()> {
        let _power = self.powered()?;
        let handle = self.handle(handle)?;
        let mut state = handle.node.state();
        if let Some(error) = state.label.write_error {
            return Err(error);
        }
        let bytes = content(&mut state)?;
        let before = bytes.size();
        // Blocks set aside beyond the end take room as well.
        self.check_space(before, offset.checked_add(length).ok_or(libc::EFBIG)?)?;
        let allocated = bytes
            .allocate(mode, offset, length)
            .map_err(|error| errno(&error));
        self.grown(before, bytes.size());
        state.modified();
        self.mark_uncommitted(&handle.node, &mut state);
        allocated
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As [`Disk::write`] when the size changes; `ESTALE`, `EIO` without power.
    pub fn change(&self, number: u64, change: Change) -> Outcome<Attr> {
        let start_ns = Self::now();
        let _power = self.powered()?;
        let node = self.node(&lock(&self.tree), number)?;
        if let Some(size) = change.size {
            let truncated = self.truncate(&node, size);
            self.enter(&node, Deed::Truncate, start_ns, (size, 0), truncated);
            truncated?;
        }
        let mut state = node.state();
        let now = SystemTime::now();
        state.change_attributes(|attributes| {
            attributes.mode = change.mode.map_or(attributes.mode, |mode| mode & 0o7777);
            attributes.uid = change.uid.unwrap_or(attributes.uid);
            attributes.gid = change.gid.unwrap_or(attributes.gid);
            attributes.atime = change.atime.unwrap_or(attributes.atime);
            attributes.mtime = change.mtime.unwrap_or(attributes.mtime);
            attributes.ctime = now;
        });
        self.mark_uncommitted(&node, &mut state);
        drop(state);
        self.describe(&lock(&self.tree), number)
    }

    fn truncate(&self, node: &Arc<Node>, size: u64) -> Outcome<()> {
        let mut state = node.state();
        if let Some(error) = state.label.write_error {
            return Err(error);
        }
        state.emptied |= size == 0;
        let bytes = content(&mut state)?;
        let before = bytes.size();
        self.check_space(before, size)?;
        let truncated = bytes.truncate(size).map_err(|error| errno(&error));
        self.grown(before, bytes.size());
        state.modified();
        self.mark_uncommitted(node, &mut state);
        truncated
    }

    /// Overwrites durable bytes of a file: a disk that loses or changes what it had promised to keep.
    ///
    /// # Errors
    /// `ESTALE`, `EIO` without power, `EINVAL` for what is no file; those of the disk below.
    pub fn corrupt(&self, number: u64, offset: u64, data: &[u8]) -> Outcome<()> {
        let _power = self.powered()?;
        let node = self.node(&lock(&self.tree), number)?;
        let mut state = node.state();
        content(&mut state)?
            .corrupt(offset, data)
            .map_err(|error| errno(&error))
    }

    /// Begins a sync of what is open as `handle`; [`Disk::finish_sync`] ends it after its delay. What is there now is what it will make durable.
    ///
    /// # Errors
    /// `EIO` without power or for a handle from before a cut.
    pub fn begin_sync(&self, handle: u64, data_only: bool) -> Outcome<Pending> {
        let start_ns = Self::now();
        let power = self.powered()?;
        let handle = self.handle(handle)?;
        let node = &handle.node;
        let mut tree = lock(&self.tree);
        let mut state = node.state();
        let is_directory = node.kind == Kind::Directory;
        let resized = state.content.as_ref().is_some_and(Content::resized);
        let names = match self.metadata() {
            Metadata::Strict => is_directory.then(|| tree.snapshot(Some(node.number()))),
            Metadata::Ordered | Metadata::Ext4 => {
                let commits = is_directory || !data_only || resized || state.uncommitted.is_some();
                commits.then(|| tree.snapshot(None))
            }
        };
        let pending = Pending {
            data_only,
            start_ns,
            cuts: power.cuts,
            order: self.clock.load(Ordering::Relaxed),
            snapshot: state.content.as_mut().map(Content::snapshot),
            names: Mutex::new(names),
            delay: state.label.sync_delay,
            node: Arc::clone(node),
        };
        if state.label.is_watched {
            self.hold.count(if is_directory {
                Deed::SyncDirectory
            } else {
                Deed::Sync
            });
        }
        Ok(pending)
    }

    /// Whether nothing about a sync takes time.
    pub fn is_instant(&self, sync: &Pending) -> bool {
        sync.delay.is_zero() && !self.settings.sync_through
    }

    /// Syncs the file below, when that was asked for. Does not hold up others.
    ///
    /// # Errors
    /// Those of the disk below.
    pub fn sync_below(&self, sync: &Pending) -> Outcome<()> {
        if !self.settings.sync_through || sync.node.kind != Kind::File {
            return Ok(());
        }
        let file = content(&mut sync.node.state())?.backing_copy();
        file.and_then(|file| file.sync_data())
            .map_err(|error| errno(&error))
    }

    /// Ends a sync: from now on the data is durable that was there when it began.
    ///
    /// # Errors
    /// `EIO` when the power was cut meanwhile; what a rule says; those of the disk below.
    pub fn finish_sync(&self, sync: &Pending) -> Outcome<()> {
        let power = self.powered();
        let done = match &power {
            Ok(power) if power.cuts == sync.cuts => self.sync_node(sync),
            _ => Err(libc::EIO),
        };
        if done.is_err() {
            self.abandon(sync);
        }
        let class = {
            let mut state = sync.node.state();
            match done {
                Ok(_) => state.deeds.synced_ns = Some(Self::now()),
                Err(_) => state.deeds.sync_failed_ns = Some(Self::now()),
            }
            state.label.class
        };
        let deed = if sync.node.kind == Kind::Directory {
            Deed::SyncDirectory
        } else {
            Deed::Sync
        };
        let length = done.unwrap_or(0);
        let result = done.map(drop);
        self.enter_as(class, sync.node.id, deed, sync.start_ns, (0, length), result);
        result
    }

    fn abandon(&self, sync: &Pending) {
        let names = lock(&sync.names).take();
        if let Some(names) = names {
            let mut tree = lock(&self.tree);
            tree.abandon(names);
            self.bury(&mut tree);
        }
    }

    /// Enters a sync that failed before it could be finished.
    pub fn fail_sync(&self, sync: &Pending, error: i32) {
        if let Some(content) = &mut sync.node.state().content {
            content.abandon();
        }
        self.abandon(sync);
        self.enter(&sync.node, Deed::Sync, sync.start_ns, (0, 0), Err(error));
    }

    /// The error by which a sync fails, where a rule says so; with what the rule does to its data.
    fn sync_fault(&self, sync: &Pending, state: &mut State) -> Option<i32> {
        let rules = self.rules();
        let rule = rules.faults.get(state.label.sync_fault?)?;
        let unsynced = state.content.as_ref().map_or(0, Content::unsynced_bytes);
        if !rule.strikes(unsynced > 0) {
            return None;
        }
        match (&mut state.content, sync.snapshot) {
            (Some(content), Some(snapshot)) if rule.sync_drops => drop(content.drop_unsynced(snapshot)),
            (Some(content), _) => content.abandon(),
            (None, _) => {}
        }
        rule.sync_error
    }

    /// Makes a node durable, and with a journal all metadata, as they were when the sync began. Returns how many un-synced bytes it had.
    fn sync_node(&self, sync: &Pending) -> Outcome<u64> {
        let node = &sync.node;
        let bytes = {
            let mut state = node.state();
            if let Some(error) = self.sync_fault(sync, &mut state) {
                return Err(error);
            }
            let bytes = match (&mut state.content, sync.snapshot) {
                (Some(content), Some(snapshot)) => {
                    content.sync_to(snapshot).map_err(|error| errno(&error))?
                }
                _ => 0,
            };
            if !sync.data_only {
                state.durable_attributes = None;
            }
            self.settle(node, &mut state);
            bytes
        };
        let names = lock(&sync.names).take();
        match names {
            Some(names) if self.metadata() == Metadata::Strict => {
                let mut tree = lock(&self.tree);
                tree.sync_to(names);
                self.bury(&mut tree);
            }
            Some(names) => self.commit_to(Some(names), sync.order)?,
            None => {}
        }
        Ok(bytes)
    }

    /// Makes data, size and, unless `data_only`, attributes durable.
    pub(super) fn sync_state(&self, node: &Node, state: &mut State, data_only: bool) -> Outcome<u64> {
        let bytes = match &mut state.content {
            Some(content) => content.sync().map_err(|error| errno(&error))?,
            None => 0,
        };
        if !data_only {
            state.durable_attributes = None;
        }
        self.settle(node, state);
        Ok(bytes)
    }

    /// Takes a node off the register when it has nothing to lose any more.
    fn settle(&self, node: &Node, state: &mut State) {
        let content = state.content.as_ref();
        let data = content.is_some_and(|content| content.unsynced_since().is_some());
        if !data && state.durable_attributes.is_none() && state.unsynced {
            state.unsynced = false;
            lock(&self.unsynced).remove(&node.id);
        }
    }

    /// The journal's commit of all that there is.
    pub(super) fn commit(&self) -> Outcome<()> {
        self.commit_to(None, u64::MAX)
    }

    /// The journal's commit: names and attributes, and sizes that were set up to change number `order`, become durable, but no data, except that of
    /// files that ext4 flushes with it. `names`: as they were then, or all.
    fn commit_to(&self, names: Option<Names>, order: u64) -> Outcome<()> {
        let mut tree = lock(&self.tree);
        match names {
            Some(names) => tree.sync_to(names),
            None => tree.sync_all(),
        }
        self.bury(&mut tree);
        let nodes = std::mem::take(&mut *lock(&self.uncommitted));
        for node in nodes.into_values() {
            let mut state = node.state();
            if state.uncommitted.is_some_and(|newest| newest > order) {
                // What changed since waits for the next commit; sizes know which of them were set before.
                lock(&self.uncommitted).insert(node.id, Arc::clone(&node));
            } else {
                state.uncommitted = None;
                state.durable_attributes = None;
            }
            let flush = std::mem::take(&mut state.flush_with_commit);
            if let Some(content) = &mut state.content {
                if flush {
                    content.sync().map(drop)
                } else {
                    content.commit_size(order)
                }
                .map_err(|error| errno(&error))?;
            }
            self.settle(&node, &mut state);
        }
        Ok(())
    }
}
