//! Subscriptions: where they stand, who reads them, and what is sent as far as permits go.

use std::collections::BTreeSet;

use super::parse::{self, Body, Subscribe};
use super::{Answer, Cluster, Event, error, kind};
use crate::marks::Mark;
use crate::net::{self, Told, World};

const EXCLUSIVE: u64 = 0;
const FAILOVER: u64 = 2;
const KEY_SHARED: u64 = 3;

/// Where a subscription stands: entries up to this number are acknowledged, and these beyond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Acked {
    until: usize,
    beyond: BTreeSet<usize>,
}

impl Acked {
    fn add(&mut self, entry: usize) {
        if entry >= self.until {
            self.beyond.insert(entry);
        }
        while self.beyond.remove(&self.until) {
            self.until += 1;
        }
    }

    fn add_all(&mut self, until: usize) {
        self.until = self.until.max(until);
        self.beyond = self.beyond.split_off(&self.until);
        while self.beyond.remove(&self.until) {
            self.until += 1;
        }
    }

    fn has(&self, entry: usize) -> bool {
        entry < self.until || self.beyond.contains(&entry)
    }
}

/// A subscription of a topic.
#[derive(Debug, Default)]
pub struct Cursor {
    kind: u64,
    acked: Acked,
    kept: Acked,
    keep_at_ns: i64,
    /// The next entry.
    read: usize,
    /// Entries that are to be sent again.
    again: BTreeSet<usize>,
    /// Who reads it: connections and numbers, in the order of their names.
    consumers: Vec<(String, usize, u64)>,
    /// With exclusive and failover subscriptions: who is sent everything.
    active: Option<(usize, u64)>,
    turn: usize,
}

impl Cursor {
    /// The topic has another owner, who begins with what was kept. Whether anything was lost by that.
    pub fn reload(&mut self, is_unloaded: bool) -> bool {
        if is_unloaded {
            self.kept = self.acked.clone();
        }
        let has_lost = self.kept != self.acked;
        self.acked = self.kept.clone();
        self.rewind();
        has_lost
    }

    fn rewind(&mut self) {
        self.read = self.acked.until;
        self.again.clear();
    }

    fn keep(&mut self, now_ns: i64, every_ns: i64) {
        if now_ns >= self.keep_at_ns {
            self.keep_at_ns = now_ns + every_ns;
            self.kept = self.acked.clone();
        }
    }

    fn is_shared(&self) -> bool {
        !matches!(self.kind, EXCLUSIVE | FAILOVER)
    }
}

/// A consumer on a connection.
#[derive(Debug)]
pub struct Consumer {
    pub slot: usize,
    pub subscription: String,
    pub permits: i64,
    /// Entries that were sent and are not acknowledged.
    sent: BTreeSet<usize>,
}

impl World<Cluster> {
    pub fn subscribe(&mut self, at: usize, asked: &Subscribe<'_>) {
        let Some(slot) = self.slot_of(asked.topic) else {
            return;
        };
        let Some(later_ns) = self.opening(at, slot, asked.request) else {
            return;
        };
        if self.sockets[at].own.consumers.contains_key(&asked.consumer) {
            self.truth
                .offend(|| format!("consumer {} is opened although it is open", asked.consumer));
            return;
        }
        let topic = &mut self.cluster.topics[slot];
        let end = topic.log.len();
        let cursor = topic
            .cursors
            .entry(asked.subscription.to_owned())
            .or_insert_with(|| {
                let until = if asked.is_earliest { 0 } else { end };
                let acked = Acked {
                    until,
                    beyond: BTreeSet::new(),
                };
                Cursor {
                    kind: asked.kind,
                    kept: acked.clone(),
                    read: until,
                    acked,
                    ..Cursor::default()
                }
            });
        if cursor.kind == EXCLUSIVE && !cursor.consumers.is_empty() {
            self.marks.set(Mark::ConsumerBusy);
            self.fail(at, asked.request, error::CONSUMER_BUSY, later_ns);
            return;
        }
        cursor.consumers.push((asked.name.to_owned(), at, asked.consumer));
        cursor.consumers.sort();
        let consumer = Consumer {
            slot,
            subscription: asked.subscription.to_owned(),
            permits: 0,
            sent: BTreeSet::new(),
        };
        self.sockets[at].own.consumers.insert(asked.consumer, consumer);
        self.answer(
            at,
            kind::SUCCESS,
            Body::default().number(1, asked.request),
            later_ns,
        );
        self.choose(slot, asked.subscription);
    }

