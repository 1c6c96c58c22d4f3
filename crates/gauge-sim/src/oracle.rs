//! Is the result true? The books, the audit, every rank of every distribution and every interval, compared with what the world knows.
//!
//! Where the world cannot know (a batch that was read and then cut off the log may or may not have been handed over; a subscription that was
//! paused drops what it reads and reads it again), it knows bounds, and the result must lie within. Everywhere else it must be exact: to the
//! message, to the nanosecond in sums and extremes, to the histogram's resolution at each rank.

mod departures;
mod distributions;
mod intervals;
mod pauses;
mod quiet;
mod routing;
mod schedule;
mod totals;

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value as Json;

use self::departures::departures;
use self::distributions::{Expected, Key, Value, add_up, compare, distributions, lay};
use self::intervals::intervals;
use self::pauses::pauses;
use self::quiet::quiet;
use self::routing::{keys, places};
use self::schedule::schedule;
use self::totals::totals;
use crate::marks::{Mark, Marks};
use crate::scenario::{Absence, Again, Expects, Scenario};
use crate::truth::{Message, Seen, Truth};

/// A trial that has ended, as the world and as the gauge tell it.
pub struct Case<'a> {
    pub scenario: &'a Scenario,
    pub expects: Expects,
    /// Nothing goes wrong in it.
    pub is_calm: bool,
    pub truth: &'a Truth,
    pub start_ns: i64,
    pub end_ns: i64,
    pub result: &'a Json,
    pub intervals: &'a [Json],
}

impl Case<'_> {
    /// The trial was given up while something was under way.
    fn is_cut(&self) -> bool {
        self.scenario.drain_ns.is_some() && self.result["drained"] != Json::Bool(true)
    }
}

/// Disagreements that are told of a trial.
const TOLD_MAX: usize = 12;

/// Ranges of lost messages that an audit lists.
const RANGES_MAX: usize = 1000;

/// Whoever waits for an answer for longer is not at the end: a second, and the time that an answer takes on its way.
const AWAITED_NS: i64 = 1_100_000_000;

/// A subscription that is paused, and one whose leader changes, reads what it has read again; nobody does so for ever.
const READ_MAX: usize = 20;
/// Whose consumer is closed by the system is handed to another, who begins at what was acknowledged: once then, and once when the consumer is back.
const READ_BY_CLOSED: usize = 2;

/// What a number may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bounds(i128, i128);

impl Bounds {
    fn exactly(value: usize) -> Bounds {
        Bounds(value as i128, value as i128)
    }

    fn add(&mut self, from: i128, until: i128) {
        self.0 += from;
        self.1 += until;
    }

    fn is_exact(self) -> bool {
        self.0 == self.1
    }

    fn holds(self, value: i128) -> bool {
        (self.0..=self.1).contains(&value)
    }
}

/// What a subscription must have received.
#[derive(Debug, Default)]
struct Received {
    received: Bounds,
    /// Before a producer's first received message, behind its first, and behind its last; None: it is not known which those are.
    lost_places: Option<[usize; 3]>,
    unique: Bounds,
    duplicated: Bounds,
    lost: Bounds,
    censored: Bounds,
    recovered: Bounds,
    corrupted: Bounds,
    reordered: Option<usize>,
    end_to_end: BTreeMap<usize, Expected>,
}

struct Told(Vec<String>);

impl Told {
    fn say(&mut self, what: impl FnOnce() -> String) {
        if self.0.len() < TOLD_MAX {
            self.0.push(what());
        }
    }

    fn check(&mut self, name: &str, found: &Json, expected: Bounds) {
        let number = found.as_i64().map(i128::from);
        if !number.is_some_and(|number| expected.holds(number)) {
            self.say(|| match expected.is_exact() {
                true => format!("{name}: {found}, and it is {}", expected.0),
                false => format!("{name}: {found}, and it is {} to {}", expected.0, expected.1),
            });
        }
    }
}

