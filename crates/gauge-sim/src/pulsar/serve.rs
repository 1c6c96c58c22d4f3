//! A broker at its connections: who it is, lookups, producers and what becomes of a batch.

use super::parse::{self, Body, Command};
use super::{Answer, Cluster, Event, Producer, Proposal, error, kind};
use crate::marks::Mark;
use crate::net::{self, Stage, Told, World};
use crate::truth::Message;

/// What a lookup is answered.
enum Found {
    Connect(usize),
    Redirect(usize, bool),
    Failed(u64),
}

impl World<Cluster> {
    /// The broker looks at a connection.
    pub fn serve(&mut self, at: usize) {
        if !self.attend(at) {
            return;
        }
        let node = self.sockets[at].node;
        loop {
            let throttled_until_ns = self.cluster.throttled_until_ns[node];
            if self.now_ns() < throttled_until_ns && !self.sockets[at].own.producers.is_empty() {
                self.at(throttled_until_ns, net::Event::Serve(at));
                return;
            }
            let socket = &self.sockets[at];
            let come = socket.up[socket.up_taken..socket.up_come].to_vec();
            match parse::command(&come) {
                Ok(Some((command, length))) => {
                    self.sockets[at].up_taken += length;
                    self.handle(at, command);
                }
                Ok(None) => {
                    if self.sockets[at].own.has_ended {
                        self.gone(at);
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

    fn handle(&mut self, at: usize, command: Command<'_>) {
        // What comes over a connection that is broken says nothing any more.
        if !self.sockets[at].is_greeted && command != Command::Connect {
            return;
        }
        let plain = |kind| parse::frame(kind, Body::default(), b"");
        match command {
            Command::Connect => {
                self.sockets[at].is_greeted = true;
                let body = Body::default()
                    .text(1, "Pulsar Server")
                    .number(2, 21)
                    .number(3, 5 << 20);
                self.say(at, parse::frame(kind::CONNECTED, body, b""), Told::Nothing);
            }
            Command::Ping => self.say(at, plain(kind::PONG), Told::Nothing),
            Command::Pong => {
                self.marks.set(Mark::PingAnswered);
                self.sockets[at].own.pongs += 1;
            }
            Command::Lookup {
                topic,
                request,
                is_authoritative,
            } => self.look_up(at, topic, request, is_authoritative),
            Command::Producer {
                topic,
                id,
                request,
                name,
                epoch,
            } => self.open_producer(at, topic, id, request, name, epoch),
            Command::Send {
                producer,
                sequence,
                messages,
                highest,
                payload,
            } => {
                if messages == 0 || highest != sequence + messages - 1 {
                    self.truth
                        .offend(|| format!("{messages} messages from {sequence} to {highest}"));
                    return;
                }
                self.take(at, producer, sequence, messages, payload);
            }
            Command::Subscribe(asked) => self.subscribe(at, &asked),
            Command::Flow { consumer, permits } => self.flow(at, consumer, permits),
            Command::Ack {
                consumer,
                is_cumulative,
                entries,
            } => self.acked(at, consumer, is_cumulative, &entries),
            Command::CloseConsumer { consumer, request } => {
                if self.sockets[at].own.consumers.contains_key(&consumer) {
                    self.leave_cursor(at, consumer);
                    self.answer(at, kind::SUCCESS, Body::default().number(1, request), 0);
                } else {
                    self.fail(at, request, error::METADATA, 0);
                }
            }
            Command::LastMessageId { consumer, request } => self.tell_end(at, consumer, request),
        }
    }

    /// An answer that leaves after the time that a broker needs, and so much more.
    pub fn answer(&mut self, at: usize, kind: u64, body: Body, later_ns: i64) {
        let delay_ns = self.draw(1_000, self.scenario.service_ns) + later_ns;
        let bytes = parse::frame(kind, body, b"");
        self.after(delay_ns, net::Event::Own(Event::Say(at, bytes, Vec::new(), 0)));
    }

    /// A request is answered with an error.
    pub fn fail(&mut self, at: usize, request: u64, error: u64, later_ns: i64) {
        let body = Body::default()
            .number(1, request)
            .number(2, error)
            .text(3, "refused");
        self.answer(at, kind::ERROR, body, later_ns);
    }

    /// The slot of a topic's full name.
    pub fn slot_of(&mut self, topic: &str) -> Option<usize> {
        let slot = parse::partition(topic).and_then(|(topic, partition)| self.slot(topic, partition));
        if slot.is_none() {
            self.truth.offend(|| format!("there is no topic {topic}"));
        }
        slot
    }

    fn look_up(&mut self, at: usize, topic: &str, request: u64, is_authoritative: bool) {
        let Some(slot) = self.slot_of(topic) else { return };
        let mut later_ns = 0;
        let found = match self.cluster.topics[slot].lookups.next() {
            Some(Answer::Silence) => {
                self.marks.set(Mark::LookupFailed);
                return;
            }
            Some(Answer::Error(error)) => Found::Failed(error),
            Some(Answer::Elsewhere) => {
                let other = (self.sockets[at].node + 1) % self.nodes.len();
                Found::Redirect(other, false)
            }
            Some(Answer::Late(for_ns)) => {
                later_ns = for_ns;
                self.find(at, slot, is_authoritative)
            }
            None => self.find(at, slot, is_authoritative),
        };
        let answer = match found {
            Found::Connect(node) | Found::Redirect(node, _) => {
                Body::default().text(1, &format!("pulsar://{}", net::address(node)))
            }
            Found::Failed(_) => Body::default(),
        };
        let body = match found {
            Found::Connect(_) => answer.number(3, 1).number(4, request).number(5, 1),
            Found::Redirect(_, is_final) => {
                self.marks.set(Mark::Redirected);
                answer
                    .number(3, 0)
                    .number(4, request)
                    .number(5, u64::from(is_final))
            }
            Found::Failed(error) => {
                self.marks.set(Mark::LookupFailed);
                answer
                    .number(3, 2)
                    .number(4, request)
                    .number(6, error)
                    .text(7, "refused")
            }
        };
        self.answer(at, kind::LOOKUP_RESPONSE, body, later_ns);
    }

    /// Who has a topic, as the broker that was asked knows it.
    fn find(&mut self, at: usize, slot: usize, is_authoritative: bool) -> Found {
        let node = self.sockets[at].node;
        let topic = &self.cluster.topics[slot];
        let (heard, term) = self.cluster.views[node][slot];
        if term < topic.term && heard != node && topic.owner.is_some() {
            self.marks.set(Mark::StaleLookup);
            return Found::Connect(heard);
        }
        let Some(owner) = topic.owner else {
            return Found::Failed(error::NOT_READY);
        };
        if topic.is_claimed {
            return Found::Connect(owner);
        }
        let leader = (0..self.nodes.len()).find(|node| self.nodes[*node].is_up);
        if node == owner && (is_authoritative || leader == Some(node)) {
            self.cluster.topics[slot].is_claimed = true;
            return Found::Connect(owner);
        }
        match leader {
            Some(leader) if leader != node && !is_authoritative => Found::Redirect(leader, false),
            Some(leader) if leader == node => Found::Redirect(owner, true),
            _ => Found::Failed(error::NOT_READY),
        }
    }

    /// How the opening of a producer or consumer is answered; None: as it should be, after so long.
    pub fn opening(&mut self, at: usize, slot: usize, request: u64) -> Option<i64> {
        let node = self.sockets[at].node;
        if self.cluster.topics[slot].owner != Some(node) {
            self.fail(at, request, error::NOT_READY, 0);
            return None;
        }
        self.cluster.topics[slot].is_claimed = true;
        match self.cluster.topics[slot].openings.next() {
            None => Some(0),
            Some(answer) => {
                self.marks.set(Mark::OpeningRefused);
                match answer {
                    Answer::Late(for_ns) => return Some(for_ns),
                    Answer::Error(error) => self.fail(at, request, error, 0),
                    Answer::Silence | Answer::Elsewhere => {}
                }
                None
            }
        }
    }

    fn open_producer(&mut self, at: usize, topic: &str, id: u64, request: u64, name: &str, epoch: u64) {
        let Some(slot) = self.slot_of(topic) else { return };
        let Some(later_ns) = self.opening(at, slot, request) else {
            return;
        };
        let is_taken = self.sockets.iter().enumerate().any(|(other, socket)| {
            let mut producers = socket.own.producers.values();
            other != at && producers.any(|producer| producer.slot == slot && producer.name == name)
        });
        if is_taken {
            self.marks.set(Mark::ProducerBusy);
            self.fail(at, request, error::PRODUCER_BUSY, later_ns);
            return;
        }
        let producers = &mut self.sockets[at].own.producers;
        if let Some(before) = producers.get(&id)
            && (before.slot != slot || before.epoch >= epoch)
        {
            self.truth
                .offend(|| format!("producer {id} is opened again for another topic or in an old epoch"));
            return;
        }
        producers.insert(
            id,
            Producer {
                slot,
                name: name.to_owned(),
                epoch,
            },
        );
        let last = self.cluster.topics[slot].persisted.get(name).copied();
        let last = match self.plan.settings.deduplicates {
            true => last.map_or(u64::MAX, |last| last),
            false => u64::MAX,
        };
        let body = Body::default()
            .number(1, request)
            .text(2, name)
            .number(3, last)
            .number(6, 1);
        self.answer(at, kind::PRODUCER_SUCCESS, body, later_ns);
    }

    /// A batch has come.
    fn take(&mut self, at: usize, id: u64, sequence: u64, count: u64, payload: &[u8]) {
        // What comes for a producer that is closed is dropped without a word.
        let Some(producer) = self.sockets[at].own.producers.get(&id).cloned() else {
            return;
        };
        let parsed = match parse::batch(payload, &producer.name, sequence, count) {
            Ok(parsed) => parsed,
            Err(what) => {
                self.truth.offend(|| what);
                return;
            }
        };
        if !parsed.messages.is_empty() {
            self.truth.requested();
        }
        self.truth.met(&parsed.messages);
        if self.scenario.acks != 0 {
            self.check_again(at, &parsed.messages);
        }
        let slot = producer.slot;
        let deduplicates = self.plan.settings.deduplicates;
        if deduplicates && self.sockets[at].own.has_failed {
            return;
        }
        let topic = &mut self.cluster.topics[slot];
        if deduplicates
            && topic
                .pushed
                .get(&producer.name)
                .is_some_and(|last| sequence <= *last)
        {
            let is_stored = topic
                .persisted
                .get(&producer.name)
                .is_some_and(|last| sequence <= *last);
            if is_stored {
                self.marks.set(Mark::DuplicateRecognised);
                let opening = (id, producer.epoch);
                self.receipt(at, slot, opening, sequence, (-1, -1), parsed.messages);
            } else {
                self.marks.set(Mark::DuplicateUnknown);
                self.send_error(at, id, sequence, error::UNKNOWN);
            }
            return;
        }
        let refusal = topic.refusals.next();
        if let Some((error, is_stored)) = refusal {
            self.marks.set(match is_stored {
                true => Mark::RefusedStored,
                false => Mark::RefusedNotStored,
            });
            if !is_stored {
                self.send_error(at, id, sequence, error);
                return;
            }
        }
        let now_ns = self.now_ns();
        let delay_ns = self.draw(1_000, self.scenario.service_ns.min(300_000))
            + self.draw(0, self.plan.settings.follow_ns);
        let topic = &mut self.cluster.topics[slot];
        topic.pushed.insert(producer.name.clone(), sequence + count - 1);
        topic.committed_ns = topic.committed_ns.max(now_ns + delay_ns);
        topic.proposals.push_back(Proposal {
            payload: payload.to_vec(),
            parsed,
            count: count as u32,
            socket: at,
            producer: id,
            epoch: producer.epoch,
            name: producer.name,
            sequence,
            refusal: refusal.map(|(error, _)| error),
        });
        let (at_ns, term) = (topic.committed_ns, topic.term);
        self.at(at_ns, net::Event::Own(Event::Committed(slot, term)));
    }

    /// Nobody sends again what was acknowledged before the connection was there.
    fn check_again(&mut self, at: usize, messages: &[Message]) {
        for message in messages {
            let key = (message.producer, message.sequence);
            let seen = self.truth.acked.get(&key);
            if seen.is_some_and(|seen| seen.read_ns < self.sockets[at].began_ns) {
                self.truth
                    .offend(|| format!("{key:?} was sent again after its acknowledgement"));
            }
        }
    }

    /// Bookies have the oldest proposal.
    pub fn committed(&mut self, slot: usize, term: u64) {
        let now_ns = self.now_ns();
        let topic = &self.cluster.topics[slot];
        let Some(owner) = topic.owner.filter(|_| topic.term == term) else {
            return;
        };
        let ready_ns = topic.stalled_until_ns.max(self.nodes[owner].paused_until_ns);
        if now_ns < ready_ns {
            self.at(ready_ns, net::Event::Own(Event::Committed(slot, term)));
            return;
        }
        if let Some(proposal) = self.cluster.topics[slot].proposals.pop_front() {
            self.store(slot, proposal, true);
        }
    }

    /// A batch is stored, and its producer is told so, which may have been closed since the opening over which the batch came, and opened again.
    pub fn receipt(
        &mut self,
        at: usize,
        slot: usize,
        (producer, epoch): (u64, u64),
        sequence: u64,
        id: (i64, i64),
        messages: Vec<Message>,
    ) {
        let own = &self.sockets[at].own;
        // What comes behind an error is not read any more.
        if own.has_failed || self.sockets[at].stage != Stage::Open {
            return;
        }
        let is_open = own
            .producers
            .get(&producer)
            .is_some_and(|producer| producer.slot == slot && producer.epoch == epoch);
        if !is_open {
            if !self.plan.settings.late_receipts {
                return;
            }
            self.marks.set(Mark::LateReceipt);
        }
        let told = match self.scenario.acks {
            0 => Told::Nothing,
            _ => Told::AckedMaybeAgain(messages),
        };
        let body = Body::default()
            .number(1, producer)
            .number(2, sequence)
            .entry(3, id);
        self.say(at, parse::frame(kind::RECEIPT, body, b""), told);
    }

    /// A batch is not taken.
    pub fn send_error(&mut self, at: usize, producer: u64, sequence: u64, error: u64) {
        if self.sockets[at].own.has_failed || self.sockets[at].stage != Stage::Open {
            return;
        }
        self.marks.set(Mark::Retry);
        self.sockets[at].own.has_failed = true;
        let body = Body::default()
            .number(1, producer)
            .number(2, sequence)
            .number(3, error)
            .text(4, "refused");
        self.say(at, parse::frame(kind::SEND_ERROR, body, b""), Told::Nothing);
    }
}
