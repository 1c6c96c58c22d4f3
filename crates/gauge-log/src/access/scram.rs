//! SCRAM: what is kept of a password, and the server's side of an exchange.
//!
//! Sources: RFC 5802, RFC 7677 (SCRAM-SHA-256); SCRAM-SHA-512 is the same with SHA-512, as in KIP-84. Channel binding is not offered.

use std::num::NonZeroU32;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};

/// Rounds of PBKDF2 with which verifiers are made here; fewer are not accepted (RFC 7677).
pub const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("it is not zero");
/// Rounds at most, as in Kafka: checking a PLAIN password takes all of them, while other connections wait.
pub const ITERATIONS_MAX: u32 = 16_384;
/// Bytes of salt in verifiers that are made here.
pub const SALT_BYTES: usize = 16;
const SALT_BYTES_MIN: usize = 8;
/// Bytes of salt at most.
pub const SALT_BYTES_MAX: usize = 48;
/// Bytes of a client's nonce at most.
const NONCE_BYTES_MAX: usize = 256;

/// The hash function of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl Mechanism {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// Its registered name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// What verifiers in a users file begin with.
    pub fn label(self) -> &'static str {
        match self {
            Self::Sha256 => "scram-sha-256",
            Self::Sha512 => "scram-sha-512",
        }
    }

    fn hash(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }

    fn mac(self, key: &[u8], data: &[u8]) -> hmac::Tag {
        let algorithm = match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), data)
    }

    fn rounds(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    /// Bytes of a hash.
    pub fn hash_bytes(self) -> usize {
        self.hash().output_len()
    }
}

/// What is kept of a password: it recognises the password, and nobody can log in with it.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    mechanism: Mechanism,
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Verifier({}, ...)", self.mechanism.name())
    }
}

impl Verifier {
    /// The verifier of a password; takes milliseconds.
    pub fn new(mechanism: Mechanism, password: &str, salt: Vec<u8>, iterations: NonZeroU32) -> Self {
        let mut salted = vec![0; mechanism.hash_bytes()];
        pbkdf2::derive(
            mechanism.rounds(),
            iterations,
            &salt,
            password.as_bytes(),
            &mut salted,
        );
        let client_key = mechanism.mac(&salted, b"Client Key");
        let stored_key = digest::digest(mechanism.hash(), client_key.as_ref());
        let server_key = mechanism.mac(&salted, b"Server Key");
        Self {
            mechanism,
            iterations,
            salt,
            stored_key: stored_key.as_ref().to_vec(),
            server_key: server_key.as_ref().to_vec(),
        }
    }

    /// A verifier of no password at all, which looks to a client like one of somebody's.
    pub fn decoy(mechanism: Mechanism, salt: Vec<u8>, iterations: NonZeroU32) -> Self {
        let nothing = vec![0; mechanism.hash_bytes()];
        Self {
            mechanism,
            iterations,
            salt,
            stored_key: nothing.clone(),
            server_key: nothing,
        }
    }

    /// Its mechanism.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// What a client sees of it before it has shown anything: rounds, and bytes of salt.
    pub fn shape(&self) -> (NonZeroU32, usize) {
        (self.iterations, self.salt.len())
    }

    /// Whether it is the password's; takes as long as making it, and as long for a wrong password as for the right one.
    pub fn is_of(&self, password: &str, comparison: &Comparison) -> bool {
        let made = Self::new(self.mechanism, password, self.salt.clone(), self.iterations);
        comparison.are_equal(&made.stored_key, &self.stored_key)
    }

    /// The form in a users file: `scram-sha-256$4096$SALT$STORED$SERVER`, the last three in Base64.
    pub fn to_text(&self) -> String {
        format!(
            "{}${}${}${}${}",
            self.mechanism.label(),
            self.iterations,
            BASE64.encode(&self.salt),
            BASE64.encode(&self.stored_key),
            BASE64.encode(&self.server_key)
        )
    }

