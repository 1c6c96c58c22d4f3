//! Who may ask, and how the way there is protected: the token, the certificate, and the command that makes both.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Bytes of a token that this program makes.
const TOKEN_BYTES: usize = 32;
/// A token that people make must not be guessed either.
const TOKEN_CHARACTERS_MIN: usize = 16;
const TOKEN_CHARACTERS_MAX: usize = 1024;
/// The name in certificates that this program makes; they are pinned, so nobody compares it with an address.
const CERTIFICATE_NAME: &str = "streamgauge-worker";

/// The token as it is kept: not itself, but what it takes to recognise it in a time that tells nothing of it.
struct Token {
    key: hmac::Key,
    tag: hmac::Tag,
}

impl Token {
    fn new(token: &str) -> Result<Token, String> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| "the system has no random numbers".to_owned())?;
        let tag = hmac::sign(&key, token.as_bytes());
        Ok(Token { key, tag })
    }

    fn is(&self, presented: &[u8]) -> bool {
        hmac::verify(&self.key, presented, self.tag.as_ref()).is_ok()
    }
}

/// What a request must show, and whether connections are encrypted.
#[derive(Default)]
pub struct Access {
    token: Option<Token>,
    tls: Option<TlsAcceptor>,
    fingerprint: Option<String>,
}

impl Access {
    /// Every program that can connect may ask, in plain text; browsers may not (`browser`): for loopback.
    pub fn open() -> Access {
        Access::default()
    }

    /// Requests must carry the token of this file.
    ///
    /// # Errors
    /// A sentence that names the file and what was expected of it.
    pub fn with_token(mut self, file: &Path) -> Result<Access, String> {
        let wrong = |what: String| format!("--token-file {}: {what}", file.display());
        let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
        let token = text.trim();
        let length = token.chars().count();
        if !(TOKEN_CHARACTERS_MIN..=TOKEN_CHARACTERS_MAX).contains(&length)
            || !token.chars().all(|character| character.is_ascii_graphic())
        {
            return Err(wrong(format!(
                "expected one line of {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX} letters, digits and signs without spaces; --make-identity makes one"
            )));
        }
        self.token = Some(Token::new(token).map_err(wrong)?);
        Ok(self)
    }

    /// Connections are encrypted with this certificate (chain) and key, both PEM.
    ///
    /// # Errors
    /// A sentence that names the file and what was expected of it.
    pub fn with_certificate(mut self, certificate: &Path, key: &Path) -> Result<Access, String> {
        let wrong = |option: &str, file: &Path, what: String| {
            format!("--{option} {}: {what}; expected a PEM file", file.display())
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(|error| wrong("certificate", certificate, error.to_string()))?;
        let Some(first) = chain.first() else {
            let what = "there is no certificate in it".to_owned();
            return Err(wrong("certificate", certificate, what));
        };
        self.fingerprint = Some(fingerprint(first));
        let private =
            PrivateKeyDer::from_pem_file(key).map_err(|error| wrong("key", key, error.to_string()))?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
            .map_err(|error| {
                wrong(
                    "key",
                    key,
                    format!("it does not go with the certificate: {error}"),
                )
            })?;
        self.tls = Some(TlsAcceptor::from(Arc::new(config)));
        Ok(self)
    }

    /// Whether the API may be reached from other machines: only with a token, and encrypted.
    pub fn is_guarded(&self) -> bool {
        self.token.is_some() && self.tls.is_some()
    }

    /// SHA-256 of the certificate, as `sha256:HEX`.
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    pub(crate) fn tls(&self) -> Option<&TlsAcceptor> {
        self.tls.as_ref()
    }

    /// Whether requests must carry a token.
    pub(crate) fn wants_token(&self) -> bool {
        self.token.is_some()
    }

    /// Whether these headers carry the token, where one is wanted.
    pub(crate) fn allows(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "))
            .is_some_and(|presented| token.is(presented))
    }
}

fn fingerprint(certificate: &[u8]) -> String {
    format!(
        "sha256:{}",
        hex(digest::digest(&digest::SHA256, certificate).as_ref())
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a token, a key and a self-signed certificate in a directory that holds none of them yet; the certificate's fingerprint.
///
/// # Errors
/// A sentence that names the file and what was wrong.
pub fn make_identity(directory: &Path) -> Result<String, String> {
    let wrong = |what: String| format!("--make-identity {}: {what}", directory.display());
    let mut token = [0; TOKEN_BYTES];
    SystemRandom::new()
        .fill(&mut token)
        .map_err(|_| wrong("the system has no random numbers".to_owned()))?;
    let made = rcgen::generate_simple_self_signed(vec![CERTIFICATE_NAME.to_owned()])
        .map_err(|error| wrong(format!("no certificate could be made: {error}")))?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| wrong(error.to_string()))?;
    let files = [
        ("token", hex(&token) + "\n", 0o600),
        ("key.pem", made.signing_key.serialize_pem(), 0o600),
        ("certificate.pem", made.cert.pem(), 0o644),
    ];
    for (name, _, _) in &files {
        if directory.join(name).exists() {
            return Err(wrong(format!(
                "there is a file '{name}' already; expected a directory without one, or a new one"
            )));
        }
    }
    for (name, text, mode) in &files {
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(*mode)
            .open(directory.join(name))
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| wrong(format!("{name}: {error}")))?;
    }
    Ok(fingerprint(made.cert.der()))
}
