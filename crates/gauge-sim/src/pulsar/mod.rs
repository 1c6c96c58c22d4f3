//! Pulsar's brokers: nodes, topics (each partition is one), who owns them, cursors, and what goes wrong with all of it.
//!
//! A topic's entries are with bookies, and stay there when it moves: what its owner has handed to them and has no answer to is kept as far as a
//! fault says, always from the beginning. The acknowledged position of a subscription is kept at intervals; a broker that goes without unloading
//! its topics falls back to what was kept.

mod cursors;
mod faults;
mod parse;
mod serve;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use fastrand::Rng;
use gauge_client::Protocol;
use serde_json::json;

use crate::marks::Mark;
use crate::net::{self, Stage, Told, World};
use crate::nodes::{Few, Place};
use crate::scenario::{Again, Expects, Owed, Plan, Scenario};
use crate::system::System;
use crate::truth::Message;
pub use cursors::{Consumer, Cursor};
pub use faults::{Answer, Damage, Fault, Settings};
use parse::{Body, Command, Index};

/// Kinds of commands that brokers say.
pub mod kind {
    pub const CONNECTED: u64 = 3;
    pub const RECEIPT: u64 = 7;
    pub const SEND_ERROR: u64 = 8;
    pub const MESSAGE: u64 = 9;
    pub const SUCCESS: u64 = 13;
    pub const ERROR: u64 = 14;
    pub const CLOSE_PRODUCER: u64 = 15;
    pub const CLOSE_CONSUMER: u64 = 16;
    pub const PRODUCER_SUCCESS: u64 = 17;
    pub const PING: u64 = 18;
    pub const PONG: u64 = 19;
    pub const LOOKUP_RESPONSE: u64 = 24;
    pub const LAST_MESSAGE_ID_RESPONSE: u64 = 30;
    pub const ACTIVE_CONSUMER_CHANGE: u64 = 31;
}

/// Errors that brokers say of themselves.
pub mod error {
    pub const UNKNOWN: u64 = 0;
    pub const METADATA: u64 = 1;
    pub const PERSISTENCE: u64 = 2;
    pub const CONSUMER_BUSY: u64 = 5;
    pub const NOT_READY: u64 = 6;
    pub const PRODUCER_BUSY: u64 = 16;
}

/// An entry.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its number among the batches that the world knows.
    pub number: usize,
    pub id: (i64, i64),
    pub payload: Vec<u8>,
    pub key: Vec<u8>,
    /// Messages, with probes.
    pub messages: u32,
}

/// A batch that bookies do not have yet.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub payload: Vec<u8>,
    pub parsed: parse::Parsed,
    pub count: u32,
    pub socket: usize,
    pub producer: u64,
    /// That of the opening over which it came.
    pub epoch: u64,
    pub name: String,
    pub sequence: u64,
    /// It is stored, and the answer says this.
    pub refusal: Option<u64>,
}

/// A partition.
#[derive(Debug, Default)]
pub struct Topic {
    pub owner: Option<usize>,
    /// The owner has loaded it.
    pub is_claimed: bool,
    /// Counts its owners: what was begun under an old one is over.
    pub term: u64,
    pub log: Vec<Stored>,
    pub index: Index,
    pub ledger: i64,
    pub next_entry: i64,
    pub proposals: VecDeque<Proposal>,
    /// The latest proposal is with the bookies at this time, at the earliest.
    pub committed_ns: i64,
    pub stalled_until_ns: i64,
    /// Per producer's name: the highest number that was stored, and that is stored or under way.
    pub persisted: HashMap<String, u64>,
    pub pushed: HashMap<String, u64>,
    pub refusals: Few<(u64, bool)>,
    pub openings: Few<Answer>,
    pub lookups: Few<Answer>,
    pub ends: Few<Answer>,
    pub lost_acks: Few<()>,
    pub damages: Few<Damage>,
    pub cursors: BTreeMap<String, Cursor>,
    led_by: Vec<usize>,
}

/// What the brokers keep.
#[derive(Debug)]
pub struct Cluster {
    pub topics: Vec<Topic>,
    /// Per node and slot: the owner as it has heard, and of which term.
    pub views: Vec<Vec<(usize, u64)>>,
    /// Per node: nothing is read from producers before this time.
    pub throttled_until_ns: Vec<i64>,
}

