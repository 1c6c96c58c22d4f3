//! What a lane of this protocol does besides what its producers and consumers do: it asks the cluster.

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;

use super::cluster::Answer;
use super::consumer::Consumer;
use super::producer::Producer;
use super::shared::{Commons, Shared};
use crate::lane::Own;
use crate::{ClientError, Ready};

impl Own<Producer, Consumer> for Commons {
    fn resolve(shared: &mut Shared) -> Result<(), ClientError> {
        shared.own.cluster.resolve_bootstrap()
    }

    fn on_ready(shared: &mut Shared, ready: &Ready) -> Result<(), ClientError> {
        shared.own.cluster.on_ready(&shared.poller, ready, monotonic_ns())
    }

    /// Takes over what the cluster has answered.
    fn drive_before(
        shared: &mut Shared,
        producers: &mut [Producer],
        consumers: &mut [Consumer],
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        let mut answers = std::mem::take(&mut shared.own.answers);
        shared.own.cluster.take_answers(&mut answers);
        for answer in answers.drain(..) {
            match answer {
                Answer::Metadata if shared.is_closing => {}
                Answer::Metadata => {
                    for producer in &mut *producers {
                        producer.apply_metadata(shared);
                    }
                    for consumer in &mut *consumers {
                        consumer.apply_metadata(&shared.own.cluster);
                    }
                }
                Answer::ProducerId {
                    producer,
                    code,
                    id,
                    epoch,
                } => {
                    if let Some(producer) = producers.get_mut(producer) {
                        producer.identify(code, id, epoch, shared, now_ns)?;
                    }
                }
                Answer::Coordinator {
                    consumer,
                    code,
                    broker,
                } => {
                    let consumer = consumers.get_mut(consumer);
                    if let Some(committer) = consumer.and_then(|consumer| consumer.committer.as_mut()) {
                        committer.found(code, broker, observer, now_ns);
                    }
                }
            }
        }
        shared.own.answers = answers;
        Ok(())
    }

    fn drive_after(shared: &mut Shared, now_ns: i64) -> Result<(), ClientError> {
        shared.own.cluster.drive(&shared.poller, now_ns)
    }

    fn deadline_ns(shared: &Shared) -> i64 {
        shared.own.cluster.deadline_ns()
    }

    fn trouble(shared: &mut Shared) -> Option<String> {
        shared.own.cluster.trouble().map(str::to_owned)
    }
}
