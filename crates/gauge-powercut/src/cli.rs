//! The command `gauge powercut`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use glob::Pattern;
use serde_json::json;

use crate::accounts::Accounts;
use crate::control::{self, Control};
use crate::disk::{Disk, Metadata, Settings};
use crate::filesystem::PowercutFs;
use crate::mount::{self, Found};
use crate::rules::Rules;
use crate::syncs::Syncs;

/// Exit status: the input was wrong.
const EXIT_INPUT: u8 = 2;
/// Exit status: there is no FUSE here, or the file system failed.
const EXIT_FAILED: u8 = 3;
/// How often what needs no hurry is done: records handed to the kernel, files removed.
const HOUSEKEEPING: Duration = Duration::from_millis(100);
/// Bytes that a cut took are kept in memory to be looked for, up to so many.
const EVIDENCE_BYTES_MAX: u64 = 64 << 20;
/// What `gauge powercut` itself makes in its state directory.
const STATE_NAMES: [&str; 4] = ["files", "undo", "control.sock", "lock"];

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MetadataArgument {
    /// Names with a sync of their directory only.
    Strict,
    /// All metadata so far with any sync: what ext4 and XFS have in common.
    Ordered,
    /// As ordered, and the data of files that replace others before that: ext4's default.
    Ext4,
}

/// Mounts a file system that behaves as a disk behind a volatile cache, and can lose power.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to mount: an existing, empty directory.
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "clean",
        requires = "state"
    )]
    mount: Option<PathBuf>,
    /// Where the data is kept; created if it is not there.
    #[arg(long, value_name = "DIR", required_unless_present = "clean")]
    state: Option<PathBuf>,
    /// Path of the control socket (default: control.sock in the state directory).
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// When names and sizes survive.
    #[arg(long, value_enum, default_value_t = MetadataArgument::Ordered)]
    metadata: MetadataArgument,
    /// Make data durable that has been un-synced for this long, as a kernel's write-back does (default: never).
    #[arg(long, value_name = "AGE", value_parser = duration)]
    write_back: Option<Duration>,
    /// Make names and other metadata durable this often, as a journal's commit interval does (default: never).
    #[arg(long, value_name = "AGE", value_parser = duration)]
    commit: Option<Duration>,
    /// Every sync takes this much longer.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "0s")]
    sync_delay: Duration,
    /// A sync also syncs the file below on the real disk.
    #[arg(long)]
    sync_through: bool,
    /// The sum of all file sizes that fits, bytes (default: what the disk below has).
    #[arg(long, value_name = "BYTES")]
    limit: Option<u64>,
    /// Count writes and syncs of files whose path matches GLOB under NAME; may be repeated.
    #[arg(long = "class", value_name = "NAME=GLOB", value_parser = class)]
    classes: Vec<(String, Pattern)>,
    /// Write every write and sync to this file.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Threads that serve requests.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,
    /// End when this process has ended.
    #[arg(long, value_name = "PID")]
    parent_pid: Option<u32>,
    /// Unmount what a killed `gauge powercut` left at this directory, and do nothing else.
    #[arg(long, value_name = "DIR", exclusive = true)]
    clean: Option<PathBuf>,
}

/// A number with a unit, as `5ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a number with ns, us, ms, s or m, for instance 5ms".to_owned();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err(expected()),
    };
    let number: f64 = digits.parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| expected())
}

fn class(text: &str) -> Result<(String, Pattern), String> {
    let (name, glob) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty() && *name != "other")
        .ok_or("expected NAME=GLOB, for instance journal=*.log (and NAME not \"other\")")?;
    let glob = Pattern::new(glob).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), glob))
}

type Failure = (u8, String);

fn input(message: String) -> Failure {
    (EXIT_INPUT, message)
}

fn failed(doing: &str) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| (EXIT_FAILED, format!("could not {doing}: {error}"))
}

