//! When is everything there that will come? The drain of a trial.
//!
//! A subscription is complete when it has received as many different messages as were acknowledged or failed, and its consumers are at
//! the end or nothing more comes for [`SETTLED_NS`]: a message that is delivered twice may come behind the last one. Where batches were sent
//! again there may be two of each, of which the second was stored after consumers were told that they are at the end: there it is as below, or
//! nothing comes for so long that the drain is over anyway. Where that cannot be known (messages were lost or failed, other workers receive as well, messages carry no stamp), it is at its end when its consumers
//! have read to the end of all partitions and nothing has moved for [`AT_END_QUIET_NS`]: longer than a long poll, so that each
//! consumer has been told of an end that is later than the last acknowledgement.

use std::sync::atomic::Ordering;

use gauge_load::mutants::{self, Mutant};

use crate::link::Progress;
use crate::plan::Plan;

/// Longer than a long poll (500 ms), with room for the answer.
const AT_END_QUIET_NS: i64 = 1_200_000_000;

/// When everything is there by count: so long nothing more may come, where consumers do not know that they are at the end.
const SETTLED_NS: i64 = 250_000_000;

/// A drain under way.
#[derive(Debug)]
pub struct Drain {
    began_ns: i64,
    until_ns: i64,
    quiet_ns: i64,
    /// Sum of everything that counts as movement, and when it changed last.
    moved: u64,
    moved_ns: i64,
    ended_ns: i64,
    has_producers: bool,
    stamped: bool,
    is_whole: Vec<bool>,
    /// Per subscription, the lanes that have consumers of it.
    lanes: Vec<Vec<usize>>,
    complete: Vec<bool>,
    drained: bool,
}

impl Drain {
    /// Begins at `from_ns`.
    pub fn new(plan: &Plan, from_ns: i64, drain_ns: i64, quiet_ns: i64) -> Drain {
        let lanes_of = |subscription: usize| {
            let reads = |lane: &usize| {
                plan.lanes[*lane]
                    .spec
                    .consumers
                    .iter()
                    .any(|consumer| consumer.subscription == subscription)
            };
            (0..plan.lanes.len()).filter(reads).collect()
        };
        Drain {
            began_ns: from_ns,
            until_ns: from_ns + drain_ns,
            quiet_ns,
            moved: 0,
            moved_ns: from_ns,
            ended_ns: from_ns,
            has_producers: plan.producers > 0,
            stamped: plan.stamped,
            is_whole: plan
                .subscriptions
                .iter()
                .map(|subscription| subscription.is_whole)
                .collect(),
            lanes: (0..plan.subscriptions.len()).map(lanes_of).collect(),
            complete: vec![false; plan.subscriptions.len()],
            drained: false,
        }
    }

    /// Looks at the lanes. Returns whether the drain is over: everything is there, or there is no hope.
    pub fn look(&mut self, lanes: &[&Progress], paused: &[bool], now_ns: i64) -> bool {
        self.ended_ns = now_ns;
        if !lanes.iter().all(|lane| lane.draining.load(Ordering::Acquire)) {
            return now_ns > self.until_ns;
        }
        let is_sent = lanes
            .iter()
            .all(|lane| lane.schedule_over.load(Ordering::Acquire));
        let waiting: u64 = lanes
            .iter()
            .map(|lane| lane.waiting_msgs.load(Ordering::Relaxed))
            .sum();
        let ended: u64 = lanes
            .iter()
            .map(|lane| lane.ended_msgs.load(Ordering::Relaxed))
            .sum();
        let received: u64 = lanes
            .iter()
            .flat_map(|lane| &lane.received_msgs)
            .map(|count| count.load(Ordering::Relaxed))
            .sum();
        // Both only rise, so a sum that stays the same means that nothing moved.
        if self.moved != ended + received {
            self.moved = ended + received;
            self.moved_ns = now_ns;
        }
        let is_acknowledged = is_sent && (waiting == 0 || mutants::is(Mutant::DrainIgnoresWaiting));
        let still_ns = now_ns - self.moved_ns;
        for (at, paused) in paused.iter().enumerate() {
            let is_still = still_ns > AT_END_QUIET_NS && !paused;
            self.complete[at] = is_acknowledged && self.has_all(at, lanes, ended, still_ns, is_still);
        }
        self.drained = is_acknowledged
            && self
                .complete
                .iter()
                .zip(paused)
                .all(|(complete, paused)| *complete || *paused);
        self.drained || now_ns > self.until_ns || still_ns > self.quiet_ns
    }

    fn has_all(
        &self,
        subscription: usize,
        lanes: &[&Progress],
        ended: u64,
        still_ns: i64,
        is_still: bool,
    ) -> bool {
        let mine = || self.lanes[subscription].iter().map(|&lane| lanes[lane]);
        let has: u64 = mine()
            .map(|lane| {
                let counts = if self.stamped {
                    &lane.unique_msgs
                } else {
                    &lane.received_msgs
                };
                counts[subscription].load(Ordering::Relaxed)
            })
            .sum();
        let is_at_end = mine().all(|lane| lane.caught_up[subscription].load(Ordering::Relaxed));
        // Behind the last message that was missing there may be some that come twice.
        let may_be_twice = lanes.iter().any(|lane| lane.retries.load(Ordering::Relaxed) > 0);
        let settled_ns = if may_be_twice { self.quiet_ns } else { SETTLED_NS };
        let settled =
            (is_at_end && !may_be_twice) || still_ns > settled_ns || mutants::is(Mutant::DrainTrustsTheCount);
        let by_count = self.has_producers && self.is_whole[subscription] && has >= ended && settled;
        by_count || (is_still && is_at_end)
    }

    /// Whether everything was there in the end.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// How long it took.
    pub fn lasted_ns(&self) -> i64 {
        self.ended_ns - self.began_ns
    }

    /// Per subscription: it had not come to the end of what there was to read.
    pub fn gave_up(&self) -> impl Iterator<Item = bool> + '_ {
        self.complete.iter().map(|complete| !complete)
    }
}