    /// Who is sent everything, of a subscription that one consumer reads.
    fn choose(&mut self, slot: usize, subscription: &str) {
        let partition = {
            let first = self
                .topics
                .iter()
                .map(|(_, first, _)| *first)
                .rfind(|first| *first <= slot);
            slot - first.unwrap_or(0)
        };
        let Some(cursor) = self.cluster.topics[slot].cursors.get_mut(subscription) else {
            return;
        };
        if cursor.is_shared() {
            return;
        }
        let chosen = match cursor.consumers.len() {
            0 => None,
            count => {
                let (_, at, id) = &cursor.consumers[partition % count];
                Some((*at, *id))
            }
        };
        if chosen == cursor.active {
            return;
        }
        let before = std::mem::replace(&mut cursor.active, chosen);
        cursor.rewind();
        if cursor.kind == FAILOVER {
            for (who, is_active) in [(before, 0), (chosen, 1)] {
                if let Some((at, id)) = who {
                    let body = Body::default().number(1, id).number(2, is_active);
                    let bytes = parse::frame(kind::ACTIVE_CONSUMER_CHANGE, body, b"");
                    self.say(at, bytes, Told::Nothing);
                }
            }
        }
        self.feed(slot, subscription);
    }

    /// A consumer is not there any more.
    pub fn leave_cursor(&mut self, at: usize, id: u64) {
        let Some(consumer) = self.sockets[at].own.consumers.remove(&id) else {
            return;
        };
        let topic = &mut self.cluster.topics[consumer.slot];
        if let Some(cursor) = topic.cursors.get_mut(&consumer.subscription) {
            cursor.consumers.retain(|(_, a, b)| (*a, *b) != (at, id));
            if cursor.is_shared() {
                cursor.again.extend(consumer.sent);
            }
        }
        self.choose(consumer.slot, &consumer.subscription);
        self.feed(consumer.slot, &consumer.subscription);
    }

    pub fn flow(&mut self, at: usize, id: u64, permits: u64) {
        if permits == 0 {
            self.truth.offend(|| "a consumer grants nothing".to_owned());
        }
        // One that is closed meanwhile is not told.
        if let Some(consumer) = self.sockets[at].own.consumers.get_mut(&id) {
            consumer.permits += permits as i64;
            let (slot, subscription) = (consumer.slot, consumer.subscription.clone());
            self.feed(slot, &subscription);
        }
    }

    /// A topic has one more entry.
    pub fn feed_all(&mut self, slot: usize) {
        let subscriptions: Vec<String> = self.cluster.topics[slot].cursors.keys().cloned().collect();
        for subscription in subscriptions {
            self.feed(slot, &subscription);
        }
    }

    fn permits(&self, (at, id): (usize, u64)) -> i64 {
        let consumer = self.sockets[at].own.consumers.get(&id);
        consumer.map_or(0, |consumer| consumer.permits)
    }

    /// Sends what there is.
    fn feed(&mut self, slot: usize, subscription: &str) {
        loop {
            let topic = &self.cluster.topics[slot];
            let Some(cursor) = topic.cursors.get(subscription) else {
                return;
            };
            let again = cursor.again.first().copied();
            let next = again.or_else(|| {
                let mut entries = cursor.read..topic.log.len();
                entries.find(|entry| !cursor.acked.has(*entry))
            });
            let (Some(next), Some(to)) = (next, next.and_then(|next| self.reader(slot, cursor, next))) else {
                return;
            };
            // As many entries are read as there are permits, and all of them are sent.
            let entries = match cursor.is_shared() {
                true => 1,
                false => self.permits(to).min(self.plan.settings.read_entries),
            };
            let is_again = again.is_some();
            let Some(cursor) = self.cluster.topics[slot].cursors.get_mut(subscription) else {
                return;
            };
            if is_again {
                cursor.again.remove(&next);
                self.send_entry(slot, to, next);
                continue;
            }
            cursor.turn += 1;
            let mut entry = next;
            let mut left = entries;
            while left > 0 && entry < self.cluster.topics[slot].log.len() {
                let Some(cursor) = self.cluster.topics[slot].cursors.get_mut(subscription) else {
                    return;
                };
                cursor.read = entry + 1;
                if !cursor.acked.has(entry) {
                    self.send_entry(slot, to, entry);
                    left -= 1;
                }
                entry += 1;
            }
        }
    }

    /// Who is sent an entry, if anybody has room for it.
    fn reader(&self, slot: usize, cursor: &Cursor, entry: usize) -> Option<(usize, u64)> {
        let has_room = |who: &(usize, u64)| self.permits(*who) > 0;
        if !cursor.is_shared() {
            return cursor.active.filter(has_room);
        }
        let count = cursor.consumers.len();
        let from = match cursor.kind {
            KEY_SHARED => {
                let key = &self.cluster.topics[slot].log[entry].key;
                key.iter()
                    .fold(7usize, |sum, byte| sum.wrapping_mul(31) + usize::from(*byte))
            }
            _ => cursor.turn,
        };
        let tries = if cursor.kind == KEY_SHARED { 1 } else { count };
        (0..tries.min(count))
            .map(|more| {
                let (_, at, id) = &cursor.consumers[from.wrapping_add(more) % count];
                (*at, *id)
            })
            .find(has_room)
    }

