//! The codecs against bytes of Kafka's own client, against a generated codec, and against garbage.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as generated;
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::prelude::*;

use super::batch::{BatchPool, Numbering, Opening};
use super::buffers::Buffers;
use super::compress::{Compressor, Decompressor, codec_number};
use super::errors::Code;
use super::fetch::FetchReader;
use super::record_batch::{self, Found, HEADER_BYTES, Records};
use super::wire::{Malformed, Put};
use super::{messages, wire};
use crate::{Compression, NewTopic};

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

/// The same three records in each codec, as Kafka 4.3.1's `MemoryRecords.builder` writes them (magic 2, CREATE_TIME, base offset 7,
/// producer id 4711, epoch 3, base sequence 11; timestamps 1700000000000, +5, +300; keys null, "key", "k"; values "first value, "
/// three times without the last comma, "second value", null).
const JAVA_BATCHES: [&str; 5] = [
    "00000000000000070000007cffffffff02f36fca4c0000000000020000018bcfe568000000018bcfe5692c000000000000126700030000000b0000000356000000014a66697273742076616c75652c2066697273742076616c75652c2066697273742076616c7565002a000a02066b6579187365636f6e642076616c7565001000d80404026b0100",
    "000000000000000700000075ffffffff024f9ced7e0001000000020000018bcfe568000000018bcfe5692c000000000000126700030000000b000000031f8b08000000000000ff0b63606060f44acb2c2a2e51284bcc294dd551c0c561d062e06262cb4ead94284e4dcecf4b818a0a30dc606161ca6664000008483bf94b000000",
    "00000000000000070000007bffffffff02cb7aee5f0002000000020000018bcfe568000000018bcfe5692c000000000000126700030000000b0000000382534e41505059000000000100000001000000364b4856000000014a66697273742076616c75652c205e0d003c002a000a02066b6579187365636f6e64093024001000d80404026b0100",
    "000000000000000700000077ffffffff023e5762e50003000000020000018bcfe568000000018bcfe5692c000000000000126700030000000b0000000304224d1860408237000000ff0456000000014a66697273742076616c75652c200d0005f201002a000a02066b6579187365636f6e643000a0001000d80404026b010000000000",
    "000000000000000700000074ffffffff0224473d6a0004000000020000018bcfe568000000018bcfe5692c000000000000126700030000000b0000000328b52ffd0058bc0100d40256000000014a66697273742076616c75652c20002a000a02066b6579187365636f6e64001000d80404026b01000200a61a56006718010000",
];

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// The values in a batch, by offset.
fn values(batch: &[u8], decompressor: &mut Decompressor) -> Result<Vec<(i64, Vec<u8>)>, Malformed> {
    let Found::Batch(header, len) = record_batch::peek(batch)? else {
        return Err(Malformed("no batch"));
    };
    let records = &batch[HEADER_BYTES..len];
    let records = match header.compression {
        0 => records,
        codec => decompressor.decompress(codec, records)?,
    };
    let mut records = Records::new(records, header.records);
    let mut values = Vec::new();
    while let Some((delta, value)) = records.next()? {
        values.push((header.base_offset + delta, value.to_vec()));
    }
    Ok(values)
}

#[test]
fn batches_of_the_java_client_are_read() {
    let expected = vec![
        (7, b"first value, first value, first value".to_vec()),
        (8, b"second value".to_vec()),
        (9, Vec::new()),
    ];
    let mut decompressor = Decompressor::new();
    for (hex, compression) in JAVA_BATCHES.iter().zip(CODECS) {
        let batch = bytes_of(hex);
        assert!(record_batch::is_whole(&batch), "{compression:?}");
        assert_eq!(
            values(&batch, &mut decompressor).unwrap(),
            expected,
            "{compression:?}"
        );
        let Found::Batch(header, len) = record_batch::peek(&batch).unwrap() else {
            panic!("a whole batch was not found");
        };
        assert_eq!((header.next_offset, len), (10, batch.len()));
    }
}

