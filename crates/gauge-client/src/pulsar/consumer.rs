//! A Pulsar consumer: one consumer per partition on the partition's broker, over one connection per broker.
//!
//! Messages are parsed where they were read and handed over at once, so that permits only say how much may travel: `receive_bytes` over all
//! partitions, counted in messages of the size seen last, and renewed when half of them is used.
//!
//! With exclusive and failover subscriptions one acknowledgement covers everything before it, and what is delivered again after a
//! reconnection is dropped by its position, as Pulsar's Java client does with what it has acknowledged. With shared ones every entry is
//! acknowledged by itself, many in one command.
//!
//! Pausing acknowledges, closes the consumer and ignores what was on its way, which the broker delivers again afterwards: permits cannot
//! be taken back.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};

use super::commands::{self, Command, EntryId, Subscribe, SubscriptionType};
use super::compress::Decompressor;
use super::error;
use super::message::{self, Broken};
use super::options::Options;
use super::permits::{Permits, Window};
use super::receipts::{Fault, on_failure};
use super::routes::{Event, Routes};
use super::session::{Frame, Session};
use super::wire::Malformed;
use crate::lane::Sink;
use crate::shared::{Shared, consumer_token};
use crate::stream::{InputBytes, Lost};
use crate::{ClientError, LaneSpec, Ready, StartAt};

/// A frame is as long as a broker's largest message, 5 MiB by default; the buffer grows when there is one.
const INPUT: InputBytes = InputBytes {
    first: 256 << 10,
    max: 256 << 20,
};
/// Acknowledgements wait for at most this long, as in Pulsar's Java client; those of shared subscriptions also where no interval is given.
const ACK_NS: i64 = 100_000_000;
/// Entries acknowledged in one command.
const ACK_ENTRIES: usize = 1000;
/// How often brokers are asked for the ends of partitions, during the drain.
const ASK_NS: i64 = 200_000_000;

/// What was answered to a question that is older than this is not the end any more: a broker that is silent may have more.
const OVERDUE_NS: i64 = 1_000_000_000;
/// Questions for a partition's end that may be answered yet.
const QUESTIONS_MAX: usize = 16;

/// Consumers that this process has made: their names differ, over all lanes and workers of a host.
static CONSUMERS: AtomicU32 = AtomicU32::new(0);

fn consumer_name(run: u32) -> String {
    match crate::world::unique() {
        Some(number) => format!("streamgauge-{run:08x}-{number:08x}"),
        None => format!(
            "streamgauge-{run:08x}-{}-{}",
            std::process::id(),
            CONSUMERS.fetch_add(1, Ordering::Relaxed)
        ),
    }
}

/// A partition.
#[derive(Debug)]
struct Position {
    slot: usize,
    /// The worker has given this partition to this consumer; shared subscriptions read others as well.
    is_own: bool,
    /// It was open once: the subscription exists.
    has_begun: bool,
    permits: Permits,
    /// The last entry that was handed over.
    last: EntryId,
    /// Entries to be acknowledged: for cumulative subscriptions the last one is enough.
    unacked: Vec<EntryId>,
    /// The partition's end and the acknowledged position, as the broker told last, and when it was asked for that.
    end: Option<EntryId>,
    end_asked_ns: i64,
    mark_delete: EntryId,
    /// Questions for the end that have no answer: their numbers, and when they were asked.
    questions: VecDeque<(u64, i64)>,
}

/// A consumer.
pub(super) struct Consumer {
    subscription: usize,
    subscription_name: String,
    consumer_name: String,
    kind: SubscriptionType,
    start: StartAt,
    routes: Routes,
    positions: Vec<Position>,
    window: Window,
    is_paused: bool,
    is_draining: bool,
    /// Acknowledgements leave at intervals; None: only where they must.
    ack_interval_ns: Option<i64>,
    has_unacked: bool,
    ack_at_ns: i64,
    ask_at_ns: i64,
    has_messages: bool,
    decompressor: Decompressor,
    ack_set: Vec<u64>,
}

