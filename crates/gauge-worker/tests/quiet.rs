//! Disturbance as the worker measures it, on this machine and against a system in memory: who takes a CPU, who does not, and what
//! becomes of the latencies.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use common::{Worker, above, distribution, sum, trial};
use gauge_load::clock::monotonic_ns;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

const RATE: f64 = 5000.0;

/// These tests take CPUs from each other, which is seen: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A trial of so many seconds, of messages that are acknowledged 0.3 ms after they were sent.
fn begin(worker: &Worker, seconds: f64) -> Value {
    begin_at(worker, seconds, "127.0.0.1:9092")
}

/// The same with a system that is reached there, as far as the worker knows.
fn begin_at(worker: &Worker, seconds: f64, address: &str) -> Value {
    worker.system.knobs.ack_delay_ns.store(300_000, Ordering::Relaxed);
    let mut request = trial();
    request["system"]["bootstrap"] = json!([address]);
    request["schedule"] = json!({"arrival": "uniform", "rate_msgs_s": RATE, "stop_s": seconds});
    request["batch"] = json!({"linger_ms": 0.5});
    // Other programs of normal priority are not what is looked at here; and a lane that may move evades a thief.
    request["lanes"] = json!({"realtime": "auto", "pin": true});
    worker.begin(&request)
}

/// Whether this process may have probes.
fn may_probe(worker: &Worker) -> bool {
    worker.get("/v1/trials/current")["probes"]["is_on"] == true
}

/// A part (`quiet`, `censored`) of a distribution, over all intervals.
fn part(intervals: &[Value], metric: &str, name: &str) -> Histogram<u64> {
    let mut all = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
    for latency in intervals
        .iter()
        .flat_map(|interval| interval["latencies"].as_array().unwrap())
    {
        let text = latency[name]["histogram"].as_str().unwrap_or_default();
        if latency["metric"] != metric || text.is_empty() {
            continue;
        }
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
        let histogram: Histogram<u64> = hdrhistogram::serialization::Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .unwrap();
        assert_eq!(histogram.len(), latency[name]["count"].as_u64().unwrap());
        all.add(&histogram).unwrap();
    }
    all
}

fn left_out(intervals: &[Value], metric: &str) -> u64 {
    let latencies = intervals
        .iter()
        .flat_map(|interval| interval["latencies"].as_array().unwrap());
    latencies
        .filter(|latency| latency["metric"] == metric)
        .map(|latency| latency["left_out"].as_u64().unwrap())
        .sum()
}

fn windows(intervals: &[Value]) -> Vec<Value> {
    let listed = intervals
        .iter()
        .map(|interval| interval["disturbance"]["windows"].as_array().unwrap());
    listed.flatten().cloned().collect()
}

fn disturbed_s(intervals: &[Value]) -> f64 {
    intervals
        .iter()
        .map(|interval| interval["disturbance"]["disturbed_s"].as_f64().unwrap())
        .sum()
}

/// For how long spans lie behind the end of the schedule, when nothing is due any more.
fn disturbed_beyond_s(intervals: &[Value], stop_s: f64) -> f64 {
    let mut spans: Vec<(f64, f64)> = windows(intervals)
        .iter()
        .map(|window| {
            (
                window["from_s"].as_f64().unwrap(),
                window["recovered_s"].as_f64().unwrap(),
            )
        })
        .collect();
    spans.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut sum_s, mut told_s) = (0.0, stop_s);
    for (from_s, to_s) in spans {
        sum_s += (to_s - from_s.max(told_s)).max(0.0);
        told_s = told_s.max(to_s);
    }
    sum_s
}

