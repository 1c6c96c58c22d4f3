//! Batches: stored, fetched, found by their time, refused.

use bytes::Bytes;
use gauge_log::storage::segment::Durability;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::*;

use crate::common::*;
use crate::versions;

#[test]
fn batches_are_stored_and_fetched_in_every_version() {
    let directory = Directory::new("data");
    let running = serve(settings(&directory.0, Durability::Fsync));
    let mut client = Client::connect(running.address);
    client.create_topic("t", 2);
    let value = |text: String| Bytes::from(text);
    let mut expected = Vec::new();
    for version in versions::<ProduceRequest>() {
        let values = [value(format!("a{version}")), value(format!("b{version}"))];
        let response = client.call(&produce_request("t", 1, batch(&values, None)), version);
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(
            (partition.error_code, partition.base_offset),
            (0, expected.len() as i64)
        );
        expected.extend(values);
    }
    for version in versions::<FetchRequest>() {
        let response = client.call(&fetch_request("t", 1, 0, 0), version);
        let data = &response.responses[0].partitions[0];
        assert_eq!((data.error_code, data.high_watermark), (0, expected.len() as i64));
        let values: Vec<Bytes> = decode(data.records.clone().unwrap())
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        assert_eq!(values, expected);
        let behind = client.call(&fetch_request("t", 1, 1000, 0), version);
        assert_eq!(behind.responses[0].partitions[0].error_code, 1);
    }
    for version in versions::<ListOffsetsRequest>() {
        let ask = |timestamp| {
            ListOffsetsPartition::default()
                .with_partition_index(1)
                .with_timestamp(timestamp)
        };
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name("t"))
            .with_partitions([-1, -2, 0, NOW_MS, NOW_MS + 1, -3].map(ask).to_vec());
        let response = client.call(&ListOffsetsRequest::default().with_topics(vec![topic]), version);
        let partitions = response.topics[0].partitions.iter();
        let answers: Vec<_> = partitions
            .map(|partition| (partition.error_code, partition.timestamp, partition.offset))
            .collect();
        let last = expected.len() as i64;
        // Behind the newest record there is none. All have the same timestamp, and the first of them is the newest.
        let newest = if version >= 7 {
            (0, NOW_MS, 0)
        } else {
            (35, -1, -1)
        };
        let times = [(0, NOW_MS, 0), (0, NOW_MS, 0), (0, -1, -1), newest];
        assert_eq!(answers, [&[(0, -1, last), (0, -1, 0)][..], &times].concat());
    }
    for version in versions::<OffsetForLeaderEpochRequest>() {
        let partition =
            offset_for_leader_epoch_request::OffsetForLeaderPartition::default().with_partition(1);
        let topic = offset_for_leader_epoch_request::OffsetForLeaderTopic::default()
            .with_topic(topic_name("t"))
            .with_partitions(vec![partition]);
        let response = client.call(
            &OffsetForLeaderEpochRequest::default().with_topics(vec![topic]),
            version,
        );
        assert_eq!(response.topics[0].partitions[0].end_offset, expected.len() as i64);
    }
    for version in versions::<DeleteRecordsRequest>() {
        let partition = delete_records_request::DeleteRecordsPartition::default()
            .with_partition_index(1)
            .with_offset(3);
        let topic = delete_records_request::DeleteRecordsTopic::default()
            .with_name(topic_name("t"))
            .with_partitions(vec![partition]);
        let response = client.call(&DeleteRecordsRequest::default().with_topics(vec![topic]), version);
        assert_eq!(response.topics[0].partitions[0].low_watermark, 3);
    }
    assert_eq!(
        client.call(&fetch_request("t", 1, 0, 0), 11).responses[0].partitions[0].error_code,
        1
    );
    stop(running);
}

#[test]
fn what_is_not_in_memory_is_read_and_its_times_are_found() {
    for durability in [Durability::Fsync, Durability::Async] {
        let directory = Directory::new("data");
        // Six chunks of 64 KiB, half of them for reading what is not in memory.
        let settings = || {
            let mut settings = settings(&directory.0, durability);
            (settings.chunk_bytes, settings.memory_bytes) = (64 << 10, 640 << 10);
            settings
        };
        let running = serve(settings());
        let mut client = Client::connect(running.address);
        client.create_topic("t", 1);
        let value = |number: i64| Bytes::from(vec![number as u8; 10_000]);
        // Each third one comes late.
        let time = |number: i64| NOW_MS + 10 * number - 45 * i64::from(number % 3 == 0);
        for number in 0..200 {
            let (error, offset) = client.produce("t", 0, batch_at(&[value(number)], None, time(number)));
            assert_eq!((error, offset), (0, number));
        }
        stop(running);
        let running = serve(settings());
        let mut client = Client::connect(running.address);
        let read = client.read_all("t", 0, 0);
        assert!(
            read.into_iter()
                .eq((0..200).map(|number| (number, value(number))))
        );
        let asked: Vec<i64> = (0..200)
            .step_by(7)
            .flat_map(|number| [time(number), time(number) + 1])
            .collect();
        let partitions = asked
            .iter()
            .map(|&asked| ListOffsetsPartition::default().with_timestamp(asked));
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name("t"))
            .with_partitions(partitions.collect());
        let response = client.call(&ListOffsetsRequest::default().with_topics(vec![topic]), 7);
        let found = response.topics[0].partitions.iter();
        for (found, asked) in found.zip(asked) {
            let due = (0..200).find(|&number| time(number) >= asked);
            let due = due.map_or((-1, -1), |number| (time(number), number));
            assert_eq!((found.timestamp, found.offset), due, "time {asked}");
        }
        stop(running);
    }
}

