//! Fuzz targets (`crate::fuzzing`): frames of AMQP 0-9-1 and what is in them.

use super::codec::{self, FRAME_OVERHEAD_BYTES, Reader, kind, method};
use super::queues;
use crate::fuzzing::Target;

pub(crate) const TARGETS: [Target; 1] = [("amqp-frames", frames, frame_seeds)];

fn frames(mut input: &[u8]) {
    while let Ok(Some((frame, bytes))) = codec::frame(input, (128 << 10) - FRAME_OVERHEAD_BYTES) {
        let mut reader = Reader::new(&input[frame.from..frame.until]);
        let _ = match frame.kind {
            kind::METHOD => read_method(&mut reader),
            // Class, weight and size of the body stand before the properties.
            kind::HEADER => reader
                .bytes(12)
                .and_then(|_| queues::stream_offset(&mut reader))
                .map(drop),
            _ => Ok(()),
        };
        input = &input[bytes..];
    }
}

/// Fields as sessions, producers and consumers read them.
fn read_method(reader: &mut Reader<'_>) -> Result<(), codec::Malformed> {
    match reader.method()? {
        method::CONNECTION_START => {
            reader.u16()?;
            reader.table_strings()?;
            reader.long_string().map(drop)
        }
        method::CONNECTION_CLOSE | method::CHANNEL_CLOSE => codec::read_closing(reader).map(drop),
        method::BASIC_DELIVER => {
            reader.short_string()?;
            reader.u64()?;
            reader.u8().map(drop)
        }
        _ => {
            reader.table_number("x").ok();
            reader.short_string().map(drop)
        }
    }
}

fn frame_seeds() -> Vec<Vec<u8>> {
    use codec::Put;
    let start = codec::method_frame(0, method::CONNECTION_START, |fields| {
        fields.put_u16(9);
        let table = serde_json::json!({"product": "RabbitMQ", "n": 1, "capabilities": {"basic.nack": true}});
        fields.put_table(table.as_object().unwrap_or(&serde_json::Map::new()));
        fields.put_long_string(b"PLAIN AMQPLAIN");
    });
    let closing = codec::method_frame(1, method::CHANNEL_CLOSE, |fields| {
        fields.put_u16(404);
        fields.put_short_string("no queue");
        fields.put_u32(0);
    });
    let mut ack = Vec::new();
    codec::put_ack(&mut ack, 1, 7);
    let mut header = vec![
        kind::HEADER,
        0,
        1,
        0,
        0,
        0,
        45,
        0,
        60,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        3,
        0x20,
        0,
        0,
        0,
        0,
        25,
        15,
    ];
    header.extend(b"x-stream-offsetl\0\0\0\0\0\0\0\x05");
    header.push(206);
    vec![start, closing, ack, header]
}
