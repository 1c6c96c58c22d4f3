//! A consumer: one JetStream pull consumer per topic, on a connection of its own.
//!
//! # Positions
//!
//! The server's consumer is made anew, at the message after the last that was received, whenever deliveries cannot be trusted: after a lost
//! connection, a gap in the numbers of deliveries, or silence. So nothing is missed and nothing waits for the server's redelivery timer;
//! the official clients' "ordered consumers" do the same (ADR-17). Each one has a number in its name, so that the old and the new one
//! cannot be taken for each other.
//!
//! # Pulling
//!
//! A pull asks for a number of messages and ends after a second. The next one leaves when half of the messages have come, or
//! before the last one ends, so that the server always has one. While a pull waits, heartbeats tell which delivery was the last, so that its loss
//! is seen without another one. Pausing means not pulling: what was asked for still comes, for a second at
//! most.

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};
use serde_json::{Value, json};

use super::answer::error_words;
use super::connection::{self, Connection};
use super::names;
use super::options::{AckPolicy, Options};
use super::wire::{self, Message, put_publish};
use crate::lane::Sink;
use crate::shared::{Shared, consumer_token};
use crate::stream::{Lost, kind};
use crate::{ClientError, ConsumerSpec, LaneSpec, Ready, StartAt};

/// Subscription of the answers to requests; messages have those behind it.
const ANSWERS_SID: u64 = 1;
const FIRST_SID: u64 = 2;
/// How long a pull lasts.
const PULL_NS: i64 = 1_000_000_000;
/// When the next pull leaves although the last one has not ended.
const PULL_AGAIN_NS: i64 = 750_000_000;
/// How often the server says, while a pull waits, which delivery was its last: at most half of what a pull lasts. A drain takes a subscription
/// of which nothing is heard for a second for complete, so it must be told before that the last delivery was lost.
const HEARTBEAT_NS: i64 = 300_000_000;
/// A pull is answered with messages or its end; silence for longer than this means that the server has forgotten it.
const SILENCE_NS: i64 = 2_500_000_000;
/// A consumer of which nothing was heard for longer than a pull lasts is not known to be at the end.
const OVERDUE_NS: i64 = 1_100_000_000;
/// How long a request may take.
const REQUEST_NS: i64 = 5_000_000_000;
/// Pause before a request that failed is made again.
const RETRY_NS: i64 = 100_000_000;
/// Bytes of messages asked for at once, and within which numbers of messages.
const PULL_BYTES: usize = 1 << 20;
const PULL_MSGS_MIN: usize = 100;
const PULL_MSGS_MAX: usize = 5000;
/// Bytes of a delivery besides the body: subject, reply subject, lengths.
const DELIVERY_BYTES: usize = 150;
/// Kinds of errors that are counted.
const GAP: &str = "DELIVERY_GAP";
const SILENT: &str = "CONSUMER_SILENT";
const REFUSED: &str = "CONSUMER_REFUSED";
const LOST: &str = "CONSUMER_LOST";

/// How far a feed has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The server's consumer is to be made, not before this time.
    Wanted(i64),
    /// It was asked for; given up at this time.
    Asked(i64),
    /// It delivers.
    Active,
}

/// One topic of a consumer.
#[derive(Debug)]
struct Feed {
    topic: String,
    /// What the subjects of the topic's partitions begin with, with the dot.
    subject_prefix: Vec<u8>,
    /// The subjects to be delivered; empty: all of the topic.
    filters: Vec<String>,
    /// The consumer's own partitions.
    partitions: usize,
    topic_partitions: u32,
    first_slot: usize,
    /// Name of the server's consumer without its number.
    name: String,
    generation: u64,
    state: State,
    was_active: bool,
    /// The last message that was received; None: the position is not fixed yet.
    position: Option<u64>,
    /// Number of the last delivery.
    delivered: u64,
    /// Messages that were asked for and have not come.
    wanted: usize,
    pulled_ns: i64,
    /// When a pull left while no other was under way.
    asked_ns: i64,
    heard_ns: i64,
    /// Messages that the server still has for this consumer, as far as it was told.
    pending: Option<u64>,
    /// Reply subject of the last message that is to be acknowledged.
    last_reply: Vec<u8>,
}

