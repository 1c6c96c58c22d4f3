//! A producer: messages are gathered per partition, batches leave per broker, and every message comes to an end.
//!
//! A partition's batches pass through `open` (being filled), `queue` (full, or to be sent again) and a request on its leader's
//! connection. While a broker has as many requests as it may, an open batch that is due stays open and goes on growing: waiting
//! makes requests larger instead of more numerous, as in Kafka's own client. One Produce request takes one batch of each partition
//! that is ready, up to [`REQUEST_BYTES_MAX`].
//!
//! # Order
//!
//! Batches of a partition are numbered. When one must be sent again, those behind it wait until nothing of the partition is under
//! way, and then go in their order. What was under way together with it may have been stored before it, unless idempotence is on:
//! then the broker refuses what comes out of order (KIP-98, KIP-185).

use std::collections::VecDeque;

use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};
use gauge_load::stamp::{self, Stamp};
use gauge_load::{Departure, Observer};

use super::batch::{Batch, Opening};
use super::compress::Compressor;
use super::connection::{Cargo, Connection, Lost};
use super::errors::kind;
use super::link::{Link, NO_LINK};
use super::record_batch::{self, HEADER_BYTES, RecordSize, Shape};
use super::sender::Trouble;
use super::shared::{Commons, Shared};
use crate::keys::{KEY_BYTES, Partitioner, decimal};
use crate::lingering::Lingering;
use crate::source::{Held, Next, Source};
use crate::{BatchPolicy, ClientError, Ready};

/// A Produce request ends when the next batch would make it longer than this (the Java client's max.request.size).
pub(crate) const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Answers to Produce are short.
pub(super) const INPUT_BYTES: usize = 8 << 10;
/// Requests under way that an idempotent producer may have.
pub(crate) const IDEMPOTENT_WINDOW_MAX: usize = 5;

/// What travels with a request: its batches by partition. An answer takes them out one by one.
#[derive(Debug, Default)]
pub(super) struct Flight {
    pub batches: Vec<(u32, Option<Box<Batch>>)>,
    /// Batches that are written from where they are: (position in the head, index in `batches`).
    pub pieces: Vec<(usize, usize)>,
    /// Whether `batches` was sorted by partition, to be searched.
    pub is_sorted: bool,
}

impl Cargo for Flight {
    fn piece(&self, index: usize) -> Option<(usize, &[u8])> {
        let (head_end, batch) = *self.pieces.get(index)?;
        let (_, batch) = self.batches.get(batch)?;
        batch.as_ref().map(|batch| (head_end, batch.bytes()))
    }
}

/// One partition of the producer's topic.
#[derive(Debug)]
pub(super) struct Lot {
    /// Index of its leader's link, or [`NO_LINK`].
    pub link: u32,
    pub open: Option<Box<Batch>>,
    pub queue: VecDeque<Box<Batch>>,
    /// Batches under way.
    pub in_flight: u32,
    /// A batch must be sent again: nothing leaves before everything under way has come back.
    pub is_retrying: bool,
    /// Whether it stands in its link's list of partitions with something to send.
    pub is_listed: bool,
    /// Errors since the last success.
    pub attempts: u32,
    /// Nothing leaves before this time.
    pub retry_at_ns: i64,
    pub next_serial: u64,
    pub next_sequence: i32,
}

impl Lot {
    fn new() -> Lot {
        Lot {
            link: NO_LINK,
            open: None,
            queue: VecDeque::new(),
            in_flight: 0,
            is_retrying: false,
            is_listed: false,
            attempts: 0,
            retry_at_ns: i64::MIN,
            next_serial: 0,
            next_sequence: 0,
        }
    }
}

/// A broker and the partitions that have something for it.
#[derive(Debug)]
pub(super) struct Outlet {
    pub link: Link<Flight>,
    pub ready: VecDeque<u32>,
}

/// The idempotent producer's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// Idempotence is off.
    None,
    /// A new one is needed, and is asked for when nothing is under way.
    Wanted,
    Asked,
    Known {
        id: i64,
        epoch: i16,
    },
}

/// A producer.
pub(crate) struct Producer {
    /// Its place among the lane's producers.
    pub(super) index: usize,
    id: u32,
    pub(super) topic: String,
    pub(super) held: Held,
    partitioner: Partitioner,
    pub(super) lots: Vec<Lot>,
    pub(super) outlets: Vec<Outlet>,
    /// The shape of the latest record without a key.
    shape: Shape,
    lingering: Lingering,
    /// Partitions that wait for a retry: (when, partition).
    pub(super) delayed: Vec<(i64, u32)>,
    /// Length of the latest batch: the next one begins in a buffer of that size.
    pub(super) typical_bytes: usize,
    pub(super) request_bytes_max: usize,
    /// Requests under way per connection.
    window: usize,
    pub(super) waiting_batches: usize,
    pub(super) identity: Identity,
    /// Not asked for before this time.
    pub(super) identity_after_ns: i64,
    pub(super) compressor: Compressor,
    pub(super) scratch: Vec<u8>,
    pub(super) spare_flights: Vec<Flight>,
}