#[test]
fn a_batch_is_written_byte_for_byte_as_the_java_client_does() {
    let mut buffers = Buffers::new(1 << 20);
    let opening = Opening {
        producer: 0,
        partition: 0,
        serial: 0,
        timestamp_ms: 1_700_000_000_000,
        now_ns: 0,
        due_ns: 0,
        bytes: 0,
        is_probe: false,
    };
    let mut batch = BatchPool::default().open(&mut buffers, &opening);
    let first = (0, None, b"first value, first value, first value".as_slice());
    let second = (5, Some(b"key".as_slice()), b"second value".as_slice());
    for (delta, key, value) in [first, second] {
        let at = 1_700_000_000_000 + delta;
        let size = batch.size_of_next(at, key, value.len());
        batch
            .append(&mut buffers, size, at, key, value.len())
            .copy_from_slice(value);
    }
    batch.seal(Numbering {
        producer_id: 4711,
        producer_epoch: 3,
        base_sequence: 11,
    });
    assert!(record_batch::is_whole(batch.bytes()));
    // The third record of the Java batch has a null value, which this client does not write: the first two are compared.
    let java = bytes_of(JAVA_BATCHES[0]);
    let records = batch.bytes().len() - HEADER_BYTES;
    assert_eq!(
        batch.bytes()[HEADER_BYTES..],
        java[HEADER_BYTES..HEADER_BYTES + records]
    );
    // Magic, then producer id, epoch and sequence.
    assert_eq!(
        (batch.bytes()[16], &batch.bytes()[43..57]),
        (java[16], &java[43..57])
    );
}

#[test]
fn keys_go_where_the_java_client_sends_them() {
    // Utils.murmur2 and Utils.toPositive of Kafka 4.3.1.
    let expected = [
        ("", 275_646_681, 9),
        ("0", 971_027_396, 4),
        ("1", 2_301_521_807, 15),
        ("42", 417_700_972, 12),
        ("999", 4_263_032_423, 7),
        ("1000", 15_042_646, 6),
        ("123456789", 2_472_730_214, 6),
        ("4294967295", 1_978_963_700, 4),
    ];
    for (key, hash, partition) in expected {
        assert_eq!(record_batch::murmur2(key.as_bytes()), hash, "{key}");
        assert_eq!(record_batch::partition_of(key.as_bytes(), 16), partition, "{key}");
    }
}

