//! One AMQP connection: handshake, heartbeats, closing; everything that belongs to a channel is handed to the owner.

use super::batch::Batch;
use super::codec::{self, Frame, Malformed, Put, Reader, kind, method, method_frame};
use super::options::Options;
use crate::stream::{ByteStream, InputBytes, Lost, Peer};
use crate::{Poller, Ready};

/// The largest frame that is agreed to: what RabbitMQ offers by default.
const FRAME_BYTES_MAX: u32 = 128 << 10;
/// The smallest frame that both sides must accept (AMQP 0-9-1, section 4.2.3): the limit until another is agreed on.
const FRAME_BYTES_MIN: u32 = 4096;
/// The handshake may take this long after the connection has come about. Slow: a server under load answers a busy socket late.
const HANDSHAKE_NS: i64 = 10_000_000_000;
/// Reply code of a closing that has nothing to complain of.
pub(super) const REPLY_SUCCESS: u16 = 200;

/// Kinds of errors that AMQP knows, as they are counted.
pub(super) mod error {
    pub const ACCESS_REFUSED: &str = "ACCESS_REFUSED";
    pub const NOT_FOUND: &str = "NOT_FOUND";
    pub const PRECONDITION_FAILED: &str = "PRECONDITION_FAILED";
    pub const RESOURCE_LOCKED: &str = "RESOURCE_LOCKED";
    pub const CONNECTION_FORCED: &str = "CONNECTION_FORCED";
    pub const INTERNAL_ERROR: &str = "INTERNAL_ERROR";
    pub const NOT_ALLOWED: &str = "NOT_ALLOWED";
    pub const CLOSED_BY_SERVER: &str = "CLOSED_BY_SERVER";
    pub const CONSUMER_CANCELLED: &str = "CONSUMER_CANCELLED";
    pub const UNROUTABLE: &str = "UNROUTABLE";
    pub const BASIC_NACK: &str = "BASIC_NACK";

    /// The name of a reply code.
    pub fn of(code: u16) -> &'static str {
        match code {
            320 => CONNECTION_FORCED,
            403 => ACCESS_REFUSED,
            404 => NOT_FOUND,
            405 => RESOURCE_LOCKED,
            406 => PRECONDITION_FAILED,
            530 => NOT_ALLOWED,
            541 => INTERNAL_ERROR,
            _ => CLOSED_BY_SERVER,
        }
    }
}

impl From<Malformed> for Lost {
    fn from(malformed: Malformed) -> Lost {
        Lost::Malformed(malformed.to_string())
    }
}

/// What is queued for writing.
#[derive(Debug)]
enum Piece {
    /// Methods.
    Control(Vec<u8>),
    /// Messages.
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
    Start,
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
    frame_bytes_max: u32,
    /// Half of the agreed heartbeat: something is written that often. `i64::MAX`: no heartbeats.
    beat_ns: i64,
    written_ns: i64,
    read_ns: i64,
    is_blocked: bool,
    server: Vec<(String, String)>,
}

impl Session {
    pub fn connect(
        peer: &Peer,
        poller: &Poller,
        token: u64,
        input: InputBytes,
        now_ns: i64,
    ) -> Result<Session, Lost> {
        Ok(Session {
            stream: ByteStream::connect(peer, poller, token, input, now_ns)?,
            stage: Stage::Connecting,
            handshake_deadline_ns: i64::MAX,
            parsed: 0,
            frame_bytes_max: FRAME_BYTES_MIN,
            beat_ns: i64::MAX,
            written_ns: now_ns,
            read_ns: now_ns,
            is_blocked: false,
            server: Vec::new(),
        })
    }

    /// Whether the connection is open: channels may be opened.
    pub fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// The server has asked for no more messages (an alarm for memory or disk).
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Bytes of a message's body that fit into one frame.
    pub fn body_bytes_max(&self) -> usize {
        self.frame_bytes_max as usize - codec::FRAME_OVERHEAD_BYTES
    }

    /// What the server says of itself: names and values of connection.start.
    pub fn server(&self) -> &[(String, String)] {
        &self.server
    }

    /// Queues methods.
    pub fn push_control(&mut self, bytes: Vec<u8>, now_ns: i64) {
        self.written_ns = now_ns;
        self.stream.push(Piece::Control(bytes));
    }

