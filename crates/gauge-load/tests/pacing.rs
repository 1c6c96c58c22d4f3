//! Facts about schedules and emitters: they do not drift, nothing leaves early, and nothing moves a message that was due.

use std::sync::Arc;

use gauge_load::{Arrival, Emitter, EmitterSpec, PayloadPool, Ramp, RateChange, Schedule, ScheduleSpec};
use proptest::prelude::*;

fn spec(arrival: Arrival, rate_msgs_s: f64) -> ScheduleSpec {
    ScheduleSpec {
        arrival,
        rate_msgs_s,
        ramp: None,
        stagger: 0.0,
        stop_ns: None,
        seed: 7,
    }
}

/// The first `count` times of a schedule.
fn times(schedule: &mut Schedule, count: usize) -> Vec<i64> {
    (0..count)
        .map_while(|_| {
            let next_ns = schedule.next_ns()?;
            schedule.take();
            Some(next_ns)
        })
        .collect()
}

fn arrivals() -> impl Strategy<Value = Arrival> {
    prop_oneof![
        Just(Arrival::Uniform),
        Just(Arrival::Poisson),
        (1..50u32).prop_map(|messages| Arrival::Burst { messages }),
    ]
}

fn emitter(schedule: ScheduleSpec) -> Emitter {
    let pool = Arc::new(PayloadPool::generate(100, 0.5, 3, 1));
    let mut emitter = Emitter::new(&EmitterSpec {
        run: 1,
        producer: 0,
        schedule,
        pool,
        key_count: 0,
        changes: Vec::new(),
        skew: None,
    });
    emitter.start(1_000_000);
    emitter
}

#[test]
fn a_ramp_from_nothing_is_one() {
    for stagger in [0.0, 0.25] {
        let ramp = Some(Ramp {
            to_msgs_s: 1_000.0,
            over_ns: 1_000_000_000,
        });
        let mut schedule = Schedule::new(&ScheduleSpec {
            ramp,
            stagger,
            ..spec(Arrival::Uniform, 0.0)
        });
        for (k, time_ns) in times(&mut schedule, 500).into_iter().enumerate() {
            let exact_ns = ((k as f64 + stagger) / 500.0).sqrt() * 1e9;
            assert!(
                (time_ns as f64 - exact_ns).abs() < 1.01,
                "{k}: {time_ns} {exact_ns}"
            );
        }
    }
}

#[test]
fn a_rate_that_is_set_in_a_pause_ends_it() {
    let changes = [(100_000_000, 0.0), (900_000_000, 1_000.0)];
    let changes = changes.map(|(at_ns, to_msgs_s)| RateChange {
        at_ns,
        to_msgs_s,
        over_ns: 0,
    });
    let mut schedule = Schedule::new(&spec(Arrival::Uniform, 995.0));
    schedule.plan(&changes);
    assert_eq!(times(&mut schedule, 100).len(), 100);
    assert!(
        schedule.next_ns() > Some(900_000_000),
        "the next one is due behind the pause"
    );
    schedule.set_rate(500_000_000, 1_000.0);
    // 99.5 were due before the pause.
    assert_eq!(schedule.next_ns(), Some(500_500_000));
}

#[test]
fn a_rate_that_is_set_in_a_ramp_does_not_hide_how_far_it_rises() {
    let ramp = Some(Ramp {
        to_msgs_s: 10_000.0,
        over_ns: 1_000_000_000,
    });
    let mut schedule = Schedule::new(&ScheduleSpec {
        ramp,
        ..spec(Arrival::Uniform, 1_000.0)
    });
    schedule.set_rate(900_000_000, 1_000.0);
    assert!(
        schedule.most_within(10_000_000) >= 91,
        "9,100 msg/s are due just before"
    );
}

