//! What is on disk after a stop, a kill, and damage.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something unexpected happens"
)]

mod common;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use common::*;
use gauge_log::storage::segment::Durability;
use kafka_protocol::messages::ProduceRequest;

fn value(partition: i32, sequence: i64, bytes: usize) -> Bytes {
    let mut value = format!("{partition}:{sequence}:").into_bytes();
    let fill = (partition as u64).wrapping_mul(31).wrapping_add(sequence as u64) as u8;
    value.resize(bytes, fill);
    Bytes::from(value)
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory.join("data"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    paths.sort();
    paths
}

/// Bytes of a file up to the last one that is not zero.
fn used_bytes(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |at| at as u64 + 1)
}

/// Fills a log with `count` batches of `bytes` over 3 partitions, one after the other, and stops it.
fn fill(directory: &Path, durability: Durability, count: i64, bytes: usize) {
    let running = serve(settings(directory, durability));
    let mut client = Client::connect(running.address);
    client.create_topic("t", 3);
    for index in 0..count {
        let (partition, sequence) = ((index % 3) as i32, index / 3);
        assert_eq!(
            client.produce("t", partition, batch(&[value(partition, sequence, bytes)], None)),
            (0, sequence)
        );
    }
    stop(running);
}

#[test]
fn a_stopped_log_has_everything_when_it_starts_again() {
    for durability in [Durability::Fsync, Durability::Async] {
        let directory = Directory::new("restart");
        // More than two segments of 16 MiB, so that states and indexes are used.
        fill(&directory.0, durability, 150, 400_000);
        assert!(segments(&directory.0).len() > 2);
        let running = serve(settings(&directory.0, durability));
        let mut client = Client::connect(running.address);
        for partition in 0..3 {
            let found = client.read_all("t", partition, 0);
            let expected: Vec<_> = (0..50)
                .map(|sequence| (sequence, value(partition, sequence, 400_000)))
                .collect();
            assert!(found == expected, "{durability:?}: partition {partition} differs");
        }
        assert_eq!(client.produce("t", 0, batch(&[value(0, 50, 10)], None)), (0, 50));
        stop(running);
    }
}

#[test]
fn a_missing_index_or_a_damaged_state_costs_time_but_no_data() {
    let directory = Directory::new("shortcuts");
    fill(&directory.0, Durability::Async, 150, 400_000);
    let mut states = Vec::new();
    for entry in std::fs::read_dir(directory.0.join("data")).unwrap() {
        let path = entry.unwrap().path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("index") => std::fs::remove_file(path).unwrap(),
            Some("state") => states.push(path),
            _ => {}
        }
    }
    states.sort();
    std::fs::write(states.last().unwrap(), b"rubbish").unwrap();
    let running = serve(settings(&directory.0, Durability::Async));
    let mut client = Client::connect(running.address);
    assert!((0..3).all(|partition| client.read_all("t", partition, 0).len() == 50));
    stop(running);
}

#[test]
fn a_torn_tail_is_cut_and_the_log_goes_on_behind_it() {
    for seed in 1..12u64 {
        let mut random = Random(seed);
        let directory = Directory::new("torn");
        fill(&directory.0, Durability::Fsync, 30, 3000);
        let path = segments(&directory.0).pop().unwrap();
        let cut = used_bytes(&path) - 1 - random.below(20_000) as u64;
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(cut)
            .unwrap();
        let running = serve(settings(&directory.0, Durability::Fsync));
        let mut client = Client::connect(running.address);
        let mut total = 0;
        for partition in 0..3 {
            let found = client.read_all("t", partition, 0);
            for (index, (offset, found)) in found.iter().enumerate() {
                assert_eq!(*offset, index as i64);
                assert_eq!(*found, value(partition, *offset, 3000));
            }
            let next = found.len() as i64;
            total += next;
            assert_eq!(
                client.produce("t", partition, batch(&[value(partition, next, 3000)], None)),
                (0, next)
            );
        }
        assert!((20..30).contains(&total), "seed {seed}: {total} batches left");
        stop(running);
        // What was written behind the cut is there as well.
        let running = serve(settings(&directory.0, Durability::Fsync));
        let mut client = Client::connect(running.address);
        let again: usize = (0..3)
            .map(|partition| client.read_all("t", partition, 0).len())
            .sum();
        assert_eq!(again as i64, total + 3);
        assert!(
            !std::fs::read_to_string(directory.0.join("events"))
                .unwrap()
                .contains("\"damage\"")
        );
        stop(running);
    }
}

