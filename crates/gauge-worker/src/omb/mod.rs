//! The worker protocol of the OpenMessaging Benchmark (OMB), so that a leader of OMB can drive this worker (docs/omb-worker.md).
//!
//! Each step of a leader becomes a trial of our own API. Consumers alone are a trial that runs until it is stopped. Where there are
//! producers, too, probing and load are a trial each, because a trial's payload and rate are known from its start:
//!
//! | call | trial |
//! |---|---|
//! | create-consumers | consumers |
//! | probe-producers | consumers if there are some, and one message of each producer |
//! | start-load | consumers if there are some, and producers at the rate that was asked for |
//!
//! OMB's workers do not know of each other and compare wall clocks, so this one shows the wall clock in its stamps.

pub(crate) mod driver;
mod figures;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, http::StatusCode};
use gauge_load::audit::PRODUCERS_MAX;
use gauge_load::clock::{monotonic_ns, unix_ns};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::api::{self, App};
use crate::check;
use crate::error::ApiError;
use crate::handle::{Ask, Begin, Handle, State as TrialState};
use crate::request;
use driver::Driver;
use figures::{Latencies, Totals};

/// All of OMB's workers stamp messages with the same run: topics are new in every run.
const RUN: u32 = 0x4f4d_4221;
/// How long a leader may be silent: it asks every 10 s while load runs, and less often while it creates things.
const LEASE_S: f64 = 120.0;
/// Shorter than ours: the end of a leader's period cuts through an interval.
const INTERVAL_MS: u64 = 200;
const INTERVALS_MAX: usize = 1000;
const READY_WITHIN: Duration = Duration::from_secs(120);
const PROBED_WITHIN: Duration = Duration::from_secs(30);
const ADMIN_WITHIN_S: f64 = 120.0;
const POLL: Duration = Duration::from_millis(20);
/// OMB's probes have 10 bytes, which is too few for a stamp.
const PROBE_BYTES: u64 = 64;
/// Distinct keys of OMB's key distributors.
const KEYS: u32 = 10_000;
/// Producers, and consumers, of one worker: more are no trial of ours either (`load`, `plan`).
const CLIENTS_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Topics {
    number_of_topics: u32,
    number_of_partitions_per_topic: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Consumers {
    topics_subscriptions: Vec<Reader>,
}

/// One consumer.
#[derive(Clone, Debug, Deserialize)]
struct Reader {
    topic: String,
    subscription: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Load {
    payload_data: Vec<String>,
    publish_rate: f64,
    #[serde(default)]
    key_distributor_type: Option<String>,
}

/// What a leader has told so far.
#[derive(Default)]
struct Bench {
    driver: Option<Driver>,
    created: Vec<String>,
    readers: Vec<Reader>,
    writers: Vec<String>,
    partitions: BTreeMap<String, u32>,
    trial: Option<Arc<Handle>>,
    subscriptions: Vec<String>,
    next_interval: u64,
    next_producer: u32,
    /// Of the trials that are over.
    ended: Totals,
    /// As of the last period.
    told: Totals,
    period: Latencies,
    cumulative: Latencies,
}

/// The worker as OMB sees it.
pub(crate) struct Worker {
    app: Arc<App>,
    bench: Mutex<Bench>,
    topics: AtomicU64,
}

type Shared = State<Arc<Worker>>;
type Done = Result<StatusCode, ApiError>;

/// All of OMB's routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    // From here on stamps show the wall clock.
    gauge_load::clock::skew(unix_ns() - monotonic_ns(), 0);
    let worker = Worker {
        app,
        bench: Mutex::new(Bench {
            // Producers of two workers must not be taken for one another.
            next_producer: (std::process::id().wrapping_mul(0x9e37_79b9) >> 17) % (PRODUCERS_MAX as u32 / 2),
            ..Bench::default()
        }),
        topics: AtomicU64::new(0),
    };
    let routes = Router::new()
        .route("/initialize-driver", post(initialize_driver))
        .route("/create-topics", post(create_topics))
        .route("/create-consumers", post(create_consumers))
        .route("/create-producers", post(create_producers))
        .route("/probe-producers", post(probe_producers))
        .route("/start-load", post(start_load))
        .route("/adjust-publish-rate", post(adjust_publish_rate))
        .route("/pause-consumers", post(pause_consumers))
        .route("/resume-consumers", post(resume_consumers))
        .route("/counters-stats", get(counters_stats))
        .route("/period-stats", get(period_stats))
        .route("/cumulative-latencies", get(cumulative_latencies))
        .route("/reset-stats", post(reset_stats))
        .route("/stop-all", post(stop_all))
        .fallback(async || {
            ApiError::not_found("there is no such path in OMB's worker protocol: see docs/omb-worker.md")
        })
        .with_state(Arc::new(worker));
    api::guarded(routes)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad_request(request::unread(&error)))
}

