//! What the kernel counts of a machine and of a few of its processes: totals since it started, as /proc shows them.
//!
//! Sources: proc(5), Documentation/accounting/psi.rst, Documentation/admin-guide/iostats.rst, Documentation/scheduler/sched-stats.rst of Linux.
//! A file that is not there, or not to be read, leaves its figures out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::syncs::Total;

/// Threads that a process shows: those with the most CPU time so far.
const THREADS_MAX: usize = 24;
/// Threads of a process that are looked at.
const THREADS_SEEN_MAX: usize = 4096;
/// Processes, disks and interfaces that are told.
const LISTED_MAX: usize = 64;
/// Sectors of /proc/diskstats, whatever the disk's own are.
const SECTOR_BYTES: u64 = 512;

/// A moment of a machine.
#[derive(Debug, Default, Serialize)]
pub struct Sample {
    pub cpu: Cpu,
    pub memory: Memory,
    pub pressure: Pressure,
    pub disks: Vec<Disk>,
    pub interfaces: Vec<Interface>,
    pub tcp_retransmits: Option<u64>,
    pub processes: Vec<Process>,
}

/// Seconds of all cores together.
#[derive(Debug, Default, Serialize)]
pub struct Cpu {
    pub idle_s: f64,
    pub busy_s: f64,
    pub steal_s: f64,
}

#[derive(Debug, Default, Serialize)]
pub struct Memory {
    pub total_bytes: u64,
    pub available_bytes: u64,
    pub page_cache_bytes: u64,
    pub dirty_bytes: u64,
}

/// Seconds for which something waited ("some"); absent where the kernel does not tell.
#[derive(Debug, Default, Serialize)]
pub struct Pressure {
    pub cpu_s: Option<f64>,
    pub io_s: Option<f64>,
    pub memory_s: Option<f64>,
}

#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Disk {
    pub name: String,
    pub reads: u64,
    pub read_bytes: u64,
    pub read_s: f64,
    pub writes: u64,
    pub write_bytes: u64,
    pub write_s: f64,
    pub flushes: u64,
    pub flush_s: f64,
    pub busy_s: f64,
    /// Time under way, summed over all that was: divided by the time that passed it is the length of the queue.
    pub queue_s: f64,
}

#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Interface {
    pub name: String,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// A process that was asked for.
#[derive(Debug, Default, Serialize)]
pub struct Process {
    pub name: String,
    pub pid: u32,
    pub cpu_s: f64,
    /// Time for which its threads could have run and waited for a CPU.
    pub run_delay_s: f64,
    pub rss_bytes: u64,
    /// None where its owner is another.
    pub read_bytes: Option<u64>,
    pub write_bytes: Option<u64>,
    /// Since the agent looks; None where it cannot.
    pub syncs: Option<Total>,
    pub threads: Vec<Thread>,
}

#[derive(Debug, Default, Serialize)]
pub struct Thread {
    pub name: String,
    pub id: u32,
    pub cpu_s: f64,
}

/// Where a machine's files are.
pub struct Host {
    proc: PathBuf,
    sys: PathBuf,
    ticks_per_s: f64,
    page_bytes: u64,
}

impl Default for Host {
    fn default() -> Host {
        // SAFETY: plain questions without pointers.
        let (ticks, page) = unsafe {
            (
                libc::sysconf(libc::_SC_CLK_TCK),
                libc::sysconf(libc::_SC_PAGESIZE),
            )
        };
        Host {
            proc: "/proc".into(),
            sys: "/sys".into(),
            ticks_per_s: ticks.max(1) as f64,
            page_bytes: page.max(1) as u64,
        }
    }
}

impl Host {
    fn read(&self, name: &str) -> String {
        read(&self.proc.join(name))
    }

    /// A moment of the machine, with these processes.
    pub fn sample(&self, pids: &BTreeSet<u32>) -> Sample {
        Sample {
            cpu: cpu(&self.read("stat"), self.ticks_per_s),
            memory: memory(&self.read("meminfo")),
            pressure: Pressure {
                cpu_s: pressure(&self.read("pressure/cpu")),
                io_s: pressure(&self.read("pressure/io")),
                memory_s: pressure(&self.read("pressure/memory")),
            },
            disks: self.disks(),
            interfaces: interfaces(&self.read("net/dev")),
            tcp_retransmits: retransmits(&self.read("net/snmp")),
            processes: pids
                .iter()
                .filter_map(|pid| self.process(*pid))
                .take(LISTED_MAX)
                .collect(),
        }
    }

    /// Whole disks that are devices of their own: no partitions, no loop devices.
    fn disks(&self) -> Vec<Disk> {
        self.read("diskstats")
            .lines()
            .filter_map(disk)
            .filter(|disk| self.sys.join("block").join(&disk.name).join("device").exists())
            .take(LISTED_MAX)
            .collect()
    }

