//! Control messages: requests that are written and answers that are read outside of the hot path.
//!
//! Written by hand rather than with a generated codec for one reason: those reserve memory for as many elements as an answer
//! claims to have, and a broken server could end the whole worker with one number. Here a count is compared with the bytes that
//! are there. The tests compare these functions with the generated codec of the `kafka-protocol` crate.

use super::errors::Code;
use super::wire::{Malformed, Put, Reader};

/// Name under which this client introduces itself (KIP-511).
const SOFTWARE_NAME: &str = "streamgauge";

/// Resource types of DescribeConfigs.
pub(crate) const RESOURCE_TOPIC: i8 = 2;
pub(crate) const RESOURCE_BROKER: i8 = 4;

/// ListOffsets: the end of the log.
pub(crate) const TIMESTAMP_LATEST: i64 = -1;
/// ListOffsets: the first message that is kept.
pub(crate) const TIMESTAMP_EARLIEST: i64 = -2;

pub(crate) fn put_api_versions(out: &mut Vec<u8>) {
    // Version 3 has a flexible header and body: no tagged fields in either.
    out.push(0);
    out.put_compact_short(SOFTWARE_NAME);
    out.put_compact_short(env!("CARGO_PKG_VERSION"));
    out.push(0);
}

/// What a server can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApiVersions {
    pub code: i16,
    /// (API key, lowest version, highest version).
    pub ranges: Vec<(i16, i16, i16)>,
    /// Features that the server's code has, with the highest level that it supports (KIP-584).
    pub supported: Vec<(String, i16)>,
    /// Features that the cluster has finalised, with their level; "metadata.version" tells the release.
    pub finalized: Vec<(String, i16)>,
}

/// `version`: 3 or 0. A server that does not know version 3 answers in version 0.
pub(crate) fn read_api_versions(body: &[u8], version: i16) -> Result<ApiVersions, Malformed> {
    let mut reader = Reader::new(body);
    let code = reader.i16()?;
    let mut answer = ApiVersions {
        code,
        ..ApiVersions::default()
    };
    let flexible = version >= 3 && Code(code) != Code::UNSUPPORTED_VERSION;
    let count = if flexible {
        reader.compact_count(7)?
    } else {
        reader.count(6)?
    };
    for _ in 0..count {
        answer.ranges.push((reader.i16()?, reader.i16()?, reader.i16()?));
        if flexible {
            skip_tags(&mut reader)?;
        }
    }
    if flexible {
        reader.i32()?;
        for _ in 0..reader.unsigned_varint()? {
            let tag = reader.unsigned_varint()?;
            let bytes = reader.unsigned_varint()? as usize;
            let field = reader.take(bytes)?;
            match tag {
                0 => answer.supported = read_features(field, |_least, highest| highest)?,
                2 => answer.finalized = read_features(field, |level, _least| level)?,
                _ => {}
            }
        }
    }
    Ok(answer)
}

/// `level`: which of a feature's two numbers counts.
fn read_features(field: &[u8], level: fn(i16, i16) -> i16) -> Result<Vec<(String, i16)>, Malformed> {
    let mut reader = Reader::new(field);
    let mut features = Vec::new();
    for _ in 0..reader.compact_count(6)? {
        let name = reader.compact_string()?.to_owned();
        features.push((name, level(reader.i16()?, reader.i16()?)));
        skip_tags(&mut reader)?;
    }
    Ok(features)
}

fn skip_tags(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    for _ in 0..reader.unsigned_varint()? {
        reader.unsigned_varint()?;
        let bytes = reader.unsigned_varint()? as usize;
        reader.skip(bytes)?;
    }
    Ok(())
}

