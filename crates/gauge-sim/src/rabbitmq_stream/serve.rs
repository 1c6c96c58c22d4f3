//! A node at its connections: who it is, where streams are, publishers and subscriptions.

use super::parse::{self, Begin, Command, Said, code, key};
use super::streams::Write;
use super::{Cluster, Event, Publisher, Subscription};
use crate::marks::Mark;
use crate::net::{self, PORT, Told, World};

/// What stands for no node.
const NOBODY: u16 = u16::MAX;

impl World<Cluster> {
    /// The node looks at a connection.
    pub fn serve(&mut self, at: usize) {
        let now_ns = self.now_ns();
        self.sockets[at].own.heard_ns = now_ns;
        if !self.attend(at) {
            return;
        }
        loop {
            let socket = &self.sockets[at];
            match parse::command(&socket.up[socket.up_taken..socket.up_come]) {
                Ok(Some((command, length))) => {
                    self.sockets[at].up_taken += length;
                    self.handle(at, command);
                }
                Ok(None) => {
                    if self.sockets[at].own.has_ended {
                        self.forget(at);
                    }
                    return;
                }
                Err(what) => {
                    self.truth.offend(|| what);
                    return;
                }
            }
        }
    }

    fn answer(&mut self, at: usize, said: Said) {
        self.say(at, said.frame(), Told::Nothing);
    }

    fn handle(&mut self, at: usize, command: Command) {
        let own = &mut self.sockets[at].own;
        // What comes over a connection that is broken says nothing any more.
        let is_first = matches!(command, Command::PeerProperties(_));
        if (!own.is_known && !is_first) || own.is_ending {
            return;
        }
        match command {
            Command::PeerProperties(correlation) => {
                own.is_known = true;
                let said = Said::answer(key::PEER_PROPERTIES, correlation, code::OK).long(1);
                self.answer(at, said.text("product").text("RabbitMQ"));
            }
            Command::Handshake(correlation) => {
                let said = Said::answer(key::SASL_HANDSHAKE, correlation, code::OK).long(2);
                self.answer(at, said.text("PLAIN").text("AMQPLAIN"));
            }
            Command::Authenticate(correlation) => {
                self.answer(at, Said::answer(key::SASL_AUTHENTICATE, correlation, code::OK));
                self.answer(at, Said::new(key::TUNE).long(parse::FRAME_BYTES_MAX).long(60));
            }
            Command::Tune { heartbeat_s } => own.heartbeat_ns = i64::from(heartbeat_s) * 1_000_000_000,
            Command::Open(correlation) => {
                let heartbeat_ns = own.heartbeat_ns;
                self.sockets[at].is_greeted = true;
                self.answer(at, Said::answer(key::OPEN, correlation, code::OK).long(0));
                self.after(heartbeat_ns / 2, net::Event::Own(Event::Beat(at)));
            }
            Command::Close(correlation) => {
                self.answer(at, Said::answer(key::CLOSE, correlation, code::OK));
                self.forget(at);
            }
            Command::Heartbeat | Command::StoreOffset => {}
            Command::Metadata { correlation, streams } => self.metadata(at, correlation, &streams),
            Command::DeclarePublisher {
                correlation,
                publisher,
                name,
                stream,
            } => self.declare(at, correlation, publisher, name, &stream),
            Command::Publish { publisher, messages } => self.publish(at, publisher, messages),
            Command::Subscribe {
                correlation,
                number,
                stream,
                begin,
                credits,
            } => self.subscribe(at, correlation, number, &stream, begin, credits),
            Command::Credit { number, credits } => match own.subscriptions.get_mut(&number) {
                Some(subscription) => {
                    subscription.credits += u32::from(credits);
                    self.feed_one(at, number);
                }
                None => {
                    let said = Said::new(key::CREDIT | parse::ANSWER);
                    self.answer(at, said.short(code::NO_SUBSCRIPTION).octet(number));
                }
            },
            Command::Unsubscribe { correlation, number } => {
                let code = match own.subscriptions.remove(&number) {
                    Some(_) => code::OK,
                    None => code::NO_SUBSCRIPTION,
                };
                self.answer(at, Said::answer(key::UNSUBSCRIBE, correlation, code));
            }
        }
    }

    /// The node closes a connection.
    pub fn close_connection(&mut self, at: usize, code: u16) {
        self.marks.set(Mark::ConnectionClosed);
        let said = Said::new(key::CLOSE).long(1).short(code);
        self.answer(at, said.text("closed by the node"));
        let own = &mut self.sockets[at].own;
        own.is_ending = true;
        own.publishers.clear();
        own.subscriptions.clear();
        let delay_ns = 10 * self.scenario.delay_ns + 50_000_000;
        self.after(delay_ns, net::Event::Own(Event::End(at)));
    }

    fn stream(&mut self, name: &str) -> Option<usize> {
        let found = self.cluster.streams.iter().position(|stream| stream.name == name);
        if found.is_none() {
            self.truth.offend(|| format!("there is no stream {name}"));
        }
        found
    }

