//! TLS and logins: who gets in, who does not, and who only wants to keep others out.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something unexpected happens"
)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use common::*;
use gauge_log::access::scram::{ITERATIONS, Mechanism, Verifier};
use gauge_log::access::users::Users;
use gauge_log::access::{Access, certificate};
use gauge_log::api::APIS;
use gauge_log::start::Running;
use gauge_log::storage::segment::Durability;
use kafka_protocol::messages::*;
use ring::{digest, hmac, pbkdf2};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

const PASSWORD: &str = "correct horse battery";
/// What a failed login is answered with.
const FAILED: i16 = 58;

type Encrypted = StreamOwned<ClientConnection, TcpStream>;

/// A log in a directory, and what its clients need to know.
struct Guarded {
    running: Running,
    certificate: Option<CertificateDer<'static>>,
    _directory: Directory,
}

impl Guarded {
    fn start(name: &str, with_tls: bool, with_users: bool) -> Self {
        let directory = Directory::new(name);
        let mut settings = settings(&directory.0, Durability::Async);
        let mut known = None;
        if with_tls {
            let (access, certificate) = tls(&directory.0);
            settings.access = access;
            known = Some(certificate);
        }
        if with_users {
            settings.access.users = Some(Arc::new(users(&directory.0)));
        }
        Self {
            running: serve(settings),
            certificate: known,
            _directory: directory,
        }
    }

    fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// A client that has connected and, where that is asked for, encrypts.
    fn connect(&self, version: &'static SupportedProtocolVersion) -> Client<Encrypted> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone().unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        Client::over(StreamOwned::new(session, Client::connect(self.address()).stream))
    }
}

fn tls(directory: &Path) -> (Access, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let access = Access {
        tls: Some(certificate::read(&certificate, &key).unwrap()),
        users: None,
    };
    (access, CertificateDer::from_pem_file(&certificate).unwrap())
}

/// `alice`, of whom the password is known, and `bob`, of whom only one verifier is.
fn users(directory: &Path) -> Users {
    let path = directory.join("users");
    let bob = Verifier::new(Mechanism::Sha512, PASSWORD, vec![9; 16], ITERATIONS);
    std::fs::write(&path, format!("alice:{PASSWORD}\nbob:{}\n", bob.to_text())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    Users::read(&path).unwrap()
}

/// Shows messages to the log, in requests of this version or bare ones, and returns its answers; the error is the code and the words, or a closed connection.
struct Login<'a, S> {
    client: &'a mut Client<S>,
    version: Option<i16>,
}

impl<S: Read + Write> Login<'_, S> {
    fn show(&mut self, message: &[u8]) -> Result<Vec<u8>, (i16, String)> {
        let Some(version) = self.version else {
            let mut frame = (message.len() as u32).to_be_bytes().to_vec();
            frame.extend_from_slice(message);
            self.client.stream.write_all(&frame).unwrap();
            let answer = self.client.read_frame();
            return answer
                .map(|answer| answer.to_vec())
                .map_err(|_| (0, String::new()));
        };
        let request = SaslAuthenticateRequest::default().with_auth_bytes(Bytes::copy_from_slice(message));
        let response = self.client.call(&request, version);
        match response.error_code {
            0 => Ok(response.auth_bytes.to_vec()),
            code => Err((code, response.error_message.unwrap_or_default().to_string())),
        }
    }
}

