//! Transports against a server of rustls on loopback, and against servers that are none.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::*;
use crate::Security;
use crate::stream::{ByteStream, InputBytes};

const SECOND_NS: i64 = 1_000_000_000;
const INPUT: InputBytes = InputBytes {
    first: 4 << 10,
    max: 64 << 10,
};

/// A certificate that is its own CA, and its key, both PEM.
pub(crate) struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Identity {
    pub fn of(name: &str) -> Identity {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a name");
        Identity {
            certificate: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }

    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("it was just made")
    }

    /// A server with this certificate, which asks its clients for `client`'s.
    pub fn server(&self, client: Option<&Identity>) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("it was just made");
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the defaults go with the provider");
        let builder = match client {
            None => builder.with_no_client_auth(),
            Some(client) => {
                let mut roots = RootCertStore::empty();
                roots.add(client.der()).expect("it can be a root");
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().expect("there is a root"))
            }
        };
        let config = builder.with_single_cert(vec![self.der()], key);
        Arc::new(config.expect("key and certificate go together"))
    }
}

fn tls(settings: Value) -> Tls {
    let security = Security::read(&json!({ "tls": settings })).expect("the settings are right");
    security.tls.expect("they were given")
}

type Encrypted = StreamOwned<ServerConnection, TcpStream>;

/// A server of one connection, in TLS; the handshake takes place with the first byte that `serve` reads or writes.
fn serve<T: Send + 'static>(
    config: Arc<ServerConfig>,
    serve: impl FnOnce(Encrypted) -> T + Send + 'static,
) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port exists");
    let address = listener.local_addr().expect("a bound socket has an address");
    let server = thread::spawn(move || {
        let (socket, _) = listener.accept().expect("somebody connects");
        let connection = ServerConnection::new(config).expect("the settings are right");
        serve(StreamOwned::new(connection, socket))
    });
    (address, server)
}

fn peer(address: SocketAddr, host: &str, tls: Option<Tls>) -> Peer {
    Peer {
        place: Place::Address(address),
        host: host.into(),
        tls,
    }
}

/// Waits for one event of the stream.
fn event(poller: &mut Poller) -> Ready {
    let mut ready = Vec::new();
    poller
        .wait(monotonic_ns() + 10 * SECOND_NS, &mut ready)
        .expect("epoll works");
    *ready.first().expect("something happens in time")
}

fn open(peer: &Peer, poller: &mut Poller) -> Result<ByteStream<Vec<u8>>, Lost> {
    let mut stream = ByteStream::connect(peer, poller, 7, INPUT, monotonic_ns())?;
    while !stream.is_open() {
        let ready = event(poller);
        stream.advance(&ready, poller)?;
    }
    Ok(stream)
}

/// Reads until the stream says that there is no more.
fn take(stream: &mut ByteStream<Vec<u8>>, into: &mut Vec<u8>) -> Result<(), Lost> {
    loop {
        let more = stream.read()?;
        into.extend_from_slice(stream.input());
        let bytes = stream.input().len();
        stream.consume(bytes);
        if !more {
            return Ok(());
        }
    }
}

#[test]
fn what_goes_there_in_tls_comes_back_whole() {
    let identity = Identity::of("127.0.0.1");
    // More than rustls and the sockets hold, in pieces larger and smaller than a record.
    let pieces: Vec<Vec<u8>> = (0..200u8).map(|n| vec![n; 10 + 500 * usize::from(n)]).collect();
    let whole = pieces.concat();
    let total = whole.len();
    let (address, server) = serve(identity.server(None), move |mut stream| {
        let mut got = vec![0; total];
        stream.read_exact(&mut got).expect("everything arrives");
        stream.write_all(&got).expect("the client reads");
        stream.conn.send_close_notify();
        stream.flush().expect("the client reads");
    });
    let mut poller = Poller::new().expect("epoll works");
    let settings = json!({"ca_pem": identity.certificate});
    let peer = peer(address, "127.0.0.1", Some(tls(settings)));
    let mut stream = open(&peer, &mut poller).expect("it comes about");
    for piece in &pieces {
        stream.push(piece.clone());
    }
    stream.push(Vec::new());
    let (mut back, mut got) = (Vec::new(), Vec::new());
    stream
        .write(&poller, |piece| back.push(piece))
        .expect("it goes on");
    let lost = loop {
        let ready = event(&mut poller);
        stream
            .write(&poller, |piece| back.push(piece))
            .expect("it goes on");
        if ready.readable
            && let Err(lost) = take(&mut stream, &mut got)
        {
            break lost;
        }
    };
    assert_eq!(lost.kind(), kind::CONNECTION_LOST);
    assert!(got == whole, "{} of {total} bytes came back", got.len());
    assert_eq!((stream.unwritten_bytes(), back.len()), (0, pieces.len() + 1));
    server.join().expect("the server ends well");
}

