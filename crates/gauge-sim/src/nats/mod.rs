//! NATS servers with JetStream: nodes, streams, who leads them, consumers, and what goes wrong with all of it.
//!
//! A topic is a stream, a partition is one of its subjects. What is published is proposed by the stream's leader, and stored and acknowledged once
//! followers have it, in the order in which it came; a leader that goes takes the answers with it, and what of the proposals is kept is drawn.
//! Messages between servers and clients are not kept: who does not listen to a subject at that moment does not get them.

mod consumers;
mod faults;
mod parse;
mod serve;

use std::collections::{HashMap, HashSet, VecDeque};

use fastrand::Rng;
use gauge_client::Protocol;
use serde_json::json;

use crate::marks::Mark;
use crate::net::{self, Stage, Told, World};
use crate::nodes::{Few, Place};
use crate::scenario::{Again, Expects, MS, Owed, Plan, Scenario, Step};
use crate::system::System;
use crate::truth::Message;
pub use consumers::Consumer;
pub use faults::{Fault, Loss, Refusal, Settings};
use parse::Operation;

/// A message in a stream.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its number among those that the world knows; None: a probe.
    pub number: Option<usize>,
    pub slot: usize,
    pub subject: String,
    pub headers: Vec<u8>,
    pub body: Vec<u8>,
}

/// A message that followers do not have yet.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub message: Option<Message>,
    pub stored: Stored,
    pub id: Option<String>,
    /// Where its acknowledgement goes; None: it is not asked for, or gets lost.
    pub reply: Option<String>,
    /// It is stored, and the answer says this.
    pub refusal: Option<Refusal>,
    pub socket: usize,
}

/// A stream.
#[derive(Debug, Default)]
pub struct Stream {
    pub name: String,
    pub prefix: String,
    pub first_slot: usize,
    pub partitions: usize,
    pub leader: Option<usize>,
    /// Counts its leaders: what was begun under an old one is over.
    pub term: u64,
    pub log: Vec<Stored>,
    pub proposals: VecDeque<Proposal>,
    /// Ids of what is stored: where.
    pub ids: HashMap<String, usize>,
    pub ids_in_process: HashSet<String>,
    pub stalled_until_ns: i64,
    /// The latest proposal is committed at this time, at the earliest.
    pub committed_ns: i64,
    /// Answers to publications, and whether these are stored.
    pub refusals: Few<(Refusal, bool)>,
    pub consumer_refusals: Few<Refusal>,
    pub damages_next: bool,
    led_by: Vec<usize>,
}

/// What the nodes keep.
#[derive(Debug)]
pub struct Cluster {
    pub streams: Vec<Stream>,
    pub consumers: Vec<Consumer>,
}

/// What happens at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Followers have the oldest proposal of a stream, made under this term.
    Committed(usize, u64),
    /// A node that has told so closes its connections.
    Close(usize),
    /// A pull of a consumer is over.
    PullOver(usize, u64),
    /// A pull of a consumer waits.
    Heartbeat(usize, u64),
    /// So many PINGs of a connection must have been answered.
    Answered(usize, u32),
}

/// What a node knows of a connection.
#[derive(Debug, Default)]
pub struct Socket {
    /// Subject and number.
    pub subscriptions: Vec<(String, u64)>,
    pub pings: u32,
    pub pongs: u32,
    /// The node has said why it closes the connection: it takes and says nothing more.
    pub is_ending: bool,
}

