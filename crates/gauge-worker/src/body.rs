//! The bodies of requests: how long they may be, and how long they may take to come.

use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Request;
use hyper::body::Incoming;

use crate::error::ApiError;

/// Longest body of a request that creates a trial: it may carry templates.
const TRIAL_BODY_BYTES_MAX: usize = 16 << 20;
/// Longest body with the books of several workers.
const BOOKS_BODY_BYTES_MAX: usize = 128 << 20;
/// Longest body of the others.
const BODY_BYTES_MAX: usize = 1 << 20;
/// A longer body is read this far before the connection is cut.
const DRAINED_BYTES_MAX: usize = 256 << 20;
/// How long a client may take to send a body.
const BODY_WITHIN: Duration = Duration::from_secs(60);

/// Reads the body whether its handler wants it or not.
///
/// # Errors
/// What was wrong with it.
pub(crate) async fn receive(request: Request<Incoming>) -> Result<Request<Body>, ApiError> {
    let (parts, body) = request.into_parts();
    let bytes_max = match parts.uri.path() {
        "/v1/trials" => TRIAL_BODY_BYTES_MAX,
        // OMB sends all payloads of a load at once.
        "/v1/judge" | "/start-load" => BOOKS_BODY_BYTES_MAX,
        _ => BODY_BYTES_MAX,
    };
    let bytes = tokio::time::timeout(BODY_WITHIN, read(body, bytes_max))
        .await
        .map_err(|_| {
            ApiError::bad_request(format!(
                "the body did not come within {} s",
                BODY_WITHIN.as_secs()
            ))
        })??;
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

/// Reads the whole body, in memory that is bounded. What is too long is read on and thrown away for a while, so that the
/// sender is there to hear the answer: closing a socket with unread bytes resets the connection.
async fn read(mut body: Incoming, bytes_max: usize) -> Result<Bytes, ApiError> {
    let mut bytes = Vec::new();
    let mut length = 0;
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame =
            frame.map_err(|error| ApiError::bad_request(format!("the body could not be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length <= bytes_max {
            bytes.extend_from_slice(&data);
        } else {
            bytes = Vec::new();
        }
        if length > DRAINED_BYTES_MAX {
            break;
        }
    }
    if length <= bytes_max {
        return Ok(Bytes::from(bytes));
    }
    Err(ApiError::too_large(format!(
        "the body is too long: expected at most {} MiB for a trial, {} MiB for books, {} MiB for other requests",
        TRIAL_BODY_BYTES_MAX >> 20,
        BOOKS_BODY_BYTES_MAX >> 20,
        BODY_BYTES_MAX >> 20
    )))
}