impl Producer {
    pub fn new(index: usize, shared: &Shared) -> Result<Producer, ClientError> {
        let spec = &shared.spec.producers[index];
        let topic = &shared.spec.topics[spec.topic];
        let partitions = topic.partitions as usize;
        let batch_bytes = shared.spec.batch.bytes.max(HEADER_BYTES + 1);
        let compressor = Compressor::new(shared.spec.compression)
            .map_err(|error| ClientError::system(format!("cannot prepare compression: {error}")))?;
        Ok(Producer {
            index,
            id: spec.id,
            topic: topic.name.clone(),
            held: Held::new(topic),
            partitioner: Partitioner::new(spec, topic),
            lots: (0..partitions).map(|_| Lot::new()).collect(),
            outlets: Vec::new(),
            shape: Shape::default(),
            lingering: Lingering::default(),
            delayed: Vec::new(),
            typical_bytes: 0,
            request_bytes_max: REQUEST_BYTES_MAX
                .min(batch_bytes.saturating_mul(partitions))
                .max(batch_bytes),
            window: window(shared.spec.batch.in_flight, shared.spec.idempotence),
            waiting_batches: 0,
            identity: if shared.spec.idempotence {
                Identity::Wanted
            } else {
                Identity::None
            },
            identity_after_ns: i64::MIN,
            compressor,
            scratch: Vec::new(),
            spare_flights: Vec::new(),
        })
    }

    /// Whether batches can be numbered, or need not be. Nothing leaves while an identity is wanted or asked for.
    pub(super) fn has_identity(&self) -> bool {
        matches!(self.identity, Identity::None | Identity::Known { .. })
    }

    /// Whether nothing is under way: before, an identity is not asked for.
    pub(super) fn is_at_rest(&self) -> bool {
        self.lots.iter().all(|lot| lot.in_flight == 0)
    }

    /// Whether one more request may be under way on a connection.
    pub(super) fn has_window(&self, outlet: &Outlet) -> bool {
        outlet
            .link
            .connection
            .as_ref()
            .is_some_and(|connection| connection.is_open() && connection.in_flight() < self.window)
    }

    /// Opens a batch for a message that found no room in its partition; returns in which partition. Without keys, a full batch means
    /// the next partition.
    fn open_for(
        &mut self,
        at: usize,
        departure: &Departure<'_>,
        key: Option<&[u8]>,
        shared: &mut Shared,
        timestamp_ms: i64,
    ) -> usize {
        self.close_open(at);
        let at = match self.partitioner.is_sticky() {
            true => {
                self.partitioner.advance(|at| has_leader(&self.lots, at));
                self.partitioner.turn()
            }
            false => at,
        };
        if self.lots[at].open.is_none() {
            let first = record_batch::record_size(0, 0, key.map(<[u8]>::len), departure.payload_bytes());
            let bytes = self.typical_bytes.max(HEADER_BYTES + first.bytes);
            self.open(at, bytes, shared, timestamp_ms, departure.lingers_from_ns());
        }
        at
    }

    fn open(&mut self, at: usize, bytes: usize, shared: &mut Shared, timestamp_ms: i64, now_ns: i64) {
        let lot = &mut self.lots[at];
        let due_ns = now_ns.saturating_add(shared.spec.batch.linger_ns);
        let opening = Opening {
            producer: self.id,
            partition: at as u32,
            serial: lot.next_serial,
            timestamp_ms,
            now_ns,
            due_ns,
            bytes,
            is_probe: false,
        };
        let mut batch = shared.own.batches.open(&mut shared.own.buffers, &opening);
        batch.charged_bytes = HEADER_BYTES;
        shared.buffered_bytes += HEADER_BYTES;
        lot.next_serial += 1;
        lot.open = Some(batch);
        self.waiting_batches += 1;
        let is_due = due_ns <= now_ns || self.held.is_flushing;
        if is_due {
            self.list(at);
        }
        // The turn may have begun before: for it such a batch is not due yet, and the next turn has to find it.
        if !is_due || !mutants::is(Mutant::LateOpeningForgotten) {
            self.lingering.opened(at, due_ns);
        }
    }

