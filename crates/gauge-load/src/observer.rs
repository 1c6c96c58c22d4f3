//! What a lane sees: entered in the tally of the interval and in the books.

use std::sync::Arc;

use crate::audit::{Receipts, SentBook};
use crate::clocks::Clocks;
use crate::emitter::Departure;
use crate::ledger::BatchLedger;
use crate::mutants::{self, Mutant};
use crate::quiet::{Apart, Apartments, Board, Kind, QuietCounters, Read, Watch};
use crate::stamp::{self, Checked, PROBE_PRODUCER};
use crate::tally::{Counters, PhaseLatencies, Received, Tally};

/// The lane's part of the trial's books, for the audit.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Per producer of this lane.
    pub sent: Vec<SentBook>,
    /// Per subscription.
    pub receipts: Vec<Receipts>,
    /// Samples recorded per latency, over the whole trial: the histograms must agree with the books.
    pub publish_samples: u64,
    /// End-to-end samples, per subscription.
    pub end_to_end_samples: Vec<u64>,
}

/// Messages that were due at one instant and handed over at one instant: in a closed loop, all that lie between two readings of the
/// clock. Recording them at once costs as much as one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentRun {
    intended_ns: i64,
    sent_ns: i64,
    held_ns: i64,
    messages: u64,
    payload_bytes: u64,
}

impl SentRun {
    fn of(departure: &Departure<'_>) -> SentRun {
        SentRun {
            intended_ns: departure.stamp.intended_ns,
            sent_ns: departure.sent_ns,
            held_ns: departure.held_ns,
            messages: 1,
            payload_bytes: departure.payload_bytes() as u64,
        }
    }

    /// Adds a message. One with other times ends the run: it is recorded, and the message begins the next.
    #[inline]
    pub fn add(&mut self, departure: &Departure<'_>, observer: &mut Observer) {
        if self.messages > 0
            && self.intended_ns == departure.stamp.intended_ns
            && self.sent_ns == departure.sent_ns
            && self.held_ns == departure.held_ns
        {
            self.messages += 1;
            self.payload_bytes += departure.payload_bytes() as u64;
            return;
        }
        self.end(observer);
        *self = SentRun::of(departure);
    }

    /// Records what has been added.
    #[inline]
    pub fn end(&mut self, observer: &mut Observer) {
        if self.messages > 0 {
            observer.sent_run(self);
            self.messages = 0;
        }
    }
}

/// A message came through another partition than the one that it was sent to.
const MISROUTED: &str = "MISROUTED";

/// What a lane sees. The protocol clients report to it; the lane swaps its tally out at each interval's end.
#[derive(Debug)]
pub struct Observer {
    run: u32,
    start_ns: i64,
    subscriptions: usize,
    stamped: bool,
    phases: Vec<i64>,
    /// The phase looked up last, and its bounds on the schedule's axis.
    phase: usize,
    phase_from_ns: i64,
    phase_until_ns: i64,
    tally: Tally,
    books: Books,
    /// Producer -> its place among the books, plus one; 0: it is another lane's.
    places: Vec<u32>,
    /// Of each slot, the partition of its topic; a slot beyond is its own.
    partitions: Vec<u32>,
    proven: Vec<u32>,
    probed: Vec<Vec<bool>>,
    clocks: Arc<Clocks>,
    /// Per producer: whether its messages' end-to-end latency is measured here. None: all are.
    measured: Option<Vec<bool>>,
    /// What the probes see, while there are some.
    watch: Option<Box<Watch>>,
    /// Since when what is being read may have been there; `i64::MAX`: it is not read from a socket.
    since_ns: i64,
    /// Messages have their end when an answer is read, and not when they are written.
    has_answers: bool,
    /// What was read last, of either kind.
    read: [Option<Read>; Kind::SLOTS],
}

/// The tally, for decisions about quiet time.
struct Deciding<'a> {
    tally: &'a mut Tally,
    subscriptions: usize,
    /// Beginnings of the phases, and of the schedule.
    phases: &'a [i64],
    start_ns: i64,
}

