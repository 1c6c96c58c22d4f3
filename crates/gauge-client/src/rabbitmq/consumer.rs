//! An AMQP consumer: one connection, and one channel for each of its queues, so that a queue that cannot be had (its node is down) does
//! not take the others with it.
//!
//! Deliveries are parsed where they were read. With manual acknowledgements many messages are acknowledged at a time, when a quarter of
//! the prefetch window is used or [`ACK_NS`] after the first. Pausing cancels the consumer: the server stops delivering, and what it had
//! sent by then (at most the prefetch window) still arrives and counts.

use std::rc::Rc;

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};
use serde_json::Map;

use super::codec::{self, Frame, Malformed, Put, Reader, kind, method};
use super::options::{ConsumerAcks, Options, queue_name, routing_key};
use super::position::{Position, State, is_fatal};
use super::queues::{self, Begin, put_bind, put_declare};
use super::session::{REPLY_SUCCESS, Session, error};
use crate::lane::Sink;
use crate::shared::{Shared, consumer_token};
use crate::stream::{Backoff, InputBytes, Lost};
use crate::{ClientError, LaneSpec, Ready, StartAt};

/// A frame is at most 128 KiB; several of them are read at once.
const INPUT: InputBytes = InputBytes {
    first: 256 << 10,
    max: 512 << 10,
};
/// The oldest message without an acknowledgement is at most this old when one is sent.
const ACK_NS: i64 = 10_000_000;
/// Messages without an acknowledgement after which one is sent, when the prefetch window is unlimited.
const ACK_MSGS: u32 = 1000;
/// Pause before a queue that could not be had is tried again.
const REOPEN_NS: i64 = 500_000_000;
/// How often queues are asked how many messages they have left, during the drain.
const ASK_NS: i64 = 200_000_000;
/// A longer message is not believed.
const BODY_BYTES_MAX: usize = 512 << 20;

/// A consumer.
pub(super) struct Consumer {
    index: usize,
    subscription: usize,
    start: StartAt,
    options: Rc<Options>,
    positions: Vec<Position>,
    session: Option<Session>,
    backoff: Backoff,
    /// Until then the server may take a connection for alive that was given up as nothing came over it, and hold messages for it that come back when
    /// it notices. It tells of them only while that connection has a consumer, which one that was paused has not.
    doubt_until_ns: i64,
    attempts: usize,
    is_paused: bool,
    is_draining: bool,
    /// Positions with messages that were not acknowledged.
    dirty: Vec<u32>,
    ack_at_ns: i64,
    ack_msgs: u32,
    ask_at_ns: i64,
    /// Answers and acknowledgements that are to be sent.
    outgoing: Vec<u8>,
    has_messages: bool,
}

impl Consumer {
    pub fn new(index: usize, spec: &LaneSpec, options: Rc<Options>) -> Consumer {
        let consumer = &spec.consumers[index];
        let positions = consumer.partitions.iter().map(|&(topic, partition)| Position {
            slot: spec.topics[topic].first_slot + partition as usize,
            queue: match options.is_stream() {
                true => queue_name(&spec.topics[topic].name, partition, 0),
                false => queue_name(&spec.topics[topic].name, partition, consumer.subscription),
            },
            topic,
            partition,
            state: State::Closed(i64::MIN),
            has_begun: false,
            coming_tag: 0,
            delivery_tag: 0,
            unacked: 0,
            body_bytes: None,
            body: Vec::new(),
            next_offset: None,
            left_msgs: None,
            asked_ns: None,
        });
        Consumer {
            index,
            subscription: consumer.subscription,
            start: consumer.start,
            positions: positions.collect(),
            session: None,
            backoff: Backoff::default(),
            doubt_until_ns: i64::MIN,
            attempts: index,
            // What is read from the beginning is not read before the load begins, when it is resumed.
            is_paused: consumer.start == StartAt::Earliest,
            is_draining: false,
            dirty: Vec::new(),
            ack_at_ns: i64::MAX,
            ack_msgs: match options.prefetch_msgs {
                0 => ACK_MSGS,
                prefetch => u32::from(prefetch / 4).clamp(1, ACK_MSGS),
            },
            ask_at_ns: i64::MAX,
            outgoing: Vec::new(),
            has_messages: false,
            options,
        }
    }

