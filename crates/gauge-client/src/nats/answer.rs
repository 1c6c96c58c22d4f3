//! What the server says of a published message: stored, or why not.

use serde_json::Value;

use super::wire::{self, Message};

/// An answer to a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The stream has it.
    Stored,
    /// The stream does not have it.
    Refused {
        /// Under which it is counted.
        kind: &'static str,
        /// The server's own.
        words: String,
        /// Whether sending it again cannot help.
        is_fatal: bool,
    },
}

/// Nobody listens to the subject: the stream has no leader at the moment, or does not exist.
const NO_RESPONDERS: &str = "NO_RESPONDERS";
const MALFORMED: &str = "MALFORMED_ANSWER";

/// JetStream's errors that a publication can meet: number in the server's errors.json, kind, whether sending again cannot help.
const ERRORS: &[(u64, &str, bool)] = &[
    (10008, "CLUSTER_NOT_AVAILABLE", false),
    (10009, "CLUSTER_NOT_LEADER", false),
    (10023, "INSUFFICIENT_RESOURCES", false),
    (10028, "MEMORY_RESOURCES_EXCEEDED", false),
    (10039, "JETSTREAM_NOT_ENABLED_FOR_ACCOUNT", true),
    (10047, "STORAGE_RESOURCES_EXCEEDED", false),
    (10053, "MESSAGE_EXCEEDS_MAXIMUM", true),
    (10054, "MESSAGE_EXCEEDS_MAXIMUM", true),
    (10076, "JETSTREAM_NOT_ENABLED", true),
    (10077, "STORE_FAILED", false),
    (10109, "STREAM_SEALED", true),
    (10118, "STREAM_OFFLINE", false),
    (10167, "TOO_MANY_REQUESTS", false),
];

/// Reads an answer.
#[inline]
pub(crate) fn read(message: &Message<'_>) -> Answer {
    // The server writes an error first and the stream after it, so this is all that an acknowledgement needs.
    if message.payload.starts_with(b"{\"stream\"") {
        return Answer::Stored;
    }
    refused(message)
}

#[cold]
fn refused(message: &Message<'_>) -> Answer {
    if wire::status(message.headers) == Some(503) {
        return Answer::Refused {
            kind: NO_RESPONDERS,
            words: "no stream listens to the subject".to_owned(),
            is_fatal: false,
        };
    }
    let text = String::from_utf8_lossy(message.payload).into_owned();
    let Ok(answer) = serde_json::from_slice::<Value>(message.payload) else {
        return Answer::Refused {
            kind: MALFORMED,
            words: format!("an answer that is no JSON: {text:.100}"),
            is_fatal: false,
        };
    };
    if answer["error"].is_null() && answer["stream"].is_string() {
        return Answer::Stored;
    }
    let number = answer["error"]["err_code"].as_u64().unwrap_or(0);
    let (_, kind, is_fatal) = ERRORS
        .iter()
        .find(|(known, _, _)| *known == number)
        .copied()
        .unwrap_or((number, "JETSTREAM_ERROR", false));
    Answer::Refused {
        kind,
        words: error_words(&answer),
        is_fatal,
    }
}

/// A JetStream answer's error in words.
pub(crate) fn error_words(answer: &Value) -> String {
    let error = &answer["error"];
    match error["description"].as_str() {
        Some(description) => format!("{description} (error {})", error["err_code"]),
        None => format!("{answer:.200}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<'a>(headers: &'a [u8], payload: &'a [u8]) -> Message<'a> {
        Message {
            subject: b"_INBOX.a.1",
            sid: 1,
            reply: b"",
            headers,
            payload,
        }
    }

    #[test]
    fn acknowledgements_are_recognised() {
        for payload in [
            &b"{\"stream\":\"t-0\",\"seq\":1}"[..],
            b"{\"stream\":\"t-0\",\"seq\":4,\"duplicate\": true}",
            b"{ \"seq\":4, \"stream\":\"t-0\"}",
        ] {
            assert_eq!(read(&message(b"", payload)), Answer::Stored);
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        let kind_of = |headers, payload| match read(&message(headers, payload)) {
            Answer::Refused { kind, is_fatal, .. } => (kind, is_fatal),
            Answer::Stored => panic!("it was not stored"),
        };
        assert_eq!(
            kind_of(b"NATS/1.0 503\r\nNats-Subject: a\r\n\r\n", b""),
            (NO_RESPONDERS, false)
        );
        assert_eq!(
            kind_of(
                b"",
                b"{\"error\":{\"code\":429,\"err_code\":10167,\"description\":\"too many requests\"},\"stream\":\"t\",\"seq\":0}"
            ),
            ("TOO_MANY_REQUESTS", false)
        );
        assert_eq!(
            kind_of(
                b"",
                b"{\"error\":{\"code\":400,\"err_code\":10054,\"description\":\"x\"}}"
            ),
            ("MESSAGE_EXCEEDS_MAXIMUM", true)
        );
        assert_eq!(
            kind_of(b"", b"{\"error\":{\"code\":500,\"err_code\":99999}}"),
            ("JETSTREAM_ERROR", false)
        );
        assert_eq!(kind_of(b"", b"hello"), (MALFORMED, false));
    }
}
