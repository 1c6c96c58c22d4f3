//! What reaches a worker that listens beyond loopback: scans without a token, garbage, connections that stop half-way.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::{Worker, distribution, trial};
use gauge_worker::{Access, Language, make_identity};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

/// A directory of this process and test.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("gauge-intruders-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// A worker that wants a token, over plain TCP, and the token.
fn guarded(name: &str) -> (Worker, String) {
    let path = directory(name);
    make_identity(&path).unwrap();
    let token = std::fs::read_to_string(path.join("token")).unwrap();
    let access = Access::open().with_token(&path.join("token")).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    (Worker::behind(access), token.trim().to_owned())
}

fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn without_the_token_there_is_401_and_nothing_more() {
    let (worker, token) = guarded("scan");
    let wrong = format!("{}0", &token[1..]);
    let headers = [
        String::new(),
        "authorization: Bearer\r\n".to_owned(),
        "authorization: Bearer \r\n".to_owned(),
        format!("authorization: Bearer {wrong}\r\n"),
        format!("authorization: Bearer {}\r\n", &token[1..]),
        format!("authorization: Basic {token}\r\n"),
        format!("x-token: {token}\r\n"),
    ];
    for path in [
        "/",
        "/v1/info",
        "/v1/trials/current",
        "/v1/shutdown",
        "/v1/judge",
        "/nothing",
    ] {
        for header in &headers {
            let answer = exchange(
                worker.address,
                format!("POST {path} HTTP/1.1\r\nhost: w\r\n{header}content-length: 0\r\n\r\n").as_bytes(),
            );
            assert!(answer.starts_with("HTTP/1.1 401 "), "{path} {header}: {answer}");
            assert!(
                answer.ends_with("\r\n\r\n") && !answer.contains("streamgauge"),
                "{answer}"
            );
        }
    }
    let right = format!(
        "GET /v1/info HTTP/1.1\r\nhost: w\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    let answer = exchange(worker.address, right.as_bytes());
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"api\":1"),
        "{answer}"
    );
    assert!(!answer.contains(&token));
}

