//! RabbitMQ's nodes over AMQP 0-9-1: exchanges, queues, who leads them, channels, confirmations, and what goes wrong with all of it.
//!
//! A topic is an exchange; each subscription has a queue of its own per partition. A message that is published goes to all of them, and is
//! confirmed when all have it. A quorum queue that changes its leader goes on with what it had proposed, because the channel that published it
//! says it again; a classic queue that dies refuses what it had not confirmed, stored or not. What a consumer has and has not acknowledged comes
//! back to its place in the queue when its channel or its connection ends.

mod faults;
mod parse;
mod queues;
mod serve;

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use gauge_client::Protocol;
use serde_json::json;

use crate::marks::Mark;
use crate::net::{self, Told, World};
use crate::nodes::{self, Few, NodeFault, Place};
use crate::scenario::{Again, Expects, MS, Owed, Plan, Scenario, Step};
use crate::system::System;
use crate::truth::Message;
pub use faults::{Fault, Settings, Which};
use parse::{Arguments, Command, said};
pub use queues::Queue;

/// What the nodes keep.
#[derive(Debug)]
pub struct Cluster {
    /// The queues of a slot, one per subscription, are next to each other.
    pub queues: Vec<Queue>,
    /// How many there are of each slot.
    pub readers: usize,
    /// Whoever publishes is blocked before this time.
    pub alarm_until_ns: i64,
    /// Per node: connections that come next are closed with this code.
    pub refused_openings: Vec<Few<u16>>,
    next_channel: u64,
}

/// A channel, whichever socket it is of: its number, and one that no other channel ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct On {
    pub at: usize,
    pub channel: u16,
    pub serial: u64,
}

/// What happens at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A queue has the oldest message that was proposed, under this term.
    Committed(usize, u64),
    /// A channel says what was confirmed.
    Confirm(On),
    /// A queue's leader goes on after a pause.
    Feed(usize),
    /// A channel that has asked how many messages a queue has is answered, whatever it knows by now.
    Count(On, usize),
    /// A node notices that a connection is over.
    Gone(usize),
    /// A node says that it is there, and looks whether the client is.
    Beat(usize),
    /// There is memory and disk again, unless it is said later.
    AlarmOver,
    /// A node ends a connection that it has closed.
    End(usize),
}

/// A message that was published and has no answer yet.
#[derive(Debug)]
pub struct Pending {
    /// Queues that do not have it yet.
    pub left: usize,
    pub is_refused: bool,
    /// None: a probe, or one that has come back.
    pub message: Option<Message>,
}

/// A message that was delivered and not acknowledged: whose, and what; None: its queue has taken it back.
#[derive(Debug)]
pub struct Unacked {
    pub queue: usize,
    pub item: Option<queues::Item>,
}

/// A channel.
#[derive(Debug, Default)]
pub struct Channel {
    pub serial: u64,
    pub is_confirming: bool,
    /// The node has closed it and waits for the answer.
    pub is_closing: bool,
    pub published: u64,
    pub pending: BTreeMap<u64, Pending>,
    /// What was confirmed or refused, and not said yet.
    pub settled: Vec<(u64, bool, Option<Message>)>,
    pub prefetch: u16,
    /// The queue that it consumes, under which tag, and whether without acknowledgements.
    pub consumes: Option<(usize, String, bool)>,
    pub delivered: u64,
    pub unacked: BTreeMap<u64, Unacked>,
}

/// What a node knows of a connection.
#[derive(Debug, Default)]
pub struct Socket {
    /// The client has begun to speak, and is still known.
    pub is_known: bool,
    pub channels: BTreeMap<u16, Channel>,
    pub is_blocked: bool,
    /// The node has closed the connection, and says and takes nothing more.
    pub is_ending: bool,
    /// The client has closed it, or is not there any more.
    pub has_ended: bool,
    pub heartbeat_ns: i64,
    /// When something came from the client.
    pub heard_ns: i64,
}

