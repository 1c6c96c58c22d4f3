//! What must not harm the worker: bad input, broken systems, controllers that disappear.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{Worker, sum, trial};
use serde_json::{Value, json};

/// Replaces the value at a JSON pointer.
fn with(mut request: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = request.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
        _ => parent[key] = value,
    }
    request
}

fn works(worker: &Worker) {
    let mut request = trial();
    request["schedule"]["stop_s"] = json!(0.2);
    worker.begin(&request);
    worker.sleep_until_s(0.25);
    let result = worker.finish();
    assert_eq!(result["audit"]["subscriptions"][0]["unique"], 1000, "{result}");
}

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
    let body = common::trial();
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

#[test]
fn administration_goes_to_the_system() {
    let worker = Worker::new();
    let system = trial()["system"].clone();
    let topics = json!([{"name": "a", "partitions": 2, "replication_factor": 1, "configs": {"x": "y"}}]);
    let create = json!({"system": system, "topics": topics, "timeout_s": 5});
    assert_eq!(
        worker.post("/v1/admin/create-topics", create.clone()),
        json!({"created": ["a"]})
    );
    let (status, error) = worker.refused("POST", "/v1/admin/create-topics", &create);
    assert_eq!((status, &error["code"]), (502, &json!("system")));
    let named = json!({"system": system, "topics": ["a", "b"]});
    assert_eq!(
        worker.post("/v1/admin/describe", named.clone())["cluster_id"],
        "fake"
    );
    assert_eq!(
        worker.post("/v1/admin/delete-topics", named),
        json!({"deleted": ["a"], "missing": ["b"]})
    );
    let panics = with(create.clone(), "/topics/0/name", json!("panic"));
    assert_eq!(worker.refused("POST", "/v1/admin/create-topics", &panics).0, 500);
    let nowhere = with(create.clone(), "/system/bootstrap/0", json!("nowhere:1"));
    assert_eq!(worker.refused("POST", "/v1/admin/create-topics", &nowhere).0, 502);
    for (pointer, value, field) in [
        ("/topics", json!([]), "topics"),
        ("/topics/0/partitions", json!(0), "topics[0].partitions"),
        (
            "/topics/0/replication_factor",
            json!(0),
            "topics[0].replication_factor",
        ),
        ("/topics/0/configs", json!({"x": 1}), "topics[0].configs.x"),
        ("/timeout_s", json!(0), "timeout_s"),
        ("/system/protocol", json!("x"), "system.protocol"),
    ] {
        let (status, error) = worker.refused(
            "POST",
            "/v1/admin/create-topics",
            &with(create.clone(), pointer, value),
        );
        assert_eq!((status, error["field"].as_str()), (400, Some(field)), "{error}");
    }
    let info = worker.get("/v1/info");
    assert_eq!((&info["api"], &info["protocols"]), (&json!(1), &json!(["fake"])));
}

#[test]
fn requests_in_the_wrong_state_conflict() {
    let worker = Worker::new();
    worker.call("POST", "/v1/trials", &trial());
    worker.wait_for("ready");
    let conflict = |path: &str, body: Value| {
        let (status, error) = worker.refused("POST", path, &body);
        assert_eq!(
            (status, &error["code"]),
            (409, &json!("conflict")),
            "{path}: {error}"
        );
    };
    conflict("/v1/trials", trial());
    for action in ["rate", "stop", "finish"] {
        let body = if action == "rate" {
            json!({"rate_msgs_s": 1})
        } else {
            json!({})
        };
        conflict(&format!("/v1/trials/1/{action}"), body);
    }
    worker.post("/v1/trials/1/start", json!({}));
    conflict("/v1/trials/1/start", json!({}));
    conflict("/v1/trials", trial());
    assert_eq!(
        worker
            .refused("POST", "/v1/trials/1/start", &json!({"delay_ms": 1e9}))
            .0,
        400
    );
    assert_eq!(
        worker
            .refused("POST", "/v1/trials/1/rate", &json!({"rate_msgs_s": -1}))
            .0,
        400
    );
    assert_eq!(
        worker
            .refused("POST", "/v1/trials/1/finish", &json!({"drain_s": -1}))
            .0,
        400
    );
    assert_eq!(
        worker.refused("POST", "/v1/trials/1/stop", &json!({"at": 1})).0,
        400
    );
    assert_eq!(
        worker
            .refused("POST", "/v1/trials/1/phases", &json!({"from_s": 1}))
            .0,
        400
    );
    worker.finish();
    conflict("/v1/trials/1/subscriptions/s/pause", json!({}));
}

#[test]
fn a_silent_controller_loses_its_trial() {
    let worker = Worker::new();
    let mut request = trial();
    request["lease_s"] = json!(0.3);
    request["schedule"] = json!({"arrival": "uniform", "rate_msgs_s": 1000.0});
    worker.begin(&request);
    // Looking at the status does not renew the lease of a running trial; reading intervals does.
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(150));
        worker.get("/v1/trials/current/intervals");
    }
    assert_eq!(worker.get("/v1/trials/current")["state"], "running");
    let status = worker.wait_for("aborted");
    assert!(
        status["error"].as_str().unwrap().starts_with("lease expired"),
        "{status}"
    );
    std::thread::sleep(Duration::from_millis(50));
    let taken = worker.system.knobs.taken.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(
        worker.system.knobs.taken.load(Ordering::Relaxed),
        taken,
        "the load has stopped"
    );
    let intervals = worker.intervals();
    assert_eq!(
        sum(&intervals, "sent_msgs"),
        taken,
        "what was measured can still be read"
    );
    let (status, error) = worker.refused("POST", "/v1/trials/current/finish", &json!({}));
    assert_eq!(status, 409);
    assert!(
        error["message"].as_str().unwrap().contains("lease expired"),
        "{error}"
    );
    works(&worker);
}

