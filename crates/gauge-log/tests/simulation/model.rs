//! What a log must hold: a plain model of what was asked, in the order of the journal.

use std::collections::BTreeMap;

use gauge_log::broker::{Extent, Limits};
use gauge_log::load;
use gauge_log::shared::Shared;

pub type TopicId = [u8; 16];
/// A partition of a topic, by the topic's identity: a topic that is made again under the same name is another one.
pub type Place = (TopicId, usize);

/// A batch as it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub base: i64,
    pub records: i64,
    pub number: u64,
    pub producer: Option<(i64, i32)>,
    pub timestamp_ms: i64,
    /// Where its entry lies in the journal, padding included.
    pub range: (u64, u64),
}

#[derive(Clone, Debug, Default)]
pub struct Partition {
    pub batches: Vec<Stored>,
    pub next: i64,
    /// Where the log must begin at least.
    pub start: i64,
}

#[derive(Clone, Debug)]
pub struct Topic {
    pub id: TopicId,
    pub retention_ms: Option<i64>,
    pub partitions: Vec<Partition>,
}

/// (group, topic, partition index) and the committed offset.
pub type Offsets = BTreeMap<(String, String, i32), i64>;

#[derive(Clone, Debug, Default)]
pub struct State {
    pub topics: BTreeMap<String, Topic>,
    pub offsets: Offsets,
}

/// Something that was asked for and is in the journal.
#[derive(Clone, Debug)]
pub enum Op {
    Create {
        name: String,
        id: TopicId,
        internal: Vec<u32>,
        retention_ms: Option<i64>,
    },
    Configure {
        name: String,
        retention_ms: Option<i64>,
    },
    AddPartitions {
        name: String,
        internal: Vec<u32>,
    },
    Delete {
        name: String,
    },
    Append {
        name: String,
        partition: usize,
        stored: Stored,
    },
    DeleteRecords {
        name: String,
        partition: usize,
        start: i64,
    },
    CommitOffset {
        group: String,
        name: String,
        partition: i32,
        offset: i64,
    },
    DeleteOffset {
        group: String,
        name: String,
        partition: i32,
    },
    DeleteGroup {
        group: String,
    },
    ProducerId {
        id: i64,
    },
}