impl System for Cluster {
    const NAME: &'static str = "rabbitmq";
    const FAULT_KINDS: u32 = faults::KINDS;
    const MARKS: &'static [Mark] = &{
        use Mark::*;
        [
            LeaderCameBack,
            Damaged,
            Lost,
            Nacked,
            ConfirmedTogether,
            ConfirmedOutOfOrder,
            Returned,
            DeliveredAgain,
            ConsumerCancelled,
            ConsumerGhost,
            ChannelClosed,
            ConnectionClosed,
            OpeningRefused,
            Blocked,
            QueueDown,
            QueueCrashed,
            EndNotKnown,
            HeartbeatMissed,
            ConsumedByDelivery,
        ]
    };
    type Fault = Fault;
    type Settings = Settings;
    type Event = Event;
    type Socket = Socket;

    fn client() -> &'static dyn Protocol {
        &gauge_client::rabbitmq::RabbitMq
    }

    fn settings(rng: &mut Rng) -> Settings {
        Settings::draw(rng)
    }

    fn fault(kind: u32, place: Place, rng: &mut Rng) -> Fault {
        faults::draw(kind, place, rng)
    }

    fn draw_the_end(scenario: &mut Scenario, plan: &mut Plan<Self>, rng: &mut Rng) {
        if rng.f64() < 0.15 {
            // What is there can neither be read nor counted for longer than a drain takes for the end.
            for reader in 0..scenario.subscriptions.len() {
                let queue = Which { slot: 0, reader };
                let for_ns = 3_000_000_000;
                plan.strike_late(scenario, rng, Fault::Away { queue, for_ns });
            }
        }
        if rng.f64() < 0.15 && !scenario.subscriptions.is_empty() {
            cancel_at_once(scenario, plan, rng);
        }
        if rng.f64() < 0.1 {
            tell_too_early(scenario, plan, rng);
        }
        let settings = &plan.settings;
        let kind = if settings.is_quorum { "quorum" } else { "classic" };
        scenario.request["system"]["options"] = json!({
            "mandatory": settings.is_mandatory,
            "consumer_acks": if settings.is_automatic { "automatic" } else { "manual" },
            "prefetch_msgs": settings.prefetch,
            "heartbeat_s": settings.heartbeat_s,
            "queue_arguments": {"x-queue-type": kind},
        });
    }

    fn expects(scenario: &Scenario, plan: &Plan<Self>) -> Expects {
        // A message that is refused or comes back has failed. All others keep their order: what is sent again begins with the first that is missing.
        let is_refused = plan.has(|fault| matches!(fault, Fault::Refuse { .. }));
        let may_crash = !plan.settings.is_quorum && !plan.is_calm();
        // Who is blocked waits; that the connection is dead as well, heartbeats tell.
        let is_blocked_long =
            plan.settings.heartbeat_s == 60 && plan.has(|fault| matches!(fault, Fault::Alarm { .. }));
        Expects {
            may_fail: scenario.retry_for_ns < 60_000_000_000 || is_refused || may_crash || is_blocked_long,
            once: plan.is_calm(),
            // A refusal that is lost with its connection is none: that message comes again behind others that were stored.
            in_order: !is_refused,
            again: Again::HandedOver,
            owed: Owed::default(),
        }
    }

    fn new(scenario: &Scenario, plan: &Plan<Self>) -> Cluster {
        let readers = scenario.subscriptions.len().max(1);
        let mut queues = Vec::new();
        for (topic, partitions) in &scenario.topics {
            for partition in 0..*partitions {
                let slot = queues.len() / readers;
                for reader in 0..readers {
                    let home = (slot + reader) % scenario.nodes;
                    let name = match reader {
                        0 => format!("{topic}.{partition}"),
                        _ => format!("{topic}.{partition}.{reader}"),
                    };
                    queues.push(Queue::new(name, slot, reader, home, plan.settings.is_quorum));
                }
            }
        }
        Cluster {
            queues,
            readers,
            alarm_until_ns: 0,
            refused_openings: vec![Few::default(); scenario.nodes],
            next_channel: 0,
        }
    }

    fn groups(&self) -> usize {
        self.queues.len()
    }

    fn group_of(&self, slot: usize) -> usize {
        slot * self.readers + slot % self.readers
    }

    fn leader(&self, group: usize) -> Option<usize> {
        self.queues[group].leader
    }

    fn lead(world: &mut World<Self>, group: usize, leader: usize) {
        world.lead(group, leader);
    }

    fn depose(world: &mut World<Self>, group: usize) {
        let keeps = world.rng.usize(..10);
        world.depose(group, keeps);
    }

    fn paused(world: &mut World<Self>, node: usize, for_ns: i64) {
        world.serve_later(node, for_ns);
        for queue in 0..world.cluster.queues.len() {
            if world.cluster.queues[queue].leader == Some(node) {
                world.after(for_ns, net::Event::Own(Event::Feed(queue)));
            }
        }
    }

    fn over(world: &mut World<Self>, at: usize, is_broken: bool) {
        if is_broken {
            world.gone(at);
            return;
        }
        world.ends_behind(at, Event::Gone(at));
    }

    fn serve(world: &mut World<Self>, at: usize) {
        world.serve(at);
    }

    fn happen(world: &mut World<Self>, event: Event) {
        match event {
            Event::Committed(queue, term) => world.committed(queue, term),
            Event::Confirm(on) => world.say_settled(on),
            Event::Feed(queue) => world.feed(queue),
            Event::Count(on, queue) => world.say_count(on, queue),
            Event::Gone(at) => {
                // What came before is looked at first.
                world.sockets[at].own.has_ended = true;
                world.serve(at);
            }
            Event::Beat(at) => world.beat(at),
            Event::AlarmOver => world.unblock(),
            Event::End(at) => world.reset(at),
        }
    }

    fn strike(world: &mut World<Self>, fault: Fault) {
        world.strike(fault);
    }

    fn make_peace(world: &mut World<Self>) {
        for queue in &mut world.cluster.queues {
            queue.refusals.keep(|is_stored| is_stored);
            queue.refused_consumers = Few::default();
            queue.damages_next = false;
        }
        for refused in &mut world.cluster.refused_openings {
            *refused = Few::default();
        }
        world.cluster.alarm_until_ns = 0;
        world.unblock();
    }

    fn wrote(world: &mut World<Self>, at: usize) {
        world.note_written(at);
    }
}