impl System for Cluster {
    const NAME: &'static str = "nats";
    const FAULT_KINDS: u32 = faults::KINDS;
    const MARKS: &'static [Mark] = &{
        use Mark::*;
        [
            DuplicateRecognised,
            Reordered,
            NoResponders,
            ConsumerLost,
            ConsumerGap,
            ConsumerRefused,
            PullExpired,
            Heartbeat,
            DuplicateInProcess,
            ServerError,
            LameDuck,
            InfoUpdated,
            PingAnswered,
            DeliveryDropped,
            StaleInbox,
            LeaderCameBack,
            Damaged,
        ]
    };
    type Fault = Fault;
    type Settings = Settings;
    type Event = Event;
    type Socket = Socket;

    fn client() -> &'static dyn Protocol {
        &gauge_client::nats::Nats
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
                    refusal: Refusal::Silence,
                    is_stored: true,
                    messages: rng.u32(1..6),
                };
                plan.strike_late(scenario, rng, last);
            }
        }
        if rng.f64() < 0.15 {
            let loss = if rng.bool() {
                Loss::Dropped
            } else {
                Loss::MovedSilently
            };
            plan.strike_late(scenario, rng, Fault::LoseConsumers { slot: 0, loss });
        }
        // Who has given a message up does not care for its answer any more; so that the world knows which were given up, answers then come on the
        // connection of their question or not at all.
        plan.settings.answers_wander = scenario.retry_for_ns >= 60_000_000_000;
        if rng.f64() < 0.06 {
            // Connections end again and again while a part of what came over them is acknowledged.
            plan.settings.follow_ns = 50 * MS;
            for node in 0..scenario.nodes {
                for _ in 0..3 {
                    let at_ns = rng.i64(0..scenario.load_ns);
                    plan.strike(
                        at_ns,
                        Fault::LameDuck {
                            node,
                            for_ns: 20 * MS,
                        },
                    );
                }
            }
        }
        plan.settings.follow_ns = plan
            .settings
            .follow_ns
            .min(carried_follow_ns(scenario, plan.settings.window_msgs));
        scenario.request["system"]["options"] = json!({
            "ack_policy": plan.settings.ack_policy,
            "window_msgs": plan.settings.window_msgs,
        });
    }

    fn expects(scenario: &Scenario, plan: &Plan<Self>) -> Expects {
        // One stream keeps the order in which messages come to it. What is refused, and what was under way on a connection that is lost, comes again
        // behind what came after it.
        Expects {
            may_fail: scenario.retry_for_ns < 60_000_000_000
                || !is_carried(scenario, plan.settings.window_msgs),
            once: plan.is_calm() || scenario.is_idempotent,
            in_order: plan.is_calm(),
            again: Again::Dropped,
            // A pull lasts for a second.
            owed: Owed {
                for_ns: 1_000 * MS,
                batches: 0,
            },
        }
    }

    fn new(scenario: &Scenario, _plan: &Plan<Self>) -> Cluster {
        let mut first_slot = 0;
        let mut streams = Vec::new();
        for (number, (name, partitions)) in scenario.topics.iter().enumerate() {
            streams.push(Stream {
                name: name.clone(),
                prefix: format!("{name}."),
                first_slot,
                partitions: *partitions,
                leader: Some(number % scenario.nodes),
                led_by: vec![number % scenario.nodes],
                ..Stream::default()
            });
            first_slot += partitions;
        }
        Cluster {
            streams,
            consumers: Vec::new(),
        }
    }

    fn groups(&self) -> usize {
        self.streams.len()
    }

    fn group_of(&self, slot: usize) -> usize {
        self.streams
            .iter()
            .rposition(|stream| stream.first_slot <= slot)
            .unwrap_or(0)
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

    fn opened(world: &mut World<Self>, at: usize) {
        world.introduce(at, false);
    }

    fn serve(world: &mut World<Self>, at: usize) {
        world.serve(at);
    }

    fn happen(world: &mut World<Self>, event: Event) {
        match event {
            Event::Committed(stream, term) => world.committed(stream, term),
            Event::Close(node) => world.cut(node),
            Event::PullOver(consumer, pull) => world.pull_over(consumer, pull),
            Event::Heartbeat(consumer, pull) => world.heartbeat(consumer, pull),
            Event::Answered(at, pings) => {
                let socket = &world.sockets[at];
                let is_there = socket.stage == Stage::Open && !socket.is_silent;
                if is_there && socket.own.pongs < pings {
                    world
                        .truth
                        .offend(|| "a PING was not answered within two seconds".to_owned());
                }
            }
        }
    }

    fn strike(world: &mut World<Self>, fault: Fault) {
        world.strike(fault);
    }

    fn make_peace(world: &mut World<Self>) {
        for stream in &mut world.cluster.streams {
            stream.refusals.keep(|(_, is_stored)| is_stored);
            stream.consumer_refusals = Few::default();
            stream.damages_next = false;
        }
    }

    fn wrote(world: &mut World<Self>, at: usize) {
        world.note_written(at);
    }
}

