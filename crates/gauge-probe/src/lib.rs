//! What this machine can do: the limits that every figure of a messaging system is held against.
//!
//! A throughput figure means little without the limit that binds it, so each study probes its machine before and after: sequential disk
//! bandwidth past the page cache, the latency of a durable 4 KiB append, loopback TCP, the copy and checksum rate of one core, and
//! how late a sleeping thread wakes up. The probe measures what the machine gives *now*, with whatever else runs on it, because that is
//! what the system under test gets too.
//!
//! One module per thing that is measured; `probe` runs them in an order in which they do not disturb each other, `report` holds the
//! figures (and is the JSON contract), `cli` is the command. Linux only: O_DIRECT, fdatasync and clock_nanosleep are its interfaces.

pub mod cli;
mod clock;
mod cpu;
mod disk;
mod error;
mod host;
mod network;
mod probe;
pub mod report;
mod samples;
mod scratch;
mod table;
mod wakeup;

pub use error::ProbeError;
pub use probe::{Length, OfDisks, probe};
