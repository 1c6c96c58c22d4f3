//! Fuzz targets (`crate::fuzzing`): commands, entries with their messages, answers of the web service.

use super::commands;
use super::compress::{Compressor, Decompressor};
use super::http;
use super::message;
use crate::Compression;
use crate::fuzzing::{Target, choice};

pub(crate) const TARGETS: [Target; 3] = [
    ("pulsar-commands", command, command_seeds),
    ("pulsar-entries", entry, entry_seeds),
    ("pulsar-http", web, web_seeds),
];

fn command(input: &[u8]) {
    let _ = commands::read(input);
    let _ = commands::read_ack_set(input, &mut Vec::new());
}

fn command_seeds() -> Vec<Vec<u8>> {
    let frames = [
        commands::ping(),
        commands::lookup("t", 1, true),
        commands::flow(1, 2),
        commands::last_message_id(1, 2),
    ];
    let mut seeds: Vec<Vec<u8>> = frames.iter().map(|frame| frame[8..].to_vec()).collect();
    // Field 1 is the kind; the body lies in a field of its own behind it.
    seeds.extend((0..40u8).map(|kind| vec![8, kind, kind.wrapping_mul(8) | 2, 6, 8, 1, 16, 2, 24, 3]));
    seeds
}

/// What follows a message's command; its checksum is made right.
fn entry(input: &[u8]) {
    let mut bytes = input.to_vec();
    if let Some(covered) = input
        .strip_prefix(&message::CHECKSUM_MAGIC)
        .and_then(|rest| rest.get(4..))
    {
        bytes[2..6].copy_from_slice(&gauge_load::crc::crc32c(covered).to_be_bytes());
    }
    let Ok(entry) = message::read(&bytes) else { return };
    let mut decompressor = Decompressor::new();
    let body = match entry.compression {
        0 => entry.body,
        codec => match decompressor.decompress(codec, entry.body, entry.uncompressed_bytes) {
            Ok(body) => body,
            Err(_) => return,
        },
    };
    let mut taken = 0;
    let _ = message::each(body, entry.messages.unwrap_or(1), &[], |body| taken += body.len());
    std::hint::black_box((taken, entry.permits()));
}

fn entry_seeds() -> Vec<Vec<u8>> {
    // One message: the length of its metadata, of which field 3 is the length of its body.
    let message = [0, 0, 0, 2, 24, 3, b'a', b'b', b'c'];
    let codecs = [
        Compression::None,
        Compression::Lz4,
        Compression::Gzip,
        Compression::Zstd,
        Compression::Snappy,
    ];
    let seed = |(codec, compression): (usize, &Compression)| {
        let mut packed = Vec::new();
        if codec == 0
            || Compressor::new(*compression)
                .compress(&message, &mut packed)
                .is_err()
        {
            packed = message.to_vec();
        }
        let metadata = [64, codec as u8, 72, message.len() as u8, 88, 1];
        let mut seed = [
            &message::CHECKSUM_MAGIC[..],
            &[0; 4],
            &[0, 0, 0, metadata.len() as u8],
            &metadata,
        ]
        .concat();
        seed.extend(packed);
        seed
    };
    codecs.iter().enumerate().map(seed).collect()
}

fn web(input: &[u8]) {
    let (_, answer) = choice(input);
    if let Some(answer) = http::parse(answer) {
        std::hint::black_box(answer.reason());
    }
}

fn web_seeds() -> Vec<Vec<u8>> {
    vec![
        b" HTTP/1.1 409 Conflict\r\nContent-Length: 19\r\n\r\n{\"reason\":\"exists\"}".to_vec(),
        b" HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2;x=y\r\n2]\r\n0\r\n\r\n"
            .to_vec(),
    ]
}
