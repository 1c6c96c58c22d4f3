//! One history: a log that is used, dies, and comes back, again and again, all of it decided by one number.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fastrand::Rng;
use gauge_log::access::Access;
use gauge_log::commit::Commit;
use gauge_log::events::Events;
use gauge_log::maintain::{self, Checkpoint, Deletion};
use gauge_log::prepare::Preparation;
use gauge_log::settings::Settings;
use gauge_log::shared::Shared;
use gauge_log::start::assemble;
use gauge_log::storage::disk::Disk;
use gauge_log::storage::entry;
use gauge_log::storage::segment::{Durability, base_of};
use gauge_powercut::disk::Metadata;
use gauge_powercut::survive::Survive;

use crate::client::{self, Answer, Batch, Full};
use crate::disk::Simulated;
use crate::model::{self, MARK_BYTES, Op, Place, Seen, State, Stored};

/// Bytes of a chunk: small, so that there are many.
const CHUNK_BYTES: usize = 32 << 10;
/// The largest payload that fits such a chunk, with its marks.
const PAYLOAD_BYTES_MAX: usize = CHUNK_BYTES / 2 - 2 * 4096 - 200;
const TOPICS: [&str; 3] = ["a", "b", "c"];
const GROUPS: [&str; 2] = ["g", "h"];
/// Producers of a history in which there are many.
const CROWD: usize = 100;

/// What happened in histories: what never happens is not tested.
#[derive(Clone, Debug, Default)]
pub struct Marks(pub BTreeMap<&'static str, u64>);

impl Marks {
    pub fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &Marks) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}

/// Why a step did not go on.
#[derive(Debug)]
enum Stop {
    /// The process died, as planned.
    Died,
    /// The log does what it must not do.
    Wrong(String),
}

type Step = Result<(), Stop>;

fn wrong<T>(text: String) -> Result<T, Stop> {
    Err(Stop::Wrong(text))
}

/// An operation that is in the journal.
#[derive(Clone, Debug)]
struct Issued {
    op: Op,
    /// The journal position that must be committed before it is acknowledged.
    position: u64,
}

/// What a running log is in the middle of.
#[derive(Default)]
struct Doing {
    commit: Option<Commit>,
    preparation: Option<Preparation>,
    checkpoint: Option<Checkpoint>,
    deletion: Option<Deletion>,
}

struct History {
    rng: Rng,
    durability: Durability,
    settings: Settings,
    disk: Simulated,
    shared: Option<Shared>,
    doing: Doing,
    /// What survives everything.
    floor: State,
    /// What was asked since then, in the order of the journal.
    log: Vec<Issued>,
    /// How much of `log` is acknowledged.
    acknowledged: usize,
    /// How much of `log` survives a loss of power.
    durable: usize,
    /// All that was acknowledged, and all that was asked.
    promised: State,
    now: State,
    /// Where partitions were seen to begin, and where they were asked to begin.
    starts_seen: BTreeMap<Place, i64>,
    starts_asked: BTreeMap<Place, i64>,
    /// Where commits began.
    boundaries: BTreeSet<u64>,
    internal_ids: BTreeSet<u32>,
    producer_ids: BTreeSet<i64>,
    producers: Vec<i64>,
    next_number: u64,
    clock_ms: i64,
    has_lost_power: bool,
    marks: Marks,
}

/// Where logs write what they notice: nowhere, but in a history that is run again with a file for it.
fn events() -> Events {
    let path = std::env::var_os("GAUGE_LOG_EVENTS");
    Events::open(path.as_deref().map(std::path::Path::new)).unwrap()
}

/// Settings of a log whose chunks are small.
pub fn settings(durability: Durability) -> Settings {
    Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        access: Access::default(),
        advertise: None,
        data: "data".into(),
        durability,
        fault: None,
        memory_bytes: (CHUNK_BYTES * 16 / 6 * 10) as u64,
        segment_bytes: 64 << 10,
        chunk_bytes: CHUNK_BYTES,
        retention_bytes: None,
        retention_age: None,
        limit_mb_s: None,
        commit_delay: std::time::Duration::ZERO,
        threads: 1,
        auto_create_partitions: 0,
        metrics: None,
        events: None,
    }
}

/// Runs the history with that number; what happened in it, or what was wrong.
pub fn run(seed: u64, durability: Durability) -> Result<Marks, String> {
    let mut history = History::new(seed, durability);
    match history.live() {
        Ok(()) => Ok(history.marks),
        Err(Stop::Wrong(text)) => Err(text),
        Err(Stop::Died) => Err("the log could not be begun again".to_owned()),
    }
}

