//! How the API talks to a trial: what can be asked, and what is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;

use gauge_load::Clocks;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::collector::{CountersOut, Interval};
use crate::error::ApiError;
use crate::link::LaneEvent;
use crate::plan::PhasePlan;
use crate::probes::ProbesStatus;

/// Where the answer to a request goes.
pub type Reply<T> = oneshot::Sender<Result<T, ApiError>>;

/// What comes to the supervisor.
pub enum Event {
    /// From a lane.
    Lane(usize, LaneEvent),
    /// From the API.
    Ask(Ask),
}

/// When a schedule begins.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// After this many nanoseconds.
    In(i64),
    /// At this instant of the worker's clock.
    At(i64),
}

/// A request to the trial.
pub enum Ask {
    /// The status.
    Status(Reply<Status>),
    /// Begin the schedule.
    Start(Begin, Reply<Status>),
    /// A new rate of all producers together.
    Rate(f64, Reply<Status>),
    /// A new phase; without a time, with the next interval.
    Phase(String, Option<i64>, Reply<PhasePlan>),
    /// What is known of other workers' clocks.
    Clocks(Arc<Clocks>, Reply<Status>),
    /// End the schedule; without a time, at once.
    Stop(Option<i64>, Reply<Status>),
    /// Pause or resume a subscription.
    Pause(String, bool, Reply<Status>),
    /// Complete intervals: the first index, how many at most.
    Intervals(u64, usize, Reply<(u64, Vec<Arc<Interval>>)>),
    /// Totals so far.
    Counters(Reply<CountersOut>),
    /// Renew the lease.
    Lease(Reply<Status>),
    /// Drain for this long at most, while anything moved in this long; audit.
    Finish(i64, i64, Reply<Arc<Value>>),
    /// Stop at once.
    Abort(Reply<Status>),
    /// End the supervisor, if the trial has ended.
    Forget(Reply<()>),
}

/// Where a trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Connecting, positioning, proving.
    Preparing,
    /// Proven.
    Ready,
    /// The schedule has begun, or has its time.
    Running,
    /// Waiting for what is under way.
    Draining,
    /// Audited.
    Finished,
    /// The trial became pointless.
    Failed,
    /// Ended without an audit.
    Aborted,
}

impl State {
    /// Whether nothing will happen any more.
    pub fn is_over(self) -> bool {
        matches!(self, State::Finished | State::Failed | State::Aborted)
    }

    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            State::Preparing => "preparing",
            State::Ready => "ready",
            State::Running => "running",
            State::Draining => "draining",
            State::Finished => "finished",
            State::Failed => "failed",
            State::Aborted => "aborted",
        }
    }
}

/// The status of docs/worker-api.md.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub id: String,
    /// Where the trial is.
    pub state: State,
    pub error: Option<String>,
    pub readiness: Readiness,
    pub start_ns: Option<i64>,
    pub start_unix_ns: Option<i64>,
    pub elapsed_s: Option<f64>,
    pub next_interval: u64,
    pub audit_enabled: bool,
    pub client: &'static str,
    pub cannot: Vec<String>,
    pub lanes: Vec<LaneStatus>,
    /// None before the trial is ready, or if they were not asked for.
    pub probes: Option<ProbesStatus>,
    pub lease_s: f64,
}

/// How much of the trial is proven.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Readiness {
    pub partitions: u64,
    pub assigned: u64,
    pub proven: u64,
}

/// A lane, as the API shows it.
#[derive(Clone, Debug, Serialize)]
pub struct LaneStatus {
    pub name: String,
    pub role: &'static str,
    pub scheduling: String,
    pub cpu_s: f64,
}

/// A running trial, as the API holds it.
pub struct Handle {
    /// Its name in paths.
    pub id: String,
    /// The supervisor's queue.
    pub events: SyncSender<Event>,
    /// Set when the supervisor ends because the trial was forgotten.
    pub forgotten: Arc<AtomicBool>,
}

impl Handle {
    /// Asks the supervisor.
    ///
    /// # Errors
    /// What the supervisor answers; internal when it cannot answer.
    pub async fn ask<T>(&self, ask: impl FnOnce(Reply<T>) -> Ask) -> Result<T, ApiError> {
        self.begin(ask)?.await.map_err(|_| self.gone())?
    }

    /// What to say when there is no supervisor any more.
    pub fn gone(&self) -> ApiError {
        if self.forgotten.load(Ordering::Acquire) {
            return ApiError::not_found(format!("trial '{}' was forgotten", self.id));
        }
        ApiError::internal("the trial's supervisor has ended: delete the trial")
    }

    /// Asks the supervisor, and leaves it to the caller to wait.
    ///
    /// # Errors
    /// Not found when the trial was forgotten, internal when its supervisor cannot be asked.
    pub fn begin<T>(
        &self,
        ask: impl FnOnce(Reply<T>) -> Ask,
    ) -> Result<oneshot::Receiver<Result<T, ApiError>>, ApiError> {
        let (reply, answer) = oneshot::channel();
        match self.events.try_send(Event::Ask(ask(reply))) {
            Ok(()) => Ok(answer),
            Err(std::sync::mpsc::TrySendError::Full(_)) => Err(ApiError::conflict(
                "too many requests wait for the trial: try again",
            )),
            Err(std::sync::mpsc::TrySendError::Disconnected(_)) => Err(self.gone()),
        }
    }
}

/// Counts lanes that live, over all trials; some may outlive their trial while they wait for a system that does not answer.
#[derive(Clone, Debug, Default)]
pub struct LiveLanes(Arc<AtomicUsize>);

impl LiveLanes {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A lane that lives: counted until it is dropped.
pub struct LiveLane(LiveLanes);

impl LiveLane {
    /// One more.
    pub fn new(all: &LiveLanes) -> LiveLane {
        all.0.fetch_add(1, Ordering::Relaxed);
        LiveLane(all.clone())
    }
}

impl Drop for LiveLane {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The answer of `/phases`.
pub fn phase_out(phase: &PhasePlan) -> Value {
    json!({"name": phase.name, "from_s": phase.from_ns as f64 / 1e9})
}
