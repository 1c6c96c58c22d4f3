//! Facts about the observer and the audit: whatever happens to messages, the books balance and name it.

use std::sync::Arc;

use gauge_load::audit::{Receipts, SentBook, judge, judge_sent};
use gauge_load::stamp::{self, PROBE_PRODUCER, Stamp};
use gauge_load::{Arrival, BatchLedger, Emitter, EmitterSpec, Observer, PayloadPool, ScheduleSpec, Tally};
use proptest::prelude::*;

const RUN: u32 = 77;

/// What happens to one message.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fate {
    /// 0 acknowledged, 1 failed, 2 censored.
    end: u8,
    /// How many times the consumer gets it.
    copies: u8,
    /// Whether its first copy arrives damaged.
    damaged: bool,
    partition: u8,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = (0..10u8, 0..12u8, 0..20u8, 0..4u8).prop_map(|(end, copies, damaged, partition)| Fate {
        end: end.saturating_sub(7),
        copies: if copies == 0 { 0 } else { 1 + copies / 11 },
        damaged: damaged == 0,
        partition,
    });
    proptest::collection::vec(fate, 1..300)
}

fn message(stamp: &Stamp) -> Vec<u8> {
    let mut message = vec![1; 60];
    let tail = stamp::tail_crc(&message[stamp::STAMP_BYTES..]);
    stamp::write(&mut message, stamp, tail);
    message
}

proptest! {
    /// A trial in which every message meets its own fate: the counts are those of the fates, and the sums hold.
    #[test]
    fn the_books_always_balance(fates in fates(), strangers in 0..5u32) {
        let pool = Arc::new(PayloadPool::generate(60, 0.0, 1, 1));
        let schedule = ScheduleSpec { arrival: Arrival::Uniform, rate_msgs_s: 1e6, ramp: None, stagger: 0.0, stop_ns: None, seed: 1 };
        let mut emitter = Emitter::new(&EmitterSpec { run: RUN, producer: 3, schedule, pool, key_count: 0, changes: Vec::new(), skew: None });
        let mut producing = Observer::new(RUN, true, &[3], 1, 4);
        let mut consuming = Observer::new(RUN, true, &[], 1, 4);
        emitter.start(0);
        producing.start(0);
        consuming.start(0);
        let end_ns = 1_000_000_000;
        let mut arrivals = Vec::new();
        for fate in &fates {
            let departure = emitter.take(end_ns).unwrap();
            producing.sent(&departure);
            let mut ledger = BatchLedger::new(3);
            ledger.push(departure.stamp.sequence, departure.stamp.intended_ns, departure.sent_ns, departure.payload_bytes());
            let mut bytes = vec![0; departure.payload_bytes()];
            departure.write_into(&mut bytes, fate.partition.into());
            match fate.end {
                0 => producing.acked(&ledger, end_ns + 5),
                1 => producing.failed(&ledger, "REQUEST_TIMED_OUT"),
                _ => producing.censored(&ledger),
            }
            for copy in 0..fate.copies {
                let mut bytes = bytes.clone();
                if fate.damaged && copy == 0 {
                    bytes[40] ^= 1;
                }
                arrivals.push((fate.partition, bytes));
            }
        }
        for stranger in 0..strangers {
            arrivals.push((0, message(&Stamp { run: RUN + 1, producer: 3, sequence: u64::from(stranger), intended_ns: 0 })));
        }
        for (partition, bytes) in &arrivals {
            consuming.received(0, usize::from(*partition), bytes, end_ns + 9);
        }
        producing.close_producer(3, emitter.sequence());
        let sent_books = producing.into_books();
        let received_books = consuming.into_books();
        let sent = judge_sent(&sent_books.sent, sent_books.publish_samples);
        prop_assert_eq!(&sent.imbalance, &None);
        prop_assert_eq!(sent.sent, fates.len() as u64);

        let verdict = judge(&sent_books.sent, &received_books.receipts[0], received_books.end_to_end_samples[0], false);
        prop_assert_eq!(&verdict.imbalance, &None);
        let whole = |fate: &Fate| fate.copies - u8::from(fate.damaged && fate.copies > 0);
        let count = |wanted: &dyn Fn(&Fate) -> bool| fates.iter().filter(|fate| wanted(fate)).count() as u64;
        prop_assert_eq!(verdict.received, arrivals.len() as u64);
        prop_assert_eq!(verdict.lost, count(&|fate| fate.end == 0 && whole(fate) == 0));
        prop_assert_eq!(verdict.lost, verdict.lost_prefix + verdict.lost_middle + verdict.lost_tail);
        prop_assert_eq!(verdict.recovered, count(&|fate| fate.end != 0 && whole(fate) > 0));
        prop_assert_eq!(verdict.unknown, count(&|fate| fate.end != 0 && whole(fate) == 0));
        prop_assert_eq!(verdict.duplicated, fates.iter().map(|fate| u64::from(whole(fate).saturating_sub(1))).sum::<u64>());
        prop_assert_eq!(verdict.corrupted, count(&|fate| fate.damaged && fate.copies > 0));
        prop_assert_eq!(verdict.unexpected, u64::from(strangers));
        prop_assert_eq!(verdict.reordered, 0);

        let gave_up = judge(&sent_books.sent, &received_books.receipts[0], received_books.end_to_end_samples[0], true);
        prop_assert_eq!((gave_up.lost, gave_up.censored, gave_up.imbalance), (0, verdict.lost, None));
    }
}

