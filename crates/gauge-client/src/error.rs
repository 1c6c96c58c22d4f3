//! What can go wrong between a client and a system.

use std::fmt;

/// An error of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// What was asked for cannot be done; `field` names the part of the request that is to blame.
    Input {
        /// Path of the field, as in the worker API: "system.options.client_id".
        field: String,
        /// One sentence.
        message: String,
    },
    /// The system could not be reached or refused.
    System(String),
}

impl ClientError {
    /// An input error.
    pub fn input(field: impl Into<String>, message: impl Into<String>) -> ClientError {
        ClientError::Input {
            field: field.into(),
            message: message.into(),
        }
    }

    /// A system error.
    pub fn system(message: impl Into<String>) -> ClientError {
        ClientError::System(message.into())
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Input { field, message } => write!(formatter, "{field}: {message}"),
            ClientError::System(message) => formatter.write_str(message),
        }
    }
}

impl std::error::Error for ClientError {}
