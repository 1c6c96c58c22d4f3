//! What `make fuzz` calls (fuzz/README.md): requests to a running log, logins, and the files that a log finds when it begins.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gauge_load::fuzzing::Target;

use crate::access::Access;
use crate::access::exchange::Exchange;
use crate::access::users::Users;
use crate::api;
use crate::batch;
use crate::broker::checkpoint;
use crate::broker::groups::Groups;
use crate::broker::topics::ConnectionId;
use crate::events::Events;
use crate::recovery::recover;
use crate::settings::Settings;
use crate::start::{Running, start};
use crate::storage::chunk::CHUNK_BYTES;
use crate::storage::disk::{Directory, Disk};
use crate::storage::entry::{self, Counts, Header, Kind};
use crate::storage::segment::{Durability, file_name};

/// The targets of this crate.
pub fn targets() -> Vec<Target> {
    vec![
        ("log-requests", requests, request_seeds),
        ("log-login", login, login_seeds),
        ("log-batches", batches, batch_seeds),
        ("log-files", files, file_seeds),
    ]
}

/// Inputs after which the log begins anew in an empty directory: what it keeps adds up.
const INPUTS_PER_LOG: u32 = 500;
const USERS: &str = "u:a-password-of-some-length\n";

fn directory(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("gauge-log-fuzz-{}-{name}", std::process::id()))
}

fn settings(directory: &Path, access: Access) -> Settings {
    Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        access,
        advertise: None,
        data: directory.to_owned(),
        durability: Durability::Async,
        fault: None,
        memory_bytes: 96 << 20,
        segment_bytes: 4 << 20,
        chunk_bytes: CHUNK_BYTES,
        retention_bytes: Some(16 << 20),
        retention_age: None,
        limit_mb_s: None,
        commit_delay: std::time::Duration::ZERO,
        threads: 1,
        auto_create_partitions: 1,
        metrics: None,
        events: None,
    }
}

/// A log that is begun when it is needed, and how many inputs it has seen.
struct Log {
    running: Option<Running>,
    inputs: u32,
}

static LOG: Mutex<Log> = Mutex::new(Log {
    running: None,
    inputs: 0,
});

fn begin() -> Running {
    let directory = directory("log");
    // It may not be there.
    let _ = std::fs::remove_dir_all(&directory);
    let access = Access {
        users: Some(Arc::new(Users::parse(USERS).expect("the users are right"))),
        ..Access::default()
    };
    start(settings(&directory, access)).expect("a log begins in an empty directory")
}

fn with_log(run: impl FnOnce(&Running)) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.inputs += 1;
    if log.inputs.is_multiple_of(INPUTS_PER_LOG)
        && let Some(running) = log.running.take()
    {
        running.shared.stop();
        running.wait().expect("a log ends by itself for no request");
    }
    run(log.running.get_or_insert_with(begin));
}

const CONNECTION: ConnectionId = ConnectionId { thread: 0, number: 1 };

/// Frames, two bytes of length before each, of a client that has logged in.
fn requests(input: &[u8]) {
    with_log(|running| {
        each_frame(input, |frame| {
            let mended = mend_produced(frame);
            drop(api::handle(&running.shared, CONNECTION, &mended));
        });
        assert!(!running.shared.is_stopping(), "a request stopped the log");
    });
}

/// Makes the CRC of the first record batch in a frame right, or nothing behind the CRC would ever be reached.
fn mend_produced(frame: &[u8]) -> Vec<u8> {
    let mut mended = frame.to_vec();
    let is_produce = frame.starts_with(&[0, 0]);
    // Magic 2 behind a length and an epoch of 0; the length says where the batch ends.
    let found = frame.windows(5).position(|window| window == [0, 0, 0, 0, 2]);
    if let (true, Some(at)) = (is_produce, found.and_then(|at| at.checked_sub(12))) {
        mend_batch(&mut mended[at..]);
    }
    mended
}

fn mend_batch(batch: &mut [u8]) {
    let Some(length) = batch.get(8..12).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()) else {
        return;
    };
    let end = (u32::from_be_bytes(length) as usize)
        .saturating_add(12)
        .min(batch.len());
    if end >= batch::HEADER_BYTES {
        let crc = gauge_load::crc::crc32c(&batch[21..end]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
    }
}

fn each_frame(mut input: &[u8], mut each: impl FnMut(&[u8])) {
    while let Some((length, rest)) = input.split_first_chunk::<2>() {
        let (frame, rest) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
        each(frame);
        input = rest;
    }
}

fn framed(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut input = Vec::new();
    for frame in frames {
        input.extend((frame.len() as u16).to_be_bytes());
        input.extend(frame);
    }
    input
}

/// A request of each API in its oldest and newest version: a header, and fields that are mostly empty.
fn request_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for offered in api::APIS {
        for version in [offered.min, offered.max] {
            let mut frame = [offered.key.to_be_bytes(), version.to_be_bytes()].concat();
            frame.extend([0, 0, 0, 1, 0, 1, b'c']);
            frame.extend([0; 48]);
            seeds.push(framed(&[frame]));
        }
    }
    // Produce, version 3: no transaction, all acks, a second; one topic, one partition, one batch.
    let records = batch::for_test(2, 16, (-1, -1, -1));
    let mut produce = vec![
        0, 0, 0, 3, 0, 0, 0, 2, 0, 1, b'c', 255, 255, 255, 255, 0, 0, 3, 232,
    ];
    produce.extend([0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0]);
    produce.extend((records.len() as u32).to_be_bytes());
    produce.extend(records);
    // Metadata, version 1, of a topic: it is made by that.
    let metadata = vec![0, 3, 0, 1, 0, 0, 0, 1, 0, 1, b'c', 0, 0, 0, 1, 0, 1, b't'];
    seeds.push(framed(&[metadata, produce]));
    seeds
}