/// What happens at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// An answer that was made leaves; slots of whose end it tells, and when it was made.
    Say(usize, Vec<u8>, Vec<usize>, i64),
    /// Bookies have the oldest proposal of a topic, made under this term.
    Committed(usize, u64),
    /// A broker hears who owns a topic: node, slot, owner, term.
    Learn(usize, usize, usize, u64),
    /// A broker notices that a connection is over.
    Gone(usize),
    /// So many pings of a connection must have been answered.
    Answered(usize, u32),
}

/// A producer on a connection.
#[derive(Clone, Debug)]
pub struct Producer {
    pub slot: usize,
    pub name: String,
    pub epoch: u64,
}

/// What a broker knows of a connection.
#[derive(Debug, Default)]
pub struct Socket {
    pub producers: BTreeMap<u64, Producer>,
    pub consumers: BTreeMap<u64, Consumer>,
    /// A batch was answered with an error: the client gives the connection up when it reads that.
    pub has_failed: bool,
    /// Producers of which the client has read that they are closed, and which it has not opened again.
    pub closed: HashSet<u64>,
    /// The client has closed it, or is not there any more.
    pub has_ended: bool,
    pub pings: u32,
    pub pongs: u32,
}

impl System for Cluster {
    const NAME: &'static str = "pulsar";
    const FAULT_KINDS: u32 = faults::KINDS;
    const MARKS: &'static [Mark] = &{
        use Mark::*;
        [
            LeaderCameBack,
            DuplicateRecognised,
            Reordered,
            Damaged,
            Lost,
            Throttled,
            PingAnswered,
            Redirected,
            StaleLookup,
            LookupFailed,
            OpeningRefused,
            ProducerBusy,
            ConsumerBusy,
            ProducerClosed,
            ConsumerClosed,
            LateReceipt,
            DuplicateUnknown,
            TopicFenced,
            AcksLost,
            PositionLost,
            DeliveredAgain,
            EndRefused,
            PermitsOverdrawn,
        ]
    };
    type Fault = Fault;
    type Settings = Settings;
    type Event = Event;
    type Socket = Socket;

    fn client() -> &'static dyn Protocol {
        &gauge_client::pulsar::Pulsar
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
                    error: error::PERSISTENCE,
                    is_stored: true,
                    batches: rng.u32(1..6),
                };
                plan.strike_late(scenario, rng, last);
            }
        }
        // Who has given a batch up does not care for its receipt any more.
        plan.settings.late_receipts = scenario.retry_for_ns >= 60_000_000_000;
        scenario.request["system"]["options"] = json!({
            "subscription_type": plan.settings.kind,
            "receive_bytes": plan.settings.receive_bytes,
        });
    }

    fn expects(scenario: &Scenario, plan: &Plan<Self>) -> Expects {
        // What is refused comes again behind what came after it, unless what came after it is refused as well.
        let overtakes = plan.has(|fault| matches!(fault, Fault::Refuse { is_stored: false, .. }));
        Expects {
            may_fail: scenario.retry_for_ns < 60_000_000_000,
            once: plan.is_calm() || plan.settings.deduplicates,
            in_order: !overtakes || plan.settings.deduplicates || scenario.in_flight == 1,
            again: match plan.settings.kind {
                "exclusive" => Again::Dropped,
                _ => Again::Maybe,
            },
            owed: Owed::default(),
        }
    }

    fn new(scenario: &Scenario, plan: &Plan<Self>) -> Cluster {
        let topic = |slot| Topic {
            owner: Some(slot % scenario.nodes),
            is_claimed: !plan.settings.redirects,
            led_by: vec![slot % scenario.nodes],
            ledger: 3,
            ..Topic::default()
        };
        let view: Vec<(usize, u64)> = (0..scenario.slots)
            .map(|slot| (slot % scenario.nodes, 0))
            .collect();
        Cluster {
            topics: (0..scenario.slots).map(topic).collect(),
            views: vec![view; scenario.nodes],
            throttled_until_ns: vec![0; scenario.nodes],
        }
    }

    fn groups(&self) -> usize {
        self.topics.len()
    }

    fn leader(&self, group: usize) -> Option<usize> {
        self.topics[group].owner
    }

    fn lead(world: &mut World<Self>, group: usize, leader: usize) {
        world.own(group, Some(leader), 0);
    }

    fn depose(world: &mut World<Self>, group: usize) {
        let keeps = world.rng.usize(..10);
        world.own(group, None, keeps);
    }

    fn paused(world: &mut World<Self>, node: usize, for_ns: i64) {
        world.serve_later(node, for_ns);
    }

    fn came_up(world: &mut World<Self>, node: usize) {
        for slot in 0..world.cluster.topics.len() {
            let topic = &world.cluster.topics[slot];
            if let Some(owner) = topic.owner {
                world.cluster.views[node][slot] = (owner, topic.term);
            }
        }
    }

    fn over(world: &mut World<Self>, at: usize, is_broken: bool) {
        if is_broken {
            world.gone(at);
            return;
        }
        let socket = &world.sockets[at];
        // Its end comes behind what it has sent; one that is silent is missed after a while.
        let delay_ns = match socket.is_silent {
            true => world.plan.settings.liveness_ns,
            false => world.arrival_ns(at) - world.now_ns(),
        };
        world.after(delay_ns, net::Event::Own(Event::Gone(at)));
    }

    fn serve(world: &mut World<Self>, at: usize) {
        world.serve(at);
    }

    fn happen(world: &mut World<Self>, event: Event) {
        match event {
            Event::Say(at, bytes, slots, made_ns) => {
                let told = match slots.is_empty() {
                    true => Told::Nothing,
                    false => world.told(at, Vec::new(), &slots, made_ns),
                };
                world.say(at, bytes, told);
            }
            Event::Committed(slot, term) => world.committed(slot, term),
            Event::Learn(node, slot, owner, term) => {
                let view = &mut world.cluster.views[node][slot];
                if term > view.1 {
                    *view = (owner, term);
                }
            }
            Event::Gone(at) => {
                // What came before is looked at first.
                world.sockets[at].own.has_ended = true;
                world.serve(at);
            }
            Event::Answered(at, pings) => {
                let socket = &world.sockets[at];
                let is_there = socket.stage == Stage::Open && !socket.is_silent;
                if is_there && socket.own.pongs < pings {
                    world
                        .truth
                        .offend(|| "a ping was not answered within two seconds".to_owned());
                }
            }
        }
    }

    fn strike(world: &mut World<Self>, fault: Fault) {
        world.strike(fault);
    }

    fn make_peace(world: &mut World<Self>) {
        for topic in &mut world.cluster.topics {
            topic.refusals.keep(|(_, is_stored)| is_stored);
            topic.openings = Few::default();
            topic.lookups = Few::default();
            topic.lost_acks = Few::default();
            topic.damages = Few::default();
        }
    }

    fn wrote(world: &mut World<Self>, at: usize) {
        world.note_written(at);
    }

    fn heard(world: &mut World<Self>, at: usize, producer: u64) {
        world.sockets[at].own.closed.insert(producer);
    }
}

