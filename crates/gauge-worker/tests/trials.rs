//! Trials against a system in memory: counts, phases, latencies, audit, drain.

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Worker, above, assert_waited, distribution, sum, trial};
use serde_json::json;

#[test]
fn a_trial_is_complete_to_the_message() {
    let worker = Worker::new();
    let mut request = trial();
    request["lanes"] = json!({"realtime": "auto"});
    worker.begin(&request);
    worker.sleep_until_s(0.9);
    let result = worker.finish();
    assert_eq!(result["state"], "finished");
    assert_eq!(result["drained"], true);
    assert_eq!(result["stopped_s"], 0.8);
    let audit = &result["audit"];
    assert_eq!(
        (&audit["enabled"], &audit["balanced"]),
        (&json!(true), &json!(true)),
        "{audit}"
    );
    for (count, expected) in [
        ("sent", 4000),
        ("acked", 4000),
        ("failed", 0),
        ("censored", 0),
        ("untaken", 0),
    ] {
        assert_eq!(audit[count], expected, "{count}: {audit}");
    }
    let subscription = &audit["subscriptions"][0];
    for (count, expected) in [
        ("received", 4000),
        ("unique", 4000),
        ("lost", 0),
        ("duplicated", 0),
        ("unexpected", 0),
        ("reordered", 0),
    ] {
        assert_eq!(subscription[count], expected, "{count}: {subscription}");
    }
    assert_eq!(subscription["balanced"], true);

    let intervals = worker.intervals();
    for (at, interval) in intervals.iter().enumerate() {
        assert_eq!(interval["index"], at);
        let is_last = at + 1 == intervals.len();
        assert!(is_last || interval["duration_s"] == 0.1, "{interval}");
        assert_eq!(
            interval["errors"],
            json!({}),
            "errors of the preparation are not the trial's"
        );
        assert_eq!(
            interval["lanes_cpu_s"].as_array().unwrap().len(),
            result["lanes"].as_array().unwrap().len()
        );
    }
    for counter in [
        "sent_msgs",
        "acked_msgs",
        "sent_bytes",
        "acked_bytes",
        "requests",
        "batches",
    ] {
        assert_eq!(
            sum(&intervals, counter),
            result["totals"][counter].as_u64().unwrap(),
            "{counter}"
        );
    }
    assert_eq!(result["totals"]["sent_bytes"], 400_000);
    assert_eq!(result["totals"]["waiting_msgs"], 0);
    assert_eq!(result["totals"]["subscriptions"][0]["backlog_msgs"], 0);

    // A message belongs to the phase in which it was due, to the message.
    for metric in ["publish", "service", "send_delay", "end_to_end"] {
        let subscription = (metric == "end_to_end").then_some("s");
        assert_eq!(
            distribution(&intervals, metric, Some("warm-up"), subscription).len(),
            1500,
            "{metric}"
        );
        assert_eq!(
            distribution(&intervals, metric, Some("measure"), subscription).len(),
            2500,
            "{metric}"
        );
    }
    assert_eq!(distribution(&intervals, "backpressure", None, None).len(), 0);
    assert_eq!(worker.finish(), result, "finishing again gives the same");
}

#[test]
fn a_stall_is_felt_by_every_message_that_was_due_in_it() {
    let worker = Worker::new();
    let knobs = &worker.system.knobs;
    let mut request = trial();
    request["schedule"] = json!({"arrival": "uniform", "rate_msgs_s": 5000.0, "stop_s": 1.5});
    worker.begin(&request);
    worker.sleep_until_s(0.5);
    knobs.stalled.store(true, Ordering::Relaxed);
    let stalled_s = worker.elapsed_s();
    worker.sleep_until_s(1.0);
    let lasted_s = worker.elapsed_s() - stalled_s;
    knobs.stalled.store(false, Ordering::Relaxed);
    worker.sleep_until_s(1.55);
    let result = worker.finish();
    assert_eq!(result["audit"]["balanced"], true);
    let intervals = worker.intervals();
    let publish = distribution(&intervals, "publish", None, None);
    assert_eq!(publish.len(), 7500);
    // Whoever was due x before the end of the stall waited longer than x.
    for over_s in [0.1, 0.25, 0.4] {
        assert_waited(&publish, 5000.0, lasted_s, over_s);
    }
    // There was room, so messages left on time: the generator is not to blame, and service tells the same as publish.
    let waited = above(&publish, 100_000_000) as f64;
    let late = above(&distribution(&intervals, "send_delay", None, None), 100_000_000) as f64;
    let service = above(&distribution(&intervals, "service", None, None), 100_000_000) as f64;
    assert!(
        late < 0.2 * waited && service > 0.8 * waited,
        "{waited} waited, {late} left late, {service} in service"
    );
}

