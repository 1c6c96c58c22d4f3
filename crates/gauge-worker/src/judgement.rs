//! The audit of a trial: the books of the lanes united, judged, and compared with the histograms.

use gauge_load::Books;
use gauge_load::audit::{Receipts, SentBook, judge, judge_sent};
use serde_json::{Value, json};

use crate::collector::Samples;

/// What the audit must know of a subscription besides its books.
#[derive(Clone, Debug)]
pub struct SubscriptionEnd<'a> {
    /// Its name.
    pub name: &'a str,
    /// It had not come to the end of what there was to read.
    pub gave_up: bool,
}

/// The `audit` object of docs/worker-api.md.
pub fn audit(
    lanes: Vec<Books>,
    samples: &Samples,
    untaken_msgs: u64,
    stamped: bool,
    subscriptions: &[SubscriptionEnd<'_>],
) -> Value {
    let mut sent: Vec<SentBook> = Vec::new();
    let mut receipts: Vec<Option<Receipts>> = vec![None; subscriptions.len()];
    let mut end_to_end = vec![0; subscriptions.len()];
    for books in lanes {
        sent.extend(books.sent);
        for (at, theirs) in books.receipts.into_iter().enumerate() {
            match &mut receipts[at] {
                Some(mine) => mine.unite(&theirs),
                none => *none = Some(theirs),
            }
        }
        for (mine, theirs) in end_to_end.iter_mut().zip(&books.end_to_end_samples) {
            *mine += theirs;
        }
    }
    let verdict = judge_sent(&sent, samples.publish);
    let mut imbalance = verdict.imbalance.clone();
    for (metric, found, expected) in [
        ("send_delay", samples.send_delay, verdict.sent),
        ("service", samples.service, verdict.acked),
    ] {
        if found != expected && imbalance.is_none() {
            imbalance = Some(format!(
                "{expected} messages belong into the histograms of {metric}, but {found} are in them"
            ));
        }
    }
    let judged: Vec<Value> = subscriptions
        .iter()
        .zip(receipts)
        .enumerate()
        .filter(|_| stamped)
        .map(|(at, (subscription, receipts))| {
            let receipts = receipts.unwrap_or_default();
            let verdict = judge(&sent, &receipts, samples.end_to_end[at], subscription.gave_up);
            let mut imbalance = verdict.imbalance;
            if imbalance.is_none() && samples.end_to_end[at] != end_to_end[at] {
                imbalance = Some(format!(
                    "{} end-to-end latencies were recorded, but {} are in the histograms",
                    end_to_end[at], samples.end_to_end[at]
                ));
            }
            json!({
                "name": subscription.name,
                "received": verdict.received, "unique": verdict.unique,
                "lost": verdict.lost, "lost_prefix": verdict.lost_prefix,
                "lost_middle": verdict.lost_middle, "lost_tail": verdict.lost_tail,
                "duplicated": verdict.duplicated, "reordered": verdict.reordered,
                "corrupted": verdict.corrupted, "unexpected": verdict.unexpected,
                "unknown": verdict.unknown, "recovered": verdict.recovered, "censored": verdict.censored,
                "balanced": imbalance.is_none(), "imbalance": imbalance,
                "lost_ranges": verdict.lost_ranges.iter().map(|range| json!({
                    "producer": range.producer, "from": range.from, "until": range.until, "place": range.place,
                })).collect::<Vec<_>>(),
                "examples": verdict.examples,
            })
        })
        .collect();
    json!({
        "enabled": stamped,
        "sent": verdict.sent, "acked": verdict.acked, "failed": verdict.failed, "censored": verdict.censored,
        "untaken": untaken_msgs,
        "subscriptions": judged,
        "balanced": imbalance.is_none(), "imbalance": imbalance,
    })
}
