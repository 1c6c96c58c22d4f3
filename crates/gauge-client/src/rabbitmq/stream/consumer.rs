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

use super::super::codec::{Malformed, Put, Reader};
use super::super::session::error as amqp_error;
use super::chunk::Chunk;
use super::links::Links;
use super::locator::{Found, Locator, Place};
use super::message;
use super::options::{Options, stream_of};
use super::producer::LOCATOR;
use super::session::Session;
use super::wire::{self, Frame, code, error, key};
use crate::lane::{Shared, Sink};
use crate::stream::{Backoff, Lost};
use crate::{ClientError, LaneSpec, Ready, StartAt};

/// Numbers of subscriptions are bytes, of which the upper half asks for the ends of streams.
const END_BIT: u8 = 0x80;
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
enum State {
    /// Its place is being looked for.
    Lost,
    /// A subscription was asked for on this connection.
    Subscribing(usize),
    /// Chunks come over this connection.
    Reading(usize),
}

/// What is known of a stream's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Unknown,
    /// Asked for at this time.
    Asked(i64),
    /// The offset of the message that will be written next.
    At(u64),
}

/// A stream.
#[derive(Debug)]
struct Position {
    slot: usize,
    stream: String,
    state: State,
    /// Number of its subscription on its connection.
    subscription: u8,
    /// It was subscribed to once: its position is fixed.
    has_begun: bool,
    /// Offset of the next message; None: none was seen.
    next: Option<u64>,
    /// Offset behind the last message that was stored as read.
    stored: Option<u64>,
    /// Credits that were not given back.
    owed: u16,
    end: End,
}

/// A connection to a node.
#[derive(Debug, Default)]
struct Link {
    /// The position of each subscription.
    positions: Vec<u32>,
    /// Subscriptions were asked for since the connection is open.
    is_subscribed: bool,
    /// Commands that are to be sent.
    outgoing: Vec<u8>,
}

