//! What a seed draws: the load, how the client is set, the wires, and what goes wrong when. Everything else follows from it.

use fastrand::Rng;
use gauge_load::quiet::{LATE_NS_MIN, RECOVERY_NS_MIN};
use gauge_load::{Arrival, Schedule, ScheduleSpec};
use serde_json::{Value, json};

use crate::nodes::{self, Fault, NodeFault};
use crate::system::{self, System};

/// What who leads the trial does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    Rate(f64),
    Pause(usize, bool),
    /// The supervisor has no turn for so long.
    Stall(i64),
}

/// A run of the world.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) topics: Vec<(String, usize)>,
    pub(crate) slots: usize,
    pub(crate) request: Value,
    pub(crate) interval_ns: i64,
    pub(crate) phases_ns: Vec<i64>,
    /// Of each message.
    pub(crate) payload_bytes: u64,
    pub(crate) subscriptions: Vec<String>,
    pub(crate) acks: i16,
    pub(crate) is_idempotent: bool,
    pub(crate) in_flight: u32,
    pub(crate) is_closed_loop: bool,
    pub(crate) retry_for_ns: i64,
    /// Whoever leads the trial waits so long for what is under way, while things still go wrong; None: until everything is there, at peace.
    pub(crate) drain_ns: Option<i64>,
    /// The load lasts so long; the faults are over before.
    pub(crate) load_ns: i64,
    pub(crate) steps: Vec<(i64, Step)>,
    /// A reading of the clock takes so long.
    pub(crate) reading_ns: i64,
    /// Who slept wakes so late at most.
    pub(crate) wake_ns: i64,
    pub(crate) delay_ns: i64,
    pub(crate) bytes_s: i64,
    pub(crate) room_bytes: usize,
    pub(crate) partial_writes: f64,
    pub(crate) piece_bytes: usize,
    /// A node needs so long for a request at most.
    pub(crate) service_ns: i64,
    /// When the lane loses its CPU; None: never.
    pub(crate) away: Option<Absence>,
    /// What probes see; None: none are asked for.
    pub(crate) probed: Option<Probed>,
}

/// A lane loses its CPU within a turn.
#[derive(Clone, Debug)]
pub struct Absence {
    /// In so many of its turns, for less than `most_ns`.
    pub share: f64,
    pub most_ns: i64,
    /// And from then to then after the start, if it has a turn in that time: while its load changes or ends, and for longer than that takes.
    pub spans_ns: Vec<(i64, i64)>,
}

impl Absence {
    /// No absence lasts longer.
    pub fn longest_ns(&self) -> i64 {
        let spans = self.spans_ns.iter().map(|(from_ns, until_ns)| until_ns - from_ns);
        spans.fold(self.most_ns, i64::max)
    }
}

/// What probes see of a CPU that is away now and then. Nothing else in the world knows of it: whether a message is of quiet time does not depend on what made it
/// late.
#[derive(Clone, Debug)]
pub struct Probed {
    /// Windows in their order, with the time for which the CPU recovers: offsets.
    pub(crate) windows: Vec<Away>,
    /// So late is known what they have seen.
    pub(crate) lag_ns: i64,
}

/// A window as the world draws it.
#[derive(Clone, Copy, Debug)]
pub struct Away {
    pub(crate) from_ns: i64,
    pub(crate) to_ns: i64,
    pub(crate) recovered_ns: i64,
}

impl Probed {
    fn draw(load_ns: i64, rng: &mut Rng) -> Probed {
        let longest_ns = one(rng, &[2, 20, 150]) * MS;
        let gap_ns = one(rng, &[3, 30, 300]) * MS;
        let mut windows = Vec::new();
        let mut from_ns = rng.i64(0..gap_ns);
        while from_ns < load_ns && windows.len() < WINDOWS_MAX {
            let to_ns = from_ns + rng.i64(LATE_NS_MIN..longest_ns);
            let recovered_ns = to_ns + rng.i64(RECOVERY_NS_MIN..2 * longest_ns);
            windows.push(Away {
                from_ns,
                to_ns,
                recovered_ns,
            });
            // The next one may begin while the CPU recovers.
            from_ns = to_ns + rng.i64(0..gap_ns);
        }
        Probed {
            windows,
            lag_ns: one(rng, &[0, MS, 20 * MS]),
        }
    }
}

