//! The file system as programs see it, through the kernel: random histories of real system calls, cut at a random moment.
//!
//! Where nothing can be mounted (no `/dev/fuse`, neither root nor fusermount3) the tests say so and end.

#![allow(clippy::unwrap_used, reason = "a test ends when something is not as it says")]

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A running `gauge powercut` in a process of its own: a program that maps a file it serves itself waits for itself.
struct Mounted {
    child: Child,
    scratch: PathBuf,
    path: PathBuf,
}

fn start(directory: &Path, metadata: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gauge"))
        .arg("powercut")
        .arg("--mount")
        .arg(directory.join("mount"))
        .arg("--state")
        .arg(directory.join("state"))
        .args([
            "--metadata",
            metadata,
            "--parent-pid",
            &std::process::id().to_string(),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

impl Mounted {
    /// Mounts; `None` where there is no FUSE.
    fn new(metadata: &str) -> Option<Mounted> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let scratch = std::env::temp_dir().join(format!("gauge-mounted-{}-{number}", std::process::id()));
        let path = scratch.join("mount");
        fs::create_dir_all(&path).unwrap();
        let (child, mut out) = start(&scratch, metadata);
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        if line.starts_with("ready ") {
            return Some(Mounted { child, scratch, path });
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        // In continuous integration nothing is left out in silence.
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{said}");
        eprintln!("not tested: {said}");
        fs::remove_dir_all(&scratch).unwrap();
        None
    }

    fn say(&self, line: &str) -> Value {
        let mut stream = UnixStream::connect(self.scratch.join("state/control.sock")).unwrap();
        stream.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    fn tell(&self, command: Value) -> Value {
        let answer = self.say(&command.to_string());
        assert_eq!(answer["ok"], json!(true), "{command}: {answer}");
        answer
    }

    fn cycle(&self, cut: Value) {
        self.tell(cut);
        self.tell(json!({"do": "power-on"}));
    }
}

fn is_mounted(path: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .contains(path.to_str().unwrap())
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // SAFETY: a system call that takes no pointers, on a child that was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let _ = self.child.wait();
        let mounted = is_mounted(&self.path);
        let _ = fs::remove_dir_all(&self.scratch);
        if !std::thread::panicking() {
            assert!(!mounted, "{} is still mounted", self.path.display());
        }
    }
}

/// A shared mapping of a whole file.
struct Mapping {
    address: *mut libc::c_void,
    bytes: usize,
}

impl Mapping {
    fn new(file: &File, bytes: usize) -> Mapping {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that is open; nobody else knows the address.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED);
        Mapping { address, bytes }
    }

    fn store(&self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.bytes);
        // SAFETY: the range lies within the mapping, and no reference to it exists.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), self.address.cast::<u8>().add(offset), data.len())
        };
    }

    fn sync(&self) {
        // SAFETY: the range is the mapping.
        assert_eq!(unsafe { libc::msync(self.address, self.bytes, libc::MS_SYNC) }, 0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping, which nobody uses any more.
        unsafe { libc::munmap(self.address, self.bytes) };
    }
}

fn sync_directory(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// One history of one file in a directory of its own. Returns what must be there after the cut: nothing, or a name and bytes.
fn history(directory: &Path, random: &mut fastrand::Rng) -> Option<(String, Vec<u8>)> {
    let mut name = "first".to_owned();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    let synchronous = random.u8(..6) == 0;
    let flags = if synchronous { libc::O_DSYNC } else { 0 };
    let file = options.custom_flags(flags).open(directory.join(&name)).unwrap();
    let (mut now, mut durable): (Vec<u8>, Vec<u8>) = Default::default();
    let mut durable_name: Option<String> = None;
    for _ in 0..random.usize(1..18) {
        match random.u8(..14) {
            0..=4 => {
                let offset = if random.bool() {
                    now.len()
                } else {
                    random.usize(..now.len() + 2000)
                };
                let data = vec![random.u8(1..); random.usize(1..9000)];
                file.write_all_at(&data, offset as u64).unwrap();
                now.resize(now.len().max(offset + data.len()), 0);
                now[offset..offset + data.len()].copy_from_slice(&data);
                if synchronous {
                    durable.clone_from(&now);
                }
            }
            5 if !now.is_empty() => {
                let mapping = Mapping::new(&file, now.len());
                let offset = random.usize(..now.len());
                let data = vec![random.u8(1..); random.usize(1..=(now.len() - offset).min(6000))];
                mapping.store(offset, &data);
                now[offset..offset + data.len()].copy_from_slice(&data);
                if random.bool() {
                    mapping.sync();
                    durable.clone_from(&now);
                }
            }
            6 => {
                let size = random.usize(..12_000);
                file.set_len(size as u64).unwrap();
                now.resize(size, 0);
            }
            7 => {
                let size = now.len() + random.usize(1..5000);
                // SAFETY: a system call on a descriptor that is open, without pointers.
                assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, size as i64) }, 0);
                now.resize(size, 0);
            }
            8 | 9 => {
                if random.bool() {
                    file.sync_all()
                } else {
                    file.sync_data()
                }
                .unwrap();
                durable.clone_from(&now);
            }
            10 | 11 => {
                sync_directory(directory);
                durable_name = Some(name.clone());
            }
            _ => {
                let to = format!("name-{}", random.u8(..3));
                fs::rename(directory.join(&name), directory.join(&to)).unwrap();
                name = to;
            }
        }
        assert_eq!(
            fs::metadata(directory.join(&name)).unwrap().len(),
            now.len() as u64
        );
    }
    assert_eq!(fs::read(directory.join(&name)).unwrap(), now);
    durable_name.map(|name| (name, durable))
}

