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
use crate::evidence::Evidence;
use crate::hold::{Hold, Place};
use crate::lock;
use crate::node::{Attributes, Kind, Node, State};
use crate::rules::Rules;
use crate::survive::SECTOR_BYTES;
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
    /// What the last cut took.
    pub evidence: Evidence,
    hold: Hold,
    metadata: Mutex<Metadata>,
    block_bytes: AtomicU64,
    trace_bytes: AtomicU64,
    /// Numbers the writes, and changes of metadata, of all files.
    clock: Arc<AtomicU64>,
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
            metadata: Mutex::new(settings.metadata),
            settings,
            accounts,
            evidence: Evidence::default(),
            hold: Hold::default(),
            block_bytes: AtomicU64::new(SECTOR_BYTES),
            trace_bytes: AtomicU64::new(0),
            clock: Arc::default(),
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
        self.hold.wait();
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
        Content::new(id, paths, Arc::clone(&self.clock))
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
        if self.metadata() != Metadata::Strict {
            let order = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
            if state.uncommitted.replace(order).is_none() {
                lock(&self.uncommitted).insert(node.id, Arc::clone(node));
            }
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

    /// How metadata survives.
    pub fn metadata(&self) -> Metadata {
        *lock(&self.metadata)
    }

    /// From now on metadata survives so. Everything is made durable first, so that one model holds for all there is to lose.
    ///
    /// # Errors
    /// As [`Disk::sync_all`].
    pub fn set_metadata(&self, metadata: Metadata) -> Outcome<()> {
        self.sync_all()?;
        *lock(&self.metadata) = metadata;
        Ok(())
    }

    /// Bytes that a disk writes as a whole.
    pub fn set_block_bytes(&self, bytes: u64) {
        self.block_bytes.store(bytes.max(1), Ordering::Relaxed);
    }

    /// From now on so many of the bytes that a cut takes are kept to be looked for.
    pub fn keep_evidence(&self, bytes_max: u64) {
        self.trace_bytes.store(bytes_max, Ordering::Relaxed);
    }

    /// Stands still at a place: what uses the disk waits, until a cut or `release`.
    pub fn hold_at(&self, place: Place, glob: glob::Pattern) {
        self.watch(Some(glob));
        self.hold.arm(place);
    }

    /// Goes on, or will not stand still.
    pub fn release(&self) {
        self.hold.release();
        self.watch(None);
    }

    /// The place at which it will stand still, or does.
    pub fn held(&self) -> serde_json::Value {
        self.hold.told()
    }

    /// Whether it stands still.
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// What is to be answered to a request at which the disk may stand still: the answer, or nothing when the power has gone meanwhile.
    ///
    /// # Errors
    /// `EIO` when the power has gone; that of the request.
    pub fn stand<T>(&self, answer: Outcome<T>) -> Outcome<T> {
        if !self.is_held() {
            return answer;
        }
        let _power = self.powered()?;
        answer
    }

    fn watch(&self, glob: Option<glob::Pattern>) {
        let tree = lock(&self.tree);
        self.rules
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .hold = glob;
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
        let label = {
            let mut state = node.state();
            let deeds = &mut state.deeds;
            let now = Some(Self::now());
            match deed {
                Deed::Create => deeds.created_ns = now,
                Deed::Rename => deeds.renamed_ns = now,
                Deed::Unlink => deeds.removed_ns = now,
                Deed::Sync if result.is_err() => deeds.sync_failed_ns = now,
                Deed::Write | Deed::Sync | Deed::SyncDirectory | Deed::Truncate => {}
            }
            state.label
        };
        self.enter_as(label.class, node.id, deed, start_ns, range, result);
        // A sync counts when it begins.
        if label.is_watched && !matches!(deed, Deed::Sync | Deed::SyncDirectory) {
            self.hold.count(deed);
        }
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
