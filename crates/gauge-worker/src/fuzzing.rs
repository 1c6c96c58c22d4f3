//! What `make fuzz` calls (fuzz/README.md): all routes of both languages without sockets, trials as every protocol looks at them, driver
//! files. The system behind the routes takes every topic and has no lane, so that nothing is ever connected to.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode};
use gauge_client::{Admin, ClientError, Endpoint, LaneClient, LaneSpec, NewTopic, Protocol};
use gauge_load::fuzzing::Target;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::api::{self, App};
use crate::omb;
use crate::{plan, request};

/// The targets of this crate.
pub fn targets() -> Vec<Target> {
    vec![
        ("worker-routes", own_routes, own_seeds),
        ("omb-routes", omb_routes, omb_seeds),
        ("worker-trials", trials, trial_seeds),
        ("omb-drivers", drivers, driver_seeds),
    ]
}

/// How long the requests of an input may take. None of them has to wait for a system.
const WITHIN: Duration = Duration::from_secs(10);
/// Between the requests of an input.
const SEPARATOR: &[u8] = b"\n---\n";

struct Nowhere;

impl Protocol for Nowhere {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn client_name(&self) -> &'static str {
        "none"
    }

    fn check(&self, _: &Endpoint, _: &LaneSpec) -> Result<Vec<String>, ClientError> {
        Ok(Vec::new())
    }

    fn lane(&self, _: &Endpoint, _: LaneSpec) -> Result<Box<dyn LaneClient>, ClientError> {
        Err(ClientError::system("there is no system"))
    }

    fn admin(&self, _: &Endpoint) -> Result<Box<dyn Admin>, ClientError> {
        Ok(Box::new(Nowhere))
    }
}

impl Admin for Nowhere {
    fn create_topics(&mut self, _: &[NewTopic], _: i64) -> Result<(), ClientError> {
        Ok(())
    }

    fn delete_topics(&mut self, _: &[String], _: i64) -> Result<Vec<String>, ClientError> {
        Ok(Vec::new())
    }

    fn describe(&mut self, topics: &[String], _: i64) -> Result<Value, ClientError> {
        let found = topics
            .iter()
            .map(|topic| (topic.clone(), json!({"partitions": 1})));
        Ok(json!({"topics": found.collect::<serde_json::Map<_, _>>()}))
    }
}

/// Requests, each `METHOD PATH` on a line and a body, to one worker.
fn ask(input: &[u8], router: fn(Arc<App>) -> Router, after: &[(&str, &str)]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime: Runtime = runtime.expect("a runtime begins");
    let routes = TowerToHyperService::new(router(App::new(vec![Arc::new(Nowhere)])));
    runtime.block_on(async {
        for request in pieces(input).filter_map(request) {
            call(&routes, request).await;
        }
        for (method, path) in after {
            let request = Request::builder().method(*method).uri(*path).body(Body::empty());
            call(&routes, request.expect("it is a request")).await;
        }
    });
}

async fn call(routes: &TowerToHyperService<Router>, request: Request<Body>) {
    let path = request.uri().path().to_owned();
    let answer = tokio::time::timeout(WITHIN, routes.call(request)).await;
    let Ok(answer) = answer.unwrap_or_else(|_| panic!("{path} is not answered"));
    // What the double of a system answers is no fault, and is told apart from one by its words.
    let is_fault = answer.status() == StatusCode::INTERNAL_SERVER_ERROR;
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX)
        .await
        .unwrap_or_default();
    let words = String::from_utf8_lossy(&body);
    assert!(
        !is_fault || !words.contains("a fault of the worker"),
        "{path}: {words}"
    );
}

fn pieces(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if input.is_empty() {
            return None;
        }
        let end = input
            .windows(SEPARATOR.len())
            .position(|window| window == SEPARATOR);
        let piece = &input[..end.unwrap_or(input.len())];
        input = end.map_or(&[][..], |end| &input[end + SEPARATOR.len()..]);
        Some(piece)
    })
}

fn request(piece: &[u8]) -> Option<Request<Body>> {
    let line_bytes = piece
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(piece.len());
    let (line, body) = piece.split_at(line_bytes);
    let (method, path) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let body = Bytes::copy_from_slice(body.get(1..).unwrap_or_default());
    let request = Request::builder().method(Method::from_bytes(method.as_bytes()).ok()?);
    request.uri(path).body(Body::from(body)).ok()
}