    fn connect(&mut self, shared: &Shared, now_ns: i64) -> Result<(), Lost> {
        let server = &shared.servers[self.attempts % shared.servers.len()];
        self.attempts += 1;
        let token = consumer_token(self.index, 0);
        self.session = Some(Session::connect(server, &shared.poller, token, INPUT, now_ns)?);
        Ok(())
    }

    fn drive_session(&mut self, shared: &Shared, now_ns: i64) -> Result<(), Lost> {
        if self.session.is_none() {
            if !self.backoff.is_over(now_ns) {
                return Ok(());
            }
            self.connect(shared, now_ns)?;
        }
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        session.drive(now_ns)?;
        if session.is_ready() {
            self.backoff.works();
            self.drive_positions(shared, now_ns);
            if now_ns >= self.ack_at_ns {
                self.acknowledge();
            }
            if now_ns >= self.ask_at_ns {
                self.ask_at_ns = now_ns + ASK_NS;
                self.ask(now_ns);
            }
        }
        self.write(shared, now_ns)
    }

    fn write(&mut self, shared: &Shared, now_ns: i64) -> Result<(), Lost> {
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        if !self.outgoing.is_empty() {
            session.push_control(std::mem::take(&mut self.outgoing), now_ns);
        }
        session.write(&shared.poller, |_| {})
    }

    /// Opens, cancels and resumes, as is wanted.
    fn drive_positions(&mut self, shared: &Shared, now_ns: i64) {
        for at in 0..self.positions.len() {
            let channel = channel_of(at);
            match (self.positions[at].state, self.is_paused) {
                (State::Closed(at_ns), _) if now_ns >= at_ns => self.open(at, shared, now_ns),
                (State::Consuming, true) => {
                    self.positions[at].state = State::Cancelling;
                    codec::put_method(&mut self.outgoing, channel, method::BASIC_CANCEL, |arguments| {
                        arguments.put_short_string(CONSUMER_TAG);
                        arguments.put_u8(0);
                    });
                }
                (State::Idle, false) => {
                    self.positions[at].state = State::Opening;
                    self.consume(at);
                }
                _ => {}
            }
        }
    }

    /// Opens a queue's channel and asks for its messages, unless it is paused; the first time, makes the queue what the subscription needs.
    fn open(&mut self, at: usize, shared: &Shared, now_ns: i64) {
        let (channel, options) = (channel_of(at), Rc::clone(&self.options));
        let position = &mut self.positions[at];
        position.state = State::Opening;
        let out = &mut self.outgoing;
        codec::put_method(out, channel, method::CHANNEL_OPEN, |arguments| {
            arguments.put_short_string("")
        });
        codec::put_method(out, channel, method::BASIC_QOS, |arguments| {
            // No limit in bytes, which RabbitMQ does not know.
            arguments.put_u32(0);
            arguments.put_u16(options.prefetch_msgs);
            arguments.put_u8(0);
        });
        // A stream is read by every subscription, from where it likes; a queue is emptied.
        let is_stream = options.is_stream();
        let is_bound = !position.has_begun && self.subscription > 0 && !is_stream;
        if is_bound {
            let topic = &shared.spec.topics[position.topic].name;
            put_declare(out, channel, &position.queue, &options);
            put_bind(
                out,
                channel,
                &position.queue,
                topic,
                &routing_key(position.partition),
                &Map::new(),
            );
        }
        if !position.has_begun && self.start == StartAt::Latest && !is_stream {
            codec::put_method(out, channel, method::QUEUE_PURGE, |arguments| {
                arguments.put_u16(0);
                arguments.put_short_string(&position.queue);
                arguments.put_u8(0);
            });
        }
        if !self.is_paused || mutants::is(Mutant::RabbitmqPausedConsumes) {
            self.consume(at);
            return;
        }
        // Whoever is paused asks for messages when it goes on. Before it has begun it must know that there is a queue to ask for them.
        let position = &mut self.positions[at];
        position.state = State::Idle;
        if !position.has_begun && !is_bound {
            position.asked_ns = Some(now_ns);
            put_question(&mut self.outgoing, channel, &position.queue);
        }
    }