    fn process(&self, pid: u32) -> Option<Process> {
        let home = self.proc.join(pid.to_string());
        let stat = read(&home.join("stat"));
        let (name, fields) = stat_fields(&stat)?;
        let rss_pages: u64 = fields.get(21)?.parse().ok()?;
        let io = read(&home.join("io"));
        let mut process = Process {
            name,
            pid,
            cpu_s: self.cpu_s(&fields)?,
            rss_bytes: rss_pages * self.page_bytes,
            read_bytes: field(&io, "read_bytes:"),
            write_bytes: field(&io, "write_bytes:"),
            ..Process::default()
        };
        let tasks = fs::read_dir(home.join("task")).into_iter().flatten().flatten();
        for task in tasks.take(THREADS_SEEN_MAX) {
            let stat = read(&task.path().join("stat"));
            let schedstat = read(&task.path().join("schedstat"));
            process.run_delay_s += schedstat
                .split_ascii_whitespace()
                .nth(1)
                .and_then(|text| text.parse::<f64>().ok())
                .unwrap_or_default()
                / 1e9;
            let id = task.file_name().to_string_lossy().parse().ok();
            if let (Some((name, fields)), Some(id)) = (stat_fields(&stat), id)
                && let Some(cpu_s) = self.cpu_s(&fields)
            {
                process.threads.push(Thread { name, id, cpu_s });
            }
        }
        process
            .threads
            .sort_by(|one, other| other.cpu_s.total_cmp(&one.cpu_s));
        process.threads.truncate(THREADS_MAX);
        Some(process)
    }

    fn cpu_s(&self, fields: &[&str]) -> Option<f64> {
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some((ticks(11)? + ticks(12)?) as f64 / self.ticks_per_s)
    }

    /// Processes of these names, and those that listen on these ports.
    pub fn find(&self, names: &BTreeSet<String>, ports: &BTreeSet<u16>) -> BTreeSet<u32> {
        let sockets = sockets(&self.proc, ports);
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&self.proc).into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
                continue;
            };
            if is_named(&entry.path(), names) || holds(&entry.path(), &sockets) {
                found.insert(pid);
            }
        }
        found
    }

    /// Whether a process is of one of these names, or listens on one of these ports, whatever network it is in.
    pub fn is_one_of(&self, pid: u32, names: &BTreeSet<String>, ports: &BTreeSet<u16>) -> bool {
        let home = self.proc.join(pid.to_string());
        is_named(&home, names) || holds(&home, &sockets(&home, ports))
    }

    /// The process of a thread; None where there is none any more.
    pub fn process_of(&self, tid: u32) -> Option<u32> {
        let status = self.read(&format!("{tid}/status"));
        u32::try_from(field(&status, "Tgid:")?).ok()
    }
}

