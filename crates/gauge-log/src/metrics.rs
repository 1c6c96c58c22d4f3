//! Counters, and their OpenMetrics text form.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::shared::Shared;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Adds to it, or subtracts.
    pub fn add(&self, count: i64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Record batches stored.
    pub batches: Counter,
    /// Records in them.
    pub records: Counter,
    /// Bytes of them.
    pub batch_bytes: Counter,
    /// Bytes of batches sent to consumers.
    pub fetched_bytes: Counter,
    /// Bytes written to the journal, headers and padding included.
    pub written_bytes: Counter,
    /// Commits: writes of everything pending.
    pub commits: Counter,
    /// Time that commits took, ns.
    pub commit_ns: Counter,
    /// Its square, commit by commit, us^2: over the time it is how long a commit takes that a message meets.
    pub commit_us_squared: Counter,
    /// Requests answered.
    pub requests: Counter,
    /// Connections closed because of a malformed or oversized request.
    pub malformed: Counter,
    /// Bytes read from disk for readers of the past.
    pub loaded_bytes: Counter,
    /// Damaged ranges met in the journal.
    pub damaged: Counter,
    /// Segments deleted by retention.
    pub segments_deleted: Counter,
    /// Times that a request waited for memory.
    pub memory_waits: Counter,
    /// Connections closed because their client did not read and memory was short.
    pub evicted: Counter,
    /// Attempts to log in that failed.
    pub failed_logins: Counter,
    /// Connections closed because their clients had not logged in when their time was over, or when others needed their place.
    pub strangers_closed: Counter,
    /// Connections open now.
    pub connections: Gauge,
}

/// Facts that are not counted but looked up when asked for.
#[derive(Debug, Default, Clone, Copy)]
pub struct Facts {
    /// Topics.
    pub topics: usize,
    /// Partitions.
    pub partitions: usize,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Bytes appended and not yet written.
    pub pending_bytes: usize,
    /// Bytes of chunks in memory.
    pub chunk_memory_bytes: usize,
    /// Bytes of incomplete requests.
    pub input_bytes: usize,
}

impl Metrics {
    /// The text of an OpenMetrics exposition (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).
    pub fn render(&self, facts: &Facts) -> String {
        let counters = [
            ("batches", "Record batches stored.", &self.batches),
            ("records", "Records stored.", &self.records),
            (
                "batch_bytes",
                "Bytes of record batches stored.",
                &self.batch_bytes,
            ),
            (
                "fetched_bytes",
                "Bytes of record batches sent to consumers.",
                &self.fetched_bytes,
            ),
            (
                "written_bytes",
                "Bytes written to the journal.",
                &self.written_bytes,
            ),
            ("commits", "Group commits.", &self.commits),
            ("requests", "Requests answered.", &self.requests),
            (
                "malformed_requests",
                "Connections closed for a malformed request.",
                &self.malformed,
            ),
            (
                "loaded_bytes",
                "Bytes read from disk for readers of the past.",
                &self.loaded_bytes,
            ),
            (
                "damaged_ranges",
                "Damaged ranges met in the journal.",
                &self.damaged,
            ),
            (
                "segments_deleted",
                "Segments deleted by retention.",
                &self.segments_deleted,
            ),
            (
                "memory_waits",
                "Times that a request waited for memory.",
                &self.memory_waits,
            ),
            (
                "evicted_connections",
                "Connections closed because their client did not read.",
                &self.evicted,
            ),
            (
                "failed_logins",
                "Attempts to log in that failed.",
                &self.failed_logins,
            ),
            (
                "strangers_closed",
                "Connections closed because their client had not logged in.",
                &self.strangers_closed,
            ),
        ];
        let gauges = [
            ("connections", "Connections open.", self.connections.get()),
            ("topics", "Topics.", facts.topics as i64),
            ("partitions", "Partitions.", facts.partitions as i64),
            (
                "journal_bytes",
                "Bytes of the journal on disk.",
                facts.journal_bytes as i64,
            ),
            (
                "pending_bytes",
                "Bytes appended and not yet written.",
                facts.pending_bytes as i64,
            ),
            (
                "chunk_memory_bytes",
                "Memory taken by chunks of the journal.",
                facts.chunk_memory_bytes as i64,
            ),
            (
                "input_bytes",
                "Memory taken by incomplete requests.",
                facts.input_bytes as i64,
            ),
        ];
        let mut text = String::new();
        for (name, help, counter) in counters {
            let value = counter.get();
            let _ = writeln!(
                text,
                "# TYPE gauge_log_{name} counter\n# HELP gauge_log_{name} {help}\ngauge_log_{name}_total {value}"
            );
        }
        let _ = writeln!(
            text,
            "# TYPE gauge_log_commit_seconds counter\n# UNIT gauge_log_commit_seconds seconds\n# HELP gauge_log_commit_seconds Time that commits took, from the first write to the acknowledgement.\ngauge_log_commit_seconds_total {}",
            self.commit_ns.get() as f64 / 1e9
        );
        let _ = writeln!(
            text,
            "# TYPE gauge_log_commit_seconds_squared counter\n# HELP gauge_log_commit_seconds_squared Sum of the squares of the times that commits took: over the sum of times it is how long a commit takes that a message meets.\ngauge_log_commit_seconds_squared_total {}",
            self.commit_us_squared.get() as f64 / 1e12
        );
        for (name, help, value) in gauges {
            let _ = writeln!(
                text,
                "# TYPE gauge_log_{name} gauge\n# HELP gauge_log_{name} {help}\ngauge_log_{name} {value}"
            );
        }
        text.push_str("# EOF\n");
        text
    }
}

