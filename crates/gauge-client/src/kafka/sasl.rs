//! Logging in: SaslHandshake, then SaslAuthenticate with PLAIN (RFC 4616) or SCRAM (RFC 5802; with SHA-256: RFC 7677).
//!
//! A [`Conversation`] knows what is said and what must be answered, and neither sockets nor frames; [`Login`] is one on its way over a
//! non-blocking connection. What SCRAM derives from the password is kept for the next connection: it takes milliseconds, in which a lane
//! would do nothing else.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

use super::errors::Code;
use super::wire::{self, Api, Malformed, Put, Reader, begin_request, finish_request};
use crate::security::{Auth, ScramHash, Secret, Security};
use crate::transport::Lost;

/// How long a login may take. Slow: a broker under load answers late.
const LOGIN_NS: i64 = 10_000_000_000;
/// Fewer iterations would make the password easy to guess from what travels (RFC 7677, section 4).
const ITERATIONS_MIN: u32 = 4096;
/// More would keep the client busy for longer than a login may take.
const ITERATIONS_MAX: u32 = 1_000_000;
const NONCE_BYTES: usize = 18;

/// Who logs in.
#[derive(Clone)]
pub(crate) struct Credentials(Arc<Inner>);

struct Inner {
    /// Kafka's name of the mechanism.
    mechanism: &'static str,
    /// None: PLAIN.
    hash: Option<ScramHash>,
    username: String,
    password: Secret,
    derived: Mutex<Option<Derived>>,
}

/// What SCRAM derives from a password for one salt.
#[derive(Clone)]
struct Derived {
    salt: Vec<u8>,
    iterations: u32,
    client_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl Credentials {
    /// The credentials in a system's security, of which `Security::check` has seen that Kafka can do them.
    pub fn of(security: &Security) -> Option<Credentials> {
        let (mechanism, hash, username, password) = match security.auth.as_ref()? {
            Auth::Plain { username, password } => ("PLAIN", None, username, password),
            Auth::Scram {
                hash,
                username,
                password,
            } => {
                let mechanism = match hash {
                    ScramHash::Sha256 => "SCRAM-SHA-256",
                    ScramHash::Sha512 => "SCRAM-SHA-512",
                };
                (mechanism, Some(*hash), username, password)
            }
            Auth::External | Auth::Token(_) | Auth::Nkey(_) => return None,
        };
        Some(Credentials(Arc::new(Inner {
            mechanism,
            hash,
            username: username.clone(),
            password: password.clone(),
            derived: Mutex::new(None),
        })))
    }

    fn derive(&self, hash: ScramHash, salt: &[u8], iterations: NonZeroU32) -> Derived {
        // Whoever panicked while holding it has not changed it half: it is replaced whole.
        let mut kept = self
            .0
            .derived
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(kept) = &*kept
            && kept.salt == salt
            && kept.iterations == iterations.get()
        {
            return kept.clone();
        }
        let password = self.0.password.reveal().as_bytes();
        let (algorithm, bytes) = match hash {
            ScramHash::Sha256 => (pbkdf2::PBKDF2_HMAC_SHA256, 32),
            ScramHash::Sha512 => (pbkdf2::PBKDF2_HMAC_SHA512, 64),
        };
        let mut salted = vec![0; bytes];
        pbkdf2::derive(algorithm, iterations, salt, password, &mut salted);
        let derived = Derived {
            salt: salt.to_vec(),
            iterations: iterations.get(),
            client_key: sign(hash, &salted, b"Client Key"),
            server_key: sign(hash, &salted, b"Server Key"),
        };
        *kept = Some(derived.clone());
        derived
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} as {:?}", self.0.mechanism, self.0.username)
    }
}

fn hmac_of(hash: ScramHash) -> hmac::Algorithm {
    match hash {
        ScramHash::Sha256 => hmac::HMAC_SHA256,
        ScramHash::Sha512 => hmac::HMAC_SHA512,
    }
}

fn sign(hash: ScramHash, key: &[u8], message: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac_of(hash), key);
    hmac::sign(&key, message).as_ref().to_vec()
}

/// A client's side of SCRAM, without channel binding.
///
/// User name and password are used as they are written, like Kafka's own clients do: SASLprep (RFC 4013) would change some of those
/// that are not ASCII.
pub(crate) struct Scram {
    hash: ScramHash,
    credentials: Credentials,
    nonce: String,
    /// The client's first message without its header, later the whole message that both sides sign.
    signed: String,
    server_key: Vec<u8>,
}

