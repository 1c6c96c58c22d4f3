//! Operations on names and attributes.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Disk, Metadata, Outcome};
use crate::accounts::Deed;
use crate::content::Content;
use crate::lock;
use crate::node::{Attributes, Kind, Node};
use crate::tree::{ROOT, Tree};

/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 255;

/// What `stat` tells of a node.
#[derive(Clone, Debug)]
pub struct Attr {
    /// Inode number.
    pub number: u64,
    /// Kind of node.
    pub kind: Kind,
    /// Permissions, owner, times.
    pub attributes: Attributes,
    /// Bytes.
    pub size: u64,
    /// Names.
    pub links: u32,
}

/// What is to be made.
#[derive(Clone, Debug)]
pub struct Make {
    /// Its kind.
    pub kind: Kind,
    /// Permissions, the umask applied.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Disk {
    pub(super) fn describe(&self, tree: &Tree, number: u64) -> Outcome<Attr> {
        let slot = tree.slots.get(&number).ok_or(libc::ESTALE)?;
        let state = slot.node.state();
        let size = match &slot.node.kind {
            Kind::File => state.content.as_ref().map_or(0, Content::size),
            Kind::Directory => 4096,
            Kind::Symlink(target) => target.len() as u64,
            Kind::Special(..) => 0,
        };
        Ok(Attr {
            number,
            kind: slot.node.kind.clone(),
            attributes: state.attributes,
            size,
            links: slot.links,
        })
    }

    fn child(tree: &Tree, parent: u64, name: &OsStr) -> Outcome<u64> {
        if name.len() > NAME_BYTES_MAX {
            return Err(libc::ENAMETOOLONG);
        }
        let directory = tree.directories.get(&parent);
        let directory = directory.ok_or_else(|| match tree.slots.get(&parent) {
            Some(_) => libc::ENOTDIR,
            None => libc::ESTALE,
        })?;
        directory.entries.get(name).copied().ok_or(libc::ENOENT)
    }

