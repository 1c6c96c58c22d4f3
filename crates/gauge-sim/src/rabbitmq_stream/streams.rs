//! Streams: what is written, confirmed, known to copies and read.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::faults::Damage;
use super::parse::{self, Published, Said, code, key};
use super::{Cluster, Event};
use crate::marks::Mark;
use crate::net::{self, Stage, Told, World};
use crate::nodes::Few;
use crate::truth::Message;

/// A chunk: its number among the batches that the world knows, the offset behind its last message, and its bytes.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub number: usize,
    pub end: u64,
    pub bytes: Vec<u8>,
}

/// A frame of messages that a majority does not have yet.
#[derive(Clone, Debug)]
pub struct Write {
    pub at: usize,
    pub publisher: u8,
    pub serial: u64,
    pub name: String,
    /// What is new of it.
    pub fresh: Vec<Published>,
    /// All of it, which is confirmed.
    pub numbers: Vec<u64>,
    pub messages: Vec<Message>,
    /// It is stored, and the answer says this.
    pub refusal: Option<u16>,
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    pub name: String,
    pub leader: Option<usize>,
    /// Counts its leaders: what was begun under an old one is over.
    pub term: u64,
    pub chunks: Vec<Chunk>,
    /// Per node: how many chunks its copy knows to be confirmed.
    pub known: Vec<usize>,
    pub writes: VecDeque<Write>,
    committed_ns: i64,
    pub stalled_until_ns: i64,
    /// Per publisher's name: the highest number that is stored, and that is stored or under way.
    pub persisted: HashMap<String, u64>,
    pub pushed: HashMap<String, u64>,
    pub refusals: Few<(u16, bool)>,
    pub refused_publishers: Few<u16>,
    pub refused_subscriptions: Few<u16>,
    pub lookups: Few<u16>,
    pub damages: Few<Damage>,
    led_by: Vec<usize>,
}

impl Stream {
    pub fn new(name: String, leader: usize, nodes: usize) -> Stream {
        Stream {
            name,
            leader: Some(leader),
            term: 0,
            chunks: Vec::new(),
            known: vec![0; nodes],
            writes: VecDeque::new(),
            committed_ns: 0,
            stalled_until_ns: 0,
            persisted: HashMap::new(),
            pushed: HashMap::new(),
            refusals: Few::default(),
            refused_publishers: Few::default(),
            refused_subscriptions: Few::default(),
            lookups: Few::default(),
            damages: Few::default(),
            led_by: vec![leader],
        }
    }
}

impl World<Cluster> {
    /// A frame of messages comes to a stream.
    pub fn write(&mut self, slot: usize, write: Write) {
        let now_ns = self.now_ns();
        let delay_ns = self.draw(1_000, self.scenario.service_ns.min(300_000))
            + self.draw(0, self.plan.settings.follow_ns);
        let own = &mut self.cluster.streams[slot];
        own.committed_ns = own.committed_ns.max(now_ns + delay_ns);
        own.writes.push_back(write);
        let (at_ns, term) = (own.committed_ns, own.term);
        self.at(at_ns, net::Event::Own(Event::Committed(slot, term)));
    }

    /// A majority has what was written first.
    pub fn committed(&mut self, slot: usize, term: u64) {
        let now_ns = self.now_ns();
        let own = &self.cluster.streams[slot];
        let Some(leader) = own.leader.filter(|_| own.term == term) else {
            return;
        };
        let ready_ns = own.stalled_until_ns.max(self.nodes[leader].paused_until_ns);
        if now_ns < ready_ns {
            self.at(ready_ns, net::Event::Own(Event::Committed(slot, term)));
            return;
        }
        let frames = self.rng.usize(1..=self.plan.settings.frames_max);
        let own = &mut self.cluster.streams[slot];
        let frames = frames.min(own.writes.len());
        let writes: Vec<Write> = own.writes.drain(..frames).collect();
        if frames > 1 {
            self.marks.set(Mark::ChunkShared);
        }
        self.store(slot, &writes);
        self.confirm(writes);
    }

