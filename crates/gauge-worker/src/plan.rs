//! From a request to a plan: every value looked at, the load divided over lanes.
//!
//! A plan holds nothing that could turn out wrong later without the system's doing: what it accepts, the lanes can run.

use std::collections::HashSet;
use std::sync::Arc;

use gauge_client::{Acks, Compression, ConsumerSpec, Endpoint, LaneSpec, StartAt, Topic};
use gauge_load::{Arrival, EmitterSpec, ScheduleSpec};

use crate::check::{PARTITIONS_MAX, TOPICS_MAX, count, endpoint, name, ns, whole, within};
use crate::error::ApiError;
use crate::load::{batch, changes, phases, producers, schedule};
use crate::messages::payload;
use crate::processing::Pace;
use crate::request;

const SUBSCRIPTIONS_MAX: usize = 256;
/// Consumers of one subscription.
const CONSUMERS_MAX: u32 = 10_000;
/// Consumers of all subscriptions on this worker.
const CONSUMERS_PER_WORKER_MAX: usize = 50_000;
/// Partitions, each counted once for every subscription that reads it: what this worker's consumers have to remember.
const READ_PARTITIONS_MAX: usize = 1_000_000;
const LANES_MAX: u32 = 256;

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
    /// Subscriptions whose consumers take their time.
    pub paces: Vec<Pace>,
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
    /// Whether this worker runs all of its consumers and all producers, so that its receipts are complete.
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
    /// Whether other workers take part in the trial: then the audit is made of the books of all.
    pub shared: bool,
    /// The producers whose messages' end-to-end latency is measured here; None: all.
    pub measured: Option<Arc<[u32]>>,
    /// How long a silent controller is trusted.
    pub lease_ns: i64,
    /// How long readiness may take.
    pub ready_timeout_ns: i64,
    /// Whether real-time scheduling is asked for.
    pub realtime: bool,
    /// The shortest time between two wake-ups for the schedule.
    pub quantum_ns: i64,
    /// Whether disturbance is looked for.
    pub probes: bool,
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

