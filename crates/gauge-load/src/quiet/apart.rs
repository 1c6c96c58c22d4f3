//! What a lane keeps apart: answers that are not decided yet, and latencies that are not of quiet time.
//!
//! Nearly everything is quiet nearly always, so it is not recorded twice: the histograms hold all messages as they came, and beside them
//! stands what is *not* quiet. The difference is taken where an interval is put together, off the lanes. A batch between two
//! spans costs a comparison.
//!
//! The end of an interval finds batches undecided, those of the last millisecond or two. They are kept out of the quiet part of the interval
//! in which they were seen and enter that of the interval in which they are decided (`carried`). So within an interval
//! `all = quiet + censored + left out` holds but for these, and over a trial exactly.

use std::sync::Arc;

use super::{Board, BoardReader, Fate, Pending, Spans, UnderWay};
use crate::latency::Latency;
use crate::ledger::Run;
use crate::mutants::{self, Mutant};

/// How often a lane looks at the board: about as often as a probe writes there.
const LOOK_NS: i64 = 500_000;
/// Runs of messages, acknowledged or sent, that wait to be decided: what 200,000 msg/s make of a CPU that is away for a third of a second.
const RUNS_MAX: usize = 1 << 16;
/// Messages received.
const RECEIVED_MAX: usize = 1 << 18;
/// Batches of each.
pub const GROUPS_MAX: usize = 1 << 14;

/// So many values of a distribution of few are kept one by one.
const FEW_MAX: usize = 1024;

/// A distribution of which an undisturbed interval has few values, those of its last milliseconds: a list, and beyond that a histogram.
#[derive(Clone, Debug)]
pub struct Few {
    values: Vec<(i64, u64)>,
    more: Option<Latency>,
}

impl Few {
    fn new() -> Few {
        Few {
            values: Vec::with_capacity(FEW_MAX),
            more: None,
        }
    }

    fn enter(&mut self, value_ns: i64, count: u64) {
        if self.values.len() == FEW_MAX {
            let more = self.more.get_or_insert_with(Latency::unbuffered);
            for (value_ns, count) in self.values.drain(..) {
                more.enter(value_ns, count);
            }
        }
        self.values.push((value_ns, count));
    }

    fn add(&mut self, other: &Few) {
        if let Some(theirs) = &other.more {
            self.more.get_or_insert_with(Latency::unbuffered).add(theirs);
        }
        for (value_ns, count) in &other.values {
            self.enter(*value_ns, *count);
        }
    }

    fn clear(&mut self) {
        self.values.clear();
        if let Some(more) = &mut self.more {
            more.clear();
        }
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.more.as_ref().is_none_or(Latency::is_empty)
    }

    /// All of it.
    pub fn distribution(&self) -> Latency {
        let mut all = Latency::unbuffered();
        self.add_to(&mut all);
        all
    }

    fn add_to(&self, all: &mut Latency) {
        if let Some(more) = &self.more {
            all.add(more);
        }
        for (value_ns, count) in &self.values {
            all.enter(*value_ns, *count);
        }
    }
}

/// Of one latency, in one phase and interval: what is not quiet.
#[derive(Clone, Debug)]
pub struct Apart {
    /// The latencies, as they came, of messages that are in the distribution of all and not quiet: left out, censored, or not decided
    /// at the interval's end.
    pub excluded: Few,
    /// The latencies of quiet messages that were seen in an earlier interval, and are not in this one's distribution of all.
    pub carried: Few,
    /// For how long messages had been under way when they were censored.
    pub censored: Few,
    /// Messages left out.
    pub left_out: u64,
}

impl Apart {
    fn new() -> Apart {
        Apart {
            excluded: Few::new(),
            carried: Few::new(),
            censored: Few::new(),
            left_out: 0,
        }
    }

    /// Adds another lane's.
    pub fn add(&mut self, other: &Apart) {
        self.excluded.add(&other.excluded);
        self.carried.add(&other.carried);
        self.censored.add(&other.censored);
        self.left_out += other.left_out;
    }

    /// Empties it, keeps the memory.
    pub fn clear(&mut self) {
        self.excluded.clear();
        self.carried.clear();
        self.censored.clear();
        self.left_out = 0;
    }

    /// Whether there is anything.
    pub fn is_empty(&self) -> bool {
        self.left_out == 0 && self.excluded.is_empty() && self.carried.is_empty() && self.censored.is_empty()
    }

    /// The part of `all` that is quiet, `apart` being what is not.
    pub fn quiet(all: &Latency, apart: Option<&Apart>) -> Latency {
        let mut quiet = all.clone();
        if let Some(apart) = apart {
            quiet.subtract(&apart.excluded.distribution());
            apart.carried.add_to(&mut quiet);
        }
        quiet
    }

