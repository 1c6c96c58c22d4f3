//! `gauge log` by itself, for work on it: `cargo run --release -p gauge-log --example log -- --help` builds in a fraction of the time of the whole program.

use std::process::ExitCode;

use clap::Parser;

/// The reference log.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    log: gauge_log::cli::Args,
}

fn main() -> ExitCode {
    gauge_log::cli::run(Arguments::parse().log)
}
