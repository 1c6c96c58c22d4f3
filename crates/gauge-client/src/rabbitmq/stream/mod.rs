//! The native client of RabbitMQ's stream protocol (the plugin rabbitmq_stream).
//!
//! [`RabbitMqStream`]: a topic is a stream, or a super stream with a stream per partition. `wire` knows frames and commands, `session` is one
//! connection, `locator` finds the nodes that lead and hold streams, `links` are the connections to them. `publish`, `producer`,
//! `sending` and `confirms` send; `chunk`, `message`, `consumer` and `receiving` receive; `admin` creates and describes with blocking calls.

mod admin;
mod chunk;
mod confirms;
mod consumer;
pub(crate) mod fuzzing;
mod links;
mod locator;
mod message;
mod options;
mod producer;
mod publish;
mod receiving;
mod sending;
mod session;
mod wire;

use std::rc::Rc;

use self::options::{Options, stream_of};
use super::options::NAME_BYTES_MAX;
use crate::lane::Lane;
use crate::shared::Shared;
use crate::{Acks, Admin, ClientError, Compression, Endpoint, Keys, LaneClient, LaneSpec, Protocol};

/// RabbitMQ over its stream protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct RabbitMqStream;

/// What cannot be done at all.
fn check_spec(spec: &LaneSpec) -> Result<(), ClientError> {
    super::check_places(spec)?;
    for topic in spec.topics.iter() {
        let last = stream_of(topic, topic.partitions.saturating_sub(1));
        if last.len() > NAME_BYTES_MAX {
            let message = format!("{last:?} cannot name a stream: expected at most {NAME_BYTES_MAX} bytes");
            return Err(ClientError::input("topics", message));
        }
    }
    for consumer in &spec.consumers {
        if consumer.name.is_empty() || consumer.name.len() > NAME_BYTES_MAX {
            let message = format!(
                "{:?} cannot be the name under which positions are stored: expected 1 to {NAME_BYTES_MAX} bytes",
                consumer.name
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
        "rabbitmq-stream: messages are confirmed one by one, so batch.in_flight times batch.bytes is what may be unconfirmed per connection"
            .to_owned(),
    );
    let mut add = |sentence: &str| sentences.push(format!("rabbitmq-stream: {sentence}"));
    if spec.acks == Acks::Leader {
        add(
            "a message is confirmed when a majority of the stream's copies has it; there is no confirm from the leader alone",
        );
    }
    if spec.compression != Compression::None {
        add("messages travel as they are; batches within batches, which could be compressed, are not used");
    }
    if spec.producers.iter().any(|producer| producer.keys == Keys::Keyed) {
        add("a message's key decides its stream (murmur3) and is not carried itself");
    }
    if options.amqp.is_none() && spec.topics.iter().any(|topic| topic.partitions > 1) {
        add(
            "without AMQP listeners (option amqp) the streams of a topic are not made known as a super stream",
        );
    }
    sentences
}

impl Protocol for RabbitMqStream {
    fn name(&self) -> &'static str {
        "rabbitmq-stream"
    }

    fn client_name(&self) -> &'static str {
        "native rabbitmq stream"
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
            "the RabbitMQ stream client could not connect and find its streams",
            Shared::new(endpoint, spec, ())?,
            |at, shared| Ok(producer::Producer::new(at, &shared.spec, Rc::clone(&options))),
            |at, shared| consumer::Consumer::new(at, &shared.spec, Rc::clone(&options)),
        )?;
        Ok(Box::new(lane))
    }

    fn admin(&self, endpoint: &Endpoint) -> Result<Box<dyn Admin>, ClientError> {
        Ok(Box::new(admin::StreamAdmin::connect(Options::read(endpoint)?)?))
    }
}
