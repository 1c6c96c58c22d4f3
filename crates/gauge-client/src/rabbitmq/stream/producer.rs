//! A stream producer: one connection to each node that leads a stream of its topic, and a publisher per stream.
//!
//! A batch is a publish frame: messages for one stream. The server confirms message by message, several in one frame. What is written
//! and not confirmed is bounded per connection by `in_flight` times `bytes` of the batch policy, as over AMQP; while that is reached, what
//! is due stays and grows.
//!
//! When a connection is lost or a stream has moved, its place is asked for again, and everything without a confirmation is sent again
//! under its publishing numbers, in its order and with its times. A publisher with a name (idempotence) makes the server drop what it had
//! before; without one, duplicates are possible.

use std::collections::VecDeque;
use std::rc::Rc;

use gauge_load::clock::monotonic_ns;
use gauge_load::stamp::{self, Stamp};
use gauge_load::{BatchLedger, Departure, Observer};

use super::super::batch::{Batch, Spares};
use super::super::hash;
use super::super::unconfirmed::{Entry, Settled, Unconfirmed};
use super::links::Links;
use super::locator::{Found, Locator};
use super::options::{Options, stream_of};
use super::publish;
use super::session::Session;
use super::wire::{self, error, key};
use crate::keys::{KEY_BYTES, Partitioner, decimal, every};
use crate::lingering::Lingering;
use crate::shared::{Shared, producer_token};
use crate::source::{Held, Next, Source};
use crate::stream::{Backoff, Lost, kind as lost_kind};
use crate::{Acks, ClientError, LaneSpec, Ready};

/// Publishers of a connection: their numbers are bytes.
pub(super) const PUBLISHERS_MAX: usize = 256;
/// The locator's number among the producer's sockets; connections are numbered from 1.
pub(super) const LOCATOR: usize = 0;

/// Where a partition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its place is being looked for.
    Lost,
    /// A publisher was asked for on this connection.
    Declaring(usize),
    /// Messages may be sent over this connection.
    Open(usize),
}

/// A partition.
#[derive(Debug)]
pub(super) struct Partition {
    pub stream: String,
    pub state: State,
    /// Number of its publisher on its connection.
    pub publisher: u8,
    pub unconfirmed: Unconfirmed,
    /// Below this serial number everything was handed to the connection.
    pub sent_serial: u64,
    pub open: Option<Box<Batch>>,
    /// The open batch has waited for its linger.
    pub is_due: bool,
    pub queue: VecDeque<Box<Batch>>,
    /// Written whole; the last message of the first one is not confirmed.
    pub written: VecDeque<Box<Batch>>,
    /// It is in its connection's list of those that have something to send.
    pub is_pending: bool,
}

/// A connection to a node.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The partition of each publisher.
    pub partitions: Vec<u32>,
    /// Partitions with something to send.
    pub pending: VecDeque<u32>,
    /// Bytes handed to the connection and not confirmed.
    pub in_flight_bytes: usize,
    /// Publishers that were asked for and are not there yet.
    pub declaring: usize,
    /// Publishers were asked for since the connection is open.
    pub is_declared: bool,
    /// When the server answered last, or was given something to answer.
    pub progress_ns: i64,
}

/// A producer.
pub(super) struct Producer {
    pub index: usize,
    pub id: u32,
    pub options: Rc<Options>,
    pub held: Held,
    pub partitioner: Partitioner,
    pub acks: Acks,
    /// What the server knows the producer by, when it is to drop what it has already.
    pub name: String,
    pub partitions: Vec<Partition>,
    pub links: Links<Link>,
    pub locator: Locator,
    pub found: Vec<Found>,
    pub backoff: Backoff,
    pub lingering: Lingering,
    pub settled: Settled,
    pub spares: Spares,
    pub batch_bytes: usize,
    pub window_bytes: usize,
    pub request_timeout_ns: i64,
}

impl Producer {
    pub fn new(index: usize, spec: &LaneSpec, options: Rc<Options>) -> Producer {
        let producer = &spec.producers[index];
        let topic = &spec.topics[producer.topic];
        let partitions = (0..topic.partitions).map(|partition| Partition {
            stream: stream_of(topic, partition),
            state: State::Lost,
            publisher: 0,
            unconfirmed: Unconfirmed::default(),
            sent_serial: 0,
            open: None,
            is_due: false,
            queue: VecDeque::new(),
            written: VecDeque::new(),
            is_pending: false,
        });
        let partitions: Vec<Partition> = partitions.collect();
        let token = producer_token(index, LOCATOR);
        let mut locator = Locator::new(token, producer.id as usize, Rc::clone(&options));
        for (at, partition) in partitions.iter().enumerate() {
            locator.want(at, &partition.stream);
        }
        Producer {
            index,
            id: producer.id,
            held: Held::new(topic),
            partitioner: Partitioner::new(producer, topic),
            acks: spec.acks,
            name: match spec.idempotence {
                true => format!("gauge-{}-{}", spec.run, producer.id),
                false => String::new(),
            },
            links: Links::default(),
            locator,
            found: Vec::new(),
            backoff: Backoff::default(),
            partitions,
            options,
            lingering: Lingering::default(),
            settled: Settled::default(),
            spares: Spares::default(),
            batch_bytes: spec.batch.bytes,
            window_bytes: spec.batch.bytes.saturating_mul(spec.batch.in_flight.max(1)),
            request_timeout_ns: spec.request_timeout_ns,
        }
    }

