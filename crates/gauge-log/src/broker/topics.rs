//! Topics and their partitions.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::marks::{Mark, Marks};
use super::producers::Producers;
use crate::mutants::{self, Mutant};
use crate::storage::journal::LastPlace;

/// Partitions of the whole log at most.
pub const PARTITIONS_MAX: usize = 100_000;
/// Chunks remembered over all partitions, about (32 bytes each). Beyond that, a partition that has more than its share forgets every second one, and its readers walk
/// from the last remembered chunk on.
const CHUNK_MARKS_MAX: usize = 1 << 20;
/// Readers of one partition whose way is remembered while marks are missing.
const CURSORS_MAX: usize = 8;
/// Idempotent producers remembered over all partitions, about (300 bytes each). Beyond that, each partition has its share.
const PRODUCERS_MAX: usize = 200_000;
/// Idempotent producers remembered in one partition.
pub const PARTITION_PRODUCERS_MAX: usize = 10_000;
/// Chunks that each partition may remember whatever their number.
const CHUNK_MARKS_MIN: usize = 16;

/// A connection that waits for data: its thread and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Index of the network thread.
    pub thread: u16,
    /// Number of the connection in its thread, never used twice.
    pub number: u64,
}

/// A topic.
#[derive(Debug)]
pub struct Topic {
    /// Random identity (KIP-516).
    pub id: [u8; 16],
    /// Name.
    pub name: String,
    /// Internal ids of its partitions, by index.
    pub partitions: Vec<u32>,
    /// Settings given when it was created.
    pub configs: BTreeMap<String, String>,
}

/// A partition.
#[derive(Debug, Default)]
pub struct Partition {
    /// First offset that may be read; never goes back, not over a restart either.
    pub log_start: i64,
    /// What `log_start` becomes with the next commit: the journal says so already.
    pub deleted_before: i64,
    /// Offset that the next record gets.
    pub next_offset: i64,
    /// Offset up to which readers may read: everything before it is as durable as promised.
    pub high_watermark: i64,
    /// Where the last batch lies in the active chunk.
    pub last: LastPlace,
    /// The chunks that hold its records; thinned out when there are many.
    pub chunk_marks: Marks,
    /// Whether marks were forgotten, so that chunks between two marks may hold records too.
    pub thinned: bool,
    /// While `thinned`: (offset, chunk) pairs of recent readers; records from the offset on lie in that chunk or behind it.
    pub cursors: Vec<(i64, u64)>,
    /// Connections to wake when the high watermark moves.
    pub waiters: Vec<ConnectionId>,
    /// Fetch sessions that want it, with its place there.
    pub watchers: Vec<(i32, u32)>,
    /// Idempotent producers.
    pub producers: Producers,
}

impl Partition {
    /// Notes that the chunk that begins at `chunk_start` holds records from `first_offset` on (called for every batch; only the first of a chunk counts), of this time at most, ms.
    /// Returns by how much the number of marks has changed.
    pub fn note_chunk(
        &mut self,
        first_offset: i64,
        chunk_start: u64,
        timestamp_ms_max: i64,
        marks_max: usize,
    ) -> isize {
        if self.chunk_marks.raise_last(chunk_start, timestamp_ms_max) {
            return 0;
        }
        let before = self.chunk_marks.len();
        if before >= marks_max {
            self.thinned = true;
            self.chunk_marks.thin();
        }
        self.chunk_marks.push(first_offset, chunk_start, timestamp_ms_max);
        self.chunk_marks.len() as isize - before as isize
    }

    /// Notes where a reader is, so that it need not walk the same chunks again when it comes back.
    pub fn note_cursor(&mut self, offset: i64, chunk_start: u64) {
        if !self.thinned {
            return;
        }
        // The nearest one behind it is most likely the same reader's last place.
        let behind = (0..self.cursors.len()).filter(|&at| self.cursors[at].0 <= offset);
        if let Some(at) = behind.max_by_key(|&at| self.cursors[at].0) {
            self.cursors.remove(at);
        } else if self.cursors.len() == CURSORS_MAX {
            self.cursors.remove(0);
        }
        self.cursors.push((offset, chunk_start));
    }

