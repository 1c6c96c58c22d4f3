//! From a request to a plan: every value looked at, the load divided over producers and lanes.
//!
//! A plan holds nothing that could turn out wrong later without the system's doing: what it accepts, the lanes can run.

use std::collections::HashSet;
use std::sync::Arc;

use base64::Engine;
use gauge_client::{
    Acks, BatchPolicy, Compression, ConsumerSpec, Endpoint, Keys, LaneSpec, NewTopic, ProducerSpec, StartAt,
    Topic,
};
use gauge_load::audit::PRODUCERS_MAX;
use gauge_load::{Arrival, EmitterSpec, PayloadPool, Ramp, ScheduleSpec};

use crate::error::ApiError;
use crate::request;

const TOPICS_MAX: usize = 10_000;
const PARTITIONS_MAX: u64 = 100_000;
const NAME_BYTES_MAX: usize = 249;
const PRODUCERS_PER_WORKER_MAX: usize = 10_000;
const SUBSCRIPTIONS_MAX: usize = 256;
const CONSUMERS_MAX: u32 = 10_000;
const PHASES_MAX: usize = 1000;
const BOOTSTRAP_MAX: usize = 100;
const LANES_MAX: u32 = 256;
const PAYLOAD_BYTES_MAX: u64 = 64 << 20;
const POOL_BYTES_MAX: u64 = 128 << 20;
/// The longest time that a request may name: 30 days.
pub const DURATION_S_MAX: f64 = 2_592_000.0;
/// The highest rate that a request may name.
pub const RATE_MSGS_S_MAX: f64 = 1e9;

/// What a lane is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends.
    Producer,
    /// It receives.
    Consumer,
    /// Both, on one thread.
    Both,
}

impl Role {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Role::Producer => "producer",
            Role::Consumer => "consumer",
            Role::Both => "both",
        }
    }
}

/// One lane of the plan.
#[derive(Clone, Debug)]
pub struct LanePlan {
    /// Its name: role and number.
    pub name: String,
    /// What it is there for.
    pub role: Role,
    /// What its client must know.
    pub spec: LaneSpec,
    /// Per producer of the spec.
    pub emitters: Vec<EmitterSpec>,
    /// Partition slots to which it sends readiness probes.
    pub probe_slots: Vec<usize>,
    /// Core to which it is bound.
    pub pin_to: Option<usize>,
}

/// A subscription of the plan.
#[derive(Clone, Debug)]
pub struct SubscriptionPlan {
    /// Its name.
    pub name: String,
    /// Whether it reads from the beginning: then it is held until the start.
    pub from_earliest: bool,
    /// Partitions that this worker's consumers own.
    pub partitions: usize,
    /// Of those, the ones through which a probe is expected.
    pub provable: usize,
    /// Whether this worker runs all of its consumers, so that its receipts are complete.
    pub is_whole: bool,
}

/// A phase of the plan.
#[derive(Clone, Debug)]
pub struct PhasePlan {
    /// Its name.
    pub name: String,
    /// Where it begins on the schedule's axis.
    pub from_ns: i64,
}

/// A trial, ready to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The trial's number.
    pub run: u32,
    /// How to reach the system.
    pub endpoint: Endpoint,
    /// The lanes.
    pub lanes: Vec<LanePlan>,
    /// The subscriptions.
    pub subscriptions: Vec<SubscriptionPlan>,
    /// Partitions of all topics.
    pub slots: usize,
    /// Number of producers on all lanes.
    pub producers: usize,
    /// Whether there is no schedule.
    pub closed_loop: bool,
    /// The phases.
    pub phases: Vec<PhasePlan>,
    /// End of the schedule, as far as it was asked for.
    pub stop_ns: Option<i64>,
    /// Whether every message carries a stamp.
    pub stamped: bool,
    /// Length of an interval.
    pub interval_ns: i64,
    /// How long a silent controller is trusted.
    pub lease_ns: i64,
    /// How long readiness may take.
    pub ready_timeout_ns: i64,
    /// Whether real-time scheduling is asked for.
    pub realtime: bool,
    /// The shortest time between two wake-ups for the schedule.
    pub quantum_ns: i64,
}

