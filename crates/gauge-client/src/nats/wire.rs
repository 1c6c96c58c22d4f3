//! The NATS client protocol: lines of text with counted payloads, parsed where they were read.
//!
//! Source: "NATS Client Protocol" and "JetStream wire API reference" of the NATS documentation; headers as in ADR-4, the subject of a
//! delivery's acknowledgement as in ADR-15.

use memchr::memchr;

/// A control line longer than this is not believed; INFO lists a cluster's addresses and is the longest.
const LINE_BYTES_MAX: usize = 64 << 10;
/// A payload longer than this is not believed: the server's own limit of `max_payload` is 64 MiB.
const PAYLOAD_BYTES_MAX: usize = 65 << 20;
/// First line of a header block.
const HEADER_VERSION: &[u8] = b"NATS/1.0";

/// Something that is not of the protocol: what was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub &'static str);

/// A message that the server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    /// Where it was published.
    pub subject: &'a [u8],
    /// The subscription it comes through.
    pub sid: u64,
    /// Where an answer goes; empty without one.
    pub reply: &'a [u8],
    /// The header block; empty without one.
    pub headers: &'a [u8],
    /// The body.
    pub payload: &'a [u8],
}

/// What the server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    /// Its description, as JSON.
    Info(&'a [u8]),
    /// A message.
    Message(Message<'a>),
    /// Asks whether we are there.
    Ping,
    /// Answers our question.
    Pong,
    /// Agrees, in verbose mode.
    Ok,
    /// An error, without the quotes.
    Error(&'a [u8]),
}

/// The next operation and its length; None when it is not there whole.
#[inline]
pub(crate) fn parse(input: &[u8]) -> Result<Option<(Operation<'_>, usize)>, Malformed> {
    let Some(newline) = memchr(b'\n', input) else {
        if input.len() > LINE_BYTES_MAX {
            return Err(Malformed("a line is longer than 64 KiB"));
        }
        return Ok(None);
    };
    let body_from = newline + 1;
    let Some(line) = input[..newline].strip_suffix(b"\r") else {
        return Err(Malformed("a line does not end with CR LF"));
    };
    if let Some(rest) = line.strip_prefix(b"MSG ") {
        return message(input, rest, body_from, false);
    }
    if let Some(rest) = line.strip_prefix(b"HMSG ") {
        return message(input, rest, body_from, true);
    }
    let operation = if let Some(rest) = line.strip_prefix(b"INFO ") {
        Operation::Info(rest.trim_ascii())
    } else if let Some(rest) = line.strip_prefix(b"-ERR") {
        Operation::Error(trim_quotes(rest))
    } else {
        match line {
            b"PING" => Operation::Ping,
            b"PONG" => Operation::Pong,
            b"+OK" => Operation::Ok,
            _ => return Err(Malformed("a line begins with no known operation")),
        }
    };
    Ok(Some((operation, body_from)))
}

fn trim_quotes(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    let text = text.strip_prefix(b"'").unwrap_or(text);
    text.strip_suffix(b"'").unwrap_or(text)
}

/// `subject sid [reply] [header bytes] total bytes`, then the bytes and CR LF.
#[inline]
fn message<'a>(
    input: &'a [u8],
    line: &'a [u8],
    body_from: usize,
    has_headers: bool,
) -> Result<Option<(Operation<'a>, usize)>, Malformed> {
    let mut fields = [&[][..]; 5];
    let mut count = 0;
    let mut rest = line;
    while !rest.is_empty() {
        if count == fields.len() {
            return Err(Malformed("a message has too many fields"));
        }
        let (field, after) = match memchr(b' ', rest) {
            Some(space) => (&rest[..space], &rest[space + 1..]),
            None => (rest, &[][..]),
        };
        rest = after;
        if !field.is_empty() {
            fields[count] = field;
            count += 1;
        }
    }
    let lengths = if has_headers { 2 } else { 1 };
    let reply = match count.checked_sub(lengths) {
        Some(2) => &[][..],
        Some(3) => fields[2],
        _ => return Err(Malformed("a message has the wrong number of fields")),
    };
    let length = |field: &[u8]| -> Result<usize, Malformed> {
        match decimal(field) {
            Some(length) if length <= PAYLOAD_BYTES_MAX as u64 => Ok(length as usize),
            _ => Err(Malformed("a message's length is no number, or above 65 MiB")),
        }
    };
    let total_bytes = length(fields[count - 1])?;
    let header_bytes = if has_headers {
        length(fields[count - 2])?
    } else {
        0
    };
    if header_bytes > total_bytes {
        return Err(Malformed("a message's headers are longer than the message"));
    }
    let Some(sid) = decimal(fields[1]) else {
        return Err(Malformed("a subscription is no number"));
    };
    let body_end = body_from + total_bytes;
    let Some(end) = input.get(body_end..body_end + 2) else {
        return Ok(None);
    };
    if end != b"\r\n" {
        return Err(Malformed("a message does not end with CR LF"));
    }
    let message = Message {
        subject: fields[0],
        sid,
        reply,
        headers: &input[body_from..body_from + header_bytes],
        payload: &input[body_from + header_bytes..body_end],
    };
    Ok(Some((Operation::Message(message), body_end + 2)))
}

/// The number that these digits are; None when they are none, or too many.
#[inline]
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    let mut number = 0u64;
    for digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        number = number * 10 + u64::from(value);
    }
    Some(number)
}