/// The fields of an object.
fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

impl Bench {
    fn driver(&self) -> Result<&Driver, ApiError> {
        self.driver
            .as_ref()
            .ok_or_else(|| ApiError::conflict("there is no driver yet: initialize-driver comes first"))
    }

    fn system(&self) -> Result<request::System, ApiError> {
        serde_json::from_value(self.driver()?.system.clone())
            .map_err(|error| ApiError::internal(format!("the driver's system: {error}")))
    }

    /// Asks the current trial, if there is one.
    async fn ask<T>(&self, ask: impl FnOnce(crate::handle::Reply<T>) -> Ask) -> Result<Option<T>, ApiError> {
        match &self.trial {
            Some(trial) => trial.ask(ask).await.map(Some),
            None => Ok(None),
        }
    }

    /// Totals since the driver was initialized. A trial that has failed says so: OMB ends the run, as it should.
    async fn totals(&self) -> Result<Totals, ApiError> {
        if let Some(status) = self.ask(Ask::Status).await?
            && let Some(error) = status.error
        {
            return Err(ApiError::internal(error));
        }
        let counters = self.ask(Ask::Counters).await?;
        Ok(match counters {
            Some(counters) => self
                .ended
                .plus(Totals::of(&serde_json::to_value(counters).unwrap_or_default())),
            None => self.ended,
        })
    }

    /// Takes over the distributions of the intervals that are complete by now.
    async fn pull(&mut self) -> Result<(), ApiError> {
        loop {
            let since = self.next_interval;
            let Some((next, intervals)) = self
                .ask(|reply| Ask::Intervals(since, INTERVALS_MAX, reply))
                .await?
            else {
                return Ok(());
            };
            for interval in &intervals {
                let interval = serde_json::to_value(&**interval).unwrap_or_default();
                self.period.add(&interval);
                self.cumulative.add(&interval);
            }
            self.next_interval = next;
            if intervals.len() < INTERVALS_MAX {
                return Ok(());
            }
        }
    }

    /// Ends the current trial; what it has counted is kept.
    async fn end_trial(&mut self, app: &Arc<App>) -> Result<(), ApiError> {
        if let Some(trial) = self.trial.clone() {
            if let Ok(totals) = self.totals().await {
                self.ended = totals;
            }
            let _ = self.pull().await;
            self.trial = None;
            self.next_interval = 0;
            api::end_trial(app, &trial.id).await?;
        }
        Ok(())
    }

    /// Partitions of topics that this worker has not created itself.
    async fn look_up(&mut self, app: &Arc<App>) -> Result<(), ApiError> {
        let wanted: BTreeSet<&String> = self
            .readers
            .iter()
            .map(|reader| &reader.topic)
            .chain(&self.writers)
            .collect();
        let unknown: Vec<String> = wanted
            .into_iter()
            .filter(|topic| !self.partitions.contains_key(*topic))
            .cloned()
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let asked = unknown.clone();
        let described = api::administer(app, &self.system()?, ADMIN_WITHIN_S, move |admin, deadline_ns| {
            admin.describe(&asked, deadline_ns)
        })
        .await?;
        for topic in unknown {
            let partitions = described["topics"][&topic]["partitions"].as_u64();
            let partitions = partitions
                .and_then(|count| u32::try_from(count).ok())
                .ok_or_else(|| ApiError::not_found(format!("there is no topic '{topic}'")))?;
            self.partitions.insert(topic, partitions);
        }
        Ok(())
    }

