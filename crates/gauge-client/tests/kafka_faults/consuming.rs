//! Consumers: positions, errors of a partition, leaders that move, fetch sessions, logs that were cut off.

use gauge_client::StartAt;
use gauge_load::clock::monotonic_ns;

use crate::scripted::Server;
use crate::{MS_NS, consumer_spec, drive_until, filled, prepared};

#[test]
fn a_consumer_reads_everything_once_and_commits_it() {
    let server = filled(3, 4000);
    let (mut client, mut observer) = prepared(&server, consumer_spec(3, StartAt::Earliest, Some(10 * MS_NS)));
    assert_eq!(client.assigned(), 3);
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    client.abandon(&mut observer);
    let books = observer.into_books();
    let receipts = &books.receipts[0];
    assert_eq!(
        (
            receipts.received,
            receipts.duplicated,
            receipts.reordered,
            receipts.corrupted
        ),
        (4000, 0, 0, 0)
    );
    let state = server.state();
    for partition in 0..3 {
        let last = state
            .committed
            .iter()
            .rev()
            .find(|(committed, _)| *committed == partition);
        assert_eq!(
            last.map(|(_, offset)| *offset),
            Some(state.next_offsets[partition as usize])
        );
    }
}

#[test]
fn a_consumer_from_the_latest_message_on_sees_only_what_comes_after() {
    let server = filled(1, 500);
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Latest, None));
    drive_until(client.as_mut(), &mut observer, |_| server.state().fetches > 3);
    assert!(client.caught_up(0));
    let again = server.state().partitions[0][0].clone();
    let records = u32::from_be_bytes(again[57..61].try_into().unwrap());
    server.state().append(0, again);
    drive_until(client.as_mut(), &mut observer, |_| server.state().fetches > 8);
    client.abandon(&mut observer);
    assert_eq!(observer.into_books().receipts[0].received, u64::from(records));
}

#[test]
fn a_paused_consumer_does_not_fetch() {
    let server = filled(1, 500);
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Latest, None));
    client.pause(0, true);
    let mut rounds = 0;
    drive_until(client.as_mut(), &mut observer, |_| {
        rounds += 1;
        rounds > 50
    });
    let before = server.state().fetches;
    let again = server.state().partitions[0][0].clone();
    server.state().append(0, again);
    rounds = 0;
    drive_until(client.as_mut(), &mut observer, |_| {
        rounds += 1;
        rounds > 50
    });
    assert_eq!(server.state().fetches, before);
    client.pause(0, false);
    assert!(
        !client.caught_up(0),
        "nothing is known about what came in the meantime"
    );
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    client.abandon(&mut observer);
    assert!(observer.into_books().receipts[0].received > 0);
}

#[test]
fn a_corrupt_batch_is_counted_and_passed_over() {
    let server = filled(1, 1000);
    let lost = {
        let mut state = server.state();
        let batch = &mut state.partitions[0][1];
        batch[100] ^= 1;
        u64::from(u32::from_be_bytes(batch[57..61].try_into().unwrap()))
    };
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Earliest, None));
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    let tally = observer.swap(Default::default());
    assert_eq!(tally.counters.errors, [("CORRUPT_BATCH", 1)]);
    let receipts = &observer.into_books().receipts[0];
    assert_eq!((receipts.received, receipts.corrupted), (1000, lost));
}

#[test]
fn gaps_and_a_start_inside_a_batch_are_no_obstacle() {
    let server = filled(1, 1000);
    {
        // Compaction or aborted transactions leave gaps between batches.
        let mut state = server.state();
        state.partitions[0].remove(2);
        state.log_start = 3;
    }
    let expected: u64 = server.state().partitions[0]
        .iter()
        .map(|batch| u64::from(u32::from_be_bytes(batch[57..61].try_into().unwrap())))
        .sum();
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Earliest, None));
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    // The first three messages lie before the start of the log, in the batch that it begins in.
    assert_eq!(observer.into_books().receipts[0].received, expected - 3);
}

#[test]
fn a_consumer_recovers_from_errors_of_a_partition() {
    // Not the leader any more; out of range, which begins anew at the first message that is kept.
    for code in [6, 1] {
        let server = filled(2, 1000);
        server.state().fetch_error = Some((1, code));
        let (mut client, mut observer) = prepared(&server, consumer_spec(2, StartAt::Earliest, None));
        drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
        let tally = observer.swap(Default::default());
        assert_eq!(tally.counters.errors.len(), 1, "{:?}", tally.counters.errors);
        let receipts = &observer.into_books().receipts[0];
        assert_eq!((receipts.received, receipts.duplicated), (1000, 0), "{code}");
    }
}