/// Appends a number's digits.
#[inline]
pub(crate) fn put_decimal(into: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[at..]);
}

/// Appends a whole PUB.
pub(crate) fn put_publish(into: &mut Vec<u8>, subject: &[u8], reply: &[u8], payload: &[u8]) {
    into.extend_from_slice(b"PUB ");
    into.extend_from_slice(subject);
    into.push(b' ');
    if !reply.is_empty() {
        into.extend_from_slice(reply);
        into.push(b' ');
    }
    put_decimal(into, payload.len() as u64);
    into.extend_from_slice(b"\r\n");
    into.extend_from_slice(payload);
    into.extend_from_slice(b"\r\n");
}

/// Status code of a header block without a message: 404, 408, 409, 503, ...; None for ordinary headers.
pub(crate) fn status(headers: &[u8]) -> Option<u64> {
    let rest = headers.strip_prefix(HEADER_VERSION)?.strip_prefix(b" ")?;
    decimal(rest.get(..3)?)
}

/// A header's value; None when it is not there.
pub(crate) fn header<'a>(headers: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    headers.split(|byte| *byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(b":")?;
        Some(value.trim_ascii())
    })
}

/// The words behind a status code.
pub(crate) fn status_words(headers: &[u8]) -> &[u8] {
    let line = headers.split(|byte| *byte == b'\r').next().unwrap_or_default();
    line.get(HEADER_VERSION.len()..).unwrap_or_default().trim_ascii()
}

/// What a delivery's reply subject tells of the message (ADR-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// How often it was delivered, this time included.
    pub deliveries: u64,
    /// Its number in the stream.
    pub stream_sequence: u64,
    /// The number of this delivery in the consumer; they follow each other without a gap.
    pub consumer_sequence: u64,
    /// Messages that the consumer still has to deliver after this one.
    pub pending: u64,
}

