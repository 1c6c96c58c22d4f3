//! Pull consumers: how they are made, asked and lost.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::faults::{Loss, Refusal};
use super::{Cluster, Event, Stored};
use crate::marks::Mark;
use crate::net::{self, Told, World};

/// A request for messages.
#[derive(Clone, Debug)]
pub struct Pull {
    id: u64,
    reply: String,
    left: u64,
    heartbeat_ns: i64,
}

/// A consumer.
#[derive(Debug)]
pub struct Consumer {
    stream: usize,
    name: String,
    /// Slots of which it has messages.
    slots: Vec<usize>,
    /// Where in the stream it is.
    next: usize,
    /// Number of its last delivery.
    delivered: u64,
    /// Messages behind `next` that are its own.
    pending: u64,
    pulls: VecDeque<Pull>,
    next_pull: u64,
    policy: String,
    unacked: BTreeSet<u64>,
    max_ack_pending: usize,
    /// So many of the next deliveries are lost on their way.
    pub drops: u32,
    is_gone: bool,
}

impl Consumer {
    fn has(&self, stored: &Stored) -> bool {
        self.slots.contains(&stored.slot)
    }

    fn is_full(&self) -> bool {
        self.policy != "none" && self.unacked.len() >= self.max_ack_pending
    }
}

impl World<Cluster> {
    fn find(&self, stream: &str, name: &str) -> Option<usize> {
        self.cluster.consumers.iter().rposition(|consumer| {
            !consumer.is_gone && consumer.name == name && self.cluster.streams[consumer.stream].name == stream
        })
    }

    /// A request to JetStream.
    pub fn ask(&mut self, rest: &str, reply: &str, body: &[u8]) {
        let words: Vec<&str> = rest.split('.').collect();
        match words.as_slice() {
            ["CONSUMER", "CREATE", stream, name] => self.create(stream, name, reply, body),
            ["CONSUMER", "DELETE", stream, name] => {
                if let Some(number) = self.find(stream, name) {
                    self.cluster.consumers[number].is_gone = true;
                    self.cluster.consumers[number].pulls.clear();
                }
                if !reply.is_empty() {
                    self.deliver(reply, "", b"", b"{\"success\":true}", |_, _| Told::Nothing);
                }
            }
            ["CONSUMER", "MSG", "NEXT", stream, name] => self.pull(stream, name, reply, body),
            _ => self.truth.offend(|| format!("nobody has to ask for {rest}")),
        }
    }

    fn create(&mut self, stream: &str, name: &str, reply: &str, body: &[u8]) {
        let Some(number) = self.cluster.streams.iter().position(|known| known.name == stream) else {
            self.truth.offend(|| format!("there is no stream {stream}"));
            return;
        };
        let refusal = match self.cluster.streams[number].consumer_refusals.next() {
            Some(refusal) => Some(refusal),
            None if self.cluster.streams[number].leader.is_none() => Some(if self.rng.bool() {
                Refusal::NoResponders
            } else {
                Refusal::Error(10_008)
            }),
            None => None,
        };
        if let Some(refusal) = refusal {
            self.marks.set(Mark::ConsumerRefused);
            self.refuse(reply, refusal);
            return;
        }
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let config = &request["config"];
        if self.find(stream, name).is_some() || config["name"] != name {
            self.truth
                .offend(|| format!("a consumer {name} was asked for, which is there"));
            return;
        }
        let own = &self.cluster.streams[number];
        let next = match config["deliver_policy"].as_str() {
            Some("all") => 0,
            Some("new") => own.log.len(),
            Some("by_start_sequence") => {
                let start = config["opt_start_seq"].as_u64().unwrap_or(0) as usize;
                start.saturating_sub(1).min(own.log.len())
            }
            _ => {
                self.truth
                    .offend(|| format!("a consumer without a beginning: {config}"));
                return;
            }
        };
        let filters: Vec<String> = match (&config["filter_subject"], &config["filter_subjects"]) {
            (Value::String(one), _) => vec![one.clone()],
            (_, Value::Array(several)) => several
                .iter()
                .filter_map(|one| Some(one.as_str()?.to_owned()))
                .collect(),
            _ => Vec::new(),
        };
        let slots: Vec<usize> = (0..own.partitions)
            .filter(|partition| {
                let subject = format!("{}{partition}", own.prefix);
                filters.is_empty() || filters.contains(&subject)
            })
            .map(|partition| own.first_slot + partition)
            .collect();
        let mut consumer = Consumer {
            stream: number,
            name: name.to_owned(),
            slots,
            next,
            delivered: 0,
            pending: 0,
            pulls: VecDeque::new(),
            next_pull: 0,
            policy: config["ack_policy"].as_str().unwrap_or("explicit").to_owned(),
            unacked: BTreeSet::new(),
            max_ack_pending: config["max_ack_pending"].as_u64().unwrap_or(1000) as usize,
            drops: 0,
            is_gone: false,
        };
        consumer.pending = own.log[next..]
            .iter()
            .filter(|stored| consumer.has(stored))
            .count() as u64;
        let answer = json!({
            "type": "io.nats.jetstream.api.v1.consumer_create_response",
            "stream_name": stream, "name": name, "config": config,
            "delivered": {"consumer_seq": 0, "stream_seq": next},
            "ack_floor": {"consumer_seq": 0, "stream_seq": next},
            "num_ack_pending": 0, "num_redelivered": 0, "num_waiting": 0, "num_pending": consumer.pending,
        });
        let (slots, made_ns) = (consumer.slots.clone(), self.now_ns());
        self.cluster.consumers.push(consumer);
        self.deliver(reply, "", b"", answer.to_string().as_bytes(), |world, at| {
            world.told(at, Vec::new(), &slots, made_ns)
        });
    }

