//! What the native Kafka client does when the server fails it: nothing is lost from the books, order is kept, nothing hangs.

#![allow(clippy::unwrap_used, reason = "a test ends when something is not as it says")]

mod scripted;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use gauge_client::kafka::Kafka;
use gauge_client::{
    Acks, BatchPolicy, ClientError, Compression, ConsumerSpec, Endpoint, Keys, LaneClient, LaneSpec, Offer,
    ProducerSpec, Protocol, StartAt, Topic,
};
use gauge_load::Observer;
use gauge_load::audit::{SentVerdict, judge_sent};
use gauge_load::clock::monotonic_ns;
use scripted::{Fate, Server, emitter};

const SECOND_NS: i64 = 1_000_000_000;
const MS_NS: i64 = 1_000_000;
const PAYLOAD_BYTES: usize = 100;

fn endpoint(bootstrap: impl ToString) -> Endpoint {
    Endpoint {
        bootstrap: vec![bootstrap.to_string()],
        options: serde_json::Map::new(),
        security: gauge_client::Security::default(),
    }
}

/// One producer and no consumer.
fn spec(partitions: u32) -> LaneSpec {
    LaneSpec {
        run: 1,
        topics: Arc::new([Topic {
            name: "t".into(),
            partitions,
            first_slot: 0,
        }]),
        producers: vec![ProducerSpec {
            id: 0,
            topic: 0,
            keys: Keys::Sticky,
        }],
        consumers: vec![],
        batch: BatchPolicy {
            bytes: 2000,
            linger_ns: MS_NS,
            in_flight: 5,
            buffer_bytes: 1 << 20,
        },
        closed_loop: false,
        acks: Acks::All,
        idempotence: false,
        compression: Compression::None,
        request_timeout_ns: 30 * SECOND_NS,
        retry_for_ns: 60 * SECOND_NS,
        payload_bytes_max: PAYLOAD_BYTES,
    }
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

#[test]
fn every_message_is_stored_once_and_in_order() {
    let server = Server::start(3);
    let (mut client, mut observer) = prepared(&server, spec(3));
    let verdict = send(client.as_mut(), &mut observer, 5000);
    assert_eq!(
        (verdict.sent, verdict.acked, verdict.imbalance),
        (5000, 5000, None)
    );
    let mut all = Vec::new();
    for partition in 0..3 {
        let stored = sequences(&server, partition);
        assert!(stored.is_sorted(), "partition {partition}");
        assert!(!stored.is_empty(), "partition {partition} got nothing");
        all.extend(stored);
    }
    all.sort_unstable();
    assert_eq!(all, (0..5000).collect::<Vec<_>>());
}

#[test]
fn what_is_refused_for_a_while_is_sent_again_in_order_with_its_times() {
    // One request at a time, so that nothing can overtake what is refused.
    let server = Server::start(1);
    let mut spec = spec(1);
    spec.batch.in_flight = 1;
    let (mut client, mut observer) = prepared(&server, spec);
    server.script(&[
        Fate::Store,
        Fate::Refuse(6),
        Fate::Refuse(6),
        Fate::Store,
        Fate::Refuse(7),
        Fate::Refuse(19),
    ]);
    let verdict = send(client.as_mut(), &mut observer, 1000);
    assert_eq!(
        (verdict.acked, verdict.failed, verdict.imbalance),
        (1000, 0, None)
    );
    assert_eq!(sequences(&server, 0), (0..1000).collect::<Vec<_>>());
}

#[test]
fn retries_are_counted_by_kind_and_the_latency_begins_at_the_schedule() {
    let server = Server::start(1);
    let (mut client, mut observer) = prepared(&server, spec(1));
    server.script(&[Fate::Refuse(6)]);
    let mut emitter = emitter(1, PAYLOAD_BYTES);
    while client.waiting_msgs() > 0 || emitter.next_due_ns().is_some() {
        client.offer(0, &mut emitter, &mut observer, monotonic_ns());
        client.drive(&mut observer, monotonic_ns()).unwrap();
        client.wait(monotonic_ns() + MS_NS);
    }
    let tally = observer.swap(Default::default());
    assert_eq!(tally.counters.retries, 1);
    assert_eq!(tally.counters.errors, [("NOT_LEADER_OR_FOLLOWER", 1)]);
    // The pause before a retry is 20 ms: it is part of the latency.
    assert!(tally.latencies[0].publish.min_ns() >= 20 * MS_NS);
    assert!(tally.latencies[0].service.min_ns() >= 20 * MS_NS);
}

#[test]
fn a_partition_whose_leader_goes_and_comes_back_is_in_a_request_once() {
    let server = Server::start(2);
    let mut spec = spec(2);
    spec.batch.in_flight = 1;
    let (mut client, mut observer) = prepared(&server, spec);
    // A refusal makes the client ask for leaders. While what was refused is under way once more, and what follows waits in its list for
    // room, it learns that there is no leader, and then that it is the old one.
    server.script(&[Fate::Store, Fate::Store, Fate::Refuse(6), Fate::StoreLate(600)]);
    server.state().leaders.extend([-1, 1]);
    server.state().metadata_late_ms = 60;
    let verdict = send(client.as_mut(), &mut observer, 3000);
    assert_eq!(
        (verdict.acked, verdict.failed, verdict.imbalance),
        (3000, 0, None)
    );
    let mut stored: Vec<u64> = (0..2)
        .flat_map(|partition| sequences(&server, partition))
        .collect();
    stored.sort_unstable();
    stored.dedup();
    assert_eq!(stored.len(), 3000, "what was acknowledged was stored");
}

#[test]
fn a_final_refusal_fails_the_batch_and_nothing_else() {
    let server = Server::start(1);
    let (mut client, mut observer) = prepared(&server, spec(1));
    server.script(&[Fate::Store, Fate::Refuse(10)]);
    let verdict = send(client.as_mut(), &mut observer, 1000);
    assert!(verdict.failed > 0 && verdict.failed < 1000);
    assert_eq!((verdict.acked + verdict.failed, verdict.imbalance), (1000, None));
    assert_eq!(sequences(&server, 0).len() as u64, verdict.acked);
}

#[test]
fn an_authorisation_failure_ends_the_trial() {
    let server = Server::start(1);
    let (mut client, mut observer) = prepared(&server, spec(1));
    server.script(&[Fate::Refuse(29)]);
    let mut emitter = emitter(10, PAYLOAD_BYTES);
    let error = loop {
        client.offer(0, &mut emitter, &mut observer, monotonic_ns());
        if let Err(error) = client.drive(&mut observer, monotonic_ns()) {
            break error;
        }
        client.wait(monotonic_ns() + MS_NS);
    };
    assert!(
        error.to_string().contains("TOPIC_AUTHORIZATION_FAILED"),
        "{error}"
    );
    client.abandon(&mut observer);
    assert_eq!(client.waiting_msgs(), 0);
}

#[test]
fn lost_connections_and_garbage_are_survived() {
    for fate in [Fate::StoreAndClose, Fate::Garble] {
        let server = Server::start(2);
        let (mut client, mut observer) = prepared(&server, spec(2));
        server.script(&[Fate::Store, fate, Fate::Store, fate]);
        let verdict = send(client.as_mut(), &mut observer, 2000);
        assert_eq!(
            (verdict.acked, verdict.failed, verdict.imbalance),
            (2000, 0, None),
            "{fate:?}"
        );
        // What was stored before the connection went is there twice: without idempotence nobody can know better.
        let mut stored: Vec<u64> = (0..2)
            .flat_map(|partition| sequences(&server, partition))
            .collect();
        stored.sort_unstable();
        stored.dedup();
        assert_eq!(stored.len(), 2000, "{fate:?}");
    }
}

#[test]
fn an_answer_that_does_not_come_is_a_lost_connection() {
    let server = Server::start(1);
    let mut spec = spec(1);
    spec.request_timeout_ns = 100 * MS_NS;
    let (mut client, mut observer) = prepared(&server, spec);
    server.script(&[Fate::Store, Fate::Ignore]);
    let verdict = send(client.as_mut(), &mut observer, 500);
    assert_eq!((verdict.acked, verdict.imbalance), (500, None));
    let mut stored = sequences(&server, 0);
    stored.sort_unstable();
    stored.dedup();
    assert_eq!(stored.len(), 500);
}

#[test]
fn what_is_refused_for_too_long_fails_and_the_books_balance() {
    let server = Server::start(1);
    let mut spec = spec(1);
    spec.retry_for_ns = 150 * MS_NS;
    let (mut client, mut observer) = prepared(&server, spec);
    server.script(&[Fate::Refuse(6); 200]);
    let verdict = send(client.as_mut(), &mut observer, 300);
    assert_eq!((verdict.failed, verdict.imbalance), (300, None));
}

#[test]
fn an_idempotent_producer_numbers_its_batches_without_a_gap() {
    let server = Server::start(2);
    let mut spec = spec(2);
    spec.idempotence = true;
    let (mut client, mut observer) = prepared(&server, spec);
    // A duplicate is an acknowledgement.
    server.script(&[Fate::Store, Fate::StoreAndSay(46)]);
    let verdict = send(client.as_mut(), &mut observer, 3000);
    assert_eq!((verdict.acked, verdict.imbalance), (3000, None));
    for batches in &server.state().partitions {
        let mut expected = 0;
        for batch in batches {
            let word = |at: usize| i32::from_be_bytes(batch[at..at + 4].try_into().unwrap());
            assert_eq!(
                i64::from_be_bytes(batch[43..51].try_into().unwrap()),
                1,
                "producer id"
            );
            assert_eq!(word(53), expected);
            expected += word(57);
        }
    }
}

#[test]
fn an_idempotent_producer_that_was_forgotten_gets_a_new_identity() {
    let server = Server::start(1);
    let mut spec = spec(1);
    spec.idempotence = true;
    spec.batch.in_flight = 1;
    let (mut client, mut observer) = prepared(&server, spec);
    server.script(&[Fate::Store, Fate::Refuse(59)]);
    let verdict = send(client.as_mut(), &mut observer, 1000);
    assert_eq!((verdict.acked, verdict.imbalance), (1000, None));
    assert_eq!(sequences(&server, 0), (0..1000).collect::<Vec<_>>());
    let state = server.state();
    let numbering = |batch: &[u8]| {
        (
            i64::from_be_bytes(batch[43..51].try_into().unwrap()),
            i32::from_be_bytes(batch[53..57].try_into().unwrap()),
        )
    };
    assert_eq!(numbering(&state.partitions[0][0]), (1, 0));
    assert_eq!(numbering(&state.partitions[0][1]), (2, 0));
}

#[test]
fn with_acks_none_a_written_batch_is_acknowledged() {
    let server = Server::start(2);
    let mut spec = spec(2);
    spec.acks = Acks::None;
    let (mut client, mut observer) = prepared(&server, spec);
    let verdict = send(client.as_mut(), &mut observer, 1000);
    assert_eq!((verdict.acked, verdict.imbalance), (1000, None));
}

#[test]
fn what_has_no_end_when_the_client_is_abandoned_is_censored() {
    let server = Server::start(1);
    let (mut client, mut observer) = prepared(&server, spec(1));
    server.script(&[Fate::Ignore; 1000]);
    let mut emitter = emitter(500, PAYLOAD_BYTES);
    while emitter.next_due_ns().is_some() {
        client.offer(0, &mut emitter, &mut observer, monotonic_ns());
        client.drive(&mut observer, monotonic_ns()).unwrap();
        client.wait(monotonic_ns() + MS_NS);
    }
    assert_eq!(client.waiting_msgs(), 500);
    client.abandon(&mut observer);
    assert_eq!(client.waiting_msgs(), 0);
    observer.close_producer(0, emitter.sequence());
    let books = observer.into_books();
    assert_eq!(books.sent[0].censored, 500);
    assert_eq!(judge_sent(&books.sent, 0).imbalance, None);
}

#[test]
fn a_client_without_room_holds_the_schedule_back() {
    let server = Server::start(1);
    let mut spec = spec(1);
    spec.batch.buffer_bytes = 10_000;
    let (mut client, mut observer) = prepared(&server, spec);
    server.script(&[Fate::Ignore; 1000]);
    let mut emitter = emitter(500, PAYLOAD_BYTES);
    let mut last = Offer::Taken;
    while last != Offer::Full {
        last = client.offer(0, &mut emitter, &mut observer, monotonic_ns());
        client.drive(&mut observer, monotonic_ns()).unwrap();
        client.wait(monotonic_ns() + MS_NS);
    }
    // About 110 bytes each on the wire.
    assert!(
        (60..=95).contains(&client.waiting_msgs()),
        "{}",
        client.waiting_msgs()
    );
    client.abandon(&mut observer);
}

#[test]
fn a_server_that_talks_nonsense_is_an_error_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut asked = [0; 64];
                // A frame of two gigabytes is announced; none of it comes.
                while stream.read(&mut asked).is_ok_and(|bytes| bytes > 0) {
                    if stream.write_all(&[0x7F, 0xFF, 0xFF, 0xFF, 1, 2, 3, 4]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let mut observer = Observer::new(1, true, &[0], 0, 1);
    let mut client = Kafka.lane(&endpoint(address), spec(1)).unwrap();
    let error = client
        .prepare(&mut observer, monotonic_ns() + SECOND_NS / 2)
        .unwrap_err();
    assert!(
        matches!(&error, ClientError::System(text) if text.contains("does not follow the protocol")),
        "{error}"
    );
    let Err(error) = Kafka.admin(&endpoint(address)) else {
        panic!("the admin accepts nonsense");
    };
    assert!(
        error.to_string().contains("does not follow the protocol"),
        "{error}"
    );
}

#[test]
fn a_port_where_nobody_listens_is_named() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut observer = Observer::new(1, true, &[0], 0, 1);
    let mut client = Kafka.lane(&endpoint(address), spec(1)).unwrap();
    let error = client
        .prepare(&mut observer, monotonic_ns() + SECOND_NS / 5)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&address.to_string()) && error.contains("refused"),
        "{error}"
    );
}

