//! Is it the same data? The audit of a trial, per subscription.
//!
//! # Theory
//!
//! For each producer let S = {0, ..., sent-1} be what it sent, U the part without an acknowledgement (failed or censored), and
//! A = S \ U what was acknowledged. For each subscription let R be the set of sequences received at least once. Then
//!
//! ```text
//! lost       = A \ R            acknowledged and never received: the system broke its promise
//! unknown    = U \ R            may or may not be there; promises nothing
//! recovered  = U & R            not acknowledged, and there all the same
//! unexpected = R \ S            never sent (and messages of other runs or without a stamp)
//! unique     = |R & S| = |A| - |lost| - |censored| + |recovered|
//! received   = unique + duplicated + corrupted + unexpected
//! ```
//!
//! Lost messages lie in the *prefix* (before the producer's first received sequence), the *tail* (after its last), or the
//! *middle*. *Reordered* counts messages that came after a later one of the same producer in the same partition, which keyed
//! order is part of; repeats of a sequence are duplicates, not reorderings.
//!
//! The counts on the left are taken at different places (emitters, acknowledgements, consumers, histograms); a sum that does
//! not hold means that the instrument is wrong, and the trial is invalid.

use crate::mutants::{self, Mutant};
use crate::sequence_set::{RangeSet, SEQUENCE_END, SequenceSet};

/// Producers are numbered from 0 below this; a stamp that claims another number is not ours.
pub const PRODUCERS_MAX: usize = 65_536;

/// Examples of anomalies that a verdict quotes.
const EXAMPLES_MAX: usize = 10;

/// Ranges of lost messages that a verdict lists.
const LOST_RANGES_MAX: usize = 1000;

/// Messages of one producer that were acknowledged and never received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// Whose.
    pub producer: u32,
    /// Sequence of the first.
    pub from: u64,
    /// Sequence behind the last.
    pub until: u64,
    /// `prefix`, `middle` or `tail` of what the producer sent.
    pub place: &'static str,
}

/// What one producer sent.
#[derive(Clone, Debug, Default)]
pub struct SentBook {
    /// Its number.
    pub producer: u32,
    /// Messages taken from its emitter.
    pub sent: u64,
    /// Messages acknowledged.
    pub acked: u64,
    /// Messages that ended with an error.
    pub failed: u64,
    /// Messages that had no end when the run gave up.
    pub censored: u64,
    /// The sequences of the last two.
    pub unknown: RangeSet,
}

impl SentBook {
    /// An empty book.
    pub fn new(producer: u32) -> SentBook {
        SentBook {
            producer,
            ..SentBook::default()
        }
    }
}

/// What the consumers of one subscription on one lane received. Partitions belong to one lane each.
#[derive(Clone, Debug, Default)]
pub struct Receipts {
    /// Messages received, of any kind but probes.
    pub received: u64,
    /// Messages with our magic and a wrong checksum.
    pub corrupted: u64,
    /// Messages that are not of this trial.
    pub unexpected: u64,
    /// Messages received again.
    pub duplicated: u64,
    /// Messages that came after a later one.
    pub reordered: u64,
    /// Different messages of this trial whose end-to-end latency is measured elsewhere, by the worker that sent them.
    pub left: u64,
    by_producer: Vec<SequenceSet>,
    /// Per partition slot and producer: the largest sequence so far, plus one.
    heads: Vec<Vec<u64>>,
}

impl Receipts {
    /// Empty receipts over `slots` partitions.
    pub fn new(slots: usize) -> Receipts {
        Receipts {
            heads: vec![Vec::new(); slots],
            ..Receipts::default()
        }
    }

    /// Enters a whole message of this run; false when it is a duplicate or cannot be one of ours.
    #[inline]
    pub fn enter(&mut self, slot: usize, producer: u32, sequence: u64) -> bool {
        let producer = producer as usize;
        if producer >= PRODUCERS_MAX || sequence >= SEQUENCE_END || slot >= self.heads.len() {
            self.unexpected += 1;
            return false;
        }
        if producer >= self.by_producer.len() {
            self.by_producer.resize_with(producer + 1, SequenceSet::new);
        }
        let fresh = self.by_producer[producer].insert(sequence);
        if !fresh && !mutants::is(Mutant::DuplicateNotCounted) {
            self.duplicated += 1;
        }
        let heads = &mut self.heads[slot];
        if producer >= heads.len() {
            heads.resize(producer + 1, 0);
        }
        let head = &mut heads[producer];
        if sequence >= *head {
            *head = sequence + 1;
        } else if fresh && !mutants::is(Mutant::ReorderingNotCounted) {
            self.reordered += 1;
        }
        fresh
    }