    /// Gives up on what has waited without a connection for longer than it may be retried.
    fn expire(&mut self, shared: &mut Shared, observer: &mut Observer, now_ns: i64) {
        let oldest_ns = now_ns.saturating_sub(shared.spec.retry_for_ns);
        for at in 0..self.partitions.len() {
            if matches!(self.partitions[at].state, State::Open(_)) {
                continue;
            }
            let is_old = |batch: &Batch| batch.first_sent_ns <= oldest_ns;
            if self.partitions[at].queue.is_empty() && self.partitions[at].open.as_deref().is_some_and(is_old)
            {
                self.close_open(at);
            }
            while self.partitions[at]
                .queue
                .front()
                .is_some_and(|batch| is_old(batch))
                && let Some(batch) = self.partitions[at].queue.pop_front()
            {
                self.held.queued_bytes -= batch.len();
                self.settled.clear(self.id);
                self.partitions[at].unconfirmed.settle_up_to(
                    batch.end_serial() - 1,
                    false,
                    &mut self.settled,
                );
                self.settled.report(observer, now_ns, lost_kind::RETRY_TIME_OVER);
                self.held.ended(self.settled.messages, self.settled.probes);
                shared.buffered_bytes -= self.settled.wire_bytes;
                self.spares.close(batch);
            }
        }
    }