#[test]
fn back_pressure_is_neither_lateness_nor_lost() {
    let worker = Worker::new();
    let knobs = &worker.system.knobs;
    knobs.room_msgs.store(50, Ordering::Relaxed);
    let mut request = trial();
    request["schedule"] = json!({"arrival": "uniform", "rate_msgs_s": 5000.0, "stop_s": 1.2});
    worker.begin(&request);
    worker.sleep_until_s(0.4);
    knobs.stalled.store(true, Ordering::Relaxed);
    let stalled_s = worker.elapsed_s();
    worker.sleep_until_s(0.8);
    let lasted_s = worker.elapsed_s() - stalled_s;
    knobs.stalled.store(false, Ordering::Relaxed);
    worker.sleep_until_s(1.3);
    let result = worker.finish();
    assert_eq!(result["audit"]["sent"], 6000, "what was held back leaves later");
    assert_eq!(result["audit"]["balanced"], true);
    let intervals = worker.intervals();
    let publish = distribution(&intervals, "publish", None, None);
    assert_waited(&publish, 5000.0, lasted_s, 0.1);
    let waited = above(&publish, 100_000_000) as f64;
    // The wait is on record as back-pressure, not as the generator's lateness, and service does not know of it.
    let over = |metric: &str| above(&distribution(&intervals, metric, None, None), 100_000_000) as f64;
    let (held, late, service) = (over("backpressure"), over("send_delay"), over("service"));
    assert!(
        held > 0.8 * waited && late < 0.2 * waited && service < 0.2 * waited,
        "{waited} waited, {held} were held, {late} left late, {service} in service"
    );
    let parts = intervals
        .iter()
        .map(|interval| interval["backpressured_s"].as_f64().unwrap());
    let backpressured_s: f64 = parts.clone().sum();
    assert!(
        backpressured_s > 0.8 * lasted_s,
        "{backpressured_s} of {lasted_s}"
    );
    let stalled = parts.filter(|part| *part > 0.05).count();
    assert!(stalled >= 2, "each interval has its own part");
}

#[test]
fn the_audit_names_what_the_system_did() {
    let worker = Worker::new();
    let knobs = &worker.system.knobs;
    worker.begin(&trial());
    worker.sleep_until_s(0.2);
    knobs.lose.store(20, Ordering::Relaxed);
    worker.sleep_until_s(0.3);
    knobs.duplicate.store(7, Ordering::Relaxed);
    worker.sleep_until_s(0.4);
    knobs.corrupt.store(3, Ordering::Relaxed);
    worker.sleep_until_s(0.5);
    knobs.fail.store(1, Ordering::Relaxed);
    worker.sleep_until_s(0.6);
    knobs.fail_stored.store(1, Ordering::Relaxed);
    worker.sleep_until_s(0.9);
    let result = worker.finish();
    assert_eq!(
        result["drained"], true,
        "the consumers came to the end, and less is there than was acknowledged"
    );
    let audit = &result["audit"];
    let subscription = &audit["subscriptions"][0];
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    // A corrupted message is one that was lost, too.
    assert_eq!(number(&subscription["lost"]), 23, "{audit}");
    assert_eq!(number(&subscription["lost_middle"]), 23);
    assert_eq!(number(&subscription["duplicated"]), 7);
    assert_eq!(number(&subscription["corrupted"]), 3);
    let (unknown, recovered) = (
        number(&subscription["unknown"]),
        number(&subscription["recovered"]),
    );
    assert!(unknown > 0 && recovered > 0);
    assert_eq!(number(&audit["failed"]), unknown + recovered);
    assert_eq!(
        (&audit["balanced"], &subscription["balanced"]),
        (&json!(true), &json!(true)),
        "{audit}"
    );
    assert!(
        subscription["examples"][0]
            .as_str()
            .unwrap()
            .contains("lost (middle)")
    );
    assert_eq!(result["totals"]["errors"], json!({"FAKE_FAILURE": 2}));
}