impl Consumer {
    pub fn new(index: usize, spec: &LaneSpec, options: &Options) -> Consumer {
        let consumer = &spec.consumers[index];
        let own: HashSet<(usize, u32)> = consumer.partitions.iter().copied().collect();
        let mut names = Vec::new();
        let mut positions = Vec::new();
        for (at, topic) in spec.topics.iter().enumerate() {
            for partition in 0..topic.partitions {
                let is_own = own.contains(&(at, partition));
                if is_own || options.subscription_type != SubscriptionType::Exclusive {
                    names.push(options.partition_name(&topic.name, partition));
                    positions.push(Position::new(topic.first_slot + partition as usize, is_own));
                }
            }
        }
        let token = consumer_token(index, 0);
        let is_cumulative = options.subscription_type.is_cumulative();
        Consumer {
            subscription: consumer.subscription,
            subscription_name: consumer.name.clone(),
            consumer_name: consumer_name(spec.run),
            kind: options.subscription_type,
            start: consumer.start,
            routes: Routes::new(names.into_iter(), token, INPUT, options.auth.clone(), index),
            window: Window::new(
                options.receive_bytes,
                positions.len(),
                spec.payload_bytes_max as u64,
            ),
            positions,
            // What is read from the beginning is not read before the load begins, when it is resumed.
            is_paused: consumer.start == StartAt::Earliest,
            is_draining: false,
            ack_interval_ns: match consumer.commit_interval_ns {
                None if is_cumulative => None,
                interval => Some(interval.map_or(ACK_NS, |interval_ns| interval_ns.min(ACK_NS))),
            },
            has_unacked: false,
            ack_at_ns: i64::MAX,
            ask_at_ns: i64::MAX,
            has_messages: false,
            decompressor: Decompressor::new(),
            ack_set: Vec::new(),
        }
    }

    /// Queues a command for a partition's broker, if the partition is open.
    fn push(&mut self, at: usize, command: Vec<u8>) {
        if let Some(link) = self.routes.open_link(at)
            && let Some(session) = &mut self.routes.links[link].session
        {
            session.push(command);
        }
    }

    /// Renews a partition's permits when half of them is used. `session`: the connection that is being read.
    #[inline]
    fn grant(&mut self, at: usize, session: Option<&mut Session>) {
        if self.is_paused {
            return;
        }
        let Some(more) = self.positions[at].permits.renew(&self.window) else {
            return;
        };
        let command = commands::flow(at as u64, more);
        match session {
            Some(session) => session.push(command),
            None => self.push(at, command),
        }
    }

    /// Acknowledges what was handed over.
    fn acknowledge(&mut self) {
        self.has_unacked = false;
        self.ack_at_ns = i64::MAX;
        for at in 0..self.positions.len() {
            let mut unacked = std::mem::take(&mut self.positions[at].unacked);
            let consumer = at as u64;
            match unacked.last() {
                None => {}
                Some(last) if self.kind.is_cumulative() => {
                    let command = commands::ack_cumulative(consumer, *last);
                    self.push(at, command);
                }
                Some(_) => {
                    for ids in unacked.chunks(ACK_ENTRIES) {
                        let command = commands::ack_individual(consumer, ids);
                        self.push(at, command);
                    }
                }
            }
            unacked.clear();
            self.positions[at].unacked = unacked;
        }
    }

    /// Closes what is open while paused, and opens what is closed otherwise.
    fn follow_pause(&mut self, now_ns: i64) {
        if self.is_paused {
            self.acknowledge();
        }
        for at in 0..self.positions.len() {
            // A consumer without permits receives nothing: it may stay.
            let stays_open = mutants::is(Mutant::PulsarPausedStaysOpen);
            if self.is_paused && self.positions[at].permits.are_left() && !stays_open {
                self.positions[at].permits.clear();
                self.routes.rest(at, true, now_ns);
            } else if !self.is_paused {
                self.routes.rest(at, false, now_ns);
                if self.routes.open_link(at).is_some() {
                    self.grant(at, None);
                }
            }
        }
    }

    /// Asks for the ends of the partitions.
    fn ask(&mut self, now_ns: i64) {
        for at in 0..self.positions.len() {
            if self.routes.open_link(at).is_none() {
                continue;
            }
            let request = self.routes.request(at);
            let questions = &mut self.positions[at].questions;
            if questions.len() >= QUESTIONS_MAX {
                questions.pop_front();
            }
            questions.push_back((request, now_ns));
            self.push(at, commands::last_message_id(at as u64, request));
        }
    }

