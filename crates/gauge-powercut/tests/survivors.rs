//! What a cut may leave, what a sync promises, and where a disk stands still.

#![allow(clippy::unwrap_used, reason = "a test ends when something is not as it says")]

mod common;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use common::Scratch;
use gauge_powercut::accounts::{Accounts, Deed};
use gauge_powercut::disk::{Change, Disk, Make, Metadata, Settings};
use gauge_powercut::evidence::Lost;
use gauge_powercut::hold::Place;
use gauge_powercut::node::Kind;
use gauge_powercut::rules::{Rule, Rules};
use gauge_powercut::survive::Survive;
use gauge_powercut::tree::ROOT;
use glob::Pattern;

fn disk(metadata: Metadata, scratch: Option<&Scratch>) -> Disk {
    let settings = Settings {
        state: scratch.map(|scratch| scratch.path().to_owned()),
        metadata,
        write_back: None,
        commit: None,
        sync_through: false,
    };
    let accounts = Accounts::open(std::iter::empty(), None).unwrap();
    let disk = Disk::new(settings, Rules::default(), accounts, 0, 0).unwrap();
    disk.keep_evidence(1 << 20);
    disk
}

fn file(disk: &Disk, name: &str) -> (u64, u64) {
    let make = Make {
        kind: Kind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
    let number = disk.make(ROOT, OsStr::new(name), make).unwrap().number;
    (number, disk.open(number).unwrap())
}

fn sync(disk: &Disk, handle: u64) -> Result<(), i32> {
    disk.finish_sync(&disk.begin_sync(handle, false).unwrap())
}

fn sync_root(disk: &Disk) {
    let root = disk.open(ROOT).unwrap();
    sync(disk, root).unwrap();
    disk.close(root);
}

fn restart(disk: &Disk, survive: Survive) {
    disk.cut(survive, false).unwrap();
    disk.power_on().unwrap();
}

/// None when the file is not there.
fn read(disk: &Disk, name: &str) -> Option<Vec<u8>> {
    let number = disk.lookup(ROOT, OsStr::new(name)).ok()?.number;
    let handle = disk.open(number).unwrap();
    let mut bytes = vec![0; 1 << 16];
    let count = disk.read(handle, &mut bytes, 0).unwrap();
    bytes.truncate(count);
    disk.close(handle);
    Some(bytes)
}

#[test]
fn a_sync_makes_durable_what_was_there_when_it_began() {
    for scratch in [None, Some(Scratch::new())] {
        for metadata in [Metadata::Strict, Metadata::Ordered, Metadata::Ext4] {
            let disk = disk(metadata, scratch.as_ref());
            let (number, handle) = file(&disk, "a");
            sync_root(&disk);
            disk.write(handle, 0, b"old old").unwrap();
            let running = disk.begin_sync(handle, false).unwrap();
            disk.write(handle, 4, b"new and longer").unwrap();
            disk.finish_sync(&running).unwrap();
            assert_eq!(disk.unsynced().unsynced_bytes, 14);
            let mut now = [0; 18];
            disk.read(handle, &mut now, 0).unwrap();
            assert_eq!(&now, b"old new and longer");
            restart(&disk, Survive::Nothing);
            assert_eq!(read(&disk, "a").unwrap(), b"old old", "{metadata:?}");
            disk.unlink(ROOT, OsStr::new("a")).unwrap();
            sync_root(&disk);
            let _ = number;
        }
    }
}

#[test]
fn syncs_that_overlap_each_keep_their_own_beginning() {
    let disk = disk(Metadata::Ordered, None);
    let (_, handle) = file(&disk, "a");
    sync_root(&disk);
    disk.write(handle, 0, b"1").unwrap();
    let first = disk.begin_sync(handle, false).unwrap();
    disk.write(handle, 0, b"2").unwrap();
    let second = disk.begin_sync(handle, false).unwrap();
    disk.write(handle, 0, b"3").unwrap();
    disk.finish_sync(&second).unwrap();
    disk.finish_sync(&first).unwrap();
    restart(&disk, Survive::Nothing);
    assert_eq!(read(&disk, "a").unwrap(), b"2");
}

#[test]
fn a_name_that_is_made_while_a_sync_runs_is_not_durable_by_it() {
    for metadata in [Metadata::Strict, Metadata::Ordered] {
        let disk = disk(metadata, None);
        let (_, kept) = file(&disk, "kept");
        let root = disk.open(ROOT).unwrap();
        let running = disk.begin_sync(root, false).unwrap();
        file(&disk, "late");
        let rename = |from, to| {
            disk.rename((ROOT, OsStr::new(from)), (ROOT, OsStr::new(to)), 0)
                .unwrap()
        };
        rename("kept", "moved");
        disk.finish_sync(&running).unwrap();
        sync(&disk, kept).unwrap();
        if metadata == Metadata::Strict {
            restart(&disk, Survive::Nothing);
            assert!(read(&disk, "kept").is_some(), "{metadata:?}");
            assert!(read(&disk, "late").is_none() && read(&disk, "moved").is_none());
        } else {
            // The journal's next commit has them.
            restart(&disk, Survive::Nothing);
            assert!(read(&disk, "late").is_some() && read(&disk, "moved").is_some());
        }
    }
}

#[test]
fn a_truncation_while_a_sync_runs_cuts_off_what_it_cuts_off() {
    let disk = disk(Metadata::Ordered, None);
    let (number, handle) = file(&disk, "a");
    sync_root(&disk);
    disk.write(handle, 0, &[1; 6000]).unwrap();
    let running = disk.begin_sync(handle, false).unwrap();
    let size = |size| Change {
        size: Some(size),
        ..Change::default()
    };
    disk.change(number, size(100)).unwrap();
    disk.finish_sync(&running).unwrap();
    restart(&disk, Survive::Nothing);
    assert_eq!(read(&disk, "a").unwrap(), [1; 100]);
}

fn failing(drops: bool, times: Option<u64>) -> Rule {
    Rule {
        glob: Pattern::new("*").unwrap(),
        sync_delay: None,
        sync_error: Some(libc::EIO),
        sync_drops: drops,
        times: times.map(|times| Arc::new(AtomicU64::new(times))),
        write_error: None,
    }
}

#[test]
fn what_a_failed_sync_drops_is_read_until_the_power_goes_and_saved_by_no_sync() {
    for drops in [false, true] {
        let disk = disk(Metadata::Ordered, None);
        let (_, handle) = file(&disk, "a");
        disk.write(handle, 0, &[1; 4096]).unwrap();
        sync(&disk, handle).unwrap();
        disk.set_faults(vec![failing(drops, Some(1))]);
        sync(&disk, handle).unwrap();
        disk.write(handle, 4096, &[2; 4096]).unwrap();
        assert_eq!(sync(&disk, handle), Err(libc::EIO));
        sync(&disk, handle).unwrap();
        disk.write(handle, 8192, &[3; 4096]).unwrap();
        sync(&disk, handle).unwrap();
        let mut now = [0; 12288];
        disk.read(handle, &mut now, 0).unwrap();
        assert_eq!((now[0], now[5000], now[9000]), (1, 2, 3));
        restart(&disk, Survive::Everything);
        let found = read(&disk, "a").unwrap();
        let expected = if drops { 0 } else { 2 };
        assert_eq!(
            (found.len(), found[0], found[5000], found[9000]),
            (12288, 1, expected, 3)
        );
    }
}

#[test]
fn a_page_that_is_written_again_after_a_failed_sync_is_saved_whole() {
    let disk = disk(Metadata::Ordered, None);
    let (_, handle) = file(&disk, "a");
    disk.set_faults(vec![failing(true, Some(1))]);
    disk.write(handle, 0, &[1; 100]).unwrap();
    assert_eq!(sync(&disk, handle), Err(libc::EIO));
    disk.write(handle, 100, &[2; 100]).unwrap();
    sync(&disk, handle).unwrap();
    restart(&disk, Survive::Nothing);
    assert_eq!(read(&disk, "a").unwrap(), [[1; 100], [2; 100]].concat());
}

#[test]
fn a_prefix_goes_over_all_files_in_the_order_of_their_writes() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let disk = disk(Metadata::Ordered, None);
        let (_, a) = file(&disk, "a");
        let (_, b) = file(&disk, "b");
        sync_root(&disk);
        for turn in 0..3u8 {
            disk.write(a, u64::from(turn), &[turn + 1]).unwrap();
            disk.write(b, 0, &[turn + 1]).unwrap();
        }
        restart(&disk, Survive::Prefix { seed });
        let (a, b) = (read(&disk, "a").unwrap(), read(&disk, "b").unwrap());
        let newest = b.first().copied().unwrap_or(0);
        assert!(
            a.len() == usize::from(newest) || a.len() == usize::from(newest) + 1,
            "{a:?} {b:?}"
        );
        seen.insert((a.len(), newest));
    }
    assert_eq!(seen.len(), 7);
}

