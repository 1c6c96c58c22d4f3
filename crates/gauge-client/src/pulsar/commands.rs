//! Pulsar's commands: those that the client writes, and those that it reads.
//!
//! Source: "Pulsar binary protocol specification" of Pulsar's documentation, and the field numbers of its `PulsarApi.proto`. A frame is a
//! length, a command with its own length, and for messages the payload behind it (module `message`).

use super::wire::{Fields, Malformed, Put};
use crate::security::Auth;

/// Numbers of the commands; a command's body is the field of the same number.
mod kind {
    pub const CONNECT: u32 = 2;
    pub const CONNECTED: u32 = 3;
    pub const SUBSCRIBE: u32 = 4;
    pub const PRODUCER: u32 = 5;
    pub const SEND: u32 = 6;
    pub const SEND_RECEIPT: u32 = 7;
    pub const SEND_ERROR: u32 = 8;
    pub const MESSAGE: u32 = 9;
    pub const ACK: u32 = 10;
    pub const FLOW: u32 = 11;
    pub const SUCCESS: u32 = 13;
    pub const ERROR: u32 = 14;
    pub const CLOSE_PRODUCER: u32 = 15;
    pub const CLOSE_CONSUMER: u32 = 16;
    pub const PRODUCER_SUCCESS: u32 = 17;
    pub const PING: u32 = 18;
    pub const PONG: u32 = 19;
    pub const LOOKUP: u32 = 23;
    pub const LOOKUP_RESPONSE: u32 = 24;
    pub const LAST_MESSAGE_ID: u32 = 29;
    pub const LAST_MESSAGE_ID_RESPONSE: u32 = 30;
}

/// Version of the protocol that is spoken: the one of Pulsar 2.8 (shared subscriptions with batch indexes, last message id).
const PROTOCOL_VERSION: u64 = 18;

/// An entry of a topic's ledgers: what the broker stores a batch as. Ordered as the topic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryId {
    /// Ledgers of a topic have growing numbers. -1: there is no entry.
    pub ledger: i64,
    pub entry: i64,
}

impl EntryId {
    /// Before the first entry.
    pub const NONE: EntryId = EntryId {
        ledger: -1,
        entry: -1,
    };

    fn read(bytes: &[u8]) -> Result<EntryId, Malformed> {
        let mut id = EntryId::NONE;
        let mut fields = Fields::new(bytes);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => id.ledger = value.number()?.cast_signed(),
                2 => id.entry = value.number()?.cast_signed(),
                _ => {}
            }
        }
        Ok(id)
    }

    fn put(self, into: &mut Vec<u8>) {
        into.put_number(1, self.ledger.cast_unsigned());
        into.put_number(2, self.entry.cast_unsigned());
    }
}

/// How a subscription hands its messages out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubscriptionType {
    /// One consumer per partition, and no second.
    Exclusive,
    /// The messages of a partition are spread over its consumers.
    Shared,
    /// One consumer per partition; another one takes over when it is gone.
    Failover,
    /// As shared, and a key stays with its consumer.
    KeyShared,
}

impl SubscriptionType {
    fn number(self) -> u64 {
        match self {
            SubscriptionType::Exclusive => 0,
            SubscriptionType::Shared => 1,
            SubscriptionType::Failover => 2,
            SubscriptionType::KeyShared => 3,
        }
    }

    /// Whether an acknowledgement covers everything before it.
    pub fn is_cumulative(self) -> bool {
        matches!(self, SubscriptionType::Exclusive | SubscriptionType::Failover)
    }
}

/// Where a broker listens: without and with TLS; "": not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Urls<'a> {
    pub plain: &'a str,
    pub tls: &'a str,
}

/// Answer to a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// Ask this broker.
    Redirect { urls: Urls<'a>, is_authoritative: bool },
    /// This broker has the topic.
    Connect { urls: Urls<'a> },
    /// It could not be told.
    Failed { error: u64, words: &'a str },
}

/// A command that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Connected {
        message_bytes_max: Option<u64>,
    },
    Receipt {
        producer: u64,
        sequence: u64,
    },
    SendError {
        producer: u64,
        error: u64,
        words: &'a str,
    },
    Message {
        consumer: u64,
        id: EntryId,
        /// The command's body, when it says which messages of the batch are meant; see [`read_ack_set`].
        ack_set: Option<&'a [u8]>,
    },
    Success {
        request: u64,
    },
    Error {
        request: u64,
        error: u64,
        words: &'a str,
    },
    CloseProducer {
        producer: u64,
    },
    CloseConsumer {
        consumer: u64,
    },
    ProducerSuccess {
        request: u64,
        is_ready: bool,
    },
    Ping,
    Found {
        request: u64,
        found: Found<'a>,
    },
    LastMessageId {
        request: u64,
        last: EntryId,
        /// Up to here everything is acknowledged, where the broker says so.
        mark_delete: Option<EntryId>,
    },
    /// Something that needs no answer.
    Other,
}

