//! The `gauge` binary: argument parsing and nothing else.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The instrument of streamgauge: what must be fast or exact.
#[derive(Parser)]
#[command(name = "gauge", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Drive load on behalf of a lab.
    Worker(gauge_worker::cli::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Worker(args) => gauge_worker::cli::run(&args),
    }
}