impl World<Cluster> {
    /// Without acknowledgements, messages have come to their end when the piece with them is written whole.
    fn note_written(&mut self, at: usize) {
        let seen = self.seen();
        loop {
            let written = self.sockets[at].written();
            let Ok(Some((_, command, length))) = parse::command(written) else {
                return;
            };
            self.sockets[at].up_seen += length;
            if let Command::Publish { body, .. } = command
                && let Ok(Some(message)) = Message::read(&body)
            {
                self.truth.met(&[message]);
                self.truth.acknowledged(&[message], seen);
            }
        }
    }

    /// The queue that a fault means.
    fn which(&self, queue: Which) -> usize {
        let readers = self.cluster.readers;
        queue.slot * readers + queue.reader % readers
    }

    fn strike(&mut self, fault: Fault) {
        let now_ns = self.now_ns();
        match fault {
            Fault::Move { queue, keeps } => {
                let queue = self.which(queue);
                if !self.plan.settings.is_quorum {
                    self.depose(queue, keeps);
                    self.elect(queue);
                } else if let Some(leader) = self.another(queue) {
                    self.depose(queue, keeps);
                    self.lead(queue, leader);
                }
            }
            Fault::Refuse {
                queue,
                is_stored,
                messages,
            } => {
                let queue = self.which(queue);
                self.cluster.queues[queue].refusals = Few::of(is_stored, messages);
            }
            Fault::Stall { queue, for_ns } => {
                self.marks.set(Mark::ReplicationStalled);
                let queue = self.which(queue);
                self.cluster.queues[queue].stalled_until_ns = now_ns + for_ns;
            }
            Fault::Cancel { queue } => self.cancel(self.which(queue)),
            Fault::CloseChannels {
                node,
                code,
                of_producers,
            } => self.close_channels(node, code, of_producers),
            Fault::CloseConnections { node, code } => {
                for at in 0..self.sockets.len() {
                    if self.sockets[at].node == node && self.sockets[at].is_greeted {
                        self.close_connection(at, code);
                    }
                }
            }
            Fault::Alarm { for_ns } => {
                let until_ns = self.cluster.alarm_until_ns.max(now_ns + for_ns);
                self.cluster.alarm_until_ns = until_ns;
                self.at(until_ns, net::Event::Own(Event::AlarmOver));
            }
            Fault::RefuseConsume { queue, code, times } => {
                let queue = self.which(queue);
                self.cluster.queues[queue].refused_consumers = Few::of(code, times);
                self.cancel(queue);
            }
            Fault::Damage { queue } => {
                let queue = self.which(queue);
                self.cluster.queues[queue].damages_next = true;
            }
            Fault::Away { queue, for_ns } => {
                let queue = self.which(queue);
                let keeps = self.rng.usize(..10);
                self.depose(queue, keeps);
                self.after(for_ns, net::Event::Elect(queue));
            }
            Fault::RefuseOpening { node, code, times } => {
                self.cluster.refused_openings[node] = Few::of(code, times);
                self.cut(node);
            }
        }
    }