proptest! {
    #[test]
    fn what_is_built_is_parsed(
        rows in prop::collection::vec((0i64..100_000, prop::option::of(prop::collection::vec(any::<u8>(), 0..9)), prop::collection::vec(any::<u8>(), 0..400)), 1..60),
        codec in 0usize..5,
    ) {
        let mut buffers = Buffers::new(1 << 20);
        let opening = Opening { producer: 0, partition: 3, serial: 0, timestamp_ms: 1_000, now_ns: 0, due_ns: 0, bytes: 100, is_probe: false };
        let mut batch = BatchPool::default().open(&mut buffers, &opening);
        for (delta, key, value) in &rows {
            let size = batch.size_of_next(1_000 + delta, key.as_deref(), value.len());
            let before = batch.len();
            batch.append(&mut buffers, size, 1_000 + delta, key.as_deref(), value.len()).copy_from_slice(value);
            prop_assert_eq!(batch.len() - before, size.bytes);
        }
        let mut compressed = Vec::new();
        let mut compressor = Compressor::new(CODECS[codec]).unwrap();
        if !compressor.is_none() {
            compressor.compress(batch.records_bytes(), &mut compressed).unwrap();
            batch.set_compressed(&mut buffers, codec_number(CODECS[codec]), &compressed);
        }
        batch.seal(Numbering::NONE);
        prop_assert!(record_batch::is_whole(batch.bytes()));
        let read = values(batch.bytes(), &mut Decompressor::new()).unwrap();
        let expected: Vec<(i64, Vec<u8>)> = rows.into_iter().enumerate().map(|(at, (_, _, value))| (at as i64, value)).collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn a_record_written_by_its_shape_is_the_same_record(delta in prop_oneof![0i64..200, any::<i32>().prop_map(i64::from)], offset in prop_oneof![0u32..100, 0u32..0x11_0000], value_bytes in prop_oneof![0usize..300, 8000usize..9000]) {
        let shape = record_batch::Shape::new(delta, offset, value_bytes);
        prop_assert_eq!(shape.fits(delta, offset, value_bytes), offset < 0x10_0000);
        if offset >= 0x10_0000 {
            return Ok(());
        }
        let size = record_batch::record_size(delta, offset, None, value_bytes);
        prop_assert_eq!(shape.bytes, size.bytes);
        let mut expected = vec![0xEE; size.bytes];
        record_batch::write_record(&mut expected, size, delta, offset, None, value_bytes).fill(0x55);
        let mut written = vec![0xEE; size.bytes + record_batch::SHAPE_SLACK_BYTES];
        shape.write(&mut written, offset).fill(0x55);
        prop_assert_eq!(&written[..size.bytes], &expected[..]);
    }

    #[test]
    fn a_batch_has_room_for_as_many_as_fit(records in prop_oneof![0u32..200, 8_000u32..8_400], more_bytes in 0usize..200_000, delta in 0i64..100, value_bytes in prop_oneof![0usize..300, 8000usize..9000]) {
        let (len, bytes) = (record_batch::HEADER_BYTES + 1_000, record_batch::HEADER_BYTES + 1_000 + more_bytes);
        let (mut at, mut fit) = (len, 0);
        loop {
            at += record_batch::record_size(delta, records + fit, None, value_bytes).bytes;
            if at > bytes {
                break;
            }
            fit += 1;
        }
        prop_assert_eq!(record_batch::room(len, records, bytes, delta, None, value_bytes), fit as usize);
        prop_assert_eq!(record_batch::room(bytes + 1, records, bytes, delta, None, value_bytes), 0);
    }

    #[test]
    fn contexts_are_used_again_without_a_trace(parts in prop::collection::vec(prop::collection::vec(0u8..4, 0..100_000), 2..4), codec in 1usize..5) {
        let mut compressor = Compressor::new(CODECS[codec]).unwrap();
        let mut decompressor = Decompressor::new();
        for part in parts {
            let mut compressed = Vec::new();
            compressor.compress(&part, &mut compressed).unwrap();
            prop_assert_eq!(decompressor.decompress(codec_number(CODECS[codec]), &compressed).unwrap(), &part[..]);
        }
    }

    #[test]
    fn garbage_is_refused_and_nothing_panics(garbage in prop::collection::vec(any::<u8>(), 0..300), codec in 0i16..9) {
        let _ = record_batch::peek(&garbage);
        let mut records = Records::new(&garbage, u32::MAX);
        while let Ok(Some(_)) = records.next() {}
        let _ = Decompressor::new().decompress(codec, &garbage);
        let _ = messages::read_api_versions(&garbage, 3);
        let _ = messages::read_api_versions(&garbage, 0);
        let _ = messages::read_metadata(&garbage);
        let _ = messages::read_init_producer_id(&garbage);
        let _ = messages::read_list_offsets(&garbage);
        let _ = messages::read_find_coordinator(&garbage);
        let _ = messages::read_offset_commit(&garbage);
        let _ = messages::read_create_topics(&garbage);
        let _ = messages::read_delete_topics(&garbage);
        let _ = messages::read_describe_configs(&garbage);
        if let Ok(mut reader) = FetchReader::begin(&garbage) {
            while let Ok(Some(_)) = reader.next() {}
        }
    }

    #[test]
    fn a_damaged_batch_is_noticed_or_harmless(codec in 0usize..5, at: prop::sample::Index, bit in 0u32..8, cut: prop::sample::Index) {
        let mut batch = bytes_of(JAVA_BATCHES[codec]);
        let mut decompressor = Decompressor::new();
        let at = at.index(batch.len());
        batch[at] ^= 1 << bit;
        // Base offset, length, epoch and magic lie outside of the CRC.
        prop_assert!(at < 17 || !record_batch::is_whole(&batch));
        let _ = values(&batch, &mut decompressor);
        batch.truncate(cut.index(batch.len()));
        let _ = values(&batch, &mut decompressor);
    }
}

/// The body of an answer as the generated codec writes it.
fn encoded(answer: &impl Encodable, version: i16) -> Vec<u8> {
    let mut out = BytesMut::new();
    answer.encode(&mut out, version).unwrap();
    out.to_vec()
}

/// A request as the generated codec reads it, with nothing left over.
fn decoded<T: Decodable>(body: &[u8], version: i16) -> T {
    let mut bytes = Bytes::copy_from_slice(body);
    let request = T::decode(&mut bytes, version).unwrap();
    assert!(bytes.is_empty(), "bytes are left over");
    request
}

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

#[test]
fn a_request_header_is_what_the_generated_codec_expects() {
    let mut out = Vec::new();
    wire::begin_request(&mut out, wire::METADATA, 77, "me");
    wire::finish_request(&mut out, 5);
    let header: generated::RequestHeader = decoded(&out[4..], 1);
    assert_eq!(
        (
            header.request_api_key,
            header.request_api_version,
            header.correlation_id
        ),
        (3, 7, 77)
    );
    assert_eq!(header.client_id, Some(text("me")));
    assert_eq!(
        i32::from_be_bytes([out[0], out[1], out[2], out[3]]) as usize,
        out.len() - 4 + 5
    );
}

#[test]
fn requests_are_what_the_generated_codec_expects() {
    let mut out = Vec::new();
    messages::put_metadata(&mut out, ["a", "b"].into_iter());
    let request: generated::MetadataRequest = decoded(&out, wire::METADATA.version);
    assert_eq!(request.topics.unwrap().len(), 2);
    assert!(!request.allow_auto_topic_creation);

    out.clear();
    messages::put_api_versions(&mut out);
    // The first byte closes the flexible request header.
    let request: generated::ApiVersionsRequest = decoded(&out[1..], wire::API_VERSIONS.version);
    assert_eq!(request.client_software_name, text("streamgauge"));

    out.clear();
    messages::put_init_producer_id(&mut out);
    let request: generated::InitProducerIdRequest = decoded(&out, wire::INIT_PRODUCER_ID.version);
    assert_eq!(request.transactional_id, None);

    out.clear();
    messages::put_find_coordinator(&mut out, "group");
    let request: generated::FindCoordinatorRequest = decoded(&out, wire::FIND_COORDINATOR.version);
    assert_eq!((request.key, request.key_type), (text("group"), 0));

    out.clear();
    let topic = NewTopic {
        name: "t".into(),
        partitions: 16,
        replication_factor: 3,
        configs: vec![("flush.messages".into(), "1".into())],
    };
    messages::put_create_topics(&mut out, &[topic], 1234);
    let request: generated::CreateTopicsRequest = decoded(&out, wire::CREATE_TOPICS.version);
    assert_eq!((request.timeout_ms, request.validate_only), (1234, false));
    assert_eq!(
        (
            request.topics[0].num_partitions,
            request.topics[0].replication_factor
        ),
        (16, 3)
    );
    assert_eq!(request.topics[0].configs[0].value, Some(text("1")));

    out.clear();
    messages::put_delete_topics(&mut out, &["t".into()], 99);
    let request: generated::DeleteTopicsRequest = decoded(&out, wire::DELETE_TOPICS.version);
    assert_eq!(request.topic_names[0].0, text("t"));

    out.clear();
    messages::put_describe_configs(&mut out, messages::RESOURCE_BROKER, &["1".into()]);
    let request: generated::DescribeConfigsRequest = decoded(&out, wire::DESCRIBE_CONFIGS.version);
    assert_eq!(
        (
            request.resources[0].resource_type,
            &request.resources[0].configuration_keys
        ),
        (4, &None)
    );
}

#[test]
fn partitions_are_grouped_by_topic() {
    let rows = [(0usize, 1i32, 10i64), (0, 2, 20), (1, 0, 30)];
    let mut out = Vec::new();
    messages::put_offset_commit_head(&mut out, "group");
    messages::put_by_topic(
        &mut out,
        &rows,
        |row| (row.0, row.1),
        |topic| format!("t{topic}"),
        |out, row| {
            out.put_i64(row.2);
            out.put_string("");
        },
    );
    let request: generated::OffsetCommitRequest = decoded(&out, wire::OFFSET_COMMIT.version);
    assert_eq!(
        (request.generation_id_or_member_epoch, request.topics.len()),
        (-1, 2)
    );
    assert_eq!(request.topics[0].partitions[1].committed_offset, 20);

    out.clear();
    out.put_i32(-1);
    out.put_i8(0);
    messages::put_by_topic(
        &mut out,
        &rows,
        |row| (row.0, row.1),
        |topic| format!("t{topic}"),
        |out, row| out.put_i64(row.2),
    );
    let request: generated::ListOffsetsRequest = decoded(&out, wire::LIST_OFFSETS.version);
    assert_eq!(request.topics[1].partitions[0].timestamp, 30);
}

#[test]
fn answers_of_the_generated_codec_are_read() {
    use generated::metadata_response::{
        MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    };
    let partition = MetadataResponsePartition::default()
        .with_partition_index(1)
        .with_leader_id(2.into())
        .with_leader_epoch(7)
        .with_replica_nodes(vec![2.into(), 3.into()])
        .with_isr_nodes(vec![2.into()]);
    let topic = MetadataResponseTopic::default()
        .with_name(Some(text("t").into()))
        .with_partitions(vec![partition]);
    let broker = MetadataResponseBroker::default()
        .with_node_id(2.into())
        .with_host(text("localhost"))
        .with_port(9092);
    let answer = generated::MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(text("c")))
        .with_controller_id(2.into())
        .with_topics(vec![topic]);
    let read = messages::read_metadata(&encoded(&answer, wire::METADATA.version)).unwrap();
    assert_eq!(
        (read.brokers[0].id, read.brokers[0].port, read.controller),
        (2, 9092, 2)
    );
    let row = &read.topics[0].partitions[0];
    assert_eq!(
        (row.partition, row.leader, row.leader_epoch, row.replicas),
        (1, 2, 7, 2)
    );

    use generated::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
    let api = ApiVersion::default()
        .with_api_key(0)
        .with_min_version(3)
        .with_max_version(13);
    let feature = FinalizedFeatureKey::default()
        .with_name(text("metadata.version"))
        .with_max_version_level(29)
        .with_min_version_level(29);
    let supported = SupportedFeatureKey::default()
        .with_name(text("metadata.version"))
        .with_max_version(30)
        .with_min_version(7);
    let answer = generated::ApiVersionsResponse::default()
        .with_api_keys(vec![api])
        .with_finalized_features(vec![feature])
        .with_supported_features(vec![supported]);
    let read = messages::read_api_versions(&encoded(&answer, 3), 3).unwrap();
    assert_eq!(read.ranges, [(0, 3, 13)]);
    assert_eq!(read.finalized, [("metadata.version".to_owned(), 29)]);
    assert_eq!(read.supported, [("metadata.version".to_owned(), 30)]);

    use generated::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
    let partition = ListOffsetsPartitionResponse::default()
        .with_partition_index(4)
        .with_offset(99);
    let topic = ListOffsetsTopicResponse::default()
        .with_name(text("t").into())
        .with_partitions(vec![partition]);
    let answer = generated::ListOffsetsResponse::default().with_topics(vec![topic]);
    let body = encoded(&answer, wire::LIST_OFFSETS.version);
    let rows = messages::read_list_offsets(&body).unwrap();
    assert_eq!((rows[0].topic, rows[0].partition, rows[0].told), ("t", 4, 99));

    let answer = generated::FindCoordinatorResponse::default()
        .with_node_id(3.into())
        .with_host(text("h"))
        .with_port(1);
    let (code, broker) =
        messages::read_find_coordinator(&encoded(&answer, wire::FIND_COORDINATOR.version)).unwrap();
    assert_eq!((code, broker.id), (0, 3));

    use generated::create_topics_response::CreatableTopicResult;
    let topic = CreatableTopicResult::default()
        .with_name(text("t").into())
        .with_error_code(36)
        .with_error_message(Some(text("it is there")));
    let answer = generated::CreateTopicsResponse::default().with_topics(vec![topic]);
    let rows = messages::read_create_topics(&encoded(&answer, wire::CREATE_TOPICS.version)).unwrap();
    assert_eq!(rows, [("t".to_owned(), 36, "it is there".to_owned())]);
    assert_eq!(Code(36).name(), "TOPIC_ALREADY_EXISTS");
}

