//! The native Kafka client over TLS, and where it must log in.

#![allow(clippy::unwrap_used, reason = "a test ends when something is not as it says")]

mod scripted;

use std::sync::Arc;

use gauge_client::kafka::Kafka;
use gauge_client::{ClientError, ConsumerSpec, Endpoint, Keys, LaneSpec, Offer, Protocol, Security, StartAt};
use gauge_load::Observer;
use gauge_load::audit::judge_sent;
use gauge_load::clock::monotonic_ns;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use scripted::specs::{self, MS_NS, SECOND_NS};
use scripted::{Guard, Server, emitter};
use serde_json::{Value, json};

/// The message of PLAIN.
const LOGIN: &[u8] = b"\0gauge\0geheim";

/// A server's settings, and the certificate that vouches for it: its own, which it has signed itself.
fn identity(name: &str, says_ca: IsCa) -> (Arc<ServerConfig>, String) {
    let mut wanted = CertificateParams::new(vec![name.to_owned()]).unwrap();
    wanted.is_ca = says_ca;
    let signing_key = KeyPair::generate().unwrap();
    let cert = wanted.self_signed(&signing_key).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), cert.pem())
}

fn endpoint(server: &Server, security: Value) -> Endpoint {
    Endpoint {
        security: Security::read(&security).unwrap(),
        ..specs::endpoint(server.address)
    }
}

fn password(password: &str) -> Value {
    json!({"mechanism": "plain", "username": "gauge", "password": password})
}

/// A producer and a consumer that commits.
fn spec(payload_bytes: usize) -> LaneSpec {
    LaneSpec {
        consumers: vec![ConsumerSpec {
            subscription: 0,
            name: "group".into(),
            start: StartAt::Earliest,
            partitions: (0..3).map(|partition| (0, partition)).collect(),
            commit_interval_ns: Some(10 * MS_NS),
        }],
        ..specs::spec(
            3,
            Keys::RoundRobin,
            payload_bytes,
            specs::batches(200_000, 32 << 20),
        )
    }
}

/// Sends over TLS as a user who has logged in, and receives everything.
fn there_and_back(messages: u64, payload_bytes: usize) {
    let (tls, ca) = identity("127.0.0.1", IsCa::NoCa);
    let guard = Guard {
        tls: Some(tls),
        login: Some(LOGIN),
    };
    let server = Server::start_guarded(3, guard);
    let endpoint = endpoint(
        &server,
        json!({"tls": {"ca_pem": ca}, "auth": password("geheim")}),
    );
    let mut observer = Observer::new(1, true, &[0], 1, 64);
    observer.start(monotonic_ns());
    let mut client = Kafka.lane(&endpoint, spec(payload_bytes)).unwrap();
    let deadline_ns = monotonic_ns() + 10 * SECOND_NS;
    client.prepare(&mut observer, deadline_ns).unwrap();
    client.pause(0, false);
    let mut emitter = emitter(messages, payload_bytes);
    let give_up_ns = monotonic_ns() + 30 * SECOND_NS;
    loop {
        let offer = client.offer(0, &mut emitter, &mut observer, monotonic_ns());
        client.drive(&mut observer, monotonic_ns()).unwrap();
        let is_over = offer == Offer::Taken && emitter.next_due_ns().is_none();
        if is_over && client.waiting_msgs() == 0 && observer.unique_msgs(0) == messages {
            break;
        }
        assert!(monotonic_ns() < give_up_ns, "the client hangs");
        client.wait(monotonic_ns() + MS_NS);
    }
    observer.close_producer(0, emitter.sequence());
    client.abandon(&mut observer);
    assert!(!server.state().committed.is_empty(), "positions are committed");
    assert_eq!(observer.counters().errors, [], "nothing went wrong on the way");
    let books = observer.into_books();
    let verdict = judge_sent(&books.sent, books.publish_samples);
    assert_eq!(
        (verdict.sent, verdict.acked, verdict.imbalance),
        (messages, messages, None)
    );
    let receipts = &books.receipts[0];
    assert_eq!((receipts.received, receipts.corrupted), (messages, 0));
}

