//! What clients write, read by a parser of the world's own.

/// What a client says.
#[derive(Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    Connect,
    Ping,
    Pong,
    Subscribe {
        subject: &'a str,
        sid: u64,
    },
    Unsubscribe(u64),
    Publish {
        subject: &'a str,
        reply: &'a str,
        headers: &'a [u8],
        body: &'a [u8],
    },
}

/// The first operation and its length; None while it is not there whole.
///
/// # Errors
/// What is wrong with it.
pub fn operation(bytes: &[u8]) -> Result<Option<(Operation<'_>, usize)>, String> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let line = std::str::from_utf8(&bytes[..end]).map_err(|_| "a line is no text".to_owned())?;
    let mut words = line.split(' ');
    let verb = words.next().unwrap_or_default();
    let wrong = || format!("a client says {line:?}");
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let number = |word: &str| word.parse::<usize>().map_err(|_| wrong());
    let operation = match (verb, words.as_slice()) {
        ("CONNECT", _) => Operation::Connect,
        ("PING", []) => Operation::Ping,
        ("PONG", []) => Operation::Pong,
        ("SUB", [subject, sid]) => Operation::Subscribe {
            subject,
            sid: number(sid)? as u64,
        },
        ("UNSUB", [sid]) => Operation::Unsubscribe(number(sid)? as u64),
        ("PUB" | "HPUB", _) => {
            let (names, header_bytes, total) = match (verb, words.as_slice()) {
                ("PUB", [names @ .., total]) => (names, 0, number(total)?),
                ("HPUB", [names @ .., headers, total]) => (names, number(headers)?, number(total)?),
                _ => return Err(wrong()),
            };
            let (subject, reply) = match names {
                [subject] => (*subject, ""),
                [subject, reply] => (*subject, *reply),
                _ => return Err(wrong()),
            };
            let from = end + 2;
            let Some(rest) = bytes.get(from..from + total + 2) else {
                return Ok(None);
            };
            if header_bytes > total || &rest[total..] != b"\r\n" {
                return Err(format!("a message has another length than {line:?} says"));
            }
            let publish = Operation::Publish {
                subject,
                reply,
                headers: &rest[..header_bytes],
                body: &rest[header_bytes..total],
            };
            return Ok(Some((publish, from + total + 2)));
        }
        _ => return Err(wrong()),
    };
    Ok(Some((operation, end + 2)))
}

/// A header's value.
pub fn header<'a>(headers: &'a [u8], name: &str) -> Option<&'a str> {
    std::str::from_utf8(headers)
        .ok()?
        .split("\r\n")
        .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}
