//! The report for a person at a terminal: plain text, readable without colour.

use std::fmt::Write;

use crate::report::{Disk, Report};

/// Lays the figures out in lines, one figure or distribution each.
pub fn render(report: &Report) -> String {
    let mut lines = vec![heading(report), String::new()];
    lines.extend(report.disks.iter().flat_map(disk));
    lines.extend([
        line(
            "network",
            "loopback bandwidth",
            rate(report.network.loopback_mb_s),
        ),
        line("", "loopback round trip, 100 B", round_trip(report)),
        line("one core", "memory copy", rate(report.cpu.memcpy_mb_s)),
        line("", "CRC-32C", rate(report.cpu.crc32c_mb_s)),
    ]);
    lines.extend(wakeups(report));
    lines.push(line(
        "clock",
        "resolution",
        format!("{:>9} ns", report.clock.resolution_ns),
    ));
    lines.push(line(
        "",
        "one reading",
        format!("{:>9.1} ns", report.clock.read_ns),
    ));
    if !report.notes.is_empty() {
        lines.push(String::new());
        lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    }
    lines.join("\n") + "\n"
}

fn disk(disk: &Disk) -> [String; 4] {
    [
        line("disk", "directory", disk.dir.clone()),
        line("", "sequential write", rate(disk.write_mb_s) + cache(disk)),
        line("", "sequential read", rate(disk.read_mb_s) + cache(disk)),
        line("", "4 KiB append + fdatasync", fsync(disk)),
    ]
}

fn heading(report: &Report) -> String {
    let host = &report.host;
    format!(
        "{}: {} x {}, {:.1} GB of memory, {}",
        host.hostname,
        host.cores,
        host.cpu_model,
        host.memory_bytes as f64 / 1e9,
        host.kernel
    )
}

fn line(group: &str, name: &str, value: String) -> String {
    format!("{group:<10}{name:<28}{value}")
}

fn rate(mb_s: f64) -> String {
    format!("{:>9} MB/s", thousands(mb_s))
}

fn cache(disk: &Disk) -> &'static str {
    if disk.o_direct {
        "   1 MiB blocks, O_DIRECT"
    } else {
        "   1 MiB blocks, through the page cache"
    }
}

/// Percentiles side by side, after the figure that they belong to.
fn distribution(values: &[(&str, f64)], unit: &str, decimals: usize) -> String {
    values.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = write!(text, "   {name} {value:.decimals$}");
        text
    }) + " "
        + unit
}

fn fsync(disk: &Disk) -> String {
    let fsync = &disk.fsync_ms;
    let values = [
        ("p50", fsync.p50),
        ("p90", fsync.p90),
        ("p99", fsync.p99),
        ("p99.9", fsync.p99_9),
        ("max", fsync.max),
    ];
    format!(
        "{:>9} /s  {}",
        thousands(disk.fsync_per_s),
        distribution(&values, "ms", 3)
    )
}

fn round_trip(report: &Report) -> String {
    let trip = &report.network.round_trip_us;
    let values = [("p99", trip.p99), ("max", trip.max)];
    format!("{:>9.1} us  {}", trip.p50, distribution(&values, "us", 1))
}

fn wakeups(report: &Report) -> [String; 2] {
    let overshoot = |of: &crate::report::OvershootUs| {
        let values = [("p99", of.p99), ("p99.9", of.p99_9), ("max", of.max)];
        format!("{:>9.1} us  {}", of.p50, distribution(&values, "us", 1))
    };
    let fifo = report
        .wakeup_us
        .fifo
        .as_ref()
        .map_or_else(|| "not permitted".into(), overshoot);
    [
        line("wake-up", "late by, SCHED_FIFO", fifo),
        line("", "late by, normal", overshoot(&report.wakeup_us.normal)),
    ]
}

/// A figure with its thousands apart; a decimal below one hundred.
fn thousands(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::thousands;

    #[test]
    fn thousands_are_apart() {
        assert_eq!(thousands(1_234_567.4), "1,234,567");
        assert_eq!(thousands(999.6), "1,000");
        assert_eq!(thousands(123.4), "123");
        assert_eq!(thousands(9.96), "10.0");
    }
}
