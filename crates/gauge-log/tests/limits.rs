//! One frame must not hang or kill the log, whatever it asks for.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something unexpected happens"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::*;
use gauge_log::storage::segment::Durability;
use kafka_protocol::messages::*;

/// The head of a request in a version without flexible fields, and then one element again and again behind their number: as often as the largest frame holds it, and as
/// `count_max` allows.
fn frame(
    (key, version): (i16, i16),
    before: &[u8],
    element: &[u8],
    behind: &[u8],
    count_max: usize,
) -> Vec<u8> {
    let mut body = [key.to_be_bytes(), version.to_be_bytes()].concat();
    body.extend([0, 0, 0, 1, 255, 255]);
    body.extend(before);
    let count = ((16 << 20) - body.len() - behind.len() - 4) / element.len();
    let count = count.min(count_max);
    body.extend((count as i32).to_be_bytes());
    body.extend(element.repeat(count));
    body.extend(behind);
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

/// Memory is the whole process's: one test after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// Bytes of memory that this process has taken at most since `forget_peak`.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}

/// Sends one frame and waits until the log answers or closes; the bytes of the answer.
fn ask(address: std::net::SocketAddr, frame: &[u8]) -> usize {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let _ = stream.write_all(frame);
    let mut length = [0u8; 4];
    match stream.read_exact(&mut length) {
        Ok(()) => u32::from_be_bytes(length) as usize,
        Err(_) => 0,
    }
}

/// Begins to look for the peak anew; returns what is taken now.
fn forget_peak() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak_bytes()
}

#[test]
fn a_topic_with_the_same_setting_again_and_again_does_not_end_the_log() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = Directory::new("settings");
    let running = serve(settings(&directory.0, Durability::Async));
    let setting = [&[0, 12][..], b"retention.ms", &[0, 1, b'1']].concat();
    let topic = [0, 0, 0, 1, 0, 1, b'k', 0, 0, 0, 1, 0, 1, 0, 0, 0, 0];
    let create = frame((19, 2), &topic, &setting, &[0, 0, 0, 9, 0], 400_000);
    ask(running.address, &create);
    Client::connect(running.address).create_topic("t", 1);
    stop(running);
}

#[test]
fn what_fetches_leave_behind_is_bounded() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = Directory::new("parked");
    let running = serve(settings(&directory.0, Durability::Async));
    Client::connect(running.address).create_topic("t", 1);
    // Fetch 4: for a minute, at least one byte; partition 0 from offset 0, again and again.
    let head = [
        &[255, 255, 255, 255, 0, 0, 234, 96, 0, 0, 0, 1, 0, 16, 0, 0, 0][..],
        &[0, 0, 0, 1, 0, 1, b't'],
    ]
    .concat();
    let partition = [&[0; 4][..], &[0; 8], &[0, 1, 0, 0]].concat();
    let waiting = frame((1, 4), &head, &partition, &[], 300_000);
    // Fetch 7, which begins a session, of topics that are not there and have long names.
    let head = [
        &[255, 255, 255, 255, 0, 0, 234, 96, 0, 0, 0, 1, 0, 16, 0, 0, 0][..],
        &[0; 8],
    ]
    .concat();
    let mut long = [
        &30_000i16.to_be_bytes()[..],
        &[b'x'; 30_000],
        &[0, 0, 0, 1],
        &[0; 4 + 8 + 8],
        &[0, 1, 0, 0],
    ]
    .concat();
    let mut names = Vec::new();
    for number in 0..400u16 {
        long[2..4].copy_from_slice(&[b'a' + (number / 20) as u8, b'a' + (number % 20) as u8]);
        names.extend_from_slice(&long);
    }
    let beginning = frame(
        (1, 7),
        &[&head[..], &400i32.to_be_bytes(), &names].concat(),
        &[0],
        &[],
        0,
    );
    let before = forget_peak();
    let mut held = Vec::new();
    for _ in 0..25 {
        let mut stream = TcpStream::connect(running.address).unwrap();
        stream.write_all(&waiting).unwrap();
        held.push(stream);
        let mut client = Client::connect(running.address);
        client.stream.write_all(&beginning).unwrap();
        client.read_frame().unwrap();
        held.push(client.stream);
    }
    let mut other = Client::connect(running.address);
    other.call(&MetadataRequest::default().with_topics(Some(Vec::new())), 9);
    std::thread::sleep(Duration::from_secs(2));
    other.call(&MetadataRequest::default().with_topics(Some(Vec::new())), 9);
    let taken = peak_bytes().saturating_sub(before);
    // Most of it are this test's own frames, and answers that nobody reads until their connection is closed: up to 312 MB were seen.
    assert!(taken < 400 << 20, "50 fetches took {} MB", taken >> 20);
    stop(running);
}

