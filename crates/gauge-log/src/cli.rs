//! The command `gauge log`.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use crate::access::Access;
use crate::access::certificate;
use crate::access::users::{self, Users};
use crate::settings::{Fault, MEMORY_BYTES_MIN, Settings};
use crate::start::{self, Running};
use crate::storage::chunk::CHUNK_BYTES;
use crate::storage::segment::Durability;

/// Exit status: the input was wrong.
const EXIT_INPUT: u8 = 2;
/// Exit status: the log could not start or had to stop.
const EXIT_FAILED: u8 = 3;

/// What an acknowledgement promises.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum DurabilityArgument {
    /// The data is on the device.
    Fsync,
    /// The data is in the page cache.
    Async,
}

/// What the log does wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FaultArgument {
    /// Acknowledges before the data is written and synced.
    EarlyAck,
    /// Acknowledges at the end of a sync what arrived while it ran.
    AckAtAnySync,
    /// Takes a write or sync that failed for one that did not.
    IgnoreFailedSync,
    /// Does not start when the journal ends in a torn commit.
    RefuseTornTail,
    /// Does not make names durable.
    ForgetDirectorySync,
}

impl From<FaultArgument> for Fault {
    fn from(argument: FaultArgument) -> Fault {
        match argument {
            FaultArgument::EarlyAck => Fault::EarlyAck,
            FaultArgument::AckAtAnySync => Fault::AckAtAnySync,
            FaultArgument::IgnoreFailedSync => Fault::IgnoreFailedSync,
            FaultArgument::RefuseTornTail => Fault::RefuseTornTail,
            FaultArgument::ForgetDirectorySync => Fault::ForgetDirectorySync,
        }
    }
}

/// Runs the reference log: a single-node server that speaks Kafka's protocol.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen; port 0 takes any free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    listen: String,
    /// The host name or address that clients are told (default: the listening address).
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// PEM file with a certificate (chain) for the host that clients are told: connections are encrypted (TLS 1.2 and 1.3).
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// File with a line NAME:PASSWORD (or what --make-user prints) for each user, readable by its owner only: clients have to log in (SCRAM-SHA-256,
    /// SCRAM-SHA-512, with --certificate also PLAIN).
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    /// Ask for a password on standard input, print lines for the file of --users that recognise it without showing it, and end.
    #[arg(long, value_name = "NAME", exclusive = true)]
    make_user: Option<String>,
    /// Where the journal is; created if it is not there.
    #[arg(long, value_name = "DIR", default_value = "gauge-log-data")]
    data: PathBuf,
    /// What an acknowledgement promises.
    #[arg(long, value_enum, default_value_t = DurabilityArgument::Async)]
    durability: DurabilityArgument,
    /// Memory for recent data, for old data that is being read, and for requests, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    memory: u64,
    /// Size of one journal file, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    segment_mib: u64,
    /// Delete the oldest files while the journal is larger than this, MiB (default: keep everything).
    #[arg(long, value_name = "MIB")]
    retention_mib: Option<u64>,
    /// Delete files whose newest data is older than this, seconds (default: keep everything).
    #[arg(long, value_name = "SECONDS")]
    retention_s: Option<u64>,
    /// Accept at most this many MB (10^6 bytes) of batches per second.
    #[arg(long, value_name = "MB")]
    limit_mb_s: Option<f64>,
    /// Every commit takes this much longer, microseconds, as on a slower device.
    #[arg(long, value_name = "US", default_value_t = 0)]
    commit_delay_us: u64,
    /// Network threads (default: half of the cores).
    #[arg(long, value_name = "N")]
    threads: Option<u16>,
    /// Partitions of a topic that is created because a client asks for it; 0: topics are only created explicitly.
    #[arg(long, value_name = "N", default_value_t = 1)]
    auto_create_partitions: u32,
    /// Serve OpenMetrics text over HTTP here.
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Append events to this file, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Allow addresses that other machines can reach without --certificate and --users: anyone who reaches the port can then read and write everything.
    #[arg(long)]
    insecure: bool,
    /// Break a promise on purpose, for tests of what is to find that out.
    #[arg(long, value_enum, hide = true)]
    fault: Option<FaultArgument>,
}

/// Runs the log until it is told to stop (SIGTERM, SIGINT).
pub fn run(args: Args) -> ExitCode {
    if let Some(name) = &args.make_user {
        return match users::make_user(name) {
            Ok(lines) => match std::io::stdout().write_all(lines.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => complain(EXIT_FAILED, &format!("the lines could not be printed: {error}")),
            },
            Err(message) => complain(EXIT_INPUT, &message),
        };
    }
    let settings = match settings(args) {
        Ok(settings) => settings,
        Err(message) => return complain(EXIT_INPUT, &message),
    };
    // Threads inherit the mask, so that signals only arrive where they are waited for.
    let signals = block_signals();
    let running = match start::start(settings) {
        Ok(running) => running,
        Err(message) => return complain(EXIT_FAILED, &message),
    };
    announce(&running);
    stop_on_signal(signals, &running);
    match running.wait() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => complain(EXIT_FAILED, &message),
    }
}

fn complain(status: u8, message: &str) -> ExitCode {
    eprintln!("gauge log: {message}");
    ExitCode::from(status)
}

