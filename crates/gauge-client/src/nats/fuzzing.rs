//! Fuzz targets (`crate::fuzzing`): the lines of NATS, header blocks, JetStream's answers.

use super::wire::{self, Message, Operation};
use super::{admin, answer, connection};
use crate::fuzzing::Target;

pub(crate) const TARGETS: [Target; 1] = [("nats-lines", lines, line_seeds)];

fn lines(mut input: &[u8]) {
    while let Ok(Some((operation, bytes))) = wire::parse(input) {
        match operation {
            Operation::Info(info) => drop(connection::read_info(info, false)),
            Operation::Error(words) => drop(connection::refusal(words)),
            Operation::Message(message) => received(&message),
            Operation::Ping | Operation::Pong | Operation::Ok => {}
        }
        input = &input[bytes..];
    }
}

fn received(message: &Message<'_>) {
    std::hint::black_box((
        answer::read(message),
        wire::delivery(message.reply),
        wire::status(message.headers),
        wire::status_words(message.headers),
        wire::header(message.headers, b"Nats-Pending-Messages").and_then(wire::decimal),
    ));
    if let Ok(value) = serde_json::from_slice(message.payload) {
        std::hint::black_box((admin::is_led(&value), answer::error_words(&value)));
    }
}

fn line_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 5] = [
        b"INFO {\"server_id\":\"x\",\"max_payload\":1048576,\"nonce\":\"n\"}\r\nPING\r\n+OK\r\nPONG\r\n",
        b"-ERR 'Authorization Violation'\r\n-ERR 'Permissions Violation for Publish'\r\n",
        b"MSG t.0 7 $JS.ACK.s.c.1.22.3.4.5 3\r\nabc\r\n",
        b"HMSG _INBOX.1 9 35 35\r\nNATS/1.0 409 Message Too Large\r\na:b\r\n\r\n\r\n",
        b"MSG _INBOX.1 9 79\r\n{\"error\":{\"code\":400,\"err_code\":10109,\"description\":\"sealed\"},\"stream\":\"s\",\"a\":1}\r\n",
    ];
    seeds.map(<[u8]>::to_vec).to_vec()
}