/// Nanoseconds of a number of seconds that was checked.
pub fn ns(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

/// Looks whether a number lies in a range, ends included.
///
/// # Errors
/// A bad request that says what was expected.
pub fn within(field: &str, value: f64, least: f64, most: f64, unit: &str) -> Result<f64, ApiError> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    let unit = if unit.is_empty() {
        String::new()
    } else {
        format!(" {unit}")
    };
    Err(ApiError::field(
        field,
        format!("{value} is out of range: expected {least} to {most}{unit}"),
    ))
}

fn whole(field: &str, value: u64, least: u64, most: u64, unit: &str) -> Result<u64, ApiError> {
    within(field, value as f64, least as f64, most as f64, unit).map(|_| value)
}

fn count(field: &str, found: usize, least: usize, most: usize) -> Result<(), ApiError> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(ApiError::field(
        field,
        format!("has {found} entries: expected {least} to {most}"),
    ))
}

fn name(field: &str, name: &str) -> Result<(), ApiError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(ApiError::field(
            field,
            format!("expected a name of 1 to {NAME_BYTES_MAX} bytes without control characters"),
        ));
    }
    Ok(())
}

/// The endpoint of a request's `system`.
///
/// # Errors
/// A bad request when an address is not `host:port`.
pub fn endpoint(system: &request::System) -> Result<Endpoint, ApiError> {
    count("system.bootstrap", system.bootstrap.len(), 1, BOOTSTRAP_MAX)?;
    for (at, address) in system.bootstrap.iter().enumerate() {
        let is_address = address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) && address.len() < 300
        });
        if !is_address {
            return Err(ApiError::field(
                format!("system.bootstrap[{at}]"),
                format!("'{address}' is no address: expected host:port, for instance 127.0.0.1:9092"),
            ));
        }
    }
    Ok(Endpoint {
        bootstrap: system.bootstrap.clone(),
        options: system.options.clone(),
    })
}

/// The topics of a `create-topics` request.
///
/// # Errors
/// A bad request that names the field.
pub fn new_topics(topics: &[request::NewTopic]) -> Result<Vec<NewTopic>, ApiError> {
    count("topics", topics.len(), 1, TOPICS_MAX)?;
    let mut names = HashSet::new();
    let check = |(at, topic): (usize, &request::NewTopic)| {
        let path = |field: &str| format!("topics[{at}].{field}");
        name(&path("name"), &topic.name)?;
        if !names.insert(topic.name.clone()) {
            return Err(ApiError::field(
                path("name"),
                format!("topic '{}' is named twice", topic.name),
            ));
        }
        whole(
            &path("partitions"),
            u64::from(topic.partitions),
            1,
            PARTITIONS_MAX,
            "partitions",
        )?;
        whole(
            &path("replication_factor"),
            u64::from(topic.replication_factor),
            1,
            1000,
            "copies",
        )?;
        Ok(NewTopic {
            name: topic.name.clone(),
            partitions: topic.partitions,
            replication_factor: topic.replication_factor,
            configs: topic
                .configs
                .iter()
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        })
    };
    topics.iter().enumerate().map(check).collect()
}

/// The topic names of a request.
///
/// # Errors
/// A bad request that names the field.
pub fn topic_names(names: &[String], least: usize) -> Result<(), ApiError> {
    count("topics", names.len(), least, TOPICS_MAX)?;
    names
        .iter()
        .enumerate()
        .try_for_each(|(at, topic)| name(&format!("topics[{at}]"), topic))
}

fn topics(request: &request::Trial) -> Result<Arc<[Topic]>, ApiError> {
    count("topics", request.topics.len(), 1, TOPICS_MAX)?;
    let mut names = HashSet::new();
    let mut first_slot = 0;
    let mut topics = Vec::with_capacity(request.topics.len());
    for (at, topic) in request.topics.iter().enumerate() {
        name(&format!("topics[{at}].name"), &topic.name)?;
        if !names.insert(&topic.name) {
            return Err(ApiError::field(
                format!("topics[{at}].name"),
                format!("topic '{}' is named twice", topic.name),
            ));
        }
        whole(
            &format!("topics[{at}].partitions"),
            u64::from(topic.partitions),
            1,
            PARTITIONS_MAX,
            "partitions",
        )?;
        topics.push(Topic {
            name: topic.name.clone(),
            partitions: topic.partitions,
            first_slot,
        });
        first_slot += topic.partitions as usize;
    }
    if first_slot as u64 > PARTITIONS_MAX {
        return Err(ApiError::field(
            "topics",
            format!("{first_slot} partitions in all: expected at most {PARTITIONS_MAX}"),
        ));
    }
    Ok(topics.into())
}

