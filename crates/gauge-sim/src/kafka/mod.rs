//! Brokers of Kafka's protocol: nodes, partitions, who leads them, what followers have, and what goes wrong with all of it.
//!
//! A partition has one log, that of its leader. Followers have it up to the high watermark; a leader that is elected has what followers had,
//! or less where a fault says so. A node that was leader and has not heard of the new one goes on to take batches that nobody will keep.

mod appending;
mod faults;
mod parse;
mod serve;
mod sessions;

use std::collections::{BTreeMap, HashMap, VecDeque};

use fastrand::Rng;
use gauge_client::Protocol;
use serde_json::json;

use crate::marks::Mark;
use crate::net::{self, World};
use crate::nodes::{self, Few, Place};
use crate::scenario::{Again, Expects, MS, Owed, Plan, Scenario, one};
use crate::system::System;
pub use faults::{Damage, Fault, Settings};
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
    /// Codes, and whether the batches are stored.
    pub refusals: Few<(i16, bool)>,
    pub fetch_refusals: Few<i16>,
    /// Producers were forgotten on purpose: one that is not known is told so.
    pub has_forgotten: bool,
    /// The next batch is damaged.
    pub damages_next: Option<Damage>,
    /// What lies before it is not kept.
    pub start: i64,
    led_by: Vec<usize>,
}

/// What a node knows.
#[derive(Debug, Default)]
pub struct Node {
    /// Hears of nothing before this time.
    pub stale_until_ns: i64,
    /// For how long.
    pub throttle: Few<i64>,
    /// Per slot: leader (-1: nobody) and epoch, as it has heard.
    pub view: Vec<(i32, i32)>,
    pub sessions: BTreeMap<i32, Session>,
    pub next_session: i32,
}

/// What the nodes know, and what they keep.
#[derive(Debug)]
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub partitions: Vec<Partition>,
    pub next_producer_id: i64,
    pub is_changed: bool,
}

/// What happens at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// An answer that was made leaves.
    Answer(usize),
    /// Followers have a partition up to this offset of this epoch.
    Replicated(usize, i32, i64),
    /// A node learns who leads a partition: node, slot, leader (-1: nobody), epoch.
    Learn(usize, usize, i32, i32),
}

/// What a node knows of a connection.
#[derive(Debug, Default)]
pub struct Socket {
    pub pending: Pending,
    pub deaf_until_ns: i64,
    /// Of each Produce request that came, until its answer is read: slots and producers.
    pub carried: VecDeque<Vec<(usize, u32)>>,
}