impl Feed {
    fn consumer(&self) -> String {
        format!("{}-{}", self.name, self.generation)
    }

    /// A pull has ended, and the server has not said so: what it told before may not be all any more.
    fn is_overdue(&self, now_ns: i64) -> bool {
        self.wanted > 0
            && now_ns >= self.heard_ns.max(self.asked_ns) + OVERDUE_NS
            && !mutants::is(Mutant::NatsSilenceIsTheEnd)
    }

    /// The server's consumer must be made anew.
    fn restart(&mut self, at_ns: i64) {
        self.state = State::Wanted(at_ns);
        self.wanted = 0;
        self.last_reply.clear();
    }
}

/// A consumer.
pub(crate) struct Consumer {
    subscription: usize,
    start: StartAt,
    ack_policy: AckPolicy,
    inbox: String,
    connection: Connection,
    feeds: Vec<Feed>,
    pull_msgs: usize,
    is_paused: bool,
    was_ready: bool,
    /// Acknowledgements and requests that leave together.
    out: Vec<u8>,
    /// When the feeds must be looked at.
    look_ns: i64,
    has_more: bool,
}

impl Consumer {
    /// Number `index` of a lane's consumers.
    pub fn new(index: usize, options: &Options, lane: &LaneSpec) -> Consumer {
        let spec = &lane.consumers[index];
        let inbox = format!("_INBOX.{}", names::unique());
        let greeting = format!("SUB {inbox}.a.* {ANSWERS_SID}\r\n").into_bytes();
        let message_bytes = lane.payload_bytes_max + DELIVERY_BYTES;
        Consumer {
            subscription: spec.subscription,
            start: spec.start,
            ack_policy: if spec.commit_interval_ns.is_none() {
                AckPolicy::None
            } else {
                options.ack_policy
            },
            connection: Connection::new(
                index,
                consumer_token(index, 0),
                &format!("{}-consumer-{index}", options.client_name),
                &options.login,
                greeting,
            ),
            inbox,
            feeds: feeds(spec, lane),
            pull_msgs: (PULL_BYTES / message_bytes).clamp(PULL_MSGS_MIN, PULL_MSGS_MAX),
            // What is there already is not asked for before the worker says so (`pause`), so that none of it is on its way then.
            is_paused: spec.start == StartAt::Earliest,
            was_ready: false,
            out: Vec::new(),
            look_ns: i64::MIN,
            has_more: false,
        }
    }

    fn advance(&mut self, shared: &mut Shared, observer: &mut Observer, now_ns: i64) -> Result<(), Lost> {
        self.connection.ensure(shared, now_ns)?;
        if self.connection.is_ready() && (now_ns >= self.look_ns || !self.was_ready) {
            self.was_ready = true;
            // A connection that breaks without a word never answers: asking again on it helps nobody.
            if self
                .feeds
                .iter()
                .any(|feed| matches!(feed.state, State::Asked(until_ns) if now_ns >= until_ns))
            {
                return Err(Lost::Timeout);
            }
            self.look(observer, now_ns);
        }
        self.write(shared)
    }

    /// Looks what each feed needs: to be made, to be asked for more, to be given up.
    fn look(&mut self, observer: &mut Observer, now_ns: i64) {
        self.look_ns = i64::MAX;
        for at in 0..self.feeds.len() {
            match self.feeds[at].state {
                State::Wanted(at_ns) if now_ns >= at_ns => self.ask(at, now_ns),
                State::Active => self.keep_fed(at, observer, now_ns),
                State::Wanted(_) | State::Asked(_) => {}
            }
            let feed = &self.feeds[at];
            let deadline_ns = match feed.state {
                State::Wanted(at_ns) => at_ns,
                State::Asked(until_ns) => until_ns,
                State::Active if feed.wanted > 0 => {
                    let silence_ns = feed.heard_ns.max(feed.asked_ns) + SILENCE_NS;
                    if self.is_paused {
                        silence_ns
                    } else {
                        silence_ns.min(feed.pulled_ns + PULL_AGAIN_NS)
                    }
                }
                State::Active => i64::MAX,
            };
            self.look_ns = self.look_ns.min(deadline_ns);
        }
    }