impl Deciding<'_> {
    fn phase(&mut self, due_ns: i64) -> &mut PhaseLatencies {
        let offset_ns = due_ns - self.start_ns;
        let after = self.phases.partition_point(|&from_ns| from_ns <= offset_ns);
        self.tally.phase(after.saturating_sub(1), self.subscriptions)
    }
}

impl Apartments for Deciding<'_> {
    fn of_sent(&mut self, due_ns: i64) -> &mut Apart {
        self.phase(due_ns).send_delay.apart_mut()
    }

    fn of_run(&mut self, due_ns: i64) -> (&mut Apart, &mut Apart) {
        let latencies = self.phase(due_ns);
        (latencies.publish.apart_mut(), latencies.service.apart_mut())
    }

    fn of_receipt(&mut self, subscription: usize, due_ns: i64) -> &mut Apart {
        self.phase(due_ns).end_to_end[subscription].apart_mut()
    }

    fn of_read(&mut self, kind: Kind, due_ns: i64) -> &mut Apart {
        let latencies = self.phase(due_ns);
        match kind {
            Kind::Ack => latencies.ack_delay.apart_mut(),
            Kind::Receipt(at) => latencies.receive_delay[at].apart_mut(),
        }
    }

    fn counters(&mut self) -> &mut QuietCounters {
        &mut self.tally.quiet
    }
}

impl Observer {
    /// An observer for one lane.
    ///
    /// `stamped`: messages carry stamps; without, receipts are only counted. `producers`: those of this lane. `slots`: partitions
    /// of all topics, numbered through.
    pub fn new(run: u32, stamped: bool, producers: &[u32], subscriptions: usize, slots: usize) -> Observer {
        Observer {
            run,
            start_ns: 0,
            subscriptions,
            stamped,
            phases: vec![0],
            phase: 0,
            phase_from_ns: i64::MIN,
            phase_until_ns: i64::MAX,
            tally: Tally::with_room(subscriptions),
            places: places_of(producers),
            books: Books {
                sent: producers
                    .iter()
                    .map(|&producer| SentBook::new(producer))
                    .collect(),
                receipts: (0..subscriptions).map(|_| Receipts::new(slots)).collect(),
                publish_samples: 0,
                end_to_end_samples: vec![0; subscriptions],
            },
            partitions: Vec::new(),
            proven: vec![0; subscriptions],
            probed: vec![vec![false; slots]; subscriptions],
            clocks: Arc::default(),
            measured: None,
            watch: None,
            since_ns: i64::MAX,
            has_answers: true,
            read: [None; Kind::SLOTS],
        }
    }

    /// Nobody answers: messages have their end when they are written, so that there is no lateness in reading it.
    pub fn expect_no_answers(&mut self) {
        self.has_answers = false;
    }

    /// Tells how topics lie among the slots: of each, how many partitions it has.
    pub fn lay_out(&mut self, topics: impl IntoIterator<Item = u32>) {
        self.partitions = topics.into_iter().flat_map(|partitions| 0..partitions).collect();
    }

    /// From now on what is of quiet time is told apart, by what the probes write on the board. `lane` is this lane's place there.
    pub fn watch(&mut self, board: Arc<Board>, lane: usize) {
        self.tally.quiet.is_watched = true;
        self.watch = Some(Box::new(Watch::new(board, lane)));
    }

    /// Decides what can be decided; to be called in every turn of the lane.
    #[inline]
    pub fn decide(&mut self, now_ns: i64) {
        if let Some(watch) = &mut self.watch {
            watch.show();
            if watch.is_due(now_ns) {
                self.decide_now(now_ns);
            }
        }
    }

    /// Decides what can be decided. Returns whether everything is.
    pub fn decide_now(&mut self, now_ns: i64) -> bool {
        self.end_reads();
        self.with_watch(|watch, out| watch.decide(now_ns, out))
            .unwrap_or(true)
    }

    /// The end: what is not decided counts as disturbed.
    pub fn decide_rest(&mut self) {
        self.end_reads();
        self.with_watch(|watch, out| watch.give_up(out));
    }