impl State {
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Create {
                name,
                id,
                internal,
                retention_ms,
            } => {
                let topic = Topic {
                    id: *id,
                    retention_ms: *retention_ms,
                    partitions: vec![Partition::default(); internal.len()],
                };
                self.topics.insert(name.clone(), topic);
            }
            Op::Configure { name, retention_ms } => {
                self.topics.get_mut(name).unwrap().retention_ms = *retention_ms;
            }
            Op::AddPartitions { name, internal } => {
                let topic = self.topics.get_mut(name).unwrap();
                let total = topic.partitions.len() + internal.len();
                topic.partitions.resize(total, Partition::default());
            }
            Op::Delete { name } => {
                self.topics.remove(name);
                self.offsets.retain(|(_, topic, _), _| topic != name);
            }
            Op::Append {
                name,
                partition,
                stored,
            } => {
                let partition = &mut self.topics.get_mut(name).unwrap().partitions[*partition];
                partition.next = stored.base + stored.records;
                partition.batches.push(stored.clone());
            }
            Op::DeleteRecords {
                name,
                partition,
                start,
            } => {
                let partition = &mut self.topics.get_mut(name).unwrap().partitions[*partition];
                partition.start = partition.start.max(*start);
            }
            Op::CommitOffset {
                group,
                name,
                partition,
                offset,
            } => {
                self.offsets
                    .insert((group.clone(), name.clone(), *partition), *offset);
            }
            Op::DeleteOffset {
                group,
                name,
                partition,
            } => {
                self.offsets.remove(&(group.clone(), name.clone(), *partition));
            }
            Op::DeleteGroup { group } => self.offsets.retain(|(of, ..), _| of != group),
            Op::ProducerId { .. } => {}
        }
    }

    pub fn partition(&self, place: &Place) -> Option<&Partition> {
        let topic = self.topics.values().find(|topic| topic.id == place.0)?;
        topic.partitions.get(place.1)
    }

    /// Whether that is what is there; otherwise what differs.
    pub fn compare(&self, seen: &Seen) -> Result<(), String> {
        let names: Vec<&String> = self.topics.keys().collect();
        let seen_names: Vec<&String> = seen.topics.keys().collect();
        if names != seen_names {
            return Err(format!(
                "topics {names:?} should be there, and {seen_names:?} are"
            ));
        }
        for (name, topic) in &self.topics {
            let (id, partitions) = &seen.topics[name];
            if *id != topic.id || partitions.len() != topic.partitions.len() {
                return Err(format!(
                    "{name} is another topic or has {} partitions",
                    partitions.len()
                ));
            }
            for (index, (model, seen)) in topic.partitions.iter().zip(partitions).enumerate() {
                model
                    .compare(seen)
                    .map_err(|difference| format!("{name}-{index}: {difference}"))?;
            }
        }
        let retention: BTreeMap<String, Option<i64>> = self
            .topics
            .iter()
            .map(|(name, topic)| (name.clone(), topic.retention_ms))
            .collect();
        if retention != seen.retention {
            return Err(format!(
                "topics should keep records for {retention:?} ms, and do for {:?}",
                seen.retention
            ));
        }
        if self.offsets != seen.offsets {
            return Err(format!(
                "offsets {:?} should be committed, and {:?} are",
                self.offsets, seen.offsets
            ));
        }
        Ok(())
    }
}

impl Partition {
    /// What readers that begin at `start` should find.
    pub fn from(&self, start: i64) -> impl Iterator<Item = (i64, i64, u64)> {
        let batches = self.batches.iter();
        let left = batches.filter(move |batch| batch.base + batch.records > start);
        left.map(|batch| (batch.base, batch.records, batch.number))
    }

    /// (timestamp, offset) of the first record from `start` to `end` that is not older, -3: of the first of the newest.
    pub fn find_time(&self, start: i64, end: i64, timestamp_ms: i64) -> (i64, i64) {
        let behind = |batch: &&Stored| batch.base + batch.records;
        let batches = self.batches.iter();
        let there: Vec<&Stored> = batches
            .filter(|batch| behind(batch) > start && behind(batch) <= end)
            .collect();
        let newest = there.iter().map(|batch| batch.timestamp_ms).max();
        let wanted = match timestamp_ms {
            -3 => newest.unwrap_or(i64::MAX),
            _ => timestamp_ms,
        };
        match there.iter().find(|batch| batch.timestamp_ms >= wanted) {
            // What the log does for compressed records.
            Some(batch) if timestamp_ms == -3 && batch.base < start => {
                (batch.timestamp_ms, batch.base + batch.records - 1)
            }
            Some(batch) => (batch.timestamp_ms, batch.base.max(start)),
            None => (-1, -1),
        }
    }

    fn compare(&self, seen: &SeenPartition) -> Result<(), String> {
        if seen.end != self.next {
            return Err(format!("it ends at {} and should at {}", seen.end, self.next));
        }
        if seen.start < self.start {
            return Err(format!(
                "it begins at {}, and everything before {} was deleted",
                seen.start, self.start
            ));
        }
        let wanted: Vec<_> = self.from(seen.start).collect();
        if wanted != seen.batches {
            return Err(format!(
                "from {} on (offset, records, number) {:?} should be there, and {:?} are",
                seen.start, wanted, seen.batches
            ));
        }
        Ok(())
    }
}

/// What is in a partition of a running log.
#[derive(Clone, Debug)]
pub struct SeenPartition {
    pub start: i64,
    pub end: i64,
    pub batches: Vec<(i64, i64, u64)>,
}