    fn drive_links(&mut self, shared: &Shared, now_ns: i64) -> Result<(), (usize, Lost)> {
        let (subscription, consumer_name) = (&self.subscription_name, &self.consumer_name);
        let (kind, is_earliest) = (self.kind, self.start == StartAt::Earliest);
        self.routes.drive(shared, now_ns, |at, topic, request| {
            let asked = Subscribe {
                topic,
                subscription,
                kind,
                consumer: at as u64,
                consumer_name,
                is_earliest,
            };
            Some(commands::subscribe(&asked, request))
        })?;
        if now_ns >= self.ack_at_ns {
            self.acknowledge();
        }
        if now_ns >= self.ask_at_ns {
            self.ask_at_ns = now_ns + ASK_NS;
            self.acknowledge();
            self.ask(now_ns);
        }
        self.write(shared)
    }

    fn write(&mut self, shared: &Shared) -> Result<(), (usize, Lost)> {
        let links = 0..self.routes.links.len();
        self.routes.write(links, shared, |_, _| {})
    }

    /// A socket is ready. True: there is more to read than there was time for.
    fn advance(
        &mut self,
        link: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
        until_ns: i64,
    ) -> Result<bool, Fault> {
        let now_ns = monotonic_ns();
        let Some(session) = self
            .routes
            .links
            .get_mut(link)
            .and_then(|link| link.session.as_mut())
        else {
            return Ok(false);
        };
        session.advance(ready, &shared.poller, now_ns)?;
        if ready.writable {
            session.write(&shared.poller, |_| {})?;
        }
        if !ready.readable {
            return Ok(false);
        }
        loop {
            // The session is put aside, so that its bytes can be read while the consumer is changed.
            let Some(mut session) = self.routes.links[link].session.take() else {
                return Ok(false);
            };
            let read = session.read(now_ns);
            let received_ns = monotonic_ns();
            let handled = self.take_frames(link, &mut session, shared, observer, received_ns);
            if std::mem::take(&mut self.has_messages) {
                observer.fetched(self.subscription);
            }
            let written = session.write(&shared.poller, |_| {});
            self.routes.links[link].session = Some(session);
            handled?;
            written?;
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
        link: usize,
        session: &mut Session,
        shared: &mut Shared,
        observer: &mut Observer,
        received_ns: i64,
    ) -> Result<(), Fault> {
        while let Some(frame) = session.next()? {
            if session.handle(&frame)? {
                continue;
            }
            match session.command(&frame)? {
                Command::Message {
                    consumer,
                    id,
                    ack_set,
                } => {
                    match ack_set {
                        Some(body) => commands::read_ack_set(body, &mut self.ack_set)?,
                        None => self.ack_set.clear(),
                    }
                    self.on_message(link, consumer, id, session, &frame, observer, received_ns)?;
                }
                Command::LastMessageId {
                    request,
                    last,
                    mark_delete,
                } => {
                    if let Some(position) = self.positions.get_mut(request as u32 as usize) {
                        position.told(request, last, mark_delete);
                    }
                }
                command => match self.routes.on_command(link, &command, shared, received_ns)? {
                    Event::Opened(at) => {
                        let position = &mut self.positions[at];
                        position.has_begun = true;
                        if !mutants::is(Mutant::PulsarPermitsKept) {
                            position.permits.clear();
                        }
                        self.grant(at, Some(session));
                    }
                    Event::Closed(at) => {
                        observer.error(error::CLOSED_BY_BROKER);
                        self.forget(at);
                    }
                    Event::Failed { error, words } => {
                        let who = format!("consumer of subscription {}", self.subscription_name);
                        on_failure(error, words, &who, shared, observer)?;
                    }
                    Event::Rested(at) => self.forget(at),
                    Event::Nothing => {}
                },
            }
        }
        Ok(())
    }

    /// The broker counts nothing of this partition any more.
    fn forget(&mut self, at: usize) {
        let position = &mut self.positions[at];
        if !mutants::is(Mutant::PulsarPermitsKept) {
            position.permits.clear();
        }
        position.unacked.clear();
        position.questions.clear();
        position.end = None;
    }

    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one entry, on the hot path"
    )]
    fn on_message(
        &mut self,
        link: usize,
        consumer: u64,
        id: EntryId,
        session: &mut Session,
        frame: &Frame,
        observer: &mut Observer,
        received_ns: i64,
    ) -> Result<(), Malformed> {
        let at = usize::try_from(consumer).unwrap_or(usize::MAX);
        if at >= self.positions.len() {
            return Err(Malformed("a message for a consumer that was never opened"));
        }
        // Of a consumer that is being closed: it will come again.
        if self.routes.open_link(at) != Some(link) {
            return Ok(());
        }
        let payload = session.payload(frame);
        let permits = match self.deliver(at, id, payload, observer, received_ns) {
            Ok(permits) => permits,
            // The connection is sound, so the fault is in what was stored: acknowledged, counted, and missing in the audit.
            Err(broken) => {
                let permits = match mutants::is(Mutant::PulsarPermitsOfDamageLost) {
                    true => 1,
                    false => message::counted(payload),
                };
                observer.corrupted(self.subscription, 1);
                if !mutants::is(Mutant::PulsarDamageComesAgain) {
                    self.pass(at, id);
                }
                let (kind, command) = match broken {
                    Broken::Checksum => (error::CHECKSUM_MISMATCH, commands::ack_corrupted(consumer, id)),
                    Broken::Malformed(_) => {
                        (error::UNREADABLE_BATCH, commands::ack_individual(consumer, &[id]))
                    }
                };
                observer.error(kind);
                session.push(command);
                permits
            }
        };
        self.positions[at].permits.take(permits);
        self.grant(at, Some(session));
        Ok(())
    }

    /// Hands an entry's messages over. Returns the permits that it took.
    #[inline]
    fn deliver(
        &mut self,
        at: usize,
        id: EntryId,
        payload: &[u8],
        observer: &mut Observer,
        received_ns: i64,
    ) -> Result<u32, Broken> {
        let position = &self.positions[at];
        // What cannot be read either was counted when it came first.
        if self.kind.is_cumulative() && id <= position.last && !mutants::is(Mutant::PulsarRedeliveredIsNew) {
            // The broker does not know that it was handed over, and others wait for that.
            if !mutants::is(Mutant::PulsarRedeliveredNotAcked) {
                self.remember(at, position.last, received_ns);
            }
            return Ok(message::counted(payload));
        }
        let entry = message::read(payload)?;
        if entry.is_marker {
            return Ok(entry.permits());
        }
        if entry.is_encrypted {
            return Err(Broken::Malformed(Malformed("an encrypted message")));
        }
        let body = match entry.compression {
            0 => entry.body,
            codec => self
                .decompressor
                .decompress(codec, entry.body, entry.uncompressed_bytes)?,
        };
        let (subscription, slot) = (self.subscription, position.slot);
        let mut take = |body: &[u8]| observer.received(subscription, slot, body, received_ns);
        match entry.messages {
            Some(messages) => message::each(body, messages, &self.ack_set, &mut take)?,
            None => take(body),
        }
        self.has_messages = true;
        self.window.see(body.len(), entry.permits());
        self.pass(at, id);
        self.remember(at, id, received_ns);
        Ok(entry.permits())
    }

    /// An entry is done with. What the broker told of the end before is not the end any more.
    #[inline]
    fn pass(&mut self, at: usize, id: EntryId) {
        let position = &mut self.positions[at];
        position.last = match mutants::is(Mutant::PulsarPositionOneTooFar) {
            true => EntryId {
                entry: id.entry + 1,
                ..id
            },
            false => id,
        };
        position.end = None;
    }

    /// An entry is to be acknowledged.
    #[inline]
    fn remember(&mut self, at: usize, id: EntryId, now_ns: i64) {
        let unacked = &mut self.positions[at].unacked;
        if self.kind.is_cumulative() {
            unacked.clear();
        }
        unacked.push(id);
        if !self.has_unacked {
            self.has_unacked = true;
            self.ack_at_ns = self
                .ack_interval_ns
                .map_or(i64::MAX, |interval_ns| now_ns.saturating_add(interval_ns));
        }
        if !self.kind.is_cumulative() && self.positions[at].unacked.len() >= ACK_ENTRIES {
            self.ack_at_ns = now_ns;
        }
    }

    /// A connection is lost, or the trial is.
    fn fail(
        &mut self,
        link: usize,
        fault: Fault,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        let lost = match fault {
            Fault::Lost(lost) => lost,
            Fault::Fatal(error) => return Err(error),
        };
        let words = format!("consumer of subscription {}: {lost}", self.subscription_name);
        if matches!(
            &lost,
            Lost::Refused("AuthenticationError" | "AuthorizationError", _)
        ) {
            return Err(ClientError::system(words));
        }
        observer.error(lost.kind());
        shared.trouble = Some(words);
        let over: Vec<usize> = self.routes.open_over(link).collect();
        self.routes.lose(link, now_ns);
        for at in over {
            self.forget(at);
        }
        Ok(())
    }
}

