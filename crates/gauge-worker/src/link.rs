//! What a lane and the trial's supervisor say to each other.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::Sender;

use gauge_client::{ClientError, Waker};
use gauge_load::{Books, Clocks, Counters, Tally};

/// What the supervisor tells a lane.
#[derive(Debug)]
pub enum Command {
    /// Send the readiness probes.
    Probe,
    /// The schedule's offset 0 is at this time.
    Start {
        /// The start.
        start_ns: i64,
        /// Beginnings of the phases.
        phases: Arc<[i64]>,
    },
    /// From `at_ns` on, each producer's rate is this.
    Rate {
        /// Time of the clock.
        at_ns: i64,
        /// Of one producer.
        rate_msgs_s: f64,
    },
    /// Replaces the phases.
    Phases(Arc<[i64]>),
    /// Replaces what is known of other workers' clocks.
    Clocks(Arc<Clocks>),
    /// No message is due at this time of the clock or later.
    Stop(i64),
    /// Pauses or resumes a subscription.
    Pause(usize, bool),
    /// Send the counters so far.
    Report(Sender<Report>),
    /// From this time of the clock on, send what is open without lingering, and keep [`Progress`] up to date.
    Drain(i64),
    /// Give up on what is still waiting, hand the books over, end.
    End,
}

/// A lane's counters so far.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Since the start.
    pub counters: Counters,
    /// Messages without an end, now.
    pub waiting_msgs: u64,
}

/// What a lane tells the supervisor.
#[derive(Debug)]
pub enum LaneEvent {
    /// Connected and positioned.
    Prepared(Waker),
    /// The intervals `first` to `last` are over.
    Interval(Box<LaneInterval>),
    /// The thread is ending. It says nothing after this.
    Ended(Result<Box<LaneEnd>, ClientError>),
}

/// A lane's view of some intervals: usually one. When the lane could not hand over in time, what it saw is in the first.
#[derive(Debug)]
pub struct LaneInterval {
    /// Index of the first.
    pub first: u64,
    /// Index of the last.
    pub last: u64,
    /// What was seen.
    pub tally: Tally,
    /// When it was swapped out.
    pub until_ns: i64,
    /// Messages without an end at that time.
    pub waiting_msgs: u64,
    /// CPU time of the lane so far.
    pub lane_cpu_ns: i64,
    /// CPU time of the process so far; from one lane only.
    pub process_cpu_ns: Option<i64>,
}

/// What a lane leaves behind.
#[derive(Debug)]
pub struct LaneEnd {
    /// Its books.
    pub books: Books,
    /// Messages that were due and never taken, because the client had no room to the end.
    pub untaken_msgs: u64,
}

/// What can be seen of a lane from outside while it runs. The lane writes, others read; nothing is decided by one value alone.
#[derive(Debug)]
pub struct Progress {
    /// Partitions whose position is fixed.
    pub assigned: AtomicU64,
    /// Partitions through which a probe came back.
    pub proven: AtomicU64,
    /// The probes were sent.
    pub probed: AtomicBool,
    /// Probes without an acknowledgement; meaningless before they were sent.
    pub probes_waiting: AtomicU64,
    /// The producers have nothing due any more.
    pub schedule_over: AtomicBool,
    /// Messages without an end.
    pub waiting_msgs: AtomicU64,
    /// Messages acknowledged or failed.
    pub ended_msgs: AtomicU64,
    /// Messages acknowledged.
    pub acked_msgs: AtomicU64,
    /// Batches sent again, of which there may be two.
    pub retries: AtomicU64,
    /// Messages received, per subscription.
    pub received_msgs: Vec<AtomicU64>,
    /// Different messages received, per subscription.
    pub unique_msgs: Vec<AtomicU64>,
    /// The consumers have read to the end, per subscription.
    pub caught_up: Vec<AtomicBool>,
    /// CPU time of the lane.
    pub cpu_ns: AtomicU64,
    /// The lane has seen the `Drain` command: the values above are kept up to date.
    pub draining: AtomicBool,
    /// How the kernel schedules it.
    pub scheduling: Mutex<String>,
}

impl Progress {
    /// Nothing seen yet.
    pub fn new(subscriptions: usize) -> Progress {
        let numbers = || (0..subscriptions).map(|_| AtomicU64::new(0)).collect();
        Progress {
            assigned: AtomicU64::new(0),
            proven: AtomicU64::new(0),
            probed: AtomicBool::new(false),
            probes_waiting: AtomicU64::new(0),
            schedule_over: AtomicBool::new(false),
            waiting_msgs: AtomicU64::new(0),
            ended_msgs: AtomicU64::new(0),
            acked_msgs: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            received_msgs: numbers(),
            unique_msgs: numbers(),
            caught_up: (0..subscriptions).map(|_| AtomicBool::new(false)).collect(),
            cpu_ns: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            scheduling: Mutex::new("normal".to_owned()),
        }
    }

    /// The scheduling, in words.
    pub fn scheduling(&self) -> String {
        match self.scheduling.lock() {
            Ok(text) => text.clone(),
            // The text is replaced whole, so it is right even if its writer panicked.
            Err(poisoned) => poisoned.into_inner().clone(),
        }
    }

    /// Replaces it.
    pub fn set_scheduling(&self, text: &str) {
        match self.scheduling.lock() {
            Ok(mut held) => text.clone_into(&mut held),
            Err(poisoned) => text.clone_into(&mut poisoned.into_inner()),
        }
    }
}
