//! Logging in: SaslHandshake, then SaslAuthenticate with PLAIN (RFC 4616) or SCRAM.
//!
//! A [`Conversation`] knows what is said and what must be answered, and neither sockets nor frames; [`Login`] is one on its way over a
//! non-blocking connection.

use std::fmt;

use super::errors::Code;
pub(crate) use super::scram::Credentials;
use super::scram::Scram;
use super::wire::{self, Api, Malformed, Put, Reader, begin_request, finish_request};
use crate::transport::Lost;

/// How long a login may take. Slow: a broker under load answers late.
const LOGIN_NS: i64 = 10_000_000_000;

enum Step {
    Handshake,
    Plain,
    ScramFirst(Scram),
    ScramFinal(Scram),
}

/// A request: its API and its body.
pub(crate) type Question = (Api, Vec<u8>);

/// What is said in a login, and in which order.
pub(crate) struct Conversation {
    credentials: Credentials,
    step: Step,
}

impl Conversation {
    pub fn new(credentials: &Credentials) -> Conversation {
        Conversation {
            credentials: credentials.clone(),
            step: Step::Handshake,
        }
    }

    /// The first request.
    pub fn begin(&self) -> Question {
        let mut body = Vec::new();
        body.put_string(self.credentials.mechanism());
        (wire::SASL_HANDSHAKE, body)
    }

    /// Takes an answer. Returns the next request, or None: the client is logged in.
    ///
    /// # Errors
    /// [`Lost::Refused`] with the broker's words, or [`Lost::Malformed`].
    pub fn answered(&mut self, body: &[u8]) -> Result<Option<Question>, Lost> {
        let (next, message) = match std::mem::replace(&mut self.step, Step::Handshake) {
            Step::Handshake => {
                self.read_handshake(body)?;
                self.first_message()?
            }
            Step::Plain => {
                self.read_message(body)?;
                return Ok(None);
            }
            Step::ScramFirst(mut scram) => {
                let told = self.read_message(body)?;
                let message = scram.answer(told).map_err(|words| self.refused(&words))?;
                (Step::ScramFinal(scram), message)
            }
            Step::ScramFinal(scram) => {
                let told = self.read_message(body)?;
                scram.verify(told).map_err(|words| self.refused(&words))?;
                return Ok(None);
            }
        };
        self.step = next;
        let mut body = Vec::with_capacity(message.len() + 4);
        body.put_count(message.len());
        body.extend_from_slice(&message);
        Ok(Some((wire::SASL_AUTHENTICATE, body)))
    }

    fn first_message(&self) -> Result<(Step, Vec<u8>), Lost> {
        match self.credentials.hash() {
            None => {
                let parts = [self.credentials.username(), self.credentials.password().reveal()];
                let message = format!("\0{}", parts.join("\0")).into_bytes();
                Ok((Step::Plain, message))
            }
            Some(hash) => {
                let scram = Scram::new(hash, &self.credentials).map_err(|words| self.refused(&words))?;
                let message = scram.first();
                Ok((Step::ScramFirst(scram), message))
            }
        }
    }

    fn refused(&self, words: &str) -> Lost {
        let (username, mechanism) = (self.credentials.username(), self.credentials.mechanism());
        Lost::Refused(
            Code::SASL_AUTHENTICATION_FAILED.name(),
            format!("{username:?} cannot log in with {mechanism}: {words}"),
        )
    }

    /// SaslHandshake: the broker names its mechanisms.
    fn read_handshake(&self, body: &[u8]) -> Result<(), Lost> {
        let mut reader = Reader::new(body);
        let code = Code(reader.i16()?);
        let mut offered = Vec::new();
        for _ in 0..reader.count(2)? {
            offered.push(reader.string()?);
        }
        match code {
            code if code.is_none() => Ok(()),
            Code::ILLEGAL_SASL_STATE => {
                Err(self.refused("the listener asks nobody to log in (ILLEGAL_SASL_STATE)"))
            }
            Code::UNSUPPORTED_SASL_MECHANISM => {
                Err(self.refused(&format!("the broker offers {} only", offered.join(", "))))
            }
            code => Err(self.refused(code.name())),
        }
    }