/// Mounts, and serves until it is told to stop.
pub fn run(args: Args) -> ExitCode {
    let result = match (&args.clean, &args.mount, &args.state) {
        (Some(directory), ..) => clean(directory),
        (None, Some(mount), Some(state)) => serve(&args, mount, state),
        _ => Err(input(
            "expected --mount DIR and --state DIR, or --clean DIR".to_owned(),
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, message)) => {
            eprintln!("gauge powercut: {message}");
            ExitCode::from(status)
        }
    }
}

fn clean(directory: &Path) -> Result<(), Failure> {
    let Ok(directory) = mount::absolute(directory) else {
        // Where there is no directory there is no mount.
        return Ok(());
    };
    match mount::find(&directory).map_err(failed("read /proc/self/mountinfo"))? {
        Found::Nothing | Found::Living => Ok(()),
        Found::Stale => {
            mount::unmount(&directory).map_err(failed(&format!("unmount {}", directory.display())))
        }
        Found::Foreign => Err(input(format!(
            "{}: what is mounted there is not a file system of gauge powercut, so it is left alone",
            directory.display()
        ))),
    }
}

/// The mount point, free for a mount.
fn prepare_mount(directory: &Path) -> Result<PathBuf, Failure> {
    let shown = directory.display();
    let path = mount::absolute(directory).map_err(|error| input(format!("--mount {shown}: {error}")))?;
    match mount::find(&path).map_err(failed("read /proc/self/mountinfo"))? {
        Found::Nothing => {}
        Found::Stale => mount::unmount(&path).map_err(failed(&format!("unmount the stale {shown}")))?,
        Found::Living | Found::Foreign => {
            return Err(input(format!(
                "--mount {shown}: something is mounted there already; expected an empty directory"
            )));
        }
    }
    let entries = fs::read_dir(&path).map_err(|error| {
        input(format!(
            "--mount {shown}: {error}; expected an existing, empty directory"
        ))
    })?;
    if entries.count() > 0 {
        return Err(input(format!(
            "--mount {shown}: it is not empty, and a mount would hide what is in it"
        )));
    }
    path.canonicalize()
        .map_err(|error| input(format!("--mount {shown}: {error}")))
}

