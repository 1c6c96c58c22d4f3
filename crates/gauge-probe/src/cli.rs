//! The command `gauge probe`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::ProbeError;
use crate::report::Report;
use crate::{Length, probe, scratch, table};

/// Measure what this machine can do: disk, fsync, loopback network, one core, wake-ups, clock
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Take about 3 s instead of about 15 s
    #[arg(long)]
    short: bool,
    /// Where the disk is probed; the file written there is removed in every case
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
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
    let report = probe(length, &args.dir, &mut |step| {
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
