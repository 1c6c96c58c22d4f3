//! Frames and methods of AMQP 0-9-1, as far as the client needs them.
//!
//! Source: the AMQP 0-9-1 specification (sections 2.3 and 4.2, and its XML for the numbers of classes and methods) and RabbitMQ's
//! extensions (publisher confirms, basic.nack, connection.blocked).

use std::fmt;

/// Octet that ends every frame.
pub(super) const FRAME_END: u8 = 0xCE;
/// Type, channel and length before a frame's payload.
pub(super) const FRAME_HEAD_BYTES: usize = 7;
/// What a frame costs beside its payload.
pub(super) const FRAME_OVERHEAD_BYTES: usize = FRAME_HEAD_BYTES + 1;
/// What a client says first.
pub(super) const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x00\x09\x01";

/// Types of frames.
pub(super) mod kind {
    pub const METHOD: u8 = 1;
    pub const HEADER: u8 = 2;
    pub const BODY: u8 = 3;
    pub const HEARTBEAT: u8 = 8;
}

/// A method's number: class, then method.
pub(super) type Method = (u16, u16);

/// The methods that are sent or understood.
pub(super) mod method {
    use super::Method;
    pub const CONNECTION_START: Method = (10, 10);
    pub const CONNECTION_START_OK: Method = (10, 11);
    pub const CONNECTION_TUNE: Method = (10, 30);
    pub const CONNECTION_TUNE_OK: Method = (10, 31);
    pub const CONNECTION_OPEN: Method = (10, 40);
    pub const CONNECTION_OPEN_OK: Method = (10, 41);
    pub const CONNECTION_CLOSE: Method = (10, 50);
    pub const CONNECTION_CLOSE_OK: Method = (10, 51);
    pub const CONNECTION_BLOCKED: Method = (10, 60);
    pub const CONNECTION_UNBLOCKED: Method = (10, 61);
    pub const CHANNEL_OPEN: Method = (20, 10);
    pub const CHANNEL_OPEN_OK: Method = (20, 11);
    pub const CHANNEL_FLOW: Method = (20, 20);
    pub const CHANNEL_FLOW_OK: Method = (20, 21);
    pub const CHANNEL_CLOSE: Method = (20, 40);
    pub const CHANNEL_CLOSE_OK: Method = (20, 41);
    pub const EXCHANGE_DECLARE: Method = (40, 10);
    pub const EXCHANGE_DECLARE_OK: Method = (40, 11);
    pub const EXCHANGE_DELETE: Method = (40, 20);
    pub const EXCHANGE_DELETE_OK: Method = (40, 21);
    pub const QUEUE_DECLARE: Method = (50, 10);
    pub const QUEUE_DECLARE_OK: Method = (50, 11);
    pub const QUEUE_BIND: Method = (50, 20);
    pub const QUEUE_BIND_OK: Method = (50, 21);
    pub const QUEUE_PURGE: Method = (50, 30);
    pub const QUEUE_PURGE_OK: Method = (50, 31);
    pub const QUEUE_DELETE: Method = (50, 40);
    pub const QUEUE_DELETE_OK: Method = (50, 41);
    pub const BASIC_QOS: Method = (60, 10);
    pub const BASIC_QOS_OK: Method = (60, 11);
    pub const BASIC_CONSUME: Method = (60, 20);
    pub const BASIC_CONSUME_OK: Method = (60, 21);
    pub const BASIC_CANCEL: Method = (60, 30);
    pub const BASIC_CANCEL_OK: Method = (60, 31);
    pub const BASIC_PUBLISH: Method = (60, 40);
    pub const BASIC_RETURN: Method = (60, 50);
    pub const BASIC_DELIVER: Method = (60, 60);
    pub const BASIC_ACK: Method = (60, 80);
    pub const BASIC_NACK: Method = (60, 120);
    pub const CONFIRM_SELECT: Method = (85, 10);
    pub const CONFIRM_SELECT_OK: Method = (85, 11);
}

/// What a server sent does not follow the protocol; the rest of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

/// A whole frame: where its payload lies in the bytes it was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub kind: u8,
    pub channel: u16,
    /// Begin and end of the payload.
    pub from: usize,
    pub until: usize,
}