#[test]
fn a_repeated_idempotent_batch_is_stored_once() {
    let directory = Directory::new("idempotent");
    let running = serve(settings(&directory.0, Durability::Async));
    let mut client = Client::connect(running.address);
    client.create_topic("t", 1);
    let mut ids = Vec::new();
    for version in versions::<InitProducerIdRequest>() {
        let response = client.call(
            &InitProducerIdRequest::default().with_transactional_id(None),
            version,
        );
        assert_eq!(response.error_code, 0);
        ids.push(response.producer_id.0);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    let values = [Bytes::from_static(b"x"), Bytes::from_static(b"y")];
    let first = batch(&values, Some((ids[0], 0)));
    assert_eq!(client.produce("t", 0, first.clone()), (0, 0));
    assert_eq!(client.produce("t", 0, first), (0, 0));
    assert_eq!(client.produce("t", 0, batch(&values, Some((ids[0], 2)))), (0, 2));
    assert_eq!(client.produce("t", 0, batch(&values, Some((ids[0], 10)))).0, 45);
    assert_eq!(client.read_all("t", 0, 0).len(), 4);
    stop(running);
}

#[test]
fn a_damaged_batch_is_refused() {
    let directory = Directory::new("damaged");
    let running = serve(settings(&directory.0, Durability::Async));
    let mut client = Client::connect(running.address);
    client.create_topic("t", 1);
    let mut bytes = batch(&[Bytes::from_static(b"value")], None).to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(client.produce("t", 0, Bytes::from(bytes)).0, 2);
    assert_eq!(
        client.produce("t", 5, batch(&[Bytes::from_static(b"v")], None)).0,
        3
    );
    assert_eq!(client.read_all("t", 0, 0).len(), 0);
    stop(running);
}

#[test]
fn a_fetch_waits_until_there_is_data_or_its_time_is_over() {
    let directory = Directory::new("wait");
    let running = serve(settings(&directory.0, Durability::Fsync));
    let mut producer = Client::connect(running.address);
    let mut consumer = Client::connect(running.address);
    producer.create_topic("t", 1);
    let empty = consumer.call(&fetch_request("t", 0, 0, 50), 11);
    assert_eq!(
        empty.responses[0].partitions[0]
            .records
            .as_ref()
            .map_or(0, Bytes::len),
        0
    );
    consumer.send(&fetch_request("t", 0, 0, 20_000), 11).unwrap();
    producer.produce("t", 0, batch(&[Bytes::from_static(b"late")], None));
    let response = consumer.receive::<FetchRequest>(11).unwrap();
    assert_eq!(
        decode(response.responses[0].partitions[0].records.clone().unwrap()).len(),
        1
    );
    stop(running);
}

#[test]
fn a_fetch_session_is_told_and_answered_only_what_changes() {
    let directory = Directory::new("session");
    let running = serve(settings(&directory.0, Durability::Async));
    let mut client = Client::connect(running.address);
    client.create_topic("t", 3);
    let value = [Bytes::from_static(b"value")];
    let fetch = |partition: i32, offset: i64, session: i32, epoch: i32| {
        fetch_request("t", partition, offset, 0)
            .with_session_id(session)
            .with_session_epoch(epoch)
    };
    let nothing = |session: i32, epoch: i32| fetch(0, 0, session, epoch).with_topics(vec![]);
    // Begins with partition 0, which is empty; partition 1 joins later.
    let begun = client.call(&fetch(0, 0, 0, 0), 12);
    assert_eq!((begun.error_code, begun.responses.len()), (0, 1));
    let id = begun.session_id;
    assert!(id > 0);
    assert_eq!(client.call(&nothing(id, 1), 12).responses.len(), 0);
    for partition in 0..3 {
        client.produce("t", partition, batch(&value, None));
    }
    let changed = client.call(&fetch(1, 0, id, 2), 12);
    let indices: Vec<i32> = changed.responses[0]
        .partitions
        .iter()
        .map(|partition| partition.partition_index)
        .collect();
    assert_eq!((changed.responses.len(), indices), (1, vec![0, 1]));
    // What was not read on is sent again, as without a session; then partition 0 is read on and partition 1 taken back.
    let again = client.call(&nothing(id, 3), 12);
    assert_eq!(again.responses[0].partitions.len(), 2);
    let forgotten = fetch_request::ForgottenTopic::default()
        .with_topic(topic_name("t"))
        .with_partitions(vec![1]);
    let rest = fetch(0, 1, id, 4).with_forgotten_topics_data(vec![forgotten]);
    assert_eq!(client.call(&rest, 12).responses.len(), 0);
    // A wrong epoch, and a session of somebody else.
    assert_eq!(client.call(&nothing(id, 9), 12).error_code, 71);
    let mut other = Client::connect(running.address);
    assert_eq!(other.call(&nothing(id, 5), 12).error_code, 70);
    drop((client, other));
    stop(running);
}
