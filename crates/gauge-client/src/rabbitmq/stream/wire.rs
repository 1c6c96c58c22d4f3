//! Frames and commands of RabbitMQ's stream protocol, as far as the client needs them.
//!
//! Source: PROTOCOL.adoc of the plugin rabbitmq_stream. A frame is its length (4 bytes, which do not count), the command's key and
//! version, and the command's fields; all numbers are big-endian. The answer to a command has its key with the highest bit set.

use std::collections::HashMap;
use std::rc::Rc;

use super::super::codec::{Malformed, Put, Reader};
use super::super::session::error as amqp_error;

/// Length, key and version of a frame.
pub(super) const HEAD_BYTES: usize = 8;
/// The only version of commands that is used: every RabbitMQ since 3.9 knows it.
const VERSION: u16 = 1;
/// Bit of the key of an answer.
const ANSWER: u16 = 0x8000;

/// Keys of commands.
pub(super) mod key {
    pub const DECLARE_PUBLISHER: u16 = 1;
    pub const PUBLISH: u16 = 2;
    pub const PUBLISH_CONFIRM: u16 = 3;
    pub const PUBLISH_ERROR: u16 = 4;
    pub const SUBSCRIBE: u16 = 7;
    pub const DELIVER: u16 = 8;
    pub const CREDIT: u16 = 9;
    pub const STORE_OFFSET: u16 = 10;
    pub const UNSUBSCRIBE: u16 = 12;
    pub const CREATE: u16 = 13;
    pub const DELETE: u16 = 14;
    pub const METADATA: u16 = 15;
    pub const METADATA_UPDATE: u16 = 16;
    pub const PEER_PROPERTIES: u16 = 17;
    pub const SASL_HANDSHAKE: u16 = 18;
    pub const SASL_AUTHENTICATE: u16 = 19;
    pub const TUNE: u16 = 20;
    pub const OPEN: u16 = 21;
    pub const CLOSE: u16 = 22;
    pub const HEARTBEAT: u16 = 23;
    pub const PARTITIONS: u16 = 25;
}

/// Response codes that decide something.
pub(super) mod code {
    pub const OK: u16 = 1;
    pub const STREAM_DOES_NOT_EXIST: u16 = 2;
    pub const STREAM_ALREADY_EXISTS: u16 = 5;
    pub const STREAM_NOT_AVAILABLE: u16 = 6;
    pub const INTERNAL_ERROR: u16 = 15;
    pub const ACCESS_REFUSED: u16 = 16;
    pub const PRECONDITION_FAILED: u16 = 17;
}

/// Kinds of errors, as they are counted; those that AMQP has too bear AMQP's names.
pub(super) mod error {
    pub const STREAM_DOES_NOT_EXIST: &str = "STREAM_DOES_NOT_EXIST";
    pub const STREAM_NOT_AVAILABLE: &str = "STREAM_NOT_AVAILABLE";
    pub const PUBLISH_ERROR: &str = "PUBLISH_ERROR";
    pub const FRAME_TOO_LARGE: &str = "FRAME_TOO_LARGE";
    pub const CHUNK_CORRUPTED: &str = "CHUNK_CORRUPTED";
}

/// The name of a response code, and what it says.
pub(super) fn meaning(response: u16) -> (&'static str, &'static str) {
    match response {
        code::STREAM_DOES_NOT_EXIST => (error::STREAM_DOES_NOT_EXIST, "the stream does not exist"),
        code::STREAM_ALREADY_EXISTS => (amqp_error::PRECONDITION_FAILED, "the stream exists already"),
        code::STREAM_NOT_AVAILABLE => (error::STREAM_NOT_AVAILABLE, "the stream is not available"),
        7..=9 | 11 => (amqp_error::ACCESS_REFUSED, "user or password is wrong"),
        12 => (
            amqp_error::ACCESS_REFUSED,
            "the user may not use the virtual host",
        ),
        13 => (
            amqp_error::CLOSED_BY_SERVER,
            "it does not know a frame that was sent",
        ),
        14 => (error::FRAME_TOO_LARGE, "a frame was larger than was agreed"),
        code::INTERNAL_ERROR => (amqp_error::INTERNAL_ERROR, "it has an internal error"),
        code::ACCESS_REFUSED => (
            amqp_error::ACCESS_REFUSED,
            "the user may not do this with the stream",
        ),
        code::PRECONDITION_FAILED => (
            amqp_error::PRECONDITION_FAILED,
            "it does not accept the arguments",
        ),
        18 => (error::STREAM_NOT_AVAILABLE, "it has forgotten the publisher"),
        _ => (amqp_error::CLOSED_BY_SERVER, "it refuses with an unusual code"),
    }
}

