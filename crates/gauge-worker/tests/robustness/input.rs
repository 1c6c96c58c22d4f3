//! Bad input: every field, bodies, sums, and what a refusal may repeat.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Worker, trial};
use crate::{with, works};

#[test]
fn every_field_is_looked_at() {
    let worker = Worker::new();
    let keyed = json!({"id": 0, "topic": "t", "keys": "keyed"});
    let cases = [
        ("/run", json!(-1), "run"),
        ("/run", json!(4294967296u64), "run"),
        ("/run", json!("7"), "run"),
        ("/run", json!(null), "run"),
        ("/seed", json!(1.5), "seed"),
        ("/system/protocol", json!("carrier pigeon"), "system.protocol"),
        ("/system/bootstrap", json!([]), "system.bootstrap"),
        ("/system/bootstrap", json!("127.0.0.1:9092"), "system.bootstrap"),
        ("/system/bootstrap/0", json!("127.0.0.1"), "system.bootstrap[0]"),
        (
            "/system/bootstrap/0",
            json!("127.0.0.1:99999"),
            "system.bootstrap[0]",
        ),
        ("/system/options", json!({"colour": 1}), "system.options.colour"),
        ("/system/security", json!("geheim"), "system.security"),
        (
            "/system/security",
            json!({"tls": {"ca_pem": "geheim"}}),
            "system.security.tls.ca_pem",
        ),
        (
            "/system/security",
            json!({"auth": {"mechanism": "plain", "username": "u", "password": 5}}),
            "system.security.auth.password",
        ),
        ("/topics", json!([]), "topics"),
        (
            "/topics",
            json!([{"name": "t", "partitions": 1}, {"name": "t", "partitions": 1}]),
            "topics[1].name",
        ),
        ("/topics/0/name", json!(""), "topics[0].name"),
        ("/topics/0/name", json!("x".repeat(300)), "topics[0].name"),
        ("/topics/0/partitions", json!(0), "topics[0].partitions"),
        ("/topics/0/partitions", json!(1_000_000), "topics[0].partitions"),
        ("/topics/0/partitions", json!(-3), "topics[0].partitions"),
        (
            "/producers",
            json!([{"id": 0, "topic": "t"}, {"id": 0, "topic": "t"}]),
            "producers[1].id",
        ),
        ("/producers/0/id", json!(70_000), "producers[0].id"),
        ("/producers/0/topic", json!("nothing"), "producers[0].topic"),
        ("/producers/0/keys", json!("some"), "producers[0].keys"),
        ("/producers/0", keyed, "producers[0].key_count"),
        ("/producers/0/key_count", json!(5), "producers[0].key_count"),
        (
            "/producers/0/zipf_exponent",
            json!(1.0),
            "producers[0].zipf_exponent",
        ),
        (
            "/producers",
            json!([{"id": 0, "topic": "t", "keys": "zipf", "key_count": 5}, {"id": 1, "topic": "t", "keys": "zipf", "key_count": 6}]),
            "producers[1].keys",
        ),
        (
            "/subscriptions/0/processing",
            json!({"us_per_msg": -1.0}),
            "subscriptions[0].processing.us_per_msg",
        ),
        (
            "/schedule/changes",
            json!([{"at_s": 1.0, "rate_msgs_s": 5.0, "over_s": 2.0}, {"at_s": 2.0, "rate_msgs_s": 5.0}]),
            "schedule.changes[1].at_s",
        ),
        ("/payload/sizes_bytes", json!([100]), "payload.sizes_bytes"),
        (
            "/payload",
            json!({"sizes_bytes": [100, 0]}),
            "payload.sizes_bytes[1]",
        ),
        (
            "/subscriptions",
            json!([{"name": "a"}, {"name": "a"}]),
            "subscriptions[1].name",
        ),
        (
            "/subscriptions/0/start",
            json!("middle"),
            "subscriptions[0].start",
        ),
        (
            "/subscriptions/0/consumers",
            json!(0),
            "subscriptions[0].consumers",
        ),
        (
            "/subscriptions/0/consumer_from",
            json!(1),
            "subscriptions[0].consumer_from",
        ),
        (
            "/subscriptions/0/consumer_count",
            json!(2),
            "subscriptions[0].consumer_count",
        ),
        (
            "/subscriptions/0/commit_interval_ms",
            json!(1),
            "subscriptions[0].commit_interval_ms",
        ),
        ("/schedule", json!(null), "schedule"),
        ("/schedule/arrival", json!("late"), "schedule.arrival"),
        ("/schedule/arrival", json!("closed"), "schedule.rate_msgs_s"),
        ("/schedule/arrival", json!("burst"), "schedule.burst_msgs"),
        ("/schedule/burst_msgs", json!(5), "schedule.burst_msgs"),
        ("/schedule/rate_msgs_s", json!(null), "schedule.rate_msgs_s"),
        ("/schedule/rate_msgs_s", json!(-5), "schedule.rate_msgs_s"),
        ("/schedule/rate_msgs_s", json!(1e12), "schedule.rate_msgs_s"),
        (
            "/schedule/ramp",
            json!({"to_msgs_s": 5, "over_s": 0}),
            "schedule.ramp.over_s",
        ),
        (
            "/schedule/ramp",
            json!({"to_msgs_s": -5, "over_s": 1}),
            "schedule.ramp.to_msgs_s",
        ),
        ("/schedule/stop_s", json!(0), "schedule.stop_s"),
        ("/schedule/stop_s", json!(1e10), "schedule.stop_s"),
        (
            "/phases",
            json!([{"name": "a", "from_s": 1.0}]),
            "phases[0].from_s",
        ),
        (
            "/phases",
            json!([{"name": "a", "from_s": 0}, {"name": "b", "from_s": 0}]),
            "phases[1].from_s",
        ),
        (
            "/phases",
            json!([{"name": "a", "from_s": 0}, {"name": "a", "from_s": 1}]),
            "phases[1].name",
        ),
        ("/phases", json!([{"name": "a"}]), "phases[0].from_s"),
        ("/batch", json!({"bytes": 0}), "batch.bytes"),
        ("/batch", json!({"linger_ms": -1}), "batch.linger_ms"),
        ("/batch", json!({"in_flight": 0}), "batch.in_flight"),
        ("/batch", json!({"buffer_bytes": 10}), "batch.buffer_bytes"),
        ("/acks", json!("1"), "acks"),
        ("/idempotence", json!("yes"), "idempotence"),
        ("/compression", json!("zip"), "compression"),
        ("/payload", json!({}), "payload.size_bytes"),
        ("/payload/size_bytes", json!(0), "payload.size_bytes"),
        ("/payload/size_bytes", json!(1u64 << 40), "payload.size_bytes"),
        ("/payload/random_ratio", json!(1.5), "payload.random_ratio"),
        ("/payload/pool", json!(0), "payload.pool"),
        (
            "/payload",
            json!({"size_bytes": 10_000_000, "pool": 1000}),
            "payload.pool",
        ),
        (
            "/payload",
            json!({"templates_base64": []}),
            "payload.templates_base64",
        ),
        (
            "/payload",
            json!({"templates_base64": ["?"]}),
            "payload.templates_base64[0]",
        ),
        (
            "/payload",
            json!({"templates_base64": [""]}),
            "payload.templates_base64[0]",
        ),
        (
            "/payload",
            json!({"templates_base64": ["AAAA"], "size_bytes": 3}),
            "payload.templates_base64",
        ),
        ("/lanes", json!({"producer": 0}), "lanes.producer"),
        ("/lanes", json!({"consumer": 1000}), "lanes.consumer"),
        ("/lanes", json!({"realtime": "always"}), "lanes.realtime"),
        ("/lanes", json!({"quantum_us": 0}), "lanes.quantum_us"),
        ("/interval_ms", json!(5), "interval_ms"),
        ("/lease_s", json!(0), "lease_s"),
        ("/ready_timeout_s", json!(-1), "ready_timeout_s"),
        ("/request_timeout_ms", json!(0), "request_timeout_ms"),
        ("/retry_for_ms", json!(-1), "retry_for_ms"),
    ];
    for (pointer, value, field) in cases {
        let (status, error) = worker.refused("POST", "/v1/trials", &with(trial(), pointer, value.clone()));
        assert_eq!(status, 400, "{pointer} = {value}: {error}");
        assert_eq!(
            (&error["code"], &error["field"]),
            (&json!("bad_request"), &json!(field)),
            "{pointer} = {value}: {error}"
        );
    }
    for pointer in [
        "/colour",
        "/system/colour",
        "/topics/0/colour",
        "/producers/0/colour",
        "/subscriptions/0/colour",
        "/schedule/colour",
        "/phases/0/colour",
        "/payload/colour",
    ] {
        let (status, error) = worker.refused("POST", "/v1/trials", &with(trial(), pointer, json!(1)));
        assert_eq!(status, 400);
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains("unknown field `colour`"),
            "{error}"
        );
        assert!(error["field"].as_str().unwrap().ends_with("colour"), "{error}");
    }
    let empty = json!({"run": 1, "system": trial()["system"], "topics": trial()["topics"]});
    assert_eq!(
        worker.refused("POST", "/v1/trials", &empty).1["field"],
        "producers"
    );
    works(&worker);
}

