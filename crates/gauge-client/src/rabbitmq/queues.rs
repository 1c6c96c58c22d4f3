//! Methods about queues and streams that producers, consumers and administration share.

use serde_json::{Map, Value, json};

use super::codec::{self, Malformed, Put, Reader, method};
use super::options::{ConsumerAcks, Options};

/// Where the consumer of a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    First,
    Next,
    At(u64),
}

/// Declares a durable queue with the options' arguments.
pub(super) fn put_declare(into: &mut Vec<u8>, channel: u16, queue: &str, options: &Options) {
    codec::put_method(into, channel, method::QUEUE_DECLARE, |arguments| {
        arguments.put_u16(0);
        arguments.put_short_string(queue);
        // Bit 1: durable.
        arguments.put_u8(2);
        arguments.put_table(&options.queue_arguments);
    });
}

/// Binds a queue to a topic's exchange.
pub(super) fn put_bind(
    into: &mut Vec<u8>,
    channel: u16,
    queue: &str,
    exchange: &str,
    key: &str,
    given: &Map<String, Value>,
) {
    codec::put_method(into, channel, method::QUEUE_BIND, |arguments| {
        arguments.put_u16(0);
        arguments.put_short_string(queue);
        arguments.put_short_string(exchange);
        arguments.put_short_string(key);
        arguments.put_u8(0);
        arguments.put_table(given);
    });
}

/// Asks for a queue's messages; `begin` is for streams.
pub(super) fn put_consume(
    into: &mut Vec<u8>,
    channel: u16,
    queue: &str,
    tag: &str,
    begin: Option<Begin>,
    options: &Options,
) {
    let is_automatic = options.consumer_acks == ConsumerAcks::Automatic;
    let offset = begin.map(|begin| match begin {
        Begin::First => json!("first"),
        Begin::Next => json!("next"),
        Begin::At(offset) => json!(offset),
    });
    let given = offset.map(|offset| (STREAM_OFFSET.to_owned(), offset));
    codec::put_method(into, channel, method::BASIC_CONSUME, |arguments| {
        arguments.put_u16(0);
        arguments.put_short_string(queue);
        arguments.put_short_string(tag);
        // Bit 1: no-ack.
        arguments.put_u8(if is_automatic { 2 } else { 0 });
        arguments.put_table(&Map::from_iter(given));
    });
}

/// Header of a message from a stream, and argument of its consumer.
const STREAM_OFFSET: &str = "x-stream-offset";

/// A message's offset in its stream: reads a content header behind the size of the body.
pub(super) fn stream_offset(reader: &mut Reader<'_>) -> Result<Option<u64>, Malformed> {
    let flags = reader.u16()?;
    // Bits 15, 14 and 13: content type, content encoding, headers.
    for bit in [15, 14] {
        if flags & 1 << bit != 0 {
            reader.short_string()?;
        }
    }
    if flags & 1 << 13 == 0 {
        return Ok(None);
    }
    let offset = reader.table_number(STREAM_OFFSET)?;
    Ok(offset.and_then(|offset| u64::try_from(offset).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_found_among_headers() {
        let mut header = Vec::new();
        // Content type and headers.
        header.put_u16(1 << 15 | 1 << 13);
        header.put_short_string("text");
        header.put_table(&Map::from_iter([
            ("other".to_owned(), json!("x")),
            (STREAM_OFFSET.to_owned(), json!(77)),
        ]));
        assert_eq!(stream_offset(&mut Reader::new(&header)), Ok(Some(77)));
        let mut without = Vec::new();
        without.put_u16(1 << 12);
        without.put_u8(2);
        assert_eq!(stream_offset(&mut Reader::new(&without)), Ok(None));
        assert!(stream_offset(&mut Reader::new(&header[..12])).is_err());
    }
}
