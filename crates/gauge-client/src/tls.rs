//! TLS of a client: settings that were looked at once, and the encrypted side of one connection. No socket is opened here.
//!
//! rustls keeps what goes out and what came in; a [`Session`] moves both to and from a non-blocking socket. TLS 1.2 and 1.3.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error,
    RootCertStore, SignatureScheme,
};

/// Bytes that rustls may hold encrypted and unsent.
const OUTGOING_BYTES_MAX: usize = 256 << 10;
/// Buffer for encrypted bytes that were read: rustls by itself would ask the socket for 4 KiB at a time.
const INCOMING_BYTES: usize = 32 << 10;

/// The `tls` object of a request. `verify`: whether servers must prove who they are.
#[derive(Clone, Copy)]
pub(crate) struct TlsSettings<'a> {
    pub ca_pem: Option<&'a str>,
    pub certificate_pem: Option<&'a str>,
    pub key_pem: Option<&'a str>,
    pub server_name: Option<&'a str>,
    pub verify: bool,
}

/// TLS as it is asked for, shared by all connections of a system.
#[derive(Clone)]
pub(crate) struct Tls(Arc<Shared>);

struct Shared {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    has_certificate: bool,
    verifies: bool,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of the settings nothing but what a reader must know: a key is among them.
        formatter
            .debug_struct("Tls")
            .field("server_name", &self.0.server_name)
            .field("has_certificate", &self.0.has_certificate)
            .field("verifies", &self.0.verifies)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Looks at settings.
    ///
    /// # Errors
    /// The field that is to blame, and one sentence that repeats nothing of it.
    pub fn new(settings: &TlsSettings<'_>) -> Result<Tls, (&'static str, String)> {
        let provider = Arc::new(ring::default_provider());
        let roots = settings.ca_pem.map(roots).transpose()?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| ("", error.to_string()))?;
        let builder = match (settings.verify, roots) {
            (true, Some(roots)) => builder.with_root_certificates(roots),
            (true, None) => {
                return Err((
                    "ca_pem",
                    "absent: there are no built-in roots, so expected the certificate (PEM) of the CA that has signed the servers' certificates"
                        .to_owned(),
                ));
            }
            (false, _) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody(provider))),
        };
        let config = match (settings.certificate_pem, settings.key_pem) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let chain = certificates("certificate_pem", certificate)?;
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| {
                    let expected = "expected a private key in PEM (PKCS #8, PKCS #1 or SEC 1), not encrypted";
                    ("key_pem", expected.to_owned())
                })?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| ("key_pem", format!("it does not go with certificate_pem: {error}")))?
            }
            (None, Some(_)) => {
                return Err((
                    "certificate_pem",
                    "absent, and key_pem is there: expected both or none".to_owned(),
                ));
            }
            (Some(_), None) => {
                return Err((
                    "key_pem",
                    "absent, and certificate_pem is there: expected both or none".to_owned(),
                ));
            }
        };
        let server_name = settings.server_name.map(server_name).transpose();
        Ok(Tls(Arc::new(Shared {
            config: Arc::new(config),
            server_name: server_name.map_err(|error| ("server_name", error))?,
            has_certificate: settings.certificate_pem.is_some(),
            verifies: settings.verify,
        })))
    }

    /// Whether there is a client's certificate.
    pub fn has_certificate(&self) -> bool {
        self.0.has_certificate
    }

    /// Whether servers must prove who they are.
    pub fn verifies(&self) -> bool {
        self.0.verifies
    }

    /// The encrypted side of a connection to a host, by its name or its IP address.
    ///
    /// # Errors
    /// When no certificate can be for such a host.
    pub fn session(&self, host: &str) -> io::Result<Session> {
        let name = match &self.0.server_name {
            Some(name) => name.clone(),
            None => server_name(host).map_err(|words| io::Error::new(io::ErrorKind::InvalidInput, words))?,
        };
        let shown = name.to_str().into_owned();
        let connection = ClientConnection::new(Arc::clone(&self.0.config), name);
        let mut connection = connection.map_err(|error| told(&error, &shown))?;
        connection.set_buffer_limit(Some(OUTGOING_BYTES_MAX));
        Ok(Session {
            connection,
            incoming: vec![0; INCOMING_BYTES],
            filled: 0..0,
            name: shown,
        })
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.to_owned()).map_err(|_| {
        format!(
            "{host:?} is neither a host's name nor an IP address: expected what the servers' certificates are for"
        )
    })
}

fn certificates(
    field: &'static str,
    pem: &str,
) -> Result<Vec<CertificateDer<'static>>, (&'static str, String)> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err((
            field,
            "expected certificates in PEM (-----BEGIN CERTIFICATE-----), the text itself and not a file's name"
                .to_owned(),
        )),
    }
}

fn roots(pem: &str) -> Result<RootCertStore, (&'static str, String)> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca_pem", pem)? {
        roots
            .add(certificate)
            .map_err(|error| ("ca_pem", format!("a certificate in it cannot be used: {error}")))?;
    }
    Ok(roots)
}

