//! One connection of the stream protocol: handshake, heartbeats, closing; everything else is handed to the owner.

use super::super::batch::Batch;
use super::super::codec::{Malformed, Put, Reader};
use super::super::session::error as amqp_error;
use super::options::Options;
use super::wire::{self, Frame, code, key};
use crate::stream::{ByteStream, InputBytes, Lost, Peer};
use crate::{Poller, Ready};

/// The largest frame that is sent where the server sets no limit: what RabbitMQ offers by default.
const FRAME_BYTES_MAX: u32 = 1 << 20;
/// A longer frame from the server is not believed. The agreed size binds what is sent only: a chunk arrives as it is stored.
const INPUT_FRAME_BYTES_MAX: usize = 256 << 20;
/// The handshake may take this long after the connection has come about. Slow: a server under load answers a busy socket late.
const HANDSHAKE_NS: i64 = 10_000_000_000;

/// Buffer for what is read. One that only reads answers stays small.
pub(super) const INPUT: InputBytes = InputBytes {
    first: 64 << 10,
    max: INPUT_FRAME_BYTES_MAX + (64 << 10),
};

/// What is queued for writing.
#[derive(Debug)]
enum Piece {
    /// Commands.
    Control(Vec<u8>),
    /// A publish command.
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
    PeerProperties,
    Mechanisms,
    Authenticate,
    Tune,
    Open,
    Ready,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Session {
    stream: ByteStream<Piece>,
    stage: Stage,
    handshake_deadline_ns: i64,
    /// Bytes of the input that were parsed and not consumed yet.
    parsed: usize,
    frame_bytes_max: usize,
    /// Half of the agreed heartbeat: something is written that often. `i64::MAX`: no heartbeats.
    beat_ns: i64,
    written_ns: i64,
    read_ns: i64,
    server: Vec<(String, String)>,
}

impl Session {
    pub fn connect(peer: &Peer, poller: &Poller, token: u64, now_ns: i64) -> Result<Session, Lost> {
        Ok(Session {
            stream: ByteStream::connect(peer, poller, token, INPUT, now_ns)?,
            stage: Stage::Connecting,
            handshake_deadline_ns: i64::MAX,
            parsed: 0,
            frame_bytes_max: FRAME_BYTES_MAX as usize,
            beat_ns: i64::MAX,
            written_ns: now_ns,
            read_ns: now_ns,
            server: Vec::new(),
        })
    }

    /// Whether the connection is open: commands may be sent.
    pub fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// The largest frame that may be sent.
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// What the server says of itself.
    pub fn server(&self) -> &[(String, String)] {
        &self.server
    }

    /// Queues commands.
    pub fn push_control(&mut self, bytes: Vec<u8>, now_ns: i64) {
        self.written_ns = now_ns;
        self.stream.push(Piece::Control(bytes));
    }

    /// Queues a publish command.
    pub fn push_batch(&mut self, batch: Box<Batch>, now_ns: i64) {
        self.written_ns = now_ns;
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
            self.stage = Stage::PeerProperties;
            self.handshake_deadline_ns = now_ns + HANDSHAKE_NS;
            let properties = [("product", "streamgauge"), ("version", env!("CARGO_PKG_VERSION"))];
            let hello = wire::request(key::PEER_PROPERTIES, 0, |fields| {
                wire::put_texts(fields, properties.into_iter());
            });
            self.push_control(hello, now_ns);
            // With TLS the event that opens the stream need not be one of room to write.
            self.stream.write(poller, |_| {})?;
        }
        Ok(())
    }

    /// Looks whether the connection has become silent, and keeps it alive.
    pub fn drive(&mut self, now_ns: i64) -> Result<(), Lost> {
        self.stream.check_deadline(now_ns)?;
        if !self.is_ready() && now_ns >= self.handshake_deadline_ns {
            return Err(Lost::Timeout);
        }
        if self.beat_ns == i64::MAX {
            return Ok(());
        }
        // As in AMQP: two missed heartbeats end a connection.
        if now_ns - self.read_ns > 4 * self.beat_ns {
            return Err(Lost::Timeout);
        }
        if now_ns - self.written_ns >= self.beat_ns {
            self.push_control(wire::command(key::HEARTBEAT, |_| {}), now_ns);
        }
        Ok(())
    }

    /// When `drive` must be called at the latest.
    pub fn deadline_ns(&self) -> i64 {
        let beat_ns = match self.beat_ns {
            i64::MAX => i64::MAX,
            beat_ns => (self.written_ns + beat_ns).min(self.read_ns + 4 * beat_ns + 1),
        };
        let handshake_ns = if self.is_ready() {
            i64::MAX
        } else {
            self.handshake_deadline_ns
        };
        self.stream.connect_deadline_ns().min(handshake_ns).min(beat_ns)
    }

    /// Reads once. True: there may be more.
    pub fn read(&mut self, now_ns: i64) -> Result<bool, Lost> {
        self.stream.consume(std::mem::take(&mut self.parsed));
        self.read_ns = now_ns;
        self.stream.read()
    }

