//! A node at its connections: one request of each at a time, in their order, as brokers do it.

use std::collections::BTreeMap;

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
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, FetchResponse, FindCoordinatorResponse, InitProducerIdResponse,
    ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse, OffsetCommitRequest,
    OffsetCommitResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, ProduceRequest,
    ProduceResponse, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes, decode_request_header_from_buffer};

use super::parse::{Parsed, parse};
use super::sessions::Waiting;
use super::{Cluster, Event, Stored, remember};
use crate::marks::Mark;
use crate::net::{self, PORT, Stage, Told, World};
use crate::truth::Message;

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

/// A Produce request whose batches wait for followers.
#[derive(Clone, Debug)]
pub struct Acks {
    correlation: i32,
    version: i16,
    deadline_ns: i64,
    rows: Vec<Row>,
}

/// A batch of a Produce request.
#[derive(Clone, Debug)]
struct Row {
    topic: TopicName,
    partition: i32,
    slot: usize,
    /// None: it waits until followers have the partition up to this end of this epoch.
    code: Option<i16>,
    epoch: i32,
    end: i64,
    messages: Vec<Message>,
}

/// Wherefrom a batch's place among a producer's follows.
enum Place {
    Next,
    /// It is there already, and ends here.
    Known(i64),
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
    fn reply(
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

    fn produce(&mut self, at: usize, request: ProduceRequest, correlation: i32, version: i16) {
        let mut rows: BTreeMap<(usize, usize), Row> = BTreeMap::new();
        // A broker keeps what it is sent by partition: of two batches of one it knows the last.
        let mut last: BTreeMap<(usize, usize), (TopicName, i32, Bytes)> = BTreeMap::new();
        for (number, topic) in request.topic_data.into_iter().enumerate() {
            for row in topic.partition_data {
                let Some(slot) = self.slot(&topic.name, row.index) else {
                    self.truth
                        .offend(|| format!("there is no partition {} of {:?}", row.index, topic.name));
                    continue;
                };
                let records = row.records.unwrap_or_default();
                last.insert((number, slot), (topic.name.clone(), row.index, records));
            }
        }
        for ((number, slot), (topic, partition, records)) in last {
            let mut row = Row {
                topic,
                partition,
                slot,
                code: None,
                epoch: 0,
                end: 0,
                messages: Vec::new(),
            };
            self.take_batch(at, &mut row, &records, request.acks);
            rows.insert((number, slot), row);
        }
        if request.acks == 0 {
            return;
        }
        self.carry(at, rows.values());
        let now_ns = self.now_ns();
        let mut rows: Vec<Row> = rows.into_values().collect();
        // Brokers answer in an order of their own.
        if self.rng.bool() {
            rows.reverse();
        }
        let deadline_ns = now_ns + i64::from(request.timeout_ms) * 1_000_000;
        self.sockets[at].own.pending = Pending::Acks(Acks {
            correlation,
            version,
            deadline_ns,
            rows,
        });
        self.at(deadline_ns, net::Event::Serve(at));
        self.look_at_ack(at);
    }

    /// Of a producer's batches of a partition none goes to a node while one is under way to another: what comes later would overtake it.
    fn carry<'a>(&mut self, at: usize, rows: impl Iterator<Item = &'a Row>) {
        let lots: Vec<(usize, u32)> = rows
            .filter_map(|row| Some((row.slot, row.messages.first()?.producer)))
            .collect();
        let node = self.sockets[at].node;
        let is_waited_for = self.sockets[at].stage == Stage::Open;
        let others = self
            .sockets
            .iter()
            .filter(|other| is_waited_for && other.node != node && other.stage == Stage::Open);
        let torn = others
            .flat_map(|other| other.own.carried.iter().flatten())
            .find(|lot| lots.contains(lot))
            .copied();
        if let Some((slot, producer)) = torn {
            self.truth
                .offend(|| format!("producer {producer} has batches of slot {slot} under way to two nodes"));
        }
        self.sockets[at].own.carried.push_back(lots);
    }

    /// A batch has come to a node.
    fn take_batch(&mut self, at: usize, row: &mut Row, records: &[u8], acks: i16) {
        let node = self.sockets[at].node;
        let parsed = match parse(records) {
            Ok(parsed) => parsed,
            Err(what) => {
                self.truth.offend(|| what);
                row.code = Some(2);
                return;
            }
        };
        row.messages.clone_from(&parsed.messages);
        self.truth.met(&parsed.messages);
        let slot = row.slot;
        if self.cluster.partitions[slot].leader != Some(node) {
            let believes = self.cluster.nodes[node].view[slot].0 == node as i32;
            row.code = Some(6);
            if believes && acks != -1 {
                // It does not know yet that others have another leader: what it takes is never theirs.
                self.marks.set(Mark::StaleLeaderStored);
                let number = self.truth.stored(slot, parsed.messages);
                self.truth.batches[number].is_alive = false;
                self.truth.has_truncated = true;
                row.code = Some(0);
            } else {
                self.marks.set(Mark::NotLeader);
            }
            return;
        }
        if let Some((code, is_stored)) = self.cluster.partitions[slot].refusals.next() {
            row.code = Some(code);
            self.marks.set(if is_stored {
                Mark::RefusedStored
            } else {
                Mark::RefusedNotStored
            });
            if !is_stored {
                return;
            }
        }
        match self.check_producer(slot, &parsed) {
            Ok(Place::Next) => {
                self.append(row, parsed, records);
            }
            Ok(Place::Known(end)) => {
                self.marks.set(Mark::DuplicateRecognised);
                (row.epoch, row.end) = (self.cluster.partitions[slot].epoch, end);
            }
            Err(code) => row.code = row.code.or(Some(code)),
        }
        if acks == 1 {
            row.code = row.code.or(Some(0));
        }
    }

