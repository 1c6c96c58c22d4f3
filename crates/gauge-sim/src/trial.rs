//! One seed: the trial runs in its world, and is judged.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Once};

use gauge_client::world;
use gauge_load::clock::simulated;
use gauge_worker::simulation::{Stage, Trial, judge};
use serde_json::{Value, json};

use crate::marks::{Mark, Marks};
use crate::net::{Event, Sim, World};
use crate::oracle::{self, Case};
use crate::probes::Probes;
use crate::scenario::{CHANGE_DELAY_NS, Expects, Scenario, Step};
use crate::system::System;
use crate::witness;

/// With this the world ends a lane from within.
pub struct GivenUp;

/// The clocks begin here.
const BEGIN_NS: i64 = 1_000_000_000;
/// From the start's announcement to the start.
const START_DELAY_NS: i64 = 20_000_000;
/// A closed loop ends after so many messages, however fast the world is.
const MESSAGES_MAX: usize = 12_000;
/// How long a drain may take; it is at peace.
const DRAIN_NS: i64 = 200_000_000_000;

/// Who leads the trial: what the lab would do, at the times of the scenario.
pub struct Director {
    trial: Trial,
    scenario: Rc<Scenario>,
    start_ns: Option<i64>,
    next_step: usize,
    stalled_until_ns: i64,
    is_finishing: bool,
    /// When what goes wrong is over: with the load; None: it is already, or never.
    peace_ns: Option<i64>,
    /// The trial is over: its result.
    result: Option<Arc<Value>>,
    error: Option<String>,
}

impl Director {
    /// Its turn; returns after how long the next one comes.
    pub fn turn<S: System>(&mut self, sim: &Sim<S>) -> i64 {
        let now_ns = sim.world.borrow().now_ns();
        if now_ns < self.stalled_until_ns {
            return self.stalled_until_ns - now_ns;
        }
        let rest_ns = self.trial.turn();
        let next_ns = match self.lead(sim) {
            Ok(next_ns) => next_ns,
            Err(error) => {
                self.fail(sim, error);
                rest_ns
            }
        };
        // A closed loop is looked at often: it may be fast.
        let look_ns = if self.scenario.is_closed_loop {
            1_000_000
        } else {
            i64::MAX
        };
        rest_ns.min(next_ns).min(look_ns).max(1)
    }

    fn fail<S: System>(&mut self, sim: &Sim<S>, error: String) {
        let error = format!("the trial failed: {error}");
        sim.world.borrow_mut().fatal.get_or_insert(error.clone());
        self.error.get_or_insert(error);
    }

