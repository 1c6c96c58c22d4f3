//! What a lane saw in one interval: counters, and distributions per phase. Lanes fill one of these while another thread reads the one of before.

use std::ops::{Deref, DerefMut};

use crate::latency::{Latency, Metric};
use crate::quiet::{self, Apart, MaybeApart, QuietCounters};

/// A stretch of the schedule's axis. A message belongs to the phase in which it was intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// Where it begins; it ends where the next one begins.
    pub from_ns: i64,
}

/// Counters of one subscription in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Messages received.
    pub msgs: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Answers to fetches (or deliveries) that held messages.
    pub fetches: u64,
}

/// Counters of an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages handed to the client.
    pub sent_msgs: u64,
    /// Bytes of their bodies.
    pub sent_bytes: u64,
    /// Messages acknowledged.
    pub acked_msgs: u64,
    /// Bytes of their bodies.
    pub acked_bytes: u64,
    /// Messages that ended with an error.
    pub failed_msgs: u64,
    /// Batches that were sent again.
    pub retries: u64,
    /// Errors by kind, as the protocol names them; retried ones included. Few kinds: a list.
    pub errors: Vec<(&'static str, u64)>,
    /// Produce requests written.
    pub requests: u64,
    /// Batches acknowledged.
    pub batches: u64,
    /// How often the lane has waited for something to happen.
    pub wakeups: u64,
    /// Nanoseconds in which a producer had something due and no room.
    pub backpressured_ns: u64,
    /// Per subscription.
    pub received: Vec<Received>,
}

impl Counters {
    /// Adds another interval's or lane's counters.
    pub fn add(&mut self, other: &Counters) {
        self.sent_msgs += other.sent_msgs;
        self.sent_bytes += other.sent_bytes;
        self.acked_msgs += other.acked_msgs;
        self.acked_bytes += other.acked_bytes;
        self.failed_msgs += other.failed_msgs;
        self.retries += other.retries;
        self.requests += other.requests;
        self.batches += other.batches;
        self.wakeups += other.wakeups;
        self.backpressured_ns += other.backpressured_ns;
        for (kind, count) in &other.errors {
            self.count_error(kind, *count);
        }
        if self.received.len() < other.received.len() {
            self.received.resize(other.received.len(), Received::default());
        }
        for (mine, theirs) in self.received.iter_mut().zip(&other.received) {
            mine.msgs += theirs.msgs;
            mine.bytes += theirs.bytes;
            mine.fetches += theirs.fetches;
        }
    }

    pub(crate) fn count_error(&mut self, kind: &'static str, count: u64) {
        match self.errors.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, total)) => *total += count,
            None => self.errors.push((kind, count)),
        }
    }

    fn clear(&mut self) {
        let mut received = std::mem::take(&mut self.received);
        received.fill(Received::default());
        *self = Counters {
            received,
            ..Counters::default()
        };
    }
}

/// Values of one metric, and what of them is not of quiet time.
#[derive(Clone, Debug)]
pub struct Distribution {
    all: Latency,
    apart: MaybeApart,
}

impl Distribution {
    fn of(all: Latency) -> Distribution {
        Distribution { all, apart: None }
    }

    /// What of it is not quiet; None: all of it is, or the metric has no quiet part.
    pub fn apart(&self) -> Option<&Apart> {
        self.apart.as_deref().filter(|apart| !apart.is_empty())
    }

    pub(crate) fn apart_mut(&mut self) -> &mut Apart {
        quiet::made(&mut self.apart)
    }

    fn add(&mut self, other: &Distribution) {
        self.all.add(&other.all);
        quiet::add(&mut self.apart, &other.apart);
    }

    fn clear(&mut self) {
        self.all.clear();
        if let Some(apart) = &mut self.apart {
            apart.clear();
        }
    }
}

impl Deref for Distribution {
    type Target = Latency;

    #[inline]
    fn deref(&self) -> &Latency {
        &self.all
    }
}

impl DerefMut for Distribution {
    #[inline]
    fn deref_mut(&mut self) -> &mut Latency {
        &mut self.all
    }
}

/// The latencies of the messages of one phase that were seen in one interval.
#[derive(Clone, Debug)]
pub struct PhaseLatencies {
    /// Index of the phase.
    pub phase: usize,
    /// Intended to acknowledged.
    pub publish: Distribution,
    /// Sent to acknowledged.
    pub service: Distribution,
    /// The generator's own lateness.
    pub send_delay: Distribution,
    /// Time without room in the client; only messages that were held are in it.
    pub backpressure: Distribution,
    /// Intended to received, per subscription.
    pub end_to_end: Vec<Distribution>,
    /// The generator's own lateness in reading acknowledgements: how long each may have been there.
    pub ack_delay: Distribution,
    /// The same of messages received, per subscription.
    pub receive_delay: Vec<Distribution>,
    /// Messages that ended without an acknowledgement: they failed, or the run gave up on them.
    pub unacked_msgs: u64,
}

