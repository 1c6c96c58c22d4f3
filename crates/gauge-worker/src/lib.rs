//! The load worker: one process that drives load and knows nothing of studies, files or reports.
//!
//! - `api`: the HTTP API of docs/worker-api.md; `request` are its bodies, `error` its errors, `server` its sockets, `seats` how many of them, `body` how
//!   much is read, `access` and `browser` who may ask.
//! - `plan`: from a request to a plan in which every value was looked at; `load`: its producers and schedule; `messages`: their bodies and keys;
//!   `check`: single values.
//! - `trial`: the trial's state machine, a thread; `handle`: how the API talks to it; `drain`: when everything is there; `judgement`: the audit;
//!   `books`: the audit over several workers.
//! - `lane`: a thread that owns a client and paces it; `link`: what it and the trial say to each other; `scheduling`: what the kernel gives it.
//! - `probes`: a thread per CPU that notes when it was not to be had; `accounts`: what the kernel says of it; `disturbance`: both, put together
//!   for an interval; `ticks`: whom a CPU's timer interrupts met; `perf`: the kernel's records of events.
//! - `simulation`: a trial without threads, for a world whose time and network are simulated (`gauge-sim`).
//! - `processing`: consumers that take their time.
//! - `collector`: what the lanes saw in an interval, added up, encoded, kept.
//! - `clock_probe`: how far the clocks of other workers are ahead.
//! - `agent`: what a broker's machine does, told to the lab; `host`: the kernel's files that it reads; `syncs`: how long processes wait in
//!   fsync.
//! - `omb`: the same by the worker protocol of the OpenMessaging Benchmark.
//! - `cli`: the command line (signals and the parent: `gauge-process`).
//!
//! The control plane (API, supervisor, collector) runs at normal priority and talks to the lanes through bounded queues; a lane shares
//! nothing and waits for nobody.

mod access;
mod accounts;
pub mod agent;
mod api;
mod body;
mod books;
mod browser;
mod check;
pub mod cli;
mod clock_probe;
mod collector;
mod disturbance;
mod drain;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod host;
pub mod idle;
mod judgement;
mod lane;
mod link;
mod load;
mod messages;
mod omb;
mod perf;
mod plan;
mod probes;
mod processing;
mod request;
mod scheduling;
mod seats;
mod server;
#[doc(hidden)]
pub mod simulation;
pub mod syncs;
mod ticks;
mod tracefs;
mod trial;

pub use access::{Access, make_identity};
pub use api::App;
pub use server::{Language, serve};