impl History {
    fn new(seed: u64, durability: Durability) -> Self {
        // A seed says something else for each mode.
        let mut rng = Rng::with_seed(seed.wrapping_mul(2) + u64::from(durability == Durability::Async));
        let metadata = [Metadata::Strict, Metadata::Ordered, Metadata::Ext4][rng.usize(..3)];
        let segment_bytes = [64 << 10, 96 << 10, 160 << 10][rng.usize(..3)];
        let settings = Settings {
            segment_bytes,
            retention_bytes: rng.bool().then(|| segment_bytes * rng.u64(1..4)),
            ..settings(durability)
        };
        Self {
            durability,
            settings,
            disk: Simulated::new(metadata),
            shared: None,
            doing: Doing::default(),
            floor: State::default(),
            log: Vec::new(),
            acknowledged: 0,
            durable: 0,
            promised: State::default(),
            now: State::default(),
            starts_seen: BTreeMap::new(),
            starts_asked: BTreeMap::new(),
            boundaries: BTreeSet::new(),
            internal_ids: BTreeSet::new(),
            producer_ids: BTreeSet::new(),
            producers: Vec::new(),
            next_number: 0,
            clock_ms: 1_700_000_000_000,
            has_lost_power: false,
            marks: Marks::default(),
            rng,
        }
    }

    fn live(&mut self) -> Step {
        let lives = self.rng.usize(1..5);
        let is_crowded = self.rng.u32(..12) == 0;
        self.begin(false)?;
        for life in 0..lives {
            let steps = self.rng.usize(5..120);
            self.plan_end();
            let mut lived = Ok(());
            if life == 0 && is_crowded {
                lived = self.crowd();
            }
            for _ in 0..steps {
                if lived.is_err() {
                    break;
                }
                lived = self.step();
            }
            match lived {
                Err(Stop::Wrong(text)) => return wrong(text),
                Err(Stop::Died) => self.marks.note("died within an operation"),
                Ok(()) => {}
            }
            let loses_power = self.rng.u32(..4) > 0;
            self.end(loses_power);
            self.begin(loses_power)?;
        }
        if self.durability == Durability::Fsync && self.rng.u32(..3) == 0 {
            return self.damage();
        }
        Ok(())
    }

    fn plan_end(&mut self) {
        let after = self.rng.u64(1..400);
        match self.rng.u32(..10) {
            0..5 => self.disk.plan(Some(after), None),
            5..7 => {
                let error = if self.rng.bool() { libc::EIO } else { libc::ENOSPC };
                self.disk.plan(None, Some((after, error)));
            }
            _ => self.disk.plan(None, None),
        }
    }

    // ---- a life's beginning and end ----

    /// The process ends, and perhaps the power.
    fn end(&mut self, loses_power: bool) {
        self.note_starts_asked();
        self.disk.kill();
        self.doing = Doing::default();
        self.shared = None;
        if loses_power {
            self.cut_power();
        }
    }

    fn cut_power(&mut self) {
        let seed = self.rng.u64(..);
        let keep = [0.1, 0.5, 0.9][self.rng.usize(..3)];
        let survive = match self.rng.u32(..6) {
            0 => Survive::Nothing,
            1 | 2 => Survive::Torn { seed },
            3 | 4 => Survive::Random { keep, seed },
            _ => Survive::Versions { keep, seed },
        };
        let names = self.rng.bool();
        self.disk.cut_power(survive, names);
        self.marks.note("power cut");
        self.has_lost_power = true;
    }

    /// Where partitions are about to begin, as far as the dying process knows.
    fn note_starts_asked(&mut self) {
        let Some(shared) = &self.shared else { return };
        let broker = shared.broker();
        for topic in broker.topics.iter() {
            for (index, &internal) in topic.partitions.iter().enumerate() {
                if let Some(partition) = broker.topics.partition(internal) {
                    let asked = self.starts_asked.entry((topic.id, index)).or_default();
                    *asked = (*asked).max(partition.deleted_before).max(partition.log_start);
                }
            }
        }
    }

    /// A process begins, with accidents of its own, until one comes through; then it is judged.
    fn begin(&mut self, lost_power: bool) -> Step {
        self.has_lost_power = lost_power;
        for attempt in 0.. {
            let (mut dies, mut fails) = (None, None);
            if attempt < 4 && self.rng.u32(..5) == 0 {
                let after = self.rng.u64(1..40);
                match self.rng.u32(..3) {
                    0 => fails = Some((after, [libc::EIO, libc::ENOSPC][self.rng.usize(..2)])),
                    _ => dies = Some(after),
                }
            }
            self.disk.begin(dies, fails);
            let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
            let events = events();
            let address = self.settings.listen;
            match assemble(self.settings.clone(), disk, events, address, Instant::now()) {
                Ok(shared) => {
                    self.disk.plan(None, None);
                    self.shared = Some(shared);
                    break;
                }
                Err(_) if self.disk.was_planned() => {
                    self.marks.note("recovery broken off");
                    self.disk.kill();
                    if self.rng.bool() {
                        self.cut_power();
                    }
                }
                Err(text) => return wrong(format!("the log refuses to begin: {text}")),
            }
        }
        self.judge()
    }

    fn shared(&self) -> &Shared {
        self.shared.as_ref().expect("the log runs")
    }