/// Holds for every trial of so many seconds: nothing is lost between the parts, and what is left out is what was due in disturbed time.
fn check_parts(worker: &Worker, intervals: &[Value], seconds: f64) {
    for metric in ["publish", "service", "end_to_end"] {
        let subscription = (metric == "end_to_end").then_some("s");
        let all = distribution(intervals, metric, None, subscription).len();
        let parts = part(intervals, metric, "quiet").len() + part(intervals, metric, "censored").len();
        assert_eq!(all, parts + left_out(intervals, metric), "{metric}");
    }
    let due = |name: &str| -> u64 {
        let of = |interval: &Value| interval["disturbance"][name].as_u64().unwrap();
        intervals.iter().map(of).sum()
    };
    let acked = sum(intervals, "acked_msgs");
    assert_eq!(due("quiet_acked_msgs"), acked - left_out(intervals, "publish"));
    assert_eq!(
        due("quiet_sent_msgs"),
        due("quiet_acked_msgs"),
        "everything was acknowledged"
    );
    assert_eq!(due("undecided_msgs"), 0);
    for interval in intervals {
        let of = |name: &str| interval["disturbance"][name].as_f64().unwrap();
        let duration_s = interval["duration_s"].as_f64().unwrap();
        assert!(
            (of("quiet_s") + of("disturbed_s") - duration_s).abs() < 1e-6,
            "{interval}"
        );
    }
    // Messages are due every 0.2 ms, so a span leaves out as many as it is long, give or take one. The last spans may outlast the schedule.
    let spans = windows(intervals).len() as f64 + 1.0;
    let expected = disturbed_s(intervals) * RATE;
    let beyond = disturbed_beyond_s(intervals, seconds) * RATE;
    let found = left_out(intervals, "publish") as f64;
    let listed = intervals
        .iter()
        .all(|interval| interval["disturbance"]["unlisted"]["windows"] == 0);
    if listed {
        assert!(
            found <= expected + 2.0 * spans && found >= expected - 2.0 * spans - beyond,
            "{found} left out, {expected} due in disturbed time, {beyond} of it behind the end, {spans} spans: {:?}",
            worker.get("/v1/trials/current")["probes"]
        );
    }
}

fn affinity() -> Vec<usize> {
    // SAFETY: a cpu_set_t is plain bits; the call writes no more than its size, and the index lies within the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set),
            0
        );
        (0..libc::CPU_SETSIZE as usize)
            .filter(|&cpu| libc::CPU_ISSET(cpu, &set))
            .collect()
    }
}

fn pin(cpu: usize) {
    // SAFETY: as above.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set), 0);
    }
}

fn real_time(priority: i32) {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 names the calling thread, the parameters outlive the call.
    let status = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) };
    assert_eq!(status, 0);
}

fn burn_until(ns: i64) {
    while monotonic_ns() < ns {
        std::hint::spin_loop();
    }
}

/// Writes megabytes into the page cache until it is told to stop: long system calls of a thread of normal priority.
fn write_much(path: &std::path::Path, stop: &AtomicBool) {
    let piece = vec![7_u8; 1 << 20];
    while !stop.load(Ordering::Relaxed) {
        let mut file = std::fs::File::create(path).unwrap();
        for _ in 0..500 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            std::io::Write::write_all(&mut file, &piece).unwrap();
        }
    }
}

#[test]
fn the_kernels_work_for_a_program_is_no_disturbance() {
    let _alone = alone();
    let worker = Worker::new();
    begin(&worker, 2.0);
    let has_probes = may_probe(&worker);
    let directory = std::env::temp_dir().join(format!("gauge-quiet-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (path, stop) = (directory.join(number.to_string()), &stop);
            scope.spawn(move || write_much(&path, stop));
        }
        worker.sleep_until_s(2.05);
        stop.store(true, Ordering::Relaxed);
    });
    worker.finish();
    std::fs::remove_dir_all(&directory).unwrap();
    let intervals = worker.intervals();
    if !has_probes {
        return;
    }
    check_parts(&worker, &intervals, 2.0);
    let told: Vec<f64> = intervals
        .iter()
        .filter_map(|interval| interval["disturbance"]["stretches_s"].as_f64())
        .collect();
    if told.is_empty() {
        // The kernel does not tell this user whom its interrupts meet.
        return;
    }
    let stretches_s: f64 = told.iter().sum();
    let others_s: f64 = windows(&intervals)
        .iter()
        .filter(|window| window["cause"] != "host")
        .map(|window| window["late_s"].as_f64().unwrap())
        .sum();
    // On a kernel that is preemptible there is nothing of either.
    let all_s = stretches_s + others_s;
    assert!(
        all_s < 0.05 || others_s < 0.5 * all_s,
        "{stretches_s} s were no windows, {others_s} s were"
    );
}

