//! Off the lanes: their tallies of an interval are added up, encoded, and kept.
//!
//! A lane that runs ahead of the others finds no empty tally to go on with, and hands its intervals over joined; so what waits here
//! is bounded by the few tallies that each lane has. What is kept is bounded in bytes: beyond [`KEPT_BYTES_MAX`] the oldest
//! intervals are dropped, long after the controller has read them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use base64::Engine;
use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};
use gauge_load::quiet::{Apart, QuietCounters};
use gauge_load::{Counters, Latency, Metric, Tally};
use hdrhistogram::serialization::V2DeflateSerializer;
use serde::{Serialize, Serializer};

use crate::disturbance::{DisturbanceOut, DueInQuiet};
use crate::link::LaneInterval;
use crate::probes::Seen;

/// Bytes of intervals that are kept: some hours of them at 1 s.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// About what an interval takes besides its histograms.
const INTERVAL_BYTES: usize = 600;
/// How long an interval waits, at most, until it is known how disturbed it was: a CPU may be away for long.
const DISTURBANCE_NS_MAX: i64 = 1_000_000_000;

/// A distribution of an interval, encoded.
#[derive(Debug, Serialize)]
pub struct EncodedLatency {
    phase: Arc<str>,
    metric: &'static str,
    subscription: Option<Arc<str>>,
    count: u64,
    overflow: u64,
    negative: u64,
    sum_ns: i128,
    min_ns: i64,
    max_ns: i64,
    p50_ns: u64,
    p99_ns: u64,
    #[serde(serialize_with = "as_base64")]
    histogram: Vec<u8>,
    /// Of `publish`: messages that ended without an acknowledgement.
    #[serde(skip_serializing_if = "is_zero")]
    unacked_msgs: u64,
    #[serde(flatten)]
    parts: Option<Parts>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What of a distribution is of quiet time.
#[derive(Debug, Serialize)]
struct Parts {
    quiet: Part,
    censored: Part,
    left_out: u64,
}

/// A part of a distribution, encoded.
#[derive(Debug, Default, Serialize)]
struct Part {
    count: u64,
    overflow: u64,
    negative: u64,
    #[serde(serialize_with = "as_base64")]
    histogram: Vec<u8>,
}

impl Part {
    fn of(latency: &Latency, serializer: &mut V2DeflateSerializer) -> Part {
        Part {
            count: latency.count(),
            overflow: latency.overflow(),
            negative: latency.negative(),
            histogram: encoded(latency, serializer),
        }
    }
}

fn encoded(latency: &Latency, serializer: &mut V2DeflateSerializer) -> Vec<u8> {
    let mut histogram = Vec::new();
    latency
        .encode(serializer, &mut histogram)
        .expect("a histogram with our bounds can be encoded into memory");
    histogram
}

fn as_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&base64::engine::general_purpose::STANDARD.encode(bytes))
}

/// The counters of docs/worker-api.md, of an interval or in all.
#[derive(Debug, Serialize)]
pub struct CountersOut {
    sent_msgs: u64,
    sent_bytes: u64,
    acked_msgs: u64,
    acked_bytes: u64,
    failed_msgs: u64,
    retries: u64,
    errors: std::collections::BTreeMap<&'static str, u64>,
    waiting_msgs: u64,
    requests: u64,
    batches: u64,
    wakeups: u64,
    backpressured_s: f64,
    subscriptions: Vec<ReceivedOut>,
}

/// The counters of a subscription.
#[derive(Debug, Serialize)]
pub struct ReceivedOut {
    name: Arc<str>,
    received_msgs: u64,
    received_bytes: u64,
    fetches: u64,
    backlog_msgs: u64,
}