    /// The start of the last remembered chunk whose records begin at or before `offset`; the first one for an earlier offset; None when nothing is stored.
    pub fn chunk_for(&self, offset: i64) -> Option<u64> {
        let behind = self
            .chunk_marks
            .partition_point(|mark| mark.first_offset <= offset);
        let mark = self.chunk_marks.get(behind.saturating_sub(1))?.chunk;
        let cursors = self.cursors.iter().filter(|&&(from, _)| from <= offset);
        cursors.map(|&(_, start)| start).chain([mark]).max()
    }

    /// The start of the first remembered chunk behind `chunk_start`; others may lie between when `thinned`.
    pub fn chunk_after(&self, chunk_start: u64) -> Option<u64> {
        let behind = self.chunk_marks.partition_point(|mark| mark.chunk <= chunk_start);
        self.chunk_marks.get(behind).map(|mark| mark.chunk)
    }

    /// The first offset that is left once everything before journal position `journal_start` is gone; None when nothing of the partition lies there.
    pub fn start_behind(&self, journal_start: u64) -> Option<i64> {
        let gone = self
            .chunk_marks
            .partition_point(|mark| mark.chunk < journal_start);
        let first = self
            .chunk_marks
            .get(gone)
            .map_or(self.next_offset, |mark| mark.first_offset);
        (gone > 0).then(|| first.max(self.deleted_before))
    }

    /// Forgets chunks before `journal_start`, whose files are deleted. Returns by how much the number of marks has changed.
    pub fn forget_before(&mut self, journal_start: u64) -> isize {
        let gone = self
            .chunk_marks
            .partition_point(|mark| mark.chunk < journal_start);
        self.chunk_marks.forget_first(gone);
        self.cursors.retain(|&(_, start)| start >= journal_start);
        -(gone as isize)
    }

    /// Lets the log start at `log_start`, and forgets the chunks that hold nothing from there on. Returns by how much the number of marks has changed.
    pub fn start_at(&mut self, log_start: i64) -> isize {
        self.log_start = self.log_start.max(log_start);
        if self.log_start >= self.next_offset {
            return self.forget_before(u64::MAX);
        }
        let behind = self
            .chunk_marks
            .partition_point(|mark| mark.first_offset <= self.log_start);
        match self.chunk_marks.get(behind.saturating_sub(1)) {
            Some(&Mark { chunk, .. }) => self.forget_before(chunk),
            None => 0,
        }
    }
}

/// Spreads internal ids, which count up, over a table.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        // Half of the golden ratio's bits (Knuth): neighbours end up far apart, in the high bits as well.
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// All topics.
#[derive(Debug, Default)]
pub struct Topics {
    by_name: BTreeMap<String, Topic>,
    names: HashMap<[u8; 16], String>,
    /// Partitions by internal id. An id is never used twice: the journal and the indexes know partitions by it, those of deleted topics too.
    partitions: HashMap<u32, Box<Partition>, BuildHasherDefault<IdHasher>>,
    next_partition: u32,
    /// Idempotent producers over all partitions.
    producers: isize,
    /// Watchers of partitions that were deleted.
    orphaned: Vec<(i32, u32)>,
    /// Marks of all partitions; those that were removed are still counted until `recount`.
    marks: isize,
}

impl Topics {
    /// The topic of that name.
    pub fn get(&self, name: &str) -> Option<&Topic> {
        self.by_name.get(name)
    }

    /// The topic of that id.
    pub fn get_by_id(&self, id: &[u8; 16]) -> Option<&Topic> {
        self.by_name.get(self.names.get(id)?)
    }