/// Flips one bit of the newest segment, at a random place behind `from`, which is returned.
fn flip(directory: &Path, random: &mut Random, from: u64) -> u64 {
    let path = segments(directory).pop().unwrap();
    let at = from + random.below((used_bytes(&path) - from) as usize) as u64;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut byte = [0u8];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    at
}

#[test]
fn a_flipped_byte_is_never_served_and_costs_only_its_own_batch() {
    let mut refused = 0;
    for seed in 1..16u64 {
        let mut random = Random(seed);
        let directory = Directory::new("flipped");
        fill(&directory.0, Durability::Fsync, 30, 3000);
        // Somewhere in the batches, which lie behind the entry that created the topic.
        flip(&directory.0, &mut random, 8192);
        let running = match gauge_log::start::start(settings(&directory.0, Durability::Fsync)) {
            Ok(running) => running,
            Err(message) => {
                // The last batch of a partition: the log cannot know how many offsets it had.
                assert!(message.contains("are damaged"), "seed {seed}: {message}");
                refused += 1;
                continue;
            }
        };
        let mut client = Client::connect(running.address);
        let mut total = 0;
        for partition in 0..3 {
            for (offset, found) in client.read_all("t", partition, 0) {
                assert_eq!(found, value(partition, offset, 3000), "seed {seed}");
                total += 1;
            }
        }
        assert!((29..=30).contains(&total), "seed {seed}: {total} batches left");
        stop(running);
    }
    assert!(
        refused < 6,
        "{refused} of 15 refused: only the last batches of partitions may be"
    );
}

#[test]
fn damage_in_the_last_commit_but_one_is_not_taken_for_a_torn_tail() {
    let mut random = Random(5);
    let directory = Directory::new("last-but-one");
    let running = serve(settings(&directory.0, Durability::Fsync));
    let mut client = Client::connect(running.address);
    client.create_topic("t", 1);
    assert_eq!(client.produce("t", 0, batch(&[value(0, 0, 3000)], None)), (0, 0));
    // Eight in flight: each commit takes what was appended while the one before it was written.
    for sequence in 1..9 {
        let request = produce_request("t", 0, batch(&[value(0, sequence, 3000)], None));
        client.send(&request, 9).unwrap();
    }
    for _ in 0..8 {
        client.receive::<ProduceRequest>(9).unwrap();
    }
    stop(running);
    let path = segments(&directory.0).pop().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    // Where entries lie that begin a commit: nothing but padding is between them and the commit before.
    let starts: Vec<usize> = (0..bytes.len() - 40)
        .step_by(4096)
        .filter(|&at| bytes[at..at + 4] == *b"SGL2" && bytes[at + 24..at + 26] == bytes[at + 30..at + 32])
        .collect();
    let [.., before, last] = starts[..] else {
        panic!("one commit only: {starts:?}");
    };
    assert!(last > before);
    let at = before + 200 + random.below(2000);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
    match gauge_log::start::start(settings(&directory.0, Durability::Fsync)) {
        Err(message) => assert!(message.contains("are damaged"), "{message}"),
        Ok(running) => {
            let events = std::fs::read_to_string(directory.0.join("events")).unwrap();
            assert!(events.contains("\"damage\""), "the damage is not reported");
            let found = Client::connect(running.address).read_all("t", 0, 0);
            assert_eq!(found.last().map(|(offset, _)| *offset), Some(8));
            stop(running);
        }
    }
}