#[test]
fn nobody_is_at_the_end_of_a_partition_that_has_no_leader() {
    let server = Server::start(1);
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Latest, None));
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    // The leader goes, and what the next one has is not known before it has been asked.
    server.state().leaders = [-1].into();
    server.state().fetch_error = Some((0, 6));
    let until_ns = monotonic_ns() + 700_000_000;
    let mut is_known = true;
    while monotonic_ns() < until_ns {
        client.drive(&mut observer, monotonic_ns()).unwrap();
        client.wait(monotonic_ns() + 1_000_000);
        is_known = client.caught_up(0);
    }
    assert!(!is_known, "it has an end that nobody tells");
    server.state().leaders = [1].into();
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
}

/// A broker that is silent may have what nobody was told of. Found by the simulated world: a drain ended with messages still in the log.
#[test]
fn nobody_is_at_the_end_whose_broker_is_silent() {
    let server = Server::start(1);
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Latest, None));
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    server.state().long_poll_ms = 2_500;
    drive_until(client.as_mut(), &mut observer, |client| !client.caught_up(0));
    server.state().long_poll_ms = 0;
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
}

/// Found by the simulated world: such a leader was waited for without end.
#[test]
fn a_leader_that_is_not_among_the_brokers_is_asked_for_again() {
    let server = Server::start(1);
    server.state().leaders = [9, 1].into();
    let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Latest, None));
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
}

/// A broker keeps what the first fetch of a session names. A partition that comes to it while that fetch is under way has to be named by the
/// next one, or it is never fetched.
#[test]
fn a_partition_that_comes_while_a_session_begins_is_fetched_as_well() {
    let server = Server::start(2);
    server.state().keeps_sessions = true;
    let (mut client, mut observer) = prepared(&server, consumer_spec(2, StartAt::Latest, None));
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    {
        let mut state = server.state();
        state.without_leader = Some(1);
        state.long_poll_ms = 1000;
        state.fetch_error = Some((0, 6));
    }
    drive_until(client.as_mut(), &mut observer, |_| {
        server.state().session.2.len() == 1
    });
    server.state().without_leader = None;
    drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
    assert_eq!(server.state().session.2.len(), 2);
}

/// What a session has to be told of a partition was to be told to its old leader, and the new one was never told: it sent the same messages for
/// ever. Found by the simulated world.
#[test]
fn a_partition_that_moves_before_its_session_is_told_is_read_on() {
    let server = filled(2, 60_000);
    server.state().keeps_sessions = true;
    let (mut client, mut observer) = prepared(&server, consumer_spec(2, StartAt::Earliest, None));
    let fetches = server.state().fetches;
    server.state().leaders = [2].into();
    drive_until(client.as_mut(), &mut observer, |client| {
        // One partition has messages and the other an error, after which nothing is fetched for a while: there the client hears that both have moved.
        let mut state = server.state();
        if state.fetches < fetches + 2 {
            state.fetch_error = Some((1, 6));
        } else {
            state.fetch_error = None;
        }
        client.caught_up(0)
    });
    client.abandon(&mut observer);
    let receipts = &observer.into_books().receipts[0];
    assert_eq!((receipts.received, receipts.duplicated), (60_000, 0));
}

/// Three batches are cut off after they were read, and others are appended: as many as were cut off or more, so that the offset at
/// which the consumer goes on is there again, or fewer. It must read all that is new.
#[test]
fn a_log_that_was_cut_off_is_read_on_from_where_it_was_cut() {
    for (appended, is_beyond) in [(5, false), (1, true)] {
        let server = filled(1, 1000);
        let rest = {
            let mut state = server.state();
            let batches = state.partitions[0].len();
            let rest: Vec<Vec<u8>> = state.partitions[0].split_off(batches - appended);
            let first = rest[0][..8].try_into().unwrap();
            state.next_offsets[0] = i64::from_be_bytes(first);
            rest
        };
        let (mut client, mut observer) = prepared(&server, consumer_spec(1, StartAt::Earliest, None));
        drive_until(client.as_mut(), &mut observer, |client| client.caught_up(0));
        let (kept, fetches) = {
            let mut state = server.state();
            state.cut_off(0, 3);
            for batch in rest {
                state.append(0, batch);
            }
            (1000, state.fetches)
        };
        drive_until(client.as_mut(), &mut observer, |client| {
            server.state().fetches > fetches + 3 && client.caught_up(0)
        });
        let tally = observer.swap(Default::default());
        client.abandon(&mut observer);
        let receipts = &observer.into_books().receipts[0];
        assert_eq!(
            (receipts.received, receipts.duplicated),
            (kept, 0),
            "beyond the end: {is_beyond}, {:?}",
            tally.counters.errors
        );
        assert!(
            tally
                .counters
                .errors
                .iter()
                .any(|(kind, count)| *kind == "LOG_TRUNCATED" && *count == 1),
            "{:?}",
            tally.counters.errors
        );
    }
}