/// Asks for these topics; none: for the brokers alone.
pub(crate) fn put_metadata<'a>(out: &mut Vec<u8>, topics: impl ExactSizeIterator<Item = &'a str>) {
    out.put_count(topics.len());
    topics.for_each(|topic| out.put_string(topic));
    // A topic that does not exist is not created.
    out.put_i8(0);
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BrokerRow {
    pub id: i32,
    pub host: String,
    pub port: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionRow {
    pub code: i16,
    pub partition: i32,
    /// -1: none at the moment.
    pub leader: i32,
    pub leader_epoch: i32,
    pub replicas: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicRow {
    pub code: i16,
    pub name: String,
    pub partitions: Vec<PartitionRow>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub brokers: Vec<BrokerRow>,
    pub cluster_id: Option<String>,
    pub controller: i32,
    pub topics: Vec<TopicRow>,
}

pub(crate) fn read_metadata(body: &[u8]) -> Result<Metadata, Malformed> {
    let mut reader = Reader::new(body);
    reader.i32()?;
    let mut answer = Metadata::default();
    for _ in 0..reader.count(12)? {
        answer.brokers.push(BrokerRow {
            id: reader.i32()?,
            host: reader.string()?.to_owned(),
            port: reader.i32()?,
        });
        reader.nullable_string()?;
    }
    answer.cluster_id = reader.nullable_string()?.map(str::to_owned);
    answer.controller = reader.i32()?;
    for _ in 0..reader.count(9)? {
        let mut topic = TopicRow {
            code: reader.i16()?,
            name: reader.string()?.to_owned(),
            partitions: Vec::new(),
        };
        reader.bool()?;
        for _ in 0..reader.count(26)? {
            let (code, partition, leader) = (reader.i16()?, reader.i32()?, reader.i32()?);
            let leader_epoch = reader.i32()?;
            let replicas = reader.count(4)?;
            reader.skip(replicas * 4)?;
            for _ in 0..2 {
                let nodes = reader.count(4)?;
                reader.skip(nodes * 4)?;
            }
            topic.partitions.push(PartitionRow {
                code,
                partition,
                leader,
                leader_epoch,
                replicas,
            });
        }
        answer.topics.push(topic);
    }
    Ok(answer)
}

pub(crate) fn put_init_producer_id(out: &mut Vec<u8>) {
    out.put_null_string();
    // The timeout of transactions, of which there are none.
    out.put_i32(60_000);
}

/// (code, producer id, producer epoch)
pub(crate) fn read_init_producer_id(body: &[u8]) -> Result<(i16, i64, i16), Malformed> {
    let mut reader = Reader::new(body);
    reader.i32()?;
    Ok((reader.i16()?, reader.i64()?, reader.i16()?))
}

/// Topics with their partitions, as requests group them. `each` writes what follows a partition's number.
pub(crate) fn put_by_topic<T>(
    out: &mut Vec<u8>,
    rows: &[T],
    place: impl Fn(&T) -> (usize, i32),
    name: impl Fn(usize) -> String,
    mut each: impl FnMut(&mut Vec<u8>, &T),
) {
    let mut groups: Vec<&[T]> = Vec::new();
    let mut from = 0;
    for at in 1..=rows.len() {
        if at == rows.len() || place(&rows[at]).0 != place(&rows[from]).0 {
            groups.push(&rows[from..at]);
            from = at;
        }
    }
    out.put_count(groups.len());
    for group in groups {
        out.put_string(&name(place(&group[0]).0));
        out.put_count(group.len());
        for row in group {
            out.put_i32(place(row).1);
            each(out, row);
        }
    }
}

/// What an answer tells of a partition that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a, T> {
    pub topic: &'a str,
    pub partition: i32,
    pub code: i16,
    pub told: T,
}

/// The rows of an answer to ListOffsets, each with an offset.
pub(crate) fn read_list_offsets(body: &[u8]) -> Result<Vec<Row<'_, i64>>, Malformed> {
    read_rows(body, 22, |reader| {
        let (partition, code) = (reader.i32()?, reader.i16()?);
        reader.i64()?;
        Ok((partition, code, reader.i64()?))
    })
}

/// Where a leader's epoch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochEnd {
    /// The largest epoch of the log that is not above the one that was asked for; -1: it knows none.
    pub epoch: i32,
    /// The first offset behind it; -1: not known.
    pub end_offset: i64,
}

/// The rows of an answer to OffsetForLeaderEpoch.
pub(crate) fn read_epoch_ends(body: &[u8]) -> Result<Vec<Row<'_, EpochEnd>>, Malformed> {
    read_rows(body, 18, |reader| {
        let (code, partition) = (reader.i16()?, reader.i32()?);
        let (epoch, end_offset) = (reader.i32()?, reader.i64()?);
        Ok((partition, code, EpochEnd { epoch, end_offset }))
    })
}

/// Rows by topic, behind the time for which the server throttles. `each` reads one, of `row_bytes` at least: partition, code, and what is told.
fn read_rows<'a, T>(
    body: &'a [u8],
    row_bytes: usize,
    mut each: impl FnMut(&mut Reader<'a>) -> Result<(i32, i16, T), Malformed>,
) -> Result<Vec<Row<'a, T>>, Malformed> {
    let mut reader = Reader::new(body);
    reader.i32()?;
    let mut rows = Vec::new();
    for _ in 0..reader.count(6)? {
        let topic = reader.string()?;
        for _ in 0..reader.count(row_bytes)? {
            let (partition, code, told) = each(&mut reader)?;
            rows.push(Row {
                topic,
                partition,
                code,
                told,
            });
        }
    }
    Ok(rows)
}

pub(crate) fn put_find_coordinator(out: &mut Vec<u8>, group: &str) {
    out.put_string(group);
    out.put_i8(0);
}

/// (code, broker)
pub(crate) fn read_find_coordinator(body: &[u8]) -> Result<(i16, BrokerRow), Malformed> {
    let mut reader = Reader::new(body);
    reader.i32()?;
    let code = reader.i16()?;
    reader.nullable_string()?;
    let broker = BrokerRow {
        id: reader.i32()?,
        host: reader.string()?.to_owned(),
        port: reader.i32()?,
    };
    Ok((code, broker))
}

