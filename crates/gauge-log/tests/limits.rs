//! One frame must not hang or kill the log, whatever it asks for.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something unexpected happens"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
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

/// Bytes of memory that this process has taken at most.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}

#[test]
fn a_frame_that_asks_for_very_much_is_cut_off_and_others_are_served() {
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
        ("one topic less often", frame((3, 5), &[], &topic, &[0], 400_000)),
        ("one group", frame((15, 2), &[], &topic, &[], usize::MAX)),
        (
            "one topic's offsets",
            frame((9, 5), &topic, &[0, 1, b't', 0, 0, 0, 0], &[], usize::MAX),
        ),
    ];
    // What the process takes for everything that it is: chunks, these frames.
    let before = peak_bytes();
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
