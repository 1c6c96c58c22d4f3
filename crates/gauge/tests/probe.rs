//! `gauge probe` as a user runs it: real directories, the real command, its output and its exit status.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const GAUGE: &str = env!("CARGO_BIN_EXE_gauge");

/// A directory on the disk of the build (a temporary directory may be memory), removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn entries(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::set_permissions(&self.0, fs::Permissions::from_mode(0o755));
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn probe(directory: &Path, more: &[&str]) -> Output {
    Command::new(GAUGE)
        .args(["probe", "--short", "--dir"])
        .arg(directory)
        .args(more)
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The probe on a small file system of its own in a private mount namespace. None where this user may not make one.
fn probe_on_tmpfs(directory: &Directory, options: &str) -> Option<Output> {
    const READY: &str = "mounted";
    let script = r#"mount -t tmpfs -o "$3" none "$2" && echo mounted && exec "$1" probe --short --dir "$2""#;
    let output = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
            GAUGE,
        ])
        .arg(&directory.0)
        .arg(options)
        .output();
    match output {
        Ok(output) if String::from_utf8_lossy(&output.stdout).starts_with(READY) => Some(output),
        _ => {
            eprintln!("not checked: this user may not mount a file system in a namespace");
            None
        }
    }
}

fn number(value: &Value, pointer: &str) -> f64 {
    value
        .pointer(pointer)
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("no number at {pointer} in {value}"))
}

fn keys(value: &Value, pointer: &str) -> Vec<String> {
    let object = value.pointer(pointer).and_then(Value::as_object);
    object
        .unwrap_or_else(|| panic!("no object at {pointer} in {value}"))
        .keys()
        .cloned()
        .collect()
}

fn assert_ascending(value: &Value, pointer: &str, names: &[&str]) {
    let figures: Vec<f64> = names
        .iter()
        .map(|name| number(value, &format!("{pointer}/{name}")))
        .collect();
    assert!(figures.is_sorted(), "{pointer}: {figures:?}");
    assert!(figures[0] > 0.0, "{pointer}: {figures:?}");
    assert!(number(value, &format!("{pointer}/count")) >= 1.0);
}