    /// All topics, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Topic> {
        self.by_name.values()
    }

    /// Number of topics.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is no topic.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Partitions of all topics.
    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// Chunks that each partition may remember: any number while there are few in all.
    pub fn chunk_marks_max(&self) -> usize {
        if self.marks < CHUNK_MARKS_MAX as isize {
            return usize::MAX;
        }
        (CHUNK_MARKS_MAX / self.partitions.len().max(1)).max(CHUNK_MARKS_MIN)
    }

    /// Notes that the number of marks has changed.
    pub fn add_marks(&mut self, change: isize) {
        self.marks += change;
    }

    /// Counts the marks anew, after partitions or chunks were removed.
    pub fn recount(&mut self) {
        self.marks = self
            .partitions()
            .map(|(_, partition)| partition.chunk_marks.len() as isize)
            .sum();
    }

    /// Producers that each partition may remember: many while there are few in all.
    pub fn producers_max(&self) -> usize {
        if mutants::is(Mutant::SixtyFourProducers) {
            return 64;
        }
        if self.producers < PRODUCERS_MAX as isize {
            return PARTITION_PRODUCERS_MAX;
        }
        (PRODUCERS_MAX / self.partitions.len().max(1)).clamp(1, PARTITION_PRODUCERS_MAX)
    }

    /// Notes that the number of producers has changed.
    pub fn add_producers(&mut self, change: isize) {
        self.producers += change;
    }

    /// The internal id that the next new partition gets; those below were given out at some time.
    pub fn next_partition(&self) -> u32 {
        self.next_partition
    }

    /// Notes that internal ids below `next` were given out.
    pub fn take_partitions(&mut self, next: u32) {
        self.next_partition = self.next_partition.max(next);
    }

    /// The internal id of a topic's partition.
    pub fn partition_id(&self, topic: &str, index: i32) -> Option<u32> {
        self.by_name
            .get(topic)?
            .partitions
            .get(usize::try_from(index).ok()?)
            .copied()
    }

    /// A partition by its internal id; None once its topic was deleted.
    pub fn partition(&self, id: u32) -> Option<&Partition> {
        self.partitions.get(&id).map(Box::as_ref)
    }

    /// As `partition`, for changing it.
    pub fn partition_mut(&mut self, id: u32) -> Option<&mut Partition> {
        self.partitions.get_mut(&id).map(Box::as_mut)
    }

    /// Every partition that is alive, with its internal id.
    pub fn partitions(&self) -> impl Iterator<Item = (u32, &Partition)> {
        self.partitions
            .iter()
            .map(|(&id, partition)| (id, partition.as_ref()))
    }

    /// As `partitions`, for changing them.
    pub fn partitions_mut(&mut self) -> impl Iterator<Item = (u32, &mut Partition)> {
        self.partitions
            .iter_mut()
            .map(|(&id, partition)| (id, partition.as_mut()))
    }

    /// Adds a topic without partitions; false when the name is taken.
    pub fn create(&mut self, id: [u8; 16], name: &str, configs: BTreeMap<String, String>) -> bool {
        if self.by_name.contains_key(name) {
            return false;
        }
        let topic = Topic {
            id,
            name: name.to_owned(),
            partitions: Vec::new(),
            configs,
        };
        self.by_name.insert(name.to_owned(), topic);
        self.names.insert(id, name.to_owned());
        true
    }

    /// Adds `count` partitions with internal ids from `first_partition` on.
    pub fn add_partitions(&mut self, id: &[u8; 16], first_partition: u32, count: u32) {
        let Some(topic) = self.names.get(id).and_then(|name| self.by_name.get_mut(name)) else {
            return;
        };
        // More than a log may have are only in a journal that somebody made up.
        let room = (PARTITIONS_MAX - self.partitions.len().min(PARTITIONS_MAX)) as u32;
        let behind = first_partition.saturating_add(count.min(room));
        for partition in first_partition..behind {
            self.partitions.insert(partition, Box::default());
            topic.partitions.push(partition);
        }
        self.take_partitions(behind);
    }

    /// Gives a topic other settings.
    pub fn configure(&mut self, id: &[u8; 16], configs: BTreeMap<String, String>) {
        if let Some(topic) = self.names.get(id).and_then(|name| self.by_name.get_mut(name)) {
            topic.configs = configs;
        }
    }

    /// Removes a topic; returns it and the connections that waited for its partitions.
    pub fn delete(&mut self, id: &[u8; 16]) -> Option<(Topic, Vec<ConnectionId>)> {
        let topic = self.by_name.remove(&self.names.remove(id)?)?;
        let mut waiters = Vec::new();
        for &partition in &topic.partitions {
            if let Some(partition) = self.partitions.remove(&partition) {
                self.producers -= partition.producers.len() as isize;
                waiters.extend(partition.waiters);
                self.orphaned.extend(partition.watchers);
            }
        }
        Some((topic, waiters))
    }
}