#[test]
fn options_and_combinations_are_checked() {
    let mut endpoint = endpoint("127.0.0.1:1");
    endpoint.options.insert("clientid".into(), "x".into());
    let error = Kafka.check(&endpoint, &spec(1)).unwrap_err();
    assert!(
        matches!(&error, ClientError::Input { field, .. } if field == "system.options.clientid"),
        "{error}"
    );
    endpoint.options.clear();
    endpoint.bootstrap = vec!["nowhere".into()];
    assert!(
        Kafka
            .check(&endpoint, &spec(1))
            .unwrap_err()
            .to_string()
            .contains("host:port")
    );
    endpoint.bootstrap = vec!["127.0.0.1:1".into()];
    let mut idempotent = spec(1);
    idempotent.idempotence = true;
    idempotent.batch.in_flight = 9;
    let sentences = Kafka.check(&endpoint, &idempotent).unwrap();
    assert!(
        sentences[0].contains("at most 5 requests in flight, not 9"),
        "{sentences:?}"
    );
    idempotent.acks = Acks::Leader;
    assert!(Kafka.check(&endpoint, &idempotent).is_err());
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

#[test]
fn a_consumer_reads_everything_once_and_commits_it() {
    let server = filled(3, 4000);
    let (mut client, mut observer) = prepared(&server, consumer_spec(3, StartAt::Earliest, Some(10 * MS_NS)));
    assert_eq!(client.assigned(), 3);
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    client.abandon(&mut observer);
    let books = observer.into_books();
    let receipts = &books.receipts[0];
    assert_eq!(
        (
            receipts.received,
            receipts.duplicated,
            receipts.reordered,
            receipts.corrupted
        ),
        (4000, 0, 0, 0)
    );
    let state = server.state();
    for partition in 0..3 {
        let last = state
            .committed
            .iter()
            .rev()
            .find(|(committed, _)| *committed == partition);
        assert_eq!(
            last.map(|(_, offset)| *offset),
            Some(state.next_offsets[partition as usize])
        );
    }
}

#[test]
fn a_consumer_from_the_latest_message_on_sees_only_what_comes_after() {
    let server = filled(1, 500);
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Latest, None));
    drive_until(client.as_mut(), &mut observer, |_| server.state().fetches > 3);
    assert!(client.caught_up(0));
    let again = server.state().partitions[0][0].clone();
    let records = u32::from_be_bytes(again[57..61].try_into().unwrap());
    server.state().append(0, again);
    drive_until(client.as_mut(), &mut observer, |_| server.state().fetches > 8);
    client.abandon(&mut observer);
    assert_eq!(observer.into_books().receipts[0].received, u64::from(records));
}

