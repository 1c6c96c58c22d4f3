//! How long programs wait for their syncs: the calls of fsync(2) and fdatasync(2) of every process, from entry to return.
//!
//! What a system waits for before it acknowledges is a sync of its file, whatever is below it: a disk, a network, a layer of software. The kernel's account
//! of disks (`flushes`) knows of disks alone, and few systems tell of their own. The kernel's tracepoints of these calls do (`perf_event_open(2)`, type 2), where it is
//! permitted and its trace file system can be read or mounted; otherwise nothing is told. Syncs by other ways are not seen: O_DSYNC, io_uring, msync(2).
//!
//! While somebody looks, entries and returns of all system calls of the machine take the kernel's slower path, 45 ns more each (docs/causes.md).

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gauge_load::clock::monotonic_ns;
use serde::Serialize;

use crate::perf::{Event, Ring, SAMPLE_IDENTIFIER, SAMPLE_TID, SAMPLE_TIME};
use crate::tracefs::TraceFs;

const CALLS: [&str; 2] = ["fsync", "fdatasync"];
const TYPE_TRACEPOINT: u32 = 2;
/// A power of two: 4,000 entries and returns.
const RING_PAGES: usize = 32;
const DRAIN_EVERY: Duration = Duration::from_millis(50);
/// Processes of which syncs are told.
const PROCESSES_MAX: usize = 4096;
/// A call that is older is looked after: its thread may have been killed in it.
const OLD_NS: i64 = 1_000_000_000;
/// Exit status when syncs cannot be seen here.
const FAILED: u8 = 3;

/// A process's syncs so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Total {
    /// Those that have returned.
    pub calls: u64,
    /// Time in them, and in those that are under way.
    pub wait_s: f64,
    /// The squares of these times: over `wait_s` it is how long the sync lasts in which a thread is found, which a few that are slow among many show.
    pub wait_s2: f64,
}

impl Total {
    fn wait(&mut self, ns: i64) {
        let wait_s = ns as f64 / 1e9;
        self.wait_s += wait_s;
        self.wait_s2 += wait_s * wait_s;
    }
}

/// An entry or a return.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at_ns: i64,
    pid: u32,
    tid: u32,
    is_entry: bool,
}

/// Puts entries and returns together.
#[derive(Debug, Default)]
struct Books {
    /// Thread -> process, and since when.
    open: HashMap<u32, (u32, i64)>,
    done: BTreeMap<u32, Total>,
}

impl Books {
    fn enter(&mut self, moment: Moment) {
        if moment.is_entry {
            self.open.insert(moment.tid, (moment.pid, moment.at_ns));
        } else if let Some((pid, since_ns)) = self.open.remove(&moment.tid)
            && (self.done.len() < PROCESSES_MAX || self.done.contains_key(&pid))
        {
            let total = self.done.entry(pid).or_default();
            total.calls += 1;
            total.wait(moment.at_ns - since_ns);
        }
    }

    /// `is_there`: whether a thread still is.
    fn totals(&mut self, now_ns: i64, is_there: impl Fn(u32) -> bool) -> BTreeMap<u32, Total> {
        self.open
            .retain(|tid, (_, since_ns)| now_ns - *since_ns < OLD_NS || is_there(*tid));
        let mut found = self.done.clone();
        for (pid, since_ns) in self.open.values() {
            found.entry(*pid).or_default().wait((now_ns - since_ns).max(0));
        }
        found
    }
}

/// The rings of all CPUs.
struct Seen {
    rings: Vec<Ring>,
    /// By the id of its event, whether a sample is an entry.
    are_entries: HashMap<u64, bool>,
    /// Moments that came while others were taken out.
    later: Vec<Moment>,
    books: Books,
    _events: Vec<Event>,
}

impl Seen {
    fn begin() -> io::Result<Seen> {
        let tracing = TraceFs::open()?;
        let mut points = Vec::new();
        for call in CALLS {
            for (side, is_entry) in [("enter", true), ("exit", false)] {
                points.push((point(tracing.path(), &format!("sys_{side}_{call}"))?, is_entry));
            }
        }
        let sampled = SAMPLE_IDENTIFIER | SAMPLE_TID | SAMPLE_TIME;
        let (mut rings, mut events, mut are_entries) = (Vec::new(), Vec::<Event>::new(), HashMap::new());
        for cpu in online() {
            let first = events.len();
            for (point, is_entry) in &points {
                let event = Event::of_cpu(TYPE_TRACEPOINT, *point, 1, sampled, cpu)?;
                are_entries.insert(event.id()?, *is_entry);
                match events.get(first) {
                    Some(ringed) => event.write_into(ringed)?,
                    None => rings.push(Ring::of(&event, RING_PAGES)?),
                }
                events.push(event);
            }
        }
        Ok(Seen {
            rings,
            are_entries,
            later: Vec::new(),
            books: Books::default(),
            _events: events,
        })
    }

    /// Takes out what has come.
    fn drain(&mut self) {
        // A thread may enter on one CPU and return on another: what comes from here on may come behind a ring that was looked at.
        let until_ns = monotonic_ns();
        let mut moments = std::mem::take(&mut self.later);
        let mut were_lost = false;
        for ring in &mut self.rings {
            were_lost |= ring.drain(|sample| {
                let [id, thread, at_ns] = sample.words;
                if let Some(is_entry) = self.are_entries.get(&id) {
                    moments.push(Moment {
                        at_ns: at_ns as i64,
                        pid: thread as u32,
                        tid: (thread >> 32) as u32,
                        is_entry: *is_entry,
                    });
                }
            });
        }
        if were_lost {
            // What is missing may be a return and the next entry: pairs across it would be wrong.
            self.books.open.clear();
            return;
        }
        moments.sort_by_key(|moment| moment.at_ns);
        self.later = moments.split_off(moments.partition_point(|moment| moment.at_ns <= until_ns));
        for moment in moments {
            self.books.enter(moment);
        }
    }
}