    fn keep_fed(&mut self, at: usize, observer: &mut Observer, now_ns: i64) {
        let feed = &mut self.feeds[at];
        if feed.wanted > 0 && now_ns >= feed.heard_ns.max(feed.asked_ns) + SILENCE_NS {
            observer.error(SILENT);
            feed.restart(now_ns);
            self.ask(at, now_ns);
            return;
        }
        if self.is_paused && !mutants::is(Mutant::NatsPausedPulls) {
            return;
        }
        // A quiet feed is asked again before the last pull ends; its messages are counted twice until then.
        if feed.wanted <= self.pull_msgs / 2 || now_ns >= feed.pulled_ns + PULL_AGAIN_NS {
            self.pull(at, now_ns);
        }
    }

    /// Asks for more messages.
    fn pull(&mut self, at: usize, now_ns: i64) {
        let feed = &mut self.feeds[at];
        let messages = self
            .pull_msgs
            .saturating_sub(feed.wanted)
            .max(self.pull_msgs / 2)
            .max(1);
        if feed.wanted == 0 || mutants::is(Mutant::NatsPullsPutOffSilence) {
            feed.asked_ns = now_ns;
        }
        feed.wanted += messages;
        feed.pulled_ns = now_ns;
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", feed.topic, feed.consumer());
        let reply = format!("{}.m.{at}.{}", self.inbox, feed.generation);
        let request =
            format!("{{\"batch\":{messages},\"expires\":{PULL_NS},\"idle_heartbeat\":{HEARTBEAT_NS}}}");
        put_publish(
            &mut self.out,
            subject.as_bytes(),
            reply.as_bytes(),
            request.as_bytes(),
        );
    }

    fn sid(&self, at: usize, generation: u64) -> u64 {
        FIRST_SID + generation * self.feeds.len() as u64 + at as u64
    }

    /// Asks the server for a new consumer of a feed, and lets the old one go.
    fn ask(&mut self, at: usize, now_ns: i64) {
        let old_sid = self.sid(at, self.feeds[at].generation);
        let new_sid = self.sid(at, self.feeds[at].generation + 1);
        let feed = &mut self.feeds[at];
        if feed.generation > 0 {
            self.out
                .extend_from_slice(format!("UNSUB {old_sid}\r\n").as_bytes());
            let subject = format!("$JS.API.CONSUMER.DELETE.{}.{}", feed.topic, feed.consumer());
            // Its answer goes to a generation that is over, and is not looked at.
            let reply = format!("{}.a.{at}-{}", self.inbox, feed.generation);
            put_publish(&mut self.out, subject.as_bytes(), reply.as_bytes(), b"");
        }
        feed.generation += 1;
        feed.state = State::Asked(now_ns + REQUEST_NS);
        feed.delivered = 0;
        feed.wanted = 0;
        feed.pending = None;
        let line = format!("SUB {}.m.{at}.{} {new_sid}\r\n", self.inbox, feed.generation);
        self.out.extend_from_slice(line.as_bytes());
        let subject = format!("$JS.API.CONSUMER.CREATE.{}.{}", feed.topic, feed.consumer());
        let reply = format!("{}.a.{at}-{}", self.inbox, feed.generation);
        let request = request(feed, self.start, self.ack_policy, self.pull_msgs).to_string();
        put_publish(
            &mut self.out,
            subject.as_bytes(),
            reply.as_bytes(),
            request.as_bytes(),
        );
    }

    fn write(&mut self, shared: &Shared) -> Result<(), Lost> {
        if !self.out.is_empty() {
            if self.connection.is_ready() {
                self.connection.push_bytes(std::mem::take(&mut self.out));
            } else {
                self.out.clear();
            }
        }
        self.connection.write(&shared.poller, |_| {})
    }

