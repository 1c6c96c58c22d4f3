//! An AMQP producer: one connection with one channel in confirm mode.
//!
//! Messages are put into their frames as they are taken and leave in batches: a batch is what is written together, as AMQP has no
//! batches of its own. The server confirms message by message (with the multiple flag, many at a time). What is written and not
//! confirmed is bounded by `in_flight` times `bytes` of the batch policy; while that is reached, what is due stays and grows.
//!
//! When the connection is lost, everything without a confirmation is sent again over the next one, in its order and with its times. The
//! server may have had it before, so duplicates are possible; AMQP has no means against them.

use std::collections::VecDeque;
use std::rc::Rc;

use gauge_load::clock::monotonic_ns;
use gauge_load::stamp::{self, Stamp};
use gauge_load::{BatchLedger, Departure, Observer};

use super::batch::{Batch, Spares};
use super::codec::{self, Put, kind, method, method_frame};
use super::confirms::Returning;
use super::hash;
use super::options::{Options, routing_key};
use super::session::{Session, error};
use super::unconfirmed::{Entry, Settled, Unconfirmed};
use crate::keys::{KEY_BYTES, Partitioner, decimal, every};
use crate::shared::Shared;
use crate::source::{Held, Next, Source};
use crate::stream::{Backoff, Lost, kind as lost_kind};
use crate::{Acks, ClientError, LaneSpec, Ready};

/// The producer's channel.
pub(super) const CHANNEL: u16 = 1;

/// A message's frames up to its body: basic.publish, the content header, and the head of the body's frame.
#[derive(Debug)]
struct Prefix {
    bytes: Vec<u8>,
    /// Where the body's size stands in the content header.
    size_at: usize,
}

impl Prefix {
    fn new(exchange: &str, key: &str, options: &Options) -> Prefix {
        let mut bytes = method_frame(CHANNEL, method::BASIC_PUBLISH, |arguments| {
            // A reserved field.
            arguments.put_u16(0);
            arguments.put_short_string(exchange);
            arguments.put_short_string(key);
            // Bit 0: mandatory.
            arguments.put_u8(u8::from(options.mandatory));
        });
        bytes.put_u8(kind::HEADER);
        bytes.put_u16(CHANNEL);
        // Class, weight, size of the body, flags, delivery-mode.
        bytes.put_u32(2 + 2 + 8 + 2 + 1);
        bytes.put_u16(method::BASIC_PUBLISH.0);
        bytes.put_u16(0);
        let size_at = bytes.len();
        bytes.put_u64(0);
        // Bit 12: the only property is delivery-mode.
        bytes.put_u16(1 << 12);
        bytes.put_u8(if options.persistent { 2 } else { 1 });
        bytes.put_u8(codec::FRAME_END);
        bytes.put(&[kind::BODY]);
        bytes.put_u16(CHANNEL);
        bytes.put_u32(0);
        Prefix { bytes, size_at }
    }

    /// Bytes of a whole message on the wire, when its body fits into one frame.
    fn wire_bytes(&self, payload_bytes: usize) -> usize {
        self.bytes.len() + payload_bytes + 1
    }

    /// Writes everything but the body, whose place it returns.
    #[inline]
    fn write<'a>(&self, into: &'a mut [u8], payload_bytes: usize) -> &'a mut [u8] {
        let (head, rest) = into.split_at_mut(self.bytes.len());
        head.copy_from_slice(&self.bytes);
        head[self.size_at..self.size_at + 8].copy_from_slice(&(payload_bytes as u64).to_be_bytes());
        let length_at = head.len() - 4;
        head[length_at..].copy_from_slice(&(payload_bytes as u32).to_be_bytes());
        rest[payload_bytes] = codec::FRAME_END;
        &mut rest[..payload_bytes]
    }
}

/// A producer.
pub(super) struct Producer {
    pub(super) index: usize,
    pub(super) id: u32,
    pub(super) options: Rc<Options>,
    pub(super) held: Held,
    pub(super) partitioner: Partitioner,
    prefixes: Vec<Prefix>,
    pub(super) acks: Acks,
    pub(super) session: Option<Session>,
    pub(super) backoff: Backoff,
    pub(super) attempts: usize,
    /// channel.open and confirm.select were sent; messages may follow.
    pub(super) is_channel_asked: bool,
    pub(super) is_channel_open: bool,
    pub(super) open: Option<Box<Batch>>,
    pub(super) queue: VecDeque<Box<Batch>>,
    /// Written whole; the last message of the first one is not confirmed.
    pub(super) written: VecDeque<Box<Batch>>,
    pub(super) unconfirmed: Unconfirmed,
    /// Serial number minus delivery tag of this connection.
    pub(super) tag_base: u64,
    /// Below this serial number everything was handed to the connection.
    pub(super) sent_serial: u64,
    /// Bytes handed to the connection and not confirmed.
    pub(super) in_flight_bytes: usize,
    /// When the server confirmed last, or when it was given something to confirm.
    pub(super) progress_ns: i64,
    pub(super) settled: Settled,
    pub(super) returning: Returning,
    pub(super) spares: Spares,
    pub(super) body_bytes_max: usize,
    pub(super) window_bytes: usize,
    pub(super) request_timeout_ns: i64,
}