    fn close_open(&mut self, at: usize) {
        if let Some(batch) = self.lots[at].open.take() {
            self.held.queued_bytes += batch.len();
            self.lots[at].queue.push_back(batch);
            self.list(at);
        }
    }

    /// Puts a partition into its leader's list of partitions with something to send.
    pub(super) fn list(&mut self, at: usize) {
        let lot = &mut self.lots[at];
        if (lot.is_listed && !mutants::is(Mutant::ListedTwice)) || lot.link == NO_LINK {
            return;
        }
        lot.is_listed = true;
        self.outlets[lot.link as usize].ready.push_back(at as u32);
    }

    /// Whether an open batch may leave.
    pub(super) fn is_due(&self, batch: &Batch, now_ns: i64) -> bool {
        self.held.is_flushing || batch.due_ns <= now_ns
    }

    fn list_due(&mut self, now_ns: i64) {
        while let Some(at) = self
            .lingering
            .next(now_ns, |at| self.lots[at].open.as_ref().map(|batch| batch.due_ns))
        {
            self.list(at);
        }
    }

    fn list_delayed(&mut self, now_ns: i64) {
        let mut at = 0;
        while at < self.delayed.len() {
            let (retry_at_ns, lot) = self.delayed[at];
            if retry_at_ns <= now_ns {
                self.delayed.swap_remove(at);
                self.list(lot as usize);
            } else {
                at += 1;
            }
        }
    }

