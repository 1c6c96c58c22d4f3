//! Queues: what is proposed, stored, delivered and taken back.

use std::collections::{BTreeMap, VecDeque};

use super::parse::{self, Arguments, said};
use super::{Cluster, Event, On, Unacked};
use crate::marks::Mark;
use crate::net::{self, Told, World};
use crate::nodes::Few;
use crate::truth::Message;

/// A message in a queue.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its number among those that the world knows; None: a probe.
    pub number: Option<usize>,
    /// Its place in the queue.
    pub place: u64,
    pub body: Vec<u8>,
    pub is_redelivered: bool,
}

/// Where a message's confirmation goes.
#[derive(Clone, Copy, Debug)]
pub struct Confirm {
    pub on: On,
    pub tag: u64,
}

/// A message that a queue does not have yet.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub message: Option<Message>,
    pub body: Vec<u8>,
    pub confirm: Option<Confirm>,
    /// The channel that has published it.
    pub on: On,
    /// It is stored, and refused all the same.
    pub is_refused: bool,
}

/// A queue.
#[derive(Debug)]
pub struct Queue {
    pub name: String,
    pub slot: usize,
    /// The subscription that it is of.
    pub reader: usize,
    /// The node of a classic queue.
    pub home: usize,
    pub is_quorum: bool,
    pub is_there: bool,
    pub is_bound: bool,
    pub leader: Option<usize>,
    /// Counts its leaders: what was begun under an old one is over.
    pub term: u64,
    pub ready: BTreeMap<u64, Item>,
    next_place: u64,
    pub proposals: VecDeque<Proposal>,
    /// The latest proposal is committed at this time, at the earliest.
    committed_ns: i64,
    pub stalled_until_ns: i64,
    pub refusals: Few<bool>,
    pub refused_consumers: Few<u16>,
    pub damages_next: bool,
    /// Channels that consume it, in the order of their turns.
    pub consumers: VecDeque<On>,
    /// Channels that want to, as soon as there is a leader.
    pub waiting: Vec<On>,
    led_by: Vec<usize>,
}

impl Queue {
    pub fn new(name: String, slot: usize, reader: usize, home: usize, is_quorum: bool) -> Queue {
        Queue {
            name,
            slot,
            reader,
            home,
            is_quorum,
            is_there: reader == 0,
            is_bound: reader == 0,
            leader: Some(home),
            term: 0,
            ready: BTreeMap::new(),
            next_place: 0,
            proposals: VecDeque::new(),
            committed_ns: 0,
            stalled_until_ns: 0,
            refusals: Few::default(),
            refused_consumers: Few::default(),
            damages_next: false,
            consumers: VecDeque::new(),
            waiting: Vec::new(),
            led_by: vec![home],
        }
    }
}

impl World<Cluster> {
    /// When a queue's leader does something; None: there is none.
    pub fn ready_ns(&self, queue: usize) -> Option<i64> {
        let leader = self.cluster.queues[queue].leader?;
        Some(self.nodes[leader].paused_until_ns)
    }

    /// A message comes to a queue.
    pub fn propose(&mut self, queue: usize, mut proposal: Proposal) {
        let own = &mut self.cluster.queues[queue];
        match own.refusals.next() {
            Some(false) => {
                self.marks.set(Mark::RefusedNotStored);
                self.settle(proposal.confirm, false);
                return;
            }
            Some(true) => {
                self.marks.set(Mark::RefusedStored);
                proposal.is_refused = true;
            }
            None => {}
        }
        if own.leader.is_none() && !own.is_quorum {
            self.marks.set(Mark::RefusedNotStored);
            self.settle(proposal.confirm, false);
            return;
        }
        let now_ns = self.now_ns();
        let delay_ns = self.draw(1_000, self.scenario.service_ns.min(300_000))
            + self.draw(0, self.plan.settings.follow_ns);
        let own = &mut self.cluster.queues[queue];
        own.committed_ns = own.committed_ns.max(now_ns + delay_ns);
        own.proposals.push_back(proposal);
        let (at_ns, term) = (own.committed_ns, own.term);
        self.at(at_ns, net::Event::Own(Event::Committed(queue, term)));
    }