    /// The different sequences received, by producer.
    pub fn sequences(&self) -> &[SequenceSet] {
        &self.by_producer
    }

    /// Receipts of these sequences, by producer; the counts are left to the caller, and nothing more can be entered.
    pub fn of(by_producer: Vec<SequenceSet>) -> Receipts {
        Receipts {
            by_producer,
            ..Receipts::default()
        }
    }

    /// Adds another lane's receipts of the same subscription.
    pub fn unite(&mut self, other: &Receipts) {
        self.received += other.received;
        self.corrupted += other.corrupted;
        self.unexpected += other.unexpected;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.left += other.left;
        if self.by_producer.len() < other.by_producer.len() {
            self.by_producer
                .resize_with(other.by_producer.len(), SequenceSet::new);
        }
        for (mine, theirs) in self.by_producer.iter_mut().zip(&other.by_producer) {
            self.duplicated += mine.unite(theirs);
        }
    }
}

/// The sums of what was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentVerdict {
    /// Messages taken from the emitters.
    pub sent: u64,
    /// Messages acknowledged.
    pub acked: u64,
    /// Messages that ended with an error.
    pub failed: u64,
    /// Messages that had no end.
    pub censored: u64,
    /// One sentence when the sums do not hold.
    pub imbalance: Option<String>,
}

/// The audit of one subscription; docs/worker-api.md, `finish`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Messages received, of any kind but probes.
    pub received: u64,
    /// Different messages of this trial.
    pub unique: u64,
    /// Acknowledged and never received; the sum of the next three.
    pub lost: u64,
    /// Of those: before the producer's first received message.
    pub lost_prefix: u64,
    /// Between its first and its last.
    pub lost_middle: u64,
    /// After its last.
    pub lost_tail: u64,
    /// Received again.
    pub duplicated: u64,
    /// Received after a later one.
    pub reordered: u64,
    /// With a wrong checksum.
    pub corrupted: u64,
    /// Not of this trial, or never sent.
    pub unexpected: u64,
    /// Not acknowledged and not received.
    pub unknown: u64,
    /// Not acknowledged, and received.
    pub recovered: u64,
    /// Acknowledged and not received yet when the run gave up on a subscription that was still catching up (or was paused): they
    /// may be there, so they are not called lost.
    pub censored: u64,
    /// What was lost, producer by producer; the first 1000 ranges.
    pub lost_ranges: Vec<LostRange>,
    /// The first anomalies, in words.
    pub examples: Vec<String>,
    /// One sentence when the sums do not hold.
    pub imbalance: Option<String>,
}

impl Verdict {
    fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(text());
        }
    }
}

/// Adds up what was sent. `publish_samples`: how many publish latencies were recorded.
pub fn judge_sent(books: &[SentBook], publish_samples: u64) -> SentVerdict {
    let mut verdict = SentVerdict::default();
    for book in books {
        verdict.sent += book.sent;
        verdict.acked += book.acked;
        verdict.failed += book.failed;
        verdict.censored += book.censored;
        if book.sent != book.acked + book.failed + book.censored
            || book.unknown.len() != book.failed + book.censored
        {
            verdict.imbalance.get_or_insert_with(|| {
                format!(
                    "producer {}: {} sent, but {} acknowledged, {} failed and {} censored ({} of them listed)",
                    book.producer, book.sent, book.acked, book.failed, book.censored, book.unknown.len()
                )
            });
        }
    }
    if publish_samples != verdict.acked && verdict.imbalance.is_none() {
        verdict.imbalance = Some(format!(
            "{} messages acknowledged, but {publish_samples} publish latencies recorded",
            verdict.acked
        ));
    }
    verdict
}

