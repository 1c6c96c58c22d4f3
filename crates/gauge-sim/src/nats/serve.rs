//! A node at its connections, and what becomes of a publication.

use serde_json::json;

use super::parse::{self, Operation};
use super::{Cluster, Event, Proposal, Refusal, Stored};
use crate::marks::Mark;
use crate::net::{self, Stage, Told, World};
use crate::truth::{Message, MessageKey};

/// Whether a subscription's subject, whose last token may be `*`, takes this subject.
fn takes(subscription: &str, subject: &str) -> bool {
    match subscription.strip_suffix('*') {
        Some(prefix) => subject
            .strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && !rest.contains('.')),
        None => subscription == subject,
    }
}

impl World<Cluster> {
    /// The node says who it is, and whom clients may try besides.
    pub fn introduce(&mut self, at: usize, is_lame: bool) {
        let node = self.sockets[at].node;
        let urls: Vec<String> = (0..self.nodes.len())
            .filter(|node| self.nodes[*node].is_up)
            .map(net::address)
            .collect();
        let mut info = json!({
            "server_id": format!("N{node}"), "server_name": format!("n{node}"), "version": "2.11.0", "proto": 1, "headers": true,
            "max_payload": 1_048_576, "jetstream": true, "connect_urls": urls,
        });
        if is_lame {
            info["ldm"] = json!(true);
        }
        self.say(at, format!("INFO {info} \r\n").into_bytes(), Told::Nothing);
    }

    /// The node looks at a connection.
    pub fn serve(&mut self, at: usize) {
        if !self.attend(at) {
            return;
        }
        let from = self.sockets[at].up_taken;
        let come = self.sockets[at].up[from..self.sockets[at].up_come].to_vec();
        let mut used = 0;
        loop {
            match parse::operation(&come[used..]) {
                Ok(Some((operation, length))) => {
                    self.handle(at, from + used, &operation);
                    used += length;
                }
                Ok(None) => break,
                Err(what) => {
                    self.truth.offend(|| what);
                    return;
                }
            }
        }
        // A connection that broke meanwhile has no bytes any more that anybody would take.
        self.sockets[at].up_taken += used;
    }

    /// `place`: where the operation begins in what the client sent.
    fn handle(&mut self, at: usize, place: usize, operation: &Operation<'_>) {
        if self.sockets[at].own.is_ending {
            return;
        }
        match *operation {
            Operation::Connect => self.sockets[at].is_greeted = true,
            Operation::Ping => self.say(at, b"PONG\r\n".to_vec(), Told::Nothing),
            Operation::Pong => {
                self.marks.set(Mark::PingAnswered);
                self.sockets[at].own.pongs += 1;
            }
            Operation::Subscribe { subject, sid } => {
                let subscriptions = &mut self.sockets[at].own.subscriptions;
                subscriptions.push((subject.to_owned(), sid));
            }
            Operation::Unsubscribe(sid) => {
                let subscriptions = &mut self.sockets[at].own.subscriptions;
                subscriptions.retain(|(_, own)| *own != sid);
            }
            Operation::Publish {
                subject,
                reply,
                headers,
                body,
            } => {
                if let Some(rest) = subject.strip_prefix("$JS.API.") {
                    self.ask(rest, reply, body);
                } else if let Some(rest) = subject.strip_prefix("$JS.ACK.") {
                    self.acked(rest);
                } else {
                    self.look_at_again(at, place, body);
                    self.publish(at, subject, reply, headers, body);
                }
            }
        }
    }

    /// A message goes to whoever listens to its subject at this moment.
    pub fn deliver(
        &mut self,
        subject: &str,
        reply: &str,
        headers: &[u8],
        body: &[u8],
        told: impl FnMut(&World<Cluster>, usize) -> Told,
    ) {
        self.deliver_renamed(subject, subject, reply, headers, body, told);
    }