    /// Whether what is there is what was asked up to some point, and no less than what was acknowledged.
    fn judge(&mut self) -> Step {
        let seen = model::look(self.shared()).map_err(Stop::Wrong)?;
        if self.shared().metrics.damaged.get() > 0 {
            return wrong("damage is reported, and there is none".to_owned());
        }
        let is_async = self.durability == Durability::Async;
        let must = match is_async && self.has_lost_power {
            true => self.durable,
            false => self.acknowledged,
        };
        let mut state = self.floor.clone();
        let mut differences = Vec::new();
        let mut kept = None;
        for count in 0..=self.log.len() {
            if count > 0 {
                state.apply(&self.log[count - 1].op);
            }
            if count < must {
                continue;
            }
            match state.compare(&seen) {
                Ok(()) => {
                    kept = Some(count);
                    break;
                }
                Err(difference) => differences.push(difference),
            }
        }
        let Some(kept) = kept else {
            differences.dedup();
            return wrong(format!(
                "what is there is not what was asked up to any point from {must} of {} on: {}",
                self.log.len(),
                differences.join("; or ")
            ));
        };
        if kept < self.log.len() {
            self.marks.note("torn tail cut");
        }
        for issued in self.log.drain(kept..) {
            if let Op::Create { internal, .. } | Op::AddPartitions { internal, .. } = &issued.op {
                self.internal_ids.retain(|id| !internal.contains(id));
            }
            if let Op::ProducerId { id } = &issued.op {
                self.producer_ids.remove(id);
            }
        }
        self.acknowledged = kept;
        // Recovery has synced what it shows, where that was promised.
        self.durable = if is_async { self.durable.min(kept) } else { kept };
        for issued in self.log.drain(..self.durable) {
            self.floor.apply(&issued.op);
        }
        self.acknowledged -= self.durable;
        self.durable = 0;
        self.promised = state.clone();
        self.now = state;
        let is_forgiven = is_async && self.has_lost_power;
        self.judge_starts(&seen, is_forgiven)?;
        let tail = self.shared().committed.load(Ordering::Relaxed);
        self.boundaries.insert(tail);
        self.has_lost_power = false;
        for _ in 0..3 {
            if let Some((name, index)) = self.choose_partition() {
                self.find_time(&name, index)?;
            }
        }
        self.resend_some()
    }

    fn judge_starts(&mut self, seen: &Seen, is_forgiven: bool) -> Step {
        // A partition whose making was lost may be made again.
        let all = seen.topics.values();
        let there: BTreeSet<Place> = all
            .flat_map(|(id, partitions)| (0..partitions.len()).map(|index| (*id, index)))
            .collect();
        self.starts_seen.retain(|place, _| there.contains(place));
        for (name, (id, partitions)) in &seen.topics {
            for (index, partition) in partitions.iter().enumerate() {
                let place = (*id, index);
                let before = self.starts_seen.get(&place).copied().unwrap_or(0);
                let asked = self.starts_asked.get(&place).copied().unwrap_or(0);
                if partition.start < before && !is_forgiven {
                    return wrong(format!(
                        "{name}-{index} began at {before}, and begins at {} now",
                        partition.start
                    ));
                }
                if partition.start > asked {
                    return wrong(format!(
                        "{name}-{index} begins at {}, and nobody wanted more than {asked}",
                        partition.start
                    ));
                }
                self.starts_seen.insert(place, partition.start);
            }
        }
        Ok(())
    }

    /// Producers that do not know whether their last batch arrived send it again.
    fn resend_some(&mut self) -> Step {
        for _ in 0..3 {
            let Some((name, index)) = self.choose_partition() else {
                return Ok(());
            };
            let partition = &self.now.topics[&name].partitions[index];
            let known: BTreeSet<i64> = partition
                .batches
                .iter()
                .filter_map(|batch| Some(batch.producer?.0))
                .collect();
            if known.is_empty() {
                continue;
            }
            let chosen = known.iter().nth(self.rng.usize(..known.len())).copied();
            self.resend(&name, index, chosen.unwrap())?;
        }
        Ok(())
    }

    fn resend(&mut self, name: &str, index: usize, producer: i64) -> Step {
        let topic = &self.now.topics[name];
        let place = (topic.id, index);
        let batches = topic.partitions[index].batches.iter();
        let mut of = batches.filter(|batch| batch.producer.is_some_and(|(id, _)| id == producer));
        let Some(last) = of.next_back().cloned() else {
            return Ok(());
        };
        let batch = Batch {
            records: last.records as i32,
            producer: last.producer,
            timestamp_ms: self.clock_ms,
            payload: &model::mark(&place, last.number),
        };
        let answer = client::produce(self.shared(), name, index as i32, &batch.bytes());
        self.marks.note("batch sent again");
        match answer {
            Ok(answer) if answer.error == 0 && answer.number == last.base => Ok(()),
            Ok(answer) => wrong(format!(
                "producer {producer} sent its batch at offset {} of {name}-{index} again and was answered {answer:?}",
                last.base
            )),
            Err(Full) => Ok(()),
        }
    }

    // ---- steps ----

    fn step(&mut self) -> Step {
        match self.rng.u32(..100) {
            0..38 => self.produce(None),
            38..62 => self.commit(),
            62..70 => self.prepare(),
            70..76 => self.checkpoint(),
            76..81 => self.retain(),
            81..82 => self.expire(),
            82..86 => self.consume(),
            86..88 => self.list(),
            88..91 => self.create(),
            91 if self.rng.bool() => self.configure(),
            91 => self.add_partitions(),
            92..94 => self.delete(),
            94..96 => self.delete_records(),
            96..98 => self.commit_offset(),
            98 if self.rng.bool() => self.delete_offset(),
            98 => self.delete_group(),
            _ => self.take_producer_id(),
        }
    }