proptest! {
    /// Message k of a uniform schedule lies within a nanosecond of k gaps, not of the sum of k rounded gaps.
    #[test]
    fn a_uniform_schedule_does_not_drift(rate in 0.5f64..5e6, stagger in 0.0f64..1.0) {
        let mut schedule = Schedule::new(&ScheduleSpec { stagger, ..spec(Arrival::Uniform, rate) });
        for (k, time_ns) in times(&mut schedule, 20_000).into_iter().enumerate() {
            let exact_ns = (k as f64 + stagger) * 1e9 / rate;
            prop_assert!((time_ns as f64 - exact_ns) > -0.01 && (time_ns as f64 - exact_ns) < 1.01 , "{k}: {time_ns} {exact_ns}");
        }
    }

    #[test]
    fn times_never_go_back(arrival in arrivals(), rate in 1.0f64..1e6, to in 0.0f64..1e6, over_ns in 1i64..5_000_000_000,
                           changes in proptest::collection::vec((0i64..3_000_000_000, 0.0f64..1e6), 0..8)) {
        let mut schedule = Schedule::new(&ScheduleSpec { ramp: Some(Ramp { to_msgs_s: to, over_ns }), ..spec(arrival, rate) });
        let mut last_ns = 0;
        let mut now_ns = 0;
        for (after_ns, new_rate) in changes {
            now_ns += after_ns / 8;
            for _ in 0..2_000 {
                match schedule.next_ns() {
                    Some(next_ns) if next_ns <= now_ns => {
                        prop_assert!(next_ns >= last_ns);
                        last_ns = next_ns;
                        schedule.take();
                    }
                    _ => break,
                }
            }
            let due_before = schedule.next_ns();
            schedule.set_rate(now_ns, new_rate);
            // What was due before the change is due at the same time after it.
            if let Some(due_ns) = due_before && due_ns <= now_ns {
                prop_assert_eq!(schedule.next_ns(), Some(due_ns));
            } else if let Some(next_ns) = schedule.next_ns() {
                prop_assert!(next_ns >= now_ns);
            }
        }
    }

    /// After any changes of the rate, the number of messages is the integral of the rate.
    #[test]
    fn as_many_leave_as_the_rate_says(first in 1_000.0f64..100_000.0, second in 1_000.0f64..100_000.0, at_ns in 100_000_000i64..900_000_000) {
        let mut schedule = Schedule::new(&ScheduleSpec { stop_ns: Some(1_000_000_000), ..spec(Arrival::Uniform, first) });
        schedule.set_rate(at_ns, second);
        let sent = times(&mut schedule, 1_000_000).len() as f64;
        let expected = first * at_ns as f64 / 1e9 + second * (1e9 - at_ns as f64) / 1e9;
        prop_assert!((sent - expected).abs() <= 1.001, "{sent} {expected}");
    }

    #[test]
    fn a_ramp_adds_up(from in 0.0f64..50_000.0, to in 0.0f64..50_000.0) {
        let ramp = Some(Ramp { to_msgs_s: to, over_ns: 1_000_000_000 });
        let mut schedule = Schedule::new(&ScheduleSpec { ramp, stop_ns: Some(2_000_000_000), ..spec(Arrival::Uniform, from) });
        let sent = times(&mut schedule, 1_000_000).len() as f64;
        prop_assert!((sent - ((from + to) / 2.0 + to)).abs() <= 1.001, "{sent}");
    }

    /// A lane that wakes up late takes the same messages, with the same intended times, as one that is always there;
    /// and neither takes one early.
    #[test]
    fn a_late_lane_catches_up(arrival in arrivals(), rate in 100.0f64..200_000.0,
                              naps_ns in proptest::collection::vec(1i64..80_000_000, 1..40)) {
        let schedule = ScheduleSpec { stop_ns: Some(200_000_000), ..spec(arrival, rate) };
        let prompt: Vec<i64> = times(&mut Schedule::new(&schedule), 100_000);
        let mut emitter = emitter(schedule);
        let mut now_ns = 0;
        let mut taken = Vec::new();
        for nap_ns in naps_ns.iter().chain(&[400_000_000]) {
            now_ns += nap_ns;
            while let Some(departure) = emitter.take(now_ns) {
                prop_assert!(departure.stamp.intended_ns <= now_ns, "early");
                prop_assert_eq!(departure.sent_ns, now_ns);
                prop_assert_eq!(departure.stamp.sequence, taken.len() as u64);
                taken.push(departure.stamp.intended_ns - 1_000_000);
            }
            prop_assert!(emitter.next_due_ns().is_none_or(|due_ns| due_ns > now_ns));
        }
        prop_assert_eq!(taken, prompt);
    }

    /// A lane that leaves what is due until a time that it has planned is late by what it comes after that time, and by nothing else.
    #[test]
    fn who_comes_as_planned_is_not_late(arrival in arrivals(), rate in 100.0f64..200_000.0,
                                        turns in proptest::collection::vec((0i64..20_000_000, -1_000_000i64..1_000_000), 1..40)) {
        let mut emitter = emitter(ScheduleSpec { stop_ns: Some(200_000_000), ..spec(arrival, rate) });
        let mut now_ns = 0;
        for (plan_ns, late_ns) in turns {
            let planned_ns = now_ns + plan_ns;
            now_ns = now_ns.max(planned_ns + late_ns);
            emitter.expect(planned_ns);
            while let Some(departure) = emitter.take(now_ns) {
                let intended_ns = departure.stamp.intended_ns;
                let late_ns = departure.sent_ns - intended_ns;
                prop_assert_eq!(late_ns, (now_ns - planned_ns.max(intended_ns)).max(0));
                prop_assert!(departure.lingers_from_ns() >= intended_ns);
            }
        }
    }

    /// The message that much behind the next one is not due before the time that is told, and just then where gaps are known.
    #[test]
    fn no_message_is_due_before_it_can_be(arrival in arrivals(), rate in 100.0f64..200_000.0, to in 0.0f64..200_000.0, over_ns in 1i64..2_000_000_000,
                                          ramps in proptest::bool::ANY, count in 0u64..2_000, taken in 0usize..500) {
        let ramp = ramps.then_some(Ramp { to_msgs_s: to, over_ns });
        let mut schedule = Schedule::new(&ScheduleSpec { ramp, ..spec(arrival, rate) });
        for _ in 0..taken {
            schedule.take();
        }
        let earliest_ns = schedule.earliest_ns(count);
        let from_ns = schedule.next_ns().unwrap_or(i64::MAX);
        prop_assert!(earliest_ns >= from_ns || arrival == Arrival::Poisson);
        let mut later = schedule.clone();
        for _ in 0..count {
            later.take();
        }
        let due_ns = later.next_ns().unwrap_or(i64::MAX);
        prop_assert!(earliest_ns <= due_ns, "{earliest_ns} {due_ns}");
        if !ramps && arrival != Arrival::Poisson {
            prop_assert_eq!(earliest_ns, due_ns);
        }
        // In no window there is more than there may be.
        if due_ns < i64::MAX {
            prop_assert!(schedule.most_within(due_ns - from_ns) > count, "{count} in {} ns", due_ns - from_ns);
        }
    }

    /// The delay of a message splits exactly into the generator's part and the part for which the client had no room.
    #[test]
    fn held_time_is_not_send_delay(holds in proptest::collection::vec((0i64..5_000_000, 1i64..5_000_000), 1..20)) {
        let mut emitter = emitter(spec(Arrival::Uniform, 10_000.0));
        let mut now_ns = 1_000_000;
        let mut held_intervals: Vec<(i64, i64)> = Vec::new();
        for (free_ns, held_ns) in holds {
            now_ns += free_ns;
            while emitter.take(now_ns).is_some() {}
            // Nothing is due yet, so nothing is held until something is.
            let due_ns = emitter.next_due_ns().unwrap();
            now_ns = now_ns.max(due_ns);
            emitter.hold(now_ns);
            held_intervals.push((now_ns, now_ns + held_ns));
            now_ns += held_ns;
            while let Some(departure) = emitter.take(now_ns) {
                let intended_ns = departure.stamp.intended_ns;
                let expected: i64 = held_intervals.iter().map(|(from, until)| (until - from.max(&intended_ns)).max(0)).sum();
                prop_assert_eq!(departure.held_ns, expected);
                prop_assert!(departure.held_ns <= departure.sent_ns - intended_ns);
            }
        }
    }
}

