//! The load of a trial: schedule, producers, phases, batches - each value looked at, the rate divided over the producers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gauge_client::{BatchPolicy, ProducerSpec, Topic};
use gauge_load::audit::PRODUCERS_MAX;
use gauge_load::{Arrival, EmitterSpec, KeySkew, PayloadPool, Ramp, RateChange, ScheduleSpec};

use crate::check::{DURATION_S_MAX, RATE_MSGS_S_MAX, count, name, ns, whole, within};
use crate::error::ApiError;
use crate::messages::{KeyPlan, key_plan};
use crate::plan::PhasePlan;
use crate::request;

const PRODUCERS_PER_WORKER_MAX: usize = 10_000;
const PHASES_MAX: usize = 1000;
const CHANGES_MAX: usize = 2000;
/// Changes of the rate, each counted once for every producer, who all keep them.
const KEPT_CHANGES_MAX: usize = 1_000_000;
/// A time may be less than the sum that it should be by so much, as each was rounded by itself.
const ROUNDED_NS: i64 = 2;

/// The schedule of all producers together.
///
/// # Errors
/// A bad request that names the field.
pub fn schedule(request: &request::Trial) -> Result<ScheduleSpec, ApiError> {
    let nothing = request::Schedule {
        arrival: request::Arrival::Uniform,
        rate_msgs_s: Some(0.0),
        burst_msgs: None,
        ramp: None,
        changes: Vec::new(),
        stop_s: None,
    };
    let schedule = match &request.schedule {
        Some(schedule) => schedule,
        None if request.producers.is_empty() => &nothing,
        None => {
            return Err(ApiError::field(
                "schedule",
                "is missing, and there are producers: expected for instance {\"arrival\": \"uniform\", \"rate_msgs_s\": 50000}",
            ));
        }
    };
    let closed = schedule.arrival == request::Arrival::Closed;
    let stop_ns = schedule
        .stop_s
        .map(|stop_s| within("schedule.stop_s", stop_s, 0.001, DURATION_S_MAX, "seconds").map(ns))
        .transpose()?;
    Ok(ScheduleSpec {
        rate_msgs_s: rate(schedule, closed)?,
        arrival: arrival(schedule)?,
        ramp: ramp(schedule, closed)?,
        stagger: 0.0,
        stop_ns,
        seed: 0,
    })
}

fn rate(schedule: &request::Schedule, closed: bool) -> Result<f64, ApiError> {
    match (closed, schedule.rate_msgs_s) {
        (false, Some(rate)) => within("schedule.rate_msgs_s", rate, 0.0, RATE_MSGS_S_MAX, "messages/s"),
        (false, None) => Err(ApiError::field(
            "schedule.rate_msgs_s",
            "is missing: expected the rate in messages/s, or \"arrival\": \"closed\" for load without a schedule",
        )),
        (true, None) => Ok(0.0),
        (true, Some(_)) => Err(ApiError::field(
            "schedule.rate_msgs_s",
            "a closed loop has no rate: leave it out, or choose another arrival",
        )),
    }
}

fn arrival(schedule: &request::Schedule) -> Result<Arrival, ApiError> {
    let field = "schedule.burst_msgs";
    match (schedule.arrival, schedule.burst_msgs) {
        (request::Arrival::Burst, Some(messages)) => {
            whole(field, u64::from(messages), 1, 1_000_000, "messages")?;
            Ok(Arrival::Burst { messages })
        }
        (request::Arrival::Burst, None) => Err(ApiError::field(
            field,
            "is missing: expected the number of messages in a burst",
        )),
        (_, Some(_)) => Err(ApiError::field(field, "goes with \"arrival\": \"burst\" only")),
        (request::Arrival::Uniform, None) => Ok(Arrival::Uniform),
        (request::Arrival::Poisson, None) => Ok(Arrival::Poisson),
        (request::Arrival::Closed, None) => Ok(Arrival::Closed),
    }
}

fn ramp(schedule: &request::Schedule, closed: bool) -> Result<Option<Ramp>, ApiError> {
    let Some(ramp) = &schedule.ramp else {
        return Ok(None);
    };
    if closed {
        return Err(ApiError::field("schedule.ramp", "a closed loop has no rate"));
    }
    let field = "schedule.ramp.to_msgs_s";
    Ok(Some(Ramp {
        to_msgs_s: within(field, ramp.to_msgs_s, 0.0, RATE_MSGS_S_MAX, "messages/s")?,
        over_ns: ns(within(
            "schedule.ramp.over_s",
            ramp.over_s,
            0.001,
            DURATION_S_MAX,
            "seconds",
        )?),
    }))
}

