//! SCRAM (RFC 5802; with SHA-256: RFC 7677), from the client's side and without channel binding.
//!
//! What is derived from the password is kept for the next connection: it takes milliseconds, in which a lane would do nothing else.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

use crate::security::{Auth, ScramHash, Secret, Security};

/// Fewer iterations would make the password easy to guess from what travels (RFC 7677, section 4).
const ITERATIONS_MIN: u32 = 4096;
/// More would keep the client busy for longer than a login may take.
const ITERATIONS_MAX: u32 = 1_000_000;
const NONCE_BYTES: usize = 18;

/// Who logs in.
#[derive(Clone)]
pub(crate) struct Credentials(Arc<Inner>);

struct Inner {
    mechanism: &'static str,
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

    /// Kafka's name of the mechanism.
    pub fn mechanism(&self) -> &'static str {
        self.0.mechanism
    }

    /// The mechanism's hash; None: PLAIN.
    pub fn hash(&self) -> Option<ScramHash> {
        self.0.hash
    }

    pub fn username(&self) -> &str {
        &self.0.username
    }

    pub fn password(&self) -> &Secret {
        &self.0.password
    }

    fn derive(&self, hash: ScramHash, salt: &[u8], iterations: NonZeroU32) -> Derived {
        // Whoever panicked while holding it has not changed it half: it is replaced whole.
        let mut kept = self.0.derived.lock().unwrap_or_else(PoisonError::into_inner);
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

/// One conversation.
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
    pub fn new(hash: ScramHash, credentials: &Credentials) -> Result<Scram, String> {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub fn credentials(mechanism: &str, username: &str, password: &str) -> Credentials {
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
            "e=other-error",
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
}
