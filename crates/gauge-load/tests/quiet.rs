//! Facts about quiet time: whatever CPUs go away and whenever answers come, a lane decides as one who knows everything would.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::sync::Arc;

use gauge_load::quiet::{Apart, Board, LATE_NS_MIN, PROBE_PERIOD_NS, Sample, Window};
use gauge_load::{
    Arrival, BatchLedger, Emitter, EmitterSpec, Metric, Observer, PayloadPool, ScheduleSpec, Tally,
};
use proptest::prelude::*;

const MS: i64 = 1_000_000;
const CPUS: usize = 2;
const RATE: f64 = 10_000.0;
const END_NS: i64 = 150 * MS;
/// What is read may have been there for so long.
const WAITED_NS: i64 = 300_000;

/// A stretch in which a CPU is away.
type Away = (usize, i64, i64);

/// What happens to a batch: how long it lingers, and how long its answer takes, in us.
type Batch = (u16, u16);

#[derive(Clone, Debug)]
enum Happens {
    Wake { seat: usize, at_ns: i64 },
    Send { batch: usize },
    Answer { batch: usize },
    Receive { batch: usize },
    Cut,
}

/// Wake-ups of a CPU's probe, and the windows that they make.
fn wake_ups(seat: usize, away: &[Away], board: &Board) -> (Vec<i64>, Vec<Window>) {
    let (mut at, mut windows, mut last_ns, mut due_ns) = (Vec::new(), Vec::new(), 0, PROBE_PERIOD_NS);
    while due_ns < END_NS + 100 * MS {
        let mut now_ns = due_ns;
        for (_, from_ns, until_ns) in away.iter().filter(|away| away.0 == seat) {
            if (*from_ns..*until_ns).contains(&now_ns) {
                now_ns = *until_ns;
            }
        }
        let late_ns = now_ns - due_ns;
        if late_ns >= LATE_NS_MIN {
            windows.push(Window {
                seat,
                from_ns: last_ns,
                due_ns,
                to_ns: now_ns,
                recovered_ns: now_ns + board.recovery_ns(seat, late_ns),
                waited_ns: 0,
                oldest_due_ns: i64::MAX,
            });
        }
        at.push(now_ns);
        last_ns = now_ns;
        due_ns = if late_ns >= LATE_NS_MIN { now_ns } else { due_ns } + PROBE_PERIOD_NS;
    }
    (at, windows)
}

/// Count, and sum of the latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    count: u64,
    sum_ns: i128,
}

impl Sum {
    fn add(&mut self, value_ns: i64) {
        self.count += 1;
        self.sum_ns += i128::from(value_ns);
    }
}

/// Quiet, censored, left out: of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Parts {
    quiet: Sum,
    censored: Sum,
    left_out: u64,
}

impl Parts {
    /// By the definition, with all windows known.
    fn judge(&mut self, windows: &[Window], began_ns: i64, answered_ns: i64) {
        if windows
            .iter()
            .any(|window| window.from_ns <= began_ns && began_ns < window.recovered_ns)
        {
            self.left_out += 1;
            return;
        }
        let next = windows
            .iter()
            .map(|window| window.from_ns)
            .filter(|from_ns| (began_ns..answered_ns).contains(from_ns))
            .min();
        match next {
            Some(from_ns) => self.censored.add(from_ns - began_ns),
            None => self.quiet.add(answered_ns - began_ns),
        }
    }

    /// What may have waited to be read, which is never censored.
    fn judge_read(&mut self, windows: &[Window], read_ns: i64) {
        let mut parts = Parts::default();
        parts.judge(windows, read_ns - WAITED_NS, read_ns);
        self.quiet.count += parts.quiet.count;
        self.quiet.sum_ns += parts.quiet.sum_ns;
        self.left_out += parts.left_out + parts.censored.count;
    }

