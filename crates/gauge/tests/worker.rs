//! `gauge worker` as a process: how it begins and how it ends.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

fn gauge(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gauge"));
    command.arg("worker").args(arguments);
    command
}

fn begin(arguments: &[&str]) -> (Child, String) {
    let mut child = gauge(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim_end().strip_prefix("ready ").unwrap().to_owned();
    (child, address)
}

fn call(address: &str, head: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{head} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn kill(child: &Child, signal: i32) {
    let status = Command::new("kill")
        .args([format!("-{signal}"), child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

fn refused(arguments: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = gauge(arguments).output().unwrap();
    assert_eq!(status.code(), Some(2));
    assert!(stdout.is_empty());
    String::from_utf8(stderr).unwrap()
}

#[test]
fn it_says_where_it_listens_and_ends_when_asked() {
    let (mut child, address) = begin(&["--listen", "127.0.0.1:0"]);
    assert!(call(&address, "GET /v1/info").contains("\"api\":1"));
    // A connection that stays open does not keep the process alive.
    let _idle = TcpStream::connect(&address).unwrap();
    assert!(call(&address, "POST /v1/shutdown").starts_with("HTTP/1.1 200"));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn signals_end_it_with_their_status() {
    for (signal, status) in [(15, 143), (2, 130)] {
        let (mut child, _) = begin(&[]);
        kill(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(status));
    }
}

#[test]
fn it_ends_with_its_parent() {
    let mut parent = Command::new("sleep").arg("600").spawn().unwrap();
    let (mut child, _) = begin(&["--parent-pid", &parent.id().to_string()]);
    parent.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    parent.wait().unwrap();
}

#[test]
fn wrong_arguments_are_refused_with_what_was_expected() {
    let open = refused(&["--listen", "0.0.0.0:0"]);
    assert!(
        open.contains("loopback only") && open.contains("127.0.0.1:0"),
        "{open}"
    );
    let nonsense = refused(&["--listen", "nonsense"]);
    assert!(nonsense.contains("expected ADDRESS:PORT"), "{nonsense}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let message = refused(&["--listen", &address]);
    assert!(
        message.contains(&address) && message.contains("expected a free port"),
        "{message}"
    );
    let orphan = refused(&["--parent-pid", "4194305"]);
    assert!(orphan.contains("cannot be watched"), "{orphan}");
}
