//! What a protocol brings into the world: its servers, what goes wrong with them, and what of that the oracle has to know.
//!
//! A protocol is a folder with one type that is a [`System`], and a line in [`REGISTRY`].

use std::fmt::Debug;

use fastrand::Rng;
use gauge_client::Protocol;
use serde_json::Value;

use crate::marks::Mark;
use crate::net::{self, World};
use crate::nodes::Place;
use crate::scenario::{Expects, Plan, Scenario};
use crate::trial::{self, Report};
use crate::{kafka, nats, pulsar, rabbitmq, rabbitmq_stream};

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

    /// Draws a fault of a kind of its own: 0, or above 6 (`nodes::draw`).
    fn fault(kind: u32, place: Place, rng: &mut Rng) -> Self::Fault;

    /// The same, for the last messages; and what else has numbers of its own. It may change the request.
    fn draw_the_end(scenario: &mut Scenario, plan: &mut Plan<Self>, rng: &mut Rng);

    /// What the oracle may expect.
    fn expects(scenario: &Scenario, plan: &Plan<Self>) -> Expects;

    /// The servers at the beginning: every topic is there.
    fn new(scenario: &Scenario, plan: &Plan<Self>) -> Self;

    /// How many of the nodes a client is told of.
    fn named(nodes: usize) -> usize {
        nodes
    }

    /// How many groups there are that have a leader each.
    fn groups(&self) -> usize;

    /// The group of a slot.
    fn group_of(&self, slot: usize) -> usize {
        slot
    }

    /// Who leads a group.
    fn leader(&self, group: usize) -> Option<usize>;

    /// A group that has no leader gets this one.
    fn lead(world: &mut World<Self>, group: usize, leader: usize);

    /// A group loses its leader.
    fn depose(world: &mut World<Self>, group: usize);

    /// A node is gone; its connections break, and what it leads loses its leader, after this.
    fn went_down(_world: &mut World<Self>, _node: usize) {}

    /// A node is there again.
    fn came_up(_world: &mut World<Self>, _node: usize) {}

    /// A node does nothing for so long.
    fn paused(_world: &mut World<Self>, _node: usize, _for_ns: i64) {}

    /// A connection has come about.
    fn opened(_world: &mut World<Self>, _at: usize) {}

    /// A client has more on a connection than a question where something is.
    fn is_in_use(_world: &World<Self>, _at: usize) -> bool {
        true
    }

    /// A connection is over: it is broken, or the client has closed it.
    fn over(_world: &mut World<Self>, _at: usize, _is_broken: bool) {}

    /// A node looks at a connection.
    fn serve(world: &mut World<Self>, at: usize);

    /// Something happens.
    fn happen(world: &mut World<Self>, event: Self::Event);

    /// After everything that happens.
    fn look(_world: &mut World<Self>) {}

    /// A fault of its own strikes.
    fn strike(world: &mut World<Self>, fault: Self::Fault);

    /// Nothing goes wrong any more: what was out of order is in order soon.
    fn make_peace(world: &mut World<Self>);

    /// The client has written to a connection, and there are no acknowledgements: messages have come to their end by that.
    fn wrote(world: &mut World<Self>, at: usize);

    /// The client has read something that is of the protocol alone.
    fn heard(_world: &mut World<Self>, _at: usize, _what: u64) {}

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
pub const REGISTRY: &[Registered] = &[
    registered::<kafka::Cluster>(),
    registered::<nats::Cluster>(),
    registered::<pulsar::Cluster>(),
    registered::<rabbitmq::Cluster>(),
    registered::<rabbitmq_stream::Cluster>(),
];

fn tell<S: System>(seed: u64) -> String {
    let (scenario, plan) = Scenario::of::<S>(seed);
    format!("{scenario:#?}\n{plan:#?}")
}

/// The protocol of this name.
pub fn by_name(name: &str) -> Option<Registered> {
    REGISTRY.iter().find(|known| known.name == name).copied()
}

/// The part of a request that names the system.
pub fn endpoint<S: System>(nodes: usize) -> Value {
    let bootstrap: Vec<String> = (0..S::named(nodes)).map(net::address).collect();
    serde_json::json!({"protocol": S::NAME, "bootstrap": bootstrap})
}