    /// The next whole frame for the owner. Its fields are found with `fields` until the next `read`.
    #[inline]
    pub fn next(&mut self, options: &Options, now_ns: i64) -> Result<Option<Frame>, Lost> {
        loop {
            let input = &self.stream.input()[self.parsed..];
            let Some((mut frame, bytes)) = wire::frame(input, INPUT_FRAME_BYTES_MAX)? else {
                return Ok(None);
            };
            frame.from += self.parsed;
            frame.until += self.parsed;
            self.parsed += bytes;
            match frame.key {
                key::HEARTBEAT => {}
                key::CLOSE | key::TUNE => self.on_command(frame, options, now_ns)?,
                _ if self.stage != Stage::Ready => self.on_command(frame, options, now_ns)?,
                _ => return Ok(Some(frame)),
            }
        }
    }

    /// A frame's fields.
    #[inline]
    pub fn fields(&self, frame: Frame) -> &[u8] {
        &self.stream.input()[frame.from..frame.until]
    }

    /// A command or an answer that concerns the connection itself.
    fn on_command(&mut self, frame: Frame, options: &Options, now_ns: i64) -> Result<(), Lost> {
        let mut reader = Reader::new(&self.stream.input()[frame.from..frame.until]);
        if frame.key == key::CLOSE {
            if frame.is_answer {
                return Err(Lost::Closed(None));
            }
            let (_, response, words) = (reader.u32()?, reader.u16()?, wire::text(&mut reader)?);
            return Err(Lost::Refused(wire::meaning(response).0, words));
        }
        if frame.key == key::TUNE && self.stage == Stage::Tune {
            let (frame_bytes, heartbeat_s) = (reader.u32()?, reader.u32()?);
            self.tune(frame_bytes, heartbeat_s, options, now_ns);
            return Ok(());
        }
        let expected = match self.stage {
            Stage::PeerProperties => key::PEER_PROPERTIES,
            Stage::Mechanisms => key::SASL_HANDSHAKE,
            Stage::Authenticate => key::SASL_AUTHENTICATE,
            Stage::Open => key::OPEN,
            Stage::Connecting | Stage::Tune | Stage::Ready => 0,
        };
        if frame.key != expected || !frame.is_answer {
            return Err(Malformed("an unexpected command during the handshake").into());
        }
        let (_, response) = wire::outcome(&mut reader)?;
        if response != code::OK {
            let (kind, words) = wire::meaning(response);
            return Err(Lost::Refused(kind, format!("{words} (code {response})")));
        }
        let next = match self.stage {
            Stage::PeerProperties => {
                let mut properties = Vec::new();
                for _ in 0..wire::count(&mut reader)? {
                    properties.push((wire::text(&mut reader)?, wire::text(&mut reader)?));
                }
                self.server = properties;
                self.stage = Stage::Mechanisms;
                wire::request(key::SASL_HANDSHAKE, 0, |_| {})
            }
            Stage::Mechanisms => {
                let mut offered = Vec::new();
                for _ in 0..wire::count(&mut reader)? {
                    offered.push(wire::text(&mut reader)?);
                }
                let offered: Vec<&str> = offered.iter().map(String::as_str).collect();
                options
                    .login
                    .check_offer(&offered)
                    .map_err(|words| Lost::Refused(amqp_error::ACCESS_REFUSED, words))?;
                self.stage = Stage::Authenticate;
                wire::request(key::SASL_AUTHENTICATE, 0, |fields| {
                    wire::put_text(fields, options.login.mechanism());
                    fields.put_long_string(&options.login.response());
                })
            }
            Stage::Authenticate => {
                self.stage = Stage::Tune;
                return Ok(());
            }
            _ => {
                self.stage = Stage::Ready;
                return Ok(());
            }
        };
        self.push_control(next, now_ns);
        Ok(())
    }

    /// Agrees on limits, and asks for the virtual host in the same breath.
    fn tune(&mut self, frame_bytes: u32, heartbeat_s: u32, options: &Options, now_ns: i64) {
        // Zero means no limit, and no heartbeats.
        let frame_bytes = match frame_bytes {
            0 => FRAME_BYTES_MAX,
            offered => offered,
        };
        let heartbeat_s = match (heartbeat_s, options.heartbeat_s) {
            (0, wanted) => wanted,
            (offered, 0) => offered,
            (offered, wanted) => offered.min(wanted),
        };
        self.frame_bytes_max = frame_bytes as usize;
        if heartbeat_s > 0 {
            self.beat_ns = i64::from(heartbeat_s) * 500_000_000;
        }
        let mut bytes = wire::answer(key::TUNE, |fields| {
            fields.put_u32(frame_bytes);
            fields.put_u32(heartbeat_s);
        });
        bytes.extend(wire::request(key::OPEN, 0, |fields| {
            wire::put_text(fields, &options.virtual_host);
        }));
        self.stage = Stage::Open;
        self.push_control(bytes, now_ns);
    }

    /// Says goodbye, as far as the socket takes it at once.
    pub fn close(&mut self, poller: &Poller, now_ns: i64) {
        if self.is_ready() {
            let goodbye = wire::request(key::CLOSE, 0, |fields| {
                fields.put_u16(code::OK);
                wire::put_text(fields, "done");
            });
            self.push_control(goodbye, now_ns);
            // A goodbye that cannot be said changes nothing.
            let _ = self.stream.write(poller, |_| {});
        }
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