    fn consume(&mut self, at: usize) {
        let position = &self.positions[at];
        let begin = self
            .options
            .is_stream()
            .then_some(match (position.next_offset, self.start) {
                (Some(offset), _) => Begin::At(offset),
                (None, StartAt::Earliest) => Begin::First,
                (None, StartAt::Latest) => Begin::Next,
            });
        let (out, channel) = (&mut self.outgoing, channel_of(at));
        queues::put_consume(out, channel, &position.queue, CONSUMER_TAG, begin, &self.options);
    }

    /// Acknowledges everything that was received.
    fn acknowledge(&mut self) {
        for at in self.dirty.drain(..) {
            let position = &mut self.positions[at as usize];
            if position.unacked > 0 {
                position.unacked = 0;
                codec::put_ack(&mut self.outgoing, channel_of(at as usize), position.delivery_tag);
            }
        }
        self.ack_at_ns = i64::MAX;
    }

    /// Asks how many messages the queues have left.
    fn ask(&mut self, now_ns: i64) {
        for (at, position) in self.positions.iter_mut().enumerate() {
            if position.state == State::Consuming && position.asked_ns.is_none() {
                position.asked_ns = Some(now_ns);
                put_question(&mut self.outgoing, channel_of(at), &position.queue);
            }
        }
    }