fn subscriptions(
    request: &request::Trial,
    topics: &[Topic],
) -> Result<(Vec<SubscriptionPlan>, Vec<ConsumerSpec>), ApiError> {
    count("subscriptions", request.subscriptions.len(), 0, SUBSCRIPTIONS_MAX)?;
    let mut names = HashSet::new();
    let mut plans = Vec::new();
    let mut consumers = Vec::new();
    let sent_to: HashSet<&str> = request
        .producers
        .iter()
        .map(|producer| producer.topic.as_str())
        .collect();
    let probed: Vec<bool> = topics
        .iter()
        .map(|topic| sent_to.contains(topic.name.as_str()))
        .collect();
    // By slot, which numbers the partitions of all topics through.
    let slots: Vec<(usize, u32)> = topics
        .iter()
        .enumerate()
        .flat_map(|(index, topic)| (0..topic.partitions).map(move |partition| (index, partition)))
        .collect();
    let mut read_partitions = 0;
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
        for (field, us) in [
            ("us_per_msg", subscription.processing.us_per_msg),
            ("us_per_fetch", subscription.processing.us_per_fetch),
        ] {
            within(&path(&format!("processing.{field}")), us, 0.0, 3.6e9, "us")?;
        }
        let from_earliest = subscription.start == request::Start::Earliest;
        let mut plan = SubscriptionPlan {
            name: subscription.name.clone(),
            from_earliest,
            partitions: 0,
            provable: 0,
            // What other workers send comes here as well, and is not counted among what was acknowledged here.
            is_whole: mine == all && !request.shared,
        };
        if consumers.len() + mine as usize > CONSUMERS_PER_WORKER_MAX {
            return Err(ApiError::field(
                path("consumers"),
                format!(
                    "makes more than {CONSUMERS_PER_WORKER_MAX} consumers on this worker: expected fewer, or more workers"
                ),
            ));
        }
        read_partitions += slots.len().min((slots.len() / all as usize + 1) * mine as usize);
        if read_partitions > READ_PARTITIONS_MAX {
            return Err(ApiError::field(
                path("consumers"),
                format!(
                    "the subscriptions read {read_partitions} partitions up to this one, each counted as often as it is read: \
                     expected at most {READ_PARTITIONS_MAX}"
                ),
            ));
        }
        for consumer in from..from + mine {
            // Many topics of one partition each are spread, too.
            let partitions: Vec<(usize, u32)> = slots
                .iter()
                .skip(consumer as usize)
                .step_by(all as usize)
                .copied()
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

/// How many lanes there are for sending and for receiving. No lanes of their own for the consumers: they share the producers'.
fn lane_counts(
    lanes: &request::Lanes,
    producers: usize,
    consumers: usize,
    light: bool,
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
    if light && for_producers.is_none_or(|lanes| lanes == 1) && for_consumers.is_none() {
        return Ok((1, 0));
    }
    let for_producers = for_producers.unwrap_or((cores / 2).max(1)).min(producers);
    let left = cores.saturating_sub(for_producers);
    let for_consumers = for_consumers.unwrap_or(left).min(consumers);
    Ok((for_producers, for_consumers))
}

/// The shortest time between two wake-ups for messages that leave at once, unless it is asked for. Waking up is what costs, several times what a
/// message does; but what is left until then is late by it, and the latency of a fast system is some hundred microseconds.
const QUANTUM_US: u64 = 100;

/// Up to this many messages per second, sent and received together, one lane has time to spare for both.
const LIGHT_MSGS_S_MAX: f64 = 200_000.0;

/// Whether one lane can carry the load without its receiving ever making its sending late: a low rate all the way, and nothing to
/// catch up with. What costs at such rates is waking up, and a lane for both wakes up less often than two.
fn is_light(request: &request::Trial, base: &ScheduleSpec) -> Result<bool, ApiError> {
    let rate_msgs_s = changes(request)?
        .iter()
        .map(|change| change.to_msgs_s)
        .chain(base.ramp.map(|ramp| ramp.to_msgs_s))
        .fold(base.rate_msgs_s, f64::max);
    let tailing = request
        .subscriptions
        .iter()
        .all(|subscription| subscription.start == request::Start::Latest);
    let copies = 1 + request.subscriptions.len();
    Ok(base.arrival != Arrival::Closed && tailing && rate_msgs_s * copies as f64 <= LIGHT_MSGS_S_MAX)
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
    let base = schedule(request)?;
    let closed_loop = base.arrival == Arrival::Closed;
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
    let quantum_us = whole(
        "lanes.quantum_us",
        request.lanes.quantum_us.unwrap_or(QUANTUM_US),
        1,
        100_000,
        "us",
    )?;
    let light = is_light(request, &base)?;
    let (for_producers, for_consumers) =
        lane_counts(&request.lanes, producers.len(), consumers.len(), light, cores)?;

    let empty = LaneSpec {
        run: request.run,
        topics: Arc::clone(&topics),
        producers: Vec::new(),
        consumers: Vec::new(),
        batch,
        closed_loop,
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
            paces: Vec::new(),
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
    set_paces(&mut lanes, request);
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
        closed_loop,
        phases,
        stop_ns: base.stop_ns,
        stamped: pool.is_stampable(),
        interval_ns: interval_ms as i64 * 1_000_000,
        shared: request.shared,
        measured: (request.measure == request::Measure::Own)
            .then(|| request.producers.iter().map(|producer| producer.id).collect()),
        lease_ns: ns(lease_s),
        ready_timeout_ns: ns(ready_timeout_s),
        realtime: request.lanes.realtime == request::Realtime::Auto,
        quantum_ns: quantum_us as i64 * 1000,
        probes: request.quiet.probes,
    })
}

/// How long the consumers of each lane need: those of one subscription work side by side.
fn set_paces(lanes: &mut [LanePlan], request: &request::Trial) {
    for (subscription, asked) in request.subscriptions.iter().enumerate() {
        let processing = asked.processing;
        if processing.us_per_msg == 0.0 && processing.us_per_fetch == 0.0 {
            continue;
        }
        for lane in &mut *lanes {
            let consumers = lane
                .spec
                .consumers
                .iter()
                .filter(|consumer| consumer.subscription == subscription && !consumer.partitions.is_empty())
                .count();
            if consumers > 0 {
                lane.paces.push(Pace {
                    subscription,
                    ns_per_msg: processing.us_per_msg * 1e3 / consumers as f64,
                    ns_per_fetch: processing.us_per_fetch * 1e3 / consumers as f64,
                });
            }
        }
    }
}

/// Each partition is probed by the first lane that has a producer of its topic.
fn share_out_probes(lanes: &mut [LanePlan], topics: &[Topic]) {
    let mut is_shared_out = vec![false; topics.len()];
    for lane in lanes {
        for producer in &lane.spec.producers {
            if !std::mem::replace(&mut is_shared_out[producer.topic], true) {
                let topic = &topics[producer.topic];
                lane.probe_slots
                    .extend(topic.first_slot..topic.first_slot + topic.partitions as usize);
            }
        }
        lane.probe_slots.sort_unstable();
    }
}