impl System for Cluster {
    const NAME: &'static str = "kafka";
    const FAULT_KINDS: u32 = faults::KINDS;
    const MARKS: &'static [Mark] = &{
        use Mark::*;
        [
            LeaderCameBack,
            DuplicateRecognised,
            Reordered,
            Truncated,
            TruncatedBelowAck,
            ReadAndTruncated,
            StaleMetadata,
            FencedEpoch,
            UnknownEpoch,
            NotLeader,
            StaleLeaderStored,
            Throttled,
            SessionKept,
            SessionRebuilt,
            SessionEpochWrong,
            ProducerForgotten,
            SequenceGap,
            Damaged,
            BatchDamaged,
            ControlBatch,
            Expired,
            Lost,
        ]
    };
    type Fault = Fault;
    type Settings = Settings;
    type Event = Event;
    type Socket = Socket;

    fn client() -> &'static dyn Protocol {
        &gauge_client::kafka::Kafka
    }

    fn settings(rng: &mut Rng) -> Settings {
        Settings::draw(rng)
    }

    fn fault(kind: u32, place: Place, rng: &mut Rng) -> Fault {
        faults::draw(kind, place, rng)
    }

    /// The others are found by the first.
    fn named(_nodes: usize) -> usize {
        1
    }

    fn draw_the_end(scenario: &mut Scenario, plan: &mut Plan<Self>, rng: &mut Rng) {
        if rng.f64() < 0.15 {
            for slot in 0..scenario.slots {
                let last = Fault::Refuse {
                    slot,
                    code: 7,
                    is_stored: true,
                    batches: rng.u32(1..6),
                };
                plan.strike_late(scenario, rng, last);
            }
        }
        plan.settings.answer_bytes = one(rng, &[usize::MAX, usize::MAX, 4_000, 30_000]);
        // The last messages come twice, and are read long after they were acknowledged.
        if rng.f64() < 0.15 {
            scenario.leave_all_to_the_end();
            scenario.service_ns = 5_000_000;
            plan.settings.answer_bytes = 2_000;
            for slot in 0..scenario.slots {
                let last = Fault::Refuse {
                    slot,
                    code: 7,
                    is_stored: true,
                    batches: 6,
                };
                plan.strike_late(scenario, rng, last);
            }
        }
        for (_, fault) in &mut plan.faults {
            if let nodes::Fault::Own(Fault::Damage { damage, .. }) = fault
                && rng.bool()
            {
                *damage = Damage::Checksum;
            }
        }
        plan.settings.control_every = one(rng, &[0, 0, 0, 0, 1, 5]);
        // Consumers that are behind find that what they would read next is not kept.
        if rng.f64() < 0.08 {
            if rng.bool() {
                scenario.leave_all_to_the_end();
            }
            for slot in 0..scenario.slots {
                let at_ns = rng.i64(0..scenario.load_ns);
                plan.strike(at_ns, Fault::Expire { slot });
            }
        }
        // As the client's own rule is, a partition in each answer, or more of one than of all.
        let limits = one(
            rng,
            &[None, None, Some((65_536, 65_536)), Some((1 << 20, 10 << 20))],
        );
        if let Some((bytes, partition_bytes)) = limits {
            scenario.request["system"]["options"] = json!({
                "fetch.max.bytes": bytes,
                "max.partition.fetch.bytes": partition_bytes,
            });
        }
    }

    fn expects(scenario: &Scenario, plan: &Plan<Self>) -> Expects {
        let is_final = plan.has(|fault| {
            matches!(
                fault,
                Fault::Refuse {
                    code: 10 | 87 | -1,
                    ..
                }
            )
        });
        let forgets = plan.has(|fault| matches!(fault, Fault::Forget { .. }));
        let once = plan.is_calm() || (scenario.is_idempotent && !forgets);
        Expects {
            may_fail: is_final || scenario.retry_for_ns < 60_000_000_000,
            once,
            in_order: once || scenario.in_flight == 1,
            again: Again::Dropped,
            // A fetch waits at the broker for half a second.
            owed: Owed {
                for_ns: 500 * MS,
                batches: 0,
            },
        }
    }

    fn new(scenario: &Scenario, _plan: &Plan<Self>) -> Cluster {
        let partitions: Vec<Partition> = (0..scenario.slots)
            .map(|slot| Partition {
                leader: Some(slot % scenario.nodes),
                led_by: vec![slot % scenario.nodes],
                ..Partition::default()
            })
            .collect();
        let node = |_| Node {
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

    fn groups(&self) -> usize {
        self.partitions.len()
    }

    fn leader(&self, group: usize) -> Option<usize> {
        self.partitions[group].leader
    }

    fn lead(world: &mut World<Self>, group: usize, leader: usize) {
        world.lead(group, Some(leader), 0);
    }

    fn depose(world: &mut World<Self>, group: usize) {
        world.lead(group, None, 0);
    }

    fn went_down(world: &mut World<Self>, node: usize) {
        world.cluster.nodes[node].sessions.clear();
    }

    fn came_up(world: &mut World<Self>, node: usize) {
        world.look_around(node);
    }

    fn serve(world: &mut World<Self>, at: usize) {
        world.serve(at);
    }

    fn happen(world: &mut World<Self>, event: Event) {
        match event {
            Event::Answer(at) => world.answer(at),
            Event::Replicated(slot, epoch, end) => world.replicated(slot, epoch, end),
            Event::Learn(node, slot, leader, epoch) => world.learn(node, slot, leader, epoch),
        }
    }

    fn look(world: &mut World<Self>) {
        world.look_at_fetches();
    }

    fn strike(world: &mut World<Self>, fault: Fault) {
        world.strike(fault);
    }

    fn make_peace(world: &mut World<Self>) {
        world.calm_down();
    }

    fn wrote(world: &mut World<Self>, at: usize) {
        world.note_unanswered(at);
    }

    fn answered(world: &mut World<Self>, at: usize) {
        world.sockets[at].own.carried.pop_front();
    }
}

impl World<Cluster> {
    fn strike(&mut self, fault: Fault) {
        let now_ns = self.now_ns();
        match fault {
            Fault::Move { slot, lacks } => {
                if let Some(leader) = self.another(slot) {
                    self.lead(slot, Some(leader), lacks);
                }
            }
            Fault::Refuse {
                slot,
                code,
                is_stored,
                batches,
            } => self.cluster.partitions[slot].refusals = Few::of((code, is_stored), batches),
            Fault::Throttle {
                node,
                for_ns,
                answers,
            } => self.cluster.nodes[node].throttle = Few::of(for_ns, answers),
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
                self.after(for_ns, net::Event::Own(Event::Replicated(slot, epoch, end)));
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
                self.cluster.partitions[slot].fetch_refusals = Few::of(code, fetches);
                self.cluster.is_changed = true;
            }
            Fault::Damage { slot, damage } => self.cluster.partitions[slot].damages_next = Some(damage),
            Fault::Expire { slot } => self.expire(slot),
        }
    }

    /// Nothing goes wrong any more: what was out of order is in order soon.
    fn calm_down(&mut self) {
        for node in &mut self.cluster.nodes {
            node.throttle = Few::default();
        }
        for partition in &mut self.cluster.partitions {
            // Refusals of what is stored run out, and the last batches are repeated.
            partition.refusals.keep(|(_, is_stored)| is_stored);
            partition.fetch_refusals = Few::default();
            partition.damages_next = None;
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
            self.marks.led(&mut partition.led_by, leader);
            self.cluster.nodes[leader].view[slot] = (leader as i32, epoch);
            let delay_ns = self.follow_ns();
            self.after(delay_ns, net::Event::Own(Event::Replicated(slot, epoch, end)));
        }
        let told = leader.map_or(-1, |leader| leader as i32);
        for node in 0..self.cluster.nodes.len() {
            if Some(node) != leader {
                let delay_ns = self.draw(0, self.plan.settings.news_ns);
                self.after(delay_ns, net::Event::Own(Event::Learn(node, slot, told, epoch)));
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
        // Who leads now does not have what it would have to keep.
        partition.start = partition.start.min(partition.end);
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

    /// A partition keeps nothing of what followers have.
    fn expire(&mut self, slot: usize) {
        let partition = &mut self.cluster.partitions[slot];
        partition.start = partition.high_watermark;
        let gone = partition
            .log
            .iter()
            .take_while(|stored| stored.end <= partition.start);
        for stored in gone {
            self.truth.batches[stored.number].is_expired = true;
        }
        self.cluster.is_changed = true;
    }

    /// A node hears who leads.
    pub fn learn(&mut self, node: usize, slot: usize, leader: i32, epoch: i32) {
        let now_ns = self.now_ns();
        let deaf_until_ns = self.cluster.nodes[node].stale_until_ns;
        if now_ns < deaf_until_ns {
            self.marks.set(Mark::StaleMetadata);
            self.at(
                deaf_until_ns,
                net::Event::Own(Event::Learn(node, slot, leader, epoch)),
            );
            return;
        }
        let view = &mut self.cluster.nodes[node].view[slot];
        if epoch > view.1 {
            *view = (leader, epoch);
            self.cluster.is_changed = true;
        }
    }

    /// A node that comes back hears of everything at once.
    fn look_around(&mut self, node: usize) {
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
        self.draw(0, self.plan.settings.follow_ns)
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
            self.at(until_ns, net::Event::Own(Event::Replicated(slot, epoch, end)));
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