    /// Reads what `to_text` writes.
    ///
    /// # Errors
    /// What was expected.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('$').collect();
        let [label, iterations, salt, stored_key, server_key] = parts[..] else {
            return Err("expected MECHANISM$ROUNDS$SALT$STORED$SERVER".to_owned());
        };
        let mechanism = Mechanism::ALL
            .into_iter()
            .find(|mechanism| mechanism.label() == label)
            .ok_or("expected scram-sha-256 or scram-sha-512")?;
        let iterations = iterations
            .parse::<NonZeroU32>()
            .ok()
            .filter(|count| (ITERATIONS.get()..=ITERATIONS_MAX).contains(&count.get()))
            .ok_or(format!("expected {ITERATIONS} to {ITERATIONS_MAX} rounds"))?;
        let bytes = |name: &str, text: &str, min: usize, max: usize| {
            let decoded = BASE64.decode(text).ok();
            decoded
                .filter(|bytes| (min..=max).contains(&bytes.len()))
                .ok_or(format!("the {name} is not {min} to {max} bytes in Base64"))
        };
        let length = mechanism.hash_bytes();
        Ok(Self {
            mechanism,
            iterations,
            salt: bytes("salt", salt, SALT_BYTES_MIN, SALT_BYTES_MAX)?,
            stored_key: bytes("stored key", stored_key, length, length)?,
            server_key: bytes("server key", server_key, length, length)?,
        })
    }
}

/// Compares secrets in a time that tells nothing of them: under a key that nobody knows, and only there byte by byte.
#[derive(Clone)]
pub struct Comparison(hmac::Key);

impl Comparison {
    /// With a key that is derived from random bytes of this process.
    pub fn new(random: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, random))
    }

    fn are_equal(&self, one: &[u8], other: &[u8]) -> bool {
        let tag = hmac::sign(&self.0, other);
        hmac::verify(&self.0, one, tag.as_ref()).is_ok()
    }
}

/// A client's first message.
#[derive(Debug, PartialEq, Eq)]
pub struct First<'a> {
    /// Who it says it is.
    pub user: String,
    header: &'a str,
    bare: &'a str,
    nonce: &'a str,
}

impl<'a> First<'a> {
    /// Reads it; None when it is none, or wants what is not offered (channel binding, extensions, to act for somebody else).
    pub fn read(message: &'a [u8]) -> Option<Self> {
        let message = std::str::from_utf8(message).ok()?;
        let mut parts = message.splitn(3, ',');
        let (binding, identity) = (parts.next()?, parts.next()?);
        let bare = parts.next()?;
        let header = &message[..message.len() - bare.len()];
        if binding != "n" && binding != "y" {
            return None;
        }
        let mut attributes = bare.split(',');
        let user = name(attributes.next()?.strip_prefix("n=")?)?;
        let nonce = attributes.next()?.strip_prefix("r=")?;
        let is_own_identity = match identity.strip_prefix("a=") {
            Some(other) => name(other)? == user,
            None => identity.is_empty(),
        };
        let is_nonce = (1..=NONCE_BYTES_MAX).contains(&nonce.len())
            && nonce.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
        (is_own_identity && is_nonce).then_some(Self {
            user,
            header,
            bare,
            nonce,
        })
    }
}

/// A `saslname`: commas and equals signs are written as `=2C` and `=3D`, and nothing else begins with `=`.
fn name(text: &str) -> Option<String> {
    let mut parts = text.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (sign, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (None, Some(rest)) => ('=', rest),
            (None, None) => return None,
        };
        name.push(sign);
        name.push_str(rest);
    }
    (!name.is_empty()).then_some(name)
}

/// The server's side after it has answered the first message.
pub struct Challenge {
    verifier: Arc<Verifier>,
    is_known: bool,
    binding: String,
    nonce: String,
    messages: String,
}

impl std::fmt::Debug for Challenge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Challenge({}, ...)", self.verifier.mechanism.name())
    }
}

impl Challenge {
    /// Answers the first message: the state to go on with, and the server's first message.
    /// `is_known`: whether the verifier is somebody's; with a decoy the exchange takes the same course and fails at its end.
    pub fn new(
        first: &First<'_>,
        verifier: Arc<Verifier>,
        is_known: bool,
        server_nonce: &str,
    ) -> (Self, String) {
        let nonce = format!("{}{server_nonce}", first.nonce);
        let salt = BASE64.encode(&verifier.salt);
        let message = format!("r={nonce},s={salt},i={}", verifier.iterations);
        let challenge = Self {
            binding: BASE64.encode(first.header),
            messages: format!("{},{message}", first.bare),
            verifier,
            is_known,
            nonce,
        };
        (challenge, message)
    }