/// The numbers and texts of a body's first fields; absent ones are 0 and "".
struct Body<'a> {
    numbers: [u64; 12],
    texts: [&'a [u8]; 12],
    present: u32,
}

impl<'a> Body<'a> {
    #[inline]
    fn read(bytes: &'a [u8]) -> Result<Body<'a>, Malformed> {
        let mut body = Body {
            numbers: [0; 12],
            texts: [&[]; 12],
            present: 0,
        };
        let mut fields = Fields::new(bytes);
        while let Some((field, value)) = fields.next()? {
            if field >= 12 {
                continue;
            }
            body.present |= 1 << field;
            match value {
                super::wire::Value::Number(number) => body.numbers[field as usize] = number,
                super::wire::Value::Bytes(bytes) => body.texts[field as usize] = bytes,
                super::wire::Value::Other => {}
            }
        }
        Ok(body)
    }

    fn has(&self, field: u32) -> bool {
        self.present & 1 << field != 0
    }

    fn urls(&self) -> Result<Urls<'a>, Malformed> {
        Ok(Urls {
            plain: self.text(1)?,
            tls: self.text(2)?,
        })
    }

    fn text(&self, field: usize) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.texts[field]).map_err(|_| Malformed("a text that is not UTF-8"))
    }
}

/// Reads a command.
#[inline]
pub(super) fn read(command: &[u8]) -> Result<Command<'_>, Malformed> {
    let mut fields = Fields::new(command);
    let (mut found, mut bytes): (u32, &[u8]) = (0, &[]);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => found = u32::try_from(value.number()?).unwrap_or(0),
            field if field == found => bytes = value.bytes()?,
            _ => {}
        }
    }
    let body = Body::read(bytes)?;
    let number = |field: usize| body.numbers[field];
    Ok(match found {
        kind::CONNECTED => Command::Connected {
            message_bytes_max: body.has(3).then(|| number(3)),
        },
        kind::SEND_RECEIPT => Command::Receipt {
            producer: number(1),
            sequence: number(2),
        },
        kind::SEND_ERROR => Command::SendError {
            producer: number(1),
            error: number(3),
            words: body.text(4)?,
        },
        kind::MESSAGE => Command::Message {
            consumer: number(1),
            id: EntryId::read(body.texts[2])?,
            ack_set: body.has(4).then_some(bytes),
        },
        kind::SUCCESS => Command::Success { request: number(1) },
        kind::ERROR => Command::Error {
            request: number(1),
            error: number(2),
            words: body.text(3)?,
        },
        kind::CLOSE_PRODUCER => Command::CloseProducer { producer: number(1) },
        kind::CLOSE_CONSUMER => Command::CloseConsumer { consumer: number(1) },
        kind::PRODUCER_SUCCESS => Command::ProducerSuccess {
            request: number(1),
            is_ready: !body.has(6) || number(6) != 0,
        },
        kind::PING => Command::Ping,
        kind::LOOKUP_RESPONSE => Command::Found {
            request: number(4),
            found: match number(3) {
                0 => Found::Redirect {
                    urls: body.urls()?,
                    is_authoritative: number(5) != 0,
                },
                1 => Found::Connect { urls: body.urls()? },
                _ => Found::Failed {
                    error: number(6),
                    words: body.text(7)?,
                },
            },
        },
        kind::LAST_MESSAGE_ID_RESPONSE => Command::LastMessageId {
            request: number(2),
            last: EntryId::read(body.texts[1])?,
            mark_delete: match body.has(3) {
                true => Some(EntryId::read(body.texts[3])?),
                false => None,
            },
        },
        _ => Command::Other,
    })
}

/// Which messages of a batch are meant: bit i of word i / 64 stands for message i.
pub(super) fn read_ack_set(body: &[u8], into: &mut Vec<u64>) -> Result<(), Malformed> {
    into.clear();
    let mut fields = Fields::new(body);
    while let Some((field, value)) = fields.next()? {
        if field == 4 {
            into.push(value.number()?);
        }
    }
    Ok(())
}

