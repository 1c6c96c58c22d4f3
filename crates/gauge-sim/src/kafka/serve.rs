//! A node at its connections: one request of each at a time, in their order, as brokers do it.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, FetchResponse, FindCoordinatorResponse, InitProducerIdResponse,
    ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse, OffsetCommitRequest,
    OffsetCommitResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, ProduceRequest,
    ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes, decode_request_header_from_buffer};

use super::appending::Acks;
use super::parse::parse;
use super::sessions::Waiting;
use super::{Cluster, Event};
use crate::marks::Mark;
use crate::net::{self, PORT, Stage, Told, World};

/// What a connection waits for.
#[derive(Clone, Debug, Default)]
pub enum Pending {
    #[default]
    Nothing,
    /// An answer that is made, and leaves soon; `true`: the next request waits until it has.
    Answer(Vec<u8>, Told),
    Acks(Acks),
    Fetch(Waiting),
}

impl World<Cluster> {
    /// A slot's topic, and its number in it.
    pub fn place(&self, slot: usize) -> (usize, i32) {
        let topic = self
            .topics
            .iter()
            .rposition(|(_, first, _)| *first <= slot)
            .unwrap_or(0);
        (topic, (slot - self.topics[topic].1) as i32)
    }

    /// The node looks at a connection: what waits may be over, and the next request may have come.
    pub fn serve(&mut self, at: usize) {
        loop {
            let now_ns = self.now_ns();
            let socket = &self.sockets[at];
            if !matches!(socket.stage, Stage::Open | Stage::Closed) {
                return;
            }
            let ready_ns = self.nodes[socket.node]
                .paused_until_ns
                .max(socket.own.deaf_until_ns);
            if now_ns < ready_ns {
                self.at(ready_ns, net::Event::Serve(at));
                return;
            }
            match &self.sockets[at].own.pending {
                Pending::Answer(..) => return,
                Pending::Acks(_) => {
                    self.look_at_ack(at);
                    return;
                }
                Pending::Fetch(waiting) => {
                    if self.sockets[at].stage == Stage::Closed {
                        self.sockets[at].own.pending = Pending::Nothing;
                        continue;
                    }
                    let waiting = waiting.clone();
                    if let Some((response, told)) = self.fetched(at, &waiting) {
                        self.reply(
                            at,
                            ApiKey::Fetch,
                            waiting.version,
                            waiting.correlation,
                            &response,
                            told,
                        );
                    }
                    return;
                }
                Pending::Nothing => {}
            }
            let Some(frame) = self.next_frame(at) else { return };
            self.handle(at, frame);
        }
    }

    fn next_frame(&mut self, at: usize) -> Option<Bytes> {
        let socket = &mut self.sockets[at];
        let come = &socket.up[socket.up_taken..socket.up_come];
        let length = u32::from_be_bytes(*come.first_chunk::<4>()?) as usize;
        let frame = Bytes::copy_from_slice(come.get(4..4 + length)?);
        socket.up_taken += 4 + length;
        Some(frame)
    }

    /// Requests without answers are acknowledged as soon as they are written.
    pub fn note_unanswered(&mut self, at: usize) {
        let seen = self.seen();
        loop {
            let socket = &mut self.sockets[at];
            let written = &socket.up[socket.up_seen..];
            let Some(length) = written
                .first_chunk::<4>()
                .map(|head| u32::from_be_bytes(*head) as usize)
            else {
                return;
            };
            let Some(frame) = written.get(4..4 + length) else {
                return;
            };
            let mut body = Bytes::copy_from_slice(frame);
            socket.up_seen += 4 + length;
            let Ok(header) = decode_request_header_from_buffer(&mut body) else {
                return;
            };
            if header.request_api_key == ApiKey::Produce as i16
                && let Ok(request) = ProduceRequest::decode(&mut body, header.request_api_version)
            {
                for row in request.topic_data.iter().flat_map(|topic| &topic.partition_data) {
                    if let Ok(parsed) = parse(row.records.as_deref().unwrap_or_default()) {
                        self.truth.met(&parsed.messages);
                        self.truth.acknowledged(&parsed.messages, seen);
                    }
                }
            }
        }
    }