/// Takes one CPU after the other for 8 ms at real-time priority, about every 70 ms from 0.3 to 3.7 s: CPU, from, to, in ns.
fn bursts(start_ns: i64) -> Vec<(usize, i64, i64)> {
    let cpus = affinity();
    let thief = std::thread::spawn(move || {
        real_time(80);
        let mut bursts = Vec::new();
        let mut at_ns = start_ns + 300_000_000;
        for turn in 0.. {
            at_ns += 50_000_000 + (turn * 7_919 % 41) * 1_000_000;
            if at_ns > start_ns + 3_700_000_000 {
                return bursts;
            }
            let cpu = cpus[turn as usize % cpus.len()];
            pin(cpu);
            std::thread::sleep(Duration::from_nanos(
                (at_ns - monotonic_ns()).max(0).unsigned_abs(),
            ));
            let from_ns = monotonic_ns();
            burn_until(from_ns + 8_000_000);
            bursts.push((cpu, from_ns - start_ns, monotonic_ns() - start_ns));
        }
        unreachable!("the range has no end")
    });
    thief.join().unwrap()
}

#[test]
fn what_the_systems_own_threads_do_is_no_disturbance_at_whatever_priority() {
    let _alone = alone();
    // Who listens where the system is reached is the system: here this process, whose thread takes the CPUs.
    let system = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let worker = Worker::new();
    let status = begin_at(&worker, 4.0, &system.local_addr().unwrap().to_string());
    if !may_probe(&worker) {
        return;
    }
    let bursts = bursts(status["start_ns"].as_i64().unwrap());
    worker.sleep_until_s(4.05);
    worker.finish();
    let intervals = worker.intervals();
    check_parts(&worker, &intervals, 4.0);
    let stretches: Vec<f64> = intervals
        .iter()
        .filter_map(|interval| interval["disturbance"]["stretches_s"].as_f64())
        .collect();
    if stretches.is_empty() {
        // The kernel does not tell this user whom its interrupts meet.
        return;
    }
    let own_s: f64 = bursts
        .iter()
        .map(|(_, from_ns, to_ns)| (to_ns - from_ns) as f64 / 1e9)
        .sum();
    let stretches_s: f64 = stretches.iter().sum();
    // A thief that runs beside the tests may come right behind a burst, and be met in the same window.
    let windows = windows(&intervals);
    let taken = bursts.iter().filter(|(cpu, from_ns, to_ns)| {
        let middle_s = (from_ns + to_ns) as f64 / 2e9;
        windows.iter().any(|window| {
            window["cause"] == "real-time"
                && window["cpu"] == *cpu
                && window["from_s"].as_f64().unwrap() < middle_s
                && window["to_s"].as_f64().unwrap() > middle_s
        })
    });
    let taken = taken.count();
    assert!(
        stretches_s > 0.4 * own_s && taken * 2 < bursts.len(),
        "of {own_s} s {stretches_s} s were the system's own, {taken} of {} bursts were windows: {windows:?}",
        bursts.len()
    );
    let quiet = part(&intervals, "publish", "quiet");
    assert!(
        quiet.value_at_percentile(99.0) > 2_000_000,
        "what the system did itself stays in its figures"
    );
}