impl CountersOut {
    /// `counters` as the API shows them. Levels come from `totals`, the counters since the start.
    pub fn new(
        counters: &Counters,
        totals: &Counters,
        waiting_msgs: u64,
        subscriptions: &[Arc<str>],
    ) -> CountersOut {
        let received = |(at, name): (usize, &Arc<str>)| {
            let of = |counters: &Counters| {
                counters
                    .received
                    .get(at)
                    .map(|all| (all.msgs, all.bytes, all.fetches))
            };
            let (received_msgs, received_bytes, fetches) = of(counters).unwrap_or_default();
            let (total_msgs, ..) = of(totals).unwrap_or_default();
            ReceivedOut {
                name: Arc::clone(name),
                received_msgs,
                received_bytes,
                fetches,
                backlog_msgs: if mutants::is(Mutant::BacklogOfSent) {
                    totals.sent_msgs.saturating_sub(total_msgs)
                } else {
                    totals.acked_msgs.saturating_sub(total_msgs)
                },
            }
        };
        CountersOut {
            sent_msgs: counters.sent_msgs,
            sent_bytes: counters.sent_bytes,
            acked_msgs: counters.acked_msgs,
            acked_bytes: counters.acked_bytes,
            failed_msgs: counters.failed_msgs,
            retries: counters.retries,
            errors: counters.errors.iter().copied().collect(),
            waiting_msgs,
            requests: counters.requests,
            batches: counters.batches,
            wakeups: counters.wakeups,
            backpressured_s: counters.backpressured_ns as f64 / 1e9,
            subscriptions: subscriptions.iter().enumerate().map(received).collect(),
        }
    }
}

/// A complete interval.
#[derive(Debug, Serialize)]
pub struct Interval {
    index: u64,
    start_s: f64,
    duration_s: f64,
    #[serde(flatten)]
    counters: CountersOut,
    cpu_s: f64,
    lanes_cpu_s: Vec<f64>,
    rss_bytes: u64,
    /// Lanes whose part of this interval is told together with that of others: they could not hand over in time.
    joined_lanes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    disturbance: Option<DisturbanceOut>,
    latencies: Vec<EncodedLatency>,
}

impl Interval {
    /// Its index.
    pub fn index(&self) -> u64 {
        self.index
    }

    fn kept_bytes(&self) -> usize {
        let encoded: usize = self
            .latencies
            .iter()
            .map(|latency| {
                let parts = latency.parts.as_ref();
                let parts = parts.map_or(0, |parts| {
                    parts.quiet.histogram.len() + parts.censored.histogram.len() + 200
                });
                latency.histogram.len() + parts + 150
            })
            .sum();
        let disturbance = self.disturbance.as_ref().map_or(0, DisturbanceOut::kept_bytes);
        INTERVAL_BYTES + disturbance + encoded + 60 * self.counters.subscriptions.len()
    }
}

/// Samples in all the histograms that were handed out, for the audit.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Of `publish`.
    pub publish: u64,
    /// Of `service`.
    pub service: u64,
    /// Of `send_delay`.
    pub send_delay: u64,
    /// Of `end_to_end`, per subscription.
    pub end_to_end: Vec<u64>,
}

struct LaneSide {
    spares: SyncSender<Tally>,
    /// Intervals that wait for the other lanes; the tally is taken out when it has been added up.
    waiting: VecDeque<(Box<LaneInterval>, bool)>,
    /// Intervals handed over.
    reported: u64,
    ended: bool,
    cpu_ns: i64,
}

/// Adds up, encodes, keeps.
pub struct Collector {
    interval_ns: i64,
    start_ns: i64,
    phases: Vec<Arc<str>>,
    subscriptions: Vec<Arc<str>>,
    lanes: Vec<LaneSide>,
    next: u64,
    sum: Tally,
    totals: Counters,
    samples: Samples,
    waiting_msgs: u64,
    process_cpu_ns: i64,
    serializer: V2DeflateSerializer,
    /// What the probes have seen, if disturbance is looked for.
    seen: Option<Seen>,
    /// Since when the next interval lacks nothing but its disturbance.
    waiting_since_ns: Option<i64>,
    kept: VecDeque<Arc<Interval>>,
    kept_bytes: usize,
}

