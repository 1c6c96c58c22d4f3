//! One connection to a broker: handshake, frames, signs of life. What its frames say is handed to the owner.

use std::ops::Range;

use super::batch::Batch;
use super::commands::{self, Command};
use super::error;
use super::wire::Malformed;
use crate::security::Auth;
use crate::stream::{ByteStream, InputBytes, Lost, Peer};
use crate::{Poller, Ready};

/// The handshake may take this long after the connection has come about. Slow: a broker under load answers late.
const HANDSHAKE_NS: i64 = 10_000_000_000;
/// A broker that is silent for so long is asked whether it lives, and is lost after another such time (as Pulsar's clients do).
const SILENCE_NS: i64 = 30_000_000_000;
/// The largest message, where the broker does not say: its default.
const MESSAGE_BYTES_MAX: u64 = 5 << 20;

impl From<Malformed> for Lost {
    fn from(malformed: Malformed) -> Lost {
        Lost::Malformed(malformed.to_string())
    }
}

/// What is queued for writing.
#[derive(Debug)]
enum Piece {
    Control(Vec<u8>),
    Batch(Box<Batch>),
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        match self {
            Piece::Control(bytes) => bytes,
            Piece::Batch(batch) => batch.as_ref().as_ref(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Greeting,
    Ready,
}

/// A frame that was read; its bytes are found in the session until the next `read`.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    command: Range<usize>,
    payload: Range<usize>,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Session {
    stream: ByteStream<Piece>,
    stage: Stage,
    auth: Option<Auth>,
    handshake_deadline_ns: i64,
    /// Bytes of the input that were parsed and not consumed yet.
    parsed: usize,
    read_ns: i64,
    /// A ping was sent since something was read last.
    is_asked: bool,
    /// The largest message that the broker takes.
    pub message_bytes_max: usize,
}

impl Session {
    pub fn connect(
        peer: &Peer,
        poller: &Poller,
        epoll_token: u64,
        input: InputBytes,
        auth: Option<Auth>,
        now_ns: i64,
    ) -> Result<Session, Lost> {
        Ok(Session {
            stream: ByteStream::connect(peer, poller, epoll_token, input, now_ns)?,
            stage: Stage::Connecting,
            auth,
            handshake_deadline_ns: i64::MAX,
            parsed: 0,
            read_ns: now_ns,
            is_asked: false,
            message_bytes_max: MESSAGE_BYTES_MAX as usize,
        })
    }

    /// Whether commands may be sent.
    pub fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// Queues a command.
    pub fn push(&mut self, command: Vec<u8>) {
        self.stream.push(Piece::Control(command));
    }

    /// Queues messages.
    pub fn push_batch(&mut self, batch: Box<Batch>) {
        self.stream.push(Piece::Batch(batch));
    }

    /// Writes as much as the socket takes; batches come back when they are written whole.
    pub fn write(&mut self, poller: &Poller, mut done: impl FnMut(Box<Batch>)) -> Result<(), Lost> {
        self.stream.write(poller, |piece| {
            if let Piece::Batch(batch) = piece {
                done(batch);
            }
        })
    }

    /// To be called when the poller says that the socket is ready.
    pub fn advance(&mut self, ready: &Ready, poller: &Poller, now_ns: i64) -> Result<(), Lost> {
        if self.stream.advance(ready, poller)? {
            self.stage = Stage::Greeting;
            self.handshake_deadline_ns = now_ns + HANDSHAKE_NS;
            self.push(commands::connect(self.auth.as_ref()));
            // With TLS the event that opens the stream need not be one of room to write.
            self.stream.write(poller, |_| {})?;
        }
        Ok(())
    }

    /// Looks whether the connection has become silent.
    pub fn drive(&mut self, now_ns: i64) -> Result<(), Lost> {
        self.stream.check_deadline(now_ns)?;
        if !self.is_ready() {
            return match now_ns >= self.handshake_deadline_ns {
                true => Err(Lost::Timeout),
                false => Ok(()),
            };
        }
        let silent_ns = now_ns - self.read_ns;
        if silent_ns >= 2 * SILENCE_NS {
            return Err(Lost::Timeout);
        }
        if silent_ns >= SILENCE_NS && !self.is_asked {
            self.is_asked = true;
            self.push(commands::ping());
        }
        Ok(())
    }

    /// When `drive` must be called at the latest.
    pub fn deadline_ns(&self) -> i64 {
        let silence_ns = match (self.is_ready(), self.is_asked) {
            (false, _) => self.handshake_deadline_ns,
            (true, false) => self.read_ns + SILENCE_NS,
            (true, true) => self.read_ns + 2 * SILENCE_NS,
        };
        self.stream.connect_deadline_ns().min(silence_ns)
    }

    /// Reads once. True: there may be more.
    pub fn read(&mut self, now_ns: i64) -> Result<bool, Lost> {
        self.stream.consume(std::mem::take(&mut self.parsed));
        self.read_ns = now_ns;
        self.is_asked = false;
        self.stream.read()
    }

    /// The next whole frame that was read.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Frame>, Lost> {
        let input = &self.stream.input()[self.parsed..];
        let Some((sizes, _)) = input.split_first_chunk::<8>() else {
            return Ok(None);
        };
        let size = |at: usize| u32::from_be_bytes([sizes[at], sizes[at + 1], sizes[at + 2], sizes[at + 3]]);
        let (frame_bytes, command_bytes) = (size(0) as usize, size(4) as usize);
        if frame_bytes < 4 || command_bytes > frame_bytes - 4 {
            return Err(Malformed("a frame that is shorter than its command").into());
        }
        if input.len() < 4 + frame_bytes {
            return Ok(None);
        }
        let command_from = self.parsed + 8;
        let payload_from = command_from + command_bytes;
        self.parsed += 4 + frame_bytes;
        Ok(Some(Frame {
            command: command_from..payload_from,
            payload: payload_from..self.parsed,
        }))
    }

    /// A frame's command. Commands that concern the connection itself are for `on_command`.
    #[inline]
    pub fn command(&self, frame: &Frame) -> Result<Command<'_>, Malformed> {
        commands::read(&self.stream.input()[frame.command.clone()])
    }

    /// What follows a frame's command.
    #[inline]
    pub fn payload(&self, frame: &Frame) -> &[u8] {
        &self.stream.input()[frame.payload.clone()]
    }

    /// A frame that was read: answers what concerns the connection itself, and returns whether it did.
    #[inline]
    pub fn handle(&mut self, frame: &Frame) -> Result<bool, Lost> {
        let message_bytes_max = match self.command(frame)? {
            Command::Ping => {
                self.push(commands::pong());
                return Ok(true);
            }
            Command::Connected {
                message_bytes_max, ..
            } => message_bytes_max.unwrap_or(MESSAGE_BYTES_MAX),
            // Before the handshake is over, an error is about the connection.
            Command::Error { error, words, .. } if !self.is_ready() => {
                return Err(Lost::Refused(error::name(error), words.to_owned()));
            }
            _ if !self.is_ready() => return Err(Malformed("a command before the handshake").into()),
            _ => return Ok(false),
        };
        self.message_bytes_max = usize::try_from(message_bytes_max).unwrap_or(usize::MAX);
        self.stage = Stage::Ready;
        Ok(true)
    }

    /// Ends the connection and gives back the batches that were not written whole, in order.
    pub fn into_unwritten(self) -> impl Iterator<Item = Box<Batch>> {
        self.stream
            .into_unwritten()
            .into_iter()
            .filter_map(|piece| match piece {
                Piece::Batch(batch) => Some(batch),
                Piece::Control(_) => None,
            })
    }
}
