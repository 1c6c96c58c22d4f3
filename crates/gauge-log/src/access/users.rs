//! Who may log in: the users file, and the command that writes lines for it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, IsTerminal, Read, Write};
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::scram::{Comparison, ITERATIONS, Mechanism, SALT_BYTES, SALT_BYTES_MAX, Verifier};

/// Bytes of a users file at most.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Users at most: a verifier is made of each password when the log starts, which takes milliseconds.
const USERS_MAX: usize = 1000;
const NAME_BYTES_MAX: usize = 128;
/// A password must not be guessed at the rate at which attempts are allowed.
const PASSWORD_BYTES_MIN: usize = 8;
const PASSWORD_BYTES_MAX: usize = 1024;

/// The users, as verifiers of their passwords.
#[derive(Clone)]
pub struct Users {
    verifiers: HashMap<(String, Mechanism), Arc<Verifier>>,
    /// What verifiers look like from outside, per mechanism: decoys are made like them.
    shapes: [Vec<(NonZeroU32, usize)>; Mechanism::ALL.len()],
    /// Random: what decoys are made from.
    key: hmac::Key,
    /// How secrets are compared.
    pub comparison: Comparison,
}

impl std::fmt::Debug for Users {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Users({} verifiers)", self.verifiers.len())
    }
}

impl Users {
    /// Reads the users file: lines `NAME:PASSWORD` or `NAME:VERIFIER` (see `Verifier::to_text`), empty ones, and comments after `#`.
    ///
    /// # Errors
    /// A sentence that names the file, the line and what was expected; never a password.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |what: String| format!("--users {}: {what}", path.display());
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let metadata = file.metadata().map_err(|error| wrong(error.to_string()))?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(wrong(format!(
                "others can read it (mode {mode:03o}), and it holds secrets; take that right away: chmod 600 {}",
                path.display()
            )));
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|error| wrong(error.to_string()))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(wrong(format!("expected at most {FILE_BYTES_MAX} bytes")));
        }
        Self::parse(&text).map_err(wrong)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut verifiers: HashMap<(String, Mechanism), Arc<Verifier>> = HashMap::new();
        let mut names = 0;
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: String| format!("line {}: {what}", index + 1);
            let (name, secret) = line
                .split_once(':')
                .ok_or_else(|| wrong("expected NAME:PASSWORD, or what --make-user prints".to_owned()))?;
            check_name(name).map_err(wrong)?;
            if !Mechanism::ALL
                .into_iter()
                .any(|mechanism| verifiers.contains_key(&(name.to_owned(), mechanism)))
            {
                names += 1;
            }
            if names > USERS_MAX {
                return Err(wrong(format!("expected at most {USERS_MAX} users")));
            }
            for verifier in verifiers_of(secret).map_err(wrong)? {
                let mechanism = verifier.mechanism();
                let key = (name.to_owned(), mechanism);
                if verifiers.insert(key, Arc::new(verifier)).is_some() {
                    return Err(wrong(format!(
                        "a line above has a secret of this user for {} already; expected one",
                        mechanism.name()
                    )));
                }
            }
        }
        if verifiers.is_empty() {
            return Err(
                "nobody is in it; expected lines NAME:PASSWORD, or what --make-user prints".to_owned(),
            );
        }
        let shapes = Mechanism::ALL.map(|mechanism| {
            let of_mechanism = verifiers
                .values()
                .filter(|verifier| verifier.mechanism() == mechanism);
            let mut shapes: Vec<_> = of_mechanism.map(|verifier| verifier.shape()).collect();
            if shapes.is_empty() {
                shapes.push((ITERATIONS, SALT_BYTES));
            }
            shapes
        });
        Ok(Self {
            verifiers,
            shapes,
            key: hmac::Key::new(hmac::HMAC_SHA512, &random_bytes(64)?),
            comparison: Comparison::new(&random_bytes(32)?),
        })
    }

    /// A user's verifier, or a decoy for who is no user, and which of both it is. The same name gets the same decoy as long as the log runs, and
    /// decoys are as diverse as verifiers, so that nobody learns who the users are. It takes the same time for both.
    pub fn verifier(&self, name: &str, mechanism: Mechanism) -> (Arc<Verifier>, bool) {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(mechanism.label().as_bytes());
        context.update(name.as_bytes());
        let tag = context.sign();
        let (salt, choice) = tag.as_ref().split_at(SALT_BYTES_MAX);
        let shapes = &self.shapes[mechanism as usize];
        let choice = choice.iter().fold(0usize, |choice, &byte| {
            (choice << 8 | usize::from(byte)) % shapes.len()
        });
        let (iterations, salt_bytes) = shapes[choice];
        let decoy = Verifier::decoy(mechanism, salt[..salt_bytes].to_vec(), iterations);
        match self.verifiers.get(&(name.to_owned(), mechanism)) {
            Some(verifier) => (Arc::clone(verifier), true),
            None => (Arc::new(decoy), false),
        }
    }

    /// Whether this is the user's password. It takes milliseconds, the same for a user and for who is none.
    pub fn is_password(&self, name: &str, password: &str) -> bool {
        Mechanism::ALL.into_iter().fold(false, |is_right, mechanism| {
            let (verifier, is_known) = self.verifier(name, mechanism);
            is_right | (verifier.is_of(password, &self.comparison) & is_known)
        })
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
        && !name.starts_with('#');
    if is_name {
        return Ok(());
    }
    Err(format!(
        "expected a name of 1 to {NAME_BYTES_MAX} ASCII letters, digits and signs, without ':' and without '#' in front"
    ))
}

