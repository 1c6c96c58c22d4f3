//! What the heart costs per message: `cargo run --release -p gauge-load --example hot_path`.
//!
//! Prints nanoseconds of CPU per 100-byte message for each step of a message's life, the median of several rounds.

use std::hint::black_box;
use std::sync::Arc;

use gauge_load::clock::thread_cpu_ns;
use gauge_load::{Arrival, BatchLedger, Emitter, EmitterSpec, Observer, PayloadPool, ScheduleSpec, Tally};

const MESSAGES: usize = 1_000_000;
const ROUNDS: usize = 7;
const SIZE_BYTES: usize = 100;
const BATCH: usize = 5_000;

fn main() {
    for arrival in [Arrival::Closed, Arrival::Uniform, Arrival::Poisson] {
        let mut rounds: Vec<[f64; 3]> = (0..ROUNDS).map(|_| round(arrival)).collect();
        let mut median = |step: usize| {
            rounds.sort_by(|a, b| a[step].total_cmp(&b[step]));
            rounds[ROUNDS / 2][step]
        };
        println!(
            "{arrival:?}: take, stamp and note {:.1} ns, acknowledge {:.1} ns, receive and check {:.1} ns",
            median(0),
            median(1),
            median(2)
        );
    }
}

/// One round: nanoseconds per message of sending, acknowledging and receiving.
fn round(arrival: Arrival) -> [f64; 3] {
    let pool = Arc::new(PayloadPool::generate(SIZE_BYTES, 1.0, 64, 1));
    let schedule = ScheduleSpec {
        arrival,
        rate_msgs_s: 1e6,
        ramp: None,
        stagger: 0.0,
        stop_ns: None,
        seed: 1,
    };
    let mut emitter = Emitter::new(&EmitterSpec {
        run: 1,
        producer: 0,
        schedule,
        pool,
        key_count: 0,
        changes: Vec::new(),
        skew: None,
    });
    let mut observer = Observer::new(1, true, &[0], 1, 16);
    emitter.start(0);
    observer.start(0);
    observer.swap(Tally::default());
    let mut buffer = vec![0; BATCH * SIZE_BYTES];
    let mut ledger = BatchLedger::new(0);
    let mut spent_ns = [0; 3];
    let mut timed = |step: usize, from_ns: i64| spent_ns[step] += thread_cpu_ns() - from_ns;
    for batch in 0..MESSAGES / BATCH {
        let now_ns = 1_000_000_000_000 + batch as i64 * 1_000_000;
        let from_ns = thread_cpu_ns();
        ledger.clear(0);
        for slot in buffer.chunks_exact_mut(SIZE_BYTES) {
            let Some(departure) = emitter.take(now_ns) else {
                unreachable!("the schedule is far behind the clock")
            };
            departure.write_into(slot);
            ledger.push(
                departure.stamp.sequence,
                departure.stamp.intended_ns,
                now_ns,
                SIZE_BYTES,
            );
            observer.sent(&departure);
        }
        timed(0, from_ns);
        let from_ns = thread_cpu_ns();
        observer.acked(black_box(&ledger), now_ns + 500_000);
        timed(1, from_ns);
        let from_ns = thread_cpu_ns();
        for message in black_box(&buffer).chunks_exact(SIZE_BYTES) {
            observer.received(0, batch % 16, message, now_ns + 900_000);
        }
        timed(2, from_ns);
    }
    spent_ns.map(|ns| ns as f64 / MESSAGES as f64)
}