    fn lead<S: System>(&mut self, sim: &Sim<S>) -> Result<i64, String> {
        if let Some(result) = self.trial.result() {
            self.result = Some(result?);
            return Ok(i64::MAX);
        }
        let stage = self.trial.stage()?;
        let Some(start_ns) = self.start_ns else {
            if stage == Stage::Ready {
                let start_ns = self.trial.start(START_DELAY_NS)?;
                self.start_ns = Some(start_ns);
                let mut world = sim.world.borrow_mut();
                world.start_ns = Some(start_ns);
                if let Some((hand, probed)) = self.trial.probes().zip(self.scenario.probed.as_ref()) {
                    world.probes = Some(Probes::new(hand, probed, start_ns));
                }
                let faults: Vec<i64> = world.plan.faults.iter().map(|(at_ns, _)| *at_ns).collect();
                for (number, at_ns) in faults.into_iter().enumerate() {
                    world.at(start_ns + at_ns, Event::Fault(number));
                }
            }
            return Ok(i64::MAX);
        };
        let elapsed_ns = sim.world.borrow().now_ns() - start_ns;
        let taken: usize = sim.world.borrow().truth.taken.values().map(Vec::len).sum();
        let is_over = elapsed_ns >= self.scenario.end_is_told_ns() || taken >= MESSAGES_MAX;
        while let Some((at_ns, step)) = self.scenario.steps.get(self.next_step).copied() {
            // What was paused goes on before the end, whenever that is.
            if at_ns > elapsed_ns && !is_over {
                return Ok(at_ns - elapsed_ns);
            }
            self.next_step += 1;
            self.take(step, sim)?;
        }
        if let Some(peace_ns) = self.peace_ns {
            let now_ns = sim.world.borrow().now_ns();
            if now_ns < peace_ns {
                return Ok(peace_ns - now_ns);
            }
            sim.world.borrow_mut().make_peace();
            self.peace_ns = None;
        }
        if self.is_finishing {
            return Ok(i64::MAX);
        }
        if !is_over {
            return Ok(self.scenario.end_is_told_ns() - elapsed_ns);
        }
        self.is_finishing = true;
        let drain_ns = self.scenario.drain_ns.unwrap_or(DRAIN_NS);
        let before_ns = sim.world.borrow().now_ns();
        self.trial.finish(drain_ns, DRAIN_NS)?;
        let mut world = sim.world.borrow_mut();
        let end_ns = world.now_ns() + CHANGE_DELAY_NS;
        world.truth.stopped_ns = Some((before_ns + CHANGE_DELAY_NS, end_ns));
        self.peace_ns = self.scenario.drain_ns.is_none().then_some(end_ns);
        Ok(CHANGE_DELAY_NS)
    }

    fn take<S: System>(&mut self, step: Step, sim: &Sim<S>) -> Result<(), String> {
        let mark = |mark| sim.world.borrow_mut().marks.set(mark);
        match step {
            Step::Rate(rate) => {
                mark(Mark::RateChanged);
                let before_ns = sim.world.borrow().now_ns();
                self.trial.set_rate(rate)?;
                let mut world = sim.world.borrow_mut();
                let from_ns = (before_ns + CHANGE_DELAY_NS, world.now_ns() + CHANGE_DELAY_NS);
                world.truth.rates.push((from_ns, rate));
                Ok(())
            }
            Step::Pause(subscription, paused) => {
                mark(Mark::Paused);
                let name = self.scenario.subscriptions[subscription].clone();
                self.trial.pause(&name, paused)?;
                let mut world = sim.world.borrow_mut();
                let now_ns = world.now_ns();
                world.truth.pauses.push((subscription, now_ns, paused));
                Ok(())
            }
            Step::Stall(for_ns) => {
                self.stalled_until_ns = sim.world.borrow().now_ns() + for_ns;
                Ok(())
            }
        }
    }
}

/// What became of a seed.
#[derive(Debug)]
pub struct Report {
    /// The protocol.
    pub protocol: &'static str,
    /// The seed.
    pub seed: u64,
    /// Where the result and the world disagree; empty: nowhere.
    pub disagreements: Vec<String>,
    /// What it came to.
    pub marks: Marks,
    /// Messages that were sent.
    pub messages: usize,
    /// How much time passed in the world.
    pub simulated_ns: i64,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Panics in a world are findings, which are told with their seed.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if simulated::now_ns().is_none() {
                usual(info);
            } else if info.payload().downcast_ref::<GivenUp>().is_none() {
                PANIC.set(Some(info.to_string()));
            }
        }));
    });
}

/// Runs a seed.
pub fn run<S: System>(seed: u64) -> Report {
    keep_panics();
    let (scenario, plan) = Scenario::of::<S>(seed);
    let expects = S::expects(&scenario, &plan);
    let scenario = Rc::new(scenario);
    simulated::begin(BEGIN_NS, scenario.reading_ns);
    PANIC.set(None);
    let sim = Rc::new(Sim {
        world: RefCell::new(World::<S>::new(Rc::clone(&scenario), plan)),
        director: RefCell::new(None),
    });
    world::set(Some(Rc::clone(&sim) as Rc<dyn world::Network>));
    witness::tell(Some(Rc::clone(&sim) as Rc<dyn witness::Looks>));
    let disagreements = live(&sim, &scenario, expects);
    witness::tell(None);
    world::set(None);
    let simulated_ns = simulated::now_ns().unwrap_or(BEGIN_NS) - BEGIN_NS;
    simulated::end();
    let world = sim.world.borrow();
    Report {
        protocol: S::NAME,
        seed,
        disagreements,
        marks: world.marks,
        messages: world.truth.taken.values().map(Vec::len).sum(),
        simulated_ns,
    }
}