/// Logs in with `SaslHandshake` and `SaslAuthenticate` of these versions (None: messages come bare).
fn log_in<S: Read + Write>(
    client: &mut Client<S>,
    (mechanism, user, password): (&str, &str, &str),
    handshake: i16,
    version: Option<i16>,
) -> Result<(), (i16, String)> {
    let request = SaslHandshakeRequest::default().with_mechanism(name(mechanism));
    let response = client.call(&request, handshake);
    if response.error_code != 0 {
        return Err((response.error_code, String::new()));
    }
    let mut login = Login { client, version };
    if mechanism == "PLAIN" {
        let answer = login.show(format!("\0{user}\0{password}").as_bytes())?;
        assert!(answer.is_empty());
        return Ok(());
    }
    let (rounds, mac, hash) = match mechanism {
        "SCRAM-SHA-256" => (pbkdf2::PBKDF2_HMAC_SHA256, hmac::HMAC_SHA256, &digest::SHA256),
        _ => (pbkdf2::PBKDF2_HMAC_SHA512, hmac::HMAC_SHA512, &digest::SHA512),
    };
    let sign = |key: &[u8], data: &[u8]| hmac::sign(&hmac::Key::new(mac, key), data).as_ref().to_vec();
    let bare = format!("n={user},r=a-nonce");
    let challenge = String::from_utf8(login.show(format!("n,,{bare}").as_bytes())?).unwrap();
    let fields: Vec<&str> = challenge.split(',').map(|field| &field[2..]).collect();
    let salt = BASE64.decode(fields[1]).unwrap();
    let iterations: NonZeroU32 = fields[2].parse().unwrap();
    let mut salted = vec![0; hash.output_len()];
    pbkdf2::derive(rounds, iterations, &salt, password.as_bytes(), &mut salted);
    let client_key = sign(&salted, b"Client Key");
    let stored_key = digest::digest(hash, &client_key);
    let without_proof = format!("c=biws,r={}", fields[0]);
    let messages = format!("{bare},{challenge},{without_proof}");
    let proof: Vec<u8> = client_key
        .iter()
        .zip(sign(stored_key.as_ref(), messages.as_bytes()))
        .map(|(key, signature)| key ^ signature)
        .collect();
    let last = login.show(format!("{without_proof},p={}", BASE64.encode(proof)).as_bytes())?;
    let server_key = sign(&salted, b"Server Key");
    let signature = sign(&server_key, messages.as_bytes());
    assert_eq!(last, format!("v={}", BASE64.encode(signature)).as_bytes());
    Ok(())
}

/// Whether the log has closed the connection, whatever it said before.
fn is_closed(stream: &mut impl Read) -> bool {
    let mut sink = [0u8; 4096];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                );
            }
        }
    }
}

fn wait_until(mut is_done: impl FnMut() -> bool) {
    let ends = Instant::now() + Duration::from_secs(30);
    while !is_done() {
        assert!(Instant::now() < ends, "it has not come about in 30 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn users_log_in_over_tls_with_every_mechanism_in_every_version() {
    let log = Guarded::start("logins", true, true);
    let logins = [
        ("PLAIN", "alice"),
        ("PLAIN", "bob"),
        ("SCRAM-SHA-256", "alice"),
        ("SCRAM-SHA-512", "alice"),
        ("SCRAM-SHA-512", "bob"),
    ];
    for tls in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (mechanism, user) in logins {
            for (handshake, version) in [(0, None), (1, Some(0)), (1, Some(1)), (1, Some(2))] {
                let mut client = log.connect(tls);
                let offered = client.call(&ApiVersionsRequest::default(), 0);
                assert_eq!(offered.api_keys.len(), APIS.len() + 2);
                let credentials = (mechanism, user, PASSWORD);
                assert_eq!(log_in(&mut client, credentials, handshake, version), Ok(()));
                let all = MetadataRequest::default().with_topics(None);
                assert_eq!(client.call(&all, 12).brokers.len(), 1);
                // Once is enough.
                let again = SaslHandshakeRequest::default().with_mechanism(name(mechanism));
                assert_eq!(client.call(&again, 1).error_code, 34);
            }
        }
    }
    assert_eq!(log.running.shared.metrics.failed_logins.get(), 0);
    stop(log.running);
}

#[test]
fn much_data_goes_through_tls_unharmed_in_both_directions() {
    let log = Guarded::start("data", true, false);
    for (version, topic) in [(&rustls::version::TLS12, "old"), (&rustls::version::TLS13, "new")] {
        let mut client = log.connect(version);
        client.create_topic(topic, 1);
        let mut random = Random(11);
        let values: Vec<Bytes> = (0..24)
            .map(|_| {
                let length = random.below(900_000);
                (0..length).map(|_| random.next() as u8).collect()
            })
            .collect();
        for value in &values {
            let (error, _) = client.produce(topic, 0, batch(std::slice::from_ref(value), None));
            assert_eq!(error, 0);
        }
        let read = log.connect(version).read_all(topic, 0, 0);
        assert!(read.iter().map(|(_, value)| value).eq(&values));
    }
    stop(log.running);
}

#[test]
fn a_wrong_password_and_a_stranger_get_the_same_answer_and_nothing_more() {
    let log = Guarded::start("wrong", true, true);
    let mut answers = Vec::new();
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        for (user, password) in [("alice", "correct house"), ("alicia", PASSWORD), ("alice", "")] {
            let mut client = log.connect(&rustls::version::TLS13);
            let refused = log_in(&mut client, (mechanism, user, password), 1, Some(2)).unwrap_err();
            answers.push(refused);
            assert!(is_closed(&mut client.stream), "{mechanism} {user}");
        }
    }
    // Bob has no verifier for this mechanism.
    let mut client = log.connect(&rustls::version::TLS13);
    let credentials = ("SCRAM-SHA-256", "bob", PASSWORD);
    answers.push(log_in(&mut client, credentials, 1, Some(2)).unwrap_err());
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0].0, FAILED);
    // Without requests around the messages there is no way to say it but the end.
    let mut client = log.connect(&rustls::version::TLS13);
    let credentials = ("SCRAM-SHA-512", "alice", "correct house");
    assert!(log_in(&mut client, credentials, 0, None).is_err());
    assert!(is_closed(&mut client.stream));
    assert_eq!(log.running.shared.metrics.failed_logins.get(), 11);
    stop(log.running);
}

