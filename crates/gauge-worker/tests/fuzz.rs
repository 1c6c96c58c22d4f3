//! The API under rubbish: mutated requests of every kind. Bounded, seeded, an ordinary test.
//!
//! `GAUGE_WORKER_FUZZ_SECONDS` makes it run longer, `GAUGE_WORKER_FUZZ_SEED` repeats a run.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Worker, trial};
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

const REQUESTS: [&str; 17] = [
    "GET /v1/info",
    "POST /v1/admin/create-topics",
    "POST /v1/admin/delete-topics",
    "POST /v1/admin/describe",
    "POST /v1/trials",
    "POST /v1/trials",
    "POST /v1/trials",
    "GET /v1/trials/current",
    "POST /v1/trials/current/start",
    "POST /v1/trials/current/rate",
    "POST /v1/trials/current/phases",
    "POST /v1/trials/current/stop",
    "GET /v1/trials/current/intervals?since=1&limit=7",
    "POST /v1/trials/current/subscriptions/s/pause",
    "POST /v1/judge",
    "POST /v1/trials/current/abort",
    "DELETE /v1/trials/current",
];

fn body(path: &str) -> Value {
    let system = trial()["system"].clone();
    match path.rsplit('/').next().unwrap_or("") {
        "create-topics" => {
            json!({"system": system, "topics": [{"name": "a", "partitions": 2}], "timeout_s": 1})
        }
        "delete-topics" | "describe" => json!({"system": system, "topics": ["a"], "timeout_s": 1}),
        "trials" => trial(),
        "start" => json!({"delay_ms": 10, "at_ns": 5}),
        "rate" => json!({"rate_msgs_s": 100.0}),
        "phases" => json!({"name": "more", "from_s": 1.0}),
        "stop" => json!({"at_s": 0.1}),
        "judge" => {
            json!({"books": [{"stamped": true, "untaken": 0, "publish_samples": 3, "service_samples": 3,
            "send_delay_samples": 3, "sent": [{"producer": 0, "sent": 3, "acked": 3, "failed": 0, "censored": 0, "unknown": [[1, 2]]}],
            "subscriptions": [{"name": "s", "gave_up": false, "received": 3, "corrupted": 0, "unexpected": 0, "duplicated": 0,
                "reordered": 0, "recorded": 3, "samples": 3, "sequences": [[0, "Y2AAAA=="]]}]}]})
        }
        _ => json!({}),
    }
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

/// Whole requests with damage: to the JSON, to the bytes, to the head.
fn request(random: &mut Random) -> Vec<u8> {
    let line = REQUESTS[random.below(REQUESTS.len())];
    let mut value = body(
        line.split(' ')
            .nth(1)
            .unwrap_or("")
            .split('?')
            .next()
            .unwrap_or(""),
    );
    for _ in 0..random.below(4) {
        twist(&mut value, random);
    }
    let mut bytes = value.to_string().into_bytes();
    if random.below(4) == 0 {
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
    }
    let length = bytes.len();
    let mut request =
        format!("{line} HTTP/1.1\r\nhost: w\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
            .into_bytes();
    if random.below(12) == 0 {
        let at = random.below(request.len());
        request[at] = random.next() as u8;
    }
    request.extend(bytes);
    request
}

#[test]
fn whatever_is_asked_it_answers_and_goes_on() {
    let seed = number("GAUGE_WORKER_FUZZ_SEED", 20_260_102).max(1);
    let until = Instant::now() + Duration::from_secs(number("GAUGE_WORKER_FUZZ_SECONDS", 5));
    let mut random = Random(seed);
    let worker = Worker::new();
    let mut turns = 0;
    while Instant::now() < until {
        let bytes = request(&mut random);
        let mut stream = TcpStream::connect(worker.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.write_all(&bytes);
        // A head that promises more than comes is ended by us, not by a time limit.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        assert!(
            ended.is_ok() || !answer.is_empty(),
            "turn {turns} of seed {seed}: {ended:?}"
        );
        assert!(
            !answer.starts_with(b"HTTP/1.1 500"),
            "turn {turns} of seed {seed}: {} -> {}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(3000)]),
            String::from_utf8_lossy(&answer)
        );
        turns += 1;
    }
    assert_eq!(worker.get("/v1/info")["api"], 1);
    assert!(turns > 50, "{turns}");
}
