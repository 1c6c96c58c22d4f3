//! The audit over several workers: each hands out its books, and one of them judges all together.
//!
//! Messages of a subscription may be received by another worker than the one that sent them, so no worker alone can say what was lost.
//! The books travel in compact form: of what was sent the sums and the few sequences without an acknowledgement; of what was received
//! one bit per message at most, and nearly nothing where nothing is missing (`SequenceSet::to_bytes`, deflated). The judgement is the
//! same code as for one worker.

use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use gauge_load::audit::{PRODUCERS_MAX, Receipts, SentBook};
use gauge_load::mutants::{self, Mutant};
use gauge_load::{Books, RangeSet, SequenceSet};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::check;
use crate::collector::Samples;
use crate::error::ApiError;
use crate::judgement::{self, SubscriptionEnd};

/// Most bytes that the sequences of a request may take when they are unpacked: a bit for each of 4 billion messages.
const UNPACKED_BYTES_MAX: u64 = 512 << 20;
/// Workers of a trial, and its subscriptions.
const WORKERS_MAX: usize = 1000;
const SUBSCRIPTIONS_MAX: usize = 256;
/// A count above this is none of messages; sums of those below do not overflow.
const COUNT_MAX: u64 = 1 << 40;

/// A number of messages, or a sequence.
fn messages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let count = u64::deserialize(deserializer)?;
    if count > COUNT_MAX {
        return Err(D::Error::custom(format!("expected at most {COUNT_MAX} messages")));
    }
    Ok(count)
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    producer: u32,
    #[serde(deserialize_with = "messages")]
    sent: u64,
    #[serde(deserialize_with = "messages")]
    acked: u64,
    #[serde(deserialize_with = "messages")]
    failed: u64,
    #[serde(deserialize_with = "messages")]
    censored: u64,
    /// Half-open ranges of sequences that failed or were censored.
    unknown: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SubscriptionBook {
    name: String,
    gave_up: bool,
    #[serde(deserialize_with = "messages")]
    received: u64,
    #[serde(deserialize_with = "messages")]
    corrupted: u64,
    #[serde(deserialize_with = "messages")]
    unexpected: u64,
    #[serde(deserialize_with = "messages")]
    duplicated: u64,
    #[serde(deserialize_with = "messages")]
    reordered: u64,
    /// End-to-end latencies that the senders of the messages record.
    #[serde(deserialize_with = "messages")]
    left: u64,
    /// End-to-end latencies that were recorded, and those in the histograms that were handed out.
    #[serde(deserialize_with = "messages")]
    recorded: u64,
    #[serde(deserialize_with = "messages")]
    samples: u64,
    /// (producer, base64 of the deflated bytes of its sequences).
    sequences: Vec<(u32, String)>,
}

/// One worker's books.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerBooks {
    stamped: bool,
    #[serde(deserialize_with = "messages")]
    untaken: u64,
    #[serde(deserialize_with = "messages")]
    publish_samples: u64,
    #[serde(deserialize_with = "messages")]
    service_samples: u64,
    #[serde(deserialize_with = "messages")]
    send_delay_samples: u64,
    sent: Vec<Sent>,
    subscriptions: Vec<SubscriptionBook>,
}

/// The body of `/v1/judge`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judge {
    books: Vec<WorkerBooks>,
}

fn pack(set: &SequenceSet) -> String {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    let packed = encoder
        .write_all(&set.to_bytes())
        .and_then(|()| encoder.finish())
        .expect("writing to memory does not fail");
    STANDARD.encode(packed)
}

fn unpack(text: &str, left: &mut u64) -> Option<SequenceSet> {
    let packed = STANDARD.decode(text).ok()?;
    let mut bytes = Vec::new();
    DeflateDecoder::new(packed.as_slice())
        .take(*left)
        .read_to_end(&mut bytes)
        .ok()?;
    *left = left.checked_sub(bytes.len() as u64).filter(|left| *left > 0)?;
    SequenceSet::from_bytes(&bytes)
}