impl Position {
    /// The broker has answered a question for the end. Answers that were overtaken say nothing.
    fn told(&mut self, request: u64, last: EntryId, mark_delete: Option<EntryId>) {
        let Some(place) = self.questions.iter().position(|(asked, _)| *asked == request) else {
            return;
        };
        let asked_ns = self.questions[place].1;
        self.questions.drain(..=place);
        self.end = Some(last);
        self.end_asked_ns = asked_ns;
        self.mark_delete = mark_delete.unwrap_or(self.mark_delete);
    }

    /// The broker has said a moment ago that there is no more. Where consumers share a partition, what one has read last is not all that came before it:
    /// a consumer that the broker takes for alive, on a connection that is dead, may have messages that come back. Then everything up to the end must have
    /// been acknowledged.
    fn is_at_end(&self, kind: SubscriptionType, now_ns: i64) -> bool {
        let is_told = now_ns.saturating_sub(self.end_asked_ns) < OVERDUE_NS
            || mutants::is(Mutant::PulsarSilenceIsTheEnd);
        let read = match kind.is_cumulative() {
            true => self.last.max(self.mark_delete),
            false => self.mark_delete,
        };
        is_told && self.end.is_some_and(|end| end <= read)
    }

    fn new(slot: usize, is_own: bool) -> Position {
        Position {
            slot,
            is_own,
            has_begun: false,
            permits: Permits::default(),
            last: EntryId::NONE,
            unacked: Vec::new(),
            end: None,
            end_asked_ns: i64::MIN,
            mark_delete: EntryId::NONE,
            questions: VecDeque::new(),
        }
    }
}