/// A whole frame: where its fields lie in the bytes it was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Key of the command, without the bit of an answer.
    pub key: u16,
    pub is_answer: bool,
    pub from: usize,
    pub until: usize,
}

/// The frame at the beginning of `input` and its length with everything; None when it is not there whole.
#[inline]
pub(super) fn frame(input: &[u8], bytes_max: usize) -> Result<Option<(Frame, usize)>, Malformed> {
    let Some(head) = input.first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let bytes = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if !(4..=bytes_max).contains(&bytes) {
        return Err(match head.starts_with(b"AMQP") {
            true => Malformed("it speaks AMQP here, not the stream protocol"),
            false => Malformed("a frame has an absurd length"),
        });
    }
    if input.len() < 4 + bytes {
        return Ok(None);
    }
    let key = u16::from_be_bytes([head[4], head[5]]);
    let frame = Frame {
        key: key & !ANSWER,
        is_answer: key & ANSWER != 0,
        from: HEAD_BYTES,
        until: 4 + bytes,
    };
    Ok(Some((frame, 4 + bytes)))
}

/// Appends a command's frame.
pub(super) fn put_command(into: &mut Vec<u8>, key: u16, fields: impl FnOnce(&mut Vec<u8>)) {
    let from = into.len();
    into.put_u32(0);
    into.put_u16(key);
    into.put_u16(VERSION);
    fields(into);
    let length = (into.len() - from - 4) as u32;
    into[from..from + 4].copy_from_slice(&length.to_be_bytes());
}

/// A command's frame.
pub(super) fn command(key: u16, fields: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_command(&mut bytes, key, fields);
    bytes
}

/// The frame of a command that is answered under its correlation number.
pub(super) fn request(key: u16, correlation: u32, fields: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    command(key, |bytes| {
        bytes.put_u32(correlation);
        fields(bytes);
    })
}

/// The frame of an answer without a correlation number (tune).
pub(super) fn answer(key: u16, fields: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    command(key | ANSWER, fields)
}

/// A string: two bytes of length. Names are checked before anything is connected.
pub(super) fn put_text(into: &mut Vec<u8>, text: &str) {
    let length = i16::try_from(text.len()).expect("names were checked to have at most 255 bytes");
    into.put_u16(length.cast_unsigned());
    into.put(text.as_bytes());
}

/// Names and values.
pub(super) fn put_texts<'a>(into: &mut Vec<u8>, texts: impl ExactSizeIterator<Item = (&'a str, &'a str)>) {
    into.put_u32(texts.len() as u32);
    for (name, value) in texts {
        put_text(into, name);
        put_text(into, value);
    }
}

/// Reads a string; one that is null is empty.
pub(super) fn text(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let bytes = match reader.u16()?.cast_signed() {
        length @ 0.. => reader.bytes(length.cast_unsigned().into())?,
        _ => &[],
    };
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// The number of elements of an array, each of which takes `bytes_min` at least.
pub(super) fn count(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    match reader.u32()?.cast_signed() {
        count @ 0.. => Ok(count.cast_unsigned()),
        _ => Ok(0),
    }
}

/// Correlation number and response code of an answer.
pub(super) fn outcome(reader: &mut Reader<'_>) -> Result<(u32, u16), Malformed> {
    Ok((reader.u32()?, reader.u16()?))
}

/// Where a stream's copies are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Whereabouts {
    pub stream: String,
    pub code: u16,
    /// `host:port` of the node that takes messages.
    pub leader: Option<Rc<str>>,
    /// Those of the others that hold a copy.
    pub replicas: Vec<Rc<str>>,
}

