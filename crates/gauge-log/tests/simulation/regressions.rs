//! What histories have found, each as a case of its own: a history's number means another history as soon as the way of making them changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use gauge_log::commit::Commit;
use gauge_log::events::Events;
use gauge_log::maintain::Checkpoint;
use gauge_log::prepare::Preparation;
use gauge_log::settings::Settings;
use gauge_log::shared::Shared;
use gauge_log::start::assemble;
use gauge_log::storage::disk::Disk;
use gauge_log::storage::entry;
use gauge_log::storage::segment::Durability;
use gauge_powercut::disk::Metadata;

use crate::client::{self, Batch};
use crate::disk::Simulated;
use crate::history;
use crate::model;

fn begin(disk: &Simulated) -> Result<Shared, String> {
    disk.begin(None, None);
    begin_with(disk, history::settings(Durability::Fsync))
}

fn begin_with(disk: &Simulated, settings: Settings) -> Result<Shared, String> {
    let listen = settings.listen;
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    assemble(
        settings,
        disk,
        Events::open(None).unwrap(),
        listen,
        Instant::now(),
    )
}

fn commit(shared: &Shared) {
    let commit = Commit::begin(shared).unwrap();
    commit.unwrap().finish(shared, None).unwrap();
}

/// Produces a batch with that many zeroes in it; returns where its entry lies in the journal.
fn produce(shared: &Shared, zeroes: usize) -> (u64, u64) {
    let id = shared.broker().topics.get("a").unwrap().id;
    let mut payload = model::mark(&(id, 0), 1);
    payload.resize(payload.len() + zeroes, 0);
    let batch = Batch {
        records: 1,
        producer: None,
        timestamp_ms: 1_700_000_000_000,
        payload: &payload,
    };
    let bytes = batch.bytes();
    let answer = client::produce(shared, "a", 0, &bytes).unwrap();
    assert_eq!(answer.error, 0);
    let to = shared.broker().journal.end();
    (to - entry::footprint(bytes.len()) as u64, to)
}

fn first_segment(disk: &Simulated) -> String {
    let mut names = disk.names().into_iter();
    names.find(|name| name.ends_with(".log")).unwrap()
}

/// History fsync:23448 of the first way of making them: the padding between the last entry of a state and the next commit was taken for acknowledged data.
#[test]
fn a_commit_that_is_torn_right_behind_a_state_is_cut() {
    let disk = Simulated::new(Metadata::Strict);
    let shared = begin(&disk).unwrap();
    client::create(&shared, "a", 1, None).unwrap();
    commit(&shared);
    Checkpoint::begin(&shared).finish(&shared).unwrap();
    let torn = shared.committed.load(Ordering::Relaxed);
    for _ in 0..3 {
        produce(&shared, 5000);
    }
    commit(&shared);
    drop(shared);
    // The first block of the commit did not reach the device, and others did.
    disk.corrupt(&first_segment(&disk), torn, &[0; 4096]);
    let shared = begin(&disk).unwrap();
    assert_eq!(shared.metrics.damaged.get(), 0);
    assert_eq!(shared.broker().journal.end(), torn);
    let seen = model::look(&shared).unwrap();
    assert!(seen.topics["a"].1[0].batches.is_empty());
}

/// History fsync:64809: what was lost was the last entry of a chunk in a segment that is known from its index, and the zeroes in its place were taken for padding.
#[test]
fn the_lost_end_of_a_chunk_that_recovery_does_not_read_is_said_when_it_is_read() {
    let disk = Simulated::new(Metadata::Strict);
    let shared = begin(&disk).unwrap();
    client::create(&shared, "a", 1, None).unwrap();
    commit(&shared);
    let mut preparation = Preparation::begin(&shared).unwrap();
    while preparation.step(&shared).unwrap() {}
    shared.broker().journal.offer_segment(preparation.segment);
    let mut entries = Vec::new();
    while shared.broker().journal.segments.len() == 1 {
        entries.push(produce(&shared, 5000));
        entries.push(produce(&shared, 0));
    }
    commit(&shared);
    Checkpoint::begin(&shared).finish(&shared).unwrap();
    let chunk_end = shared.broker().journal.chunks[0].end;
    drop(shared);
    let (from, to) = entries.into_iter().rfind(|&(from, _)| from < chunk_end).unwrap();
    assert!(chunk_end - from < 4096, "zeroes there could be padding");
    disk.corrupt(&first_segment(&disk), from, &vec![0; (to - from) as usize]);
    let shared = begin(&disk).unwrap();
    assert_eq!(
        shared.metrics.damaged.get(),
        0,
        "the segment is known from its index"
    );
    for _again in 0..2 {
        model::look(&shared).unwrap();
        assert_eq!(shared.metrics.damaged.get(), 1);
        // Once is enough, however often it is read.
        let buffers: Vec<_> = std::iter::from_fn(|| shared.cache.take_buffer(false)).collect();
        for buffer in buffers {
            shared.cache.give_back(buffer);
        }
    }
}

/// A request that finds no memory is handled again later, as a whole: nothing of it may be there before.
#[test]
fn a_request_that_makes_topics_and_finds_no_memory_has_made_none() {
    let disk = Simulated::new(Metadata::Strict);
    disk.begin(None, None);
    let settings = Settings {
        auto_create_partitions: 1,
        ..history::settings(Durability::Fsync)
    };
    let shared = begin_with(&disk, settings).unwrap();
    let names: Vec<String> = (0..400).map(|number| format!("{number:0200}")).collect();
    client::create(&shared, "a", 1, None).unwrap();
    commit(&shared);
    // All of the memory but the last chunks waits to be written.
    while shared.broker().journal.pending_bytes() < 400_000 {
        produce(&shared, 5000);
    }
    assert!(client::metadata(&shared, &names).is_err());
    assert_eq!(shared.broker().topics.len(), 1);
    commit(&shared);
    let answer = client::metadata(&shared, &names).unwrap();
    assert_eq!(shared.broker().topics.len(), 401);
    assert_eq!(answer.position, shared.broker().journal.end());
}

/// A full disk refuses what is new, and everything that is there is served.
#[test]
fn a_full_disk_hinders_neither_a_start_nor_readers() {
    for durability in [Durability::Fsync, Durability::Async] {
        let disk = Simulated::new(Metadata::Strict);
        let settings = history::settings(durability);
        let shared = begin_with(&disk, settings.clone()).unwrap();
        client::create(&shared, "a", 1, None).unwrap();
        produce(&shared, 5000);
        commit(&shared);
        drop(shared);
        for _again in 0..2 {
            disk.begin(None, None);
            disk.fill();
            let shared = begin_with(&disk, settings.clone()).unwrap();
            assert_eq!(model::look(&shared).unwrap().topics["a"].1[0].batches.len(), 1);
            produce(&shared, 5000);
            let commit = Commit::begin(&shared).unwrap().unwrap();
            assert!(commit.finish(&shared, None).is_err());
            assert!(
                Commit::begin(&shared).is_err(),
                "nothing is acknowledged behind it"
            );
        }
    }
}