/// The frame at the beginning of `input` and its length with everything; None when it is not there whole.
#[inline]
pub(super) fn frame(input: &[u8], payload_bytes_max: usize) -> Result<Option<(Frame, usize)>, Malformed> {
    let Some(head) = input.first_chunk::<FRAME_HEAD_BYTES>() else {
        return Ok(None);
    };
    let payload_bytes = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    if payload_bytes > payload_bytes_max {
        // The version that a server offers when it does not speak ours looks like an absurdly long frame.
        return Err(match head.starts_with(b"AMQP") {
            true => Malformed("it does not speak AMQP 0-9-1"),
            false => Malformed("a frame is longer than was agreed"),
        });
    }
    let bytes = payload_bytes + FRAME_OVERHEAD_BYTES;
    let Some(end) = input.get(bytes - 1) else {
        return Ok(None);
    };
    if *end != FRAME_END {
        return Err(Malformed("a frame does not end with the octet 206"));
    }
    let frame = Frame {
        kind: head[0],
        channel: u16::from_be_bytes([head[1], head[2]]),
        from: FRAME_HEAD_BYTES,
        until: FRAME_HEAD_BYTES + payload_bytes,
    };
    Ok(Some((frame, bytes)))
}

/// Reads fields from a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

const TOO_SHORT: Malformed = Malformed("a frame ends in the middle of a field");

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(TOO_SHORT)?;
        self.rest = rest;
        Ok(*head)
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(TOO_SHORT)?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.take()?))
    }

    #[inline]
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.take()?))
    }

    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    pub fn method(&mut self) -> Result<Method, Malformed> {
        Ok((self.u16()?, self.u16()?))
    }

    pub fn short_string(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u8()?;
        self.bytes(usize::from(length))
    }

    pub fn long_string(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()?;
        self.bytes(length as usize)
    }

    /// A table's fields whose values are strings, in order; others are passed over.
    pub fn table_strings(&mut self) -> Result<Vec<(String, String)>, Malformed> {
        let mut table = Reader::new(self.long_string()?);
        let mut fields = Vec::new();
        while !table.rest.is_empty() {
            let name = String::from_utf8_lossy(table.short_string()?).into_owned();
            if let Some(text) = table.field(0)? {
                fields.push((name, String::from_utf8_lossy(text).into_owned()));
            }
        }
        Ok(fields)
    }

    /// Reads a table; the value of the field of this name, if it is a long integer, as RabbitMQ writes its own numbers.
    pub fn table_number(&mut self, wanted: &str) -> Result<Option<i64>, Malformed> {
        let mut table = Reader::new(self.long_string()?);
        let mut found = None;
        while !table.rest.is_empty() {
            let is_it = table.short_string()? == wanted.as_bytes();
            if is_it && table.rest.first() == Some(&b'l') {
                let mut value = Reader::new(&table.rest[1..]);
                found = Some(value.u64()?.cast_signed());
            }
            table.field(0)?;
        }
        Ok(found)
    }

    /// Reads a field's value; the text of a string.
    fn field(&mut self, depth: u32) -> Result<Option<&'a [u8]>, Malformed> {
        match self.u8()? {
            b'S' | b'x' => return self.long_string().map(Some),
            b't' | b'b' | b'B' => self.bytes(1)?,
            b's' | b'u' => self.bytes(2)?,
            b'I' | b'i' | b'f' => self.bytes(4)?,
            b'D' => self.bytes(5)?,
            b'l' | b'd' | b'T' | b'L' => self.bytes(8)?,
            b'F' | b'A' if depth < 16 => self.long_string()?,
            b'V' => &[],
            _ => return Err(Malformed("a table holds a field of an unknown type")),
        };
        Ok(None)
    }
}

/// Writes fields.
pub(super) trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    /// A string of at most 255 bytes: names are checked before anything is connected.
    fn put_short_string(&mut self, text: &str) {
        let length = u8::try_from(text.len()).expect("names were checked to have at most 255 bytes");
        self.put_u8(length);
        self.put(text.as_bytes());
    }

    fn put_long_string(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("a long string has less than 4 GiB");
        self.put_u32(length);
        self.put(bytes);
    }

    /// A table of strings, whole numbers, booleans and tables of these.
    fn put_table(&mut self, table: &serde_json::Map<String, serde_json::Value>) {
        let mut bytes = Vec::new();
        for (name, value) in table {
            let field = &mut bytes;
            match value {
                serde_json::Value::String(text) => {
                    field.put_short_string(name);
                    field.put_u8(b'S');
                    field.put_long_string(text.as_bytes());
                }
                serde_json::Value::Number(number) => {
                    field.put_short_string(name);
                    field.put_u8(b'l');
                    field.put_u64(number.as_i64().unwrap_or(0).cast_unsigned());
                }
                serde_json::Value::Bool(value) => {
                    field.put_short_string(name);
                    field.put_u8(b't');
                    field.put_u8(u8::from(*value));
                }
                serde_json::Value::Object(inner) => {
                    field.put_short_string(name);
                    field.put_u8(b'F');
                    field.put_table(inner);
                }
                // Neither null nor a list is accepted as an option, so none comes here.
                serde_json::Value::Null | serde_json::Value::Array(_) => {}
            }
        }
        self.put_long_string(&bytes);
    }
}

