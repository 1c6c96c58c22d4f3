//! Who may speak to the log, and how the way there is protected.
//!
//! `certificate`: what TLS needs; `users`: who may log in; `scram`: what is kept of passwords and how they are shown; `exchange`: how far a
//! connection is with that. The sockets' part is in `net`: `transport` and `server::strangers`.

pub mod certificate;
pub mod exchange;
pub mod scram;
pub mod users;

use std::sync::Arc;

use rustls::ServerConfig;

use users::Users;

/// What a client must show, and whether connections are encrypted.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// How connections are encrypted; None: they are not.
    pub tls: Option<Arc<ServerConfig>>,
    /// Who may log in; None: everybody who can connect may ask.
    pub users: Option<Arc<Users>>,
}

impl Access {
    /// Whether clients have to do something before their requests are answered.
    pub fn is_guarded(&self) -> bool {
        self.tls.is_some() || self.users.is_some()
    }

    /// Kafka's name for it.
    pub fn security_protocol(&self) -> &'static str {
        match (&self.tls, &self.users) {
            (None, None) => "PLAINTEXT",
            (Some(_), None) => "SSL",
            (None, Some(_)) => "SASL_PLAINTEXT",
            (Some(_), Some(_)) => "SASL_SSL",
        }
    }
}