/// Frames of a client that has not logged in.
fn login(input: &[u8]) {
    with_log(|running| {
        let mut exchange = Exchange::default();
        each_frame(input, |frame| {
            drop(api::handle_stranger(
                &running.shared,
                CONNECTION,
                &mut exchange,
                frame,
            ));
        });
    });
}

fn login_seeds() -> Vec<Vec<u8>> {
    let request = |key: u8, version: u8, body: &[u8]| {
        [&[0, key, 0, version, 0, 0, 0, 1, 0, 1, b'c'][..], body].concat()
    };
    let message = |text: &[u8]| [&(text.len() as u32).to_be_bytes()[..], text].concat();
    let named = |name: &[u8]| [&(name.len() as u16).to_be_bytes()[..], name].concat();
    let scram = b"n,,n=u,r=rOprNGfwEbeRWgbNEkqO";
    let last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    vec![
        framed(&[
            request(17, 1, &named(b"SCRAM-SHA-256")),
            request(36, 1, &message(scram)),
            request(36, 1, &message(last)),
        ]),
        framed(&[
            request(17, 1, &named(b"PLAIN")),
            request(36, 0, &message(b"\0u\0p")),
        ]),
        framed(&[
            request(17, 0, &named(b"SCRAM-SHA-512")),
            scram.to_vec(),
            last.to_vec(),
        ]),
    ]
}

fn batches(input: &[u8]) {
    let mut batch = input.to_vec();
    mend_batch(&mut batch);
    if batch::check(&batch).is_ok() {
        batch::place(&mut batch, 7);
        assert!(batch::crc_matches(&batch), "placing leaves the CRC right");
    }
}

fn batch_seeds() -> Vec<Vec<u8>> {
    vec![
        batch::for_test(1, 8, (-1, -1, -1)),
        batch::for_test(3, 40, (-1, -1, -1)),
    ]
}

/// A directory as another log, or a disk, left it: a state, an index, and a segment. Sizes come first, two bytes each.
fn files(input: &[u8]) {
    let Some((sizes, rest)) = input.split_first_chunk::<4>() else {
        return;
    };
    let size = |at: usize| usize::from(u16::from_be_bytes([sizes[at], sizes[at + 1]]));
    let (state, rest) = rest.split_at(size(0).min(rest.len()));
    let (index, journal) = rest.split_at(size(2).min(rest.len()));
    // Also as they stand: what `recover` reads has the checksum of whoever wrote it.
    let _ = (checkpoint::decode_state(state), checkpoint::decode_index(index));
    let directory = directory("files");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("a directory is made");
    let mut journal = journal.to_vec();
    entry::mend(&mut journal, 0);
    let written = [
        ("log", 0, journal),
        ("state", 0, checkpoint::file_of(state, true)),
        ("index", 0, checkpoint::file_of(index, false)),
    ];
    for (extension, base, bytes) in written {
        if !bytes.is_empty() {
            std::fs::write(directory.join(file_name(base, extension)), bytes).expect("a file is written");
        }
    }
    if state.first().is_some_and(|first| first % 2 == 1) {
        // A second segment, so that the index of the first is used.
        std::fs::write(directory.join(file_name(4096, "log")), b"").expect("a file is written");
    }
    let events = Events::open(None).expect("no file is opened");
    // A directory that cannot be used is refused; that it is never wrong is tests/recovery.rs's.
    let disk: Arc<dyn Disk> = Arc::new(Directory(directory.clone()));
    let _ = recover(
        &settings(&directory, Access::default()),
        &disk,
        Groups::new("fuzz".to_owned()),
        &events,
    );
}

fn file_seeds() -> Vec<Vec<u8>> {
    let mut journal = Vec::new();
    let mut counts = Counts::default();
    for (number, kind) in [(0u64, Kind::Batch), (1, Kind::Batch), (2, Kind::Change)] {
        let payload = batch::for_test(1 + number as i32, 16, (-1, -1, -1));
        let header = Header {
            position: journal.len() as u64,
            partition: 1,
            payload_bytes: payload.len() as u32,
            group_bytes: 0,
            kind,
            chunk_start: number == 0,
            synced: true,
            gap_bytes: 0,
            counts,
        };
        counts = counts.after(kind, &payload);
        let from = journal.len();
        journal.extend(entry::encode(&header, &payload));
        journal.extend(&payload);
        journal.resize(from + entry::footprint(payload.len()), 0);
    }
    let sized = |state: &[u8], index: &[u8]| {
        let mut input = (state.len() as u16).to_be_bytes().to_vec();
        input.extend((index.len() as u16).to_be_bytes());
        [&input[..], state, index, &journal].concat()
    };
    let index = [
        &[0, 0, 0, 1][..],
        &[0; 24],
        &[0, 0, 0, 1, 0, 0, 0, 0, 1],
        &[0; 16],
    ]
    .concat();
    vec![
        sized(&[], &[]),
        sized(&[0; 24], &[]),
        sized(&[&[1][..], &[0; 23]].concat(), &index),
    ]
}