impl World<Cluster> {
    /// Without acknowledgements, messages have come to their end when their batch is written whole, unless its producer is known to be closed.
    fn note_written(&mut self, at: usize) {
        let seen = self.seen();
        loop {
            let socket = &self.sockets[at];
            let written = socket.written();
            let Ok(Some((command, length))) = parse::command(written) else {
                return;
            };
            let mut messages = Vec::new();
            let mut opened = None;
            match command {
                Command::Send {
                    producer,
                    sequence,
                    messages: count,
                    payload,
                    ..
                } if !socket.own.closed.contains(&producer) => {
                    let name = parse::name(payload).unwrap_or_default();
                    if let Ok(parsed) = parse::batch(payload, name, sequence, count) {
                        messages = parsed.messages;
                    }
                }
                Command::Producer { id, .. } => opened = Some(id),
                _ => {}
            }
            let socket = &mut self.sockets[at];
            socket.up_seen += length;
            if let Some(id) = opened {
                socket.own.closed.remove(&id);
            }
            self.truth.met(&messages);
            self.truth.acknowledged(&messages, seen);
        }
    }

    /// A node looks at its connections after a while.
    fn strike(&mut self, fault: Fault) {
        let now_ns = self.now_ns();
        let topics = &mut self.cluster.topics;
        match fault {
            Fault::Move { slot, keeps } => {
                if let Some(owner) = self.another(slot) {
                    self.own(slot, Some(owner), keeps);
                }
            }
            Fault::Refuse {
                slot,
                error,
                is_stored,
                batches,
            } => topics[slot].refusals = Few::of((error, is_stored), batches),
            Fault::Stall { slot, for_ns } => {
                topics[slot].stalled_until_ns = now_ns + for_ns;
                self.marks.set(Mark::ReplicationStalled);
            }
            Fault::Fence { slot, keeps } => self.fence(slot, keeps),
            Fault::RefuseOpening { slot, answer, times } => {
                topics[slot].openings = Few::of(answer, times);
                self.close_all(slot);
            }
            Fault::RefuseLookup { slot, answer, times } => {
                topics[slot].lookups = Few::of(answer, times);
                topics[slot].is_claimed &= !self.plan.settings.redirects;
                self.close_all(slot);
            }
            Fault::LoseAcks { slot, times } => topics[slot].lost_acks = Few::of((), times),
            Fault::RefuseEnd { slot, answer, times } => topics[slot].ends = Few::of(answer, times),
            Fault::Damage { slot, damage, times } => topics[slot].damages = Few::of(damage, times),
            Fault::Ping { node } => {
                for at in 0..self.sockets.len() {
                    let socket = &mut self.sockets[at];
                    if socket.node == node && socket.stage == Stage::Open && socket.is_greeted {
                        socket.own.pings += 1;
                        let pings = socket.own.pings;
                        self.say(at, parse::frame(kind::PING, Body::default(), b""), Told::Nothing);
                        let busy_ns = self.nodes[node]
                            .paused_until_ns
                            .max(self.cluster.throttled_until_ns[node]);
                        let event = net::Event::Own(Event::Answered(at, pings));
                        self.at(busy_ns.max(now_ns) + 2_000_000_000, event);
                    }
                }
            }
            Fault::Throttle { node, for_ns } => {
                self.marks.set(Mark::Throttled);
                self.cluster.throttled_until_ns[node] = now_ns + for_ns;
            }
            Fault::CloseConsumers { slot } => self.close_consumers(slot),
        }
    }

