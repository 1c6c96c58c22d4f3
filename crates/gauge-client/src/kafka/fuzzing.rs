//! Fuzz targets (`crate::fuzzing`): answers, record batches, logins.

use serde_json::json;

use super::compress::{Compressor, Decompressor};
use super::fetch::FetchReader;
use super::messages;
use super::receiver::hand_over;
use super::record_batch::{self, Found, HEADER_BYTES};
use super::sasl::Conversation;
use super::scram::Credentials;
use crate::fuzzing::{Target, choice};
use crate::{Compression, Security};

pub(crate) const TARGETS: [Target; 3] = [
    ("kafka-answers", answers, answer_seeds),
    ("kafka-records", records, record_seeds),
    ("kafka-login", login, login_seeds),
];

fn answers(input: &[u8]) {
    let (api, body) = choice(input);
    // What cannot be read is refused, which is all that is asked of it.
    match api % 13 {
        0 => drop(messages::read_api_versions(body, 3)),
        1 => drop(messages::read_api_versions(body, 0)),
        2 => drop(messages::read_metadata(body)),
        3 => drop(messages::read_init_producer_id(body)),
        4 => drop(messages::read_list_offsets(body)),
        5 => drop(messages::read_find_coordinator(body)),
        6 => drop(messages::read_offset_commit(body)),
        7 => drop(messages::read_create_topics(body)),
        8 => drop(messages::read_delete_topics(body)),
        9 => drop(messages::read_describe_configs(body)),
        10 => fetched(body),
        11 => drop(messages::read_epoch_ends(body)),
        _ => records(body),
    }
}

/// An answer to a fetch, and the batches in it.
fn fetched(body: &[u8]) {
    let Ok(mut rows) = FetchReader::begin(body) else {
        return;
    };
    while let Ok(Some(row)) = rows.next() {
        let mut left = row.records;
        while let Ok(Found::Batch(_, bytes) | Found::Old(_, bytes)) = record_batch::peek(left) {
            let (batch, rest) = left.split_at(bytes);
            hand(batch);
            left = rest;
        }
    }
}

/// A batch whose CRC is made right, or nothing behind the CRC would ever be reached.
fn records(input: &[u8]) {
    let mut batch = input.to_vec();
    if batch.len() >= HEADER_BYTES {
        let crc = gauge_load::crc::crc32c(&batch[record_batch::CRC_FROM..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    if let Ok(Found::Batch(_, bytes)) = record_batch::peek(&batch) {
        hand(&batch[..bytes]);
    }
}

fn hand(batch: &[u8]) {
    let mut bytes = 0;
    let _ = hand_over(batch, 0, &mut Decompressor::new(), |value| bytes += value.len());
    std::hint::black_box(bytes);
}

/// A batch of two records with each codec.
fn record_seeds() -> Vec<Vec<u8>> {
    // Length, attributes, time, offset, no key, value, no headers (Kafka's documentation, "Record"); numbers are zigzag.
    let plain = [
        [18, 0, 0, 0, 1, 6, b'a', b'b', b'c', 0],
        [18, 0, 0, 2, 1, 6, b'd', b'e', b'f', 0],
    ]
    .concat();
    let codecs = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    let batch = |(codec, compression): (usize, &Compression)| {
        let mut packed = Vec::new();
        let compressor = Compressor::new(*compression);
        match compressor.map(|mut compressor| compressor.compress(&plain, &mut packed)) {
            Ok(Ok(())) if codec > 0 => {}
            _ => packed.clone_from(&plain),
        }
        let mut batch = vec![0; HEADER_BYTES];
        batch[8..12].copy_from_slice(&((HEADER_BYTES - 12 + packed.len()) as u32).to_be_bytes());
        (batch[16], batch[22], batch[26], batch[60]) = (2, codec as u8, 1, 2);
        batch.extend(packed);
        batch
    };
    codecs.iter().enumerate().map(batch).collect()
}

fn answer_seeds() -> Vec<Vec<u8>> {
    let fetch = |batch: Vec<u8>| {
        let mut answer = vec![
            10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1,
        ];
        answer.extend([0; 4 + 2 + 8 + 16 + 4 + 4]);
        answer.extend((batch.len() as u32).to_be_bytes());
        answer.extend(batch);
        answer
    };
    let mut seeds: Vec<Vec<u8>> = record_seeds().into_iter().map(fetch).collect();
    seeds.extend((0..13).map(|api| [vec![api], vec![0; 64]].concat()));
    // ApiVersions with one supported feature, in tagged field 0.
    seeds.push(vec![0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 8, 2, 2, b'f', 0, 1, 0, 2, 0]);
    seeds.push([&[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1][..], b"h", &[0; 40]].concat());
    seeds
}

/// All answers of a login: two bytes of length before each.
fn login(input: &[u8]) {
    let (mechanism, mut rest) = choice(input);
    let mechanism = ["plain", "scram-sha-256", "scram-sha-512"][usize::from(mechanism % 3)];
    let auth = json!({"mechanism": mechanism, "username": "u", "password": "p"});
    let Ok(security) = Security::read(&json!({ "auth": auth })) else {
        return;
    };
    let Some(credentials) = Credentials::of(&security) else {
        return;
    };
    let mut conversation = Conversation::new(&credentials);
    let mut asked = conversation.begin().1;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let (answer, behind) = behind.split_at(usize::from(u16::from_be_bytes(*length)).min(behind.len()));
        rest = behind;
        // The server's nonce goes on from ours, which nobody guesses: it is put in where the input says so.
        let nonce = asked
            .windows(2)
            .rposition(|pair| pair == b"r=")
            .map_or(&[][..], |at| &asked[at + 2..]);
        let answer = match answer.windows(2).position(|pair| pair == b"r=") {
            Some(at) => [&answer[..at + 2], nonce, &answer[at + 2..]].concat(),
            None => answer.to_vec(),
        };
        match conversation.answered(&answer) {
            Ok(Some((_, question))) => asked = question,
            _ => return,
        }
    }
}

fn login_seeds() -> Vec<Vec<u8>> {
    let seed = |(number, mechanism): (usize, &str)| {
        let handshake = [
            &[0, 0, 0, 0, 0, 1, 0, mechanism.len() as u8],
            mechanism.as_bytes(),
        ]
        .concat();
        // Code, no words, the message, the lifetime; "r=" is followed by the client's nonce when it is read.
        let challenge = "r=x,s=QUJD,i=4096";
        let told = [
            &[0, 0, 255, 255, 0, 0, 0, challenge.len() as u8 + 24][..],
            challenge.as_bytes(),
            &[0; 8],
        ]
        .concat();
        let mut seed = vec![number as u8];
        for answer in [handshake, told.clone(), told] {
            seed.extend((answer.len() as u16).to_be_bytes());
            seed.extend(answer);
        }
        seed
    };
    ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        .into_iter()
        .enumerate()
        .map(seed)
        .collect()
}