impl Producer {
    pub fn new(index: usize, spec: &LaneSpec, options: Rc<Options>) -> Producer {
        let producer = &spec.producers[index];
        let topic = &spec.topics[producer.topic];
        let prefixes = (0..topic.partitions)
            .map(|partition| Prefix::new(&topic.name, &routing_key(partition), &options));
        Producer {
            index,
            id: producer.id,
            held: Held::new(topic),
            partitioner: Partitioner::new(producer, topic),
            prefixes: prefixes.collect(),
            options,
            acks: spec.acks,
            session: None,
            backoff: Backoff::default(),
            attempts: 0,
            is_channel_asked: false,
            is_channel_open: false,
            open: None,
            queue: VecDeque::new(),
            written: VecDeque::new(),
            unconfirmed: Unconfirmed::default(),
            tag_base: 0,
            sent_serial: 0,
            in_flight_bytes: 0,
            progress_ns: 0,
            settled: Settled::default(),
            returning: Returning::default(),
            spares: Spares::default(),
            body_bytes_max: usize::MAX,
            window_bytes: spec.batch.bytes.saturating_mul(spec.batch.in_flight.max(1)),
            request_timeout_ns: spec.request_timeout_ns,
        }
    }

    /// Whether a batch of this size may leave now.
    fn can_send(&self, bytes: usize) -> bool {
        let is_open =
            self.is_channel_open && self.session.as_ref().is_some_and(|session| !session.is_blocked());
        is_open && (self.in_flight_bytes == 0 || self.in_flight_bytes + bytes <= self.window_bytes)
    }

    /// The partition of a message; closes the open batch when the message does not fit.
    #[inline]
    fn choose(&mut self, key: Option<u32>, payload_bytes: usize, shared: &Shared) -> usize {
        let bytes = self.prefixes[self.partitioner.turn()].wire_bytes(payload_bytes);
        let is_full = |batch: &Batch| batch.len() + bytes > shared.spec.batch.bytes;
        if self.open.as_deref().is_some_and(is_full) {
            self.close_open();
        }
        let mut digits = [0; KEY_BYTES];
        let key = key.map(|key| decimal(key, &mut digits));
        self.partitioner.place(key, hash::partition_of, every)
    }

    /// Appends a message's frames to the open batch. Returns their length.
    #[inline]
    fn append(
        &mut self,
        partition: usize,
        payload_bytes: usize,
        shared: &mut Shared,
        now_ns: i64,
        write: impl FnOnce(&mut [u8]),
    ) -> usize {
        let batch = self.open.get_or_insert_with(|| {
            let due_ns = now_ns.saturating_add(shared.spec.batch.linger_ns);
            self.spares.open(self.unconfirmed.next(), now_ns, due_ns)
        });
        let prefix = &self.prefixes[partition];
        let before = batch.len();
        if payload_bytes <= self.body_bytes_max && payload_bytes > 0 {
            let place = batch.extend(prefix.wire_bytes(payload_bytes));
            write(prefix.write(place, payload_bytes));
        } else {
            append_in_frames(batch, prefix, payload_bytes, self.body_bytes_max, write);
        }
        batch.messages += 1;
        let bytes = batch.len() - before;
        shared.buffered_bytes += bytes;
        bytes
    }

    fn close_open(&mut self) {
        if let Some(batch) = self.open.take() {
            self.held.queued_bytes += batch.len();
            self.queue.push_back(batch);
            self.partitioner.closed(self.partitioner.turn(), every);
        }
    }

