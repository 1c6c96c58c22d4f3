//! A connection to one of the servers: made when it is needed, made again to the next server when it is lost.
//!
//! After INFO, and after the handshake of TLS where that is spoken, the client says CONNECT, then whatever its owner always says first (its subscriptions), then PING; the PONG proves that all of
//! it was accepted. PINGs of the server are answered here; messages go to the owner.

use gauge_load::clock::monotonic_ns;
use serde_json::{Map, Value, json};

use super::login::Login;
use super::wire::{self, Message, Operation};
use crate::shared::Shared;
use crate::stream::{Backoff, ByteStream, InputBytes, Lost};
use crate::{ClientError, Poller, Ready};

/// Number of a chunk that stands for "not a chunk of messages".
pub(crate) const NO_CHUNK: u64 = u64::MAX;
/// Answers are short and messages are not: both begin in a buffer that one read can fill in about 50 us.
const INPUT: InputBytes = InputBytes {
    first: 128 << 10,
    max: 66 << 20,
};
/// How long the server may take from the connection to its PONG.
const GREETING_NS: i64 = 5_000_000_000;

/// Kinds of errors that only this protocol has.
pub(crate) mod kind {
    /// The server reports an error of the connection.
    pub const SERVER_ERROR: &str = "SERVER_ERROR";
    /// The server does not let us do what we must do.
    pub const NOT_AUTHORIZED: &str = "NOT_AUTHORIZED";
    /// The server cut the connection because it was read too slowly.
    pub const SLOW_CONSUMER: &str = "SLOW_CONSUMER";
}

/// Bytes on their way out.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The chunk of messages they belong to, or [`NO_CHUNK`].
    pub chunk: u64,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// How far the greeting has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// INFO is waited for.
    Silent,
    /// The handshake of TLS is under way.
    Shaking,
    /// PONG is waited for.
    Greeted,
    /// Everything was said.
    Ready,
}

/// What a server says of itself, as far as the client needs it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Info {
    /// Longest message with its headers.
    pub max_payload_bytes: usize,
    /// What an nkey is to sign.
    pub nonce: Option<String>,
}

/// A place for a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Option<ByteStream<Piece>>,
    state: State,
    deadline_ns: i64,
    /// Number of the server that is tried next, counted on over all of them.
    attempts: usize,
    token: u64,
    backoff: Backoff,
    client_name: String,
    login: Login,
    /// What is always said first.
    greeting: Vec<u8>,
    /// The latest server's own words.
    pub info: Info,
}

impl Connection {
    /// A place for a connection to one of the servers, beginning with number `first` of them.
    pub fn new(first: usize, token: u64, client_name: &str, login: &Login, greeting: Vec<u8>) -> Connection {
        Connection {
            stream: None,
            state: State::Silent,
            deadline_ns: i64::MAX,
            attempts: first,
            token,
            backoff: Backoff::default(),
            client_name: client_name.to_owned(),
            login: login.clone(),
            greeting,
            info: Info::default(),
        }
    }

    /// Whether messages can be sent.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Begins to connect when there is no connection and no pause, and looks whether the greeting takes too long.
    pub fn ensure(&mut self, shared: &Shared, now_ns: i64) -> Result<(), Lost> {
        if let Some(stream) = &self.stream {
            stream.check_deadline(now_ns)?;
            if self.state != State::Ready && now_ns >= self.deadline_ns {
                return Err(Lost::Timeout);
            }
            return Ok(());
        }
        if !self.backoff.is_over(now_ns) {
            return Ok(());
        }
        let peer = &shared.servers[self.attempts % shared.servers.len()];
        self.state = State::Silent;
        self.deadline_ns = now_ns.saturating_add(GREETING_NS);
        // TLS begins after the server's INFO.
        self.stream = Some(ByteStream::connect_plain(
            peer,
            &shared.poller,
            self.token,
            INPUT,
            now_ns,
        )?);
        Ok(())
    }

    /// When `ensure` must be called at the latest.
    pub fn deadline_ns(&self) -> i64 {
        match &self.stream {
            Some(_) if self.state == State::Ready => i64::MAX,
            Some(stream) => stream.connect_deadline_ns().min(self.deadline_ns),
            None => self.backoff.retry_at_ns(),
        }
    }