/// Compares. An empty list: the result is true.
pub fn judge(case: &Case<'_>, marks: &mut Marks) -> Vec<String> {
    let mut told = Told(case.truth.offences.clone());
    let taken: usize = case.truth.taken.values().map(Vec::len).sum();
    let acked = case.truth.acked.len();
    let is_cut = case.is_cut();
    if case.result["drained"] != Json::Bool(true) && case.scenario.drain_ns.is_none() {
        told.say(|| "the trial did not drain, although everything was at peace".to_owned());
    }
    let audit = &case.result["audit"];
    told.check("audit sent", &audit["sent"], Bounds::exactly(taken));
    told.check("audit acked", &audit["acked"], Bounds::exactly(acked));
    let unacked = taken.saturating_sub(acked);
    // What had no end when the trial was given up has failed by nobody's account.
    let censored = match is_cut {
        true => audit["censored"].as_u64().unwrap_or(0) as usize,
        false => 0,
    };
    told.check("audit censored", &audit["censored"], Bounds::exactly(censored));
    let failed = unacked.saturating_sub(censored);
    told.check("audit failed", &audit["failed"], Bounds::exactly(failed));
    if censored > 0 {
        marks.set(Mark::GivenUp);
    }
    if failed > 0 {
        marks.set(Mark::Failed);
        if !case.expects.may_fail {
            told.say(|| format!("{failed} messages failed, and nothing gave a reason for it"));
        }
    }
    if audit["balanced"] != Json::Bool(true) {
        told.say(|| format!("the books do not balance: {}", audit["imbalance"]));
    }
    order(case, unacked, marks, &mut told);
    times(case, &mut told);
    schedule(case, &mut told);
    places(case, unacked, &mut told);
    keys(case, &mut told);
    departures(case, marks, &mut told);
    if let Some(((at, _), seen)) = case
        .truth
        .delivered
        .iter()
        .filter(|((at, batch), seen)| {
            let place = (*at, case.truth.batches[*batch].slot);
            let closed = case.truth.closed.get(&place).copied().unwrap_or(0);
            seen.len() > READ_MAX + READ_BY_CLOSED * closed
        })
        .max_by_key(|(key, seen)| (seen.len(), **key))
    {
        let name = &case.scenario.subscriptions[*at];
        told.say(|| format!("{name} has read a batch {} times", seen.len()));
    }
    let found = distributions(case, &mut told);
    let mut expected = sent_side(case);
    for (at, name) in case.scenario.subscriptions.iter().enumerate() {
        let received = receive(case, at);
        audit_of(&audit["subscriptions"][at], name, &received, marks, &mut told);
        for (phase, values) in received.end_to_end {
            expected.insert((phase, "end_to_end", Some(at)), values);
        }
    }
    compare(case, &expected, &found, &mut told);
    add_up(case, &found, &mut told);
    lay(case, &found, &mut told);
    intervals(case, marks, &mut told);
    pauses(case, &mut told);
    totals(case, &mut told);
    quiet(case, &expected, marks, &mut told);
    told.0
}

fn phase_of(case: &Case<'_>, intended_ns: i64) -> usize {
    let offset_ns = intended_ns - case.start_ns;
    case.scenario
        .phases_ns
        .partition_point(|from_ns| *from_ns <= offset_ns)
        .saturating_sub(1)
}

