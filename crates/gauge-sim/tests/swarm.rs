//! The swarm of the simulated world, and the mutants that it must find (docs/simulation.md).
//!
//! ```sh
//! cargo test --release -p gauge-sim --test swarm every_mutant -- --ignored --nocapture
//! MUTANTS=AckDropped,EndKept cargo test --release -p gauge-sim --test swarm every_mutant -- --ignored --nocapture
//! ```

#![allow(clippy::expect_used, reason = "a test ends when it cannot go on")]

use gauge_load::mutants::{self, ALL, Mutant};
use gauge_sim::{REGISTRY, Registered, by_name, swarm};

/// A mutant is found within so many seeds.
const SEEDS: u64 = 1_000;

/// The world of the protocol in whose client the fault is; faults of what all share are looked for with Kafka.
fn protocol_of(mutant: Mutant) -> Registered {
    let name = format!("{mutant:?}").to_lowercase();
    let is_own = |protocol: &&Registered| name.starts_with(&protocol.name.replace('-', ""));
    // One name may begin with another.
    let own = REGISTRY
        .iter()
        .filter(is_own)
        .max_by_key(|protocol| protocol.name.len());
    *own.unwrap_or(&by_name("kafka").expect("it is registered"))
}

/// The first seed that disagrees, and how.
fn find(mutant: Mutant) -> Option<(u64, String)> {
    mutants::activate(Some(mutant));
    let swarm = swarm::run(protocol_of(mutant), 0..SEEDS, None, |report| {
        report.disagreements.is_empty()
    });
    mutants::activate(None);
    let found = swarm.failed.into_iter().next()?;
    Some((
        found.seed,
        found.disagreements.into_iter().next().unwrap_or_default(),
    ))
}

/// The first seeds, and some that found a fault or come to a state as none of them does.
fn agrees(protocol: &str, seeds: u64, more: &[u64]) {
    let protocol = by_name(protocol).expect("it is registered");
    let seeds = (0..seeds).chain(more.iter().copied());
    let swarm = swarm::run(protocol, seeds, None, |_| true);
    let failed: Vec<String> = swarm
        .failed
        .iter()
        .map(|report| {
            format!(
                "{}\n  {}",
                report.disagreements.join("\n  "),
                swarm::command(report.protocol, report.seed)
            )
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let missing: Vec<_> = swarm.marks.missing(protocol.marks).collect();
    assert!(missing.is_empty(), "the swarm never came to {missing:?}");
}

#[test]
fn what_the_gauge_says_is_what_kafkas_world_knows() {
    agrees("kafka", 400, &[2735, 7167]);
}

#[test]
fn what_the_gauge_says_is_what_natss_world_knows() {
    agrees("nats", 150, &[976, 2918]);
}

#[test]
fn what_the_gauge_says_is_what_pulsars_world_knows() {
    agrees("pulsar", 300, &[719, 732, 801, 9493, 11221]);
}

#[test]
fn what_the_gauge_says_is_what_rabbitmqs_world_knows() {
    agrees(
        "rabbitmq",
        60,
        &[65, 74, 83, 97, 106, 115, 99, 158, 910, 4682, 7670],
    );
}

#[test]
fn what_the_gauge_says_is_what_the_streams_world_knows() {
    agrees("rabbitmq-stream", 40, &[65, 74, 83, 97, 106, 115, 86, 725]);
}

#[test]
fn a_seed_is_the_same_each_time() {
    for protocol in REGISTRY {
        for seed in [1, 7, 10] {
            let [one, two] = [(protocol.run)(seed), (protocol.run)(seed)];
            assert_eq!(
                (one.messages, one.simulated_ns, one.marks),
                (two.messages, two.simulated_ns, two.marks),
                "{}",
                swarm::command(protocol.name, seed)
            );
        }
    }
}

#[test]
fn some_mutants_are_found() {
    // Those that are found at once, so that every run of the tests shows that the world can disagree.
    for mutant in [
        Mutant::AckDropped,
        Mutant::OmissionCoordinated,
        Mutant::SampleLost,
        Mutant::PartialWriteRepeated,
    ] {
        assert!(
            find(mutant).is_some(),
            "{mutant:?} was not found within {SEEDS} seeds"
        );
    }
}

#[test]
#[ignore = "minutes: every mutant until it is found"]
fn every_mutant_is_found() {
    let only = std::env::var("MUTANTS").ok();
    let is_wanted = |mutant: Mutant| {
        let name = format!("{mutant:?}");
        only.as_ref()
            .is_none_or(|only| only.split(',').any(|one| one == name))
    };
    let mut missed = Vec::new();
    for (mutant, what) in ALL.into_iter().filter(|(mutant, _)| is_wanted(*mutant)) {
        match find(mutant) {
            Some((seed, how)) => println!("{mutant:?} ({what}): seed {seed}: {how}"),
            None => {
                println!("{mutant:?} ({what}): NOT FOUND");
                missed.push(mutant);
            }
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
