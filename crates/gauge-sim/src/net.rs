//! Time and wires. A world is a queue of events; waiting for a socket is what lets time pass.
//!
//! Of each connection both directions are a buffer with two marks: how far the bytes have travelled, and how far they were taken. A wire has a
//! delay, a rate, room for so many bytes that have not arrived, and pieces in which they arrive.

mod calls;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use fastrand::Rng;
use gauge_client::world::PollerId;
use gauge_client::{Interest, LaneSpec, Ready, consumer_of};
use gauge_load::clock::simulated;

use crate::marks::{Mark, Marks};
use crate::nodes::{Fault, Node};
use crate::probes::Probes;
use crate::scenario::{Plan, Scenario};
use crate::system::System;
use crate::trial::Director;
use crate::truth::{Message, Seen, Taken, Truth};

/// Where the first node listens; the others follow.
pub const PORT: u16 = 9_000;
/// A node's host.
pub fn host(node: usize) -> String {
    format!("10.0.0.{}", node + 1)
}

/// A node's host and port.
pub fn address(node: usize) -> String {
    format!("{}:{}", host(node), PORT as usize + node)
}

/// Nothing takes longer in simulated time.
const END_NS: i64 = 600_000_000_000;

/// So many sockets are told to be ready at once.
const READY_MAX: usize = 64;
/// Whoever waits for so long has slept.
const SLEPT_NS: i64 = 20_000;

/// What happens at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event<E> {
    /// A connection comes about, or is refused.
    Connected(usize, bool),
    /// So many bytes have come to the node.
    Up(usize, usize),
    /// So many bytes have come to the client.
    Down(usize, usize),
    /// The connection breaks.
    Reset(usize),
    /// A node looks at a connection again.
    Serve(usize),
    /// What is of the protocol alone.
    Own(E),
    /// A fault of the scenario, by its number.
    Fault(usize),
    /// A group gets a leader after it had none.
    Elect(usize),
    /// A node is there again.
    NodeUp(usize),
    /// The supervisor has its turn, and who leads the trial after it.
    Direct,
}

/// What an answer tells, once the client has read all of it.
#[derive(Clone, Debug)]
pub enum Told {
    Nothing,
    Acked(Vec<Message>),
    /// The same; it may be told of messages again, and then says nothing.
    AckedMaybeAgain(Vec<Message>),
    Delivered(Delivery),
    /// What is of the protocol alone.
    Own(u64),
}

/// An answer to a fetch.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub subscription: usize,
    pub batches: Vec<usize>,
    /// Slots of which it tells where they end.
    pub told: Vec<usize>,
    pub made_ns: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Connecting,
    Open,
    Refused,
    Broken,
    Closed,
}

/// A connection.
#[derive(Debug)]
pub struct Socket<S: System> {
    pub node: usize,
    pub stage: Stage,
    poller: PollerId,
    token: u64,
    interest: Interest,
    /// From the client: all bytes, how many have come, and how many were looked at by the node.
    pub up: Vec<u8>,
    pub up_come: usize,
    pub up_taken: usize,
    up_free_ns: i64,
    down: Vec<u8>,
    down_come: usize,
    down_taken: usize,
    down_free_ns: i64,
    /// Where answers end, counted over all bytes that were ever taken.
    ends: VecDeque<(u64, Told)>,
    taken_in_all: u64,
    pushed_in_all: u64,
    come_in_all: u64,
    /// When bytes came that the client has not read yet: how many had then, in all, and when that was.
    comings: VecDeque<(u64, i64)>,
    /// When whoever waits was told for the last time that there is nothing to read; what is there when it wakes up has just come.
    empty_ns: i64,
    /// How many bytes were looked at by the wire (for messages without acknowledgements).
    pub up_seen: usize,
    /// Bytes of it get lost on the way.
    pub is_silent: bool,
    /// How far what the client handed over in one piece was taken whole, so that its own buffers are empty up to there.
    pub up_pieces: usize,
    /// When it began.
    pub began_ns: i64,
    /// Where the client began to hand bytes over when it had none left of before, and in which turn: nothing behind that place is older.
    pub handed: Vec<(usize, i64)>,
    has_left: bool,
    /// What waits because the node does nothing.
    pub held: VecDeque<(Vec<u8>, Told)>,
    /// The client has said who it is.
    pub is_greeted: bool,
    pub own: S::Socket,
}