/// The distributions of the sending side.
fn sent_side(case: &Case<'_>) -> BTreeMap<Key, Expected> {
    let mut expected: BTreeMap<Key, Expected> = BTreeMap::new();
    let truth = case.truth;
    for ((producer, sequence), seen) in &truth.acked {
        let (Some(intended_ns), Some(taken)) = (
            truth.intended.get(&(*producer, *sequence)),
            truth
                .taken
                .get(producer)
                .and_then(|all| all.get(*sequence as usize)),
        ) else {
            continue;
        };
        let phase = phase_of(case, *intended_ns);
        let (least_ns, most_ns) = taken.late_ns(*intended_ns);
        let ended = (seen.read_ns, seen.read_ns);
        for (metric, began) in [
            ("publish", (*intended_ns, *intended_ns)),
            ("service", (intended_ns + least_ns, intended_ns + most_ns)),
        ] {
            let all = expected.entry((phase, metric, None)).or_default();
            all.values.push(Value {
                began,
                ended,
                is_vague: false,
            });
        }
    }
    for (producer, all) in &truth.taken {
        for (sequence, taken) in all.iter().enumerate() {
            // When a message was due that reached no wire is not known; so much is, that there is one more.
            let Some(intended_ns) = truth.intended.get(&(*producer, sequence as u64)) else {
                for phase in 0..case.scenario.phases_ns.len() {
                    expected.entry((phase, "send_delay", None)).or_default().more += 1;
                }
                continue;
            };
            let (least_ns, most_ns) = taken.late_ns(*intended_ns);
            let phase = phase_of(case, *intended_ns);
            let values = &mut expected.entry((phase, "send_delay", None)).or_default().values;
            // Time for which there was no room is none of it, and how much that is is not known here.
            let least_ns = if taken.is_held { 0 } else { least_ns };
            values.push(Value {
                began: (*intended_ns, *intended_ns),
                ended: (intended_ns + least_ns, intended_ns + most_ns),
                is_vague: taken.is_held,
            });
        }
    }
    expected
}

/// Nothing is taken before it is due.
fn times(case: &Case<'_>, told: &mut Told) {
    for ((producer, sequence), due_ns) in &case.truth.intended {
        let taken = case
            .truth
            .taken
            .get(producer)
            .and_then(|all| all.get(*sequence as usize));
        if let Some(taken) = taken.filter(|taken| taken.until_ns < *due_ns) {
            told.say(|| {
                format!(
                    "message {sequence} of producer {producer} was taken at {} at the latest, and was due at {due_ns}",
                    taken.until_ns
                )
            });
        }
    }
}

/// What was stored once must be stored once, and in order, where the client can see to that.
fn order(case: &Case<'_>, failed: usize, marks: &mut Marks, told: &mut Told) {
    let mut copies: HashMap<(Option<usize>, u32, u64), u32> = HashMap::new();
    let mut heads: HashMap<(Option<usize>, usize, u32), u64> = HashMap::new();
    let (mut twice, mut reordered) = (0, 0);
    for batch in case.truth.batches.iter().filter(|batch| batch.is_alive) {
        for message in &batch.messages {
            let count = copies
                .entry((batch.reader, message.producer, message.sequence))
                .or_default();
            *count += 1;
            if *count > 1 {
                twice += 1;
                continue;
            }
            let head = heads
                .entry((batch.reader, batch.slot, message.producer))
                .or_default();
            if message.sequence < *head {
                reordered += 1;
            }
            *head = (*head).max(message.sequence + 1);
        }
    }
    if twice > 0 {
        marks.set(Mark::StoredTwice);
    }
    if reordered > 0 {
        marks.set(Mark::Reordered);
    }
    let is_whole = failed == 0 && !case.truth.has_truncated;
    if is_whole && case.expects.once && twice > 0 {
        told.say(|| format!("{twice} messages were stored twice, which the client can avoid here"));
    }
    if is_whole && case.expects.in_order && reordered > 0 {
        told.say(|| {
            format!("{reordered} messages were stored out of order, which the client can avoid here")
        });
    }
}

/// A copy of a message in the log: whether it is read for sure, and when, at the earliest and at the latest.
#[derive(Clone, Copy, Debug)]
struct Copy {
    is_sure: bool,
    /// It was handed over so often at least, and may have been so often.
    least: i128,
    times: i128,
    from_ns: i64,
    until_ns: i64,
}