/// The number of a tracepoint.
fn point(tracing: &Path, name: &str) -> io::Result<u64> {
    let file: PathBuf = tracing.join("events/syscalls").join(name).join("id");
    let text = fs::read_to_string(&file)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    let number = text.trim().parse();
    number.map_err(|_| io::Error::other(format!("{}: expected a number", file.display())))
}

/// The CPUs that run, whoever may use them.
fn online() -> Vec<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let found = cpu_list(text.trim());
    if found.is_empty() { vec![0] } else { found }
}

/// The kernel's lists of CPUs (`0-3,8`).
fn cpu_list(text: &str) -> Vec<usize> {
    let number = |text: &str| text.parse::<usize>().ok();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(number(first)?..=number(last)?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Looks at all processes' syncs until it is dropped.
pub struct Syncs {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
}

impl Syncs {
    /// Begins to look.
    ///
    /// # Errors
    /// Why they cannot be seen here: a right that is missing (CAP_PERFMON), a trace file system that is not there.
    pub fn begin() -> io::Result<Syncs> {
        let seen = Arc::new(Mutex::new(Seen::begin()?));
        let stop = Arc::new(AtomicBool::new(false));
        let (drained, told) = (Arc::clone(&seen), Arc::clone(&stop));
        std::thread::Builder::new()
            .name("syncs".to_owned())
            .spawn(move || {
                while !told.load(Ordering::Relaxed) {
                    lock(&drained).drain();
                    std::thread::sleep(DRAIN_EVERY);
                }
            })?;
        Ok(Syncs { seen, stop })
    }

    /// Process -> its syncs since this looks.
    pub fn totals(&self) -> BTreeMap<u32, Total> {
        let mut seen = lock(&self.seen);
        seen.drain();
        seen.books.totals(monotonic_ns(), |tid| {
            Path::new("/proc").join(tid.to_string()).exists()
        })
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells how long processes wait for their syncs: each line of the input is answered with their totals so far, as JSON
#[derive(Clone, Debug, clap::Args)]
pub struct Args {}

/// Runs the command until its input ends.
pub fn run(_: &Args) -> ExitCode {
    let syncs = match Syncs::begin() {
        Ok(syncs) => syncs,
        Err(error) => {
            eprintln!("gauge syncs: {error}");
            return ExitCode::from(FAILED);
        }
    };
    let mut out = io::stdout();
    if writeln!(out, "ready").and_then(|()| out.flush()).is_err() {
        return ExitCode::SUCCESS;
    }
    for line in io::stdin().lock().lines() {
        let answer = serde_json::to_string(&syncs.totals()).unwrap_or_default();
        // Whoever asks is gone.
        if line.is_err() || writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn moment(at_ms: i64, tid: u32, is_entry: bool) -> Moment {
        Moment {
            at_ns: at_ms * MS,
            pid: 7,
            tid,
            is_entry,
        }
    }

    #[test]
    fn calls_are_put_together_by_thread() {
        let mut books = Books::default();
        for one in [
            moment(0, 71, false),
            moment(1, 71, true),
            moment(2, 72, true),
            moment(5, 71, false),
            moment(9, 72, false),
            moment(10, 71, true),
        ] {
            books.enter(one);
        }
        let found = books.totals(12 * MS, |_| true);
        assert_eq!(
            (found.len(), found[&7].calls),
            (1, 2),
            "one is under way for 2 ms"
        );
        assert!((found[&7].wait_s - 0.013).abs() < 1e-9, "{found:?}");
        let squares = 0.004_f64.powi(2) + 0.007_f64.powi(2) + 0.002_f64.powi(2);
        assert!((found[&7].wait_s2 - squares).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_call_of_a_thread_that_was_killed_in_it_does_not_last_for_ever() {
        let mut books = Books::default();
        books.enter(moment(0, 71, true));
        assert_eq!(books.totals(500 * MS, |_| false)[&7].wait_s, 0.5);
        assert_eq!(books.totals(1500 * MS, |_| true)[&7].wait_s, 1.5);
        assert!(books.totals(1500 * MS, |_| false).is_empty());
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpu_list("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(cpu_list("0"), [0]);
        assert_eq!(cpu_list(""), [] as [usize; 0]);
    }

    #[test]
    fn syncs_of_this_process_are_seen_where_it_is_permitted() {
        let syncs = match Syncs::begin() {
            Ok(syncs) => syncs,
            Err(error) => {
                // SAFETY: a plain question.
                let is_root = unsafe { libc::geteuid() } == 0;
                let is_there = TraceFs::open().is_ok();
                assert!(!(is_root && is_there), "{error}");
                return;
            }
        };
        let path = std::env::temp_dir().join(format!("gauge-syncs-{}", std::process::id()));
        let mut file = fs::File::create(&path).unwrap();
        let begun_ns = monotonic_ns();
        for _ in 0..5 {
            file.write_all(b"x").unwrap();
            file.sync_all().unwrap();
            file.write_all(b"x").unwrap();
            file.sync_data().unwrap();
        }
        let took_s = (monotonic_ns() - begun_ns) as f64 / 1e9;
        fs::remove_file(&path).unwrap();
        let total = syncs.totals()[&std::process::id()];
        assert_eq!(total.calls, 10);
        assert!(
            total.wait_s > 0.0 && total.wait_s <= took_s,
            "{total:?} of {took_s} s"
        );
    }
}