    /// Subscriptions of a trial: every one reads all topics of this worker.
    fn subscriptions(&self) -> Result<Vec<Value>, ApiError> {
        // OMB draws a name for each topic's subscription: "sub-000-Ab3x". What they have in common is the number.
        let number = |name: &str| name.split('-').take(2).collect::<Vec<_>>().join("-");
        let mut consumers: BTreeMap<String, BTreeMap<&str, u32>> = BTreeMap::new();
        for reader in &self.readers {
            *consumers
                .entry(number(&reader.subscription))
                .or_default()
                .entry(reader.topic.as_str())
                .or_default() += 1;
        }
        let topics = self
            .readers
            .iter()
            .map(|reader| reader.topic.as_str())
            .collect::<BTreeSet<_>>();
        let mut found = Vec::new();
        for (name, by_topic) in consumers {
            if by_topic.len() != topics.len() {
                return Err(ApiError::conflict(format!(
                    "subscription {name} reads {} of this worker's {} topics: the consumers of a subscription must be on one worker \
                     (give the leader two workers, or this one alone)",
                    by_topic.len(),
                    topics.len()
                )));
            }
            // Names of an earlier run may still have positions.
            let unique = self
                .readers
                .iter()
                .find(|reader| number(&reader.subscription) == name);
            let name = unique.map_or(name, |reader| reader.subscription.clone());
            found.push(json!({"name": name, "start": "latest", "consumers": by_topic.values().sum::<u32>()}));
        }
        Ok(found)
    }

    /// Creates a trial and starts it as soon as it is ready.
    async fn begin(&mut self, app: &Arc<App>, load: Map<String, Value>) -> Result<(), ApiError> {
        self.end_trial(app).await?;
        self.look_up(app).await?;
        let subscriptions = self.subscriptions()?;
        let driver = self.driver()?;
        let has_load = !load.is_empty();
        let read: BTreeSet<&String> = self.readers.iter().map(|reader| &reader.topic).collect();
        let topics: BTreeSet<&String> = read
            .iter()
            .copied()
            .chain(self.writers.iter().filter(|_| has_load))
            .collect();
        if !read.is_empty() && topics.len() > read.len() {
            return Err(ApiError::conflict(
                "this worker writes to topics that it does not read: with one worker both are all topics, with more each has one role",
            ));
        }
        let topics: Vec<Value> = topics
            .into_iter()
            .map(|topic| json!({"name": topic, "partitions": self.partitions[topic]}))
            .collect();
        let mut request = Map::from_iter([
            ("run".to_owned(), json!(RUN)),
            ("system".to_owned(), driver.system.clone()),
            ("topics".to_owned(), json!(topics)),
            ("batch".to_owned(), json!(driver.batch)),
            ("interval_ms".to_owned(), json!(INTERVAL_MS)),
            ("lease_s".to_owned(), json!(LEASE_S)),
            // OMB's protocol has no word for quiet time.
            ("quiet".to_owned(), json!({"probes": false})),
            ("ready_timeout_s".to_owned(), json!(READY_WITHIN.as_secs())),
        ]);
        request.extend(driver.client.clone());
        request.extend(load);
        self.subscriptions = subscriptions
            .iter()
            .filter_map(|one| one["name"].as_str())
            .map(str::to_owned)
            .collect();
        request.insert("subscriptions".into(), json!(subscriptions));
        let trial = api::begin_trial(app, move || {
            serde_json::from_value(Value::Object(request))
                .map_err(|error| ApiError::bad_request(format!("this cannot be measured: {error}")))
        })
        .await?;
        self.trial = Some(Arc::clone(&trial));
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let status = trial.ask(Ask::Status).await?;
            if status.state == TrialState::Ready {
                break;
            }
            if status.state.is_over() || Instant::now() > deadline {
                let why = status.error.unwrap_or_else(|| "it was not ready in time".into());
                return Err(ApiError::internal(format!(
                    "producers and consumers could not be created: {why}"
                )));
            }
            sleep(POLL).await;
        }
        trial
            .ask(|reply| Ask::Start(Begin::In(10_000_000), reply))
            .await?;
        Ok(())
    }

    /// `producers` of a trial, with ids that were not used before.
    fn producers(&mut self, keys: &str) -> Vec<Value> {
        let first = self.next_producer;
        self.next_producer = (first + self.writers.len() as u32) % (PRODUCERS_MAX as u32 - 4096);
        let numbered = self.writers.iter().zip(first..);
        numbered
            .map(|(topic, id)| match keys {
                "none" => json!({"id": id, "topic": topic}),
                _ => json!({"id": id, "topic": topic, "keys": keys, "key_count": KEYS}),
            })
            .collect()
    }
}

