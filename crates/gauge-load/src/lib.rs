//! See the crate's section in docs/architecture.md.
