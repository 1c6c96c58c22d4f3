//! What every protocol's nodes have in common: how they are, who leads, what goes wrong with them, and how they speak.
//!
//! What a node leads is a group: a partition (Kafka, Pulsar) or a stream (NATS).

use std::fmt::Debug;

use fastrand::Rng;

use crate::marks::{Mark, Marks};
use crate::net::{Delivery, Event, Stage, Told, World};
use crate::scenario::{MS, Scenario, one};
use crate::system::System;
use crate::truth::Seen;

/// How a node is.
#[derive(Debug)]
pub struct Node {
    pub is_up: bool,
    /// It does nothing before this time.
    pub paused_until_ns: i64,
    /// Bytes to it and from it get lost until then.
    pub silent_until_ns: i64,
    /// So many of the next things that it says break off within.
    pub cuts: u32,
}

impl Default for Node {
    fn default() -> Node {
        Node {
            is_up: true,
            paused_until_ns: 0,
            silent_until_ns: 0,
            cuts: 0,
        }
    }
}

/// What goes wrong with nodes, whatever they speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFault {
    /// A group has no leader for so long.
    Leaderless { slot: usize, for_ns: i64 },
    /// A node is gone for so long; what it leads gets other leaders.
    Down { node: usize, for_ns: i64 },
    /// All connections of a node break.
    Cut { node: usize },
    /// The next things that a node says break off within.
    CutWithin { node: usize, times: u32 },
    /// Bytes from and to a node get lost for so long, without a word.
    Silent { node: usize, for_ns: i64 },
    /// A node does nothing for so long.
    Pause { node: usize, for_ns: i64 },
    /// Bytes from and to a node get lost on the connections that consumers have by now; producers go on.
    Unheard { node: usize },
}

/// What goes wrong: with any nodes, or with those of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault<F> {
    Node(NodeFault),
    Own(F),
}

impl<F> Fault<F> {
    /// Whether it may strike after the end of the load, when everything else is at peace.
    pub fn is_of_the_drain(&self) -> bool {
        matches!(self, Fault::Node(NodeFault::Unheard { .. }))
    }
}

/// Where a fault strikes, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub slot: usize,
    pub node: usize,
    pub for_ns: i64,
}

/// Draws a fault: of any kind, or of that one. The kinds 1 to 6 are every protocol's.
pub fn draw<S: System>(scenario: &Scenario, rng: &mut Rng, only: Option<u32>) -> Fault<S::Fault> {
    let (slot, node) = (rng.usize(..scenario.slots), rng.usize(..scenario.nodes));
    let for_ns = one(rng, &[1, 20, 100, 700]) * MS;
    Fault::Node(match only.unwrap_or_else(|| rng.u32(0..S::FAULT_KINDS)) {
        1 => NodeFault::Leaderless { slot, for_ns },
        2 => NodeFault::Down { node, for_ns },
        3 => NodeFault::Cut { node },
        4 => NodeFault::CutWithin {
            node,
            times: rng.u32(1..4),
        },
        5 => NodeFault::Silent { node, for_ns },
        6 => NodeFault::Pause { node, for_ns },
        kind => return Fault::Own(S::fault(kind, Place { slot, node, for_ns }, rng)),
    })
}

/// What is done to the next few, and then to no more.
#[derive(Clone, Copy, Debug)]
pub struct Few<T>(Option<(T, u32)>);

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few(None)
    }
}

impl<T: Copy> Few<T> {
    /// To the next `times`.
    pub fn of(what: T, times: u32) -> Few<T> {
        Few((times > 0).then_some((what, times)))
    }

    /// What is done to the next, which is not it yet.
    pub fn peek(&self) -> Option<T> {
        self.0.map(|(what, _)| what)
    }

    /// What is done to this one.
    pub fn next(&mut self) -> Option<T> {
        let (what, left) = self.0?;
        self.0 = (left > 1).then_some((what, left - 1));
        Some(what)
    }