#[test]
fn a_real_time_thief_is_seen_and_its_harm_is_not_in_quiet_time() {
    let _alone = alone();
    let worker = Worker::new();
    let status = begin(&worker, 4.0);
    if !may_probe(&worker) {
        eprintln!(
            "no thief without the right to real-time priority: {}",
            status["probes"]
        );
        return;
    }
    let bursts = bursts(status["start_ns"].as_i64().unwrap());
    worker.sleep_until_s(4.05);
    let result = worker.finish();
    let intervals = worker.intervals();
    check_parts(&worker, &intervals, 4.0);
    let windows = windows(&intervals);
    for (cpu, from_ns, to_ns) in &bursts {
        let (from_s, to_s) = (*from_ns as f64 / 1e9, *to_ns as f64 / 1e9);
        let covering = windows.iter().any(|window| {
            window["cpu"] == *cpu
                && window["from_s"].as_f64().unwrap() < from_s + 0.001
                && window["to_s"].as_f64().unwrap() > to_s - 0.001
        });
        assert!(
            covering,
            "the burst from {from_s} to {to_s} on CPU {cpu} made no window: {windows:?}"
        );
    }
    let by_thief = windows
        .iter()
        .filter(|window| window["cause"] == "real-time")
        .count();
    assert!(
        by_thief * 2 >= bursts.len(),
        "{by_thief} of {} windows are real-time: {windows:?}",
        windows.len()
    );
    let came = distribution(&intervals, "publish", None, None);
    let quiet = part(&intervals, "publish", "quiet");
    let probes = &result["probes"];
    let ms =
        |histogram: &Histogram<u64>, percentile: f64| histogram.value_at_percentile(percentile) as f64 / 1e6;
    println!(
        "{} bursts, {} windows, disturbed {:.1} %: as it came p50 {:.3} p99 {:.3} ms, quiet {:.3} and {:.3} ms; probes {probes}",
        bursts.len(),
        windows.len(),
        disturbed_s(&intervals) / 4.0 * 100.0,
        ms(&came, 50.0),
        ms(&came, 99.0),
        ms(&quiet, 50.0),
        ms(&quiet, 99.0),
    );
    assert!(ms(&came, 99.0) > 4.0, "the thief did harm");
    assert!(
        ms(&quiet, 99.0) < ms(&came, 99.0) / 2.0,
        "and it is not in quiet time"
    );
    assert!(probes["windows"].as_u64().unwrap() >= bursts.len() as u64);
    // Waking up alone costs 17 to 28 us on a virtual machine of two cores that is busy with other things.
    assert!(
        probes["cpu_share"].as_f64().unwrap() < 0.05,
        "a probe costs little: {probes}"
    );
}

#[test]
fn who_is_of_normal_priority_makes_no_window_however_busy() {
    let _alone = alone();
    let worker = Worker::new();
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = affinity()
        .into_iter()
        .map(|cpu| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                pin(cpu);
                while !stop.load(Ordering::Relaxed) {
                    burn_until(monotonic_ns() + 100_000);
                }
            })
        })
        .collect();
    begin(&worker, 2.0);
    let has_probes = may_probe(&worker);
    worker.sleep_until_s(2.05);
    worker.finish();
    stop.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
    if !has_probes {
        return;
    }
    let intervals = worker.intervals();
    check_parts(&worker, &intervals, 2.0);
    // The host may take CPUs as it likes; what could run and was not let is little: other real-time programs of the machine, stretches of the kernel.
    let kept_s: f64 = windows(&intervals)
        .iter()
        .filter(|window| window["cause"] == "real-time")
        .map(|window| window["late_s"].as_f64().unwrap())
        .sum();
    println!(
        "windows {}, of which real-time {kept_s} s",
        windows(&intervals).len()
    );
    // A probe below them would be kept all the time, and one beside them half of it, on each CPU; a real-time program of the machine may take a fifth.
    assert!(kept_s < 0.8, "{kept_s} s: {:?}", windows(&intervals));
}

#[test]
fn what_the_system_does_itself_makes_no_window() {
    let _alone = alone();
    let worker = Worker::new();
    begin(&worker, 2.0);
    let has_probes = may_probe(&worker);
    worker.sleep_until_s(0.8);
    worker.system.knobs.stalled.store(true, Ordering::Relaxed);
    worker.sleep_until_s(1.2);
    worker.system.knobs.stalled.store(false, Ordering::Relaxed);
    worker.sleep_until_s(2.05);
    worker.finish();
    let intervals = worker.intervals();
    if !has_probes {
        return;
    }
    // Above all: as many are left out as were due in disturbed time, stalled or not.
    check_parts(&worker, &intervals, 2.0);
    let came = distribution(&intervals, "publish", None, None);
    assert!(above(&came, 100_000_000) > 1000);
    // The stall stays in quiet time, in the tail or as messages that had waited for it when a window began.
    let quiet = part(&intervals, "publish", "quiet");
    let censored = part(&intervals, "publish", "censored");
    let stalled_msgs = 0.4 * RATE;
    let kept = above(&quiet, 2_000_000) + censored.len();
    assert!(
        kept as f64 > 0.9 * stalled_msgs - left_out(&intervals, "publish") as f64,
        "{kept} of {stalled_msgs}"
    );
    let attraction: u64 = intervals
        .iter()
        .map(|interval| {
            interval["disturbance"]["attraction"]["quiet_older"][3]
                .as_u64()
                .unwrap()
        })
        .sum();
    let quiet_s = 2.0 - disturbed_s(&intervals);
    assert!(
        attraction as f64 > 100.0 || quiet_s < 1.8,
        "the oldest was older than 5 ms in {attraction} samples"
    );
}