impl PhaseLatencies {
    fn new(phase: usize, subscriptions: usize) -> PhaseLatencies {
        let recorded = || Distribution::of(Latency::new());
        let entered = || Distribution::of(Latency::unbuffered());
        PhaseLatencies {
            phase,
            publish: recorded(),
            service: recorded(),
            send_delay: recorded(),
            backpressure: recorded(),
            end_to_end: (0..subscriptions).map(|_| recorded()).collect(),
            ack_delay: entered(),
            receive_delay: (0..subscriptions).map(|_| entered()).collect(),
            unacked_msgs: 0,
        }
    }

    /// Every distribution with its metric and, where each has its own, its subscription.
    pub fn all(&self) -> impl Iterator<Item = (Metric, Option<usize>, &Distribution)> {
        [
            (Metric::Publish, None, &self.publish),
            (Metric::Service, None, &self.service),
            (Metric::SendDelay, None, &self.send_delay),
            (Metric::Backpressure, None, &self.backpressure),
            (Metric::AckDelay, None, &self.ack_delay),
        ]
        .into_iter()
        .chain(of_each(Metric::EndToEnd, &self.end_to_end))
        .chain(of_each(Metric::ReceiveDelay, &self.receive_delay))
    }

    /// The same, in the same order.
    fn all_mut(&mut self) -> impl Iterator<Item = &mut Distribution> {
        [
            &mut self.publish,
            &mut self.service,
            &mut self.send_delay,
            &mut self.backpressure,
            &mut self.ack_delay,
        ]
        .into_iter()
        .chain(&mut self.end_to_end)
        .chain(&mut self.receive_delay)
    }

    /// Adds the distributions of the same phase from another lane.
    pub fn add(&mut self, other: &PhaseLatencies) {
        assert_eq!(
            self.phase, other.phase,
            "only distributions of one phase are added"
        );
        for (mine, (.., theirs)) in self.all_mut().zip(other.all()) {
            mine.add(theirs);
        }
        self.unacked_msgs += other.unacked_msgs;
    }

    pub(crate) fn settle(&mut self) {
        self.all_mut().for_each(|one| one.settle());
    }

    fn clear(&mut self) {
        self.all_mut().for_each(Distribution::clear);
        self.unacked_msgs = 0;
    }
}

fn of_each(
    metric: Metric,
    all: &[Distribution],
) -> impl Iterator<Item = (Metric, Option<usize>, &Distribution)> {
    all.iter()
        .enumerate()
        .map(move |(at, one)| (metric, Some(at), one))
}

/// One lane's view of one interval. Swapped out whole, merged elsewhere, handed back to be used again.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Counters.
    pub counters: Counters,
    /// Distributions, one entry per phase of which something was seen: usually one, two around a boundary.
    pub latencies: Vec<PhaseLatencies>,
    /// Counters of quiet time.
    pub quiet: QuietCounters,
    spare: Vec<PhaseLatencies>,
}

/// Phases whose distributions are kept for reuse in one tally.
const SPARES_MAX: usize = 2;

impl Tally {
    /// An empty tally that has the memory for a phase and for the next one, so that a lane need not ask for any.
    pub fn with_room(subscriptions: usize) -> Tally {
        let mut tally = Tally::default();
        tally.counters.received = vec![Received::default(); subscriptions];
        tally
            .spare
            .extend((0..SPARES_MAX).map(|_| PhaseLatencies::new(0, subscriptions)));
        tally
    }

    /// Empties it, keeps the memory. Writes over all the distributions that were used, so it is work for another thread than the lane's.
    pub fn clear(&mut self) {
        self.counters.clear();
        self.quiet = QuietCounters::default();
        self.spare.append(&mut self.latencies);
        self.spare.truncate(SPARES_MAX);
        self.spare.iter_mut().for_each(PhaseLatencies::clear);
    }

    /// Adds another lane's tally of the same interval.
    pub fn add(&mut self, other: &Tally, subscriptions: usize) {
        self.counters.add(&other.counters);
        self.quiet.add(&other.quiet);
        for latencies in &other.latencies {
            self.phase(latencies.phase, subscriptions).add(latencies);
        }
    }

    /// The distributions of a phase.
    #[inline]
    pub(crate) fn phase(&mut self, phase: usize, subscriptions: usize) -> &mut PhaseLatencies {
        // The most recent phase comes first, and nearly every message belongs to it.
        if let Some(at) = self
            .latencies
            .iter()
            .position(|latencies| latencies.phase == phase)
        {
            return &mut self.latencies[at];
        }
        let latencies = match self.spare.pop() {
            Some(mut spare) => {
                spare.phase = phase;
                spare
            }
            None => PhaseLatencies::new(phase, subscriptions),
        };
        self.latencies.insert(0, latencies);
        &mut self.latencies[0]
    }
}