    /// The same; it comes through the subscription to `inbox`, and says that its subject is another.
    pub fn deliver_renamed(
        &mut self,
        inbox: &str,
        subject: &str,
        reply: &str,
        headers: &[u8],
        body: &[u8],
        mut told: impl FnMut(&World<Cluster>, usize) -> Told,
    ) {
        for at in 0..self.sockets.len() {
            let socket = &self.sockets[at];
            let is_there =
                socket.stage == Stage::Open && self.nodes[socket.node].is_up && !socket.own.is_ending;
            let sid = socket
                .own
                .subscriptions
                .iter()
                .find(|(own, _)| is_there && takes(own, inbox))
                .map(|(_, sid)| *sid);
            let Some(sid) = sid else { continue };
            let reply = if reply.is_empty() {
                String::new()
            } else {
                format!("{reply} ")
            };
            let mut bytes = if headers.is_empty() {
                format!("MSG {subject} {sid} {reply}{}\r\n", body.len())
            } else {
                let total = headers.len() + body.len();
                format!("HMSG {subject} {sid} {reply}{} {total}\r\n", headers.len())
            }
            .into_bytes();
            bytes.extend_from_slice(headers);
            bytes.extend_from_slice(body);
            bytes.extend_from_slice(b"\r\n");
            let told = told(&*self, at);
            self.say(at, bytes, told);
        }
    }

    /// An answer without a message: nobody listens to what was asked.
    pub fn no_responders(&mut self, reply: &str) {
        self.marks.set(Mark::NoResponders);
        self.deliver(reply, "", b"NATS/1.0 503\r\n\r\n", b"", |_, _| Told::Nothing);
    }

    /// Nobody sends a message again whose acknowledgement was read.
    fn look_at_again(&mut self, at: usize, place: usize, body: &[u8]) {
        let Ok(Some(message)) = Message::read(body) else {
            return;
        };
        let key = (message.producer, message.sequence);
        let acked = self.truth.acked.get(&key).copied();
        let is_asked = self.scenario.acks != 0;
        if is_asked && acked.is_some_and(|acked| self.is_sent_after(at, place, acked)) {
            self.truth
                .offend(|| format!("{key:?} was sent again after its acknowledgement"));
        }
    }

    fn publish(&mut self, at: usize, subject: &str, reply: &str, headers: &[u8], body: &[u8]) {
        let found = self
            .cluster
            .streams
            .iter()
            .enumerate()
            .find_map(|(number, stream)| {
                let partition: usize = subject.strip_prefix(stream.prefix.as_str())?.parse().ok()?;
                (partition < stream.partitions).then_some((number, stream.first_slot + partition))
            });
        let Some((stream, slot)) = found else {
            self.truth
                .offend(|| format!("no stream collects the subject {subject}"));
            return;
        };
        let message = match Message::read(body) {
            Ok(message) => message,
            Err(what) => {
                self.truth.offend(|| what);
                return;
            }
        };
        let key = MessageKey::told(parse::header(headers, "Key").map(str::as_bytes));
        let message = message.map(|message| Message { key, ..message });
        if let Some(message) = message {
            self.truth.met(&[message]);
        }
        let reply = (!reply.is_empty()).then(|| reply.to_owned());
        if self.cluster.streams[stream].leader.is_none() {
            if let Some(reply) = reply {
                self.marks.set(Mark::Retry);
                self.no_responders(&reply);
            }
            return;
        }
        let own = &mut self.cluster.streams[stream];
        let mut refused = None;
        if let Some((refusal, is_stored)) = own.refusals.next() {
            self.marks.set(if is_stored {
                Mark::RefusedStored
            } else {
                Mark::RefusedNotStored
            });
            if !is_stored {
                if let Some(reply) = reply {
                    self.refuse(&reply, refusal);
                }
                return;
            }
            refused = Some(refusal);
        }
        let id = parse::header(headers, "Nats-Msg-Id").map(str::to_owned);
        if let Some(id) = &id {
            if let Some(sequence) = own.ids.get(id).copied() {
                self.marks.set(Mark::DuplicateRecognised);
                if let Some(reply) = reply {
                    self.acknowledge(stream, &reply, sequence, true, message, at);
                }
                return;
            }
            if !own.ids_in_process.insert(id.clone()) {
                self.marks.set(Mark::DuplicateInProcess);
                if let Some(reply) = reply {
                    self.refuse(&reply, Refusal::Error(10_158));
                }
                return;
            }
        }
        let now_ns = self.now_ns();
        let delay_ns = self.draw(1_000, self.scenario.service_ns.min(300_000))
            + self.draw(0, self.plan.settings.follow_ns);
        let own = &mut self.cluster.streams[stream];
        own.committed_ns = own.committed_ns.max(now_ns + delay_ns);
        own.proposals.push_back(Proposal {
            message,
            stored: Stored {
                number: None,
                slot,
                subject: subject.to_owned(),
                headers: headers.to_vec(),
                body: body.to_vec(),
            },
            id,
            reply,
            refusal: refused,
            socket: at,
        });
        let (at_ns, term) = (own.committed_ns, own.term);
        self.at(at_ns, net::Event::Own(Event::Committed(stream, term)));
    }

