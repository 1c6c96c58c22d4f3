//! What a protocol brings into the world: its servers, what goes wrong with them, and what of that the oracle has to know.
//!
//! A protocol is a folder with one type that is a [`System`], and a line in [`REGISTRY`].

use std::fmt::Debug;

use fastrand::Rng;
use gauge_client::Protocol;
use serde_json::Value;

use crate::marks::Mark;
use crate::net::World;
use crate::scenario::{Expects, Plan, Scenario};
use crate::trial::{self, Report};
use crate::{kafka, nats};

/// The servers of a protocol.
pub trait System: Sized + Debug + 'static {
    /// What the worker's API calls the protocol.
    const NAME: &'static str;
    /// How many kinds of faults there are.
    const FAULT_KINDS: u32;
    /// What a swarm must come to besides what every protocol comes to.
    const MARKS: &'static [Mark];
    /// What goes wrong.
    type Fault: Copy + Debug;
    /// What a seed draws of this protocol alone.
    type Settings: Debug;
    /// What happens at a time, besides what happens on wires.
    type Event: Clone + Debug + Ord;
    /// What a node knows of a connection.
    type Socket: Default + Debug;

    /// The client whose trials run.
    fn client() -> &'static dyn Protocol;

    /// Draws what is of this protocol alone.
    fn settings(rng: &mut Rng) -> Self::Settings;

    /// Draws a fault: of any kind, or of that one.
    fn fault(scenario: &Scenario, rng: &mut Rng, only: Option<u32>) -> Self::Fault;

    /// The same, for the last messages; and what else has numbers of its own. It may change the request.
    fn draw_the_end(scenario: &mut Scenario, plan: &mut Plan<Self>, rng: &mut Rng);

    /// What the oracle may expect.
    fn expects(scenario: &Scenario, plan: &Plan<Self>) -> Expects;

    /// The servers at the beginning: every topic is there.
    fn new(scenario: &Scenario, plan: &Plan<Self>) -> Self;

    /// Whether a node takes connections.
    fn is_up(&self, node: usize) -> bool;

    /// Until when bytes to a node get lost.
    fn silent_until_ns(&self, node: usize) -> i64;

    /// The number of the consumer whose sockets have this token; None: it is a producer's.
    fn consumer_of(token: u64) -> Option<usize>;

    /// A connection has come about.
    fn opened(_world: &mut World<Self>, _at: usize) {}

    /// A node looks at a connection.
    fn serve(world: &mut World<Self>, at: usize);

    /// Something happens.
    fn happen(world: &mut World<Self>, event: Self::Event);

    /// After everything that happens.
    fn look(_world: &mut World<Self>) {}

    /// A fault strikes.
    fn strike(world: &mut World<Self>, number: usize);

    /// Nothing goes wrong any more: what was out of order is in order soon.
    fn make_peace(world: &mut World<Self>);

    /// The client has written to a connection; without acknowledgements messages have come to their end by that.
    fn wrote(world: &mut World<Self>, at: usize);

    /// The client has read an answer to what it has sent.
    fn answered(_world: &mut World<Self>, _at: usize) {}
}

/// A protocol as the swarm takes it.
#[derive(Clone, Copy, Debug)]
pub struct Registered {
    /// What the worker's API calls it.
    pub name: &'static str,
    /// Runs a seed.
    pub run: fn(u64) -> Report,
    /// What a seed draws.
    pub tell: fn(u64) -> String,
    /// What a swarm must come to besides what every protocol comes to.
    pub marks: &'static [Mark],
}

const fn registered<S: System>() -> Registered {
    Registered {
        name: S::NAME,
        run: trial::run::<S>,
        tell: tell::<S>,
        marks: S::MARKS,
    }
}

/// Every protocol that has a world.
pub const REGISTRY: &[Registered] = &[registered::<kafka::Cluster>(), registered::<nats::Cluster>()];

fn tell<S: System>(seed: u64) -> String {
    let (scenario, plan) = Scenario::of::<S>(seed);
    format!("{scenario:#?}\n{plan:#?}")
}

/// The protocol of this name.
pub fn by_name(name: &str) -> Option<Registered> {
    REGISTRY.iter().find(|known| known.name == name).copied()
}

/// The part of a request that names the system.
pub fn endpoint(name: &str, nodes: usize) -> Value {
    // Kafka's nodes are found by the first; others are named.
    let named = if name == kafka::Cluster::NAME { 1 } else { nodes };
    let bootstrap: Vec<String> = (0..named)
        .map(|node| format!("10.0.0.{}:{}", node + 1, crate::net::PORT as usize + node))
        .collect();
    serde_json::json!({"protocol": name, "bootstrap": bootstrap})
}