    /// Nothing is done any more, unless it is this.
    pub fn keep(&mut self, is_kept: impl FnOnce(T) -> bool) {
        self.0 = self.0.filter(|(what, _)| is_kept(*what));
    }
}

impl Marks {
    /// A group has this leader now.
    pub fn led(&mut self, led_by: &mut Vec<usize>, leader: usize) {
        self.set(Mark::LeaderMoved);
        if led_by.contains(&leader) {
            self.set(Mark::LeaderCameBack);
        }
        led_by.push(leader);
    }
}

impl<S: System> World<S> {
    /// Something goes wrong with a node.
    pub fn strike_node(&mut self, fault: NodeFault) {
        let now_ns = self.now_ns();
        match fault {
            NodeFault::Leaderless { slot, for_ns } => {
                let group = self.cluster.group_of(slot);
                S::depose(self, group);
                self.marks.set(Mark::LeaderAway);
                self.after(for_ns, Event::Elect(group));
            }
            NodeFault::Down { node, for_ns } => {
                self.marks.set(Mark::NodeDown);
                self.nodes[node].is_up = false;
                S::went_down(self, node);
                self.cut(node);
                for group in 0..self.cluster.groups() {
                    if self.cluster.leader(group) == Some(node) {
                        S::depose(self, group);
                        let delay_ns = self.draw(1_000_000, 200_000_000);
                        self.after(delay_ns, Event::Elect(group));
                    }
                }
                self.after(for_ns, Event::NodeUp(node));
            }
            NodeFault::Cut { node } => self.cut(node),
            NodeFault::CutWithin { node, times } => self.nodes[node].cuts = times,
            NodeFault::Silent { node, for_ns } => {
                self.marks.set(Mark::SilentConnection);
                self.nodes[node].silent_until_ns = now_ns + for_ns;
                for socket in self.sockets.iter_mut().filter(|socket| socket.node == node) {
                    socket.is_silent = true;
                }
            }
            NodeFault::Unheard { node } => {
                self.marks.set(Mark::SilentConnection);
                for at in 0..self.sockets.len() {
                    if self.sockets[at].node == node && self.subscription_of(at).is_some() {
                        self.sockets[at].is_silent = true;
                    }
                }
            }
            NodeFault::Pause { node, for_ns } => {
                self.marks.set(Mark::NodePaused);
                self.nodes[node].paused_until_ns = now_ns + for_ns;
                S::paused(self, node, for_ns);
            }
        }
    }

    /// Nodes that could lead a group instead of the one that does.
    fn candidates(&self, group: usize) -> Vec<usize> {
        let now = self.cluster.leader(group);
        (0..self.nodes.len())
            .filter(|node| self.nodes[*node].is_up && Some(*node) != now)
            .collect()
    }

    /// Another leader for a group, if there is one.
    pub fn another(&mut self, group: usize) -> Option<usize> {
        let others = self.candidates(group);
        others.get(self.rng.usize(..others.len().max(1))).copied()
    }

    /// A group without a leader gets one.
    pub fn elect(&mut self, group: usize) {
        if self.cluster.leader(group).is_some() {
            return;
        }
        let candidates = self.candidates(group);
        if candidates.is_empty() {
            self.after(20_000_000, Event::Elect(group));
        } else {
            let leader = candidates[self.rng.usize(..candidates.len())];
            S::lead(self, group, leader);
        }
    }

    /// After how many bytes what a node says now breaks off, if it does.
    pub fn breaks_within(&mut self, at: usize, bytes: usize) -> Option<usize> {
        let node = &mut self.nodes[self.sockets[at].node];
        if node.cuts == 0 {
            return None;
        }
        node.cuts -= 1;
        Some(self.rng.usize(..bytes))
    }

