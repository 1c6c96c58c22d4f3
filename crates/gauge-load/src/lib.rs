//! The heart of the gauge: exact schedules, stamped messages, honest recording, and the audit.
//!
//! Nothing in this crate does I/O or knows a protocol. A lane (an OS thread of `gauge-worker`) owns one [`Observer`] and one
//! [`Emitter`] per producer; the protocol clients of `gauge-client` take departures from the emitters, put them on the wire,
//! and report acknowledgements and receipts to the observer. At the end the lanes' books are added up and [`audit::judge`]d.
//!
//! All times are nanoseconds of `CLOCK_MONOTONIC` ([`clock::monotonic_ns`]) unless a name says otherwise.

pub mod audit;
pub mod clock;
mod clocks;
pub mod crc;
mod emitter;
#[doc(hidden)]
pub mod fuzzing;
pub mod latency;
mod ledger;
pub mod mutants;
mod observer;
mod pacing;
mod payload;
pub mod quiet;
mod sequence_set;
mod skew;
pub mod stamp;
mod tally;

pub use clocks::{Ahead, Clocks};
pub use emitter::{Departure, Emitter, EmitterSpec};
pub use latency::{Latency, Metric};
pub use ledger::{BatchLedger, Run};
pub use observer::{Books, Observer, SentRun};
pub use pacing::{Arrival, Ramp, RateChange, Schedule, ScheduleSpec};
pub use payload::{PayloadPool, Template};
pub use sequence_set::{RangeSet, SequenceSet};
pub use skew::KeySkew;
pub use tally::{Counters, Distribution, Phase, PhaseLatencies, Received, Tally};