#[test]
fn messages_go_there_and_back_over_tls() {
    there_and_back(5_000, 100);
}

/// Batches of several records of TLS, fetches that fill all buffers.
#[test]
fn large_messages_go_there_and_back_over_tls() {
    there_and_back(300, 100_000);
}

#[test]
fn a_wrong_password_ends_it_at_once_with_the_brokers_words() {
    let guard = Guard {
        tls: None,
        login: Some(LOGIN),
    };
    let server = Server::start_guarded(3, guard);
    let endpoint = endpoint(&server, json!({"auth": password("falsch")}));
    let mut observer = Observer::new(1, true, &[0], 1, 64);
    let mut client = Kafka.lane(&endpoint, spec(100)).unwrap();
    let began_ns = monotonic_ns();
    let error = client
        .prepare(&mut observer, began_ns + 60 * SECOND_NS)
        .unwrap_err();
    assert!(
        monotonic_ns() - began_ns < 10 * SECOND_NS,
        "it is tried again and again"
    );
    let Err(from_admin) = Kafka.admin(&endpoint) else {
        panic!("the admin is let in");
    };
    for error in [error, from_admin] {
        assert!(matches!(error, ClientError::System(_)));
        let words = error.to_string();
        assert!(
            words.contains("\"gauge\" cannot log in with PLAIN: no such user or password"),
            "{words}"
        );
        assert!(!words.contains("falsch"), "{words}");
    }
}

#[test]
fn the_admin_speaks_tls_and_logs_in() {
    let (tls, ca) = identity("127.0.0.1", IsCa::NoCa);
    let guard = Guard {
        tls: Some(tls),
        login: Some(LOGIN),
    };
    let server = Server::start_guarded(3, guard);
    let right = json!({"tls": {"ca_pem": ca}, "auth": password("geheim")});
    assert!(Kafka.admin(&endpoint(&server, right)).is_ok());
    let (_, other_ca) = identity("127.0.0.1", IsCa::NoCa);
    let wrong = json!({"tls": {"ca_pem": other_ca}, "auth": password("geheim")});
    let Err(error) = Kafka.admin(&endpoint(&server, wrong)) else {
        panic!("a server that nobody vouches for is believed");
    };
    assert!(
        error.to_string().contains("not signed by the given CA"),
        "{error}"
    );
}

#[test]
fn a_cas_own_certificate_is_no_servers_and_that_is_told() {
    let (tls, ca) = identity("127.0.0.1", IsCa::Ca(BasicConstraints::Unconstrained));
    let server = Server::start_guarded(
        3,
        Guard {
            tls: Some(tls),
            login: None,
        },
    );
    let Err(error) = Kafka.admin(&endpoint(&server, json!({"tls": {"ca_pem": ca}}))) else {
        panic!("a CA's certificate passes for a server's");
    };
    assert!(
        error
            .to_string()
            .contains("expected one that a CA has signed for the server"),
        "{error}"
    );
}

#[test]
fn what_is_done_otherwise_is_told() {
    let server = Server::start(3);
    let blind = endpoint(
        &server,
        json!({"tls": {"verify": false}, "auth": password("geheim")}),
    );
    let cannot = Kafka.check(&blind, &spec(100)).unwrap();
    assert!(cannot.iter().any(|sentence| sentence.contains("is not verified")));
    assert!(
        cannot
            .iter()
            .any(|sentence| sentence.contains("connections.max.reauth.ms"))
    );
    assert!(!format!("{blind:?}").contains("geheim"));
    let token = endpoint(&server, json!({"auth": {"mechanism": "token", "token": "t"}}));
    assert!(matches!(
        Kafka.check(&token, &spec(100)),
        Err(ClientError::Input { field, .. }) if field == "system.security.auth.mechanism"
    ));
}
