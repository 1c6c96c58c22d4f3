//! Every API in every version that is offered, spoken to with messages of an independent implementation.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something unexpected happens"
)]

mod common;

use bytes::Bytes;
use common::*;
use gauge_log::api::APIS;
use gauge_log::storage::segment::Durability;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;

fn versions<R: Request>() -> std::ops::RangeInclusive<i16> {
    let api = APIS.iter().find(|api| api.key == R::KEY).unwrap();
    api.min..=api.max
}

#[test]
fn versions_are_told_even_to_clients_from_the_future() {
    let directory = Directory::new("versions");
    let running = serve(settings(&directory.0, Durability::Async));
    let mut client = Client::connect(running.address);
    for version in versions::<ApiVersionsRequest>() {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(name("test"))
            .with_client_software_version(name("1"));
        let response = client.call(&request, version);
        assert_eq!(response.error_code, 0);
        assert_eq!(response.api_keys.len(), APIS.len());
    }
    let mut frame = client.frame(&ApiVersionsRequest::default(), 3);
    frame[7] = 99;
    std::io::Write::write_all(&mut client.stream, &frame).unwrap();
    let response = client.receive::<ApiVersionsRequest>(0).unwrap();
    assert_eq!(response.error_code, 35);
    assert!(response.api_keys.iter().any(|api| api.api_key == 18));
    stop(running);
}

#[test]
fn topics_are_created_described_grown_and_deleted_in_every_version() {
    let directory = Directory::new("topics");
    let running = serve(settings(&directory.0, Durability::Async));
    let mut client = Client::connect(running.address);
    for version in versions::<CreateTopicsRequest>() {
        let topic = create_topics_request::CreatableTopic::default()
            .with_name(topic_name(&format!("t{version}")))
            .with_num_partitions(2)
            .with_replication_factor(-1);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]);
        assert_eq!(client.call(&request, version).topics[0].error_code, 0);
        assert_eq!(client.call(&request, version).topics[0].error_code, 36);
    }
    for version in versions::<MetadataRequest>() {
        let all = client.call(
            &MetadataRequest::default().with_topics(if version == 0 { Some(vec![]) } else { None }),
            version,
        );
        assert_eq!(all.topics.len(), 6);
        let asked =
            ["t3", "absent"].map(|topic| MetadataRequestTopic::default().with_name(Some(topic_name(topic))));
        let some = client.call(
            &MetadataRequest::default().with_topics(Some(asked.to_vec())),
            version,
        );
        assert_eq!(
            (some.topics[0].error_code, some.topics[0].partitions.len()),
            (0, 2)
        );
        assert_eq!(some.topics[1].error_code, 3);
        assert_eq!(some.brokers[0].port, i32::from(running.address.port()));
    }
    for version in versions::<CreatePartitionsRequest>() {
        let topic = create_partitions_request::CreatePartitionsTopic::default()
            .with_name(topic_name("t2"))
            .with_count(3 + i32::from(version))
            .with_assignments(None);
        let request = CreatePartitionsRequest::default().with_topics(vec![topic]);
        assert_eq!(client.call(&request, version).results[0].error_code, 0);
    }
    for version in versions::<DescribeConfigsRequest>() {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(name("t2"))
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default()
            .with_resources(vec![resource])
            .with_include_synonyms(true);
        let response = client.call(&request, version);
        assert!(
            response.results[0]
                .configs
                .iter()
                .any(|config| config.name.as_str() == "flush.messages")
        );
    }
    for version in versions::<DescribeClusterRequest>() {
        let request = DescribeClusterRequest::default().with_endpoint_type(1);
        assert_eq!(client.call(&request, version).brokers.len(), 1);
    }
    for version in versions::<DescribeLogDirsRequest>() {
        let response = client.call(&DescribeLogDirsRequest::default().with_topics(None), version);
        assert_eq!(response.results[0].topics.len(), 6);
    }
    for version in versions::<DeleteTopicsRequest>() {
        let topic = topic_name(&format!("t{}", version + 1));
        let state = delete_topics_request::DeleteTopicState::default().with_name(Some(topic.clone()));
        let request = match version {
            6 => DeleteTopicsRequest::default().with_topics(vec![state]),
            _ => DeleteTopicsRequest::default().with_topic_names(vec![topic]),
        };
        assert_eq!(client.call(&request, version).responses[0].error_code, 0);
    }
    assert_eq!(
        client
            .call(&MetadataRequest::default().with_topics(None), 12)
            .topics
            .len(),
        0
    );
    stop(running);
}