/// Compares what one subscription received with what was sent. `receipts` are those of all lanes, united; `end_to_end_samples`: how
/// many end-to-end latencies were recorded for it. `gave_up`: the subscription had not come to the end of what there was to read.
pub fn judge(books: &[SentBook], receipts: &Receipts, end_to_end_samples: u64, gave_up: bool) -> Verdict {
    let mut verdict = Verdict {
        received: receipts.received,
        duplicated: receipts.duplicated,
        reordered: receipts.reordered,
        corrupted: receipts.corrupted,
        unexpected: receipts.unexpected,
        ..Verdict::default()
    };
    let nothing = SequenceSet::new();
    for book in books {
        let received = receipts
            .by_producer
            .get(book.producer as usize)
            .unwrap_or(&nothing);
        judge_producer(book, received, &mut verdict);
    }
    for (producer, received) in receipts.by_producer.iter().enumerate() {
        // Received, and never sent: beyond a producer's last sequence, or of a producer that does not exist.
        let sent = books
            .iter()
            .find(|book| book.producer as usize == producer)
            .map_or(0, |book| book.sent);
        let within = sent
            - received
                .missing_below(sent)
                .map(|(from, until)| until - from)
                .sum::<u64>();
        let beyond = received.len() - within;
        verdict.unique += within;
        if beyond > 0 {
            verdict.unexpected += beyond;
            verdict
                .example(|| format!("producer {producer}: {beyond} messages received that were never sent"));
        }
    }
    if gave_up && !mutants::is(Mutant::CensoredIsLost) {
        verdict.censored = std::mem::take(&mut verdict.lost);
        (verdict.lost_prefix, verdict.lost_middle, verdict.lost_tail) = (0, 0, 0);
        verdict.lost_ranges.clear();
        verdict.examples.clear();
    }
    let acked: u64 = books.iter().map(|book| book.acked).sum();
    let parts = verdict.unique + verdict.duplicated + verdict.corrupted + verdict.unexpected;
    if verdict.received != parts {
        verdict.imbalance = Some(format!(
            "{} messages received, but their kinds add up to {parts}",
            verdict.received
        ));
    } else if verdict.unique + verdict.lost + verdict.censored != acked + verdict.recovered {
        verdict.imbalance = Some(format!(
            "{} different messages received, {} lost and {} censored, but {acked} acknowledged and {} recovered",
            verdict.unique, verdict.lost, verdict.censored, verdict.recovered
        ));
    } else if end_to_end_samples + receipts.left < verdict.unique {
        verdict.imbalance = Some(format!(
            "{} different messages received, but {end_to_end_samples} end-to-end latencies recorded and {} left to the workers that \
             sent the messages",
            verdict.unique, receipts.left
        ));
    }
    verdict
}

/// One producer: what of it is missing, and what that means.
fn judge_producer(book: &SentBook, received: &SequenceSet, verdict: &mut Verdict) {
    let producer = book.producer;
    let first = first_received(received, book.sent);
    let last = received.last().map(|last| last.min(book.sent.saturating_sub(1)));
    let mut missing_unknown = 0;
    for (from, until) in received.missing_below(book.sent) {
        let unknown = book.unknown.overlap(from, until);
        missing_unknown += unknown;
        if until - from == unknown {
            continue;
        }
        let (place, count) = match (first, last) {
            (Some(first), _) if until <= first && !mutants::is(Mutant::LossMisplaced) => {
                ("prefix", &mut verdict.lost_prefix)
            }
            (_, Some(last)) if from <= last => ("middle", &mut verdict.lost_middle),
            _ => ("tail", &mut verdict.lost_tail),
        };
        if place == "tail" && mutants::is(Mutant::TailNotLost) {
            continue;
        }
        let lost = until - from - unknown;
        *count += lost;
        verdict.lost += lost;
        for (from, until) in book.unknown.gaps(from, until) {
            if verdict.lost_ranges.len() < LOST_RANGES_MAX {
                verdict.lost_ranges.push(LostRange {
                    producer,
                    from,
                    until,
                    place,
                });
            }
            verdict.example(|| {
                format!(
                    "producer {producer}: sequences {from}-{} lost ({place})",
                    until - 1
                )
            });
        }
    }
    verdict.unknown += missing_unknown;
    verdict.recovered += book.unknown.len() - missing_unknown;
}

/// The first received sequence below `end`.
fn first_received(received: &SequenceSet, end: u64) -> Option<u64> {
    let first = match received.missing_below(end).next() {
        Some((0, until)) => until,
        _ => 0,
    };
    (first < end).then_some(first)
}
