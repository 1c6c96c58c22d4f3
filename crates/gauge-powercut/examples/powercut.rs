//! `gauge powercut` by itself, for work on it: `cargo run --release -p gauge-powercut --example powercut -- --help`.

use std::process::ExitCode;

use clap::Parser;

/// The file system.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    powercut: gauge_powercut::cli::Args,
}

fn main() -> ExitCode {
    gauge_powercut::cli::run(Arguments::parse().powercut)
}
