//! Brokers of Kafka's protocol: nodes, partitions, who leads them, what followers have, and what goes wrong with all of it.
//!
//! A partition has one log, that of its leader. Followers have it up to the high watermark; a leader that is elected has what followers had,
//! or less where a fault says so. A node that was leader and has not heard of the new one goes on to take batches that nobody will keep.

mod serve;
mod sessions;

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::marks::Mark;
use crate::net::{Event, World};
use crate::scenario::{Fault, Scenario};
pub use serve::Pending;
pub use sessions::Session;

/// A batch in a log.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its number among the batches that the world knows.
    pub number: usize,
    pub base: i64,
    pub end: i64,
    pub epoch: i32,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub bytes: Vec<u8>,
    /// Where the bodies of its messages lie.
    pub bodies: Vec<std::ops::Range<usize>>,
}

impl Stored {
    fn last_sequence(&self) -> i32 {
        self.base_sequence.wrapping_add((self.end - self.base) as i32 - 1) & i32::MAX
    }
}

/// What a partition remembers of an idempotent producer: its last five batches.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub epoch: i16,
    /// First and last sequence, and where it ends in the log.
    pub last: VecDeque<(i32, i32, i64)>,
}

/// A partition.
#[derive(Debug, Default)]
pub struct Partition {
    pub leader: Option<usize>,
    pub epoch: i32,
    pub log: Vec<Stored>,
    pub end: i64,
    pub high_watermark: i64,
    pub producers: HashMap<i64, Known>,
    pub stalled_until_ns: i64,
    /// (code, stored, how many more)
    pub refusals: Option<(i16, bool, u32)>,
    pub fetch_refusals: Option<(i16, u32)>,
    /// Producers were forgotten on purpose: one that is not known is told so.
    pub has_forgotten: bool,
    /// A message of the next batch is damaged.
    pub damages_next: bool,
    led_by: Vec<usize>,
}

/// A node.
#[derive(Debug, Default)]
pub struct Node {
    pub is_up: bool,
    pub paused_until_ns: i64,
    pub silent_until_ns: i64,
    /// Hears of nothing before this time.
    pub stale_until_ns: i64,
    /// (for how long, how many more)
    pub throttle: Option<(i64, u32)>,
    pub cuts: u32,
    /// Per slot: leader (-1: nobody) and epoch, as it has heard.
    pub view: Vec<(i32, i32)>,
    pub sessions: BTreeMap<i32, Session>,
    pub next_session: i32,
}

/// The nodes and what they keep.
#[derive(Debug)]
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub partitions: Vec<Partition>,
    pub next_producer_id: i64,
    pub is_changed: bool,
}

impl Cluster {
    pub fn new(scenario: &Scenario) -> Cluster {
        let partitions: Vec<Partition> = (0..scenario.slots)
            .map(|slot| Partition {
                leader: Some(slot % scenario.nodes),
                led_by: vec![slot % scenario.nodes],
                ..Partition::default()
            })
            .collect();
        let node = |_| Node {
            is_up: true,
            view: (0..scenario.slots)
                .map(|slot| ((slot % scenario.nodes) as i32, 0))
                .collect(),
            next_session: 1,
            ..Node::default()
        };
        Cluster {
            nodes: (0..scenario.nodes).map(node).collect(),
            partitions,
            next_producer_id: 1000,
            is_changed: false,
        }
    }
}

