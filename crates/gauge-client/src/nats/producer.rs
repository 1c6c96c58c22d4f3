//! A producer: messages are gathered in chunks, chunks leave when they are full or old enough, every message is acknowledged by itself.
//!
//! A chunk passes through `open` (being filled), `queue` (full, or to be sent again) and `window` (on the connection). At most
//! `in_flight` chunks have messages without an acknowledgement; while there are so many, an open chunk that is due goes on growing.
//!
//! # Order
//!
//! One stream keeps the order in which its server gets the messages, so partitions keep theirs. When messages are refused or a connection is
//! lost, nothing more leaves before everything under way has been answered, and then what is left goes in its order. What was under way behind
//! a refused message may have been stored before it.

use std::collections::VecDeque;

use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};
use gauge_load::stamp::{self, Stamp};
use gauge_load::{BatchLedger, Departure, Observer};

use super::answer::{self, Answer};
use super::chunks::Chunks;
use super::connection::{self, Connection, Piece};
use super::names;
use super::options::Options;
use super::window::{Chunk, Heading, PUBLISH_REST_BYTES_MAX};
use super::wire::{self, Message, put_decimal};
use crate::keys::{KEY_BYTES, Partitioner, decimal, every};
use crate::shared::{Shared, producer_token};
use crate::source::{Held, Next, Source};
use crate::stream::{Lost, kind};
use crate::{Acks, ClientError, LaneSpec, Ready};

/// When no acknowledgement at all has come for this long, those that are missing will not come: the official clients' default.
const ANSWER_TIMEOUT_NS: i64 = 5_000_000_000;
/// Pause before refused messages are sent again; doubles up to a second.
const RETRY_PAUSE_NS: i64 = 20_000_000;
const RETRY_PAUSE_NS_MAX: i64 = 1_000_000_000;
/// Of an id and a key as headers, with all digits that their numbers may have.
const HEADERS_BYTES_MAX: usize = 84;

/// Chunks on the connection, and what the answers of one read have said of them.
struct Window {
    chunks: VecDeque<Box<Chunk>>,
    /// Length of the reply subject's part before the number.
    reply_prefix_bytes: usize,
    /// Messages that the answers of this read acknowledged.
    acked: BatchLedger,
    /// Probes that they acknowledged.
    probes: usize,
    has_refusals: bool,
    fatal: Option<String>,
    trouble: Option<String>,
}

/// The chunk, of some in their order, that holds the message with this number.
#[inline]
fn chunk_of(chunks: &mut VecDeque<Box<Chunk>>, number: u64) -> Option<&mut Box<Chunk>> {
    // Answers come in the order of publication, so it is nearly always the first.
    let behind = chunks.partition_point(|chunk| chunk.first_number <= number);
    let chunk = chunks.get_mut(behind.checked_sub(1)?)?;
    (number - chunk.first_number < chunk.entries.len() as u64).then_some(chunk)
}

impl Window {
    #[inline]
    fn answer(&mut self, message: &Message<'_>, queue: &mut VecDeque<Box<Chunk>>) {
        let digits = message.subject.get(self.reply_prefix_bytes..).unwrap_or_default();
        let Some(number) = wire::decimal(digits) else {
            return;
        };
        match answer::read(message) {
            Answer::Stored => self.stored(number, queue),
            Answer::Refused { .. } if mutants::is(Mutant::NatsRefusalCountsAsAck) => {
                self.stored(number, queue);
            }
            Answer::Refused {
                kind,
                words,
                is_fatal,
            } => {
                self.has_refusals |=
                    chunk_of(&mut self.chunks, number).is_some_and(|chunk| chunk.refuse(number, kind));
                if is_fatal {
                    self.fatal = Some(words);
                } else {
                    self.trouble = Some(words);
                }
            }
        }
    }

