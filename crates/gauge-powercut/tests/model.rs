//! The disk without FUSE: thousands of random histories, cut at a random moment, against what was promised.
//!
//! Each file's bytes say which write they are from, so that after a cut every byte can be judged by itself: it is the durable
//! one, or the newest one where something may survive, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test ends when something is not as it says")]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;

use common::Scratch;
use gauge_powercut::accounts::Accounts;
use gauge_powercut::disk::{Change, Disk, Make, Metadata, Settings};
use gauge_powercut::node::Kind;
use gauge_powercut::rules::Rules;
use gauge_powercut::survive::Survive;

const ROOT: u64 = 1;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn disk(scratch: &Scratch, metadata: Metadata) -> Disk {
    let settings = Settings {
        state: Some(scratch.path().to_owned()),
        metadata,
        write_back: None,
        commit: None,
        sync_through: false,
    };
    let accounts = Accounts::open(std::iter::empty(), None).unwrap();
    Disk::new(settings, Rules::default(), accounts, 0, 0).unwrap()
}

/// What a file of the model holds: its bytes now, and its bytes as promised.
#[derive(Clone, Default, Debug, PartialEq)]
struct File {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// What truncations left of the durable bytes, for the next commit.
    committed_size: Option<(usize, usize)>,
    dirty: Vec<bool>,
    name_or_size_pending: bool,
    flush: bool,
    emptied: bool,
}

impl File {
    fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        self.now.resize(self.now.len().max(end), 0);
        self.now[offset..end].copy_from_slice(data);
        self.dirty.resize(self.dirty.len().max(end), false);
        self.dirty[offset..end].fill(true);
    }

    fn truncate(&mut self, size: usize) {
        let lowest = self.committed_size.map_or(usize::MAX, |(lowest, _)| lowest);
        let shrunk = if size < self.now.len() { size } else { usize::MAX };
        self.committed_size = Some((lowest.min(shrunk), size));
        self.now.resize(size, 0);
        self.dirty.truncate(size);
        self.name_or_size_pending = true;
        self.emptied |= size == 0;
    }

    fn sync(&mut self) {
        self.durable.clone_from(&self.now);
        self.dirty.clear();
        self.committed_size = None;
    }

    fn commit(&mut self) {
        self.name_or_size_pending = false;
        if std::mem::take(&mut self.flush) {
            return self.sync();
        }
        if let Some((lowest, set)) = self.committed_size.take() {
            self.durable.truncate(lowest);
            if set > self.durable.len() {
                self.durable.resize(set, 0);
            }
        }
    }
}

/// Files by number, and names, now and as promised.
#[derive(Default)]
struct Model {
    files: Vec<File>,
    now: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
}

impl Model {
    fn commit(&mut self) {
        self.durable.clone_from(&self.now);
        self.files.iter_mut().for_each(File::commit);
    }
}

fn make(kind: Kind) -> Make {
    Make {
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
    }
}

/// One random step on the disk and the model alike.
fn step(disk: &Disk, model: &mut Model, random: &mut fastrand::Rng, metadata: Metadata) {
    let name = NAMES[random.usize(..NAMES.len())];
    let os_name = OsStr::new(name);
    let journal = metadata != Metadata::Strict;
    let Some(&file) = model.now.get(name) else {
        if random.u8(..4) > 0 {
            disk.make(ROOT, os_name, make(Kind::File)).unwrap();
            model.files.push(File {
                name_or_size_pending: true,
                ..File::default()
            });
            model.now.insert(name.to_owned(), model.files.len() - 1);
        }
        return;
    };
    let number = disk.lookup(ROOT, os_name).unwrap().number;
    let handle = disk.open(number).unwrap();
    match random.u8(..20) {
        0..=5 => {
            let offset = if random.bool() {
                model.files[file].now.len()
            } else {
                random.usize(..4000)
            };
            let data = vec![random.u8(1..); random.usize(1..3000)];
            disk.write(handle, offset as u64, &data).unwrap();
            model.files[file].write(offset, &data);
        }
        6..=7 => {
            let size = if random.bool() { 0 } else { random.usize(..6000) };
            let change = Change {
                size: Some(size as u64),
                ..Change::default()
            };
            disk.change(number, change).unwrap();
            model.files[file].truncate(size);
        }
        8 => {
            let (offset, length) = (random.usize(..4000), random.usize(1..3000));
            let keep = libc::FALLOC_FL_KEEP_SIZE;
            disk.allocate(handle, keep, offset as u64, length as u64).unwrap();
            disk.allocate(
                handle,
                keep | libc::FALLOC_FL_PUNCH_HOLE,
                offset as u64,
                length as u64,
            )
            .unwrap();
            let until = (offset + length).min(model.files[file].now.len());
            if offset < until {
                model.files[file].write(offset, &vec![0; until - offset]);
            }
            model.files[file].name_or_size_pending = true;
        }
        9..=12 => {
            let data_only = random.bool();
            let pending = disk.begin_sync(handle, data_only).unwrap();
            disk.finish_sync(&pending).unwrap();
            let state = &mut model.files[file];
            let resized = state.now.len() != state.durable.len() || state.committed_size.is_some();
            let commits = journal && (!data_only || resized || state.name_or_size_pending);
            state.sync();
            if commits {
                model.commit();
            }
        }
        13..=15 => {
            let root = disk.open(ROOT).unwrap();
            let pending = disk.begin_sync(root, false).unwrap();
            disk.finish_sync(&pending).unwrap();
            disk.close(root);
            if journal {
                model.commit()
            } else {
                model.durable.clone_from(&model.now)
            }
        }
        16..=18 => {
            let to = NAMES[random.usize(..NAMES.len())];
            disk.rename((ROOT, os_name), (ROOT, OsStr::new(to)), 0).unwrap();
            if to != name {
                let file = model.now.remove(name).unwrap();
                let replaced = model.now.insert(to.to_owned(), file);
                model.files[file].name_or_size_pending = true;
                model.files[file].flush |= replaced.is_some() && metadata == Metadata::Ext4;
            }
        }
        _ => {
            disk.unlink(ROOT, os_name).unwrap();
            model.now.remove(name);
        }
    }
    disk.close(handle);
    let state = &mut model.files[file];
    if std::mem::take(&mut state.emptied) && metadata == Metadata::Ext4 {
        state.flush = true;
        state.name_or_size_pending = true;
    }
}

