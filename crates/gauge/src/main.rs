//! The `gauge` binary: argument parsing and nothing else.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Everything of streamgauge that must be fast or exact: load, questions to brokers, the reference log, disks that lose power, probes of the machine
#[derive(Parser)]
#[command(name = "gauge", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Agent(gauge_worker::agent::Args),
    Describe(gauge_client::cli::Args),
    Idle(gauge_worker::idle::Args),
    Log(gauge_log::cli::Args),
    Powercut(gauge_powercut::cli::Args),
    Probe(gauge_probe::cli::Args),
    Syncs(gauge_worker::syncs::Args),
    /// Drive load on behalf of a lab
    Worker(gauge_worker::cli::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Agent(args) => gauge_worker::agent::run(args),
        Command::Describe(args) => gauge_client::cli::run(&args),
        Command::Idle(args) => gauge_worker::idle::run(args),
        Command::Log(args) => gauge_log::cli::run(args),
        Command::Powercut(args) => gauge_powercut::cli::run(args),
        Command::Probe(args) => gauge_probe::cli::run(args),
        Command::Syncs(args) => gauge_worker::syncs::run(&args),
        Command::Worker(args) => gauge_worker::cli::run(args),
    }
}