/// The slowest followers with which the load comes to its end in time: what is under way while they follow bounds the rate, and slower ones would be
/// a reason to give messages up that has nothing to do with what the client does.
fn carried_follow_ns(scenario: &Scenario, window_msgs: u32) -> i64 {
    const CARRIED_WITHIN_S: f64 = 80.0;
    let number = |value: &serde_json::Value| value.as_f64();
    let request = &scenario.request;
    let (Some(rate), Some(batch_bytes), Some(size_bytes)) = (
        number(&request["schedule"]["rate_msgs_s"]),
        number(&request["batch"]["bytes"]),
        number(&request["payload"]["size_bytes"]),
    ) else {
        return i64::MAX; // A closed loop waits for its answers.
    };
    let chunks_msgs = f64::from(scenario.in_flight) * (batch_bytes / size_bytes).max(1.0);
    let under_way = chunks_msgs.min(f64::from(window_msgs));
    // The rate may be doubled on the way, and the load goes on while the supervisor is away.
    let away = scenario.steps.iter().map(|(_, step)| match step {
        Step::Stall(for_ns) => *for_ns,
        _ => 0,
    });
    let load_ns = scenario.load_ns + away.sum::<i64>();
    let peak = scenario.planned_rates().fold(rate, f64::max);
    let messages = peak * 2.0 * load_ns as f64 / 1e9;
    (CARRIED_WITHIN_S * 1e9 * under_way / messages) as i64
}

/// Whether a lane that loses its CPU again and again brings the load to its end in time.
fn is_carried(scenario: &Scenario, window_msgs: u32) -> bool {
    const TURNS: f64 = 3.0; // Of one flight: it leaves, and what comes back is heard, and makes room.
    let Some(away) = &scenario.away else {
        return true;
    };
    let turn_ns = scenario.wake_ns as f64 + away.share * away.most_ns as f64 / 2.0;
    let flight_ns = (2 * scenario.delay_ns + scenario.service_ns) as f64 + TURNS * turn_ns;
    flight_ns < carried_follow_ns(scenario, window_msgs) as f64
}

impl World<Cluster> {
    /// Without acknowledgements, messages have come to their end when the piece with them is written whole.
    fn note_written(&mut self, at: usize) {
        let seen = self.seen();
        loop {
            let written = self.sockets[at].written();
            let Ok(Some((operation, length))) = parse::operation(written) else {
                return;
            };
            let message = match operation {
                Operation::Publish { subject, body, .. } if !subject.starts_with('$') => {
                    Message::read(body).ok().flatten()
                }
                _ => None,
            };
            self.sockets[at].up_seen += length;
            if let Some(message) = message {
                self.truth.met(&[message]);
                self.truth.acknowledged(&[message], seen);
            }
        }
    }