#[test]
fn an_acknowledged_block_that_reads_as_zeroes_is_no_padding() {
    let directory = Directory::new("zeroes");
    // Each batch is a commit of its own, and takes one block.
    fill(&directory.0, Durability::Fsync, 30, 3900);
    let path = segments(&directory.0).pop().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let whole = (2..20)
        .find(|block| bytes[block * 4096..][..4] == *b"SGL2")
        .unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 4096], whole as u64 * 4096).unwrap();
    let running = serve(settings(&directory.0, Durability::Fsync));
    let events = std::fs::read_to_string(directory.0.join("events")).unwrap();
    assert!(events.contains("\"damage\""), "a block of zeroes went unnoticed");
    let mut client = Client::connect(running.address);
    let total: usize = (0..3)
        .map(|partition| client.read_all("t", partition, 0).len())
        .sum();
    assert_eq!(total, 29);
    stop(running);
}

#[test]
fn a_directory_of_an_earlier_version_is_refused_and_left_alone() {
    let directory = Directory::new("format-1");
    let data = directory.0.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let path = data.join("00000000000000000000.log");
    let mut old = b"SGL1".to_vec();
    old.resize(8192, 7);
    std::fs::write(&path, &old).unwrap();
    let message = gauge_log::start::start(settings(&directory.0, Durability::Fsync)).unwrap_err();
    assert!(
        message.contains("format 1") && message.contains("--data"),
        "{message}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), old);
}

#[test]
fn bytes_flipped_while_the_log_runs_are_not_served_from_disk() {
    let directory = Directory::new("rot");
    let mut with = settings(&directory.0, Durability::Fsync);
    with.memory_bytes = 96 << 20;
    let running = serve(with);
    let mut client = Client::connect(running.address);
    client.create_topic("t", 1);
    // More than fits into memory, so that the beginning has to come from disk.
    for sequence in 0..200 {
        assert_eq!(
            client
                .produce("t", 0, batch(&[value(0, sequence, 1_000_000)], None))
                .0,
            0
        );
    }
    let path = &segments(&directory.0)[0];
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    file.write_all_at(&[0xff; 16], 2_500_000).unwrap();
    file.sync_all().unwrap();
    let found = client.read_all("t", 0, 0);
    assert_eq!(found.len(), 199);
    assert!(
        found
            .iter()
            .all(|(offset, found)| *found == value(0, *offset, 1_000_000))
    );
    assert_eq!(running.shared.metrics.damaged.get(), 1);
    stop(running);
}

#[test]
fn acknowledged_data_that_is_missing_before_the_state_is_refused() {
    let directory = Directory::new("refused");
    fill(&directory.0, Durability::Async, 150, 400_000);
    let path = segments(&directory.0).pop().unwrap();
    std::fs::remove_file(path).unwrap();
    let message = gauge_log::start::start(settings(&directory.0, Durability::Async)).unwrap_err();
    assert!(message.contains("acknowledged data is missing"), "{message}");
}

// ---- kill -9 ----

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    log: gauge_log::cli::Args,
}

/// Not a test by itself: the process that the next test kills.
#[test]
fn killed_process() {
    let Ok(directory) = std::env::var("GAUGE_LOG_TEST_DIRECTORY") else {
        return;
    };
    let arguments = [
        "log",
        "--listen",
        "127.0.0.1:0",
        "--durability",
        "fsync",
        "--memory",
        "96",
        "--segment-mib",
        "16",
    ];
    let arguments = arguments.iter().map(ToString::to_string);
    let data = [
        "--data".to_owned(),
        format!("{directory}/data"),
        "--events".to_owned(),
        format!("{directory}/events"),
    ];
    let cli = Cli::parse_from(arguments.chain(data));
    let _ = gauge_log::cli::run(cli.log);
}

/// A log in a process of its own, killed without warning when dropped.
struct Killed {
    child: Child,
    address: SocketAddr,
}

