//! Many seeds, one after the other.

use std::time::{Duration, Instant};

use crate::marks::Marks;
use crate::system::Registered;
use crate::trial::Report;

/// What became of a swarm.
#[derive(Debug, Default)]
pub struct Swarm {
    /// How many were run.
    pub seeds: u64,
    /// Messages that were sent.
    pub messages: usize,
    /// How much time passed in their worlds.
    pub simulated_ns: i64,
    /// What they came to, all together.
    pub marks: Marks,
    /// Seeds whose result is not true.
    pub failed: Vec<Report>,
    /// How long that took.
    pub took: Duration,
}

/// How a seed is run again.
pub fn command(protocol: &str, seed: u64) -> String {
    format!("cargo run --release -p gauge-sim -- --protocol {protocol} --seed {seed}")
}

/// Runs seeds, until they are done, `enough` says so, or the time is over.
pub fn run(
    protocol: Registered,
    seeds: impl IntoIterator<Item = u64>,
    within: Option<Duration>,
    mut each: impl FnMut(&Report) -> bool,
) -> Swarm {
    let began = Instant::now();
    let mut swarm = Swarm::default();
    for seed in seeds {
        if within.is_some_and(|within| began.elapsed() > within) {
            break;
        }
        let report = (protocol.run)(seed);
        swarm.seeds += 1;
        swarm.messages += report.messages;
        swarm.simulated_ns += report.simulated_ns;
        swarm.marks.add(report.marks);
        let goes_on = each(&report);
        if !report.disagreements.is_empty() {
            swarm.failed.push(report);
        }
        if !goes_on {
            break;
        }
    }
    swarm.took = began.elapsed();
    swarm
}
