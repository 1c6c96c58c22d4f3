//! Names: as they are now, and as a power cut would leave them.
//!
//! A directory holds its newest entries and, for each name that changed since it was last synced, what the name led to before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use crate::node::{Kind, Node};

/// Inode number of the root, which FUSE prescribes.
pub const ROOT: u64 = 1;

/// A directory's entries.
#[derive(Debug, Default)]
pub struct Directory {
    /// Newest entries: name to inode number.
    pub entries: BTreeMap<OsString, u64>,
    /// What changed names led to when they were last durable; `None`: they were not there.
    pub before: BTreeMap<OsString, Option<u64>>,
    /// Directories between which and this one something was moved since the last sync: they become durable together.
    linked: BTreeSet<u64>,
    /// The change up to which all is durable.
    synced: u64,
}

/// Changed names of a directory, and what they led to; `None`: they were not there.
type Changed = Vec<(OsString, Option<u64>)>;

/// Names that had changed when a sync began: by directory, what they led to then.
#[derive(Debug, Default)]
pub struct Names {
    order: u64,
    directories: Vec<(u64, Changed)>,
}

/// What the tree knows of a node.
#[derive(Debug)]
pub struct Slot {
    /// The node.
    pub node: Arc<Node>,
    /// Names, and for a directory `.` and the `..` of its children.
    pub links: u32,
    /// How often the kernel has looked it up without forgetting it.
    pub lookups: u64,
    /// Former names that a cut would bring back.
    held: u32,
    /// A directory that holds it, and its name there.
    pub place: (u64, OsString),
}

/// All nodes and names of a file system.
#[derive(Debug)]
pub struct Tree {
    /// Nodes by inode number.
    pub slots: HashMap<u64, Slot>,
    /// Entries of the directories among them.
    pub directories: HashMap<u64, Directory>,
    unsynced: BTreeSet<u64>,
    /// Changes so far.
    changes: u64,
    next_number: u64,
    reaped: Vec<Arc<Node>>,
}

impl Tree {
    /// A tree of nothing but a root.
    pub fn new(root: Arc<Node>) -> Tree {
        let slot = Slot {
            node: root,
            links: 2,
            lookups: 1,
            held: 0,
            place: (ROOT, OsString::new()),
        };
        Tree {
            slots: HashMap::from([(ROOT, slot)]),
            directories: HashMap::from([(ROOT, Directory::default())]),
            unsynced: BTreeSet::new(),
            changes: 0,
            next_number: ROOT + 1,
            reaped: Vec::new(),
        }
    }

    /// An inode number that was never used.
    pub fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Adds a node without a name.
    pub fn add(&mut self, node: Arc<Node>) {
        let number = node.number();
        let directory = node.kind == Kind::Directory;
        if directory {
            self.directories.insert(number, Directory::default());
        }
        let slot = Slot {
            node,
            links: u32::from(directory),
            lookups: 0,
            held: 0,
            place: (ROOT, OsString::new()),
        };
        self.slots.insert(number, slot);
    }

    /// Names whose durable state differs.
    pub fn unsynced_names(&self) -> usize {
        self.unsynced
            .iter()
            .filter_map(|number| self.directories.get(number))
            .map(|directory| directory.before.len())
            .sum()
    }

    /// Nodes that nothing leads to any more, since the last call.
    pub fn take_reaped(&mut self) -> Vec<Arc<Node>> {
        std::mem::take(&mut self.reaped)
    }

    fn is_directory(&self, number: u64) -> bool {
        self.directories.contains_key(&number)
    }

    /// Makes `name` in `directory` lead to `target`, or to nothing. Returns what it led to before.
    pub fn change(&mut self, directory: u64, name: &OsStr, target: Option<u64>) -> Option<u64> {
        self.changes += 1;
        let entries = self.directories.get_mut(&directory)?;
        let old = match target {
            Some(number) => entries.entries.insert(name.to_owned(), number),
            None => entries.entries.remove(name),
        };
        let mut released = None;
        let mut held = None;
        match entries.before.get(name) {
            None => {
                entries.before.insert(name.to_owned(), old);
                held = old;
                self.unsynced.insert(directory);
            }
            // Back to what is durable: nothing to undo.
            Some(&before) if before == target => {
                entries.before.remove(name);
                released = before;
            }
            Some(_) => {}
        }
        if let Some(slot) = held.and_then(|number| self.slots.get_mut(&number)) {
            slot.held += 1;
        }
        if let Some(number) = target {
            self.link(directory, name, number);
        }
        if let Some(number) = old {
            self.unlink(directory, number);
        }
        if let Some(number) = released {
            self.release(number);
        }
        old
    }

