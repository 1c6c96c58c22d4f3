//! Changes of the log's own state (topics, committed offsets, producer ids), as they are written to the journal and to checkpoints.
//!
//! The state is the result of applying changes in order. A checkpoint is a list of changes that leads to the same state, so that both are read by one piece of code.
//! The encoding uses the primitive types of Kafka's protocol (plain, not flexible), behind a tag byte.

use crate::wire::{Malformed, Read, Reader, Writer};

/// A committed offset of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// Topic name.
    pub topic: String,
    /// Partition index in the topic.
    pub partition: i32,
    /// The offset that the group reads next.
    pub offset: i64,
    /// What the client attached; at most `crate::api::commits::METADATA_BYTES_MAX` bytes.
    pub metadata: String,
}

/// What is known of an idempotent producer in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerMark {
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// Sequence number of the first record of the producer's last batch.
    pub base_sequence: i32,
    /// Offsets of that batch.
    pub offset_count: i64,
    /// Offset of that batch's first record.
    pub base_offset: i64,
}

/// One change. Fields: `id` is a topic's, `partition` and `first_partition` are internal partition ids, the rest says what it is.
#[expect(
    missing_docs,
    reason = "the fields are named in the sentence above and in each variant's"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A topic was created; its partitions have the internal ids `first_partition..`.
    TopicCreated {
        id: [u8; 16],
        name: String,
        first_partition: u32,
        partitions: u32,
        configs: Vec<(String, String)>,
    },
    /// Partitions were added behind the existing ones.
    PartitionsAdded {
        id: [u8; 16],
        first_partition: u32,
        partitions: u32,
    },
    /// A topic was deleted.
    TopicDeleted { id: [u8; 16] },
    /// A group committed offsets.
    OffsetsCommitted {
        group: String,
        offsets: Vec<CommittedOffset>,
    },
    /// A group was deleted.
    GroupDeleted { group: String },
    /// Producer ids below `next` are taken.
    ProducerIdsTaken { next: i64 },
    /// Records before an offset were deleted, on request or by retention: (partition, offset) each.
    RecordsDeleted { starts: Vec<(u32, i64)> },
    /// Where a partition stands (checkpoints only).
    PartitionAt {
        partition: u32,
        log_start: i64,
        next_offset: i64,
    },
    /// The last batch of a producer in a partition (checkpoints only).
    ProducerAt { partition: u32, mark: ProducerMark },
    /// A topic's settings became these.
    TopicConfigured {
        id: [u8; 16],
        configs: Vec<(String, String)>,
    },
    /// A group's committed offsets of some (topic, partition index) were deleted.
    OffsetsDeleted {
        group: String,
        partitions: Vec<(String, i32)>,
    },
    /// Internal partition ids below `next` were given out (checkpoints only: those of deleted topics are nowhere else).
    PartitionIdsTaken { next: u32 },
}

impl Change {
    /// Appends the change to `writer`, which is plain.
    pub fn encode(&self, writer: &mut Writer) {
        match self {
            Self::TopicCreated {
                id,
                name,
                first_partition,
                partitions,
                configs,
            } => {
                writer.i8(1);
                writer.raw(id);
                writer.string(name);
                writer.i32(*first_partition as i32);
                writer.i32(*partitions as i32);
                encode_configs(writer, configs);
            }
            Self::PartitionsAdded {
                id,
                first_partition,
                partitions,
            } => {
                writer.i8(2);
                writer.raw(id);
                writer.i32(*first_partition as i32);
                writer.i32(*partitions as i32);
            }
            Self::TopicDeleted { id } => {
                writer.i8(3);
                writer.raw(id);
            }
            Self::OffsetsCommitted { group, offsets } => {
                writer.i8(4);
                writer.string(group);
                writer.array(offsets.len());
                for committed in offsets {
                    writer.string(&committed.topic);
                    writer.i32(committed.partition);
                    writer.i64(committed.offset);
                    writer.string(&committed.metadata);
                }
            }
            Self::GroupDeleted { group } => {
                writer.i8(5);
                writer.string(group);
            }
            Self::ProducerIdsTaken { next } => {
                writer.i8(6);
                writer.i64(*next);
            }
            Self::RecordsDeleted { starts } => {
                writer.i8(7);
                writer.array(starts.len());
                for (partition, log_start) in starts {
                    writer.i32(*partition as i32);
                    writer.i64(*log_start);
                }
            }
            Self::PartitionAt {
                partition,
                log_start,
                next_offset,
            } => {
                writer.i8(8);
                writer.i32(*partition as i32);
                writer.i64(*log_start);
                writer.i64(*next_offset);
            }
            Self::ProducerAt { partition, mark } => {
                writer.i8(9);
                writer.i32(*partition as i32);
                writer.i64(mark.producer_id);
                writer.i16(mark.producer_epoch);
                writer.i32(mark.base_sequence);
                writer.i64(mark.offset_count);
                writer.i64(mark.base_offset);
            }
            Self::PartitionIdsTaken { next } => {
                writer.i8(10);
                writer.i32(*next as i32);
            }
            Self::TopicConfigured { id, configs } => {
                writer.i8(11);
                writer.raw(id);
                encode_configs(writer, configs);
            }
            Self::OffsetsDeleted { group, partitions } => {
                writer.i8(12);
                writer.string(group);
                writer.array(partitions.len());
                for (topic, partition) in partitions {
                    writer.string(topic);
                    writer.i32(*partition);
                }
            }
        }
    }