/// What is of a protocol alone: its settings, and what goes wrong when.
#[derive(Debug)]
pub struct Plan<S: System> {
    pub settings: S::Settings,
    pub faults: Vec<(i64, Fault<S::Fault>)>,
}

/// What the oracle may expect of a run.
#[derive(Clone, Copy, Debug)]
pub struct Expects {
    /// Something gives a reason for messages without acknowledgement.
    pub may_fail: bool,
    /// The client can see to it that what is acknowledged is stored once.
    pub once: bool,
    /// The client can see to it that a producer's messages of a partition are stored in order.
    pub in_order: bool,
    /// What becomes of what is delivered again.
    pub again: Again,
    /// What a subscription that is paused has asked for and not got.
    pub owed: Owed,
}

/// What still comes to a subscription that is paused: whatever does within so long, and so many batches whenever they are there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owed {
    pub for_ns: i64,
    pub batches: usize,
}

/// What becomes of a message that is delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The client knows that it had it, and drops it.
    Dropped,
    /// It may go to another consumer, or to one that does not know it any more, and is handed over again then.
    Maybe,
    /// It is handed over each time.
    HandedOver,
}

pub const MS: i64 = 1_000_000;
/// A change of the rate, or the end of the load, comes into force so long after it was asked for (docs/worker-api.md).
pub const CHANGE_DELAY_NS: i64 = 10 * MS;
/// Of so many worlds one has a load that changes as planned, one a lane that loses its CPU, and one a trial that is given up; and of so many, one has books that
/// others judge. The others come to what they come to without, and so do the first ones, which show at once what is wrong with a client whose bytes nobody can
/// read.
const EVERY: u64 = 9;
const SHARED_EVERY: u64 = 7;
const FIRST: u64 = 60;

fn is_one_of(seed: u64, every: u64, rest: u64) -> bool {
    seed >= FIRST && seed % every == rest
}
/// So many fit on a board until somebody reads them.
const WINDOWS_MAX: usize = 500;

pub fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

/// When the first producer's next message is due from a time on, of a uniform schedule.
fn due_ns(rate_msgs_s: f64, from_ns: i64) -> i64 {
    let mut schedule = Schedule::new(&ScheduleSpec {
        arrival: Arrival::Uniform,
        rate_msgs_s,
        ramp: None,
        stagger: 0.0,
        stop_ns: None,
        seed: 0,
    });
    while schedule.next_ns().is_some_and(|next_ns| next_ns < from_ns) {
        schedule.take();
    }
    schedule.next_ns().unwrap_or(from_ns)
}

