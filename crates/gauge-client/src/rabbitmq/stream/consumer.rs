//! A stream consumer: a subscription per stream, [`Options::streams_per_connection`] of them over a connection.
//!
//! It reads from copies that do not lead, where there are any, as RabbitMQ's own clients do. The server sends chunks as far as it has
//! credits: [`Options::credits`] to begin with, half of which are given back when as many chunks were read. Pausing keeps the credits
//! back: what the server had credits for by then still arrives and counts.
//!
//! Credits in larger portions and few streams per connection, because RabbitMQ (3.10) sleeps for a millisecond whenever a connection has
//! no chunk left to send: after each chunk that it was told of and after each credit. A connection with many streams of small chunks
//! spends its time asleep.
//!
//! Streams keep what was read, and a position is a number. After a lost connection the consumer goes on behind the last message that it
//! has seen. Where streams end is not told (before RabbitMQ 3.11): during the drain a second subscription to the last chunk shows it.

use std::rc::Rc;

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};

use super::super::codec::Put;
use super::super::session::error as amqp_error;
use super::links::Links;
use super::locator::{Found, Locator, Place};
use super::options::{Options, stream_of};
use super::producer::LOCATOR;
use super::session::Session;
use super::wire::{self, key};
use crate::lane::Sink;
use crate::shared::{Shared, consumer_token};
use crate::stream::{Backoff, Lost};
use crate::{ClientError, LaneSpec, Ready, StartAt};

/// Numbers of subscriptions are bytes, of which the upper half asks for the ends of streams.
pub(super) const END_BIT: u8 = 0x80;
/// How often the ends of streams are asked for, during the drain.
const ASK_NS: i64 = 200_000_000;
/// A stream that shows no last chunk within this time is empty.
const EMPTY_NS: i64 = 1_000_000_000;

/// Where a subscription begins, in the protocol's numbers.
mod from {
    pub const FIRST: u16 = 1;
    pub const LAST: u16 = 2;
    pub const NEXT: u16 = 3;
    pub const OFFSET: u16 = 4;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its place is being looked for.
    Lost,
    /// A subscription was asked for on this connection.
    Subscribing(usize),
    /// Chunks come over this connection.
    Reading(usize),
}

/// What is known of a stream's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Unknown,
    /// Asked for at this time.
    Asked(i64),
    /// The same, and the server has said that it will answer: with the last chunk, when there is one.
    Awaited(i64),
    /// The offset of the message that will be written next.
    At(u64),
}

/// A stream.
#[derive(Debug)]
pub(super) struct Position {
    pub slot: usize,
    pub stream: String,
    pub state: State,
    /// Number of its subscription on its connection.
    pub subscription: u8,
    /// It was subscribed to once: its position is fixed.
    pub has_begun: bool,
    /// Offset of the next message; None: none was seen.
    pub next: Option<u64>,
    /// Offset behind the last message that was stored as read.
    pub stored: Option<u64>,
    /// Credits that were not given back.
    pub owed: u16,
    pub end: End,
}

impl End {
    /// Everything was read up to here, as far as the server has told; `next`: the offset of the next message, None before any was seen. A stream of
    /// which no last chunk has come is empty: the question stays open, and the first chunk would answer it. A server that has not said that it will
    /// answer may be silent.
    fn is_reached(self, next: Option<u64>, now_ns: i64) -> bool {
        match self {
            End::At(end) => next.unwrap_or(0) >= end,
            End::Awaited(_) if mutants::is(Mutant::RabbitmqStreamEmptyForgotten) => false,
            End::Awaited(at_ns) => next.is_none() && now_ns >= at_ns + EMPTY_NS,
            End::Asked(_) | End::Unknown => false,
        }
    }
}

/// A connection to a node.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The position of each subscription.
    pub positions: Vec<u32>,
    /// Subscriptions were asked for since the connection is open.
    pub is_subscribed: bool,
    /// Commands that are to be sent.
    pub outgoing: Vec<u8>,
}

/// A consumer.
pub(super) struct Consumer {
    pub index: usize,
    pub subscription: usize,
    /// In whose name positions are stored.
    pub name: String,
    pub start: StartAt,
    pub options: Rc<Options>,
    pub positions: Vec<Position>,
    pub links: Links<Link>,
    pub locator: Locator,
    pub found: Vec<Found>,
    pub backoff: Backoff,
    /// Rises with every lost connection, so that another copy is read then.
    pub attempts: usize,
    pub is_paused: bool,
    pub is_draining: bool,
    pub store_interval_ns: Option<i64>,
    pub store_at_ns: i64,
    pub ask_at_ns: i64,
    pub has_messages: bool,
    /// Something has changed that may need a command on a connection.
    pub is_stirred: bool,
    /// Otherwise the connections are left alone until this, so that a turn costs little however many there are.
    pub quiet_until_ns: i64,
}