impl Put for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Appends a method's frame.
pub(super) fn put_method(
    into: &mut Vec<u8>,
    channel: u16,
    method: Method,
    arguments: impl FnOnce(&mut Vec<u8>),
) {
    into.put_u8(kind::METHOD);
    into.put_u16(channel);
    let length_at = into.len();
    into.put_u32(0);
    into.put_u16(method.0);
    into.put_u16(method.1);
    arguments(into);
    let length = (into.len() - length_at - 4) as u32;
    into[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
    into.put_u8(FRAME_END);
}

/// A method's frame.
pub(super) fn method_frame(channel: u16, method: Method, arguments: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_method(&mut bytes, channel, method, arguments);
    bytes
}

/// Appends an acknowledgement of everything on a channel up to `delivery_tag`.
pub(super) fn put_ack(into: &mut Vec<u8>, channel: u16, delivery_tag: u64) {
    put_method(into, channel, method::BASIC_ACK, |arguments| {
        arguments.put_u64(delivery_tag);
        // Bit 0: multiple.
        arguments.put_u8(1);
    });
}

/// What a server says when it closes a channel or the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Closing {
    pub code: u16,
    pub words: String,
}

/// Reads the arguments of channel.close and connection.close.
pub(super) fn read_closing(reader: &mut Reader<'_>) -> Result<Closing, Malformed> {
    let code = reader.u16()?;
    let words = String::from_utf8_lossy(reader.short_string()?).into_owned();
    Ok(Closing { code, words })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_method_is_written_as_the_specification_says() {
        // confirm.select with nowait = 0 on channel 1: class 85, method 10.
        let bytes = method_frame(1, method::CONFIRM_SELECT, |arguments| arguments.put_u8(0));
        assert_eq!(bytes, [1, 0, 1, 0, 0, 0, 5, 0, 85, 0, 10, 0, 0xCE]);
        let (found, length) = frame(&bytes, 4096).unwrap().unwrap();
        assert_eq!(
            (found.kind, found.channel, length),
            (kind::METHOD, 1, bytes.len())
        );
        let mut reader = Reader::new(&bytes[found.from..found.until]);
        assert_eq!(reader.method().unwrap(), method::CONFIRM_SELECT);
    }

    #[test]
    fn an_acknowledgement_is_written_as_the_specification_says() {
        let mut bytes = Vec::new();
        put_ack(&mut bytes, 3, 258);
        assert_eq!(
            bytes,
            [
                1, 0, 3, 0, 0, 0, 13, 0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 1, 2, 1, 0xCE
            ]
        );
    }

    #[test]
    fn a_frame_in_pieces_is_waited_for_and_a_wrong_one_is_refused() {
        let bytes = method_frame(1, method::CHANNEL_OPEN, |arguments| {
            arguments.put_short_string("")
        });
        for length in 0..bytes.len() {
            assert_eq!(frame(&bytes[..length], 4096), Ok(None));
        }
        assert!(frame(&bytes, 4).is_err(), "longer than agreed");
        assert_eq!(
            frame(b"AMQP\x00\x01\x00\x00", 4096),
            Err(Malformed("it does not speak AMQP 0-9-1"))
        );
        let mut wrong = bytes;
        *wrong.last_mut().unwrap() = 0;
        assert!(frame(&wrong, 4096).is_err());
    }

    #[test]
    fn tables_are_read_as_written() {
        let table = serde_json::json!({"x-queue-type": "quorum", "n": 3, "yes": true, "inner": {"a": "b"}});
        let mut bytes = Vec::new();
        bytes.put_table(table.as_object().unwrap());
        let strings = Reader::new(&bytes).table_strings().unwrap();
        assert_eq!(strings, [("x-queue-type".to_owned(), "quorum".to_owned())]);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = frame(&bytes, 4096);
            let _ = Reader::new(&bytes).table_strings();
            let _ = read_closing(&mut Reader::new(&bytes));
        }
    }
}