    /// The server's final message, if the client's final message proves that it has the password.
    pub fn judge(&self, message: &[u8], comparison: &Comparison) -> Option<String> {
        let message = std::str::from_utf8(message).ok()?;
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let mut attributes = without_proof.split(',');
        let is_bound = attributes.next()?.strip_prefix("c=") == Some(&self.binding);
        let is_answer = attributes.next()?.strip_prefix("r=") == Some(&self.nonce);
        let proof = BASE64.decode(proof).ok()?;
        let verifier = &self.verifier;
        let mechanism = verifier.mechanism;
        if !is_bound || !is_answer || proof.len() != mechanism.hash_bytes() {
            return None;
        }
        let messages = format!("{},{without_proof}", self.messages);
        let signature = mechanism.mac(&verifier.stored_key, messages.as_bytes());
        let client_key: Vec<u8> = proof
            .iter()
            .zip(signature.as_ref())
            .map(|(proof, signature)| proof ^ signature)
            .collect();
        let shown = digest::digest(mechanism.hash(), &client_key);
        let is_proof = comparison.are_equal(shown.as_ref(), &verifier.stored_key);
        (is_proof & self.is_known).then(|| {
            let signature = mechanism.mac(&verifier.server_key, messages.as_bytes());
            format!("v={}", BASE64.encode(signature))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn verifier(password: &str) -> Arc<Verifier> {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        Arc::new(Verifier::new(Mechanism::Sha256, password, salt, ITERATIONS))
    }

    fn judged(verifier: Arc<Verifier>, is_known: bool, answer: &str) -> Option<String> {
        let first = First::read(FIRST).unwrap();
        let (challenge, message) = Challenge::new(&first, verifier, is_known, SERVER_NONCE);
        assert_eq!(
            message,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        challenge.judge(answer.as_bytes(), &Comparison::new(b"any"))
    }

    #[test]
    fn the_exchange_of_rfc_7677_takes_its_course() {
        let last = judged(verifier("pencil"), true, FINAL);
        assert_eq!(
            last.as_deref(),
            Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
        );
    }

    #[test]
    fn a_wrong_password_a_decoy_and_a_changed_message_fail() {
        assert_eq!(judged(verifier("Pencil"), true, FINAL), None);
        assert_eq!(judged(verifier("pencil"), false, FINAL), None);
        assert_eq!(
            judged(verifier("pencil"), true, &FINAL.replace("c=biws", "c=eSws")),
            None
        );
        assert_eq!(
            judged(verifier("pencil"), true, &FINAL.replace("k0,p=", "k1,p=")),
            None
        );
        assert_eq!(
            judged(verifier("pencil"), true, &FINAL.replace("dHzb", "dHzc")),
            None
        );
        assert_eq!(judged(verifier("pencil"), true, "c=biws,r=x"), None);
        assert_eq!(judged(verifier("pencil"), true, "e=other-error"), None);
    }

    #[test]
    fn a_verifier_is_read_as_it_was_written_and_recognises_its_password() {
        for mechanism in Mechanism::ALL {
            let made = Verifier::new(mechanism, "a password", vec![7; SALT_BYTES], ITERATIONS);
            let text = made.to_text();
            let read = Verifier::from_text(&text).unwrap();
            assert!(read == made);
            let comparison = Comparison::new(b"any");
            assert!(read.is_of("a password", &comparison));
            assert!(!read.is_of("another password", &comparison));
            assert!(!format!("{read:?}").contains('$'));
            for broken in [
                text.replace("4096", "4095"),
                text.replace("4096", "1000000"),
                text.replace("scram", "scrum"),
                format!("{text}$x"),
                text.replace('=', ""),
            ] {
                assert!(Verifier::from_text(&broken).is_err(), "{broken}");
            }
        }
    }

    #[test]
    fn names_are_unescaped_and_what_is_not_offered_is_refused() {
        let first = First::read(b"y,a=a=2Cb=3Dc,n=a=2Cb=3Dc,r=abc,ext=1").unwrap();
        assert_eq!(first.user, "a,b=c");
        for refused in [
            "p=tls-unique,,n=u,r=abc",
            "n,a=other,n=u,r=abc",
            "n,,m=ext,n=u,r=abc",
            "n,,n=,r=abc",
            "n,,n=u=2X,r=abc",
            "n,,n=u,r=",
            "n,,n=u,r=a b",
            "n,,n=u",
            "n",
            "",
        ] {
            assert_eq!(First::read(refused.as_bytes()), None, "{refused}");
        }
        assert_eq!(First::read(&[0xff; 40]), None);
    }
}