    /// The change by itself, as a journal entry's payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new(false);
        self.encode(&mut writer);
        writer.into_bytes()
    }

    /// Reads one change.
    pub fn decode(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match reader.i8()? {
            1 => Self::decode_topic_created(reader)?,
            2 => Self::PartitionsAdded {
                id: reader.uuid()?,
                first_partition: reader.i32()? as u32,
                partitions: reader.i32()? as u32,
            },
            3 => Self::TopicDeleted { id: reader.uuid()? },
            4 => Self::decode_offsets_committed(reader)?,
            5 => Self::GroupDeleted {
                group: reader.string()?.to_owned(),
            },
            6 => Self::ProducerIdsTaken { next: reader.i64()? },
            7 => Self::RecordsDeleted {
                starts: (0..reader.array(12)?)
                    .map(|_| Ok((reader.i32()? as u32, reader.i64()?)))
                    .collect::<Read<Vec<_>>>()?,
            },
            8 => Self::PartitionAt {
                partition: reader.i32()? as u32,
                log_start: reader.i64()?,
                next_offset: reader.i64()?,
            },
            9 => Self::ProducerAt {
                partition: reader.i32()? as u32,
                mark: ProducerMark {
                    producer_id: reader.i64()?,
                    producer_epoch: reader.i16()?,
                    base_sequence: reader.i32()?,
                    offset_count: reader.i64()?,
                    base_offset: reader.i64()?,
                },
            },
            10 => Self::PartitionIdsTaken {
                next: reader.i32()? as u32,
            },
            11 => Self::TopicConfigured {
                id: reader.uuid()?,
                configs: decode_configs(reader)?,
            },
            12 => Self::OffsetsDeleted {
                group: reader.string()?.to_owned(),
                partitions: (0..reader.array(6)?)
                    .map(|_| Ok((reader.string()?.to_owned(), reader.i32()?)))
                    .collect::<Read<Vec<_>>>()?,
            },
            _ => {
                return Err(Malformed(
                    "an unknown kind of change (written by a newer version?)",
                ));
            }
        })
    }

    fn decode_topic_created(reader: &mut Reader<'_>) -> Read<Self> {
        let id = reader.uuid()?;
        let name = reader.string()?.to_owned();
        let first_partition = reader.i32()? as u32;
        let partitions = reader.i32()? as u32;
        Ok(Self::TopicCreated {
            id,
            name,
            first_partition,
            partitions,
            configs: decode_configs(reader)?,
        })
    }

    fn decode_offsets_committed(reader: &mut Reader<'_>) -> Read<Self> {
        let group = reader.string()?.to_owned();
        let offsets = (0..reader.array(16)?)
            .map(|_| {
                Ok(CommittedOffset {
                    topic: reader.string()?.to_owned(),
                    partition: reader.i32()?,
                    offset: reader.i64()?,
                    metadata: reader.string()?.to_owned(),
                })
            })
            .collect::<Read<Vec<_>>>()?;
        Ok(Self::OffsetsCommitted { group, offsets })
    }
}

fn encode_configs(writer: &mut Writer, configs: &[(String, String)]) {
    writer.array(configs.len());
    for (key, value) in configs {
        writer.string(key);
        writer.string(value);
    }
}

fn decode_configs(reader: &mut Reader<'_>) -> Read<Vec<(String, String)>> {
    (0..reader.array(4)?)
        .map(|_| Ok((reader.string()?.to_owned(), reader.string()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_survives_encoding() {
        let mark = ProducerMark {
            producer_id: 7,
            producer_epoch: 1,
            base_sequence: 5,
            offset_count: 3,
            base_offset: 99,
        };
        let offset = CommittedOffset {
            topic: "t".into(),
            partition: 3,
            offset: 8,
            metadata: "note".into(),
        };
        let changes = vec![
            Change::TopicCreated {
                id: [1; 16],
                name: "orders".into(),
                first_partition: 4,
                partitions: 2,
                configs: vec![("retention.ms".into(), "5".into())],
            },
            Change::PartitionsAdded {
                id: [1; 16],
                first_partition: 6,
                partitions: 1,
            },
            Change::TopicDeleted { id: [1; 16] },
            Change::OffsetsCommitted {
                group: "g".into(),
                offsets: vec![offset],
            },
            Change::GroupDeleted { group: "g".into() },
            Change::TopicConfigured {
                id: [1; 16],
                configs: vec![("retention.ms".into(), "6".into())],
            },
            Change::OffsetsDeleted {
                group: "g".into(),
                partitions: vec![("t".into(), 3)],
            },
            Change::ProducerIdsTaken { next: 1000 },
            Change::RecordsDeleted {
                starts: vec![(1, 5), (7, 1 << 40)],
            },
            Change::PartitionAt {
                partition: 1,
                log_start: 5,
                next_offset: 10,
            },
            Change::ProducerAt { partition: 1, mark },
            Change::PartitionIdsTaken { next: 70 },
        ];
        let mut writer = Writer::new(false);
        changes.iter().for_each(|change| change.encode(&mut writer));
        let bytes = writer.into_bytes();
        let mut reader = Reader::new(&bytes, false);
        let read: Vec<_> = changes
            .iter()
            .map(|_| Change::decode(&mut reader).unwrap())
            .collect();
        assert_eq!(read, changes);
        assert_eq!(reader.remaining(), 0);
    }
}