impl Consumer {
    pub fn new(index: usize, spec: &LaneSpec, options: Rc<Options>) -> Consumer {
        let consumer = &spec.consumers[index];
        let positions = consumer.partitions.iter().map(|&(topic, partition)| Position {
            slot: spec.topics[topic].first_slot + partition as usize,
            stream: stream_of(&spec.topics[topic], partition),
            state: State::Lost,
            subscription: 0,
            has_begun: false,
            next: None,
            stored: None,
            owed: 0,
            end: End::Unknown,
        });
        let positions: Vec<Position> = positions.collect();
        let token = consumer_token(index, LOCATOR);
        let mut locator = Locator::new(token, index, Rc::clone(&options));
        for (at, position) in positions.iter().enumerate() {
            locator.want(at, &position.stream);
        }
        Consumer {
            index,
            subscription: consumer.subscription,
            name: consumer.name.clone(),
            start: consumer.start,
            options,
            positions,
            links: Links::default(),
            locator,
            found: Vec::new(),
            backoff: Backoff::default(),
            attempts: 0,
            // What is read from the beginning is not read before the load begins, when it is resumed.
            is_paused: consumer.start == StartAt::Earliest,
            is_draining: false,
            store_interval_ns: consumer.commit_interval_ns,
            store_at_ns: if consumer.commit_interval_ns.is_some() {
                0
            } else {
                i64::MAX
            },
            ask_at_ns: i64::MAX,
            has_messages: false,
            is_stirred: true,
            quiet_until_ns: i64::MIN,
        }
    }

    /// Streams were found: connects to where they are read.
    fn place(&mut self, found: &mut Vec<Found>, shared: &mut Shared, observer: &mut Observer, now_ns: i64) {
        for (at, place) in found.drain(..) {
            let stream = &self.positions[at].stream;
            match place {
                Ok(place) => {
                    if let Err(lost) = self.settle_down(at, &place, shared, now_ns) {
                        shared.trouble = Some(format!("stream {:?}: {lost}", self.positions[at].stream));
                        observer.error(lost.kind());
                        self.attempts += 1;
                        self.leave(at);
                    }
                }
                Err(response) => {
                    let (kind, words) = wire::meaning(response);
                    shared.trouble = Some(format!("stream {stream:?}: {words}"));
                    if shared.is_prepared {
                        observer.error(kind);
                    }
                }
            }
        }
    }

    fn settle_down(&mut self, at: usize, place: &Place, shared: &Shared, now_ns: i64) -> Result<(), Lost> {
        let peer = match place.replicas.len() {
            0 => &place.leader,
            // The leader is tried last.
            count => match (at + self.attempts) % (count + 1) {
                turn if turn < count => &place.replicas[turn],
                _ if self.attempts == 0 => &place.replicas[0],
                _ => &place.leader,
            },
        };
        let count_max = usize::from(self.options.streams_per_connection);
        let has_room = |link: &Link, _: &Session| !link.is_subscribed && link.positions.len() < count_max;
        let number = match self.links.find(peer, has_room) {
            Some(number) => number,
            None => {
                let number = self.links.vacant();
                let token = consumer_token(self.index, number);
                let session = Session::connect(peer, &shared.poller, token, now_ns)?;
                self.links.put(number, peer.clone(), Link::default(), session);
                number
            }
        };
        self.is_stirred = true;
        if let Some((link, _)) = self.links.get_mut(number) {
            self.positions[at].subscription = link.positions.len() as u8;
            self.positions[at].state = State::Subscribing(number);
            link.positions.push(at as u32);
        }
        Ok(())
    }

    /// A stream is left by its connection.
    fn leave(&mut self, at: usize) {
        self.is_stirred = true;
        let position = &mut self.positions[at];
        position.state = State::Lost;
        position.owed = 0;
        position.end = End::Unknown;
        self.locator.want(at, &position.stream);
    }

