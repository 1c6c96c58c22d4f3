//! Fuzz targets (`crate::fuzzing`): frames of RabbitMQ's stream protocol, chunks and messages.

use super::chunk::Chunk;
use super::{message, wire};
use crate::fuzzing::{Target, choice};
use crate::rabbitmq::codec::Reader;

pub(crate) const TARGETS: [Target; 2] = [
    ("stream-frames", frames, frame_seeds),
    ("stream-chunks", chunk, chunk_seeds),
];

fn frames(mut input: &[u8]) {
    while let Ok(Some((frame, bytes))) = wire::frame(input, 1 << 20) {
        let fields = &input[frame.from..frame.until];
        match frame.key {
            wire::key::DELIVER => chunk(fields),
            wire::key::METADATA => {
                let mut reader = Reader::new(fields);
                let _ = reader.u32().and_then(|_| wire::read_metadata(&mut reader));
            }
            _ => {
                let mut reader = Reader::new(fields);
                let outcome = wire::outcome(&mut reader);
                for _ in 0..outcome.and_then(|_| wire::count(&mut reader)).unwrap_or(0) {
                    if wire::text(&mut reader).is_err() {
                        break;
                    }
                }
            }
        }
        input = &input[bytes..];
    }
}

fn frame_seeds() -> Vec<Vec<u8>> {
    let metadata = wire::answer(wire::key::METADATA, |fields| {
        // A correlation number; one node: reference, host, port; one stream: name, code, leader, one replica.
        fields.extend([0, 0, 0, 1, 0, 0, 0, 1, 0, 7, 0, 1, b'h', 0, 0, 0x15, 0xb0]);
        fields.extend([0, 0, 0, 1, 0, 1, b's', 0, 1, 0, 7, 0, 0, 0, 1, 0, 7]);
    });
    let mechanisms = wire::answer(wire::key::SASL_HANDSHAKE, |fields| {
        fields.extend([0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 5]);
        fields.extend(b"PLAIN");
    });
    vec![metadata, mechanisms]
}

fn chunk(input: &[u8]) {
    let (_, bytes) = choice(input);
    let Ok(chunk) = Chunk::read(bytes) else { return };
    let mut body_bytes = 0;
    let _ = chunk.messages(|_, bytes| body_bytes += message::body(bytes).len());
    std::hint::black_box((body_bytes, chunk.is_whole(), chunk.end_offset()));
}

fn chunk_seeds() -> Vec<Vec<u8>> {
    let chunk = |entries: u8, records: u8, data: &[u8]| {
        let mut chunk = vec![0, 0x50, 0, 0, entries, 0, 0, 0, records];
        chunk.extend([0; 16 + 8 + 4]);
        chunk.extend((data.len() as u32).to_be_bytes());
        chunk.extend([0; 8]);
        chunk.extend(data);
        chunk
    };
    let simple = [&[0, 0, 0, 8, 0, 0x53, 0x75, 0xa0, 3][..], b"abc"].concat();
    let batch = [&[0x80, 0, 1, 0, 0, 0, 12, 0, 0, 0, 12][..], &simple].concat();
    vec![chunk(1, 1, &simple), chunk(1, 1, &batch)]
}