    /// A message is in the stream.
    #[inline]
    fn stored(&mut self, number: u64, queue: &mut VecDeque<Box<Chunk>>) {
        let chunk = match chunk_of(&mut self.chunks, number) {
            Some(chunk) => chunk,
            // An acknowledgement that was under way when a connection was lost may come on the next one.
            None => match chunk_of(queue, number) {
                Some(_) if mutants::is(Mutant::NatsLateAckIgnored) => return,
                Some(chunk) => {
                    chunk.has_gaps = !mutants::is(Mutant::NatsGapsSentAgain);
                    chunk
                }
                None => return,
            },
        };
        let (entry, is_probe) = (chunk.acknowledge(number), chunk.is_probe);
        match entry {
            Some(_) if is_probe => self.probes += 1,
            Some(_) if mutants::is(Mutant::NatsAckDropped) => {}
            Some(entry) => {
                let payload_bytes = entry.payload_bytes as usize;
                self.acked
                    .push(entry.sequence, entry.intended_ns, entry.sent_ns, payload_bytes);
            }
            None => {}
        }
    }

    fn unanswered(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.unanswered > 0)
    }

    /// Takes the bytes of a chunk back from the connection.
    fn give_back(&mut self, piece: Piece) {
        if let Some(chunk) = chunk_of(&mut self.chunks, piece.chunk) {
            chunk.bytes = piece.bytes;
        }
    }
}

/// A producer.
pub(crate) struct Producer {
    id: u32,
    topic: String,
    held: Held,
    partitioner: Partitioner,
    headings: Vec<Heading>,
    connection: Connection,
    window: Window,
    open: Option<Box<Chunk>>,
    queue: VecDeque<Box<Chunk>>,
    next_number: u64,
    chunk_bytes_max: usize,
    chunk_msgs_max: usize,
    in_flight: usize,
    acks: Acks,
    idempotence: bool,
    /// Refused messages wait until everything under way was answered.
    is_recovering: bool,
    /// Nothing leaves before this time.
    hold_until_ns: i64,
    pause_ns: i64,
    /// When the latest answer came, or the first chunk left after none was under way.
    progress_ns: i64,
    answer_timeout_ns: i64,
    /// Headers of the message at hand.
    scratch: Vec<u8>,
    written: Vec<Piece>,
    chunks: Chunks,
    /// The server was asked whether it takes messages as long as these.
    is_checked: bool,
}

impl Producer {
    /// Number `index` of a lane's producers.
    pub fn new(index: usize, options: &Options, lane: &LaneSpec) -> Producer {
        let spec = &lane.producers[index];
        let topic = &lane.topics[spec.topic];
        let inbox = format!("_INBOX.{}", names::unique());
        let acks = lane.acks;
        let is_numbered = acks != Acks::None;
        let heading = |partition: u32| {
            let subject = names::subject(&topic.name, partition);
            let reply = if is_numbered {
                format!("{inbox}.")
            } else {
                String::new()
            };
            Heading {
                publish: format!("PUB {subject} {reply}").into_bytes(),
                publish_with_headers: format!("HPUB {subject} {reply}").into_bytes(),
                is_numbered,
            }
        };
        let in_flight = lane.batch.in_flight.max(1);
        let greeting = format!("SUB {inbox}.* 1\r\n").into_bytes();
        Producer {
            id: spec.id,
            topic: topic.name.clone(),
            held: Held::new(topic),
            partitioner: Partitioner::new(spec, topic),
            headings: (0..topic.partitions).map(heading).collect(),
            connection: Connection::new(
                spec.id as usize,
                producer_token(index, 0),
                &format!("{}-producer-{index}", options.client_name),
                &options.login,
                greeting,
            ),
            window: Window {
                chunks: VecDeque::new(),
                reply_prefix_bytes: inbox.len() + 1,
                acked: BatchLedger::new(spec.id),
                probes: 0,
                has_refusals: false,
                fatal: None,
                trouble: None,
            },
            open: None,
            queue: VecDeque::new(),
            next_number: 0,
            chunk_bytes_max: lane.batch.bytes,
            chunk_msgs_max: (options.window_msgs / in_flight).max(1),
            in_flight,
            acks,
            idempotence: lane.idempotence,
            is_recovering: false,
            hold_until_ns: i64::MIN,
            pause_ns: RETRY_PAUSE_NS,
            progress_ns: 0,
            answer_timeout_ns: ANSWER_TIMEOUT_NS.min(lane.request_timeout_ns),
            scratch: Vec::new(),
            written: Vec::new(),
            chunks: Chunks::new(lane.batch.buffer_bytes, lane.producers.len()),
            is_checked: false,
        }
    }

