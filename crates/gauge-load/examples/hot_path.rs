//! What the heart costs per message: `cargo run --release -p gauge-load --example hot_path`.
//!
//! Prints nanoseconds of CPU per 100-byte message for each step of a message's life, the median of several rounds: without probes, with
//! probes that see nothing, and with a CPU that is away for a quarter of the time. The rounds are interleaved.

use std::hint::black_box;
use std::sync::Arc;

use gauge_load::clock::thread_cpu_ns;
use gauge_load::quiet::{Board, Window};
use gauge_load::{Arrival, BatchLedger, Emitter, EmitterSpec, Observer, PayloadPool, ScheduleSpec, Tally};

const MESSAGES: usize = 1_000_000;
const ROUNDS: usize = 7;
const SIZE_BYTES: usize = 100;
const BATCH: usize = 5_000;

/// What the probes see.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Probes {
    None,
    Quiet,
    Disturbed,
}

fn main() {
    for arrival in [Arrival::Closed, Arrival::Uniform, Arrival::Poisson] {
        let kinds = [Probes::None, Probes::Quiet, Probes::Disturbed];
        let mut rounds: Vec<[[f64; 3]; 3]> = (0..ROUNDS)
            .map(|_| kinds.map(|probes| round(arrival, probes)))
            .collect();
        let mut median = |kind: usize, step: usize| {
            rounds.sort_by(|a, b| a[kind][step].total_cmp(&b[kind][step]));
            rounds[ROUNDS / 2][kind][step]
        };
        for (kind, probes) in kinds.iter().enumerate() {
            let steps = [0, 1, 2].map(|step| median(kind, step));
            let before = [0, 1, 2].map(|step| median(0, step));
            println!(
                "{arrival:?}, probes {probes:?}: take, stamp and note {:.1} ns, acknowledge {:.1} ns, receive and check {:.1} ns, \
                 all {:.1} ns, {:.3} times without",
                steps[0],
                steps[1],
                steps[2],
                steps.iter().sum::<f64>(),
                steps.iter().sum::<f64>() / before.iter().sum::<f64>(),
            );
        }
    }
}

/// One round: nanoseconds per message of sending, acknowledging and receiving.
fn round(arrival: Arrival, probes: Probes) -> [f64; 3] {
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
    let board = Arc::new(Board::new(2, 1));
    if probes != Probes::None {
        board.turn_on();
        observer.watch(Arc::clone(&board), 0);
    }
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
            departure.write_into(slot, batch % 16);
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
        observer.decide(now_ns + 900_000);
        timed(2, from_ns);
        look(&board, probes, batch, now_ns);
    }
    spent_ns.map(|ns| ns as f64 / MESSAGES as f64)
}

/// Both probes look; every second time, the second CPU was away for half of the two milliseconds.
fn look(board: &Board, probes: Probes, batch: usize, now_ns: i64) {
    board.looked(0, now_ns);
    if probes == Probes::Disturbed && batch % 2 == 1 {
        board.window(&Window {
            seat: 1,
            from_ns: now_ns - 1_000_000,
            due_ns: now_ns - 500_000,
            to_ns: now_ns,
            recovered_ns: now_ns,
            waited_ns: 0,
            oldest_due_ns: i64::MAX,
        });
    } else {
        board.looked(1, now_ns);
    }
}