    #[inline]
    fn with_watch<T>(&mut self, work: impl FnOnce(&mut Watch, &mut Deciding<'_>) -> T) -> Option<T> {
        let watch = self.watch.as_deref_mut()?;
        let mut out = Deciding {
            tally: &mut self.tally,
            subscriptions: self.subscriptions,
            phases: &self.phases,
            start_ns: self.start_ns,
        };
        Some(work(watch, &mut out))
    }

    /// From now on only the end-to-end latencies of messages of these producers are recorded; the others are measured elsewhere and
    /// only counted.
    pub fn measure_only(&mut self, producers: &[u32]) {
        let mut measured = vec![false; producers.iter().max().map_or(0, |&last| last as usize + 1)];
        for &producer in producers {
            measured[producer as usize] = true;
        }
        self.measured = Some(measured);
    }

    /// The schedule begins at `start_ns` of the clock.
    ///
    /// What the preparation caused (requests of probes, errors of leaders that were not there yet) is forgotten; what was received stays.
    pub fn start(&mut self, start_ns: i64) {
        self.start_ns = start_ns;
        let received = std::mem::take(&mut self.tally.counters.received);
        self.tally.counters = Counters {
            received,
            ..Counters::default()
        };
    }

    /// The counters since the last swap.
    pub fn counters(&self) -> &Counters {
        &self.tally.counters
    }

    /// Different messages of this trial that a subscription received on this lane, over the whole trial; of messages without stamps: 0.
    pub fn unique_msgs(&self, subscription: usize) -> u64 {
        self.books.end_to_end_samples[subscription] + self.books.receipts[subscription].left
    }

    /// Replaces the phases: offsets from the start, rising, the first is 0. Messages that were seen already stay where they are.
    pub fn set_phases(&mut self, from_ns: &[i64]) {
        assert!(
            from_ns.first() == Some(&0) && from_ns.is_sorted(),
            "phases begin at 0 and rise"
        );
        self.phases.clear();
        self.phases.extend_from_slice(from_ns);
        // Looked up anew at the next message.
        self.phase_from_ns = i64::MAX;
        self.phase_until_ns = i64::MAX;
    }

    /// Replaces what is known of the clocks of producers that are elsewhere.
    pub fn set_clocks(&mut self, clocks: Arc<Clocks>) {
        self.clocks = clocks;
    }

    #[inline]
    fn phase_of(&mut self, intended_ns: i64) -> usize {
        let offset_ns = intended_ns - self.start_ns - i64::from(mutants::is(Mutant::PhaseBeginsLate));
        if offset_ns < self.phase_from_ns || offset_ns >= self.phase_until_ns {
            let after = self.phases.partition_point(|&from_ns| from_ns <= offset_ns);
            self.phase = after.saturating_sub(1);
            self.phase_from_ns = if self.phase == 0 {
                i64::MIN
            } else {
                self.phases[self.phase]
            };
            self.phase_until_ns = self.phases.get(self.phase + 1).copied().unwrap_or(i64::MAX);
        }
        self.phase
    }

    /// A message was taken from an emitter and handed to the client.
    #[inline]
    pub fn sent(&mut self, departure: &Departure<'_>) {
        self.sent_run(&SentRun::of(departure));
    }

    /// Messages that share their times were taken from an emitter and handed to the client.
    pub fn sent_run(&mut self, run: &SentRun) {
        self.tally.counters.sent_msgs += run.messages;
        if !mutants::is(Mutant::BytesNotCounted) {
            self.tally.counters.sent_bytes += run.payload_bytes;
        }
        let late_ns = run.sent_ns - run.intended_ns;
        let phase = self.phase_of(run.intended_ns);
        let latencies = self.tally.phase(phase, self.subscriptions);
        let own_ns = if mutants::is(Mutant::HeldCountsAsLate) {
            late_ns
        } else {
            late_ns - run.held_ns
        };
        latencies.send_delay.record(own_ns, run.messages);
        if run.held_ns > 0 {
            latencies.backpressure.record(run.held_ns, run.messages);
        }
        let free_ns = run.intended_ns + run.held_ns;
        self.with_watch(|watch, out| watch.sent(run.intended_ns, free_ns, run.sent_ns, run.messages, out));
    }

    /// A batch was acknowledged; `acked_ns` is when the acknowledgement was read.
    pub fn acked(&mut self, ledger: &BatchLedger, acked_ns: i64) {
        self.acked_part(ledger, acked_ns);
        self.batch();
    }

    /// Everything of a batch was acknowledged, after [`Observer::acked_part`] has told of its messages.
    #[inline]
    pub fn batch(&mut self) {
        self.tally.counters.batches += 1;
    }

    /// Messages were acknowledged that are not a whole batch, because the system acknowledges messages one by one.
    pub fn acked_part(&mut self, ledger: &BatchLedger, acked_ns: i64) {
        let messages = u64::from(ledger.messages());
        self.tally.counters.acked_msgs += messages;
        self.tally.counters.acked_bytes += ledger.payload_bytes();
        self.books.publish_samples += messages;
        // A wake-up of the lane hands over several messages, each with its own intended time: those share a service time.
        let (mut phase, mut sent_ns, mut together) = (0, 0, 0);
        let (mut first_due_ns, mut last_due_ns) = (i64::MAX, i64::MIN);
        for run in ledger.runs() {
            first_due_ns = first_due_ns.min(run.intended_ns);
            last_due_ns = last_due_ns.max(run.intended_ns);
            let booked_ns = if mutants::is(Mutant::PhaseOfAck) {
                acked_ns
            } else {
                run.intended_ns
            };
            let from_ns = if mutants::is(Mutant::OmissionCoordinated) {
                run.sent_ns
            } else {
                run.intended_ns
            };
            let phase_of_run = self.phase_of(booked_ns);
            let latencies = self.tally.phase(phase_of_run, self.subscriptions);
            latencies
                .publish
                .record(acked_ns - from_ns, u64::from(run.messages));
            if (phase, sent_ns) != (phase_of_run, run.sent_ns) {
                self.record_service(phase, acked_ns - sent_ns, together);
                (phase, sent_ns, together) = (phase_of_run, run.sent_ns, 0);
            }
            together += u64::from(run.messages);
        }
        if !mutants::is(Mutant::ServiceRunLost) {
            self.record_service(phase, acked_ns - sent_ns, together);
        }
        if messages > 0 && self.has_answers && !mutants::is(Mutant::ReadDelayLost) {
            self.read(Kind::Ack, last_due_ns, acked_ns, messages);
        }
        self.with_watch(|watch, out| watch.acked(ledger.runs(), acked_ns, first_due_ns, last_due_ns, out));
        if let Some(book) = self.book(ledger.producer()) {
            book.acked += messages;
        }
    }

    fn record_service(&mut self, phase: usize, service_ns: i64, messages: u64) {
        if messages > 0 {
            let latencies = self.tally.phase(phase, self.subscriptions);
            latencies.service.record(service_ns, messages);
        }
    }

    /// A batch ended with an error and will not be sent again. Whether the system has it is unknown.
    pub fn failed(&mut self, ledger: &BatchLedger, kind: &'static str) {
        let messages = u64::from(ledger.messages());
        self.tally.counters.failed_msgs += messages;
        self.tally.counters.count_error(kind, 1);
        if let Some(watch) = &mut self.watch {
            watch.ended(ledger.runs());
        }
        if let Some(book) = self.book(ledger.producer()) {
            book.failed += messages;
            enter_unknown(book, ledger);
        }
        self.unacked(ledger);
    }

    /// A batch had neither acknowledgement nor error when the run gave up on it.
    pub fn censored(&mut self, ledger: &BatchLedger) {
        if let Some(watch) = &mut self.watch {
            watch.ended(ledger.runs());
        }
        if let Some(book) = self.book(ledger.producer()) {
            if mutants::is(Mutant::CensoredCountsAsFailed) {
                book.failed += u64::from(ledger.messages());
            } else {
                book.censored += u64::from(ledger.messages());
            }
            enter_unknown(book, ledger);
        }
        self.unacked(ledger);
    }

    /// Counts messages without an acknowledgement in their phases: above every latency that was measured there.
    fn unacked(&mut self, ledger: &BatchLedger) {
        for run in ledger.runs() {
            let phase = self.phase_of(run.intended_ns);
            if !mutants::is(Mutant::UnackedNotCounted) {
                self.tally.phase(phase, self.subscriptions).unacked_msgs += u64::from(run.messages);
            }
        }
    }

    /// A batch is sent again after this kind of error; its times are kept.
    pub fn retried(&mut self, kind: &'static str) {
        self.tally.counters.retries += u64::from(!mutants::is(Mutant::RetriesNotCounted));
        self.tally.counters.count_error(kind, 1);
    }

    /// An error that concerns no batch (a fetch, a connection, a commit).
    pub fn error(&mut self, kind: &'static str) {
        self.tally.counters.count_error(kind, 1);
    }

    /// The lane has nothing more to do and waits.
    #[inline]
    pub fn waits(&mut self) {
        self.tally.counters.wakeups += 1;
    }

    /// A produce request was written.
    #[inline]
    pub fn request(&mut self) {
        self.tally.counters.requests += 1 + u64::from(mutants::is(Mutant::RequestCountedTwice));
    }

    /// A producer had something due and no room for this long.
    pub fn backpressured(&mut self, duration_ns: i64) {
        if !mutants::is(Mutant::HeldTimeLost) {
            self.tally.counters.backpressured_ns += u64::try_from(duration_ns).unwrap_or(0);
        }
    }

    /// A socket's turn begins: what is read from now on may have been there since `since_ns`; `i64::MAX`: nothing is read.
    #[inline]
    pub fn turn(&mut self, since_ns: i64) {
        self.since_ns = since_ns;
    }

    /// Since when what is read in this turn may have been there.
    pub fn since_ns(&self) -> i64 {
        self.since_ns
    }

    /// Messages were read in this turn. Those that were read together are entered together.
    #[inline]
    fn read(&mut self, kind: Kind, due_ns: i64, read_ns: i64, messages: u64) {
        if self.since_ns > read_ns {
            return;
        }
        if let Some(run) = &mut self.read[kind.slot()]
            && run.kind == kind
            && run.read_ns == read_ns
            && run.since_ns == self.since_ns
        {
            run.messages += messages;
            return;
        }
        self.end_read(kind.slot());
        self.read[kind.slot()] = Some(Read {
            kind,
            due_ns,
            since_ns: self.since_ns,
            read_ns,
            messages,
        });
    }

    fn end_reads(&mut self) {
        (0..Kind::SLOTS).for_each(|slot| self.end_read(slot));
    }

    fn end_read(&mut self, slot: usize) {
        let Some(run) = self.read[slot].take() else {
            return;
        };
        let phase = self.phase_of(run.due_ns);
        let latencies = self.tally.phase(phase, self.subscriptions);
        let delay = match run.kind {
            Kind::Ack => &mut latencies.ack_delay,
            Kind::Receipt(at) => &mut latencies.receive_delay[at],
        };
        delay.enter(run.read_ns - run.since_ns, run.messages);
        self.with_watch(|watch, out| watch.read(&run, out));
    }

    /// An answer to a fetch of this subscription held messages.
    #[inline]
    pub fn fetched(&mut self, subscription: usize) {
        self.tally.counters.received[subscription].fetches += 1;
    }

    /// A consumer of `subscription` has a message of partition `slot`.
    #[inline]
    pub fn received(&mut self, subscription: usize, slot: usize, message: &[u8], received_ns: i64) {
        let checked = if self.stamped || message.len() == stamp::STAMP_BYTES {
            let partition = self.partitions.get(slot).copied();
            stamp::check_in(message, partition.unwrap_or(slot as u32))
        } else {
            Checked::Foreign
        };
        if let Checked::Whole(stamp) = checked
            && stamp.producer == PROBE_PRODUCER
        {
            if stamp.run == self.run {
                self.prove(subscription, slot);
            }
            return;
        }
        let counters = &mut self.tally.counters.received[subscription];
        counters.msgs += 1;
        counters.bytes += message.len() as u64;
        if !self.stamped {
            return;
        }
        let receipts = &mut self.books.receipts[subscription];
        receipts.received += 1;
        match checked {
            Checked::Whole(stamp) if stamp.run == self.run => {
                if !receipts.enter(slot, stamp.producer, stamp.sequence) {
                    return;
                }
                if let Some(measured) = &self.measured
                    && measured.get(stamp.producer as usize) != Some(&true)
                {
                    receipts.left += 1;
                    return;
                }
                self.books.end_to_end_samples[subscription] += 1;
                let intended_ns = self.clocks.here_ns(stamp.producer, stamp.intended_ns);
                let phase = self.phase_of(intended_ns);
                let latencies = self.tally.phase(phase, self.subscriptions);
                latencies.end_to_end[subscription].record(received_ns - intended_ns, 1);
                self.read(Kind::Receipt(subscription), intended_ns, received_ns, 1);
                self.with_watch(|watch, out| watch.received(subscription, intended_ns, received_ns, out));
            }
            Checked::Misrouted => {
                receipts.corrupted += 1;
                self.error(MISROUTED);
            }
            Checked::Corrupted if mutants::is(Mutant::DamageNotCounted) => receipts.unexpected += 1,
            Checked::Corrupted => receipts.corrupted += 1,
            Checked::Whole(_) | Checked::Foreign => receipts.unexpected += 1,
        }
    }

    /// A batch of `messages` came whose checksum does not fit: nobody knows which they were.
    pub fn corrupted(&mut self, subscription: usize, messages: u64) {
        self.tally.counters.received[subscription].msgs += messages;
        if self.stamped {
            let receipts = &mut self.books.receipts[subscription];
            receipts.received += messages;
            receipts.corrupted += messages;
        }
    }

    /// A readiness probe came back through partition `slot`.
    fn prove(&mut self, subscription: usize, slot: usize) {
        if let Some(seen) = self.probed[subscription].get_mut(slot)
            && !*seen
        {
            *seen = true;
            self.proven[subscription] += 1;
        }
    }

    /// Partitions through which this lane's consumers of each subscription have received a probe.
    pub fn proven(&self) -> &[u32] {
        &self.proven
    }

    /// Puts an empty tally in the place of the one that was filled, and returns that.
    pub fn swap(&mut self, mut empty: Tally) -> Tally {
        self.end_reads();
        self.with_watch(|watch, out| watch.carry(out));
        empty.quiet.is_watched = self.watch.is_some();
        empty
            .counters
            .received
            .resize(self.subscriptions, Received::default());
        let mut tally = std::mem::replace(&mut self.tally, empty);
        tally.latencies.iter_mut().for_each(PhaseLatencies::settle);
        tally
    }

    /// Enters how many messages a producer's emitter gave out in all, when the load has ended.
    pub fn close_producer(&mut self, producer: u32, sent: u64) {
        if let Some(book) = self.book(producer) {
            book.sent = sent;
        }
    }

    /// Ends the observation: the lane's books.
    pub fn into_books(self) -> Books {
        self.books
    }

    fn book(&mut self, producer: u32) -> Option<&mut SentBook> {
        let place = self.places.get(producer as usize)?.checked_sub(1)?;
        self.books.sent.get_mut(place as usize)
    }
}

fn places_of(producers: &[u32]) -> Vec<u32> {
    let mut places = vec![0; producers.iter().max().map_or(0, |&last| last as usize + 1)];
    for (place, &producer) in (1..).zip(producers) {
        places[producer as usize] = place;
    }
    places
}

fn enter_unknown(book: &mut SentBook, ledger: &BatchLedger) {
    for run in ledger.runs() {
        book.unknown
            .insert(run.sequence, run.sequence + u64::from(run.messages));
    }
}
