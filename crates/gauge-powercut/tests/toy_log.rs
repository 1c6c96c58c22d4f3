//! A small log on the simulated disk, and the same with faults that real systems had: every fault is found by cuts of the kinds that
//! `streamgauge durability` makes, and the log without one is acquitted each time.
//!
//! It appends records of a number and a checksum to a segment, acknowledges when a sync that began after the write has ended, begins a new segment when one is full,
//! and reads all segments back after a cut.

#![allow(clippy::unwrap_used, reason = "a test ends when something is not as it says")]

use std::ffi::OsStr;

use gauge_powercut::accounts::Accounts;
use gauge_powercut::disk::{Change, Disk, Make, Metadata, Pending, Settings};
use gauge_powercut::node::Kind;
use gauge_powercut::rules::{Rule, Rules};
use gauge_powercut::survive::Survive;
use gauge_powercut::tree::ROOT;
use glob::Pattern;

const RECORD_BYTES: usize = 700;
const RECORDS_PER_SEGMENT: u64 = 9;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Acknowledges what was written before a sync ended, whenever that began.
    AnySync,
    /// Takes a sync that failed for one that did not.
    FailedSyncIgnored,
    /// Does not start when the last record is not whole.
    TornTailRefused,
    /// The name of a new segment is not made durable.
    DirectoryNotSynced,
}

fn record(number: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = number.to_le_bytes().into();
    bytes.extend((8..RECORD_BYTES - 8).map(|at| (at as u64 ^ number) as u8));
    let sum = bytes
        .iter()
        .fold(7u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    bytes.extend(sum.to_le_bytes());
    bytes
}

struct Log<'a> {
    disk: &'a Disk,
    fault: Fault,
    handle: u64,
    segment: u64,
    in_segment: u64,
    written: u64,
    acknowledged: u64,
    /// A sync that is under way, and how much was written when it began.
    running: Option<(Pending, u64)>,
    is_dead: bool,
}

/// Removes what is behind a place, durably: what is written behind a torn tail would not be found.
fn cut_off(disk: &Disk, number: u64, bytes: usize) {
    let size = Change {
        size: Some(bytes as u64),
        ..Change::default()
    };
    disk.change(number, size).unwrap();
    let handle = disk.open(number).unwrap();
    disk.finish_sync(&disk.begin_sync(handle, false).unwrap())
        .unwrap();
    disk.close(handle);
}

fn name(segment: u64) -> String {
    format!("{segment:04}.log")
}

impl<'a> Log<'a> {
    /// Opens it; the records that are there, or that it does not start.
    fn open(disk: &'a Disk, fault: Fault) -> Option<(Self, u64)> {
        let (mut found, mut segment) = (0, 0);
        while let Ok(attr) = disk.lookup(ROOT, OsStr::new(&name(segment))) {
            let handle = disk.open(attr.number).unwrap();
            let mut bytes = vec![0; attr.size as usize];
            disk.read(handle, &mut bytes, 0).unwrap();
            disk.close(handle);
            let whole = bytes.chunks(RECORD_BYTES).zip(found..);
            let whole = whole
                .take_while(|(bytes, number)| *bytes == record(*number))
                .count();
            found += whole as u64;
            segment += 1;
            if whole * RECORD_BYTES < bytes.len() {
                if fault == Fault::TornTailRefused {
                    return None;
                }
                cut_off(disk, attr.number, whole * RECORD_BYTES);
                break;
            }
        }
        let mut log = Log {
            disk,
            fault,
            handle: 0,
            segment,
            in_segment: 0,
            written: found,
            acknowledged: found,
            running: None,
            is_dead: false,
        };
        log.roll();
        Some((log, found))
    }

    fn sync(&mut self, handle: u64) {
        let done = self
            .disk
            .finish_sync(&self.disk.begin_sync(handle, false).unwrap());
        self.is_dead |= done.is_err() && self.fault != Fault::FailedSyncIgnored;
    }

    /// Begins a segment.
    fn roll(&mut self) {
        let make = Make {
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
        };
        let name = name(self.segment);
        let number = match self.disk.lookup(ROOT, OsStr::new(&name)) {
            Ok(left) => {
                cut_off(self.disk, left.number, 0);
                left.number
            }
            Err(_) => self.disk.make(ROOT, OsStr::new(&name), make).unwrap().number,
        };
        self.handle = self.disk.open(number).unwrap();
        if self.fault != Fault::DirectoryNotSynced {
            let root = self.disk.open(ROOT).unwrap();
            self.sync(root);
            self.disk.close(root);
        }
        (self.segment, self.in_segment) = (self.segment + 1, 0);
    }