    /// Queues a piece; `write` sends it.
    pub fn push(&mut self, piece: Piece) {
        if let Some(stream) = &mut self.stream {
            stream.push(piece);
        }
    }

    /// Queues bytes that are no chunk of messages.
    pub fn push_bytes(&mut self, bytes: Vec<u8>) {
        self.push(Piece {
            bytes,
            chunk: NO_CHUNK,
        });
    }

    /// Writes as much as the socket takes; chunks that are written whole go to `done`.
    pub fn write(&mut self, poller: &Poller, mut done: impl FnMut(Piece)) -> Result<(), Lost> {
        match &mut self.stream {
            Some(stream) => stream.write(poller, |piece| {
                if piece.chunk != NO_CHUNK {
                    done(piece);
                }
            }),
            None => Ok(()),
        }
    }

    /// The poller says that the socket is ready: completes the connection.
    pub fn advance(&mut self, ready: &Ready, shared: &Shared) -> Result<(), Lost> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        if stream.advance(ready, &shared.poller)? && self.state == State::Shaking {
            return self.greet(shared, true);
        }
        Ok(())
    }

    /// Says who we are, what is always said first, and PING.
    fn greet(&mut self, shared: &Shared, has_tls: bool) -> Result<(), Lost> {
        let mut words = connect_line(&self.client_name, &self.login, &self.info, has_tls)?;
        words.extend_from_slice(&self.greeting);
        words.extend_from_slice(b"PING\r\n");
        self.state = State::Greeted;
        self.push_bytes(words);
        // Chunks come back from the owner's own writes; none can be queued before the greeting.
        self.write(&shared.poller, |_| {})
    }

    /// Reads once and hands the messages that are there whole to `handle`, with the time at which they were read. True: there may be more.
    pub fn read(
        &mut self,
        shared: &mut Shared,
        mut handle: impl FnMut(&Message<'_>, i64),
    ) -> Result<bool, Lost> {
        let Some(stream) = &mut self.stream else {
            return Ok(false);
        };
        let more = stream.read()?;
        let now_ns = monotonic_ns();
        let mut used = 0;
        let mut is_introduced = false;
        let mut answers = Vec::new();
        let input = stream.input();
        let outcome = loop {
            let (operation, length) = match wire::parse(&input[used..]) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => break Ok(()),
                Err(malformed) => break Err(Lost::Malformed(malformed.0.to_owned())),
            };
            used += length;
            match operation {
                Operation::Message(message) => handle(&message, now_ns),
                Operation::Ping => answers.extend_from_slice(b"PONG\r\n"),
                Operation::Pong if self.state == State::Greeted => {
                    self.state = State::Ready;
                    self.backoff.works();
                    shared.trouble = None;
                }
                Operation::Info(info) => match read_info(info, shared.tls.is_some()) {
                    Ok(info) => {
                        self.info = info;
                        is_introduced = self.state == State::Silent;
                        if is_introduced {
                            break Ok(());
                        }
                    }
                    Err(lost) => break Err(lost),
                },
                Operation::Error(words) => match refusal(words) {
                    Some(lost) => break Err(lost),
                    None => shared.trouble = Some(String::from_utf8_lossy(words).into_owned()),
                },
                Operation::Pong | Operation::Ok => {}
            }
        };
        stream.consume(used);
        outcome?;
        if !answers.is_empty() {
            stream.push(Piece {
                bytes: answers,
                chunk: NO_CHUNK,
            });
            // As in `greet`; once it is answered, the owner writes next.
            if self.state == State::Greeted {
                stream.write(&shared.poller, |_| {})?;
            }
        }
        if is_introduced {
            let peer = &shared.servers[self.attempts % shared.servers.len()];
            if peer.has_tls() {
                stream.start_tls(peer, &shared.poller, now_ns)?;
                self.state = State::Shaking;
            } else {
                self.greet(shared, false)?;
            }
        }
        Ok(more)
    }

    /// Ends the connection, moves on to the next server, and gives back the chunks that were not written whole.
    pub fn lose(
        &mut self,
        lost: &Lost,
        shared: &mut Shared,
        now_ns: i64,
    ) -> impl Iterator<Item = Piece> + use<> {
        let peer = &shared.servers[self.attempts % shared.servers.len()];
        shared.trouble = Some(format!("{peer}: {lost}"));
        self.backoff.pause(now_ns);
        self.attempts += 1;
        self.state = State::Silent;
        let unwritten = self.stream.take().map(ByteStream::into_unwritten);
        unwritten
            .into_iter()
            .flatten()
            .filter(|piece| piece.chunk != NO_CHUNK)
    }

    /// Says a last word, as far as the socket takes it, and closes.
    pub fn close(&mut self, poller: &Poller, words: Vec<u8>) {
        if self.is_ready() && !words.is_empty() {
            self.push_bytes(words);
            // Nothing can be done about a connection that is gone already.
            let _ = self.write(poller, |_| {});
        }
        self.stream = None;
        self.state = State::Silent;
    }
}