    /// Bytes for a client: they leave when the node does anything.
    pub fn say(&mut self, at: usize, bytes: Vec<u8>, told: Told) {
        if self.sockets[at].stage != Stage::Open {
            return;
        }
        let now_ns = self.now_ns();
        let until_ns = self.nodes[self.sockets[at].node].paused_until_ns;
        if now_ns < until_ns || !self.sockets[at].held.is_empty() {
            self.sockets[at].held.push_back((bytes, told));
            self.at(until_ns.max(now_ns), Event::Serve(at));
            return;
        }
        self.leave(at, &bytes, told);
    }

    fn leave(&mut self, at: usize, bytes: &[u8], told: Told) {
        if self.sockets[at].stage != Stage::Open {
            return;
        }
        // A connection over which nobody has said who he is breaks when it comes about, and not later.
        let cut = match self.sockets[at].is_greeted {
            true => self.breaks_within(at, bytes.len()),
            false => None,
        };
        self.send(at, bytes, told, cut);
        if cut.is_some() {
            // What would follow never comes.
            S::over(self, at, true);
            self.forget(at);
        }
    }

    /// A node looks at a connection: what it had to say leaves first. False: it does nothing now.
    pub fn attend(&mut self, at: usize) -> bool {
        let now_ns = self.now_ns();
        loop {
            let socket = &self.sockets[at];
            if !matches!(socket.stage, Stage::Open | Stage::Closed) {
                return false;
            }
            let ready_ns = self.nodes[socket.node].paused_until_ns;
            if now_ns < ready_ns {
                self.at(ready_ns, Event::Serve(at));
                return false;
            }
            let Some((bytes, told)) = self.sockets[at].held.pop_front() else {
                return true;
            };
            self.leave(at, &bytes, told);
        }
    }

    /// A node that does nothing for so long looks at its connections after that.
    pub fn serve_later(&mut self, node: usize, for_ns: i64) {
        for at in 0..self.sockets.len() {
            if self.sockets[at].node == node {
                self.after(for_ns, Event::Serve(at));
            }
        }
    }

    /// The end of a connection comes behind what its client has sent; one that is silent is missed when heartbeats are.
    pub fn ends_behind(&mut self, at: usize, end: S::Event) {
        if !self.sockets[at].is_silent {
            let at_ns = self.arrival_ns(at);
            self.at(at_ns, Event::Own(end));
        }
    }

    /// Whether a client of which the node heard last at `heard_ns` has missed two heartbeats. Who does nothing misses nothing.
    pub fn misses_heartbeats(
        &mut self,
        at: usize,
        heard_ns: i64,
        heartbeat_ns: i64,
        has_ended: bool,
    ) -> bool {
        let socket = &self.sockets[at];
        let from_ns = heard_ns.max(self.nodes[socket.node].paused_until_ns);
        if self.now_ns() <= from_ns + 2 * heartbeat_ns {
            return false;
        }
        if socket.is_silent || has_ended {
            self.marks.set(Mark::HeartbeatMissed);
        } else {
            self.truth
                .offend(|| "a client was silent for two heartbeats".to_owned());
        }
        true
    }

    /// An answer that tells a subscription of messages, and where slots end.
    pub fn told(&self, at: usize, batches: Vec<usize>, slots: &[usize], made_ns: i64) -> Told {
        match self.subscription_of(at) {
            Some(subscription) => Told::Delivered(Delivery {
                subscription,
                batches,
                told: slots.to_vec(),
                made_ns,
            }),
            None => Told::Nothing,
        }
    }

    /// What a client does now, by the clock that it reads next.
    pub fn seen(&self) -> Seen {
        Seen {
            read_ns: self.now_ns() + self.scenario.reading_ns,
            turn_ns: self.turn_ns,
            come_ns: i64::MAX,
            empty_ns: i64::MAX,
        }
    }

    /// The number of a partition among all.
    pub fn slot(&self, topic: &str, partition: i32) -> Option<usize> {
        let (_, first, partitions) = self.topics.iter().find(|(name, ..)| name == topic)?;
        let partition = usize::try_from(partition).ok()?;
        (partition < *partitions).then_some(first + partition)
    }
}
