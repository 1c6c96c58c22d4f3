//! A worker inside the test's process, and a small HTTP client for it.

#![allow(dead_code, reason = "each test program uses a part of what the tests share")]
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

pub mod fake;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use fake::{Fake, System};

/// How long anything may take that should happen at once.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Worker {
    pub address: SocketAddr,
    pub system: Arc<System>,
}

impl Worker {
    pub fn new() -> Worker {
        Worker::behind(gauge_worker::Access::open())
    }

    pub fn behind(access: gauge_worker::Access) -> Worker {
        Worker::speaking(gauge_worker::Language::Own, access)
    }

    pub fn speaking(language: gauge_worker::Language, access: gauge_worker::Access) -> Worker {
        let system = Arc::new(System::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let app = gauge_worker::App::new(vec![Arc::new(Fake(Arc::clone(&system)))]);
        std::thread::spawn(move || gauge_worker::serve(listener, &app, access, language).unwrap());
        Worker { address, system }
    }

    pub fn raw(&self, method: &str, path: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        // A body that is too long is refused before it was read.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no answer to {method} {path}: {answer:?}"));
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    pub fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.raw(method, path, body.to_string().as_bytes());
        let value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{method} {path} answered no JSON: {error}: {text}"));
        (status, value)
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, value) = self.call("GET", path, &json!({}));
        assert_eq!(status, 200, "GET {path}: {value}");
        value
    }

    pub fn post(&self, path: &str, body: Value) -> Value {
        let (status, value) = self.call("POST", path, &body);
        assert!(status == 200 || status == 201, "POST {path}: {status} {value}");
        value
    }

    /// The error of a request that must fail: its status and its `error` object.
    pub fn refused(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, value) = self.call(method, path, body);
        assert!(
            (400..600).contains(&status),
            "{method} {path} was answered with {status} {value}"
        );
        assert!(
            value["error"]["code"].is_string() && value["error"]["message"].is_string(),
            "{value}"
        );
        (status, value["error"].clone())
    }

    pub fn wait_for(&self, state: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self.get("/v1/trials/current");
            if status["state"] == state {
                return status;
            }
            assert!(Instant::now() < until, "not {state}: {status}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Creates a trial, waits until it is ready, starts it.
    pub fn begin(&self, trial: &Value) -> Value {
        let (status, value) = self.call("POST", "/v1/trials", trial);
        assert_eq!(status, 201, "{value}");
        self.wait_for("ready");
        self.post("/v1/trials/current/start", json!({"delay_ms": 20}))
    }

    pub fn elapsed_s(&self) -> f64 {
        self.get("/v1/trials/current")["elapsed_s"].as_f64().unwrap()
    }

    pub fn sleep_until_s(&self, elapsed_s: f64) {
        let left_s = elapsed_s - self.elapsed_s();
        std::thread::sleep(Duration::from_secs_f64(left_s.max(0.0)));
    }

    pub fn finish(&self) -> Value {
        self.post(
            "/v1/trials/current/finish",
            json!({"drain_s": 10.0, "quiet_s": 2.0}),
        )
    }

    /// All intervals, read in pieces.
    pub fn intervals(&self) -> Vec<Value> {
        let mut all = Vec::new();
        let mut next = 0;
        loop {
            let page = self.get(&format!("/v1/trials/current/intervals?since={next}&limit=3"));
            let list = page["intervals"].as_array().unwrap();
            if list.is_empty() {
                assert_eq!(page["next"], next);
                return all;
            }
            all.extend(list.iter().cloned());
            next = page["next"].as_u64().unwrap();
        }
    }
}

/// A trial that runs as fast as tests should.
pub fn trial() -> Value {
    json!({
        "run": 7, "seed": 42,
        "system": {"protocol": "fake", "bootstrap": ["127.0.0.1:9092"]},
        "topics": [{"name": "t", "partitions": 4}],
        "producers": [{"id": 0, "topic": "t"}],
        "subscriptions": [{"name": "s"}],
        "schedule": {"arrival": "uniform", "rate_msgs_s": 5000.0, "stop_s": 0.8},
        "phases": [{"name": "warm-up", "from_s": 0.0}, {"name": "measure", "from_s": 0.3}],
        "payload": {"size_bytes": 100},
        // Tests run side by side: real-time lanes of a dozen trials would starve each other.
        "lanes": {"realtime": "off"},
        "interval_ms": 100,
    })
}

/// Adds up a distribution over the intervals.
pub fn distribution(
    intervals: &[Value],
    metric: &str,
    phase: Option<&str>,
    subscription: Option<&str>,
) -> Histogram<u64> {
    let mut sum = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
    let latencies = intervals
        .iter()
        .flat_map(|interval| interval["latencies"].as_array().unwrap());
    for latency in latencies {
        let is_wanted = latency["metric"] == metric
            && phase.is_none_or(|phase| latency["phase"] == phase)
            && latency["subscription"].as_str() == subscription;
        if is_wanted {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(latency["histogram"].as_str().unwrap())
                .unwrap();
            let histogram: Histogram<u64> = hdrhistogram::serialization::Deserializer::new()
                .deserialize(&mut bytes.as_slice())
                .unwrap();
            let outside = latency["overflow"].as_u64().unwrap() + latency["negative"].as_u64().unwrap();
            assert_eq!(histogram.len() + outside, latency["count"].as_u64().unwrap());
            sum.add(&histogram).unwrap();
        }
    }
    sum
}

/// Samples above a value.
pub fn above(histogram: &Histogram<u64>, value_ns: u64) -> u64 {
    histogram.len() - histogram.count_between(0, value_ns)
}

/// The sum of a counter over the intervals.
pub fn sum(intervals: &[Value], counter: &str) -> u64 {
    intervals
        .iter()
        .map(|interval| interval[counter].as_u64().unwrap())
        .sum()
}

/// Asserts that as many messages waited for longer than `over_s` as a stall implies: no fewer than were due in the part of it that is
/// known (`lasted_s`), and no more than the longest wait of the same run explains, which a busy machine may have made longer.
#[allow(dead_code, reason = "each test program uses what it needs of it")]
pub fn assert_waited(publish: &Histogram<u64>, rate_msgs_s: f64, lasted_s: f64, over_s: f64) {
    let found = above(publish, (over_s * 1e9) as u64) as f64;
    let least = (lasted_s - over_s) * rate_msgs_s;
    let longest_s = publish.max() as f64 / 1e9;
    let most = (longest_s - over_s) * rate_msgs_s;
    assert!(
        longest_s >= lasted_s,
        "the longest wait was {longest_s} s of {lasted_s} s"
    );
    // The tolerance is the interval in which a producer looks whether the system goes on.
    assert!(
        found > 0.95 * least - 50.0 && found < 1.1 * most + 100.0,
        "above {over_s} s: {found}, expected {least} to {most}"
    );
}