async fn initialize_driver(State(worker): Shared, body: Bytes) -> Done {
    let text =
        std::str::from_utf8(&body).map_err(|_| ApiError::bad_request("the driver file is not UTF-8"))?;
    let driver = driver::parse(text).map_err(ApiError::bad_request)?;
    if !driver.ignored.is_empty() {
        eprintln!(
            "gauge worker: not honoured of the driver file: {}",
            driver.ignored.join(", ")
        );
    }
    let mut bench = worker.bench.lock().await;
    bench.end_trial(&worker.app).await?;
    *bench = Bench {
        driver: Some(driver),
        next_producer: bench.next_producer,
        ..Bench::default()
    };
    Ok(StatusCode::OK)
}

async fn create_topics(State(worker): Shared, body: Bytes) -> Result<Json<Vec<String>>, ApiError> {
    let wanted: Topics = parse(&body)?;
    // The count comes first: a name is made for each.
    check::count(
        "numberOfTopics",
        wanted.number_of_topics as usize,
        1,
        check::TOPICS_MAX,
    )?;
    let mut bench = worker.bench.lock().await;
    let driver = bench.driver()?;
    let stamp = unix_ns() / 1_000_000;
    let names: Vec<String> = (0..wanted.number_of_topics)
        .map(|_| worker.topics.fetch_add(1, Ordering::Relaxed))
        .map(|number| format!("{}-{stamp:x}-{number:04}", driver.topic_prefix))
        .collect();
    let topics: Vec<Value> = names
        .iter()
        .map(|name| {
            let mut topic = json!({"name": name, "partitions": wanted.number_of_partitions_per_topic});
            if let Some(copies) = driver.replication_factor {
                topic["replication_factor"] = json!(copies);
            }
            if !driver.topic_settings.is_empty() {
                topic["configs"] = json!(driver.topic_settings);
            }
            topic
        })
        .collect();
    let request = json!({"system": driver.system, "topics": topics, "timeout_s": ADMIN_WITHIN_S});
    let request: request::CreateTopics = serde_json::from_value(request)
        .map_err(|error| ApiError::bad_request(format!("these topics cannot be created: {error}")))?;
    api::make_topics(&worker.app, &request).await?;
    for name in &names {
        bench
            .partitions
            .insert(name.clone(), wanted.number_of_partitions_per_topic);
    }
    bench.created.extend(names.clone());
    Ok(Json(names))
}

async fn create_consumers(State(worker): Shared, body: Bytes) -> Done {
    let wanted: Consumers = parse(&body)?;
    let mut bench = worker.bench.lock().await;
    // What earlier calls brought counts: they add up until stop-all.
    let readers = bench.readers.len() + wanted.topics_subscriptions.len();
    check::count("topicsSubscriptions", readers, 0, CLIENTS_MAX)?;
    bench.readers.extend(wanted.topics_subscriptions);
    if !bench.readers.is_empty() {
        bench.begin(&worker.app, Map::new()).await?;
    }
    Ok(StatusCode::OK)
}

async fn create_producers(State(worker): Shared, body: Bytes) -> Done {
    let topics: Vec<String> = parse(&body)?;
    let mut bench = worker.bench.lock().await;
    bench.driver()?;
    check::count(
        "the topics of producers",
        bench.writers.len() + topics.len(),
        0,
        CLIENTS_MAX,
    )?;
    bench.writers.extend(topics);
    Ok(StatusCode::OK)
}

async fn probe_producers(State(worker): Shared) -> Done {
    let mut bench = worker.bench.lock().await;
    if bench.writers.is_empty() {
        return Ok(StatusCode::OK);
    }
    let producers = bench.producers("none");
    let count = producers.len() as u64;
    let before = bench.totals().await?.sent_msgs;
    // Within one gap of the schedule every producer sends one message.
    let gap_s = 0.1;
    let load = json!({
        "producers": producers,
        "schedule": {"arrival": "uniform", "rate_msgs_s": count as f64 / gap_s, "stop_s": gap_s * 0.999},
        "payload": {"size_bytes": PROBE_BYTES},
    });
    bench.begin(&worker.app, fields(load)).await?;
    let deadline = Instant::now() + PROBED_WITHIN;
    while bench.totals().await?.sent_msgs < before + count {
        if Instant::now() > deadline {
            return Err(ApiError::internal(
                "the producers' first messages were not acknowledged in time",
            ));
        }
        sleep(POLL).await;
    }
    Ok(StatusCode::OK)
}

