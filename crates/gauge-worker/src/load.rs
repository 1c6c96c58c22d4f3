//! The load of a trial: schedule, messages, producers, phases, batches - each value looked at, the rate divided over the producers.

use std::collections::HashSet;
use std::sync::Arc;

use base64::Engine;
use gauge_client::{BatchPolicy, Keys, ProducerSpec, Topic};
use gauge_load::audit::PRODUCERS_MAX;
use gauge_load::{Arrival, EmitterSpec, PayloadPool, Ramp, ScheduleSpec};

use crate::check::{DURATION_S_MAX, RATE_MSGS_S_MAX, count, name, ns, whole, within};
use crate::error::ApiError;
use crate::plan::PhasePlan;
use crate::request;

const PRODUCERS_PER_WORKER_MAX: usize = 10_000;
const PHASES_MAX: usize = 1000;
const PAYLOAD_BYTES_MAX: u64 = 64 << 20;
const POOL_BYTES_MAX: u64 = 128 << 20;

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

/// A seed of its own for each producer of each run, from the seed of the study (SplitMix64's finalizer, Steele et al. 2014).
fn producer_seed(seed: u64, run: u32, producer: u32) -> u64 {
    let mut mixed = seed ^ (u64::from(run) << 32 | u64::from(producer));
    mixed = mixed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// The messages' bodies.
///
/// # Errors
/// A bad request that names the field.
pub fn payload(request: &request::Trial) -> Result<PayloadPool, ApiError> {
    let payload = &request.payload;
    if let Some(templates) = &payload.templates_base64 {
        if payload.size_bytes.is_some() || payload.random_ratio.is_some() || payload.pool.is_some() {
            return Err(ApiError::field(
                "payload.templates_base64",
                "are whole messages: leave out size_bytes, random_ratio and pool",
            ));
        }
        count("payload.templates_base64", templates.len(), 1, 65_536)?;
        let decode = |(at, text): (usize, &String)| {
            let field = format!("payload.templates_base64[{at}]");
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|error| ApiError::field(&field, format!("is no base64: {error}")))?;
            whole(&field, bytes.len() as u64, 1, PAYLOAD_BYTES_MAX, "bytes")?;
            Ok(bytes)
        };
        let bodies = templates
            .iter()
            .enumerate()
            .map(decode)
            .collect::<Result<Vec<_>, ApiError>>()?;
        return PayloadPool::from_bodies(bodies)
            .ok_or_else(|| ApiError::field("payload.templates_base64", "expected at least one template"));
    }
    let size_bytes = match payload.size_bytes {
        Some(size_bytes) => whole("payload.size_bytes", size_bytes, 1, PAYLOAD_BYTES_MAX, "bytes")?,
        None if request.producers.is_empty() => gauge_load::stamp::STAMP_BYTES as u64,
        None => {
            return Err(ApiError::field(
                "payload.size_bytes",
                "is missing, and there are producers: expected the size of a message in bytes",
            ));
        }
    };
    let random_ratio = within(
        "payload.random_ratio",
        payload.random_ratio.unwrap_or(0.0),
        0.0,
        1.0,
        "",
    )?;
    let pool = whole(
        "payload.pool",
        payload.pool.unwrap_or(64),
        1,
        1_000_000,
        "templates",
    )?;
    // A pool that was not asked for is made smaller rather than refused.
    let fitting = (POOL_BYTES_MAX / 4 / size_bytes).max(1);
    let pool = if payload.pool.is_none() {
        pool.min(fitting)
    } else {
        pool
    };
    if pool * size_bytes > POOL_BYTES_MAX {
        return Err(ApiError::field(
            "payload.pool",
            format!(
                "{pool} templates of {size_bytes} bytes take more than {POOL_BYTES_MAX} bytes: expected a smaller pool"
            ),
        ));
    }
    Ok(PayloadPool::generate(
        size_bytes as usize,
        random_ratio,
        pool as usize,
        request.seed,
    ))
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
        let topic = topics
            .iter()
            .position(|topic| topic.name == producer.topic)
            .ok_or_else(|| {
                ApiError::field(
                    path("topic"),
                    format!("'{}' is not among the topics", producer.topic),
                )
            })?;
        let (keys, key_count) = match (producer.keys, producer.key_count) {
            (request::Keys::Keyed, Some(key_count)) => {
                whole(
                    &path("key_count"),
                    u64::from(key_count),
                    1,
                    u64::from(u32::MAX),
                    "keys",
                )?;
                (Keys::Keyed, key_count)
            }
            (request::Keys::Keyed, None) => {
                return Err(ApiError::field(
                    path("key_count"),
                    "is missing: expected the number of distinct keys",
                ));
            }
            (_, Some(_)) => {
                return Err(ApiError::field(
                    path("key_count"),
                    "goes with \"keys\": \"keyed\" only",
                ));
            }
            (request::Keys::None, None) => (Keys::Sticky, 0),
            (request::Keys::RoundRobin, None) => (Keys::RoundRobin, 0),
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
                keys,
            },
            emitter: EmitterSpec {
                run: request.run,
                producer: producer.id,
                schedule,
                pool: Arc::clone(pool),
                key_count,
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