/// Takes every server for the right one, as long as it has the key of the certificate that it shows.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The encrypted side of one connection.
#[derive(Debug)]
pub(crate) struct Session {
    connection: ClientConnection,
    incoming: Vec<u8>,
    /// The part of `incoming` that was read from the socket and not decrypted.
    filled: Range<usize>,
    /// Whom the server's certificate must name.
    name: String,
}

impl Session {
    /// Whether encrypted bytes wait for the socket.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Does what can be done for the handshake. True: it is complete.
    ///
    /// It completes with something that was read, never with something that was written: whoever sees it complete reads on, and finds
    /// what the server may have sent behind its last word.
    pub fn shake(&mut self, socket: &TcpStream, may_read: bool) -> io::Result<bool> {
        while may_read && self.connection.is_handshaking() {
            match self.pull(socket) {
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server closed the connection during the TLS handshake: expected a TLS listener there",
                    ));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    // Tells the server why, as far as the socket takes it.
                    let _ = self.flush(socket);
                    return Err(error);
                }
            }
        }
        match self.flush(socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(!self.connection.is_handshaking()),
        }
    }

    /// Reads as much as there is and `into` takes: fewer bytes than that mean that neither the socket nor rustls has more. 0: the end.
    pub fn read(&mut self, socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
        let mut taken = 0;
        while taken < into.len() {
            match self.connection.reader().read(&mut into[taken..]) {
                // The server has said that it is done.
                Ok(0) => return Ok(taken),
                Ok(bytes) => {
                    taken += bytes;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match self.pull(socket) {
                Ok(0) => return Ok(taken),
                Ok(_) => {}
                Err(error) if taken == 0 => return Err(error),
                Err(error) => {
                    // What was read before comes first; the error comes again with the next read, for which the poller wakes the
                    // owner when the socket is closed.
                    if error.kind() != io::ErrorKind::WouldBlock {
                        let _ = socket.shutdown(std::net::Shutdown::Both);
                    }
                    return Ok(taken);
                }
            }
        }
        Ok(taken)
    }

    /// Decrypts a piece of what has come in, which is read from the socket when there is none. 0: the end.
    fn pull(&mut self, mut socket: &TcpStream) -> io::Result<usize> {
        if self.filled.is_empty() {
            let bytes = loop {
                match socket.read(&mut self.incoming) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => break result?,
                }
            };
            self.filled = 0..bytes;
            if bytes == 0 {
                return Ok(0);
            }
        }
        let mut rest = &self.incoming[self.filled.clone()];
        let bytes = self.connection.read_tls(&mut rest)?;
        self.filled.start += bytes;
        match self.connection.process_new_packets() {
            Ok(_) => Ok(bytes),
            Err(error) => Err(told(&error, &self.name)),
        }
    }

    /// Hands plain bytes to rustls and writes what comes of them. Nothing is taken while the socket has not taken what was there before.
    pub fn write_vectored(&mut self, socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(socket)?;
        let bytes = self.connection.writer().write_vectored(slices)?;
        match self.flush(socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(bytes),
        }
    }

    /// Writes encrypted bytes until there are none.
    pub fn flush(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// An error of TLS in words that say what to do.
fn told(error: &Error, name: &str) -> io::Error {
    let words = match error {
        Error::InvalidCertificate(reason) => match reason {
            // A signature is bad when the CA was made again under the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "the server's certificate is not signed by the given CA: pass the certificate of its own CA as system.security.tls.ca_pem (in a system file: security.ca_file)"
                    .to_owned()
            }
            CertificateError::NotValidForName => not_for(name, ""),
            CertificateError::NotValidForNameContext { presented, .. } => not_for(name, &presented.join(", ")),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired (or this machine's clock is wrong)".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet (or this machine's clock is wrong)".to_owned()
            }
            // The library of rustls that knows this reason is not passed on by it.
            CertificateError::Other(reason) if format!("{reason:?}").contains("CaUsedAsEndEntity") => {
                "the server shows a CA's own certificate (CA:TRUE, which `openssl req -x509` writes into what it signs with itself): expected one that a CA has signed for the server (or one signed with itself that says CA:FALSE)"
                    .to_owned()
            }
            reason => format!("the server's certificate cannot be trusted: {reason}"),
        },
        Error::AlertReceived(alert) => match alert {
            AlertDescription::BadCertificate
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied => format!(
                "the server does not take this client's certificate, or misses one ({alert:?}): expected system.security.tls.certificate_pem and key_pem that it trusts (in a system file: security.certificate_file and key_file)"
            ),
            alert => format!("the server ended TLS with the alert {alert:?}"),
        },
        Error::InvalidMessage(_) => {
            format!("the server does not answer in TLS ({error}): expected a TLS listener there")
        }
        error => format!("TLS: {error}"),
    };
    io::Error::new(io::ErrorKind::InvalidData, words)
}

fn not_for(name: &str, presented: &str) -> String {
    // webpki writes DnsName("x") and IpAddress(y).
    let bare = presented
        .replace("DnsName(", "")
        .replace("IpAddress(", "")
        .replace([')', '"'], "");
    let is_for = if bare.is_empty() {
        String::new()
    } else {
        format!(" but for {bare}")
    };
    format!(
        "the server's certificate is not for {name:?}{is_for}: pass the name that it is for as system.security.tls.server_name"
    )
}