    fn drive_link(&mut self, at: usize, shared: &Shared, now_ns: i64) -> Result<(), Lost> {
        let Some((link, session)) = self.links.get_mut(at) else {
            return Ok(());
        };
        session.drive(now_ns)?;
        if session.is_ready() && !link.is_subscribed {
            link.is_subscribed = true;
            for (number, position) in link.positions.iter().enumerate() {
                let position = &mut self.positions[*position as usize];
                let (kind, offset) = match (position.next, self.start) {
                    (Some(offset), _) => {
                        let skipped = u64::from(mutants::is(Mutant::RabbitmqStreamPositionOneTooFar));
                        (from::OFFSET, Some(offset + skipped))
                    }
                    (None, StartAt::Earliest) => (from::FIRST, None),
                    // Of a stream that was lost before anything was seen, what was written meanwhile is not read. Under load that
                    // cannot be: the probe of readiness was seen.
                    (None, StartAt::Latest) => (from::NEXT, None),
                };
                // Whoever is paused subscribes for nothing, and gets what it is owed when it goes on.
                let credits = match self.is_paused && !mutants::is(Mutant::RabbitmqStreamPausedCredited) {
                    true => 0,
                    false => self.options.credits,
                };
                position.owed = self.options.credits - credits;
                put_subscribe(
                    &mut link.outgoing,
                    number as u8,
                    &position.stream,
                    kind,
                    offset,
                    credits,
                );
            }
        }
        self.give_credits(at);
        self.write(at, shared, now_ns)
    }

    /// Gives credits for chunks that were read.
    pub(super) fn give_credits(&mut self, at: usize) {
        if self.is_paused {
            return;
        }
        if let Some((link, _)) = self.links.get_mut(at) {
            for (number, position) in link.positions.iter().enumerate() {
                let owed = &mut self.positions[*position as usize].owed;
                if mutants::is(Mutant::RabbitmqStreamCreditsLost) {
                    *owed = 0;
                }
                if *owed > 0 && *owed >= self.options.credits / 2 {
                    let owed = std::mem::take(owed);
                    wire::put_command(&mut link.outgoing, key::CREDIT, |fields| {
                        fields.put_u8(number as u8);
                        fields.put_u16(owed);
                    });
                }
            }
        }
    }

    pub(super) fn write(&mut self, at: usize, shared: &Shared, now_ns: i64) -> Result<(), Lost> {
        let Some((link, session)) = self.links.get_mut(at) else {
            return Ok(());
        };
        if !link.outgoing.is_empty() && session.is_ready() {
            session.push_control(std::mem::take(&mut link.outgoing), now_ns);
        }
        session.write(&shared.poller, |_| {})
    }

    /// Stores how far the streams were read. The server answers nothing.
    fn store(&mut self) {
        self.is_stirred = true;
        for position in &mut self.positions {
            if let State::Reading(at) = position.state
                && position.next != position.stored
                && let (Some(next), Some((link, _))) = (position.next, self.links.get_mut(at))
            {
                position.stored = position.next;
                wire::put_command(&mut link.outgoing, key::STORE_OFFSET, |fields| {
                    wire::put_text(fields, &self.name);
                    wire::put_text(fields, &position.stream);
                    fields.put_u64(next - 1);
                });
            }
        }
    }

    /// Asks where streams end: the last chunk of each, over a subscription of its own, which ends with the answer.
    fn ask(&mut self, now_ns: i64) {
        self.is_stirred = true;
        for position in &mut self.positions {
            let is_asked = matches!(position.end, End::Asked(_) | End::Awaited(_));
            if let State::Reading(at) = position.state
                && !is_asked
                && let Some((link, _)) = self.links.get_mut(at)
            {
                position.end = End::Asked(now_ns);
                let number = position.subscription | END_BIT;
                put_subscribe(&mut link.outgoing, number, &position.stream, from::LAST, None, 1);
            }
        }
    }

    fn lose(
        &mut self,
        at: usize,
        lost: &Lost,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        let Some((link, _)) = self.links.remove(at) else {
            return Ok(());
        };
        let fault = format!("consumer of subscription {}: {lost}", self.subscription);
        self.attempts += 1;
        self.backoff.pause(now_ns);
        self.locator.pause_until(self.backoff.retry_at_ns());
        for position in link.positions {
            self.leave(position as usize);
        }
        observer.error(lost.kind());
        shared.trouble = Some(fault.clone());
        match lost {
            Lost::Refused(amqp_error::ACCESS_REFUSED, _) => Err(ClientError::system(fault)),
            _ => Ok(()),
        }
    }
}