    fn append(&mut self, row: &mut Row, parsed: Parsed, records: &[u8]) {
        let slot = row.slot;
        let number = self.truth.stored(slot, parsed.messages);
        let partition = &mut self.cluster.partitions[slot];
        let mut stored = Stored {
            number,
            base: partition.end,
            end: partition.end + i64::from(parsed.records),
            epoch: partition.epoch,
            producer_id: parsed.producer_id,
            producer_epoch: parsed.producer_epoch,
            base_sequence: parsed.base_sequence,
            bytes: records.to_vec(),
            bodies: parsed.bodies,
        };
        stored.bytes[..8].copy_from_slice(&stored.base.to_be_bytes());
        stored.bytes[12..16].copy_from_slice(&stored.epoch.to_be_bytes());
        if partition.damages_next && !stored.bodies.is_empty() {
            partition.damages_next = false;
            let which = self.rng.usize(..stored.bodies.len());
            Message::damage(&mut stored.bytes[stored.bodies[which].clone()]);
            let checksum = crc32c::crc32c(&stored.bytes[21..]);
            stored.bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
            self.truth.batches[number].damaged.push(which);
            self.marks.set(Mark::Damaged);
        }
        let partition = &mut self.cluster.partitions[slot];
        (row.epoch, row.end) = (stored.epoch, stored.end);
        partition.end = stored.end;
        remember(&mut partition.producers, &stored);
        partition.log.push(stored);
        let delay_ns = self.follow_ns();
        self.after(
            delay_ns,
            net::Event::Own(Event::Replicated(slot, row.epoch, row.end)),
        );
    }

    fn check_producer(&mut self, slot: usize, parsed: &Parsed) -> Result<Place, i16> {
        if parsed.producer_id < 0 {
            return Ok(Place::Next);
        }
        let partition = &self.cluster.partitions[slot];
        let first = parsed.base_sequence;
        let last = first.wrapping_add(parsed.records - 1) & i32::MAX;
        let Some(known) = partition.producers.get(&parsed.producer_id) else {
            if first == 0 {
                return Ok(Place::Next);
            }
            if self.plan.settings.forgotten_code == 0 {
                return Ok(Place::Next);
            }
            self.marks.set(Mark::ProducerForgotten);
            return Err(self.plan.settings.forgotten_code);
        };
        if parsed.producer_epoch < known.epoch {
            return Err(47);
        }
        if parsed.producer_epoch > known.epoch {
            return if first == 0 { Ok(Place::Next) } else { Err(45) };
        }
        if let Some((.., end)) = known.last.iter().find(|(a, b, _)| (*a, *b) == (first, last)) {
            return Ok(Place::Known(*end));
        }
        let expected = known
            .last
            .back()
            .map_or(0, |(_, last, _)| last.wrapping_add(1) & i32::MAX);
        if first == expected {
            return Ok(Place::Next);
        }
        self.marks.set(Mark::SequenceGap);
        let is_old = known.last.front().is_some_and(|(oldest, ..)| last < *oldest);
        Err(if is_old { 46 } else { 45 })
    }

    /// Followers have come farther: requests that wait for that may have their answers.
    pub fn look_at_acks(&mut self) {
        for at in 0..self.sockets.len() {
            if matches!(self.sockets[at].own.pending, Pending::Acks(_)) {
                self.look_at_ack(at);
            }
        }
    }

    fn look_at_ack(&mut self, at: usize) {
        let now_ns = self.now_ns();
        let node = self.sockets[at].node;
        let Pending::Acks(mut acks) = std::mem::replace(&mut self.sockets[at].own.pending, Pending::Nothing)
        else {
            return;
        };
        for row in &mut acks.rows {
            let partition = &self.cluster.partitions[row.slot];
            if row.code.is_some() {
                continue;
            }
            if partition.leader != Some(node) || partition.epoch != row.epoch {
                row.code = Some(6);
            } else if partition.high_watermark >= row.end {
                row.code = Some(0);
            } else if now_ns >= acks.deadline_ns {
                self.marks.set(Mark::AckTimedOut);
                row.code = Some(7);
            }
        }
        if acks.rows.iter().any(|row| row.code.is_none()) {
            self.sockets[at].own.pending = Pending::Acks(acks);
            return;
        }
        let mut topics: BTreeMap<TopicName, Vec<PartitionProduceResponse>> = BTreeMap::new();
        let mut acked = Vec::new();
        for row in acks.rows {
            let code = row.code.unwrap_or(0);
            if code == 0 || code == 46 {
                acked.extend(row.messages);
            } else {
                self.marks.set(Mark::Retry);
            }
            let answer = PartitionProduceResponse::default()
                .with_index(row.partition)
                .with_error_code(code);
            topics.entry(row.topic).or_default().push(answer);
        }
        let topics = topics.into_iter().map(|(name, rows)| {
            TopicProduceResponse::default()
                .with_name(name)
                .with_partition_responses(rows)
        });
        let response = ProduceResponse::default().with_responses(topics.collect());
        self.reply(
            at,
            ApiKey::Produce,
            acks.version,
            acks.correlation,
            &response,
            Told::Acked(acked),
        );
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
                        let end = self.cluster.partitions[slot].high_watermark;
                        answer.with_offset(if row.timestamp == -1 { end } else { 0 })
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