    fn enter(&mut self, fate: Fate, began_ns: i64, answered_ns: i64, messages: u64, is_carried: bool) {
        let latency_ns = answered_ns - began_ns;
        let is_quiet = fate == Fate::Quiet
            || (mutants::is(Mutant::CensoredIsQuiet) && matches!(fate, Fate::Censored(_)));
        if is_quiet {
            if is_carried {
                self.carried.enter(latency_ns, messages);
            }
            return;
        }
        if !is_carried {
            self.excluded.enter(latency_ns, messages);
        }
        match fate {
            Fate::Censored(at_ns) => self.censored.enter(at_ns - began_ns, messages),
            _ => self.left_out += messages,
        }
    }
}

/// One latency's apart, made when it is needed first: once per tally, whose memory is used again and again.
pub(crate) type MaybeApart = Option<Box<Apart>>;

pub(crate) fn made(apart: &mut MaybeApart) -> &mut Apart {
    apart.get_or_insert_with(|| Box::new(Apart::new()))
}

pub(crate) fn add(mine: &mut MaybeApart, theirs: &MaybeApart) {
    if let Some(theirs) = theirs
        && !theirs.is_empty()
    {
        made(mine).add(theirs);
    }
}

/// Counted beside the histograms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuietCounters {
    /// Probes are at work: the quiet part of the distributions means something.
    pub is_watched: bool,
    /// Messages sent that were due in quiet time.
    pub sent_msgs: u64,
    /// Messages sent that were due in a disturbed span.
    pub sent_left_out_msgs: u64,
    /// Messages for whose answer there was no room to wait, or that were due before what is remembered: counted as disturbed.
    pub undecided_msgs: u64,
}

impl QuietCounters {
    pub(crate) fn add(&mut self, other: &QuietCounters) {
        self.is_watched |= other.is_watched;
        self.sent_msgs += other.sent_msgs;
        self.sent_left_out_msgs += other.sent_left_out_msgs;
        self.undecided_msgs += other.undecided_msgs;
    }
}

/// Messages that were due and sent at the same times.
#[derive(Clone, Copy, Debug)]
struct Due {
    due_ns: i64,
    /// From when on the generator alone kept them: the due time, and later where the system had no room.
    free_ns: i64,
    messages: u64,
}

/// What was read from a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ack,
    /// By this subscription.
    Receipt(usize),
}

impl Kind {
    /// Runs that are open side by side: one of acknowledgements, one of receipts.
    pub const SLOTS: usize = 2;

    pub fn slot(self) -> usize {
        match self {
            Kind::Ack => 0,
            Kind::Receipt(_) => 1,
        }
    }
}

/// Messages that were read at once, and may have waited for that since `since_ns`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub kind: Kind,
    /// When one of them was due.
    pub due_ns: i64,
    pub since_ns: i64,
    pub read_ns: i64,
    pub messages: u64,
}

/// What the decisions go into.
pub(crate) trait Apartments {
    /// Of the messages' phase: ack delay, or a subscription's receive delay.
    fn of_read(&mut self, kind: Kind, due_ns: i64) -> &mut Apart;
    /// Of the messages' phase: send delay.
    fn of_sent(&mut self, due_ns: i64) -> &mut Apart;
    /// Of the messages' phase: publish and service.
    fn of_run(&mut self, due_ns: i64) -> (&mut Apart, &mut Apart);
    /// Of the messages' phase: end-to-end.
    fn of_receipt(&mut self, subscription: usize, due_ns: i64) -> &mut Apart;
    fn counters(&mut self) -> &mut QuietCounters;
}

/// A lane's look at the board.
#[derive(Debug)]
pub(crate) struct Watch {
    board: Arc<Board>,
    lane: usize,
    reader: BoardReader,
    spans: Spans,
    horizon_ns: i64,
    next_look_ns: i64,
    under_way: UnderWay,
    sent: Pending<Due>,
    acked: Pending<Run>,
    received: Pending<i64>,
    read: Pending<Read>,
}

impl Watch {
    pub fn new(board: Arc<Board>, lane: usize) -> Watch {
        Watch {
            reader: BoardReader::new(&board),
            board,
            lane,
            spans: Spans::default(),
            horizon_ns: i64::MIN,
            next_look_ns: i64::MIN,
            under_way: UnderWay::default(),
            sent: Pending::with_room(RUNS_MAX, GROUPS_MAX),
            acked: Pending::with_room(RUNS_MAX, GROUPS_MAX),
            received: Pending::with_room(RECEIVED_MAX, GROUPS_MAX),
            read: Pending::with_room(GROUPS_MAX, GROUPS_MAX),
        }
    }