#[test]
fn a_uniform_schedule_is_exact_after_a_day() {
    // 100,000 msg/s for a day are 8.64e9 messages; stepping there in one rate change keeps the test short.
    let mut schedule = Schedule::new(&spec(Arrival::Uniform, 0.0));
    let day_ns = 86_400_000_000_000;
    schedule.set_rate(day_ns, 100_000.0);
    let got = times(&mut schedule, 100_000);
    // The first message of a schedule with stagger 0 is due when the integral of the rate reaches 0: at once.
    assert_eq!(got[1], day_ns + 10_000);
    assert_eq!(got[99_999], day_ns + 999_990_000);
}

#[test]
fn poisson_gaps_are_exponential() {
    let got = times(&mut Schedule::new(&spec(Arrival::Poisson, 1_000_000.0)), 200_000);
    let gaps: Vec<f64> = got.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    assert!((mean - 1_000.0).abs() < 10.0, "mean gap {mean} ns");
    for times_mean in [0.5, 1.0, 2.0, 4.0] {
        let beyond =
            gaps.iter().filter(|gap| **gap > times_mean * 1_000.0).count() as f64 / gaps.len() as f64;
        let expected = f64::exp(-times_mean);
        assert!((beyond - expected).abs() < 0.005, "{beyond} {expected}");
    }
}

