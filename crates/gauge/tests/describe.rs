//! `gauge describe` as a process: what a broker says, and which failure is told where there is none.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

fn gauge(command: &str) -> Command {
    let mut gauge = Command::new(env!("CARGO_BIN_EXE_gauge"));
    gauge.arg(command).stdout(Stdio::piped());
    gauge
}

/// The exit status and the one line.
fn described(request: &str) -> (i32, Value) {
    let mut child = gauge("describe").stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(lines.matches('\n').count(), 1, "{lines}");
    (
        output.status.code().unwrap(),
        serde_json::from_str(&lines).unwrap(),
    )
}

/// The code and the sentence of a failure.
fn failure(request: &Value) -> (String, String) {
    let (status, said) = described(&request.to_string());
    assert_eq!(status, 1, "{said}");
    let text = |name: &str| said["error"][name].as_str().unwrap().to_owned();
    (text("code"), text("message"))
}

/// A reference log that ends with the test.
struct Log(Child, String);

impl Log {
    fn start(name: &str) -> Log {
        let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&data);
        let mut child = gauge("log")
            .args(["--listen", "127.0.0.1:0", "--data"])
            .arg(&data)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim_end().strip_prefix("ready ").unwrap().to_owned();
        Log(child, address)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that answers `said` to whatever comes, to each of its connections, and closes them.
fn server(said: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = move |mut socket: TcpStream| {
        let _ = socket.read(&mut [0; 1 << 10]);
        let _ = socket.write_all(said);
    };
    thread::spawn(move || listener.incoming().flatten().for_each(answer));
    address
}

#[test]
fn a_broker_says_who_it_is_and_who_leads() {
    let log = Log::start("describe");
    let (status, said) =
        described(&json!({"server": log.1, "topic": "absent", "security": null}).to_string());
    assert_eq!(status, 0, "{said}");
    let (host, port) = log.1.rsplit_once(':').unwrap();
    assert_eq!(said["brokers"][0]["host"], host);
    assert_eq!(said["brokers"][0]["port"].to_string(), port);
    assert_eq!(said["brokers"].as_array().unwrap().len(), 1);
    assert!(said["cluster_id"].is_string());
    // The reference log is no release of Kafka.
    assert_eq!((&said["release"], &said["leaders"]), (&Value::Null, &json!([])));
}

#[test]
fn what_is_there_instead_of_a_broker_is_told() {
    let (code, said) = failure(&json!({"server": "127.0.0.1:1"}));
    assert_eq!(code, "unreachable");
    assert!(said.starts_with("127.0.0.1:1 cannot be reached: "), "{said}");

    let web = server(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let (code, said) = failure(&json!({"server": web}));
    assert_eq!(code, "not_kafka");
    assert!(
        said.contains("does not speak the Kafka protocol in plain text"),
        "{said}"
    );

    let (code, said) = failure(&json!({"server": server(b"")}));
    assert_eq!(code, "closed");
    assert!(
        said.contains("is this a Kafka listener in plain text, that asks for these credentials?"),
        "{said}"
    );
}

#[test]
fn a_listener_of_the_other_kind_is_told() {
    let log = Log::start("describe-kinds");
    let tls = json!({"tls": {"verify": false}});
    let (code, said) = failure(&json!({"server": log.1, "security": tls}));
    assert_eq!(code, "tls_refused");
    assert!(said.contains("expected a TLS listener there"), "{said}");

    let auth = json!({"auth": {"mechanism": "plain", "username": "u", "password": "geheim"}});
    let (code, said) = failure(&json!({"server": log.1, "security": auth}));
    assert_eq!(code, "closed");
    assert!(
        said.contains("that asks for these credentials?") && !said.contains("geheim"),
        "{said}"
    );
}

#[test]
fn a_wrong_request_has_a_status_of_its_own() {
    let (status, said) = described("{}");
    assert_eq!((status, said["error"]["code"].as_str()), (2, Some("bad_request")));
}