    /// Reads and hands messages over, until there are none or the time is over.
    fn receive(&mut self, shared: &mut Shared, observer: &mut Observer, until_ns: i64) -> Result<(), Lost> {
        loop {
            let mut intake = Intake {
                feeds: &mut self.feeds,
                subscription: self.subscription,
                ack_policy: self.ack_policy,
                out: &mut self.out,
                messages: 0,
                trouble: None,
                read_ns: 0,
                look: false,
            };
            let outcome = self
                .connection
                .read(shared, |message, now_ns| intake.take(message, observer, now_ns));
            let (messages, read_ns, look) = (intake.messages, intake.read_ns, intake.look);
            if let Some(trouble) = intake.trouble {
                shared.trouble = Some(trouble);
            }
            if messages > 0 {
                observer.fetched(self.subscription);
                self.acknowledge();
            }
            self.has_more = false;
            let more = outcome?;
            if read_ns > 0 && (messages > 0 || look) {
                self.look(observer, read_ns);
                self.write(shared)?;
            }
            if !more {
                return Ok(());
            }
            if read_ns >= until_ns {
                self.has_more = true;
                return Ok(());
            }
        }
    }

    /// With one acknowledgement for all: of the last message of each feed.
    fn acknowledge(&mut self) {
        if self.ack_policy != AckPolicy::All {
            return;
        }
        for feed in &mut self.feeds {
            if !feed.last_reply.is_empty() {
                put_publish(&mut self.out, &feed.last_reply, b"", b"");
                feed.last_reply.clear();
            }
        }
    }

    fn lose(
        &mut self,
        lost: &Lost,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        let is_idle = !self.was_ready || self.feeds.iter().all(|feed| feed.state != State::Active);
        if !(is_idle && lost.kind() == kind::CONNECTION_LOST) {
            observer.error(lost.kind());
        }
        drop(self.connection.lose(lost, shared, now_ns));
        self.was_ready = false;
        self.has_more = false;
        self.out.clear();
        for feed in &mut self.feeds {
            feed.restart(i64::MIN);
        }
        self.look_ns = i64::MAX;
        connection::fatal(lost).map_or(Ok(()), Err)
    }
}

impl Sink for Consumer {
    fn subscription(&self) -> usize {
        self.subscription
    }

    fn partitions(&self) -> usize {
        self.feeds.iter().map(|feed| feed.partitions).sum()
    }

    fn assigned(&self) -> usize {
        self.feeds
            .iter()
            .filter(|feed| feed.position.is_some())
            .map(|feed| feed.partitions)
            .sum()
    }

    fn pause(&mut self, is_paused: bool) {
        if self.is_paused && !is_paused {
            for feed in &mut self.feeds {
                feed.pending = None;
            }
        }
        self.is_paused = is_paused;
        self.look_ns = i64::MIN;
    }

    fn is_caught_up(&self) -> bool {
        let now_ns = monotonic_ns();
        !self.has_more
            && self.feeds.iter().all(|feed| {
                feed.state == State::Active && feed.pending == Some(0) && !feed.is_overdue(now_ns)
            })
    }

    fn flush(&mut self) {
        self.look_ns = i64::MIN;
    }

    fn on_ready(
        &mut self,
        _link: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
        until_ns: i64,
    ) -> Result<bool, ClientError> {
        let advanced = self.connection.advance(ready, shared);
        let outcome = match advanced {
            Ok(()) if ready.readable => self.receive(shared, observer, until_ns),
            outcome => outcome,
        };
        match outcome.and_then(|()| self.write(shared)) {
            Ok(()) => Ok(self.has_more),
            Err(lost) => self.lose(&lost, shared, observer, monotonic_ns()).map(|()| false),
        }
    }

    fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<bool, ClientError> {
        if let Err(lost) = self.advance(shared, observer, now_ns) {
            self.lose(&lost, shared, observer, now_ns)?;
        }
        Ok(false)
    }

    fn deadline_ns(&self) -> i64 {
        let look_ns = match (self.connection.is_ready(), self.was_ready) {
            (true, true) => self.look_ns,
            (true, false) => i64::MIN,
            (false, _) => i64::MAX,
        };
        self.connection.deadline_ns().min(look_ns)
    }

    fn abandon(&mut self, shared: &mut Shared, _observer: &mut Observer) {
        let mut words = std::mem::take(&mut self.out);
        for feed in &self.feeds {
            if feed.generation > 0 {
                let subject = format!("$JS.API.CONSUMER.DELETE.{}.{}", feed.topic, feed.consumer());
                put_publish(&mut words, subject.as_bytes(), b"", b"");
            }
        }
        self.connection.close(&shared.poller, words);
    }
}