#[test]
fn garbage_is_refused_and_the_worker_goes_on() {
    let worker = Worker::new();
    let bodies: [&[u8]; 8] = [
        b"{",
        b"nonsense",
        b"[]",
        b"\xff\xfe\x00",
        b"null",
        b"{}{}",
        b"{\"run\": 1e999}",
        b"\"text\"",
    ];
    for path in [
        "/v1/trials",
        "/v1/admin/create-topics",
        "/v1/admin/delete-topics",
        "/v1/admin/describe",
    ] {
        for body in bodies {
            let (status, text) = worker.raw("POST", path, body);
            let answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {text}"));
            assert_eq!(
                (status, &answer["error"]["code"]),
                (400, &json!("bad_request")),
                "{path}: {text}"
            );
        }
    }
    // Deeply nested JSON neither overflows the stack nor goes through.
    let deep = "[".repeat(200_000);
    assert_eq!(worker.raw("POST", "/v1/trials", deep.as_bytes()).0, 400);
    let (status, error) = worker.refused("GET", "/v1/nothing", &json!({}));
    assert_eq!((status, &error["code"]), (404, &json!("not_found")));
    assert_eq!(worker.refused("DELETE", "/v1/info", &json!({})).0, 405);
    assert_eq!(worker.refused("GET", "/v1/trials/current", &json!({})).0, 404);
    assert_eq!(worker.refused("POST", "/v1/trials/9/start", &json!({})).0, 404);
    assert_eq!(worker.refused("GET", "/v1/trials/%ff", &json!({})).0, 400);
    works(&worker);
    for query in ["since=-1", "since=x", "limit=0", "limit=100000", "colour=1"] {
        let path = format!("/v1/trials/current/intervals?{query}");
        assert_eq!(worker.refused("GET", &path, &json!({})).0, 400, "{query}");
    }
    assert_eq!(
        worker.refused("GET", "/v1/trials/other/counters", &json!({})).0,
        404
    );
}

