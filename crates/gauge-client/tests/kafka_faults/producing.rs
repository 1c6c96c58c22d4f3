//! Producers: retries, refusals, lost connections, idempotence, and what is left when a client is abandoned.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use gauge_client::kafka::Kafka;
use gauge_client::{Acks, ClientError, Offer, Protocol};
use gauge_load::Observer;
use gauge_load::audit::judge_sent;
use gauge_load::clock::monotonic_ns;

use crate::scripted::{Fate, Server, emitter};
use crate::{MS_NS, PAYLOAD_BYTES, SECOND_NS, drive_until, endpoint, prepared, send, sequences, spec};

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