fn schedule(request: &request::Trial) -> Result<(Arrival, ScheduleSpec), ApiError> {
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
    let rate_msgs_s = match (closed, schedule.rate_msgs_s) {
        (false, Some(rate)) => within("schedule.rate_msgs_s", rate, 0.0, RATE_MSGS_S_MAX, "messages/s")?,
        (false, None) => {
            return Err(ApiError::field(
                "schedule.rate_msgs_s",
                "is missing: expected the rate in messages/s, or \"arrival\": \"closed\" for load without a schedule",
            ));
        }
        (true, None) => 0.0,
        (true, Some(_)) => {
            return Err(ApiError::field(
                "schedule.rate_msgs_s",
                "a closed loop has no rate: leave it out, or choose another arrival",
            ));
        }
    };
    let arrival = match (schedule.arrival, schedule.burst_msgs) {
        (request::Arrival::Burst, Some(messages)) => {
            whole(
                "schedule.burst_msgs",
                u64::from(messages),
                1,
                1_000_000,
                "messages",
            )?;
            Arrival::Burst { messages }
        }
        (request::Arrival::Burst, None) => {
            return Err(ApiError::field(
                "schedule.burst_msgs",
                "is missing: expected the number of messages in a burst",
            ));
        }
        (_, Some(_)) => {
            return Err(ApiError::field(
                "schedule.burst_msgs",
                "goes with \"arrival\": \"burst\" only",
            ));
        }
        (request::Arrival::Uniform, None) => Arrival::Uniform,
        (request::Arrival::Poisson, None) => Arrival::Poisson,
        (request::Arrival::Closed, None) => Arrival::Closed,
    };
    let ramp = match &schedule.ramp {
        None => None,
        Some(_) if closed => {
            return Err(ApiError::field("schedule.ramp", "a closed loop has no rate"));
        }
        Some(ramp) => Some(Ramp {
            to_msgs_s: within(
                "schedule.ramp.to_msgs_s",
                ramp.to_msgs_s,
                0.0,
                RATE_MSGS_S_MAX,
                "messages/s",
            )?,
            over_ns: ns(within(
                "schedule.ramp.over_s",
                ramp.over_s,
                0.001,
                DURATION_S_MAX,
                "seconds",
            )?),
        }),
    };
    let stop_ns = schedule
        .stop_s
        .map(|stop_s| within("schedule.stop_s", stop_s, 0.001, DURATION_S_MAX, "seconds").map(ns))
        .transpose()?;
    let spec = ScheduleSpec {
        arrival,
        rate_msgs_s,
        ramp,
        stagger: 0.0,
        stop_ns,
        seed: 0,
    };
    Ok((arrival, spec))
}