impl Killed {
    fn start(directory: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_process", "--nocapture"])
            .env("GAUGE_LOG_TEST_DIRECTORY", directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.map_while(Result::ok).find_map(|line| {
            let at = line.find("ready ")?;
            line[at + 6..].trim().parse().ok()
        });
        Self {
            child,
            address: address.expect("the log says where it listens"),
        }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // On Unix this is SIGKILL.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What one producer knows: how many of its batches, numbered in order, were acknowledged, and how many it has sent.
#[derive(Clone, Copy, Default)]
struct Books {
    acknowledged: i64,
    sent: i64,
}

/// Sends numbered batches, several in flight, until the connection breaks.
fn produce_until_killed(mut client: Client, partition: i32, mut books: Books) -> Books {
    let mut in_flight = 0;
    loop {
        while in_flight < 8 {
            let size = 50 + (books.sent as usize * 7919) % 5000;
            let request = produce_request("t", partition, batch(&[value(partition, books.sent, size)], None));
            if client.send(&request, 9).is_err() {
                return books;
            }
            books.sent += 1;
            in_flight += 1;
        }
        let Ok(response) = client.receive::<ProduceRequest>(9) else {
            return books;
        };
        let outcome = &response.responses[0].partition_responses[0];
        assert_eq!((outcome.error_code, outcome.base_offset), (0, books.acknowledged));
        books.acknowledged += 1;
        in_flight -= 1;
    }
}

/// Everything acknowledged is there, unchanged and in order; what was sent but not acknowledged may be there, in order.
fn audit(address: SocketAddr, partition: i32, from: i64, books: Books) -> i64 {
    let found = Client::connect(address).read_all("t", partition, from);
    for (index, (offset, found)) in found.iter().enumerate() {
        assert_eq!(*offset, from + index as i64, "partition {partition}: a gap");
        let size = 50 + (*offset as usize * 7919) % 5000;
        assert_eq!(
            *found,
            value(partition, *offset, size),
            "partition {partition} offset {offset}"
        );
    }
    let end = from + found.len() as i64;
    assert!(
        end >= books.acknowledged,
        "partition {partition}: {} acknowledged, {end} there",
        books.acknowledged
    );
    assert!(end <= books.sent);
    end
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed_again_and_again() {
    const PARTITIONS: i32 = 3;
    let kills: u32 = std::env::var("GAUGE_LOG_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20);
    let directory = Directory::new("killed");
    let mut random = Random(20_260_101);
    let mut ends = [0i64; PARTITIONS as usize];
    let mut acknowledged = 0;
    let mut log = Killed::start(&directory.0);
    Client::connect(log.address).create_topic("t", PARTITIONS);
    for kill in 0..kills {
        let address = log.address;
        let producers: Vec<_> = (0..PARTITIONS)
            .map(|partition| {
                let end = ends[partition as usize];
                let books = Books {
                    acknowledged: end,
                    sent: end,
                };
                let client = Client::connect(address);
                std::thread::spawn(move || produce_until_killed(client, partition, books))
            })
            .collect();
        // Most lives end while the first segment is written, some after the log has moved on to one that it had filled with zeroes.
        let longest_us = if kill % 5 == 4 { 1_500_000 } else { 80_000 };
        std::thread::sleep(Duration::from_micros(random.below(longest_us) as u64));
        drop(log);
        let books: Vec<Books> = producers
            .into_iter()
            .map(|producer| producer.join().unwrap())
            .collect();
        let restarted = Instant::now();
        log = Killed::start(&directory.0);
        assert!(
            restarted.elapsed() < Duration::from_secs(20),
            "recovery took too long"
        );
        for partition in 0..PARTITIONS {
            let index = partition as usize;
            acknowledged += books[index].acknowledged - ends[index];
            // Every tenth time everything is read again.
            let from = if kill % 10 == 9 { 0 } else { ends[index] };
            ends[index] = audit(log.address, partition, from, books[index]);
        }
    }
    drop(log);
    println!("{kills} kills, {acknowledged} batches acknowledged, none lost");
    assert!(acknowledged > i64::from(kills));
    let events = std::fs::read_to_string(directory.0.join("events")).unwrap();
    assert!(!events.contains("\"damage\""), "a kill was taken for damage");
}
