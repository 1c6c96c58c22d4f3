//! A world in which the worker's own trials run in simulated time, and are compared with what the world knows. docs/simulation.md says what it
//! models, what it cannot show, and what it has found.
//!
//! - `scenario`: what a seed draws. `net`: time and wires. `nodes`: what all servers have in common. `system`: what a protocol brings; `kafka`,
//!   `nats`, `pulsar`, `rabbitmq`, `rabbitmq_stream`: servers. `truth`: what happened.
//! - `witness`: the client with somebody who looks on. `trial`: a seed from its beginning to its judgement. `oracle`: the judgement.
//! - `marks`: what a swarm must have come to. [`swarm`] runs many seeds.

mod kafka;
mod marks;
mod nats;
mod net;
mod nodes;
mod oracle;
mod probes;
mod pulsar;
mod rabbitmq;
mod rabbitmq_stream;
mod scenario;
pub mod swarm;
mod system;
mod trial;
mod truth;
mod witness;

pub use marks::{Mark, Marks};
pub use system::{REGISTRY, Registered, by_name};
pub use trial::Report;
