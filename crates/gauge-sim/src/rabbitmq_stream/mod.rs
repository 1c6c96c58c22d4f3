//! RabbitMQ's streams over their own protocol: nodes, streams with a copy on each, who leads them, publishers and subscriptions.
//!
//! What is published is written by the stream's leader, confirmed when a majority has it, and read from any copy that has heard so. Of what a
//! majority does not have a new leader keeps the beginning. Who publishes under a name has what comes twice dropped, by number.

mod faults;
mod parse;
mod serve;
mod streams;

use std::collections::BTreeMap;

use fastrand::Rng;
use gauge_client::Protocol;
use serde_json::json;

use crate::marks::Mark;
use crate::net::{self, Told, World};
use crate::nodes::{Few, Place};
use crate::scenario::{Again, Expects, Owed, Plan, Scenario};
use crate::system::System;
use faults::{Fault, Settings};
use parse::{Command, Said, key};
use streams::Stream;

/// What the nodes keep.
#[derive(Debug)]
pub struct Cluster {
    pub streams: Vec<Stream>,
    /// Per node: its copies hear of nothing before this time.
    pub lags_until_ns: Vec<i64>,
    next_publisher: u64,
}

/// What happens at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A majority has what was written first, under this term.
    Committed(usize, u64),
    /// A copy has heard how many chunks are confirmed: node, stream, chunks.
    Learn(usize, usize, usize),
    /// A node notices that a connection is over.
    Gone(usize),
    /// A node says that it is there, and looks whether the client is.
    Beat(usize),
    /// A node ends a connection that it has closed.
    End(usize),
}

/// A publisher on a connection.
#[derive(Clone, Debug)]
pub struct Publisher {
    pub slot: usize,
    pub name: String,
    /// A number that no other publisher ever has.
    pub serial: u64,
}

/// A subscription on a connection.
#[derive(Clone, Copy, Debug)]
pub struct Subscription {
    pub slot: usize,
    /// The next chunk.
    pub next: usize,
    pub credits: u32,
    /// It asks where the stream ends.
    pub asks_end: bool,
}

/// What a node knows of a connection.
#[derive(Debug, Default)]
pub struct Socket {
    /// The client has begun to speak, and is still known.
    pub is_known: bool,
    pub publishers: BTreeMap<u8, Publisher>,
    pub subscriptions: BTreeMap<u8, Subscription>,
    /// The node has closed the connection, and says and takes nothing more.
    pub is_ending: bool,
    /// The client has closed it, or is not there any more.
    pub has_ended: bool,
    pub heartbeat_ns: i64,
    /// When something came from the client.
    pub heard_ns: i64,
}

impl System for Cluster {
    const NAME: &'static str = "rabbitmq-stream";
    const FAULT_KINDS: u32 = faults::KINDS;
    const MARKS: &'static [Mark] = &{
        use Mark::*;
        [
            DuplicateRecognised,
            LeaderCameBack,
            Damaged,
            Lost,
            PublisherRefused,
            PublisherDropped,
            SubscriptionRefused,
            SubscriptionDropped,
            LookupFailed,
            ConnectionClosed,
            HeartbeatMissed,
            CopyLags,
            ChunkShared,
        ]
    };
    type Fault = Fault;
    type Settings = Settings;
    type Event = Event;
    type Socket = Socket;

    fn client() -> &'static dyn Protocol {
        &gauge_client::rabbitmq::stream::RabbitMqStream
    }

    fn settings(rng: &mut Rng) -> Settings {
        Settings::draw(rng)
    }

    fn fault(kind: u32, place: Place, rng: &mut Rng) -> Fault {
        faults::draw(kind, place, rng)
    }

    fn draw_the_end(scenario: &mut Scenario, plan: &mut Plan<Self>, rng: &mut Rng) {
        if rng.f64() < 0.15 {
            for slot in 0..scenario.slots {
                let last = Fault::Refuse {
                    slot,
                    code: parse::code::NOT_AVAILABLE,
                    is_stored: true,
                    frames: rng.u32(1..4),
                };
                plan.strike_late(scenario, rng, last);
            }
        }
        if rng.f64() < 0.15 {
            for node in 0..scenario.nodes {
                let for_ns = 700_000_000;
                plan.strike_late(scenario, rng, Fault::Lag { node, for_ns });
            }
        }
        let settings = &plan.settings;
        scenario.request["system"]["options"] = json!({
            "heartbeat_s": settings.heartbeat_s,
            "credits": settings.credits,
            "streams_per_connection": settings.streams_per_connection,
        });
    }

    fn expects(scenario: &Scenario, plan: &Plan<Self>) -> Expects {
        // What is refused for good has failed. All others keep their order: what is sent again begins with the first that is missing.
        let is_refused = plan.has(|fault| {
            matches!(
                fault,
                Fault::Refuse {
                    code: parse::code::INTERNAL,
                    ..
                }
            )
        });
        Expects {
            may_fail: scenario.retry_for_ns < 60_000_000_000 || is_refused,
            once: plan.is_calm() || scenario.is_idempotent,
            // A refusal that is lost with its connection is none: that message comes again behind others that were stored.
            in_order: !is_refused,
            again: Again::Dropped,
            // A credit is for one chunk, whenever there is one.
            owed: Owed {
                for_ns: 0,
                batches: usize::from(plan.settings.credits) * scenario.slots,
            },
        }
    }

    fn new(scenario: &Scenario, _plan: &Plan<Self>) -> Cluster {
        let mut streams = Vec::new();
        for (topic, partitions) in &scenario.topics {
            for partition in 0..*partitions {
                let name = match partitions {
                    1 => topic.clone(),
                    _ => format!("{topic}-{partition}"),
                };
                streams.push(Stream::new(name, streams.len() % scenario.nodes, scenario.nodes));
            }
        }
        Cluster {
            streams,
            lags_until_ns: vec![0; scenario.nodes],
            next_publisher: 0,
        }
    }

    fn groups(&self) -> usize {
        self.streams.len()
    }

    fn leader(&self, group: usize) -> Option<usize> {
        self.streams[group].leader
    }

    fn lead(world: &mut World<Self>, group: usize, leader: usize) {
        world.lead(group, Some(leader), 0);
    }

    fn depose(world: &mut World<Self>, group: usize) {
        let keeps = world.rng.usize(..10);
        world.lead(group, None, keeps);
    }

    fn paused(world: &mut World<Self>, node: usize, for_ns: i64) {
        world.serve_later(node, for_ns);
    }

    fn is_in_use(world: &World<Cluster>, at: usize) -> bool {
        let own = &world.sockets[at].own;
        !own.publishers.is_empty() || !own.subscriptions.is_empty()
    }

    fn over(world: &mut World<Self>, at: usize, is_broken: bool) {
        if is_broken {
            world.forget(at);
            return;
        }
        world.ends_behind(at, Event::Gone(at));
    }

    fn serve(world: &mut World<Self>, at: usize) {
        world.serve(at);
    }

    fn happen(world: &mut World<Self>, event: Event) {
        match event {
            Event::Committed(slot, term) => world.committed(slot, term),
            Event::Learn(node, slot, chunks) => world.learn(node, slot, chunks),
            Event::Gone(at) => {
                // What came before is looked at first.
                world.sockets[at].own.has_ended = true;
                world.serve(at);
            }
            Event::Beat(at) => world.beat(at),
            Event::End(at) => world.reset(at),
        }
    }

    fn strike(world: &mut World<Self>, fault: Fault) {
        world.strike(fault);
    }

    fn make_peace(world: &mut World<Self>) {
        for stream in &mut world.cluster.streams {
            stream.refusals.keep(|(_, is_stored)| is_stored);
            stream.refused_publishers = Few::default();
            stream.refused_subscriptions = Few::default();
            stream.lookups = Few::default();
            stream.damages = Few::default();
        }
    }

    fn wrote(world: &mut World<Self>, at: usize) {
        world.note_written(at);
    }
}