/// The state directory, locked and empty.
fn prepare_state(directory: &Path, mount: &Path) -> Result<(PathBuf, File), Failure> {
    let shown = directory.display();
    let wrong = |error: io::Error| input(format!("--state {shown}: {error}"));
    fs::create_dir_all(directory).map_err(wrong)?;
    let path = directory.canonicalize().map_err(wrong)?;
    if path.starts_with(mount) {
        return Err(input(format!(
            "--state {shown}: it lies below the mount; name a directory elsewhere"
        )));
    }
    for entry in fs::read_dir(&path).map_err(wrong)?.flatten() {
        if !STATE_NAMES.iter().any(|name| entry.file_name() == *name) {
            let stranger = entry.path();
            return Err(input(format!(
                "--state {shown}: {} is not from gauge powercut; expected an empty directory",
                stranger.display()
            )));
        }
    }
    let locked = File::create(path.join("lock")).map_err(wrong)?;
    // SAFETY: a system call on a descriptor that is open, without pointers.
    if unsafe { libc::flock(locked.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return Err(input(format!("--state {shown}: another gauge powercut uses it")));
    }
    empty_state(&path);
    Ok((path, locked))
}

/// Removes what `gauge powercut` made in its state directory.
fn empty_state(state: &Path) {
    for name in ["files", "undo"] {
        // What is not there needs not be removed.
        let _ = fs::remove_dir_all(state.join(name));
    }
    let _ = fs::remove_file(state.join("control.sock"));
}

fn open_disk(args: &Args, state: PathBuf) -> Result<Disk, Failure> {
    let settings = Settings {
        state: Some(state),
        metadata: match args.metadata {
            MetadataArgument::Strict => Metadata::Strict,
            MetadataArgument::Ordered => Metadata::Ordered,
            MetadataArgument::Ext4 => Metadata::Ext4,
        },
        write_back: args.write_back,
        commit: args.commit,
        sync_through: args.sync_through,
    };
    let rules = Rules {
        classes: args.classes.clone(),
        sync_delay: args.sync_delay,
        faults: Vec::new(),
        hold: None,
    };
    let names = args.classes.iter().map(|(name, _)| name.clone());
    let accounts = Accounts::open(names, args.record.as_deref()).map_err(|error| {
        let path = args
            .record
            .as_deref()
            .unwrap_or(Path::new(""))
            .display()
            .to_string();
        input(format!("--record {path}: {error}"))
    })?;
    // SAFETY: system calls without arguments.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let disk = Disk::new(settings, rules, accounts, uid, gid).map_err(failed("make the state directory"))?;
    disk.set_limit(args.limit);
    disk.keep_evidence(EVIDENCE_BYTES_MAX);
    Ok(disk)
}

/// Every open file needs a descriptor, or two.
fn raise_descriptor_limit() {
    // SAFETY: the structure lives during the calls.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

fn housekeeping(disk: &Arc<Disk>) -> io::Result<()> {
    let disk = Arc::clone(disk);
    thread::Builder::new()
        .name("housekeeping".to_owned())
        .spawn(move || {
            let mut committed = Instant::now();
            loop {
                let wanted = disk.write_back(&mut committed);
                disk.dispose();
                disk.accounts.flush();
                thread::sleep(wanted.map_or(HOUSEKEEPING, |wanted| wanted.min(HOUSEKEEPING)));
            }
        })
        .map(drop)
}

fn bind(path: &Path) -> Result<UnixListener, Failure> {
    UnixListener::bind(path).map_err(|error| {
        input(format!(
            "control socket {}: {error}; name another path with --control (at most 107 bytes, in a directory that exists)",
            path.display()
        ))
    })
}

fn serve(args: &Args, mount: &Path, state: &Path) -> Result<(), Failure> {
    if let Some(obstacle) = mount::obstacle() {
        return Err((EXIT_FAILED, obstacle));
    }
    let parent = gauge_process::watch_parent(args.parent_pid).map_err(input)?;
    let mount = prepare_mount(mount)?;
    let (state, _locked) = prepare_state(state, &mount)?;
    raise_descriptor_limit();
    let socket = args.control.clone().unwrap_or_else(|| state.join("control.sock"));
    let disk = Arc::new(open_disk(args, state.clone())?);
    let listener = bind(&socket)?;
    // Threads inherit the mask, so that signals only arrive where they are waited for.
    let signals = gauge_process::take_signals().map_err(failed("take signals"))?;
    let syncs = Syncs::default();
    let filesystem = PowercutFs::new(Arc::clone(&disk), syncs.clone());
    let session = mount::mount(filesystem, &mount, usize::from(args.threads))
        .map_err(failed(&format!("mount at {}", mount.display())))?;
    let end = {
        let (mount, disk, socket) = (mount.clone(), Arc::clone(&disk), socket.clone());
        move || {
            // Somebody else may have unmounted it.
            let _ = mount::unmount(&mount);
            disk.accounts.flush();
            let _ = fs::remove_file(&socket);
            empty_state(&state);
        }
    };
    let stop = {
        let end = end.clone();
        Arc::new(move || {
            end();
            std::process::exit(0);
        })
    };
    let control = Control {
        disk: Arc::clone(&disk),
        syncs,
        notifier: session.notifier(),
        mount: mount.clone(),
        rules: Mutex::new(json!([])),
        sync_delay: args.sync_delay,
        stop,
    };
    let start_failed = failed("start a thread");
    gauge_process::end_on("powercut", signals, parent, end.clone()).map_err(&start_failed)?;
    housekeeping(&disk).map_err(&start_failed)?;
    control::listen(listener, Arc::new(control)).map_err(&start_failed)?;
    let mut out = io::stdout();
    // A parent that does not read the line has the path from elsewhere.
    let _ = writeln!(out, "ready {}", socket.display()).and_then(|()| out.flush());
    let served = session.run().map_err(failed("serve the mount"));
    end();
    served
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_number_and_a_unit() {
        assert_eq!(duration("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        for wrong in ["", "5", "ms", "-1s", "5 weeks", "1e400s", "é"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
