//! Clients of the systems under test: one trait, one module per protocol.
//!
//! The clients speak the systems' own wire protocols, so that the generator is never the bottleneck and batching, pipelining and
//! time-stamping are the same for every system. A [`Protocol`] is a factory. The worker asks it for an [`Admin`] (topics, settings;
//! blocking, not on the hot path) and for one [`LaneClient`] per lane, which owns that lane's connections, producers and consumers.
//! [`cli`] is the command `gauge describe`, by which the lab asks a broker of Kafka's protocol before there is a worker.
//!
//! # The life of a lane client
//!
//! All calls come from the lane's own thread.
//!
//! 1. [`Protocol::lane`] makes it; [`LaneClient::prepare`] connects, finds the partitions' leaders and the consumers' positions.
//! 2. Until the start, the lane alternates [`LaneClient::wait`] and [`LaneClient::drive`]; [`LaneClient::send_probes`] sends one probe
//!    message to each of the given partitions, and the observers see them come back.
//! 3. Under load the lane calls [`LaneClient::offer`] for each producer that has something due, then `drive`, then `wait`.
//! 4. At the end, `drive` until [`LaneClient::waiting_msgs`] is 0 or patience ends; then [`LaneClient::abandon`], which reports
//!    everything that is still waiting to the observer as censored.
//!
//! # Rules for implementations
//!
//! - A message taken from an emitter ends in exactly one of [`Observer::acked`], [`Observer::failed`], [`Observer::censored`].
//! - `sent` is when the message is taken, `acked` when the bytes of the acknowledgement have been read, `received` when the bytes of the
//!   message have been read; one reading of the clock may serve all that one system call brought.
//! - Retriable errors are retried with the times kept, for as long as [`LaneSpec::retry_for_ns`]; order within a partition is kept.
//! - A lost connection or leader is an event to recover from, not the end: errors are counted by kind. Only what makes the trial
//!   pointless (an authorisation failure, a topic that is gone) is returned as an error.
//! - Nothing blocks but `prepare` and `wait`. No allocation per message; buffers are bounded by [`BatchPolicy::buffer_bytes`].
//! - Each producer and each consumer has connections of its own, as an application's would.

pub mod cli;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod kafka;
mod keys;
mod lane;
mod lingering;
mod names;
pub mod nats;
mod poller;
pub mod pulsar;
pub mod rabbitmq;
mod security;
mod shared;
mod socket;
mod source;
#[allow(dead_code, reason = "each protocol uses what it needs of it")]
mod stream;
mod tls;
mod transport;
mod turns;
#[doc(hidden)]
pub mod world;

pub use error::ClientError;
pub use poller::{Interest, Poller, Ready};
pub use security::Security;
pub use shared::consumer_of;

use std::collections::BTreeSet;
use std::sync::Arc;

use gauge_load::{Emitter, Observer};

/// How to reach a system: the `system` object of the worker API without its protocol.
#[derive(Clone)]
pub struct Endpoint {
    /// `host:port` of some of the system's nodes.
    pub bootstrap: Vec<String>,
    /// The protocol's own options; an unknown one is an error.
    pub options: serde_json::Map<String, serde_json::Value>,
    /// How connections are protected, and who speaks on them.
    pub security: Security,
}

impl Endpoint {
    /// Where its nodes listen, on whatever machine.
    pub fn ports(&self) -> BTreeSet<u16> {
        let port = |server: &String| server.rsplit_once(':')?.1.parse().ok();
        self.bootstrap.iter().filter_map(port).collect()
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Passwords and tokens may be among the options: their names are enough.
        let options: Vec<&String> = self.options.keys().collect();
        formatter
            .debug_struct("Endpoint")
            .field("bootstrap", &self.bootstrap)
            .field("options", &options)
            .field("security", &self.security)
            .finish()
    }
}

/// A topic that exists.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// How many partitions it has, numbered from 0.
    pub partitions: u32,
    /// The slot of its partition 0; slots number the partitions of all topics of a trial through.
    pub first_slot: usize,
}

/// How messages are spread over partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// No key; a batch goes to one partition, the next batch to the next one (Kafka's sticky partitioner, in turn instead of at random).
    Sticky,
    /// No key; each message goes to the next partition.
    RoundRobin,
    /// The departure's key, as its decimal digits, hashed as the system's own clients do.
    Keyed,
}

/// One producer of a lane. The producer's emitter carries the same number.
#[derive(Clone, Debug)]
pub struct ProducerSpec {
    /// Its number, unique within the trial.
    pub id: u32,
    /// Index of its topic in [`LaneSpec::topics`].
    pub topic: usize,
    /// How it chooses partitions.
    pub keys: Keys,
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// After the last message at the time of `prepare`.
    Latest,
    /// At the first message that is kept.
    Earliest,
}