    /// Queues messages.
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
            self.stage = Stage::Start;
            self.handshake_deadline_ns = now_ns + HANDSHAKE_NS;
            self.push_control(codec::PROTOCOL_HEADER.to_vec(), now_ns);
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
        // Two missed heartbeats end a connection (AMQP 0-9-1, section 4.2.7).
        if now_ns - self.read_ns > 4 * self.beat_ns {
            return Err(Lost::Timeout);
        }
        if now_ns - self.written_ns >= self.beat_ns {
            self.push_control(vec![kind::HEARTBEAT, 0, 0, 0, 0, 0, 0, codec::FRAME_END], now_ns);
        }
        Ok(())
    }

    /// How long the server may be without a word from us until it looks; None: it does not mind, or nothing was agreed yet.
    pub fn heartbeat_ns(&self) -> Option<i64> {
        (self.beat_ns != i64::MAX).then(|| 2 * self.beat_ns)
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

    /// The next whole frame of a channel that was read. Its payload is found with `payload` until the next `read`.
    #[inline]
    pub fn next(&mut self, options: &Options, now_ns: i64) -> Result<Option<Frame>, Lost> {
        loop {
            let input = &self.stream.input()[self.parsed..];
            let payload_bytes_max = self.frame_bytes_max as usize - codec::FRAME_OVERHEAD_BYTES;
            let Some((mut frame, bytes)) = codec::frame(input, payload_bytes_max)? else {
                return Ok(None);
            };
            frame.from += self.parsed;
            frame.until += self.parsed;
            self.parsed += bytes;
            if frame.channel != 0 {
                return Ok(Some(frame));
            }
            match frame.kind {
                kind::HEARTBEAT => {}
                kind::METHOD => self.on_method(frame, options, now_ns)?,
                _ => return Err(Malformed("channel 0 carries something else than methods").into()),
            }
        }
    }

    /// A frame's payload.
    #[inline]
    pub fn payload(&self, frame: Frame) -> &[u8] {
        &self.stream.input()[frame.from..frame.until]
    }

    /// A method that concerns the connection itself.
    fn on_method(&mut self, frame: Frame, options: &Options, now_ns: i64) -> Result<(), Lost> {
        let mut reader = Reader::new(&self.stream.input()[frame.from..frame.until]);
        match (reader.method()?, self.stage) {
            (method::CONNECTION_START, Stage::Start) => {
                // Protocol version, of which the header has spoken.
                reader.u16()?;
                let server = reader.table_strings()?;
                let mechanisms = reader.long_string()?;
                let mechanisms = String::from_utf8_lossy(mechanisms);
                let offered: Vec<&str> = mechanisms.split(' ').collect();
                options
                    .login
                    .check_offer(&offered)
                    .map_err(|words| Lost::Refused(error::ACCESS_REFUSED, words))?;
                self.server = server;
                self.stage = Stage::Tune;
                self.push_control(start_ok(options), now_ns);
            }
            (method::CONNECTION_TUNE, Stage::Tune) => {
                let (channels, frame_bytes, heartbeat_s) = (reader.u16()?, reader.u32()?, reader.u16()?);
                self.tune(channels, frame_bytes, heartbeat_s, options, now_ns)?;
            }
            (method::CONNECTION_OPEN_OK, Stage::Open) => self.stage = Stage::Ready,
            (method::CONNECTION_BLOCKED, _) => self.is_blocked = true,
            (method::CONNECTION_UNBLOCKED, _) => self.is_blocked = false,
            (method::CONNECTION_CLOSE, _) => {
                let closing = codec::read_closing(&mut reader)?;
                return Err(Lost::Refused(error::of(closing.code), closing.words));
            }
            (method::CONNECTION_CLOSE_OK, _) => return Err(Lost::Closed(None)),
            _ => return Err(Malformed("an unexpected method on channel 0").into()),
        }
        Ok(())
    }

    /// Agrees on limits, and asks for the virtual host in the same breath.
    fn tune(
        &mut self,
        channels: u16,
        frame_bytes: u32,
        heartbeat_s: u16,
        options: &Options,
        now_ns: i64,
    ) -> Result<(), Lost> {
        // Zero means no limit, and no heartbeats.
        let offered = if frame_bytes == 0 {
            FRAME_BYTES_MAX
        } else {
            frame_bytes
        };
        if offered < FRAME_BYTES_MIN {
            return Err(Malformed("frames of less than 4096 bytes").into());
        }
        self.frame_bytes_max = offered.min(FRAME_BYTES_MAX);
        let heartbeat_s = match (heartbeat_s, options.heartbeat_s) {
            (0, wanted) => wanted,
            (offered, 0) => offered,
            (offered, wanted) => offered.min(wanted),
        };
        if heartbeat_s > 0 {
            self.beat_ns = i64::from(heartbeat_s) * 500_000_000;
        }
        let mut bytes = method_frame(0, method::CONNECTION_TUNE_OK, |arguments| {
            arguments.put_u16(channels);
            arguments.put_u32(self.frame_bytes_max);
            arguments.put_u16(heartbeat_s);
        });
        codec::put_method(&mut bytes, 0, method::CONNECTION_OPEN, |arguments| {
            arguments.put_short_string(&options.virtual_host);
            // Two reserved fields.
            arguments.put_short_string("");
            arguments.put_u8(0);
        });
        self.stage = Stage::Open;
        self.push_control(bytes, now_ns);
        Ok(())
    }

    /// Says goodbye, as far as the socket takes it at once.
    pub fn close(&mut self, poller: &Poller, now_ns: i64) {
        if self.is_ready() {
            let bytes = method_frame(0, method::CONNECTION_CLOSE, |arguments| {
                arguments.put_u16(REPLY_SUCCESS);
                arguments.put_short_string("done");
                arguments.put_u32(0);
            });
            self.push_control(bytes, now_ns);
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

/// connection.start-ok: who we are and which extensions we understand.
fn start_ok(options: &Options) -> Vec<u8> {
    let properties = serde_json::json!({
        "product": "streamgauge",
        "version": env!("CARGO_PKG_VERSION"),
        "capabilities": {
            "publisher_confirms": true,
            "consumer_cancel_notify": true,
            "basic.nack": true,
            "connection.blocked": true,
            "authentication_failure_close": true,
        },
    });
    method_frame(0, method::CONNECTION_START_OK, |arguments| {
        if let serde_json::Value::Object(fields) = &properties {
            arguments.put_table(fields);
        }
        arguments.put_short_string(options.login.mechanism());
        arguments.put_long_string(&options.login.response());
        arguments.put_short_string("en_US");
    })
}