    #[inline]
    pub fn sent(
        &mut self,
        due_ns: i64,
        free_ns: i64,
        sent_ns: i64,
        messages: u64,
        out: &mut impl Apartments,
    ) {
        self.under_way.begin(due_ns, messages as u32);
        let due = Due {
            due_ns,
            free_ns,
            messages,
        };
        if !self.sent.push(sent_ns, 0, due_ns, due) {
            give_up_sent(&due, sent_ns, false, out);
        }
    }

    /// A whole answer, of which `from_ns` and `until_ns` are the first and the last due time.
    #[inline]
    pub fn acked(
        &mut self,
        runs: &[Run],
        acked_ns: i64,
        from_ns: i64,
        until_ns: i64,
        out: &mut impl Apartments,
    ) {
        self.ended(runs);
        if !self.acked.push_all(acked_ns, from_ns, until_ns, runs) {
            for run in runs {
                give_up_run(run, acked_ns, false, out);
            }
        }
    }

    /// Messages are not under way any more.
    #[inline]
    pub fn ended(&mut self, runs: &[Run]) {
        for run in runs {
            self.under_way.end(run.intended_ns, run.messages);
        }
    }

    #[inline]
    pub fn received(
        &mut self,
        subscription: usize,
        due_ns: i64,
        received_ns: i64,
        out: &mut impl Apartments,
    ) {
        if !self
            .received
            .push(received_ns, subscription as u32, due_ns, due_ns)
        {
            give_up_receipt(subscription, due_ns, received_ns, false, out);
        }
    }

    pub fn read(&mut self, read: &Read, out: &mut impl Apartments) {
        if !self.read.push(read.read_ns, 0, read.since_ns, *read) {
            enter_read(read, Fate::Unknown, false, out);
        }
    }

    /// Tells the probes what is under way.
    #[inline]
    pub fn show(&mut self) {
        let oldest_due_ns = self.under_way.oldest_due_ns();
        self.board.set_oldest_due_ns(self.lane, oldest_due_ns);
    }

    /// Whether it is time to look at the board.
    #[inline]
    pub fn is_due(&self, now_ns: i64) -> bool {
        now_ns >= self.next_look_ns
    }

    /// Looks at the board, and decides what can be decided. Returns whether everything is.
    pub fn decide(&mut self, now_ns: i64, out: &mut impl Apartments) -> bool {
        self.next_look_ns = now_ns + LOOK_NS;
        self.horizon_ns = self.reader.read_spans(&self.board, &mut self.spans);
        let (spans, horizon_ns) = (&self.spans, self.horizon_ns);
        self.sent.decide(horizon_ns, |group, runs| {
            let is_clear = spans.is_clear(group.from_ns, group.until_ns);
            for run in runs {
                let counters = out.counters();
                if is_clear || !matches!(spans.judge(run.due_ns, run.due_ns), Fate::LeftOut | Fate::Unknown) {
                    counters.sent_msgs += run.messages;
                } else {
                    counters.sent_left_out_msgs += run.messages;
                }
                if !is_clear || group.is_carried {
                    let (fate, sent_ns) = (spans.judge(run.free_ns, group.answered_ns), group.answered_ns);
                    out.of_sent(run.due_ns)
                        .enter(fate, run.free_ns, sent_ns, run.messages, group.is_carried);
                }
            }
        });
        self.acked.decide(horizon_ns, |group, runs| {
            if spans.is_clear(group.from_ns, group.until_ns) && !group.is_carried {
                return;
            }
            for run in runs {
                let published = spans.judge(run.intended_ns, group.answered_ns);
                let served = spans.judge(run.sent_ns, group.answered_ns);
                let messages = u64::from(run.messages);
                let (publish, service) = out.of_run(run.intended_ns);
                publish.enter(
                    published,
                    run.intended_ns,
                    group.answered_ns,
                    messages,
                    group.is_carried,
                );
                service.enter(served, run.sent_ns, group.answered_ns, messages, group.is_carried);
                if published == Fate::Unknown {
                    out.counters().undecided_msgs += messages;
                }
            }
        });
        self.received.decide(horizon_ns, |group, due| {
            if spans.is_clear(group.from_ns, group.until_ns) && !group.is_carried {
                return;
            }
            for &due_ns in due {
                let fate = spans.judge(due_ns, group.answered_ns);
                out.of_receipt(group.subscription as usize, due_ns).enter(
                    fate,
                    due_ns,
                    group.answered_ns,
                    1,
                    group.is_carried,
                );
                if fate == Fate::Unknown {
                    out.counters().undecided_msgs += 1;
                }
            }
        });
        self.read.decide(horizon_ns, |group, reads| {
            if spans.is_clear(group.from_ns, group.until_ns) && !group.is_carried {
                return;
            }
            for read in reads {
                let fate = spans.judge(read.since_ns, read.read_ns);
                enter_read(read, fate, group.is_carried, out);
            }
        });
        self.sent.is_empty() && self.acked.is_empty() && self.received.is_empty() && self.read.is_empty()
    }

