//! A server that keeps what it is sent in memory and misbehaves when its script says so: for faults that a real server shows rarely
//! and never on demand. It reads and writes with the generated codec of the `kafka-protocol` crate, so it is also a second opinion
//! on every request of the client.

#![allow(
    clippy::unwrap_used,
    reason = "a server of a test ends the test when it cannot go on"
)]
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod specs;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use gauge_load::clock::monotonic_ns;
use gauge_load::{Arrival, Emitter, EmitterSpec, PayloadPool, ScheduleSpec};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
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
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes, decode_request_header_from_buffer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What happens to a Produce request. One is taken per request; none left: `Store`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Stored and acknowledged.
    Store,
    /// Not stored, answered with this error.
    Refuse(i16),
    /// Stored, answered with this error.
    StoreAndSay(i16),
    /// Stored, and the connection is closed before the answer.
    StoreAndClose,
    /// Stored and acknowledged, after so many milliseconds.
    StoreLate(u64),
    /// Not stored, never answered.
    Ignore,
    /// Answered with bytes that are no answer.
    Garble,
}

#[derive(Default)]
pub struct State {
    /// Per partition, the batches in order, with their offsets filled in.
    pub partitions: Vec<Vec<Vec<u8>>>,
    pub next_offsets: Vec<i64>,
    pub fates: VecDeque<Fate>,
    /// Leaders of all partitions, by answers to Metadata: one is taken per answer as long as there is another; none: 1. -1 is nobody.
    pub leaders: VecDeque<i32>,
    /// A partition that has no leader, whoever leads the others.
    pub without_leader: Option<i32>,
    /// For how long the next answer to Metadata is held back.
    pub metadata_late_ms: u64,
    /// Fetches answered.
    pub fetches: usize,
    /// What a fetch of this partition is answered with, once.
    pub fetch_error: Option<(i32, i16)>,
    /// How long a fetch waits for messages; 0: next to nothing.
    pub long_poll_ms: u64,
    /// Fetch sessions are kept: (number, epoch of the next fetch, what it is asked for).
    pub keeps_sessions: bool,
    pub session: (i32, i32, BTreeMap<i32, FetchPartition>),
    /// Of the leader of all partitions.
    pub leader_epoch: i32,
    /// First offset that is kept, for ListOffsets.
    pub log_start: i64,
    /// Positions of commits.
    pub committed: Vec<(i32, i64)>,
    pub producer_ids: i64,
}

impl State {
    /// Appends a batch and gives it its offset.
    pub fn append(&mut self, partition: usize, mut batch: Vec<u8>) {
        let last_delta = i32::from_be_bytes(batch[23..27].try_into().unwrap());
        let base = self.next_offsets[partition];
        batch[..8].copy_from_slice(&base.to_be_bytes());
        batch[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        self.next_offsets[partition] = base + i64::from(last_delta) + 1;
        self.partitions[partition].push(batch);
    }
}

impl State {
    /// Another leader, which does not have the last batches of a partition.
    pub fn cut_off(&mut self, partition: usize, batches: usize) {
        self.leader_epoch += 1;
        let kept = self.partitions[partition].len() - batches;
        let first = self.partitions[partition][kept][..8].try_into().unwrap();
        self.next_offsets[partition] = i64::from_be_bytes(first);
        self.partitions[partition].truncate(kept);
    }

    /// The largest epoch of a partition that is not above `epoch`, and where it ends.
    fn epoch_end(&self, partition: usize, epoch: i32) -> (i32, i64) {
        let told = |batch: &Vec<u8>| {
            let epoch = i32::from_be_bytes(batch[12..16].try_into().unwrap());
            (epoch, i64::from_be_bytes(batch[..8].try_into().unwrap()))
        };
        let batches = self.partitions[partition].iter().map(told);
        let known = batches.clone().rfind(|(own, _)| *own <= epoch);
        let end = batches
            .clone()
            .find(|(own, _)| *own > epoch)
            .map(|(_, base)| base);
        known.map_or((-1, -1), |(own, _)| {
            (own, end.unwrap_or(self.next_offsets[partition]))
        })
    }
}

/// What clients must do before they are served.
#[derive(Clone, Default)]
pub struct Guard {
    /// Speak TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// Log in with PLAIN, by this message.
    pub login: Option<&'static [u8]>,
}

#[derive(Clone)]
pub struct Server {
    pub address: SocketAddr,
    guard: Guard,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub fn start(partitions: usize) -> Server {
        Server::start_guarded(partitions, Guard::default())
    }