#[test]
fn what_comes_through_another_partition_is_noticed() {
    let worker = Worker::new();
    let mut trial = trial();
    trial["topics"][0]["partitions"] = json!(3);
    worker.begin(&trial);
    worker.sleep_until_s(0.4);
    worker.system.knobs.misroute.store(9, Ordering::Relaxed);
    worker.sleep_until_s(0.9);
    let result = worker.finish();
    let subscription = &result["audit"]["subscriptions"][0];
    assert_eq!(subscription["corrupted"], 9, "{subscription}");
    assert_eq!(result["totals"]["errors"]["MISROUTED"], 9);
    assert_eq!(subscription["balanced"], true);
}

#[test]
fn what_comes_twice_behind_the_last_message_is_counted() {
    let worker = Worker::new();
    let knobs = &worker.system.knobs;
    worker.begin(&trial());
    worker.sleep_until_s(0.9);
    knobs.receive_msgs.store(1, Ordering::Relaxed);
    knobs.echo.store(40, Ordering::Relaxed);
    let result = worker.finish();
    let subscription = &result["audit"]["subscriptions"][0];
    assert_eq!(result["drained"], true);
    assert_eq!(subscription["duplicated"], 40, "{subscription}");
    assert_eq!(subscription["lost"], 0);
}

#[test]
fn what_has_no_end_is_censored_and_what_had_no_room_is_counted() {
    let worker = Worker::new();
    let knobs = &worker.system.knobs;
    knobs.room_msgs.store(100, Ordering::Relaxed);
    worker.begin(&trial());
    worker.sleep_until_s(0.4);
    knobs.stalled.store(true, Ordering::Relaxed);
    worker.sleep_until_s(0.9);
    let result = worker.post(
        "/v1/trials/current/finish",
        json!({"drain_s": 20.0, "quiet_s": 0.2}),
    );
    assert_eq!(result["drained"], false);
    assert!(
        result["drain_s"].as_f64().unwrap() < 5.0,
        "nothing moved: {result}"
    );
    let audit = &result["audit"];
    assert_eq!(audit["censored"], 100);
    let number = |count: &str| audit[count].as_u64().unwrap();
    assert_eq!(number("sent") + number("untaken"), 4000, "{audit}");
    assert_eq!(audit["balanced"], true, "{audit}");
    assert_eq!(
        audit["subscriptions"][0]["lost"], 0,
        "a subscription that was not at its end has lost nothing yet"
    );
}

#[test]
fn a_paused_subscription_waits_and_resumes_where_it_stopped() {
    let worker = Worker::new();
    let mut request = trial();
    request["subscriptions"] = json!([{"name": "a"}, {"name": "b/c"}]);
    worker.begin(&request);
    worker.post("/v1/trials/current/subscriptions/b%2Fc/pause", json!({}));
    let (status, _) = worker.refused("POST", "/v1/trials/current/subscriptions/x/pause", &json!({}));
    assert_eq!(status, 404);
    worker.sleep_until_s(0.5);
    let counters = worker.get("/v1/trials/current/counters");
    assert!(
        counters["subscriptions"][0]["backlog_msgs"].as_u64().unwrap() < 1000,
        "{counters}"
    );
    assert!(
        counters["subscriptions"][1]["backlog_msgs"].as_u64().unwrap() > 1000,
        "{counters}"
    );
    worker.post("/v1/trials/current/subscriptions/b%2Fc/resume", json!({}));
    worker.sleep_until_s(0.85);
    let result = worker.finish();
    for subscription in result["audit"]["subscriptions"].as_array().unwrap() {
        assert_eq!(subscription["unique"], 4000, "{subscription}");
    }
    let intervals = worker.intervals();
    assert!(
        above(
            &distribution(&intervals, "end_to_end", None, Some("b/c")),
            100_000_000
        ) > 100
    );
}

#[test]
fn a_subscription_that_stays_paused_is_not_waited_for_and_has_lost_nothing() {
    let worker = Worker::new();
    worker.begin(&trial());
    worker.post("/v1/trials/current/subscriptions/s/pause", json!({}));
    worker.sleep_until_s(0.9);
    let result = worker.finish();
    assert_eq!(result["drained"], true);
    let subscription = &result["audit"]["subscriptions"][0];
    assert_eq!(subscription["lost"], 0);
    assert!(subscription["censored"].as_u64().unwrap() > 3000);
    assert_eq!(subscription["balanced"], true);
}

