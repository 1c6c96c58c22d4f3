//! The part of a producer that talks to brokers: requests, answers, retries, changes of leaders, and identities.

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};

use super::batch::{Batch, Numbering};
use super::cluster::NO_BROKER;
use super::compress::codec_number;
use super::connection::{Lost, Request};
use super::errors::{Code, kind};
use super::link::{Link, NO_LINK, is_noteworthy};
use super::producer::{Flight, Identity, Outlet, Producer};
use super::shared::Shared;
use super::wire::{self, Malformed, Put, Reader, begin_request, finish_request};
use crate::shared::producer_token;
use crate::{Acks, ClientError, Ready};

/// A batch up to this size is copied into the request's head: cheaper than one more piece in a vectored write.
const COPY_BYTES_MAX: usize = 2 << 10;
/// Flights that are kept for later use.
const SPARE_FLIGHTS_MAX: usize = 64;
/// Bytes of a partition's entry in an answer to Produce.
const ANSWER_ENTRY_BYTES: usize = 30;

/// What ended the work on a connection.
pub(super) enum Trouble {
    Lost(Lost),
    Fatal(ClientError),
}

impl From<Lost> for Trouble {
    fn from(lost: Lost) -> Trouble {
        Trouble::Lost(lost)
    }
}

impl From<Malformed> for Trouble {
    fn from(malformed: Malformed) -> Trouble {
        Trouble::Lost(malformed.into())
    }
}

impl Producer {
    /// Takes over what the cluster says about leaders.
    pub fn apply_metadata(&mut self, shared: &Shared) {
        for outlet in &mut self.outlets {
            outlet.link.members = 0;
        }
        for at in 0..self.lots.len() {
            let leader = shared.own.cluster.leader(self.held.slots.start + at);
            let link = if leader == NO_BROKER {
                NO_LINK
            } else {
                self.outlet_of(leader)
            };
            if link != NO_LINK {
                self.outlets[link as usize].link.members += 1;
            }
            let lot = &mut self.lots[at];
            if lot.link == link {
                continue;
            }
            lot.link = link;
            // What is under way to the old leader comes back before anything goes to the new one.
            lot.is_retrying |= lot.in_flight > 0 && !mutants::is(Mutant::MoveDoesNotHoldBack);
            lot.is_listed = false;
            if !lot.queue.is_empty() || lot.open.is_some() {
                self.list(at);
            }
        }
        // A partition that moved leaves its old leader's list: should it come back, it would stand there twice, and a request with two
        // batches of one partition is a request of which the broker stores one.
        for (at, outlet) in self.outlets.iter_mut().enumerate() {
            outlet
                .ready
                .retain(|&lot| self.lots[lot as usize].link == at as u32 || mutants::is(Mutant::OldListKept));
        }
    }

    fn outlet_of(&mut self, broker: i32) -> u32 {
        let known = self
            .outlets
            .iter()
            .position(|outlet| outlet.link.broker == broker);
        let at = known.unwrap_or_else(|| {
            let at = self.outlets.len();
            self.outlets.push(Outlet {
                link: Link::new(broker, producer_token(self.index, at)),
                ready: Default::default(),
            });
            at
        });
        at as u32
    }