/// Whether an end of the connection makes the trial pointless.
pub(crate) fn fatal(lost: &Lost) -> Option<ClientError> {
    match lost {
        Lost::Refused(kind::NOT_AUTHORIZED, words) => Some(ClientError::system(format!(
            "the NATS server refuses this client: {words} (TLS and credentials are given in system.security)"
        ))),
        _ => None,
    }
}

/// The CONNECT line.
pub(crate) fn connect_line(
    client_name: &str,
    login: &Login,
    info: &Info,
    has_tls: bool,
) -> Result<Vec<u8>, Lost> {
    let mut options = Map::from_iter([
        ("verbose".to_owned(), json!(false)),
        ("pedantic".to_owned(), json!(false)),
        ("tls_required".to_owned(), json!(has_tls)),
        ("headers".to_owned(), json!(true)),
        ("no_responders".to_owned(), json!(true)),
        ("protocol".to_owned(), json!(1)),
        ("lang".to_owned(), json!("rust")),
        ("version".to_owned(), json!(env!("CARGO_PKG_VERSION"))),
        ("name".to_owned(), json!(client_name)),
    ]);
    login
        .put(&mut options, info.nonce.as_deref())
        .map_err(|words| Lost::Refused(kind::NOT_AUTHORIZED, words))?;
    Ok(format!("CONNECT {}\r\n", Value::Object(options)).into_bytes())
}

/// Reads an INFO, and refuses a server that cannot be used.
pub(crate) fn read_info(info: &[u8], has_tls: bool) -> Result<Info, Lost> {
    let info: Value = serde_json::from_slice(info)
        .map_err(|error| Lost::Malformed(format!("its INFO is no JSON: {error}")))?;
    let refused = |words: &str| Err(Lost::Refused(kind::NOT_AUTHORIZED, words.to_owned()));
    let (requires_tls, offers_tls) = (info["tls_required"] == true, info["tls_available"] == true);
    if requires_tls && !has_tls {
        return refused("it requires TLS: expected system.security.tls");
    }
    if has_tls && !requires_tls && !offers_tls {
        return refused("it does not offer TLS, which system.security.tls asks for");
    }
    let max_payload = info["max_payload"].as_u64().unwrap_or(1 << 20);
    Ok(Info {
        max_payload_bytes: usize::try_from(max_payload).unwrap_or(usize::MAX),
        nonce: info["nonce"].as_str().map(str::to_owned),
    })
}

/// What an error of the server means for the connection; None: it goes on.
pub(crate) fn refusal(words: &[u8]) -> Option<Lost> {
    let text = String::from_utf8_lossy(words).into_owned();
    let lower = text.to_ascii_lowercase();
    let kind = if lower.starts_with("permissions violation") || lower.contains("authorization") {
        kind::NOT_AUTHORIZED
    } else if lower.contains("slow consumer") {
        kind::SLOW_CONSUMER
    } else if lower.starts_with("invalid subject") || lower.starts_with("invalid publish subject") {
        return None;
    } else {
        kind::SERVER_ERROR
    };
    Some(Lost::Refused(kind, text))
}