    fn advance(
        &mut self,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
        until_ns: i64,
    ) -> Result<bool, Lost> {
        let now_ns = monotonic_ns();
        let Some(session) = &mut self.session else {
            return Ok(false);
        };
        session.advance(ready, &shared.poller, now_ns)?;
        if ready.writable {
            self.write(shared, now_ns)?;
        }
        if !ready.readable {
            return Ok(false);
        }
        loop {
            // The session is put aside, so that its bytes can be read while the consumer is changed.
            let Some(mut session) = self.session.take() else {
                return Ok(false);
            };
            let read = session.read(now_ns);
            let received_ns = monotonic_ns();
            let handled = self.take_frames(&mut session, shared, observer, received_ns);
            self.session = Some(session);
            if std::mem::take(&mut self.has_messages) {
                observer.fetched(self.subscription);
                self.write(shared, received_ns)?;
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

    fn take_frames(
        &mut self,
        session: &mut Session,
        shared: &mut Shared,
        observer: &mut Observer,
        received_ns: i64,
    ) -> Result<(), Lost> {
        let options = Rc::clone(&self.options);
        while let Some(frame) = session.next(&options, received_ns)? {
            let at = usize::from(frame.channel) - 1;
            if at >= self.positions.len() {
                return Err(Malformed("a channel that was never opened").into());
            }
            let payload = session.payload(frame);
            match frame.kind {
                kind::METHOD => self.on_method(at, payload, shared, observer, received_ns)?,
                kind::HEADER => self.on_header(at, payload, observer, received_ns)?,
                kind::BODY => self.on_body(at, frame, payload, observer, received_ns)?,
                _ => {}
            }
        }
        Ok(())
    }

    #[inline]
    fn on_method(
        &mut self,
        at: usize,
        payload: &[u8],
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Lost> {
        let position = &mut self.positions[at];
        let mut reader = Reader::new(payload);
        match reader.method()? {
            method::BASIC_DELIVER => {
                reader.short_string()?;
                position.coming_tag = reader.u64()?;
                if mutants::is(Mutant::RabbitmqAckedBeforeWhole) {
                    position.delivery_tag = position.coming_tag;
                }
            }
            method::BASIC_CONSUME_OK => {
                position.state = State::Consuming;
                position.has_begun = true;
            }
            method::QUEUE_BIND_OK => position.has_begun |= position.state == State::Idle,
            // It may have crossed a cancellation by the server, after which the channel is closed.
            method::BASIC_CANCEL_OK
                if position.state == State::Cancelling || mutants::is(Mutant::RabbitmqLateAnswerBelieved) =>
            {
                position.state = State::Idle;
            }
            method::QUEUE_DECLARE_OK if position.asked_ns.take().is_some() => {
                position.has_begun = true;
                reader.short_string()?;
                let (messages, consumers) = (reader.u32()?, reader.u32()?);
                // A stream tells how many messages it holds, read or not. Nothing of it is dropped within a trial.
                let read = u32::try_from(position.next_offset.unwrap_or(0)).unwrap_or(u32::MAX);
                position.left_msgs = Position::is_told(consumers, self.options.is_stream())
                    .then_some(messages.saturating_sub(read));
            }
            // The server cancels a consumer when its queue is deleted or moves to another node.
            method::BASIC_CANCEL if mutants::is(Mutant::RabbitmqCancelIgnored) => {}
            method::BASIC_CANCEL => {
                observer.error(error::CONSUMER_CANCELLED);
                self.close_channel(at, now_ns);
            }
            method::CHANNEL_CLOSE => {
                let closing = codec::read_closing(&mut reader)?;
                codec::put_method(
                    &mut self.outgoing,
                    channel_of(at),
                    method::CHANNEL_CLOSE_OK,
                    |_| {},
                );
                self.positions[at].reset(State::Closed(now_ns + REOPEN_NS));
                if is_fatal(&closing, shared.is_prepared) {
                    return Err(Lost::Refused(error::of(closing.code), closing.words));
                }
                observer.error(error::of(closing.code));
                shared.trouble = Some(closing.words);
            }
            method::CHANNEL_CLOSE_OK => self.positions[at].reset(State::Closed(now_ns + REOPEN_NS)),
            method::CHANNEL_OPEN_OK
            | method::BASIC_QOS_OK
            | method::QUEUE_DECLARE_OK
            | method::BASIC_CANCEL_OK
            | method::QUEUE_PURGE_OK
            | method::CHANNEL_FLOW => {}
            _ => return Err(Malformed("an unexpected method on a consumer's channel").into()),
        }
        Ok(())
    }

    fn close_channel(&mut self, at: usize, now_ns: i64) {
        codec::put_method(
            &mut self.outgoing,
            channel_of(at),
            method::CHANNEL_CLOSE,
            |arguments| {
                arguments.put_u16(REPLY_SUCCESS);
                arguments.put_short_string("cancelled");
                arguments.put_u32(0);
            },
        );
        // Nothing is done with the channel before the server has answered, or the connection is lost.
        self.positions[at].reset(State::Closed(
            now_ns.saturating_add(i64::from(u16::MAX) * REOPEN_NS),
        ));
    }

    #[inline]
    fn on_header(
        &mut self,
        at: usize,
        payload: &[u8],
        observer: &mut Observer,
        received_ns: i64,
    ) -> Result<(), Malformed> {
        let mut reader = Reader::new(payload);
        reader.u32()?;
        let bytes = usize::try_from(reader.u64()?).unwrap_or(usize::MAX);
        if bytes > BODY_BYTES_MAX {
            return Err(Malformed("a message is longer than 512 MiB"));
        }
        let position = &mut self.positions[at];
        if self.options.is_stream()
            && let Some(offset) = queues::stream_offset(&mut reader)?
        {
            position.next_offset = Some(offset + 1);
        }
        position.body_bytes = Some(bytes);
        position.body.clear();
        if bytes == 0 {
            self.deliver(at, &[], observer, received_ns);
        }
        Ok(())
    }

    #[inline]
    fn on_body(
        &mut self,
        at: usize,
        frame: Frame,
        payload: &[u8],
        observer: &mut Observer,
        received_ns: i64,
    ) -> Result<(), Malformed> {
        let position = &mut self.positions[at];
        let Some(bytes) = position.body_bytes else {
            return Err(Malformed("a body without a header"));
        };
        if position.body.is_empty() && frame.until - frame.from == bytes {
            self.deliver(at, payload, observer, received_ns);
            return Ok(());
        }
        position.body.extend_from_slice(payload);
        if position.body.len() > bytes {
            return Err(Malformed("a body is longer than its header says"));
        }
        if position.body.len() == bytes {
            let body = std::mem::take(&mut position.body);
            self.deliver(at, &body, observer, received_ns);
            self.positions[at].body = body;
            self.positions[at].body.clear();
        }
        Ok(())
    }

    /// A whole message is there.
    #[inline]
    fn deliver(&mut self, at: usize, body: &[u8], observer: &mut Observer, received_ns: i64) {
        let position = &mut self.positions[at];
        position.body_bytes = None;
        position.left_msgs = None;
        position.delivery_tag = position.coming_tag;
        observer.received(self.subscription, position.slot, body, received_ns);
        self.has_messages = true;
        if self.options.consumer_acks == ConsumerAcks::Automatic {
            return;
        }
        if position.unacked == 0 {
            self.dirty.push(at as u32);
            self.ack_at_ns = self.ack_at_ns.min(received_ns + ACK_NS);
        }
        position.unacked += 1;
        if position.unacked >= self.ack_msgs {
            position.unacked = 0;
            codec::put_ack(&mut self.outgoing, channel_of(at), position.delivery_tag);
        }
    }

    fn lose(
        &mut self,
        lost: &Lost,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        let fault = format!("consumer of subscription {}: {lost}", self.subscription);
        let is_fatal = match lost {
            Lost::Refused(error::ACCESS_REFUSED, _) => true,
            Lost::Refused(_, _) => !shared.is_prepared,
            _ => false,
        };
        let heartbeat_ns = self.session.take().and_then(|session| session.heartbeat_ns());
        let has_consumers = self
            .positions
            .iter()
            .all(|position| position.state == State::Consuming);
        if let (Lost::Timeout, Some(heartbeat_ns), false) = (lost, heartbeat_ns, has_consumers) {
            self.doubt_until_ns = now_ns.saturating_add(heartbeat_ns);
        }
        self.backoff.pause(now_ns);
        self.outgoing.clear();
        self.dirty.clear();
        self.ack_at_ns = i64::MAX;
        for at in 0..self.positions.len() {
            self.positions[at].reset(State::Closed(i64::MIN));
        }
        observer.error(lost.kind());
        shared.trouble = Some(fault.clone());
        match is_fatal {
            true => Err(ClientError::system(fault)),
            false => Ok(()),
        }
    }
}

/// The only consumer of its channel.
const CONSUMER_TAG: &str = "gauge";

/// Asks whether there is a queue, and how many messages it has left.
fn put_question(out: &mut Vec<u8>, channel: u16, queue: &str) {
    codec::put_method(out, channel, method::QUEUE_DECLARE, |arguments| {
        arguments.put_u16(0);
        arguments.put_short_string(queue);
        // Bit 0: passive.
        arguments.put_u8(1);
        arguments.put_u32(0);
    });
}

fn channel_of(at: usize) -> u16 {
    u16::try_from(at + 1)
        .expect("the number of a consumer's queues was checked against the number of channels")
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
        let now_ns = monotonic_ns();
        now_ns >= self.doubt_until_ns && self.positions.iter().all(|position| position.is_empty(now_ns))
    }

    fn flush(&mut self) {
        if !self.is_draining {
            self.is_draining = true;
            self.ask_at_ns = 0;
        }
    }

    fn on_ready(
        &mut self,
        _link: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
        until_ns: i64,
    ) -> Result<bool, ClientError> {
        match self.advance(ready, shared, observer, until_ns) {
            Ok(more) => Ok(more),
            Err(lost) => self.lose(&lost, shared, observer, monotonic_ns()).map(|()| false),
        }
    }

    fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<bool, ClientError> {
        if let Err(lost) = self.drive_session(shared, now_ns) {
            self.lose(&lost, shared, observer, now_ns)?;
        }
        Ok(false)
    }

    fn deadline_ns(&self) -> i64 {
        let Some(session) = &self.session else {
            return self.backoff.retry_at_ns();
        };
        let mut deadline_ns = session.deadline_ns();
        if session.is_ready() {
            deadline_ns = deadline_ns.min(self.ack_at_ns).min(self.ask_at_ns);
            for position in &self.positions {
                if let State::Closed(at_ns) = position.state {
                    deadline_ns = deadline_ns.min(at_ns);
                }
            }
        }
        deadline_ns
    }

    fn abandon(&mut self, shared: &mut Shared, _observer: &mut Observer) {
        let now_ns = monotonic_ns();
        self.acknowledge();
        // What cannot be written at once is given up.
        let _ = self.write(shared, now_ns);
        if let Some(mut session) = self.session.take() {
            session.close(&shared.poller, now_ns);
        }
    }
}