    fn append(&mut self) {
        if self.in_segment == RECORDS_PER_SEGMENT {
            self.end_sync();
            let handle = self.handle;
            self.begin_sync();
            self.end_sync();
            self.disk.close(handle);
            self.roll();
        }
        let offset = self.in_segment * RECORD_BYTES as u64;
        self.disk
            .write(self.handle, offset, &record(self.written))
            .unwrap();
        (self.in_segment, self.written) = (self.in_segment + 1, self.written + 1);
    }

    fn begin_sync(&mut self) {
        if !self.is_dead && self.running.is_none() && self.written > self.acknowledged {
            let pending = self.disk.begin_sync(self.handle, true).unwrap();
            self.running = Some((pending, self.written));
        }
    }

    fn end_sync(&mut self) {
        let Some((pending, written)) = self.running.take() else {
            return;
        };
        match self.disk.finish_sync(&pending) {
            Err(_) if self.fault != Fault::FailedSyncIgnored => self.is_dead = true,
            _ if self.fault == Fault::AnySync => self.acknowledged = self.written,
            _ => self.acknowledged = written,
        }
    }
}

/// What a cut shows of the log: that nothing was lost, or what it did.
#[derive(Debug, PartialEq)]
enum Verdict {
    Kept,
    Lost,
    DidNotStart,
}

/// A load, a cut at a random moment of it, and what is there afterwards; three times.
fn history(fault: Fault, seed: u64) -> Verdict {
    let mut random = fastrand::Rng::with_seed(seed);
    let settings = Settings {
        state: None,
        metadata: if seed.is_multiple_of(2) {
            Metadata::Ordered
        } else {
            Metadata::Strict
        },
        write_back: None,
        commit: None,
        sync_through: false,
    };
    let accounts = Accounts::open(std::iter::empty(), None).unwrap();
    let disk = Disk::new(settings, Rules::default(), accounts, 0, 0).unwrap();
    for _ in 0..3 {
        let Some((mut log, found)) = Log::open(&disk, fault) else {
            return Verdict::DidNotStart;
        };
        let fails_at = random.usize(..60);
        for step in 0..random.usize(1..60) {
            if step == fails_at {
                disk.set_faults(vec![Rule {
                    glob: Pattern::new("*").unwrap(),
                    sync_delay: None,
                    sync_error: Some(libc::EIO),
                    sync_drops: true,
                    times: Some(std::sync::Arc::new(1.into())),
                    write_error: None,
                }]);
            }
            match random.u8(..4) {
                0 | 1 => log.append(),
                2 => log.begin_sync(),
                _ => log.end_sync(),
            }
            if log.is_dead {
                break;
            }
        }
        assert!(found <= log.acknowledged);
        let promised = log.acknowledged;
        let survive = match random.u8(..6) {
            0 => Survive::Nothing,
            1 => Survive::Everything,
            2 => Survive::Prefix { seed },
            3 => Survive::Torn { seed },
            4 => Survive::Random { keep: 0.5, seed },
            _ => Survive::Versions { keep: 0.5, seed },
        };
        disk.set_block_bytes(if random.bool() { 512 } else { 4096 });
        disk.cut(survive, random.bool()).unwrap();
        disk.power_on().unwrap();
        disk.set_faults(Vec::new());
        match Log::open(&disk, fault) {
            None => return Verdict::DidNotStart,
            Some((_, found)) if found < promised => return Verdict::Lost,
            Some(_) => {}
        }
    }
    Verdict::Kept
}

#[test]
fn a_log_without_a_fault_is_acquitted_each_time() {
    for seed in 0..2000 {
        assert_eq!(history(Fault::None, seed), Verdict::Kept, "seed {seed}");
    }
}

#[test]
fn each_fault_is_found_within_fifty_histories() {
    for (fault, verdict) in [
        (Fault::AnySync, Verdict::Lost),
        (Fault::FailedSyncIgnored, Verdict::Lost),
        (Fault::TornTailRefused, Verdict::DidNotStart),
        (Fault::DirectoryNotSynced, Verdict::Lost),
    ] {
        let found = (0..50).filter(|&seed| history(fault, seed) == verdict).count();
        assert!(found > 0, "{fault:?}");
        println!("{fault:?}: {found} of 50");
    }
}