#[test]
fn a_cut_leaves_exactly_what_was_synced() {
    let Some(mounted) = Mounted::new("strict") else {
        return;
    };
    for seed in 0..2000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let directory = mounted.path.join(format!("case-{seed}"));
        fs::create_dir(&directory).unwrap();
        sync_directory(&mounted.path);
        let expected = history(&directory, &mut random);
        mounted.cycle(json!({"do": "cut"}));
        let found: Vec<(String, Vec<u8>)> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (
                    entry.file_name().into_string().unwrap(),
                    fs::read(entry.path()).unwrap(),
                )
            })
            .collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "seed {seed}");
        fs::remove_dir_all(&directory).unwrap();
    }
}

fn error<T>(result: io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

#[test]
fn without_power_nothing_works_and_what_was_open_stays_dead() {
    let Some(mounted) = Mounted::new("ordered") else {
        return;
    };
    let path = mounted.path.join("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(b"lost", 4).unwrap();
    mounted.tell(json!({"do": "cut"}));
    assert_eq!(error(file.write_all_at(b"x", 0)), libc::EIO);
    assert_eq!(error(file.sync_all()), libc::EIO);
    assert_eq!(error(fs::metadata(&path)), libc::EIO);
    assert_eq!(error(fs::read_dir(&mounted.path)), libc::EIO);
    mounted.tell(json!({"do": "power-on"}));
    assert_ne!(error(file.write_all_at(b"x", 0)), 0);
    assert_eq!(fs::read(&path).unwrap(), b"kept");
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"kept");
}

#[test]
fn a_journal_commits_names_with_any_sync_but_no_data() {
    let Some(mounted) = Mounted::new("ordered") else {
        return;
    };
    let path = |name: &str| mounted.path.join(name);
    fs::write(path("other"), b"not synced").unwrap();
    File::create(path("synced")).unwrap().sync_all().unwrap();
    fs::write(path("late"), b"after the last sync").unwrap();
    mounted.cycle(json!({"do": "cut"}));
    assert_eq!(fs::read(path("other")).unwrap(), b"");
    assert!(path("synced").exists() && !path("late").exists());
}

#[test]
fn ext4_replaces_a_file_by_the_old_or_the_new_one() {
    for (metadata, expected) in [("ordered", &b""[..]), ("ext4", b"new")] {
        let Some(mounted) = Mounted::new(metadata) else {
            return;
        };
        let path = |name: &str| mounted.path.join(name);
        fs::write(path("config"), b"old").unwrap();
        mounted.tell(json!({"do": "sync"}));
        fs::write(path("config.tmp"), b"new").unwrap();
        fs::rename(path("config.tmp"), path("config")).unwrap();
        sync_directory(&mounted.path);
        mounted.cycle(json!({"do": "cut"}));
        assert_eq!(fs::read(path("config")).unwrap(), expected, "{metadata}");
    }
}

#[test]
fn syncs_are_delayed_and_fail_and_space_runs_out_as_told() {
    let Some(mounted) = Mounted::new("ordered") else {
        return;
    };
    let slow = File::create(mounted.path.join("0.log")).unwrap();
    let quick = File::create(mounted.path.join("0.index")).unwrap();
    mounted.tell(json!({"do": "fault", "rules": [{"glob": "*.log", "sync_delay_ms": 40}]}));
    let began = Instant::now();
    slow.sync_data().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(40));
    mounted.tell(json!({"do": "fault", "rules": [{"glob": "*.log", "sync_error": "EIO"}, {"glob": "*.index", "write_error": "EROFS"}]}));
    slow.write_all_at(b"data", 0).unwrap();
    assert_eq!(error(slow.sync_data()), libc::EIO);
    assert_eq!(error(quick.write_all_at(b"data", 0)), libc::EROFS);
    mounted.tell(json!({"do": "fault", "rules": []}));
    mounted.tell(json!({"do": "limit", "bytes": 8192}));
    quick.write_all_at(&[1; 8188], 0).unwrap();
    assert_eq!(error(quick.write_all_at(&[1; 1], 8188)), libc::ENOSPC);
    let counters = mounted.tell(json!({"do": "accounts"}))["classes"]["other"].clone();
    assert_eq!(counters["syncs"], json!(1));
    assert_eq!(counters["syncs_failed"], json!(1));
    assert_eq!(counters["bytes_written"], json!(4 + 8188));
    slow.sync_data().unwrap();
    mounted.cycle(json!({"do": "cut"}));
    assert_eq!(fs::read(mounted.path.join("0.log")).unwrap(), b"data");
}