/// Reads a delivery's reply subject: `$JS.ACK.<stream>.<consumer>.` or `$JS.ACK.<domain>.<account>.<stream>.<consumer>.`, then
/// `<deliveries>.<stream sequence>.<consumer sequence>.<time>.<pending>`, and in the second form maybe one more token.
#[inline]
pub(crate) fn delivery(reply: &[u8]) -> Option<Delivery> {
    let rest = reply.strip_prefix(b"$JS.ACK.")?;
    let tokens = memchr::memchr_iter(b'.', rest).count() + 1;
    let skipped = match tokens {
        7 => 2,
        9 | 10 => 4,
        _ => return None,
    };
    let mut numbers = rest.split(|byte| *byte == b'.').skip(skipped);
    let mut number = || decimal(numbers.next()?);
    let (deliveries, stream_sequence, consumer_sequence) = (number()?, number()?, number()?);
    let _time = number()?;
    Some(Delivery {
        deliveries,
        stream_sequence,
        consumer_sequence,
        pending: number()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(input: &[u8]) -> Operation<'_> {
        let (operation, length) = parse(input).expect("it is of the protocol").expect("it is whole");
        assert_eq!(length, input.len());
        operation
    }

    #[test]
    fn operations_are_read_as_a_server_sends_them() {
        assert_eq!(whole(b"PING\r\n"), Operation::Ping);
        assert_eq!(whole(b"PONG\r\n"), Operation::Pong);
        assert_eq!(whole(b"+OK\r\n"), Operation::Ok);
        assert_eq!(
            whole(b"-ERR 'Authorization Violation'\r\n"),
            Operation::Error(b"Authorization Violation")
        );
        assert_eq!(whole(b"INFO {\"a\":1} \r\n"), Operation::Info(b"{\"a\":1}"));
        let acknowledgement = b"MSG _INBOX.a.2 1 24\r\n{\"stream\":\"t-0\",\"seq\":1}\r\n";
        assert_eq!(
            whole(acknowledgement),
            Operation::Message(Message {
                subject: b"_INBOX.a.2",
                sid: 1,
                reply: b"",
                headers: b"",
                payload: b"{\"stream\":\"t-0\",\"seq\":1}",
            })
        );
        let timeout = b"HMSG _INBOX.m.1 7 81 81\r\nNATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 9\r\nNats-Pending-Bytes: 0\r\n\r\n\r\n";
        let Operation::Message(message) = whole(timeout) else {
            panic!("it is a message");
        };
        assert_eq!((message.sid, message.payload), (7, &b""[..]));
        assert_eq!(status(message.headers), Some(408));
        assert_eq!(status_words(message.headers), b"408 Request Timeout");
        assert_eq!(header(message.headers, b"Nats-Pending-Messages"), Some(&b"9"[..]));
        assert_eq!(header(message.headers, b"Nats-Pending"), None);
        let with_both = b"HMSG a.b 2 c.d 12 15\r\nNATS/1.0\r\n\r\nabc\r\n";
        let Operation::Message(message) = whole(with_both) else {
            panic!("it is a message");
        };
        assert_eq!((message.reply, message.payload), (&b"c.d"[..], &b"abc"[..]));
        assert_eq!(status(message.headers), None);
    }

    #[test]
    fn a_part_of_an_operation_is_waited_for() {
        let whole = b"HMSG a.b 2 c.d 12 15\r\nNATS/1.0\r\n\r\nabc\r\n";
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), Ok(None), "{length} bytes");
        }
    }

    #[test]
    fn what_is_not_of_the_protocol_is_refused() {
        for wrong in [
            &b"HELLO\r\n"[..],
            b"PING\n",
            b"MSG a 1\r\n",
            b"MSG a 1 b c 5\r\nhello\r\n",
            b"MSG a x 5\r\nhello\r\n",
            b"MSG a 1 -5\r\n",
            b"MSG a 1 99999999999\r\n",
            b"HMSG a 1 9 5\r\nhello\r\n",
            b"MSG a 1 5\r\nhelloXX",
        ] {
            assert!(parse(wrong).is_err(), "{}", wrong.escape_ascii());
        }
        assert!(parse(&vec![b'x'; LINE_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn both_forms_of_a_deliverys_subject_are_read() {
        let expected = Some(Delivery {
            deliveries: 1,
            stream_sequence: 23,
            consumer_sequence: 45,
            pending: 6,
        });
        assert_eq!(
            delivery(b"$JS.ACK.t-0.c1.1.23.45.1795276301153953858.6"),
            expected
        );
        assert_eq!(delivery(b"$JS.ACK._.hash.t-0.c1.1.23.45.179527.6"), expected);
        assert_eq!(delivery(b"$JS.ACK._.hash.t-0.c1.1.23.45.179527.6.x7"), expected);
        assert_eq!(delivery(b"$JS.ACK.t-0.c1.1.23.45.6"), None);
        assert_eq!(delivery(b"$JS.ACK.t-0.c1.a.23.45.7.6"), None);
        assert_eq!(delivery(b"_INBOX.a.1"), None);
    }

    #[test]
    fn a_publication_is_written_with_and_without_a_reply() {
        let mut bytes = Vec::new();
        put_publish(&mut bytes, b"a.b", b"r.1", b"hello");
        put_publish(&mut bytes, b"a.b", b"", b"");
        assert_eq!(bytes, b"PUB a.b r.1 5\r\nhello\r\nPUB a.b 0\r\n\r\n");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(input in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&input);
            let _ = delivery(&input);
            let _ = status(&input);
            let _ = header(&input, b"a");
            let _ = status_words(&input);
        }

        #[test]
        fn nearly_right_messages_never_panic(line in "H?MSG [a-z. 0-9]{0,30}", rest in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut input = line.into_bytes();
            input.extend_from_slice(b"\r\n");
            input.extend_from_slice(&rest);
            let _ = parse(&input);
        }

        #[test]
        fn numbers_are_read_as_written(number in 0u64..10_000_000_000_000_000_000) {
            let mut digits = Vec::new();
            put_decimal(&mut digits, number);
            prop_assert_eq!(decimal(&digits), Some(number));
        }
    }
}
