//! Who a client says it is: the mechanisms of SASL that both of RabbitMQ's protocols have.

use super::options::text;
use crate::security::{Auth, Secret};
use crate::{ClientError, Endpoint};

/// The mechanisms in the worker API.
const MECHANISMS: &[&str] = &["plain", "external"];

/// Who a client says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Login {
    /// A user with a password.
    Plain { user: String, password: Secret },
    /// Whoever the client's certificate names.
    External,
}

impl Login {
    /// The login of a system: that of its security, or that of the options, which say the same in an older way.
    ///
    /// # Errors
    /// [`ClientError::Input`] when RabbitMQ has no such mechanism, or both are given.
    pub fn of(endpoint: &Endpoint) -> Result<Login, ClientError> {
        let security = &endpoint.security;
        let option = |name: &str| -> Result<Option<String>, ClientError> {
            let value = endpoint.options.get(name);
            value.map(|value| text(name, value)).transpose()
        };
        let (user, password) = (option("user")?, option("password")?);
        security.check("rabbitmq", MECHANISMS)?;
        for (name, option) in [("user", &user), ("password", &password)] {
            if option.is_some() {
                security.check_option(name)?;
            }
        }
        Ok(match &security.auth {
            Some(Auth::Plain { username, password }) => Login::Plain {
                user: username.clone(),
                password: password.clone(),
            },
            Some(Auth::External) => Login::External,
            _ => Login::Plain {
                user: user.unwrap_or_else(|| "guest".to_owned()),
                password: Secret::new(password.unwrap_or_else(|| "guest".to_owned())),
            },
        })
    }

    /// SASL's name of the mechanism.
    pub fn mechanism(&self) -> &'static str {
        match self {
            Login::Plain { .. } => "PLAIN",
            Login::External => "EXTERNAL",
        }
    }

    /// What the client says (RFC 4616; with EXTERNAL everything is in the certificate).
    pub fn response(&self) -> Vec<u8> {
        match self {
            Login::Plain { user, password } => {
                [b"\0", user.as_bytes(), b"\0", password.reveal().as_bytes()].concat()
            }
            Login::External => Vec::new(),
        }
    }

    /// Looks whether a server offers the mechanism.
    ///
    /// # Errors
    /// One sentence with what it offers.
    pub fn check_offer(&self, offered: &[&str]) -> Result<(), String> {
        let mechanism = self.mechanism();
        if offered.contains(&mechanism) {
            return Ok(());
        }
        let hint = match self {
            Login::Plain { .. } => "",
            Login::External => " (its plugin rabbitmq_auth_mechanism_ssl makes it offer that)",
        };
        Err(format!("it offers {}, not {mechanism}{hint}", offered.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Security;
    use serde_json::{Value, json};

    fn login(options: Value, security: Value) -> Result<Login, ClientError> {
        Login::of(&Endpoint {
            bootstrap: Vec::new(),
            options: options.as_object().cloned().unwrap_or_default(),
            security: Security::read(&security)?,
        })
    }

    #[test]
    fn options_and_security_say_the_same_but_not_both() {
        let found = login(json!({"user": "u"}), json!({})).expect("it is right");
        assert_eq!(found.response(), b"\0u\0guest");
        assert!(!format!("{found:?}").contains("guest"));
        let auth = json!({"auth": {"mechanism": "plain", "username": "u", "password": "p"}});
        let found = login(json!({}), auth.clone()).expect("it is right");
        assert_eq!(
            (found.mechanism(), found.response()),
            ("PLAIN", b"\0u\0p".to_vec())
        );
        match login(json!({"password": "p"}), auth) {
            Err(ClientError::Input { field, .. }) => assert_eq!(field, "system.options.password"),
            other => panic!("expected an input error, got {other:?}"),
        }
        let token = json!({"auth": {"mechanism": "token", "token": "t"}});
        assert!(login(json!({}), token).is_err());
    }

    #[test]
    fn what_is_not_offered_is_told() {
        let plain = login(json!({}), json!({})).expect("it is right");
        assert!(plain.check_offer(&["AMQPLAIN", "PLAIN"]).is_ok());
        let error = Login::External
            .check_offer(&["PLAIN"])
            .expect_err("it is not offered");
        assert!(error.starts_with("it offers PLAIN, not EXTERNAL"), "{error}");
        assert!(Login::External.response().is_empty());
    }
}