#[test]
fn many_producers_share_the_rate_and_interleave() {
    let worker = Worker::new();
    let mut request = trial();
    request["topics"] = json!([{"name": "t", "partitions": 4}, {"name": "u", "partitions": 3}]);
    let producers: Vec<_> = (0..10)
        .map(|id| json!({"id": id * 3, "topic": if id % 2 == 0 { "t" } else { "u" }, "keys": "keyed", "key_count": 5}))
        .collect();
    request["producers"] = json!(producers);
    request["subscriptions"] = json!([{"name": "s", "consumers": 3}, {"name": "early", "start": "earliest"}]);
    request["lanes"] = json!({"producer": 2, "consumer": 2});
    let started = worker.begin(&request);
    assert_eq!(
        started["readiness"],
        json!({"partitions": 14, "assigned": 14, "proven": 14})
    );
    assert_eq!(started["lanes"].as_array().unwrap().len(), 4);
    worker.sleep_until_s(0.9);
    let result = worker.finish();
    assert_eq!(result["audit"]["sent"], 4000);
    for subscription in result["audit"]["subscriptions"].as_array().unwrap() {
        assert_eq!(
            (
                &subscription["unique"],
                &subscription["reordered"],
                &subscription["balanced"]
            ),
            (&json!(4000), &json!(0), &json!(true))
        );
    }
}

#[test]
fn consumers_may_share_the_producers_lane() {
    let worker = Worker::new();
    let mut request = trial();
    request["lanes"] = json!({"producer": 1, "consumer": 0, "realtime": "off", "pin": true});
    let started = worker.begin(&request);
    assert_eq!(started["lanes"].as_array().unwrap().len(), 1);
    assert_eq!(started["lanes"][0]["role"], "both");
    worker.sleep_until_s(0.9);
    let result = worker.finish();
    assert!(
        result["lanes"][0]["scheduling"]
            .as_str()
            .unwrap()
            .starts_with("normal, core "),
        "{result}"
    );
    assert_eq!(result["audit"]["subscriptions"][0]["unique"], 4000);
}

#[test]
fn the_rate_changes_without_a_gap_and_phases_can_be_added() {
    let worker = Worker::new();
    let mut request = trial();
    request["schedule"] = json!({"arrival": "uniform", "rate_msgs_s": 2000.0});
    request["phases"] = json!([]);
    worker.begin(&request);
    worker.sleep_until_s(0.5);
    worker.post("/v1/trials/current/rate", json!({"rate_msgs_s": 10_000.0}));
    let phase = worker.post("/v1/trials/current/phases", json!({"name": "fast"}));
    let from_s = phase["from_s"].as_f64().unwrap();
    assert_eq!((from_s * 10.0).round() / 10.0, from_s, "a whole interval");
    let late = worker.refused(
        "POST",
        "/v1/trials/current/phases",
        &json!({"name": "late", "from_s": 0.1}),
    );
    assert_eq!(late.0, 409);
    let twice = worker.refused("POST", "/v1/trials/current/phases", &json!({"name": "fast"}));
    assert_eq!(twice.0, 409);
    worker.post("/v1/trials/current/stop", json!({"at_s": from_s + 0.3}));
    worker.sleep_until_s(from_s + 0.4);
    let result = worker.finish();
    assert_eq!(result["stopped_s"], from_s + 0.3);
    let intervals = worker.intervals();
    let fast = distribution(&intervals, "publish", Some("fast"), None).len();
    assert!((2999..=3001).contains(&fast), "{fast}");
    assert_eq!(result["audit"]["balanced"], true);
    let before = intervals[2]["sent_msgs"].as_u64().unwrap();
    assert!((100..=300).contains(&before), "{before}");
}