impl World {
    /// A fault strikes.
    pub fn strike(&mut self, number: usize) {
        let (_, fault) = self.scenario.faults[number];
        let now_ns = self.now_ns();
        match fault {
            Fault::Move { slot, lacks } => {
                let others = self.candidates(slot);
                let Some(&leader) = others.get(self.rng.usize(..others.len().max(1))) else {
                    return;
                };
                self.lead(slot, Some(leader), lacks);
            }
            Fault::Leaderless { slot, for_ns } => {
                self.lead(slot, None, 0);
                self.marks.set(Mark::LeaderAway);
                self.after(for_ns, Event::Elect(slot));
            }
            Fault::Down { node, for_ns } => {
                self.marks.set(Mark::NodeDown);
                self.cluster.nodes[node].is_up = false;
                self.cluster.nodes[node].sessions.clear();
                self.cut(node);
                for slot in 0..self.cluster.partitions.len() {
                    if self.cluster.partitions[slot].leader == Some(node) {
                        self.lead(slot, None, 0);
                        let delay_ns = self.draw(1_000_000, 200_000_000);
                        self.after(delay_ns, Event::Elect(slot));
                    }
                }
                self.after(for_ns, Event::NodeUp(node));
            }
            Fault::Cut { node } => self.cut(node),
            Fault::CutWithin { node, answers } => self.cluster.nodes[node].cuts = answers,
            Fault::Silent { node, for_ns } => {
                self.marks.set(Mark::SilentConnection);
                self.cluster.nodes[node].silent_until_ns = now_ns + for_ns;
                for socket in self.sockets.iter_mut().filter(|socket| socket.node == node) {
                    socket.is_silent = true;
                }
            }
            Fault::Pause { node, for_ns } => {
                self.marks.set(Mark::NodePaused);
                self.cluster.nodes[node].paused_until_ns = now_ns + for_ns;
            }
            Fault::Refuse {
                slot,
                code,
                is_stored,
                batches,
            } => self.cluster.partitions[slot].refusals = Some((code, is_stored, batches)),
            Fault::Throttle {
                node,
                for_ns,
                answers,
            } => self.cluster.nodes[node].throttle = Some((for_ns, answers)),
            Fault::Stale { node, for_ns } => self.cluster.nodes[node].stale_until_ns = now_ns + for_ns,
            Fault::Forget { slot } => {
                let partition = &mut self.cluster.partitions[slot];
                partition.producers.clear();
                partition.has_forgotten = true;
            }
            Fault::Stall { slot, for_ns } => {
                self.marks.set(Mark::ReplicationStalled);
                let partition = &mut self.cluster.partitions[slot];
                partition.stalled_until_ns = now_ns + for_ns;
                let (epoch, end) = (partition.epoch, partition.end);
                self.after(for_ns, Event::Replicated(slot, epoch, end));
            }
            Fault::ForgetSessions { node } => {
                let sessions = &mut self.cluster.nodes[node].sessions;
                if self.rng.bool() {
                    sessions.clear();
                } else {
                    sessions.values_mut().for_each(Session::skip);
                }
            }
            Fault::RefuseFetch { slot, code, fetches } => {
                self.cluster.partitions[slot].fetch_refusals = Some((code, fetches));
                self.cluster.is_changed = true;
            }
            Fault::Damage { slot } => self.cluster.partitions[slot].damages_next = true,
        }
    }

    /// Nothing goes wrong any more: what was out of order is in order soon.
    pub fn make_peace(&mut self) {
        self.is_at_peace = true;
        for node in 0..self.cluster.nodes.len() {
            let node = &mut self.cluster.nodes[node];
            (node.throttle, node.cuts) = (None, 0);
        }
        for partition in &mut self.cluster.partitions {
            // Refusals of what is stored run out, and the last batches are repeated.
            partition.refusals = partition.refusals.filter(|(_, is_stored, _)| *is_stored);
            partition.fetch_refusals = None;
            partition.damages_next = false;
        }
    }

    fn candidates(&self, slot: usize) -> Vec<usize> {
        let now = self.cluster.partitions[slot].leader;
        (0..self.cluster.nodes.len())
            .filter(|node| self.cluster.nodes[*node].is_up && Some(*node) != now)
            .collect()
    }

    fn cut(&mut self, node: usize) {
        for at in 0..self.sockets.len() {
            if self.sockets[at].node == node {
                self.reset(at);
            }
        }
    }

    /// Another leader, or none. It has what followers had, less so many batches.
    fn lead(&mut self, slot: usize, leader: Option<usize>, lacks: usize) {
        let kept = {
            let partition = &self.cluster.partitions[slot];
            let replicated = partition
                .log
                .iter()
                .take_while(|stored| stored.end <= partition.high_watermark)
                .count();
            // Followers may have all of it although the leader has not heard so.
            let has_all = partition.stalled_until_ns <= self.now_ns() && self.rng.bool();
            if lacks == 0 && (has_all || leader.is_none()) {
                partition.log.len()
            } else {
                replicated.saturating_sub(lacks)
            }
        };
        self.truncate(slot, kept);
        let partition = &mut self.cluster.partitions[slot];
        partition.epoch += 1;
        partition.leader = leader;
        let (epoch, end) = (partition.epoch, partition.end);
        if let Some(leader) = leader {
            self.marks.set(Mark::LeaderMoved);
            if partition.led_by.contains(&leader) {
                self.marks.set(Mark::LeaderCameBack);
            }
            partition.led_by.push(leader);
            self.cluster.nodes[leader].view[slot] = (leader as i32, epoch);
            let delay_ns = self.follow_ns();
            self.after(delay_ns, Event::Replicated(slot, epoch, end));
        }
        let told = leader.map_or(-1, |leader| leader as i32);
        for node in 0..self.cluster.nodes.len() {
            if Some(node) != leader {
                let delay_ns = self.draw(0, self.scenario.news_ns);
                self.after(delay_ns, Event::Learn(node, slot, told, epoch));
            }
        }
        self.cluster.is_changed = true;
    }