/// What comes before the topics of an OffsetCommit of a consumer that is no member of a group.
pub(crate) fn put_offset_commit_head(out: &mut Vec<u8>, group: &str) {
    out.put_string(group);
    out.put_i32(-1);
    out.put_string("");
}

/// The first error of an answer to OffsetCommit; 0: none.
pub(crate) fn read_offset_commit(body: &[u8]) -> Result<i16, Malformed> {
    let mut reader = Reader::new(body);
    reader.i32()?;
    let mut first = 0;
    for _ in 0..reader.count(6)? {
        reader.string()?;
        for _ in 0..reader.count(6)? {
            reader.i32()?;
            let code = reader.i16()?;
            if first == 0 {
                first = code;
            }
        }
    }
    Ok(first)
}

pub(crate) fn put_create_topics(out: &mut Vec<u8>, topics: &[crate::NewTopic], timeout_ms: i32) {
    out.put_count(topics.len());
    for topic in topics {
        out.put_string(&topic.name);
        out.put_i32(i32::try_from(topic.partitions).unwrap_or(i32::MAX));
        out.put_i16(i16::try_from(topic.replication_factor).unwrap_or(i16::MAX));
        out.put_count(0);
        out.put_count(topic.configs.len());
        for (name, value) in &topic.configs {
            out.put_string(name);
            out.put_string(value);
        }
    }
    out.put_i32(timeout_ms);
    // Not only validated.
    out.put_i8(0);
}

/// Partitions are added until the topic has `partitions`; the server places them.
pub(crate) fn put_create_partitions(out: &mut Vec<u8>, topic: &str, partitions: u32, timeout_ms: i32) {
    out.put_count(1);
    out.put_string(topic);
    out.put_i32(i32::try_from(partitions).unwrap_or(i32::MAX));
    // No assignments of ours.
    out.put_i32(-1);
    out.put_i32(timeout_ms);
    // Not only validated.
    out.put_i8(0);
}

/// (topic, code, message) of each topic: the answer to CreateTopics, and to CreatePartitions, which has the same fields.
pub(crate) fn read_create_topics(body: &[u8]) -> Result<Vec<(String, i16, String)>, Malformed> {
    let mut reader = Reader::new(body);
    reader.i32()?;
    let mut rows = Vec::new();
    for _ in 0..reader.count(6)? {
        let name = reader.string()?.to_owned();
        let code = reader.i16()?;
        rows.push((
            name,
            code,
            reader.nullable_string()?.unwrap_or_default().to_owned(),
        ));
    }
    Ok(rows)
}

pub(crate) fn put_delete_topics(out: &mut Vec<u8>, topics: &[String], timeout_ms: i32) {
    out.put_count(topics.len());
    topics.iter().for_each(|topic| out.put_string(topic));
    out.put_i32(timeout_ms);
}

/// (topic, code) of each topic.
pub(crate) fn read_delete_topics(body: &[u8]) -> Result<Vec<(String, i16)>, Malformed> {
    let mut reader = Reader::new(body);
    reader.i32()?;
    let mut rows = Vec::new();
    for _ in 0..reader.count(4)? {
        let name = reader.string()?.to_owned();
        rows.push((name, reader.i16()?));
    }
    Ok(rows)
}

/// Asks for all settings of these resources of one type.
pub(crate) fn put_describe_configs(out: &mut Vec<u8>, resource_type: i8, names: &[String]) {
    out.put_count(names.len());
    for name in names {
        out.put_i8(resource_type);
        out.put_string(name);
        // Null: all keys.
        out.put_i32(-1);
    }
    out.put_i8(0);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigRow {
    pub code: i16,
    pub message: String,
    pub name: String,
    /// (name, value); None: not set, or not told because it is secret.
    pub settings: Vec<(String, Option<String>)>,
}

pub(crate) fn read_describe_configs(body: &[u8]) -> Result<Vec<ConfigRow>, Malformed> {
    let mut reader = Reader::new(body);
    reader.i32()?;
    let mut rows = Vec::new();
    for _ in 0..reader.count(11)? {
        let code = reader.i16()?;
        let message = reader.nullable_string()?.unwrap_or_default().to_owned();
        reader.i8()?;
        let mut row = ConfigRow {
            code,
            message,
            name: reader.string()?.to_owned(),
            settings: Vec::new(),
        };
        for _ in 0..reader.count(11)? {
            let name = reader.string()?.to_owned();
            row.settings
                .push((name, reader.nullable_string()?.map(str::to_owned)));
            // Read-only, source, sensitive.
            reader.skip(3)?;
            for _ in 0..reader.count(5)? {
                reader.string()?;
                reader.nullable_string()?;
                reader.i8()?;
            }
        }
        rows.push(row);
    }
    Ok(rows)
}