fn read(disk: &Disk, number: u64) -> Vec<u8> {
    let handle = disk.open(number).unwrap();
    let mut bytes = vec![0; 20_000];
    let count = disk.read(handle, &mut bytes, 0).unwrap();
    disk.close(handle);
    bytes.truncate(count);
    assert_eq!(disk.attr(number).unwrap().size, count as u64);
    bytes
}

fn names(disk: &Disk) -> BTreeMap<String, u64> {
    let list = disk.list(ROOT).unwrap();
    let list = list.into_iter().filter(|(_, _, kind)| *kind == Kind::File);
    list.map(|(name, number, _)| (name.into_string().unwrap(), number))
        .collect()
}

/// Runs one history; `judge` sees what is there after the cut.
fn history(seed: u64, metadata: Metadata, survive: Survive, judge: impl Fn(&Model, &str, &[u8])) {
    let scratch = Scratch::new();
    let disk = disk(&scratch, metadata);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = Model::default();
    for life in 0..3 {
        for _ in 0..random.usize(..25) {
            step(&disk, &mut model, &mut random, metadata);
        }
        for (name, number) in names(&disk) {
            assert_eq!(
                read(&disk, number),
                model.files[model.now[&name]].now,
                "seed {seed}, life {life}, {name} before the cut"
            );
        }
        disk.cut(survive, false).unwrap();
        assert_eq!(disk.list(ROOT).unwrap_err(), libc::EIO);
        disk.power_on().unwrap();
        let found = names(&disk);
        let expected: Vec<&String> = model.durable.keys().collect();
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            expected,
            "seed {seed}, life {life}: names"
        );
        for (name, number) in found {
            let bytes = read(&disk, number);
            judge(&model, &name, &bytes);
            // What is there now is durable.
            let file = &mut model.files[model.durable[&name]];
            *file = File {
                now: bytes.clone(),
                durable: bytes,
                ..File::default()
            };
        }
        model.now.clone_from(&model.durable);
        assert_eq!(disk.unsynced().unsynced_bytes, 0);
    }
}

const MODES: [Metadata; 3] = [Metadata::Strict, Metadata::Ordered, Metadata::Ext4];

#[test]
fn in_the_worst_case_exactly_what_was_synced_survives() {
    for seed in 0..3000 {
        let metadata = MODES[seed as usize % 3];
        history(seed, metadata, Survive::Nothing, |model, name, bytes| {
            let expected = &model.files[model.durable[name]].durable;
            assert_eq!(bytes, expected, "seed {seed}, {metadata:?}, {name}");
        });
    }
}

/// Every byte is the durable or the newest one; a byte that was synced and not written since is there.
fn judge_survivors(seed: u64, model: &Model, name: &str, bytes: &[u8]) {
    let file = &model.files[model.durable[name]];
    for (place, &byte) in bytes.iter().enumerate() {
        let durable = file.durable.get(place).copied().unwrap_or(0);
        let newest = file.now.get(place).copied().unwrap_or(0);
        assert!(
            byte == durable || byte == newest || byte == 0 && file.committed_size.is_some(),
            "seed {seed}, {name}, byte {place}"
        );
        let written = file.dirty.get(place).copied().unwrap_or(false);
        if !written && file.committed_size.is_none() {
            assert_eq!(byte, durable, "seed {seed}, {name}, byte {place} was not written");
        }
    }
    if file.committed_size.is_none() {
        assert!(bytes.len() >= file.durable.len(), "seed {seed}, {name} is short");
        assert!(
            bytes.len() <= file.now.len().max(file.durable.len()),
            "seed {seed}, {name} is long"
        );
    }
}