    /// Only the first batches of a log are kept.
    fn truncate(&mut self, slot: usize, kept: usize) {
        let partition = &mut self.cluster.partitions[slot];
        let gone = partition.log.split_off(kept);
        let Some(first) = gone.first() else { return };
        self.marks.set(Mark::Truncated);
        if first.base < partition.high_watermark {
            self.marks.set(Mark::TruncatedBelowAck);
        }
        partition.end = first.base;
        partition.high_watermark = partition.high_watermark.min(partition.end);
        partition.producers.clear();
        for stored in &partition.log {
            remember(&mut partition.producers, stored);
        }
        for stored in &gone {
            self.truth.batches[stored.number].is_alive = false;
            let is_read = self
                .truth
                .delivered
                .keys()
                .any(|(_, batch)| *batch == stored.number);
            if is_read {
                self.marks.set(Mark::ReadAndTruncated);
            }
        }
        self.truth.has_truncated = true;
    }

    /// A node hears who leads.
    pub fn learn(&mut self, node: usize, slot: usize, leader: i32, epoch: i32) {
        let now_ns = self.now_ns();
        let deaf_until_ns = self.cluster.nodes[node].stale_until_ns;
        if now_ns < deaf_until_ns {
            self.marks.set(Mark::StaleMetadata);
            self.at(deaf_until_ns, Event::Learn(node, slot, leader, epoch));
            return;
        }
        let view = &mut self.cluster.nodes[node].view[slot];
        if epoch > view.1 {
            *view = (leader, epoch);
            self.cluster.is_changed = true;
        }
    }

    /// A partition without a leader gets one.
    pub fn elect(&mut self, slot: usize) {
        if self.cluster.partitions[slot].leader.is_some() {
            return;
        }
        let candidates = self.candidates(slot);
        if candidates.is_empty() {
            self.after(20_000_000, Event::Elect(slot));
        } else {
            let leader = candidates[self.rng.usize(..candidates.len())];
            self.lead(slot, Some(leader), 0);
        }
    }

    pub fn node_up(&mut self, node: usize) {
        self.cluster.nodes[node].is_up = true;
        for slot in 0..self.cluster.partitions.len() {
            let partition = &self.cluster.partitions[slot];
            let told = (
                partition.leader.map_or(-1, |leader| leader as i32),
                partition.epoch,
            );
            self.cluster.nodes[node].view[slot] = told;
        }
    }

    pub fn follow_ns(&mut self) -> i64 {
        self.draw(0, self.scenario.follow_ns)
    }

    /// Followers have a partition up to `end`.
    pub fn replicated(&mut self, slot: usize, epoch: i32, end: i64) {
        let now_ns = self.now_ns();
        let partition = &mut self.cluster.partitions[slot];
        if partition.epoch != epoch || partition.leader.is_none() {
            return;
        }
        if now_ns < partition.stalled_until_ns {
            let until_ns = partition.stalled_until_ns;
            self.at(until_ns, Event::Replicated(slot, epoch, end));
            return;
        }
        if end > partition.high_watermark {
            let before = partition.high_watermark;
            partition.high_watermark = end.min(partition.end);
            for stored in partition
                .log
                .iter()
                .rev()
                .take_while(|stored| stored.end > before)
            {
                if stored.end <= partition.high_watermark {
                    self.truth.batches[stored.number].visible_ns = now_ns;
                }
            }
            self.cluster.is_changed = true;
            self.look_at_acks();
        }
    }
}

/// Notes a batch of an idempotent producer.
pub fn remember(producers: &mut HashMap<i64, Known>, stored: &Stored) {
    if stored.producer_id < 0 {
        return;
    }
    let known = producers.entry(stored.producer_id).or_default();
    if known.epoch != stored.producer_epoch {
        known.last.clear();
        known.epoch = stored.producer_epoch;
    }
    known
        .last
        .push_back((stored.base_sequence, stored.last_sequence(), stored.end));
    if known.last.len() > 5 {
        known.last.pop_front();
    }
}