impl Scenario {
    /// Draws it, and what is of its protocol alone.
    pub fn of<S: System>(seed: u64) -> (Scenario, Plan<S>) {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xA5A5);
        let rng = &mut rng;
        let nodes = rng.usize(1..=4);
        let topics: Vec<(String, usize)> = (0..rng.usize(1..=2))
            .map(|at| (format!("t{at}"), one(rng, &[1, 1, 2, 3, 5, 8])))
            .collect();
        let slots = topics.iter().map(|(_, partitions)| partitions).sum();
        let acks = one(rng, &[-1, -1, -1, 1, 0]);
        let is_idempotent = acks == -1 && rng.f64() < 0.6;
        let is_closed_loop = rng.f64() < 0.15;
        let load_ns = one(rng, &[600, 1000, 1800]) * MS;
        let messages = rng.u64(300..6000);
        let rate = messages as f64 / (load_ns as f64 / 1e9);
        let size = one(rng, &[32, 40, 100, 400, 1000]);
        let in_flight = one(rng, &[1, 2, 5, 5, 8]);
        let retry_for_ms = one(rng, &[300, 3_000, 120_000, 120_000]);
        let interval_ms = one(rng, &[100, 250, 500, 1000]);
        let subscriptions: Vec<String> = (0..one(rng, &[0, 1, 1, 1, 2, 3]))
            .map(|at| format!("s{at}"))
            .collect();
        let producers = rng.u32(1..=3);
        let mut phases_ns: Vec<i64> = if rng.bool() { vec![0] } else { vec![0, load_ns / 3] };
        let bytes_s = one(rng, &[20_000_000, 100_000_000, 1_000_000_000]);
        let arrival = match (is_closed_loop, rng.u32(0..3)) {
            (true, _) => json!({"arrival": "closed"}),
            (_, 0) => json!({"arrival": "uniform", "rate_msgs_s": rate}),
            (_, 1) => json!({"arrival": "poisson", "rate_msgs_s": rate}),
            _ => json!({"arrival": "burst", "burst_msgs": rng.u32(1..200), "rate_msgs_s": rate}),
        };
        if let Some(second_ns) = phases_ns.get_mut(1)
            && arrival["arrival"] == "uniform"
        {
            *second_ns = due_ns(rate / f64::from(producers), *second_ns);
        }
        let key_count = rng.u32(1..100);
        let is_zipf = rng.bool();
        let producer = |rng: &mut Rng, id: u32| {
            let keys = one(
                rng,
                &[
                    "none",
                    "none",
                    "round_robin",
                    if is_zipf { "zipf" } else { "keyed" },
                ],
            );
            let mut producer = json!({"id": id, "topic": topics[id as usize % topics.len()].0, "keys": keys});
            if keys == "keyed" || keys == "zipf" {
                producer["key_count"] = json!(key_count);
            }
            if keys == "zipf" {
                producer["zipf_exponent"] = json!(1.1);
            }
            producer
        };
        let subscription = |rng: &mut Rng, name: &String| {
            json!({
                "name": name,
                "start": if rng.f64() < 0.2 { "earliest" } else { "latest" },
                "consumers": rng.u32(1..=3),
                "commit_interval_ms": if rng.bool() { json!(50) } else { Value::Null },
            })
        };
        let closed_bytes = if is_closed_loop { 4_000 } else { 65_536 };
        let request = json!({
            "run": 7, "seed": seed,
            "system": system::endpoint::<S>(nodes),
            "topics": topics.iter().map(|(name, partitions)| json!({"name": name, "partitions": partitions})).collect::<Vec<_>>(),
            "producers": (0..producers).map(|id| producer(rng, id)).collect::<Vec<_>>(),
            "subscriptions": subscriptions.iter().map(|name| subscription(rng, name)).collect::<Vec<_>>(),
            "schedule": arrival,
            "phases": phases_ns.iter().enumerate().map(|(at, from)| json!({"name": format!("p{at}"), "from_s": *from as f64 / 1e9})).collect::<Vec<_>>(),
            "batch": {
                "bytes": one(rng, &[200, 1_000, 4_000, closed_bytes]),
                "linger_ms": one(rng, &[0.0, 0.5, 5.0, 20.0]),
                "in_flight": in_flight,
                "buffer_bytes": one(rng, &[65_536, 200_000, 8_000_000]),
            },
            "acks": match acks { -1 => "all", 1 => "leader", _ => "none" },
            "idempotence": is_idempotent,
            "payload": {"size_bytes": size},
            "lanes": {"producer": 1, "consumer": 0, "realtime": "off", "quantum_us": one(rng, &[1, 100, 1000])},
            "interval_ms": interval_ms,
            "lease_s": 3600.0, "ready_timeout_s": 60.0,
            "request_timeout_ms": one(rng, &[300, 1_000, 5_000]),
            "retry_for_ms": retry_for_ms,
            "quiet": {"probes": false},
        });
        let mut scenario = Scenario {
            seed,
            nodes,
            slots,
            request,
            interval_ns: interval_ms * MS,
            phases_ns,
            payload_bytes: size,
            subscriptions,
            acks,
            is_idempotent,
            in_flight,
            is_closed_loop,
            retry_for_ns: retry_for_ms * MS,
            drain_ns: None,
            load_ns,
            steps: Vec::new(),
            reading_ns: one(rng, &[25, 25, 100, 1_000]),
            wake_ns: one(rng, &[0, 50_000, 1_000_000]),
            delay_ns: one(rng, &[5_000, 50_000, 1_000_000]),
            bytes_s,
            room_bytes: one(rng, &[3_000, 100_000, 4_000_000]),
            partial_writes: one(rng, &[0.0, 0.0, 0.3]),
            piece_bytes: one(rng, &[0, 0, 7, 100, 5_000]),
            service_ns: one(rng, &[20_000, 300_000, 5_000_000]),
            topics,
            away: None,
            probed: None,
        };
        if is_closed_loop {
            // It goes on until its end comes into force, which in a fast world is for a hundred thousand messages.
            scenario.bytes_s = 20_000_000;
            scenario.room_bytes = scenario.room_bytes.min(100_000);
        }
        let mut plan = Plan {
            settings: S::settings(rng),
            faults: Vec::new(),
        };
        plan.draw(&scenario, rng);
        scenario.draw_steps(rng, rate);
        scenario.draw_course(rate, &mut Rng::with_seed(seed ^ 0x0005_C4ED));
        scenario.draw_away(&mut Rng::with_seed(seed ^ 0x0000_A3A7));
        scenario.draw_impatience(&mut Rng::with_seed(seed ^ 0x00D2_A117));
        scenario.request["shared"] = json!(is_one_of(seed, SHARED_EVERY, 5));
        plan.draw_the_end(&mut scenario, &mut Rng::with_seed(seed ^ 0x001A_7E00));
        scenario.draw_probed(&mut Rng::with_seed(seed ^ 0x0009_1E70));
        (scenario, plan)
    }

    /// Of each producer how it chooses partitions, how many keys it has, and its slots.
    pub fn sources(&self) -> impl Iterator<Item = (&str, u64, std::ops::Range<usize>)> {
        let producers = self.request["producers"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        producers.iter().map(|producer| {
            let before = self
                .topics
                .iter()
                .take_while(|(name, _)| producer["topic"] != name.as_str());
            let first: usize = before.map(|(_, partitions)| partitions).sum();
            let own = self
                .topics
                .iter()
                .find(|(name, _)| producer["topic"] == name.as_str());
            let partitions = own.map_or(0, |(_, partitions)| *partitions);
            (
                producer["keys"].as_str().unwrap_or_default(),
                producer["key_count"].as_u64().unwrap_or(0),
                first..first + partitions,
            )
        })
    }

    /// So many messages a batch holds at most.
    pub fn batch_msgs(&self) -> usize {
        let bytes = self.request["batch"]["bytes"].as_u64().unwrap_or(0);
        (bytes / self.payload_bytes + 1) as usize
    }

    /// When the trial is told that its load ends.
    pub fn end_is_told_ns(&self) -> i64 {
        self.load_ns - CHANGE_DELAY_NS
    }

    /// A time at which the last messages are under way.
    pub fn late_ns(&self, rng: &mut Rng) -> i64 {
        self.load_ns * rng.i64(940..1000) / 1000
    }

    /// All subscriptions are paused for most of the load: everything is there, and they have it all to read.
    pub fn leave_all_to_the_end(&mut self) {
        for subscription in 0..self.subscriptions.len() {
            let (from_ns, until_ns) = (self.load_ns / 10, self.load_ns - 1);
            self.steps.push((from_ns, Step::Pause(subscription, true)));
            self.steps.push((until_ns, Step::Pause(subscription, false)));
        }
        self.steps.sort_by_key(|(at_ns, _)| *at_ns);
    }

    /// A subscription is paused and does not go on before the end.
    fn leave_paused(&mut self, rng: &mut Rng) {
        let subscription = rng.usize(..self.subscriptions.len());
        let from_ns = rng.i64(0..self.load_ns);
        self.steps.retain(|(at_ns, step)| {
            *at_ns < from_ns || !matches!(step, Step::Pause(other, _) if *other == subscription)
        });
        self.steps.push((from_ns, Step::Pause(subscription, true)));
        self.steps.sort_by_key(|(at_ns, _)| *at_ns);
    }

    /// Whether a subscription is paused at the end.
    pub fn is_left_paused(&self, subscription: usize) -> bool {
        let last = self.steps.iter().rev().find_map(|(_, step)| match step {
            Step::Pause(other, is_paused) if *other == subscription => Some(*is_paused),
            _ => None,
        });
        last == Some(true)
    }

    /// It has numbers of its own, too.
    fn draw_probed(&mut self, rng: &mut Rng) {
        if rng.bool() {
            self.request["quiet"]["probes"] = json!(true);
            self.probed = Some(Probed::draw(self.load_ns, rng));
        }
    }

    /// What is planned of the rate, and of its end. It has numbers of its own, too.
    fn draw_course(&mut self, rate: f64, rng: &mut Rng) {
        if self.is_closed_loop || !is_one_of(self.seed, EVERY, 7) {
            return;
        }
        // Whole milliseconds, as sums of what was read of a text may be a little more or less.
        let load_ms = self.load_ns / MS;
        let share = |rng: &mut Rng, of: &[f64]| (load_ms as f64 * one(rng, of)).round();
        let seconds = |ms: f64| json!(ms / 1e3);
        let mut free_from_ms = 0.0;
        if rng.bool() {
            // A ramp may begin at nothing, and end there.
            let from = rate * one(rng, &[0.0, 1.0, 1.0]);
            let over_ms = share(rng, &[0.1, 0.5, 1.0]);
            let to = rate * one(rng, &[0.0, 0.3, 2.0]);
            self.request["schedule"]["rate_msgs_s"] = json!(from);
            self.request["schedule"]["ramp"] = json!({"to_msgs_s": to, "over_s": seconds(over_ms)});
            free_from_ms = over_ms + 1.0;
        }
        if rng.f64() < 0.6 {
            let mut changes = Vec::new();
            for _ in 0..rng.usize(1..4) {
                let at_ms = free_from_ms + share(rng, &[0.0, 0.03, 0.3]);
                let over_ms = share(rng, &[0.0, 0.0, 0.02, 0.2]);
                let to = rate * one(rng, &[0.0, 0.3, 1.0, 3.0]);
                changes.push(json!({"at_s": seconds(at_ms), "rate_msgs_s": to, "over_s": seconds(over_ms)}));
                free_from_ms = at_ms + over_ms + 1.0;
            }
            self.request["schedule"]["changes"] = json!(changes);
        }
        if rng.f64() < 0.3 {
            let stop_ms = share(rng, &[0.7, 0.9, 1.0]);
            self.request["schedule"]["stop_s"] = seconds(stop_ms);
        }
        if rng.bool() {
            let at_ns = rng.i64(20 * MS..self.load_ns * 8 / 10);
            self.steps.push((at_ns, Step::Rate(rate * one(rng, &[0.3, 2.0]))));
            self.steps.sort_by_key(|(at_ns, _)| *at_ns);
        }
    }

    /// It has numbers of its own, too.
    fn draw_away(&mut self, rng: &mut Rng) {
        if is_one_of(self.seed, EVERY, 2) {
            let (share, most_ns) = (one(rng, &[0.001, 0.02, 0.3]), one(rng, &[1, 4, 30]) * MS);
            let steps = self.steps.iter();
            let changes = steps.filter_map(|(at_ns, step)| matches!(step, Step::Rate(_)).then_some(*at_ns));
            let changes = changes.chain([self.end_is_told_ns()]).filter(|_| rng.bool());
            let changes: Vec<i64> = changes.collect();
            let spans_ns = changes.into_iter().map(|at_ns| {
                (
                    at_ns - rng.i64(0..5 * MS),
                    at_ns + CHANGE_DELAY_NS + rng.i64(0..20 * MS),
                )
            });
            self.away = Some(Absence {
                share,
                most_ns,
                spans_ns: spans_ns.collect(),
            });
        }
    }

    /// Most of what is under way then has no end. It has numbers of its own, too.
    fn draw_impatience(&mut self, rng: &mut Rng) {
        if is_one_of(self.seed, EVERY, 5) {
            self.drain_ns = Some(one(rng, &[1, 20, 300]) * MS);
        }
    }

    /// The rates to which it is planned to change on the way.
    pub fn planned_rates(&self) -> impl Iterator<Item = f64> {
        let schedule = &self.request["schedule"];
        let changes = schedule["changes"].as_array().into_iter().flatten();
        let planned = changes.map(|change| &change["rate_msgs_s"]);
        let planned = planned.chain([&schedule["ramp"]["to_msgs_s"]]);
        planned.filter_map(Value::as_f64)
    }

    fn draw_steps(&mut self, rng: &mut Rng, rate: f64) {
        let at = |rng: &mut Rng, load_ns: i64| rng.i64(20 * MS..load_ns * 8 / 10);
        if !self.is_closed_loop && rng.f64() < 0.3 {
            self.steps
                .push((at(rng, self.load_ns), Step::Rate(rate * one(rng, &[0.3, 2.0]))));
        }
        for subscription in 0..self.subscriptions.len() {
            if rng.f64() < 0.2 {
                let from_ns = at(rng, self.load_ns);
                self.steps.push((from_ns, Step::Pause(subscription, true)));
                let until_ns = (from_ns + one(rng, &[1, 30, 300]) * MS).min(self.load_ns - 1);
                self.steps.push((until_ns, Step::Pause(subscription, false)));
            }
        }
        // A closed loop in a fast world has sent a million messages before a supervisor that is away ends it.
        if !self.is_closed_loop && rng.f64() < 0.3 {
            self.steps
                .push((at(rng, self.load_ns), Step::Stall(self.interval_ns * 7 / 2)));
        }
        self.steps.sort_by_key(|(at_ns, _)| *at_ns);
    }
}