impl Scram {
    /// Begins with a nonce of its own.
    ///
    /// # Errors
    /// When the system has no random numbers.
    fn new(hash: ScramHash, credentials: &Credentials) -> Result<Scram, String> {
        let mut nonce = [0; NONCE_BYTES];
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| "the system has no random numbers")?;
        Ok(Scram::with_nonce(hash, credentials, &BASE64.encode(nonce)))
    }

    fn with_nonce(hash: ScramHash, credentials: &Credentials, nonce: &str) -> Scram {
        let username = credentials.0.username.replace('=', "=3D").replace(',', "=2C");
        Scram {
            hash,
            credentials: credentials.clone(),
            nonce: nonce.to_owned(),
            signed: format!("n={username},r={nonce}"),
            server_key: Vec::new(),
        }
    }

    /// The client's first message.
    pub fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.signed).into_bytes()
    }

    /// The client's final message, with its proof, for the server's first one.
    ///
    /// # Errors
    /// One sentence when the server's message is not what it must be.
    pub fn answer(&mut self, server_first: &[u8]) -> Result<Vec<u8>, String> {
        let wrong = |what: &str| format!("its first SCRAM message is wrong: {what}");
        let text = std::str::from_utf8(server_first).map_err(|_| wrong("it is no text"))?;
        if let Some(error) = text.strip_prefix("e=") {
            return Err(error.to_owned());
        }
        let mut attributes = text.split(',');
        let mut next = |name: &str| attributes.next().and_then(|part| part.strip_prefix(name));
        let nonce = next("r=").ok_or_else(|| wrong("it has no nonce"))?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(wrong("its nonce does not go on from the client's"));
        }
        let salt = next("s=").and_then(|salt| BASE64.decode(salt).ok());
        let salt = salt.ok_or_else(|| wrong("it has no salt"))?;
        let iterations = next("i=").and_then(|count| count.parse::<u32>().ok());
        let iterations = iterations
            .filter(|count| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(count))
            .and_then(NonZeroU32::new)
            .ok_or_else(|| {
                wrong(&format!(
                    "expected {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations"
                ))
            })?;
        let derived = self.credentials.derive(self.hash, &salt, iterations);
        // "biws": the header of the first message, "n,,", in Base64.
        let without_proof = format!("c=biws,r={nonce}");
        self.signed = format!("{},{text},{without_proof}", self.signed);
        let stored_key = match self.hash {
            ScramHash::Sha256 => digest::digest(&digest::SHA256, &derived.client_key),
            ScramHash::Sha512 => digest::digest(&digest::SHA512, &derived.client_key),
        };
        let signature = sign(self.hash, stored_key.as_ref(), self.signed.as_bytes());
        let proof: Vec<u8> = std::iter::zip(&derived.client_key, &signature)
            .map(|(key, signature)| key ^ signature)
            .collect();
        self.server_key = derived.server_key;
        Ok(format!("{without_proof},p={}", BASE64.encode(proof)).into_bytes())
    }

    /// Looks whether the server knows the password, too.
    ///
    /// # Errors
    /// One sentence when it does not, or refuses the client.
    pub fn verify(&self, server_final: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(server_final);
        if let Some(error) = text.strip_prefix("e=") {
            return Err(error.to_owned());
        }
        let signature = text
            .strip_prefix("v=")
            .and_then(|rest| rest.split(',').next())
            .and_then(|signature| BASE64.decode(signature).ok());
        let key = hmac::Key::new(hmac_of(self.hash), &self.server_key);
        let is_right =
            signature.is_some_and(|signature| hmac::verify(&key, self.signed.as_bytes(), &signature).is_ok());
        if is_right {
            Ok(())
        } else {
            Err("it has not proven that it knows the password: is it the right cluster?".to_owned())
        }
    }
}

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
        body.put_string(self.credentials.0.mechanism);
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
        let inner = &self.credentials.0;
        match inner.hash {
            None => {
                let parts = [inner.username.as_str(), inner.password.reveal()];
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
        let Inner {
            mechanism, username, ..
        } = &*self.credentials.0;
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
    use super::*;
    use serde_json::json;

    fn credentials(mechanism: &str, username: &str, password: &str) -> Credentials {
        let auth = json!({"mechanism": mechanism, "username": username, "password": password});
        let security = Security::read(&json!({ "auth": auth })).expect("it is right");
        Credentials::of(&security).expect("Kafka has it")
    }

    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    /// The example of RFC 7677, section 3.
    #[test]
    fn scram_says_what_the_rfc_says() {
        let credentials = credentials("scram-sha-256", "user", "pencil");
        for _ in 0..2 {
            let mut scram = Scram::with_nonce(ScramHash::Sha256, &credentials, "rOprNGfwEbeRWgbNEkqO");
            assert_eq!(scram.first(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
            let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
            assert_eq!(
                scram.answer(SERVER_FIRST.as_bytes()).as_deref(),
                Ok(expected.as_bytes())
            );
            assert_eq!(
                scram.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
                Ok(())
            );
            assert!(
                scram
                    .verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G8=")
                    .is_err()
            );
            assert_eq!(scram.verify(b"e=other-error"), Err("other-error".to_owned()));
        }
    }

    #[test]
    fn a_server_that_cheats_is_refused() {
        let credentials = credentials("scram-sha-256", "user", "pencil");
        for wrong in [
            "",
            "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            // A nonce to which nothing was added, and too few iterations.
            "r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            &SERVER_FIRST.replace("i=4096", "i=1"),
            &SERVER_FIRST.replace("i=4096", "i=4000000000"),
            &SERVER_FIRST.replace("s=W22", "s=!"),
        ] {
            let mut scram = Scram::with_nonce(ScramHash::Sha256, &credentials, "rOprNGfwEbeRWgbNEkqO");
            assert!(scram.answer(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_escaped() {
        let credentials = credentials("scram-sha-512", "a,b=c", "p");
        let scram = Scram::with_nonce(ScramHash::Sha512, &credentials, "x");
        assert_eq!(scram.first(), b"n,,n=a=2Cb=3Dc,r=x");
    }

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