/// The planned changes of the rate of all producers together.
///
/// # Errors
/// A bad request that names the field.
pub fn changes(request: &request::Trial) -> Result<Vec<RateChange>, ApiError> {
    let Some(schedule) = &request.schedule else {
        return Ok(Vec::new());
    };
    count("schedule.changes", schedule.changes.len(), 0, CHANGES_MAX)?;
    if schedule.arrival == request::Arrival::Closed && !schedule.changes.is_empty() {
        return Err(ApiError::field("schedule.changes", "a closed loop has no rate"));
    }
    let mut free_from_ns = schedule.ramp.as_ref().map_or(0, |ramp| ns(ramp.over_s));
    let check = |(at, change): (usize, &request::RateChange)| {
        let path = |field: &str| format!("schedule.changes[{at}].{field}");
        within(&path("at_s"), change.at_s, 0.0, DURATION_S_MAX, "seconds")?;
        within(&path("over_s"), change.over_s, 0.0, DURATION_S_MAX, "seconds")?;
        let (at_ns, over_ns) = (ns(change.at_s), ns(change.over_s));
        if at_ns + ROUNDED_NS < free_from_ns {
            let free_from_s = free_from_ns as f64 / 1e9;
            return Err(ApiError::field(
                path("at_s"),
                format!(
                    "the change before it lasts until {free_from_s} s: expected that time or a later one"
                ),
            ));
        }
        let at_ns = at_ns.max(free_from_ns);
        free_from_ns = at_ns + over_ns;
        let field = path("rate_msgs_s");
        Ok(RateChange {
            at_ns,
            to_msgs_s: within(&field, change.rate_msgs_s, 0.0, RATE_MSGS_S_MAX, "messages/s")?,
            over_ns,
        })
    };
    schedule.changes.iter().enumerate().map(check).collect()
}

