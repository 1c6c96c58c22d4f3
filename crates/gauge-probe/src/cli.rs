//! The command `gauge probe`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::ProbeError;
use crate::report::Report;
use crate::{Length, OfDisks, probe, scratch, table};

/// Measure what this machine can do: disk, fsync, loopback network, one core, wake-ups, clock
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Take about 3 s instead of about 15 s
    #[arg(long)]
    short: bool,
    /// Where the disk is probed; the files written there are removed in every case. Several are allowed, one after the other: a directory for each disk
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: Vec<PathBuf>,
    /// Write so many bytes to each disk, however long that takes, as `dd` would (such as 68719476736, 64 GiB); half of what is free must hold them
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1 << 20..=1 << 44))]
    bytes: Option<u64>,
    /// Append and sync for so many seconds at each disk, however long the rest takes, and tell the 99th percentile of each second (with --json)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(2..=3600))]
    fsync: Option<u32>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command. The figures go to standard output, progress and errors to standard error. Exit status: 0 done, 2 the directory
/// cannot be used, 3 the machine failed while it was measured.
pub fn run(args: Args) -> ExitCode {
    match measure_and_print(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed; there is nobody left to tell then.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}

fn measure_and_print(args: &Args) -> Result<(), ProbeError> {
    scratch::remove_on_signals()
        .map_err(|error| ProbeError::from_machine("install its signal handlers", &error))?;
    let length = if args.short { Length::Short } else { Length::Full };
    let of_disks = OfDisks {
        bytes: args.bytes,
        fsync_s: args.fsync,
    };
    let report = probe(length, &args.dir, of_disks, &mut |step| {
        let _ = writeln!(io::stderr(), "probing: {step}");
    })?;
    let text = if args.json {
        json(&report)?
    } else {
        table::render(&report)
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads has seen enough (`| head`).
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|error| ProbeError::from_machine("print its figures", &error)),
    }
}

fn json(report: &Report) -> Result<String, ProbeError> {
    let text = serde_json::to_string(report)
        .map_err(|error| ProbeError::Machine(format!("the probe could not encode its figures: {error}")))?;
    Ok(text + "\n")
}