    /// What is to be done on a connection without an event.
    fn drive_link(
        &mut self,
        at: usize,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Lost> {
        let Some((link, session)) = self.links.get_mut(at) else {
            return Ok(());
        };
        session.drive(now_ns)?;
        let is_waiting = link.in_flight_bytes > 0 || link.declaring > 0;
        if is_waiting && now_ns - link.progress_ns >= self.request_timeout_ns {
            return Err(Lost::Timeout);
        }
        if session.is_ready() && !link.is_declared {
            let payload_bytes = shared.spec.payload_bytes_max;
            let frame_bytes = session.frame_bytes_max();
            if publish::FRAME_BYTES + publish::entry_bytes(payload_bytes) > frame_bytes {
                let words = format!(
                    "messages of {payload_bytes} bytes do not fit into its largest frame, {frame_bytes} bytes (stream.frame_max in rabbitmq.conf)"
                );
                return Err(Lost::Refused(error::FRAME_TOO_LARGE, words));
            }
            self.declare(at, now_ns)?;
        }
        self.send(at, shared, observer, now_ns)
    }

    /// Asks for a publisher for each partition of a connection that has just become open.
    fn declare(&mut self, at: usize, now_ns: i64) -> Result<(), Lost> {
        let Some((link, session)) = self.links.get_mut(at) else {
            return Ok(());
        };
        self.batch_bytes = self.batch_bytes.min(session.frame_bytes_max());
        let mut commands = Vec::new();
        for (publisher, partition) in link.partitions.iter().enumerate() {
            let partition = &self.partitions[*partition as usize];
            commands.extend(wire::request(
                key::DECLARE_PUBLISHER,
                publisher as u32,
                |fields| {
                    fields.push(publisher as u8);
                    wire::put_text(fields, &self.name);
                    wire::put_text(fields, &partition.stream);
                },
            ));
        }
        link.is_declared = true;
        link.declaring = link.partitions.len();
        link.progress_ns = now_ns;
        session.push_control(commands, now_ns);
        Ok(())
    }

    /// A partition is left by its connection.
    pub fn leave(&mut self, at: usize) {
        let partition = &mut self.partitions[at];
        partition.state = State::Lost;
        partition.is_pending = false;
        self.locator.want(at, &partition.stream);
    }
}

impl Source for Producer {
    fn check(&self) {
        let queued = self.partitions.iter().flat_map(|partition| &partition.queue);
        let waiting_bytes: usize = queued.map(|batch| batch.len()).sum();
        assert_eq!(self.held.queued_bytes, waiting_bytes, "bytes that wait");
        let under_way_bytes = |partition: &Partition| match partition.state {
            State::Open(_) => {
                let waits = partition.queue.front().or(partition.open.as_ref());
                let from = waits.map_or(partition.unconfirmed.next(), |batch| batch.first_serial);
                partition.unconfirmed.waiting_bytes(from)
            }
            _ => 0,
        };
        let under_way_bytes: usize = self.partitions.iter().map(under_way_bytes).sum();
        let on_links: usize = self.links.iter().map(|(link, _)| link.in_flight_bytes).sum();
        assert_eq!(on_links, under_way_bytes, "bytes under way");
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn held_mut(&mut self) -> &mut Held {
        &mut self.held
    }

    fn is_ready(&self) -> bool {
        self.partitions
            .iter()
            .all(|partition| matches!(partition.state, State::Open(_)))
    }

    fn next(&self) -> Next {
        if !self.partitioner.is_sticky() {
            return Next::Any;
        }
        let open = self.partitions[self.partitioner.turn()].open.as_deref();
        open.map_or(Next::NEW, |batch| Next::One {
            bytes: batch.len(),
            msgs: batch.messages as usize,
        })
    }

    fn fitting(&self, bytes: usize, _msgs: usize, payload_bytes: usize, _shared: &Shared) -> usize {
        let bytes = bytes.max(publish::FRAME_BYTES);
        self.batch_bytes.saturating_sub(bytes) / publish::entry_bytes(payload_bytes)
    }

    fn could_send(&self, _now_ns: i64) -> bool {
        self.links.numbers().any(|at| {
            let pending = self.links.get(at).and_then(|(link, _)| link.pending.front());
            pending.is_some_and(|partition| self.can_send(at, self.next_bytes(*partition as usize)))
        })
    }

    #[inline]
    fn take(&mut self, departure: &Departure<'_>, shared: &mut Shared) {
        let body_bytes = departure.payload_bytes();
        let mut digits = [0; KEY_BYTES];
        let key = departure.key.map(|key| decimal(key, &mut digits));
        let mut at = self.partitioner.place(key, hash::partition_of, every);
        // A sticky producer goes on to the next partition with its next batch.
        if self.make_room(at, body_bytes) && self.partitioner.is_sticky() {
            at = self.partitioner.turn();
        }
        let wire_bytes = self.append(at, body_bytes, shared, departure.lingers_from_ns(), |place| {
            departure.write_into(place, at);
        });
        let stamp = &departure.stamp;
        let entry = Entry::message(
            stamp.sequence,
            stamp.intended_ns,
            departure.sent_ns,
            body_bytes,
            wire_bytes,
        );
        self.partitions[at].unconfirmed.push(entry);
    }

    fn send_probe(&mut self, at: usize, probe: &Stamp, shared: &mut Shared) {
        let now_ns = probe.intended_ns;
        self.make_room(at, stamp::STAMP_BYTES);
        let bytes = self.append(at, stamp::STAMP_BYTES, shared, now_ns, |place| {
            stamp::write(place, probe, stamp::tail_crc(&[]));
        });
        self.partitions[at].unconfirmed.push(Entry::probe(now_ns, bytes));
    }

    fn on_ready(
        &mut self,
        link: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), ClientError> {
        let now_ns = monotonic_ns();
        if link == LOCATOR {
            let mut found = std::mem::take(&mut self.found);
            let result = self.locator.on_ready(ready, shared, now_ns, &mut found);
            let placed = self.place(&mut found, shared, observer, now_ns);
            self.found = found;
            return result.and(placed);
        }
        match self.advance(link, ready, shared, observer) {
            Ok(()) => Ok(()),
            Err(lost) => self.lose(link, &lost, shared, observer, now_ns),
        }
    }

    fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        self.locator.drive(shared, now_ns)?;
        self.mark_due(now_ns);
        for at in self.links.numbers() {
            if let Err(lost) = self.drive_link(at, shared, observer, now_ns) {
                self.lose(at, &lost, shared, observer, now_ns)?;
            }
        }
        if !self.is_ready() && self.held.is_expiry_due(now_ns) {
            self.expire(shared, observer, now_ns);
        }
        Ok(())
    }

    fn deadline_ns(&self) -> i64 {
        let mut deadline_ns = self.locator.deadline_ns().min(self.lingering.deadline_ns());
        for (link, session) in self.links.iter() {
            deadline_ns = deadline_ns.min(session.deadline_ns());
            if link.in_flight_bytes > 0 || link.declaring > 0 {
                deadline_ns = deadline_ns.min(link.progress_ns.saturating_add(self.request_timeout_ns));
            }
        }
        if self.held.msgs > 0 && !self.is_ready() {
            deadline_ns = deadline_ns.min(self.held.next_expiry_ns);
        }
        deadline_ns
    }

    fn abandon(&mut self, shared: &mut Shared, observer: &mut Observer) {
        let mut ledger = BatchLedger::new(self.id);
        for partition in &mut self.partitions {
            partition.unconfirmed.take_all(&mut ledger);
            partition.queue.clear();
            partition.written.clear();
            partition.open = None;
        }
        if !ledger.is_empty() {
            observer.censored(&ledger);
        }
        for at in self.links.numbers() {
            if let Some((_, session)) = self.links.remove(at) {
                close(session, shared);
            }
        }
    }
}

fn close(mut session: Session, shared: &Shared) {
    session.close(&shared.poller, monotonic_ns());
}
