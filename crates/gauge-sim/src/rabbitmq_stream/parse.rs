//! Frames of RabbitMQ's stream protocol: what clients write, read by a parser of the world's own, and what nodes say.

use crate::truth::Message;

/// Bit of the key of an answer.
pub const ANSWER: u16 = 0x8000;
/// The largest frame that is agreed on.
pub const FRAME_BYTES_MAX: u32 = 1 << 20;

/// Keys of commands.
pub mod key {
    pub const DECLARE_PUBLISHER: u16 = 1;
    pub const PUBLISH_CONFIRM: u16 = 3;
    pub const PUBLISH_ERROR: u16 = 4;
    pub const SUBSCRIBE: u16 = 7;
    pub const DELIVER: u16 = 8;
    pub const CREDIT: u16 = 9;
    pub const UNSUBSCRIBE: u16 = 12;
    pub const METADATA: u16 = 15;
    pub const METADATA_UPDATE: u16 = 16;
    pub const PEER_PROPERTIES: u16 = 17;
    pub const SASL_HANDSHAKE: u16 = 18;
    pub const SASL_AUTHENTICATE: u16 = 19;
    pub const TUNE: u16 = 20;
    pub const OPEN: u16 = 21;
    pub const CLOSE: u16 = 22;
    pub const HEARTBEAT: u16 = 23;
}

/// Response codes.
pub mod code {
    pub const OK: u16 = 1;
    pub const NO_SUBSCRIPTION: u16 = 4;
    pub const NOT_AVAILABLE: u16 = 6;
    pub const INTERNAL: u16 = 15;
    pub const NO_PUBLISHER: u16 = 18;
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    First,
    Last,
    Next,
    At(u64),
}

/// A message that is published: its number, and all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub number: u64,
    pub message: Option<Message>,
    pub bytes: Vec<u8>,
}

/// What a client says.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    PeerProperties(u32),
    Handshake(u32),
    Authenticate(u32),
    Tune {
        heartbeat_s: u32,
    },
    Open(u32),
    Close(u32),
    Heartbeat,
    Metadata {
        correlation: u32,
        streams: Vec<String>,
    },
    DeclarePublisher {
        correlation: u32,
        publisher: u8,
        name: String,
        stream: String,
    },
    Publish {
        publisher: u8,
        messages: Vec<Published>,
    },
    Subscribe {
        correlation: u32,
        number: u8,
        stream: String,
        begin: Begin,
        credits: u16,
    },
    Credit {
        number: u8,
        credits: u16,
    },
    Unsubscribe {
        correlation: u32,
        number: u8,
    },
    StoreOffset,
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (head, rest) = self
            .0
            .split_at_checked(count)
            .ok_or("a client writes a command that is too short")?;
        self.0 = rest;
        Ok(head)
    }

    fn number(&mut self, bytes: usize) -> Result<u64, String> {
        let bytes = self.bytes(bytes)?;
        Ok(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn octet(&mut self) -> Result<u8, String> {
        Ok(self.number(1)? as u8)
    }

    fn short(&mut self) -> Result<u16, String> {
        Ok(self.number(2)? as u16)
    }

    fn long(&mut self) -> Result<u32, String> {
        Ok(self.number(4)? as u32)
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.short()? as usize;
        let bytes = self.bytes(length)?.to_vec();
        String::from_utf8(bytes).map_err(|_| "a name is no text".to_owned())
    }
}

/// Where the body of a message lies: it is an AMQP 1.0 message with nothing but a data section.
pub fn body(message: &[u8]) -> Result<usize, String> {
    let from = match message {
        [0x00, 0x53, 0x75, 0xA0, length, rest @ ..] if usize::from(*length) == rest.len() => 5,
        [0x00, 0x53, 0x75, 0xB0, a, b, c, d, rest @ ..]
            if u32::from_be_bytes([*a, *b, *c, *d]) as usize == rest.len() =>
        {
            8
        }
        _ => return Err("a message is no data section".to_owned()),
    };
    Ok(from)
}

/// The first command and its length; None while it is not there whole.
///
/// # Errors
/// What is wrong with it.
pub fn command(bytes: &[u8]) -> Result<Option<(Command, usize)>, String> {
    let Some(head) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*head);
    if !(4..=FRAME_BYTES_MAX).contains(&length) {
        return Err(format!("a client writes a frame of {length} bytes"));
    }
    let Some(frame) = bytes.get(4..4 + length as usize) else {
        return Ok(None);
    };
    let mut fields = Fields(frame);
    let (key, version) = (fields.short()?, fields.short()?);
    if version != 1 {
        return Err(format!("a client speaks version {version} of command {key}"));
    }
    let command = read(key, &mut fields)?;
    match fields.0 {
        [] => Ok(Some((command, 4 + length as usize))),
        _ => Err(format!("{command:?} is longer than it has to be")),
    }
}