/// The verifiers that a secret stands for: itself, or one per mechanism of a password.
fn verifiers_of(secret: &str) -> Result<Vec<Verifier>, String> {
    if Mechanism::ALL
        .iter()
        .any(|mechanism| secret.starts_with(mechanism.label()))
    {
        return Ok(vec![Verifier::from_text(secret)?]);
    }
    // Other characters would have to be normalised (RFC 4013) the same way by every client.
    let is_password = (PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX).contains(&secret.len())
        && secret.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    if !is_password {
        return Err(format!(
            "expected a password of {PASSWORD_BYTES_MIN} to {PASSWORD_BYTES_MAX} ASCII letters, digits, signs and spaces"
        ));
    }
    Mechanism::ALL
        .into_iter()
        .map(|mechanism| {
            let salt = random_bytes(SALT_BYTES)?;
            Ok(Verifier::new(mechanism, secret, salt, ITERATIONS))
        })
        .collect()
}

/// Random bytes that nobody can foresee.
///
/// # Errors
/// A sentence: the system gives none.
pub fn random_bytes(count: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; count];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| "the system has no random numbers".to_owned())?;
    Ok(bytes)
}

/// Asks for a password on standard input, and returns the lines of a users file for `name`: one for each mechanism, without the password.
///
/// # Errors
/// A sentence that says what was expected.
pub fn make_user(name: &str) -> Result<String, String> {
    let wrong = |what: String| format!("--make-user {name}: {what}");
    check_name(name).map_err(wrong)?;
    let password = ask_password(name).map_err(|error| wrong(error.to_string()))?;
    if Verifier::from_text(&password).is_ok() {
        return Err(wrong("expected a password, not what is made of one".to_owned()));
    }
    let verifiers = verifiers_of(&password).map_err(wrong)?;
    Ok(verifiers
        .iter()
        .map(|verifier| format!("{name}:{}\n", verifier.to_text()))
        .collect())
}

fn ask_password(name: &str) -> std::io::Result<String> {
    let input = std::io::stdin();
    let silence = input.is_terminal().then(|| {
        eprint!("password of {name} (it is not shown): ");
        let _ = std::io::stderr().flush();
        Silence::begin(input.as_raw_fd())
    });
    let mut line = String::new();
    let mut bounded = input.lock().take(PASSWORD_BYTES_MAX as u64 + 2);
    let outcome = bounded.read_line(&mut line);
    if silence.is_some() {
        eprintln!();
    }
    outcome?;
    let line = line.strip_suffix('\n').unwrap_or(&line);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

/// A terminal that does not show what is typed, until this is dropped.
struct Silence {
    descriptor: i32,
    before: libc::termios,
}

impl Silence {
    fn begin(descriptor: i32) -> Option<Self> {
        // SAFETY: all-zero is a valid termios, which the call fills in.
        let mut before: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: plain system calls on structures that live during them.
        unsafe {
            if libc::tcgetattr(descriptor, &mut before) != 0 {
                return None;
            }
            let mut silent = before;
            silent.c_lflag &= !libc::ECHO;
            libc::tcsetattr(descriptor, libc::TCSAFLUSH, &silent);
        }
        Some(Self { descriptor, before })
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // SAFETY: a plain system call on a structure that lives during it.
        unsafe { libc::tcsetattr(self.descriptor, libc::TCSAFLUSH, &self.before) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_verifiers_are_recognised() {
        let made: String = verifiers_of("of:bob, with a colon")
            .unwrap()
            .iter()
            .map(|verifier| format!("bob:{}\n", verifier.to_text()))
            .collect();
        let users = Users::parse(&format!("# people\n\nalice:correct horse\n{made}")).unwrap();
        assert!(users.is_password("alice", "correct horse"));
        assert!(users.is_password("bob", "of:bob, with a colon"));
        assert!(!users.is_password("bob", "correct horse"));
        assert!(!users.is_password("carol", "correct horse"));
        assert_eq!(format!("{users:?}"), "Users(4 verifiers)");
    }

    #[test]
    fn who_is_no_user_gets_the_same_decoy_again_and_another_one_for_another_name() {
        let users = Users::parse("alice:correct horse").unwrap();
        let look = |name: &str| {
            let (verifier, is_known) = users.verifier(name, Mechanism::Sha512);
            (verifier.to_text(), is_known)
        };
        assert!(look("alice").1);
        assert!(!look("bob").1);
        assert_eq!(look("bob"), look("bob"));
        assert_ne!(look("bob"), look("carol"));
        assert_eq!(look("bob").0.len(), look("alice").0.len());
    }

    #[test]
    fn a_wrong_line_is_named_without_its_secret() {
        for (text, expected) in [
            ("", "nobody"),
            ("alice", "line 1: expected NAME:PASSWORD"),
            ("alice:short", "line 1: expected a password"),
            ("alice:pässword-with-umlaut", "line 1: expected a password"),
            ("alice:long enough\nalice:long enough", "line 2: a line above"),
            ("a b:long enough", "line 1: expected a name"),
            (":long enough", "line 1: expected a name"),
            ("\nalice:scram-sha-256$1$x$y$z", "line 2: expected 4096"),
        ] {
            let message = Users::parse(text).unwrap_err();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains("long enough"), "{message}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let path = std::env::temp_dir().join(format!("gauge-log-users-{}", std::process::id()));
        std::fs::write(&path, "alice:correct horse\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let message = Users::read(&path).unwrap_err();
        assert!(message.contains("chmod 600"), "{message}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Users::read(&path).is_ok());
        std::fs::remove_file(&path).unwrap();
    }
}
