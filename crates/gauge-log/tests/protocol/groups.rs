//! Groups: members, and the offsets that they commit.

use bytes::Bytes;
use gauge_log::storage::segment::Durability;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;

use crate::common::*;
use crate::versions;

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