#[test]
fn a_worker_without_a_token_answers_no_browser() {
    for language in [Language::Own, Language::Omb] {
        let worker = Worker::speaking(language, Access::open());
        let ask = |head: &str| {
            exchange(
                worker.address,
                format!("{head}connection: close\r\n\r\n").as_bytes(),
            )
        };
        let paths: &[&str] = match language {
            Language::Own => &[
                "POST /v1/shutdown",
                "POST /v1/admin/describe",
                "POST /v1/trials",
                "GET /v1/info",
            ],
            Language::Omb => &["POST /stop-all", "POST /initialize-driver", "GET /period-stats"],
        };
        for path in paths {
            let plain = format!(
                "{path} HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\n",
                worker.address
            );
            for refused in [
                plain.replace(&worker.address.to_string(), "evil.example"),
                format!("{plain}host: evil.example\r\n"),
                plain.replace(" /", " http://evil.example/"),
                format!("{plain}origin: http://evil.example\r\n"),
                format!("{plain}origin: null\r\ncontent-type: application/json\r\n"),
                format!("{plain}origin: http://{}\r\n", worker.address),
                format!("{plain}sec-fetch-site: same-origin\r\n"),
                format!("{plain}referer: http://evil.example/\r\n"),
                format!("{plain}content-type: text/plain\r\n"),
                format!("{plain}content-type: application/x-www-form-urlencoded\r\n"),
                format!("{plain}content-type: application/json\r\ncontent-type: text/plain\r\n"),
            ] {
                let answer = ask(&refused);
                assert!(answer.starts_with("HTTP/1.1 403 "), "{refused}{answer}");
                assert!(answer.contains("a worker without a token"), "{answer}");
            }
        }
        // An API that no page can ask has no need of CORS, and gives no leave.
        let preflight = "OPTIONS / HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\naccess-control-request-method: POST\r\n";
        let answer = ask(preflight);
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && !answer.contains("access-control-allow"),
            "{answer}"
        );
    }
    let worker = Worker::new();
    let bare = format!(
        "POST /v1/shutdown HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
        worker.address
    );
    assert!(exchange(worker.address, bare.as_bytes()).contains("application/json"));
    assert_eq!(worker.get("/v1/info")["api"], 1, "it goes on");
    let omb = Worker::speaking(Language::Omb, Access::open());
    let as_the_leader = format!(
        "POST /stop-all HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        omb.address
    );
    assert!(exchange(omb.address, as_the_leader.as_bytes()).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_token_is_enough_whatever_else_a_request_has() {
    let (worker, token) = guarded("named");
    let request = format!(
        "POST /v1/trials/current/abort HTTP/1.1\r\nhost: worker-7.example\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    let answer = exchange(worker.address, request.as_bytes());
    assert!(
        answer.starts_with("HTTP/1.1 404 ") && answer.contains("there is no trial"),
        "{answer}"
    );
}

/// Reads one answer of a connection that stays open.
fn answered(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = [0; 4096];
    matches!(stream.read(&mut bytes), Ok(count) if bytes[..count].starts_with(b"HTTP/1.1 200 "))
}

#[test]
fn connections_that_are_kept_open_keep_nobody_out() {
    let (with_token, token) = guarded("seats");
    let open = Worker::new();
    for (worker, header) in [
        (&open, String::new()),
        (&with_token, format!("authorization: Bearer {token}\r\n")),
    ] {
        let whole = format!("GET /v1/info HTTP/1.1\r\nhost: localhost\r\n{header}\r\n");
        let half = format!(
            "POST /v1/judge HTTP/1.1\r\nhost: localhost\r\n{header}content-type: application/json\r\ncontent-length: 99\r\n\r\n{{"
        );
        for kind in [&whole, &half] {
            let mut held = Vec::new();
            for _ in 0..400 {
                let mut stream = TcpStream::connect(worker.address).unwrap();
                stream.write_all(kind.as_bytes()).unwrap();
                if kind == &whole {
                    assert!(answered(&mut stream), "connection {}", held.len());
                }
                held.push(stream);
            }
            let mut next = TcpStream::connect(worker.address).unwrap();
            next.write_all(whole.as_bytes()).unwrap();
            assert!(answered(&mut next), "{kind}");
            // The newest are still served: who idles the longest goes.
            if kind == &whole {
                let last = held.last_mut().unwrap();
                last.write_all(whole.as_bytes()).unwrap();
                assert!(answered(last));
            }
        }
    }
}

#[test]
fn a_small_request_to_an_omb_worker_takes_little() {
    let worker = Worker::speaking(Language::Omb, Access::open());
    let refusal = |path: &str, body: &str| {
        let (status, answer) = worker.raw("POST", path, body.as_bytes());
        assert_eq!(status, 400, "{answer}");
        answer
    };
    let many = refusal(
        "/create-topics",
        r#"{"numberOfTopics":4000000000,"numberOfPartitionsPerTopic":1}"#,
    );
    assert!(
        many.contains("numberOfTopics") && many.contains("expected 1 to 10000"),
        "{many}"
    );
    let level = |number: usize| {
        format!(
            "l{number}: &l{number} [{}]\n",
            vec![format!("*l{}", number - 1); 9].join(",")
        )
    };
    let bomb = format!("l0: &l0 lol\n{}", (1..12).map(level).collect::<String>());
    assert!(refusal("/initialize-driver", &bomb).contains("aliases are expanded"));
    assert!(refusal("/initialize-driver", &"- ".repeat(30_000)).contains("nests deeper"));
    let secret = refusal(
        "/initialize-driver",
        "driverClass: a.RabbitMqBenchmarkDriver\namqpUris: ['amqps://u:hunter2@h']",
    );
    assert!(!secret.contains("hunter2"), "{secret}");
    let pairs = vec![serde_json::json!({"topic": "t", "subscription": "s"}); 10_001];
    let many = refusal(
        "/create-consumers",
        &serde_json::json!({"topicsSubscriptions": pairs}).to_string(),
    );
    assert!(
        many.contains("topicsSubscriptions") && many.contains("expected 0 to 10000"),
        "{many}"
    );
}

#[test]
fn an_identity_is_made_once_and_its_secrets_are_the_owners() {
    use std::os::unix::fs::PermissionsExt;
    let path = directory("identity");
    let fingerprint = make_identity(&path).unwrap();
    assert!(
        fingerprint.starts_with("sha256:") && fingerprint.len() == 71,
        "{fingerprint}"
    );
    for secret in ["token", "key.pem"] {
        let mode = std::fs::metadata(path.join(secret)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
    let again = make_identity(&path).unwrap_err();
    assert!(again.contains("'token' already"), "{again}");
    let (certificate, key) = (path.join("certificate.pem"), path.join("key.pem"));
    let access = Access::open().with_certificate(&certificate, &key).unwrap();
    assert_eq!(access.fingerprint(), Some(fingerprint.as_str()));
    assert!(
        !access.is_guarded(),
        "a certificate without a token lets everybody in"
    );
    std::fs::write(path.join("token"), "short").unwrap();
    let short = Access::open().with_token(&path.join("token")).err().unwrap();
    assert!(short.contains("expected one line of 16"), "{short}");
    let mixed = Access::open().with_certificate(&key, &certificate).err().unwrap();
    assert!(mixed.contains("PEM"), "{mixed}");
    std::fs::remove_dir_all(&path).unwrap();
}

/// An HTTP call over TLS, by a client that is not ours.
fn over_tls(address: SocketAddr, certificate: &std::path::Path, token: Option<&str>) -> (bool, String) {
    let mut command = Command::new("curl");
    command.args(["-s", "--max-time", "10", "--connect-to"]);
    command.arg(format!("streamgauge-worker:443:{address}"));
    command.arg("--cacert").arg(certificate);
    if let Some(token) = token {
        command.arg("-H").arg(format!("authorization: Bearer {token}"));
    }
    let output = command
        .arg("https://streamgauge-worker/v1/info")
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn beyond_loopback_it_is_tls() {
    if Command::new("curl").arg("--version").output().is_err() {
        // In continuous integration nothing is left out in silence.
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "curl is not here");
        eprintln!("left out: curl is not here");
        return;
    }
    let (mine, other) = (directory("tls"), directory("tls-other"));
    make_identity(&mine).unwrap();
    make_identity(&other).unwrap();
    let token = std::fs::read_to_string(mine.join("token")).unwrap();
    let access = Access::open()
        .with_token(&mine.join("token"))
        .and_then(|access| access.with_certificate(&mine.join("certificate.pem"), &mine.join("key.pem")))
        .unwrap();
    assert!(access.is_guarded());
    let worker = Worker::behind(access);
    let (_, answer) = over_tls(worker.address, &mine.join("certificate.pem"), Some(token.trim()));
    assert!(answer.contains("\"api\":1"), "{answer}");
    assert_eq!(
        over_tls(worker.address, &mine.join("certificate.pem"), None),
        (true, String::new())
    );
    let (succeeded, _) = over_tls(worker.address, &other.join("certificate.pem"), Some(token.trim()));
    assert!(!succeeded, "another certificate is not taken for this one");
    let plain = exchange(worker.address, b"GET /v1/info HTTP/1.1\r\nhost: w\r\n\r\n");
    assert!(!plain.contains("HTTP"), "{plain}");
    std::fs::remove_dir_all(&mine).unwrap();
    std::fs::remove_dir_all(&other).unwrap();
}

/// Half-open connections, garbage, heads and bodies that never end, in numbers, while `during` runs.
fn besiege(address: SocketAddr, during: impl FnOnce()) {
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for kind in 0..4 {
            let over = &over;
            scope.spawn(move || {
                let mut open = Vec::new();
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    if let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
                        let _ = stream.set_write_timeout(Some(Duration::from_millis(50)));
                        let _ = match kind {
                            0 => Ok(()),
                            1 => stream.write_all(&[0x16, 3, 1, 255, 255, 0, 7, 200, 1, 2, 3]),
                            2 => stream.write_all(b"POST /v1/trials HTTP/1.1\r\nhost: w\r\nx-slow: "),
                            _ => stream
                                .write_all(b"POST /v1/trials HTTP/1.1\r\nhost: w\r\ncontent-length: 99999999\r\n\r\n[[[["),
                        };
                        open.push(stream);
                    }
                    if open.len() > 200 {
                        open.drain(..100);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        during();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

fn call(worker: &Worker, token: &str, method: &str, path: &str, body: &Value) -> Value {
    let body = body.to_string();
    let answer = exchange(
        worker.address,
        format!(
            "{method} {path} HTTP/1.1\r\nhost: w\r\nauthorization: Bearer {token}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .as_bytes(),
    );
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer to {method} {path}: {answer:?}"));
    assert!(head.starts_with("HTTP/1.1 20"), "{method} {path}: {head} {body}");
    serde_json::from_str(body).unwrap()
}

#[test]
fn a_siege_does_not_keep_the_lab_out() {
    let (worker, token) = guarded("siege");
    let ask = |method: &str, path: &str, body: Value| call(&worker, &token, method, path, &body);
    besiege(worker.address, || {
        // More connections than there are seats must have come before the lab does.
        std::thread::sleep(Duration::from_millis(500));
        ask("POST", "/v1/trials", trial());
        let until = std::time::Instant::now() + PATIENCE;
        while ask("GET", "/v1/trials/current", json!({}))["state"] != "ready" {
            assert!(std::time::Instant::now() < until);
            std::thread::sleep(Duration::from_millis(10));
        }
        ask("POST", "/v1/trials/current/start", json!({"delay_ms": 20}));
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(50));
            ask("POST", "/v1/trials/current/lease", json!({}));
        }
        let result = ask(
            "POST",
            "/v1/trials/current/finish",
            json!({"drain_s": 10.0, "quiet_s": 2.0}),
        );
        assert_eq!(result["audit"]["subscriptions"][0]["unique"], 4000, "{result}");
        assert_eq!(result["audit"]["balanced"], true, "{result}");
        let page = ask("GET", "/v1/trials/current/intervals", json!({}));
        let intervals = page["intervals"].as_array().unwrap();
        assert_eq!(distribution(intervals, "publish", None, None).len(), 4000);
    });
}
