//! The disk behind a volatile cache, without any FUSE: names, files, syncs, power.
//!
//! Locks are taken in this order: power (for reading by every operation, for writing by a cut, which so waits for what is under
//! way), tree, a node's state, the registers. A data write takes none that others need but the first.

mod files;
mod names;
mod power;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::time::Duration;

use gauge_load::clock::monotonic_ns;

use crate::accounts::{Accounts, Deed, Event};
use crate::content::Content;
use crate::lock;
use crate::node::{Attributes, Kind, Node, State};
use crate::rules::Rules;
use crate::tree::{ROOT, Tree};

pub use files::{Change, Handle, Pending};
pub use names::{Attr, Make};
pub use power::{Cut, Size, Unsynced};

/// Result of an operation; the error is an errno.
pub type Outcome<T> = Result<T, i32>;

/// When names and sizes survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Metadata {
    /// Names with a sync of their directory only.
    Strict,
    /// All metadata so far with any sync: what ext4 and XFS have in common.
    Ordered,
    /// As ordered, and data of files that replace others before that: ext4's default.
    Ext4,
}

/// What a disk is made with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory for the files below; without one everything is in memory.
    pub state: Option<PathBuf>,
    /// When names and sizes survive.
    pub metadata: Metadata,
    /// Age at which un-synced data becomes durable by itself.
    pub write_back: Option<Duration>,
    /// Age at which metadata becomes durable by itself.
    pub commit: Option<Duration>,
    /// Whether a sync also syncs the file below.
    pub sync_through: bool,
}

/// No limit of space.
const UNLIMITED: u64 = u64::MAX;

#[derive(Debug)]
struct Power {
    on: bool,
    cuts: u64,
}

/// A disk behind a volatile cache.
#[derive(Debug)]
pub struct Disk {
    /// What it was made with.
    pub settings: Settings,
    /// What was written and synced.
    pub accounts: Accounts,
    power: RwLock<Power>,
    tree: Mutex<Tree>,
    rules: RwLock<Rules>,
    handles: RwLock<HashMap<u64, Arc<Handle>>>,
    /// Nodes with something to lose in a cut, by id.
    unsynced: Mutex<HashMap<u64, Arc<Node>>>,
    /// Nodes with metadata that the journal has not committed, by id.
    uncommitted: Mutex<HashMap<u64, Arc<Node>>>,
    /// Nodes to which nothing leads any more, whose files below are still there.
    buried: Mutex<Vec<Arc<Node>>>,
    next_handle: AtomicU64,
    next_id: AtomicU64,
    used: AtomicU64,
    limit: AtomicU64,
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Disk {
    /// An empty disk whose root belongs to `uid` and `gid`, with its power on.
    ///
    /// # Errors
    /// Those of making directories below `settings.state`.
    pub fn new(settings: Settings, rules: Rules, accounts: Accounts, uid: u32, gid: u32) -> io::Result<Disk> {
        for below in ["files", "undo"] {
            if let Some(state) = &settings.state {
                fs::create_dir_all(state.join(below))?;
            }
        }
        let root = Node::new(0, ROOT, Kind::Directory, Attributes::new(0o755, uid, gid), None);
        Ok(Disk {
            settings,
            accounts,
            power: RwLock::new(Power { on: true, cuts: 0 }),
            tree: Mutex::new(Tree::new(Arc::new(root))),
            rules: RwLock::new(rules),
            handles: RwLock::new(HashMap::new()),
            unsynced: Mutex::new(HashMap::new()),
            uncommitted: Mutex::new(HashMap::new()),
            buried: Mutex::new(Vec::new()),
            next_handle: AtomicU64::new(1),
            next_id: AtomicU64::new(1),
            used: AtomicU64::new(0),
            limit: AtomicU64::new(UNLIMITED),
        })
    }

    /// Holds off a cut, or says that the power is off.
    fn powered(&self) -> Outcome<RwLockReadGuard<'_, Power>> {
        let power = self.power.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        if power.on { Ok(power) } else { Err(libc::EIO) }
    }