#[test]
fn what_survives_by_chance_is_the_newest_or_the_durable_content() {
    for seed in 0..2000 {
        let survive = if seed % 2 == 0 {
            Survive::Torn { seed }
        } else {
            Survive::Random { keep: 0.5, seed }
        };
        history(seed, MODES[seed as usize % 3], survive, |model, name, bytes| {
            judge_survivors(seed, model, name, bytes);
        });
    }
}

#[test]
fn a_sync_under_way_when_the_power_fails_does_not_count() {
    let scratch = Scratch::new();
    let disk = disk(&scratch, Metadata::Ordered);
    let file = disk.make(ROOT, OsStr::new("a"), make(Kind::File)).unwrap();
    let handle = disk.open(file.number).unwrap();
    let root = disk.open(ROOT).unwrap();
    disk.finish_sync(&disk.begin_sync(root, false).unwrap()).unwrap();
    disk.write(handle, 0, b"late").unwrap();
    let pending = disk.begin_sync(handle, false).unwrap();
    disk.cut(Survive::Nothing, false).unwrap();
    assert_eq!(disk.finish_sync(&pending), Err(libc::EIO));
    disk.power_on().unwrap();
    assert_eq!(disk.finish_sync(&pending), Err(libc::EIO));
    assert_eq!(disk.write(handle, 0, b"dead"), Err(libc::EIO));
    assert_eq!(disk.attr(file.number).map(drop), Err(libc::ESTALE));
    assert_eq!(
        read(&disk, disk.lookup(ROOT, OsStr::new("a")).unwrap().number),
        b""
    );
}

#[test]
fn a_directory_comes_back_with_all_that_is_below_it() {
    let scratch = Scratch::new();
    let disk = disk(&scratch, Metadata::Strict);
    let name = OsStr::new;
    let sync = |number: u64| {
        let handle = disk.open(number).unwrap();
        disk.finish_sync(&disk.begin_sync(handle, false).unwrap())
            .unwrap();
        disk.close(handle);
    };
    let one = disk
        .make(ROOT, name("one"), make(Kind::Directory))
        .unwrap()
        .number;
    let two = disk
        .make(ROOT, name("two"), make(Kind::Directory))
        .unwrap()
        .number;
    let inner = disk
        .make(one, name("inner"), make(Kind::Directory))
        .unwrap()
        .number;
    let file = disk.make(inner, name("file"), make(Kind::File)).unwrap().number;
    let handle = disk.open(file).unwrap();
    disk.write(handle, 0, b"kept").unwrap();
    disk.close(handle);
    [file, inner, one, ROOT].into_iter().for_each(sync);
    // Moved, and the target's directory synced: it is there once, and the old name is gone with it.
    disk.rename((one, name("inner")), (two, name("moved")), 0)
        .unwrap();
    sync(two);
    disk.unlink(inner, name("file")).unwrap();
    disk.remove_directory(two, name("moved")).unwrap();
    disk.cut(Survive::Nothing, false).unwrap();
    disk.power_on().unwrap();
    let one = disk.lookup(ROOT, name("one")).unwrap();
    let two = disk.lookup(ROOT, name("two")).unwrap();
    assert_eq!((one.links, two.links), (2, 3));
    assert_eq!(
        disk.lookup(one.number, name("inner")).map(drop),
        Err(libc::ENOENT)
    );
    let moved = disk.lookup(two.number, name("moved")).unwrap().number;
    assert_eq!(
        read(&disk, disk.lookup(moved, name("file")).unwrap().number),
        b"kept"
    );
}

#[test]
fn a_file_without_a_durable_name_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let disk = disk(&scratch, Metadata::Strict);
    let file = disk.make(ROOT, OsStr::new("a"), make(Kind::File)).unwrap().number;
    let handle = disk.open(file).unwrap();
    disk.write(handle, 0, &[1; 5000]).unwrap();
    disk.finish_sync(&disk.begin_sync(handle, false).unwrap())
        .unwrap();
    let cut = disk.cut(Survive::Nothing, false).unwrap();
    assert_eq!((cut.files_gone, cut.names_reverted), (1, 1));
    disk.power_on().unwrap();
    disk.dispose();
    assert_eq!(disk.space().0, 0);
    assert_eq!(
        std::fs::read_dir(scratch.path().join("files")).unwrap().count(),
        0
    );
}