#[test]
fn a_lane_that_was_away_takes_nothing_that_is_due_behind_the_end() {
    let worker = Worker::new();
    let knobs = &worker.system.knobs;
    // Its producer has no room when it loses its CPU, and all that it wants when it has it again: it looks once more at what is due.
    knobs.room_msgs.store(5, Ordering::Relaxed);
    knobs.stalled.store(true, Ordering::Relaxed);
    let mut request = trial();
    request["schedule"] = json!({"arrival": "uniform", "rate_msgs_s": 1000.0});
    request["subscriptions"] = json!([]);
    worker.begin(&request);
    worker.sleep_until_s(0.1);
    knobs.away_ns.store(400_000_000, Ordering::Relaxed);
    while knobs.away_ns.load(Ordering::Relaxed) != 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    worker.post("/v1/trials/current/stop", json!({}));
    knobs.room_msgs.store(0, Ordering::Relaxed);
    knobs.stalled.store(false, Ordering::Relaxed);
    let result = worker.finish();
    let stopped_s = result["stopped_s"].as_f64().unwrap();
    let due = (stopped_s * 1000.0).ceil();
    let audit = &result["audit"];
    assert_eq!(
        (audit["sent"].as_f64(), &audit["untaken"]),
        (Some(due), &json!(0)),
        "ended after {stopped_s} s: {audit}"
    );
}

#[test]
fn a_closed_loop_is_limited_by_the_room_alone() {
    let worker = Worker::new();
    let knobs = &worker.system.knobs;
    knobs.room_msgs.store(10, Ordering::Relaxed);
    knobs.ack_delay_ns.store(10_000_000, Ordering::Relaxed);
    let mut request = trial();
    request["schedule"] = json!({"arrival": "closed", "stop_s": 0.5});
    request["lanes"] = json!({"realtime": "auto"});
    worker.begin(&request);
    let (status, _) = worker.refused("POST", "/v1/trials/current/rate", &json!({"rate_msgs_s": 5.0}));
    assert_eq!(status, 409);
    worker.sleep_until_s(0.6);
    let result = worker.finish();
    let sent = result["audit"]["sent"].as_u64().unwrap();
    // Ten per acknowledgement delay, less what the fake's own clock of 1 ms costs.
    assert!((200..=500).contains(&sent), "{sent}");
    assert_eq!(result["audit"]["balanced"], true);
    assert_eq!(result["totals"]["backpressured_s"], 0.0);
    assert_eq!(
        result["lanes"][0]["scheduling"], "normal",
        "no real-time scheduling for load without a pace"
    );
}