/// One consumer of a lane.
#[derive(Clone, Debug)]
pub struct ConsumerSpec {
    /// Index of its subscription in the trial.
    pub subscription: usize,
    /// Name of the subscription; Kafka: the group in whose name offsets are committed.
    pub name: String,
    /// Where it begins.
    pub start: StartAt,
    /// The partitions that are its own, as (topic index, partition).
    pub partitions: Vec<(usize, u32)>,
    /// How often it commits its positions; None: never.
    pub commit_interval_ns: Option<i64>,
}

/// When a batch leaves, and how many may be under way. The same for every system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchPolicy {
    /// A batch leaves when the next message would make it longer than this on the wire.
    pub bytes: usize,
    /// A batch leaves when its first message is this old.
    pub linger_ns: i64,
    /// Requests (or batches, where a protocol has no requests) without an answer per connection.
    pub in_flight: usize,
    /// Bytes that wait or travel, over all producers of the lane.
    pub buffer_bytes: usize,
}

/// What the system must have done before it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// All replicas that the system's settings ask for.
    All,
    /// The leader alone.
    Leader,
    /// Nothing: a message counts as acknowledged when its batch was written to the socket.
    None,
}

/// Compression of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// None.
    None,
    /// gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// Everything a lane's client must know.
#[derive(Clone, Debug)]
pub struct LaneSpec {
    /// The trial's number, for probes.
    pub run: u32,
    /// The topics.
    pub topics: Arc<[Topic]>,
    /// The lane's producers.
    pub producers: Vec<ProducerSpec>,
    /// The lane's consumers.
    pub consumers: Vec<ConsumerSpec>,
    /// When batches leave.
    pub batch: BatchPolicy,
    /// Whether the load is closed-loop: then a producer is full as soon as its in-flight window and the batches behind it are,
    /// so that nothing piles up that the system has not asked for.
    pub closed_loop: bool,
    /// What is waited for.
    pub acks: Acks,
    /// Whether the system is asked to drop repeated batches (Kafka: idempotent producer).
    pub idempotence: bool,
    /// Compression of batches.
    pub compression: Compression,
    /// How long an answer may take before its connection counts as lost.
    pub request_timeout_ns: i64,
    /// How long a batch is retried, from its first message's time of sending, before it has failed.
    pub retry_for_ns: i64,
    /// Longest body of a message, so that buffers can be made before the load begins.
    pub payload_bytes_max: usize,
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Everything that was due was taken.
    Taken,
    /// The client has no room; the rest stays due.
    Full,
    /// Enough for one call was taken and more may be due: call again after `drive`.
    More,
}

/// A topic to be created.
#[derive(Clone, Debug)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Number of partitions.
    pub partitions: u32,
    /// Copies of each partition.
    pub replication_factor: u32,
    /// Settings in the system's own names.
    pub configs: Vec<(String, String)>,
}

/// A protocol: makes admins and lane clients.
pub trait Protocol: Send + Sync {
    /// Its name in the worker API, `system.protocol`.
    fn name(&self) -> &'static str;

    /// The client's name in results: "native kafka".
    fn client_name(&self) -> &'static str;

    /// Looks at a lane's spec without connecting.
    ///
    /// Returns one sentence for each thing that the protocol cannot do and does otherwise.
    ///
    /// # Errors
    /// [`ClientError::Input`] when an option is unknown or a combination is impossible.
    fn check(&self, endpoint: &Endpoint, spec: &LaneSpec) -> Result<Vec<String>, ClientError>;

    /// Makes a lane's client, not connected yet.
    ///
    /// # Errors
    /// As `check`.
    fn lane(&self, endpoint: &Endpoint, spec: LaneSpec) -> Result<Box<dyn LaneClient>, ClientError>;

    /// Connects for administration.
    ///
    /// # Errors
    /// [`ClientError::System`] when none of the nodes can be reached.
    fn admin(&self, endpoint: &Endpoint) -> Result<Box<dyn Admin>, ClientError>;
}

/// Administration of a system: blocking calls.
pub trait Admin {
    /// Creates topics and waits until every partition has a leader, until `deadline_ns` at most.
    ///
    /// # Errors
    /// [`ClientError::System`] with the system's words: the topic exists, the replication factor is too large, ...
    fn create_topics(&mut self, topics: &[NewTopic], deadline_ns: i64) -> Result<(), ClientError>;

    /// Deletes topics. Returns the names of those that did not exist.
    ///
    /// # Errors
    /// [`ClientError::System`] when a topic could not be deleted.
    fn delete_topics(&mut self, topics: &[String], deadline_ns: i64) -> Result<Vec<String>, ClientError>;