/// A frame that is a command and nothing else.
fn frame(kind: u32, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.put_number(1, u64::from(kind));
    bytes.put_message(kind, body);
    let command_bytes = (bytes.len() - 8) as u32;
    bytes[..4].copy_from_slice(&(command_bytes + 4).to_be_bytes());
    bytes[4..8].copy_from_slice(&command_bytes.to_be_bytes());
    bytes
}

/// Says who we are: by a JSON web token, by the certificate that TLS has shown, or not at all.
pub(super) fn connect(auth: Option<&Auth>) -> Vec<u8> {
    frame(kind::CONNECT, |body| {
        body.put_bytes(1, concat!("streamgauge-", env!("CARGO_PKG_VERSION")).as_bytes());
        match auth {
            Some(Auth::Token(token)) => {
                body.put_bytes(3, token.reveal().as_bytes());
                body.put_bytes(5, b"token");
            }
            Some(Auth::External) => {
                body.put_bytes(3, b"");
                body.put_bytes(5, b"tls");
            }
            _ => {}
        }
        body.put_number(4, PROTOCOL_VERSION);
    })
}

/// Asks which broker has a topic.
pub(super) fn lookup(topic: &str, request: u64, is_authoritative: bool) -> Vec<u8> {
    frame(kind::LOOKUP, |body| {
        body.put_bytes(1, topic.as_bytes());
        body.put_number(2, request);
        body.put_number(3, u64::from(is_authoritative));
    })
}

/// Opens a producer. `epoch` grows with every opening, so that the broker prefers this one to what is left of the last.
pub(super) fn producer(topic: &str, id: u64, request: u64, name: &str, epoch: u64) -> Vec<u8> {
    frame(kind::PRODUCER, |body| {
        body.put_bytes(1, topic.as_bytes());
        body.put_number(2, id);
        body.put_number(3, request);
        body.put_bytes(4, name.as_bytes());
        body.put_number(8, epoch);
        // The name is ours and not the user's, who could mean something by it.
        body.put_number(9, 0);
    })
}

/// What a consumer asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscribe<'a> {
    pub topic: &'a str,
    pub subscription: &'a str,
    pub kind: SubscriptionType,
    pub consumer: u64,
    pub consumer_name: &'a str,
    pub is_earliest: bool,
}

/// Opens a consumer.
pub(super) fn subscribe(asked: &Subscribe<'_>, request: u64) -> Vec<u8> {
    frame(kind::SUBSCRIBE, |body| {
        body.put_bytes(1, asked.topic.as_bytes());
        body.put_bytes(2, asked.subscription.as_bytes());
        body.put_number(3, asked.kind.number());
        body.put_number(4, asked.consumer);
        body.put_number(5, request);
        body.put_bytes(6, asked.consumer_name.as_bytes());
        // Durable: the broker keeps the subscription's position.
        body.put_number(8, 1);
        body.put_number(13, u64::from(asked.is_earliest));
        if asked.kind == SubscriptionType::KeyShared {
            // The broker splits the keys' hashes among the consumers.
            body.put_message(17, |meta| meta.put_number(1, 0));
        }
    })
}

/// Lets the broker send so many messages more.
pub(super) fn flow(consumer: u64, permits: u32) -> Vec<u8> {
    frame(kind::FLOW, |body| {
        body.put_number(1, consumer);
        body.put_number(2, u64::from(permits));
    })
}

/// Acknowledges everything up to an entry.
pub(super) fn ack_cumulative(consumer: u64, id: EntryId) -> Vec<u8> {
    frame(kind::ACK, |body| {
        body.put_number(1, consumer);
        body.put_number(2, 1);
        body.put_message(3, |message| id.put(message));
    })
}

/// Acknowledges entries one by one.
pub(super) fn ack_individual(consumer: u64, ids: &[EntryId]) -> Vec<u8> {
    frame(kind::ACK, |body| {
        body.put_number(1, consumer);
        body.put_number(2, 0);
        for id in ids {
            body.put_message(3, |message| id.put(message));
        }
    })
}

/// Acknowledges an entry that could not be read, and says that its checksum was wrong.
pub(super) fn ack_corrupted(consumer: u64, id: EntryId) -> Vec<u8> {
    frame(kind::ACK, |body| {
        body.put_number(1, consumer);
        body.put_number(2, 0);
        body.put_message(3, |message| id.put(message));
        body.put_number(4, 2);
    })
}