    /// A queue has the oldest proposal.
    pub fn committed(&mut self, queue: usize, term: u64) {
        let own = &self.cluster.queues[queue];
        let Some(ready_ns) = self.ready_ns(queue).filter(|_| own.term == term) else {
            return;
        };
        let ready_ns = ready_ns.max(own.stalled_until_ns);
        if self.now_ns() < ready_ns {
            self.at(ready_ns, net::Event::Own(Event::Committed(queue, term)));
            return;
        }
        if let Some(proposal) = self.cluster.queues[queue].proposals.pop_front() {
            self.store(queue, proposal);
            self.feed(queue);
        }
    }

    fn store(&mut self, queue: usize, mut proposal: Proposal) {
        let now_ns = self.now_ns();
        let own = &mut self.cluster.queues[queue];
        let (slot, reader) = (own.slot, own.reader);
        let number = proposal.message.map(|message| {
            let number = self.truth.stored(slot, vec![message]);
            let batch = &mut self.truth.batches[number];
            batch.visible_ns = now_ns;
            batch.reader = Some(reader);
            number
        });
        let own = &mut self.cluster.queues[queue];
        if let Some(number) = number
            && std::mem::take(&mut own.damages_next)
        {
            Message::damage(&mut proposal.body);
            self.truth.batches[number].damaged.push(0);
            self.marks.set(Mark::Damaged);
        }
        let place = own.next_place;
        own.next_place += 1;
        let item = Item {
            number,
            place,
            body: proposal.body,
            is_redelivered: false,
        };
        own.ready.insert(place, item);
        self.settle(proposal.confirm, !proposal.is_refused);
    }

    /// Delivers what there is to whoever has room.
    pub fn feed(&mut self, queue: usize) {
        let now_ns = self.now_ns();
        let Some(ready_ns) = self.ready_ns(queue) else {
            return;
        };
        if ready_ns > now_ns {
            // Who is paused, or leads since and was paused before, goes on then.
            if !self.cluster.queues[queue].ready.is_empty() {
                self.at(ready_ns, net::Event::Own(Event::Feed(queue)));
            }
            return;
        }
        loop {
            let own = &self.cluster.queues[queue];
            let Some((&place, _)) = own.ready.first_key_value() else {
                return;
            };
            let next = own.consumers.iter().position(|on| self.has_credit(*on));
            let own = &mut self.cluster.queues[queue];
            let Some(next) = next else { return };
            own.consumers.rotate_left(next);
            let (Some(item), Some(on)) = (own.ready.remove(&place), own.consumers.pop_front()) else {
                return;
            };
            own.consumers.push_back(on);
            self.deliver(queue, on, item);
        }
    }

    fn has_credit(&self, on: On) -> bool {
        let channel = self.sockets[on.at].own.channels.get(&on.channel);
        channel.is_some_and(|channel| {
            let Some((_, _, is_automatic)) = &channel.consumes else {
                return false;
            };
            let has_room = channel.prefetch == 0 || channel.unacked.len() < usize::from(channel.prefetch);
            channel.serial == on.serial && (*is_automatic || has_room)
        })
    }

    fn deliver(&mut self, queue: usize, on: On, item: Item) {
        let own = &self.cluster.queues[queue];
        let (exchange, key) = self.address(own.slot);
        let (slots, now_ns) = ([own.slot], self.now_ns());
        let Some(channel) = self.sockets[on.at].own.channels.get_mut(&on.channel) else {
            return;
        };
        let Some((_, consumer, is_automatic)) = &channel.consumes else {
            return;
        };
        channel.delivered += 1;
        let arguments = Arguments::default()
            .text(consumer)
            .number(channel.delivered)
            .octet(u8::from(item.is_redelivered))
            .text(&exchange)
            .text(&key);
        let bytes = parse::content(
            on.channel,
            said::DELIVER,
            arguments,
            &item.body,
            self.plan.settings.body_bytes,
        );
        if item.is_redelivered {
            self.marks.set(Mark::DeliveredAgain);
        }
        let number = item.number;
        if *is_automatic {
            // It is forgotten as soon as it is on its way.
            self.marks.set(Mark::ConsumedByDelivery);
            if let Some(number) = number {
                self.truth.batches[number].is_forgotten = true;
            }
        } else {
            if let Some(number) = number {
                self.truth.batches[number].is_withheld = true;
            }
            let item = Some(item);
            channel.unacked.insert(channel.delivered, Unacked { queue, item });
        }
        // A delivery does not tell where the queue ends.
        let told = match self.told(on.at, number.into_iter().collect(), &slots, now_ns) {
            Told::Delivered(mut delivery) => {
                delivery.told.clear();
                Told::Delivered(delivery)
            }
            other => other,
        };
        self.say(on.at, bytes, told);
    }