    /// Another owner, or none. What bookies do not have is kept as far as this says.
    fn own(&mut self, slot: usize, owner: Option<usize>, keeps: usize) {
        let before = self.cluster.topics[slot].owner;
        let is_unloaded = before.is_some_and(|node| self.nodes[node].is_up);
        let proposals = std::mem::take(&mut self.cluster.topics[slot].proposals);
        if is_unloaded {
            self.close_all(slot);
        }
        if proposals.len() > keeps {
            self.marks.set(Mark::AckTimedOut);
        }
        for proposal in proposals.into_iter().take(keeps) {
            self.store(slot, proposal, is_unloaded && self.plan.settings.late_receipts);
        }
        let topic = &mut self.cluster.topics[slot];
        topic.owner = owner;
        topic.is_claimed = !self.plan.settings.redirects;
        topic.term += 1;
        topic.ledger += 1;
        topic.next_entry = 0;
        topic.pushed.clone_from(&topic.persisted);
        for cursor in topic.cursors.values_mut() {
            if cursor.reload(is_unloaded) {
                self.marks.set(Mark::PositionLost);
            }
        }
        let term = topic.term;
        let Some(owner) = owner else {
            self.marks.set(Mark::LeaderAway);
            return;
        };
        self.marks.led(&mut topic.led_by, owner);
        self.cluster.views[owner][slot] = (owner, term);
        for node in 0..self.nodes.len() {
            if node != owner {
                let delay_ns = self.draw(0, self.plan.settings.news_ns);
                self.after(delay_ns, net::Event::Own(Event::Learn(node, slot, owner, term)));
            }
        }
    }

    /// A write has failed: everything under way is answered with an error, and producers are closed.
    fn fence(&mut self, slot: usize, keeps: usize) {
        let proposals = std::mem::take(&mut self.cluster.topics[slot].proposals);
        self.cluster.topics[slot].term += 1;
        if !proposals.is_empty() {
            self.marks.set(Mark::TopicFenced);
        }
        for (number, mut proposal) in proposals.into_iter().enumerate() {
            if number < keeps {
                proposal.refusal = Some(error::PERSISTENCE);
                self.store(slot, proposal, true);
            } else {
                self.refuse(&proposal, error::PERSISTENCE);
            }
        }
        let topic = &mut self.cluster.topics[slot];
        topic.pushed.clone_from(&topic.persisted);
        self.close_producers(slot);
    }

    /// A proposal is answered with an error.
    fn refuse(&mut self, proposal: &Proposal, error: u64) {
        self.send_error(proposal.socket, proposal.producer, proposal.sequence, error);
    }