#[test]
fn a_paused_consumer_does_not_fetch() {
    let server = filled(1, 500);
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Latest, None));
    client.pause(0, true);
    let mut rounds = 0;
    drive_until(client.as_mut(), &mut observer, |_| {
        rounds += 1;
        rounds > 50
    });
    let before = server.state().fetches;
    let again = server.state().partitions[0][0].clone();
    server.state().append(0, again);
    rounds = 0;
    drive_until(client.as_mut(), &mut observer, |_| {
        rounds += 1;
        rounds > 50
    });
    assert_eq!(server.state().fetches, before);
    client.pause(0, false);
    assert!(
        !client.caught_up(0),
        "nothing is known about what came in the meantime"
    );
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    client.abandon(&mut observer);
    assert!(observer.into_books().receipts[0].received > 0);
}

#[test]
fn a_corrupt_batch_is_counted_and_passed_over() {
    let server = filled(1, 1000);
    let lost = {
        let mut state = server.state();
        let batch = &mut state.partitions[0][1];
        batch[100] ^= 1;
        u64::from(u32::from_be_bytes(batch[57..61].try_into().unwrap()))
    };
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Earliest, None));
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    let tally = observer.swap(Default::default());
    assert_eq!(tally.counters.errors, [("CORRUPT_BATCH", 1)]);
    let receipts = &observer.into_books().receipts[0];
    assert_eq!((receipts.received, receipts.corrupted), (1000, lost));
}