/// Appends a subscription; its number is also that under which it is answered.
fn put_subscribe(into: &mut Vec<u8>, number: u8, stream: &str, kind: u16, offset: Option<u64>, credits: u16) {
    wire::put_command(into, key::SUBSCRIBE, |fields| {
        fields.put_u32(number.into());
        fields.put_u8(number);
        wire::put_text(fields, stream);
        fields.put_u16(kind);
        if let Some(offset) = offset {
            fields.put_u64(offset);
        }
        fields.put_u16(credits);
    });
}

pub(super) fn put_unsubscribe(into: &mut Vec<u8>, number: u8) {
    wire::put_command(into, key::UNSUBSCRIBE, |fields| {
        fields.put_u32(number.into());
        fields.put_u8(number);
    });
}

impl Sink for Consumer {
    fn subscription(&self) -> usize {
        self.subscription
    }

    fn partitions(&self) -> usize {
        self.positions.len()
    }

    fn assigned(&self) -> usize {
        self.positions
            .iter()
            .filter(|position| position.has_begun)
            .count()
    }

    fn pause(&mut self, paused: bool) {
        self.is_paused = paused;
        self.is_stirred = true;
    }

    fn is_caught_up(&self) -> bool {
        let now_ns = monotonic_ns();
        self.positions
            .iter()
            .all(|position| position.end.is_reached(position.next, now_ns))
    }

    fn flush(&mut self) {
        if !self.is_draining {
            self.is_draining = true;
            self.ask_at_ns = 0;
        }
    }

    fn on_ready(
        &mut self,
        link: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
        until_ns: i64,
    ) -> Result<bool, ClientError> {
        let now_ns = monotonic_ns();
        if link == LOCATOR {
            let mut found = std::mem::take(&mut self.found);
            let result = self.locator.on_ready(ready, shared, now_ns, &mut found);
            self.place(&mut found, shared, observer, now_ns);
            self.found = found;
            return result.map(|()| false);
        }
        match self.advance(link, ready, shared, observer, until_ns) {
            Ok(more) => Ok(more),
            Err(lost) => self.lose(link, &lost, shared, observer, now_ns).map(|()| false),
        }
    }

    fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<bool, ClientError> {
        self.locator.drive(shared, now_ns)?;
        if let Some(interval_ns) = self.store_interval_ns
            && now_ns >= self.store_at_ns
        {
            self.store_at_ns = now_ns + interval_ns;
            self.store();
        }
        if now_ns >= self.ask_at_ns {
            self.ask_at_ns = now_ns + ASK_NS;
            self.ask(now_ns);
        }
        if std::mem::take(&mut self.is_stirred) || now_ns >= self.quiet_until_ns {
            for at in self.links.numbers() {
                if let Err(lost) = self.drive_link(at, shared, now_ns) {
                    self.lose(at, &lost, shared, observer, now_ns)?;
                }
            }
            let deadlines = self.links.iter().map(|(_, session)| session.deadline_ns());
            self.quiet_until_ns = deadlines.fold(i64::MAX, i64::min);
        }
        Ok(false)
    }

    fn deadline_ns(&self) -> i64 {
        self.locator
            .deadline_ns()
            .min(self.quiet_until_ns)
            .min(self.store_at_ns)
            .min(self.ask_at_ns)
    }

    fn abandon(&mut self, shared: &mut Shared, _observer: &mut Observer) {
        let now_ns = monotonic_ns();
        if self.store_interval_ns.is_some() {
            self.store();
        }
        for at in self.links.numbers() {
            // What cannot be written at once is given up.
            let _ = self.write(at, shared, now_ns);
            if let Some((_, mut session)) = self.links.remove(at) {
                session.close(&shared.poller, now_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_does_not_make_a_stream_empty() {
        assert!(
            !End::Asked(0).is_reached(None, 100 * EMPTY_NS),
            "the server may be silent"
        );
        assert!(!End::Awaited(0).is_reached(None, EMPTY_NS - 1));
        assert!(End::Awaited(0).is_reached(None, EMPTY_NS));
        assert!(
            !End::Awaited(0).is_reached(Some(3), 100 * EMPTY_NS),
            "it is not empty"
        );
    }

    #[test]
    fn an_end_is_reached_when_the_message_before_it_was_read() {
        assert!(!End::At(3).is_reached(Some(2), 0));
        assert!(End::At(3).is_reached(Some(3), 0));
        assert!(End::At(0).is_reached(None, 0));
        assert!(!End::Unknown.is_reached(Some(3), i64::MAX));
    }
}