/// The `books` object of docs/worker-api.md: what the lanes of this worker saw.
pub fn export(
    lanes: &[Books],
    samples: &Samples,
    untaken_msgs: u64,
    stamped: bool,
    subscriptions: &[SubscriptionEnd<'_>],
) -> Value {
    let sent = lanes.iter().flat_map(|books| &books.sent).map(|book| Sent {
        producer: book.producer,
        sent: book.sent,
        acked: book.acked,
        failed: book.failed,
        censored: book.censored,
        unknown: book.unknown.ranges().collect(),
    });
    let subscription = |(at, end): (usize, &SubscriptionEnd<'_>)| {
        let mut receipts = Receipts::default();
        for books in lanes {
            receipts.unite(&books.receipts[at]);
        }
        let sequences = receipts.sequences().iter().enumerate();
        SubscriptionBook {
            name: end.name.to_owned(),
            gave_up: end.gave_up,
            received: receipts.received,
            corrupted: receipts.corrupted,
            unexpected: receipts.unexpected,
            duplicated: receipts.duplicated,
            reordered: receipts.reordered,
            left: receipts.left,
            recorded: lanes.iter().map(|books| books.end_to_end_samples[at]).sum(),
            samples: samples.end_to_end[at],
            sequences: sequences
                .filter(|(_, set)| !set.is_empty())
                .map(|(producer, set)| (producer as u32, pack(set)))
                .collect(),
        }
    };
    json!(WorkerBooks {
        stamped,
        untaken: untaken_msgs,
        publish_samples: samples.publish,
        service_samples: samples.service,
        send_delay_samples: samples.send_delay,
        sent: sent.collect(),
        subscriptions: subscriptions.iter().enumerate().map(subscription).collect(),
    })
}

/// Judges the books of several workers as those of one.
///
/// # Errors
/// A bad request that names the field.
pub fn judge(request: Judge) -> Result<Value, ApiError> {
    check::count("books", request.books.len(), 0, WORKERS_MAX)?;
    let mut names: Vec<String> = Vec::new();
    for book in request.books.iter().flat_map(|books| &books.subscriptions) {
        if !names.contains(&book.name) {
            names.push(book.name.clone());
            check::count(
                "the subscriptions of all books",
                names.len(),
                0,
                SUBSCRIPTIONS_MAX,
            )?;
        }
    }
    let mut gave_up = vec![false; names.len()];
    let mut samples = Samples {
        end_to_end: vec![0; names.len()],
        ..Samples::default()
    };
    let mut left = UNPACKED_BYTES_MAX;
    let (mut lanes, mut untaken, mut stamped) = (Vec::new(), 0, true);
    for (at, theirs) in request.books.into_iter().enumerate() {
        samples.publish += theirs.publish_samples;
        samples.service += theirs.service_samples;
        samples.send_delay += theirs.send_delay_samples;
        untaken += theirs.untaken;
        stamped &= theirs.stamped;
        let mut books = Books {
            sent: theirs
                .sent
                .into_iter()
                .map(|sent| sent_book(sent, at))
                .collect::<Result<_, _>>()?,
            receipts: vec![Receipts::default(); names.len()],
            publish_samples: theirs.publish_samples,
            end_to_end_samples: vec![0; names.len()],
        };
        for (number, book) in theirs.subscriptions.into_iter().enumerate() {
            let Some(name) = names.iter().position(|name| *name == book.name) else {
                continue;
            };
            gave_up[name] |= book.gave_up && !mutants::is(Mutant::GaveUpForgotten);
            samples.end_to_end[name] += book.samples;
            books.end_to_end_samples[name] += book.recorded;
            let path = format!("books[{at}].subscriptions[{number}].sequences");
            books.receipts[name].unite(&receipts(&book, &path, &mut left)?);
        }
        lanes.push(books);
    }
    let ends: Vec<SubscriptionEnd<'_>> = names
        .iter()
        .zip(&gave_up)
        .map(|(name, gave_up)| SubscriptionEnd {
            name,
            gave_up: *gave_up,
        })
        .collect();
    Ok(judgement::audit(lanes, &samples, untaken, stamped, &ends))
}

fn sent_book(theirs: Sent, worker: usize) -> Result<SentBook, ApiError> {
    let mut unknown = RangeSet::new();
    for (from, until) in theirs.unknown {
        if until > COUNT_MAX {
            let what = format!("expected sequences of at most {COUNT_MAX}");
            return Err(ApiError::field(format!("books[{worker}].sent"), what));
        }
        unknown.insert(from, until);
    }
    Ok(SentBook {
        producer: theirs.producer,
        sent: theirs.sent,
        acked: theirs.acked,
        failed: theirs.failed,
        censored: theirs.censored,
        unknown,
    })
}

fn receipts(book: &SubscriptionBook, path: &str, left: &mut u64) -> Result<Receipts, ApiError> {
    let mut sequences: Vec<SequenceSet> = Vec::new();
    for (producer, text) in &book.sequences {
        let producer = *producer as usize;
        // The places of the producers before it are made, too.
        let places = (producer + 1).saturating_sub(sequences.len()) * size_of::<SequenceSet>();
        let set = (producer < PRODUCERS_MAX)
            .then(|| left.checked_sub(places as u64))
            .flatten()
            .and_then(|rest| {
                *left = rest;
                unpack(text, left)
            });
        let Some(set) = set else {
            return Err(ApiError::field(
                path,
                format!(
                    "producer {producer}: expected sequences as a worker exports them, at most {} MiB in all",
                    UNPACKED_BYTES_MAX >> 20
                ),
            ));
        };
        if sequences.len() <= producer {
            sequences.resize_with(producer + 1, SequenceSet::new);
        }
        sequences[producer] = set;
    }
    let mut receipts = Receipts::of(sequences);
    receipts.received = book.received;
    receipts.corrupted = book.corrupted;
    receipts.unexpected = book.unexpected;
    receipts.duplicated = book.duplicated;
    receipts.left = book.left;
    receipts.reordered = book.reordered;
    Ok(receipts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

    use super::*;

    /// One worker sends two producers' messages, two others receive every second one each; `lost` of producer 1 is received by nobody.
    fn books(lost: u64) -> Vec<Value> {
        let sent = |producer| SentBook {
            producer,
            sent: 100_000,
            acked: 100_000,
            ..SentBook::default()
        };
        let samples = |publish, end_to_end| Samples {
            publish,
            service: publish,
            send_delay: publish,
            end_to_end,
        };
        let sender = Books {
            sent: vec![sent(0), sent(1)],
            ..Books::default()
        };
        let mut all = vec![export(&[sender], &samples(200_000, vec![]), 0, true, &[])];
        for parity in 0..2 {
            let mut receipts = Receipts::new(2);
            for sequence in (parity..100_000).step_by(2) {
                for producer in 0..2 {
                    if producer == 1 && sequence == lost {
                        continue;
                    }
                    receipts.received += 1;
                    assert!(receipts.enter(parity as usize, producer, sequence));
                }
            }
            let count = receipts.received;
            let lane = Books {
                receipts: vec![receipts],
                end_to_end_samples: vec![count],
                ..Books::default()
            };
            let end = SubscriptionEnd {
                name: "s",
                gave_up: false,
            };
            all.push(export(&[lane], &samples(0, vec![count]), 0, true, &[end]));
        }
        all
    }

    #[test]
    fn books_of_several_workers_balance() {
        let request = |books: Vec<Value>| serde_json::from_value(json!({"books": books})).unwrap();
        let clean = judge(request(books(u64::MAX))).unwrap();
        assert_eq!(clean["balanced"], true, "{clean}");
        let subscription = &clean["subscriptions"][0];
        assert_eq!(
            (&subscription["unique"], &subscription["lost"]),
            (&json!(200_000), &json!(0))
        );
        let one_lost = judge(request(books(70_001))).unwrap();
        assert_eq!(one_lost["subscriptions"][0]["lost_middle"], 1, "{one_lost}");
        assert_eq!(one_lost["balanced"], true, "{one_lost}");
        let packed = books(u64::MAX)[1].to_string().len();
        assert!(
            packed < 4000,
            "every second sequence of 200,000 takes {packed} bytes"
        );
        let mut wrong = books(u64::MAX);
        wrong[1]["subscriptions"][0]["sequences"][0][1] = json!("AAAA");
        assert!(judge(request(wrong)).is_err());
    }
}