    /// Followers have the oldest proposal.
    pub fn committed(&mut self, stream: usize, term: u64) {
        let now_ns = self.now_ns();
        let own = &self.cluster.streams[stream];
        let Some(leader) = own.leader.filter(|_| own.term == term) else {
            return;
        };
        let ready_ns = own.stalled_until_ns.max(self.nodes[leader].paused_until_ns);
        if now_ns < ready_ns {
            self.at(ready_ns, net::Event::Own(Event::Committed(stream, term)));
            return;
        }
        if let Some(proposal) = self.cluster.streams[stream].proposals.pop_front() {
            self.store(stream, proposal);
        }
    }

    /// A message is in the stream, and is acknowledged.
    pub fn store(&mut self, stream: usize, mut proposal: Proposal) {
        let now_ns = self.now_ns();
        if let Some(message) = proposal.message {
            let number = self.truth.stored(proposal.stored.slot, vec![message]);
            self.truth.batches[number].visible_ns = now_ns;
            proposal.stored.number = Some(number);
            let own = &mut self.cluster.streams[stream];
            if own.damages_next {
                own.damages_next = false;
                Message::damage(&mut proposal.stored.body);
                self.truth.batches[number].damaged.push(0);
                self.marks.set(Mark::Damaged);
            }
        }
        let own = &mut self.cluster.streams[stream];
        own.log.push(proposal.stored);
        let sequence = own.log.len();
        if let Some(id) = proposal.id {
            own.ids_in_process.remove(&id);
            own.ids.insert(id, sequence);
        }
        self.appended(stream);
        let Some(reply) = proposal.reply else { return };
        match proposal.refusal {
            None => self.acknowledge(stream, &reply, sequence, false, proposal.message, proposal.socket),
            Some(refusal) => self.refuse(&reply, refusal),
        }
    }

    fn acknowledge(
        &mut self,
        stream: usize,
        reply: &str,
        sequence: usize,
        is_duplicate: bool,
        message: Option<Message>,
        asked: usize,
    ) {
        let name = &self.cluster.streams[stream].name;
        let body = if is_duplicate {
            format!("{{\"stream\":\"{name}\",\"seq\":{sequence},\"duplicate\": true}}")
        } else {
            format!("{{\"stream\":\"{name}\",\"seq\":{sequence}}}")
        };
        if !self.plan.settings.answers_wander && self.sockets[asked].stage != Stage::Open {
            return;
        }
        let mut wanders = false;
        self.deliver(reply, "", b"", body.as_bytes(), |_, at| {
            wanders |= at != asked;
            message.map_or(Told::Nothing, |message| Told::AckedMaybeAgain(vec![message]))
        });
        if wanders {
            self.marks.set(Mark::StaleInbox);
        }
    }

    /// A publication is not acknowledged.
    pub fn refuse(&mut self, reply: &str, refusal: Refusal) {
        self.marks.set(Mark::Retry);
        match refusal {
            Refusal::NoResponders => self.no_responders(reply),
            Refusal::Error(number) => {
                let body = json!({"error": {"code": 500, "err_code": number, "description": "refused"}, "stream": "", "seq": 0});
                self.deliver(reply, "", b"", body.to_string().as_bytes(), |_, _| Told::Nothing);
            }
            Refusal::Silence => self.marks.set(Mark::AckTimedOut),
        }
    }
}
