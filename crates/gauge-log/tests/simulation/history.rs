//! One history: a log that is used, dies, and comes back, again and again, all of it decided by one number.

mod consume;
mod damage;
mod judge;
mod produce;
mod requests;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use gauge_log::access::Access;
use gauge_log::commit::Commit;
use gauge_log::events::Events;
use gauge_log::maintain::{Checkpoint, Deletion};
use gauge_log::prepare::Preparation;
use gauge_log::settings::Settings;
use gauge_log::shared::Shared;
use gauge_log::start::assemble;
use gauge_log::storage::disk::Disk;
use gauge_log::storage::segment::Durability;
use gauge_powercut::disk::Metadata;
use gauge_powercut::survive::Survive;

use crate::disk::Simulated;
use crate::model::{Op, Place, State};

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
}
