//! Frames of AMQP 0-9-1: what clients write, read by a parser of the world's own, and what nodes say.

/// Octet that ends every frame.
const END: u8 = 0xCE;
/// Type, channel and length of a frame.
const HEAD_BYTES: usize = 7;
const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
/// What a client says first.
const PROTOCOL: &[u8] = b"AMQP\x00\x00\x09\x01";
/// No client here has a longer frame to write.
const FRAME_BYTES_MAX: usize = 128 << 10;

/// Class and method of what nodes say.
pub mod said {
    pub const START: (u16, u16) = (10, 10);
    pub const TUNE: (u16, u16) = (10, 30);
    pub const OPEN_OK: (u16, u16) = (10, 41);
    pub const CLOSE: (u16, u16) = (10, 50);
    pub const CLOSE_OK: (u16, u16) = (10, 51);
    pub const BLOCKED: (u16, u16) = (10, 60);
    pub const UNBLOCKED: (u16, u16) = (10, 61);
    pub const CHANNEL_OPEN_OK: (u16, u16) = (20, 11);
    pub const CHANNEL_CLOSE: (u16, u16) = (20, 40);
    pub const CHANNEL_CLOSE_OK: (u16, u16) = (20, 41);
    pub const DECLARE_OK: (u16, u16) = (50, 11);
    pub const BIND_OK: (u16, u16) = (50, 21);
    pub const PURGE_OK: (u16, u16) = (50, 31);
    pub const QOS_OK: (u16, u16) = (60, 11);
    pub const CONSUME_OK: (u16, u16) = (60, 21);
    pub const CANCEL: (u16, u16) = (60, 30);
    pub const CANCEL_OK: (u16, u16) = (60, 31);
    pub const RETURN: (u16, u16) = (60, 50);
    pub const DELIVER: (u16, u16) = (60, 60);
    pub const ACK: (u16, u16) = (60, 80);
    pub const NACK: (u16, u16) = (60, 120);
    pub const SELECT_OK: (u16, u16) = (85, 11);
}

/// What a client says.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Protocol,
    Heartbeat,
    StartOk,
    TuneOk {
        heartbeat_s: u16,
    },
    Open,
    Close,
    ChannelOpen,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    Qos {
        prefetch: u16,
    },
    Declare {
        queue: String,
        is_passive: bool,
    },
    Bind {
        queue: String,
        exchange: String,
        key: String,
    },
    Purge {
        queue: String,
    },
    Consume {
        queue: String,
        tag: String,
        is_automatic: bool,
    },
    Cancel {
        tag: String,
    },
    Ack {
        tag: u64,
        is_multiple: bool,
    },
    Publish {
        exchange: String,
        key: String,
        is_mandatory: bool,
        body: Vec<u8>,
    },
}

/// Fields, one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (head, rest) = self
            .0
            .split_at_checked(count)
            .ok_or("a client writes a method that is too short")?;
        self.0 = rest;
        Ok(head)
    }

    fn number(&mut self, bytes: usize) -> Result<u64, String> {
        let bytes = self.bytes(bytes)?;
        Ok(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn short(&mut self) -> Result<u16, String> {
        Ok(self.number(2)? as u16)
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.number(1)? as usize;
        let bytes = self.bytes(length)?.to_vec();
        String::from_utf8(bytes).map_err(|_| "a name is no text".to_owned())
    }

    /// A name behind a reserved number.
    fn name(&mut self) -> Result<String, String> {
        self.short()?;
        self.text()
    }
}

/// A frame: type, channel, payload, and length of all of it.
type Frame<'a> = (u8, u16, &'a [u8], usize);

fn frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, String> {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let payload = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    if payload + HEAD_BYTES + 1 > FRAME_BYTES_MAX {
        return Err(format!("a client writes a frame of {payload} bytes"));
    }
    let Some(end) = bytes.get(HEAD_BYTES + payload) else {
        return Ok(None);
    };
    if *end != END {
        return Err("a client writes a frame without its end".to_owned());
    }
    let channel = u16::from_be_bytes([head[1], head[2]]);
    let payload = &bytes[HEAD_BYTES..HEAD_BYTES + payload];
    Ok(Some((head[0], channel, payload, payload.len() + HEAD_BYTES + 1)))
}

/// The first command with its channel, and its length; None while it is not there whole. A message is one with its content.
///
/// # Errors
/// What is wrong with it.
pub fn command(bytes: &[u8]) -> Result<Option<(u16, Command, usize)>, String> {
    if bytes.starts_with(b"A") {
        return match bytes.get(..PROTOCOL.len()) {
            None => Ok(None),
            Some(PROTOCOL) => Ok(Some((0, Command::Protocol, PROTOCOL.len()))),
            Some(other) => Err(format!("a client speaks {other:?}")),
        };
    }
    let Some((kind, channel, payload, length)) = frame(bytes)? else {
        return Ok(None);
    };
    match kind {
        HEARTBEAT if channel == 0 && payload.is_empty() => Ok(Some((0, Command::Heartbeat, length))),
        METHOD => {
            let mut fields = Fields(payload);
            let method = (fields.short()?, fields.short()?);
            if (channel == 0) != (method.0 == 10) {
                return Err(format!("a client writes {method:?} on channel {channel}"));
            }
            if method == (60, 40) {
                return publish(fields, channel, &bytes[length..], length);
            }
            Ok(Some((channel, read(method, fields)?, length)))
        }
        _ => Err(format!(
            "a client writes a frame of type {kind} where a method begins"
        )),
    }
}

