//! Whether the log loses data: thousands of histories of a log on a disk that loses power, tears and loses writes, and fails, each decided by one number.
//!
//! The log is the real one without its threads: requests are handled, commits written, segments prepared, states written and old segments deleted one step at a time, in an
//! order that the number decides. The disk is gauge-powercut's, in memory. After every restart everything is read and compared with a model (`model`) of what was asked:
//! it must be what was asked up to some point, and that point must not lie before what was acknowledged.
//!
//! A history that fails says how to run it again. Many:
//!
//! ```text
//! GAUGE_LOG_HISTORIES=100000 cargo test --release -p gauge-log --test simulation histories -- --nocapture
//! GAUGE_LOG_HISTORY=fsync:17 cargo test --release -p gauge-log --test simulation again -- --nocapture
//! cargo test --release -p gauge-log --test simulation every_mutant -- --ignored --nocapture
//! ```

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something unexpected happens"
)]

mod client;
mod disk;
mod history;
mod model;
mod regressions;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use gauge_log::mutants::{self, ALL, Mutant};
use gauge_log::storage::segment::Durability;
use history::Marks;

const MODES: [Durability; 2] = [Durability::Fsync, Durability::Async];
/// Histories per mode that every run of the tests takes.
const HISTORIES: u64 = 1_500;
/// Histories within which every mutant must be found.
const MUTANT_HISTORIES: u64 = 2_000;

/// Runs one history; a panic is a failure like any other.
fn run(seed: u64, durability: Durability) -> Result<Marks, String> {
    let ran = catch_unwind(AssertUnwindSafe(|| history::run(seed, durability)));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("a panic: {}", text.unwrap_or_default()))
    })
}

thread_local! {
    static IS_QUIET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Panics of mutants are found, not shown.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                usual(panic);
            }
        }));
    });
    IS_QUIET.set(true);
}

fn command(seed: u64, durability: Durability) -> String {
    let mode = durability.name();
    format!(
        "GAUGE_LOG_HISTORY={mode}:{seed} cargo test --release -p gauge-log --test simulation again -- --nocapture"
    )
}

/// Runs histories on all cores, and says what happened in them.
fn histories(durability: Durability, count: u64) -> Marks {
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let marks = std::thread::scope(|scope| {
        let work = || {
            let mut marks = Marks::default();
            while !failed.load(Ordering::Relaxed) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= count {
                    break;
                }
                match run(seed, durability) {
                    Ok(happened) => marks.add(&happened),
                    Err(text) => {
                        failed.store(true, Ordering::Relaxed);
                        panic!("history {seed}: {text}\nagain: {}", command(seed, durability));
                    }
                }
            }
            marks
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Marks::default();
        for thread in threads {
            match thread.join() {
                Ok(marks) => all.add(&marks),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    println!(
        "{}: {count} histories in {:.1} s, none lost anything: {:?}",
        durability.name(),
        begun.elapsed().as_secs_f64(),
        marks.0
    );
    marks
}

fn histories_wanted() -> u64 {
    let wanted = std::env::var("GAUGE_LOG_HISTORIES").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(HISTORIES)
}

/// What must happen at least once: a swarm that never gets there proves nothing.
const MUST_HAPPEN: [&str; 15] = [
    "a hundred producers",
    "appended during a commit",
    "batch sent again",
    "commit failed",
    "consumed",
    "died within an operation",
    "power cut",
    "recovery broken off",
    "segment begun",
    "segment deleted",
    "time found",
    "state written",
    "torn tail cut",
    "damage survived",
    "damage refused",
];

#[test]
fn histories_in_fsync_mode_lose_nothing_that_was_acknowledged() {
    let marks = histories(Durability::Fsync, histories_wanted());
    for what in MUST_HAPPEN {
        assert!(marks.0.contains_key(what), "no history reached '{what}'");
    }
}

#[test]
fn histories_in_async_mode_lose_nothing_but_with_the_power() {
    let marks = histories(Durability::Async, histories_wanted());
    for what in MUST_HAPPEN.into_iter().filter(|what| !what.starts_with("damage")) {
        assert!(marks.0.contains_key(what), "no history reached '{what}'");
    }
}

/// Not a test by itself: one history, named as `mode:number`.
#[test]
fn again() {
    let Ok(named) = std::env::var("GAUGE_LOG_HISTORY") else {
        return;
    };
    let (mode, seed) = named.split_once(':').expect("GAUGE_LOG_HISTORY=MODE:NUMBER");
    let durability = MODES.into_iter().find(|durability| durability.name() == mode);
    let durability = durability.expect("the mode is fsync or async");
    let mutant = std::env::var("GAUGE_LOG_MUTANT").ok();
    let mutant = mutant.map(|name| {
        let found = ALL.iter().find(|(mutant, _)| format!("{mutant:?}") == name);
        found.expect("a mutant of src/mutants.rs").0
    });
    mutants::activate(mutant);
    match run(seed.parse().expect("a number"), durability) {
        Ok(marks) => println!("{named}: {:?}", marks.0),
        Err(text) => panic!("{named}: {text}"),
    }
}

/// The number of histories after which a mutant was found, and what was wrong.
fn find(mutant: Mutant) -> Option<(u64, String)> {
    hush();
    mutants::activate(Some(mutant));
    let found = (0..MUTANT_HISTORIES).find_map(|number| {
        // Both modes in turn.
        let durability = MODES[(number % 2) as usize];
        let text = run(number / 2, durability).err()?;
        Some((
            number + 1,
            format!("{}:{}: {text}", durability.name(), number / 2),
        ))
    });
    mutants::activate(None);
    IS_QUIET.set(false);
    found
}

fn find_all(mutants: &[(Mutant, &str)]) {
    let mut missed = Vec::new();
    for (mutant, what) in mutants {
        let begun = Instant::now();
        match find(*mutant) {
            Some((number, text)) => {
                let short: String = text.chars().take(200).collect();
                println!(
                    "{mutant:?} ({what}): found after {number} histories, {:.1} s: {short}",
                    begun.elapsed().as_secs_f64()
                );
            }
            None => missed.push(mutant),
        }
    }
    assert!(
        missed.is_empty(),
        "not found in {MUTANT_HISTORIES} histories: {missed:?}"
    );
}

#[test]
fn some_mutants_are_found() {
    // Those that are found at once, so that every run of the tests shows that the simulation can fail.
    let quick = [
        Mutant::AcknowledgedBeforeWritten,
        Mutant::OffsetOffByOne,
        Mutant::TailNotTruncated,
        Mutant::ZeroesArePadding,
        Mutant::PartitionIdsReused,
        Mutant::LogStartNotJournaled,
    ];
    let chosen: Vec<_> = ALL
        .into_iter()
        .filter(|(mutant, _)| quick.contains(mutant))
        .collect();
    find_all(&chosen);
}

#[test]
#[ignore = "takes minutes"]
fn every_mutant_is_found() {
    find_all(&ALL);
}
