//! What histories have found, each as a case of its own: a history's number means another history as soon as the way of making them changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use gauge_log::commit::Commit;
use gauge_log::events::Events;
use gauge_log::maintain::Checkpoint;
use gauge_log::shared::Shared;
use gauge_log::start::assemble;
use gauge_log::storage::disk::Disk;
use gauge_log::storage::segment::Durability;
use gauge_powercut::disk::Metadata;

use crate::client::{self, Batch};
use crate::disk::Simulated;
use crate::history;
use crate::model;

fn begin(disk: &Simulated) -> Result<Shared, String> {
    disk.begin(None, None);
    let settings = history::settings(Durability::Fsync);
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

fn produce(shared: &Shared, payload_bytes: usize) {
    let batch = Batch {
        records: 1,
        producer: None,
        timestamp_ms: 1_700_000_000_000,
        payload: &vec![7; payload_bytes],
    };
    assert_eq!(client::produce(shared, "a", 0, &batch.bytes()).unwrap().error, 0);
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
    disk.corrupt(
        &disk
            .names()
            .into_iter()
            .find(|name| name.ends_with(".log"))
            .unwrap(),
        torn,
        &[0; 4096],
    );
    let shared = begin(&disk).unwrap();
    assert_eq!(shared.metrics.damaged.get(), 0);
    assert_eq!(shared.broker().journal.end(), torn);
    let seen = model::look(&shared).unwrap();
    assert!(seen.topics["a"].1[0].batches.is_empty());
}