    fn pull(&mut self, stream: &str, name: &str, reply: &str, body: &[u8]) {
        let found = self.find(stream, name);
        let has_leader = found.is_some_and(|number| {
            let own = &self.cluster.streams[self.cluster.consumers[number].stream];
            own.leader.is_some()
        });
        let Some(number) = found.filter(|_| has_leader) else {
            self.no_responders(reply);
            return;
        };
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let (Some(messages), Some(expires_ns)) = (request["batch"].as_u64(), request["expires"].as_i64())
        else {
            self.truth
                .offend(|| format!("a pull without a number or an end: {request}"));
            return;
        };
        let heartbeat_ns = request["idle_heartbeat"].as_i64().unwrap_or(0);
        if heartbeat_ns * 2 > expires_ns {
            self.truth
                .offend(|| format!("a pull whose heartbeats are too rare: {request}"));
            return;
        }
        let consumer = &mut self.cluster.consumers[number];
        consumer.next_pull += 1;
        let id = consumer.next_pull;
        consumer.pulls.push_back(Pull {
            id,
            reply: reply.to_owned(),
            left: messages,
            heartbeat_ns,
        });
        if heartbeat_ns > 0 {
            self.after(heartbeat_ns, net::Event::Own(Event::Heartbeat(number, id)));
        }
        self.after(expires_ns, net::Event::Own(Event::PullOver(number, id)));
        self.feed(number);
    }

    /// A pull is over: who asked is told what was left of it.
    pub fn pull_over(&mut self, number: usize, id: u64) {
        let consumer = &mut self.cluster.consumers[number];
        let Some(at) = consumer.pulls.iter().position(|pull| pull.id == id) else {
            return;
        };
        let stream = &self.cluster.streams[consumer.stream];
        let ready_ns = stream
            .leader
            .map_or(0, |leader| self.nodes[leader].paused_until_ns);
        if self.now_ns() < ready_ns {
            self.at(ready_ns, net::Event::Own(Event::PullOver(number, id)));
            return;
        }
        let consumer = &mut self.cluster.consumers[number];
        let Some(pull) = consumer.pulls.remove(at) else {
            return;
        };
        self.marks.set(Mark::PullExpired);
        self.status(number, &pull, "408 Request Timeout", true);
    }

    /// A pull waits: who asked is told which delivery was the last.
    pub fn heartbeat(&mut self, number: usize, id: u64) {
        let consumer = &self.cluster.consumers[number];
        let Some(pull) = consumer.pulls.iter().find(|pull| pull.id == id) else {
            return;
        };
        let leader = self.cluster.streams[consumer.stream].leader;
        let (heartbeat_ns, now_ns) = (pull.heartbeat_ns, self.now_ns());
        // Who does nothing tells nothing; afterwards the next one comes at its time.
        if leader.is_some_and(|leader| self.nodes[leader].paused_until_ns <= now_ns) {
            self.marks.set(Mark::Heartbeat);
            let headers = format!(
                "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: {}\r\nNats-Last-Stream: {}\r\n\r\n",
                consumer.delivered, consumer.next
            );
            let reply = pull.reply.clone();
            self.deliver(&reply, "", headers.as_bytes(), b"", |_, _| Told::Nothing);
        }
        self.after(heartbeat_ns, net::Event::Own(Event::Heartbeat(number, id)));
    }

    fn status(&mut self, number: usize, pull: &Pull, words: &str, counts: bool) {
        let headers = if counts {
            format!(
                "NATS/1.0 {words}\r\nNats-Pending-Messages: {}\r\nNats-Pending-Bytes: 0\r\n\r\n",
                pull.left
            )
        } else {
            format!("NATS/1.0 {words}\r\n\r\n")
        };
        let (slots, made_ns) = (self.cluster.consumers[number].slots.clone(), self.now_ns());
        self.deliver(&pull.reply, "", headers.as_bytes(), b"", |world, at| {
            world.told(at, Vec::new(), &slots, made_ns)
        });
    }

    /// The stream has one more message.
    pub fn appended(&mut self, stream: usize) {
        for number in 0..self.cluster.consumers.len() {
            let consumer = &self.cluster.consumers[number];
            let last = self.cluster.streams[stream].log.last();
            if consumer.stream == stream
                && !consumer.is_gone
                && last.is_some_and(|stored| consumer.has(stored))
            {
                self.cluster.consumers[number].pending += 1;
                self.feed(number);
            }
        }
    }