#[test]
fn gaps_and_a_start_inside_a_batch_are_no_obstacle() {
    let server = filled(1, 1000);
    {
        // Compaction or aborted transactions leave gaps between batches.
        let mut state = server.state();
        state.partitions[0].remove(2);
        state.log_start = 3;
    }
    let expected: u64 = server.state().partitions[0]
        .iter()
        .map(|batch| u64::from(u32::from_be_bytes(batch[57..61].try_into().unwrap())))
        .sum();
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Earliest, None));
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    // The first three messages lie before the start of the log, in the batch that it begins in.
    assert_eq!(observer.into_books().receipts[0].received, expected - 3);
}

#[test]
fn a_consumer_recovers_from_errors_of_a_partition() {
    // Not the leader any more; out of range, which begins anew at the first message that is kept.
    for code in [6, 1] {
        let server = filled(2, 1000);
        server.state().fetch_error = Some((1, code));
        let (mut client, mut observer) = prepared(&server, consumer_spec(2, StartAt::Earliest, None));
        drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
        let tally = observer.swap(Default::default());
        assert_eq!(tally.counters.errors.len(), 1, "{:?}", tally.counters.errors);
        let receipts = &observer.into_books().receipts[0];
        assert_eq!((receipts.received, receipts.duplicated), (1000, 0), "{code}");
    }
}

