//! A trial whose supervisor and lane share one thread, for a simulated world (`gauge-sim`): the trial's own code, of which the world decides
//! when it has its turn. Questions are asked and answered between turns, as the API does it by queues.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};

use axum::body::Bytes;
use gauge_client::Protocol;
use gauge_load::quiet::{Board, Window};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::books;
use crate::disturbance::Evidence;
use crate::handle::{Ask, Begin, Event, Handle, Reply, State};
use crate::lane::{self, LaneContext};
use crate::plan;
use crate::probes::Seen;
use crate::request;
use crate::trial::{Cast, Supervisor};

/// Who leads a simulated trial: its supervisor, and what the API would ask it.
pub struct Trial {
    supervisor: Supervisor,
    inbox: Receiver<Event>,
    handle: Handle,
    probes: Option<SimulatedProbes>,
    finish: Option<oneshot::Receiver<Result<Arc<Value>, crate::error::ApiError>>>,
}

/// Where a trial is that has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It connects.
    Preparing,
    /// It can be started.
    Ready,
    /// It runs or drains.
    Running,
    /// Its result is there.
    Finished,
}

/// The trial's only lane.
pub struct Lane(LaneContext);

impl Lane {
    /// What the lane's thread does: returns when the lane has ended.
    pub fn run(self) {
        lane::run(self.0);
    }
}

/// Probes whose wake-ups a world makes up.
#[derive(Debug)]
pub struct SimulatedProbes {
    board: Arc<Board>,
    seen: Seen,
}

impl SimulatedProbes {
    /// The probe of the first CPU has woken up late. Windows come in their order.
    pub fn window(&self, window: &Window) {
        self.board.window(window);
        self.seen.lock().window(*window, Evidence::default());
    }

    /// All have looked, and up to then there is no window but those that were written.
    pub fn looked(&self, until_ns: i64) {
        (0..self.board.cpus()).for_each(|seat| self.board.looked(seat, until_ns));
        self.seen.lock().settle(until_ns);
    }
}

/// The audit of the books of several workers, by a request as of `/v1/judge`.
///
/// # Errors
/// What the API would answer.
pub fn judge(body: &Value) -> Result<Value, String> {
    let request = request::parse(&Bytes::from(body.to_string()));
    request.and_then(books::judge).map_err(|error| error.message)
}

impl Trial {
    /// A trial of one lane by a request as of docs/worker-api.md.
    ///
    /// # Errors
    /// What the API would answer; and when the request makes more than one lane.
    pub fn new(body: &Value, protocol: &Arc<dyn Protocol>) -> Result<(Trial, Lane), String> {
        let body = Bytes::from(body.to_string());
        let request: request::Trial = request::parse(&body).map_err(|error| error.message)?;
        let plan = plan::plan(&request, 2).map_err(|error| error.message)?;
        let mut cast = Cast::of(1, plan, protocol).map_err(|error| error.message)?;
        let probes = cast.supervisor.leave_probing();
        let Ok([lane]) = <[LaneContext; 1]>::try_from(cast.lanes) else {
            return Err(
                "a simulated trial has one lane: expected lanes of 1 producer and 0 consumers".to_owned(),
            );
        };
        let trial = Trial {
            supervisor: cast.supervisor,
            inbox: cast.inbox,
            handle: cast.handle,
            probes: probes.map(|(board, seen)| SimulatedProbes { board, seen }),
            finish: None,
        };
        Ok((trial, Lane(lane)))
    }

    /// Its probes, if the request asks for some: what they see is the world's to say.
    pub fn probes(&mut self) -> Option<SimulatedProbes> {
        self.probes.take()
    }

    /// The supervisor deals with what has come, and with the time that has passed. Returns for how long it would sleep now.
    pub fn turn(&mut self) -> i64 {
        loop {
            match self.inbox.try_recv() {
                Ok(event) => {
                    self.supervisor.turn(Ok(event));
                }
                Err(TryRecvError::Empty) => {
                    self.supervisor.turn(Err(RecvTimeoutError::Timeout));
                    return self.supervisor.rest().as_nanos() as i64;
                }
                Err(TryRecvError::Disconnected) => return i64::MAX,
            }
        }
    }

    fn ask<T>(&mut self, ask: impl FnOnce(Reply<T>) -> Ask) -> Result<T, String> {
        let mut answer = self.handle.begin(ask).map_err(|error| error.message)?;
        self.turn();
        match answer.try_recv() {
            Ok(told) => told.map_err(|error| error.message),
            Err(_) => Err("the supervisor did not answer".to_owned()),
        }
    }

    /// Where it is.
    ///
    /// # Errors
    /// Why it failed or was given up; and when the supervisor does not answer.
    pub fn stage(&mut self) -> Result<Stage, String> {
        let status = self.ask(Ask::Status)?;
        match status.state {
            State::Preparing => Ok(Stage::Preparing),
            State::Ready => Ok(Stage::Ready),
            State::Running | State::Draining => Ok(Stage::Running),
            State::Finished => Ok(Stage::Finished),
            State::Failed | State::Aborted => Err(status.error.unwrap_or_default()),
        }
    }

    /// Begins the schedule after so long; returns the start, by the clock.
    ///
    /// # Errors
    /// What the API would answer.
    pub fn start(&mut self, delay_ns: i64) -> Result<i64, String> {
        let status = self.ask(|reply| Ask::Start(Begin::In(delay_ns), reply))?;
        status.start_ns.ok_or_else(|| "it has no start".to_owned())
    }

    /// Another rate of all producers together.
    ///
    /// # Errors
    /// What the API would answer.
    pub fn set_rate(&mut self, rate_msgs_s: f64) -> Result<(), String> {
        self.ask(|reply| Ask::Rate(rate_msgs_s, reply)).map(drop)
    }

    /// Pauses or resumes a subscription.
    ///
    /// # Errors
    /// What the API would answer.
    pub fn pause(&mut self, subscription: &str, paused: bool) -> Result<(), String> {
        self.ask(|reply| Ask::Pause(subscription.to_owned(), paused, reply))
            .map(drop)
    }

    /// Ends the schedule and begins to drain.
    ///
    /// # Errors
    /// What the API would answer.
    pub fn finish(&mut self, drain_ns: i64, quiet_ns: i64) -> Result<(), String> {
        let ask = |reply| Ask::Finish(drain_ns, quiet_ns, reply);
        self.finish = Some(self.handle.begin(ask).map_err(|error| error.message)?);
        self.turn();
        Ok(())
    }

    /// The result, once it is there; what went wrong, if it will not come.
    pub fn result(&mut self) -> Option<Result<Arc<Value>, String>> {
        let told = self.finish.as_mut()?.try_recv();
        match told {
            Ok(result) => Some(result.map_err(|error| error.message)),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(Err("the supervisor is gone".to_owned())),
        }
    }

    /// The complete intervals, as the API tells them.
    ///
    /// # Errors
    /// What the API would answer.
    pub fn intervals(&mut self) -> Result<Vec<Value>, String> {
        let (_, intervals) = self.ask(|reply| Ask::Intervals(0, usize::MAX, reply))?;
        let values = intervals.iter().map(|interval| serde_json::to_value(&**interval));
        values
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())
    }
}
