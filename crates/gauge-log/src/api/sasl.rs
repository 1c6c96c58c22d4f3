//! SaslHandshake and SaslAuthenticate: how a client logs in (KIP-12, KIP-43, KIP-152).

use super::error::ErrorCode;
use super::{Outcome, Request, finish};
use crate::access::exchange::{Exchange, Mechanism, Step};
use crate::access::users::Users;
use crate::wire::{Malformed, Read};

/// What a client is told whose login failed: the same, whatever the reason.
const FAILED: &str = "authentication failed: unknown user or wrong password";
const NOT_NOW: &str = "this connection does not expect that now";

/// The client chooses a mechanism.
pub fn handshake(mut request: Request<'_>, exchange: Option<&mut Exchange>) -> Read<Outcome> {
    let name = request.body.string()?;
    let is_encrypted = request.shared.settings.access.tls.is_some();
    let respond = |error: ErrorCode| {
        let mut out = request.respond();
        out.i16(error as i16);
        out.array(Mechanism::offered(is_encrypted).count());
        for mechanism in Mechanism::offered(is_encrypted) {
            out.string(mechanism.name());
        }
        finish(out, 0)
    };
    let Some(exchange) = exchange else {
        return Ok(Outcome::Answer(respond(ErrorCode::IllegalSaslState)));
    };
    if !exchange.choose(name, is_encrypted) {
        let response = respond(ErrorCode::UnsupportedSaslMechanism);
        return Ok(Outcome::Refused(Some(response)));
    }
    exchange.is_bare = request.version == 0;
    Ok(Outcome::Answer(respond(ErrorCode::None)))
}

/// The client's next message, in a request.
pub fn authenticate(
    mut request: Request<'_>,
    exchange: Option<&mut Exchange>,
    users: &Users,
) -> Read<Outcome> {
    let message = request.body.bytes()?;
    request.body.tags()?;
    let respond = |error: ErrorCode, reason: Option<&str>, bytes: &[u8]| {
        let mut out = request.respond();
        out.i16(error as i16);
        out.nullable_string(reason);
        out.bytes(bytes);
        if request.version >= 1 {
            // The session lasts as long as the connection.
            out.i64(0);
        }
        out.tags();
        finish(out, 0)
    };
    Ok(match exchange {
        None => Outcome::Answer(respond(ErrorCode::IllegalSaslState, Some(NOT_NOW), &[])),
        Some(exchange) if !exchange.awaits_message() => {
            Outcome::Refused(Some(respond(ErrorCode::IllegalSaslState, Some(NOT_NOW), &[])))
        }
        Some(exchange) => match exchange.step(users, message) {
            Step::Continue(answer) => Outcome::Answer(respond(ErrorCode::None, None, &answer)),
            Step::Done(answer) => Outcome::LoggedIn(respond(ErrorCode::None, None, &answer)),
            Step::Failed => Outcome::Refused(Some(respond(
                ErrorCode::SaslAuthenticationFailed,
                Some(FAILED),
                &[],
            ))),
        },
    })
}

/// The client's next message, by itself: after version 0 of SaslHandshake. There is no way to say that it failed but to close the connection.
pub fn bare(exchange: &mut Exchange, users: &Users, message: &[u8]) -> Read<Outcome> {
    if !exchange.awaits_message() {
        return Err(Malformed("a message after the last one of a login"));
    }
    let framed = |answer: Vec<u8>| {
        let mut frame = (answer.len() as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&answer);
        frame
    };
    Ok(match exchange.step(users, message) {
        Step::Continue(answer) => Outcome::Answer(framed(answer)),
        Step::Done(answer) => Outcome::LoggedIn(framed(answer)),
        Step::Failed => Outcome::Refused(None),
    })
}