#[test]
fn nobody_is_at_the_end_of_a_partition_that_has_no_leader() {
    let server = Server::start(1);
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Latest, None));
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    // The leader goes, and what the next one has is not known before it has been asked.
    server.state().leaders = [-1].into();
    server.state().fetch_error = Some((0, 6));
    let until_ns = monotonic_ns() + 700_000_000;
    let mut is_known = true;
    while monotonic_ns() < until_ns {
        client.drive(&mut observer, monotonic_ns()).unwrap();
        client.wait(monotonic_ns() + 1_000_000);
        is_known = client.caught_up(0);
    }
    assert!(!is_known, "it has an end that nobody tells");
    server.state().leaders = [1].into();
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
}

/// A broker that is silent may have what nobody was told of. Found by the simulated world: a drain ended with messages still in the log.
#[test]
fn nobody_is_at_the_end_whose_broker_is_silent() {
    let server = Server::start(1);
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Latest, None));
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    server.state().long_poll_ms = 2_500;
    drive_until(client.as_mut(), &mut observer, |client| !client.caught_up(0));
    server.state().long_poll_ms = 0;
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
}

/// Found by the simulated world: such a leader was waited for without end.
#[test]
fn a_leader_that_is_not_among_the_brokers_is_asked_for_again() {
    let server = Server::start(1);
    server.state().leaders = [9, 1].into();
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Latest, None));
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
}