    /// Whether one more chunk may leave.
    fn has_window(&self) -> bool {
        self.connection.is_ready() && !self.is_recovering && self.window.chunks.len() < self.in_flight
    }

    /// What a message may take at the most, with so many bytes of headers.
    fn longest_bytes(&self, headers_bytes: usize, payload_bytes: usize) -> usize {
        self.headings[0].publish_with_headers.len()
            + 5
            + PUBLISH_REST_BYTES_MAX
            + headers_bytes
            + payload_bytes
    }

    /// The header block: an id by which the stream drops what comes twice, and the key.
    fn put_headers(&mut self, departure: &Departure<'_>, run: u32) {
        let into = &mut self.scratch;
        into.extend_from_slice(b"NATS/1.0\r\n");
        if self.idempotence {
            into.extend_from_slice(b"Nats-Msg-Id:");
            put_decimal(into, u64::from(run));
            into.push(b'-');
            put_decimal(into, u64::from(self.id));
            into.push(b'-');
            put_decimal(into, departure.stamp.sequence);
            into.extend_from_slice(b"\r\n");
        }
        if let Some(key) = departure.key {
            into.extend_from_slice(b"Key:");
            put_decimal(into, u64::from(key));
            into.extend_from_slice(b"\r\n");
        }
        into.extend_from_slice(b"\r\n");
    }

    fn close_open(&mut self) {
        if let Some(open) = self.open.take() {
            self.queue.push_back(open);
        }
    }

    /// Messages with their headers must fit what the server takes.
    fn check_payload(&self, shared: &Shared) -> Result<(), ClientError> {
        let most = self.connection.info.max_payload_bytes;
        let longest_bytes = shared.spec.payload_bytes_max;
        if longest_bytes <= most {
            return Ok(());
        }
        Err(ClientError::input(
            "payload.size_bytes",
            format!(
                "the NATS server takes messages up to {most} bytes (max_payload), and these have {longest_bytes}; make them smaller or raise max_payload"
            ),
        ))
    }

    fn advance(&mut self, shared: &mut Shared, observer: &mut Observer, now_ns: i64) -> Result<(), Lost> {
        self.connection.ensure(shared, now_ns)?;
        if now_ns >= self.answer_deadline_ns() {
            return Err(Lost::Timeout);
        }
        if self.is_recovering && !self.window.unanswered() {
            self.hold_until_ns = now_ns + self.pause_ns;
            self.pause_ns = (self.pause_ns * 2).min(RETRY_PAUSE_NS_MAX);
            self.requeue(shared, observer, now_ns);
        }
        self.send(shared, observer, now_ns)
    }

    /// When the acknowledgements that are missing count as lost.
    fn answer_deadline_ns(&self) -> i64 {
        if self.window.chunks.is_empty() || !self.connection.is_ready() {
            i64::MAX
        } else {
            self.progress_ns.saturating_add(self.answer_timeout_ns)
        }
    }