/// What is in a running log.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub topics: BTreeMap<String, (TopicId, Vec<SeenPartition>)>,
    pub retention: BTreeMap<String, Option<i64>>,
    pub offsets: Offsets,
}

/// The bytes that begin a batch's payload.
pub fn mark(place: &Place, number: u64) -> Vec<u8> {
    let mut bytes = place.0.to_vec();
    bytes.extend((place.1 as u64).to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes
}

/// Bytes of a mark.
pub const MARK_BYTES: usize = 32;

/// Reads a partition from `from` to its high watermark; the error says what is there that should not be.
pub fn read(
    shared: &Shared,
    internal: u32,
    place: &Place,
    from: i64,
) -> Result<Vec<(i64, i64, u64)>, String> {
    let mut found = Vec::new();
    let mut offset = from;
    loop {
        let mut extents: Vec<Extent> = Vec::new();
        let limits = Limits {
            bytes_max: 1 << 20,
            at_least_one: true,
            extents_max: 16,
        };
        let read = shared.broker().read(internal, offset, limits, &mut extents);
        for extent in &extents {
            // A chunk that was just found in memory may give way to the next one that is read.
            if !shared.cache.contains(extent.chunk) {
                load::load(shared, extent.chunk)?;
            }
            let Some(chunk) = shared.cache.get(extent.chunk) else {
                return Err(format!("chunk {} cannot be read", extent.chunk));
            };
            let (at, end) = (extent.at as usize, (extent.at + extent.bytes) as usize);
            // SAFETY: the log handed this range out, and nothing is written there again.
            let bytes = unsafe { chunk.bytes(at, end) };
            let header = gauge_log::batch::header(bytes);
            let payload = &bytes[gauge_log::batch::HEADER_BYTES..];
            if !gauge_log::batch::crc_matches(bytes) {
                return Err(format!("the batch at offset {offset} is damaged"));
            }
            let number = u64::from_le_bytes(payload[24..32].try_into().unwrap());
            if payload[..24] != mark(place, 0)[..24] {
                return Err(format!(
                    "the batch at offset {offset} (number {number}) is another partition's"
                ));
            }
            found.push((header.base_offset, header.offset_count, number));
            offset = header.base_offset + header.offset_count;
        }
        match read.load {
            Some(chunk) => load::load(shared, chunk)?,
            None if extents.is_empty() => return Ok(found),
            None => {}
        }
    }
}

/// Looks at everything in a running log.
pub fn look(shared: &Shared) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let topics: Vec<(String, TopicId, Vec<u32>)> = {
        let broker = shared.broker();
        for (name, group) in broker.groups.iter() {
            for ((topic, partition), (offset, _)) in &group.offsets {
                let key = (name.clone(), topic.clone(), *partition);
                seen.offsets.insert(key, *offset);
            }
        }
        for topic in broker.topics.iter() {
            let retention_ms = topic.configs.get("retention.ms");
            let retention_ms = retention_ms.map(|text| text.parse().expect("a number"));
            seen.retention.insert(topic.name.clone(), retention_ms);
        }
        let topics = broker.topics.iter();
        topics
            .map(|topic| (topic.name.clone(), topic.id, topic.partitions.clone()))
            .collect()
    };
    for (name, id, internal) in topics {
        let mut partitions = Vec::new();
        for (index, &internal) in internal.iter().enumerate() {
            let (start, end) = {
                let broker = shared.broker();
                let partition = broker
                    .topics
                    .partition(internal)
                    .ok_or("a partition is missing")?;
                (partition.log_start, partition.high_watermark)
            };
            let batches = read(shared, internal, &(id, index), start)
                .map_err(|wrong| format!("{name}-{index}: {wrong}"))?;
            partitions.push(SeenPartition { start, end, batches });
        }
        seen.topics.insert(name, (id, partitions));
    }
    Ok(seen)
}