    /// What a tally says.
    fn enter(&mut self, tally: &Tally, metric: Metric, subscription: Option<usize>) {
        for latencies in &tally.latencies {
            let (.., all) = latencies
                .all()
                .find(|(of, at, _)| (*of, *at) == (metric, subscription))
                .unwrap();
            let apart = all.apart();
            let quiet = Apart::quiet(all, apart);
            self.quiet.count += quiet.count();
            self.quiet.sum_ns += quiet.sum_ns();
            if let Some(apart) = apart {
                let censored = apart.censored.distribution();
                self.censored.count += censored.count();
                self.censored.sum_ns += censored.sum_ns();
                self.left_out += apart.left_out;
            }
        }
    }
}

fn away() -> impl Strategy<Value = Vec<Away>> {
    let one = (0..CPUS, 0..END_NS, 0..12 * MS)
        .prop_map(|(cpu, from_ns, length_ns)| (cpu, from_ns, from_ns + length_ns));
    proptest::collection::vec(one, 0..8)
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    proptest::collection::vec(
        (50..1500_u16, prop_oneof![4 => 50..900_u16, 1 => 900..20_000_u16]),
        100..140,
    )
}

fn emitter() -> Emitter {
    let pool = Arc::new(PayloadPool::generate(60, 0.0, 1, 1));
    let schedule = ScheduleSpec {
        arrival: Arrival::Poisson,
        rate_msgs_s: RATE,
        ramp: None,
        stagger: 0.0,
        stop_ns: None,
        seed: 1,
    };
    Emitter::new(&EmitterSpec {
        run: 1,
        producer: 0,
        schedule,
        pool,
        key_count: 0,
        changes: Vec::new(),
        skew: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_lane_decides_as_one_who_knows_everything(away in away(), batches in batches(), cut_ms in 3..40_i64, room in prop::bool::ANY) {
        let board = Arc::new(Board::new(CPUS, 1));
        let mut script = Vec::new();
        let mut windows = Vec::new();
        for seat in 0..CPUS {
            let (at, of_cpu) = wake_ups(seat, &away, &board);
            script.extend(at.into_iter().map(|at_ns| (at_ns, Happens::Wake { seat, at_ns })));
            windows.extend(of_cpu);
            board.looked(seat, 0);
        }
        board.turn_on();
        let mut sent_ns = 0;
        for (batch, (linger_us, takes_us)) in batches.iter().enumerate() {
            sent_ns += i64::from(*linger_us) * 1000;
            if sent_ns > END_NS {
                break;
            }
            let acked_ns = sent_ns + i64::from(*takes_us) * 1000;
            script.push((sent_ns, Happens::Send { batch }));
            script.push((acked_ns, Happens::Answer { batch }));
            script.push((acked_ns + i64::from(*takes_us) * 700, Happens::Receive { batch }));
        }
        script.extend((1..END_NS / MS / cut_ms).map(|cut| (cut * cut_ms * MS, Happens::Cut)));
        script.sort_by_key(|(at_ns, _)| *at_ns);

        let mut emitter = emitter();
        let mut observer = Observer::new(1, true, &[0], 1, 4);
        emitter.start(0);
        observer.start(0);
        observer.set_phases(&[0, 40 * MS, 90 * MS]);
        observer.watch(Arc::clone(&board), 0);
        let mut under_way: Vec<Option<(BatchLedger, Vec<Vec<u8>>)>> = vec![None; batches.len()];
        let (mut tallies, mut due) = (Vec::new(), Vec::new());
        let mut expected = [Parts::default(); 6];
        let mut undecided = 0;
        for (now_ns, happens) in script {
            // With room: the lane looks whenever something happens. Else only at its cuts and at the end, with everything undecided.
            if room {
                observer.decide(now_ns);
            }
            match happens {
                Happens::Wake { seat, at_ns } => {
                    match windows.iter().find(|window| (window.seat, window.to_ns) == (seat, at_ns)) {
                        Some(window) => board.window(window),
                        None => board.looked(seat, at_ns),
                    }
                }
                Happens::Send { batch } => {
                    let mut ledger = BatchLedger::new(0);
                    let mut messages = Vec::new();
                    while let Some(departure) = emitter.take(now_ns) {
                        let mut bytes = vec![0; departure.payload_bytes()];
                        departure.write_into(&mut bytes, batch % 4);
                        ledger.push(departure.stamp.sequence, departure.stamp.intended_ns, now_ns, departure.payload_bytes());
                        observer.sent(&departure);
                        due.push(departure.stamp.intended_ns);
                        expected[3].judge(&windows, departure.stamp.intended_ns, now_ns);
                        messages.push(bytes);
                    }
                    under_way[batch] = Some((ledger, messages));
                }
                Happens::Answer { batch } => {
                    let (ledger, _) = under_way[batch].as_ref().unwrap();
                    observer.turn(now_ns - WAITED_NS);
                    observer.acked(ledger, now_ns);
                    (0..ledger.messages()).for_each(|_| expected[4].judge_read(&windows, now_ns));
                    for run in ledger.runs() {
                        for _ in 0..run.messages {
                            expected[0].judge(&windows, run.intended_ns, now_ns);
                            expected[1].judge(&windows, run.sent_ns, now_ns);
                        }
                    }
                }
                Happens::Receive { batch } => {
                    let (ledger, messages) = under_way[batch].as_ref().unwrap();
                    observer.turn(now_ns - WAITED_NS);
                    for message in messages {
                        observer.received(0, batch % 4, message, now_ns);
                        expected[5].judge_read(&windows, now_ns);
                    }
                    for run in ledger.runs() {
                        for _ in 0..run.messages {
                            expected[2].judge(&windows, run.intended_ns, now_ns);
                        }
                    }
                }
                Happens::Cut => tallies.push(observer.swap(Tally::default())),
            }
        }
        prop_assert!(observer.decide_now(END_NS), "every probe has looked past everything");
        observer.decide_rest();
        tallies.push(observer.swap(Tally::default()));
        let mut found = [Parts::default(); 6];
        let (mut sent_msgs, mut sent_left_out_msgs) = (0, 0);
        for tally in &tallies {
            prop_assert!(tally.quiet.is_watched);
            found[0].enter(tally, Metric::Publish, None);
            found[1].enter(tally, Metric::Service, None);
            found[2].enter(tally, Metric::EndToEnd, Some(0));
            found[3].enter(tally, Metric::SendDelay, None);
            found[4].enter(tally, Metric::AckDelay, None);
            found[5].enter(tally, Metric::ReceiveDelay, Some(0));
            sent_msgs += tally.quiet.sent_msgs;
            sent_left_out_msgs += tally.quiet.sent_left_out_msgs;
            undecided += tally.quiet.undecided_msgs;
        }
        prop_assert_eq!(found, expected);
        prop_assert_eq!(undecided, 0);
        let in_span = |due_ns: &i64| windows.iter().any(|window| window.from_ns <= *due_ns && *due_ns < window.recovered_ns);
        prop_assert_eq!(sent_left_out_msgs, due.iter().filter(|due_ns| in_span(due_ns)).count() as u64);
        prop_assert_eq!(sent_msgs + sent_left_out_msgs, due.len() as u64);
        // Nothing is lost on the way: all = quiet + censored + left out.
        for parts in &found[..3] {
            let all = parts.quiet.count + parts.censored.count + parts.left_out;
            prop_assert!(all <= due.len() as u64);
            prop_assert_eq!(all, expected[0].quiet.count + expected[0].censored.count + expected[0].left_out);
        }
        prop_assert_eq!(found[3].quiet.count + found[3].censored.count + found[3].left_out, due.len() as u64);
    }
}

/// A lane whose probes stopped looking: what it cannot decide counts as disturbed and is told, in sums that hold.
#[test]
fn what_there_is_no_room_for_counts_as_disturbed_and_is_told() {
    let board = Arc::new(Board::new(1, 1));
    board.looked(0, 0);
    board.turn_on();
    let mut observer = Observer::new(1, true, &[0], 0, 1);
    observer.start(0);
    observer.watch(board, 0);
    let mut ledger = BatchLedger::new(0);
    (0..100).for_each(|at| ledger.push(at, at as i64 * 10, at as i64 * 10 + 5, 60));
    for batch in 0..2000 {
        observer.acked(&ledger, 2000 + batch);
    }
    assert!(!observer.decide_now(5000));
    let first = observer.swap(Tally::default());
    observer.decide_rest();
    let tallies = [first, observer.swap(Tally::default())];
    let mut found = Parts::default();
    tallies
        .iter()
        .for_each(|tally| found.enter(tally, Metric::Publish, None));
    assert_eq!(
        (found.quiet.count, found.censored.count, found.left_out),
        (0, 0, 200_000)
    );
    assert!(tallies[0].quiet.undecided_msgs > 100_000);
    let undecided: u64 = tallies.iter().map(|tally| tally.quiet.undecided_msgs).sum();
    assert_eq!(undecided, 200_000);
}

/// The distribution as it came is the same with and without probes.
#[test]
fn the_distributions_of_all_messages_stay_what_they_are() {
    let board = Arc::new(Board::new(1, 1));
    board.looked(0, 0);
    board.turn_on();
    let watched = |is_watched: bool| {
        let mut observer = Observer::new(1, true, &[0], 0, 1);
        observer.start(0);
        if is_watched {
            observer.watch(Arc::clone(&board), 0);
        }
        let mut ledger = BatchLedger::new(0);
        for at in 0..50 {
            ledger.clear(0);
            (0..20).for_each(|message| ledger.push(0, at * 100 + message, at * 100 + 30, 60));
            observer.acked(&ledger, at * 170);
            board.looked(0, at * 120);
            observer.decide_now(at * 130);
        }
        observer.swap(Tally::default())
    };
    let (with, without) = (watched(true), watched(false));
    for ((.., with), (.., without)) in with.latencies[0].all().zip(without.latencies[0].all()) {
        assert_eq!(with.histogram(), without.histogram());
        assert_eq!(
            (with.count(), with.sum_ns(), with.negative()),
            (without.count(), without.sum_ns(), without.negative())
        );
    }
}

/// The board is told when the oldest message under way was due.
#[test]
fn what_is_under_way_is_shown_until_it_has_ended() {
    let board = Arc::new(Board::new(1, 1));
    board.turn_on();
    let mut observer = Observer::new(1, true, &[0], 0, 1);
    let mut emitter = emitter();
    emitter.start(0);
    observer.start(0);
    observer.watch(Arc::clone(&board), 0);
    let mut ledgers = Vec::new();
    for now_ms in [1, 2, 3] {
        let mut ledger = BatchLedger::new(0);
        while let Some(departure) = emitter.take(now_ms * MS) {
            let stamp = departure.stamp;
            ledger.push(stamp.sequence, stamp.intended_ns, now_ms * MS, 60);
            observer.sent(&departure);
        }
        ledgers.push(ledger);
    }
    let oldest_ns = |observer: &mut Observer| {
        observer.decide(3 * MS);
        board.oldest_due_ns()
    };
    let first_ns = |at: usize| ledgers[at].runs()[0].intended_ns;
    let near = |found_ns: i64, due_ns: i64| found_ns <= due_ns && due_ns - found_ns < MS / 15;
    assert!(near(oldest_ns(&mut observer), first_ns(0)));
    observer.acked(&ledgers[1], 3 * MS);
    assert!(near(oldest_ns(&mut observer), first_ns(0)));
    observer.failed(&ledgers[0], "TIMED_OUT");
    assert!(near(oldest_ns(&mut observer), first_ns(2)));
    observer.censored(&ledgers[2]);
    assert_eq!(oldest_ns(&mut observer), i64::MAX);
    board.sample(Sample {
        at_ns: 1,
        oldest_due_ns: 1,
    });
}