    /// Whether the open chunk may leave.
    fn is_due(&self, now_ns: i64) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| self.held.is_flushing || open.due_ns <= now_ns)
    }

    fn send(&mut self, shared: &mut Shared, observer: &mut Observer, now_ns: i64) -> Result<(), Lost> {
        while self.has_window() && now_ns >= self.hold_until_ns {
            if self.queue.is_empty() && self.is_due(now_ns) {
                self.close_open();
            }
            let Some(mut chunk) = self.queue.pop_front() else {
                break;
            };
            if chunk.left == 0 {
                if !chunk.is_probe {
                    observer.batch();
                }
                self.held.has_room = true;
                self.chunks.end(chunk, shared);
                continue;
            }
            if chunk.has_gaps {
                chunk.compact();
            }
            chunk.depart();
            if self.window.chunks.is_empty() {
                self.progress_ns = now_ns;
            }
            self.connection.push(Piece {
                bytes: std::mem::take(&mut chunk.bytes),
                chunk: chunk.first_number,
            });
            self.window.chunks.push_back(chunk);
            // A closed loop has room as soon as nothing waits.
            self.held.has_room |= shared.spec.closed_loop;
            observer.request();
        }
        self.write(shared, observer)
    }

    fn write(&mut self, shared: &mut Shared, observer: &mut Observer) -> Result<(), Lost> {
        let written = &mut self.written;
        let outcome = self.connection.write(&shared.poller, |piece| written.push(piece));
        if self.written.is_empty() {
            return outcome;
        }
        let now_ns = monotonic_ns();
        let mut written = std::mem::take(&mut self.written);
        for piece in written.drain(..) {
            let number = piece.chunk;
            self.window.give_back(piece);
            if self.acks == Acks::None {
                self.progress_ns = now_ns;
                self.end_written(number);
            }
        }
        self.written = written;
        self.settle(shared, observer, now_ns);
        outcome
    }

    /// Without acknowledgements, messages have come to their end when they are written.
    fn end_written(&mut self, number: u64) {
        let window = &mut self.window;
        let behind = window
            .chunks
            .partition_point(|chunk| chunk.first_number <= number);
        let Some(chunk) = behind.checked_sub(1).and_then(|at| window.chunks.get_mut(at)) else {
            return;
        };
        if chunk.is_probe {
            window.probes += chunk.left;
            chunk.end_all(&mut BatchLedger::default());
        } else {
            chunk.end_all(&mut window.acked);
        }
    }

    fn receive(&mut self, ready: &Ready, shared: &mut Shared, observer: &mut Observer) -> Result<(), Lost> {
        self.connection.advance(ready, shared)?;
        let mut more = ready.readable;
        while more {
            let mut read_ns = 0;
            let (window, queue) = (&mut self.window, &mut self.queue);
            let outcome = self.connection.read(shared, |message, now_ns| {
                read_ns = now_ns;
                window.answer(message, queue);
            });
            if read_ns > 0 {
                self.progress_ns = read_ns;
                self.settle(shared, observer, read_ns);
            }
            more = outcome?;
        }
        self.write(shared, observer)
    }

    /// Tells the observer what was acknowledged, and ends the chunks of which nothing is left.
    fn settle(&mut self, shared: &mut Shared, observer: &mut Observer, now_ns: i64) {
        let window = &mut self.window;
        if !window.acked.is_empty() {
            observer.acked_part(&window.acked, now_ns);
            self.held.msgs -= u64::from(window.acked.messages());
            window.acked.clear(self.id);
            self.pause_ns = RETRY_PAUSE_NS;
        }
        self.held.probes -= std::mem::take(&mut window.probes);
        self.is_recovering |= std::mem::take(&mut window.has_refusals);
        if let Some(words) = window.trouble.take() {
            shared.trouble = Some(words);
        }
        while window
            .chunks
            .front()
            .is_some_and(|chunk| chunk.left == 0 && !chunk.bytes.is_empty())
        {
            let Some(chunk) = window.chunks.pop_front() else {
                break;
            };
            if !chunk.is_probe {
                observer.batch();
            }
            self.held.has_room = true;
            self.chunks.end(chunk, shared);
        }
    }

    /// Everything in the window that is left goes back to the front of the queue, in its order.
    fn requeue(&mut self, shared: &mut Shared, observer: &mut Observer, now_ns: i64) {
        self.is_recovering = false;
        while let Some(mut chunk) = self.window.chunks.pop_back() {
            let kind = chunk.last_error.unwrap_or(kind::CONNECTION_LOST);
            chunk.refuse_all(kind);
            if chunk.left == 0 {
                self.chunks.end(chunk, shared);
            } else if !chunk.is_probe
                && now_ns.saturating_sub(chunk.first_sent_ns) >= shared.spec.retry_for_ns
            {
                self.fail(chunk, kind, shared, observer);
            } else {
                if !chunk.is_probe {
                    observer.retried(kind);
                }
                chunk.compact();
                match mutants::is(Mutant::NatsRetryAtTheEnd) {
                    true => self.queue.push_back(chunk),
                    false => self.queue.push_front(chunk),
                }
            }
        }
        self.held.has_room = true;
    }

    fn fail(
        &mut self,
        mut chunk: Box<Chunk>,
        kind: &'static str,
        shared: &mut Shared,
        observer: &mut Observer,
    ) {
        let mut ledger = BatchLedger::new(self.id);
        chunk.end_all(&mut ledger);
        self.held.ended(u64::from(ledger.messages()), 0);
        observer.failed(&ledger, kind);
        self.chunks.end(chunk, shared);
    }

    /// The connection is lost: what was under way on it is sent again on the next one.
    fn lose(
        &mut self,
        lost: &Lost,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        for piece in self.connection.lose(lost, shared, now_ns) {
            self.window.give_back(piece);
        }
        let is_idle = self.window.chunks.is_empty() && lost.kind() == kind::CONNECTION_LOST;
        if !is_idle {
            observer.error(lost.kind());
        }
        for chunk in &mut self.window.chunks {
            chunk.refuse_all(lost.kind());
        }
        self.requeue(shared, observer, now_ns);
        connection::fatal(lost).map_or(Ok(()), Err)
    }

    /// Gives up on what has waited for longer than it may be retried.
    fn expire(&mut self, shared: &mut Shared, observer: &mut Observer, now_ns: i64) {
        let oldest_ns = now_ns.saturating_sub(shared.spec.retry_for_ns);
        let is_old = |chunk: &Chunk| !chunk.is_probe && chunk.left > 0 && chunk.first_sent_ns <= oldest_ns;
        while let Some(at) = self.queue.iter().position(|chunk| is_old(chunk)) {
            if let Some(chunk) = self.queue.remove(at) {
                let kind = chunk.last_error.unwrap_or(kind::RETRY_TIME_OVER);
                self.fail(chunk, kind, shared, observer);
            }
        }
        if self.open.as_deref().is_some_and(is_old)
            && let Some(chunk) = self.open.take()
        {
            self.fail(chunk, kind::RETRY_TIME_OVER, shared, observer);
        }
    }
}

