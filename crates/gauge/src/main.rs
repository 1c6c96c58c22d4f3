//! The `gauge` binary: argument parsing and nothing else.

fn main() {}