impl Sink for Consumer {
    fn subscription(&self) -> usize {
        self.subscription
    }

    fn partitions(&self) -> usize {
        self.positions.iter().filter(|position| position.is_own).count()
    }

    fn assigned(&self) -> usize {
        let is_assigned = |position: &&Position| position.is_own && position.has_begun;
        self.positions.iter().filter(is_assigned).count()
    }

    fn pause(&mut self, paused: bool) {
        if self.is_paused != paused {
            self.is_paused = paused;
            self.follow_pause(monotonic_ns());
        }
    }

    fn is_caught_up(&self) -> bool {
        let now_ns = monotonic_ns();
        self.positions
            .iter()
            .all(|position| position.is_at_end(self.kind, now_ns))
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
        match self.advance(link, ready, shared, observer, until_ns) {
            Ok(more) => Ok(more),
            Err(fault) => self
                .fail(link, fault, shared, observer, monotonic_ns())
                .map(|()| false),
        }
    }

    fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<bool, ClientError> {
        if let Err((link, lost)) = self.drive_links(shared, now_ns) {
            self.fail(link, lost.into(), shared, observer, now_ns)?;
        }
        Ok(false)
    }

    fn deadline_ns(&self) -> i64 {
        self.routes.deadline_ns().min(self.ack_at_ns).min(self.ask_at_ns)
    }

    fn abandon(&mut self, shared: &mut Shared, _observer: &mut Observer) {
        if self.ack_interval_ns.is_some() {
            self.acknowledge();
        }
        // What cannot be written at once is given up.
        let _ = self.write(shared);
        for at in 0..self.routes.links.len() {
            self.routes.lose(at, monotonic_ns());
        }
    }
}