#[test]
fn json_holds_every_figure_and_nothing_is_left_behind() {
    let directory = Directory::new("json");
    let output = probe(&directory.0, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();

    let mut names = keys(&report, "");
    names.sort_unstable();
    let expected = [
        "clock",
        "cpu",
        "disk",
        "disks",
        "host",
        "network",
        "notes",
        "short",
        "started_unix_ms",
        "version",
        "wakeup_us",
    ];
    assert_eq!(names, expected);
    assert_eq!(report["version"], 1);
    assert_eq!(report["short"], true);
    assert!(number(&report, "/started_unix_ms") > 1.7e12);
    assert!(number(&report, "/host/cores") >= 1.0);
    assert!(number(&report, "/host/memory_bytes") > 1e7);
    for name in ["hostname", "kernel", "cpu_model"] {
        assert!(!report["host"][name].as_str().unwrap().is_empty(), "{name}");
    }

    assert_eq!(
        report["disk"]["dir"].as_str().unwrap(),
        directory.0.canonicalize().unwrap().to_str().unwrap()
    );
    assert!(report["disk"]["o_direct"].is_boolean());
    for rate in [
        "/disk/write_mb_s",
        "/disk/read_mb_s",
        "/disk/fsync_per_s",
        "/network/loopback_mb_s",
        "/cpu/memcpy_mb_s",
        "/cpu/crc32c_mb_s",
        "/clock/resolution_ns",
        "/clock/read_ns",
    ] {
        assert!(number(&report, rate) > 0.0, "{rate}");
    }
    assert_ascending(&report, "/disk/fsync_ms", &["p50", "p90", "p99", "p99_9", "max"]);
    assert_ascending(&report, "/network/round_trip_us", &["p50", "p99", "max"]);
    assert_ascending(&report, "/wakeup_us/normal", &["p50", "p99", "p99_9", "max"]);
    let notes = report["notes"].as_array().unwrap();
    if report["wakeup_us"]["fifo"].is_null() {
        assert!(
            notes
                .iter()
                .any(|note| note.as_str().unwrap().contains("SCHED_FIFO")),
            "{notes:?}"
        );
    } else {
        assert_ascending(&report, "/wakeup_us/fifo", &["p50", "p99", "p99_9", "max"]);
    }

    assert!(
        stderr(&output).contains("probing: sequential write"),
        "{}",
        stderr(&output)
    );
    assert_eq!(directory.entries(), Vec::<PathBuf>::new());
}

#[test]
fn the_table_names_every_figure() {
    let directory = Directory::new("table");
    let output = probe(&directory.0, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    for name in [
        "sequential write",
        "sequential read",
        "4 KiB append + fdatasync",
        "loopback bandwidth",
        "loopback round trip",
        "memory copy",
        "CRC-32C",
        "late by, SCHED_FIFO",
        "late by, normal",
        "resolution",
    ] {
        assert!(table.contains(name), "{name} is missing in\n{table}");
    }
}

#[test]
fn a_directory_that_does_not_exist_is_a_clear_error() {
    let directory = Directory::new("missing");
    let missing = directory.0.join("absent");
    let output = probe(&missing, &["--json"]);
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    assert!(
        message.contains(missing.to_str().unwrap()) && message.contains("--dir"),
        "{message}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn a_file_is_not_a_directory() {
    let directory = Directory::new("file");
    let file = directory.0.join("file");
    fs::write(&file, "kept").unwrap();
    let output = probe(&file, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("is not a directory"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
}

#[test]
fn a_directory_that_is_not_writable_is_a_clear_error() {
    let directory = Directory::new("readonly");
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o555)).unwrap();
    // Root writes everywhere, so it needs a file system that is read-only by itself.
    let is_root = fs::write(directory.0.join("by-root"), "").is_ok();
    let output = if is_root {
        probe_on_tmpfs(&directory, "ro,size=256m")
    } else {
        Some(probe(&directory.0, &[]))
    };
    if let Some(output) = output {
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("not writable"), "{}", stderr(&output));
    }
}

#[test]
fn a_directory_without_room_is_a_clear_error() {
    // /proc is a directory on every Linux whose file system has no room.
    let output = probe(Path::new("/proc"), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("is full: 0 MB are free"),
        "{}",
        stderr(&output)
    );

    let directory = Directory::new("full");
    if let Some(output) = probe_on_tmpfs(&directory, "size=2m") {
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("is full: 2 MB are free"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_file_system_in_memory_is_called_one() {
    let directory = Directory::new("memory");
    if let Some(output) = probe_on_tmpfs(&directory, "size=160m") {
        assert!(output.status.success(), "{}", stderr(&output));
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(table.contains("is a file system in memory"), "{table}");
    }
}

#[test]
fn a_signal_leaves_nothing_behind() {
    let directory = Directory::new("signal");
    let mut child = Command::new(GAUGE)
        .args(["probe", "--dir"])
        .arg(&directory.0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("append"));
    // The file comes right after the line; the first step of a full probe lasts seconds, so that it is there to be seen.
    while directory.entries().is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "the probe ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(
        Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(15), "{status:?}");
    assert_eq!(directory.entries(), Vec::<PathBuf>::new());
    assert!(lines.any(|line| line.unwrap().contains("stopped by a signal")));
}

#[test]
fn an_unknown_option_is_an_input_error() {
    let output = Command::new(GAUGE).args(["probe", "--fast"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--fast"), "{}", stderr(&output));
}

#[test]
fn several_disks_are_probed_with_as_much_as_was_asked_for() {
    let (one, two) = (Directory::new("disk-1"), Directory::new("disk-2"));
    let second = two.0.to_str().unwrap();
    let output = probe(&one.0, &["--dir", second, "--bytes", "4194304", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let disks = report["disks"].as_array().unwrap();
    assert_eq!(disks.len(), 2);
    assert_eq!(report["disk"], disks[0]);
    assert!(
        disks[1]["dir"]
            .as_str()
            .unwrap()
            .ends_with(two.0.file_name().unwrap().to_str().unwrap())
    );
    for disk in disks {
        assert_eq!(disk["written_bytes"], 4_194_304);
        assert!(disk["write_mb_s"].as_f64().unwrap() > 0.0);
    }
    assert!(one.entries().is_empty() && two.entries().is_empty());
}

#[test]
fn more_than_half_of_what_is_free_is_refused() {
    let directory = Directory::new("too-much");
    let output = probe(&directory.0, &["--bytes", "17592186044416"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("ask for fewer with --bytes"),
        "{}",
        stderr(&output)
    );
}