impl Collector {
    /// A collector for lanes to which empty tallies go back through `spares`.
    pub fn new(interval_ns: i64, subscriptions: Vec<Arc<str>>, spares: Vec<SyncSender<Tally>>) -> Collector {
        let lane = |spares| LaneSide {
            spares,
            waiting: VecDeque::new(),
            reported: 0,
            ended: false,
            cpu_ns: 0,
        };
        Collector {
            interval_ns,
            start_ns: 0,
            phases: Vec::new(),
            sum: Tally::with_room(subscriptions.len()),
            samples: Samples {
                end_to_end: vec![0; subscriptions.len()],
                ..Samples::default()
            },
            subscriptions,
            lanes: spares.into_iter().map(lane).collect(),
            next: 0,
            totals: Counters::default(),
            waiting_msgs: 0,
            process_cpu_ns: 0,
            serializer: V2DeflateSerializer::new(),
            seen: None,
            waiting_since_ns: None,
            kept: VecDeque::new(),
            kept_bytes: 0,
        }
    }

    /// The schedule begins at `start_ns`; CPU time is counted from here.
    pub fn start(&mut self, start_ns: i64, process_cpu_ns: i64, lanes_cpu_ns: &[i64]) {
        self.start_ns = start_ns;
        self.process_cpu_ns = process_cpu_ns;
        for (lane, cpu_ns) in self.lanes.iter_mut().zip(lanes_cpu_ns) {
            lane.cpu_ns = *cpu_ns;
        }
    }

    /// From now on intervals tell how disturbed they were.
    pub fn watch(&mut self, seen: Seen) {
        self.seen = Some(seen);
    }

    /// The phases' names, in order.
    pub fn set_phases(&mut self, names: Vec<Arc<str>>) {
        self.phases = names;
    }

    /// A lane hands over.
    pub fn interval(&mut self, lane: usize, interval: Box<LaneInterval>) {
        self.lanes[lane].reported = interval.last + 1;
        self.lanes[lane].waiting.push_back((interval, false));
        self.assemble_complete(monotonic_ns());
    }

    /// A lane will hand nothing over any more.
    pub fn ended(&mut self, lane: usize) {
        self.lanes[lane].ended = true;
        self.assemble_complete(monotonic_ns());
    }

    /// Whether intervals that all lanes have handed over wait for their disturbance to be known.
    pub fn is_waiting(&self) -> bool {
        self.waiting_since_ns.is_some()
    }

    /// Puts together what is complete. To be called again while something waits.
    pub fn assemble_complete(&mut self, now_ns: i64) {
        while self.is_handed_over() {
            let since_ns = *self.waiting_since_ns.get_or_insert(now_ns);
            if now_ns - since_ns < DISTURBANCE_NS_MAX && !self.is_disturbance_known() {
                return;
            }
            self.waiting_since_ns = None;
            self.assemble();
        }
    }

    fn is_handed_over(&self) -> bool {
        let next = self.next;
        self.lanes.iter().all(|lane| lane.ended || lane.reported > next)
            && self.lanes.iter().any(|lane| lane.reported > next)
    }

    /// When the next interval began and ended.
    fn bounds_ns(&self) -> (i64, i64) {
        let from_ns = self.start_ns + self.interval_ns * self.next.cast_signed();
        let until_ns = self
            .lanes
            .iter()
            .filter_map(|lane| lane.waiting.front())
            .map(|(front, _)| front.until_ns)
            .fold(from_ns, i64::max);
        (from_ns, until_ns.min(from_ns + self.interval_ns))
    }

    fn is_disturbance_known(&self) -> bool {
        self.seen
            .as_ref()
            .is_none_or(|seen| seen.lock().settled_ns() >= self.bounds_ns().1)
    }

