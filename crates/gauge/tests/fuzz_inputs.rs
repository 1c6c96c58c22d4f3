//! What fuzzing begins with, and what it has found before: every input is survived, in an ordinary test.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::collections::BTreeSet;
use std::path::Path;

use gauge_load::fuzzing::Target;

#[test]
fn inputs_that_were_found_and_those_to_begin_with_are_survived() {
    let targets: Vec<Target> = [
        gauge_client::fuzzing::targets(),
        gauge_load::fuzzing::targets(),
        gauge_log::fuzzing::targets(),
        gauge_powercut::fuzzing::targets(),
        gauge_worker::fuzzing::targets(),
    ]
    .concat();
    let found = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/regressions"));
    let kept: BTreeSet<String> = std::fs::read_dir(found)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        // Those of the lab's parsers are run by tests/test_fuzz_lab.py.
        .filter(|name| !name.starts_with("lab-"))
        .collect();
    let names: BTreeSet<String> = targets.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert!(kept.is_subset(&names), "inputs of no target: {kept:?}");
    for (name, run, seeds) in targets {
        assert!(!seeds().is_empty(), "{name} begins with nothing");
        seeds().iter().for_each(|seed| run(seed));
        for entry in std::fs::read_dir(found.join(name)).into_iter().flatten() {
            run(&std::fs::read(entry.unwrap().path()).unwrap());
        }
    }
}