    /// Hands batches to the connection as far as the window allows, and writes.
    fn send(&mut self, shared: &mut Shared, observer: &mut Observer, now_ns: i64) -> Result<(), Lost> {
        loop {
            let is_due = |batch: &Batch| self.held.is_flushing || batch.due_ns <= now_ns;
            let bytes = match (self.queue.front(), self.open.as_deref()) {
                (Some(batch), _) => batch.len(),
                (None, Some(batch)) if is_due(batch) => batch.len(),
                _ => break,
            };
            if !self.can_send(bytes) {
                break;
            }
            if self.queue.is_empty() {
                self.close_open();
            }
            let (Some(batch), Some(session)) = (self.queue.pop_front(), self.session.as_mut()) else {
                break;
            };
            self.held.queued_bytes -= batch.len();
            if self.in_flight_bytes == 0 {
                self.progress_ns = now_ns;
            }
            self.in_flight_bytes += batch.len();
            self.sent_serial = batch.end_serial();
            session.push_batch(batch, now_ns);
            observer.request();
        }
        self.write(shared, observer)
    }

    pub(super) fn write(&mut self, shared: &mut Shared, observer: &mut Observer) -> Result<(), Lost> {
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        let written = &mut self.written;
        let result = session.write(&shared.poller, |batch| written.push_back(batch));
        // What was written whole before the connection broke was sent.
        if self.acks == Acks::None
            && let Some(last) = self.written.back()
        {
            let until = last.end_serial() - 1;
            self.settled.clear(self.id);
            self.unconfirmed.settle_up_to(until, true, &mut self.settled);
            self.settle(shared, observer, monotonic_ns());
        }
        result
    }

    /// Books what has been settled, and drops batches of which nothing waits.
    pub(super) fn settle(&mut self, shared: &mut Shared, observer: &mut Observer, now_ns: i64) {
        self.settled.report(observer, now_ns, error::BASIC_NACK);
        self.held.ended(self.settled.messages, self.settled.probes);
        self.in_flight_bytes -= self.settled.wire_bytes;
        shared.buffered_bytes -= self.settled.wire_bytes;
        self.progress_ns = now_ns;
        let first = self.unconfirmed.first();
        while self
            .written
            .front()
            .is_some_and(|batch| batch.end_serial() <= first)
            && let Some(batch) = self.written.pop_front()
        {
            self.spares.close(batch);
        }
    }

    /// Gives up on what has waited without a connection for longer than it may be retried.
    fn expire(&mut self, shared: &mut Shared, observer: &mut Observer, now_ns: i64) {
        let oldest_ns = now_ns.saturating_sub(shared.spec.retry_for_ns);
        if self.queue.is_empty()
            && self
                .open
                .as_deref()
                .is_some_and(|batch| batch.first_sent_ns <= oldest_ns)
        {
            self.close_open();
        }
        while self
            .queue
            .front()
            .is_some_and(|batch| batch.first_sent_ns <= oldest_ns)
            && let Some(batch) = self.queue.pop_front()
        {
            self.held.queued_bytes -= batch.len();
            self.settled.clear(self.id);
            self.unconfirmed
                .settle_up_to(batch.end_serial() - 1, false, &mut self.settled);
            self.settled.report(observer, now_ns, lost_kind::RETRY_TIME_OVER);
            self.held.ended(self.settled.messages, self.settled.probes);
            shared.buffered_bytes -= self.settled.wire_bytes;
            self.spares.close(batch);
        }
    }

