//! Controllers that ask at the wrong time or not at all, clients that fail, many requests at once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Worker, sum, trial};
use crate::{with, works};

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
    // Tests beside this one may take its core for a second.
    request["lease_s"] = json!(2.0);
    request["schedule"] = json!({"arrival": "uniform", "rate_msgs_s": 1000.0});
    worker.begin(&request);
    // Looking at the status does not renew the lease of a running trial; reading intervals does.
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(300));
        worker.get("/v1/trials/current/intervals");
    }
    assert_eq!(worker.get("/v1/trials/current")["state"], "running");
    let status = worker.wait_for("aborted");
    assert!(
        status["error"].as_str().unwrap().starts_with("lease expired"),
        "{status}"
    );
    std::thread::sleep(Duration::from_millis(250));
    let taken = worker.system.knobs.taken.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(
        worker.system.knobs.taken.load(Ordering::Relaxed),
        taken,
        "the load has stopped"
    );
    // An interval waits until it is known how disturbed it was; an abort is answered when all are there.
    let status = worker.post("/v1/trials/current/abort", json!({}));
    assert_eq!(status["state"], "aborted", "{status}");
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
    // An interval waits until it is known how disturbed it was, also of a trial that has failed: this is answered when all are there.
    let status = worker.post("/v1/trials/current/abort", json!({}));
    assert_eq!(status["state"], "failed", "{status}");
    let kept = sum(&worker.intervals(), "sent_msgs");
    assert!(
        before > 0 && kept > 0,
        "what was measured is kept: {kept} of {before}"
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
