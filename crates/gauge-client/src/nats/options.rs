//! The `system.options` of NATS.

use super::login::Login;
use crate::{ClientError, Endpoint};

/// Messages of a producer without an acknowledgement: what the official Go client allows (`PublishAsyncMaxPending`).
const WINDOW_MSGS: usize = 4000;
const WINDOW_MSGS_MAX: u64 = 1_000_000;
const CLIENT_NAME: &str = "streamgauge";

/// How consumers acknowledge what they have received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckPolicy {
    /// Each message by itself, the default of NATS.
    Explicit,
    /// The last message of those that were received together, for all before it.
    All,
    /// Not at all.
    None,
}

impl AckPolicy {
    /// Its name in a consumer's configuration.
    pub fn name(self) -> &'static str {
        match self {
            AckPolicy::Explicit => "explicit",
            AckPolicy::All => "all",
            AckPolicy::None => "none",
        }
    }
}

/// The options, with defaults.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// What connections call themselves.
    pub client_name: String,
    /// How consumers acknowledge.
    pub ack_policy: AckPolicy,
    /// Messages of a producer without an acknowledgement.
    pub window_msgs: usize,
    /// Who connections say they are.
    pub login: Login,
}

/// Reads an endpoint's options.
///
/// # Errors
/// [`ClientError::Input`] when one is unknown or has no sensible value.
pub(crate) fn read(endpoint: &Endpoint) -> Result<Options, ClientError> {
    let mut options = Options {
        client_name: CLIENT_NAME.to_owned(),
        ack_policy: AckPolicy::Explicit,
        window_msgs: WINDOW_MSGS,
        login: Login::of(&endpoint.security)?,
    };
    for (key, value) in &endpoint.options {
        let field = format!("system.options.{key}");
        match key.as_str() {
            "client_name" => match value.as_str() {
                Some(name) if (1..=100).contains(&name.len()) => options.client_name = name.to_owned(),
                _ => return Err(ClientError::input(field, "expected a text of 1 to 100 bytes")),
            },
            "ack_policy" => {
                options.ack_policy = match value.as_str() {
                    Some("explicit") => AckPolicy::Explicit,
                    Some("all") => AckPolicy::All,
                    Some("none") => AckPolicy::None,
                    _ => return Err(ClientError::input(field, "expected 'explicit', 'all' or 'none'")),
                }
            }
            "window_msgs" => match value.as_u64() {
                Some(messages @ 1..=WINDOW_MSGS_MAX) => options.window_msgs = messages as usize,
                _ => {
                    let message = format!("expected a number of messages from 1 to {WINDOW_MSGS_MAX}");
                    return Err(ClientError::input(field, message));
                }
            },
            _ => {
                let message = "NATS has no such option; it has client_name, ack_policy and window_msgs";
                return Err(ClientError::input(field, message));
            }
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn endpoint(options: serde_json::Value) -> Endpoint {
        Endpoint {
            bootstrap: vec!["127.0.0.1:4222".to_owned()],
            options: options.as_object().cloned().unwrap_or_default(),
            security: crate::Security::default(),
        }
    }

    #[test]
    fn options_are_read_and_what_is_wrong_is_named() {
        let options = read(&endpoint(
            json!({"ack_policy": "all", "window_msgs": 10, "client_name": "x"}),
        ))
        .expect("all right");
        assert_eq!(
            (
                options.ack_policy,
                options.window_msgs,
                options.client_name.as_str()
            ),
            (AckPolicy::All, 10, "x")
        );
        for wrong in [
            json!({"ack_policy": "some"}),
            json!({"window_msgs": 0}),
            json!({"client_name": ""}),
            json!({"client_id": "x"}),
        ] {
            let error = read(&endpoint(wrong)).expect_err("it is wrong");
            assert!(error.to_string().starts_with("system.options."), "{error}");
        }
    }
}
