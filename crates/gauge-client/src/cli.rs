//! The command `gauge describe`.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::kafka::describe::{BAD_REQUEST, Failure, describe};
use crate::{ClientError, Security};

/// Longest request: a few certificates in PEM.
const REQUEST_BYTES_MAX: u64 = 4 << 20;
const EXPECTED: &str = "expected one JSON object on standard input, {\"server\": \"host:port\", \"security\": null, \"topic\": null}";

/// Ask a broker that speaks Kafka's protocol what it says of itself: its release, its cluster, a topic's leaders
///
/// Reads one JSON object on standard input, so that no secret is on the command line or in the environment:
/// {"server": "host:port", "security": null, "topic": null}, with "security" as in the worker API (docs/worker-api.md).
/// Prints one line: {"release": "4.3", "cluster_id": "...", "brokers": [{"id", "host", "port"}], "leaders": [{"partition", "leader"}]},
/// or {"error": {"code", "message"}}.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command. Exit status: 0 the broker has answered, 1 it has not, 2 the request is wrong.
pub fn run(_: &Args) -> ExitCode {
    let (answer, status) = match asked(io::stdin()) {
        Ok(answer) => (answer, 0),
        Err(failure) => (
            json!({"error": {"code": failure.code, "message": failure.message}}),
            if failure.code == BAD_REQUEST { 2 } else { 1 },
        ),
    };
    // Whoever asked may have gone.
    let _ = writeln!(io::stdout(), "{answer}");
    ExitCode::from(status)
}

/// Reads a request and has it answered. No message repeats what a request holds beside the server.
fn asked(from: impl Read) -> Result<Value, Failure> {
    let wrong = |message: String| Failure::new(BAD_REQUEST, message);
    let mut text = String::new();
    from.take(REQUEST_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| wrong(format!("the request cannot be read ({error}): {EXPECTED}")))?;
    let request: Value =
        serde_json::from_str(&text).map_err(|_| wrong(format!("the request is no JSON: {EXPECTED}")))?;
    let fields = request.as_object().ok_or_else(|| wrong(EXPECTED.to_owned()))?;
    let known = ["server", "security", "topic"];
    if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(wrong(format!("there is no field {name:?}: {EXPECTED}")));
    }
    let server = fields.get("server").and_then(Value::as_str);
    let server = server.ok_or_else(|| wrong(format!("\"server\" is no text: {EXPECTED}")))?;
    let topic = match fields.get("topic") {
        None | Some(Value::Null) => None,
        Some(Value::String(topic)) => Some(topic.as_str()),
        Some(_) => return Err(wrong(format!("\"topic\" is no text: {EXPECTED}"))),
    };
    let security = Security::read(fields.get("security").unwrap_or(&Value::Null))
        .map_err(|error: ClientError| wrong(error.to_string()))?;
    describe(server, security, topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_request_is_told_without_what_it_holds() {
        for request in [
            "geheim",
            "\"geheim\"",
            "{}",
            r#"{"server": 1}"#,
            r#"{"server": "127.0.0.1:1", "topic": 1}"#,
            r#"{"server": "127.0.0.1:1", "wait": "geheim"}"#,
            r#"{"server": "127.0.0.1:0"}"#,
            r#"{"server": "nowhere"}"#,
            r#"{"server": "127.0.0.1:1", "security": {"auth": {"mechanism": "plain", "username": "u", "password": ["geheim"]}}}"#,
            r#"{"server": "127.0.0.1:1", "security": {"auth": {"mechanism": "token", "token": "geheim"}}}"#,
        ] {
            let failure = asked(request.as_bytes()).expect_err("it is wrong");
            assert_eq!(failure.code, BAD_REQUEST, "{request}");
            assert!(
                failure.message.contains("expected") && !failure.message.contains("geheim"),
                "{failure:?}"
            );
        }
    }
}