impl<S: System> Socket<S> {
    /// What the client has written in whole pieces and the wire has not looked at yet.
    pub fn written(&self) -> &[u8] {
        &self.up[self.up_seen..self.up_pieces.max(self.up_seen)]
    }
}

/// What is to happen: (when, in which order among those of one moment, what).
type Due<E> = Reverse<(i64, u64, Event<E>)>;

/// Everything but who leads the trial.
pub struct World<S: System> {
    pub rng: Rng,
    /// When the lane loses its CPU.
    pub away_rng: Rng,
    pub scenario: Rc<Scenario>,
    pub plan: Plan<S>,
    events: BinaryHeap<Due<S::Event>>,
    next_event: u64,
    pub sockets: Vec<Socket<S>>,
    woken: Vec<bool>,
    /// Names that were given.
    names: u64,
    pub nodes: Vec<Node>,
    pub cluster: S,
    pub truth: Truth,
    pub marks: Marks,
    pub turn_ns: i64,
    circles: u32,
    looks: u64,
    /// When the load began.
    pub start_ns: Option<i64>,
    /// Nothing goes wrong any more.
    pub is_at_peace: bool,
    /// Once the trial has a start.
    pub probes: Option<Probes>,
    /// The trial cannot go on: why.
    pub fatal: Option<String>,
    /// Index of a consumer in the lane's spec -> its subscription.
    consumers: Vec<usize>,
    pub topics: Vec<(String, usize, usize)>,
}

/// The world and who leads the trial, who share the thread with the lane.
pub struct Sim<S: System> {
    pub world: RefCell<World<S>>,
    pub director: RefCell<Option<Director>>,
}

impl<S: System> World<S> {
    pub fn new(scenario: Rc<Scenario>, plan: Plan<S>) -> World<S> {
        let mut world = World {
            rng: Rng::with_seed(scenario.seed ^ 0x5_EED0_FA11),
            away_rng: Rng::with_seed(scenario.seed ^ 0x0A3A_7000),
            events: BinaryHeap::new(),
            next_event: 0,
            sockets: Vec::new(),
            woken: Vec::new(),
            names: 0,
            nodes: (0..scenario.nodes).map(|_| Node::default()).collect(),
            cluster: S::new(&scenario, &plan),
            plan,
            truth: Truth::default(),
            marks: Marks::default(),
            turn_ns: 0,
            circles: 0,
            looks: 0,
            start_ns: None,
            is_at_peace: false,
            probes: None,
            fatal: None,
            consumers: Vec::new(),
            topics: Vec::new(),
            scenario,
        };
        let mut first_slot = 0;
        for (name, partitions) in &world.scenario.topics {
            world.topics.push((name.clone(), first_slot, *partitions));
            first_slot += partitions;
        }
        world
    }

    /// Who reads what, by the spec of the lane.
    pub fn learn_consumers(&mut self, spec: &LaneSpec) {
        self.consumers = spec
            .consumers
            .iter()
            .map(|consumer| consumer.subscription)
            .collect();
    }

    pub fn now_ns(&self) -> i64 {
        simulated::now_ns().unwrap_or(0)
    }

    pub fn at(&mut self, at_ns: i64, event: Event<S::Event>) {
        self.next_event += 1;
        self.events.push(Reverse((at_ns, self.next_event, event)));
    }

    pub fn after(&mut self, delay_ns: i64, event: Event<S::Event>) {
        self.at(self.now_ns() + delay_ns, event);
    }

    /// Whether a message that begins at this place of what came on a connection was handed over after the client had read its acknowledgement.
    pub fn is_sent_after(&self, at: usize, place: usize, acked: Seen) -> bool {
        let handed = &self.sockets[at].handed;
        let last = handed[..handed.partition_point(|(from, _)| *from <= place)].last();
        last.is_some_and(|(_, turn_ns)| acked.turn_ns <= *turn_ns)
    }

    /// A number between the two, both included, rather small.
    pub fn draw(&mut self, from: i64, until: i64) -> i64 {
        from + ((until - from) as f64 * self.rng.f64().powi(2)) as i64
    }

    /// The subscription whose consumer has this socket.
    pub fn subscription_of(&self, socket: usize) -> Option<usize> {
        let consumer = consumer_of(self.sockets[socket].token)?;
        self.consumers.get(consumer).copied()
    }