fn receive(case: &Case<'_>, subscription: usize) -> Received {
    let truth = case.truth;
    let mut copies: HashMap<(u32, u64), (Message, Vec<Copy>)> = HashMap::new();
    let mut received = Received::default();
    let mut heads: HashMap<(usize, u32), u64> = HashMap::new();
    // Of consumers that share a partition each has an order of its own.
    let again = case.expects.again;
    let mut is_exact = again == Again::Dropped;
    let read: HashSet<(u32, u64)> = truth
        .batches
        .iter()
        .enumerate()
        .filter(|(number, _)| truth.delivered.contains_key(&(subscription, *number)))
        .flat_map(|(_, batch)| &batch.messages)
        .map(|message| (message.producer, message.sequence))
        .collect();
    let is_cut = case.is_cut();
    let is_left = case.scenario.is_left_paused(subscription) || is_cut;
    let mut is_unread = false;
    let mut reordered = 0;
    for (number, batch) in truth.batches.iter().enumerate() {
        let seen: &[Seen] = truth
            .delivered
            .get(&(subscription, number))
            .map_or(&[], Vec::as_slice);
        let is_theirs = batch.reader.is_none_or(|reader| reader == subscription);
        let is_gone = !batch.is_alive || batch.is_forgotten || batch.is_expired;
        if !is_theirs || (is_gone && seen.is_empty()) {
            continue;
        }
        // Nobody waits for what has no acknowledgement, or was read before: it may come after the last answer that told where the end is,
        // also in the same instant, or come back when everything else was read.
        let is_awaited = |message: &Message| {
            let key = (message.producer, message.sequence);
            case.scenario.acks != 0 && truth.acked.contains_key(&key) && !read.contains(&key)
        };
        let told_ns = truth.told_ns.get(&(subscription, batch.slot));
        let is_behind = told_ns
            .is_some_and(|told_ns| batch.visible_ns >= *told_ns && *told_ns > case.end_ns - AWAITED_NS);
        let is_late =
            seen.is_empty() && (is_behind || batch.is_withheld) && !batch.messages.iter().any(is_awaited);
        let is_always = again == Again::HandedOver;
        is_unread |= is_cut
            && seen.is_empty()
            && !is_gone
            && batch
                .messages
                .iter()
                .any(|message| is_awaited(message) && batch.visible_ns < case.end_ns);
        let is_sure =
            (batch.is_alive && !batch.is_expired && !is_late && !is_left) || (is_always && !seen.is_empty());
        is_exact &= is_sure;
        let times = match again {
            Again::Dropped => 1,
            Again::Maybe | Again::HandedOver => seen.len().max(1) as i128,
        };
        let least = match (is_sure, is_always) {
            (false, _) => 0,
            (true, true) => times,
            (true, false) => 1,
        };
        let first_ns = seen.iter().map(|seen| seen.read_ns).min().unwrap_or(i64::MAX);
        let last_ns = seen.iter().map(|seen| seen.read_ns).max().unwrap_or(i64::MAX);
        let copy = Copy {
            is_sure,
            least,
            times,
            from_ns: first_ns,
            until_ns: if is_always { first_ns } else { last_ns },
        };
        let readable = batch.unreadable_from.unwrap_or(batch.messages.len());
        if batch.unreadable_from.is_some() {
            received.received.add(least, times);
            received.corrupted.add(least, times);
        }
        for (at, message) in batch.messages[..readable].iter().enumerate() {
            received.received.add(least, times);
            if batch.damaged.contains(&at) {
                received.corrupted.add(least, times);
                continue;
            }
            let all = copies
                .entry((message.producer, message.sequence))
                .or_insert((*message, Vec::new()));
            all.1.push(copy);
            let head = heads.entry((batch.slot, message.producer)).or_default();
            if message.sequence < *head && all.1.len() == 1 {
                reordered += 1;
            }
            *head = (*head).max(message.sequence + 1);
        }
    }
    received.reordered = is_exact.then_some(reordered);
    received.lost_places = is_exact.then(|| lost_places(truth, |key| copies.contains_key(key)));
    for (key, (message, all)) in &copies {
        let sure: i128 = all.iter().map(|copy| copy.least).sum();
        let count: i128 = all.iter().map(|copy| copy.times).sum();
        let is_received = (i128::from(sure > 0), 1);
        received.unique.add(is_received.0, is_received.1);
        received.duplicated.add((sure - 1).max(0), count - 1);
        if truth.acked.contains_key(key) {
            received.lost.add(0, 1 - is_received.0);
        } else {
            received.recovered.add(is_received.0, is_received.1);
        }
        let phase = phase_of(case, message.intended_ns);
        let expected = received.end_to_end.entry(phase).or_default();
        if sure > 0 {
            let from_ns = all.iter().map(|copy| copy.from_ns).min().unwrap_or(i64::MAX);
            let sure_copies = all.iter().filter(|copy| copy.is_sure);
            let until_ns = sure_copies.map(|copy| copy.until_ns).min().unwrap_or(i64::MAX);
            expected.values.push(Value {
                began: (message.intended_ns, message.intended_ns),
                ended: (from_ns, until_ns),
                is_vague: false,
            });
        } else {
            expected.more += 1;
        }
    }
    let never = truth
        .acked
        .keys()
        .filter(|key| !copies.contains_key(*key))
        .count() as i128;
    received.lost.add(never, never);
    if is_cut && !is_unread {
        // It may have come to the end by the time at which the others were given up.
        received.censored = Bounds(0, received.lost.1);
        received.lost.0 = 0;
        received.lost_places = None;
    } else if is_left {
        // It had not come to the end: what is missing may be there.
        received.censored = std::mem::take(&mut received.lost);
        received.lost_places = None;
    }
    received
}

