//! Requests to a broker's web service: HTTP/1.1 with one connection per request, blocking. Administration is a handful of requests, for
//! which an HTTP library would be most of this crate's dependencies.
//!
//! Source: RFC 9112 (messages, chunked bodies) and RFC 9110 (redirections).

use crate::security::Secret;
use crate::tls::Tls;
use crate::transport::{Blocking, Lost, resolve};

/// A longer answer is not believed.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// A broker sends requests on to the one that has the topic; more often than this there is no such broker.
const REDIRECTS_MAX: usize = 5;

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: u16,
    location: Option<String>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The reason of a refusal: Pulsar's words, or the status.
    pub fn reason(&self) -> String {
        let words = serde_json::from_slice::<serde_json::Value>(&self.body);
        let reason = words
            .ok()
            .and_then(|words| words["reason"].as_str().map(str::to_owned));
        match reason {
            Some(reason) => format!("{} (HTTP status {})", reason.trim(), self.status),
            None => format!("HTTP status {}", self.status),
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub method: &'a str,
    pub path: &'a str,
    /// JSON.
    pub body: Option<&'a str>,
    pub token: Option<&'a Secret>,
    /// Given: HTTPS.
    pub tls: Option<&'a Tls>,
}

/// Sends a request and follows redirections.
///
/// # Errors
/// One sentence when no answer could be had by `deadline_ns`.
pub(super) fn send(server: &str, request: &Request<'_>, deadline_ns: i64) -> Result<Answer, String> {
    let scheme = if request.tls.is_some() {
        "https://"
    } else {
        "http://"
    };
    let (mut server, mut path) = (server.to_owned(), request.path.to_owned());
    for _ in 0..=REDIRECTS_MAX {
        let asked = Request {
            path: &path,
            ..*request
        };
        let answer = send_once(&server, &asked, deadline_ns).map_err(|error| format!("{server}: {error}"))?;
        match (answer.status, &answer.location) {
            (301 | 302 | 307 | 308, Some(location)) => {
                let target = location
                    .strip_prefix(scheme)
                    .ok_or_else(|| format!("{server}: it redirects to {location:?}, expected {scheme}"))?;
                let at = target.find('/').unwrap_or(target.len());
                let (host, rest) = target.split_at(at);
                (server, path) = (
                    host.to_owned(),
                    if rest.is_empty() { "/" } else { rest }.to_owned(),
                );
            }
            _ => return Ok(answer),
        }
    }
    Err(format!("{server}: it redirects again and again"))
}

fn send_once(server: &str, request: &Request<'_>, deadline_ns: i64) -> Result<Answer, String> {
    let peers = resolve(server, request.tls)?;
    let peer = peers.first().ok_or("the name has no address")?;
    let words = |lost: Lost| lost.to_string();
    let mut connection = Blocking::connect(peer, deadline_ns).map_err(words)?;
    connection
        .write_all(&text(server, request), deadline_ns)
        .map_err(words)?;
    let mut bytes = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        match connection.read(&mut chunk, deadline_ns).map_err(words)? {
            0 => break,
            read => bytes.extend_from_slice(&chunk[..read]),
        }
        if bytes.len() as u64 > ANSWER_BYTES_MAX {
            return Err(format!("its answer is longer than {ANSWER_BYTES_MAX} bytes"));
        }
    }
    parse(&bytes).ok_or_else(|| "its answer is not HTTP".to_owned())
}

fn text(server: &str, request: &Request<'_>) -> Vec<u8> {
    let mut text = format!(
        "{} {} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\nAccept: application/json\r\n",
        request.method, request.path
    );
    if let Some(token) = request.token {
        text.push_str(&format!("Authorization: Bearer {}\r\n", token.reveal()));
    }
    if let Some(body) = request.body {
        text.push_str(&format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
    } else {
        text.push_str("Content-Length: 0\r\n\r\n");
    }
    text.into_bytes()
}

/// A whole answer, after which the server has closed the connection.
pub(super) fn parse(bytes: &[u8]) -> Option<Answer> {
    let head_bytes = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..head_bytes]).ok()?;
    let body = &bytes[head_bytes + 4..];
    let mut lines = head.split("\r\n");
    let status = lines
        .next()?
        .strip_prefix("HTTP/1.")?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    let (mut is_chunked, mut location) = (false, None);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        match name.to_ascii_lowercase().as_str() {
            "transfer-encoding" => is_chunked = value.trim().eq_ignore_ascii_case("chunked"),
            "location" => location = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let body = if is_chunked { unchunk(body)? } else { body.to_vec() };
    Some(Answer {
        status,
        location,
        body,
    })
}

fn unchunk(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let line_bytes = body.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&body[..line_bytes]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        let rest = &body[line_bytes + 2..];
        if size == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(rest.get(..size)?);
        body = rest.get(size.checked_add(2)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_read_whole_and_in_chunks() {
        let plain = parse(b"HTTP/1.1 409 Conflict\r\nContent-Length: 19\r\n\r\n{\"reason\":\"exists\"}");
        let plain = plain.expect("it is HTTP");
        assert_eq!(plain.reason(), "exists (HTTP status 409)");
        let chunked = parse(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2;x=y\r\n2]\r\n0\r\n\r\n",
        );
        assert_eq!(chunked.map(|answer| answer.body), Some(b"[1,2]".to_vec()));
        let moved = parse(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://b:8080/x\r\n\r\n");
        let moved = moved.expect("it is HTTP");
        assert_eq!(moved.location.as_deref(), Some("http://b:8080/x"));
        assert_eq!(moved.reason(), "HTTP status 307");
        assert_eq!(parse(b"PULSAR"), None);
    }

    proptest! {
        #[test]
        fn garbage_is_no_reason_to_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
            let _ = unchunk(&bytes);
            let mut chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            chunked.extend_from_slice(&bytes);
            let _ = parse(&chunked);
        }
    }
}