    fn assemble(&mut self) {
        let index = self.next;
        let (from_ns, until_ns) = self.bounds_ns();
        self.next += 1;
        let mut cpu_ns = 0;
        let mut waiting_msgs = 0;
        let mut lanes_cpu_s = vec![0.0; self.lanes.len()];
        let mut joined_lanes = 0;
        for (lane, lane_cpu_s) in self.lanes.iter_mut().zip(&mut lanes_cpu_s) {
            let Some((front, added)) = lane.waiting.front_mut() else {
                continue;
            };
            assert!(
                front.first <= index && index <= front.last,
                "lanes hand over their intervals in order"
            );
            waiting_msgs += front.waiting_msgs;
            joined_lanes += usize::from(front.first != front.last && !mutants::is(Mutant::JoinNotMarked));
            if !*added {
                *added = true;
                let mut tally = std::mem::take(&mut front.tally);
                self.sum.add(&tally, self.subscriptions.len());
                tally.clear();
                // A lane that has ended needs it no more.
                let _ = lane.spares.try_send(tally);
                *lane_cpu_s = (front.lane_cpu_ns - lane.cpu_ns) as f64 / 1e9;
                lane.cpu_ns = front.lane_cpu_ns;
                if let Some(process_cpu_ns) = front.process_cpu_ns {
                    cpu_ns = process_cpu_ns - self.process_cpu_ns;
                    self.process_cpu_ns = process_cpu_ns;
                }
            }
            if front.last == index {
                lane.waiting.pop_front();
            }
        }
        if index.is_multiple_of(2) || !mutants::is(Mutant::TotalsOfSome) {
            self.totals.add(&self.sum.counters);
        }
        self.waiting_msgs = waiting_msgs;
        let (latencies, due) = self.encode();
        let disturbance = self.seen.as_ref().map(|seen| {
            let mut disturbance = seen.lock().take(self.start_ns, from_ns, until_ns);
            if let Some(probed) = &mut disturbance.probed {
                probed.due = due;
            }
            disturbance
        });
        let interval = Interval {
            index,
            start_s: (self.interval_ns * index.cast_signed()) as f64 / 1e9,
            duration_s: (until_ns - from_ns) as f64 / 1e9,
            counters: CountersOut::new(
                &self.sum.counters,
                &self.totals,
                waiting_msgs,
                &self.subscriptions,
            ),
            cpu_s: cpu_ns as f64 / 1e9,
            lanes_cpu_s,
            rss_bytes: rss_bytes(),
            joined_lanes,
            disturbance,
            latencies,
        };
        self.sum.clear();
        self.keep(interval);
    }

