//! Runs seeds of the simulated world (docs/simulation.md).

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gauge_sim::{REGISTRY, Registered, by_name, swarm};

#[derive(Parser)]
#[command(about = "Run the worker's trials in a simulated world and compare them with what the world knows")]
struct Arguments {
    /// Whose servers the world has
    #[arg(long, value_parser = protocol, default_value = "kafka")]
    protocol: Registered,
    /// One seed, told in full
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds FROM..TO, TO left out
    #[arg(long, value_parser = range, default_value = "0..300")]
    seeds: (u64, u64),
    /// No seed is begun after so many minutes
    #[arg(long)]
    minutes: Option<f64>,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once("..").map(|(from, to)| (from.parse(), to.parse()));
    match parts {
        Some((Ok(from), Ok(to))) if from < to => Ok((from, to)),
        _ => Err("expected FROM..TO, two whole numbers of which the second is larger".to_owned()),
    }
}

fn protocol(name: &str) -> Result<Registered, String> {
    by_name(name).ok_or_else(|| {
        let known: Vec<&str> = REGISTRY.iter().map(|known| known.name).collect();
        format!("expected a protocol that has a world: {}", known.join(", "))
    })
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let protocol = arguments.protocol;
    if let Some(seed) = arguments.seed {
        println!("{}", (protocol.tell)(seed));
        let report = (protocol.run)(seed);
        println!(
            "{} messages in {:.3} s of simulated time",
            report.messages,
            report.simulated_ns as f64 / 1e9
        );
        for disagreement in &report.disagreements {
            println!("disagrees: {disagreement}");
        }
        return if report.disagreements.is_empty() {
            println!("seed {seed} agrees");
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let within = arguments
        .minutes
        .map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let (from, to) = arguments.seeds;
    let swarm = swarm::run(protocol, from..to, within, |report| {
        if let Some(first) = report.disagreements.first() {
            println!(
                "seed {}: {first}\n  {}",
                report.seed,
                swarm::command(report.protocol, report.seed)
            );
        }
        true
    });
    let seconds = swarm.took.as_secs_f64();
    println!(
        "{} seeds in {seconds:.1} s ({:.1} seeds/s): {} disagree; {} messages, {:.0} s of simulated time",
        swarm.seeds,
        swarm.seeds as f64 / seconds,
        swarm.failed.len(),
        swarm.messages,
        swarm.simulated_ns as f64 / 1e9
    );
    let missing: Vec<String> = swarm
        .marks
        .missing(protocol.marks)
        .map(|mark| format!("{mark:?}"))
        .collect();
    if !missing.is_empty() {
        println!("never came to: {}", missing.join(", "));
    }
    if swarm.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