#[test]
fn a_command_that_is_wrong_is_refused_with_a_sentence() {
    let Some(mounted) = Mounted::new("ordered") else {
        return;
    };
    for (wrong, part) in [
        ("{", "JSON"),
        (r#"{"do": "explode"}"#, "explode"),
        (r#"{"do": "cut", "sruvive": "torn"}"#, "sruvive"),
        (r#"{"do": "cut", "keep": 0.5}"#, "keep"),
        (r#"{"do": "cut", "survive": "random", "keep": 2}"#, "keep"),
        (r#"{"do": "status", "more": 1}"#, "more"),
        (r#"{"do": "power-on"}"#, "already"),
        (
            r#"{"do": "fault", "rules": [{"glob": "*", "sync_error": "EWHAT"}]}"#,
            "rules[0]",
        ),
        (r#"{"do": "accounts", "since": 99}"#, "since 99"),
    ] {
        let answer = mounted.say(wrong);
        assert_eq!(answer["ok"], json!(false), "{wrong}");
        assert!(
            answer["error"].as_str().unwrap().contains(part),
            "{wrong}: {answer}"
        );
        assert!(answer["monotonic_ns"].is_i64());
    }
}

#[test]
fn links_holes_and_removed_open_files_are_as_elsewhere() {
    let Some(mounted) = Mounted::new("ordered") else {
        return;
    };
    let path = |name: &str| mounted.path.join(name);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path("a"))
        .unwrap();
    file.write_all_at(b"end", 1_000_000).unwrap();
    fs::hard_link(path("a"), path("b")).unwrap();
    std::os::unix::fs::symlink("b", path("c")).unwrap();
    assert_eq!(fs::metadata(path("c")).unwrap().len(), 1_000_003);
    fs::remove_file(path("a")).unwrap();
    fs::remove_file(path("b")).unwrap();
    let mut bytes = [9; 4];
    file.read_exact_at(&mut bytes[..3], 1_000_000).unwrap();
    assert_eq!(&bytes[..3], b"end");
    file.read_exact_at(&mut bytes, 5000).unwrap();
    assert_eq!(bytes, [0; 4]);
    drop(file);
    fs::write(path("x"), b"x").unwrap();
    fs::write(path("y"), b"y").unwrap();
    let c_path = |name: &str| CString::new(path(name).as_os_str().as_bytes()).unwrap();
    let rename = |flags| {
        let (from, to) = (c_path("x"), c_path("y"));
        // SAFETY: both paths are C strings that outlive the call.
        unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) }
    };
    assert_eq!(rename(libc::RENAME_NOREPLACE), -1);
    assert_eq!(rename(libc::RENAME_EXCHANGE), 0);
    assert_eq!(
        (fs::read(path("x")).unwrap(), fs::read(path("y")).unwrap()),
        (b"y".to_vec(), b"x".to_vec())
    );
}

#[test]
fn what_a_killed_one_left_is_cleaned_up() {
    let Some(mut mounted) = Mounted::new("ordered") else {
        return;
    };
    fs::write(mounted.path.join("a"), b"gone with the process").unwrap();
    mounted.child.kill().unwrap();
    mounted.child.wait().unwrap();
    assert_eq!(error(fs::metadata(&mounted.path)), libc::ENOTCONN);
    let clean = || {
        Command::new(env!("CARGO_BIN_EXE_gauge"))
            .args(["powercut", "--clean"])
            .arg(&mounted.path)
            .status()
            .unwrap()
    };
    assert_eq!(clean().code(), Some(0));
    assert_eq!(fs::read_dir(&mounted.path).unwrap().count(), 0);
    assert_eq!(clean().code(), Some(0));
    let (child, mut out) = start(&mounted.scratch, "ordered");
    mounted.child = child;
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("ready "));
    assert_eq!(fs::read_dir(&mounted.path).unwrap().count(), 0);
}
