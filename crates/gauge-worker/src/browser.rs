//! What a worker without a token refuses: requests that a page in somebody's browser could have sent.
//!
//! A browser sends for any page that its user looks at, to loopback too. The requests that it sends without asking the server first
//! ("simple" ones: Fetch standard, section 2.2.2) carry no JSON, and nearly all that it sends says that a browser sent it. A name that
//! an attacker's name server points at 127.0.0.1 (DNS rebinding) makes the worker part of the attacker's site; it stands in Host.

use std::net::IpAddr;

use axum::http::{HeaderMap, Method, Request, header};

use crate::error::ApiError;
use crate::server::Language;

/// Headers that browsers set, that pages cannot take away, and that no lab and no leader has a use for.
const BROWSERS: [&str; 5] = [
    "origin",
    "referer",
    "sec-fetch-site",
    "sec-fetch-mode",
    "sec-fetch-dest",
];

/// Looks whether a browser may have sent a request to a worker that listens at this address.
///
/// # Errors
/// Forbidden, with what was expected.
pub(crate) fn check<B>(request: &Request<B>, listens: IpAddr, language: Language) -> Result<(), ApiError> {
    if listens.is_loopback() && !is_for_loopback(request) {
        return Err(ApiError::forbidden(
            "the request is for another host: a worker without a token answers to 127.0.0.1, [::1] and localhost only",
        ));
    }
    let headers = request.headers();
    if let Some(name) = BROWSERS.iter().find(|name| headers.contains_key(**name)) {
        return Err(ApiError::forbidden(format!(
            "the request has the header '{name}', so a browser sent it: a worker without a token answers to none"
        )));
    }
    if is_simple(request.method(), headers, language) {
        return Err(ApiError::forbidden(
            "expected the header 'content-type: application/json': a worker without a token takes nothing else",
        ));
    }
    Ok(())
}

/// Whether all places that name the host name this machine.
fn is_for_loopback<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter().peekable();
    hosts.peek().is_some()
        && hosts.all(|host| host.to_str().is_ok_and(is_loopback))
        && request
            .uri()
            .authority()
            .is_none_or(|authority| is_loopback(authority.as_str()))
}

/// Whether HOST or HOST:PORT names this machine, whatever a name server says.
fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    host.eq_ignore_ascii_case("localhost")
        || bare
            .unwrap_or(host)
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Whether the body's type is one that a page may send without being asked. The leader of OMB sends no type at all, which a page
/// cannot do without the headers of a browser.
fn is_simple(method: &Method, headers: &HeaderMap, language: Language) -> bool {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter().peekable();
    if kinds.peek().is_none() {
        return *method == Method::POST && language == Language::Own;
    }
    !kinds.all(|kind| {
        kind.to_str().is_ok_and(|kind| {
            let essence = kind.split(';').next().unwrap_or_default().trim();
            essence.eq_ignore_ascii_case("application/json")
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

    use super::*;

    fn allowed(head: &[(&str, &str)], method: &str, uri: &str, language: Language) -> bool {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        let listens = IpAddr::from([127, 0, 0, 1]);
        check(&request.body(()).unwrap(), listens, language).is_ok()
    }

    #[test]
    fn hosts_that_are_not_this_machine_are_refused() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "127.9.9.9:1",
            "[::1]:7",
            "[::1]",
            "localhost:9",
            "LOCALHOST",
        ] {
            assert!(
                allowed(&[("host", host)], "GET", "/v1/info", Language::Own),
                "{host}"
            );
        }
        for host in [
            "",
            ":80",
            "evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "localhost@evil.example",
            "evil.example#localhost",
            "127.0.0.1, evil.example",
            "0.0.0.0",
            "2130706433",
            "localhost.",
        ] {
            assert!(
                !allowed(&[("host", host)], "GET", "/v1/info", Language::Own),
                "{host}"
            );
        }
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert!(!allowed(&twice, "GET", "/", Language::Omb));
        assert!(!allowed(&[], "GET", "/", Language::Own));
        assert!(!allowed(
            &[("host", "localhost")],
            "GET",
            "http://evil.example/",
            Language::Own
        ));
    }

    #[test]
    fn what_a_browser_sends_is_refused() {
        let host = ("host", "localhost:1");
        let json = ("content-type", "application/json; charset=utf-8");
        for name in BROWSERS {
            for language in [Language::Own, Language::Omb] {
                assert!(
                    !allowed(&[host, json, (name, "null")], "POST", "/", language),
                    "{name}"
                );
                assert!(!allowed(&[host, (name, "x")], "GET", "/", language), "{name}");
            }
        }
        assert!(allowed(&[host, json], "POST", "/v1/shutdown", Language::Own));
        for kind in [
            "text/plain",
            "text/plain; application/json",
            "multipart/form-data",
            "application/x-www-form-urlencoded",
            "",
            "text/ping",
        ] {
            for language in [Language::Own, Language::Omb] {
                assert!(
                    !allowed(&[host, ("content-type", kind)], "POST", "/v1/shutdown", language),
                    "{kind}"
                );
            }
        }
        assert!(!allowed(&[host], "POST", "/v1/shutdown", Language::Own));
        assert!(
            allowed(&[host], "POST", "/stop-all", Language::Omb),
            "as OMB's leader sends it"
        );
        assert!(allowed(&[host], "DELETE", "/v1/trials/current", Language::Own));
    }
}