fn own_routes(input: &[u8]) {
    // A trial that was created is forgotten, or its thread would outlive the input.
    ask(
        input,
        api::router,
        &[
            ("POST", "/v1/trials/current/abort"),
            ("DELETE", "/v1/trials/current"),
        ],
    );
}

fn omb_routes(input: &[u8]) {
    ask(input, omb::router, &[("POST", "/stop-all")]);
}

fn trials(input: &[u8]) {
    let Ok(trial) = request::parse::<request::Trial>(&Bytes::copy_from_slice(input)) else {
        return;
    };
    let Ok(plan) = plan::plan(&trial, 2) else { return };
    for protocol in gauge_client::protocols() {
        for lane in &plan.lanes {
            // Refused or not: it says so without connecting.
            let _ = protocol.check(&plan.endpoint, &lane.spec);
        }
    }
}

fn drivers(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = omb::driver::parse(text);
    }
}

fn trial() -> Value {
    json!({
        "run": 7, "seed": 42,
        "system": {
            "protocol": "kafka", "bootstrap": ["127.0.0.1:9092"], "options": {"client_id": "x"},
            "security": {"auth": {"mechanism": "plain", "username": "u", "password": "p"}},
        },
        "topics": [{"name": "t", "partitions": 4}],
        "producers": [{"id": 0, "topic": "t", "keys": "zipf", "key_count": 10, "zipf_exponent": 1.0}],
        "subscriptions": [{"name": "s", "start": "latest", "consumers": 2, "processing": {"us_per_msg": 1.0}}],
        "schedule": {"arrival": "uniform", "rate_msgs_s": 5000.0, "stop_s": 0.8,
            "changes": [{"at_s": 0.5, "rate_msgs_s": 10.0, "over_s": 0.1}]},
        "phases": [{"name": "warm-up", "from_s": 0.0}, {"name": "measure", "from_s": 0.3}],
        "payload": {"sizes_bytes": [100, 200], "random_ratio": 0.5},
        "batch": {"bytes": 1000, "linger_ms": 1.0, "in_flight": 5, "buffer_bytes": 1_000_000},
        "lanes": {"realtime": "off", "producer": 1, "consumer": 0, "quantum_us": 200},
        "interval_ms": 100, "acks": "leader", "compression": "lz4", "measure": "own", "shared": true,
    })
}

fn trial_seeds() -> Vec<Vec<u8>> {
    let nats = json!({"protocol": "nats", "bootstrap": ["a:1"], "options": {"stream": {}}, "security": {"auth": {"mechanism": "token", "token": "t"}}});
    let templates = json!({"templates_base64": ["AAAA"]});
    let mut other = trial();
    other["system"] = nats;
    other["payload"] = templates;
    vec![trial().to_string().into_bytes(), other.to_string().into_bytes()]
}

fn together(requests: &[(&str, Value)]) -> Vec<u8> {
    let pieces = requests.iter().map(|(line, body)| match body {
        Value::String(text) => format!("{line}\n{text}"),
        body => format!("{line}\n{body}"),
    });
    pieces.collect::<Vec<_>>().join("\n---\n").into_bytes()
}