    /// Sends what is ready on one connection, as far as its window allows.
    pub(super) fn send(
        &mut self,
        at: usize,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Lost> {
        if !self.has_identity() {
            return Ok(());
        }
        while !self.outlets[at].ready.is_empty() && self.has_window(&self.outlets[at]) {
            let mut head = shared.own.take_head();
            let mut flight = self.spare_flights.pop().unwrap_or_default();
            let bytes = self.load(at, &mut head, &mut flight, shared, observer, now_ns);
            if flight.batches.is_empty() {
                shared.own.give_head(head);
                self.spare_flights.push(flight);
                return Ok(());
            }
            let Some(connection) = &mut self.outlets[at].link.connection else {
                return Ok(());
            };
            connection.push(Request {
                correlation: correlation_in(&head),
                bytes,
                head,
                deadline_ns: now_ns.saturating_add(shared.spec.request_timeout_ns),
                has_answer: shared.spec.acks != Acks::None,
                cargo: flight,
            });
            observer.request();
            connection.write(&shared.poller)?;
            if shared.spec.acks == Acks::None {
                self.acknowledge_written(at, shared, observer);
            }
        }
        Ok(())
    }

    /// Fills a request with one batch of each partition that is ready. Returns its bytes, those of the batches included.
    fn load(
        &mut self,
        at: usize,
        head: &mut Vec<u8>,
        flight: &mut Flight,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> usize {
        let Some(connection) = &mut self.outlets[at].link.connection else {
            return 0;
        };
        begin_request(
            head,
            wire::PRODUCE,
            connection.next_correlation(),
            &shared.own.client_id,
        );
        head.put_null_string();
        head.put_i16(match shared.spec.acks {
            Acks::All => -1,
            Acks::Leader => 1,
            Acks::None => 0,
        });
        head.put_i32(i32::try_from(shared.spec.request_timeout_ns / 1_000_000).unwrap_or(i32::MAX));
        head.put_count(1);
        head.put_string(&self.topic);
        let count_at = head.len();
        head.put_count(0);
        let (mut piece_bytes, mut batch_bytes) = (0, 0);
        // One look at each partition that is listed now: those with more to send are listed again for the next request.
        for _ in 0..self.outlets[at].ready.len() {
            let Some(&lot) = self.outlets[at].ready.front() else {
                break;
            };
            let next_bytes = self.next_batch_bytes(at, lot as usize, now_ns);
            if next_bytes.is_some_and(|bytes| batch_bytes > 0 && batch_bytes + bytes > self.request_bytes_max)
            {
                break;
            }
            self.outlets[at].ready.pop_front();
            debug_assert_eq!(
                self.lots[lot as usize].link, at as u32,
                "listed where its leader is"
            );
            debug_assert!(self.lots[lot as usize].is_listed, "listed once");
            if next_bytes.is_none() {
                self.lots[lot as usize].is_listed = false;
                continue;
            }
            let Some(batch) = self.depart(lot as usize, shared, observer, now_ns) else {
                continue;
            };
            batch_bytes += batch.len();
            head.put_i32(lot as i32);
            head.put_count(batch.len());
            if batch.len() <= COPY_BYTES_MAX {
                head.extend_from_slice(batch.bytes());
            } else {
                flight.pieces.push((head.len(), flight.batches.len()));
                piece_bytes += batch.len();
            }
            flight.batches.push((lot, Some(batch)));
        }
        let count = (flight.batches.len() as i32).to_be_bytes();
        head[count_at..count_at + 4].copy_from_slice(&count);
        finish_request(head, piece_bytes);
        head.len() + piece_bytes
    }

    /// The length of the batch that a partition would send now on this connection; None: it has nothing to send.
    fn next_batch_bytes(&self, outlet: usize, at: usize, now_ns: i64) -> Option<usize> {
        let lot = &self.lots[at];
        let must_wait = lot.retry_at_ns > now_ns || (lot.is_retrying && lot.in_flight > 0);
        if lot.link != outlet as u32 || must_wait {
            return None;
        }
        match (lot.queue.front(), &lot.open) {
            (Some(batch), _) => Some(batch.len()),
            (None, Some(batch)) if self.is_due(batch, now_ns) => Some(batch.len()),
            _ => None,
        }
    }

    /// Takes a partition's next batch and makes it ready for the wire.
    fn depart(
        &mut self,
        at: usize,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Option<Box<Batch>> {
        let lot = &mut self.lots[at];
        let mut batch = match lot.queue.pop_front() {
            Some(batch) => {
                self.held.queued_bytes -= batch.len();
                batch
            }
            None => lot.open.take()?,
        };
        self.typical_bytes = batch.len();
        if !batch.is_compressed && !self.compressor.is_none() {
            self.scratch.clear();
            if self
                .compressor
                .compress(batch.records_bytes(), &mut self.scratch)
                .is_err()
            {
                self.lots[at].is_listed = false;
                self.fail(batch, kind::COMPRESSION_FAILED, shared, observer);
                return None;
            }
            let codec = codec_number(shared.spec.compression);
            batch.set_compressed(&mut shared.own.buffers, codec, &self.scratch);
        }
        let lot = &mut self.lots[at];
        if !batch.is_sealed {
            let numbering = match self.identity {
                Identity::Known { id, epoch } => {
                    let base_sequence = lot.next_sequence;
                    // Sequences wrap to 0 after the largest positive number.
                    lot.next_sequence = base_sequence.wrapping_add_unsigned(batch.records) & i32::MAX;
                    Numbering {
                        producer_id: id,
                        producer_epoch: epoch,
                        base_sequence,
                    }
                }
                _ => Numbering::NONE,
            };
            batch.seal(numbering);
        }
        if lot.in_flight == 0 {
            lot.is_retrying = false;
        }
        lot.in_flight += 1;
        lot.is_listed = false;
        let is_next_due = lot
            .open
            .as_ref()
            .is_some_and(|open| self.held.is_flushing || open.due_ns <= now_ns);
        if !lot.queue.is_empty() || is_next_due {
            self.list(at);
        }
        Some(batch)
    }

    /// With acks=0, a batch is acknowledged when it is written.
    fn acknowledge_written(&mut self, at: usize, shared: &mut Shared, observer: &mut Observer) {
        let now_ns = monotonic_ns();
        while let Some(connection) = &mut self.outlets[at].link.connection
            && let Some(mut request) = connection.pop_unanswered()
        {
            for (lot, batch) in request.cargo.batches.drain(..) {
                if let Some(batch) = batch {
                    self.lots[lot as usize].in_flight -= 1;
                    if self.lots[lot as usize].is_retrying {
                        self.list(lot as usize);
                    }
                    self.acknowledge(batch, shared, observer, now_ns);
                }
            }
            self.recycle(request, shared);
        }
    }

    fn recycle(&mut self, request: Request<Flight>, shared: &mut Shared) {
        shared.own.give_head(request.head);
        let mut flight = request.cargo;
        flight.batches.clear();
        flight.pieces.clear();
        flight.is_sorted = false;
        if self.spare_flights.len() < SPARE_FLIGHTS_MAX {
            self.spare_flights.push(flight);
        }
    }

    /// The poller says that a connection is ready.
    pub(super) fn advance(
        &mut self,
        at: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), Trouble> {
        let Some(outlet) = self.outlets.get_mut(at) else {
            return Ok(());
        };
        let Some(connection) = &mut outlet.link.connection else {
            return Ok(());
        };
        connection.advance(ready, &shared.poller)?;
        if ready.writable {
            connection.write(&shared.poller)?;
            if shared.spec.acks == Acks::None {
                self.acknowledge_written(at, shared, observer);
            }
        }
        if !ready.readable {
            return Ok(());
        }
        loop {
            let Some(connection) = &mut self.outlets[at].link.connection else {
                return Ok(());
            };
            let may_have_more = connection.read()?;
            let acked_ns = monotonic_ns();
            self.take_answers(at, shared, observer, acked_ns)?;
            if !may_have_more {
                return Ok(());
            }
        }
    }

    fn take_answers(
        &mut self,
        at: usize,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Trouble> {
        loop {
            let link = &mut self.outlets[at].link;
            let Some(connection) = &mut link.connection else {
                return Ok(());
            };
            let Some((mut request, body)) = connection.answer()? else {
                return Ok(());
            };
            // The connection is put aside, so that its bytes can be read while the producer is changed.
            let Some(connection) = link.connection.take() else {
                return Ok(());
            };
            link.works();
            let read = self.read_answer(
                &connection.bytes()[body],
                &mut request.cargo,
                shared,
                observer,
                now_ns,
            );
            self.outlets[at].link.connection = Some(connection);
            // A batch that the answer leaves out has not been answered.
            let mut left_out = false;
            for (_, batch) in request.cargo.batches.drain(..) {
                if let Some(batch) = batch {
                    left_out = true;
                    self.retry(batch, kind::MALFORMED_ANSWER, shared, observer, now_ns);
                }
            }
            self.recycle(request, shared);
            read?;
            if left_out {
                return Err(Malformed("it leaves out a partition that was asked for").into());
            }
        }
    }

    fn read_answer(
        &mut self,
        body: &[u8],
        flight: &mut Flight,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Trouble> {
        let mut reader = Reader::new(body);
        let mut expected = 0;
        let mut fatal = None;
        for _ in 0..reader.count(6)? {
            reader.string()?;
            for _ in 0..reader.count(ANSWER_ENTRY_BYTES)? {
                let (partition, code) = (reader.i32()?, Code(reader.i16()?));
                // Base offset, append time, start of the log.
                reader.skip(24)?;
                let batch = find(flight, partition.cast_unsigned(), &mut expected)
                    .ok_or(Malformed("it tells of a partition that was not asked for"))?;
                if let Some(error) = self.settle(batch, code, shared, observer, now_ns) {
                    fatal = Some(error);
                }
            }
        }
        match fatal {
            Some(error) => Err(Trouble::Fatal(error)),
            None => Ok(()),
        }
    }

    /// A connection is lost: what was under way on it is sent again.
    pub(super) fn lose(
        &mut self,
        at: usize,
        lost: &Lost,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) {
        shared.own.cluster.lost(self.outlets[at].link.broker, lost);
        let requests: Vec<Request<Flight>> = self.outlets[at].link.lose(now_ns).collect();
        if is_noteworthy(lost, requests.len()) {
            observer.error(lost.kind());
        }
        for mut request in requests {
            for (_, batch) in request.cargo.batches.drain(..) {
                if let Some(batch) = batch {
                    self.retry(batch, lost.kind(), shared, observer, now_ns);
                }
            }
            self.recycle(request, shared);
        }
    }
}

/// The correlation number that `begin_request` wrote.
fn correlation_in(head: &[u8]) -> i32 {
    head[8..]
        .first_chunk::<4>()
        .map_or(0, |chunk| i32::from_be_bytes(*chunk))
}

/// Takes the batch of a partition out of a flight. Answers usually come in the order of the request, which `expected` follows.
fn find(flight: &mut Flight, partition: u32, expected: &mut usize) -> Option<Box<Batch>> {
    let at = match flight.batches.get(*expected) {
        Some((next, _)) if *next == partition => *expected,
        _ => {
            // The request is written, so its pieces are not needed in their places any more.
            flight.pieces.clear();
            if !flight.is_sorted {
                flight.batches.sort_unstable_by_key(|(partition, _)| *partition);
                flight.is_sorted = true;
            }
            flight
                .batches
                .binary_search_by_key(&partition, |(partition, _)| *partition)
                .ok()?
        }
    };
    *expected = at + 1;
    flight.batches[at].1.take()
}