fn announce(running: &Running) {
    let mut out = std::io::stdout();
    // Nobody may be reading; the log runs all the same.
    let _ = writeln!(out, "ready {}", running.address).and_then(|()| out.flush());
    let durability = running.shared.settings.durability.name();
    let address = running.address.to_string();
    let security = running.shared.settings.access.security_protocol();
    running.shared.events.write(
        "ready",
        serde_json::json!({"address": address, "durability": durability, "security_protocol": security}),
    );
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: the set is initialised by `sigemptyset` before it is used; all calls are plain system calls on it.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, libc::SIGTERM);
        libc::sigaddset(&mut signals, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
        signals
    }
}

fn stop_on_signal(signals: libc::sigset_t, running: &Running) {
    let shared = std::sync::Arc::clone(&running.shared);
    std::thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: both arguments live during the call.
        unsafe { libc::sigwait(&signals, &mut signal) };
        shared.stop();
    });
}

fn resolve(option: &str, text: &str) -> Result<SocketAddr, String> {
    let expected = format!("{option} {text}: expected HOST:PORT, for instance 127.0.0.1:9092");
    let mut addresses = text
        .to_socket_addrs()
        .map_err(|error| format!("{expected} ({error})"))?;
    addresses.next().ok_or(expected)
}

fn is_loopback(address: &SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}

/// Refuses an address that other machines can reach while something is missing that would protect it.
fn check_reach(option: &str, address: &SocketAddr, insecure: bool, missing: &str) -> Result<(), String> {
    if is_loopback(address) || insecure || missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{option} {address} can be reached from other machines: {missing}, use a loopback address (127.0.0.1), \
         or add --insecure if the network is yours alone"
    ))
}

fn access(args: &Args) -> Result<Access, String> {
    let tls = match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => Some(certificate::read(certificate, key)?),
        _ => None,
    };
    let users = args.users.as_deref().map(Users::read).transpose()?;
    Ok(Access {
        tls,
        users: users.map(Arc::new),
    })
}

fn missing_protection(access: &Access) -> &'static str {
    match (&access.tls, &access.users) {
        (None, None) => {
            "encrypt connections with --certificate FILE and --key FILE and let clients log in with --users FILE"
        }
        (None, Some(_)) => "encrypt connections with --certificate FILE and --key FILE",
        (Some(_), None) => "let clients log in with --users FILE",
        (Some(_), Some(_)) => "",
    }
}

fn settings(args: Args) -> Result<Settings, String> {
    let listen = resolve("--listen", &args.listen)?;
    let access = access(&args)?;
    check_reach("--listen", &listen, args.insecure, missing_protection(&access))?;
    if listen.ip().is_unspecified() && args.advertise.is_none() {
        return Err(format!(
            "--listen {listen} stands for every address; say which one clients should use with --advertise HOST"
        ));
    }
    let metrics = args
        .metrics
        .as_deref()
        .map(|text| resolve("--metrics", text))
        .transpose()?;
    if let Some(metrics) = &metrics {
        // Metrics are served as they are to whoever asks, whatever protects the log.
        let missing = "its metrics are shown to anyone";
        check_reach("--metrics", metrics, args.insecure, missing)?;
    }
    let in_range = |option: &str, value: u64, min: u64, max: u64| {
        if (min..=max).contains(&value) {
            Ok(value)
        } else {
            Err(format!("{option} {value}: expected a number from {min} to {max}"))
        }
    };
    let memory_mib = in_range("--memory", args.memory, MEMORY_BYTES_MIN >> 20, 1 << 20)?;
    let segment_mib = in_range("--segment-mib", args.segment_mib, 16, 16 << 10)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let threads = in_range(
        "--threads",
        args.threads.map_or((cores / 2).max(1), u64::from),
        1,
        256,
    )?;
    in_range(
        "--auto-create-partitions",
        u64::from(args.auto_create_partitions),
        0,
        10_000,
    )?;
    if args
        .limit_mb_s
        .is_some_and(|limit| !(limit.is_finite() && limit > 0.0))
    {
        return Err("--limit-mb-s: expected a number above 0".to_owned());
    }
    let commit_delay_us = in_range("--commit-delay-us", args.commit_delay_us, 0, 10_000_000)?;
    let retention_mib = args
        .retention_mib
        .map(|mib| in_range("--retention-mib", mib, 1, 1 << 40))
        .transpose()?;
    let retention_s = args
        .retention_s
        .map(|s| in_range("--retention-s", s, 1, 1 << 32))
        .transpose()?;
    Ok(Settings {
        listen,
        access,
        advertise: args.advertise,
        data: args.data,
        durability: match args.durability {
            DurabilityArgument::Fsync => Durability::Fsync,
            DurabilityArgument::Async => Durability::Async,
        },
        fault: args.fault.map(Fault::from),
        memory_bytes: memory_mib << 20,
        segment_bytes: segment_mib << 20,
        chunk_bytes: CHUNK_BYTES,
        retention_bytes: retention_mib.map(|mib| mib << 20),
        retention_age: retention_s.map(Duration::from_secs),
        limit_mb_s: args.limit_mb_s,
        commit_delay: Duration::from_micros(commit_delay_us),
        threads: threads as u16,
        auto_create_partitions: args.auto_create_partitions,
        metrics,
        events: args.events,
    })
}