#[test]
fn a_body_that_is_too_long_is_refused() {
    let worker = Worker::new();
    for (path, bytes) in [("/v1/trials", 17 << 20), ("/v1/admin/describe", 2 << 20)] {
        let (status, text) = worker.raw("POST", path, &vec![b' '; bytes]);
        assert_eq!(status, 413, "{path}: {text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["error"]["code"], "too_large");
    }
    // A long one that is allowed: templates.
    let body = trial();
    let template = "A".repeat(1 << 20);
    let long = with(body, "/payload", json!({"templates_base64": vec![template; 9]}));
    assert_eq!(worker.call("POST", "/v1/trials", &long).0, 201);
}

/// A trial that is as large as its limits allow.
fn large(subscriptions: usize, consumers: u32, partitions: u32) -> Value {
    let subscriptions: Vec<Value> = (0..subscriptions)
        .map(|number| json!({"name": format!("s-{number}"), "consumers": consumers}))
        .collect();
    let mut request = trial();
    request["topics"] = json!([{"name": "t", "partitions": partitions}]);
    request["subscriptions"] = json!(subscriptions);
    request
}

#[test]
fn a_large_trial_is_looked_at_while_others_are_answered() {
    let worker = Worker::new();
    let (mut longest, mut turns) = (Duration::ZERO, 0);
    std::thread::scope(|scope| {
        let creating = scope.spawn(|| worker.call("POST", "/v1/trials", &large(3, 10_000, 100_000)));
        while turns == 0 || !creating.is_finished() {
            let asked = Instant::now();
            worker.get("/v1/info");
            longest = longest.max(asked.elapsed());
            turns += 1;
        }
        let (status, answer) = creating.join().unwrap();
        assert_eq!(status, 201, "{answer}");
    });
    // It was 9 s, which is longer than a lease; what is left is the copy of the plan for the lanes.
    assert!(longest < Duration::from_secs(2), "an answer took {longest:?}");
    worker.call("DELETE", "/v1/trials/current", &json!({}));
}

#[test]
fn what_a_trial_takes_is_bounded_by_sums_too() {
    let worker = Worker::new();
    let refusal = |request: &Value, field: &str| {
        let asked = Instant::now();
        let (status, error) = worker.refused("POST", "/v1/trials", request);
        assert_eq!((status, error["field"].as_str()), (400, Some(field)), "{error}");
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        error["message"].as_str().unwrap().to_owned()
    };
    let read = refusal(&large(256, 1, 100_000), "subscriptions[10].consumers");
    assert!(read.contains("expected at most 1000000"), "{read}");
    let consumers = refusal(&large(256, 10_000, 10), "subscriptions[5].consumers");
    assert!(consumers.contains("more than 50000 consumers"), "{consumers}");
    let mut changing = trial();
    let producers: Vec<Value> = (0..10_000).map(|id| json!({"id": id, "topic": "t"})).collect();
    let changes: Vec<Value> = (0..2000)
        .map(|at| json!({"at_s": at, "rate_msgs_s": 1.0}))
        .collect();
    changing["producers"] = json!(producers);
    changing["schedule"] = json!({"arrival": "uniform", "rate_msgs_s": 1.0, "changes": changes});
    let kept = refusal(&changing, "schedule.changes");
    assert!(
        kept.contains("2000 changes for each of 10000 producers"),
        "{kept}"
    );
    let huge = json!({"books": [{"stamped": true, "untaken": u64::MAX, "publish_samples": 0, "service_samples": 0,
        "send_delay_samples": 0, "sent": [], "subscriptions": []}]});
    assert_eq!(worker.refused("POST", "/v1/judge", &huge).0, 400);
    let workers = vec![with(json!(huge["books"][0]), "/untaken", json!(0)); 1001];
    assert_eq!(
        worker.refused("POST", "/v1/judge", &json!({"books": workers})).0,
        400
    );
}

#[test]
fn no_refusal_repeats_what_may_be_a_secret() {
    let worker = Worker::new();
    for (pointer, value) in [
        ("/system", json!("amqp://u:hunter2@h")),
        ("/system/bootstrap", json!(["u:hunter2@h:1"])),
        ("/system/options", json!("hunter2")),
        ("/system/security", json!({"auth": "hunter2"})),
        (
            "/system/security",
            json!({"auth": {"mechanism": "plain", "username": 1, "password": "hunter2"}}),
        ),
        ("/topics", json!("hunter2")),
    ] {
        let (_, error) = worker.refused("POST", "/v1/trials", &with(trial(), pointer, value));
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