    fn close_all(&mut self, slot: usize) {
        self.close_producers(slot);
        self.close_consumers(slot);
    }

    fn close_producers(&mut self, slot: usize) {
        for at in 0..self.sockets.len() {
            let own = &mut self.sockets[at].own;
            let of: Vec<u64> = own
                .producers
                .iter()
                .filter(|(_, producer)| producer.slot == slot)
                .map(|(id, _)| *id)
                .collect();
            for id in of {
                self.sockets[at].own.producers.remove(&id);
                self.marks.set(Mark::ProducerClosed);
                let bytes = self.closing(kind::CLOSE_PRODUCER, slot, id);
                self.say(at, bytes, Told::Own(id));
            }
        }
    }

    pub fn close_consumers(&mut self, slot: usize) {
        for at in 0..self.sockets.len() {
            let own = &mut self.sockets[at].own;
            let of: Vec<u64> = own
                .consumers
                .iter()
                .filter(|(_, consumer)| consumer.slot == slot)
                .map(|(id, _)| *id)
                .collect();
            for id in of {
                self.marks.set(Mark::ConsumerClosed);
                let bytes = self.closing(kind::CLOSE_CONSUMER, slot, id);
                self.say(at, bytes, Told::Nothing);
                self.leave_cursor(at, id);
                if let Some(subscription) = self.subscription_of(at) {
                    self.truth.closed(subscription, slot);
                }
            }
        }
    }

    /// The command with which a broker closes a producer or a consumer.
    fn closing(&self, kind: u64, slot: usize, id: u64) -> Vec<u8> {
        let mut body = Body::default().number(1, id).number(2, u64::MAX);
        if self.plan.settings.assigns
            && let Some(owner) = self.cluster.topics[slot].owner
        {
            body = body.text(3, &format!("pulsar://{}", net::address(owner)));
        }
        parse::frame(kind, body, b"")
    }

    /// A broker has noticed that a connection is over.
    pub fn gone(&mut self, at: usize) {
        let consumers: Vec<u64> = self.sockets[at].own.consumers.keys().copied().collect();
        for id in consumers {
            self.leave_cursor(at, id);
        }
        self.forget(at);
    }

    /// A batch is with the bookies, and is answered.
    fn store(&mut self, slot: usize, mut proposal: Proposal, is_answered: bool) {
        let now_ns = self.now_ns();
        let messages = proposal.parsed.messages.clone();
        let number = self.truth.stored(slot, messages.clone());
        self.truth.batches[number].visible_ns = now_ns;
        if !messages.is_empty()
            && let Some(damage) = self.cluster.topics[slot].damages.next()
        {
            self.damage(number, &mut proposal, damage);
        }
        let topic = &mut self.cluster.topics[slot];
        let id = (topic.ledger, topic.next_entry);
        topic.next_entry += 1;
        topic.index.insert(id, topic.log.len());
        topic.log.push(Stored {
            number,
            id,
            payload: proposal.payload,
            key: proposal.parsed.key,
            messages: proposal.count,
        });
        let highest = proposal.sequence + u64::from(proposal.count) - 1;
        let persisted = topic.persisted.entry(proposal.name).or_insert(highest);
        *persisted = (*persisted).max(highest);
        self.feed_all(slot);
        if !is_answered {
            return;
        }
        match proposal.refusal {
            None => self.receipt(
                proposal.socket,
                slot,
                (proposal.producer, proposal.epoch),
                proposal.sequence,
                id,
                messages,
            ),
            Some(error) => self.send_error(proposal.socket, proposal.producer, proposal.sequence, error),
        }
    }

    fn damage(&mut self, number: usize, proposal: &mut Proposal, damage: Damage) {
        self.marks.set(Mark::Damaged);
        let which = self.rng.usize(..proposal.parsed.bodies.len());
        let body = proposal.parsed.bodies[which].clone();
        let batch = &mut self.truth.batches[number];
        match damage {
            Damage::Message => {
                Message::damage(&mut proposal.payload[body]);
                parse::seal(&mut proposal.payload);
                batch.damaged.push(which);
            }
            Damage::Checksum => {
                proposal.payload[body.start] ^= 1;
                batch.unreadable_from = Some(0);
            }
            Damage::Length => {
                proposal.payload[proposal.parsed.heads[which]] = 0x7F;
                parse::seal(&mut proposal.payload);
                batch.unreadable_from = Some(which);
            }
        }
    }
}
