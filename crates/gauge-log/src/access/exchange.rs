//! How far a connection is with showing who its client is (SASL).

use ring::rand::{SecureRandom, SystemRandom};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::scram::{self, Challenge, First};
use super::users::Users;

/// Random bytes in a nonce.
const NONCE_BYTES: usize = 18;

/// A way to show who one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// RFC 4616: the password itself, and therefore only where connections are encrypted.
    Plain,
    /// RFC 5802.
    Scram(scram::Mechanism),
}

impl Mechanism {
    /// Its registered name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Scram(mechanism) => mechanism.name(),
        }
    }

    /// What is offered.
    pub fn offered(is_encrypted: bool) -> impl Iterator<Item = Self> {
        let scram = scram::Mechanism::ALL.into_iter().map(Self::Scram);
        scram.chain(is_encrypted.then_some(Self::Plain))
    }
}

/// What follows from a client's message.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// This is the answer, and another message is expected.
    Continue(Vec<u8>),
    /// The client is who it says it is; this is the last answer.
    Done(Vec<u8>),
    /// It is not, or cannot show it. There is one such answer, whatever the reason: nobody learns who the users are.
    Failed,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Begun,
    Chosen(Mechanism),
    Challenged(Box<Challenge>),
    Over,
}

/// The exchange of one connection, from its beginning to its success.
#[derive(Debug, Default)]
pub struct Exchange {
    state: State,
    /// Whether messages come without the header of a request: after version 0 of SaslHandshake.
    pub is_bare: bool,
}

impl Exchange {
    /// The client chooses a mechanism; false when it cannot.
    pub fn choose(&mut self, name: &str, is_encrypted: bool) -> bool {
        let chosen = Mechanism::offered(is_encrypted).find(|mechanism| mechanism.name() == name);
        match (&self.state, chosen) {
            (State::Begun, Some(mechanism)) => {
                self.state = State::Chosen(mechanism);
                true
            }
            _ => false,
        }
    }

    /// Whether a message is an attempt: the first one after the choice.
    pub fn awaits_attempt(&self) -> bool {
        matches!(self.state, State::Chosen(_))
    }

    /// Whether a message is expected at all.
    pub fn awaits_message(&self) -> bool {
        matches!(self.state, State::Chosen(_) | State::Challenged(_))
    }

    /// What follows from the client's next message.
    pub fn step(&mut self, users: &Users, message: &[u8]) -> Step {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Chosen(Mechanism::Plain) => match plain(users, message) {
                true => Step::Done(Vec::new()),
                false => Step::Failed,
            },
            State::Chosen(Mechanism::Scram(mechanism)) => {
                let mut nonce = [0; NONCE_BYTES];
                let (Some(first), Ok(())) = (First::read(message), SystemRandom::new().fill(&mut nonce))
                else {
                    return Step::Failed;
                };
                let (verifier, is_known) = users.verifier(&first.user, mechanism);
                let (challenge, answer) = Challenge::new(&first, verifier, is_known, &BASE64.encode(nonce));
                self.state = State::Challenged(Box::new(challenge));
                Step::Continue(answer.into_bytes())
            }
            State::Challenged(challenge) => match challenge.judge(message, &users.comparison) {
                Some(answer) => Step::Done(answer.into_bytes()),
                None => Step::Failed,
            },
            State::Begun | State::Over => Step::Failed,
        }
    }
}

/// RFC 4616: who to act for (nobody else), NUL, who one is, NUL, the password.
fn plain(users: &Users, message: &[u8]) -> bool {
    let Ok(message) = std::str::from_utf8(message) else {
        return false;
    };
    let mut parts = message.splitn(3, '\0');
    let (Some(other), Some(name), Some(password)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    // Looked at in any case, so that the time does not tell which of both was wrong.
    let is_password = users.is_password(name, password);
    is_password && (other.is_empty() || other == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINAL: &str = "c=biws,r=nonce,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    #[test]
    fn a_mechanism_is_chosen_once_and_passwords_are_only_shown_where_it_is_encrypted() {
        assert!(!Exchange::default().choose("PLAIN", false));
        assert!(!Exchange::default().choose("GSSAPI", true));
        let mut exchange = Exchange::default();
        assert!(exchange.choose("PLAIN", true));
        assert!(!exchange.choose("SCRAM-SHA-256", true));
    }

    #[test]
    fn a_failed_exchange_is_over() {
        let users = Users::parse("alice:correct horse").unwrap();
        let mut exchange = Exchange::default();
        assert_eq!(
            exchange.step(&users, b"\0alice\0correct horse"),
            Step::Failed,
            "nothing was chosen"
        );
        let mut exchange = Exchange::default();
        assert!(exchange.choose("PLAIN", true));
        assert_eq!(exchange.step(&users, b"\0alice\0correct house"), Step::Failed);
        assert_eq!(exchange.step(&users, b"\0alice\0correct horse"), Step::Failed);
        assert!(!exchange.awaits_message());
    }

    #[test]
    fn who_acts_for_somebody_else_is_refused() {
        let users = Users::parse("alice:correct horse").unwrap();
        let tried = |message: &[u8]| {
            let mut exchange = Exchange::default();
            assert!(exchange.choose("PLAIN", true));
            exchange.step(&users, message)
        };
        assert_eq!(tried(b"alice\0alice\0correct horse"), Step::Done(Vec::new()));
        assert_eq!(tried(b"bob\0alice\0correct horse"), Step::Failed);
        assert_eq!(tried(b"\0alice"), Step::Failed);
        assert_eq!(tried(&[0, 0xff, 0]), Step::Failed);
    }

    #[test]
    fn no_rubbish_gets_through() {
        let users = Users::parse("alice:correct horse").unwrap();
        let mut state = 88_172_645_463_325_252u64;
        let mut below = |limit: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % limit as u64) as usize
        };
        for _ in 0..5_000 {
            let mut exchange = Exchange::default();
            assert!(exchange.choose("SCRAM-SHA-256", true));
            for message in ["n,,n=alice,r=nonce", FINAL] {
                let mut bytes = message.as_bytes().to_vec();
                for _ in 0..below(3) {
                    let at = below(bytes.len());
                    match below(4) {
                        0 => bytes[at] = below(256) as u8,
                        1 => bytes.truncate(at + 1),
                        2 => bytes.insert(at, b",=\0"[below(3)]),
                        _ => bytes.extend_from_within(at..),
                    }
                }
                if !matches!(exchange.step(&users, &bytes), Step::Continue(_)) {
                    break;
                }
            }
            let is_through = exchange.step(&users, FINAL.as_bytes());
            assert_eq!(is_through, Step::Failed);
        }
    }
}