    fn send_entry(&mut self, slot: usize, (at, id): (usize, u64), entry: usize) {
        let stored = &self.cluster.topics[slot].log[entry];
        let (number, messages) = (stored.number, i64::from(stored.messages));
        let body = Body::default().number(1, id).entry(2, stored.id).number(3, 0);
        let bytes = parse::frame(kind::MESSAGE, body, &stored.payload);
        let told = self.told(at, vec![number], &[], 0);
        if let Told::Delivered(delivery) = &told
            && self
                .truth
                .delivered
                .contains_key(&(delivery.subscription, number))
        {
            self.marks.set(Mark::DeliveredAgain);
        }
        if let Some(consumer) = self.sockets[at].own.consumers.get_mut(&id) {
            if consumer.permits < messages {
                self.marks.set(Mark::PermitsOverdrawn);
            }
            consumer.permits -= messages;
            consumer.sent.insert(entry);
        }
        self.say(at, bytes, told);
    }

    /// Entries are acknowledged.
    pub fn acked(&mut self, at: usize, id: u64, is_cumulative: bool, entries: &[(i64, i64)]) {
        // One that is closed meanwhile is not told.
        let Some(consumer) = self.sockets[at].own.consumers.get(&id) else {
            return;
        };
        let (slot, subscription) = (consumer.slot, consumer.subscription.clone());
        let now_ns = self.now_ns();
        let every_ns = self.plan.settings.persist_ns;
        let topic = &mut self.cluster.topics[slot];
        if topic.lost_acks.next().is_some() {
            self.marks.set(Mark::AcksLost);
            self.close_consumers(slot);
            return;
        }
        let numbers: Option<Vec<usize>> = entries.iter().map(|id| topic.index.get(id).copied()).collect();
        let (Some(numbers), Some(cursor)) = (numbers, topic.cursors.get_mut(&subscription)) else {
            self.truth
                .offend(|| format!("entries are acknowledged that are not there: {entries:?}"));
            return;
        };
        if numbers.is_empty() || is_cumulative && (cursor.is_shared() || numbers.len() > 1) {
            self.truth
                .offend(|| format!("{} entries are acknowledged together", numbers.len()));
            return;
        }
        for number in numbers {
            match is_cumulative {
                true => cursor.acked.add_all(number + 1),
                false => cursor.acked.add(number),
            }
            cursor.again.remove(&number);
            if let Some(consumer) = self.sockets[at].own.consumers.get_mut(&id) {
                consumer.sent.remove(&number);
            }
        }
        cursor.keep(now_ns, every_ns);
    }

    /// A consumer asks for the end of its topic.
    pub fn tell_end(&mut self, at: usize, id: u64, request: u64) {
        let Some(consumer) = self.sockets[at].own.consumers.get(&id) else {
            self.fail(at, request, error::METADATA, 0);
            return;
        };
        let (slot, subscription) = (consumer.slot, consumer.subscription.clone());
        let later_ns = match self.cluster.topics[slot].ends.next() {
            None => 0,
            Some(answer) => {
                self.marks.set(Mark::EndRefused);
                match answer {
                    Answer::Late(for_ns) => for_ns,
                    Answer::Silence | Answer::Elsewhere => return,
                    Answer::Error(error) => {
                        self.fail(at, request, error, 0);
                        return;
                    }
                }
            }
        };
        let topic = &self.cluster.topics[slot];
        let none = (-1, -1);
        let last = topic.log.last().map_or(none, |stored| stored.id);
        let until = topic
            .cursors
            .get(&subscription)
            .map_or(0, |cursor| cursor.acked.until);
        let acked = match until {
            0 => none,
            until => topic.log[until - 1].id,
        };
        let mut body = Body::default().entry(1, last).number(2, request);
        // Consumers of which each reads a part know the end by that alone.
        if self.plan.settings.tells_mark_delete || self.plan.settings.kind != "exclusive" {
            body = body.entry(3, acked);
        }
        let bytes = parse::frame(kind::LAST_MESSAGE_ID_RESPONSE, body, b"");
        let made_ns = self.now_ns();
        let delay_ns = self.draw(1_000, self.scenario.service_ns) + later_ns;
        let event = Event::Say(at, bytes, vec![slot], made_ns);
        self.after(delay_ns, net::Event::Own(event));
    }
}