    fn rules(&self) -> RwLockReadGuard<'_, Rules> {
        self.rules.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn new_content(&self, id: u64) -> Content {
        let name = format!("{id:x}");
        let paths = self.settings.state.as_ref().map(|state| {
            let below = |directory: &str| state.join(directory).join(&name);
            (below("files"), below("undo"))
        });
        Content::new(id, paths)
    }

    /// The node `number`; one from before a cut is stale, so that the kernel looks its name up again.
    fn node(&self, tree: &Tree, number: u64) -> Outcome<Arc<Node>> {
        let slot = tree.slots.get(&number).ok_or(libc::ESTALE)?;
        Ok(Arc::clone(&slot.node))
    }

    fn mark_unsynced(&self, node: &Arc<Node>, state: &mut State) {
        if !state.unsynced {
            state.unsynced = true;
            lock(&self.unsynced).insert(node.id, Arc::clone(node));
        }
    }

    /// Notes that the journal has something to commit for this node. Without a journal, only a sync of the node itself counts.
    fn mark_uncommitted(&self, node: &Arc<Node>, state: &mut State) {
        self.mark_unsynced(node, state);
        if !state.uncommitted && self.settings.metadata != Metadata::Strict {
            state.uncommitted = true;
            lock(&self.uncommitted).insert(node.id, Arc::clone(node));
        }
    }

    /// Gives back what nodes took to which nothing leads any more.
    fn bury(&self, tree: &mut Tree) {
        for node in tree.take_reaped() {
            lock(&self.unsynced).remove(&node.id);
            lock(&self.uncommitted).remove(&node.id);
            let size = node.state().content.as_ref().map_or(0, Content::size);
            self.used.fetch_sub(size, Ordering::Relaxed);
            lock(&self.buried).push(node);
        }
    }

    /// Removes the files below of what is gone; not where others wait, because removing a large file takes long.
    pub fn dispose(&self) {
        let buried = std::mem::take(&mut *lock(&self.buried));
        drop(buried);
    }

    fn grown(&self, before: u64, after: u64) {
        if after >= before {
            self.used.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.used.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Whether a file may grow from `before` to `after` bytes.
    fn check_space(&self, before: u64, after: u64) -> Outcome<()> {
        let limit = self.limit.load(Ordering::Relaxed);
        let more = after.saturating_sub(before);
        if more > 0 && self.used.load(Ordering::Relaxed).saturating_add(more) > limit {
            return Err(libc::ENOSPC);
        }
        Ok(())
    }

    /// Bytes of all files, and the limit of them.
    pub fn space(&self) -> (u64, Option<u64>) {
        let limit = self.limit.load(Ordering::Relaxed);
        (
            self.used.load(Ordering::Relaxed),
            (limit != UNLIMITED).then_some(limit),
        )
    }

    /// Sets or removes the limit of space.
    pub fn set_limit(&self, limit: Option<u64>) {
        self.limit.store(limit.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }

    /// Replaces the fault rules.
    pub fn set_faults(&self, faults: Vec<crate::rules::Rule>) {
        let tree = lock(&self.tree);
        self.rules
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .faults = faults;
        self.relabel_all(&tree);
    }

    fn relabel_all(&self, tree: &Tree) {
        for &number in tree.slots.keys() {
            self.relabel(tree, number);
        }
    }

    fn relabel(&self, tree: &Tree, number: u64) {
        if let Some(slot) = tree.slots.get(&number) {
            slot.node.state().label = self.rules().label(&tree.path(number));
        }
    }

    fn enter(&self, node: &Node, deed: Deed, start_ns: i64, range: (u64, u64), result: Outcome<()>) {
        let class = node.state().label.class;
        self.enter_as(class, node.id, deed, start_ns, range, result);
    }

    fn enter_as(
        &self,
        class: u16,
        id: u64,
        deed: Deed,
        start_ns: i64,
        (offset, length): (u64, u64),
        result: Outcome<()>,
    ) {
        self.accounts.enter(&Event {
            start_ns,
            offset,
            length,
            id,
            deed,
            class,
            error: result.err().unwrap_or(0),
        });
    }

    /// The clock of the books.
    pub fn now() -> i64 {
        monotonic_ns()
    }
}
