//! The native RabbitMQ clients.
//!
//! [`RabbitMq`] speaks AMQP 0-9-1. A topic is a durable direct exchange; each partition is a queue, bound with the partition's number as its
//! routing key; each further subscription has queues of its own behind the same exchange. Messages are confirmed by the server (RabbitMQ's
//! publisher confirms), and acknowledged by the consumers, many at a time. A queue may be a stream, which all subscriptions read.
//!
//! [`stream::RabbitMqStream`] speaks the protocol of the stream plugin, in which a topic is a stream or a super stream.
//!
//! The hot path is written by hand: `producer` with `confirms`, `batch` and `unconfirmed`, and `consumer`. `codec` knows frames and
//! methods, `session` is one connection, and `admin` creates and describes with blocking calls.

mod admin;
mod batch;
mod codec;
mod confirms;
mod consumer;
pub(crate) mod fuzzing;
mod hash;
mod login;
mod options;
mod position;
mod producer;
mod queues;
mod session;
pub mod stream;
mod unconfirmed;

use std::rc::Rc;

use self::options::{ConsumerAcks, Options, SUBSCRIPTIONS_MAX, check_topic_name};
use crate::lane::Lane;
use crate::shared::Shared;
use crate::{Acks, Admin, ClientError, Compression, Endpoint, Keys, LaneClient, LaneSpec, Protocol, StartAt};

/// Queues that one consumer can have: RabbitMQ's default limit of channels per connection.
const QUEUES_MAX: usize = 2047;

/// RabbitMQ over AMQP 0-9-1.
#[derive(Clone, Copy, Debug, Default)]
pub struct RabbitMq;

/// Whether topics have names and partitions, and everything refers to some that are there. The same for both protocols.
fn check_places(spec: &LaneSpec) -> Result<(), ClientError> {
    for topic in spec.topics.iter() {
        check_topic_name(&topic.name)?;
        if topic.partitions == 0 {
            let message = format!("topic {:?} needs at least 1 partition", topic.name);
            return Err(ClientError::input("topics", message));
        }
    }
    for (at, producer) in spec.producers.iter().enumerate() {
        if producer.topic >= spec.topics.len() {
            return Err(ClientError::input(
                format!("producers[{at}].topic"),
                "there is no such topic",
            ));
        }
    }
    for consumer in &spec.consumers {
        let is_there = |(topic, partition): &(usize, u32)| {
            let topic = spec.topics.get(*topic);
            topic.is_some_and(|topic| *partition < topic.partitions)
        };
        if !consumer.partitions.iter().all(is_there) {
            return Err(ClientError::input("subscriptions", "there is no such partition"));
        }
    }
    Ok(())
}

/// What cannot be done at all.
fn check_spec(spec: &LaneSpec) -> Result<(), ClientError> {
    check_places(spec)?;
    for consumer in &spec.consumers {
        if consumer.subscription >= SUBSCRIPTIONS_MAX {
            let message = format!("the rabbitmq protocol has at most {SUBSCRIPTIONS_MAX} subscriptions");
            return Err(ClientError::input("subscriptions", message));
        }
        if consumer.partitions.len() > QUEUES_MAX {
            let message = format!(
                "{} partitions for one consumer are more than the {QUEUES_MAX} channels of a connection; give the subscription more consumers",
                consumer.partitions.len()
            );
            return Err(ClientError::input("subscriptions", message));
        }
    }
    Ok(())
}

/// One sentence for each thing that is done otherwise than asked.
fn cannot(endpoint: &Endpoint, options: &Options, spec: &LaneSpec) -> Vec<String> {
    let mut sentences: Vec<String> = endpoint.security.cannot().collect();
    sentences.push(
        "rabbitmq: AMQP has no batches; batch.bytes and linger decide what is written together, and batch.in_flight times batch.bytes what may be unconfirmed"
            .to_owned(),
    );
    let mut add = |sentence: &str| sentences.push(format!("rabbitmq: {sentence}"));
    if spec.acks == Acks::Leader {
        add(
            "a confirm means what the queue's type makes of it; there is none from the leader alone, so acks are those of the queue",
        );
    }
    if spec.idempotence {
        add(
            "AMQP cannot drop repeated messages; what is sent again after a lost connection may be there twice",
        );
    }
    if spec.compression != Compression::None {
        add("AMQP does not compress; messages travel as they are");
    }
    if spec.producers.iter().any(|producer| producer.keys == Keys::Keyed) {
        add("a message's key decides its routing key (murmur3) and is not carried itself");
    }
    let has_own_queues = |subscription: usize| subscription > 0 && !options.is_stream();
    if spec
        .consumers
        .iter()
        .any(|consumer| has_own_queues(consumer.subscription))
    {
        add(
            "each further subscription has queues of its own behind the exchange, so every message is stored once per subscription",
        );
    }
    if spec
        .consumers
        .iter()
        .any(|consumer| has_own_queues(consumer.subscription) && consumer.start == StartAt::Earliest)
    {
        add(
            "a queue has no past: a further subscription begins with the first message after its queues were bound, not at the earliest",
        );
    }
    if spec
        .consumers
        .iter()
        .any(|consumer| consumer.commit_interval_ns.is_some())
    {
        add(match options.consumer_acks {
            ConsumerAcks::Manual => {
                "consumers acknowledge by number of messages and within 10 ms, not at the commit interval"
            }
            ConsumerAcks::Automatic => "consumers acknowledge automatically, not at the commit interval",
        });
    }
    sentences
}

impl Protocol for RabbitMq {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn client_name(&self) -> &'static str {
        "native amqp 0-9-1"
    }

    fn check(&self, endpoint: &Endpoint, spec: &LaneSpec) -> Result<Vec<String>, ClientError> {
        let options = Options::read(endpoint)?;
        check_spec(spec)?;
        Ok(cannot(endpoint, &options, spec))
    }

    fn lane(&self, endpoint: &Endpoint, spec: LaneSpec) -> Result<Box<dyn LaneClient>, ClientError> {
        let options = Rc::new(Options::read(endpoint)?);
        check_spec(&spec)?;
        let lane = Lane::new(
            "the RabbitMQ client could not connect and find its queues",
            Shared::new(endpoint, spec, ())?,
            |at, shared| Ok(producer::Producer::new(at, &shared.spec, Rc::clone(&options))),
            |at, shared| consumer::Consumer::new(at, &shared.spec, Rc::clone(&options)),
        )?;
        Ok(Box::new(lane))
    }

    fn admin(&self, endpoint: &Endpoint) -> Result<Box<dyn Admin>, ClientError> {
        Ok(Box::new(admin::RabbitAdmin::connect(Options::read(endpoint)?)?))
    }
}