    /// What the system says of itself: the answer of `/v1/admin/describe` in docs/worker-api.md.
    ///
    /// # Errors
    /// [`ClientError::System`] when it cannot be asked.
    fn describe(&mut self, topics: &[String], deadline_ns: i64) -> Result<serde_json::Value, ClientError>;
}

/// One lane's connections, producers and consumers.
pub trait LaneClient {
    /// Connects, finds leaders, fixes the consumers' positions. Blocks until `deadline_ns` at most.
    ///
    /// # Errors
    /// [`ClientError`] with what could not be had; the trial does not begin then.
    fn prepare(&mut self, observer: &mut Observer, deadline_ns: i64) -> Result<(), ClientError>;

    /// Partitions of this lane's consumers whose position is fixed, summed over consumers.
    fn assigned(&self) -> usize;

    /// Queues one readiness probe (`gauge_load::stamp::PROBE_PRODUCER`, sequence = slot, 32 bytes) for each of these partitions
    /// (slots). Sent by `drive`, retried until acknowledged; counted nowhere. Only called on lanes with producers.
    fn send_probes(&mut self, slots: &[usize]);

    /// Probes that were queued and are not acknowledged yet.
    fn probes_waiting(&self) -> usize;

    /// Takes what is due at `now_ns` from the emitter of producer `producer` (index in [`LaneSpec::producers`]) as far as there is
    /// room, puts it into batches, and tells the observer. Reads the clock again at least every 100 us while it works, so that `sent` stays true.
    ///
    /// When it answers [`Offer::Full`], the lane holds the emitter and charges the back-pressure; a client does neither.
    fn offer(
        &mut self,
        producer: usize,
        emitter: &mut Emitter,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Offer;

    /// Until when the next messages of producer `producer`, whose emitter this is, can be left where they are although they are due: they
    /// would only wait in a batch. None: they are to be offered when they are due.
    fn patience(&self, producer: usize, emitter: &Emitter) -> Option<Patience>;

    /// Sends batches that are full or old enough, writes, reads, handles acknowledgements and received messages, recovers. Does not
    /// block. A bounded amount of work: at most about 1 ms of received messages before it returns `true` ("call again soon").
    ///
    /// # Errors
    /// Only what makes the trial pointless.
    fn drive(&mut self, observer: &mut Observer, now_ns: i64) -> Result<bool, ClientError>;

    /// Holds its counts of what is under way and of what waits against the messages and batches that it has. Worlds ask after every `drive`; a trial does not.
    ///
    /// # Panics
    /// Where they differ.
    fn check(&self);

    /// When `drive` must be called at the latest although no socket is ready (linger, retries, timeouts, commits); `i64::MAX`: never.
    fn next_deadline_ns(&self) -> i64;

    /// Sleeps until a socket is ready or `until_ns` has come; returns at once when there is work left.
    fn wait(&mut self, until_ns: i64);

    /// A handle with which another thread can end `wait` early.
    fn waker(&self) -> Waker;

    /// Sends open batches without waiting for their linger from now on (the drain).
    fn flush(&mut self);

    /// Messages that were taken and have no end yet.
    fn waiting_msgs(&self) -> u64;

    /// Pauses (stops fetching) or resumes a subscription of this lane's consumers. What it had asked for may still come; while it is paused it asks
    /// for nothing, also on a new connection.
    fn pause(&mut self, subscription: usize, paused: bool);

    /// Whether the consumers of a subscription have read up to the end of all their partitions, as the system's last answers tell.
    fn caught_up(&self, subscription: usize) -> bool;

    /// Gives up on everything that waits (reported as censored), commits positions if there is an interval for it, closes.
    fn abandon(&mut self, observer: &mut Observer);
}

/// How long messages that are due can be left where they are: until the first of them has lingered, or the batch that they go to is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How old the first message of a batch becomes.
    pub linger_ns: i64,
    /// So many of the next messages fit into their batches for sure; the one behind them may fill one.
    pub room_msgs: u64,
}

/// Ends a lane client's `wait` from another thread.
#[derive(Clone, Debug)]
pub struct Waker(poller::Wake);

impl Waker {
    /// Wakes the lane.
    pub fn wake(&self) {
        self.0.wake();
    }
}

/// All protocols that this build speaks.
pub fn protocols() -> Vec<Arc<dyn Protocol>> {
    vec![
        Arc::new(kafka::Kafka),
        Arc::new(rabbitmq::RabbitMq),
        Arc::new(rabbitmq::stream::RabbitMqStream),
        Arc::new(nats::Nats),
        Arc::new(pulsar::Pulsar),
    ]
}