fn read(method: (u16, u16), mut fields: Fields<'_>) -> Result<Command, String> {
    Ok(match method {
        (10, 11) => Command::StartOk,
        (10, 31) => {
            fields.bytes(6)?;
            Command::TuneOk {
                heartbeat_s: fields.short()?,
            }
        }
        (10, 40) => Command::Open,
        (10, 50) => Command::Close,
        (20, 10) => Command::ChannelOpen,
        (20, 40) => Command::ChannelClose,
        (20, 41) => Command::ChannelCloseOk,
        (85, 10) => Command::ConfirmSelect,
        (60, 10) => {
            fields.bytes(4)?;
            Command::Qos {
                prefetch: fields.short()?,
            }
        }
        (50, 10) => Command::Declare {
            queue: fields.name()?,
            is_passive: fields.number(1)? & 1 == 1,
        },
        (50, 20) => Command::Bind {
            queue: fields.name()?,
            exchange: fields.text()?,
            key: fields.text()?,
        },
        (50, 30) => Command::Purge {
            queue: fields.name()?,
        },
        (60, 20) => Command::Consume {
            queue: fields.name()?,
            tag: fields.text()?,
            is_automatic: fields.number(1)? & 2 == 2,
        },
        (60, 30) => Command::Cancel { tag: fields.text()? },
        (60, 80) => Command::Ack {
            tag: fields.number(8)?,
            is_multiple: fields.number(1)? & 1 == 1,
        },
        _ => return Err(format!("no client has to say {method:?}")),
    })
}

fn publish(
    mut fields: Fields<'_>,
    channel: u16,
    mut rest: &[u8],
    mut length: usize,
) -> Result<Option<(u16, Command, usize)>, String> {
    let (exchange, key) = (fields.name()?, fields.text()?);
    let is_mandatory = fields.number(1)? & 1 == 1;
    let mut take = |wanted: u8| -> Result<Option<&[u8]>, String> {
        match frame(rest)? {
            None => Ok(None),
            Some((kind, on, payload, bytes)) if kind == wanted && on == channel => {
                rest = &rest[bytes..];
                length += bytes;
                Ok(Some(payload))
            }
            Some(_) => Err("a message's content is interrupted".to_owned()),
        }
    };
    let Some(header) = take(HEADER)? else {
        return Ok(None);
    };
    let mut header = Fields(header);
    header.bytes(4)?;
    let size = header.number(8)? as usize;
    let mut body = Vec::with_capacity(size);
    while body.len() < size {
        let Some(part) = take(BODY)? else {
            return Ok(None);
        };
        body.extend_from_slice(part);
    }
    if body.len() > size {
        return Err("a message is longer than its header says".to_owned());
    }
    let command = Command::Publish {
        exchange,
        key,
        is_mandatory,
        body,
    };
    Ok(Some((channel, command, length)))
}

/// Arguments of a method.
#[derive(Debug, Default)]
pub struct Arguments(Vec<u8>);

impl Arguments {
    pub fn octet(mut self, value: u8) -> Arguments {
        self.0.push(value);
        self
    }

    pub fn short(mut self, value: u16) -> Arguments {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn long(mut self, value: u32) -> Arguments {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn number(mut self, value: u64) -> Arguments {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn text(mut self, text: &str) -> Arguments {
        self.0.push(text.len() as u8);
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    pub fn long_text(self, text: &[u8]) -> Arguments {
        let mut all = self.long(text.len() as u32);
        all.0.extend_from_slice(text);
        all
    }
}

fn put(into: &mut Vec<u8>, kind: u8, channel: u16, payload: &[u8]) {
    into.push(kind);
    into.extend_from_slice(&channel.to_be_bytes());
    into.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    into.extend_from_slice(payload);
    into.push(END);
}

/// A method's frame.
pub fn method(channel: u16, method: (u16, u16), arguments: Arguments) -> Vec<u8> {
    let mut payload = [method.0.to_be_bytes(), method.1.to_be_bytes()].concat();
    payload.extend_from_slice(&arguments.0);
    let mut bytes = Vec::new();
    put(&mut bytes, METHOD, channel, &payload);
    bytes
}

/// A method that brings a message, in bodies of at most so many bytes.
pub fn content(
    channel: u16,
    name: (u16, u16),
    arguments: Arguments,
    body: &[u8],
    body_bytes: usize,
) -> Vec<u8> {
    let mut bytes = method(channel, name, arguments);
    // Class and weight, size, flags of the properties: a delivery mode.
    let header = Arguments::default()
        .short(60)
        .short(0)
        .number(body.len() as u64)
        .short(1 << 12)
        .octet(2);
    put(&mut bytes, HEADER, channel, &header.0);
    for part in body.chunks(body_bytes) {
        put(&mut bytes, BODY, channel, part);
    }
    bytes
}

/// A heartbeat.
pub fn heartbeat() -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, HEARTBEAT, 0, b"");
    bytes
}