/// Bytes of a scrape request that are read at most.
const REQUEST_BYTES_MAX: usize = 8192;
/// A scrape that takes longer is given up.
const SCRAPE_TIME: Duration = Duration::from_secs(2);

/// Serves the metrics over HTTP/1.1 at `address`: one scrape at a time, every path the same, until the log ends.
pub fn serve(shared: &Arc<Shared>, address: SocketAddr) -> Result<JoinHandle<()>, String> {
    let listener = TcpListener::bind(address).map_err(|error| {
        format!("cannot serve metrics on {address}: {error}; choose another address with --metrics HOST:PORT")
    })?;
    listener
        .set_nonblocking(true)
        .map_err(|error| format!("cannot serve metrics on {address}: {error}"))?;
    if let Ok(bound) = listener.local_addr() {
        shared
            .events
            .write("metrics", serde_json::json!({"address": bound.to_string()}));
    }
    let shared = Arc::clone(shared);
    let body = move || {
        while !shared.is_stopping() {
            match listener.accept() {
                // A scraper that goes away in the middle is no concern of the log.
                Ok((stream, _)) => drop(answer(&shared, stream)),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    };
    std::thread::Builder::new()
        .name("log-metrics".to_owned())
        .spawn(body)
        .map_err(|error| format!("cannot start a thread: {error}"))
}

/// Whether a request names another host than this machine: a page reaches an address on loopback by a name that its own name server
/// points there (DNS rebinding), and the name stands in Host.
fn is_foreign(head: &[u8]) -> bool {
    String::from_utf8_lossy(head)
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"))
        .any(|(_, host)| {
            let is_loopback = |text: &str| {
                text.parse::<SocketAddr>()
                    .is_ok_and(|address| address.ip().is_loopback())
            };
            let host = host.trim().to_ascii_lowercase();
            let is_local = host
                .strip_prefix("localhost")
                .is_some_and(|port| port.is_empty() || port.starts_with(':'));
            !is_local && !is_loopback(&host) && !is_loopback(&format!("{host}:80"))
        })
}

fn answer(shared: &Shared, mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    let until = Instant::now() + SCRAPE_TIME;
    stream.set_write_timeout(Some(SCRAPE_TIME))?;
    let mut request = [0u8; REQUEST_BYTES_MAX];
    let mut length = 0;
    while length < request.len() && !request[..length].windows(4).any(|window| window == b"\r\n\r\n") {
        // The time is that of the whole request: one byte now and then would hold up the next scrape for hours.
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut request[length..])? {
            0 => return Ok(()),
            count => length += count,
        }
    }
    if stream.local_addr()?.ip().is_loopback() && is_foreign(&request[..length]) {
        return stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let body = shared.metrics.render(&facts(shared));
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn facts(shared: &Shared) -> Facts {
    let broker = shared.broker();
    Facts {
        topics: broker.topics.len(),
        partitions: broker.topics.partition_count(),
        journal_bytes: broker.journal.end()
            - broker.journal.segments.front().map_or(0, |segment| segment.base),
        pending_bytes: broker.journal.pending_bytes(),
        chunk_memory_bytes: shared.cache.memory_bytes(),
        input_bytes: shared.input_bytes.load(Ordering::Relaxed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exposition_ends_with_eof_and_names_counters_with_total() {
        let metrics = Metrics::default();
        metrics.commits.add(3);
        let text = metrics.render(&Facts::default());
        assert!(text.contains("\ngauge_log_commits_total 3\n"));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_request_for_another_host_is_foreign() {
        let head = |host: &str| format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
        for host in [
            "localhost",
            "localhost:9",
            "127.0.0.1:9",
            "127.0.0.1",
            "[::1]:9",
            "[::1]",
        ] {
            assert!(!is_foreign(&head(host)), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9", "10.0.0.1:9", ""] {
            assert!(is_foreign(&head(host)), "{host}");
        }
        assert!(
            !is_foreign(b"GET / HTTP/1.0\r\n\r\n"),
            "no browser leaves Host out"
        );
    }
}