#[test]
fn ends_of_epochs_of_the_generated_codec_are_read() {
    use generated::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
    let end = EpochEndOffset::default()
        .with_partition(4)
        .with_leader_epoch(6)
        .with_end_offset(99)
        .with_error_code(74);
    let topic = OffsetForLeaderTopicResult::default()
        .with_topic(text("t").into())
        .with_partitions(vec![end]);
    let answer = generated::OffsetForLeaderEpochResponse::default().with_topics(vec![topic]);
    let body = encoded(&answer, wire::OFFSET_FOR_LEADER_EPOCH.version);
    let rows = messages::read_epoch_ends(&body).unwrap();
    let told = |row: &messages::Row<'_, messages::EpochEnd>| {
        (row.partition, row.code, row.told.epoch, row.told.end_offset)
    };
    assert_eq!(rows.iter().map(told).collect::<Vec<_>>(), [(4, 74, 6, 99)]);
}

#[test]
fn a_fetch_answer_of_the_generated_codec_is_walked_through() {
    use generated::fetch_response::{FetchableTopicResponse, PartitionData};
    let batch = bytes_of(JAVA_BATCHES[0]);
    let row = |partition: i32, records: &[u8]| {
        PartitionData::default()
            .with_partition_index(partition)
            .with_high_watermark(10)
            .with_aborted_transactions(None)
            .with_records(Some(Bytes::copy_from_slice(records)))
    };
    let topic = FetchableTopicResponse::default()
        .with_topic(text("t").into())
        .with_partitions(vec![row(0, &batch), row(5, &[])]);
    let answer = generated::FetchResponse::default()
        .with_session_id(8)
        .with_responses(vec![topic]);
    let body = encoded(&answer, wire::FETCH.version);
    let mut reader = FetchReader::begin(&body).unwrap();
    assert_eq!((reader.code, reader.session), (0, 8));
    let first = reader.next().unwrap().unwrap();
    assert_eq!((first.topic, first.partition, first.high_watermark), ("t", 0, 10));
    assert_eq!(first.records, batch);
    assert_eq!(&body[first.records_at..first.records_at + batch.len()], batch);
    let second = reader.next().unwrap().unwrap();
    assert_eq!((second.partition, second.records.len()), (5, 0));
    assert!(reader.next().unwrap().is_none());
}

#[test]
fn a_batch_that_was_cut_off_is_left_for_the_next_fetch() {
    let batch = bytes_of(JAVA_BATCHES[0]);
    for length in 0..batch.len() {
        assert_eq!(
            record_batch::peek(&batch[..length]),
            Ok(Found::Partial),
            "{length}"
        );
    }
}