    fn metadata(&mut self, at: usize, correlation: u32, streams: &[String]) {
        let mut said = Said::new(key::METADATA | parse::ANSWER).long(correlation);
        said = said.long(self.nodes.len() as u32);
        for node in 0..self.nodes.len() {
            said = said.short(node as u16).text(&net::host(node));
            said = said.long(u32::from(PORT) + node as u32);
        }
        said = said.long(streams.len() as u32);
        for name in streams {
            let Some(slot) = self.stream(name) else { return };
            let stream = &mut self.cluster.streams[slot];
            let refused = stream.lookups.next();
            let leader = stream.leader.filter(|_| refused.is_none());
            let copies: Vec<usize> = (0..self.nodes.len())
                .filter(|node| self.nodes[*node].is_up && Some(*node) != leader)
                .collect();
            said = match leader {
                Some(leader) => said.text(name).short(code::OK).short(leader as u16),
                None => {
                    self.marks.set(Mark::LookupFailed);
                    let code = refused.unwrap_or(code::NOT_AVAILABLE);
                    said.text(name).short(code).short(NOBODY)
                }
            };
            said = said.long(copies.len() as u32);
            said = copies.iter().fold(said, |said, copy| said.short(*copy as u16));
        }
        self.answer(at, said);
    }

    fn declare(&mut self, at: usize, correlation: u32, publisher: u8, name: String, stream: &str) {
        let Some(slot) = self.stream(stream) else { return };
        let is_here = self.cluster.streams[slot].leader == Some(self.sockets[at].node);
        let refused = match self.cluster.streams[slot].refused_publishers.next() {
            None if !is_here => Some(code::NOT_AVAILABLE),
            refused => refused,
        };
        if let Some(code) = refused {
            self.marks.set(Mark::PublisherRefused);
            self.answer(at, Said::answer(key::DECLARE_PUBLISHER, correlation, code));
            return;
        }
        self.cluster.next_publisher += 1;
        let serial = self.cluster.next_publisher;
        let own = Publisher { slot, name, serial };
        if self.sockets[at].own.publishers.insert(publisher, own).is_some() {
            self.truth
                .offend(|| format!("publisher {publisher} is declared twice"));
        }
        self.answer(at, Said::answer(key::DECLARE_PUBLISHER, correlation, code::OK));
    }

    fn publish(&mut self, at: usize, publisher: u8, messages: Vec<parse::Published>) {
        let has_acks = self.scenario.acks != 0;
        for message in messages.iter().filter_map(|one| one.message) {
            let name = (message.producer, message.sequence);
            if has_acks && self.truth.intended.contains_key(&name) {
                self.marks.set(Mark::Retry);
            }
            self.truth.met(&[message]);
            let seen = self.truth.acked.get(&name);
            if has_acks && seen.is_some_and(|seen| seen.read_ns < self.sockets[at].began_ns) {
                self.truth
                    .offend(|| format!("{name:?} was sent again after its acknowledgement"));
            }
        }
        let numbers: Vec<u64> = messages.iter().map(|one| one.number).collect();
        let Some(Publisher { slot, name, serial }) = self.sockets[at].own.publishers.get(&publisher).cloned()
        else {
            self.refuse(at, publisher, &numbers, code::NO_PUBLISHER);
            return;
        };
        let stream = &mut self.cluster.streams[slot];
        let mut refusal = None;
        if let Some((code, is_stored)) = stream.refusals.next() {
            if !is_stored {
                self.marks.set(Mark::RefusedNotStored);
                self.refuse(at, publisher, &numbers, code);
                return;
            }
            self.marks.set(Mark::RefusedStored);
            refusal = Some(code);
        }
        let all: Vec<_> = messages.iter().filter_map(|one| one.message).collect();
        let mut fresh = messages;
        if !name.is_empty() {
            let pushed = stream.pushed.entry(name.clone()).or_default();
            let count = fresh.len();
            fresh.retain(|one| one.number > *pushed);
            *pushed = numbers.iter().fold(*pushed, |most, number| most.max(*number));
            if fresh.len() < count {
                self.marks.set(Mark::DuplicateRecognised);
            }
        }
        let write = Write {
            at,
            publisher,
            serial,
            name,
            fresh,
            numbers,
            messages: all,
            refusal,
        };
        self.write(slot, write);
    }

    fn subscribe(
        &mut self,
        at: usize,
        correlation: u32,
        number: u8,
        stream: &str,
        begin: Begin,
        credits: u16,
    ) {
        let Some(slot) = self.stream(stream) else { return };
        if let Some(code) = self.cluster.streams[slot].refused_subscriptions.next() {
            self.marks.set(Mark::SubscriptionRefused);
            self.answer(at, Said::answer(key::SUBSCRIBE, correlation, code));
            return;
        }
        let stream = &self.cluster.streams[slot];
        let known = stream.known[self.sockets[at].node];
        let next = match begin {
            Begin::First => 0,
            Begin::Last => known.saturating_sub(1),
            Begin::Next => known,
            Begin::At(offset) => stream.chunks.partition_point(|chunk| chunk.end <= offset),
        };
        let subscription = Subscription {
            slot,
            next,
            credits: u32::from(credits),
            asks_end: begin == Begin::Last,
        };
        let subscriptions = &mut self.sockets[at].own.subscriptions;
        if subscriptions.insert(number, subscription).is_some() {
            self.truth
                .offend(|| format!("subscription {number} is asked for twice"));
        }
        self.answer(at, Said::answer(key::SUBSCRIBE, correlation, code::OK));
        self.feed_one(at, number);
    }
}