    /// Frames are stored in one chunk.
    fn store(&mut self, slot: usize, writes: &[Write]) {
        let fresh: Vec<&Published> = writes.iter().flat_map(|write| &write.fresh).collect();
        let own = &mut self.cluster.streams[slot];
        for write in writes {
            let highest = write.numbers.iter().max().copied().unwrap_or(0);
            let persisted = own.persisted.entry(write.name.clone()).or_default();
            *persisted = (*persisted).max(highest);
        }
        if fresh.is_empty() {
            return;
        }
        // A probe is a message of the stream, and none of the trial.
        let messages: Vec<Message> = fresh.iter().filter_map(|one| one.message).collect();
        let mut bytes: Vec<Vec<u8>> = fresh.iter().map(|one| one.bytes.clone()).collect();
        let damage = match messages.len() == fresh.len() {
            true => own.damages.next(),
            false => None,
        };
        let first = own.chunks.last().map_or(0, |chunk| chunk.end);
        let number = self.truth.stored(slot, messages);
        let batch = &mut self.truth.batches[number];
        if damage == Some(Damage::Message) {
            let which = self.rng.usize(..bytes.len());
            let from = parse::body(&bytes[which]).unwrap_or(0);
            Message::damage(&mut bytes[which][from..]);
            batch.damaged.push(which);
        }
        let mut crc = parse::crc(&parse::data(&bytes));
        if damage == Some(Damage::Checksum) {
            crc ^= 1;
            batch.damaged.extend(0..bytes.len());
        }
        if damage.is_some() {
            self.marks.set(Mark::Damaged);
        }
        let own = &mut self.cluster.streams[slot];
        own.chunks.push(Chunk {
            number,
            end: first + bytes.len() as u64,
            bytes: parse::chunk(first, &bytes, crc, self.plan.settings.filter_bytes),
        });
        let (chunks, leader) = (own.chunks.len(), own.leader);
        for node in 0..self.nodes.len() {
            let delay_ns = match Some(node) == leader {
                true => 0,
                false => self.draw(0, self.plan.settings.news_ns),
            };
            self.after(delay_ns, net::Event::Own(Event::Learn(node, slot, chunks)));
        }
    }

    /// Publishers hear that their messages are stored.
    fn confirm(&mut self, writes: Vec<Write>) {
        let mut confirmed: BTreeMap<(usize, u8), (Vec<u64>, Vec<Message>)> = BTreeMap::new();
        for write in writes {
            let of = self.sockets[write.at].own.publishers.get(&write.publisher);
            if of.is_none_or(|publisher| publisher.serial != write.serial) {
                continue;
            }
            if let Some(refusal) = write.refusal {
                self.refuse(write.at, write.publisher, &write.numbers, refusal);
                continue;
            }
            let one = confirmed.entry((write.at, write.publisher)).or_default();
            one.0.extend(write.numbers);
            one.1.extend(write.messages);
        }
        for ((at, publisher), (mut numbers, mut messages)) in confirmed {
            // In some worlds a connection may break between the confirmations of one frame.
            if self.scenario.seed.is_multiple_of(3) && numbers.len() == messages.len() {
                let half = numbers.len() / 2;
                let (later, theirs) = (numbers.split_off(half), messages.split_off(half));
                self.say_confirmed(at, publisher, &numbers, messages);
                (numbers, messages) = (later, theirs);
            }
            self.say_confirmed(at, publisher, &numbers, messages);
        }
    }

    fn say_confirmed(&mut self, at: usize, publisher: u8, numbers: &[u64], messages: Vec<Message>) {
        if numbers.is_empty() {
            return;
        }
        let said = Said::new(key::PUBLISH_CONFIRM)
            .octet(publisher)
            .long(numbers.len() as u32);
        let said = numbers.iter().fold(said, |said, number| said.number(*number));
        // Streams always confirm; without acknowledgements nobody listens.
        let told = match self.scenario.acks {
            0 => Told::Nothing,
            _ => Told::Acked(messages),
        };
        self.say(at, said.frame(), told);
    }

    /// Messages are not taken. With a code that says that the publisher or the stream is not there any more, the publisher is not.
    pub fn refuse(&mut self, at: usize, publisher: u8, numbers: &[u64], code: u16) {
        if code != code::INTERNAL {
            self.sockets[at].own.publishers.remove(&publisher);
        }
        let said = Said::new(key::PUBLISH_ERROR)
            .octet(publisher)
            .long(numbers.len() as u32);
        let said = numbers
            .iter()
            .fold(said, |said, number| said.number(*number).short(code));
        self.say(at, said.frame(), Told::Nothing);
    }