    pub fn start_guarded(partitions: usize, guard: Guard) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            guard,
            state: Arc::new(Mutex::new(State {
                partitions: vec![Vec::new(); partitions],
                next_offsets: vec![0; partitions],
                ..State::default()
            })),
        };
        let accepting = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = accepting.clone();
                // The end of a connection is the end of its thread.
                thread::spawn(move || {
                    stream.set_nodelay(true)?;
                    match &server.guard.tls {
                        None => server.serve(stream),
                        Some(config) => {
                            let connection = ServerConnection::new(Arc::clone(config)).unwrap();
                            server.serve(StreamOwned::new(connection, stream))
                        }
                    }
                });
            }
        });
        server
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn script(&self, fates: &[Fate]) {
        self.state().fates.extend(fates);
    }

    fn serve(&self, mut stream: impl Read + Write) -> io::Result<()> {
        let mut is_known = self.guard.login.is_none();
        loop {
            let mut length = [0; 4];
            stream.read_exact(&mut length)?;
            let mut frame = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut frame)?;
            let mut body = Bytes::from(frame);
            let header = decode_request_header_from_buffer(&mut body).unwrap();
            let version = header.request_api_version;
            let mut out = BytesMut::new();
            let key = ApiKey::try_from(header.request_api_key).unwrap();
            ResponseHeader::default()
                .with_correlation_id(header.correlation_id)
                .encode(&mut out, key.response_header_version(version))
                .unwrap();
            let is_open = matches!(
                key,
                ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate
            );
            if !is_known && !is_open {
                return Ok(());
            }
            match key {
                ApiKey::SaslHandshake => SaslHandshakeResponse::default()
                    .with_mechanisms(vec![StrBytes::from_static_str("PLAIN")])
                    .encode(&mut out, version)
                    .unwrap(),
                ApiKey::SaslAuthenticate => {
                    let request: SaslAuthenticateRequest = read(&mut body, version);
                    is_known = self.guard.login == Some(&request.auth_bytes[..]);
                    let refusal = StrBytes::from_static_str("no such user or password");
                    SaslAuthenticateResponse::default()
                        .with_error_code(if is_known { 0 } else { 58 })
                        .with_error_message((!is_known).then_some(refusal))
                        .encode(&mut out, version)
                        .unwrap();
                }
                ApiKey::ApiVersions => api_versions().encode(&mut out, version).unwrap(),
                ApiKey::Metadata => self
                    .metadata(&read(&mut body, version))
                    .encode(&mut out, version)
                    .unwrap(),
                ApiKey::Produce => match self.produce(read(&mut body, version)) {
                    Outcome::Answer(answer) => answer.encode(&mut out, version).unwrap(),
                    Outcome::Nothing => continue,
                    Outcome::Close => return Ok(()),
                    Outcome::Garbage => out.extend_from_slice(&[0xFF; 40]),
                },
                ApiKey::Fetch => self
                    .fetch(&read(&mut body, version))
                    .encode(&mut out, version)
                    .unwrap(),
                ApiKey::ListOffsets => self
                    .list_offsets(&read(&mut body, version))
                    .encode(&mut out, version)
                    .unwrap(),
                ApiKey::OffsetForLeaderEpoch => self
                    .epoch_ends(&read(&mut body, version))
                    .encode(&mut out, version)
                    .unwrap(),
                ApiKey::InitProducerId => {
                    let mut state = self.state();
                    state.producer_ids += 1;
                    InitProducerIdResponse::default()
                        .with_producer_id(state.producer_ids.into())
                        .encode(&mut out, version)
                        .unwrap();
                }
                ApiKey::FindCoordinator => FindCoordinatorResponse::default()
                    .with_node_id(1.into())
                    .with_host(StrBytes::from_static_str("127.0.0.1"))
                    .with_port(i32::from(self.address.port()))
                    .encode(&mut out, version)
                    .unwrap(),
                ApiKey::OffsetCommit => self
                    .commit(&read(&mut body, version))
                    .encode(&mut out, version)
                    .unwrap(),
                other => panic!("the client is not expected to call {other:?}"),
            }
            stream.write_all(&(out.len() as u32).to_be_bytes())?;
            stream.write_all(&out)?;
            stream.flush()?;
        }
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let mut state = self.state();
        let partitions = state.partitions.len() as i32;
        let leader = match state.leaders.len() {
            0 | 1 => state.leaders.front().copied().unwrap_or(1),
            _ => state.leaders.pop_front().unwrap(),
        };
        let leader_epoch = state.leader_epoch;
        let without_leader = state.without_leader;
        let late_ms = std::mem::take(&mut state.metadata_late_ms);
        drop(state);
        thread::sleep(Duration::from_millis(late_ms));
        let topics = request
            .topics
            .clone()
            .unwrap_or_default()
            .into_iter()
            .map(|topic| {
                let partitions = (0..partitions).map(|partition| {
                    let leader = if without_leader == Some(partition) {
                        -1
                    } else {
                        leader
                    };
                    MetadataResponsePartition::default()
                        .with_partition_index(partition)
                        .with_leader_id(leader.into())
                        .with_leader_epoch(leader_epoch)
                        .with_error_code(if leader < 0 { 5 } else { 0 })
                        .with_replica_nodes(vec![1.into()])
                        .with_isr_nodes(vec![1.into()])
                });
                MetadataResponseTopic::default()
                    .with_name(topic.name)
                    .with_partitions(partitions.collect())
            });
        MetadataResponse::default()
            // Two brokers, of which both are this server.
            .with_brokers(
                [1, 2]
                    .map(|id| {
                        MetadataResponseBroker::default()
                            .with_node_id(id.into())
                            .with_host(StrBytes::from_static_str("127.0.0.1"))
                            .with_port(i32::from(self.address.port()))
                    })
                    .into(),
            )
            .with_controller_id(1.into())
            .with_topics(topics.collect())
    }

    fn produce(&self, request: ProduceRequest) -> Outcome {
        let mut state = self.state();
        // Readiness probes are not part of the script: nothing is sent before the tests' own messages.
        let fate = state.fates.pop_front().unwrap_or(Fate::Store);
        let is_stored = matches!(
            fate,
            Fate::Store | Fate::StoreLate(_) | Fate::StoreAndSay(_) | Fate::StoreAndClose
        );
        let code = match fate {
            Fate::Refuse(code) | Fate::StoreAndSay(code) => code,
            _ => 0,
        };
        let mut topics = Vec::new();
        for topic in request.topic_data {
            let mut rows = Vec::new();
            // A broker keeps what it is sent by partition: of two batches of one it knows the last.
            let of_partitions: BTreeMap<i32, _> = topic
                .partition_data
                .into_iter()
                .map(|row| (row.index, row))
                .collect();
            for row in of_partitions.into_values() {
                let batch = row.records.unwrap();
                assert_eq!(
                    batch.len() - 12,
                    u32::from_be_bytes(batch[8..12].try_into().unwrap()) as usize,
                    "one whole batch per partition"
                );
                if is_stored {
                    state.append(row.index as usize, batch.to_vec());
                }
                rows.push(
                    PartitionProduceResponse::default()
                        .with_index(row.index)
                        .with_error_code(code),
                );
            }
            // Brokers answer in an order of their own.
            rows.reverse();
            topics.push(
                TopicProduceResponse::default()
                    .with_name(topic.name)
                    .with_partition_responses(rows),
            );
        }
        drop(state);
        if let Fate::StoreLate(ms) = fate {
            thread::sleep(Duration::from_millis(ms));
        }
        match fate {
            Fate::Ignore => Outcome::Nothing,
            Fate::StoreAndClose => Outcome::Close,
            Fate::Garble => Outcome::Garbage,
            _ if request.acks == 0 => Outcome::Nothing,
            _ => Outcome::Answer(ProduceResponse::default().with_responses(topics)),
        }
    }

    fn fetch(&self, request: &FetchRequest) -> FetchResponse {
        let mut state = self.state();
        state.fetches += 1;
        let topics_asked = if state.keeps_sessions {
            let (number, epoch) = (state.session.0, state.session.1);
            if request.session_epoch == 0 {
                state.session = (number + 1, 1, BTreeMap::new());
            } else if (request.session_id, request.session_epoch) == (number, epoch) {
                state.session.1 += 1;
            } else {
                return FetchResponse::default().with_error_code(71);
            }
            let named = request.topics.iter().flat_map(|topic| topic.partitions.clone());
            state.session.2.extend(named.map(|row| (row.partition, row)));
            let rows = state.session.2.values().cloned().collect();
            vec![
                FetchTopic::default()
                    .with_topic(TopicName(StrBytes::from_static_str("t")))
                    .with_partitions(rows),
            ]
        } else {
            request.topics.clone()
        };
        let (session, wait_ms) = (state.session.0, state.long_poll_ms.max(5));
        let mut has_data = false;
        let mut topics = Vec::new();
        for topic in &topics_asked {
            let mut rows = Vec::new();
            for row in &topic.partitions {
                let at = row.partition as usize;
                let mut data = PartitionData::default()
                    .with_partition_index(row.partition)
                    .with_high_watermark(state.next_offsets[at])
                    .with_aborted_transactions(None);
                if let Some((_, code)) = state
                    .fetch_error
                    .take_if(|(partition, _)| *partition == row.partition)
                {
                    data.error_code = code;
                    has_data = true;
                } else if (0..state.leader_epoch).contains(&row.current_leader_epoch) {
                    data.error_code = 74;
                    has_data = true;
                } else if row.fetch_offset > state.next_offsets[at] {
                    data.error_code = 1;
                    has_data = true;
                } else {
                    let mut records = Vec::new();
                    for batch in &state.partitions[at] {
                        let base = i64::from_be_bytes(batch[..8].try_into().unwrap());
                        let last = base + i64::from(i32::from_be_bytes(batch[23..27].try_into().unwrap()));
                        if last >= row.fetch_offset {
                            records.extend_from_slice(batch);
                        }
                    }
                    has_data |= !records.is_empty();
                    // The limit may cut the last batch off, as brokers do.
                    records.truncate(row.partition_max_bytes as usize);
                    data.records = Some(records.into());
                }
                rows.push(data);
            }
            topics.push(
                FetchableTopicResponse::default()
                    .with_topic(topic.topic.clone())
                    .with_partitions(rows),
            );
        }
        drop(state);
        if !has_data {
            thread::sleep(Duration::from_millis(wait_ms));
        }
        FetchResponse::default()
            .with_session_id(session)
            .with_responses(topics)
    }

    fn list_offsets(&self, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let state = self.state();
        let topics = request.topics.iter().map(|topic| {
            let rows = topic.partitions.iter().map(|row| {
                let offset = match row.timestamp {
                    -1 => state.next_offsets[row.partition_index as usize],
                    _ => state.log_start,
                };
                ListOffsetsPartitionResponse::default()
                    .with_partition_index(row.partition_index)
                    .with_offset(offset)
            });
            ListOffsetsTopicResponse::default()
                .with_name(topic.name.clone())
                .with_partitions(rows.collect())
        });
        ListOffsetsResponse::default().with_topics(topics.collect())
    }

    fn epoch_ends(&self, request: &OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse {
        let state = self.state();
        let topics = request.topics.iter().map(|topic| {
            let rows = topic.partitions.iter().map(|row| {
                let (epoch, end) = state.epoch_end(row.partition as usize, row.leader_epoch);
                EpochEndOffset::default()
                    .with_partition(row.partition)
                    .with_leader_epoch(epoch)
                    .with_end_offset(end)
                    .with_error_code(if row.current_leader_epoch < state.leader_epoch {
                        74
                    } else {
                        0
                    })
            });
            OffsetForLeaderTopicResult::default()
                .with_topic(topic.topic.clone())
                .with_partitions(rows.collect())
        });
        OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
    }

    fn commit(&self, request: &OffsetCommitRequest) -> OffsetCommitResponse {
        let mut state = self.state();
        let mut topics = Vec::new();
        for topic in &request.topics {
            let mut rows = Vec::new();
            for row in &topic.partitions {
                state.committed.push((row.partition_index, row.committed_offset));
                rows.push(OffsetCommitResponsePartition::default().with_partition_index(row.partition_index));
            }
            topics.push(
                OffsetCommitResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_partitions(rows),
            );
        }
        OffsetCommitResponse::default().with_topics(topics)
    }
}

enum Outcome {
    Answer(ProduceResponse),
    Nothing,
    Close,
    Garbage,
}

fn read<T: Decodable>(body: &mut Bytes, version: i16) -> T {
    let request = T::decode(body, version).unwrap();
    assert!(!body.has_remaining(), "bytes are left over in a request");
    request
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

/// A producer's schedule of so many messages, evenly paced, which has begun.
pub fn emitter(messages: u64, payload_bytes: usize) -> Emitter {
    let rate_msgs_s = 20_000.0;
    let mut emitter = Emitter::new(&EmitterSpec {
        run: 1,
        producer: 0,
        schedule: ScheduleSpec {
            arrival: Arrival::Uniform,
            rate_msgs_s,
            ramp: None,
            stagger: 0.0,
            stop_ns: Some((messages as f64 / rate_msgs_s * 1e9) as i64),
            seed: 1,
        },
        pool: Arc::new(PayloadPool::generate(payload_bytes, 1.0, 4, 1)),
        key_count: 0,
        changes: Vec::new(),
        skew: None,
    });
    emitter.start(monotonic_ns());
    emitter
}