/// What another worker measures is received, counted and judged, and in no histogram here.
#[test]
fn a_swarm_measures_its_own_messages_only() {
    let mut consuming = Observer::new(RUN, true, &[], 1, 4);
    consuming.measure_only(&[1]);
    consuming.start(0);
    for producer in 0..3 {
        for sequence in 0..10 {
            let stamp = Stamp {
                run: RUN,
                producer,
                sequence,
                intended_ns: 5,
            };
            consuming.received(0, 0, &message(&stamp), 9);
        }
    }
    assert_eq!(consuming.unique_msgs(0), 30);
    let books = consuming.into_books();
    assert_eq!((books.end_to_end_samples[0], books.receipts[0].left), (10, 20));
    let sent: Vec<SentBook> = (0..3)
        .map(|producer| SentBook {
            producer,
            ..acked_book(10)
        })
        .collect();
    let verdict = judge(&sent, &books.receipts[0], books.end_to_end_samples[0], false);
    assert_eq!((verdict.unique, verdict.lost, verdict.imbalance), (30, 0, None));
    // A latency that nobody measures is missed.
    let verdict = judge(&sent, &books.receipts[0], 9, false);
    assert!(verdict.imbalance.is_some());
}

fn acked_book(sent: u64) -> SentBook {
    SentBook {
        sent,
        acked: sent,
        ..SentBook::new(0)
    }
}

fn received(sequences: impl IntoIterator<Item = u64>) -> Receipts {
    let mut receipts = Receipts::new(1);
    for sequence in sequences {
        receipts.received += 1;
        receipts.enter(0, 0, sequence);
    }
    receipts
}

#[test]
fn the_place_of_a_loss_is_named() {
    let receipts = received((10..40).chain(50..90));
    let verdict = judge(&[acked_book(100)], &receipts, 70, false);
    assert_eq!(
        (verdict.lost_prefix, verdict.lost_middle, verdict.lost_tail),
        (10, 10, 10)
    );
    assert_eq!(verdict.examples[1], "producer 0: sequences 40-49 lost (middle)");
    let nothing = judge(&[acked_book(5)], &received([]), 0, false);
    assert_eq!(
        (nothing.lost, nothing.lost_tail),
        (5, 5),
        "with nothing received all of it is tail"
    );
}

