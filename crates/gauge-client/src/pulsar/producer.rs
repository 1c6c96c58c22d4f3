//! A Pulsar producer: one producer per partition on the partition's broker, over one connection per broker.
//!
//! Messages are put into batches as they are taken; a batch leaves when it is full or old enough and fewer than `in_flight` batches of its
//! partition are without a receipt. What the partition's broker does not take (its window is used, it is being looked up) waits, bounded
//! by the lane's buffer. The part that listens is in `receipts`.

use std::collections::VecDeque;

use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};
use gauge_load::stamp::{self, Stamp};
use gauge_load::{Departure, Observer};

use super::batch::{Batch, Common, Spares};
use super::commands;
use super::compress::{Compressor, codec_number};
use super::hash::partition_of;
use super::message;
use super::options::Options;
use super::routes::Routes;
use crate::keys::{KEY_BYTES, Partitioner, decimal, every};
use crate::lingering::Lingering;
use crate::shared::{Shared, producer_token};
use crate::source::{Held, Next, Source};
use crate::stream::{InputBytes, Lost, kind as lost_kind};
use crate::{Acks, ClientError, Keys, LaneSpec, Ready};

/// Receipts are short.
const INPUT: InputBytes = InputBytes {
    first: 16 << 10,
    max: 1 << 20,
};
/// What a broker wants to add to a message must fit beside it.
const METADATA_BYTES_MAX: usize = 1024;

/// What waits and travels for one partition.
#[derive(Debug, Default)]
pub(super) struct Partition {
    /// Number of the next message.
    next_sequence: u64,
    /// The batch that is being built.
    open: Option<Box<Batch>>,
    /// Batches to be sent, by their numbers. The first ones may have been sent before.
    pub waiting: VecDeque<Box<Batch>>,
    /// Batches in the connection's queue.
    pub in_stream: usize,
    /// Batches that were written and have no receipt.
    pub flying: VecDeque<Box<Batch>>,
    /// How often its producer was opened.
    pub epoch: u64,
    /// It is in the list of partitions with something to send.
    is_listed: bool,
}

impl Partition {
    /// A batch is to be sent again: before everything that was not sent yet.
    pub fn put_back(&mut self, batch: Box<Batch>) {
        let at = match mutants::is(Mutant::PulsarRetryAtTheEnd) {
            true => self.waiting.len(),
            false => self
                .waiting
                .partition_point(|other| other.sequence < batch.sequence),
        };
        self.waiting.insert(at, batch);
    }
}

/// A producer.
pub(super) struct Producer {
    pub(super) id: u32,
    held: Held,
    partitioner: Partitioner,
    /// A batch holds one key only, so that Key_Shared subscriptions can tell keys apart.
    is_batch_by_key: bool,
    pub(super) acks: Acks,
    pub(super) routes: Routes,
    pub(super) partitions: Vec<Partition>,
    /// Partitions that may have something to send.
    listed: VecDeque<usize>,
    lingering: Lingering,
    common: Common,
    compressor: Compressor,
    spare: Vec<u8>,
    /// Batches that were just written, with their links; used again.
    pub(super) written: Vec<(usize, Box<Batch>)>,
    pub(super) spares: Spares,
    batch_bytes_max: usize,
    in_flight_max: usize,
    pub(super) request_timeout_ns: i64,
    pub(super) payload_bytes_max: usize,
}

impl Producer {
    pub fn new(index: usize, spec: &LaneSpec, options: &Options) -> Producer {
        let producer = &spec.producers[index];
        let topic = &spec.topics[producer.topic];
        let names = (0..topic.partitions).map(|partition| options.partition_name(&topic.name, partition));
        let token = producer_token(index, 0);
        let attempts = producer.id as usize;
        Producer {
            id: producer.id,
            held: Held::new(topic),
            partitioner: Partitioner::new(producer, topic),
            is_batch_by_key: producer.keys == Keys::Keyed
                && options.subscription_type == commands::SubscriptionType::KeyShared,
            acks: spec.acks,
            routes: Routes::new(names, token, INPUT, options.auth.clone(), attempts),
            partitions: (0..topic.partitions).map(|_| Partition::default()).collect(),
            listed: VecDeque::new(),
            lingering: Lingering::default(),
            common: Common {
                name: format!("streamgauge-{:08x}-{}", spec.run, producer.id),
                codec: codec_number(spec.compression),
            },
            compressor: Compressor::new(spec.compression),
            spare: Vec::new(),
            written: Vec::new(),
            spares: Spares::default(),
            batch_bytes_max: spec.batch.bytes,
            in_flight_max: spec.batch.in_flight.max(1),
            request_timeout_ns: spec.request_timeout_ns,
            payload_bytes_max: spec.payload_bytes_max,
        }
    }