/// How many acknowledged messages were lost before the first of their producer that was received, between that and the last, and behind it.
fn lost_places(truth: &Truth, is_received: impl Fn(&(u32, u64)) -> bool) -> [usize; 3] {
    let mut places = [0; 3];
    for (producer, taken) in &truth.taken {
        let all = || (0..taken.len() as u64).map(|sequence| (*producer, sequence));
        let received = || all().filter(&is_received).map(|key| key.1);
        let (first, last) = (received().next(), received().last());
        for (_, sequence) in all().filter(|key| truth.acked.contains_key(key) && !is_received(key)) {
            let place = match (first, last) {
                (Some(first), _) if sequence < first => 0,
                (_, Some(last)) if sequence < last => 1,
                _ => 2,
            };
            places[place] += 1;
        }
    }
    places
}

fn audit_of(found: &Json, name: &str, expected: &Received, marks: &mut Marks, told: &mut Told) {
    for (what, bounds) in [
        ("received", expected.received),
        ("unique", expected.unique),
        ("duplicated", expected.duplicated),
        ("lost", expected.lost),
        ("recovered", expected.recovered),
        ("corrupted", expected.corrupted),
        ("unexpected", Bounds(0, 0)),
        ("censored", expected.censored),
    ] {
        told.check(&format!("{name} {what}"), &found[what], bounds);
    }
    if let Some(reordered) = expected.reordered {
        told.check(
            &format!("{name} reordered"),
            &found["reordered"],
            Bounds::exactly(reordered),
        );
    }
    if let Some(places) = expected.lost_places {
        for (what, count) in ["lost_prefix", "lost_middle", "lost_tail"]
            .into_iter()
            .zip(places)
        {
            told.check(&format!("{name} {what}"), &found[what], Bounds::exactly(count));
        }
    }
    let ranges = found["lost_ranges"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |range: &Json, key: &str| range[key].as_u64().unwrap_or(0);
    let listed: u64 = ranges
        .iter()
        .map(|range| number(range, "until").saturating_sub(number(range, "from")))
        .sum();
    if ranges.len() < RANGES_MAX && Some(listed) != found["lost"].as_u64() {
        told.say(|| {
            format!(
                "{name}: {listed} lost messages are listed, and {} counted",
                found["lost"]
            )
        });
    }
    if found["balanced"] != Json::Bool(true) {
        told.say(|| format!("{name} does not balance: {}", found["imbalance"]));
    }
    if found["lost"].as_u64() > Some(0) {
        marks.set(Mark::Lost);
    }
}