    /// Exchange and routing key of a slot.
    pub fn address(&self, slot: usize) -> (String, String) {
        let found = self.topics.iter().rfind(|(_, first, _)| *first <= slot);
        found.map_or_else(Default::default, |(name, first, _)| {
            (name.clone(), (slot - first).to_string())
        })
    }

    /// A message that was delivered comes back to its place.
    pub fn take_back(&mut self, unacked: Unacked) {
        if let Some(mut item) = unacked.item {
            item.is_redelivered = true;
            if let Some(number) = item.number {
                self.truth.batches[number].is_withheld = false;
            }
            self.cluster.queues[unacked.queue].ready.insert(item.place, item);
        }
    }

    /// A queue loses its leader. What a quorum queue was proposed is proposed again, unless nobody is there any more who does so; a classic queue
    /// keeps the first messages of it, and refuses all.
    pub fn depose(&mut self, queue: usize, keeps: usize) {
        let own = &mut self.cluster.queues[queue];
        own.term += 1;
        own.leader = None;
        self.marks.set(Mark::LeaderAway);
        let proposals = std::mem::take(&mut own.proposals);
        if own.is_quorum {
            for (number, proposal) in proposals.into_iter().enumerate() {
                let is_kept = number < keeps || self.is_there(proposal.on);
                if is_kept {
                    self.cluster.queues[queue].proposals.push_back(proposal);
                }
            }
            return;
        }
        self.marks.set(Mark::QueueCrashed);
        for (number, mut proposal) in proposals.into_iter().enumerate() {
            proposal.is_refused = true;
            if number < keeps {
                self.marks.set(Mark::RefusedStored);
                self.store(queue, proposal);
            } else {
                self.marks.set(Mark::RefusedNotStored);
                self.settle(proposal.confirm, false);
            }
        }
        self.cancel(queue);
    }

    /// A queue has a leader.
    pub fn lead(&mut self, queue: usize, leader: usize) {
        let now_ns = self.now_ns();
        let own = &mut self.cluster.queues[queue];
        let leader = match own.is_quorum {
            true => leader,
            false if self.nodes[own.home].is_up => own.home,
            false => {
                self.after(20_000_000, net::Event::Elect(queue));
                return;
            }
        };
        own.leader = Some(leader);
        own.term += 1;
        let (term, proposals) = (own.term, own.proposals.len());
        own.committed_ns = own.committed_ns.max(now_ns);
        self.marks.led(&mut own.led_by, leader);
        for _ in 0..proposals {
            let at_ns = self.cluster.queues[queue].committed_ns;
            self.at(at_ns, net::Event::Own(Event::Committed(queue, term)));
        }
        for on in std::mem::take(&mut self.cluster.queues[queue].waiting) {
            self.begin_consumer(on, queue);
        }
        self.feed(queue);
    }

    /// A queue's consumers are cancelled.
    pub fn cancel(&mut self, queue: usize) {
        for on in std::mem::take(&mut self.cluster.queues[queue].consumers) {
            let channel = self.sockets[on.at].own.channels.get_mut(&on.channel);
            let Some((_, tag, _)) = channel.and_then(|channel| channel.consumes.take()) else {
                continue;
            };
            self.marks.set(Mark::ConsumerCancelled);
            let arguments = Arguments::default().text(&tag).octet(0);
            self.say(
                on.at,
                parse::method(on.channel, said::CANCEL, arguments),
                Told::Nothing,
            );
        }
        // What was not acknowledged comes back at once; the channels only remember the tags.
        let mut back = Vec::new();
        for socket in &mut self.sockets {
            for channel in socket.own.channels.values_mut() {
                let of = channel.unacked.values_mut();
                back.extend(
                    of.filter(|unacked| unacked.queue == queue)
                        .map(|unacked| Unacked {
                            queue,
                            item: unacked.item.take(),
                        }),
                );
            }
        }
        for unacked in back {
            self.take_back(unacked);
        }
    }
}