    fn settle<T>(&self, done: io::Result<T>, what: &str) -> Result<T, Stop> {
        match done {
            Ok(done) => Ok(done),
            Err(_) if self.disk.was_planned() => Err(Stop::Died),
            Err(error) => wrong(format!(
                "{what} failed, and nothing was wrong with the disk: {error}"
            )),
        }
    }

    fn issue(&mut self, op: Op, position: u64) {
        self.now.apply(&op);
        self.log.push(Issued { op, position });
    }

    fn choose_partition(&mut self) -> Option<(String, usize)> {
        let total: usize = self.now.topics.values().map(|topic| topic.partitions.len()).sum();
        let mut chosen = self.rng.usize(..total.max(1));
        for (name, topic) in &self.now.topics {
            if chosen < topic.partitions.len() {
                return Some((name.clone(), chosen));
            }
            chosen -= topic.partitions.len();
        }
        None
    }

    fn produce(&mut self, producer: Option<i64>) -> Step {
        let Some((name, index)) = self.choose_partition() else {
            return self.create();
        };
        let producer = match producer {
            None if self.rng.u32(..4) == 0 && !self.producers.is_empty() => {
                Some(self.producers[self.rng.usize(..self.producers.len())])
            }
            producer => producer,
        };
        if let Some(id) = producer
            && self.rng.u32(..8) == 0
        {
            return self.resend(&name, index, id);
        }
        self.produce_to(&name, index, producer)
    }

    fn payload(&mut self, place: &Place, number: u64) -> Vec<u8> {
        let mut payload = model::mark(place, number);
        let bytes = match self.rng.u32(..8) {
            0 => self.rng.usize(..PAYLOAD_BYTES_MAX),
            // Entries that fill blocks exactly.
            1 => (4096usize - entry::HEADER_BYTES - gauge_log::batch::HEADER_BYTES)
                .saturating_sub(self.rng.usize(..32)),
            2 => self.rng.usize(..3000),
            _ => self.rng.usize(..300),
        };
        let bytes = bytes.max(MARK_BYTES);
        match self.rng.u32(..4) {
            // Looks like the journal's own entries, of another place.
            0 => {
                let inner = Batch {
                    records: 1,
                    producer: None,
                    timestamp_ms: self.clock_ms,
                    payload: &model::mark(&([9; 16], 9), 9),
                };
                let inner = inner.bytes();
                let header = entry::Header {
                    position: 1 << 40,
                    partition: self.internal_ids.first().copied().unwrap_or(0),
                    payload_bytes: inner.len() as u32,
                    group_bytes: 0,
                    kind: entry::Kind::Batch,
                    chunk_start: false,
                    synced: true,
                    gap_bytes: 0,
                    counts: entry::Counts::default(),
                };
                // Behind the entry's header, the batch's header and the mark it begins at a multiple of 8.
                let before = entry::HEADER_BYTES + gauge_log::batch::HEADER_BYTES + payload.len();
                payload.resize(payload.len() + (before.next_multiple_of(8) - before), 0);
                while payload.len() + 200 < bytes {
                    payload.extend(entry::encode(&header, &inner));
                    payload.extend(&inner);
                    payload.resize(payload.len() + 3, 0);
                }
            }
            1 => payload.resize(bytes, 0),
            _ => payload.resize(bytes, number as u8 | 1),
        }
        payload
    }

    fn produce_to(&mut self, name: &str, index: usize, producer: Option<i64>) -> Step {
        let topic = &self.now.topics[name];
        let place = (topic.id, index);
        let partition = &topic.partitions[index];
        let base = partition.next;
        let sequence = producer.map(|id| {
            let mut batches = partition.batches.iter().rev();
            let last = batches.find(|batch| batch.producer.is_some_and(|(of, _)| of == id));
            last.map_or(0, |batch| {
                batch.producer.map_or(0, |(_, first)| first) + batch.records as i32
            })
        });
        self.next_number += 1;
        let number = self.next_number;
        let producer = producer.zip(sequence);
        let records = self.rng.i32(1..5);
        let payload = self.payload(&place, number);
        let batch = Batch {
            records,
            producer,
            // Time goes backwards now and then.
            timestamp_ms: self.clock_ms - self.rng.i64(0..2_000) * i64::from(self.rng.u32(..4) == 0),
            payload: &payload,
        };
        let from = self.shared().broker().journal.end();
        let answer = match client::produce(self.shared(), name, index as i32, &batch.bytes()) {
            Ok(answer) => answer,
            Err(Full) => return self.commit(),
        };
        let to = self.shared().broker().journal.end();
        if answer.error != 0 || answer.number != base {
            return wrong(format!(
                "a batch for {name}-{index} by {producer:?} was answered {answer:?}, and its offset is {base}"
            ));
        }
        let stored = Stored {
            base,
            records: i64::from(records),
            number,
            producer,
            timestamp_ms: batch.timestamp_ms,
            range: (from, to),
        };
        self.issue(
            Op::Append {
                name: name.to_owned(),
                partition: index,
                stored,
            },
            answer.position,
        );
        Ok(())
    }

