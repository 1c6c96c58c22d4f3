//! Topics and their settings.

use gauge_log::storage::segment::Durability;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::*;

use crate::common::*;
use crate::versions;

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