    /// A node sends bytes, cut off after `cut` bytes if the connection breaks within.
    pub fn send(&mut self, at: usize, bytes: &[u8], told: Told, cut: Option<usize>) {
        let now_ns = self.now_ns();
        let (rate, delay_ns) = (self.scenario.bytes_s, self.delay_ns());
        let pieces = self.scenario.piece_bytes;
        let socket = &mut self.sockets[at];
        if socket.stage != Stage::Open {
            return;
        }
        let whole = bytes.len();
        let bytes_sent = cut.map_or(whole, |cut| cut.min(whole - 1));
        socket.down.extend_from_slice(&bytes[..bytes_sent]);
        socket.pushed_in_all += bytes_sent as u64;
        if cut.is_none() {
            socket.ends.push_back((socket.pushed_in_all, told));
        }
        let is_silent = socket.is_silent;
        let mut left = bytes_sent;
        let mut count = 0;
        while left > 0 {
            count += 1;
            let piece = if pieces == 0 || count > 40 {
                left
            } else {
                self.rng.usize(1..=pieces.max(1)).min(left)
            };
            left -= piece;
            let socket = &mut self.sockets[at];
            let gone_ns = socket.down_free_ns.max(now_ns) + (piece as i64 * 1_000_000_000) / rate;
            socket.down_free_ns = gone_ns;
            if !is_silent {
                self.at(gone_ns + delay_ns, Event::Down(at, piece));
            }
        }
        if count > 1 {
            self.marks.set(Mark::AnswerInPieces);
        }
        if cut.is_some() {
            self.marks.set(Mark::CutWithinAnswer);
            let broken_ns = self.sockets[at].down_free_ns + delay_ns + 1;
            self.at(broken_ns, Event::Reset(at));
        }
    }

    /// When what the client has written so far will have come.
    pub fn arrival_ns(&self, at: usize) -> i64 {
        self.sockets[at].up_free_ns.max(self.now_ns()) + self.scenario.delay_ns + 1
    }

    fn delay_ns(&self) -> i64 {
        self.scenario.delay_ns
    }

    /// Nothing goes wrong any more.
    pub fn make_peace(&mut self) {
        self.is_at_peace = true;
        for node in &mut self.nodes {
            node.cuts = 0;
        }
        S::make_peace(self);
    }

    /// Messages were taken: something happens, also where they are given up at once.
    pub fn took(&mut self, producer: u32, messages: u64, taken: Taken) {
        self.circles = 0;
        self.truth.took(producer, messages, taken);
    }

    /// Whether the lane loses its CPU now, and until when.
    pub fn away_until_ns(&mut self) -> Option<i64> {
        let scenario = Rc::clone(&self.scenario);
        let away = scenario.away.as_ref()?;
        let now_ns = self.now_ns();
        let elapsed_ns = now_ns - self.start_ns.unwrap_or(now_ns);
        let is_now = |span: &&(i64, i64)| (span.0..span.1).contains(&elapsed_ns);
        let rest_ns = match away.spans_ns.iter().find(is_now) {
            Some((_, until_ns)) => until_ns - elapsed_ns,
            None if self.away_rng.f64() < away.share => self.away_rng.i64(0..away.most_ns),
            None => return None,
        };
        self.marks.set(Mark::Away);
        Some(now_ns + rest_ns)
    }

    /// Whether the lane may leave, so that it closes what it uses: once the load has ended.
    fn may_end(&self) -> bool {
        self.is_at_peace || self.truth.stopped_ns.is_some()
    }

    /// The probes tell what they know by now.
    pub fn look_at_probes(&mut self) {
        let (now_ns, is_at_peace) = (self.now_ns(), self.is_at_peace);
        if let Some(probes) = &mut self.probes {
            probes.look(now_ns, is_at_peace);
        }
    }

    /// All connections of a node break.
    pub fn cut(&mut self, node: usize) {
        for at in 0..self.sockets.len() {
            if self.sockets[at].node == node {
                self.reset(at);
            }
        }
    }

    /// The connection breaks: what has not been read is lost on both sides.
    pub fn reset(&mut self, at: usize) {
        let socket = &mut self.sockets[at];
        if matches!(socket.stage, Stage::Connecting | Stage::Open) {
            socket.stage = Stage::Broken;
            socket.ends.clear();
            self.marks.set(Mark::CutConnection);
            S::over(self, at, true);
            self.forget(at);
        }
    }

    /// The node knows nothing of a connection any more.
    pub fn forget(&mut self, at: usize) {
        let socket = &mut self.sockets[at];
        socket.own = S::Socket::default();
        socket.held.clear();
        socket.is_greeted = false;
    }

