//! The greeting, with a server that speaks just that much.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use gauge_load::clock::monotonic_ns;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::admin::NatsAdmin;
use super::connection::Connection;
use super::options;
use crate::shared::Shared;
use crate::stream::Lost;
use crate::transport::tests::Identity;
use crate::{Acks, BatchPolicy, Compression, Endpoint, LaneSpec, Security};

const SECOND_NS: i64 = 1_000_000_000;

/// Says INFO, shakes hands if it has TLS, and answers PING. Returns what CONNECT said.
fn server(info: Value, tls: Option<Arc<ServerConfig>>) -> (SocketAddr, JoinHandle<Value>) {
    fn serve(stream: impl std::io::Read + Write) -> Value {
        let mut stream = BufReader::new(stream);
        let mut told = Value::Null;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).unwrap_or(0) == 0 {
                return told;
            }
            if let Some(options) = line.strip_prefix("CONNECT ") {
                told = serde_json::from_str(options).expect("CONNECT is JSON");
            } else if line == "PING\r\n" {
                let stream = stream.get_mut();
                stream.write_all(b"PONG\r\n").expect("the client reads");
                stream.flush().expect("the client reads");
            }
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port exists");
    let address = listener.local_addr().expect("a bound socket has an address");
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("somebody connects");
        write!(socket, "INFO {info}\r\n").expect("the client reads");
        match tls {
            None => serve(socket),
            Some(config) => {
                let connection = ServerConnection::new(config).expect("the settings are right");
                serve(StreamOwned::new(connection, socket))
            }
        }
    });
    (address, server)
}

fn endpoint(address: SocketAddr, security: Value) -> Endpoint {
    Endpoint {
        bootstrap: vec![address.to_string()],
        options: serde_json::Map::new(),
        security: Security::read(&security).expect("it is right"),
    }
}

fn shared(endpoint: &Endpoint) -> Shared {
    let spec = LaneSpec {
        run: 1,
        topics: Arc::new([]),
        producers: Vec::new(),
        consumers: Vec::new(),
        batch: BatchPolicy {
            bytes: 1000,
            linger_ns: 0,
            in_flight: 1,
            buffer_bytes: 1000,
        },
        closed_loop: false,
        acks: Acks::All,
        idempotence: false,
        compression: Compression::None,
        request_timeout_ns: SECOND_NS,
        retry_for_ns: SECOND_NS,
        payload_bytes_max: 100,
    };
    let mut shared = Shared::new(endpoint, spec, ()).expect("epoll works");
    shared.resolve().expect("it is an address");
    shared
}

/// Greets as a lane does.
fn greet(endpoint: &Endpoint) -> Result<(), Lost> {
    let login = options::read(endpoint).expect("the options are right").login;
    let mut shared = shared(endpoint);
    let mut connection = Connection::new(0, 7, "test", &login, b"SUB x 1\r\n".to_vec());
    let until_ns = monotonic_ns() + 10 * SECOND_NS;
    let mut events = Vec::new();
    while !connection.is_ready() {
        let now_ns = monotonic_ns();
        assert!(now_ns < until_ns, "the greeting hangs");
        connection.ensure(&shared, now_ns)?;
        shared.poller.wait(until_ns, &mut events).expect("epoll works");
        for ready in &events {
            connection.advance(ready, &shared)?;
            while ready.readable && connection.read(&mut shared, |_, _| {})? {}
            connection.write(&shared.poller, |_| {})?;
        }
    }
    Ok(())
}

fn user() -> Value {
    json!({"mechanism": "plain", "username": "u", "password": "geheim"})
}

#[test]
fn tls_begins_after_info_and_hides_the_login() {
    let identity = Identity::of("127.0.0.1");
    let security = json!({"tls": {"ca_pem": identity.certificate}, "auth": user()});
    for by_admin in [false, true] {
        let info = json!({"tls_required": true, "max_payload": 1000});
        let (address, server) = server(info, Some(identity.server(None)));
        let endpoint = endpoint(address, security.clone());
        if by_admin {
            let options = options::read(&endpoint).expect("the options are right");
            NatsAdmin::connect(&endpoint, &options).expect("it is let in");
        } else {
            greet(&endpoint).expect("it is let in");
        }
        let told = server.join().expect("the server ends well");
        assert_eq!(
            (&told["user"], &told["pass"], &told["tls_required"]),
            (&json!("u"), &json!("geheim"), &json!(true))
        );
    }
}

#[test]
fn a_token_is_said_without_tls_as_well() {
    let (address, server) = server(json!({}), None);
    let token = json!({"auth": {"mechanism": "token", "token": "t"}});
    greet(&endpoint(address, token)).expect("it is let in");
    assert_eq!(server.join().expect("the server ends well")["auth_token"], "t");
}

#[test]
fn tls_on_one_side_only_is_refused_before_the_login() {
    let blind = json!({"tls": {"verify": false}, "auth": user()});
    for (info, security, words) in [
        (
            json!({"tls_required": true}),
            json!({"auth": user()}),
            "requires TLS",
        ),
        (json!({}), blind, "does not offer TLS"),
    ] {
        let (address, server) = server(info, None);
        let lost = greet(&endpoint(address, security)).expect_err("it is refused");
        assert!(lost.to_string().contains(words), "{lost}");
        assert_eq!(server.join().expect("the server ends well"), Value::Null);
    }
}