/// Found by the simulated world: the last message of a closed loop lay in its open batch until the time for retries was over.
#[test]
fn a_batch_that_was_opened_after_the_turn_began_leaves_with_the_next() {
    let server = Server::start(1);
    let mut spec = spec(1);
    spec.batch.linger_ns = 0;
    let (mut client, mut observer) = prepared(&server, spec);
    let turn_ns = monotonic_ns() - 50 * MS_NS;
    let mut emitter = emitter(1, PAYLOAD_BYTES);
    client.offer(0, &mut emitter, &mut observer, monotonic_ns());
    client.drive(&mut observer, turn_ns).unwrap();
    drive_until(client.as_mut(), &mut observer, |client| {
        client.waiting_msgs() == 0
    });
}

/// A broker keeps what the first fetch of a session names. A partition that comes to it while that fetch is under way has to be named by the
/// next one, or it is never fetched.
#[test]
fn a_partition_that_comes_while_a_session_begins_is_fetched_as_well() {
    let server = Server::start(2);
    server.state().keeps_sessions = true;
    let (mut client, mut observer) = prepared(&server, consumer_spec(2, StartAt::Latest, None));
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    {
        let mut state = server.state();
        state.without_leader = Some(1);
        state.long_poll_ms = 1000;
        state.fetch_error = Some((0, 6));
    }
    drive_until(client.as_mut(), &mut observer, |_| {
        server.state().session.2.len() == 1
    });
    server.state().without_leader = None;
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    assert_eq!(server.state().session.2.len(), 2);
}

/// What a session has to be told of a partition was to be told to its old leader, and the new one was never told: it sent the same messages for
/// ever. Found by the simulated world.
#[test]
fn a_partition_that_moves_before_its_session_is_told_is_read_on() {
    let server = filled(2, 60_000);
    server.state().keeps_sessions = true;
    let (mut client, mut observer) = prepared(&server, consumer_spec(2, StartAt::Earliest, None));
    let fetches = server.state().fetches;
    server.state().leaders = [2].into();
    drive_until(client.as_mut(), &mut observer, |client| {
        // One partition has messages and the other an error, after which nothing is fetched for a while: there the client hears that both have moved.
        let mut state = server.state();
        if state.fetches < fetches + 2 {
            state.fetch_error = Some((1, 6));
        } else {
            state.fetch_error = None;
        }
        client.caught_up(0)
    });
    client.abandon(&mut observer);
    let receipts = &observer.into_books().receipts[0];
    assert_eq!((receipts.received, receipts.duplicated), (60_000, 0));
}

/// Three batches are cut off after they were read, and others are appended: as many as were cut off or more, so that the offset at
/// which the consumer goes on is there again, or fewer. It must read all that is new.
#[test]
fn a_log_that_was_cut_off_is_read_on_from_where_it_was_cut() {
    for (appended, is_beyond) in [(5, false), (1, true)] {
        let server = filled(1, 1000);
        let rest = {
            let mut state = server.state();
            let batches = state.partitions[0].len();
            let rest: Vec<Vec<u8>> = state.partitions[0].split_off(batches - appended);
            let first = rest[0][..8].try_into().unwrap();
            state.next_offsets[0] = i64::from_be_bytes(first);
            rest
        };
        let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Earliest, None));
        drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
        let (kept, fetches) = {
            let mut state = server.state();
            state.cut_off(0, 3);
            for batch in rest {
                state.append(0, batch);
            }
            (1000, state.fetches)
        };
        drive_until(client.as_mut(), &mut observer, |client| {
            server.state().fetches > fetches + 3 && client.caught_up(0)
        });
        let tally = observer.swap(Default::default());
        client.abandon(&mut observer);
        let receipts = &observer.into_books().receipts[0];
        assert_eq!(
            (receipts.received, receipts.duplicated),
            (kept, 0),
            "beyond the end: {is_beyond}, {:?}",
            tally.counters.errors
        );
        assert!(
            tally
                .counters
                .errors
                .iter()
                .any(|(kind, count)| *kind == "LOG_TRUNCATED" && *count == 1),
            "{:?}",
            tally.counters.errors
        );
    }
}