    fn handle(&mut self, at: usize, mut body: Bytes) {
        let Ok(header) = decode_request_header_from_buffer(&mut body) else {
            self.truth.offend(|| "a request has no header".to_owned());
            return;
        };
        let (version, correlation) = (header.request_api_version, header.correlation_id);
        let Ok(key) = ApiKey::try_from(header.request_api_key) else {
            self.truth
                .offend(|| format!("there is no API of number {}", header.request_api_key));
            return;
        };
        macro_rules! decoded {
            ($type:ty) => {
                match <$type>::decode(&mut body, version) {
                    Ok(request) if !body.has_remaining() => request,
                    _ => {
                        self.truth
                            .offend(|| format!("a request of {key:?} cannot be read"));
                        return;
                    }
                }
            };
        }
        match key {
            ApiKey::ApiVersions => self.reply(at, key, version, correlation, &api_versions(), Told::Nothing),
            ApiKey::Metadata => {
                let response = self.metadata(at, &decoded!(MetadataRequest));
                self.reply(at, key, version, correlation, &response, Told::Nothing);
            }
            ApiKey::InitProducerId => {
                self.cluster.next_producer_id += 1;
                let id = self.cluster.next_producer_id;
                let response = InitProducerIdResponse::default().with_producer_id(id.into());
                self.reply(at, key, version, correlation, &response, Told::Nothing);
            }
            ApiKey::FindCoordinator => {
                let node = (0..self.nodes.len())
                    .find(|node| self.nodes[*node].is_up)
                    .unwrap_or(0);
                let response = FindCoordinatorResponse::default()
                    .with_node_id((node as i32 + 1).into())
                    .with_host(StrBytes::from_string(net::host(node)))
                    .with_port(i32::from(PORT) + node as i32);
                self.reply(at, key, version, correlation, &response, Told::Nothing);
            }
            ApiKey::OffsetCommit => {
                let response = committed(&decoded!(OffsetCommitRequest));
                self.reply(at, key, version, correlation, &response, Told::Nothing);
            }
            ApiKey::ListOffsets => {
                let response = self.list_offsets(at, &decoded!(ListOffsetsRequest));
                self.reply(at, key, version, correlation, &response, Told::Nothing);
            }
            ApiKey::OffsetForLeaderEpoch => {
                let response = self.epoch_ends(at, &decoded!(OffsetForLeaderEpochRequest));
                self.reply(at, key, version, correlation, &response, Told::Nothing);
            }
            ApiKey::Produce => {
                let request = decoded!(ProduceRequest);
                self.produce(at, request, correlation, version);
            }
            ApiKey::Fetch => {
                let request = decoded!(kafka_protocol::messages::FetchRequest);
                match self.begin_fetch(at, &request, correlation, version) {
                    Ok(waiting) => {
                        self.at(waiting.deadline_ns, net::Event::Serve(at));
                        self.sockets[at].own.pending = Pending::Fetch(waiting);
                    }
                    Err(code) => {
                        let response = FetchResponse::default().with_error_code(code);
                        self.reply(at, key, version, correlation, &response, Told::Nothing);
                    }
                }
            }
            other => self.truth.offend(|| format!("nobody has to ask for {other:?}")),
        }
    }

    /// An answer is made; it leaves after the time that the node needs.
    pub fn reply(
        &mut self,
        at: usize,
        key: ApiKey,
        version: i16,
        correlation: i32,
        response: &impl Encodable,
        told: Told,
    ) {
        let mut out = BytesMut::new();
        let header = ResponseHeader::default().with_correlation_id(correlation);
        let is_encoded = header
            .encode(&mut out, key.response_header_version(version))
            .is_ok()
            && response.encode(&mut out, version).is_ok();
        if !is_encoded {
            self.fatal
                .get_or_insert_with(|| format!("the world cannot write an answer to {key:?}"));
            return;
        }
        self.sockets[at].own.pending = Pending::Answer(out.to_vec(), told);
        let delay_ns = self.draw(1_000, self.scenario.service_ns);
        self.after(delay_ns, net::Event::Own(Event::Answer(at)));
    }

    /// An answer leaves.
    pub fn answer(&mut self, at: usize) {
        let Pending::Answer(bytes, told) =
            std::mem::replace(&mut self.sockets[at].own.pending, Pending::Nothing)
        else {
            return;
        };
        let now_ns = self.now_ns();
        let cut = match bytes.len() {
            ..=8 => None,
            length => self.breaks_within(at, length),
        };
        let node = self.sockets[at].node;
        if let Some(for_ns) = self.cluster.nodes[node].throttle.next() {
            self.sockets[at].own.deaf_until_ns = now_ns + for_ns;
            self.marks.set(Mark::Throttled);
        }
        let mut framed = (bytes.len() as u32).to_be_bytes().to_vec();
        framed.extend_from_slice(&bytes);
        self.send(at, &framed, told, cut);
        self.serve(at);
    }