#[test]
fn an_earlier_message_after_a_later_one_is_reordered_within_a_partition_only() {
    let mut receipts = Receipts::new(2);
    for (slot, sequence) in [(0, 0), (1, 3), (0, 2), (0, 1), (1, 3), (1, 4)] {
        receipts.received += 1;
        receipts.enter(slot, 0, sequence);
    }
    assert_eq!((receipts.reordered, receipts.duplicated), (1, 1));
}

#[test]
fn what_was_never_sent_is_unexpected() {
    let verdict = judge(&[acked_book(2)], &received([0, 1, 7]), 3, false);
    assert_eq!((verdict.unique, verdict.unexpected), (2, 1));
    assert_eq!(verdict.imbalance, None);
    let unknown_producer = judge(&[], &received([0]), 1, false);
    assert_eq!(unknown_producer.unexpected, 1);
}

#[test]
fn a_sum_that_does_not_hold_is_said() {
    let mut book = acked_book(3);
    book.acked = 2;
    assert!(
        judge_sent(std::slice::from_ref(&book), 2)
            .imbalance
            .unwrap()
            .contains("producer 0: 3 sent, but 2 acknowledged")
    );
    assert!(
        judge_sent(&[acked_book(3)], 2)
            .imbalance
            .unwrap()
            .contains("2 publish latencies")
    );
    assert!(
        judge(&[acked_book(3)], &received(0..3), 2, false)
            .imbalance
            .unwrap()
            .contains("2 end-to-end latencies")
    );
    let mut miscounted = received(0..3);
    miscounted.received += 1;
    assert!(
        judge(&[acked_book(3)], &miscounted, 3, false)
            .imbalance
            .unwrap()
            .contains("add up to 3")
    );
}

#[test]
fn lanes_are_united() {
    let mut one = received((0..50).chain(60..61));
    one.unite(&received(50..101));
    let verdict = judge(&[acked_book(101)], &one, 102, false);
    assert_eq!((verdict.unique, verdict.lost, verdict.duplicated), (101, 0, 1));
    assert_eq!(verdict.imbalance, None);
}

#[test]
fn a_message_belongs_to_the_phase_in_which_it_was_intended() {
    let mut observer = Observer::new(RUN, true, &[0], 1, 1);
    observer.start(1_000);
    observer.set_phases(&[0, 500]);
    for (sequence, intended_ns) in [(0, 1_499), (1, 1_500), (2, 1_700), (3, 1_100)] {
        observer.received(
            0,
            0,
            &message(&Stamp {
                run: RUN,
                producer: 0,
                sequence,
                intended_ns,
            }),
            9_000,
        );
    }
    let tally = observer.swap(Tally::default());
    let mut counts: Vec<(usize, u64)> = tally
        .latencies
        .iter()
        .map(|latencies| (latencies.phase, latencies.end_to_end[0].count()))
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [(0, 2), (1, 2)]);
    assert_eq!(tally.counters.received[0].msgs, 4);
}

#[test]
fn probes_prove_and_are_counted_nowhere() {
    let mut observer = Observer::new(RUN, true, &[], 2, 3);
    let probe = |slot| {
        message(&Stamp {
            run: RUN,
            producer: PROBE_PRODUCER,
            sequence: slot,
            intended_ns: 0,
        })
    };
    observer.received(1, 2, &probe(2), 5);
    observer.received(1, 2, &probe(2), 5);
    assert_eq!(observer.proven(), [0, 1]);
    let tally = observer.swap(Tally::default());
    assert_eq!(tally.counters.received[1].msgs, 0);
    assert!(
        observer
            .into_books()
            .receipts
            .iter()
            .all(|receipts| receipts.received == 0)
    );
}

fn due_at_100(sequence: u64) -> Stamp {
    Stamp {
        run: RUN,
        producer: 3,
        sequence,
        intended_ns: 100,
    }
}