fn read(key: u16, fields: &mut Fields<'_>) -> Result<Command, String> {
    Ok(match key {
        key::PEER_PROPERTIES => {
            let correlation = fields.long()?;
            for _ in 0..2 * fields.long()? {
                fields.text()?;
            }
            Command::PeerProperties(correlation)
        }
        key::SASL_HANDSHAKE => Command::Handshake(fields.long()?),
        key::SASL_AUTHENTICATE => {
            let correlation = fields.long()?;
            fields.text()?;
            let length = fields.long()? as usize;
            fields.bytes(length)?;
            Command::Authenticate(correlation)
        }
        _ if key == key::TUNE | ANSWER => {
            fields.long()?;
            Command::Tune {
                heartbeat_s: fields.long()?,
            }
        }
        key::OPEN => {
            let correlation = fields.long()?;
            fields.text()?;
            Command::Open(correlation)
        }
        key::CLOSE => {
            let correlation = fields.long()?;
            fields.short()?;
            fields.text()?;
            Command::Close(correlation)
        }
        key::HEARTBEAT => Command::Heartbeat,
        key::METADATA => {
            let (correlation, count) = (fields.long()?, fields.long()?);
            let streams = (0..count).map(|_| fields.text()).collect::<Result<_, _>>()?;
            Command::Metadata { correlation, streams }
        }
        key::DECLARE_PUBLISHER => Command::DeclarePublisher {
            correlation: fields.long()?,
            publisher: fields.octet()?,
            name: fields.text()?,
            stream: fields.text()?,
        },
        2 => {
            let (publisher, count) = (fields.octet()?, fields.long()?);
            let mut messages = Vec::new();
            for _ in 0..count {
                let (number, length) = (fields.number(8)?, fields.long()? as usize);
                let bytes = fields.bytes(length)?.to_vec();
                let message = Message::read(&bytes[body(&bytes)?..])?;
                messages.push(Published {
                    number,
                    message,
                    bytes,
                });
            }
            Command::Publish { publisher, messages }
        }
        key::SUBSCRIBE => {
            let (correlation, number, stream) = (fields.long()?, fields.octet()?, fields.text()?);
            let begin = match fields.short()? {
                1 => Begin::First,
                2 => Begin::Last,
                3 => Begin::Next,
                4 => Begin::At(fields.number(8)?),
                other => return Err(format!("a subscription begins at {other}")),
            };
            Command::Subscribe {
                correlation,
                number,
                stream,
                begin,
                credits: fields.short()?,
            }
        }
        key::CREDIT => Command::Credit {
            number: fields.octet()?,
            credits: fields.short()?,
        },
        key::UNSUBSCRIBE => Command::Unsubscribe {
            correlation: fields.long()?,
            number: fields.octet()?,
        },
        10 => {
            fields.text()?;
            fields.text()?;
            fields.number(8)?;
            Command::StoreOffset
        }
        _ => return Err(format!("no client has to say command {key}")),
    })
}

/// A command or an answer that a node says.
#[derive(Debug)]
pub struct Said(Vec<u8>);

impl Said {
    pub fn new(key: u16) -> Said {
        Said(Vec::new()).long(0).short(key).short(1)
    }

    /// An answer to the question of that number.
    pub fn answer(key: u16, correlation: u32, code: u16) -> Said {
        Said::new(key | ANSWER).long(correlation).short(code)
    }

    pub fn octet(mut self, value: u8) -> Said {
        self.0.push(value);
        self
    }

    pub fn short(mut self, value: u16) -> Said {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn long(mut self, value: u32) -> Said {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn number(mut self, value: u64) -> Said {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn text(self, text: &str) -> Said {
        let mut all = self.short(text.len() as u16);
        all.0.extend_from_slice(text.as_bytes());
        all
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Said {
        self.0.extend_from_slice(bytes);
        self
    }

    /// The frame.
    pub fn frame(mut self) -> Vec<u8> {
        let length = self.0.len() as u32 - 4;
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// A chunk as streams store it. `extra`: bytes of a filter behind the header (RabbitMQ 3.13).
pub fn chunk(first_offset: u64, messages: &[Vec<u8>], crc: u32, extra: u8) -> Vec<u8> {
    let data = data(messages);
    let count = messages.len();
    let head = Said(Vec::new())
        .octet(0x50)
        .octet(0)
        .short(count as u16)
        .long(count as u32)
        // Time and epoch.
        .number(0)
        .number(1)
        .number(first_offset)
        .long(crc)
        .long(data.len() as u32)
        .long(0)
        .long(u32::from(extra) << 24)
        .bytes(&vec![0xAA; usize::from(extra)])
        .bytes(&data);
    head.0
}

/// The entries of a chunk.
pub fn data(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
        bytes.extend_from_slice(message);
    }
    bytes
}

/// The checksum of a chunk's entries: CRC-32 of IEEE 802.3.
pub fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}