    /// The broker does not take larger messages than this: batches stay below, and a message that alone is larger cannot be sent.
    pub(super) fn limit(&mut self, message_bytes_max: usize) -> Result<(), ClientError> {
        let room = message_bytes_max.saturating_sub(METADATA_BYTES_MAX);
        if self.payload_bytes_max > room {
            return Err(ClientError::input(
                "payload.size_bytes",
                format!(
                    "a message of {} bytes is longer than the broker takes (its maxMessageSize is {message_bytes_max}); send shorter ones or raise maxMessageSize",
                    self.payload_bytes_max
                ),
            ));
        }
        self.batch_bytes_max = self.batch_bytes_max.min(room);
        Ok(())
    }

    /// Without keys a batch stays with its partition: when it is full, it leaves and the next partition has its turn.
    #[inline]
    fn leave_full(&mut self, payload_bytes: usize, key: &[u8]) {
        let bytes = message::head_bytes(payload_bytes, key) + payload_bytes;
        let at = self.partitioner.turn();
        if let Some(batch) = &self.partitions[at].open
            && batch.len() + bytes > self.batch_bytes_max
        {
            self.close_open(at);
        }
    }

    /// Without keys, the turn does not wait with a batch that is due and cannot leave, if another partition can send. The batch
    /// stays where it is.
    fn pass_turn(&mut self, now_ns: i64) {
        let turn = self.partitioner.turn();
        if self.partitioner.is_sticky()
            && let Some(batch) = &self.partitions[turn].open
            && (batch.due_ns <= now_ns || self.held.is_flushing)
            && self.way(turn).is_none()
            && (0..self.partitions.len()).any(|at| self.way(at).is_some())
        {
            let mut partitioner = self.partitioner;
            partitioner.advance(|at| self.way(at).is_some());
            self.partitioner = partitioner;
        }
    }