    /// The node that `name` leads to; counts as one lookup by the kernel.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ESTALE`, `EIO` without power.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Outcome<Attr> {
        let _power = self.powered()?;
        let mut tree = lock(&self.tree);
        let number = Self::child(&tree, parent, name)?;
        self.seen(&mut tree, number)
    }

    fn seen(&self, tree: &mut Tree, number: u64) -> Outcome<Attr> {
        tree.slots.get_mut(&number).ok_or(libc::ESTALE)?.lookups += 1;
        self.describe(tree, number)
    }

    /// The kernel forgets lookups, with or without power.
    pub fn forget(&self, number: u64, count: u64) {
        let mut tree = lock(&self.tree);
        tree.forget(number, count);
        self.bury(&mut tree);
    }

    /// Attributes of a node.
    ///
    /// # Errors
    /// `ESTALE`, `EIO` without power.
    pub fn attr(&self, number: u64) -> Outcome<Attr> {
        let _power = self.powered()?;
        self.describe(&lock(&self.tree), number)
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// `EINVAL` when it is none, `ESTALE`, `EIO` without power.
    pub fn read_link(&self, number: u64) -> Outcome<OsString> {
        let _power = self.powered()?;
        match &self.node(&lock(&self.tree), number)?.kind {
            Kind::Symlink(target) => Ok(target.clone()),
            _ => Err(libc::EINVAL),
        }
    }

    /// Entries of a directory: names, inode numbers, kinds; `.` and `..` first.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`, `EIO` without power.
    pub fn list(&self, number: u64) -> Outcome<Vec<(OsString, u64, Kind)>> {
        let _power = self.powered()?;
        let tree = lock(&self.tree);
        let slot = tree.slots.get(&number).ok_or(libc::ESTALE)?;
        let directory = tree.directories.get(&number).ok_or(libc::ENOTDIR)?;
        let mut list = vec![
            (".".into(), number, Kind::Directory),
            ("..".into(), slot.place.0, Kind::Directory),
        ];
        for (name, &target) in &directory.entries {
            if let Some(slot) = tree.slots.get(&target) {
                list.push((name.clone(), target, slot.node.kind.clone()));
            }
        }
        Ok(list)
    }

    /// Whether a name may be added to a directory.
    fn check_new(tree: &Tree, parent: u64, name: &OsStr) -> Outcome<()> {
        match Self::child(tree, parent, name) {
            Ok(_) => Err(libc::EEXIST),
            // A directory that was removed while somebody stands in it takes no names.
            Err(libc::ENOENT)
                if parent != ROOT && tree.slots.get(&parent).is_some_and(|slot| slot.links < 2) =>
            {
                Err(libc::ENOENT)
            }
            Err(libc::ENOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes a file, directory, link or special file; counts as one lookup.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, `ESTALE`, `EIO` without power.
    pub fn make(&self, parent: u64, name: &OsStr, make: Make) -> Outcome<Attr> {
        let start_ns = Self::now();
        let _power = self.powered()?;
        let mut tree = lock(&self.tree);
        Self::check_new(&tree, parent, name)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let number = tree.take_number();
        let (mode, gid) = self.inherited(&tree, parent, &make)?;
        let content = (make.kind == Kind::File).then(|| self.new_content(id));
        let attributes = Attributes::new(mode, make.uid, gid);
        let node = Arc::new(Node::new(id, number, make.kind, attributes, content));
        tree.add(Arc::clone(&node));
        self.point(&mut tree, parent, name, Some(number))?;
        self.mark_uncommitted(&node, &mut node.state());
        self.relabel(&tree, number);
        self.accounts.name(id, &tree.path(number));
        self.enter(&node, Deed::Create, start_ns, (0, 0), Ok(()));
        self.seen(&mut tree, number)
    }

    /// What a set-group-id directory passes on.
    fn inherited(&self, tree: &Tree, parent: u64, make: &Make) -> Outcome<(u32, u32)> {
        let attributes = self.node(tree, parent)?.state().attributes;
        if attributes.mode & libc::S_ISGID == 0 {
            return Ok((make.mode, make.gid));
        }
        let passed_on = if make.kind == Kind::Directory {
            libc::S_ISGID
        } else {
            0
        };
        Ok((make.mode | passed_on, attributes.gid))
    }

    /// Changes an entry and the directory's times.
    fn point(&self, tree: &mut Tree, parent: u64, name: &OsStr, target: Option<u64>) -> Outcome<()> {
        let directory = self.node(tree, parent)?;
        tree.change(parent, name, target);
        let mut state = directory.state();
        state.modified();
        self.mark_uncommitted(&directory, &mut state);
        Ok(())
    }

    fn status_changed(&self, node: &Arc<Node>) {
        let mut state = node.state();
        let now = std::time::SystemTime::now();
        state.change_attributes(|attributes| attributes.ctime = now);
        self.mark_uncommitted(node, &mut state);
    }

    /// Gives a node another name; counts as one lookup.
    ///
    /// # Errors
    /// As [`Disk::make`], and `EPERM` for a directory.
    pub fn link(&self, number: u64, parent: u64, name: &OsStr) -> Outcome<Attr> {
        let _power = self.powered()?;
        let mut tree = lock(&self.tree);
        let node = self.node(&tree, number)?;
        if node.kind == Kind::Directory {
            return Err(libc::EPERM);
        }
        Self::check_new(&tree, parent, name)?;
        self.point(&mut tree, parent, name, Some(number))?;
        self.status_changed(&node);
        self.accounts.name(node.id, &tree.path(number));
        self.seen(&mut tree, number)
    }

    /// Removes a name of something that is no directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `ESTALE`, `EIO` without power.
    pub fn unlink(&self, parent: u64, name: &OsStr) -> Outcome<()> {
        let start_ns = Self::now();
        let _power = self.powered()?;
        let mut tree = lock(&self.tree);
        let node = self.node(&tree, Self::child(&tree, parent, name)?)?;
        if node.kind == Kind::Directory {
            return Err(libc::EISDIR);
        }
        self.status_changed(&node);
        self.point(&mut tree, parent, name, None)?;
        self.enter(&node, Deed::Unlink, start_ns, (0, 0), Ok(()));
        self.bury(&mut tree);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `ESTALE`, `EIO` without power.
    pub fn remove_directory(&self, parent: u64, name: &OsStr) -> Outcome<()> {
        let _power = self.powered()?;
        let mut tree = lock(&self.tree);
        let number = Self::child(&tree, parent, name)?;
        Self::check_empty(&tree, number)?;
        self.point(&mut tree, parent, name, None)?;
        self.bury(&mut tree);
        Ok(())
    }

    fn check_empty(tree: &Tree, number: u64) -> Outcome<()> {
        let directory = tree.directories.get(&number).ok_or(libc::ENOTDIR)?;
        if directory.entries.is_empty() {
            Ok(())
        } else {
            Err(libc::ENOTEMPTY)
        }
    }

    /// Renames; `flags` as of `renameat2`.
    ///
    /// # Errors
    /// Those of `renameat2`, `ESTALE`, `EIO` without power.
    pub fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), flags: u32) -> Outcome<()> {
        let start_ns = Self::now();
        let _power = self.powered()?;
        let mut tree = lock(&self.tree);
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return Err(libc::EINVAL);
        }
        let moved = Self::child(&tree, from.0, from.1)?;
        let node = self.node(&tree, moved)?;
        let replaced = match Self::child(&tree, to.0, to.1) {
            Ok(number) => Some(number),
            Err(libc::ENOENT) => {
                Self::check_new(&tree, to.0, to.1)?;
                None
            }
            Err(error) => return Err(error),
        };
        if tree.is_within(to.0, moved) {
            return Err(libc::EINVAL);
        }
        match (flags, replaced) {
            (libc::RENAME_NOREPLACE, Some(_)) => return Err(libc::EEXIST),
            (libc::RENAME_EXCHANGE, None) => return Err(libc::ENOENT),
            (libc::RENAME_EXCHANGE, Some(other)) => {
                if tree.is_within(from.0, other) {
                    return Err(libc::EINVAL);
                }
                self.exchange(&mut tree, (from, moved), (to, other))?;
            }
            // Two names of one file: POSIX says that nothing happens.
            (_, Some(other)) if other == moved => return Ok(()),
            (_, other) => self.replace(&mut tree, (from, &node), to, other)?,
        }
        tree.tie(from.0, to.0);
        self.status_changed(&node);
        if node.kind == Kind::Directory {
            self.relabel_all(&tree);
        } else {
            self.relabel(&tree, moved);
        }
        self.accounts.name(node.id, &tree.path(moved));
        self.enter(&node, Deed::Rename, start_ns, (0, 0), Ok(()));
        self.bury(&mut tree);
        Ok(())
    }

    fn replace(
        &self,
        tree: &mut Tree,
        (from, node): ((u64, &OsStr), &Arc<Node>),
        to: (u64, &OsStr),
        other: Option<u64>,
    ) -> Outcome<()> {
        if let Some(number) = other {
            let replaced = self.node(tree, number)?;
            match (&node.kind, &replaced.kind) {
                (Kind::Directory, Kind::Directory) => Self::check_empty(tree, number)?,
                (Kind::Directory, _) => return Err(libc::ENOTDIR),
                (_, Kind::Directory) => return Err(libc::EISDIR),
                _ => {}
            }
            self.status_changed(&replaced);
            if self.metadata() == Metadata::Ext4 {
                node.state().flush_with_commit = true;
            }
        }
        // The new name first: something without any name would be given up.
        self.point(tree, to.0, to.1, Some(node.number()))?;
        let place = tree.slots.get(&node.number()).map(|slot| slot.place.clone());
        self.point(tree, from.0, from.1, None)?;
        if let (Some(place), Some(slot)) = (place, tree.slots.get_mut(&node.number())) {
            slot.place = place;
        }
        Ok(())
    }

    fn exchange(
        &self,
        tree: &mut Tree,
        (from, moved): ((u64, &OsStr), u64),
        (to, other): ((u64, &OsStr), u64),
    ) -> Outcome<()> {
        // Held while they have one name less.
        for number in [moved, other] {
            tree.slots.get_mut(&number).ok_or(libc::ESTALE)?.lookups += 1;
        }
        self.point(tree, to.0, to.1, Some(moved))?;
        self.point(tree, from.0, from.1, Some(other))?;
        for number in [moved, other] {
            tree.forget(number, 1);
        }
        let node = self.node(tree, other)?;
        self.status_changed(&node);
        self.relabel(tree, other);
        Ok(())
    }
}