fn feeds(spec: &ConsumerSpec, lane: &LaneSpec) -> Vec<Feed> {
    let mut partitions = spec.partitions.clone();
    partitions.sort_unstable();
    partitions.dedup();
    let by_topic = partitions.chunk_by(|one, other| one.0 == other.0);
    by_topic
        .map(|of_topic| {
            let (index, first_partition) = of_topic[0];
            let topic = &lane.topics[index];
            let is_whole = of_topic.len() == topic.partitions as usize;
            let filter = |(_, partition): &(usize, u32)| names::subject(&topic.name, *partition);
            Feed {
                topic: topic.name.clone(),
                subject_prefix: format!("{}.", names::prefix(&topic.name)).into_bytes(),
                filters: if is_whole {
                    Vec::new()
                } else {
                    of_topic.iter().map(filter).collect()
                },
                partitions: of_topic.len(),
                topic_partitions: topic.partitions,
                first_slot: topic.first_slot,
                name: format!("{}-{:08x}-{first_partition}", spec.name, lane.run),
                generation: 0,
                state: State::Wanted(i64::MIN),
                was_active: false,
                position: None,
                delivered: 0,
                wanted: 0,
                pulled_ns: 0,
                asked_ns: 0,
                heard_ns: 0,
                pending: None,
                last_reply: Vec::new(),
            }
        })
        .collect()
}

/// The request for a feed's consumer.
fn request(feed: &Feed, start: StartAt, ack_policy: AckPolicy, pull_msgs: usize) -> Value {
    let mut config = json!({
        "name": feed.consumer(),
        "ack_policy": ack_policy.name(),
        "replay_policy": "instant",
        // A consumer that nobody pulls from is removed by the server.
        "inactive_threshold": 300_000_000_000u64,
    });
    if ack_policy != AckPolicy::None {
        config["durable_name"] = json!(feed.consumer());
        // Several pulls' worth, so that acknowledgements on their way do not stop deliveries.
        config["max_ack_pending"] = json!((8 * pull_msgs).max(10_000));
    }
    match (feed.position, start) {
        (Some(position), _) => {
            config["deliver_policy"] = json!("by_start_sequence");
            config["opt_start_seq"] =
                json!(position + 1 + u64::from(mutants::is(Mutant::NatsPositionOneTooFar)));
        }
        (None, StartAt::Latest) => config["deliver_policy"] = json!("new"),
        (None, StartAt::Earliest) => config["deliver_policy"] = json!("all"),
    }
    match feed.filters.as_slice() {
        [] => {}
        [one] => config["filter_subject"] = json!(one),
        several => config["filter_subjects"] = json!(several),
    }
    json!({"stream_name": feed.topic, "config": config, "action": "create"})
}

/// What one read brings.
struct Intake<'a> {
    feeds: &'a mut Vec<Feed>,
    subscription: usize,
    ack_policy: AckPolicy,
    out: &'a mut Vec<u8>,
    messages: usize,
    trouble: Option<String>,
    read_ns: i64,
    look: bool,
}