impl Source for Producer {
    fn check(&self) {
        let waiting = self.queue.iter().chain(&self.open);
        waiting.for_each(|chunk| chunk.check());
        for chunk in &self.window.chunks {
            chunk.check();
            chunk.check_under_way();
        }
        let all = self.window.chunks.iter().chain(&self.queue).chain(&self.open);
        let msgs: usize = all.filter(|chunk| !chunk.is_probe).map(|chunk| chunk.left).sum();
        assert_eq!(self.held.msgs, msgs as u64, "messages without an end");
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn held_mut(&mut self) -> &mut Held {
        &mut self.held
    }

    fn is_ready(&self) -> bool {
        self.connection.is_ready()
    }

    fn next(&self) -> Next {
        self.open.as_deref().map_or(Next::NEW, |open| Next::One {
            bytes: open.len,
            msgs: open.entries.len(),
        })
    }

    fn fitting(&self, bytes: usize, msgs: usize, payload_bytes: usize, _shared: &Shared) -> usize {
        let has_headers = self.idempotence || !self.partitioner.is_sticky();
        let headers_bytes = if has_headers { HEADERS_BYTES_MAX } else { 0 };
        let by_bytes =
            self.chunk_bytes_max.saturating_sub(bytes) / self.longest_bytes(headers_bytes, payload_bytes);
        by_bytes.min(self.chunk_msgs_max.saturating_sub(msgs))
    }

    #[inline]
    fn take(&mut self, departure: &Departure<'_>, shared: &mut Shared) {
        self.scratch.clear();
        if self.idempotence || departure.key.is_some() {
            self.put_headers(departure, shared.spec.run);
        }
        let longest_bytes = self.longest_bytes(self.scratch.len(), departure.payload_bytes());
        if let Some(open) = &self.open
            && (open.len + longest_bytes > self.chunk_bytes_max || open.entries.len() >= self.chunk_msgs_max)
        {
            // Never less: whether a closed loop is full is asked of the queue itself.
            self.held.queued_bytes += open.len;
            self.close_open();
        }
        if self.open.is_none() {
            if self.partitioner.is_sticky() {
                self.partitioner.advance(every);
            }
            let due_ns = departure
                .lingers_from_ns()
                .saturating_add(shared.spec.batch.linger_ns);
            let mut chunk = self.chunks.take();
            chunk.begin(self.next_number, departure.sent_ns, due_ns);
            self.open = Some(chunk);
        }
        let mut digits = [0; KEY_BYTES];
        let key = departure.key.map(|key| decimal(key, &mut digits));
        let at = self.partitioner.place(key, names::partition_of, every);
        let Some(chunk) = &mut self.open else {
            unreachable!("a chunk was opened");
        };
        let before = chunk.len;
        chunk.append(&self.headings[at], &self.scratch, departure, at);
        self.next_number += 1;
        let bytes = chunk.len - before;
        chunk.charged_bytes += bytes;
        shared.buffered_bytes += bytes;
    }

    /// Chunks that are full leave one by one, and are written together.
    fn batch_bytes(&self, _shared: &Shared) -> usize {
        usize::MAX
    }

    fn is_full(&self, _shared: &Shared) -> bool {
        !self.queue.is_empty()
    }

    fn could_send(&self, now_ns: i64) -> bool {
        let leaves = !self.queue.is_empty() || self.is_due(now_ns) || mutants::is(Mutant::NatsFullLoopSpins);
        leaves && self.has_window() && now_ns >= self.hold_until_ns
    }

    fn send_probe(&mut self, at: usize, probe: &Stamp, _shared: &mut Shared) {
        let now_ns = probe.intended_ns;
        self.close_open();
        let mut chunk = self.chunks.take();
        chunk.begin(self.next_number, now_ns, now_ns);
        chunk.is_probe = true;
        let heading = &self.headings[at];
        let place = chunk.begin_publish(heading, b"", stamp::STAMP_BYTES);
        stamp::write(place, probe, stamp::tail_crc(&[]));
        chunk.enter(probe.sequence, now_ns, now_ns, 0, stamp::STAMP_BYTES);
        self.next_number += 1;
        self.queue.push_back(chunk);
    }

    fn on_ready(
        &mut self,
        _link: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), ClientError> {
        if let Err(lost) = self.receive(ready, shared, observer) {
            self.lose(&lost, shared, observer, monotonic_ns())?;
        }
        match self.window.fatal.take() {
            Some(words) => Err(ClientError::system(format!(
                "topic {:?}: the server answers: {words}",
                self.topic
            ))),
            None => Ok(()),
        }
    }

    fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        if self.held.is_expiry_due(now_ns) {
            self.expire(shared, observer, now_ns);
        }
        if let Err(lost) = self.advance(shared, observer, now_ns) {
            self.lose(&lost, shared, observer, now_ns)?;
        }
        if !self.is_checked && self.connection.is_ready() {
            self.check_payload(shared)?;
            self.is_checked = true;
        }
        Ok(())
    }