#[test]
fn nothing_is_answered_before_the_login() {
    let log = Guarded::start("before", false, true);
    let all = MetadataRequest::default().with_topics(None);
    let mut early = Client::connect(log.address());
    early.send(&all, 12).unwrap();
    assert!(is_closed(&mut early.stream));
    // In the middle of a login, and behind a failed one in the same breath.
    let mut middle = Client::connect(log.address());
    let choice = SaslHandshakeRequest::default().with_mechanism(name("SCRAM-SHA-256"));
    assert_eq!(middle.call(&choice, 1).error_code, 0);
    let wrong = SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from_static(b"n,,rubbish"));
    let mut frames = middle.frame(&wrong, 2);
    frames.extend(middle.frame(&all, 12));
    middle.stream.write_all(&frames).unwrap();
    assert_eq!(
        middle.receive::<SaslAuthenticateRequest>(2).unwrap().error_code,
        FAILED
    );
    assert!(middle.read_frame().is_err());
    // A message without a choice, and a password where everybody could read it.
    let mut without = Client::connect(log.address());
    assert_eq!(without.call(&wrong, 2).error_code, 34);
    assert!(is_closed(&mut without.stream));
    let mut open = Client::connect(log.address());
    let offered = open.call(&SaslHandshakeRequest::default().with_mechanism(name("PLAIN")), 1);
    assert_eq!(offered.error_code, 33);
    let mechanisms: Vec<&str> = offered.mechanisms.iter().map(|name| name.as_str()).collect();
    assert_eq!(mechanisms, ["SCRAM-SHA-256", "SCRAM-SHA-512"]);
    assert!(is_closed(&mut open.stream));
    // Who has not logged in gets no memory for large requests.
    let mut large = Client::connect(log.address());
    large.stream.write_all(&(9u32 << 10).to_be_bytes()).unwrap();
    assert!(is_closed(&mut large.stream));
    let mut good = Client::connect(log.address());
    let credentials = ("SCRAM-SHA-256", "alice", PASSWORD);
    assert_eq!(log_in(&mut good, credentials, 1, Some(2)), Ok(()));
    good.create_topic("t", 1);
    stop(log.running);
}

