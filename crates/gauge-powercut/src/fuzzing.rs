//! What `make fuzz` calls (fuzz/README.md): the commands that come over the control socket.

use gauge_load::fuzzing::Target;

use crate::control;

/// The targets of this crate.
pub fn targets() -> Vec<Target> {
    vec![("powercut-commands", commands, command_seeds)]
}

fn commands(input: &[u8]) {
    if let Ok(line) = std::str::from_utf8(input) {
        // What is no command is refused with a sentence.
        let _ = control::try_line(line);
    }
}

fn command_seeds() -> Vec<Vec<u8>> {
    [
        r#"{"do": "status"}"#,
        r#"{"do": "cut", "survive": "random", "keep": 0.5, "seed": 7, "names": "all"}"#,
        r#"{"do": "fault", "rules": [{"glob": "**/*.log", "sync_delay_ms": 5, "sync_error": "EIO", "write_error": "ENOSPC"}]}"#,
        r#"{"do": "limit", "bytes": 1000}"#,
        r#"{"do": "accounts", "since": 1}"#,
    ]
    .map(|line| line.as_bytes().to_vec())
    .to_vec()
}