fn own_seeds() -> Vec<Vec<u8>> {
    let system = trial()["system"].clone();
    let sent = json!({"producer": 0, "sent": 3, "acked": 3, "failed": 0, "censored": 0, "unknown": [[1, 2]]});
    let subscription = json!({"name": "s", "gave_up": false, "received": 3, "corrupted": 0, "unexpected": 0, "duplicated": 0,
        "reordered": 0, "left": 0, "recorded": 3, "samples": 3, "sequences": [[0, "Y2AAAA=="]]});
    let books = json!({"books": [{"stamped": true, "untaken": 0, "publish_samples": 3, "service_samples": 3, "send_delay_samples": 3,
        "sent": [sent], "subscriptions": [subscription]}]});
    let topics = json!({"system": system, "topics": [{"name": "a", "partitions": 2, "configs": {"a": "b"}}], "timeout_s": 1});
    let named = json!({"system": system, "topics": ["a"], "timeout_s": 1});
    let clocks = json!({"clocks": [{"producers": [0], "at_ns": 1, "ahead_ns": 2, "drift_ppb": 3}]});
    let requests = [
        ("GET /v1/info", json!({})),
        ("POST /v1/admin/create-topics", topics),
        ("POST /v1/admin/delete-topics", named.clone()),
        ("POST /v1/admin/describe", named),
        ("POST /v1/judge", books),
        (
            "POST /v1/clock",
            json!({"key": 1, "peers": ["127.0.0.1:1"], "period_ms": 100}),
        ),
        ("GET /v1/clock?since=3", json!({})),
        ("POST /v1/shutdown", json!({})),
    ];
    let of_a_trial = [
        ("GET /v1/trials/current", json!({})),
        (
            "POST /v1/trials/current/start",
            json!({"delay_ms": 10, "at_ns": 5}),
        ),
        ("POST /v1/trials/1/rate", json!({"rate_msgs_s": 100.0})),
        (
            "POST /v1/trials/current/phases",
            json!({"name": "more", "from_s": 1.0}),
        ),
        ("POST /v1/trials/current/clocks", clocks),
        ("POST /v1/trials/current/stop", json!({"at_s": 0.1})),
        ("GET /v1/trials/current/intervals?since=1&limit=7", json!({})),
        ("GET /v1/trials/current/counters", json!({})),
        ("POST /v1/trials/current/lease", json!({})),
        ("POST /v1/trials/current/subscriptions/s/pause", json!({})),
        ("POST /v1/trials/current/subscriptions/s/resume", json!({})),
        (
            "POST /v1/trials/current/finish",
            json!({"drain_s": 0.1, "quiet_s": 0.1}),
        ),
        ("POST /v1/trials/current/abort", json!({})),
        ("DELETE /v1/trials/current", json!({})),
    ];
    let alone = requests
        .iter()
        .map(|request| together(std::slice::from_ref(request)));
    let behind_a_trial = of_a_trial
        .iter()
        .map(|request| together(&[("POST /v1/trials", trial()), request.clone()]));
    alone.chain(behind_a_trial).collect()
}

fn omb_seeds() -> Vec<Vec<u8>> {
    let driver = || ("POST /initialize-driver", Value::String(KAFKA.to_owned()));
    let topics = || {
        (
            "POST /create-topics",
            json!({"numberOfTopics": 2, "numberOfPartitionsPerTopic": 1}),
        )
    };
    let readers = json!({"topicsSubscriptions": [{"topic": "t", "subscription": "sub-000-a"}]});
    let load =
        json!({"publishRate": 100.0, "payloadData": ["AAAA"], "keyDistributorType": "KEY_ROUND_ROBIN"});
    let writers = || ("POST /create-producers", json!(["t"]));
    vec![
        together(&[driver(), topics()]),
        together(&[driver(), ("POST /create-consumers", readers)]),
        together(&[driver(), writers(), ("POST /start-load", load)]),
        together(&[driver(), writers(), ("POST /probe-producers", json!(""))]),
        together(&[driver(), writers(), ("POST /adjust-publish-rate", json!(5.0))]),
        together(&[
            ("GET /counters-stats", json!("")),
            ("GET /period-stats", json!("")),
            ("GET /cumulative-latencies", json!("")),
            ("POST /reset-stats", json!("")),
            ("POST /pause-consumers", json!("")),
            ("POST /resume-consumers", json!("")),
            ("POST /stop-all", json!("")),
        ]),
    ]
}

const KAFKA: &str = "driverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver
replicationFactor: 1
topicConfig: |
  min.insync.replicas=1
commonConfig: |
  bootstrap.servers=a:9092
producerConfig: |
  acks=all
  linger.ms=1
";

fn driver_seeds() -> Vec<Vec<u8>> {
    let others = [
        "driverClass: a.PulsarBenchmarkDriver
client: {serviceUrl: 'pulsar://a:6650', httpUrl: 'http://a:8080', namespacePrefix: b/n, authentication: {plugin: x, data: 'token:t'}}
producer: &p {batchingEnabled: true, batchingMaxPublishDelayMs: 2, batchingMaxBytes: 131072}
consumer: *p
",
        "driverClass: a.RabbitMqBenchmarkDriver
amqpUris: ['amqp://guest:s%40x@host/%2f']
messagePersistence: true
queueType: QUORUM
",
    ];
    [KAFKA, others[0], others[1]]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}