fn read(path: &Path) -> String {
    fs::read(path).map_or_else(
        |_| String::new(),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

fn is_named(home: &Path, names: &BTreeSet<String>) -> bool {
    !names.is_empty() && names.contains(read(&home.join("comm")).trim())
}

/// Whether a process has one of these sockets open.
fn holds(home: &Path, sockets: &BTreeSet<String>) -> bool {
    if sockets.is_empty() {
        return false;
    }
    fs::read_dir(home.join("fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|target| sockets.contains(target.to_string_lossy().as_ref()))
}

/// The sockets that listen on these ports, in the network of this process or, of all of /proc, in our own.
fn sockets(home: &Path, ports: &BTreeSet<u16>) -> BTreeSet<String> {
    ["net/tcp", "net/tcp6"]
        .iter()
        .flat_map(|name| listening(&read(&home.join(name)), ports))
        .collect()
}

/// The sockets (`socket:[INODE]`) that listen on these ports.
fn listening(text: &str, ports: &BTreeSet<u16>) -> Vec<String> {
    const LISTEN: &str = "0A";
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let port = fields.get(1)?.rsplit_once(':')?.1;
            let port = u16::from_str_radix(port, 16).ok()?;
            let is_wanted = *fields.get(3)? == LISTEN && ports.contains(&port);
            is_wanted.then(|| format!("socket:[{}]", fields.get(9).unwrap_or(&"")))
        })
        .collect()
}

/// The name in parentheses, which may hold any character, and the fields behind it.
fn stat_fields(text: &str) -> Option<(String, Vec<&str>)> {
    let (before, rest) = text.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    Some((name, rest.split_ascii_whitespace().collect()))
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .and_then(|number| number.parse().ok())
}

fn cpu(stat: &str, ticks_per_s: f64) -> Cpu {
    let ticks: Vec<f64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .skip(1)
        .map(|text| text.parse().unwrap_or(0.0))
        .collect();
    let of = |places: &[usize]| {
        let ticks: f64 = places.iter().filter_map(|&at| ticks.get(at)).sum();
        ticks / ticks_per_s
    };
    Cpu {
        idle_s: of(&[3, 4]),
        busy_s: of(&[0, 1, 2, 5, 6]),
        steal_s: of(&[7]),
    }
}

fn memory(text: &str) -> Memory {
    let of = |name: &str| field(text, name).unwrap_or(0) * 1024;
    Memory {
        total_bytes: of("MemTotal:"),
        available_bytes: of("MemAvailable:"),
        page_cache_bytes: of("Cached:"),
        dirty_bytes: of("Dirty:"),
    }
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345` in us.
fn pressure(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let total: f64 = line.rsplit_once("total=")?.1.trim().parse().ok()?;
    Some(total / 1e6)
}

fn disk(line: &str) -> Option<Disk> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let of = |at: usize| {
        fields
            .get(at)
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let ms = |at: usize| of(at) as f64 / 1e3;
    Some(Disk {
        name: (*fields.get(2)?).to_owned(),
        reads: of(3),
        read_bytes: of(5) * SECTOR_BYTES,
        read_s: ms(6),
        writes: of(7),
        write_bytes: of(9) * SECTOR_BYTES,
        write_s: ms(10),
        busy_s: ms(12),
        queue_s: ms(13),
        flushes: of(18),
        flush_s: ms(19),
    })
}

fn interfaces(text: &str) -> Vec<Interface> {
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            let numbers: Vec<u64> = rest
                .split_ascii_whitespace()
                .map(|text| text.parse().unwrap_or(0))
                .collect();
            Some(Interface {
                name: name.trim().to_owned(),
                received_bytes: *numbers.first()?,
                sent_bytes: *numbers.get(8)?,
            })
        })
        .take(LISTED_MAX)
        .collect()
}

/// `RetransSegs` of the lines that begin with `Tcp:`: names first, then values.
fn retransmits(text: &str) -> Option<u64> {
    let by_name: BTreeMap<&str, &str> = {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
        let (names, values) = (lines.next()?, lines.next()?);
        names
            .split_ascii_whitespace()
            .zip(values.split_ascii_whitespace())
            .collect()
    };
    by_name.get("RetransSegs")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read_by_their_columns() {
        let cpu = cpu("cpu  100 0 200 5000 300 7 13 400 0 0\ncpu0 1 2\n", 100.0);
        assert_eq!((cpu.busy_s, cpu.idle_s, cpu.steal_s), (3.2, 53.0, 4.0));
        let some = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0 total=7\n";
        assert_eq!((pressure(some), pressure("")), (Some(2.5), None));
        let line = " 254 0 vda 10 1 16 30 20 2 32 40 0 50 60 0 0 0 0 5 70";
        let disk = disk(line).unwrap();
        assert_eq!(
            (disk.name.as_str(), disk.read_bytes, disk.write_bytes),
            ("vda", 8192, 16384)
        );
        assert_eq!(
            (disk.busy_s, disk.queue_s, disk.flushes, disk.flush_s),
            (0.05, 0.06, 5, 0.07)
        );
        let snmp = "Ip: A B\nIp: 1 2\nTcp: InSegs RetransSegs\nTcp: 9 42\n";
        assert_eq!((retransmits(snmp), retransmits("Tcp: A\n")), (Some(42), None));
        let devices = "Inter-| x\n face |bytes\n  eth0: 100 1 0 0 0 0 0 0 200 2 0 0 0 0 0 0\n";
        assert_eq!(
            (
                interfaces(devices)[0].received_bytes,
                interfaces(devices)[0].sent_bytes
            ),
            (100, 200)
        );
        let (name, fields) = stat_fields("7 (a (b) c) S 1 2").unwrap();
        assert_eq!((name.as_str(), fields), ("a (b) c", vec!["S", "1", "2"]));
        let tcp = "head\n 0: 0100007F:2384 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n 1: 0100007F:2385 0:0 01 0 0 0 0 0 9 1\n";
        assert_eq!(
            listening(tcp, &BTreeSet::from([9092, 9093])),
            vec!["socket:[4711]"]
        );
        assert_eq!(memory("MemTotal: 4 kB\nCached: 2 kB\n").page_cache_bytes, 2048);
    }

    #[test]
    fn this_process_is_found_by_its_port_and_told() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let host = Host::default();
        let found = host.find(&BTreeSet::new(), &BTreeSet::from([port]));
        assert!(found.contains(&std::process::id()));
        let sample = host.sample(&BTreeSet::from([std::process::id(), u32::MAX]));
        assert_eq!(sample.processes.len(), 1);
        assert!(sample.processes[0].rss_bytes > 0 && !sample.processes[0].threads.is_empty());
        assert!(sample.cpu.busy_s > 0.0 && sample.memory.total_bytes > 0);
    }
}
