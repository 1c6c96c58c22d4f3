//! Who a NATS client says it is: user and password, a token, or the signature of an nkey.
//!
//! An nkey is an Ed25519 key. Its seed and its public key are written in Base32 with a prefix that tells what they are for, and a
//! CRC-16; the server sends a nonce, and the client its signature. Sources: "NATS Client Protocol" (docs.nats.io), nats-io/nkeys.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Map, Value, json};

use crate::ClientError;
use crate::security::{Auth, Secret, Security};

/// The mechanisms of authentication that this client has.
const MECHANISMS: &[&str] = &["plain", "token", "nkey"];
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// First five bits of a seed, and of a user's public key ("S", "U").
const PREFIX_SEED: u8 = 18 << 3;
const PREFIX_USER: u8 = 20 << 3;
/// Two bytes of prefixes, the seed, two bytes of CRC.
const SEED_BYTES: usize = 36;

/// Who a client says it is.
#[derive(Clone, Debug)]
pub(crate) enum Login {
    /// Nobody.
    Anonymous,
    User {
        username: String,
        password: Secret,
    },
    Token(Secret),
    Nkey(Arc<Nkey>),
}

impl Login {
    /// The login in a system's security.
    ///
    /// # Errors
    /// [`ClientError::Input`] when NATS has no such mechanism, or the seed is none.
    pub fn of(security: &Security) -> Result<Login, ClientError> {
        security.check("nats", MECHANISMS)?;
        Ok(match &security.auth {
            Some(Auth::Plain { username, password }) => Login::User {
                username: username.clone(),
                password: password.clone(),
            },
            Some(Auth::Token(token)) => Login::Token(token.clone()),
            Some(Auth::Nkey(seed)) => {
                let nkey = Nkey::of(seed.reveal()).ok_or_else(|| {
                    ClientError::input(
                        "system.security.auth.seed",
                        "it is no user's seed: expected 58 letters and digits that begin with SU, as `nk -gen user` writes them",
                    )
                })?;
                Login::Nkey(Arc::new(nkey))
            }
            _ => Login::Anonymous,
        })
    }

    /// Adds what proves it to the options of CONNECT.
    ///
    /// # Errors
    /// One sentence when the server's INFO has no nonce to be signed.
    pub fn put(&self, options: &mut Map<String, Value>, nonce: Option<&str>) -> Result<(), String> {
        let mut put = |name: &str, value: &str| options.insert(name.to_owned(), json!(value));
        match self {
            Login::Anonymous => {}
            Login::User { username, password } => {
                put("user", username);
                put("pass", password.reveal());
            }
            Login::Token(token) => {
                put("auth_token", token.reveal());
            }
            Login::Nkey(nkey) => {
                let nonce = nonce.ok_or("it sends no nonce to be signed: it knows no nkeys")?;
                put("nkey", &nkey.public);
                put("sig", &nkey.sign(nonce));
            }
        }
        Ok(())
    }
}

/// A user's key.
pub(crate) struct Nkey {
    pair: Ed25519KeyPair,
    public: String,
}

impl fmt::Debug for Nkey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.public)
    }
}

impl Nkey {
    /// The key of a seed; None: it is no seed of a user's key, or was copied wrong.
    fn of(seed: &str) -> Option<Nkey> {
        let bytes = decode(seed)?;
        let bytes: &[u8; SEED_BYTES] = bytes.as_slice().try_into().ok()?;
        let (body, crc) = bytes.split_at(SEED_BYTES - 2);
        // The prefix of what the key is for lies behind the first five bits.
        let purpose = (body[0] & 7) << 5 | body[1] >> 3;
        if crc != crc16(body).to_le_bytes() || body[0] & 0xF8 != PREFIX_SEED || purpose != PREFIX_USER {
            return None;
        }
        let pair = Ed25519KeyPair::from_seed_unchecked(&body[2..]).ok()?;
        let mut public = vec![PREFIX_USER];
        public.extend_from_slice(pair.public_key().as_ref());
        public.extend_from_slice(&crc16(&public).to_le_bytes());
        Some(Nkey {
            public: encode(&public),
            pair,
        })
    }

    fn sign(&self, nonce: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.pair.sign(nonce.as_bytes()))
    }
}

/// Base32 (RFC 4648) without padding.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity((bytes.len() * 8).div_ceil(5));
    let (mut bits, mut held) = (0u32, 0);
    for byte in bytes {
        bits = bits << 8 | u32::from(*byte);
        held += 8;
        while held >= 5 {
            held -= 5;
            text.push(char::from(ALPHABET[(bits >> held & 31) as usize]));
        }
    }
    if held > 0 {
        text.push(char::from(ALPHABET[(bits << (5 - held) & 31) as usize]));
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut bits, mut held) = (0u32, 0);
    for letter in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == letter)?;
        bits = bits << 5 | value as u32;
        held += 5;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    // What is left over of the last letter means nothing and is zero.
    (held < 5 && bits & ((1 << held) - 1) == 0).then_some(bytes)
}

/// CRC-16/XMODEM: polynomial 0x1021, beginning with 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc: u16, _| {
            let polynomial = if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            crc << 1 ^ polynomial
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ED25519, UnparsedPublicKey};

    /// The example of NATS's documentation.
    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

    fn read(auth: Value) -> Result<Login, ClientError> {
        let security = Security::read(&json!({ "auth": auth }));
        Login::of(&security.expect("it is right"))
    }

    #[test]
    fn a_seed_gives_its_public_key_and_signs() {
        let login = read(json!({"mechanism": "nkey", "seed": SEED})).expect("it is a seed");
        assert!(!format!("{login:?}").contains(SEED));
        let mut options = Map::new();
        assert!(login.put(&mut options, None).is_err());
        login.put(&mut options, Some("nonce")).expect("there is a nonce");
        assert_eq!(options["nkey"], PUBLIC);
        let public = decode(PUBLIC).expect("it is Base32");
        let signature = URL_SAFE_NO_PAD
            .decode(options["sig"].as_str().expect("a text"))
            .expect("it is Base64");
        UnparsedPublicKey::new(&ED25519, &public[1..33])
            .verify(b"nonce", &signature)
            .expect("the public key's own signature");
    }

    #[test]
    fn what_is_no_seed_is_refused_without_being_repeated() {
        for wrong in [
            PUBLIC,
            "SU",
            &SEED.replace("SUAC", "SUAD"),
            &SEED.to_lowercase(),
            &format!("{SEED}A"),
        ] {
            let error = read(json!({"mechanism": "nkey", "seed": wrong})).expect_err("it is wrong");
            assert!(
                error.to_string().starts_with("system.security.auth.seed"),
                "{error}"
            );
            assert!(!error.to_string().contains(wrong) || wrong == "SU");
        }
        let scram = json!({"mechanism": "scram-sha-256", "username": "u", "password": "p"});
        assert!(read(scram).is_err());
    }

    #[test]
    fn base32_goes_there_and_back() {
        for bytes in [&b""[..], b"f", b"fo", b"foo", b"foob", b"fooba", b"foobar"] {
            assert_eq!(decode(&encode(bytes)).as_deref(), Some(bytes));
        }
        assert_eq!(encode(b"foobar"), "MZXW6YTBOI");
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }
}