    fn drive_outlet(
        &mut self,
        at: usize,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Lost> {
        let link = &mut self.outlets[at].link;
        link.ensure(&shared.own.cluster, &shared.poller, INPUT_BYTES, now_ns)?;
        if let Some(connection) = &link.connection {
            connection.check_deadline(now_ns)?;
        }
        self.send(at, shared, observer, now_ns)
    }

    /// A batch has come to its end.
    pub(super) fn close(&mut self, batch: Box<Batch>, shared: &mut Shared) {
        match batch.is_probe {
            true => self.held.ended(0, 1),
            false => self.held.ended(u64::from(batch.ledger.messages()), 0),
        }
        self.waiting_batches -= 1;
        shared.buffered_bytes -= batch.charged_bytes;
        shared.own.batches.close(&mut shared.own.buffers, batch);
    }

    /// Gives up on what has waited for longer than it may be retried.
    fn expire(&mut self, shared: &mut Shared, observer: &mut Observer, now_ns: i64) {
        let oldest_ns = now_ns.saturating_sub(shared.spec.retry_for_ns);
        for at in 0..self.lots.len() {
            while let Some(first) = self.lots[at].queue.iter().position(|batch| !batch.is_probe)
                && self.lots[at].queue[first].first_sent_ns <= oldest_ns
                && let Some(batch) = self.lots[at].queue.remove(first)
            {
                self.held.queued_bytes -= batch.len();
                self.fail(batch, kind::RETRY_TIME_OVER, shared, observer);
            }
            let is_old = |batch: &Batch| batch.first_sent_ns <= oldest_ns && batch.due_ns <= now_ns;
            if self.lots[at].open.as_deref().is_some_and(is_old)
                && let Some(batch) = self.lots[at].open.take()
            {
                self.fail(batch, kind::RETRY_TIME_OVER, shared, observer);
            }
        }
    }
}

impl Source<Commons> for Producer {
    fn check(&self) {
        let mut under_way = vec![0; self.lots.len()];
        let mut msgs: u64 = 0;
        let connections = self
            .outlets
            .iter()
            .filter_map(|outlet| outlet.link.connection.as_ref());
        let requests = connections.flat_map(Connection::requests);
        for (lot, batch) in requests.flat_map(|request| &request.cargo.batches) {
            if let Some(batch) = batch {
                under_way[*lot as usize] += 1;
                msgs += u64::from(batch.ledger.messages());
            }
        }
        let mut batches = 0;
        for (lot, under_way) in self.lots.iter().zip(under_way) {
            assert_eq!(lot.in_flight, under_way, "batches of a partition under way");
            batches += lot.queue.len() + usize::from(lot.open.is_some()) + under_way as usize;
            let held = lot.queue.iter().chain(&lot.open);
            msgs += held.map(|batch| u64::from(batch.ledger.messages())).sum::<u64>();
        }
        assert_eq!(self.waiting_batches, batches, "batches without an end");
        assert_eq!(self.held.msgs, msgs, "messages without an end");
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn held_mut(&mut self) -> &mut Held {
        &mut self.held
    }

    /// Whether everything can be sent: leaders known, connections open, identity known.
    fn is_ready(&self) -> bool {
        self.has_identity()
            && self.lots.iter().all(|lot| lot.link != NO_LINK)
            && self
                .outlets
                .iter()
                .all(|outlet| outlet.link.members == 0 || outlet.link.is_open())
    }

    /// Puts a message into the open batch of its partition.
    #[inline]
    fn take(&mut self, departure: &Departure<'_>, shared: &mut Shared) {
        let timestamp_ms = shared.own.unix_ms(departure.sent_ns);
        let mut digits = [0u8; KEY_BYTES];
        let key = departure.key.map(|key| decimal(key, &mut digits));
        let lots = &self.lots;
        let at = self
            .partitioner
            .place(key, record_batch::partition_of, |at| has_leader(lots, at));
        if let Some(batch) = self.lots[at].open.as_deref_mut() {
            if key.is_none() && put_shaped(batch, &mut self.shape, departure, shared, timestamp_ms) {
                return;
            }
            let size = batch.size_of_next(timestamp_ms, key, departure.payload_bytes());
            if batch.len() + size.bytes <= shared.spec.batch.bytes {
                put(batch, size, departure, key, shared, timestamp_ms);
                return;
            }
        }
        let at = self.open_for(at, departure, key, shared, timestamp_ms);
        if let Some(batch) = self.lots[at].open.as_deref_mut() {
            let size = batch.size_of_next(timestamp_ms, key, departure.payload_bytes());
            put(batch, size, departure, key, shared, timestamp_ms);
        }
    }

    fn batch_bytes(&self, _shared: &Shared) -> usize {
        self.request_bytes_max
    }

    fn next(&self) -> Next {
        if !self.partitioner.is_sticky() {
            return Next::Any;
        }
        let open = self.lots[self.partitioner.turn()].open.as_deref();
        open.map_or(Next::NEW, |batch| Next::One {
            bytes: batch.len(),
            msgs: batch.records as usize,
        })
    }

    fn fitting(&self, bytes: usize, msgs: usize, payload_bytes: usize, shared: &Shared) -> usize {
        let BatchPolicy {
            bytes: bytes_max,
            linger_ns,
            ..
        } = shared.spec.batch;
        // The last message of a batch is that much younger than its first at most.
        let delta_ms = linger_ns / 1_000_000 + 1;
        let key_bytes = (!self.partitioner.is_sticky()).then_some(KEY_BYTES);
        let bytes = bytes.max(HEADER_BYTES);
        record_batch::room(bytes, msgs as u32, bytes_max, delta_ms, key_bytes, payload_bytes)
    }

    fn could_send(&self, _now_ns: i64) -> bool {
        (self.has_identity() || mutants::is(Mutant::IdentitySpins))
            && self
                .outlets
                .iter()
                .any(|outlet| !outlet.ready.is_empty() && self.has_window(outlet))
    }

    fn send_probe(&mut self, at: usize, probe: &Stamp, shared: &mut Shared) {
        let now_ns = probe.intended_ns;
        let lot = &mut self.lots[at];
        let timestamp_ms = shared.own.unix_ms(now_ns);
        let opening = Opening {
            producer: self.id,
            partition: at as u32,
            serial: lot.next_serial,
            timestamp_ms,
            now_ns,
            due_ns: now_ns,
            bytes: HEADER_BYTES + 2 * stamp::STAMP_BYTES,
            is_probe: true,
        };
        lot.next_serial += 1;
        let mut batch = shared.own.batches.open(&mut shared.own.buffers, &opening);
        let size = record_batch::record_size(0, 0, None, stamp::STAMP_BYTES);
        let place = batch.append(
            &mut shared.own.buffers,
            size,
            timestamp_ms,
            None,
            stamp::STAMP_BYTES,
        );
        stamp::write(place, probe, stamp::tail_crc(&[]));
        self.held.queued_bytes += batch.len();
        self.waiting_batches += 1;
        lot.queue.push_back(batch);
        self.list(at);
    }

    /// From now on batches leave without waiting for their linger.
    fn flush(&mut self) {
        self.held.is_flushing = true;
        self.list_due(i64::MAX);
    }

    fn on_ready(
        &mut self,
        link: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), ClientError> {
        match self.advance(link, ready, shared, observer) {
            Ok(()) => Ok(()),
            Err(Trouble::Lost(lost)) => {
                self.lose(link, &lost, shared, observer, monotonic_ns());
                shared.own.cluster.check_refused(&lost)
            }
            Err(Trouble::Fatal(error)) => Err(error),
        }
    }

    /// Everything that is to be done without an event: connects, lists what is due, sends, gives up on what waited too long.
    /// Returns whether there is room again after an offer that found none.
    fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        self.list_due(now_ns);
        if !self.delayed.is_empty() {
            self.list_delayed(now_ns);
        }
        if self.held.is_expiry_due(now_ns) && self.waiting_batches > 0 {
            self.expire(shared, observer, now_ns);
        }
        self.want_identity(shared, now_ns);
        for at in 0..self.outlets.len() {
            if let Err(lost) = self.drive_outlet(at, shared, observer, now_ns) {
                self.lose(at, &lost, shared, observer, now_ns);
            }
        }
        Ok(())
    }