/// Asks for a topic's last entry.
pub(super) fn last_message_id(consumer: u64, request: u64) -> Vec<u8> {
    frame(kind::LAST_MESSAGE_ID, |body| {
        body.put_number(1, consumer);
        body.put_number(2, request);
    })
}

/// Closes a consumer; the subscription and its position stay.
pub(super) fn close_consumer(consumer: u64, request: u64) -> Vec<u8> {
    frame(kind::CLOSE_CONSUMER, |body| {
        body.put_number(1, consumer);
        body.put_number(2, request);
    })
}

/// Asks whether the broker lives.
pub(super) fn ping() -> Vec<u8> {
    frame(kind::PING, |_| {})
}

/// Says that we do.
pub(super) fn pong() -> Vec<u8> {
    frame(kind::PONG, |_| {})
}

/// The command of a batch, without lengths.
pub(super) fn put_send(into: &mut Vec<u8>, producer: u64, sequence: u64, messages: u32) {
    into.put_number(1, u64::from(kind::SEND));
    into.put_message(kind::SEND, |body| {
        body.put_number(1, producer);
        body.put_number(2, sequence);
        body.put_number(3, u64::from(messages));
        body.put_number(6, sequence + u64::from(messages) - 1);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A command as a broker would send it.
    fn sent(kind: u32, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        frame(kind, body)[8..].to_vec()
    }

    #[test]
    fn frames_have_their_lengths() {
        // Type 19 (PONG) and its empty body.
        assert_eq!(pong(), [0, 0, 0, 9, 0, 0, 0, 5, 8, 19, 0x9A, 1, 0]);
        assert_eq!(
            lookup("t", 7, true),
            b"\0\0\0\x10\0\0\0\x0c\x08\x17\xba\x01\x07\x0a\x01t\x10\x07\x18\x01"
        );
    }

    #[test]
    fn answers_are_read() {
        let receipt = sent(kind::SEND_RECEIPT, |body| {
            body.put_number(1, 3);
            body.put_number(2, 1 << 40);
            body.put_message(3, |id| EntryId { ledger: 5, entry: 6 }.put(id));
        });
        let expected = Command::Receipt {
            producer: 3,
            sequence: 1 << 40,
        };
        assert_eq!(read(&receipt), Ok(expected));
        let redirect = sent(kind::LOOKUP_RESPONSE, |body| {
            body.put_bytes(1, b"pulsar://b:6650");
            body.put_number(3, 0);
            body.put_number(4, 9);
            body.put_number(5, 1);
        });
        let found = Found::Redirect {
            urls: Urls {
                plain: "pulsar://b:6650",
                tls: "",
            },
            is_authoritative: true,
        };
        assert_eq!(read(&redirect), Ok(Command::Found { request: 9, found }));
        let empty_topic = sent(kind::LAST_MESSAGE_ID_RESPONSE, |body| {
            body.put_message(1, |id| EntryId::NONE.put(id));
            body.put_number(2, 1 << 32 | 4);
        });
        let expected = Command::LastMessageId {
            request: 1 << 32 | 4,
            last: EntryId::NONE,
            mark_delete: None,
        };
        assert_eq!(read(&empty_topic), Ok(expected));
    }

    #[test]
    fn an_ack_set_names_messages_of_a_batch() {
        let message = sent(kind::MESSAGE, |body| {
            body.put_number(1, 2);
            body.put_message(2, |id| EntryId { ledger: 1, entry: 2 }.put(id));
            body.put_number(4, 0b101);
            body.put_number(4, u64::MAX);
        });
        let Ok(Command::Message {
            ack_set: Some(body), ..
        }) = read(&message)
        else {
            panic!("a message with an ack set");
        };
        let mut words = vec![1, 2, 3];
        assert_eq!(read_ack_set(body, &mut words), Ok(()));
        assert_eq!(words, [0b101, u64::MAX]);
    }

    #[test]
    fn entries_are_ordered_as_the_topic_is() {
        let at = |ledger, entry| EntryId { ledger, entry };
        assert!(EntryId::NONE < at(0, 0) && at(0, 9) < at(1, 0) && at(1, 0) < at(1, 1));
    }

    proptest! {
        #[test]
        fn garbage_is_no_reason_to_panic(bytes: Vec<u8>, kind in 0..40u32) {
            let _ = read(&bytes);
            let mut command = Vec::new();
            command.put_number(1, u64::from(kind));
            command.put_bytes(kind, &bytes);
            if let Ok(Command::Message { ack_set: Some(body), .. }) = read(&command) {
                let _ = read_ack_set(body, &mut Vec::new());
            }
        }
    }
}