    /// SaslAuthenticate: the mechanism's own message.
    fn read_message<'a>(&self, body: &'a [u8]) -> Result<&'a [u8], Lost> {
        let mut reader = Reader::new(body);
        let code = Code(reader.i16()?);
        let words = reader.nullable_string()?;
        if !code.is_none() {
            return Err(self.refused(words.unwrap_or_else(|| code.name())));
        }
        let bytes = reader.count(1)?;
        Ok(reader.take(bytes)?)
    }
}

/// A login on its way over a connection.
pub(crate) struct Login {
    conversation: Conversation,
    client_id: String,
    out: Vec<u8>,
    written: usize,
    correlation: i32,
    deadline_ns: i64,
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is to be written may hold the password.
        self.conversation.credentials.fmt(formatter)
    }
}

impl Login {
    pub fn new(credentials: &Credentials, client_id: &str) -> Login {
        Login {
            conversation: Conversation::new(credentials),
            client_id: client_id.to_owned(),
            out: Vec::new(),
            written: 0,
            correlation: 0,
            deadline_ns: i64::MAX,
        }
    }

    /// The connection is open: the first request is to be written.
    pub fn begin(&mut self, now_ns: i64) {
        self.deadline_ns = now_ns.saturating_add(LOGIN_NS);
        self.put(&self.conversation.begin());
    }

    fn put(&mut self, (api, body): &Question) {
        // Numbers of their own, which the connection's requests begin with again: there is never one of both kinds under way.
        self.correlation += 1;
        begin_request(&mut self.out, *api, self.correlation, &self.client_id);
        self.out.extend_from_slice(body);
        finish_request(&mut self.out, 0);
        self.written = 0;
    }

    /// What is to be written.
    pub fn unwritten(&self) -> &[u8] {
        &self.out[self.written..]
    }

    /// So many bytes of it were.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
    }

    /// When the connection is lost if it is not done.
    pub fn deadline_ns(&self) -> i64 {
        self.deadline_ns
    }

    /// Takes an answer. True: the client is logged in.
    pub fn answered(&mut self, correlation: i32, body: &[u8]) -> Result<bool, Lost> {
        if correlation != self.correlation {
            return Err(Malformed("it answers another request").into());
        }
        match self.conversation.answered(body)? {
            Some(question) => {
                self.put(&question);
                Ok(false)
            }
            None => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scram::tests::credentials;
    use super::*;

    #[test]
    fn plain_is_said_after_the_handshake_and_a_refusal_has_the_brokers_words() {
        let credentials = credentials("plain", "u", "geheim");
        let mut conversation = Conversation::new(&credentials);
        let (api, body) = conversation.begin();
        assert_eq!((api.key, body.as_slice()), (17, &b"\0\x05PLAIN"[..]));
        let next = conversation
            .answered(b"\0\0\0\0\0\x01\0\x05PLAIN")
            .expect("it is offered");
        let (api, body) = next.expect("there is more to say");
        assert_eq!((api.key, body.as_slice()), (36, &b"\0\0\0\x09\0u\0geheim"[..]));
        let lost = conversation
            .answered(b"\0\x3A\0\x02no\0\0\0\0\0\0\0\0\0\0\0\0")
            .expect_err("it is refused");
        assert_eq!(
            lost.to_string(),
            "the server ended the connection: \"u\" cannot log in with PLAIN: no"
        );
        assert_eq!(lost.kind(), "SASL_AUTHENTICATION_FAILED");
        assert!(!format!("{:?}", Login::new(&credentials, "c")).contains("geheim"));
    }

    #[test]
    fn a_mechanism_that_is_not_offered_is_told_with_those_that_are() {
        let credentials = credentials("scram-sha-512", "u", "p");
        let lost = Conversation::new(&credentials)
            .answered(b"\0\x21\0\0\0\x01\0\x05PLAIN")
            .expect_err("it is not offered");
        assert!(
            lost.to_string().ends_with("the broker offers PLAIN only"),
            "{lost}"
        );
    }
}