#[test]
fn what_is_no_tls_is_closed_and_others_are_served() {
    let log = Guarded::start("rubbish", true, false);
    let mut good = log.connect(&rustls::version::TLS13);
    good.create_topic("t", 1);
    // A client that does not know of TLS.
    let mut plain = Client::connect(log.address());
    plain.send(&ApiVersionsRequest::default(), 0).unwrap();
    assert!(is_closed(&mut plain.stream));
    // The beginning of a handshake, changed here and there, and then anything.
    let mut random = Random(5);
    let mut hello = Vec::new();
    log.connect(&rustls::version::TLS13)
        .stream
        .conn
        .write_tls(&mut hello)
        .unwrap();
    for _ in 0..300 {
        let mut bytes = hello.clone();
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        bytes.truncate(1 + random.below(2 * bytes.len()));
        bytes.extend((0..random.below(500)).map(|_| random.next() as u8));
        let mut stream = TcpStream::connect(log.address()).unwrap();
        let _ = stream.write_all(&bytes);
    }
    // Records that were tampered with on their way.
    let mut tampered = log.connect(&rustls::version::TLS13);
    tampered.call(&ApiVersionsRequest::default(), 0);
    tampered.stream.sock.write_all(&[0x17, 3, 3, 0, 40]).unwrap();
    tampered.stream.sock.write_all(&[7; 40]).unwrap();
    assert!(is_closed(&mut tampered.stream.sock));
    let (error, _) = good.produce("t", 0, batch(&[Bytes::from_static(b"good")], None));
    assert_eq!(error, 0);
    assert!(!log.running.shared.is_stopping());
    assert!(log.running.shared.metrics.malformed.get() > 2);
    stop(log.running);
}

#[test]
fn half_open_connections_keep_nobody_out_and_end_by_themselves() {
    let log = Guarded::start("half-open", true, true);
    let mut held: Vec<TcpStream> = (0..600)
        .map(|number| {
            let mut stream = TcpStream::connect(log.address()).unwrap();
            if number % 2 == 0 {
                // The beginning of a handshake.
                stream.write_all(&[0x16, 3, 1, 0x10, 0, 1]).unwrap();
            }
            stream
        })
        .collect();
    let mut good = log.connect(&rustls::version::TLS13);
    let credentials = ("SCRAM-SHA-512", "alice", PASSWORD);
    assert_eq!(log_in(&mut good, credentials, 1, Some(2)), Ok(()));
    good.create_topic("t", 1);
    let metrics = &log.running.shared.metrics;
    wait_until(|| metrics.strangers_closed.get() >= 344);
    assert!(metrics.connections.get() <= 257, "{}", metrics.connections.get());
    let mut newest = held.pop().unwrap();
    newest.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert!(is_closed(&mut newest));
    // Who has logged in stays.
    let (error, _) = good.produce("t", 0, batch(&[Bytes::from_static(b"good")], None));
    assert_eq!(error, 0);
    stop(log.running);
}

#[test]
fn clients_that_never_read_what_was_encrypted_for_them_take_bounded_memory() {
    let log = Guarded::start("unread", true, false);
    let mut good = log.connect(&rustls::version::TLS13);
    good.create_topic("t", 1);
    let value = Bytes::from(vec![7u8; 900_000]);
    for _ in 0..20 {
        let (error, _) = good.produce("t", 0, batch(std::slice::from_ref(&value), None));
        assert_eq!(error, 0);
    }
    let mut held = Vec::new();
    for _ in 0..50 {
        let mut client = log.connect(&rustls::version::TLS13);
        for _ in 0..20 {
            client.send(&fetch_request("t", 0, 0, 0), 11).unwrap();
        }
        held.push(client);
    }
    assert_eq!(good.read_all("t", 0, 0).len(), 20);
    let shared = &log.running.shared;
    let output_bytes = shared.output_bytes.load(Ordering::Relaxed);
    assert!(
        output_bytes <= shared.settings.output_bytes_max(),
        "{output_bytes} bytes"
    );
    drop(held);
    drop(good);
    wait_until(|| shared.metrics.connections.get() == 0);
    assert_eq!(shared.output_bytes.load(Ordering::Relaxed), 0);
    stop(log.running);
}
