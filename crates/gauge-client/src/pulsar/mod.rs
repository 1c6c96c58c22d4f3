//! The native Pulsar client.
//!
//! [`Pulsar`] speaks Pulsar's binary protocol. A topic is a partitioned topic; each partition has a producer or consumer of its own on the
//! broker that a lookup names. Messages travel in Pulsar's batches, which are acknowledged by receipts; consumers are sent messages as far
//! as their `permits` go.
//!
//! The hot path is written by hand: `producer` with `receipts` and `batch`, and `consumer`. `wire` knows Protocol Buffers' encoding,
//! `commands` the commands, `message` the payload behind them; `session` is one connection, `routes` finds and opens partitions, and
//! `admin` creates and describes over the brokers' web service (`http`).

mod admin;
mod batch;
mod commands;
mod compress;
mod consumer;
mod error;
pub(crate) mod fuzzing;
mod hash;
mod http;
mod message;
mod options;
mod permits;
mod producer;
mod receipts;
mod routes;
mod session;
mod wire;

use self::commands::SubscriptionType;
use self::options::{Options, check_topic_name};
use crate::lane::Lane;
use crate::shared::Shared;
use crate::{Acks, Admin, ClientError, Compression, Endpoint, Keys, LaneClient, LaneSpec, Protocol};

/// Pulsar over its binary protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pulsar;

/// What cannot be done at all.
fn check_spec(spec: &LaneSpec) -> Result<(), ClientError> {
    for topic in spec.topics.iter() {
        check_topic_name(&topic.name)?;
        if topic.partitions == 0 {
            let message = format!("topic {:?} needs at least 1 partition", topic.name);
            return Err(ClientError::input("topics", message));
        }
    }
    for (at, producer) in spec.producers.iter().enumerate() {
        if producer.topic >= spec.topics.len() {
            let field = format!("producers[{at}].topic");
            return Err(ClientError::input(field, "there is no such topic"));
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

/// One sentence for each thing that is done otherwise than asked.
fn cannot(endpoint: &Endpoint, options: &Options, spec: &LaneSpec) -> Vec<String> {
    let mut sentences: Vec<String> = endpoint.security.cannot().collect();
    let mut add = |sentence: &str| sentences.push(format!("pulsar: {sentence}"));
    if !spec.producers.is_empty() {
        add(
            "every batch is a request of its own, so batch.in_flight counts batches without a receipt per partition, not requests per connection",
        );
        if spec.acks == Acks::Leader {
            add(
                "a receipt means that the namespace's ack quorum of bookies has the batch; there is none from fewer, so acks are those of the namespace",
            );
        }
        if spec.idempotence {
            add(
                "sequence numbers are sent, but the broker drops what is repeated only where deduplication is enabled for the namespace",
            );
        }
        if spec.compression == Compression::Gzip {
            add("gzip is Pulsar's ZLIB: the same deflate with another wrapping");
        }
        let is_keyed = spec.producers.iter().any(|producer| producer.keys == Keys::Keyed);
        if is_keyed && options.subscription_type == SubscriptionType::KeyShared {
            add(
                "batches hold one key each, as a key_shared subscription hands out whole batches by their key",
            );
        }
    }
    let is_shared = !options.subscription_type.is_cumulative();
    if is_shared && !spec.consumers.is_empty() {
        add(
            "with a shared subscription every consumer reads all partitions, and acknowledges within 100 ms whatever the commit interval",
        );
    }
    sentences
}

impl Protocol for Pulsar {
    fn name(&self) -> &'static str {
        "pulsar"
    }

    fn client_name(&self) -> &'static str {
        "native pulsar"
    }

    fn check(&self, endpoint: &Endpoint, spec: &LaneSpec) -> Result<Vec<String>, ClientError> {
        let options = Options::read(endpoint)?;
        check_spec(spec)?;
        Ok(cannot(endpoint, &options, spec))
    }

    fn lane(&self, endpoint: &Endpoint, spec: LaneSpec) -> Result<Box<dyn LaneClient>, ClientError> {
        let options = Options::read(endpoint)?;
        check_spec(&spec)?;
        let lane = Lane::new(
            "the Pulsar client could not connect and find its partitions",
            Shared::new(endpoint, spec, ())?,
            |at, shared| Ok(producer::Producer::new(at, &shared.spec, &options)),
            |at, shared| consumer::Consumer::new(at, &shared.spec, &options),
        )?;
        Ok(Box::new(lane))
    }

    fn admin(&self, endpoint: &Endpoint) -> Result<Box<dyn Admin>, ClientError> {
        Ok(Box::new(admin::PulsarAdmin::new(Options::read(endpoint)?)))
    }
}