/// A consumer.
pub(super) struct Consumer {
    index: usize,
    subscription: usize,
    /// In whose name positions are stored.
    name: String,
    start: StartAt,
    options: Rc<Options>,
    positions: Vec<Position>,
    links: Links<Link>,
    locator: Locator,
    found: Vec<Found>,
    backoff: Backoff,
    /// Rises with every lost connection, so that another copy is read then.
    attempts: usize,
    is_paused: bool,
    is_draining: bool,
    store_interval_ns: Option<i64>,
    store_at_ns: i64,
    ask_at_ns: i64,
    has_messages: bool,
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
        let token = Shared::consumer_token(index, LOCATOR);
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
            is_paused: false,
            is_draining: false,
            store_interval_ns: consumer.commit_interval_ns,
            store_at_ns: if consumer.commit_interval_ns.is_some() {
                0
            } else {
                i64::MAX
            },
            ask_at_ns: i64::MAX,
            has_messages: false,
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
        let address = match place.replicas.len() {
            0 => place.leader,
            // The leader is tried last.
            count => match (at + self.attempts) % (count + 1) {
                turn if turn < count => place.replicas[turn],
                _ if self.attempts == 0 => place.replicas[0],
                _ => place.leader,
            },
        };
        let count_max = usize::from(self.options.streams_per_connection);
        let has_room = |link: &Link, _: &Session| !link.is_subscribed && link.positions.len() < count_max;
        let number = match self.links.find(address, has_room) {
            Some(number) => number,
            None => {
                let number = self.links.vacant();
                let token = Shared::consumer_token(self.index, number);
                let session = Session::connect(address, &shared.poller, token, now_ns)?;
                self.links.put(number, address, Link::default(), session);
                number
            }
        };
        if let Some((link, _)) = self.links.get_mut(number) {
            self.positions[at].subscription = link.positions.len() as u8;
            self.positions[at].state = State::Subscribing(number);
            link.positions.push(at as u32);
        }
        Ok(())
    }

    /// A stream is left by its connection.
    fn leave(&mut self, at: usize) {
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
                let position = &self.positions[*position as usize];
                let (kind, offset) = match (position.next, self.start) {
                    (Some(offset), _) => (from::OFFSET, Some(offset)),
                    (None, StartAt::Earliest) => (from::FIRST, None),
                    // Of a stream that was lost before anything was seen, what was written meanwhile is not read. Under load that
                    // cannot be: the probe of readiness was seen.
                    (None, StartAt::Latest) => (from::NEXT, None),
                };
                let (number, credits) = (number as u8, self.options.credits);
                put_subscribe(
                    &mut link.outgoing,
                    number,
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
    fn give_credits(&mut self, at: usize) {
        if self.is_paused {
            return;
        }
        if let Some((link, _)) = self.links.get_mut(at) {
            for (number, position) in link.positions.iter().enumerate() {
                let owed = &mut self.positions[*position as usize].owed;
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

    fn write(&mut self, at: usize, shared: &Shared, now_ns: i64) -> Result<(), Lost> {
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
        for position in &mut self.positions {
            let is_asked = matches!(position.end, End::Asked(_));
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

    /// Streams that have shown no last chunk for long are empty: they end where this consumer is.
    fn find_empty(&mut self, now_ns: i64) {
        for position in &mut self.positions {
            if let End::Asked(at_ns) = position.end
                && now_ns - at_ns >= EMPTY_NS
                && position.next.is_none()
            {
                position.end = End::At(0);
                if let State::Reading(at) = position.state
                    && let Some((link, _)) = self.links.get_mut(at)
                {
                    put_unsubscribe(&mut link.outgoing, position.subscription | END_BIT);
                }
            }
        }
    }

    fn advance(
        &mut self,
        at: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
        until_ns: i64,
    ) -> Result<bool, Lost> {
        let now_ns = monotonic_ns();
        let Some((_, session)) = self.links.get_mut(at) else {
            return Ok(false);
        };
        session.advance(ready, now_ns)?;
        if ready.writable {
            self.write(at, shared, now_ns)?;
        }
        if !ready.readable {
            return Ok(false);
        }
        loop {
            let Some((_, session)) = self.links.get_mut(at) else {
                return Ok(false);
            };
            let read = session.read(now_ns);
            let received_ns = monotonic_ns();
            let handled = self.take_frames(at, observer, received_ns);
            if std::mem::take(&mut self.has_messages) {
                self.backoff.works();
                observer.fetched(self.subscription);
                self.give_credits(at);
                self.write(at, shared, received_ns)?;
            }
            handled?;
            if !read? {
                return Ok(false);
            }
            if monotonic_ns() >= until_ns {
                return Ok(true);
            }
        }
    }

    fn take_frames(&mut self, at: usize, observer: &mut Observer, received_ns: i64) -> Result<(), Lost> {
        let options = Rc::clone(&self.options);
        while let Some((link, session)) = self.links.get_mut(at) {
            let Some(frame) = session.next(&options, received_ns)? else {
                return Ok(());
            };
            if frame.key != key::DELIVER {
                self.on_answer(at, frame, observer)?;
                continue;
            }
            let (number, bytes) = session
                .fields(frame)
                .split_first()
                .ok_or(Malformed("an empty delivery"))?;
            let chunk = Chunk::read(bytes)?;
            let Some(&at) = link.positions.get(usize::from(number & !END_BIT)) else {
                return Err(Malformed("it delivers what was not subscribed to").into());
            };
            let position = &mut self.positions[at as usize];
            if number & END_BIT != 0 {
                position.end = End::At(chunk.end_offset());
                put_unsubscribe(&mut link.outgoing, *number);
                continue;
            }
            if !chunk.is_whole() {
                return Err(Lost::Refused(
                    error::CHUNK_CORRUPTED,
                    format!(
                        "the checksum of the chunk at offset {} of stream {:?} does not fit",
                        chunk.first_offset, position.stream
                    ),
                ));
            }
            // A subscription begins with the chunk that holds its offset, not with the offset.
            let (wanted, slot, subscription) = (position.next.unwrap_or(0), position.slot, self.subscription);
            chunk.messages(|offset, bytes| {
                if offset >= wanted {
                    observer.received(subscription, slot, message::body(bytes), received_ns);
                }
            })?;
            position.next = Some(wanted.max(chunk.end_offset()));
            position.owed += 1;
            self.has_messages = true;
        }
        Ok(())
    }

    fn on_answer(&mut self, at: usize, frame: Frame, observer: &mut Observer) -> Result<(), Lost> {
        let Some((link, session)) = self.links.get_mut(at) else {
            return Ok(());
        };
        let mut reader = Reader::new(session.fields(frame));
        match frame.key {
            key::SUBSCRIBE => {
                let (number, response) = wire::outcome(&mut reader)?;
                let number = number as u8;
                let Some(&position) = link.positions.get(usize::from(number & !END_BIT)) else {
                    return Err(Malformed("it answers what was not asked").into());
                };
                let position = &mut self.positions[position as usize];
                if response != code::OK {
                    let (kind, words) = wire::meaning(response);
                    let words = format!("stream {:?}: {words}", position.stream);
                    return Err(Lost::Refused(kind, words));
                }
                if number & END_BIT == 0 {
                    position.state = State::Reading(at);
                    position.has_begun = true;
                }
            }
            // The server has dropped the subscriptions to this stream: it moves, or it was deleted.
            key::METADATA_UPDATE => {
                let (response, stream) = (reader.u16()?, wire::text(&mut reader)?);
                let is_ours = link
                    .positions
                    .iter()
                    .any(|position| self.positions[*position as usize].stream == stream);
                if is_ours {
                    let (kind, words) = wire::meaning(response);
                    return Err(Lost::Refused(kind, format!("stream {stream:?}: {words}")));
                }
            }
            // Only a credit that went wrong is answered, for instance one for a subscription that has just been dropped.
            key::UNSUBSCRIBE | key::CREDIT => {}
            _ => observer.error(crate::stream::kind::MALFORMED_ANSWER),
        }
        Ok(())
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

fn put_unsubscribe(into: &mut Vec<u8>, number: u8) {
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
    }

    fn is_caught_up(&self) -> bool {
        self.positions
            .iter()
            .all(|position| matches!(position.end, End::At(end) if position.next.unwrap_or(0) >= end))
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
            self.find_empty(now_ns);
            self.ask(now_ns);
        }
        for at in self.links.numbers() {
            if let Err(lost) = self.drive_link(at, shared, now_ns) {
                self.lose(at, &lost, shared, observer, now_ns)?;
            }
        }
        Ok(false)
    }

    fn deadline_ns(&self) -> i64 {
        self.links
            .iter()
            .map(|(_, session)| session.deadline_ns())
            .fold(self.locator.deadline_ns(), i64::min)
            .min(self.store_at_ns)
            .min(self.ask_at_ns)
    }

    fn abandon(&mut self, shared: &mut Shared) {
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