    fn deadline_ns(&self) -> i64 {
        let mut deadline_ns = self.connection.deadline_ns().min(self.answer_deadline_ns());
        if self.has_window() {
            if !self.queue.is_empty() {
                deadline_ns = deadline_ns.min(self.hold_until_ns);
            } else if let Some(open) = &self.open {
                let due_ns = if self.held.is_flushing {
                    i64::MIN
                } else {
                    open.due_ns
                };
                deadline_ns = deadline_ns.min(due_ns.max(self.hold_until_ns));
            }
        }
        if !self.queue.is_empty() || self.open.is_some() {
            deadline_ns = deadline_ns.min(self.held.next_expiry_ns);
        }
        deadline_ns
    }

    fn abandon(&mut self, shared: &mut Shared, observer: &mut Observer) {
        self.connection.close(&shared.poller, Vec::new());
        let window = std::mem::take(&mut self.window.chunks);
        let queue = std::mem::take(&mut self.queue);
        for mut chunk in window.into_iter().chain(queue).chain(self.open.take()) {
            let mut ledger = BatchLedger::new(self.id);
            let is_probe = chunk.is_probe;
            chunk.end_all(&mut ledger);
            if is_probe {
                self.held.probes -= ledger.messages() as usize;
            } else if !ledger.is_empty() {
                self.held.msgs -= u64::from(ledger.messages());
                observer.censored(&ledger);
            }
            self.chunks.end(chunk, shared);
        }
    }
}
