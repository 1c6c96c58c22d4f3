//! NATS JetStream: the NATS text protocol, streams, publish acknowledgements and pull consumers.
//!
//! A topic is one stream, a partition is one subject of it (see `names`). Sources: "NATS Client Protocol" and "JetStream wire API
//! reference" (docs.nats.io), the architecture decision records ADR-1, 4, 6, 13, 15 and 17 (nats-io/nats-architecture-and-design).
//!
//! - `wire`: operations as bytes; `answer`: what the server says of a publication; `names`: subjects, streams, the hash of keys.
//! - `login`: who the client says it is; `connection`: one connection with its greeting; `window`: chunks of messages under way.
//! - `producer`, `consumer`, `chunks`: the hot path; `admin`: streams; `options`: `system.options`.

mod admin;
mod answer;
mod chunks;
mod connection;
mod consumer;
pub(crate) mod fuzzing;
mod login;
mod names;
mod options;
mod producer;
#[cfg(test)]
mod tests;
mod window;
mod wire;

use self::consumer::Consumer;
use self::producer::Producer;
use crate::lane::Lane;
use crate::shared::Shared;
use crate::{Acks, Admin, ClientError, Compression, Endpoint, Keys, LaneClient, LaneSpec, Protocol};

/// NATS JetStream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nats;

impl Protocol for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn client_name(&self) -> &'static str {
        "native nats"
    }

    fn check(&self, endpoint: &Endpoint, spec: &LaneSpec) -> Result<Vec<String>, ClientError> {
        let options = options::read(endpoint)?;
        for (at, topic) in spec.topics.iter().enumerate() {
            names::check(&format!("topics[{at}].name"), &topic.name)?;
        }
        for consumer in &spec.consumers {
            names::check("subscriptions", &consumer.name)?;
        }
        let mut cannot: Vec<String> = endpoint.security.cannot().collect();
        if !spec.producers.is_empty() {
            cannot.extend(cannot_produce(spec, &options));
        }
        if !spec.consumers.is_empty() {
            cannot.push(
                "NATS knows no consumer groups with partitions: each consumer has a pull consumer of its own, filtered to its partitions' subjects"
                    .to_owned(),
            );
            if spec
                .consumers
                .iter()
                .any(|consumer| consumer.commit_interval_ns.is_some())
            {
                let how = match options.ack_policy {
                    options::AckPolicy::Explicit => {
                        "each message is acknowledged by itself (ack policy explicit, its default)"
                    }
                    options::AckPolicy::All => {
                        "the last of the messages that were read together is acknowledged for all of them (ack policy all)"
                    }
                    options::AckPolicy::None => "messages are not acknowledged (ack policy none)",
                };
                cannot.push(format!("NATS does not commit positions at intervals: {how}"));
            }
        }
        Ok(cannot)
    }

    fn lane(&self, endpoint: &Endpoint, spec: LaneSpec) -> Result<Box<dyn LaneClient>, ClientError> {
        self.check(endpoint, &spec)?;
        let options = options::read(endpoint)?;
        Ok(Box::new(Lane::new(
            "the NATS client could not connect and find its streams",
            Shared::new(endpoint, spec, ())?,
            |at, shared| Ok(Producer::new(at, &options, &shared.spec)),
            |at, shared| Consumer::new(at, &options, &shared.spec),
        )?))
    }

    fn admin(&self, endpoint: &Endpoint) -> Result<Box<dyn Admin>, ClientError> {
        let options = options::read(endpoint)?;
        Ok(Box::new(admin::NatsAdmin::connect(endpoint, &options)?))
    }
}

fn cannot_produce(spec: &LaneSpec, options: &options::Options) -> Vec<String> {
    let mut cannot = vec![format!(
        "NATS has no batches: what the batch policy gathers is written to the socket together and acknowledged message by message; in_flight counts such writes with a message that is not acknowledged, which have {} messages in all at most (option window_msgs)",
        options.window_msgs
    )];
    if spec.acks == Acks::Leader {
        cannot.push(
            "NATS always acknowledges when a stream's quorum has the message: acks 'leader' waits for the same as 'all'"
                .to_owned(),
        );
    }
    if spec.compression != Compression::None {
        cannot.push(
            "NATS does not compress messages on their way to a stream: they are sent as they are".to_owned(),
        );
    }
    if spec.producers.iter().any(|producer| producer.keys == Keys::Keyed) {
        cannot.push(
            "NATS messages have no keys: the key travels in the header 'Key', and chooses the subject by FNV-1a, as the server's own partition mapping does"
                .to_owned(),
        );
    }
    cannot
}