    /// Delivers what there is to whoever asked for it.
    fn feed(&mut self, number: usize) {
        let now_ns = self.now_ns();
        loop {
            let consumer = &mut self.cluster.consumers[number];
            let stream = &self.cluster.streams[consumer.stream];
            if consumer.is_gone || consumer.is_full() || stream.leader.is_none() {
                return;
            }
            if consumer.pulls.is_empty() {
                return;
            }
            let found =
                (consumer.next..stream.log.len()).find(|at| consumer.slots.contains(&stream.log[*at].slot));
            let Some(at) = found else {
                consumer.next = stream.log.len();
                return;
            };
            let Some(pull) = consumer.pulls.front_mut() else {
                return;
            };
            let reply = pull.reply.clone();
            pull.left -= 1;
            if pull.left == 0 {
                consumer.pulls.pop_front();
            }
            consumer.next = at + 1;
            consumer.delivered += 1;
            consumer.pending -= 1;
            if consumer.policy != "none" {
                consumer.unacked.insert(consumer.delivered);
            }
            let ack = format!(
                "$JS.ACK.{}.{}.1.{}.{}.{}.{}",
                stream.name,
                consumer.name,
                at + 1,
                consumer.delivered,
                now_ns,
                consumer.pending
            );
            let stored = stream.log[at].clone();
            let consumer = &mut self.cluster.consumers[number];
            if consumer.drops > 0 {
                consumer.drops -= 1;
                self.marks.set(Mark::DeliveryDropped);
                continue;
            }
            let slots = consumer.slots.clone();
            let batches: Vec<usize> = stored.number.into_iter().collect();
            // The subject is the message's own; the subscription is the one of who asked.
            self.deliver_as(&reply, &stored, &ack, &batches, &slots, now_ns);
        }
    }

    fn deliver_as(
        &mut self,
        inbox: &str,
        stored: &Stored,
        ack: &str,
        batches: &[usize],
        slots: &[usize],
        made_ns: i64,
    ) {
        self.deliver_renamed(
            inbox,
            &stored.subject,
            ack,
            &stored.headers,
            &stored.body,
            |world, at| world.told(at, batches.to_vec(), slots, made_ns),
        );
    }

    /// Consumers of a stream are lost.
    pub fn lose_consumers(&mut self, stream: usize, loss: Loss) {
        self.marks.set(Mark::ConsumerLost);
        for number in 0..self.cluster.consumers.len() {
            let consumer = &mut self.cluster.consumers[number];
            if consumer.stream != stream || consumer.is_gone {
                continue;
            }
            let pulls: Vec<Pull> = match loss {
                Loss::Dropped => Vec::new(),
                _ => std::mem::take(&mut consumer.pulls).into_iter().collect(),
            };
            match loss {
                Loss::Deleted => {
                    consumer.is_gone = true;
                    for pull in pulls {
                        self.status(number, &pull, "409 Consumer Deleted", false);
                    }
                }
                Loss::Gone => consumer.is_gone = true,
                Loss::Moved | Loss::MovedUncounted => {
                    for pull in pulls {
                        let counts = loss == Loss::Moved;
                        self.status(number, &pull, "409 Leadership Change", counts);
                    }
                }
                Loss::MovedSilently => {}
                Loss::Behind => self.fall_back(number),
                Loss::Dropped => consumer.drops = 1,
            }
        }
    }

    /// The new leader of a consumer does not know of the last deliveries.
    fn fall_back(&mut self, number: usize) {
        let consumer = &mut self.cluster.consumers[number];
        let log = &self.cluster.streams[consumer.stream].log;
        for _ in 0..3 {
            let before =
                (0..consumer.next.min(log.len())).rfind(|at| consumer.slots.contains(&log[*at].slot));
            let Some(before) = before.filter(|_| consumer.delivered > 0) else {
                return;
            };
            self.marks.set(Mark::ConsumerGap);
            consumer.next = before;
            consumer.unacked.remove(&consumer.delivered);
            consumer.delivered -= 1;
            consumer.pending += 1;
        }
    }

    /// A delivery is acknowledged.
    pub fn acked(&mut self, rest: &str) {
        let words: Vec<&str> = rest.split('.').collect();
        let [stream, name, _, _, delivery, ..] = words.as_slice() else {
            self.truth
                .offend(|| format!("an acknowledgement goes to $JS.ACK.{rest}"));
            return;
        };
        let (Some(number), Ok(delivery)) = (self.find(stream, name), delivery.parse::<u64>()) else {
            return;
        };
        let consumer = &mut self.cluster.consumers[number];
        if consumer.policy == "all" {
            consumer.unacked = consumer.unacked.split_off(&(delivery + 1));
        } else {
            consumer.unacked.remove(&delivery);
        }
        self.feed(number);
    }
}