    fn strike(&mut self, fault: Fault) {
        let now_ns = self.now_ns();
        match fault {
            Fault::Move { slot, keeps } => {
                let stream = self.cluster.group_of(slot);
                if let Some(leader) = self.another(stream) {
                    self.lead(stream, Some(leader), keeps);
                }
            }
            Fault::Refuse {
                slot,
                refusal,
                is_stored,
                messages,
            } => {
                let stream = self.cluster.group_of(slot);
                self.cluster.streams[stream].refusals = Few::of((refusal, is_stored), messages);
            }
            Fault::Stall { slot, for_ns } => {
                self.marks.set(Mark::ReplicationStalled);
                let stream = self.cluster.group_of(slot);
                self.cluster.streams[stream].stalled_until_ns = now_ns + for_ns;
            }
            Fault::RefuseConsumer {
                slot,
                refusal,
                requests,
            } => {
                let stream = self.cluster.group_of(slot);
                self.cluster.streams[stream].consumer_refusals = Few::of(refusal, requests);
            }
            Fault::LoseConsumers { slot, loss } => {
                let stream = self.cluster.group_of(slot);
                self.lose_consumers(stream, loss);
            }
            Fault::Error { node, which } => {
                self.marks.set(Mark::ServerError);
                let words = format!("-ERR '{}'\r\n", faults::WORDS[which]);
                self.tell_all(node, words.as_bytes());
                for socket in self.sockets.iter_mut().filter(|socket| socket.node == node) {
                    socket.own.is_ending |= socket.is_greeted;
                }
                // The words are read before the connection ends, or not.
                let delay_ns = self.scenario.delay_ns * self.rng.i64(0..3);
                self.after(delay_ns, net::Event::Own(Event::Close(node)));
            }
            Fault::LameDuck { node, for_ns } => {
                self.marks.set(Mark::LameDuck);
                self.introduce_all(node, true);
                self.after(for_ns, net::Event::Own(Event::Close(node)));
            }
            Fault::News { node } => {
                self.marks.set(Mark::InfoUpdated);
                self.introduce_all(node, false);
            }
            Fault::Ping { node } => {
                for at in 0..self.sockets.len() {
                    let socket = &mut self.sockets[at];
                    if socket.node == node && socket.stage == Stage::Open && socket.is_greeted {
                        socket.own.pings += 1;
                        let pings = socket.own.pings;
                        self.say(at, b"PING\r\n".to_vec(), Told::Nothing);
                        let until_ns = self.nodes[node].paused_until_ns.max(now_ns);
                        let event = net::Event::Own(Event::Answered(at, pings));
                        self.at(until_ns + 2_000_000_000, event);
                    }
                }
            }
            Fault::Damage { slot } => {
                let stream = self.cluster.group_of(slot);
                self.cluster.streams[stream].damages_next = true;
            }
        }
    }

    fn tell_all(&mut self, node: usize, words: &[u8]) {
        for at in 0..self.sockets.len() {
            if self.sockets[at].node == node && self.sockets[at].is_greeted {
                self.say(at, words.to_vec(), Told::Nothing);
            }
        }
    }

    fn introduce_all(&mut self, node: usize, is_lame: bool) {
        for at in 0..self.sockets.len() {
            if self.sockets[at].node == node && self.sockets[at].is_greeted {
                self.introduce(at, is_lame);
            }
        }
    }

    /// Another leader, or none. Of what was proposed it keeps the first messages; their answers are lost with the old leader.
    fn lead(&mut self, stream: usize, leader: Option<usize>, keeps: usize) {
        let own = &mut self.cluster.streams[stream];
        own.term += 1;
        own.leader = leader;
        let proposals = std::mem::take(&mut own.proposals);
        own.ids_in_process.clear();
        if proposals.len() > keeps {
            self.marks.set(Mark::AckTimedOut);
        }
        for mut proposal in proposals.into_iter().take(keeps) {
            proposal.reply = None;
            self.store(stream, proposal);
        }
        match leader {
            Some(leader) => {
                self.marks.led(&mut self.cluster.streams[stream].led_by, leader);
            }
            None => self.marks.set(Mark::LeaderAway),
        }
        let loss = [Loss::Moved, Loss::MovedUncounted, Loss::MovedSilently][self.rng.usize(..3)];
        self.lose_consumers(stream, loss);
    }
}
