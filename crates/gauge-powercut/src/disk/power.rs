//! Power, and what happens by itself with time.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Disk, Outcome, errno};
use crate::content::Content;
use crate::evidence::{Lost, LostFile};
use crate::lock;
use crate::node::Node;
use crate::survive::Survive;
use crate::tree::{ROOT, Tree};

/// What a cut did.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Cut {
    /// From when on nothing worked, `CLOCK_MONOTONIC`.
    pub cut_ns: i64,
    /// Files whose content went back.
    pub files_reverted: u64,
    /// Files that no durable name leads to.
    pub files_gone: u64,
    /// Un-synced bytes that were lost, those of files that are gone included.
    pub dropped_bytes: u64,
    /// Un-synced bytes that survived.
    pub survived_bytes: u64,
    /// Names that went back.
    pub names_reverted: u64,
    /// The files that lost most.
    pub lost: Vec<LostFile>,
    /// Names in the root before and after, which the kernel may remember.
    #[serde(skip)]
    pub root_names: Vec<OsString>,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Size {
    /// Files, and links and special files.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// How much there is to lose.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Unsynced {
    /// Nodes with un-synced content or attributes.
    pub unsynced_files: u64,
    /// Bytes written and not synced.
    pub unsynced_bytes: u64,
    /// Old content that is kept for a cut, bytes.
    pub undo_bytes: u64,
    /// Names that are not durable, or whose removal is not.
    pub unsynced_names: u64,
}

impl Disk {
    /// Whether the power is on, and how many cuts there were.
    pub fn power(&self) -> (bool, u64) {
        let power = self.power.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        (power.on, power.cuts)
    }

    /// Cuts the power: waits for operations that are under way, refuses all others, and drops what is not durable, except for
    /// what survives. With `names`, metadata survives as if the journal had just committed.
    ///
    /// # Errors
    /// `EALREADY` when it is off; those of the disk below, with the power off and the content undefined.
    pub fn cut(&self, survive: Survive, names: bool) -> Outcome<Cut> {
        let mut power = self
            .power
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if !power.on {
            return Err(libc::EALREADY);
        }
        power.on = false;
        power.cuts += 1;
        self.hold.release();
        let mut cut = Cut {
            cut_ns: Self::now(),
            ..Cut::default()
        };
        self.handles
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clear();
        let survive = self.decided(survive);
        if names {
            self.commit()?;
        }
        let mut tree = lock(&self.tree);
        let mut left = self.trace_bytes.load(Ordering::Relaxed);
        let named = tree.slots.iter().filter(|_| left > 0);
        let paths: HashMap<u64, String> = named
            .map(|(&number, slot)| (slot.node.id, tree.path(number)))
            .collect();
        let mut lost = Vec::new();
        let root = |tree: &crate::tree::Tree| -> Vec<OsString> {
            let root = tree.directories.get(&ROOT);
            root.map_or_else(Vec::new, |root| root.entries.keys().cloned().collect())
        };
        cut.root_names = root(&tree);
        cut.names_reverted = tree.revert() as u64;
        cut.root_names.extend(root(&tree));
        lock(&self.uncommitted).clear();
        for node in tree.take_reaped() {
            cut.files_gone += 1;
            lock(&self.unsynced).remove(&node.id);
            let mut state = node.state();
            let deeds = state.deeds;
            let Some(content) = &mut state.content else {
                continue;
            };
            cut.dropped_bytes += content.unsynced_bytes();
            let bytes = content.trace_all(left).map_err(|error| errno(&error))?;
            left -= bytes.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
            lost.push(LostFile {
                path: paths.get(&node.id).cloned().unwrap_or_default(),
                lost: Lost::Name,
                dropped_bytes: content.unsynced_bytes(),
                survived_bytes: 0,
                deeds,
                bytes,
            });
        }
        let nodes = std::mem::take(&mut *lock(&self.unsynced));
        for node in nodes.into_values() {
            let Some(mut file) = self.revert(&node, survive, left)? else {
                continue;
            };
            cut.files_reverted += u64::from(file.dropped_bytes + file.survived_bytes > 0);
            cut.dropped_bytes += file.dropped_bytes;
            cut.survived_bytes += file.survived_bytes;
            left -= file
                .bytes
                .iter()
                .map(|(_, bytes)| bytes.len() as u64)
                .sum::<u64>();
            if file.dropped_bytes > 0 {
                file.path = paths.get(&node.id).cloned().unwrap_or_default();
                lost.push(file);
            }
        }
        lost.extend(self.renamed_back(&tree, &paths, left)?);
        self.evidence.keep(lost);
        cut.lost = self.evidence.files();
        for slot in tree.slots.values() {
            let mut state = slot.node.state();
            state.opens = 0;
            state.emptied = false;
            state.flush_with_commit = false;
            state.uncommitted = None;
        }
        self.relabel_all(&tree);
        drop(tree);
        self.used.store(self.size().bytes, Ordering::Relaxed);
        self.accounts.flush();
        Ok(cut)
    }

