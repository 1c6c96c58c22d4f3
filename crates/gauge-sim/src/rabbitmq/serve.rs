//! A node at its connections: who it is, channels, and what becomes of a message.

use super::parse::{self, Arguments, Command, said};
use super::queues::{Confirm, Proposal};
use super::{Channel, Cluster, Event, On, Pending};
use crate::marks::Mark;
use crate::net::{self, Told, World};
use crate::truth::Message;

/// How long a channel waits for a queue's leader that is asked for its length (RabbitMQ's own limit).
const COUNT_NS: i64 = 250_000_000;

impl World<Cluster> {
    /// The node looks at a connection.
    pub fn serve(&mut self, at: usize) {
        let now_ns = self.now_ns();
        self.sockets[at].own.heard_ns = now_ns;
        if !self.attend(at) {
            return;
        }
        loop {
            let own = &self.sockets[at].own;
            // Nothing is read from whoever publishes while memory or disk are short; not even the end.
            if own.is_blocked {
                return;
            }
            let socket = &self.sockets[at];
            let come = socket.up[socket.up_taken..socket.up_come].to_vec();
            match parse::command(&come) {
                Ok(Some((channel, command, length))) => {
                    self.sockets[at].up_taken += length;
                    self.handle(at, channel, command);
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

    fn handle(&mut self, at: usize, channel: u16, command: Command) {
        let own = &mut self.sockets[at].own;
        // What comes over a connection that is broken says nothing any more.
        if (!own.is_known && command != Command::Protocol) || own.is_ending {
            return;
        }
        match command {
            Command::Protocol => {
                own.is_known = true;
                let arguments = Arguments::default()
                    .octet(0)
                    .octet(9)
                    .long(0)
                    .long_text(b"PLAIN AMQPLAIN")
                    .long_text(b"en_US");
                self.say(at, parse::method(0, said::START, arguments), Told::Nothing);
            }
            Command::StartOk => {
                let arguments = Arguments::default().short(2_047).long(131_072).short(60);
                self.say(at, parse::method(0, said::TUNE, arguments), Told::Nothing);
            }
            Command::TuneOk { heartbeat_s } => own.heartbeat_ns = i64::from(heartbeat_s) * 1_000_000_000,
            Command::Open => self.open(at),
            Command::Close => {
                self.say(
                    at,
                    parse::method(0, said::CLOSE_OK, Arguments::default()),
                    Told::Nothing,
                );
                self.gone(at);
            }
            Command::Heartbeat => {}
            command => self.on_channel(at, channel, command),
        }
    }

    fn open(&mut self, at: usize) {
        let node = self.sockets[at].node;
        if let Some(code) = self.cluster.refused_openings[node].next() {
            self.marks.set(Mark::OpeningRefused);
            self.close_connection(at, code);
            return;
        }
        self.sockets[at].is_greeted = true;
        self.say(
            at,
            parse::method(0, said::OPEN_OK, Arguments::default().text("")),
            Told::Nothing,
        );
        let heartbeat_ns = self.sockets[at].own.heartbeat_ns;
        self.after(heartbeat_ns / 2, net::Event::Own(Event::Beat(at)));
    }

    /// The node closes a connection: its channels are over, and it ends when the client does or a little later.
    pub fn close_connection(&mut self, at: usize, code: u16) {
        self.marks.set(Mark::ConnectionClosed);
        let arguments = Arguments::default()
            .short(code)
            .text("closed by the node")
            .long(0);
        self.say(at, parse::method(0, said::CLOSE, arguments), Told::Nothing);
        let channels: Vec<u16> = self.sockets[at].own.channels.keys().copied().collect();
        for channel in channels {
            self.leave_channel(at, channel);
        }
        self.sockets[at].own.is_ending = true;
        let delay_ns = 10 * self.scenario.delay_ns + 50_000_000;
        self.after(delay_ns, net::Event::Own(Event::End(at)));
    }

    fn on_channel(&mut self, at: usize, number: u16, command: Command) {
        let channels = &mut self.sockets[at].own.channels;
        match (channels.get_mut(&number), &command) {
            (None, Command::ChannelOpen) => {
                self.cluster.next_channel += 1;
                let serial = self.cluster.next_channel;
                channels.insert(
                    number,
                    Channel {
                        serial,
                        ..Channel::default()
                    },
                );
                let arguments = Arguments::default().long(0);
                self.answer(at, number, said::CHANNEL_OPEN_OK, arguments);
                return;
            }
            (None, _) | (Some(_), Command::ChannelOpen) => {
                self.truth
                    .offend(|| format!("{command:?} on channel {number}, which is not in the state for it"));
                self.close_connection(at, 504);
                return;
            }
            (Some(channel), Command::ChannelCloseOk) if channel.is_closing => {
                channels.remove(&number);
                return;
            }
            (Some(channel), _) if channel.is_closing => return,
            _ => {}
        }
        let Some(channel) = channels.get_mut(&number) else {
            return;
        };
        let on = On {
            at,
            channel: number,
            serial: channel.serial,
        };
        match command {
            Command::ChannelClose => {
                self.leave_channel(at, number);
                self.answer(at, number, said::CHANNEL_CLOSE_OK, Arguments::default());
            }
            Command::ConfirmSelect => {
                channel.is_confirming = true;
                self.answer(at, number, said::SELECT_OK, Arguments::default());
            }
            Command::Qos { prefetch } => {
                channel.prefetch = prefetch;
                self.answer(at, number, said::QOS_OK, Arguments::default());
            }
            Command::Publish {
                exchange,
                key,
                is_mandatory,
                body,
            } => self.publish(on, &exchange, &key, is_mandatory, body),
            Command::Ack { tag, is_multiple } => self.acked(on, tag, is_multiple),
            Command::Cancel { tag } => {
                if let Some((queue, _, _)) = channel.consumes.take() {
                    self.cluster.queues[queue].consumers.retain(|other| *other != on);
                }
                self.answer(at, number, said::CANCEL_OK, Arguments::default().text(&tag));
            }
            Command::Declare { queue, is_passive } => {
                let Some(queue) = self.queue(on, &queue, is_passive) else {
                    return;
                };
                self.cluster.queues[queue].is_there = true;
                self.count(on, queue);
            }
            Command::Bind { queue, exchange, key } => {
                let Some(queue) = self.queue(on, &queue, true) else {
                    return;
                };
                if self.address(self.cluster.queues[queue].slot) != (exchange, key) {
                    self.truth.offend(|| "a queue is bound wrongly".to_owned());
                }
                self.cluster.queues[queue].is_bound = true;
                self.answer(at, number, said::BIND_OK, Arguments::default());
            }
            Command::Purge { queue } => {
                let Some(queue) = self.queue(on, &queue, true) else {
                    return;
                };
                if !self.cluster.queues[queue].ready.is_empty() {
                    self.truth
                        .offend(|| "a queue was emptied that had messages".to_owned());
                }
                self.answer(at, number, said::PURGE_OK, Arguments::default().long(0));
            }
            Command::Consume {
                queue,
                tag,
                is_automatic,
            } => {
                let Some(queue) = self.queue(on, &queue, true) else {
                    return;
                };
                self.consume(on, queue, tag, is_automatic);
            }
            other => self
                .truth
                .offend(|| format!("{other:?} on channel {number} makes no sense")),
        }
    }

    /// The queue of a name, if it can be had.
    fn queue(&mut self, on: On, name: &str, must_be_there: bool) -> Option<usize> {
        let found = self.cluster.queues.iter().position(|queue| queue.name == name);
        let Some(queue) = found.filter(|queue| self.cluster.queues[*queue].is_there || !must_be_there) else {
            self.truth.offend(|| format!("there is no queue {name}"));
            return None;
        };
        let own = &self.cluster.queues[queue];
        if own.leader.is_none() && !own.is_quorum {
            self.marks.set(Mark::QueueDown);
            let words = format!(
                "NOT_FOUND - home node of durable queue '{name}' in vhost '/' is down or inaccessible"
            );
            self.close_channel(on, 404, &words);
            return None;
        }
        Some(queue)
    }

    fn answer(&mut self, at: usize, channel: u16, method: (u16, u16), arguments: Arguments) {
        self.say(at, parse::method(channel, method, arguments), Told::Nothing);
    }

    /// Whether a channel is still that channel, and open.
    pub fn is_there(&self, on: On) -> bool {
        let channel = self.sockets[on.at].own.channels.get(&on.channel);
        channel.is_some_and(|channel| channel.serial == on.serial && !channel.is_closing)
    }

    /// A channel is over: what it had and did not acknowledge comes back.
    pub fn leave_channel(&mut self, at: usize, number: u16) {
        let Some(channel) = self.sockets[at].own.channels.remove(&number) else {
            return;
        };
        self.clear(at, number, channel);
    }

    fn clear(&mut self, at: usize, number: u16, channel: Channel) {
        if !channel.pending.is_empty() {
            self.marks.set(Mark::AckTimedOut);
        }
        let mut queues: Vec<usize> = channel.unacked.values().map(|unacked| unacked.queue).collect();
        queues.extend(channel.consumes.map(|(queue, _, _)| queue));
        queues.sort_unstable();
        queues.dedup();
        for unacked in channel.unacked.into_values() {
            self.take_back(unacked);
        }
        let on = On {
            at,
            channel: number,
            serial: channel.serial,
        };
        for queue in queues {
            self.cluster.queues[queue].consumers.retain(|other| *other != on);
            self.feed(queue);
        }
    }

    /// The node closes a channel, and waits for the answer.
    pub fn close_channel(&mut self, on: On, code: u16, words: &str) {
        self.marks.set(Mark::ChannelClosed);
        let channels = &mut self.sockets[on.at].own.channels;
        let closing = Channel {
            serial: on.serial,
            is_closing: true,
            ..Channel::default()
        };
        let Some(channel) = channels.insert(on.channel, closing) else {
            return;
        };
        let arguments = Arguments::default().short(code).text(words).long(0);
        self.answer(on.at, on.channel, said::CHANNEL_CLOSE, arguments);
        self.clear(on.at, on.channel, channel);
    }

    /// Channels of producers or of consumers at a node are closed.
    pub fn close_channels(&mut self, node: usize, code: u16, of_producers: bool) {
        for at in 0..self.sockets.len() {
            let socket = &self.sockets[at];
            let is_producer = self.subscription_of(at).is_none();
            if socket.node != node || socket.own.is_ending || is_producer != of_producers {
                continue;
            }
            let open: Vec<On> = socket
                .own
                .channels
                .iter()
                .filter(|(_, channel)| !channel.is_closing)
                .map(|(number, channel)| On {
                    at,
                    channel: *number,
                    serial: channel.serial,
                })
                .collect();
            for on in open {
                self.close_channel(on, code, "closed by the node");
            }
        }
    }

    fn consume(&mut self, on: On, queue: usize, tag: String, is_automatic: bool) {
        if let Some(code) = self.cluster.queues[queue].refused_consumers.next() {
            self.close_channel(on, code, "refused by the node");
            return;
        }
        let Some(channel) = self.sockets[on.at].own.channels.get_mut(&on.channel) else {
            return;
        };
        if channel.consumes.replace((queue, tag, is_automatic)).is_some() {
            self.truth
                .offend(|| "a channel consumes a second time under one tag".to_owned());
        }
        if self.cluster.queues[queue].leader.is_none() {
            self.cluster.queues[queue].waiting.push(on);
        } else {
            self.begin_consumer(on, queue);
        }
    }

    /// A channel consumes a queue that has a leader.
    pub fn begin_consumer(&mut self, on: On, queue: usize) {
        if !self.is_there(on) {
            return;
        }
        let channel = self.sockets[on.at].own.channels.get(&on.channel);
        let Some((_, tag, _)) = channel.and_then(|channel| channel.consumes.clone()) else {
            return;
        };
        let consumers = &mut self.cluster.queues[queue].consumers;
        if !consumers.is_empty() {
            self.marks.set(Mark::ConsumerGhost);
        }
        consumers.push_back(on);
        self.answer(
            on.at,
            on.channel,
            said::CONSUME_OK,
            Arguments::default().text(&tag),
        );
        self.feed(queue);
    }

    /// A channel asks for a queue's length.
    fn count(&mut self, on: On, queue: usize) {
        let now_ns = self.now_ns();
        match self.ready_ns(queue) {
            Some(ready_ns) if ready_ns <= now_ns => self.say_count(on, queue),
            // A classic queue is waited for.
            Some(ready_ns) if !self.plan.settings.is_quorum => {
                self.at(ready_ns, net::Event::Own(Event::Count(on, queue)));
            }
            _ => self.after(COUNT_NS, net::Event::Own(Event::Count(on, queue))),
        }
    }

    /// A channel tells a queue's length. Where the leader of a quorum queue does not answer, it says that the queue is empty and has no consumers.
    pub fn say_count(&mut self, on: On, queue: usize) {
        if !self.is_there(on) {
            return;
        }
        let now_ns = self.now_ns();
        let own = &self.cluster.queues[queue];
        let is_known = self.ready_ns(queue).is_some_and(|ready_ns| ready_ns <= now_ns);
        if !is_known && !own.is_quorum {
            let name = own.name.clone();
            if self.queue(on, &name, true).is_some() {
                self.count(on, queue);
            }
            return;
        }
        let (messages, consumers) = match is_known {
            true => (own.ready.len(), own.consumers.len()),
            false => (0, 0),
        };
        if !is_known && !own.ready.is_empty() {
            self.marks.set(Mark::EndNotKnown);
        }
        let arguments = Arguments::default()
            .text(&own.name)
            .long(messages as u32)
            .long(consumers as u32);
        let slots = [own.slot];
        let told = match is_known {
            true => self.told(on.at, Vec::new(), &slots, now_ns),
            false => Told::Nothing,
        };
        self.say(
            on.at,
            parse::method(on.channel, said::DECLARE_OK, arguments),
            told,
        );
    }

    fn publish(&mut self, on: On, exchange: &str, key: &str, is_mandatory: bool, body: Vec<u8>) {
        let partition = key.parse().ok();
        let Some(slot) = partition.and_then(|partition| self.slot(exchange, partition)) else {
            self.truth
                .offend(|| format!("there is no partition {key} of {exchange}"));
            return;
        };
        let message = match Message::read(&body) {
            Ok(message) => message,
            Err(what) => {
                self.truth.offend(|| what);
                return;
            }
        };
        if let Some(message) = message {
            let name = (message.producer, message.sequence);
            let has_acks = self.scenario.acks != 0;
            if has_acks && self.truth.intended.contains_key(&name) {
                self.marks.set(Mark::Retry);
            }
            self.truth.met(&[message]);
            let seen = self.truth.acked.get(&name);
            if has_acks && seen.is_some_and(|seen| seen.read_ns < self.sockets[on.at].began_ns) {
                self.truth
                    .offend(|| format!("{name:?} was sent again after its acknowledgement"));
            }
        }
        let first = slot * self.cluster.readers;
        let is_unroutable = self.plan.settings.dead_is_unroutable;
        let takes = |queue: &usize| {
            let own = &self.cluster.queues[*queue];
            let is_dead = own.leader.is_none() && !own.is_quorum;
            own.is_there && own.is_bound && !(is_dead && is_unroutable)
        };
        let queues: Vec<usize> = (first..first + self.cluster.readers).filter(takes).collect();
        let Some(channel) = self.sockets[on.at].own.channels.get_mut(&on.channel) else {
            return;
        };
        let comes_back = queues.is_empty() && is_mandatory;
        let mut confirm = None;
        if channel.is_confirming {
            channel.published += 1;
            let tag = channel.published;
            confirm = Some(Confirm { on, tag });
            let pending = Pending {
                left: queues.len().max(1),
                is_refused: false,
                message: message.filter(|_| !comes_back),
            };
            channel.pending.insert(tag, pending);
        }
        if comes_back {
            self.marks.set(Mark::Returned);
            let arguments = Arguments::default()
                .short(312)
                .text("NO_ROUTE")
                .text(exchange)
                .text(key);
            let bytes = parse::content(
                on.channel,
                said::RETURN,
                arguments,
                &body,
                self.plan.settings.body_bytes,
            );
            self.say(on.at, bytes, Told::Nothing);
        }
        if queues.is_empty() {
            self.settle(confirm, true);
        }
        for queue in queues {
            let proposal = Proposal {
                message,
                body: body.clone(),
                confirm,
                on,
                is_refused: false,
            };
            self.propose(queue, proposal);
        }
        if self.now_ns() < self.cluster.alarm_until_ns {
            self.marks.set(Mark::Blocked);
            self.sockets[on.at].own.is_blocked = true;
            let arguments = Arguments::default().text("low on memory");
            self.say(on.at, parse::method(0, said::BLOCKED, arguments), Told::Nothing);
        }
    }

    /// A queue has a message, or has refused it.
    pub fn settle(&mut self, confirm: Option<Confirm>, is_stored: bool) {
        let Some(Confirm { on, tag }) = confirm.filter(|confirm| self.is_there(confirm.on)) else {
            return;
        };
        let Some(channel) = self.sockets[on.at].own.channels.get_mut(&on.channel) else {
            return;
        };
        let Some(pending) = channel.pending.get_mut(&tag) else {
            return;
        };
        pending.left -= 1;
        pending.is_refused |= !is_stored;
        if pending.left > 0 {
            return;
        }
        let Some(pending) = channel.pending.remove(&tag) else {
            return;
        };
        if channel.settled.is_empty() {
            let delay_ns = self.draw(0, self.plan.settings.gathers_ns);
            self.after(delay_ns, net::Event::Own(Event::Confirm(on)));
        }
        if let Some(channel) = self.sockets[on.at].own.channels.get_mut(&on.channel) {
            channel.settled.push((tag, !pending.is_refused, pending.message));
        }
    }

    /// A channel says what was confirmed, and then what was refused: as much as it can at once, and the rest one by one.
    pub fn say_settled(&mut self, on: On) {
        if !self.is_there(on) {
            return;
        }
        let Some(channel) = self.sockets[on.at].own.channels.get_mut(&on.channel) else {
            return;
        };
        let waits = channel.pending.keys().next().copied().unwrap_or(u64::MAX);
        let mut settled = std::mem::take(&mut channel.settled);
        settled.sort_unstable_by_key(|(tag, _, _)| *tag);
        for is_acked in [true, false] {
            let other = settled.iter().find(|(_, acked, _)| *acked != is_acked);
            let cutoff = other.map_or(waits, |(tag, _, _)| waits.min(*tag));
            let (together, single): (Vec<_>, Vec<_>) = settled
                .iter()
                .copied()
                .filter(|(_, acked, _)| *acked == is_acked)
                .partition(|(tag, _, _)| *tag < cutoff);
            if !single.is_empty() {
                self.marks.set(Mark::ConfirmedOutOfOrder);
            }
            if let Some((tag, _, _)) = together.last() {
                let messages = together.iter().filter_map(|(_, _, message)| *message).collect();
                self.say_one(on, *tag, is_acked, together.len() > 1, messages);
            }
            for (tag, _, message) in single {
                self.say_one(on, tag, is_acked, false, message.into_iter().collect());
            }
        }
    }

    fn say_one(&mut self, on: On, tag: u64, is_acked: bool, is_multiple: bool, messages: Vec<Message>) {
        let (method, told) = match is_acked {
            true => (said::ACK, Told::Acked(messages)),
            false => (said::NACK, Told::Nothing),
        };
        if !is_acked {
            self.marks.set(Mark::Nacked);
        } else if is_multiple {
            self.marks.set(Mark::ConfirmedTogether);
        }
        let arguments = Arguments::default().number(tag).octet(u8::from(is_multiple));
        self.say(on.at, parse::method(on.channel, method, arguments), told);
    }

    /// A consumer has acknowledged.
    fn acked(&mut self, on: On, tag: u64, is_multiple: bool) {
        let Some(channel) = self.sockets[on.at].own.channels.get_mut(&on.channel) else {
            return;
        };
        if !channel.unacked.contains_key(&tag) {
            self.truth
                .offend(|| format!("delivery {tag} is acknowledged, and is not waiting for it"));
            self.close_channel(on, 406, "PRECONDITION_FAILED - unknown delivery tag");
            return;
        }
        let mut queues = Vec::new();
        match is_multiple {
            true => {
                let rest = channel.unacked.split_off(&(tag + 1));
                let acked = std::mem::replace(&mut channel.unacked, rest);
                queues.extend(acked.into_values().map(|unacked| unacked.queue));
            }
            false => queues.extend(channel.unacked.remove(&tag).map(|unacked| unacked.queue)),
        }
        queues.dedup();
        for queue in queues {
            self.feed(queue);
        }
    }
}