    fn metadata(&mut self, at: usize, request: &MetadataRequest) -> MetadataResponse {
        let node = self.sockets[at].node;
        let view = self.cluster.nodes[node].view.clone();
        let mut topics = Vec::new();
        for topic in request.topics.clone().unwrap_or_default() {
            let name = topic.name.clone().unwrap_or_default();
            let mut rows = Vec::new();
            let mut partition = 0;
            while let Some(slot) = self.slot(&name, partition) {
                let (leader, epoch) = view[slot];
                let leader = if leader < 0 { -1 } else { leader + 1 };
                rows.push(
                    MetadataResponsePartition::default()
                        .with_partition_index(partition)
                        .with_leader_id(leader.into())
                        .with_leader_epoch(epoch)
                        .with_error_code(if leader < 0 { 5 } else { 0 })
                        .with_replica_nodes(vec![1.into()])
                        .with_isr_nodes(vec![1.into()]),
                );
                partition += 1;
            }
            topics.push(
                MetadataResponseTopic::default()
                    .with_name(topic.name)
                    .with_partitions(rows),
            );
        }
        let brokers = (0..self.nodes.len())
            .filter(|node| self.nodes[*node].is_up)
            .map(|node| {
                MetadataResponseBroker::default()
                    .with_node_id((node as i32 + 1).into())
                    .with_host(StrBytes::from_string(net::host(node)))
                    .with_port(i32::from(PORT) + node as i32)
            });
        MetadataResponse::default()
            .with_brokers(brokers.collect())
            .with_controller_id(1.into())
            .with_topics(topics)
    }

    fn list_offsets(&self, at: usize, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let node = self.sockets[at].node;
        let topics = request.topics.iter().map(|topic| {
            let rows = topic.partitions.iter().map(|row| {
                let answer =
                    ListOffsetsPartitionResponse::default().with_partition_index(row.partition_index);
                match self.slot(&topic.name, row.partition_index) {
                    Some(slot) if self.cluster.partitions[slot].leader == Some(node) => {
                        let partition = &self.cluster.partitions[slot];
                        answer.with_offset(match row.timestamp {
                            -1 => partition.high_watermark,
                            _ => partition.start,
                        })
                    }
                    _ => answer.with_error_code(6).with_offset(-1),
                }
            });
            ListOffsetsTopicResponse::default()
                .with_name(topic.name.clone())
                .with_partitions(rows.collect())
        });
        ListOffsetsResponse::default().with_topics(topics.collect())
    }

    fn epoch_ends(&self, at: usize, request: &OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse {
        let node = self.sockets[at].node;
        let topics = request.topics.iter().map(|topic| {
            let rows = topic.partitions.iter().map(|row| {
                let answer = EpochEndOffset::default().with_partition(row.partition);
                let refused = |code| {
                    answer
                        .clone()
                        .with_error_code(code)
                        .with_leader_epoch(-1)
                        .with_end_offset(-1)
                };
                let Some(slot) = self.slot(&topic.topic, row.partition) else {
                    return refused(3);
                };
                let partition = &self.cluster.partitions[slot];
                if partition.leader != Some(node) {
                    return refused(6);
                }
                if row.current_leader_epoch >= 0 && row.current_leader_epoch != partition.epoch {
                    return refused(if row.current_leader_epoch < partition.epoch {
                        74
                    } else {
                        75
                    });
                }
                if row.leader_epoch == partition.epoch {
                    return answer
                        .with_leader_epoch(partition.epoch)
                        .with_end_offset(partition.end);
                }
                let known = partition
                    .log
                    .iter()
                    .rfind(|stored| stored.epoch <= row.leader_epoch);
                let behind = partition
                    .log
                    .iter()
                    .find(|stored| stored.epoch > row.leader_epoch);
                let end = behind.map_or(partition.end, |stored| stored.base);
                match known {
                    Some(stored) => answer.with_leader_epoch(stored.epoch).with_end_offset(end),
                    None => answer.with_leader_epoch(row.leader_epoch).with_end_offset(end),
                }
            });
            OffsetForLeaderTopicResult::default()
                .with_topic(topic.topic.clone())
                .with_partitions(rows.collect())
        });
        OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
    }
}

fn committed(request: &OffsetCommitRequest) -> OffsetCommitResponse {
    let topics = request.topics.iter().map(|topic| {
        let rows = topic
            .partitions
            .iter()
            .map(|row| OffsetCommitResponsePartition::default().with_partition_index(row.partition_index));
        OffsetCommitResponseTopic::default()
            .with_name(topic.name.clone())
            .with_partitions(rows.collect())
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}

fn api_versions() -> ApiVersionsResponse {
    let keys = [
        ApiKey::CreateTopics,
        ApiKey::DeleteTopics,
        ApiKey::Produce,
        ApiKey::Fetch,
        ApiKey::ListOffsets,
        ApiKey::Metadata,
        ApiKey::OffsetCommit,
        ApiKey::OffsetForLeaderEpoch,
    ];
    let rows = keys.map(|key| {
        let range = key.valid_versions();
        ApiVersion::default()
            .with_api_key(key as i16)
            .with_min_version(range.min)
            .with_max_version(range.max)
    });
    ApiVersionsResponse::default().with_api_keys(rows.to_vec())
}
