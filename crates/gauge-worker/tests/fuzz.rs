//! Both APIs under damaged requests over real connections, with lanes at work behind them: all routes, as the fuzz targets know them
//! (`gauge_worker::fuzzing`), damaged in the JSON, the bytes and the head. Bounded, seeded, an ordinary test.
//!
//! `GAUGE_WORKER_FUZZ_SECONDS` makes it run longer, `GAUGE_WORKER_FUZZ_SEED` repeats a run.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::Worker;
use gauge_worker::{Access, Language};
use serde_json::{Value, json};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Marsaglia's xorshift64: a sequence that a seed repeats (Journal of Statistical Software 8 (14), 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// The requests of a target's inputs: `METHOD PATH`, and the body.
fn requests(target: &str) -> Vec<(String, String)> {
    let targets = gauge_worker::fuzzing::targets();
    let (_, _, seeds) = targets.iter().find(|(name, ..)| *name == target).unwrap();
    let texts: Vec<String> = seeds()
        .into_iter()
        .map(|seed| String::from_utf8(seed).unwrap())
        .collect();
    let pieces = texts.iter().flat_map(|text| text.split("\n---\n"));
    pieces
        .filter_map(|piece| piece.split_once('\n'))
        .filter(|(line, _)| !line.ends_with("/shutdown"))
        .map(|(line, body)| (line.to_owned(), body.replace("\"kafka\"", "\"fake\"")))
        .collect()
}

/// A value that somebody might not have thought of.
fn odd(random: &mut Random) -> Value {
    let numbers = [-1.0, 0.0, 1e-9, 1.5, 4294967296.0, 1e18, 1e308];
    match random.below(9) {
        0 => json!(null),
        1 => json!(numbers[random.below(numbers.len())]),
        2 => json!(u64::MAX),
        3 => json!(i64::MIN),
        4 => json!("\u{0}\u{fffd}' or 1=1"),
        5 => json!("x".repeat(random.below(70_000))),
        6 => json!([[], {}, [1, 2, 3]]),
        7 => json!({"a": {"b": []}}),
        _ => json!(random.below(2) == 0),
    }
}

/// Changes one place somewhere in the tree.
fn twist(value: &mut Value, random: &mut Random) {
    let inner: Vec<&mut Value> = match value {
        Value::Array(list) => list.iter_mut().collect(),
        Value::Object(map) => map.values_mut().collect(),
        _ => Vec::new(),
    };
    let count = inner.len();
    match inner.into_iter().nth(random.below(count + 1)) {
        Some(child) if random.below(8) > 0 => twist(child, random),
        Some(child) => *child = odd(random),
        None if count == 0 => *value = odd(random),
        None => match value {
            Value::Array(list) => list.push(list[0].clone()),
            Value::Object(map) => {
                let key = map.keys().nth(random.below(count)).cloned().unwrap_or_default();
                map.remove(&key);
            }
            _ => {}
        },
    }
}

/// A request with damage: to the JSON, to the bytes, to the head.
fn damaged(random: &mut Random, (line, body): &(String, String)) -> Vec<u8> {
    let mut bytes = match serde_json::from_str::<Value>(body) {
        Ok(mut value) => {
            (0..random.below(4)).for_each(|_| twist(&mut value, random));
            value.to_string().into_bytes()
        }
        Err(_) => body.clone().into_bytes(),
    };
    if random.below(4) == 0 {
        for _ in 0..=random.below(3).min(bytes.len()) {
            let at = random.below(bytes.len());
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.next() as u8;
            }
        }
    }
    let length = bytes.len();
    let mut request = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    )
    .into_bytes();
    if random.below(12) == 0 {
        let at = random.below(request.len());
        request[at] = random.next() as u8;
    }
    request.extend(bytes);
    request
}

/// Asks until the time is over; how often.
fn bother(worker: &Worker, target: &str, seconds: u64) -> usize {
    let seed = number("GAUGE_WORKER_FUZZ_SEED", 20_260_102).max(1);
    let mut random = Random(seed);
    let requests = requests(target);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut turns = 0;
    while Instant::now() < until {
        let chosen = random.below(requests.len());
        let bytes = damaged(&mut random, &requests[chosen]);
        let mut stream = TcpStream::connect(worker.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.write_all(&bytes);
        // A head that promises more than comes is ended by us, not by a time limit.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            ended.is_ok() || !answer.is_empty(),
            "turn {turns} of seed {seed}: {ended:?}"
        );
        // A system that fails is answered with 500 by OMB's protocol; a fault of ours says so.
        assert!(
            !answer.contains("a fault of the worker"),
            "turn {turns} of seed {seed}: {} -> {answer}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(3000)]),
        );
        turns += 1;
    }
    turns
}

#[test]
fn whatever_is_asked_it_answers_and_goes_on() {
    let seconds = number("GAUGE_WORKER_FUZZ_SECONDS", 4);
    let worker = Worker::new();
    let turns = bother(&worker, "worker-routes", seconds);
    assert_eq!(worker.get("/v1/info")["api"], 1);
    assert!(turns > 50, "{turns}");
    let omb = Worker::speaking(Language::Omb, Access::open());
    let turns = bother(&omb, "omb-routes", seconds);
    assert_eq!(omb.get("/counters-stats")["messagesSent"], 0);
    assert!(turns > 50, "{turns}");
}