    fn deadline_ns(&self) -> i64 {
        let mut deadline_ns = self.lingering.deadline_ns();
        for (retry_at_ns, _) in &self.delayed {
            deadline_ns = deadline_ns.min(*retry_at_ns);
        }
        for outlet in &self.outlets {
            deadline_ns = deadline_ns.min(outlet.link.deadline_ns());
        }
        // While something is under way, its answer is what is waited for.
        if self.identity == Identity::Wanted && (self.is_at_rest() || mutants::is(Mutant::DeadlineSpins)) {
            deadline_ns = deadline_ns.min(self.identity_after_ns);
        }
        if self.waiting_batches > 0 {
            deadline_ns = deadline_ns.min(self.held.next_expiry_ns);
        }
        deadline_ns
    }

    fn abandon(&mut self, shared: &mut Shared, observer: &mut Observer) {
        let mut given_up = Vec::new();
        for outlet in &mut self.outlets {
            for request in outlet.link.lose(0) {
                given_up.extend(request.cargo.batches.into_iter().filter_map(|(_, batch)| batch));
            }
            outlet.link.members = 0;
        }
        for lot in &mut self.lots {
            given_up.extend(lot.queue.drain(..));
            given_up.extend(lot.open.take());
        }
        self.held.queued_bytes = 0;
        self.lingering.clear();
        self.delayed.clear();
        for batch in given_up {
            if !batch.is_probe {
                observer.censored(&batch.ledger);
            }
            self.close(batch, shared);
        }
    }
}

/// Requests that may be under way per connection: a broker remembers the last five batches of an idempotent producer (KIP-98), and
/// could not recognise an older one that comes again.
pub(crate) fn window(in_flight: usize, idempotence: bool) -> usize {
    if idempotence {
        in_flight.clamp(1, IDEMPOTENT_WINDOW_MAX)
    } else {
        in_flight.max(1)
    }
}

/// A partition without a leader is passed over while others have one.
fn has_leader(lots: &[Lot], at: usize) -> bool {
    lots[at].link != NO_LINK
}

/// Writes a message into a batch that has room for it.
#[inline]
fn put(
    batch: &mut Batch,
    size: RecordSize,
    departure: &Departure<'_>,
    key: Option<&[u8]>,
    shared: &mut Shared,
    timestamp_ms: i64,
) {
    let value_bytes = departure.payload_bytes();
    let partition = batch.partition as usize;
    let place = batch.append(&mut shared.own.buffers, size, timestamp_ms, key, value_bytes);
    departure.write_into(place, partition);
    enter(batch, departure, size.bytes, shared);
}

/// The same in the usual case: no key, and a record of the same shape as the one before. False: it is not that case, or there is no
/// room.
#[inline]
fn put_shaped(
    batch: &mut Batch,
    shape: &mut Shape,
    departure: &Departure<'_>,
    shared: &mut Shared,
    timestamp_ms: i64,
) -> bool {
    let value_bytes = departure.payload_bytes();
    if !batch.fits(shape, timestamp_ms, value_bytes) {
        *shape = batch.shape_of_next(timestamp_ms, value_bytes);
        if !batch.fits(shape, timestamp_ms, value_bytes) {
            return false;
        }
    }
    if batch.len() + shape.bytes > shared.spec.batch.bytes {
        return false;
    }
    let partition = batch.partition as usize;
    let Some(place) = batch.append_shaped(shape, timestamp_ms) else {
        return false;
    };
    departure.write_into(place, partition);
    enter(batch, departure, shape.bytes, shared);
    true
}

/// Notes a message that was written into a batch.
#[inline]
fn enter(batch: &mut Batch, departure: &Departure<'_>, record_bytes: usize, shared: &mut Shared) {
    let stamp = departure.stamp;
    let value_bytes = departure.payload_bytes();
    batch
        .ledger
        .push(stamp.sequence, stamp.intended_ns, departure.sent_ns, value_bytes);
    batch.charged_bytes += record_bytes;
    shared.buffered_bytes += record_bytes;
}