async fn start_load(State(worker): Shared, body: Bytes) -> Done {
    let wanted: Load = parse(&body)?;
    let mut bench = worker.bench.lock().await;
    if bench.writers.is_empty() {
        return Ok(StatusCode::OK);
    }
    let keys = match wanted.key_distributor_type.as_deref() {
        None | Some("NO_KEY") => "none",
        Some("KEY_ROUND_ROBIN" | "RANDOM_NANO") => "keyed",
        Some(other) => {
            return Err(ApiError::bad_request(format!(
                "keyDistributorType {other}: expected NO_KEY, KEY_ROUND_ROBIN or RANDOM_NANO"
            )));
        }
    };
    let load = json!({
        "producers": bench.producers(keys),
        "schedule": {"arrival": "uniform", "rate_msgs_s": wanted.publish_rate},
        "payload": {"templates_base64": wanted.payload_data},
    });
    bench.begin(&worker.app, fields(load)).await?;
    Ok(StatusCode::OK)
}

async fn adjust_publish_rate(State(worker): Shared, body: Bytes) -> Done {
    let rate: f64 = parse(&body)?;
    let bench = worker.bench.lock().await;
    if !bench.writers.is_empty() {
        let rate = check::within("rate", rate, 0.0, check::RATE_MSGS_S_MAX, "messages/s")?;
        bench.ask(|reply| Ask::Rate(rate, reply)).await?;
    }
    Ok(StatusCode::OK)
}

async fn pause(worker: &Worker, paused: bool) -> Done {
    let bench = worker.bench.lock().await;
    for name in &bench.subscriptions {
        bench.ask(|reply| Ask::Pause(name.clone(), paused, reply)).await?;
    }
    Ok(StatusCode::OK)
}

async fn pause_consumers(State(worker): Shared) -> Done {
    pause(&worker, true).await
}

async fn resume_consumers(State(worker): Shared) -> Done {
    pause(&worker, false).await
}

async fn counters_stats(State(worker): Shared) -> Result<Json<Value>, ApiError> {
    let totals = worker.bench.lock().await.totals().await?;
    Ok(Json(json!({
        "messagesSent": totals.sent_msgs,
        "messagesReceived": totals.received_msgs,
        "messageSendErrors": totals.failed_msgs,
    })))
}

async fn period_stats(State(worker): Shared) -> Result<Json<Value>, ApiError> {
    let mut bench = worker.bench.lock().await;
    bench.pull().await?;
    let totals = bench.totals().await?;
    let since = totals.minus(bench.told);
    bench.told = totals;
    let mut answer = std::mem::take(&mut bench.period).fields();
    answer.extend(Map::from_iter([
        ("messagesSent".to_owned(), json!(since.sent_msgs)),
        ("messageSendErrors".to_owned(), json!(since.failed_msgs)),
        ("bytesSent".to_owned(), json!(since.sent_bytes)),
        ("messagesReceived".to_owned(), json!(since.received_msgs)),
        ("bytesReceived".to_owned(), json!(since.received_bytes)),
        ("totalMessagesSent".to_owned(), json!(totals.sent_msgs)),
        ("totalMessageSendErrors".to_owned(), json!(totals.failed_msgs)),
        ("totalMessagesReceived".to_owned(), json!(totals.received_msgs)),
    ]));
    Ok(Json(Value::Object(answer)))
}

async fn cumulative_latencies(State(worker): Shared) -> Result<Json<Value>, ApiError> {
    let mut bench = worker.bench.lock().await;
    bench.pull().await?;
    Ok(Json(Value::Object(
        std::mem::take(&mut bench.cumulative).fields(),
    )))
}

async fn reset_stats(State(worker): Shared) -> Done {
    let mut bench = worker.bench.lock().await;
    bench.pull().await?;
    bench.period = Latencies::default();
    bench.cumulative = Latencies::default();
    Ok(StatusCode::OK)
}

async fn stop_all(State(worker): Shared) -> Done {
    let mut bench = worker.bench.lock().await;
    bench.end_trial(&worker.app).await?;
    let created = std::mem::take(&mut bench.created);
    if !created.is_empty()
        && let Ok(system) = bench.system()
    {
        // OMB leaves its topics behind; what this worker has created it takes away, as far as the system lets it.
        let deleted = api::administer(&worker.app, &system, ADMIN_WITHIN_S, move |admin, deadline_ns| {
            admin.delete_topics(&created, deadline_ns)
        });
        if let Err(error) = deleted.await {
            eprintln!(
                "gauge worker: the topics of this run could not be deleted: {}",
                error.message
            );
        }
    }
    *bench = Bench {
        next_producer: bench.next_producer,
        ..Bench::default()
    };
    Ok(StatusCode::OK)
}