    /// More producers than a partition used to remember.
    fn crowd(&mut self) -> Step {
        self.create()?;
        for _ in 0..CROWD {
            self.take_producer_id()?;
        }
        self.commit()?;
        let Some((name, index)) = self.choose_partition() else {
            return Ok(());
        };
        for id in self.producers.clone() {
            self.produce_to(&name, index, Some(id))?;
            if self.rng.u32(..8) == 0 {
                self.commit()?;
            }
        }
        self.marks.note("a hundred producers");
        for id in self.producers.clone() {
            self.resend(&name, index, id)?;
        }
        Ok(())
    }

    /// Begins a commit or ends it; between the two others may append.
    fn commit(&mut self) -> Step {
        let commit = match self.doing.commit.take() {
            Some(commit) => Some(commit),
            None => {
                let begun = Commit::begin(self.shared());
                self.settle(begun, "beginning a commit")?
            }
        };
        let Some(commit) = commit else {
            return Ok(());
        };
        if self.rng.u32(..3) == 0 {
            self.doing.commit = Some(commit);
            for _ in 0..self.rng.usize(..4) {
                // Not again from within a commit: there is only one at a time.
                if self.produce_while_committing()? {
                    break;
                }
            }
            return Ok(());
        }
        let finished = commit.finish(self.shared(), None);
        // Also of one that failed: what is shown as committed is acknowledged.
        self.note_acknowledged();
        if finished.is_err() && !self.disk.is_dead() {
            self.go_on_after_failure()?;
        }
        self.settle(finished, "a commit")
    }

    fn produce_while_committing(&mut self) -> Result<bool, Stop> {
        let Some((name, index)) = self.choose_partition() else {
            return Ok(true);
        };
        // Room for it there is only with luck; a second commit must not begin.
        let room = self.shared().broker().journal.reserve(PAYLOAD_BYTES_MAX + 200, 1);
        if room.is_err() {
            return Ok(true);
        }
        self.marks.note("appended during a commit");
        self.produce_to(&name, index, None)?;
        Ok(false)
    }

    /// Between a failure and the end of the process other threads go on.
    fn go_on_after_failure(&mut self) -> Step {
        self.marks.note("commit failed");
        for _ in 0..3 {
            self.produce_while_committing()?;
            if let Ok(Some(commit)) = Commit::begin(self.shared())
                && commit.finish(self.shared(), None).is_ok()
            {
                self.note_acknowledged();
            }
        }
        Ok(())
    }

    fn note_acknowledged(&mut self) {
        let committed = self.shared().committed.load(Ordering::Relaxed);
        self.boundaries.insert(committed);
        while let Some(issued) = self.log.get(self.acknowledged)
            && issued.position <= committed
        {
            self.promised.apply(&issued.op);
            if let Op::ProducerId { id } = issued.op {
                self.producer_ids.insert(id);
            }
            self.acknowledged += 1;
        }
        if self.durability == Durability::Fsync {
            self.durable = self.acknowledged;
        }
    }