#[test]
fn nothing_stays_unseen_when_a_server_falls_silent() {
    let identity = Identity::of("127.0.0.1");
    let whole: Vec<u8> = (0..3_000_017u32).map(|n| (n % 251) as u8).collect();
    let sent = whole.clone();
    let (address, server) = serve(identity.server(None), move |mut stream| {
        stream.write_all(&sent).expect("the client reads");
        stream.flush().expect("the client reads");
        // Says nothing more, and stays until the client leaves.
        let _ = stream.read(&mut [0]);
    });
    let mut poller = Poller::new().expect("epoll works");
    let peer = peer(address, "anybody", Some(tls(json!({"verify": false}))));
    let mut stream = open(&peer, &mut poller).expect("it comes about");
    let mut got = Vec::new();
    // The event that has opened the stream may have brought the first of it.
    take(&mut stream, &mut got).expect("the server is there");
    while got.len() < whole.len() {
        let ready = event(&mut poller);
        assert!(
            ready.readable,
            "nothing is to be written, so room to write is not told"
        );
        take(&mut stream, &mut got).expect("the server is there");
    }
    assert!(got == whole);
    drop(stream);
    server.join().expect("the server ends well");
}

/// What a client says that does not like the server, or is not liked.
fn complaint(config: Arc<ServerConfig>, host: &str, settings: Value) -> String {
    let (address, server) = serve(config, |mut stream| {
        let _ = stream.read(&mut [0]);
    });
    let mut poller = Poller::new().expect("epoll works");
    let lost = match open(&peer(address, host, Some(tls(settings))), &mut poller) {
        Err(lost) => {
            assert_eq!(lost.kind(), kind::CONNECT_FAILED);
            lost
        }
        // With TLS 1.3 the server looks at the client's certificate when the client is done.
        Ok(mut stream) => loop {
            let ready = event(&mut poller);
            if ready.readable
                && let Err(lost) = take(&mut stream, &mut Vec::new())
            {
                break lost;
            }
        },
    };
    server.join().expect("the server ends well");
    lost.to_string()
}

#[test]
fn a_wrong_certificate_is_told_with_what_to_do() {
    let (identity, other) = (Identity::of("broker.example"), Identity::of("broker.example"));
    let said = complaint(
        identity.server(None),
        "broker.example",
        json!({"ca_pem": other.certificate}),
    );
    assert!(said.contains("not signed by the given CA"), "{said}");
    let own_ca = json!({"ca_pem": identity.certificate});
    let said = complaint(identity.server(None), "127.0.0.1", own_ca);
    assert!(
        said.contains("not for \"127.0.0.1\" but for broker.example") && said.contains("server_name"),
        "{said}"
    );
}

#[test]
fn a_certificate_may_be_for_another_name_than_the_address() {
    let identity = Identity::of("broker.example");
    let (address, server) = serve(identity.server(None), |mut stream| stream.read(&mut [0]).is_ok());
    let settings = json!({"ca_pem": identity.certificate, "server_name": "broker.example"});
    let mut poller = Poller::new().expect("epoll works");
    let stream = open(&peer(address, "127.0.0.1", Some(tls(settings))), &mut poller);
    drop(stream.expect("the name is right"));
    assert!(
        !server.join().expect("the server ends well"),
        "no end was announced"
    );
}

#[test]
fn a_client_shows_its_certificate_when_it_is_asked() {
    let (identity, client) = (Identity::of("127.0.0.1"), Identity::of("client"));
    let with_it = json!({
        "ca_pem": identity.certificate, "certificate_pem": client.certificate, "key_pem": client.key,
    });
    let (address, server) = serve(identity.server(Some(&client)), |mut stream| {
        let mut asked = [0; 3];
        stream.read_exact(&mut asked).expect("the handshake succeeds");
        stream.write_all(&asked).expect("the client reads");
    });
    let deadline_ns = monotonic_ns() + 10 * SECOND_NS;
    let peer = peer(address, "127.0.0.1", Some(tls(with_it)));
    let mut connection = Blocking::connect(&peer, deadline_ns).expect("it comes about");
    connection
        .write_all(b"abc", deadline_ns)
        .expect("the server reads");
    let mut back = [0; 3];
    connection.read_exact(&mut back, deadline_ns).expect("it answers");
    assert_eq!(&back, b"abc");
    server.join().expect("the server ends well");

    let without = json!({"ca_pem": identity.certificate});
    let said = complaint(identity.server(Some(&client)), "127.0.0.1", without);
    assert!(said.contains("certificate_pem"), "{said}");
}

/// A server that speaks no TLS.
fn plain(serve: impl FnOnce(TcpStream) + Send + 'static) -> (Peer, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port exists");
    let address = listener.local_addr().expect("a bound socket has an address");
    let server = thread::spawn(move || serve(listener.accept().expect("somebody connects").0));
    (
        peer(address, "127.0.0.1", Some(tls(json!({"verify": false})))),
        server,
    )
}