    /// Files that a cut has given back an older name: what they hold is there, but not where it is looked for.
    fn renamed_back(
        &self,
        tree: &Tree,
        paths: &HashMap<u64, String>,
        mut left: u64,
    ) -> Outcome<Vec<LostFile>> {
        let mut found = Vec::new();
        for (&number, slot) in &tree.slots {
            let mut state = slot.node.state();
            let deeds = state.deeds;
            let before = paths
                .get(&slot.node.id)
                .filter(|path| **path != tree.path(number));
            let (Some(path), Some(content)) = (before, &mut state.content) else {
                continue;
            };
            let bytes = content.trace_all(left).map_err(|error| errno(&error))?;
            content.close();
            left -= bytes.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
            found.push(LostFile {
                path: path.clone(),
                lost: Lost::Name,
                dropped_bytes: 0,
                survived_bytes: 0,
                deeds,
                bytes,
            });
        }
        Ok(found)
    }

    /// What a random prefix of the disk's writes ends with.
    fn decided(&self, survive: Survive) -> Survive {
        let Survive::Prefix { seed } = survive else {
            return survive;
        };
        let nodes: Vec<Arc<Node>> = lock(&self.unsynced).values().cloned().collect();
        let mut orders = vec![0];
        for node in nodes {
            if let Some(content) = &node.state().content {
                orders.extend(content.unsynced_orders());
            }
        }
        orders.sort_unstable();
        Survive::Until {
            order: orders[fastrand::Rng::with_seed(seed).usize(..orders.len())],
        }
    }

    fn revert(&self, node: &Node, survive: Survive, trace_bytes: u64) -> Outcome<Option<LostFile>> {
        let mut state = node.state();
        state.unsynced = false;
        if let Some(attributes) = state.durable_attributes.take() {
            state.attributes = attributes;
        }
        let Some(content) = &mut state.content else {
            return Ok(None);
        };
        let block_bytes = self.block_bytes.load(Ordering::Relaxed);
        let reverted = content
            .revert(survive, block_bytes, trace_bytes)
            .map_err(|error| errno(&error))?;
        content.close();
        Ok(Some(LostFile {
            path: String::new(),
            lost: Lost::Data,
            dropped_bytes: reverted.dropped_bytes,
            survived_bytes: reverted.survived_bytes,
            deeds: state.deeds,
            bytes: reverted.lost,
        }))
    }

    /// Serves what survived.
    ///
    /// # Errors
    /// `EALREADY` when the power is on.
    pub fn power_on(&self) -> Outcome<Size> {
        let mut power = self
            .power
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if power.on {
            return Err(libc::EALREADY);
        }
        power.on = true;
        drop(power);
        Ok(self.size())
    }

    /// Makes everything durable. Returns files and bytes that were not.
    ///
    /// # Errors
    /// `EIO` without power; those of the disk below.
    pub fn sync_all(&self) -> Outcome<(u64, u64)> {
        let _power = self.powered()?;
        self.sync_older_than(None)
    }

    fn sync_older_than(&self, age: Option<Duration>) -> Outcome<(u64, u64)> {
        let now = Instant::now();
        let nodes: Vec<Arc<Node>> = lock(&self.unsynced).values().cloned().collect();
        let (mut files, mut bytes) = (0, 0);
        for node in nodes {
            let mut state = node.state();
            let since = state.content.as_ref().and_then(Content::unsynced_since);
            let due = age.is_none_or(|age| since.is_some_and(|since| now.duration_since(since) >= age));
            if due {
                files += u64::from(since.is_some());
                bytes += self.sync_state(&node, &mut state, age.is_some())?;
            }
        }
        if age.is_none() {
            self.commit()?;
        }
        Ok((files, bytes))
    }

    /// Writes back what is old enough. Returns after how long it wants to be called again; never, when nothing has an age.
    pub fn write_back(&self, last_commit: &mut Instant) -> Option<Duration> {
        let settings = &self.settings;
        let shortest = [settings.write_back, settings.commit]
            .into_iter()
            .flatten()
            .min()?;
        if let Ok(_power) = self.powered() {
            if let Some(age) = settings.write_back {
                let _ = self.sync_older_than(Some(age));
            }
            if let Some(age) = settings.commit
                && last_commit.elapsed() >= age
            {
                let _ = self.commit();
                *last_commit = Instant::now();
            }
        }
        Some((shortest / 10).clamp(Duration::from_millis(1), Duration::from_secs(1)))
    }

    /// How much there is.
    pub fn size(&self) -> Size {
        let tree = lock(&self.tree);
        let mut size = Size {
            directories: tree.directories.len() as u64,
            ..Size::default()
        };
        for slot in tree.slots.values() {
            size.bytes += slot.node.state().content.as_ref().map_or(0, Content::size);
        }
        size.files = tree.slots.len() as u64 - size.directories;
        size
    }

    /// How much there is to lose.
    pub fn unsynced(&self) -> Unsynced {
        let names = lock(&self.tree).unsynced_names() as u64;
        let nodes: Vec<Arc<Node>> = lock(&self.unsynced).values().cloned().collect();
        let mut unsynced = Unsynced {
            unsynced_files: nodes.len() as u64,
            unsynced_names: names,
            ..Unsynced::default()
        };
        for node in nodes {
            let state = node.state();
            if let Some(content) = &state.content {
                unsynced.unsynced_bytes += content.unsynced_bytes();
                unsynced.undo_bytes += content.undo_bytes();
            }
        }
        unsynced
    }
}