/// A seed of its own for each producer of each run, from the seed of the study (SplitMix64's finalizer, Steele et al. 2014).
fn producer_seed(seed: u64, run: u32, producer: u32) -> u64 {
    let mut mixed = seed ^ (u64::from(run) << 32 | u64::from(producer));
    mixed = mixed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

fn payload(request: &request::Trial) -> Result<PayloadPool, ApiError> {
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

struct PlannedProducer {
    spec: ProducerSpec,
    emitter: EmitterSpec,
}

fn producers(
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

fn subscriptions(
    request: &request::Trial,
    topics: &[Topic],
) -> Result<(Vec<SubscriptionPlan>, Vec<ConsumerSpec>), ApiError> {
    count("subscriptions", request.subscriptions.len(), 0, SUBSCRIPTIONS_MAX)?;
    let mut names = HashSet::new();
    let mut plans = Vec::new();
    let mut consumers = Vec::new();
    let is_probed = |topic: usize| {
        request
            .producers
            .iter()
            .any(|producer| producer.topic == topics[topic].name)
    };
    let probed: Vec<bool> = (0..topics.len()).map(is_probed).collect();
    for (at, subscription) in request.subscriptions.iter().enumerate() {
        let path = |field: &str| format!("subscriptions[{at}].{field}");
        name(&path("name"), &subscription.name)?;
        if !names.insert(&subscription.name) {
            return Err(ApiError::field(
                path("name"),
                format!("subscription '{}' is named twice", subscription.name),
            ));
        }
        let all = subscription.consumers;
        let from = subscription.consumer_from;
        whole(
            &path("consumers"),
            u64::from(all),
            1,
            u64::from(CONSUMERS_MAX),
            "consumers",
        )?;
        whole(&path("consumer_from"), u64::from(from), 0, u64::from(all - 1), "")?;
        let mine = subscription.consumer_count.unwrap_or(all - from);
        whole(
            &path("consumer_count"),
            u64::from(mine),
            1,
            u64::from(all - from),
            "consumers",
        )?;
        let commit_interval_ns = match subscription.commit_interval_ms {
            None => None,
            Some(ms) => {
                Some(whole(&path("commit_interval_ms"), ms, 10, 86_400_000, "ms")? as i64 * 1_000_000)
            }
        };
        let from_earliest = subscription.start == request::Start::Earliest;
        let mut plan = SubscriptionPlan {
            name: subscription.name.clone(),
            from_earliest,
            partitions: 0,
            provable: 0,
            is_whole: mine == all,
        };
        for consumer in from..from + mine {
            let partitions: Vec<(usize, u32)> = topics
                .iter()
                .enumerate()
                .flat_map(|(index, topic)| (0..topic.partitions).map(move |partition| (index, partition)))
                .filter(|(_, partition)| partition % all == consumer)
                .collect();
            plan.partitions += partitions.len();
            plan.provable += partitions
                .iter()
                .filter(|(topic, _)| probed[*topic] && !from_earliest)
                .count();
            consumers.push(ConsumerSpec {
                subscription: at,
                name: subscription.name.clone(),
                start: if from_earliest {
                    StartAt::Earliest
                } else {
                    StartAt::Latest
                },
                partitions,
                commit_interval_ns,
            });
        }
        plans.push(plan);
    }
    Ok((plans, consumers))
}

fn phases(request: &request::Trial) -> Result<Vec<PhasePlan>, ApiError> {
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

fn batch(request: &request::Trial) -> Result<BatchPolicy, ApiError> {
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

/// How many lanes there are for sending and for receiving. No lanes of their own for the consumers: they share the producers'.
fn lane_counts(
    lanes: &request::Lanes,
    producers: usize,
    consumers: usize,
    cores: usize,
) -> Result<(usize, usize), ApiError> {
    let asked = |field: &str, count: Option<u32>, least: u32| match count {
        None => Ok(None),
        Some(count) => whole(
            field,
            u64::from(count),
            u64::from(least),
            u64::from(LANES_MAX),
            "lanes",
        )
        .map(|count| Some(count as usize)),
    };
    let for_producers = asked("lanes.producer", lanes.producer, 1)?;
    let for_consumers = asked("lanes.consumer", lanes.consumer, 0)?;
    if for_consumers == Some(0) && consumers > 0 && producers == 0 {
        return Err(ApiError::field(
            "lanes.consumer",
            "0 means that consumers share the producers' lanes, and there are no producers: expected 1 or more",
        ));
    }
    let cores = cores.max(1);
    if producers == 0 {
        return Ok((0, for_consumers.unwrap_or(cores).min(consumers)));
    }
    if consumers == 0 {
        return Ok((for_producers.unwrap_or(cores).min(producers), 0));
    }
    let for_producers = for_producers.unwrap_or((cores / 2).max(1)).min(producers);
    let left = cores.saturating_sub(for_producers);
    let for_consumers = for_consumers.unwrap_or(left).min(consumers);
    Ok((for_producers, for_consumers))
}

/// Turns a request into a plan for a machine with this many cores.
///
/// # Errors
/// A bad request that names the field and says what was expected.
pub fn plan(request: &request::Trial, cores: usize) -> Result<Plan, ApiError> {
    let endpoint = endpoint(&request.system)?;
    let topics = topics(request)?;
    let slots = topics.iter().map(|topic| topic.partitions as usize).sum();
    if request.producers.is_empty() && request.subscriptions.is_empty() {
        return Err(ApiError::field(
            "producers",
            "there are neither producers nor subscriptions: expected some of one of them",
        ));
    }
    let (arrival, base) = schedule(request)?;
    let pool = Arc::new(payload(request)?);
    let producers = producers(request, &topics, &base, &pool)?;
    let (subscriptions, consumers) = subscriptions(request, &topics)?;
    let phases = phases(request)?;
    let batch = batch(request)?;
    let interval_ms = whole("interval_ms", request.interval_ms, 100, 60_000, "ms")?;
    let lease_s = within("lease_s", request.lease_s, 0.1, 86_400.0, "seconds")?;
    let ready_timeout_s = within(
        "ready_timeout_s",
        request.ready_timeout_s,
        0.1,
        3_600.0,
        "seconds",
    )?;
    let request_timeout_ms = whole(
        "request_timeout_ms",
        request.request_timeout_ms,
        10,
        3_600_000,
        "ms",
    )?;
    let retry_for_ms = whole("retry_for_ms", request.retry_for_ms, 0, 86_400_000, "ms")?;
    let quantum_us = whole("lanes.quantum_us", request.lanes.quantum_us, 1, 100_000, "us")?;
    let (for_producers, for_consumers) =
        lane_counts(&request.lanes, producers.len(), consumers.len(), cores)?;

    let empty = LaneSpec {
        run: request.run,
        topics: Arc::clone(&topics),
        producers: Vec::new(),
        consumers: Vec::new(),
        batch,
        closed_loop: arrival == Arrival::Closed,
        acks: match request.acks {
            request::Acks::All => Acks::All,
            request::Acks::Leader => Acks::Leader,
            request::Acks::None => Acks::None,
        },
        idempotence: request.idempotence,
        compression: match request.compression {
            request::Compression::None => Compression::None,
            request::Compression::Gzip => Compression::Gzip,
            request::Compression::Snappy => Compression::Snappy,
            request::Compression::Lz4 => Compression::Lz4,
            request::Compression::Zstd => Compression::Zstd,
        },
        request_timeout_ns: request_timeout_ms as i64 * 1_000_000,
        retry_for_ns: retry_for_ms as i64 * 1_000_000,
        payload_bytes_max: pool.size_bytes_max(),
    };
    let producer_total = producers.len();
    let mut lanes: Vec<LanePlan> = (0..for_producers + for_consumers)
        .map(|at| LanePlan {
            name: String::new(),
            role: if at < for_producers {
                Role::Producer
            } else {
                Role::Consumer
            },
            spec: empty.clone(),
            emitters: Vec::new(),
            probe_slots: Vec::new(),
            pin_to: request.lanes.pin.then_some(at),
        })
        .collect();
    for (at, producer) in producers.into_iter().enumerate() {
        let lane = &mut lanes[at % for_producers];
        lane.spec.producers.push(producer.spec);
        lane.emitters.push(producer.emitter);
    }
    for (at, consumer) in consumers.into_iter().enumerate() {
        let lane = match for_consumers {
            0 => at % for_producers,
            _ => for_producers + at % for_consumers,
        };
        lanes[lane].spec.consumers.push(consumer);
    }
    share_out_probes(&mut lanes, &topics);
    let mut numbers = [0; 3];
    for lane in &mut lanes {
        if lane.role == Role::Producer && !lane.spec.consumers.is_empty() {
            lane.role = Role::Both;
        }
        let number = &mut numbers[lane.role as usize];
        lane.name = format!("{}-{number}", lane.role.name());
        *number += 1;
        let share = batch.buffer_bytes * lane.spec.producers.len().max(1) / producer_total.max(1);
        lane.spec.batch.buffer_bytes = share.max(1 << 16);
    }
    Ok(Plan {
        run: request.run,
        endpoint,
        lanes,
        subscriptions,
        slots,
        producers: producer_total,
        closed_loop: arrival == Arrival::Closed,
        phases,
        stop_ns: base.stop_ns,
        stamped: pool.is_stampable(),
        interval_ns: interval_ms as i64 * 1_000_000,
        lease_ns: ns(lease_s),
        ready_timeout_ns: ns(ready_timeout_s),
        realtime: request.lanes.realtime == request::Realtime::Auto,
        quantum_ns: quantum_us as i64 * 1000,
    })
}

/// Each partition is probed by the first lane that has a producer of its topic.
fn share_out_probes(lanes: &mut [LanePlan], topics: &[Topic]) {
    for (index, topic) in topics.iter().enumerate() {
        let sends = |lane: &&mut LanePlan| lane.spec.producers.iter().any(|producer| producer.topic == index);
        if let Some(lane) = lanes.iter_mut().find(sends) {
            lane.probe_slots
                .extend(topic.first_slot..topic.first_slot + topic.partitions as usize);
        }
    }
}