#[test]
fn without_being_asked_for_there_is_nothing_of_it() {
    let _alone = alone();
    let worker = Worker::new();
    let mut request = trial();
    request["quiet"] = json!({"probes": false});
    worker.begin(&request);
    worker.sleep_until_s(0.85);
    let result = worker.finish();
    assert_eq!(result["probes"], Value::Null);
    for interval in worker.intervals() {
        assert!(interval.get("disturbance").is_none());
        for latency in interval["latencies"].as_array().unwrap() {
            assert!(
                latency.get("quiet").is_none() && latency.get("left_out").is_none(),
                "{latency}"
            );
        }
    }
}

/// Takes from the calling thread, and from the threads that it starts, the right to real-time priority.
fn drop_the_right() {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    const SYS_NICE: u32 = 23;
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    // Effective, permitted, inheritable; twice 32 capabilities.
    let mut sets = [[0_u32; 3]; 2];
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: header and sets have the layout of version 3 of the interface, and outlive the calls.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, &mut header, &mut sets), 0);
        sets[0].iter_mut().for_each(|set| *set &= !(1 << SYS_NICE));
        assert_eq!(libc::syscall(libc::SYS_capset, &mut header, &sets), 0);
        assert_eq!(libc::setrlimit(libc::RLIMIT_RTPRIO, &none), 0);
    }
}

#[test]
fn without_the_right_no_window_is_claimed_and_it_says_what_to_grant() {
    let _alone = alone();
    // The limit is the process's, but with the capability, which is a thread's, it does not bind.
    let without = std::thread::spawn(|| {
        drop_the_right();
        let worker = Worker::new();
        begin(&worker, 0.8);
        worker.sleep_until_s(0.85);
        let result = worker.finish();
        (result, worker.intervals())
    });
    let (result, intervals) = without.join().unwrap();
    let probes = &result["probes"];
    assert_eq!(
        (&probes["is_on"], &probes["scheduling"]),
        (&json!(false), &Value::Null)
    );
    let why = probes["why_not"].as_str().unwrap();
    assert!(
        why.contains("real-time priority") && why.contains("CAP_SYS_NICE") && why.contains("ulimit -r"),
        "{why}"
    );
    assert_eq!(probes["cpus"], json!(affinity()));
    for interval in &intervals {
        let told = interval["disturbance"].as_object().unwrap();
        assert_eq!(
            told.keys().collect::<Vec<_>>(),
            ["probes_cpu_s", "steal_s"],
            "{told:?}"
        );
        assert_eq!(told["steal_s"].as_array().unwrap().len(), affinity().len());
        assert!(interval["latencies"][0].get("quiet").is_none());
    }
    assert_eq!(result["audit"]["balanced"], true);
}

#[test]
fn intervals_come_soon_after_their_end() {
    let _alone = alone();
    let worker = Worker::new();
    begin(&worker, 1.0);
    worker.sleep_until_s(0.5);
    let until = Instant::now() + Duration::from_secs(5);
    let next = || {
        worker.get("/v1/trials/current")["next_interval"]
            .as_u64()
            .unwrap()
    };
    while next() < 4 {
        assert!(Instant::now() < until, "an interval waits for the probes");
        std::thread::sleep(Duration::from_millis(5));
    }
    worker.finish();
    assert!(worker.intervals().len() >= 5);
}