#[test]
fn small_messages_are_counted_without_an_audit() {
    let worker = Worker::new();
    let mut request = trial();
    request["payload"] = json!({"size_bytes": 10});
    request["idempotence"] = json!(true);
    let started = worker.begin(&request);
    assert_eq!(started["audit_enabled"], false);
    assert_eq!(started["cannot"], json!(["repeated batches are not dropped"]));
    worker.sleep_until_s(0.9);
    let result = worker.finish();
    assert_eq!(
        (&result["drained"], &result["audit"]["enabled"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(result["audit"]["subscriptions"], json!([]));
    assert_eq!(result["totals"]["subscriptions"][0]["received_msgs"], 4000);
}

#[test]
fn a_consumer_alone_reads_what_is_there_from_its_start_on() {
    let worker = Worker::new();
    let mut fill = trial();
    fill["subscriptions"] = json!([]);
    worker.begin(&fill);
    worker.sleep_until_s(0.9);
    assert_eq!(worker.finish()["audit"]["acked"], 4000);
    let mut read = trial();
    read["producers"] = json!([]);
    read["schedule"] = json!(null);
    read["subscriptions"] = json!([{"name": "s", "start": "earliest"}]);
    worker.call("POST", "/v1/trials", &read);
    worker.wait_for("ready");
    // Neither getting ready, nor resuming, nor knowing when it begins lets it read before the start; pausing holds it beyond the start.
    let received = |counters: &serde_json::Value| counters["subscriptions"][0]["received_msgs"].clone();
    worker.post("/v1/trials/current/start", json!({"delay_ms": 1500}));
    worker.post("/v1/trials/current/subscriptions/s/resume", json!({}));
    worker.sleep_until_s(-1.0);
    assert_eq!(received(&worker.get("/v1/trials/current/counters")), 0);
    worker.post("/v1/trials/current/subscriptions/s/pause", json!({}));
    worker.sleep_until_s(0.2);
    assert_eq!(received(&worker.get("/v1/trials/current/counters")), 0);
    worker.post("/v1/trials/current/subscriptions/s/resume", json!({}));
    let result = worker.finish();
    assert_eq!(result["drained"], true);
    assert_eq!(received(&result["totals"]), 4000);
}

#[test]
fn sizes_keys_and_rate_may_vary_and_the_audit_holds() {
    let worker = Worker::new();
    let mut request = trial();
    request["payload"] = json!({"sizes_bytes": [32, 1000, 100, 50], "random_ratio": 0.5});
    request["producers"] = json!([
        {"id": 0, "topic": "t", "keys": "zipf", "key_count": 100, "zipf_exponent": 1.2},
        {"id": 1, "topic": "t", "keys": "zipf", "key_count": 100, "zipf_exponent": 1.2}
    ]);
    // One begins where the one before has ended, although 0.1 and 0.2 are more than 0.3.
    request["schedule"] = json!({"arrival": "uniform", "rate_msgs_s": 2000.0, "stop_s": 0.8, "changes": [
        {"at_s": 0.1, "rate_msgs_s": 2000.0, "over_s": 0.2},
        {"at_s": 0.3, "rate_msgs_s": 2000.0},
        {"at_s": 0.4, "rate_msgs_s": 8000.0}
    ]});
    worker.begin(&request);
    worker.sleep_until_s(0.9);
    let result = worker.finish();
    assert_eq!(result["audit"]["sent"], 4000);
    assert_eq!(result["audit"]["balanced"], true);
    let subscription = &result["audit"]["subscriptions"][0];
    for (count, expected) in [("unique", 4000), ("corrupted", 0), ("reordered", 0), ("lost", 0)] {
        assert_eq!(subscription[count], expected, "{count}: {subscription}");
    }
    // 2,000 messages of each producer are 500 of each size.
    assert_eq!(result["totals"]["sent_bytes"], 1000 * (32 + 1000 + 100 + 50));
    assert_eq!(result["totals"]["subscriptions"][0]["received_bytes"], 1_182_000);
}

#[test]
fn a_slow_consumer_falls_behind_and_is_not_called_lossy() {
    let worker = Worker::new();
    let mut request = trial();
    request["subscriptions"] = json!([
        {"name": "slow", "processing": {"us_per_msg": 400.0}},
        {"name": "quick"}
    ]);
    request["lanes"] = json!({"producer": 1, "consumer": 2, "realtime": "off"});
    worker.begin(&request);
    worker.sleep_until_s(0.8);
    let counters = worker.get("/v1/trials/current/counters");
    let count = |at: usize, what: &str| counters["subscriptions"][at][what].as_u64().unwrap();
    // 5,000 messages per second come, and 2,500 can be worked off. How many it has at an instant says little: a fetch takes all that is there, so that it goes
    // by leaps. There are few of them, as each has to be worked off before the next.
    assert!(count(0, "received_msgs") > 0, "{counters}");
    assert!(2 * count(0, "fetches") < count(1, "fetches"), "{counters}");
    let result = worker.finish();
    for subscription in result["audit"]["subscriptions"].as_array().unwrap() {
        assert_eq!(subscription["lost"], 0, "{subscription}");
        assert_eq!(subscription["balanced"], true);
    }
    assert_eq!(
        result["audit"]["subscriptions"][0]["unique"], 4000,
        "what was left is read in the drain"
    );
}

#[test]
fn topics_of_one_partition_are_spread_over_all_consumers() {
    let worker = Worker::new();
    let mut request = trial();
    let topics: Vec<_> = (0..6)
        .map(|at| json!({"name": format!("t{at}"), "partitions": 1}))
        .collect();
    request["topics"] = json!(topics);
    request["producers"] = json!([{"id": 0, "topic": "t5"}]);
    request["subscriptions"] =
        json!([{"name": "s", "consumers": 3, "consumer_from": 2, "consumer_count": 1}]);
    // The consumer 2 of 3 has the slots 2 and 5: before, the consumer 0 had all of them.
    let started = worker.begin(&request);
    assert_eq!(
        started["readiness"],
        json!({"partitions": 2, "assigned": 2, "proven": 2})
    );
    worker.sleep_until_s(0.9);
    assert_eq!(worker.finish()["audit"]["subscriptions"][0]["unique"], 4000);
}