/// What was read in a turn may have waited since the turn's `since`; what is not read from a socket tells nothing.
#[test]
fn how_long_answers_may_have_waited_is_recorded_by_turn() {
    let mut observer = Observer::new(RUN, true, &[3], 1, 4);
    observer.start(0);
    observer.turn(1_000);
    observer.received(0, 0, &message(&due_at_100(0)), 6_000);
    observer.received(0, 0, &message(&due_at_100(1)), 6_000);
    observer.received(0, 0, &message(&due_at_100(2)), 9_000);
    let mut ledger = BatchLedger::new(3);
    ledger.push(0, 100, 200, 60);
    ledger.push(1, 100, 200, 60);
    observer.turn(2_000);
    observer.acked(&ledger, 5_000);
    observer.turn(i64::MAX);
    observer.acked(&ledger, 50_000);
    let tally = observer.swap(Tally::default());
    let latencies = &tally.latencies[0];
    let receive = &latencies.receive_delay[0];
    assert_eq!(
        (receive.count(), receive.min_ns(), receive.max_ns()),
        (3, 5_000, 8_000)
    );
    let ack = &latencies.ack_delay;
    assert_eq!((ack.count(), ack.min_ns(), ack.max_ns()), (2, 3_000, 3_000));
}

/// Where nobody answers, a message that is written in a socket's turn was not read from it.
#[test]
fn who_is_not_answered_is_not_late_in_reading_it() {
    let mut observer = Observer::new(RUN, true, &[3], 0, 4);
    observer.expect_no_answers();
    observer.start(0);
    let mut ledger = BatchLedger::new(3);
    ledger.push(0, 100, 200, 60);
    observer.turn(2_000);
    observer.acked(&ledger, 5_000);
    let tally = observer.swap(Tally::default());
    let latencies = &tally.latencies[0];
    assert_eq!((latencies.publish.count(), latencies.ack_delay.count()), (1, 0));
}

/// Who reads a backlog is always behind in reading: that is not in how late those are read that tail.
#[test]
fn what_subscriptions_wait_for_to_be_read_is_kept_apart() {
    let mut observer = Observer::new(RUN, true, &[3], 2, 1);
    observer.start(0);
    observer.turn(4_000);
    observer.received(0, 0, &message(&due_at_100(0)), 6_000);
    observer.turn(1_000);
    observer.received(1, 0, &message(&due_at_100(0)), 6_000);
    observer.received(1, 0, &message(&due_at_100(1)), 6_000);
    observer.turn(4_000);
    observer.received(0, 0, &message(&due_at_100(1)), 6_000);
    let tally = observer.swap(Tally::default());
    let found: Vec<_> = tally.latencies[0]
        .receive_delay
        .iter()
        .map(|delay| (delay.count(), delay.min_ns(), delay.max_ns()))
        .collect();
    assert_eq!(found, [(2, 2_000, 2_000), (2, 5_000, 5_000)]);
}

/// Messages that failed or were given up are counted in the phase in which they were due.
#[test]
fn messages_without_an_acknowledgement_are_counted_in_their_phase() {
    let mut observer = Observer::new(RUN, true, &[3], 0, 1);
    observer.start(0);
    observer.set_phases(&[0, 1_000]);
    let mut ledger = BatchLedger::new(3);
    ledger.push(0, 500, 500, 60);
    ledger.push(1, 1_500, 1_500, 60);
    ledger.push(2, 1_600, 1_600, 60);
    observer.failed(&ledger, "SOME_ERROR");
    let mut last = BatchLedger::new(3);
    last.push(3, 1_700, 1_700, 60);
    observer.censored(&last);
    let tally = observer.swap(Tally::default());
    let mut found: Vec<(usize, u64)> = tally
        .latencies
        .iter()
        .map(|latencies| (latencies.phase, latencies.unacked_msgs))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(0, 1), (1, 3)]);
}