#[test]
fn a_frame_that_asks_for_very_much_is_cut_off_and_others_are_served() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = Directory::new("limits");
    let running = serve(settings(&directory.0, Durability::Async));
    Client::connect(running.address).create_topic("t", 500);
    let topic = [0, 1, b't'];
    let unnamed = [4, 0, 0, 255, 255, 255, 255];
    let frames = [
        // Produce: topics without partitions.
        (
            "empty topics",
            frame(
                (0, 7),
                &[255, 255, 0, 1, 0, 0, 0, 9],
                &[0, 0, 0, 0, 0, 0],
                &[],
                usize::MAX,
            ),
        ),
        // DescribeConfigs: the broker, again and again.
        (
            "unnamed resources",
            frame((32, 1), &[], &unnamed, &[0], usize::MAX),
        ),
        (
            "fewer unnamed resources",
            frame((32, 1), &[], &unnamed, &[0], 400_000),
        ),
        // Metadata, DescribeGroups, OffsetFetch: the same name.
        ("one topic", frame((3, 5), &[], &topic, &[0], usize::MAX)),
        (
            "unnamed resources, few enough to be names",
            frame((32, 1), &[], &unnamed, &[0], 10_000),
        ),
        ("one topic less often", frame((3, 5), &[], &topic, &[0], 400_000)),
        (
            "one topic, few enough to be names",
            frame((3, 5), &[], &topic, &[0], 10_000),
        ),
        (
            "changes of one topic",
            frame((33, 0), &[], &[2, 0, 1, b't', 0, 0, 0, 0], &[0], 400_000),
        ),
        ("one group less often", frame((15, 2), &[], &topic, &[], 400_000)),
        ("one group", frame((15, 2), &[], &topic, &[], usize::MAX)),
        (
            "one topic's offsets",
            frame((9, 5), &topic, &[0, 1, b't', 0, 0, 0, 0], &[], usize::MAX),
        ),
    ];
    // What the process takes for everything that it is: chunks, these frames.
    let before = forget_peak();
    for (what, frame) in frames {
        let mut asking = TcpStream::connect(running.address).unwrap();
        asking.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut other = Client::connect(running.address);
        let asked = std::thread::spawn(move || {
            // It may be closed before everything was sent.
            let _ = asking.write_all(&frame);
            let mut answer = Vec::new();
            let _ = asking.read_to_end(&mut answer);
            answer.len()
        });
        let mut slowest = Duration::ZERO;
        while !asked.is_finished() {
            let begun = Instant::now();
            other.call(&MetadataRequest::default().with_topics(Some(Vec::new())), 9);
            slowest = slowest.max(begun.elapsed());
        }
        assert_eq!(asked.join().unwrap(), 0, "{what} were answered");
        assert!(
            slowest < Duration::from_secs(2),
            "{what} kept another client for {slowest:?}"
        );
    }
    let taken = peak_bytes().saturating_sub(before);
    assert!(taken < 300 << 20, "frames of 16 MiB took {} MB", taken >> 20);
    stop(running);
}