#[test]
fn a_trial_that_is_never_started_is_given_up() {
    let worker = Worker::new();
    let mut request = trial();
    request["lease_s"] = json!(0.1);
    worker.call("POST", "/v1/trials", &request);
    worker.wait_for("ready");
    std::thread::sleep(Duration::from_millis(1300));
    let status = worker.get("/v1/trials/current");
    assert_eq!(status["state"], "aborted", "{status}");
    assert!(
        status["error"].as_str().unwrap().contains("not started"),
        "{status}"
    );
    works(&worker);
}

#[test]
fn an_aborted_trial_keeps_its_intervals_and_makes_room() {
    let worker = Worker::new();
    worker.begin(&trial());
    worker.sleep_until_s(0.35);
    let status = worker.post("/v1/trials/current/abort", json!({}));
    assert_eq!(
        (&status["state"], &status["error"]),
        (&json!("aborted"), &json!(null))
    );
    let taken = worker.system.knobs.taken.load(Ordering::Relaxed);
    assert_eq!(sum(&worker.intervals(), "sent_msgs"), taken);
    assert_eq!(
        worker.post("/v1/trials/current/abort", json!({}))["state"],
        "aborted"
    );
    works(&worker);
    worker.begin(&trial());
    let (status, _) = worker.call("DELETE", "/v1/trials/current", &json!({}));
    assert_eq!(status, 200, "a running trial is aborted and forgotten");
    assert_eq!(worker.refused("GET", "/v1/trials/current", &json!({})).0, 404);
    assert_eq!(worker.refused("DELETE", "/v1/trials/current", &json!({})).0, 404);
    works(&worker);
}

#[test]
fn whatever_a_client_does_fails_the_trial_and_not_the_worker() {
    let worker = Worker::new();
    let knobs = &worker.system.knobs;
    *knobs.prepare_error.lock().unwrap() = Some("connection refused by 127.0.0.1:9092".to_owned());
    worker.call("POST", "/v1/trials", &trial());
    let status = worker.wait_for("failed");
    assert!(
        status["error"].as_str().unwrap().contains("connection refused"),
        "{status}"
    );
    assert_eq!(
        worker.refused("POST", "/v1/trials/current/start", &json!({})).0,
        409
    );
    works(&worker);

    worker.begin(&trial());
    worker.sleep_until_s(0.2);
    let before = knobs.taken.load(Ordering::Relaxed);
    *knobs.drive_error.lock().unwrap() = Some("not authorised".to_owned());
    let status = worker.wait_for("failed");
    assert!(
        status["error"].as_str().unwrap().contains("not authorised"),
        "{status}"
    );
    assert!(
        before > 0 && sum(&worker.intervals(), "sent_msgs") > 0,
        "what was measured is kept"
    );
    works(&worker);

    worker.begin(&trial());
    knobs.drive_panic.store(true, Ordering::Relaxed);
    let status = worker.wait_for("failed");
    assert!(status["error"].as_str().unwrap().contains("panicked"), "{status}");
    works(&worker);

    knobs.swallow_probes.store(true, Ordering::Relaxed);
    let mut request = trial();
    request["ready_timeout_s"] = json!(0.3);
    worker.call("POST", "/v1/trials", &request);
    let status = worker.wait_for("failed");
    assert!(
        status["error"]
            .as_str()
            .unwrap()
            .contains("4 of 4 partitions assigned, 0 proven"),
        "{status}"
    );
    knobs.swallow_probes.store(false, Ordering::Relaxed);
    works(&worker);
}

#[test]
fn many_requests_at_once_disturb_nothing() {
    let worker = Worker::new();
    worker.begin(&trial());
    std::thread::scope(|scope| {
        for client in 0..24 {
            let worker = &worker;
            scope.spawn(move || {
                for turn in 0..12 {
                    match (client + turn) % 6 {
                        0 => drop(worker.get("/v1/trials/current/counters")),
                        1 => drop(worker.get("/v1/trials/current/intervals?since=0")),
                        2 => drop(worker.get("/v1/trials/1")),
                        3 => assert_eq!(worker.refused("POST", "/v1/trials", &trial()).0, 409),
                        4 => assert_eq!(worker.raw("POST", "/v1/trials/1/phases", b"garbage").0, 400),
                        _ => drop(worker.post("/v1/trials/1/lease", json!({}))),
                    }
                }
            });
        }
    });
    worker.sleep_until_s(0.9);
    let results: Vec<Value> = std::thread::scope(|scope| {
        let finishing: Vec<_> = (0..4).map(|_| scope.spawn(|| worker.finish())).collect();
        finishing
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(
        results.windows(2).all(|pair| pair[0] == pair[1]),
        "all who finish get the same"
    );
    assert_eq!(results[0]["audit"]["subscriptions"][0]["unique"], 4000);
}

#[test]
fn totals_and_intervals_agree_while_the_load_runs() {
    let worker = Worker::new();
    worker.begin(&trial());
    let mut last = 0;
    while worker.elapsed_s() < 0.8 {
        let counters = worker.get("/v1/trials/current/counters");
        let sent = counters["sent_msgs"].as_u64().unwrap();
        assert!(sent >= last, "totals only rise");
        let complete = sum(&worker.intervals(), "sent_msgs");
        let later = worker.get("/v1/trials/current/counters")["sent_msgs"]
            .as_u64()
            .unwrap();
        assert!(complete <= later, "{complete} in intervals, {later} in all");
        last = sent;
    }
    let result = worker.finish();
    assert_eq!(
        sum(&worker.intervals(), "sent_msgs"),
        result["totals"]["sent_msgs"].as_u64().unwrap()
    );
}