/// A question for the whereabouts of streams.
pub(super) fn metadata<'a>(correlation: u32, streams: impl ExactSizeIterator<Item = &'a str>) -> Vec<u8> {
    request(key::METADATA, correlation, |fields| {
        fields.put_u32(streams.len() as u32);
        for stream in streams {
            put_text(fields, stream);
        }
    })
}

/// The answer to `metadata`, behind its correlation number.
pub(super) fn read_metadata(reader: &mut Reader<'_>) -> Result<Vec<Whereabouts>, Malformed> {
    // Shared, because a few bytes name one: an address of its own for each would be a thousand times what came.
    let mut nodes: HashMap<u16, Rc<str>> = HashMap::new();
    for _ in 0..count(reader)? {
        let (reference, host, port) = (reader.u16()?, text(reader)?, reader.u32()?);
        nodes.insert(reference, format!("{host}:{port}").into());
    }
    let find = |wanted: u16| nodes.get(&wanted).map(Rc::clone);
    let mut streams = Vec::new();
    for _ in 0..count(reader)? {
        let (stream, code, leader) = (text(reader)?, reader.u16()?, find(reader.u16()?));
        let mut replicas = Vec::new();
        for _ in 0..count(reader)? {
            replicas.extend(find(reader.u16()?));
        }
        streams.push(Whereabouts {
            stream,
            code,
            leader,
            replicas,
        });
    }
    Ok(streams)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_command_is_framed_as_the_protocol_says() {
        let bytes = request(key::DECLARE_PUBLISHER, 7, |fields| {
            fields.put_u8(3);
            put_text(fields, "");
            put_text(fields, "s");
        });
        assert_eq!(bytes, [0, 0, 0, 14, 0, 1, 0, 1, 0, 0, 0, 7, 3, 0, 0, 0, 1, b's']);
        let (found, length) = frame(&bytes, 100).unwrap().unwrap();
        assert_eq!((found.key, found.is_answer, length), (1, false, 18));
        assert_eq!(frame(&bytes[..17], 100), Ok(None));
    }

    #[test]
    fn answers_are_told_from_commands() {
        let bytes = answer(key::TUNE, |fields| fields.put_u32(9));
        let (found, _) = frame(&bytes, 100).unwrap().unwrap();
        assert_eq!((found.key, found.is_answer), (key::TUNE, true));
    }

    #[test]
    fn another_protocol_is_recognised() {
        assert_eq!(
            frame(b"AMQP\x00\x00\x09\x01", 1 << 20),
            Err(Malformed("it speaks AMQP here, not the stream protocol"))
        );
    }

    #[test]
    fn whereabouts_are_read() {
        let mut bytes = Vec::new();
        bytes.put_u32(2);
        for (reference, host) in [(0, "a"), (1, "b")] {
            bytes.put_u16(reference);
            put_text(&mut bytes, host);
            bytes.put_u32(5552);
        }
        bytes.put_u32(1);
        put_text(&mut bytes, "t-0");
        bytes.put_u16(code::OK);
        bytes.put_u16(1);
        bytes.put_u32(2);
        bytes.put_u16(0);
        // A copy on a node that is not listed.
        bytes.put_u16(9);
        let found = read_metadata(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(
            found,
            [Whereabouts {
                stream: "t-0".to_owned(),
                code: code::OK,
                leader: Some("b:5552".into()),
                replicas: vec!["a:5552".into()],
            }]
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = frame(&bytes, 1 << 20);
            let _ = read_metadata(&mut Reader::new(&bytes));
            let _ = text(&mut Reader::new(&bytes));
        }
    }
}
