//! A log under test and a small blocking client whose messages are encoded and decoded by `kafka-protocol`, an implementation independent of the log's own.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use gauge_log::access::Access;
use gauge_log::settings::Settings;
use gauge_log::start::{Running, start};
use gauge_log::storage::chunk::CHUNK_BYTES;
use gauge_log::storage::segment::Durability;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{
    Decodable, HeaderVersion, Request, StrBytes, encode_request_header_into_buffer,
};
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};

/// A directory that is removed at the end of a test.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("gauge-log-test-{}-{name}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn settings(directory: &Path, durability: Durability) -> Settings {
    Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        access: Access::default(),
        advertise: None,
        data: directory.join("data"),
        durability,
        fault: None,
        memory_bytes: 96 << 20,
        segment_bytes: 16 << 20,
        chunk_bytes: CHUNK_BYTES,
        retention_bytes: None,
        retention_age: None,
        limit_mb_s: None,
        commit_delay: Duration::ZERO,
        threads: 2,
        auto_create_partitions: 0,
        metrics: None,
        events: Some(directory.join("events")),
    }
}

/// Starts a log in this process.
pub fn serve(settings: Settings) -> Running {
    start(settings).unwrap()
}

/// Stops it, and fails if it had to stop by itself.
pub fn stop(running: Running) {
    running.shared.stop();
    running.wait().unwrap();
}

pub fn name(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub fn topic_name(text: &str) -> TopicName {
    TopicName(name(text))
}

pub struct Client<S = TcpStream> {
    pub stream: S,
    correlation_id: i32,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self::over(stream)
    }
}

impl<S: Read + Write> Client<S> {
    pub fn over(stream: S) -> Self {
        Self {
            stream,
            correlation_id: 0,
        }
    }

    pub fn frame<R: Request>(&mut self, request: &R, version: i16) -> Vec<u8> {
        self.correlation_id += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(StrBytes::from_static_str("test")));
        let mut body = BytesMut::new();
        encode_request_header_into_buffer(&mut body, &header).unwrap();
        request.encode(&mut body, version).unwrap();
        let mut frame = (body.len() as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        frame
    }

    pub fn send<R: Request>(&mut self, request: &R, version: i16) -> std::io::Result<()> {
        let frame = self.frame(request, version);
        self.stream.write_all(&frame)
    }

    pub fn read_frame(&mut self) -> std::io::Result<Bytes> {
        let mut length = [0u8; 4];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0u8; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut frame)?;
        Ok(Bytes::from(frame))
    }

    pub fn receive<R: Request>(&mut self, version: i16) -> std::io::Result<R::Response> {
        let mut frame = self.read_frame()?;
        ResponseHeader::decode(&mut frame, R::Response::header_version(version)).unwrap();
        let response = R::Response::decode(&mut frame, version).unwrap();
        assert_eq!(
            frame.remaining(),
            0,
            "bytes behind the response of API {} version {version}",
            R::KEY
        );
        Ok(response)
    }

    pub fn call<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        self.send(request, version).unwrap();
        self.receive::<R>(version).unwrap()
    }

    pub fn create_topic(&mut self, topic: &str, partitions: i32) {
        let topic = CreatableTopic::default()
            .with_name(topic_name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]);
        let response = self.call(&request, 7);
        assert_eq!(
            response.topics[0].error_code, 0,
            "{:?}",
            response.topics[0].error_message
        );
    }

    pub fn produce(&mut self, topic: &str, partition: i32, batch: Bytes) -> (i16, i64) {
        let response = self.call(&produce_request(topic, partition, batch), 9);
        let partition = &response.responses[0].partition_responses[0];
        (partition.error_code, partition.base_offset)
    }

    /// The values of all records from `offset` on, with their offsets, up to the high watermark; panics when offsets go backwards.
    pub fn read_all(&mut self, topic: &str, partition: i32, mut offset: i64) -> Vec<(i64, Bytes)> {
        let mut found = Vec::new();
        loop {
            let response = self.call(&fetch_request(topic, partition, offset, 0), 11);
            let data = &response.responses[0].partitions[0];
            assert_eq!(data.error_code, 0, "fetch of {topic}-{partition} at {offset}");
            let records = data.records.clone().unwrap_or_default();
            if records.is_empty() {
                assert!(
                    offset >= data.high_watermark,
                    "nothing at {offset} below the high watermark"
                );
                return found;
            }
            for (at, value) in decode(records) {
                if at >= offset {
                    offset = at + 1;
                    found.push((at, value));
                }
            }
        }
    }
}

pub fn produce_request(topic: &str, partition: i32, batch: Bytes) -> ProduceRequest {
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(batch));
    let topic = TopicProduceData::default()
        .with_name(topic_name(topic))
        .with_partition_data(vec![data]);
    ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic])
}

pub fn fetch_request(topic: &str, partition: i32, offset: i64, wait_ms: i32) -> FetchRequest {
    let wanted = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(4 << 20);
    let topic = FetchTopic::default()
        .with_topic(topic_name(topic))
        .with_partitions(vec![wanted]);
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(8 << 20)
        .with_topics(vec![topic])
}

/// The time of all records, ms.
pub const NOW_MS: i64 = 1_700_000_000_000;

/// A batch with one record per value, from an idempotent producer if one is given as (id, first sequence number).
pub fn batch(values: &[Bytes], producer: Option<(i64, i32)>) -> Bytes {
    batch_at(values, producer, NOW_MS)
}

/// The same with another time, ms.
pub fn batch_at(values: &[Bytes], producer: Option<(i64, i32)>, timestamp_ms: i64) -> Bytes {
    let records: Vec<Record> = values
        .iter()
        .enumerate()
        .map(|(index, value)| Record {
            transactional: false,
            control: false,
            partition_leader_epoch: 0,
            producer_id: producer.map_or(-1, |(id, _)| id),
            producer_epoch: if producer.is_some() { 0 } else { -1 },
            timestamp_type: TimestampType::Creation,
            offset: index as i64,
            // The encoder puts records into one batch only while their sequence numbers follow.
            sequence: producer.map_or(-1, |(_, first)| first) + index as i32,
            timestamp: timestamp_ms,
            key: None,
            value: Some(value.clone()),
            headers: Default::default(),
            delete_horizon: false,
        })
        .collect();
    let mut out = BytesMut::new();
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    RecordBatchEncoder::encode(&mut out, &records, &options).unwrap();
    out.freeze()
}

/// Offsets and values of the records in fetched bytes.
pub fn decode(mut records: Bytes) -> Vec<(i64, Bytes)> {
    let mut found = Vec::new();
    while records.has_remaining() {
        let set = RecordBatchDecoder::decode(&mut records).unwrap();
        found.extend(
            set.records
                .into_iter()
                .map(|record| (record.offset, record.value.unwrap_or_default())),
        );
    }
    found
}

/// A small generator of pseudo-random numbers (xorshift64*), so that a test can be repeated from its seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit.max(1)
    }
}