#[test]
fn the_same_seed_gives_the_same_schedule() {
    let one = times(&mut Schedule::new(&spec(Arrival::Poisson, 5_000.0)), 1_000);
    let same = times(&mut Schedule::new(&spec(Arrival::Poisson, 5_000.0)), 1_000);
    let other = times(
        &mut Schedule::new(&ScheduleSpec {
            seed: 8,
            ..spec(Arrival::Poisson, 5_000.0)
        }),
        1_000,
    );
    assert_eq!(one, same);
    assert_ne!(one, other);
}

#[test]
fn a_burst_shares_its_time() {
    let got = times(
        &mut Schedule::new(&spec(Arrival::Burst { messages: 10 }, 1_000.0)),
        30,
    );
    assert!(got[..10].iter().all(|time_ns| *time_ns == 0));
    assert!(got[10..20].iter().all(|time_ns| *time_ns == 10_000_000));
    assert!(got[20..].iter().all(|time_ns| *time_ns == 20_000_000));
}

#[test]
fn staggered_producers_interleave_evenly() {
    let mut all: Vec<i64> = (0..4)
        .flat_map(|producer| {
            let schedule = ScheduleSpec {
                stagger: f64::from(producer) / 4.0,
                ..spec(Arrival::Uniform, 1_000.0)
            };
            times(&mut Schedule::new(&schedule), 100)
        })
        .collect();
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[1] - pair[0] == 250_000));
}

#[test]
fn the_stop_is_exact() {
    let schedule = ScheduleSpec {
        stop_ns: Some(30_000_000_000),
        ..spec(Arrival::Uniform, 50_000.0)
    };
    assert_eq!(times(&mut Schedule::new(&schedule), 2_000_000).len(), 1_500_000);
}

#[test]
fn a_rate_of_zero_waits_for_the_next_change() {
    let mut schedule = Schedule::new(&ScheduleSpec {
        stagger: 0.5,
        ..spec(Arrival::Uniform, 0.0)
    });
    assert_eq!(schedule.next_ns(), None);
    schedule.set_rate(5_000_000, 1_000.0);
    assert_eq!(schedule.next_ns(), Some(5_500_000));
}