    fn link(&mut self, directory: u64, name: &OsStr, number: u64) {
        if self.is_directory(number)
            && let Some(parent) = self.slots.get_mut(&directory)
        {
            parent.links += 1;
        }
        if let Some(slot) = self.slots.get_mut(&number) {
            slot.links += 1;
            slot.place = (directory, name.to_owned());
        }
    }

    fn unlink(&mut self, directory: u64, number: u64) {
        if self.is_directory(number)
            && let Some(parent) = self.slots.get_mut(&directory)
        {
            parent.links -= 1;
        }
        if let Some(slot) = self.slots.get_mut(&number) {
            slot.links -= 1;
        }
        self.reap(number);
    }

    fn release(&mut self, number: u64) {
        if let Some(slot) = self.slots.get_mut(&number) {
            slot.held = slot.held.saturating_sub(1);
        }
        self.reap(number);
    }

    /// The kernel has forgotten `count` lookups.
    pub fn forget(&mut self, number: u64, count: u64) {
        if let Some(slot) = self.slots.get_mut(&number) {
            slot.lookups = slot.lookups.saturating_sub(count);
        }
        self.reap(number);
    }

    fn reap(&mut self, number: u64) {
        let alone = u32::from(self.is_directory(number));
        let Some(slot) = self.slots.get(&number) else {
            return;
        };
        if number == ROOT || slot.links > alone || slot.lookups > 0 || slot.held > 0 {
            return;
        }
        if let Some(slot) = self.slots.remove(&number) {
            self.reaped.push(slot.node);
        }
        self.unsynced.remove(&number);
        if let Some(directory) = self.directories.remove(&number) {
            for before in directory.before.into_values().flatten() {
                self.release(before);
            }
        }
    }

    /// Notes that something was moved between two directories.
    pub fn tie(&mut self, one: u64, other: u64) {
        for (from, to) in [(one, other), (other, one)] {
            if from != to
                && let Some(directory) = self.directories.get_mut(&from)
            {
                directory.linked.insert(to);
            }
        }
    }

    /// Makes the names in `directory` durable, and those in directories that something was moved from or to.
    pub fn sync_directory(&mut self, directory: u64) {
        let mut waiting = vec![directory];
        while let Some(number) = waiting.pop() {
            self.unsynced.remove(&number);
            let Some(entries) = self.directories.get_mut(&number) else {
                continue;
            };
            waiting.extend(std::mem::take(&mut entries.linked));
            entries.synced = self.changes;
            for before in std::mem::take(&mut entries.before).into_values().flatten() {
                self.release(before);
            }
        }
    }

    /// A sync begins of `directory` and of those that something was moved from or to, or of all: what it will make durable. It must be ended by `sync_to` or `abandon`.
    pub fn snapshot(&mut self, directory: Option<u64>) -> Names {
        let mut waiting: Vec<u64> = match directory {
            Some(directory) => vec![directory],
            None => self.unsynced.iter().copied().collect(),
        };
        let mut names = Names {
            order: self.changes,
            directories: Vec::new(),
        };
        let mut seen = BTreeSet::new();
        while let Some(number) = waiting.pop() {
            let Some(entries) = self.directories.get(&number).filter(|_| seen.insert(number)) else {
                continue;
            };
            waiting.extend(entries.linked.iter().copied());
            let changed: Changed = entries
                .before
                .keys()
                .map(|name| (name.clone(), entries.entries.get(name).copied()))
                .collect();
            for target in changed.iter().filter_map(|(_, target)| *target) {
                self.hold(target);
            }
            names.directories.push((number, changed));
        }
        names
    }

    fn hold(&mut self, number: u64) {
        if let Some(slot) = self.slots.get_mut(&number) {
            slot.held += 1;
        }
    }