#[test]
fn a_block_may_be_left_as_it_was_between_two_writes_and_never_mixed() {
    for (scratch, block) in [(None, 512), (Some(Scratch::new()), 4096)] {
        let mut seen = BTreeSet::new();
        for seed in 0..60 {
            let disk = disk(Metadata::Ordered, scratch.as_ref());
            let name = format!("a{seed}");
            let (_, handle) = file(&disk, &name);
            disk.write(handle, 0, &[1; 8192]).unwrap();
            sync(&disk, handle).unwrap();
            for version in 2..5 {
                disk.write(handle, 0, &[version; 8192]).unwrap();
            }
            disk.set_block_bytes(block);
            restart(&disk, Survive::Versions { keep: 0.6, seed });
            let bytes = read(&disk, &name).unwrap();
            for block in bytes.chunks(block as usize) {
                assert!(block.iter().all(|&byte| byte == block[0]));
                seen.insert(block[0]);
            }
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}

#[test]
fn names_without_data_and_data_without_names() {
    let with = |survive, names| {
        let disk = disk(Metadata::Ordered, None);
        let (_, old) = file(&disk, "old");
        sync_root(&disk);
        disk.write(old, 0, b"data").unwrap();
        let (_, new) = file(&disk, "new");
        disk.write(new, 0, b"data").unwrap();
        disk.cut(survive, names).unwrap();
        disk.power_on().unwrap();
        (read(&disk, "old"), read(&disk, "new"))
    };
    let data = || Some(b"data".to_vec());
    assert_eq!(with(Survive::Nothing, true), (Some(Vec::new()), Some(Vec::new())));
    assert_eq!(with(Survive::Everything, false), (data(), None));
    assert_eq!(with(Survive::Everything, true), (data(), data()));
}

#[test]
fn a_cut_tells_which_file_lost_what_and_finds_the_bytes() {
    let disk = disk(Metadata::Strict, None);
    let (_, kept) = file(&disk, "kept.log");
    sync_root(&disk);
    let (_, nameless) = file(&disk, "nameless.log");
    disk.write(kept, 0, b"first needle").unwrap();
    sync(&disk, kept).unwrap();
    disk.write(kept, 12, b" second needle").unwrap();
    disk.write(nameless, 0, b"third needle").unwrap();
    sync(&disk, nameless).unwrap();
    let cut = disk.cut(Survive::Nothing, false).unwrap();
    let told: Vec<_> = cut
        .lost
        .iter()
        .map(|file| (file.path.as_str(), file.lost, file.dropped_bytes))
        .collect();
    assert_eq!(
        told,
        [("kept.log", Lost::Data, 14), ("nameless.log", Lost::Name, 0)]
    );
    assert!(cut.lost[0].deeds.written_ns > cut.lost[0].deeds.synced_ns);
    let found = |wanted: &[u8]| -> Vec<(String, u64)> {
        let wanted: Vec<Option<u8>> = wanted.iter().copied().map(Some).collect();
        let found = disk.evidence.find(&wanted);
        found.into_iter().map(|one| (one.file.path, one.offset)).collect()
    };
    assert_eq!(found(b"first"), []);
    assert_eq!(found(b"second"), [("kept.log".to_owned(), 13)]);
    assert_eq!(found(b"third"), [("nameless.log".to_owned(), 0)]);
}

#[test]
fn a_file_that_got_back_its_old_name_is_told_by_the_one_it_lost() {
    let disk = disk(Metadata::Strict, None);
    let (_, handle) = file(&disk, "spare");
    sync_root(&disk);
    disk.rename((ROOT, OsStr::new("spare")), (ROOT, OsStr::new("0.log")), 0)
        .unwrap();
    disk.write(handle, 0, b"needle").unwrap();
    sync(&disk, handle).unwrap();
    let cut = disk.cut(Survive::Nothing, false).unwrap();
    assert_eq!(
        (cut.lost[0].path.as_str(), cut.lost[0].lost),
        ("0.log", Lost::Name)
    );
    let wanted: Vec<Option<u8>> = b"needle".iter().copied().map(Some).collect();
    assert_eq!(disk.evidence.find(&wanted)[0].file.path, "0.log");
}

#[test]
fn a_disk_stands_still_at_the_operation_that_was_named() {
    let disk = disk(Metadata::Ordered, None);
    let (_, handle) = file(&disk, "a.tmp");
    let place = |glob: &str, deed, count| {
        let place = Place {
            glob: glob.to_owned(),
            deed,
            count,
        };
        disk.hold_at(place, Pattern::new(glob).unwrap());
    };
    place("*.tmp", Deed::Write, 3);
    file(&disk, "b");
    for turn in 0..3 {
        assert!(!disk.is_held(), "after {turn}");
        disk.write(handle, turn, b"x").unwrap();
    }
    assert!(disk.is_held());
    disk.release();
    place("*.log", Deed::Rename, 1);
    disk.rename((ROOT, OsStr::new("a.tmp")), (ROOT, OsStr::new("a.log")), 0)
        .unwrap();
    assert!(disk.is_held());
    assert_eq!(disk.held()["seen"], 1);
    disk.release();
    place("*.log", Deed::Sync, 1);
    let running = disk.begin_sync(handle, false).unwrap();
    assert!(disk.is_held());
    disk.cut(Survive::Nothing, false).unwrap();
    assert!(!disk.is_held());
    assert_eq!(disk.finish_sync(&running), Err(libc::EIO));
}

#[test]
fn the_model_of_metadata_changes_with_everything_durable() {
    let disk = disk(Metadata::Ordered, None);
    let (_, first) = file(&disk, "first");
    disk.write(first, 0, b"1").unwrap();
    disk.set_metadata(Metadata::Strict).unwrap();
    let (_, second) = file(&disk, "second");
    disk.write(second, 0, b"2").unwrap();
    sync(&disk, second).unwrap();
    restart(&disk, Survive::Nothing);
    assert_eq!(read(&disk, "first").unwrap(), b"1");
    assert_eq!(read(&disk, "second"), None);
}