#[test]
fn closed_loop_is_always_due_and_stamps_now() {
    let mut emitter = emitter(ScheduleSpec {
        stop_ns: Some(1_000),
        ..spec(Arrival::Closed, 0.0)
    });
    let departure = emitter.take(1_000_500).unwrap();
    assert_eq!(
        (departure.stamp.intended_ns, departure.sent_ns),
        (1_000_500, 1_000_500)
    );
    assert!(
        emitter.take(1_001_000).is_none(),
        "the stop holds in a closed loop too"
    );
}

#[test]
fn nothing_is_due_before_the_start() {
    let pool = Arc::new(PayloadPool::generate(100, 0.0, 1, 1));
    let schedule = spec(Arrival::Uniform, 1e6);
    let mut emitter = Emitter::new(&EmitterSpec {
        run: 1,
        producer: 0,
        schedule,
        pool,
        key_count: 0,
        changes: Vec::new(),
        skew: None,
    });
    assert!(emitter.take(i64::MAX - 1).is_none());
}

#[test]
fn planned_steps_and_ramps_bend_the_schedule_where_they_are_planned() {
    let change = |at_s: i64, to_msgs_s: f64, over_s: i64| RateChange {
        at_ns: at_s * 1_000_000_000,
        to_msgs_s,
        over_ns: over_s * 1_000_000_000,
    };
    let mut schedule = Schedule::new(&ScheduleSpec {
        stop_ns: Some(10_000_000_000),
        ..spec(Arrival::Uniform, 1_000.0)
    });
    // 2 s at 1,000/s, 1 s at 5,000/s, 2 s at 1,000/s, then 2 s down to nothing, and 100/s from second 8 on.
    schedule.plan(&[
        change(2, 5_000.0, 0),
        change(3, 1_000.0, 0),
        change(5, 0.0, 2),
        change(8, 100.0, 0),
    ]);
    let got = times(&mut schedule, 20_000);
    let within = |from_s: i64, until_s: i64| {
        got.iter()
            .filter(|t| (from_s..until_s).contains(&(*t / 1_000_000_000)))
            .count()
    };
    for ((from_s, until_s), expected) in [
        ((0, 2), 2_000),
        ((2, 3), 5_000),
        ((3, 5), 2_000),
        ((5, 7), 1_000),
        ((7, 8), 0),
        ((8, 10), 200),
    ] {
        let found = within(from_s, until_s);
        assert!(
            found.abs_diff(expected) <= 1,
            "{from_s} to {until_s} s: {found} instead of {expected}"
        );
    }
    assert!(got.is_sorted());
}

#[test]
fn sizes_are_taken_in_turn_and_producers_begin_at_different_ones() {
    let sizes: Vec<usize> = (0..50).map(|at| 40 + at * 7).collect();
    let pool = Arc::new(PayloadPool::of_sizes(&sizes, 1.0, 1).expect("there are sizes"));
    let mut firsts = Vec::new();
    for producer in 0..8 {
        let mut emitter = Emitter::new(&EmitterSpec {
            run: 1,
            producer,
            schedule: spec(Arrival::Uniform, 1e6),
            changes: Vec::new(),
            pool: Arc::clone(&pool),
            key_count: 0,
            skew: None,
        });
        emitter.start(0);
        let mut got: Vec<usize> = (0..sizes.len())
            .map(|_| {
                let expected = emitter.next_payload_bytes();
                let departure = emitter.take(1_000_000_000).expect("it is due");
                assert_eq!(departure.payload_bytes(), expected);
                let mut message = vec![0; expected];
                departure.write_into(&mut message, 0);
                assert_eq!(
                    gauge_load::stamp::check(&message),
                    gauge_load::stamp::Checked::Whole(departure.stamp)
                );
                expected
            })
            .collect();
        firsts.push(got[0]);
        got.sort_unstable();
        assert_eq!(got, sizes, "every size as often as it is in the list");
    }
    firsts.sort_unstable();
    firsts.dedup();
    assert!(firsts.len() > 4, "{firsts:?}");
}