#[test]
fn a_topic_setting_that_is_not_followed_is_refused() {
    let directory = Directory::new("configs");
    let running = serve(settings(&directory.0, Durability::Fsync));
    let mut client = Client::connect(running.address);
    let mut create = |key: &str, value: &str| {
        let config = create_topics_request::CreatableTopicConfig::default()
            .with_name(name(key))
            .with_value(Some(name(value)));
        let topic = create_topics_request::CreatableTopic::default()
            .with_name(topic_name(&format!("t-{key}-{value}")))
            .with_num_partitions(1)
            .with_replication_factor(1)
            .with_configs(vec![config]);
        let response = client.call(&CreateTopicsRequest::default().with_topics(vec![topic]), 7);
        response.topics[0].error_code
    };
    assert_eq!(create("flush.messages", "1"), 0);
    assert_eq!(create("flush.messages", "1000"), 40);
    assert_eq!(create("cleanup.policy", "compact"), 40);
    assert_eq!(create("retention.ms", "60000"), 0);
    assert_eq!(create("no.such.setting", "1"), 40);
    stop(running);
}

/// (value, source, whether it is read-only) of a topic's setting.
fn setting(client: &mut Client, topic: &str, key: &str) -> (String, i8, bool) {
    let resource = describe_configs_request::DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(name(topic))
        .with_configuration_keys(Some(vec![name(key)]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let response = client.call(&request, 4);
    let config = &response.results[0].configs[0];
    let value = config.value.as_ref().unwrap().to_string();
    (value, config.config_source, config.read_only)
}

/// Changes settings of a resource with a request that names each with its operation; returns the error.
fn change_some(
    client: &mut Client,
    version: i16,
    (kind, resource): (i8, &str),
    changes: &[(&str, i8, Option<&str>)],
    validate_only: bool,
) -> i16 {
    use incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
    let configs = changes.iter().map(|&(key, operation, value)| {
        AlterableConfig::default()
            .with_name(name(key))
            .with_config_operation(operation)
            .with_value(value.map(name))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(name(resource))
        .with_configs(configs.collect());
    let request = IncrementalAlterConfigsRequest::default()
        .with_resources(vec![resource])
        .with_validate_only(validate_only);
    client.call(&request, version).responses[0].error_code
}

#[test]
fn settings_that_can_be_changed_are_and_stay_so() {
    let directory = Directory::new("change");
    let running = serve(settings(&directory.0, Durability::Fsync));
    let mut client = Client::connect(running.address);
    client.create_topic("t", 1);
    assert_eq!(
        setting(&mut client, "t", "retention.ms"),
        ("-1".to_owned(), 4, false)
    );
    let topic = (2, "t");
    let (set, delete, append) = (0, 1, 2);
    for version in versions::<IncrementalAlterConfigsRequest>() {
        let mut change =
            |changes: &[_], validate_only| change_some(&mut client, version, topic, changes, validate_only);
        assert_eq!(change(&[("retention.ms", set, Some("5000"))], true), 0);
        assert_eq!(setting(&mut client, "t", "retention.ms").0, "-1");
        let mut change = |changes: &[_]| change_some(&mut client, version, topic, changes, false);
        assert_eq!(change(&[("retention.ms", set, Some("60000"))]), 0);
        assert_eq!(change(&[("flush.messages", set, Some("1"))]), 0);
        // All or none.
        assert_eq!(
            change(&[("retention.ms", set, Some("7")), ("flush.ms", set, Some("9"))]),
            40
        );
        assert_eq!(change(&[("retention.ms", set, Some("soon"))]), 40);
        assert_eq!(change(&[("retention.ms", set, None)]), 40);
        assert_eq!(change(&[("cleanup.policy", append, Some("compact"))]), 40);
        assert_eq!(change(&[("no.such.setting", delete, None)]), 40);
        assert_eq!(change(&[("retention.ms", 9, Some("7"))]), 42);
        assert_eq!(change(&[("flush.messages", set, Some("1")); 101]), 42);
        assert_eq!(
            setting(&mut client, "t", "retention.ms"),
            ("60000".to_owned(), 1, false)
        );
        let mut change = |changes: &[_]| change_some(&mut client, version, topic, changes, false);
        assert_eq!(change(&[("retention.ms", delete, None)]), 0);
        assert_eq!(setting(&mut client, "t", "retention.ms").0, "-1");
        let other = &[("retention.ms", set, Some("7"))];
        assert_eq!(change_some(&mut client, version, (2, "none"), other, false), 3);
        assert_eq!(change_some(&mut client, version, (4, "1"), other, false), 40);
        assert_eq!(change_some(&mut client, version, (8, "x"), other, false), 42);
    }
    for version in versions::<AlterConfigsRequest>() {
        use alter_configs_request::{AlterConfigsResource, AlterableConfig};
        for value in [Some("1000"), None] {
            let configs = value.map(|value| {
                AlterableConfig::default()
                    .with_name(name("retention.ms"))
                    .with_value(Some(name(value)))
            });
            let resource = AlterConfigsResource::default()
                .with_resource_type(2)
                .with_resource_name(name("t"))
                .with_configs(configs.into_iter().collect());
            // The same twice is a mistake of the client.
            let twice =
                AlterConfigsRequest::default().with_resources(vec![resource.clone(), resource.clone()]);
            assert_eq!(client.call(&twice, version).responses[1].error_code, 42);
            let request = AlterConfigsRequest::default().with_resources(vec![resource]);
            assert_eq!(client.call(&request, version).responses[0].error_code, 0);
            let expected = value.unwrap_or("-1");
            assert_eq!(setting(&mut client, "t", "retention.ms").0, expected);
        }
    }
    let last = &[("retention.ms", set, Some("90000"))];
    assert_eq!(change_some(&mut client, 1, topic, last, false), 0);
    stop(running);
    let running = serve(settings(&directory.0, Durability::Fsync));
    let mut client = Client::connect(running.address);
    assert_eq!(
        setting(&mut client, "t", "retention.ms"),
        ("90000".to_owned(), 1, false)
    );
    stop(running);
}

#[test]
fn committed_offsets_are_deleted_one_by_one() {
    let directory = Directory::new("offsets");
    let running = serve(settings(&directory.0, Durability::Fsync));
    let mut client = Client::connect(running.address);
    client.create_topic("t", 3);
    let group = GroupId(name("g"));
    let commit = offset_commit_request::OffsetCommitRequestTopic::default()
        .with_name(topic_name("t"))
        .with_partitions(
            (0..3)
                .map(|index| {
                    offset_commit_request::OffsetCommitRequestPartition::default()
                        .with_partition_index(index)
                        .with_committed_offset(7)
                })
                .collect(),
        );
    let commit = OffsetCommitRequest::default()
        .with_group_id(group.clone())
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![commit]);
    assert_eq!(client.call(&commit, 8).topics[0].partitions[2].error_code, 0);
    let delete = |topic: &str| {
        let partitions = [0, 2].map(|index| {
            offset_delete_request::OffsetDeleteRequestPartition::default().with_partition_index(index)
        });
        let topic = offset_delete_request::OffsetDeleteRequestTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(partitions.to_vec());
        OffsetDeleteRequest::default().with_topics(vec![topic])
    };
    let nobody = delete("t").with_group_id(GroupId(name("nobody")));
    assert_eq!(client.call(&nobody, 0).error_code, 69);
    let unknown = client.call(&delete("u").with_group_id(group.clone()), 0);
    assert_eq!(
        (unknown.error_code, unknown.topics[0].partitions[1].error_code),
        (0, 3)
    );
    let deleted = client.call(&delete("t").with_group_id(group.clone()), 0);
    assert_eq!(
        (deleted.error_code, deleted.topics[0].partitions[1].error_code),
        (0, 0)
    );
    let offsets = |client: &mut Client| {
        let request = OffsetFetchRequest::default()
            .with_group_id(group.clone())
            .with_topics(None);
        let topics = client.call(&request, 7).topics;
        let partitions = topics.into_iter().flat_map(|topic| topic.partitions);
        partitions
            .map(|partition| partition.partition_index)
            .collect::<Vec<_>>()
    };
    assert_eq!(offsets(&mut client), [1]);
    stop(running);
    let running = serve(settings(&directory.0, Durability::Fsync));
    assert_eq!(offsets(&mut Client::connect(running.address)), [1]);
    stop(running);
}

#[test]
fn a_member_of_the_newer_group_protocol_is_told_what_to_do() {
    let directory = Directory::new("newer");
    let running = serve(settings(&directory.0, Durability::Fsync));
    let mut client = Client::connect(running.address);
    for version in versions::<ConsumerGroupHeartbeatRequest>() {
        let request = ConsumerGroupHeartbeatRequest::default().with_group_id(GroupId(name("g")));
        let response = client.call(&request, version);
        assert_eq!(response.error_code, 35);
        let message = response.error_message.unwrap();
        assert!(message.contains("group.protocol=classic"), "{message}");
    }
    stop(running);
}

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
fn a_group_forms_commits_and_ends_in_every_version() {
    let directory = Directory::new("groups");
    let running = serve(settings(&directory.0, Durability::Fsync));
    let mut client = Client::connect(running.address);
    client.create_topic("t", 1);
    for version in versions::<FindCoordinatorRequest>() {
        let request = FindCoordinatorRequest::default();
        let request = if version >= 4 {
            request.with_coordinator_keys(vec![name("g")])
        } else {
            request.with_key(name("g"))
        };
        let response = client.call(&request, version);
        let port = if version >= 4 {
            response.coordinators[0].port
        } else {
            response.port
        };
        assert_eq!(port, i32::from(running.address.port()));
    }
    for version in versions::<JoinGroupRequest>() {
        let group = GroupId(name(&format!("g{version}")));
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(name("range"))
            .with_metadata(Bytes::from_static(b"m"));
        let mut join = JoinGroupRequest::default()
            .with_group_id(group.clone())
            .with_session_timeout_ms(6000)
            .with_rebalance_timeout_ms(6000)
            .with_protocol_type(name("consumer"))
            .with_protocols(vec![protocol]);
        let mut joined = client.call(&join, version);
        if version >= 4 {
            assert_eq!(joined.error_code, 79);
            join = join.with_member_id(joined.member_id);
            joined = client.call(&join, version);
        }
        assert_eq!((joined.error_code, joined.members.len()), (0, 1));
        assert_eq!(joined.leader, joined.member_id);
        finish_group(&mut client, &group, &joined);
    }
    for version in versions::<ListGroupsRequest>() {
        let groups = client.call(&ListGroupsRequest::default(), version).groups;
        assert_eq!(groups.len(), 10);
    }
    for version in versions::<DescribeGroupsRequest>() {
        let request = DescribeGroupsRequest::default().with_groups(vec![GroupId(name("g0"))]);
        assert_eq!(
            client.call(&request, version).groups[0].group_state.as_str(),
            "Empty"
        );
    }
    for version in versions::<DeleteGroupsRequest>() {
        let request =
            DeleteGroupsRequest::default().with_groups_names(vec![GroupId(name(&format!("g{version}")))]);
        assert_eq!(client.call(&request, version).results[0].error_code, 0);
        assert_eq!(client.call(&request, version).results[0].error_code, 69);
    }
    stop(running);
}

fn finish_group(client: &mut Client, group: &GroupId, joined: &JoinGroupResponse) {
    let (member, generation) = (joined.member_id.clone(), joined.generation_id);
    for version in versions::<SyncGroupRequest>() {
        let assignment = SyncGroupRequestAssignment::default()
            .with_member_id(member.clone())
            .with_assignment(Bytes::from_static(b"everything"));
        let sync = SyncGroupRequest::default()
            .with_group_id(group.clone())
            .with_generation_id(generation)
            .with_member_id(member.clone())
            .with_assignments(vec![assignment]);
        let synced = client.call(&sync, version);
        assert_eq!(
            (synced.error_code, &synced.assignment[..]),
            (0, &b"everything"[..])
        );
    }
    for version in versions::<HeartbeatRequest>() {
        let heartbeat = HeartbeatRequest::default()
            .with_group_id(group.clone())
            .with_generation_id(generation)
            .with_member_id(member.clone());
        assert_eq!(client.call(&heartbeat, version).error_code, 0);
    }
    for version in versions::<OffsetCommitRequest>() {
        let partition =
            OffsetCommitRequestPartition::default().with_committed_offset(40 + i64::from(version));
        let topic = OffsetCommitRequestTopic::default()
            .with_name(topic_name("t"))
            .with_partitions(vec![partition]);
        let commit = OffsetCommitRequest::default()
            .with_group_id(group.clone())
            .with_generation_id_or_member_epoch(generation)
            .with_member_id(member.clone())
            .with_topics(vec![topic]);
        assert_eq!(
            client.call(&commit, version).topics[0].partitions[0].error_code,
            0
        );
    }
    for version in versions::<OffsetFetchRequest>() {
        let topic = OffsetFetchRequestTopic::default()
            .with_name(topic_name("t"))
            .with_partition_indexes(vec![0]);
        let topics = OffsetFetchRequestTopics::default()
            .with_name(topic_name("t"))
            .with_partition_indexes(vec![0]);
        let asked = OffsetFetchRequestGroup::default()
            .with_group_id(group.clone())
            .with_topics(Some(vec![topics]));
        let request = match version {
            8 => OffsetFetchRequest::default().with_groups(vec![asked]),
            _ => OffsetFetchRequest::default()
                .with_group_id(group.clone())
                .with_topics(Some(vec![topic])),
        };
        let response = client.call(&request, version);
        let offset = match version {
            8 => response.groups[0].topics[0].partitions[0].committed_offset,
            _ => response.topics[0].partitions[0].committed_offset,
        };
        assert_eq!(offset, 48);
    }
    for version in versions::<LeaveGroupRequest>() {
        let leaving = leave_group_request::MemberIdentity::default().with_member_id(member.clone());
        let leave = LeaveGroupRequest::default().with_group_id(group.clone());
        let leave = match version {
            0..=2 => leave.with_member_id(member.clone()),
            _ => leave.with_members(vec![leaving]),
        };
        let response = client.call(&leave, version);
        let error = if version <= 2 {
            response.error_code
        } else {
            response.members[0].error_code
        };
        assert_eq!(error, if version == 0 { 0 } else { 25 });
    }
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