    fn drive_session(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Lost> {
        if self.session.is_none() {
            if !self.backoff.is_over(now_ns) {
                return Ok(());
            }
            self.connect(shared, now_ns)?;
        }
        self.open_channel(now_ns);
        if let Some(session) = &mut self.session {
            session.drive(now_ns)?;
            // A blocked connection is the server's own decision and is waited for; what waits is held by the buffer's limit.
            let is_silent = now_ns - self.progress_ns >= self.request_timeout_ns;
            if self.in_flight_bytes > 0 && is_silent && !session.is_blocked() {
                return Err(Lost::Timeout);
            }
        }
        self.send(shared, observer, now_ns)
    }
}

/// A body that is empty (no body frame at all) or longer than a frame (several). The rare case: it is built aside.
fn append_in_frames(
    batch: &mut Batch,
    prefix: &Prefix,
    payload_bytes: usize,
    body_bytes_max: usize,
    write: impl FnOnce(&mut [u8]),
) {
    let mut body = vec![0; payload_bytes];
    write(&mut body);
    let mut head = prefix.bytes.clone();
    head[prefix.size_at..prefix.size_at + 8].copy_from_slice(&(payload_bytes as u64).to_be_bytes());
    head.truncate(prefix.bytes.len() - codec::FRAME_HEAD_BYTES);
    batch.extend(head.len()).copy_from_slice(&head);
    for piece in body.chunks(body_bytes_max.max(1)) {
        let mut frame = vec![kind::BODY];
        frame.put_u16(CHANNEL);
        frame.put_u32(piece.len() as u32);
        frame.put(piece);
        frame.put_u8(codec::FRAME_END);
        batch.extend(frame.len()).copy_from_slice(&frame);
    }
}

impl Source for Producer {
    fn check(&self) {
        let waiting_bytes: usize = self.queue.iter().map(|batch| batch.len()).sum();
        assert_eq!(self.held.queued_bytes, waiting_bytes, "bytes that wait");
        if self.is_channel_open {
            let under_way_bytes = self.unconfirmed.waiting_bytes(self.sent_serial);
            assert_eq!(self.in_flight_bytes, under_way_bytes, "bytes under way");
        }
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn held_mut(&mut self) -> &mut Held {
        &mut self.held
    }

    fn is_ready(&self) -> bool {
        self.is_channel_open
    }

    fn next(&self) -> Next {
        self.open.as_deref().map_or(Next::NEW, |batch| Next::One {
            bytes: batch.len(),
            msgs: batch.messages as usize,
        })
    }

    fn fitting(&self, bytes: usize, _msgs: usize, payload_bytes: usize, shared: &Shared) -> usize {
        // The last partition's routing key is the longest.
        let wire_bytes = self
            .prefixes
            .last()
            .map_or(1, |prefix| prefix.wire_bytes(payload_bytes));
        let more_frames = payload_bytes / self.body_bytes_max.max(1);
        shared.spec.batch.bytes.saturating_sub(bytes)
            / (wire_bytes + more_frames * codec::FRAME_OVERHEAD_BYTES)
    }

    fn could_send(&self, _now_ns: i64) -> bool {
        self.queue.front().is_some_and(|batch| self.can_send(batch.len()))
    }

    #[inline]
    fn take(&mut self, departure: &Departure<'_>, shared: &mut Shared) {
        let payload_bytes = departure.payload_bytes();
        let partition = self.choose(departure.key, payload_bytes, shared);
        let wire_bytes = self.append(
            partition,
            payload_bytes,
            shared,
            departure.lingers_from_ns(),
            |place| {
                departure.write_into(place, partition);
            },
        );
        let stamp = &departure.stamp;
        let entry = Entry::message(
            stamp.sequence,
            stamp.intended_ns,
            departure.sent_ns,
            payload_bytes,
            wire_bytes,
        );
        self.unconfirmed.push(entry);
    }

    fn send_probe(&mut self, at: usize, probe: &Stamp, shared: &mut Shared) {
        let now_ns = probe.intended_ns;
        let bytes = self.append(at, stamp::STAMP_BYTES, shared, now_ns, |place| {
            stamp::write(place, probe, stamp::tail_crc(&[]));
        });
        self.unconfirmed.push(Entry::probe(now_ns, bytes));
    }

    fn on_ready(
        &mut self,
        _link: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), ClientError> {
        match self.advance(ready, shared, observer) {
            Ok(()) => Ok(()),
            Err(lost) => self.lose(&lost, shared, observer, monotonic_ns()),
        }
    }

    fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        if let Err(lost) = self.drive_session(shared, observer, now_ns) {
            self.lose(&lost, shared, observer, now_ns)?;
        }
        if !self.is_channel_open && self.held.is_expiry_due(now_ns) {
            self.expire(shared, observer, now_ns);
        }
        Ok(())
    }

    fn deadline_ns(&self) -> i64 {
        let mut deadline_ns = match &self.session {
            Some(session) => session.deadline_ns(),
            None => self.backoff.retry_at_ns(),
        };
        // An open batch that may not leave waits for a confirmation, and that is an event.
        if let Some(batch) = &self.open
            && self.queue.is_empty()
            && self.can_send(batch.len())
        {
            deadline_ns = deadline_ns.min(batch.due_ns);
        }
        if self.in_flight_bytes > 0 && !self.session.as_ref().is_some_and(Session::is_blocked) {
            deadline_ns = deadline_ns.min(self.progress_ns.saturating_add(self.request_timeout_ns));
        }
        if !self.is_channel_open && !self.unconfirmed.is_empty() {
            deadline_ns = deadline_ns.min(self.held.next_expiry_ns);
        }
        deadline_ns
    }

    fn abandon(&mut self, shared: &mut Shared, observer: &mut Observer) {
        let mut ledger = BatchLedger::new(self.id);
        self.unconfirmed.take_all(&mut ledger);
        if !ledger.is_empty() {
            observer.censored(&ledger);
        }
        if let Some(mut session) = self.session.take() {
            session.close(&shared.poller, monotonic_ns());
        }
        self.queue.clear();
        self.written.clear();
        self.open = None;
    }
}