    /// An interval ends: what is not decided is kept out of its quiet part.
    pub fn carry(&mut self, out: &mut impl Apartments) {
        self.sent.carry(|group, runs| {
            for run in runs {
                let delay_ns = group.answered_ns - run.free_ns;
                out.of_sent(run.due_ns).excluded.enter(delay_ns, run.messages);
            }
        });
        self.acked.carry(|group, runs| {
            for run in runs {
                let messages = u64::from(run.messages);
                let (publish, service) = out.of_run(run.intended_ns);
                publish
                    .excluded
                    .enter(group.answered_ns - run.intended_ns, messages);
                service.excluded.enter(group.answered_ns - run.sent_ns, messages);
            }
        });
        self.received.carry(|group, due| {
            if mutants::is(Mutant::UndecidedStaysQuiet) {
                return;
            }
            for &due_ns in due {
                let apart = out.of_receipt(group.subscription as usize, due_ns);
                apart.excluded.enter(group.answered_ns - due_ns, 1);
            }
        });
        self.read.carry(|_, reads| {
            for read in reads {
                let apart = out.of_read(read.kind, read.due_ns);
                apart.excluded.enter(read.read_ns - read.since_ns, read.messages);
            }
        });
    }

    /// The end: what is still not decided never will be.
    pub fn give_up(&mut self, out: &mut impl Apartments) {
        self.sent.decide(i64::MAX, |group, runs| {
            for run in runs {
                give_up_sent(run, group.answered_ns, group.is_carried, out);
            }
        });
        self.acked.decide(i64::MAX, |group, runs| {
            for run in runs {
                give_up_run(run, group.answered_ns, group.is_carried, out);
            }
        });
        self.received.decide(i64::MAX, |group, due| {
            for &due_ns in due {
                let subscription = group.subscription as usize;
                give_up_receipt(subscription, due_ns, group.answered_ns, group.is_carried, out);
            }
        });
        self.read.decide(i64::MAX, |group, reads| {
            for read in reads {
                enter_read(read, Fate::Unknown, group.is_carried, out);
            }
        });
        self.board.set_oldest_due_ns(self.lane, super::NOTHING_DUE_NS);
    }
}

/// How long what was read may have waited is known, or it is not: nothing of it is censored.
fn enter_read(read: &Read, fate: Fate, is_carried: bool, out: &mut impl Apartments) {
    let fate = match fate {
        Fate::Quiet => fate,
        _ => Fate::LeftOut,
    };
    out.of_read(read.kind, read.due_ns)
        .enter(fate, read.since_ns, read.read_ns, read.messages, is_carried);
}

fn give_up_sent(run: &Due, sent_ns: i64, is_carried: bool, out: &mut impl Apartments) {
    out.of_sent(run.due_ns)
        .enter(Fate::Unknown, run.free_ns, sent_ns, run.messages, is_carried);
    out.counters().sent_left_out_msgs += run.messages;
}

fn give_up_run(run: &Run, acked_ns: i64, is_carried: bool, out: &mut impl Apartments) {
    let messages = u64::from(run.messages);
    let (publish, service) = out.of_run(run.intended_ns);
    publish.enter(Fate::Unknown, run.intended_ns, acked_ns, messages, is_carried);
    service.enter(Fate::Unknown, run.sent_ns, acked_ns, messages, is_carried);
    out.counters().undecided_msgs += messages;
}

fn give_up_receipt(
    subscription: usize,
    due_ns: i64,
    received_ns: i64,
    is_carried: bool,
    out: &mut impl Apartments,
) {
    out.of_receipt(subscription, due_ns)
        .enter(Fate::Unknown, due_ns, received_ns, 1, is_carried);
    out.counters().undecided_msgs += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_what_many_would_be() {
        let mut all = Latency::unbuffered();
        let (mut one, mut other) = (Few::new(), Few::new());
        assert!(one.is_empty() && one.distribution().is_empty());
        for at in 0..3 * FEW_MAX as i64 {
            let few = if at % 3 == 0 { &mut other } else { &mut one };
            few.enter(at * 977 - 5, 2);
            all.enter(at * 977 - 5, 2);
        }
        one.add(&other);
        let found = one.distribution();
        assert!(!one.is_empty());
        assert_eq!(found.histogram(), all.histogram());
        assert_eq!(
            (found.count(), found.sum_ns(), found.min_ns(), found.max_ns()),
            (all.count(), all.sum_ns(), all.min_ns(), all.max_ns())
        );
        one.clear();
        assert!(one.is_empty() && one.distribution().is_empty());
    }
}