    /// A sync ends: names are durable as they were when it began.
    pub fn sync_to(&mut self, names: Names) {
        for (number, changed) in &names.directories {
            let is_newer = |entries: &Directory| entries.synced <= names.order;
            if self.directories.get(number).is_some_and(is_newer) {
                self.sync_names(*number, changed, names.order);
            }
        }
        self.abandon(names);
    }

    fn sync_names(&mut self, number: u64, changed: &[(OsString, Option<u64>)], order: u64) {
        for (name, target) in changed {
            let Some(entries) = self.directories.get_mut(&number) else {
                return;
            };
            let now = entries.entries.get(name).copied();
            let before = if now == *target {
                entries.before.remove(name)
            } else {
                entries.before.insert(name.clone(), *target)
            };
            if let (Some(held), true) = (*target, now != *target) {
                self.hold(held);
            }
            if let Some(released) = before.flatten() {
                self.release(released);
            }
        }
        let Some(entries) = self.directories.get_mut(&number) else {
            return;
        };
        entries.synced = order;
        if entries.before.is_empty() {
            entries.linked.clear();
            self.unsynced.remove(&number);
        } else {
            self.unsynced.insert(number);
        }
    }

    /// A sync ended without any effect, or with all of it.
    pub fn abandon(&mut self, names: Names) {
        for (_, changed) in names.directories {
            for target in changed.into_iter().filter_map(|(_, target)| target) {
                self.release(target);
            }
        }
    }

    /// Makes all names durable.
    pub fn sync_all(&mut self) {
        while let Some(&number) = self.unsynced.first() {
            self.sync_directory(number);
        }
    }

    /// The path of a node below the root; empty for the root.
    pub fn path(&self, number: u64) -> String {
        let mut parts = Vec::new();
        let mut position = number;
        while position != ROOT
            && let Some(slot) = self.slots.get(&position)
        {
            parts.push(slot.place.1.to_string_lossy());
            position = slot.place.0;
        }
        parts.reverse();
        parts.join("/")
    }

    /// Whether `number` is `ancestor` or lies below it.
    pub fn is_within(&self, number: u64, ancestor: u64) -> bool {
        let mut position = number;
        while position != ancestor {
            if position == ROOT {
                return false;
            }
            match self.slots.get(&position) {
                Some(slot) => position = slot.place.0,
                None => return false,
            }
        }
        true
    }

    /// Brings all names back to their durable state and numbers everything anew, except for the root. What no durable name
    /// leads to is returned as reaped. Returns how many names changed.
    pub fn revert(&mut self) -> usize {
        let mut reverted = 0;
        for directory in self.directories.values_mut() {
            directory.linked.clear();
            for (name, before) in std::mem::take(&mut directory.before) {
                reverted += 1;
                match before {
                    Some(number) => directory.entries.insert(name, number),
                    None => directory.entries.remove(&name),
                };
            }
        }
        self.unsynced.clear();
        self.rebuild();
        reverted
    }

    fn rebuild(&mut self) {
        let mut slots = std::mem::take(&mut self.slots);
        let mut directories = std::mem::take(&mut self.directories);
        if let Some(root) = slots.remove(&ROOT) {
            self.slots.insert(
                ROOT,
                Slot {
                    links: 2,
                    lookups: 1,
                    held: 0,
                    ..root
                },
            );
        }
        let mut numbers = HashMap::new();
        let mut waiting = vec![(ROOT, ROOT)];
        while let Some((old, new)) = waiting.pop() {
            let mut entries = BTreeMap::new();
            for (name, target) in directories.remove(&old).unwrap_or_default().entries {
                if let Some(slot) = slots.remove(&target) {
                    let number = self.take_number();
                    numbers.insert(target, number);
                    slot.node.renumber(number);
                    let directory = slot.node.kind == Kind::Directory;
                    if directory {
                        waiting.push((target, number));
                    }
                    let slot = Slot {
                        links: u32::from(directory),
                        lookups: 0,
                        held: 0,
                        ..slot
                    };
                    self.slots.insert(number, slot);
                    if directory {
                        self.directories.insert(number, Directory::default());
                    }
                }
                if let Some(&number) = numbers.get(&target) {
                    self.link(new, &name, number);
                    entries.insert(name, number);
                }
            }
            self.directories.insert(
                new,
                Directory {
                    entries,
                    ..Directory::default()
                },
            );
        }
        self.reaped.extend(slots.into_values().map(|slot| slot.node));
    }
}
