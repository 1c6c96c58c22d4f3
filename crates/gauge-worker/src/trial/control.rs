//! What a controller may change in a trial: start, rate, phases, stop, pause.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gauge_load::clock::{monotonic_ns, process_cpu_ns, unix_ns};

use super::Supervisor;
use crate::error::ApiError;
use crate::handle::{Begin, State, Status};
use crate::link::Command;
use crate::plan::PhasePlan;

/// The start lies at least this far ahead, so that every lane knows of it in time.
const START_DELAY_NS_MIN: i64 = 10_000_000;
/// And at most this far.
const START_DELAY_NS_MAX: i64 = 60_000_000_000;
/// A change of the rate or of the phases, or the end of the load, takes effect this far ahead, for the same reason.
const CHANGE_DELAY_NS: i64 = 10_000_000;
/// A phase without a time begins with the next interval that is at least this far away.
const PHASE_DELAY_NS: i64 = 200_000_000;

impl Supervisor {
    pub(super) fn start(&mut self, begin: Begin) -> Result<Status, ApiError> {
        if self.state != State::Ready {
            return Err(self.wrong_state("started", "that is ready"));
        }
        let now_ns = monotonic_ns();
        let start_ns = match begin {
            Begin::In(delay_ns) => now_ns + delay_ns.max(START_DELAY_NS_MIN),
            Begin::At(at_ns) if (START_DELAY_NS_MIN..=START_DELAY_NS_MAX).contains(&(at_ns - now_ns)) => {
                at_ns
            }
            Begin::At(at_ns) => {
                return Err(ApiError::conflict(format!(
                    "at_ns is {:.3} s away: expected an instant of this worker's CLOCK_MONOTONIC, 0.01 to 60 s from now",
                    at_ns.saturating_sub(now_ns) as f64 / 1e9
                )));
            }
        };
        self.start_unix_ns = Some(unix_ns() + (start_ns - monotonic_ns()));
        let lanes_cpu_ns: Vec<i64> = self
            .lanes
            .iter()
            .map(|lane| lane.progress.cpu_ns.load(Ordering::Relaxed).cast_signed())
            .collect();
        self.collector.start(start_ns, process_cpu_ns(), &lanes_cpu_ns);
        self.name_phases();
        let phases = self.phase_starts();
        self.tell_all(|| Command::Start {
            start_ns,
            phases: Arc::clone(&phases),
        });
        self.start_ns = Some(start_ns);
        self.state = State::Running;
        Ok(self.status())
    }

    fn phase_starts(&self) -> Arc<[i64]> {
        self.phases.iter().map(|phase| phase.from_ns).collect()
    }

    fn name_phases(&mut self) {
        let names = self
            .phases
            .iter()
            .map(|phase| Arc::from(phase.name.as_str()))
            .collect();
        self.collector.set_phases(names);
    }

    pub(super) fn set_rate(&mut self, rate_msgs_s: f64) -> Result<Status, ApiError> {
        if self.state != State::Running {
            return Err(self.wrong_state("given another rate", "that is running"));
        }
        if self.plan.closed_loop {
            return Err(ApiError::conflict(
                "a closed loop has no rate: create the trial with another arrival",
            ));
        }
        let at_ns = monotonic_ns() + CHANGE_DELAY_NS;
        let share = rate_msgs_s / self.plan.producers.max(1) as f64;
        self.tell_all(|| Command::Rate {
            at_ns,
            rate_msgs_s: share,
        });
        Ok(self.status())
    }

    pub(super) fn add_phase(&mut self, name: String, from_ns: Option<i64>) -> Result<PhasePlan, ApiError> {
        if !matches!(self.state, State::Ready | State::Running) {
            return Err(self.wrong_state("given another phase", "that is ready or running"));
        }
        if self.phases.iter().any(|phase| phase.name == name) {
            return Err(ApiError::conflict(format!("there is a phase '{name}' already")));
        }
        if self.phases.len() >= 1000 {
            return Err(ApiError::conflict("a trial has at most 1000 phases"));
        }
        let elapsed_ns = self.elapsed_ns();
        let interval_ns = self.plan.interval_ns;
        let next_ns = (elapsed_ns.max(0) + PHASE_DELAY_NS + interval_ns - 1) / interval_ns * interval_ns;
        let from_ns = from_ns.unwrap_or(next_ns);
        let last = &self.phases[self.phases.len() - 1];
        if from_ns <= last.from_ns {
            return Err(ApiError::conflict(format!(
                "phases follow each other: '{}' begins at {} s, expected a later time",
                last.name,
                last.from_ns as f64 / 1e9
            )));
        }
        if self.start_ns.is_some() && from_ns < elapsed_ns + CHANGE_DELAY_NS {
            return Err(ApiError::conflict(format!(
                "a phase begins in the future: it is {:.3} s now, expected a time at least 0.01 s later",
                elapsed_ns as f64 / 1e9
            )));
        }
        let phase = PhasePlan { name, from_ns };
        self.phases.push(phase.clone());
        self.name_phases();
        if self.start_ns.is_some() {
            let phases = self.phase_starts();
            self.tell_all(|| Command::Phases(Arc::clone(&phases)));
        }
        Ok(phase)
    }

    pub(super) fn stop(&mut self, at_ns: Option<i64>) -> Result<Status, ApiError> {
        if self.state != State::Running {
            return Err(self.wrong_state("stopped", "that is running"));
        }
        self.stop_schedule(at_ns);
        Ok(self.status())
    }

    /// Ends the schedule at an offset, or as soon as every lane knows of it; an earlier end stays. Returns when that is, no earlier than now.
    pub(super) fn stop_schedule(&mut self, at_ns: Option<i64>) -> i64 {
        let now_ns = monotonic_ns();
        let Some(start_ns) = self.start_ns else {
            return now_ns;
        };
        let soon_ns = now_ns + CHANGE_DELAY_NS;
        let at_ns = at_ns.unwrap_or(0).max(soon_ns - start_ns).max(0);
        let stop_ns = self.stop_ns.map_or(at_ns, |stop_ns| stop_ns.min(at_ns));
        self.stop_ns = Some(stop_ns);
        self.tell_all(|| Command::Stop(start_ns + at_ns));
        // A load that has not begun is at its end before it does.
        (start_ns + stop_ns).clamp(now_ns, soon_ns)
    }

    pub(super) fn pause(&mut self, name: &str, paused: bool) -> Result<Status, ApiError> {
        let Some(at) = self
            .plan
            .subscriptions
            .iter()
            .position(|subscription| subscription.name == name)
        else {
            return Err(ApiError::not_found(format!(
                "the trial has no subscription '{name}'"
            )));
        };
        if !matches!(self.state, State::Ready | State::Running) {
            return Err(self.wrong_state("paused or resumed", "that is ready or running"));
        }
        self.paused[at] = paused;
        self.tell_all(|| Command::Pause(at, paused));
        Ok(self.status())
    }
}