impl Topics {
    /// Fetch sessions whose partitions were deleted since the last call.
    pub fn take_orphaned(&mut self) -> Vec<(i32, u32)> {
        std::mem::take(&mut self.orphaned)
    }
}

/// Whether a name may be a topic's: 1 to 249 of the characters `a-z A-Z 0-9 . _ -`, but neither `.` nor `..` (Kafka's rule).
pub fn name_is_legal(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_marks_stay_bounded_and_lead_at_or_before_an_offset() {
        let mut partition = Partition::default();
        for chunk in 0..100_000u64 {
            partition.note_chunk(chunk as i64 * 10, chunk * 4096, 0, 1000);
        }
        assert!(partition.chunk_marks.len() <= 1000 && partition.thinned);
        for offset in [0, 5, 12_345, 999_999] {
            let start = partition.chunk_for(offset).unwrap();
            assert!(start / 4096 * 10 <= offset as u64);
        }
    }

    #[test]
    fn deleting_old_files_moves_the_start_of_the_log() {
        let mut partition = Partition {
            next_offset: 30,
            ..Default::default()
        };
        partition.note_chunk(0, 0, 0, 16);
        partition.note_chunk(10, 4096, 0, 16);
        assert_eq!(partition.start_behind(0), None);
        assert_eq!(partition.start_behind(4096), Some(10));
        assert_eq!(partition.start_behind(8192), Some(30));
        assert_eq!(partition.start_at(15), -1);
        assert_eq!(partition.chunk_marks.len(), 1);
        assert_eq!(partition.chunk_marks[0].chunk, 4096);
        assert_eq!(partition.start_at(5), 0);
        assert_eq!(partition.log_start, 15);
        assert_eq!(partition.start_at(30), -1);
        assert_eq!(partition.log_start, 30);
    }

    #[test]
    fn the_id_of_a_deleted_partition_is_not_given_out_again() {
        let mut topics = Topics::default();
        topics.create([1; 16], "a", BTreeMap::new());
        topics.add_partitions(&[1; 16], 0, 3);
        topics.delete(&[1; 16]);
        assert_eq!(topics.next_partition(), 3);
    }

    #[test]
    fn names_follow_kafkas_rule() {
        assert!(name_is_legal("orders-2.eu_west"));
        assert!(
            !name_is_legal("")
                && !name_is_legal("..")
                && !name_is_legal("a/b")
                && !name_is_legal(&"x".repeat(250))
        );
    }

    #[test]
    fn a_reader_is_led_back_to_where_it_was_while_marks_are_missing() {
        let mut partition = Partition::default();
        for chunk in 0..100u64 {
            partition.note_chunk(chunk as i64 * 10, chunk * 4096, 0, 16);
        }
        assert!(partition.thinned);
        partition.note_cursor(335, 33 * 4096);
        assert_eq!(partition.chunk_for(336), Some(33 * 4096));
        assert!(partition.chunk_for(330).unwrap() <= 33 * 4096);
        partition.note_cursor(345, 34 * 4096);
        assert_eq!(partition.cursors, [(345, 34 * 4096)]);
    }
}