/// A seed of its own for each producer of each run, from the seed of the study (SplitMix64's finalizer, Steele et al. 2014).
fn producer_seed(seed: u64, run: u32, producer: u32) -> u64 {
    let mut mixed = seed ^ (u64::from(run) << 32 | u64::from(producer));
    mixed = mixed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// A producer, and its messages.
pub struct PlannedProducer {
    /// What the client must know.
    pub spec: ProducerSpec,
    /// Its messages.
    pub emitter: EmitterSpec,
}

/// The producers, each with its share of the rate.
///
/// # Errors
/// A bad request that names the field.
pub fn producers(
    request: &request::Trial,
    topics: &[Topic],
    base: &ScheduleSpec,
    pool: &Arc<PayloadPool>,
) -> Result<Vec<PlannedProducer>, ApiError> {
    count("producers", request.producers.len(), 0, PRODUCERS_PER_WORKER_MAX)?;
    let total = request.producers.len();
    let mut ids = HashSet::new();
    let mut skew: Option<(KeyPlan, Arc<KeySkew>)> = None;
    let changes = changes(request)?;
    if changes.len() * total > KEPT_CHANGES_MAX {
        return Err(ApiError::field(
            "schedule.changes",
            format!(
                "has {} changes for each of {total} producers: expected at most {KEPT_CHANGES_MAX} in all",
                changes.len()
            ),
        ));
    }
    let numbers: HashMap<&str, usize> = (topics.iter().enumerate())
        .map(|(number, topic)| (topic.name.as_str(), number))
        .collect();
    let plan = |(at, producer): (usize, &request::Producer)| {
        let path = |field: &str| format!("producers[{at}].{field}");
        whole(
            &path("id"),
            u64::from(producer.id),
            0,
            PRODUCERS_MAX as u64 - 1,
            "",
        )?;
        if !ids.insert(producer.id) {
            return Err(ApiError::field(
                path("id"),
                format!("{} is the number of another producer", producer.id),
            ));
        }
        let topic = *numbers.get(producer.topic.as_str()).ok_or_else(|| {
            ApiError::field(
                path("topic"),
                format!("'{}' is not among the topics", producer.topic),
            )
        })?;
        let key_plan = key_plan(producer, path)?;
        let skew = match (key_plan.exponent, &skew) {
            (None, _) => None,
            (Some(exponent), None) => {
                // The table of many keys is large, so all producers share it.
                let made = Arc::new(KeySkew::zipf(key_plan.key_count, exponent));
                skew = Some((key_plan.clone(), Arc::clone(&made)));
                Some(made)
            }
            (Some(_), Some((same, made))) if *same == key_plan => Some(Arc::clone(made)),
            (Some(_), Some(_)) => {
                return Err(ApiError::field(
                    path("keys"),
                    "differ from those of another producer: expected one key_count and zipf_exponent for all",
                ));
            }
        };
        let share = |rate_msgs_s: f64| rate_msgs_s / total as f64;
        let schedule = ScheduleSpec {
            rate_msgs_s: share(base.rate_msgs_s),
            ramp: base.ramp.map(|ramp| Ramp {
                to_msgs_s: share(ramp.to_msgs_s),
                ..ramp
            }),
            // The uniform schedules of N producers interleave: each is 1/N of a gap behind its neighbour.
            stagger: at as f64 / total as f64,
            seed: producer_seed(request.seed, request.run, producer.id),
            ..*base
        };
        Ok(PlannedProducer {
            spec: ProducerSpec {
                id: producer.id,
                topic,
                keys: key_plan.keys,
            },
            emitter: EmitterSpec {
                run: request.run,
                producer: producer.id,
                schedule,
                changes: changes
                    .iter()
                    .map(|change| RateChange {
                        to_msgs_s: share(change.to_msgs_s),
                        ..*change
                    })
                    .collect(),
                pool: Arc::clone(pool),
                key_count: key_plan.key_count,
                skew,
            },
        })
    };
    request.producers.iter().enumerate().map(plan).collect()
}

/// The phases, in order; a single one when none are named.
///
/// # Errors
/// A bad request that names the field.
pub fn phases(request: &request::Trial) -> Result<Vec<PhasePlan>, ApiError> {
    count("phases", request.phases.len(), 0, PHASES_MAX)?;
    if request.phases.is_empty() {
        return Ok(vec![PhasePlan {
            name: "measure".to_owned(),
            from_ns: 0,
        }]);
    }
    let mut plans: Vec<PhasePlan> = Vec::with_capacity(request.phases.len());
    for (at, phase) in request.phases.iter().enumerate() {
        let path = |field: &str| format!("phases[{at}].{field}");
        name(&path("name"), &phase.name)?;
        if plans.iter().any(|plan| plan.name == phase.name) {
            return Err(ApiError::field(
                path("name"),
                format!("phase '{}' is named twice", phase.name),
            ));
        }
        let from_s = phase.from_s.ok_or_else(|| {
            ApiError::field(
                path("from_s"),
                "is missing: expected the phase's beginning in seconds",
            )
        })?;
        let from_ns = ns(within(&path("from_s"), from_s, 0.0, DURATION_S_MAX, "seconds")?);
        match plans.last() {
            None if from_ns != 0 => {
                return Err(ApiError::field(path("from_s"), "the first phase begins at 0"));
            }
            Some(last) if last.from_ns >= from_ns => {
                return Err(ApiError::field(
                    path("from_s"),
                    "phases follow each other: expected a later beginning than the phase before",
                ));
            }
            _ => {}
        }
        plans.push(PhasePlan {
            name: phase.name.clone(),
            from_ns,
        });
    }
    Ok(plans)
}

/// When batches leave.
///
/// # Errors
/// A bad request that names the field.
pub fn batch(request: &request::Trial) -> Result<BatchPolicy, ApiError> {
    let batch = &request.batch;
    Ok(BatchPolicy {
        bytes: whole("batch.bytes", batch.bytes, 1, 256 << 20, "bytes")? as usize,
        linger_ns: ns(within("batch.linger_ms", batch.linger_ms, 0.0, 60_000.0, "ms")? / 1e3),
        in_flight: whole("batch.in_flight", u64::from(batch.in_flight), 1, 1000, "requests")? as usize,
        buffer_bytes: whole(
            "batch.buffer_bytes",
            batch.buffer_bytes,
            1 << 16,
            16 << 30,
            "bytes",
        )? as usize,
    })
}