    /// A node says that it is there, and looks whether the client is.
    fn beat(&mut self, at: usize) {
        let own = &self.sockets[at].own;
        if !own.is_known || own.is_ending || own.heartbeat_ns == 0 {
            return;
        }
        let (heard_ns, heartbeat_ns, has_ended) = (own.heard_ns, own.heartbeat_ns, own.has_ended);
        // Who does not read misses nothing, either.
        if !own.is_blocked && self.misses_heartbeats(at, heard_ns, heartbeat_ns, has_ended) {
            self.gone(at);
            return;
        }
        self.say(at, parse::heartbeat(), Told::Nothing);
        self.after(heartbeat_ns / 2, net::Event::Own(Event::Beat(at)));
    }

    /// The alarm is over: whoever was blocked goes on.
    fn unblock(&mut self) {
        let now_ns = self.now_ns();
        if now_ns < self.cluster.alarm_until_ns {
            return;
        }
        for at in 0..self.sockets.len() {
            let own = &mut self.sockets[at].own;
            if std::mem::take(&mut own.is_blocked) {
                own.heard_ns = now_ns;
                self.say(
                    at,
                    parse::method(0, said::UNBLOCKED, Arguments::default()),
                    Told::Nothing,
                );
                self.after(0, net::Event::Serve(at));
            }
        }
    }

    /// A node has noticed that a connection is over: what its channels had comes back.
    fn gone(&mut self, at: usize) {
        let channels: BTreeSet<u16> = self.sockets[at].own.channels.keys().copied().collect();
        for channel in channels {
            self.leave_channel(at, channel);
        }
        self.forget(at);
    }
}

/// A queue's consumers are cancelled by the node and by the client at once, and the client wants its messages again before the answers are there.
fn cancel_at_once(scenario: &mut Scenario, plan: &mut Plan<Cluster>, rng: &mut Rng) {
    for _ in 0..rng.u32(1..6) {
        let reader = rng.usize(..scenario.subscriptions.len());
        let at_ns = rng.i64(scenario.load_ns / 10..scenario.load_ns * 8 / 10);
        let near = |rng: &mut Rng| rng.i64(0..=3 * scenario.delay_ns + scenario.wake_ns);
        let (cancelled_ns, again_ns) = (at_ns + near(rng), at_ns + near(rng));
        scenario.steps.push((at_ns, Step::Pause(reader, true)));
        scenario.steps.push((again_ns, Step::Pause(reader, false)));
        for slot in 0..scenario.slots {
            let queue = Which { slot, reader };
            plan.faults
                .push((cancelled_ns, nodes::Fault::Own(Fault::Cancel { queue })));
        }
    }
    scenario.steps.sort_by_key(|(step_ns, _)| *step_ns);
}

/// The last messages come when consumers were told that there are no more, and have lost touch since.
fn tell_too_early(scenario: &Scenario, plan: &mut Plan<Cluster>, rng: &mut Rng) {
    let closed_ns = scenario.load_ns - rng.i64(0..5 * MS);
    let unheard_ns = scenario.load_ns + rng.i64(5 * MS..60 * MS);
    for node in 0..scenario.nodes {
        let closed = Fault::CloseChannels {
            node,
            code: 406,
            of_producers: true,
        };
        plan.faults.push((closed_ns, nodes::Fault::Own(closed)));
        plan.faults
            .push((unheard_ns, nodes::Fault::Node(NodeFault::Unheard { node })));
    }
}