    fn happen(&mut self, event: Event<S::Event>) {
        match event {
            Event::Connected(at, is_refused) => {
                let socket = &mut self.sockets[at];
                if socket.stage == Stage::Connecting {
                    socket.stage = if is_refused { Stage::Refused } else { Stage::Open };
                    if !is_refused {
                        S::opened(self, at);
                    }
                }
            }
            Event::Up(at, bytes) => {
                let socket = &mut self.sockets[at];
                socket.up_come += bytes;
                // What has come is with the node, whether or not the client still lives.
                if matches!(socket.stage, Stage::Open | Stage::Closed) {
                    S::serve(self, at);
                }
            }
            Event::Down(at, bytes) => {
                let now_ns = self.now_ns();
                let socket = &mut self.sockets[at];
                socket.down_come += bytes;
                socket.come_in_all += bytes as u64;
                socket.comings.push_back((socket.come_in_all, now_ns));
            }
            Event::Reset(at) => self.reset(at),
            Event::Serve(at) => S::serve(self, at),
            Event::Own(event) => S::happen(self, event),
            // A closed loop may end before its faults.
            Event::Fault(number) if self.is_at_peace && !self.plan.faults[number].1.is_of_the_drain() => {}
            Event::Fault(number) => match self.plan.faults[number].1 {
                Fault::Node(fault) => self.strike_node(fault),
                Fault::Own(fault) => S::strike(self, fault),
            },
            Event::Elect(group) => self.elect(group),
            Event::NodeUp(node) => {
                self.nodes[node].is_up = true;
                S::came_up(self, node);
            }
            Event::Direct => {}
        }
        S::look(self);
    }

    fn ready(&mut self, poller: PollerId, ready: &mut Vec<Ready>) {
        for socket in &self.sockets {
            if socket.poller != poller {
                continue;
            }
            let is_broken = matches!(socket.stage, Stage::Refused | Stage::Broken);
            if socket.stage != Stage::Open && !is_broken {
                continue;
            }
            let readable = is_broken || socket.down_come > socket.down_taken;
            // A kernel wakes whoever waits for room when a third of it is free, not for every byte.
            let has_room = (socket.up.len() - socket.up_come) * 3 <= self.scenario.room_bytes * 2;
            let writable = socket.interest == Interest::ReadWrite && (is_broken || has_room);
            if (readable || writable) && ready.len() < READY_MAX {
                ready.push(Ready {
                    token: socket.token,
                    readable,
                    writable,
                });
            }
        }
    }
}

impl<S: System> World<S> {
    /// A look at the sockets is over. Where more are ready than are told at once nobody knows of the others.
    fn looked(&mut self, poller: PollerId, slept_ns: i64, ready: &[Ready]) {
        if ready.len() >= READY_MAX {
            return;
        }
        let now_ns = self.now_ns();
        for socket in self.sockets.iter_mut().filter(|socket| socket.poller == poller) {
            let is_told = ready
                .iter()
                .any(|ready| ready.token == socket.token && ready.readable);
            if !is_told || slept_ns >= SLEPT_NS {
                socket.empty_ns = now_ns;
            }
        }
    }
}

impl<S: System> Sim<S> {
    /// The next event, if it happens before that time; the clocks are then set to it. Whether there was one.
    pub fn step(&self, until_ns: i64) -> bool {
        let mut world = self.world.borrow_mut();
        let now_ns = world.now_ns();
        match world.events.peek() {
            Some(Reverse((at_ns, ..))) if *at_ns <= until_ns.max(now_ns) => {}
            _ => return false,
        }
        let Some(Reverse((at_ns, _, event))) = world.events.pop() else {
            return false;
        };
        simulated::advance_to(at_ns.max(now_ns));
        if event == Event::Direct {
            drop(world);
            self.direct();
        } else {
            world.happen(event);
        }
        true
    }

    /// The supervisor and the director have their turn.
    pub fn direct(&self) {
        let director = self.director.borrow_mut().take();
        if let Some(mut director) = director {
            let next_ns = director.turn(self);
            let mut world = self.world.borrow_mut();
            world.after(next_ns, Event::Direct);
            drop(world);
            *self.director.borrow_mut() = Some(director);
        }
    }

    /// Ends the trial from within the lane, which takes it for its own panic.
    fn give_up(&self, why: String) -> ! {
        self.world.borrow_mut().fatal.get_or_insert(why);
        std::panic::panic_any(crate::trial::GivenUp);
    }
}