    fn prepare(&mut self) -> Step {
        if self.doing.preparation.is_none() {
            if !self.shared().broker().journal.wants_segment() {
                return Ok(());
            }
            let begun = Preparation::begin(self.shared());
            self.doing.preparation = Some(self.settle(begun, "making a segment")?);
        }
        for _ in 0..self.rng.usize(1..6) {
            let Some(mut preparation) = self.doing.preparation.take() else {
                return Ok(());
            };
            let stepped = preparation.step(self.shared());
            if self.settle(stepped, "writing zeroes")? {
                self.doing.preparation = Some(preparation);
            } else {
                self.shared().broker().journal.offer_segment(preparation.segment);
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Step {
        if self.doing.checkpoint.is_none() {
            if !self
                .shared()
                .broker()
                .journal
                .rolled
                .swap(false, Ordering::AcqRel)
            {
                return Ok(());
            }
            self.marks.note("segment begun");
            self.doing.checkpoint = Some(Checkpoint::begin(self.shared()));
        }
        let committed = self.shared().committed.load(Ordering::Relaxed);
        let Some(checkpoint) = self
            .doing
            .checkpoint
            .take_if(|checkpoint| checkpoint.position <= committed)
        else {
            return Ok(());
        };
        let position = checkpoint.position;
        let finished = checkpoint.finish(self.shared());
        self.settle(finished, "writing a state")?;
        self.marks.note("state written");
        let durable = self.log.iter().take_while(|issued| issued.position <= position);
        self.durable = self.durable.max(durable.count());
        Ok(())
    }

    fn retain(&mut self) -> Step {
        if self.doing.deletion.is_none() {
            let begun = Deletion::begin(self.shared());
            self.doing.deletion = self.settle(begun, "looking for old segments")?;
        }
        let committed = self.shared().committed.load(Ordering::Relaxed);
        let Some(deletion) = self
            .doing
            .deletion
            .take_if(|deletion| deletion.position <= committed)
        else {
            return Ok(());
        };
        let finished = deletion.finish(self.shared());
        self.settle(finished, "deleting a segment")?;
        self.marks.note("segment deleted");
        Ok(())
    }

    fn expire(&mut self) -> Step {
        self.clock_ms += self.rng.i64(0..4000);
        maintain::expire_topics(self.shared(), self.clock_ms);
        Ok(())
    }

    fn consume(&mut self) -> Step {
        let Some((name, index)) = self.choose_partition() else {
            return Ok(());
        };
        let place = (self.now.topics[&name].id, index);
        let (internal, start, end) = {
            let broker = self.shared().broker();
            let internal = broker.topics.partition_id(&name, index as i32);
            let partition = internal.and_then(|internal| broker.topics.partition(internal));
            match (internal, partition) {
                (Some(internal), Some(partition)) => {
                    (internal, partition.log_start, partition.high_watermark)
                }
                _ => return wrong(format!("{name}-{index} is gone")),
            }
        };
        let promised = self.promised.partition(&place);
        let promised_end = promised.map_or(0, |partition| partition.next);
        if end != promised_end {
            return wrong(format!(
                "readers of {name}-{index} may read to {end}, and {promised_end} is acknowledged"
            ));
        }
        if start >= end {
            return Ok(());
        }
        let from = self.rng.i64(start..end);
        let found = match model::read(self.shared(), internal, &place, from) {
            Err(_) if self.disk.was_planned() => return Err(Stop::Died),
            found => found.map_err(Stop::Wrong)?,
        };
        let wanted: Vec<_> = promised.map_or(Vec::new(), |partition| partition.from(from).collect());
        if found != wanted {
            return wrong(format!(
                "{name}-{index} from {from}: {wanted:?} should be there, and {found:?} are"
            ));
        }
        self.marks.note("consumed");
        Ok(())
    }

    fn list(&mut self) -> Step {
        let Some((name, index)) = self.choose_partition() else {
            return Ok(());
        };
        let place = (self.now.topics[&name].id, index);
        let Ok(answer) = client::list_offset(self.shared(), &name, index as i32, -2) else {
            return Ok(());
        };
        let before = self.starts_seen.get(&place).copied().unwrap_or(0);
        if answer.error != 0 || answer.number < before {
            return wrong(format!("{name}-{index} began at {before}, and now: {answer:?}"));
        }
        self.starts_seen.insert(place, answer.number);
        self.find_time(&name, index)
    }

    /// Looks for a time of some record, for one near it, or for the newest record.
    fn find_time(&mut self, name: &str, index: usize) -> Step {
        let place = (self.now.topics[name].id, index);
        let Some(partition) = self.promised.partition(&place).cloned() else {
            return Ok(());
        };
        let known = partition.batches.len();
        let wanted = match self.rng.u32(..4) {
            0 => -3,
            _ if known == 0 => self.clock_ms,
            _ => partition.batches[self.rng.usize(..known)].timestamp_ms + self.rng.i64(-1..2),
        };
        let start = {
            let broker = self.shared().broker();
            let internal = broker.topics.partition_id(name, index as i32);
            let partition = internal.and_then(|internal| broker.topics.partition(internal));
            partition.map_or(0, |partition| partition.log_start)
        };
        let due = partition.find_time(start, partition.next, wanted);
        let found = match client::find_time(self.shared(), name, index as i32, wanted) {
            Err(_) if self.disk.was_planned() => return Err(Stop::Died),
            found => found.map_err(Stop::Wrong)?,
        };
        if found != due {
            return wrong(format!(
                "time {wanted} in {name}-{index}, which begins at {start}: (timestamp, offset) {due:?} is right, and {found:?} is answered"
            ));
        }
        self.marks.note(match found {
            (-1, -1) => "no such time",
            _ => "time found",
        });
        Ok(())
    }

    /// Whether a request was answered without error.
    fn check(answer: Answer, what: &str) -> Step {
        match answer.error {
            0 => Ok(()),
            _ => wrong(format!("{what} was answered {answer:?}")),
        }
    }

    fn take_internal(&mut self, internal: &[u32]) -> Step {
        for &id in internal {
            if !self.internal_ids.insert(id) {
                return wrong(format!("the partition id {id} is used again"));
            }
        }
        Ok(())
    }

    fn create(&mut self) -> Step {
        let name = TOPICS[self.rng.usize(..TOPICS.len())];
        if self.now.topics.contains_key(name) {
            return Ok(());
        }
        let retention_ms = (self.rng.u32(..4) == 0).then(|| self.rng.i64(1000..10_000));
        let partitions = self.rng.i32(1..4);
        let Ok(answer) = client::create(self.shared(), name, partitions, retention_ms) else {
            return self.commit();
        };
        Self::check(answer, "creating a topic")?;
        let (id, internal) = {
            let broker = self.shared().broker();
            let topic = broker.topics.get(name).expect("it was just made");
            (topic.id, topic.partitions.clone())
        };
        self.take_internal(&internal)?;
        let name = name.to_owned();
        let op = Op::Create {
            name,
            id,
            internal,
            retention_ms,
        };
        self.issue(op, answer.position);
        Ok(())
    }

    fn add_partitions(&mut self) -> Step {
        let Some((name, _)) = self.choose_partition() else {
            return Ok(());
        };
        let have = self.now.topics[&name].partitions.len();
        if have > 5 {
            return Ok(());
        }
        let Ok(answer) = client::add_partitions(self.shared(), &name, have as i32 + 1) else {
            return self.commit();
        };
        Self::check(answer, "adding a partition")?;
        let internal = {
            let broker = self.shared().broker();
            broker
                .topics
                .get(&name)
                .map_or(Vec::new(), |topic| topic.partitions[have..].to_vec())
        };
        self.take_internal(&internal)?;
        self.issue(Op::AddPartitions { name, internal }, answer.position);
        Ok(())
    }

    fn configure(&mut self) -> Step {
        let Some((name, _)) = self.choose_partition() else {
            return Ok(());
        };
        let retention_ms = self.rng.bool().then(|| self.rng.i64(1000..10_000));
        let Ok(answer) = client::configure(self.shared(), &name, retention_ms) else {
            return self.commit();
        };
        Self::check(answer, "changing a setting")?;
        self.issue(Op::Configure { name, retention_ms }, answer.position);
        Ok(())
    }

    fn delete(&mut self) -> Step {
        let Some((name, _)) = self.choose_partition() else {
            return Ok(());
        };
        // It comes back if the process dies before that is committed.
        self.note_starts_asked();
        let Ok(answer) = client::delete(self.shared(), &name) else {
            return self.commit();
        };
        Self::check(answer, "deleting a topic")?;
        self.issue(Op::Delete { name }, answer.position);
        Ok(())
    }

    fn delete_records(&mut self) -> Step {
        let Some((name, index)) = self.choose_partition() else {
            return Ok(());
        };
        let place = (self.now.topics[&name].id, index);
        let end = self
            .promised
            .partition(&place)
            .map_or(0, |partition| partition.next);
        let start = self.rng.i64(0..=end);
        let Ok(answer) = client::delete_records(self.shared(), &name, index as i32, start) else {
            return self.commit();
        };
        Self::check(answer, "deleting records")?;
        let asked = self.starts_asked.entry(place).or_default();
        *asked = (*asked).max(start);
        // Where the partition begins later already, nothing is written.
        if answer.position > 0 {
            let op = Op::DeleteRecords {
                name,
                partition: index,
                start,
            };
            self.issue(op, answer.position);
        }
        Ok(())
    }

    fn commit_offset(&mut self) -> Step {
        let Some((name, index)) = self.choose_partition() else {
            return Ok(());
        };
        let group = GROUPS[self.rng.usize(..GROUPS.len())];
        let offset = self.rng.i64(..1000);
        let Ok(answer) = client::commit_offset(self.shared(), group, &name, index as i32, offset) else {
            return self.commit();
        };
        Self::check(answer, "committing an offset")?;
        let op = Op::CommitOffset {
            group: group.to_owned(),
            name,
            partition: index as i32,
            offset,
        };
        self.issue(op, answer.position);
        Ok(())
    }

    fn delete_offset(&mut self) -> Step {
        let known = self.now.offsets.len();
        let chosen = self.rng.usize(..known.max(1));
        let Some((group, name, partition)) = self.now.offsets.keys().nth(chosen).cloned() else {
            return Ok(());
        };
        let Ok(answer) = client::delete_offset(self.shared(), &group, &name, partition) else {
            return self.commit();
        };
        Self::check(answer, "deleting an offset")?;
        let op = Op::DeleteOffset {
            group,
            name,
            partition,
        };
        self.issue(op, answer.position);
        Ok(())
    }

    fn delete_group(&mut self) -> Step {
        let group = GROUPS[self.rng.usize(..GROUPS.len())];
        if !self.now.offsets.keys().any(|(of, ..)| of == group) {
            return Ok(());
        }
        let Ok(answer) = client::delete_group(self.shared(), group) else {
            return self.commit();
        };
        Self::check(answer, "deleting a group")?;
        let group = group.to_owned();
        self.issue(Op::DeleteGroup { group }, answer.position);
        Ok(())
    }

    fn take_producer_id(&mut self) -> Step {
        let Ok(answer) = client::producer_id(self.shared()) else {
            return self.commit();
        };
        Self::check(answer, "taking a producer id")?;
        let id = answer.number;
        if self.producer_ids.contains(&id) {
            return wrong(format!("the producer id {id} is given out again"));
        }
        self.producers.push(id);
        self.issue(Op::ProducerId { id }, answer.position);
        Ok(())
    }

    // ---- damage ----

    /// Something that had been promised is lost on the device: what is left must be right, and what is lost must be said.
    fn damage(&mut self) -> Step {
        self.disk.plan(None, None);
        for _ in 0..self.rng.usize(..40) {
            self.step()?;
        }
        while self.doing.commit.is_some() || self.shared().broker().journal.has_pending() {
            self.commit()?;
        }
        let last_end = self.shared().broker().journal.last_end();
        let first_base = self.shared().broker().journal.segments[0].base;
        self.end(true);
        self.begin(true)?;
        self.end(false);
        let names = self.disk.names();
        let mut names: Vec<String> = names
            .into_iter()
            .filter(|name| {
                let is_log = base_of(name, "log").is_some();
                let is_other = base_of(name, "index").is_some() || base_of(name, "state").is_some();
                is_log || is_other
            })
            .collect();
        names.sort();
        let logs: Vec<String> = names
            .iter()
            .filter(|name| name.ends_with(".log"))
            .cloned()
            .collect();
        let others: Vec<String> = names
            .iter()
            .filter(|name| !name.ends_with(".log"))
            .cloned()
            .collect();
        let name = match self.rng.u32(..8) {
            0 if !others.is_empty() => others[self.rng.usize(..others.len())].clone(),
            _ => logs[self.rng.usize(..logs.len())].clone(),
        };
        let base = base_of(&name, "log");
        let bytes = self.disk.content(&name).unwrap_or_default();
        let used = match base {
            Some(base) => (last_end.saturating_sub(base) as usize).min(bytes.len()),
            None => bytes.len(),
        };
        if used == 0 || last_end <= first_base {
            return Ok(());
        }
        let at = self.rng.usize(..used);
        let (from, lost) = match self.rng.u32(..4) {
            0 => (at, vec![bytes[at] ^ (1 << self.rng.u32(..8))]),
            1 => {
                let from = at / 512 * 512;
                (from, vec![0; 512.min(bytes.len() - from)])
            }
            _ => {
                let from = at / 4096 * 4096;
                (from, vec![0; 4096.min(bytes.len() - from)])
            }
        };
        if bytes[from..from + lost.len()] == lost[..] {
            return Ok(());
        }
        self.disk.corrupt(&name, from as u64, &lost);
        self.marks.note("damage");
        let range = base.map(|base| (base + from as u64, base + (from + lost.len()) as u64));
        self.judge_damage(&name, range, last_end)
    }

    fn judge_damage(&mut self, name: &str, range: Option<(u64, u64)>, last_end: u64) -> Step {
        self.disk.begin(None, None);
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let begun = assemble(
            self.settings.clone(),
            disk,
            events(),
            self.settings.listen,
            Instant::now(),
        );
        let shared = match begun {
            Ok(shared) => shared,
            // Whatever is named may be the reason; nothing but what is damaged may be named.
            Err(text) if range.is_some() && (text.contains(name) || text.contains("ends at byte")) => {
                self.marks.note("damage refused");
                return Ok(());
            }
            Err(text) if text.contains("no usable state") && name.ends_with(".state") => return Ok(()),
            Err(text) => {
                return wrong(format!(
                    "{name} is damaged at {range:?}, and the log says: {text}"
                ));
            }
        };
        let seen = model::look(&shared).map_err(Stop::Wrong)?;
        let Some((from, to)) = range else {
            self.marks.note("shortcut damaged");
            return self.now.compare(&seen).map_err(|difference| {
                Stop::Wrong(format!("{name} is only a shortcut, and without it: {difference}"))
            });
        };
        // What the last commit held cannot be told from a commit that was torn.
        let last_commit = self
            .boundaries
            .range(..last_end)
            .next_back()
            .copied()
            .unwrap_or(0);
        let is_said = shared.metrics.damaged.get() > 0;
        if from >= last_commit || to > last_commit && from >= last_commit.saturating_sub(4096) {
            self.marks.note("last commit damaged");
            return Ok(());
        }
        let end = shared.broker().journal.last_end();
        if end < last_commit {
            return wrong(format!(
                "bytes {from} to {to} of the journal were lost, and all of it from {end} to {last_end} was cut"
            ));
        }
        for (topic, (id, partitions)) in &seen.topics {
            for (index, seen) in partitions.iter().enumerate() {
                let Some(model) = self.now.partition(&(*id, index)) else {
                    return wrong(format!("{topic}-{index} should not be there"));
                };
                for batch in &model.batches {
                    let is_seen = seen.batches.contains(&(batch.base, batch.records, batch.number));
                    let is_hit = batch.range.0 < to && batch.range.1 > from;
                    let is_due = batch.base + batch.records > seen.start;
                    if is_due && !is_seen && !is_hit {
                        return wrong(format!(
                            "bytes {from} to {to} of the journal were lost, and with them offset {} of {topic}-{index}, which was elsewhere ({:?})",
                            batch.base, batch.range
                        ));
                    }
                    if is_due && !is_seen && !is_said {
                        return wrong(format!(
                            "bytes {from} to {to} of the journal were lost, with offset {} of {topic}-{index}, and nobody was told",
                            batch.base
                        ));
                    }
                }
                if seen.end != model.next {
                    return wrong(format!(
                        "{topic}-{index} ends at {} and should at {}",
                        seen.end, model.next
                    ));
                }
            }
        }
        let there: Vec<&String> = seen.topics.keys().collect();
        let wanted: Vec<&String> = self.now.topics.keys().collect();
        if there != wanted || seen.offsets != self.now.offsets {
            return wrong(format!(
                "bytes {from} to {to} of the journal were lost, and the log begins without saying that topics or offsets are"
            ));
        }
        self.marks.note("damage survived");
        Ok(())
    }
}
