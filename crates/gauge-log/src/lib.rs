//! The reference log: a single-node append log that speaks enough of Kafka's protocol for ordinary clients.
//!
//! See `docs/reference-log.md` for what it is for, how it stores data, and what it measures. The parts:
//!
//! - `cli`: the command `gauge log`; `settings`: what it was told; `start`: threads and their end.
//! - `access`: who may speak to it; `net`: sockets; `api`: requests and responses; `wire` and `batch`: the formats.
//! - `broker`: topics, groups, producers, behind one lock and without I/O.
//! - `storage`: the journal; `commit`, `write_back`, `prepare`, `load`, `maintain`: the threads that touch the disk; `recovery`: what happens before them.
//! - `scheduling`: what threads ask of the kernel. `mutants`: deliberate faults, in tests only.

pub mod access;
pub mod api;
pub mod batch;
pub mod broker;
pub mod cli;
pub mod commit;
pub mod events;
#[doc(hidden)]
pub mod fuzzing;
pub mod load;
pub mod maintain;
pub mod metrics;
#[doc(hidden)]
pub mod mutants;
pub mod net;
pub mod prepare;
pub mod recovery;
pub mod scheduling;
pub mod settings;
pub mod shared;
pub mod start;
pub mod storage;
pub mod wire;
pub mod write_back;