    /// The distributions, and how many of their messages were due in quiet time.
    fn encode(&mut self) -> (Vec<EncodedLatency>, DueInQuiet) {
        let QuietCounters {
            is_watched,
            sent_msgs,
            undecided_msgs,
            ..
        } = self.sum.quiet;
        let mut due = DueInQuiet {
            quiet_sent_msgs: sent_msgs,
            quiet_acked_msgs: 0,
            quiet_received_msgs: vec![0; self.subscriptions.len()],
            undecided_msgs,
        };
        let mut entries = Vec::new();
        for latencies in &self.sum.latencies {
            for (metric, subscription, latency) in latencies.all() {
                let apart = latency.apart();
                let unacked_msgs = if metric == Metric::Publish {
                    latencies.unacked_msgs
                } else {
                    0
                };
                if latency.is_empty() && apart.is_none() && unacked_msgs == 0 {
                    continue;
                }
                let count = latency.count();
                match (metric, subscription) {
                    (Metric::Publish, _) => self.samples.publish += count,
                    (Metric::Service, _) => self.samples.service += count,
                    (Metric::SendDelay, _) => self.samples.send_delay += count,
                    (Metric::EndToEnd, Some(at)) => self.samples.end_to_end[at] += count,
                    _ => {}
                }
                let has_parts = is_watched && metric != Metric::Backpressure;
                let parts = has_parts.then(|| {
                    let quiet = Part::of(&Apart::quiet(latency, apart), &mut self.serializer);
                    let censored = apart.map(|apart| &apart.censored).filter(|some| !some.is_empty());
                    let censored = censored.map_or_else(Part::default, |some| {
                        Part::of(&some.distribution(), &mut self.serializer)
                    });
                    let due_msgs = quiet.count + censored.count;
                    match (metric, subscription) {
                        (Metric::Publish, _) => due.quiet_acked_msgs += due_msgs,
                        (Metric::EndToEnd, Some(at)) => due.quiet_received_msgs[at] += due_msgs,
                        _ => {}
                    }
                    Parts {
                        quiet,
                        censored,
                        left_out: apart.map_or(0, |apart| apart.left_out),
                    }
                });
                entries.push(EncodedLatency {
                    phase: self
                        .phases
                        .get(latencies.phase)
                        .cloned()
                        .unwrap_or_else(|| Arc::from("")),
                    metric: metric.name(),
                    subscription: subscription.map(|at| Arc::clone(&self.subscriptions[at])),
                    count,
                    overflow: latency.overflow(),
                    negative: latency.negative(),
                    sum_ns: latency.sum_ns(),
                    min_ns: latency.min_ns(),
                    max_ns: latency.max_ns(),
                    p50_ns: latency.percentile_ns(50.0),
                    p99_ns: latency.percentile_ns(99.0),
                    histogram: encoded(latency, &mut self.serializer),
                    unacked_msgs,
                    parts,
                });
            }
        }
        (entries, due)
    }

    fn keep(&mut self, interval: Interval) {
        self.kept_bytes += interval.kept_bytes();
        self.kept.push_back(Arc::new(interval));
        while self.kept_bytes > KEPT_BYTES_MAX
            && let Some(oldest) = self.kept.pop_front()
        {
            self.kept_bytes -= oldest.kept_bytes();
        }
    }

    /// Index of the next interval.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// At most `limit` intervals from index `since` on.
    pub fn since(&self, since: u64, limit: usize) -> Vec<Arc<Interval>> {
        let first = self.next - self.kept.len() as u64;
        let skip = usize::try_from(since.saturating_sub(first)).unwrap_or(usize::MAX);
        self.kept.iter().skip(skip).take(limit).cloned().collect()
    }

    /// Counters of all complete intervals.
    pub fn totals(&self) -> &Counters {
        &self.totals
    }

    /// Messages without an end at the end of the last complete interval.
    pub fn waiting_msgs(&self) -> u64 {
        self.waiting_msgs
    }

    /// The subscriptions' names.
    pub fn subscriptions(&self) -> &[Arc<str>] {
        &self.subscriptions
    }

    /// Samples in all the histograms.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }
}

/// Resident memory of the process; 0 where /proc cannot be read.
fn rss_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    // SAFETY: a plain system call that takes no pointers.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.unwrap_or(0) * u64::try_from(page_bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn intervals_that_are_told_together_are_marked() {
        let (spares, _taken) = sync_channel(4);
        let mut collector = Collector::new(1_000_000_000, vec![Arc::from("s")], vec![spares.clone(), spares]);
        let part = |first, last| {
            Box::new(LaneInterval {
                first,
                last,
                tally: Tally::with_room(1),
                until_ns: (last.cast_signed() + 1) * 1_000_000_000,
                waiting_msgs: 0,
                lane_cpu_ns: 0,
                process_cpu_ns: None,
            })
        };
        collector.interval(0, part(0, 0));
        collector.interval(0, part(1, 3));
        for index in 0..4 {
            collector.interval(1, part(index, index));
        }
        let joined: Vec<usize> = collector
            .since(0, 10)
            .iter()
            .map(|interval| interval.joined_lanes)
            .collect();
        assert_eq!(joined, [0, 1, 1, 1]);
    }
}