/// A worker that shares its trial with others tells its books: judged as those of two workers, of which the one sends and the other one receives.
fn audited(result: &Value) -> Result<Value, String> {
    let mut result = result.clone();
    let books = result["books"].take();
    if books.is_null() {
        return Ok(result);
    }
    let (mut sends, mut receives) = (books.clone(), books);
    sends["subscriptions"] = json!([]);
    receives["sent"] = json!([]);
    for of_sending in [
        "untaken",
        "publish_samples",
        "service_samples",
        "send_delay_samples",
    ] {
        receives[of_sending] = json!(0);
    }
    result["audit"] = judge(&json!({"books": [receives, sends]}))?;
    Ok(result)
}

fn live<S: System>(sim: &Rc<Sim<S>>, scenario: &Rc<Scenario>, expects: Expects) -> Vec<String> {
    let (trial, lane) = match Trial::new(&scenario.request, &witness::protocol(S::client())) {
        Ok(both) => both,
        Err(error) => return vec![format!("the trial was refused: {error}")],
    };
    *sim.director.borrow_mut() = Some(Director {
        trial,
        scenario: Rc::clone(scenario),
        start_ns: None,
        next_step: 0,
        stalled_until_ns: 0,
        is_finishing: false,
        peace_ns: None,
        result: None,
        error: None,
    });
    {
        let mut world = sim.world.borrow_mut();
        if scenario.is_closed_loop {
            world.marks.set(Mark::ClosedLoop);
        }
        if scenario.planned_rates().next().is_some() {
            world.marks.set(Mark::RatePlanned);
        }
        if scenario.acks == 0 {
            world.marks.set(Mark::AcksNone);
        }
        world.after(0, Event::Direct);
    }
    lane.run();
    let panicked = PANIC.take();
    let Some(mut director) = sim.director.borrow_mut().take() else {
        return vec!["a lane panicked while the supervisor had its turn".to_owned()];
    };
    if let Some(panicked) = panicked {
        return vec![panicked];
    }
    if let Some(fatal) = sim.world.borrow().fatal.clone() {
        return vec![fatal];
    }
    for _ in 0..1_000 {
        let next_ns = director.turn(sim);
        if director.result.is_some() || director.error.is_some() {
            break;
        }
        let now_ns = sim.world.borrow().now_ns();
        simulated::advance_to(now_ns + next_ns.min(10_000_000));
        sim.world.borrow_mut().look_at_probes();
    }
    if let Some(error) = director.error {
        return vec![error];
    }
    let (Some(result), Some(start_ns)) = (director.result.clone(), director.start_ns) else {
        return vec!["the lane ended, and there is no result".to_owned()];
    };
    let result = match audited(&result) {
        Ok(result) => result,
        Err(error) => return vec![error],
    };
    let intervals = match director.trial.intervals() {
        Ok(intervals) => intervals,
        Err(error) => return vec![error],
    };
    let mut world = sim.world.borrow_mut();
    let mut marks = world.marks;
    let case = Case {
        scenario,
        expects,
        is_calm: world.plan.is_calm(),
        truth: &world.truth,
        start_ns,
        end_ns: world.now_ns(),
        result: &result,
        intervals: &intervals,
    };
    let disagreements = oracle::judge(&case, &mut marks);
    world.marks = marks;
    disagreements
}