#[test]
fn a_server_without_tls_is_told() {
    for answer in [&b"INFO {}\r\nPING\r\n"[..], b""] {
        let (peer, server) = plain(move |mut socket| {
            let _ = socket.read(&mut [0; 1 << 10]);
            let _ = socket.write_all(answer);
            let _ = socket.shutdown(Shutdown::Write);
            // What is left unread at the end would reset the connection before the answer is seen.
            while socket.read(&mut [0; 1 << 10]).is_ok_and(|bytes| bytes > 0) {}
        });
        let mut poller = Poller::new().expect("epoll works");
        let lost = open(&peer, &mut poller).expect_err("there is no TLS");
        assert_eq!(lost.kind(), kind::CONNECT_FAILED);
        assert!(lost.to_string().contains("expected a TLS listener"), "{lost}");
        server.join().expect("the server ends well");
    }
}

#[test]
fn a_handshake_that_stops_in_the_middle_ends_with_the_deadline() {
    let (peer, server) = plain(|mut socket| {
        // Takes everything and answers nothing until the client has gone.
        while socket.read(&mut [0; 1 << 10]).is_ok_and(|bytes| bytes > 0) {}
    });
    let mut poller = Poller::new().expect("epoll works");
    let began_ns = monotonic_ns();
    let mut stream: ByteStream<Vec<u8>> =
        ByteStream::connect(&peer, &poller, 7, INPUT, began_ns).expect("it begins");
    let ready = event(&mut poller);
    assert!(!stream.advance(&ready, &poller).expect("TCP comes about"));
    // The client has said its part, and must not be woken for room to write again and again.
    let mut more = Vec::new();
    poller
        .wait(monotonic_ns() + SECOND_NS / 50, &mut more)
        .expect("epoll works");
    assert_eq!(more, []);
    assert!(stream.check_deadline(began_ns + 4 * SECOND_NS).is_ok());
    let lost = stream
        .check_deadline(stream.connect_deadline_ns())
        .expect_err("it takes too long");
    assert_eq!(lost.kind(), kind::CONNECT_FAILED);
    assert!(lost.to_string().contains("TLS handshake in time"), "{lost}");
    drop(stream);
    server.join().expect("the server ends well");
}

#[test]
fn tls_may_begin_after_the_servers_first_words() {
    let identity = Identity::of("127.0.0.1");
    let (address, server) = serve(identity.server(None), |mut stream| {
        stream.sock.write_all(b"INFO").expect("the client reads");
        let mut asked = [0; 2];
        stream.read_exact(&mut asked).expect("the handshake succeeds");
        stream.write_all(&asked).expect("the client reads");
    });
    let deadline_ns = monotonic_ns() + 10 * SECOND_NS;
    let settings = json!({"ca_pem": identity.certificate});
    let peer = peer(address, "127.0.0.1", Some(tls(settings)));
    let mut connection = Blocking::connect_plain(&peer, deadline_ns).expect("it comes about");
    let mut info = [0; 4];
    connection.read_exact(&mut info, deadline_ns).expect("it is said");
    assert_eq!(&info, b"INFO");
    connection.start_tls(&peer, deadline_ns).expect("it comes about");
    connection
        .write_all(b"ab", deadline_ns)
        .expect("the server reads");
    connection
        .read_exact(&mut info[..2], deadline_ns)
        .expect("it answers");
    assert_eq!(&info, b"abFO");
    server.join().expect("the server ends well");
}

#[test]
fn a_call_that_waits_ends_with_its_deadline() {
    let (mut peer, server) = plain(
        |mut socket| {
            while socket.read(&mut [0; 1 << 10]).is_ok_and(|bytes| bytes > 0) {}
        },
    );
    peer.tls = None;
    let mut connection = Blocking::connect(&peer, i64::MAX).expect("it comes about");
    let lost = connection.read(&mut [0], monotonic_ns() + SECOND_NS / 50);
    assert!(matches!(lost, Err(Lost::Timeout)), "{lost:?}");
    drop(connection);
    server.join().expect("the server ends well");
}

#[test]
fn hosts_are_kept_beside_addresses() {
    for (server, host) in [
        ("127.0.0.1:9092", "127.0.0.1"),
        ("[::1]:9092", "::1"),
        ("broker-1.example:9092", "broker-1.example"),
    ] {
        assert_eq!(host_of(server), host);
    }
    let peers = resolve("[::1]:9092", None).expect("it is an address");
    assert_eq!((peers.len(), &*peers[0].host), (1, "::1"));
    assert_eq!(peers[0].to_string(), "[::1]:9092");
    assert!(resolve("nowhere", None).is_err());
}