    /// Appends a message to a partition's open batch, whose place for the body `write` fills.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one message, on the hot path"
    )]
    fn append(
        &mut self,
        at: usize,
        payload_bytes: usize,
        key: &[u8],
        key_number: Option<u32>,
        shared: &mut Shared,
        now_ns: i64,
        write: impl FnOnce(&mut [u8]),
    ) -> &mut Batch {
        let bytes = message::head_bytes(payload_bytes, key) + payload_bytes;
        let key_number = if key.is_empty() { None } else { key_number };
        if let Some(batch) = &self.partitions[at].open
            && (batch.len() + bytes > self.batch_bytes_max
                || (self.is_batch_by_key && batch.key != key_number))
        {
            self.close_open(at);
        }
        let (spares, lingering, id) = (&mut self.spares, &mut self.lingering, self.id);
        let batch = self.partitions[at].open.get_or_insert_with(|| {
            let due_ns = now_ns.saturating_add(shared.spec.batch.linger_ns);
            lingering.opened(at, due_ns);
            let mut batch = spares.open(id, at, now_ns, due_ns);
            batch.key = key_number;
            batch
        });
        let place = batch.extend(bytes);
        let head = message::write_head(place, payload_bytes, key);
        write(&mut place[head..]);
        batch.messages += 1;
        shared.buffered_bytes += bytes;
        batch
    }

    /// The open batch takes no more messages.
    fn close_open(&mut self, at: usize) {
        let partition = &mut self.partitions[at];
        if let Some(mut batch) = partition.open.take() {
            batch.sequence = partition.next_sequence;
            partition.next_sequence += u64::from(batch.messages);
            self.held.queued_bytes += batch.len();
            partition.waiting.push_back(batch);
            self.list(at);
            // A partition whose broker is gone does not hold up the others.
            let mut partitioner = self.partitioner;
            partitioner.closed(at, |at| self.way(at).is_some());
            self.partitioner = partitioner;
        }
    }

    /// The partition may have something to send.
    pub(super) fn list(&mut self, at: usize) {
        let partition = &mut self.partitions[at];
        if !partition.is_listed {
            partition.is_listed = true;
            self.listed.push_back(at);
        }
    }

    /// The link over which one more batch of a partition may be sent.
    fn way(&self, at: usize) -> Option<usize> {
        let partition = &self.partitions[at];
        let has_window = partition.in_stream + partition.flying.len() < self.in_flight_max;
        if has_window {
            self.routes.open_link(at)
        } else {
            None
        }
    }

    /// Lists the partitions whose open batches have lingered. Those that cannot leave go on growing.
    fn list_due(&mut self, now_ns: i64) {
        let now_ns = if self.held.is_flushing { i64::MAX } else { now_ns };
        while let Some(at) = self.lingering.next(now_ns, |at| {
            self.partitions[at].open.as_ref().map(|batch| batch.due_ns)
        }) {
            self.list(at);
        }
    }

    /// Hands batches to the connections as far as the windows allow, and writes.
    pub(super) fn send(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), (usize, Lost)> {
        self.list_due(now_ns);
        self.pass_turn(now_ns);
        while let Some(at) = self.listed.pop_front() {
            self.partitions[at].is_listed = false;
            while let Some(link) = self.way(at) {
                if self.partitions[at].waiting.is_empty() {
                    let is_due = |batch: &Batch| self.held.is_flushing || batch.due_ns <= now_ns;
                    if !self.partitions[at].open.as_deref().is_some_and(is_due) {
                        break;
                    }
                    self.close_open(at);
                }
                self.send_one(at, link, observer, now_ns)
                    .map_err(|lost| (link, lost))?;
            }
        }
        let links = 0..self.routes.links.len();
        self.write(links, shared, observer)
    }

    fn send_one(&mut self, at: usize, link: usize, observer: &mut Observer, now_ns: i64) -> Result<(), Lost> {
        let partition = &mut self.partitions[at];
        let Some(mut batch) = partition.waiting.pop_front() else {
            return Ok(());
        };
        let queued_bytes = batch.held_bytes;
        self.held.queued_bytes = self.held.queued_bytes.saturating_sub(queued_bytes);
        let sealed = batch.seal(&self.common, &mut self.compressor, &mut self.spare);
        let link = &mut self.routes.links[link];
        let (Ok(()), Some(session)) = (sealed, link.session.as_mut()) else {
            partition.waiting.push_front(batch);
            self.held.queued_bytes += queued_bytes;
            return Err(Lost::Closed(None));
        };
        if link.in_flight == 0 {
            link.progress_ns = now_ns;
        }
        link.in_flight += 1;
        partition.in_stream += 1;
        session.push_batch(batch);
        observer.request();
        Ok(())
    }

    /// A batch that was sent before waits again.
    pub(super) fn put_back(&mut self, batch: Box<Batch>) {
        self.held.queued_bytes += batch.held_bytes;
        self.partitions[batch.partition].put_back(batch);
    }

    /// A batch that waits to be sent again is done with; returns it, if there is one with this number.
    pub(super) fn take_waiting(&mut self, at: usize, sequence: u64) -> Option<Box<Batch>> {
        let waiting = &mut self.partitions[at].waiting;
        let place = waiting
            .binary_search_by_key(&sequence, |batch| batch.sequence)
            .ok()?;
        let batch = waiting.remove(place)?;
        self.held.queued_bytes = self.held.queued_bytes.saturating_sub(batch.held_bytes);
        Some(batch)
    }

    /// Gives up on what has waited without a broker for longer than it may be retried.
    fn expire(&mut self, shared: &mut Shared, observer: &mut Observer, now_ns: i64) {
        let oldest_ns = now_ns.saturating_sub(shared.spec.retry_for_ns);
        for at in 0..self.partitions.len() {
            if self.routes.open_link(at).is_some() {
                continue;
            }
            let is_old = |batch: &Batch| batch.first_sent_ns <= oldest_ns;
            if self.partitions[at].open.as_deref().is_some_and(is_old) {
                self.close_open(at);
            }
            while self.partitions[at]
                .waiting
                .front()
                .is_some_and(|batch| is_old(batch))
                && let Some(batch) = self.partitions[at].waiting.pop_front()
            {
                self.held.queued_bytes = self.held.queued_bytes.saturating_sub(batch.held_bytes);
                if !batch.ledger.is_empty() {
                    observer.failed(&batch.ledger, lost_kind::RETRY_TIME_OVER);
                }
                self.forget(batch, shared);
            }
        }
    }

    /// A batch has come to its end, of which the observer was told.
    pub(super) fn forget(&mut self, batch: Box<Batch>, shared: &mut Shared) {
        self.held
            .ended(u64::from(batch.ledger.messages()), batch.probes as usize);
        shared.buffered_bytes -= batch.held_bytes;
        self.spares.close(batch);
    }

    fn drive_links(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), (usize, Lost)> {
        let (partitions, name) = (&mut self.partitions, &self.common.name);
        self.routes.drive(shared, now_ns, |at, topic, request| {
            let partition = &mut partitions[at];
            // What the connection still holds would overtake what is sent again.
            if partition.in_stream > 0 {
                return None;
            }
            partition.epoch += 1;
            Some(commands::producer(
                topic,
                at as u64,
                request,
                name,
                partition.epoch,
            ))
        })?;
        for (at, link) in self.routes.links.iter().enumerate() {
            if link.in_flight > 0 && now_ns - link.progress_ns >= self.request_timeout_ns {
                return Err((at, Lost::Timeout));
            }
        }
        self.send(shared, observer, now_ns)
    }
}