impl<S: System> Plan<S> {
    fn draw(&mut self, scenario: &Scenario, rng: &mut Rng) {
        let count = one(rng, &[0, 1, 2, 4, 8, 12]);
        // A world in which one thing goes wrong again and again comes farther than one in which everything does.
        let only = rng.bool().then(|| rng.u32(0..S::FAULT_KINDS));
        for _ in 0..count {
            let at_ns = rng.i64(0..scenario.load_ns * 7 / 10);
            self.faults.push((at_ns, nodes::draw::<S>(scenario, rng, only)));
        }
        self.faults.sort_by_key(|(at_ns, _)| *at_ns);
    }

    /// What a drain has to wait for: faults that strike with the last messages, and answers that leave much to the next ones. It has numbers of its
    /// own, so that the rest of a seed is what it was without.
    fn draw_the_end(&mut self, scenario: &mut Scenario, rng: &mut Rng) {
        // Of what is under way when a trial is given up most has no end because something goes wrong.
        if rng.f64() < 0.15 || scenario.drain_ns.is_some() {
            for (at_ns, _) in &mut self.faults {
                *at_ns = scenario.late_ns(rng);
            }
        }
        S::draw_the_end(scenario, self, rng);
        // What was acknowledged is there, and nobody tells the consumers, or they were told that there was nothing before it came.
        if rng.f64() < 0.1 {
            let at_ns = match rng.bool() {
                true => scenario.late_ns(rng),
                false => scenario.load_ns + rng.i64(0..300 * MS),
            };
            for node in 0..scenario.nodes {
                self.faults
                    .push((at_ns, Fault::Node(NodeFault::Unheard { node })));
            }
        }
        if rng.f64() < 0.1 {
            scenario.leave_all_to_the_end();
        }
        if rng.f64() < 0.06 && !scenario.subscriptions.is_empty() {
            scenario.leave_paused(rng);
        }
        self.faults.sort_by_key(|(at_ns, _)| *at_ns);
    }

    /// A fault of the protocol's own for the last messages.
    pub fn strike_late(&mut self, scenario: &Scenario, rng: &mut Rng, fault: S::Fault) {
        self.strike(scenario.late_ns(rng), fault);
    }

    /// A fault of the protocol's own at a time.
    pub fn strike(&mut self, at_ns: i64, fault: S::Fault) {
        self.faults.push((at_ns, Fault::Own(fault)));
    }

    /// Whether a fault of the protocol's own is among those that strike.
    pub fn has(&self, is: impl Fn(&S::Fault) -> bool) -> bool {
        self.faults
            .iter()
            .any(|(_, fault)| matches!(fault, Fault::Own(fault) if is(fault)))
    }

    /// Whether nothing goes wrong that may cost or repeat messages, or change their order.
    pub fn is_calm(&self) -> bool {
        self.faults.is_empty()
    }
}
