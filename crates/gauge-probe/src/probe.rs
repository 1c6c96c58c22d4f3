//! The whole probe, step by step.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::disk::{self, Bounds};
use crate::error::ProbeError;
use crate::report::{Report, VERSION, Wakeup};
use crate::wakeup::{self, Class, Outcome};
use crate::{clock, cpu, host, network};

/// How long the probe may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// About 3 s: before and after each run.
    Short,
    /// About 15 s: for a person who asks what the machine can do.
    Full,
}

/// The bounds of every step.
struct Plan {
    disk: Bounds,
    bandwidth: Duration,
    round_trip: Duration,
    round_trips_max: usize,
    cpu: Duration,
    wakeup: Duration,
}

impl Length {
    fn plan(self) -> Plan {
        match self {
            Length::Short => Plan {
                disk: Bounds {
                    fsync: Duration::from_millis(500),
                    fsync_count: 20_000,
                    write: Duration::from_millis(500),
                    read: Duration::from_millis(300),
                    file_bytes: 1 << 30,
                },
                bandwidth: Duration::from_millis(250),
                round_trip: Duration::from_millis(250),
                round_trips_max: 50_000,
                cpu: Duration::from_millis(100),
                wakeup: Duration::from_millis(300),
            },
            Length::Full => Plan {
                disk: Bounds {
                    fsync: Duration::from_millis(2_500),
                    fsync_count: 100_000,
                    write: Duration::from_millis(3_000),
                    read: Duration::from_millis(2_000),
                    file_bytes: 8 << 30,
                },
                bandwidth: Duration::from_millis(1_000),
                round_trip: Duration::from_millis(1_000),
                round_trips_max: 200_000,
                cpu: Duration::from_millis(500),
                wakeup: Duration::from_millis(2_000),
            },
        }
    }
}

/// What is asked of each disk, whatever the length says.
#[derive(Debug, Clone, Copy, Default)]
pub struct OfDisks {
    /// So many bytes are written in sequence.
    pub bytes: Option<u64>,
    /// For so many seconds something is appended and synced.
    pub fsync_s: Option<u32>,
}

/// Appends per second that are kept of a long probe: more than a disk syncs that keeps its promise.
const FSYNCS_PER_S: usize = 100_000;

/// Probes this machine, with the disk under each of `directories`, one after the other. `progress` is told each step before it begins.
///
/// Errors: `ProbeError::Input` when there is no directory, or one is missing, not writable or full; `ProbeError::Machine` when a disk or the network fails.
pub fn probe(
    length: Length,
    directories: &[PathBuf],
    of_disks: OfDisks,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, ProbeError> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut plan = length.plan();
    if let Some(bytes) = of_disks.bytes {
        plan.disk.file_bytes = bytes;
        plan.disk.write = Duration::MAX;
    }
    if let Some(seconds) = of_disks.fsync_s {
        plan.disk.fsync = Duration::from_secs(seconds.into());
        plan.disk.fsync_count = FSYNCS_PER_S * seconds as usize;
    }
    let mut notes = Vec::new();
    // All of them before any is measured: a mistake in the last is told at once.
    let targets = directories
        .iter()
        .map(|directory| disk::inspect(directory, of_disks.bytes, &mut notes))
        .collect::<Result<Vec<_>, _>>()?;
    let host = host::describe(&mut notes);
    let mut disks = Vec::with_capacity(targets.len());
    for target in &targets {
        let disk = disk::measure(target, plan.disk, &mut notes, progress)?;
        if disk.fsync_ms.count == plan.disk.fsync_count as u64 && of_disks.fsync_s.is_some() {
            notes.push(format!(
                "{} synced {} appends in {:.1} s, and no more are kept: the rest of the time was left",
                disk.dir,
                disk.fsync_ms.count,
                disk.fsync_ms.count as f64 / disk.fsync_per_s
            ));
        }
        disks.push(disk);
    }
    let Some(disk) = disks.first().cloned() else {
        return Err(ProbeError::Input(
            "no directory to probe; name one with --dir".to_owned(),
        ));
    };
    let network = network::measure(plan.bandwidth, plan.round_trip, plan.round_trips_max, progress)?;
    progress("copy and checksum rate of one core");
    let cpu = cpu::measure(plan.cpu)?;
    let wakeup_us = wakeups(plan.wakeup, &mut notes, progress)?;
    let clock = clock::measure()?;
    Ok(Report {
        version: VERSION,
        short: length == Length::Short,
        started_unix_ms: u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
        host,
        disk,
        disks,
        network,
        cpu,
        wakeup_us,
        clock,
        notes,
    })
}

fn wakeups(
    duration: Duration,
    notes: &mut Vec<String>,
    progress: &mut dyn FnMut(&str),
) -> Result<Wakeup, ProbeError> {
    progress("wake-ups with SCHED_FIFO");
    let fifo = match wakeup::measure(Class::Fifo, duration)? {
        Outcome::Measured(overshoot) => Some(overshoot),
        Outcome::Refused(error) => {
            notes.push(format!(
                "SCHED_FIFO is not permitted ({error}), so a load worker's schedule will be less exact: run as root, or allow it with \
                 `ulimit -r` (rtprio in /etc/security/limits.conf) or CAP_SYS_NICE"
            ));
            None
        }
    };
    progress("wake-ups with normal scheduling");
    match wakeup::measure(Class::Normal, duration)? {
        Outcome::Measured(normal) => Ok(Wakeup { fifo, normal }),
        Outcome::Refused(error) => Err(ProbeError::from_machine("sleep with normal scheduling", &error)),
    }
}