impl Source for Producer {
    fn check(&self) {
        let on_links: usize = self.routes.links.iter().map(|link| link.in_flight).sum();
        let of = |partition: &Partition| partition.in_stream + partition.flying.len();
        let of_partitions: usize = self.partitions.iter().map(of).sum();
        assert_eq!(on_links, of_partitions, "batches under way");
        for (at, link) in self.routes.links.iter().enumerate() {
            let open = self.routes.open_over(at);
            let flying: usize = open.map(|at| self.partitions[at].flying.len()).sum();
            assert!(link.in_flight >= flying, "batches under way on a link");
        }
        let waiting = self.partitions.iter().flat_map(|partition| &partition.waiting);
        let waiting_bytes: usize = waiting.map(|batch| batch.held_bytes).sum();
        assert_eq!(self.held.queued_bytes, waiting_bytes, "bytes that wait");
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn held_mut(&mut self) -> &mut Held {
        &mut self.held
    }

    fn is_ready(&self) -> bool {
        self.routes.is_settled()
    }

    /// Puts a message into its partition's open batch.
    #[inline]
    fn take(&mut self, departure: &Departure<'_>, shared: &mut Shared) {
        let mut digits = [0; KEY_BYTES];
        let key = departure.key.map(|key| decimal(key, &mut digits));
        if self.partitioner.is_sticky() {
            self.leave_full(departure.payload_bytes(), key.unwrap_or_default());
        }
        let at = self.partitioner.place(key, partition_of, every);
        let key = key.unwrap_or_default();
        let payload_bytes = departure.payload_bytes();
        let batch = self.append(
            at,
            payload_bytes,
            key,
            departure.key,
            shared,
            departure.lingers_from_ns(),
            |place| {
                departure.write_into(place, at);
            },
        );
        let stamp = &departure.stamp;
        batch.ledger.push(
            stamp.sequence,
            stamp.intended_ns,
            departure.sent_ns,
            payload_bytes,
        );
    }

    fn next(&self) -> Next {
        if self.is_batch_by_key {
            // A batch of one key is full when another key comes.
            return Next::Unknown;
        }
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
        let key: &[u8] = if self.partitioner.is_sticky() {
            &[]
        } else {
            &[b'0'; KEY_BYTES]
        };
        self.batch_bytes_max.saturating_sub(bytes) / (message::head_bytes(payload_bytes, key) + payload_bytes)
    }

    fn could_send(&self, _now_ns: i64) -> bool {
        self.listed.iter().any(|at| self.way(*at).is_some())
    }

    fn send_probe(&mut self, at: usize, probe: &Stamp, shared: &mut Shared) {
        let now_ns = probe.intended_ns;
        let batch = self.append(at, stamp::STAMP_BYTES, &[], None, shared, now_ns, |place| {
            stamp::write(place, probe, stamp::tail_crc(&[]));
        });
        batch.probes += 1;
    }

    fn flush(&mut self) {
        self.held.is_flushing = true;
        for at in 0..self.partitions.len() {
            self.list(at);
        }
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
            Err(fault) => self.fail(link, fault, shared, observer, monotonic_ns()),
        }
    }

    fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        if let Err((link, lost)) = self.drive_links(shared, observer, now_ns) {
            self.fail(link, lost.into(), shared, observer, now_ns)?;
        }
        if !self.routes.is_settled() && self.held.is_expiry_due(now_ns) {
            self.expire(shared, observer, now_ns);
        }
        Ok(())
    }

    fn deadline_ns(&self) -> i64 {
        let mut deadline_ns = self.routes.deadline_ns().min(self.lingering.deadline_ns());
        for link in &self.routes.links {
            if link.in_flight > 0 {
                deadline_ns = deadline_ns.min(link.progress_ns.saturating_add(self.request_timeout_ns));
            }
        }
        if !self.routes.is_settled() && self.held.msgs > 0 {
            deadline_ns = deadline_ns.min(self.held.next_expiry_ns);
        }
        deadline_ns
    }

    fn abandon(&mut self, shared: &mut Shared, observer: &mut Observer) {
        for at in 0..self.routes.links.len() {
            if let Some(session) = self.routes.lose(at, monotonic_ns()) {
                for batch in session.into_unwritten() {
                    self.partitions[batch.partition].put_back(batch);
                }
            }
        }
        for partition in &mut self.partitions {
            let left = partition.flying.drain(..).chain(partition.waiting.drain(..));
            for batch in left.chain(partition.open.take()) {
                shared.buffered_bytes -= batch.held_bytes;
                if !batch.ledger.is_empty() {
                    observer.censored(&batch.ledger);
                }
            }
        }
    }
}