impl Intake<'_> {
    #[inline]
    fn take(&mut self, message: &Message<'_>, observer: &mut Observer, now_ns: i64) {
        self.read_ns = now_ns;
        if message.sid == ANSWERS_SID {
            self.look = true;
            self.answer(message, observer, now_ns);
            return;
        }
        let feeds = self.feeds.len() as u64;
        let Some(number) = message.sid.checked_sub(FIRST_SID) else {
            return;
        };
        let feed = &mut self.feeds[(number % feeds) as usize];
        if number / feeds != feed.generation || feed.state != State::Active {
            return;
        }
        feed.heard_ns = now_ns;
        if let Some(status) = wire::status(message.headers) {
            self.look = true;
            self.status((number % feeds) as usize, status, message, observer, now_ns);
            return;
        }
        feed.wanted = feed.wanted.saturating_sub(1);
        let Some(delivery) = wire::delivery(message.reply) else {
            observer.error(kind::MALFORMED_ANSWER);
            return;
        };
        if delivery.consumer_sequence != feed.delivered + 1 && !mutants::is(Mutant::NatsGapNotSeen) {
            observer.error(GAP);
            feed.restart(now_ns);
            self.look = true;
            return;
        }
        feed.delivered = delivery.consumer_sequence;
        feed.pending = Some(delivery.pending);
        feed.position = Some(feed.position.unwrap_or(0).max(delivery.stream_sequence));
        match self.ack_policy {
            AckPolicy::Explicit => put_publish(self.out, message.reply, b"", b""),
            AckPolicy::All => {
                feed.last_reply.clear();
                feed.last_reply.extend_from_slice(message.reply);
            }
            AckPolicy::None => {}
        }
        let digits = message.subject.strip_prefix(feed.subject_prefix.as_slice());
        match digits.and_then(wire::decimal) {
            Some(partition) if partition < u64::from(feed.topic_partitions) => {
                self.messages += 1;
                let slot = feed.first_slot + partition as usize;
                observer.received(self.subscription, slot, message.payload, now_ns);
            }
            _ => observer.error(kind::MALFORMED_ANSWER),
        }
    }

    /// A pull has ended without all of its messages.
    fn status(
        &mut self,
        at: usize,
        status: u64,
        message: &Message<'_>,
        observer: &mut Observer,
        now_ns: i64,
    ) {
        let feed = &mut self.feeds[at];
        let left = wire::header(message.headers, b"Nats-Pending-Messages").and_then(wire::decimal);
        match (status, left) {
            (100, _) => {
                // Only a delivery that was lost on its way makes the server's last one another than ours.
                let last = wire::header(message.headers, b"Nats-Last-Consumer").and_then(wire::decimal);
                if last.is_some_and(|last| last > feed.delivered)
                    && !mutants::is(Mutant::NatsHeartbeatIgnored)
                {
                    observer.error(GAP);
                    feed.restart(now_ns);
                }
            }
            (404 | 408, left) => {
                // The server waited for messages and there were none.
                if left.is_some_and(|left| left > 0) {
                    // It told of more before, which a waiting pull would have had: a delivery was lost on its way.
                    if feed.pending.is_some_and(|pending| pending > 0) {
                        observer.error(GAP);
                        feed.restart(now_ns);
                        return;
                    }
                    feed.pending = Some(0);
                }
                let left = left.map_or(feed.wanted, |left| left as usize);
                feed.wanted = feed.wanted.saturating_sub(left);
            }
            // The pull reached one of its limits, and the consumer is as it was.
            (409, Some(left)) => feed.wanted = feed.wanted.saturating_sub(left as usize),
            _ => {
                let words = String::from_utf8_lossy(wire::status_words(message.headers)).into_owned();
                observer.error(LOST);
                self.trouble = Some(format!("consumer {}: the server says {words}", feed.consumer()));
                feed.restart(now_ns + RETRY_NS);
            }
        }
    }

    /// An answer to a request for a consumer.
    fn answer(&mut self, message: &Message<'_>, observer: &mut Observer, now_ns: i64) {
        let Some(token) = message.subject.rsplit(|byte| *byte == b'.').next() else {
            return;
        };
        let mut numbers = token.split(|byte| *byte == b'-').map(wire::decimal);
        let (Some(Some(at)), Some(Some(generation))) = (numbers.next(), numbers.next()) else {
            return;
        };
        let Some(feed) = self.feeds.get_mut(at as usize) else {
            return;
        };
        if feed.generation != generation || !matches!(feed.state, State::Asked(_)) {
            return;
        }
        let answer: Value = serde_json::from_slice(message.payload).unwrap_or(Value::Null);
        if answer["config"].is_null() || !answer["error"].is_null() {
            let words = match wire::status(message.headers) {
                Some(503) => "nobody answers: is JetStream on, and does the stream have a leader?".to_owned(),
                _ => error_words(&answer),
            };
            self.trouble = Some(format!("topic {:?}: no consumer: {words}", feed.topic));
            if feed.was_active {
                observer.error(REFUSED);
            }
            feed.restart(now_ns + RETRY_NS);
            return;
        }
        feed.state = State::Active;
        feed.was_active = true;
        feed.heard_ns = now_ns;
        feed.pulled_ns = now_ns;
        feed.pending = answer["num_pending"].as_u64();
        if feed.position.is_none() {
            feed.position = Some(answer["delivered"]["stream_seq"].as_u64().unwrap_or(0));
        }
    }
}