    /// A copy has heard how many chunks are confirmed.
    pub fn learn(&mut self, node: usize, slot: usize, chunks: usize) {
        let now_ns = self.now_ns();
        let until_ns = self.cluster.lags_until_ns[node].max(self.nodes[node].paused_until_ns);
        if now_ns < until_ns {
            self.marks.set(Mark::CopyLags);
            self.at(until_ns, net::Event::Own(Event::Learn(node, slot, chunks)));
            return;
        }
        let own = &mut self.cluster.streams[slot];
        let known = own.known[node];
        if chunks <= known {
            return;
        }
        own.known[node] = chunks;
        for chunk in &own.chunks[known..chunks] {
            let batch = &mut self.truth.batches[chunk.number];
            // The last copy decides: a reader may have any.
            batch.visible_ns = match batch.visible_ns {
                i64::MAX => now_ns,
                before_ns => before_ns.max(now_ns),
            };
        }
        for at in 0..self.sockets.len() {
            if self.sockets[at].node == node {
                self.feed(at, slot);
            }
        }
    }

    /// A connection's subscriptions to a stream get what they have credits for.
    pub fn feed(&mut self, at: usize, slot: usize) {
        let of = &self.sockets[at].own.subscriptions;
        let numbers: Vec<u8> = of
            .iter()
            .filter(|(_, subscription)| subscription.slot == slot)
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            self.feed_one(at, number);
        }
    }

    pub fn feed_one(&mut self, at: usize, number: u8) {
        let (node, now_ns) = (self.sockets[at].node, self.now_ns());
        while let Some(subscription) = self.sockets[at].own.subscriptions.get_mut(&number) {
            let slot = subscription.slot;
            let stream = &self.cluster.streams[slot];
            if subscription.credits == 0 || subscription.next >= stream.known[node] {
                return;
            }
            subscription.credits -= 1;
            let chunk = &stream.chunks[subscription.next];
            subscription.next += 1;
            let asks_end = subscription.asks_end;
            let said = Said::new(key::DELIVER).octet(number).bytes(&chunk.bytes).frame();
            // What comes to whoever asks for the end is not handed over.
            let batches = if asks_end { Vec::new() } else { vec![chunk.number] };
            let told = match self.told(at, batches, &[slot], now_ns) {
                Told::Delivered(mut delivery) => {
                    if !asks_end {
                        delivery.told.clear();
                    }
                    Told::Delivered(delivery)
                }
                other => other,
            };
            self.say(at, said, told);
        }
    }

    /// Another leader, or none. Of what a majority did not have it keeps the first frames; nobody is told of them.
    pub fn lead(&mut self, slot: usize, leader: Option<usize>, keeps: usize) {
        let writes = std::mem::take(&mut self.cluster.streams[slot].writes);
        if writes.len() > keeps {
            self.marks.set(Mark::AckTimedOut);
        }
        self.drop_all(slot);
        for write in writes.iter().take(keeps) {
            self.store(slot, std::slice::from_ref(write));
        }
        let own = &mut self.cluster.streams[slot];
        own.term += 1;
        own.leader = leader;
        own.pushed.clone_from(&own.persisted);
        match leader {
            Some(leader) => {
                let chunks = own.chunks.len();
                self.marks.led(&mut own.led_by, leader);
                self.after(0, net::Event::Own(Event::Learn(leader, slot, chunks)));
            }
            None => self.marks.set(Mark::LeaderAway),
        }
    }

    /// Publishers and subscriptions of a stream are dropped, and their clients told to look for it again.
    pub fn drop_all(&mut self, slot: usize) {
        for at in 0..self.sockets.len() {
            let own = &mut self.sockets[at].own;
            let (publishers, subscriptions) = (own.publishers.len(), own.subscriptions.len());
            own.publishers.retain(|_, publisher| publisher.slot != slot);
            own.subscriptions
                .retain(|_, subscription| subscription.slot != slot);
            let is_fewer = (
                own.publishers.len() < publishers,
                own.subscriptions.len() < subscriptions,
            );
            if is_fewer.0 {
                self.marks.set(Mark::PublisherDropped);
            }
            if is_fewer.1 {
                self.marks.set(Mark::SubscriptionDropped);
            }
            if (is_fewer.0 || is_fewer.1) && self.sockets[at].stage == Stage::Open {
                let name = self.cluster.streams[slot].name.clone();
                let said = Said::new(key::METADATA_UPDATE)
                    .short(code::NOT_AVAILABLE)
                    .text(&name);
                self.say(at, said.frame(), Told::Nothing);
            }
        }
    }
}
