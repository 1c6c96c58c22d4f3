//! The figures of a probe. Serialised as JSON they are a contract with the lab: flat objects, the unit last in each name, MB = 10^6 bytes.

use serde::Serialize;

use crate::samples::Samples;

/// The version of the JSON's layout. It grows when a key changes its meaning or goes.
pub const VERSION: u32 = 1;

/// Everything that one probe found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `VERSION`.
    pub version: u32,
    /// Whether this was the short probe (about 3 s) and not the full one (about 15 s).
    pub short: bool,
    /// When the probe began, in milliseconds since 1970 (UTC).
    pub started_unix_ms: u64,
    /// The machine.
    pub host: Host,
    /// The file system that was probed; the first one where there are several.
    pub disk: Disk,
    /// All of them, in the order in which they were named.
    pub disks: Vec<Disk>,
    /// Loopback TCP.
    pub network: Network,
    /// One core.
    pub cpu: Cpu,
    /// How late a sleeping thread wakes up.
    pub wakeup_us: Wakeup,
    /// CLOCK_MONOTONIC.
    pub clock: Clock,
    /// Sentences for the reader: what was not permitted, what fell back, what to doubt.
    pub notes: Vec<String>,
}

/// The machine.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// The kernel's name for this host.
    pub hostname: String,
    /// Name and release of the kernel.
    pub kernel: String,
    /// The processor's model name, or its architecture where it has none.
    pub cpu_model: String,
    /// Cores that this process may use (affinity and cgroup quota considered).
    pub cores: u32,
    /// Physical memory.
    pub memory_bytes: u64,
}

/// The file system that was probed.
#[derive(Debug, Clone, Serialize)]
pub struct Disk {
    /// The directory, absolute.
    pub dir: String,
    /// Whether bandwidth was measured past the page cache. When false, `notes` says why.
    pub o_direct: bool,
    /// Sequential write of 1 MiB blocks, one after the other, with the final flush of the device counted in.
    pub write_mb_s: f64,
    /// How much that was.
    pub written_bytes: u64,
    /// Sequential read of the same blocks.
    pub read_mb_s: f64,
    /// 4 KiB appended and fdatasynced, one after the other: write and flush together.
    pub fsync_ms: FsyncMs,
    /// Such appends per second.
    pub fsync_per_s: f64,
    /// Their 99th percentile in ms, second by second; empty where it took less than two seconds.
    pub fsync_p99_ms_by_second: Vec<f64>,
}

/// Loopback TCP.
#[derive(Debug, Clone, Serialize)]
pub struct Network {
    /// One connection, one direction.
    pub loopback_mb_s: f64,
    /// 100 bytes there and back between two sleeping threads.
    pub round_trip_us: RoundTripUs,
}

/// One core, per second of CPU time.
#[derive(Debug, Clone, Serialize)]
pub struct Cpu {
    /// Bytes copied between two buffers of 64 MiB, that is from memory to memory.
    pub memcpy_mb_s: f64,
    /// Bytes checksummed (CRC-32C) in a buffer of 256 KiB, that is from the core's own cache.
    pub crc32c_mb_s: f64,
}

/// Overshoot of an absolute clock_nanosleep every 100 us with a timer slack of 1 ns.
#[derive(Debug, Clone, Serialize)]
pub struct Wakeup {
    /// With SCHED_FIFO; None where it is not permitted.
    pub fifo: Option<OvershootUs>,
    /// With the normal scheduling class.
    pub normal: OvershootUs,
}

/// CLOCK_MONOTONIC.
#[derive(Debug, Clone, Serialize)]
pub struct Clock {
    /// What the kernel says the resolution is.
    pub resolution_ns: u64,
    /// What one reading costs.
    pub read_ns: f64,
}

/// A distribution in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct FsyncMs {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
    /// How many were measured.
    pub count: u64,
}

impl FsyncMs {
    pub(crate) fn of(samples: &mut Samples) -> Self {
        let mut quantile = |quantile| rounded(samples.quantile_ns(quantile) as f64 / 1e6, 4);
        let [p50, p90, p99, p99_9, max] = [0.5, 0.9, 0.99, 0.999, 1.0].map(&mut quantile);
        FsyncMs {
            p50,
            p90,
            p99,
            p99_9,
            max,
            count: samples.count(),
        }
    }
}

/// A distribution in microseconds.
#[derive(Debug, Clone, Serialize)]
pub struct RoundTripUs {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// How many were measured.
    pub count: u64,
}

impl RoundTripUs {
    pub(crate) fn of(samples: &mut Samples) -> Self {
        let mut quantile = |quantile| rounded(samples.quantile_ns(quantile) as f64 / 1e3, 2);
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(&mut quantile);
        RoundTripUs {
            p50,
            p99,
            max,
            count: samples.count(),
        }
    }
}

/// A distribution in microseconds.
#[derive(Debug, Clone, Serialize)]
pub struct OvershootUs {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
    /// How many were measured.
    pub count: u64,
}

impl OvershootUs {
    pub(crate) fn of(samples: &mut Samples) -> Self {
        let mut quantile = |quantile| rounded(samples.quantile_ns(quantile) as f64 / 1e3, 2);
        let [p50, p99, p99_9, max] = [0.5, 0.99, 0.999, 1.0].map(&mut quantile);
        OvershootUs {
            p50,
            p99,
            p99_9,
            max,
            count: samples.count(),
        }
    }
}

/// A figure without digits that nobody measured.
pub(crate) fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}
