//! What the native Kafka client does when the server fails it: nothing is lost from the books, order is kept, nothing hangs.

#![allow(clippy::unwrap_used, reason = "a test ends when something is not as it says")]

mod consuming;
mod producing;
#[path = "../scripted/mod.rs"]
mod scripted;

use gauge_client::kafka::Kafka;
use gauge_client::{ConsumerSpec, Keys, LaneClient, LaneSpec, Offer, Protocol, StartAt};
use gauge_load::Observer;
use gauge_load::audit::{SentVerdict, judge_sent};
use gauge_load::clock::monotonic_ns;
use scripted::specs::{self, MS_NS, SECOND_NS, endpoint};
use scripted::{Server, emitter};

const PAYLOAD_BYTES: usize = 100;

/// One producer and no consumer.
fn spec(partitions: u32) -> LaneSpec {
    specs::spec(
        partitions,
        Keys::Sticky,
        PAYLOAD_BYTES,
        specs::batches(2000, 1 << 20),
    )
}

/// One consumer of all partitions and no producer.
fn consumer_spec(partitions: u32, start: StartAt, commit_interval_ns: Option<i64>) -> LaneSpec {
    LaneSpec {
        producers: vec![],
        consumers: vec![ConsumerSpec {
            subscription: 0,
            name: "group".into(),
            start,
            partitions: (0..partitions).map(|partition| (0, partition)).collect(),
            commit_interval_ns,
        }],
        ..spec(partitions)
    }
}

/// Sends `messages` and drives until every one has its end.
fn send(client: &mut dyn LaneClient, observer: &mut Observer, messages: u64) -> SentVerdict {
    let mut emitter = emitter(messages, PAYLOAD_BYTES);
    let give_up_ns = monotonic_ns() + 30 * SECOND_NS;
    loop {
        let offer = client.offer(0, &mut emitter, observer, monotonic_ns());
        client.drive(observer, monotonic_ns()).unwrap();
        let is_over = offer == Offer::Taken && emitter.next_due_ns().is_none();
        if is_over && client.waiting_msgs() == 0 {
            break;
        }
        assert!(monotonic_ns() < give_up_ns, "the client hangs");
        client.wait(monotonic_ns() + MS_NS);
    }
    observer.close_producer(0, emitter.sequence());
    client.abandon(observer);
    let finished = std::mem::replace(observer, Observer::new(1, true, &[0], 0, 64)).into_books();
    judge_sent(&finished.sent, finished.publish_samples)
}

fn prepared(server: &Server, spec: LaneSpec) -> (Box<dyn LaneClient>, Observer) {
    let subscriptions = usize::from(!spec.consumers.is_empty());
    let mut observer = Observer::new(1, true, &[0], subscriptions, 64);
    observer.start(monotonic_ns());
    let mut client = Kafka.lane(&endpoint(server.address), spec).unwrap();
    client
        .prepare(&mut observer, monotonic_ns() + 10 * SECOND_NS)
        .unwrap();
    (client, observer)
}

/// The sequences stored in a partition, in order.
fn sequences(server: &Server, partition: usize) -> Vec<u64> {
    let mut sequences = Vec::new();
    for batch in &server.state().partitions[partition] {
        let mut bytes = bytes::Bytes::from(batch.clone());
        let set = kafka_protocol::records::RecordBatchDecoder::decode(&mut bytes).unwrap();
        for record in set.records {
            match gauge_load::stamp::check(&record.value.unwrap()) {
                gauge_load::stamp::Checked::Whole(stamp) => sequences.push(stamp.sequence),
                other => panic!("{other:?}"),
            }
        }
    }
    sequences
}

/// A server with `messages` of the trial in it, spread over its partitions.
fn filled(partitions: usize, messages: u64) -> Server {
    let server = Server::start(partitions);
    let (mut client, mut observer) = prepared(&server, spec(partitions as u32));
    assert_eq!(send(client.as_mut(), &mut observer, messages).acked, messages);
    server
}

fn drive_until(
    client: &mut dyn LaneClient,
    observer: &mut Observer,
    mut is_done: impl FnMut(&dyn LaneClient) -> bool,
) {
    let give_up_ns = monotonic_ns() + 10 * SECOND_NS;
    while !is_done(client) {
        client.drive(observer, monotonic_ns()).unwrap();
        assert!(monotonic_ns() < give_up_ns, "the client hangs");
        client.wait(monotonic_ns() + MS_NS);
    }
}