impl World<Cluster> {
    /// Without acknowledgements, messages have come to their end when their frame is written whole.
    fn note_written(&mut self, at: usize) {
        let seen = self.seen();
        loop {
            let written = self.sockets[at].written();
            let Ok(Some((command, length))) = parse::command(written) else {
                return;
            };
            self.sockets[at].up_seen += length;
            if let Command::Publish { messages, .. } = command {
                let messages: Vec<_> = messages.iter().filter_map(|one| one.message).collect();
                self.truth.met(&messages);
                self.truth.acknowledged(&messages, seen);
            }
        }
    }

    fn strike(&mut self, fault: Fault) {
        let now_ns = self.now_ns();
        let streams = &mut self.cluster.streams;
        match fault {
            Fault::Move { slot, keeps } => {
                if let Some(leader) = self.another(slot) {
                    self.lead(slot, Some(leader), keeps);
                }
            }
            Fault::Refuse {
                slot,
                code,
                is_stored,
                frames,
            } => streams[slot].refusals = Few::of((code, is_stored), frames),
            Fault::Stall { slot, for_ns } => {
                self.marks.set(Mark::ReplicationStalled);
                streams[slot].stalled_until_ns = now_ns + for_ns;
            }
            Fault::Lag { node, for_ns } => self.cluster.lags_until_ns[node] = now_ns + for_ns,
            Fault::Drop { slot } => self.drop_all(slot),
            Fault::RefusePublisher { slot, code, times } => {
                streams[slot].refused_publishers = Few::of(code, times);
                self.drop_all(slot);
            }
            Fault::RefuseSubscription { slot, code, times } => {
                streams[slot].refused_subscriptions = Few::of(code, times);
                self.drop_all(slot);
            }
            Fault::RefuseLookup { slot, code, times } => {
                streams[slot].lookups = Few::of(code, times);
                self.drop_all(slot);
            }
            Fault::CloseConnections { node, code } => {
                for at in 0..self.sockets.len() {
                    let socket = &self.sockets[at];
                    if socket.node == node && socket.is_greeted && !socket.own.is_ending {
                        self.close_connection(at, code);
                    }
                }
            }
            Fault::Damage { slot, damage, times } => streams[slot].damages = Few::of(damage, times),
        }
    }

    /// A node says that it is there, and looks whether the client is.
    fn beat(&mut self, at: usize) {
        let own = &self.sockets[at].own;
        if !own.is_known || own.is_ending {
            return;
        }
        let (heard_ns, heartbeat_ns, has_ended) = (own.heard_ns, own.heartbeat_ns, own.has_ended);
        if self.misses_heartbeats(at, heard_ns, heartbeat_ns, has_ended) {
            self.forget(at);
            return;
        }
        self.say(at, Said::new(key::HEARTBEAT).frame(), Told::Nothing);
        self.after(heartbeat_ns / 2, net::Event::Own(Event::Beat(at)));
    }
}
